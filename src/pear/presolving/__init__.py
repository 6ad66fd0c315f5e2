"""Presolve, which makes a program smaller before it is solved, and maps decisions and multipliers back.

The package works on arrays and does not import ``Problem``. Callers use ``reduce_program``: ``from_cvxpy`` calls it to
remove the variables that CVXPY adds, and ``pear.presolve`` calls it for a whole problem.
"""

from pear.presolving.reduce_program import ProgramReduction, reduce_program
from pear.presolving.row_program import RowProgram

__all__ = ["ProgramReduction", "RowProgram", "reduce_program"]

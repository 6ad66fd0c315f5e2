"""A program made smaller before it is solved, and the way back for its decisions and multipliers.

The package works on arrays and knows no ``Problem``. ``reduce_program`` is its one entry: ``from_cvxpy`` uses it for
the variables that CVXPY adds, and ``pear.presolve`` for a whole problem.
"""

from pear.presolving.reduce_program import Reduction, reduce_program
from pear.presolving.row_program import RowProgram

__all__ = ["Reduction", "RowProgram", "reduce_program"]

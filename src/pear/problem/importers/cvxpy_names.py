"""Names of the parts of a CVXPY problem, for messages and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pear.presolving.row_program import Mask

WHERE = "the CVXPY problem"
"""The name of the source in messages and reports."""


def cvxpy_parameters_in(expression: Any, parameters: Sequence[Any]) -> list[Any]:
    """Return the parameters, among the given ones, that an expression, a constraint or a variable contains.

    A variable contains the parameters in its attributes, such as its bounds.
    """
    inside = {id(p) for p in expression.parameters()}
    return [p for p in parameters if id(p) in inside]


def cvxpy_constraint_name(constraint: Any, i: int) -> str:
    """Return the label of a constraint, or "constraint i" if it has no label."""
    return getattr(constraint, "label", None) or f"constraint {i}"


def name_cvxpy_variables(names: Sequence[str], added: Mask) -> tuple[str, ...]:
    """Return the names of all variables, with auxiliary[0], auxiliary[1], … for those that CVXPY has added.

    Args:
        names: the names of all n variables. Those of added variables are replaced.
        added: (n,) bool, True for variables that CVXPY has added.
    """
    numbers = np.cumsum(added) - 1
    return tuple(f"auxiliary[{numbers[i]}]" if added[i] else name for i, name in enumerate(names))

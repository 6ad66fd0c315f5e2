"""Names of the parts of a CVXPY problem, for messages and reports, and what its parameters are known to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pear.problem.indexed_names import index_names as names_of_entries

WHERE = "the CVXPY problem"


def parameters_in(expression: Any, parameters: Sequence[Any]) -> list[Any]:
    """Those of ``parameters`` that occur in an expression, a constraint or the attributes of a variable."""
    inside = {id(p) for p in expression.parameters()}
    return [p for p in parameters if id(p) in inside]


def parameter_names(parameters: Sequence[Any]) -> list[str]:
    """The names of CVXPY parameters."""
    return [p.name() for p in parameters]


def constraint_name(constraint: Any, i: int) -> str:
    """The label of a constraint, or its number where it has none."""
    return getattr(constraint, "label", None) or f"constraint {i}"


def entry_names(leaf: Any) -> list[str]:
    """Names of the entries of a variable or parameter, row by row: price, or price[0], …, or price[0,1], …."""
    return list(names_of_entries(leaf.name(), leaf.shape))


def sign_of(leaf: Any) -> dict[str, bool]:
    """The sign of a parameter or variable as a keyword argument of CVXPY; empty where it has none."""
    above, below = leaf.is_nonneg(), leaf.is_nonpos()
    return {} if above == below else {"nonneg" if above else "nonpos": True}

"""Names of rows and columns: what came as a table goes back as one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear.problem import Model, Problem


def is_frame(value: Any) -> bool:
    """True of a pandas DataFrame; pandas is not imported for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def column_names(value: Any) -> tuple[Any, ...] | None:
    """Of a DataFrame; None of anything else."""
    return tuple(value.columns) if is_frame(value) else None


def variable_names(problem: Problem | Model, columns: Sequence[Any] | None) -> tuple[Any, ...]:
    """Of the n decisions: a model's own, or else those of the cost columns, or numbered ones."""
    if isinstance(problem, Model):
        return problem.variables
    return tuple(columns) if columns is not None else tuple(f"x{i}" for i in range(problem.n))


def check_order_of_values(problem: Problem | Model, columns: Sequence[Any] | None) -> None:
    """A table whose columns are named as the model's values has them in the model's order.

    Raises:
        ProblemError: the same names in another order.
    """
    names = problem.names if isinstance(problem, Model) else ()
    if columns is not None and tuple(columns) != names and set(columns) == set(names):
        raise ProblemError(
            f"the columns of C are named as the values of the model, but in another order: {list(columns)[:5]} for "
            f"{list(names)[:5]}; pass C[list(model.names)]"
        )


def as_table(values: np.ndarray[Any, Any], like: Any, columns: Sequence[Any]) -> Any:
    """A DataFrame with these columns, and with the index of ``like`` where that is one."""
    import pandas

    return pandas.DataFrame(values, index=like.index if is_frame(like) else None, columns=list(columns))

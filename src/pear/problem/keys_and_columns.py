"""Keys of samples, which name the rows of a batch, and checks of the columns and rows of DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.model import Model, plain_problem
from pear.problem.oracle import Oracle
from pear.problem.oracle_calls import argument_names
from pear.problem.problem import Problem
from pear.problem.row_pairing import check_paired_rows, is_frame

Result = TypeVar("Result")


def as_keys(
    keys: Tensor | Iterable[Hashable] | None, batch: int, problem: Problem | None = None
) -> list[Hashable] | None:
    """Return sample keys as a list with one distinct key per sample; None stays None.

    Args:
        keys: ids of the samples, or None.
        batch: the number of samples.
        problem: a problem or None. Where its fields differ between samples, every key must be one of its row numbers.

    Raises:
        ProblemError: the keys do not name every sample once, or name no row of ``problem``.
    """
    if keys is None:
        return None
    ids = keys.tolist() if isinstance(keys, (Tensor, np.ndarray)) else list(keys)
    if isinstance(keys, (Tensor, np.ndarray)) and keys.ndim > 1:
        raise ProblemError(f"keys must be one id a sample; got an array of shape {tuple(keys.shape)}")
    if len(ids) != batch:
        raise ProblemError(f"keys must name every sample: expected {batch}, got {len(ids)}")
    if len(set(ids)) != batch:
        raise ProblemError("keys must be distinct within a batch; a sample came twice")
    if problem is not None:
        _check_row_numbers(problem, ids)
    return ids


def takes_keys(function: Callable[..., Any]) -> bool:
    """Whether a function, or the ``forward`` of a module, has an argument ``keys`` for the sample ids."""
    return "keys" in argument_names(function)


def call_with_keys(function: Callable[..., Result], rows: Tensor, keys: list[Hashable] | None) -> Result:
    """Call a function with ``rows`` (B, n), and also with the B sample ids if it has an argument ``keys``."""
    return function(rows, keys=keys) if takes_keys(function) else function(rows)


def select_rows(problem: Problem, keys: list[Hashable] | None) -> Problem:
    """The samples of a problem that the keys name. A problem that all samples share is returned as it is.

    Raises:
        ProblemError: a key names no row of ``problem``.
    """
    if isinstance(problem, Oracle) and problem.batch is None and keys is not None:
        return problem.of_samples(keys)
    if keys is None or problem.batch is None:
        return problem
    _check_row_numbers(problem, keys)
    return problem[torch.tensor(keys, device=problem.device)]


def select_model_rows(model: Model, keys: list[Hashable] | None) -> Model:
    """The samples of a model that the keys name. A model that all samples share is returned as it is.

    Raises:
        ProblemError: a key names no row of the model's problem.
    """
    own_costs = model.cost_map is not None and model.cost_map.batch is not None
    if keys is None or (model.problem.batch is None and not own_costs):
        return model
    _check_row_numbers(model.problem, keys)
    return model[torch.tensor(keys, device=model.problem.device)]


def _check_row_numbers(problem: Problem, keys: list[Hashable]) -> None:
    """Check that every key is a row number of a problem whose fields differ between samples."""
    if problem.batch is None:
        return
    unknown = [i for i in keys if not isinstance(i, int) or not 0 <= i < problem.batch]
    if unknown:
        raise ProblemError(
            f"the problem has fields of its own for {problem.batch} samples, so that keys must be their row numbers, "
            f"0 to {problem.batch - 1}; got {unknown[0]!r}"
        )


def column_names(value: Any) -> tuple[Any, ...] | None:
    """The column names of a DataFrame; None for anything else."""
    return tuple(value.columns) if is_frame(value) else None


def check_column_order(problem: Problem | Model, columns: Sequence[Any] | None, name: str = "C") -> None:
    """Check that columns named like the predicted values are in the model's order.

    Args:
        problem: a model with names, or a plain problem, whose values are called x0, x1, …
        columns: the column names of the table, or None where it has none.
        name: the name of the table in error messages.

    Raises:
        ProblemError: the columns have the same names in another order.
    """
    if columns is None:
        return
    names = problem.names if isinstance(problem, Model) else tuple(f"x{i}" for i in range(problem.n))
    if tuple(columns) != names and set(columns) == set(names):
        raise ProblemError(
            f"the columns of {name} are named as the values of the model, but in another order: {list(columns)[:5]} "
            f"for {list(names)[:5]}; pass {name}[list(model.names)]"
        )


def check_same_order(problem: Problem | Model, predicted: Any, true: Any) -> None:
    """Check that DataFrames of predicted and true values have the same columns and rows in the same order.

    Raises:
        ProblemError: their columns or rows differ in order, or their indices differ: wrong numbers would be compared.
    """
    columns = [column_names(table) for table in (predicted, true)]
    for name, own in zip(("predicted", "true"), columns, strict=True):
        check_column_order(problem, own, name)
    if None not in columns and columns[0] != columns[1]:
        same = set(columns[0] or ()) == set(columns[1] or ())
        advice = "pass predicted[true.columns]" if same else "give both the names of the predicted values"
        raise ProblemError(
            f"predicted and true must have the same columns in the same order; got {list(columns[0] or ())[:5]} and "
            f"{list(columns[1] or ())[:5]}: {advice}"
        )
    check_paired_rows({"true": true, "predicted": predicted})


def count_keyed_samples(problem: Any) -> int | None:
    """Return the number of samples that a problem or its cost map has rows for; None if all samples share its data.

    The key of a sample is then its row number. The argument may also be no problem at all: the result is None.
    """
    if not isinstance(problem, (Problem, Model)):
        return None
    plain, cost_map = plain_problem(problem), problem.cost_map if isinstance(problem, Model) else None
    return plain.batch if cost_map is None or plain.batch is not None else cost_map.batch

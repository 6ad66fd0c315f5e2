"""Keys, which are ids of samples: how they are checked, passed to functions, and used to select samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.model import Model, problem_of_model
from pear.problem.oracle import Oracle
from pear.problem.oracle_function import function_argument_names
from pear.problem.problem import Problem

Result = TypeVar("Result")


def as_keys(
    keys: Tensor | Iterable[Hashable] | None, batch: int, problem: Problem | None = None
) -> list[Hashable] | None:
    """Return the keys of a batch as a list with one distinct key per sample; None stays None.

    Args:
        keys: ids of the samples, or None.
        batch: the number of samples.
        problem: a problem or None. If its fields differ between samples, every key must be one of its row numbers.

    Raises:
        ProblemError: the keys do not name every sample once, or name no row of ``problem``.
    """
    if keys is None:
        return None
    if isinstance(keys, (Tensor, np.ndarray)) and keys.ndim != 1:
        raise ProblemError(f"keys must be one id a sample; got an array of shape {tuple(keys.shape)}")
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        raise ProblemError(f"keys must be one id a sample, such as range({batch}); got {keys!r}")
    ids = keys.tolist() if isinstance(keys, (Tensor, np.ndarray)) else list(keys)
    if len(ids) != batch:
        raise ProblemError(f"keys must name every sample: expected {batch}, got {len(ids)}")
    if len(set(ids)) != batch:
        raise ProblemError("keys must be distinct within a batch; a sample came twice")
    if problem is not None:
        _check_row_keys(problem, ids)
    return ids


def takes_keys(function: Callable[..., Any]) -> bool:
    """Return True if a function, or the ``forward`` of a module, has an argument ``keys`` for the sample ids."""
    return "keys" in function_argument_names(function)


def call_with_keys(function: Callable[..., Result], rows: Tensor, keys: list[Hashable] | None) -> Result:
    """Return ``function(rows)``, or ``function(rows, keys=keys)`` if the function has an argument ``keys``.

    Args:
        function: a function, or a module.
        rows: (B, n).
        keys: the ids of the B samples, or None.
    """
    return function(rows, keys=keys) if takes_keys(function) else function(rows)


def select_by_keys(problem: Problem, keys: list[Hashable] | None) -> Problem:
    """Return the problem of the samples that the keys name. A problem that all samples share is returned unchanged.

    An oracle without fields per sample gets the keys, and passes them to its function if the function takes ids.

    Raises:
        ProblemError: a key names no row of ``problem``.
    """
    if isinstance(problem, Oracle) and problem.batch is None and keys is not None:
        return problem.of_samples(keys)
    if keys is None or problem.batch is None:
        return problem
    _check_row_keys(problem, keys)
    return problem[torch.tensor(keys, device=problem.device)]


def select_model_by_keys(model: Model, keys: list[Hashable] | None) -> Model:
    """Return the model of the samples that the keys name. A model that all samples share is returned unchanged.

    Raises:
        ProblemError: a key names no row of the model's problem or of its known costs.
    """
    if keys is None or count_keyed_samples(model) is None:
        return model
    _check_row_keys(model, keys)
    return model[torch.tensor(keys, device=model.problem.device)]


def count_keyed_samples(problem: Any) -> int | None:
    """Return the number N of samples of a problem or model whose fields or known costs differ between samples.

    The keys of these samples must be their row numbers, 0 to N − 1.

    Returns:
        N; None if all samples share the fields and known costs, or if the argument is no ``Problem`` or ``Model``.
    """
    if not isinstance(problem, (Problem, Model)):
        return None
    plain, cost_map = problem_of_model(problem), problem.cost_map if isinstance(problem, Model) else None
    return plain.batch if cost_map is None or plain.batch is not None else cost_map.batch


def _check_row_keys(problem: Problem | Model, keys: list[Hashable]) -> None:
    """Check that every key is a row number, if fields or known costs differ between samples."""
    count = count_keyed_samples(problem)
    if count is None:
        return
    unknown = [i for i in keys if not isinstance(i, int) or not 0 <= i < count]
    if unknown:
        what = "cost map has known costs" if problem_of_model(problem).batch is None else "problem has fields"
        raise ProblemError(
            f"the {what} of its own for {count} samples, so that keys must be their row numbers, 0 to {count - 1}; "
            f"got {unknown[0]!r}"
        )

"""Sample keys: the ids of the samples of a batch, and the rows of a problem that they select."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.problem import Problem


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
    if any(isinstance(key, list) for key in ids):
        raise ProblemError(f"keys must be one id a sample; got an array of shape {tuple(keys.shape)}")  # type: ignore[union-attr]
    if len(ids) != batch:
        raise ProblemError(f"keys must name every sample: expected {batch}, got {len(ids)}")
    if len(set(ids)) != batch:
        raise ProblemError("keys must be distinct within a batch; a sample came twice")
    if problem is not None:
        _check_rows(problem, ids)
    return ids


def select_rows(problem: Problem, keys: list[Hashable] | None) -> Problem:
    """Select the rows named by the keys from a problem whose fields differ by sample; return any other unchanged.

    Raises:
        ProblemError: a key names no row of ``problem``.
    """
    if keys is None or problem.batch is None:
        return problem
    _check_rows(problem, keys)
    return problem[torch.tensor(keys, device=problem.device)]


def _check_rows(problem: Problem, keys: list[Hashable]) -> None:
    if problem.batch is None:
        return
    unknown = [i for i in keys if not isinstance(i, int) or not 0 <= i < problem.batch]
    if unknown:
        raise ProblemError(
            f"the problem has fields of its own for {problem.batch} samples, so that keys must be their row numbers, "
            f"0 to {problem.batch - 1}; got {unknown[0]!r}"
        )

"""Known values of samples that a call passes next to a problem or model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pear.errors import ProblemError
from pear.problem.model import Model
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.tensor_conversion import to_batch_tensor


def fill_known_samples(problem: Any, known: Any, values: Any) -> Any:
    """Return a model with its known values filled in. A problem or model without known values is returned unchanged.

    Args:
        problem: a ``Problem`` or ``Model``.
        known: the known values, in a form that ``Model.with_known`` accepts; None if the model has no known values, or
            if they are already filled in.
        values: (B, k) predicted values of the samples, or (k,) of one sample. ``known`` must have as many samples.

    Raises:
        ProblemError: known values are missing, not expected, or of another form than the model expects.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        check_pandas_rows({"predicted": values, "known": known})
        return problem.with_known(known, len(to_batch_tensor(values)))
    _refuse_known_samples(known)
    return problem


def read_known_samples(problem: Any, known: Any, count: int) -> Tensor | None:
    """Convert the known values of N samples to a tensor.

    Args:
        problem: a ``Problem`` or ``Model``.
        known: the known values, in a form that ``Model.with_known`` accepts; None if the model has no known values.
        count: N, the number of samples.

    Returns:
        (N, k), with one column for each of the k names in ``known_map.names``; None if the problem has no known values.

    Raises:
        ProblemError: known values are missing, not expected, or of another form than the model expects.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        numbers = problem.known_map.read(known, count)
        return numbers.expand(count, -1)
    _refuse_known_samples(known)
    return None


def insert_known_samples(problem: Any, numbers: Tensor | None) -> Any:
    """Return a model with known values filled in from ``numbers`` (N, k), the result of ``read_known_samples``.

    If ``numbers`` is None, the problem is returned unchanged.
    """
    if numbers is None:
        return problem
    return problem.with_known({name: numbers[:, i] for i, name in enumerate(problem.known_map.names)}, len(numbers))


def _refuse_known_samples(known: Any) -> None:
    """Raise ProblemError if known values were passed for a problem that has none."""
    if known is not None:
        raise ProblemError(
            "known= came, and the problem has no known values; name them when the model is imported, known=[…], or "
            "leave known= out"
        )

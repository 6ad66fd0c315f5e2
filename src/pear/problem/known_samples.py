"""Known data that comes with a call, beside the problem or model that needs it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pear.errors import ProblemError
from pear.problem.array_conversion import as_batch
from pear.problem.model import Model
from pear.problem.row_pairing import check_paired_rows


def bring_known(problem: Any, known: Any, values: Any) -> Any:
    """The problem or model that decides for samples with this known data; itself where it has no known values.

    Args:
        problem: a ``Problem`` or ``Model``.
        known: as for ``Model.with_known``; None where the model has no known values, or has got them before.
        values: (B, k) values of the samples, or (k,) of one, which tell how many rows ``known`` must have.

    Raises:
        ProblemError: known data is missing, not expected, or not what the model expects.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        check_paired_rows({"predicted": values, "known": known})
        return problem.with_known(known, len(as_batch(values)))
    _refuse_unexpected(known)
    return problem


def read_known(problem: Any, known: Any, count: int) -> Tensor | None:
    """The known numbers of samples, (N, ·), in the order of ``known_map.names``; None where the problem has none.

    Args:
        problem: a ``Problem`` or ``Model``.
        known: as for ``bring_known``.
        count: N, the number of samples.

    Raises:
        ProblemError: as for ``bring_known``.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        numbers = problem.known_map.read(known, count)
        return numbers.expand(count, -1)
    _refuse_unexpected(known)
    return None


def with_numbers(problem: Any, numbers: Tensor | None) -> Any:
    """The model with known numbers (N, ·) of its samples, a result of ``read_known``; itself where there are none."""
    if numbers is None:
        return problem
    return problem.with_known({name: numbers[:, i] for i, name in enumerate(problem.known_map.names)}, len(numbers))


def _refuse_unexpected(known: Any) -> None:
    """Raise ProblemError where known data comes with a problem that has no known values."""
    if known is not None:
        raise ProblemError(
            "known= came, and the problem has no known values; name them when the model is imported, known=[…], or "
            "leave known= out"
        )

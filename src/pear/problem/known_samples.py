"""Known data that comes with a call, beside the problem or model that needs it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pear.errors import ProblemError
from pear.problem.model import Model
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.tensor_conversion import to_batch_tensor


def fill_known_samples(problem: Any, known: Any, values: Any) -> Any:
    """Return the model with this known data filled in; a problem without known values is returned as it is.

    Args:
        problem: a ``Problem`` or ``Model``.
        known: as for ``Model.with_known``; None if the model has no known values, or already holds them.
        values: (B, k) values of the samples, or (k,) of one sample; they set the number of rows of ``known``.

    Raises:
        ProblemError: known data is missing, not expected, or not what the model expects.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        check_pandas_rows({"predicted": values, "known": known})
        return problem.with_known(known, len(to_batch_tensor(values)))
    _refuse_known_samples(known)
    return problem


def read_known_samples(problem: Any, known: Any, count: int) -> Tensor | None:
    """Return the known numbers of N samples, one column for each of ``known_map.names``; None if the problem has none.

    Args:
        problem: a ``Problem`` or ``Model``.
        known: as for ``fill_known_samples``.
        count: N, the number of samples.

    Raises:
        ProblemError: as for ``fill_known_samples``.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        numbers = problem.known_map.read(known, count)
        return numbers.expand(count, -1)
    _refuse_known_samples(known)
    return None


def insert_known_samples(problem: Any, numbers: Tensor | None) -> Any:
    """Return the model with the result of ``read_known_samples`` filled in; the problem itself where that is None."""
    if numbers is None:
        return problem
    return problem.with_known({name: numbers[:, i] for i, name in enumerate(problem.known_map.names)}, len(numbers))


def _refuse_known_samples(known: Any) -> None:
    """Raise ProblemError where known data comes with a problem that has no known values."""
    if known is not None:
        raise ProblemError(
            "known= came, and the problem has no known values; name them when the model is imported, known=[…], or "
            "leave known= out"
        )

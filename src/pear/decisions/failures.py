"""Failed samples: checks of ``on_failure``, and the errors and warnings that name the failed samples of a batch."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Literal

from torch import Tensor

from pear.errors import FailedSamplesWarning, ProblemError, SolveError
from pear.optimality.status import Status, has_decision_status

OnFailure = Literal["raise", "mask"]
"""Whether failed samples raise an error, or are masked with a warning."""


def check_on_failure(on_failure: str) -> None:
    """Raise ProblemError if ``on_failure`` is neither "raise" nor "mask"."""
    if on_failure not in ("raise", "mask"):
        raise ProblemError(f"on_failure must be 'raise' or 'mask'; got {on_failure!r}")


def report_failures(
    status: Tensor,
    on_failure: str,
    what: str,
    spreads: bool = False,
    gap: Tensor | None = None,
    unchecked: Tensor | None = None,
) -> None:
    """Raise an error, or warn, if samples are not solved; the message names each reason with its samples.

    Args:
        status: (B,) int8 of ``Status``.
        on_failure: "raise" or "mask".
        what: words for the message that say what could not be solved, such as "the predicted costs".
        spreads: whether the costs come from a model that is being trained. If so, a warning of a NOT_FINITE sample
            explains that NaN in the inputs of the model makes the gradient of the model's weights NaN.
        gap: (B,) relative gaps of integer programs, which the message contains for samples with TIME_LIMIT.
        unchecked: (B,) bool, the samples whose status rests on the claim of a single solver. The message says so if the
            status is INFEASIBLE or UNBOUNDED.

    Raises:
        SolveError: a sample is not solved, and ``on_failure`` is "raise".
    """
    if not bool(status.any()):  # all are SOLVED, which is 0
        return
    bad = (~has_decision_status(status)).nonzero()[:, 0].tolist()
    if not bad:
        return
    statuses = [Status(int(status[i])) for i in bad]
    alike = {one: [i for i, other in zip(bad, statuses, strict=True) if other == one] for one in statuses}
    named = "; ".join(
        f"{{samples {int(one)}}} ({one.name}{_describe_failure_gaps(one, gap, some)}"
        f"{_describe_failure_claims(one, unchecked, some)}): {one.sentence}"
        for one, some in alike.items()
    )
    message = f"{len(bad)} of {len(status)} samples could not be solved for {what}: {named}"
    if on_failure == "raise":
        hint = "leave them out, or pass on_failure='mask' where it is an argument"
        raise SolveError(f"{message}. To go on, {hint}", bad, statuses)
    message = str(SolveError(message, bad, statuses))
    if spreads and Status.NOT_FINITE in statuses:
        message += (
            ". Behind a prediction that is not finite the gradient of the weights is NaN where a feature is, because "
            "0 × NaN is NaN: leave these rows out before the model sees them, as pear.fit does"
        )
    warnings.warn(message, FailedSamplesWarning, stacklevel=_stack_level_of_failure_warning())


def _stack_level_of_failure_warning() -> int:
    """Return the ``stacklevel`` with which the caller's warning refers to the nearest line of the user's own code."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pear":
        frame, level = frame.f_back, level + 1
    return level


def _describe_failure_gaps(status: Status, gap: Tensor | None, samples: list[int]) -> str:
    """Return the gaps of ``samples`` in words if ``status`` is TIME_LIMIT, otherwise "".

    ``gap`` (B,) has the gap of every sample of the batch; NaN without a point.
    """
    if status != Status.TIME_LIMIT or gap is None:
        return ""
    found = [float(gap[i]) for i in samples if not bool(gap[i].isnan())]
    if not found:
        return ", no point"
    without = f", {len(samples) - len(found)} without a point" if len(found) < len(samples) else ""
    return f", {'gap' if len(samples) == 1 else 'gaps up to'} {max(found):.1e}{without}"


def _describe_failure_claims(status: Status, unchecked: Tensor | None, samples: list[int]) -> str:
    """Return in words how many of ``samples`` have ``status`` only by the claim of a single solver.

    The result is "" if there are none, or if the status is neither INFEASIBLE nor UNBOUNDED. ``unchecked`` (B,) bool
    marks all samples of the batch whose status rests on such a claim.
    """
    if status not in (Status.INFEASIBLE, Status.UNBOUNDED) or unchecked is None:
        return ""
    count = sum(bool(unchecked[i]) for i in samples)
    some = "" if count == len(samples) else f"{count} of them "
    return f", {some}on the word of one solver" if count else ""

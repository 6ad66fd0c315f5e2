"""A diagnosis in plain words, with the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.diagnosis.reasons import CHANGE, NOTHING, percent
from pear.errors import ProblemError

if TYPE_CHECKING:
    from pear.diagnosis.diagnosis import Diagnosis

_MOST = 0.7  # share of the loss that the named samples or values make
_FEW = 3  # values that are named
_AS_GOOD = 1e-9  # of the best value: what loses no more is as good


def said(found: Diagnosis) -> list[str]:
    """What there is to know, most important first."""
    total = float(found.regret.sum())
    lines = [_loss(found, total)]
    if total > 0:
        lines += [line for line in (_values(found), _groups(found, total)) if line]
    lines += [line for line in (_tangent(found), _margin(found), *_constraints(found), *_flags(found)) if line]
    return lines


def compared(first: Diagnosis, second: Diagnosis, names: tuple[str, str]) -> list[str]:
    """What changes from the first to the second, of the same samples."""
    if first.regret.shape != second.regret.shape or not _same_best(first, second):
        raise ProblemError(
            f"only diagnoses of the same samples can be compared; got {len(first.regret)} and {len(second.regret)} "
            "samples with other best values: diagnose both forecasters on one test set"
        )
    old, new = names
    lost = [float(one.regret.sum()) for one in (first, second)]
    verb = "less" if lost[1] < lost[0] else "more" if lost[1] > lost[0] else "the same"
    of = " of the best value" if np.abs(first.best).sum() > NOTHING * max(lost) else ""
    lines = [f"{new} loses {_lost(second)}{of} where {old} loses {_lost(first)}: {verb}."]
    shares = first.tangent_share, second.tangent_share
    if first.smoothing != second.smoothing:
        lines.append(
            f"Their tangent shares are not compared: they are of different smoothed problems ({old}: "
            f"{first.smoothing}; {new}: {second.smoothing}); pass both the same smoothing."
        )
    elif np.isfinite(shares).all():
        moved = "falls" if shares[1] < shares[0] else "rises" if shares[1] > shares[0] else "stays"
        lines.append(
            f"The tangent share of the squared error, which moves decisions, {moved} from {percent(shares[0])} ({old}) "
            f"to {percent(shares[1])} ({new})."
        )
    better, worse = (int((change > _AS_GOOD * np.abs(first.best)).sum()) for change in _changes(first, second))
    lines.append(f"{new} decides better in {better} of {len(first.regret)} samples and worse in {worse}.")
    return [f"{line[0].upper()}{line[1:]}" for line in lines]


def _same_best(first: Diagnosis, second: Diagnosis) -> bool:
    """Whether the best values are the same, whatever their unit."""
    near = 1e-6 * float(np.abs(first.best).max(initial=0.0))
    return bool(np.allclose(first.best, second.best, rtol=1e-6, atol=near))


def _changes(first: Diagnosis, second: Diagnosis) -> tuple[NDArray[Any], NDArray[Any]]:
    return first.regret - second.regret, second.regret - first.regret


def _loss(found: Diagnosis, total: float) -> str:
    whole, count = float(np.abs(found.best).sum()), len(found.regret)
    if total <= NOTHING * whole:
        return f"The decisions lose nothing: all {count} are as good as the best ones."
    few = _how_many(found.regret, _MOST)
    part = float(np.sort(found.regret)[::-1][:few].sum()) / total
    if int((found.regret > NOTHING * total).sum()) == few:
        most = f"all of it in {few} of {count} samples"
    else:
        most = f"{percent(part)} of it comes from {few} of {count} samples"
    if whole <= NOTHING * total:
        return f"The decisions lose {_lost(found)}, where the best value is 0; {most}."
    return f"The decisions lose {_lost(found)} of the best value ({total:.4g} of {whole:.4g}); {most}."


def _lost(found: Diagnosis) -> str:
    """Which share of the best value is lost: without the 1e-7 that keeps the normalised regret finite."""
    total, whole = float(found.regret.sum()), float(np.abs(found.best).sum())
    if whole > NOTHING * total:
        return percent(total / whole)
    return f"{total:.4g}" if total > 0 else percent(0.0)


def _how_many(costs: NDArray[Any], part: float) -> int:
    """The least number of entries that make up a share of the sum."""
    falling = np.sort(costs)[::-1].cumsum()
    return int(np.searchsorted(falling, part * falling[-1]) + 1)


def _values(found: Diagnosis) -> str:
    cost = np.nansum(found.attribution, axis=0)
    if len(cost) < 2 or cost.sum() <= 0:
        return ""
    order = np.argsort(-cost, kind="stable")[:_FEW]
    named = ", ".join(f"{found.names[j]} ({percent(cost[j] / cost.sum())})" for j in order)
    return f"Of {len(cost)} predicted values the errors of these cost most: {named}."


def _groups(found: Diagnosis, total: float) -> str:
    if found.groups is None:
        return ""
    labels, at = np.unique(found.groups, return_inverse=True)
    if len(labels) < 2:
        return ""
    lost, count = np.bincount(at, found.regret), np.bincount(at)
    top = int(lost.argmax())
    return (
        f"By {found.grouped_by}, {labels[top]} costs most: {percent(lost[top] / total)} of the loss in "
        f"{percent(count[top] / len(at))} of the samples."
    )


def _tangent(found: Diagnosis) -> str:
    part = found.tangent_share
    if not np.isfinite(part):
        return ""
    return (
        f"{percent(part)} of the squared error is tangent and moves decisions; the constraints that hold them absorb "
        f"the other {percent(1 - part)}, which is normal to them."
    )


def _margin(found: Diagnosis) -> str:
    """How many decisions are those of the truth; of a quadratic program, which move all along, how many active sets."""
    known = np.isfinite(found.margin)
    if not known.any():
        return ""
    still = known & (found.margin >= 1)
    if found.linear or found.integer:
        what, tie = "decision", "it is another one, as good under the true costs"
        same = still & _alike(found.decision, found.best_decision)
        tied = still & ~same & (found.regret <= _AS_GOOD * np.maximum(np.abs(found.best), np.abs(found.best).mean()))
    else:
        what, tie = "set of binding constraints", "it differs by a tie"
        same = still & (found.active == found.best_active).all(1)
        tied = still & ~same
    text = f"In {int(same.sum())} of {int(known.sum())} samples the {what} is that of the truth"
    if tied.any():
        text += f"; in {int(tied.sum())} more {tie}"
    changed = found.margin[known & ~same & ~tied]
    if not len(changed):
        return f"{text}."
    return f"{text}; in the others it first changes at {percent(float(np.median(changed)))} of the error (median)."


def _alike(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """(B,) bool, where two decisions are the same up to rounding."""
    size = np.maximum(np.abs(one), np.abs(other)).max(1)
    alike: NDArray[Any] = np.abs(one - other).max(1) <= CHANGE * size
    return alike


def _constraints(found: Diagnosis) -> list[str]:
    rows = [j for j, kind in enumerate(found.constraint_kinds) if kind == "row" and found.binding[j] > 0]
    if not rows:
        return []
    top = max(rows, key=lambda j: found.best_shadow_price[j])
    of = "In the relaxation without integers, " if found.integer else ""
    text = (
        f"{of}{found.constraint_names[top]} binds in {percent(found.binding[top])} of the decisions; a unit more is "
        f"worth {found.best_shadow_price[top]:.4g} under the true costs, on average."
    )
    return [f"{text[0].upper()}{text[1:]}"]


def _flags(found: Diagnosis) -> list[str]:
    count, lines = len(found.regret), []
    lost = found.zero_gradient & (found.regret > NOTHING * np.abs(found.best))
    if lost.any():
        lines.append(
            f"{int(found.zero_gradient.sum())} of {count} samples have an error and no gradient of the smoothed "
            f"regret; {int(lost.sum())} of them lose something all the same: where many do, train with guidance or "
            "with more smoothing."
        )
    if found.degenerate.any():
        lines.append(
            f"{int(found.degenerate.sum())} of {count} smoothed decisions are degenerate: a tight constraint has "
            "no multiplier."
        )
    unsplit = int((np.isnan(found.tangent) | np.isnan(found.tangent_at_forecast)).sum())
    if unsplit:
        lines.append(f"The squared error of {unsplit} samples could not be split to 1e-10, and is left out.")
    return lines

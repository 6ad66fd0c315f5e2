"""Sentences about a diagnosis: about all samples, about one sample, and about two forecasters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.errors import ProblemError
from pear.wording import format_percent

if TYPE_CHECKING:
    from pear.diagnosis.diagnosis import Diagnosis

_CHANGE = 1e-6  # decisions that differ by less, relative to their largest entry, are the same
_NOTHING = 1e-12  # a smaller amount of money, relative to what it is compared with, counts as zero
_MOST = 0.7  # the sentence on the loss counts the samples that cause this share of the loss
_FEW = 3  # values or violations that are named
_AS_GOOD = 1e-9  # a decision that loses no more than this share of the best value is as good


def describe_diagnosis(found: Diagnosis) -> list[str]:
    """Return sentences that describe a diagnosis, the most important first."""
    total = float(found.regret.sum())
    lines = [_loss_sentence(found, total)]
    if total > 0:
        lines += [_values_sentence(found), _groups_sentence(found, total)]
    lines += _violation_sentences(found)
    lines += [_tangent_sentence(found), _margin_sentence(found), _constraints_sentence(found), *_flag_sentences(found)]
    return [line for line in lines if line]


def compare_diagnoses(first: Diagnosis, second: Diagnosis, names: tuple[str, str]) -> list[str]:
    """Return sentences on how the second of two diagnoses of the same samples differs from the first.

    Raises:
        ProblemError: the diagnoses are of different samples.
    """
    near = 1e-6 * float(np.abs(first.best).max(initial=0.0))  # whatever the unit
    same = first.regret.shape == second.regret.shape and np.allclose(first.best, second.best, rtol=1e-6, atol=near)
    if not same:
        raise ProblemError(
            f"only diagnoses of the same samples can be compared; got {len(first.regret)} and {len(second.regret)} "
            "samples with other best values: diagnose both forecasters on one test set"
        )
    old, new = names
    lost = [float(one.regret.sum()) for one in (first, second)]
    verb = "less" if lost[1] < lost[0] else "more" if lost[1] > lost[0] else "the same"
    of = " of the best value" if np.abs(first.best).sum() > _NOTHING * max(lost) else ""
    lines = [f"{new} loses {_loss_as_text(second)}{of} where {old} loses {_loss_as_text(first)}: {verb}."]
    shares = first.tangent_share, second.tangent_share
    if first.smoothing != second.smoothing:
        lines.append(
            f"Their tangent shares are not compared: they are of different smoothed problems ({old}: "
            f"{first.smoothing}; {new}: {second.smoothing}); pass both the same smoothing."
        )
    elif np.isfinite(shares).all():
        moved = "falls" if shares[1] < shares[0] else "rises" if shares[1] > shares[0] else "stays"
        lines.append(
            f"The tangent share of the squared error, which moves decisions, {moved} from {format_percent(shares[0])} "
            f"({old}) to {format_percent(shares[1])} ({new})."
        )
    gain, least = first.regret - second.regret, _AS_GOOD * np.abs(first.best)
    better, worse = int((gain > least).sum()), int((-gain > least).sum())
    lines.append(f"{new} decides better in {better} of {len(first.regret)} samples and worse in {worse}.")
    return [_capitalise_sentence(line) for line in lines]


def explain_diagnosed_sample(found: Diagnosis, i: int) -> str:
    """Return a sentence or two on why sample i loses: the costliest error, and how the decision changes."""
    if found.regret[i] <= _NOTHING * abs(found.best[i]):
        return "Nothing is lost."
    return " ".join(
        part for part in (_costliest_error_sentence(found, i), _changed_decision_sentence(found, i)) if part
    )


def _costliest_error_sentence(found: Diagnosis, i: int) -> str:
    """Return a sentence on the predicted value whose error costs most in sample i; empty if this is not known."""
    if not found.attributed[i]:
        return ""
    j = int(found.attribution[i].argmax())
    part = found.attribution[i, j] / found.regret[i]
    return (
        f"{found.names[j]} was predicted as {found.predicted[i, j]:.4g} and came to {found.true[i, j]:.4g}: "
        f"{format_percent(part)} of the loss."
    )


def _changed_decision_sentence(found: Diagnosis, i: int) -> str:
    """Return a sentence on how the decision of sample i differs from the best one; empty if they are the same.

    The sentence names the variable that differs most, and a row that binds under only one of the two decisions.
    """
    z, best = found.decision[i], found.best_decision[i]
    if _are_same_decisions(z, best):
        return ""
    # Among variables that change equally, as binary ones do, take the one of the highest value.
    are_costs = len(found.names) == len(z) and not found.violation_names  # else some values are right-hand sides
    worth = np.abs(found.true[i]) if are_costs else np.ones_like(z)
    j = int((np.abs(z - best) * worth).argmax())
    text = f"{found.variables[j]} is {z[j]:.4g} where {best[j]:.4g} was best"
    rows = np.array([kind == "row" for kind in found.constraint_kinds], dtype=bool)
    flipped = np.flatnonzero(rows & (found.active[i] != found.best_active[i]))
    if len(flipped):
        price = np.maximum(found.shadow_price[flipped], found.best_shadow_price[flipped])
        at = int(flipped[price.argmax()])
        does = "binds and should not" if found.active[i, at] else "does not bind and should"
        text += f"; {found.constraint_names[at]} {does}"
    return f"{text}."


def _are_same_decisions(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return a mask (…) of the decisions ``one`` (…, n) that equal the decisions ``other`` (…, n) up to rounding."""
    size = np.maximum(np.abs(one), np.abs(other)).max(-1)
    alike: NDArray[Any] = np.abs(one - other).max(-1) <= _CHANGE * size
    return alike


def _capitalise_sentence(text: str) -> str:
    """Return a sentence with its first letter in upper case."""
    return f"{text[0].upper()}{text[1:]}"


def _loss_sentence(found: Diagnosis, total: float) -> str:
    """Return a sentence on how much all decisions lose, and on how few samples cause most of it.

    Args:
        found: the diagnosis.
        total: the regret of all samples.
    """
    whole, count = float(np.abs(found.best).sum()), len(found.regret)
    if total <= _NOTHING * whole:
        return f"The decisions lose nothing: all {count} are as good as the best ones."
    falling = np.sort(found.regret)[::-1]
    sums = falling.cumsum()
    few = int(np.searchsorted(sums, _MOST * sums[-1]) + 1)  # the least number of samples that make up such a share
    if int((found.regret > _NOTHING * total).sum()) == few:
        most = f"all of it in {few} of {count} samples"
    else:
        most = f"{format_percent(float(falling[:few].sum()) / total)} of it comes from {few} of {count} samples"
    if whole <= _NOTHING * total:
        return f"The decisions lose {_loss_as_text(found)}, where the best value is 0; {most}."
    return f"The decisions lose {_loss_as_text(found)} of the best value ({total:.4g} of {whole:.4g}); {most}."


def _loss_as_text(found: Diagnosis) -> str:
    """Return the loss as text: as a share of the best value, or as an amount if the best value is 0."""
    total, whole = float(found.regret.sum()), float(np.abs(found.best).sum())
    if whole > _NOTHING * total:
        return format_percent(total / whole)
    return f"{total:.4g}" if total > 0 else format_percent(0.0)


def _values_sentence(found: Diagnosis) -> str:
    """Return a sentence on the predicted values whose errors cost most; empty if there is one value, or no loss."""
    cost = np.nansum(found.attribution, axis=0)
    if len(cost) < 2 or cost.sum() <= 0:
        return ""
    order = np.argsort(-cost, kind="stable")[:_FEW]
    named = ", ".join(f"{found.names[j]} ({format_percent(cost[j] / cost.sum())})" for j in order)
    return f"Of {len(cost)} predicted values the errors of these cost most: {named}."


def _groups_sentence(found: Diagnosis, total: float) -> str:
    """Return a sentence on the group that loses most; empty if there are fewer than two groups.

    Args:
        found: the diagnosis.
        total: the regret of all samples.
    """
    if found.groups is None:
        return ""
    labels, at = np.unique(found.groups, return_inverse=True)
    if len(labels) < 2:
        return ""
    lost, count = np.bincount(at, found.regret), np.bincount(at)
    top = int(lost.argmax())
    return (
        f"By {found.grouped_by}, {labels[top]} costs most: {format_percent(lost[top] / total)} of the loss in "
        f"{format_percent(count[top] / len(at))} of the samples."
    )


def _violation_sentences(found: Diagnosis) -> list[str]:
    """Return sentences on the costliest violations of true right-hand sides: how often they occur, and their cost."""
    count, often = len(found.regret), (found.violation > 0).sum(0)
    cost, ideal = found.violation_cost.sum(0), found.best_violation_cost.sum(0)
    priced = np.nan_to_num(cost)
    lines = []
    for j in [j for j in np.lexsort((-often, -priced)) if often[j]][:_FEW]:
        text = (
            f"{found.violation_names[j]}: {found.violation_kinds[j]} under the truth in {often[j]} of {count} samples"
        )
        if np.isfinite(cost[j]):
            text += f", which costs {cost[j]:.4g}, or {cost[j] / often[j]:.4g} in each"
            text += f"; the best decisions pay {ideal[j]:.4g} for it" if ideal[j] > 0 else ""
        else:
            text += f", by {found.violation[:, j].sum() / often[j]:.4g} on average, which the recourse repairs"
        lines.append(f"{text}.")
    return lines


def _tangent_sentence(found: Diagnosis) -> str:
    """Return a sentence on the share of the squared error that moves decisions; empty if there is no error."""
    part = found.tangent_share
    if not np.isfinite(part):
        return ""
    return (
        f"{format_percent(part)} of the squared error is tangent and moves decisions; the constraints that hold them "
        f"absorb the other {format_percent(1 - part)}, which is normal to them."
    )


def _margin_sentence(found: Diagnosis) -> str:
    """Return a sentence on how many decisions are the same as under the true costs.

    For quadratic programs, the sentence counts equal active sets instead, because nearly every error moves decisions.
    """
    known = np.isfinite(found.margin)
    if not known.any():
        return ""
    still = known & (found.margin >= 1)
    if found.linear or found.integer:
        what, tie = "decision", "it is another one, as good under the true costs"
        same = still & _are_same_decisions(found.decision, found.best_decision)
        tied = still & ~same & (found.regret <= _AS_GOOD * np.maximum(np.abs(found.best), np.abs(found.best).mean()))
    else:
        what, tie = "set of binding constraints", "it differs by a tie"
        same = still & (found.active == found.best_active).all(1)
        tied = still & ~same
    text = f"In {int(same.sum())} of {int(known.sum())} samples the {what} is that of the truth"
    if tied.any():
        text += f"; in {int(tied.sum())} more {tie}"
    changed = found.margin[known & ~same & ~tied]
    if len(changed):
        text += f"; in the others it first changes at {format_percent(float(np.median(changed)))} of the error (median)"
    return f"{text}."


def _constraints_sentence(found: Diagnosis) -> str:
    """Return a sentence on one inequality row that binds under the forecast; empty if no inequality row binds.

    It is the row with the highest shadow price under the truth.
    """
    rows = [j for j, kind in enumerate(found.constraint_kinds) if kind == "row" and found.binding[j] > 0]
    if not rows:
        return ""
    top = max(rows, key=lambda j: found.best_shadow_price[j])
    of = "In the relaxation without integers, " if found.integer else ""
    return _capitalise_sentence(
        f"{of}{found.constraint_names[top]} binds in {format_percent(found.binding[top])} of the decisions; a unit "
        f"more is worth {found.best_shadow_price[top]:.4g} under the true costs, on average."
    )


def _flag_sentences(found: Diagnosis) -> list[str]:
    """Return sentences that count zero gradients, degenerate decisions and squared errors that could not be split."""
    count, lines = len(found.regret), []
    lost = found.zero_gradient & (found.regret > _NOTHING * np.abs(found.best))
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
    split = np.isfinite(found.squared_error)  # NaN for an oracle without a relaxation
    unsplit = int((split & (np.isnan(found.tangent) | np.isnan(found.tangent_at_forecast))).sum())
    if unsplit:
        lines.append(f"The squared error of {unsplit} samples could not be split to 1e-10, and is left out.")
    return lines

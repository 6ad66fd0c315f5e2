"""What an answer is worth, by numbers of the benchmark's own: residuals from the file's arrays, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pear_lab.benchmarks.files.instance import Instance
from pear_lab.benchmarks.program import Array

RIGHT = 1e-6
"""Largest residual and gap of an answer that is right, relative to the larger of 1 and what they are made of."""
WRONG = 1e-4
"""A point that is called solved and whose residual or gap is larger is wrong; in between it is inaccurate."""
_NOISE = 1e-9  # multipliers below this share of the largest term of the gradient count as residual, not in the gap

VERDICTS = ("right", "unproven", "inaccurate", "wrong", "refused", "out of time", "crashed")
"""Unproven: nothing here confirms it. Inaccurate: not solved, or not well enough. The others say what they are."""


@dataclass(frozen=True)
class Answer:
    """What a solver says of an instance.

    Attributes:
        status: "solved", "infeasible", "unbounded", "refused", "time limit", "crashed", or in the solver's words.
        x: (n,) the point, if there is one.
        y: (m,) multipliers of the rows, at least 0 at an upper and at most 0 at a lower limit: the gradient is
            Px + q + Aᵀy. None where the solver gives none.
        seconds: from arrays to answer.
        note: why it is not solved.
    """

    status: str
    x: Array | None = None
    y: Array | None = None
    seconds: float = math.nan
    note: str = ""


@dataclass(frozen=True)
class Residuals:
    """How far an answer is from solving an instance; NaN where there is nothing to measure.

    Attributes:
        primal: largest violation of a limit, a bound or integrality, relative to the larger of 1 and the limit.
        dual: largest part of the gradient that no bound may carry, relative to the larger of 1 and its terms.
        gap: between primal and dual objective, or to the best known objective, relative to the larger of 1 and these.
        objective: in the file's own sense, constant included.
    """

    primal: float = math.nan
    dual: float = math.nan
    gap: float = math.nan
    objective: float = math.nan

    @property
    def worst(self) -> float:
        """The largest of those that are known; infinite where the point is not a number."""
        known = [value for value in (self.primal, self.dual, self.gap) if not math.isnan(value)]
        return max(known, default=math.inf)


def measure(instance: Instance, answer: Answer) -> Residuals:
    """The residuals of an answer, from the arrays of the instance alone."""
    x = answer.x
    if x is None or not np.isfinite(x).all():
        return Residuals()
    objective = instance.sign * instance.value(x) + instance.offset
    primal = _violation(instance, x)
    if answer.y is None or instance.integer.any() or not np.isfinite(answer.y).all():
        return Residuals(primal, objective=objective)
    return Residuals(primal, *_optimality(instance, x, answer.y), objective)


def _violation(p: Instance, x: Array) -> float:
    row = p.A @ x
    parts = [
        np.maximum(limit, 0.0) / np.maximum(1.0, np.abs(size))
        for limit, size in (
            *((p.l - row, p.l), (row - p.u, p.u), (p.lb - x, p.lb), (x - p.ub, p.ub)),
            (np.abs(x - np.round(x))[p.integer], np.zeros(int(p.integer.sum()))),
        )
    ]
    values = np.concatenate(parts)
    return float(np.nan_to_num(values, nan=0.0).max(initial=0.0))  # an absent limit: -inf, or 0 of inf


def _optimality(p: Instance, x: Array, y: Array) -> tuple[float, float]:
    """Dual residual and gap. The multipliers of the bounds are what is left of the gradient."""
    curved, carried = p.P @ x, p.A.T @ y
    gradient = curved + p.q + carried
    scale = max(1.0, *(float(np.abs(v).max(initial=0.0)) for v in (curved, p.q, carried)))
    norm = np.asarray(abs(p.A).max(axis=1).todense()).reshape(-1) if p.A.shape[0] else np.zeros(0)
    dual, gap = 0.0, 0.0
    for multiplier, unit, at, low, high in ((y, norm, p.A @ x, p.l, p.u), (-gradient, 1.0, x, p.lb, p.ub)):
        for part, room in ((np.maximum(multiplier, 0), high - at), (np.maximum(-multiplier, 0), at - low)):
            residual = np.isinf(room) | (part * unit <= _NOISE * scale)
            dual = max(dual, float((part * unit)[residual].max(initial=0.0)))
            gap += float((part * np.where(residual, 0.0, room)).sum())
    value = p.value(x)
    return dual / scale, abs(gap) / max(1.0, abs(value), abs(value - gap))


def compare(instance: Instance, answers: Sequence[Answer]) -> list[Residuals]:
    """The residuals of several answers to one instance.

    Where there are no multipliers the gap is to the best objective of the others, if another one has solved it too.
    """
    found = [measure(instance, answer) for answer in answers]
    good = [
        answer.status == "solved" and r.primal <= RIGHT and (math.isnan(r.gap) or r.worst <= RIGHT)
        for answer, r in zip(answers, found, strict=True)
    ]
    for i, one in enumerate(found):
        others = [found[k].objective for k in range(len(found)) if k != i and good[k]]
        if math.isnan(one.gap) and others and not math.isnan(one.objective):
            best = instance.sign * min(instance.sign * value for value in others)
            gap = max(0.0, instance.sign * (one.objective - best)) / max(1.0, abs(best))
            found[i] = Residuals(one.primal, one.dual, gap, one.objective)
    return found


def verdict(answer: Answer, residuals: Residuals, proven: bool | None, convex: bool) -> str:
    """One of ``VERDICTS``.

    Args:
        answer: what was said.
        residuals: what was measured.
        proven: for "infeasible" and "unbounded": confirmed, refuted, or None where neither is certain.
        convex: whether residuals prove that a point is the best there is.
    """
    if answer.status in ("refused", "crashed"):
        return answer.status
    if answer.status == "time limit":
        return "out of time"
    if answer.status in ("infeasible", "unbounded"):
        return "unproven" if proven is None else "right" if proven else "wrong"
    if answer.status != "solved":
        return "inaccurate"
    if not residuals.worst <= WRONG:
        return "wrong"
    if not residuals.worst <= RIGHT:
        return "inaccurate"
    return "right" if convex and not math.isnan(residuals.gap) else "unproven"

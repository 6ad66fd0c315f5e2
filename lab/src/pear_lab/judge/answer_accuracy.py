"""The accuracy of a solver's answer on the scale of solver tolerances, and a verdict on it.

Solvers aim at an accuracy relative to 1 or to the size of the numbers, whichever is larger. This module measures
answers to programs of any size on that scale. ``point_residuals`` has a stricter scale, the program's own units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pear_lab.judge.judged_program import Array, JudgedProgram, judged_row_magnitudes

RIGHT = 1e-6
"""The largest relative residual and gap of an answer that is right."""
WRONG = 1e-4
"""The largest relative residual and gap of an answer that is inaccurate. With a larger one, the answer is wrong."""
_NOISE = 1e-9  # multipliers below this share of the gradient's largest term count as residuals and not in the gap

VERDICTS = ("right", "unproven", "inaccurate", "wrong", "refused", "out of time", "crashed")
"""The verdicts on an answer. An unproven answer is neither confirmed nor refuted. An inaccurate one gives up, or is off
by more than ``RIGHT`` and at most ``WRONG``."""


@dataclass(frozen=True)
class SolverAnswer:
    """The answer of a solver to a program.

    Attributes:
        status: "solved", "infeasible", "unbounded", "refused", "time limit", "crashed", or the solver's own status.
        x: (n,) the point, or None.
        equality: (p,) the multipliers of A, or None. Their sign is such that the gradient of the Lagrangian without
            bounds is ``Hx + c + Aᵀ equality + Gᵀ inequality``, with the matrices of ``JudgedProgram``.
        inequality: (m,) the multipliers of G, or None.
        seconds: the seconds of the solve.
        note: the reason why the program is not solved.
    """

    status: str
    x: Array | None = None
    equality: Array | None = None
    inequality: Array | None = None
    seconds: float = math.nan
    note: str = ""


@dataclass(frozen=True)
class Accuracy:
    """The errors of an answer to a program; NaN for an error that cannot be measured.

    Each error is relative to a size that is named here, or to 1 if the size is smaller than 1.

    Attributes:
        primal: the largest violation of a limit, a bound or integrality, relative to the limit.
        dual: the largest multiplier with the wrong sign or of an absent limit, times the largest entry of its row. It
            is relative to the largest term of the gradient. The multipliers of the bounds are those that make the
            gradient of the Lagrangian zero.
        gap: the difference between the primal and the dual objective, relative to the larger of them. Without
            multipliers, the gap is that of ``compare_accuracies``.
        objective: the minimised objective at the point.
    """

    primal: float = math.nan
    dual: float = math.nan
    gap: float = math.nan
    objective: float = math.nan

    @property
    def worst(self) -> float:
        """The largest of the known errors; infinite if none is known."""
        known = [value for value in (self.primal, self.dual, self.gap) if not math.isnan(value)]
        return max(known, default=math.inf)


def measure_accuracy(p: JudgedProgram, answer: SolverAnswer) -> Accuracy:
    """Measure the accuracy of one answer from the arrays of the program."""
    x, parts = answer.x, (answer.equality, answer.inequality)
    if x is None or not np.isfinite(x).all():
        return Accuracy()
    found = Accuracy(_measure_answer_violation(p, x), objective=float(0.5 * x @ (p.H @ x) + p.c @ x))
    equality, inequality = parts
    if equality is None or inequality is None or p.integer.any():
        return found
    if not np.isfinite(np.concatenate([equality, inequality])).all():
        return found
    dual, gap = _measure_answer_optimality(p, x, equality, inequality)
    return replace(found, dual=dual, gap=gap)


def _measure_answer_violation(p: JudgedProgram, x: Array) -> float:
    """Return the largest relative violation of a limit, a bound or integrality at x (n,)."""
    whole = np.abs(x - np.round(x))[p.integer]
    missed = (np.abs(p.A @ x - p.b), p.G @ x - p.h, p.lb - x, x - p.ub, whole)
    limits = (p.b, p.h, p.lb, p.ub, np.zeros_like(whole))
    relative = [np.maximum(by, 0.0) / np.maximum(1.0, np.abs(limit)) for by, limit in zip(missed, limits, strict=True)]
    return float(np.nan_to_num(np.concatenate(relative), nan=0.0).max(initial=0.0))  # NaN: of an absent limit


def _measure_answer_optimality(p: JudgedProgram, x: Array, equality: Array, inequality: Array) -> tuple[float, float]:
    """Return the entries ``dual`` and ``gap`` of ``Accuracy`` for a point (n,) and its multipliers (p,) and (m,).

    Multipliers that are tiny beside the gradient count in ``dual`` and not in ``gap``.
    """
    curved, carried = p.H @ x, p.A.T @ equality + p.G.T @ inequality
    gradient = curved + p.c + carried
    scale = max(1.0, *(float(np.abs(v).max(initial=0.0)) for v in (curved, p.c, carried)))
    missing, slack = p.b - p.A @ x, p.h - p.G @ x
    sides = (
        (equality, judged_row_magnitudes(p.A), missing, -missing),
        (inequality, judged_row_magnitudes(p.G), slack, np.full_like(slack, np.inf)),
        (-gradient, np.ones_like(x), p.ub - x, x - p.lb),
    )
    dual, gap = 0.0, 0.0
    for multiplier, unit, above, below in sides:
        for part, room in ((np.maximum(multiplier, 0), above), (np.maximum(-multiplier, 0), below)):
            residual = np.isinf(room) | (part * unit <= _NOISE * scale)
            dual = max(dual, float((part * unit)[residual].max(initial=0.0)))
            gap += float((part * np.where(residual, 0.0, room)).sum())
    value = float(0.5 * x @ curved + p.c @ x)
    return dual / scale, abs(gap) / max(1.0, abs(value), abs(value - gap))


def compare_accuracies(p: JudgedProgram, answers: Sequence[SolverAnswer]) -> list[Accuracy]:
    """Measure the accuracy of several answers to one program.

    An answer counts as accurate if its status is "solved" and its known errors are at most ``RIGHT``. The gap of an
    answer without multipliers is the excess of its objective over the lowest objective of the other accurate answers,
    relative to that objective or to 1. It stays NaN if no other answer is accurate.
    """
    found = [measure_accuracy(p, answer) for answer in answers]
    good = [
        answer.status == "solved" and one.primal <= RIGHT and (math.isnan(one.gap) or one.worst <= RIGHT)
        for answer, one in zip(answers, found, strict=True)
    ]
    for i, one in enumerate(found):
        others = [found[k].objective for k in range(len(found)) if k != i and good[k]]
        if math.isnan(one.gap) and others and not math.isnan(one.objective):
            best = min(others)
            found[i] = replace(one, gap=max(0.0, one.objective - best) / max(1.0, abs(best)))
    return found


def rate_accuracy(answer: SolverAnswer, accuracy: Accuracy, proven: bool | None, convex: bool) -> str:
    """Rate an answer as one of ``VERDICTS``.

    Args:
        answer: the answer.
        accuracy: the measured accuracy of the answer.
        proven: whether the status "infeasible" or "unbounded" is proven (True) or refuted (False); None if neither.
        convex: whether the program is convex, so that residuals of zero prove a point optimal.
    """
    if answer.status in ("refused", "crashed"):
        return answer.status
    if answer.status == "time limit":
        return "out of time"
    if answer.status in ("infeasible", "unbounded"):
        return "unproven" if proven is None else "right" if proven else "wrong"
    if answer.status != "solved":
        return "inaccurate"
    if not accuracy.worst <= WRONG:
        return "wrong"
    if not accuracy.worst <= RIGHT:
        return "inaccurate"
    return "right" if convex and not math.isnan(accuracy.gap) else "unproven"

"""Verdicts on answers of the library, from plain arrays and without the library's own code.

A verdict is "right" if the status is SOLVED and the optimality conditions hold; for an integer program, if the decision
is feasible and no better point is known. The verdict is "refused" if the status names a failure that is proven
independently, or if the data in float64 does not settle the status. It is "inaccurate" if the library gives up although
the program has a clear answer. In all other cases it is "wrong".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pear_lab.judge.exact_tangent import ExactTangent, exact_tangent_at
from pear_lab.judge.extended_precision import Wide, factor_extended, wide
from pear_lab.judge.integer_judge import IntegerJudge
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.judge.linear_programs import best_linear_program_point
from pear_lab.judge.point_residuals import (
    TOLERANCE,
    PointMultipliers,
    PointResiduals,
    measure_point_residuals,
    point_objective,
)
from pear_lab.judge.program_units import ProgramUnits
from pear_lab.judge.proofs import Proof, prove_feasible, prove_indefinite, prove_unbounded

VALUE = 1e-9
"""The largest error of a reported objective, relative to its terms."""
SAME = 1e-7
"""The largest relative difference between the decision of a sample in a batch and that of the sample alone."""
SLOPE = 1e-4
"""The largest error of a gradient against central differences of the loss, relative to the steepest slope."""

REFERENCE = 1e-6
"""The largest difference from the objective that another solver finds, relative to its terms."""
SINGULAR = (1e-18, 1e-15)
"""The range of relative pivots of equalities that are independent in extended precision but not in float64."""
ROUNDING = 1e-10
"""The largest rounding error of a regret, relative to the terms of the two objectives that it compares."""


@dataclass(frozen=True)
class Answer:
    """The library's answer for one sample.

    Attributes:
        status: the name of the ``pear.Status``.
        x: (n,) the decision; NaN without one.
        value: the reported objective of the minimised program.
        equality: (p,) the multipliers of A; None for integer programs.
        inequality: (m,) the multipliers of G; None for integer programs.
        bound: (n,) the multipliers of the bounds; None for integer programs.
    """

    status: str
    x: Array
    value: float
    equality: Array | None = None
    inequality: Array | None = None
    bound: Array | None = None


@dataclass(frozen=True)
class Verdict:
    """The judge's verdict on one answer.

    Attributes:
        kind: "right", "refused", "inaccurate" or "wrong".
        reason: the reason of a wrong or inaccurate verdict.
        edge: whether the data in float64 does not settle the status, so that another status would be right as well.
        residuals: the residuals of a solved continuous program.
        units: the units of that program.
    """

    kind: str
    reason: str = ""
    edge: bool = False
    residuals: PointResiduals | None = None
    units: ProgramUnits | None = None

    def blamed(self, reason: str) -> Verdict:
        """Return the verdict "wrong" with this reason. An empty reason, or an earlier "wrong", changes nothing."""
        return replace(self, kind="wrong", reason=reason) if reason and self.kind != "wrong" else self


def judge_answer(s: JudgedProgram, a: Answer) -> Verdict:
    """Return the verdict on the library's answer to one program."""
    if not s.is_finite():
        if a.status == "NOT_FINITE":
            return Verdict("refused")
        return Verdict("wrong", f"{a.status}, but the data is not finite")
    if s.integer.any():
        kind, edge, reason = IntegerJudge(s).judge(a.status, a.x)
        return Verdict(kind, reason, edge)
    if a.status == "SOLVED":
        return _judge_solved_answer(s, a)
    checks = {
        "INFEASIBLE": _judge_infeasible_answer,
        "UNBOUNDED": _judge_unbounded_answer,
        "NOT_CONVEX": _judge_nonconvex_answer,
    }
    if a.status in checks:
        return checks[a.status](s)
    if a.status == "NOT_FINITE":
        return Verdict("wrong", "NOT_FINITE, but the data is finite")
    if prove_feasible(s) is Proof.EDGE or _is_program_beyond_float64(s):
        return Verdict("refused", edge=True)  # float64 does not settle it
    return Verdict("inaccurate", a.status)


def _judge_solved_answer(s: JudgedProgram, a: Answer) -> Verdict:
    """Judge an answer with the status SOLVED: its residuals in extended precision, and its reported objective."""
    if a.equality is None or a.inequality is None or a.bound is None:
        return Verdict("wrong", "SOLVED without multipliers")
    parts = (a.x, a.equality, a.inequality, a.bound)
    if not all(bool(np.isfinite(part).all()) for part in parts):
        return Verdict("wrong", "SOLVED, but x or a multiplier is not finite")
    if prove_indefinite(s.H) is Proof.YES:
        return Verdict("wrong", "SOLVED, but the curvature is indefinite")
    units = ProgramUnits.of(s)
    found = measure_point_residuals(s, a.x, PointMultipliers(*(wide(part) for part in parts[1:])), units)
    if found.worst > TOLERANCE:
        return Verdict("wrong", f"SOLVED, but {found}", residuals=found, units=units)
    value, terms = point_objective(s, a.x)
    if not abs(a.value - value) <= VALUE * terms:
        return Verdict("wrong", f"value {a.value!r}, but x has {value!r}", residuals=found, units=units)
    return Verdict("right", residuals=found, units=units)


def _is_program_beyond_float64(s: JudgedProgram) -> bool:
    """Return whether the equalities are dependent in float64 but not in extended precision."""
    if not len(s.b):
        return False
    units = ProgramUnits.of(s)
    pivots = factor_extended((wide(s.A) * units.row[: len(s.b), None] * units.column).T).pivots
    return bool(SINGULAR[0] * pivots[0] < pivots[-1] < SINGULAR[1] * pivots[0])


def _judge_infeasible_answer(s: JudgedProgram) -> Verdict:
    """Judge the claim that a program is infeasible."""
    feasible = prove_feasible(s)
    if feasible is Proof.NO:
        return Verdict("refused")
    if feasible is Proof.EDGE:
        return Verdict("refused", edge=True)
    return Verdict("wrong", f"INFEASIBLE, but feasible: {feasible.value}")


def _judge_unbounded_answer(s: JudgedProgram) -> Verdict:
    """Judge the claim that a program is unbounded."""
    feasible, falls = prove_feasible(s), prove_unbounded(s)
    if feasible is Proof.NO or falls in (Proof.NO, Proof.UNKNOWN):
        return Verdict("wrong", f"UNBOUNDED, but falls: {falls.value}, feasible: {feasible.value}")
    return Verdict("refused", edge=Proof.EDGE in (feasible, falls))


def _judge_nonconvex_answer(s: JudgedProgram) -> Verdict:
    """Judge the claim that a program is not convex. It is true if the curvature has a negative eigenvalue."""
    indefinite = prove_indefinite(s.H)
    if indefinite is Proof.NO:
        return Verdict("wrong", "NOT_CONVEX, but no eigenvalue is negative")
    return Verdict("refused", edge=indefinite is Proof.EDGE)


def judge_answer_objective(s: JudgedProgram, a: Answer) -> str:
    """Return a sentence if the objective of a solved linear program differs from that of HiGHS, else an empty text.

    The text is also empty if HiGHS finds no solution, or if the program is not linear.
    """
    if s.H.any() or s.integer.any():
        return ""
    other = best_linear_program_point(s)
    if other is None:
        return ""
    (value, terms), (best, others) = point_objective(s, a.x), point_objective(s, other.astype(float))
    # by weak duality, a violation improves the objective at most by its product with the multipliers
    bought = _answer_violation_price(s, other, a) + _answer_violation_price(s, wide(a.x), a)
    if abs(value - best) <= REFERENCE * max(terms, others) + bought:
        return ""
    return f"the objective is {value!r}, and by another solver {best!r}"


def _answer_violation_price(s: JudgedProgram, x: Wide, a: Answer) -> float:
    """Return a bound on how much violations of the constraints at x (n,) may improve the objective.

    The multipliers of an answer are the prices of violations. Rounding of x to float64 counts as a violation too: if
    rows are nearly parallel, multipliers are so large that the last digit of x matters.
    """
    assert a.equality is not None
    assert a.inequality is not None
    assert a.bound is not None

    def last_digit(rows: Array) -> Wide:
        return np.asarray(np.finfo(np.float64).eps * (wide(np.abs(rows)) @ np.abs(x)))

    parts = (
        (np.abs(wide(s.A) @ x - s.b) + last_digit(s.A), a.equality),
        (np.maximum(wide(s.G) @ x - s.h, 0) + last_digit(s.G), a.inequality),
        (np.maximum(np.maximum(s.lb - x, x - s.ub), 0), a.bound),
    )
    return float(sum((left * np.abs(y)).sum() for left, y in parts))


def answer_tangent(s: JudgedProgram, verdict: Verdict) -> ExactTangent | None:
    """Compute the tangent space at an answer; None unless the answer is right and its decision has a derivative."""
    if verdict.kind != "right" or verdict.residuals is None or verdict.units is None:
        return None
    return exact_tangent_at(s, verdict.residuals, verdict.units)


def judge_answer_gradient(space: ExactTangent, g: Array, e: Array) -> str:
    """Return the reason why a gradient of the regret is wrong, or an empty text if it is right.

    Args:
        space: the tangent space at the decision.
        g: (n,) the gradient.
        e: (n,) the prediction error, predicted minus true costs.
    """
    if not np.isfinite(g).all():
        return "the gradient is not finite"
    error = space.error(g, e)
    return f"the gradient is off by {error:.1e} (allowed {space.tolerance:.1e})" if error > space.tolerance else ""


def answer_regret_rounding(s: JudgedProgram, x: Array, best: Answer, rounding: float) -> float:
    """Return a bound on the rounding error of the regret of a decision.

    Args:
        s: the program with the true costs.
        x: (n,) the decision.
        best: the answer to that program.
        rounding: the relative error that the decisions may have.
    """
    terms = point_objective(s, x)[1] + point_objective(s, best.x)[1]
    bought = _answer_violation_price(s, wide(x), best) + _answer_violation_price(s, wide(best.x), best)
    return max(ROUNDING, rounding) * terms + bought + 1e-300


def judge_answer_regret(s: JudgedProgram, x: Array, best: Answer, value: float, rounding: float = 0.0) -> str:
    """Return the reason why a reported regret is wrong, or an empty text if it is right.

    Args:
        s, x, best, rounding: as for ``answer_regret_rounding``.
        value: the regret that the loss reports.
    """
    exact = point_objective(s, x)[0] - point_objective(s, best.x)[0]
    room = answer_regret_rounding(s, x, best, rounding)
    if abs(value - exact) <= 1e-6 * abs(exact) + room:
        return ""
    return f"the loss is {value!r}, and the regret {exact!r}"


def judge_answer_in_batch(s: JudgedProgram, batch: Answer, alone: Answer, verdict: Verdict) -> str:
    """Return how the answer to a sample in a batch differs from that to the sample alone; empty if they agree.

    Args:
        s: the program of the sample.
        batch: the answer in the batch.
        alone: the answer to the sample alone.
        verdict: the verdict on the answer in the batch.
    """
    if batch.status != alone.status:
        return f"{batch.status} in the batch, {alone.status} alone"
    if batch.status != "SOLVED" or np.array_equal(batch.x, alone.x):
        return ""
    if not np.isfinite(alone.x).all():
        return "x is not finite alone"
    (here, terms), (there, _) = point_objective(s, batch.x), point_objective(s, alone.x)
    if abs(here - there) > 1e-8 * terms + 1e-300:
        return f"objective {here!r} in the batch, {there!r} alone"
    space = answer_tangent(s, verdict)
    if space is None or verdict.residuals is None:
        return ""  # the decision may not be unique
    off = float((np.abs(wide(batch.x) - wide(alone.x)) / verdict.residuals.size).max())
    room = max(SAME, space.tolerance)
    return f"x differs by {off:.1e} between the batch and alone" if off > room else ""

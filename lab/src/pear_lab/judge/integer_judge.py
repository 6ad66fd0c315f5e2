"""``IntegerJudge``: answers to integer programs, judged by enumeration if there are few points, otherwise by HiGHS.

The feasibility of an answer is always checked in extended precision. An integer variable may differ from an integer by
at most 1e-8, and the violation of a row or a bound may be at most 1e-8 of the sum of its terms' magnitudes. In this sum
the magnitude of a continuous variable is raised by a hundredth of the largest one, because a value near zero may be a
rounding error. Integer variables have no rounding errors, and count with their own magnitudes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from pear_lab.judge.extended_precision import wide
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.judge.linear_programs import INFEASIBLE, solve_linear_program
from pear_lab.judge.point_residuals import LEAST, SHARE, TOLERANCE
from pear_lab.judge.proofs import MET, Proof, prove_feasible, prove_unbounded

FEW = 4096
"""The most integer points of a pure integer program that are enumerated."""
FEW_PROGRAMS = 40
"""The most integer points of a mixed-integer program for each of which a linear program is solved, if HiGHS fails."""


@dataclass(frozen=True)
class BestIntegerPoint:
    """The best known point of an integer program.

    Attributes:
        feasible: whether the program has a feasible point.
        value: the objective of the point; infinite without a point.
        x: (n,) the point, or None.
        proven: whether it is proven that no point is better.
    """

    feasible: Proof
    value: float
    x: Array | None
    proven: bool


class IntegerJudge:
    """The judge of answers to one integer program.

    Args:
        s: the program, dense and linear.
    """

    def __init__(self, s: JudgedProgram) -> None:
        self.s = s

    def violations(self, points: Array) -> Array:
        """Compute the largest relative violation (K,) of any constraint, integrality included, at K points (K, n)."""
        s = self.s
        X = wide(points)
        limits = np.abs(np.concatenate([s.b, s.h, s.lb, s.ub]))
        least = LEAST * limits[(limits > 0) & np.isfinite(limits)].min(initial=np.inf)
        largest = np.maximum(np.abs(X[:, ~s.integer]).max(1, initial=0), least if np.isfinite(least) else LEAST)
        continuous = largest[:, None] * ~s.integer
        size = np.abs(X) + SHARE * continuous
        parts = [np.where(s.integer, np.abs(X - np.round(X)), 0).max(1)]
        for rows, rhs, both in ((s.A, s.b, True), (s.G, s.h, False)):
            if len(rhs):
                over = X @ wide(rows).T - wide(rhs)
                terms = size @ np.abs(wide(rows)).T + np.where(np.isfinite(rhs), np.abs(wide(rhs)), 0)
                relative = np.where(
                    np.isfinite(rhs), (np.abs(over) if both else over) / np.where(terms > 0, terms, 1), -1
                )
                parts.append(relative.max(1))
        for over, limit in ((wide(s.lb) - X, s.lb), (X - wide(s.ub), s.ub)):
            terms = size + np.where(np.isfinite(limit), np.abs(wide(limit)), 0)
            parts.append(np.where(np.isfinite(limit), over / np.where(terms > 0, terms, 1), -1).max(1))
        return np.maximum(np.stack(parts).max(0), 0).astype(float)

    def judge(self, status: str, x: Array) -> tuple[str, bool, str]:
        """Judge the answer of the library to one integer program.

        Args:
            status: the name of the ``pear.Status``.
            x: (n,) the decision.

        Returns:
            The kind, the edge and the reason of a ``Verdict``.
        """
        if status == "SOLVED":
            return self._judge_solved(x)
        best = self.best_point()
        if status == "INFEASIBLE":
            if best.feasible is Proof.NO:
                return "refused", False, ""
            if best.feasible is Proof.EDGE:
                return "refused", True, "feasible to rounding only"
            return "wrong", False, f"INFEASIBLE, but a point is feasible ({best.feasible.value}): {best.x}"
        if status == "UNBOUNDED":
            falls = prove_unbounded(self.s)
            if falls in (Proof.YES, Proof.EDGE) and best.feasible is not Proof.NO:
                return "refused", falls is Proof.EDGE, ""
            return (
                "wrong",
                False,
                f"UNBOUNDED, but a direction of descent: {falls.value}, feasible: {best.feasible.value}",
            )
        if status in ("NOT_FINITE", "NOT_CONVEX"):
            return "wrong", False, f"{status}, but the data is finite and linear"
        return "inaccurate", False, status

    def _judge_solved(self, x: Array) -> tuple[str, bool, str]:
        """Judge an answer with the status SOLVED by its violations, and by its objective against the best known one."""
        s = self.s
        if not np.isfinite(x).all():
            return "wrong", False, "SOLVED, but x is not finite"
        off = float(self.violations(x[None])[0])
        if off > TOLERANCE:
            return "wrong", False, f"SOLVED, but a constraint is violated by {off:.1e}"
        best = self.best_point()
        value, terms = float(wide(s.c) @ wide(x)), float(np.abs(wide(s.c)) @ np.abs(wide(x)))
        terms = max(terms, float(np.abs(s.c).max()))
        if value > best.value + TOLERANCE * terms:
            return "wrong", False, f"SOLVED with {value!r}, but {best.x} is feasible and has {best.value!r}"
        return "right", False, ""

    def best_point(self) -> BestIntegerPoint:
        """Return the best known point of the program.

        A pure integer program with at most ``FEW`` points is enumerated. HiGHS solves all other programs. If HiGHS
        finds no feasible point of a mixed-integer program, and the integer variables have at most ``FEW_PROGRAMS``
        combinations of values, a linear program is solved for each combination.
        """
        s = self.s
        low, high = np.ceil(s.lb[s.integer] - 1e-9), np.floor(s.ub[s.integer] + 1e-9)
        ranges = high - low + 1
        if (ranges < 1).any():
            return BestIntegerPoint(Proof.NO, np.inf, None, True)
        count = float(np.prod(ranges)) if np.isfinite(ranges).all() else np.inf
        if s.integer.all() and count > FEW:
            return self._solve_by_highs()
        if not s.integer.all():
            found = self._solve_by_highs()
            if found.feasible is Proof.YES or count > FEW_PROGRAMS:
                return found
        choices = np.array(list(itertools.product(*(np.arange(a, b + 1) for a, b in zip(low, high, strict=True)))))
        return self._enumerate(choices) if s.integer.all() else self._solve_each_choice(choices)

    def _enumerate(self, points: Array) -> BestIntegerPoint:
        """Return the best of ``points`` (K, n), which are all K integer points within the bounds."""
        s = self.s
        off = self.violations(points)
        surely, perhaps = off <= MET, off <= TOLERANCE
        if not surely.any():
            return BestIntegerPoint(Proof.EDGE if perhaps.any() else Proof.NO, np.inf, None, True)
        values = np.where(surely, (wide(points) @ wide(s.c)).astype(float), np.inf)
        k = int(values.argmin())
        return BestIntegerPoint(Proof.YES, float(values[k]), points[k], True)

    def _solve_each_choice(self, choices: Array) -> BestIntegerPoint:
        """Return the best point, from a linear program in the continuous variables for each choice of the integers.

        Args:
            choices: (K, k) the K combinations of values of the k integers.
        """
        s = self.s
        rest, present = ~s.integer, np.isfinite(s.h)
        best, edge, proven = BestIntegerPoint(Proof.NO, np.inf, None, True), False, True
        for choice in choices:
            lb, ub = s.lb[rest], s.ub[rest]
            G, h = s.G[present][:, rest], (s.h - s.G[:, s.integer] @ choice)[present]
            others = lb, ub, G, h, s.A[:, rest], s.b - s.A[:, s.integer] @ choice
            solved = solve_linear_program(s.c[rest], *others)
            if solved.status == INFEASIBLE:
                continue
            if solved.status != 0:  # unbounded, or numerical trouble: any feasible point tells more than none
                solved, proven = solve_linear_program(np.zeros(int(rest.sum())), *others), False
            if solved.status != 0:
                continue
            x = np.empty(s.n)
            x[s.integer], x[rest] = choice, np.clip(solved.x, lb, ub)
            off, value = float(self.violations(x[None])[0]), float(wide(s.c) @ wide(x))
            if off <= MET and value < best.value:
                best = BestIntegerPoint(Proof.YES, value, x, True)
            edge |= MET < off <= 1e-10
        if best.feasible is Proof.NO:
            return BestIntegerPoint(Proof.EDGE if edge else Proof.NO if proven else Proof.UNKNOWN, np.inf, None, proven)
        return replace(best, proven=proven)

    def _solve_by_highs(self) -> BestIntegerPoint:
        """Return the best point by HiGHS, which solves the program with the largest entry of each row scaled to 1.

        The point is checked, but a claim of HiGHS that the program is infeasible is not.
        """
        s = self.s
        keep = np.isfinite(s.h)
        rows = np.vstack([s.A, s.G[keep]])
        size = np.abs(rows).max(1, initial=0.0)
        size = np.where(size > 0, size, 1.0)
        low = np.concatenate([s.b, np.full(int(keep.sum()), -np.inf)]) / size
        high = np.concatenate([s.b, s.h[keep]]) / size
        found = milp(
            s.c / (np.abs(s.c).max() or 1.0),
            integrality=s.integer.astype(int),
            bounds=Bounds(s.lb, s.ub),
            constraints=LinearConstraint(rows / size[:, None], low, high) if len(rows) else None,
            options={"mip_rel_gap": 0.0},
        )
        if found.x is None:
            if prove_feasible(self.s) is Proof.NO or found.status == 2:
                return BestIntegerPoint(Proof.NO, np.inf, None, True)
            return BestIntegerPoint(Proof.UNKNOWN, np.inf, None, False)
        x = np.where(s.integer, np.round(found.x), found.x)
        x = np.clip(x, s.lb, s.ub)
        if float(self.violations(x[None])[0]) > 1e-10:
            return BestIntegerPoint(Proof.EDGE, np.inf, None, False)
        return BestIntegerPoint(Proof.YES, float(wide(s.c) @ wide(x)), x, found.status == 0)

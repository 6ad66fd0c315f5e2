"""Benchmark: the errors of decisions and gradients of every solver, compared with an independent reference.

A row has three errors, each the largest over all problems of a family: the residual of the optimality conditions, the
error of the gradient against the exact one, and the error of the gradient against finite differences of the regret.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pear.decisions import solve
from pear.decisions.solution import Solution
from pear.errors import FailedSamplesWarning
from pear.losses import PEARLoss, regret_gradient
from pear.solvers.backend_registry import available_backends
from pear_lab.benchmarks.exact_gradients import ExactGradients
from pear_lab.benchmarks.exactness_families import EXACTNESS_FAMILIES, ExactnessCase
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.judge.extended_precision import wide
from pear_lab.judge.judged_program import Array, judged_fields, judged_programs
from pear_lab.judge.point_residuals import PointMultipliers, measure_point_residuals
from pear_lab.judge.reference_solution import ReferenceSolution, reference_solvers, solve_reference

GOALS = {"kkt_residual": 1e-9, "reference_error": 1e-8, "fd_error": 1e-5}
"""The largest accepted value of each error."""

QUICK = 0.1
"""The share of the problems that a quick run draws."""

DIRECTIONS = 2
"""The number of directions per problem along which finite differences are computed."""

_LONGEST, _SHORTEST = 1.0, 1e-4
"""The longest and the shortest step of finite differences, in units of the median cost."""
_ACROSS = 1e-3  # the least denominator of a relative error, relative to the steepest slope


@dataclass(frozen=True)
class ExactnessRow:
    """The largest errors of one solver on one family.

    If a problem could not be solved, all three errors are infinite. An error is NaN if no problem could be compared.

    Attributes:
        solver: the name of the solver.
        family: the name of the family of problems.
        problems: the number of problems.
        kkt_residual: the largest relative residual of the optimality conditions.
        reference_error: the largest relative error of the gradient against the reference.
        fd_error: the largest relative error of the gradient against central differences of the regret.
        repaired_share: the share of the problems in which the library corrected the active set of the solver.
        degenerate_share: the share of the problems whose regret has no derivative. The errors of gradients do not
            include them.
    """

    solver: str
    family: str
    problems: int
    kkt_residual: float
    reference_error: float
    fd_error: float
    repaired_share: float
    degenerate_share: float

    @property
    def meets_goals(self) -> bool:
        """Whether every error is at most its limit in ``GOALS``. An error that is NaN misses the goal."""
        return all(getattr(self, name) <= goal for name, goal in GOALS.items())


def measure_exactness(
    solvers: list[str] | None = None, quick: bool = False, seed: int = 0, progress: Callable[[str], None] | None = None
) -> list[ExactnessRow]:
    """Measure the errors of every solver on every family of problems.

    Args:
        solvers: the names of solvers; None for all that are installed and solve quadratic programs.
        quick: whether to draw only a tenth of the problems.
        seed: the seed of the random problems. Each family has its own random numbers.
        progress: called with one line of text after each row.

    Returns:
        A row for each solver and family, ordered by solver.

    Raises:
        MissingExtraError: no other solver is installed that could serve as a reference.
    """
    names = [b.name for b in available_backends() if "qp" in b.kinds] if solvers is None else solvers
    for name in names:
        reference_solvers(name)
    rows = []
    for family in EXACTNESS_FAMILIES:
        batches = _draw_exactness_batches(family, seed, QUICK if quick else 1.0)
        for name in names:
            rows.append(_measure_exactness_row(family, batches, name))
            if progress is not None:
                progress(_format_exactness_progress(rows[-1], len(rows), len(names) * len(EXACTNESS_FAMILIES)))
    return sorted(rows, key=lambda row: names.index(row.solver))


def exactness_tables(rows: list[ExactnessRow]) -> list[TextTable]:
    """Make one table with a line for each solver and family. The headings show the limits of the errors."""
    columns: dict[str, Callable[[Any], str]] = {
        "solver": lambda row: row.solver,
        "family": lambda row: row.family,
        "prob-\nlems": lambda row: f"{row.problems:,}",
        f"KKT\nresidual\n≤ {GOALS['kkt_residual']:.0e}": lambda row: f"{row.kkt_residual:.1e}",
        f"against\nreference\n≤ {GOALS['reference_error']:.0e}": lambda row: f"{row.reference_error:.1e}",
        f"finite\ndiffs\n≤ {GOALS['fd_error']:.0e}": lambda row: f"{row.fd_error:.1e}",
        "re-\npaired": lambda row: f"{row.repaired_share:.0%}",
        "degen-\nerate": lambda row: f"{row.degenerate_share:.0%}",
        "": lambda row: "good" if row.meets_goals else "missed",
    }
    return [TextTable.of("Exactness: the largest error over all problems of a family", rows, columns, left=2)]


class _ExactnessBatch:
    """A batch of B problems on which every solver is measured, with their reference solutions.

    Args:
        case: the problems.
        rng: draws the directions of finite differences.
    """

    def __init__(self, case: ExactnessCase, rng: np.random.Generator) -> None:
        self.case = case
        fields = judged_fields(case.problem, Q=case.Q)
        self.programs = judged_programs(fields, case.predicted.numpy(), case.smoothing, case.problem.sense)
        B, n = case.predicted.shape
        size = np.median(np.abs(case.predicted.numpy()), 1)
        self.directions = size[:, None, None] * rng.normal(size=(B, DIRECTIONS, n))
        self._known: dict[tuple[str, ...], tuple[ExactGradients, Array]] = {}

    def answers(self, tested: str) -> tuple[ExactGradients, Array]:
        """Return exact gradients and steps for finite differences, computed with other solvers than ``tested``.

        Returns:
            The exact gradients, and the steps (B, k) along the k directions of each problem. A step is so short that no
            constraint becomes tight or loose. A step that would be too short for finite differences is NaN.
        """
        key = tuple(reference_solvers(tested))
        if key not in self._known:
            references = [solve_reference(program, tested) for program in self.programs]
            self._known[key] = ExactGradients.of(references, self._errors(references)), self._fd_steps(references)
        return self._known[key]

    def _errors(self, references: list[ReferenceSolution]) -> Array:
        """Return the predicted minus the true gradients (B, n) of the objective at the exact decisions."""
        case = self.case
        e: Array = (case.predicted - case.true).numpy()
        if case.Q is not None and case.true_Q is not None:
            x = np.stack([r.x for r in references]).astype(np.float64)
            e = e + np.einsum("bij,bj->bi", (case.Q - case.true_Q).numpy(), x)
        return e

    def _fd_steps(self, references: list[ReferenceSolution]) -> Array:
        """Return the steps (B, k) of finite differences along k directions. A step that would be too short is NaN."""
        longest = [[r.longest_step(d) for d in along] for r, along in zip(references, self.directions, strict=True)]
        steps = np.minimum(_LONGEST, 0.5 * np.asarray(longest))
        return np.where(steps < _SHORTEST, np.nan, steps)

    def solve(self, solver: str) -> Solution:
        """Solve the batch for the predicted costs."""
        case = self.case
        return solve(case.problem, case.predicted, case.smoothing, solver, "mask", Q=case.Q)

    def gradient(self, solver: str) -> Array:
        """Compute the gradients (B, n) of the regret with respect to the predicted costs."""
        problem, predicted, true, smoothing, Q, true_Q = self.case
        return regret_gradient(problem, predicted, true, smoothing, 0.0, solver, "mask", Q, true_Q).numpy()

    def residuals(self, solution: Solution) -> Array:
        """Return the largest relative residual (B,) of each sample's optimality conditions, measured by the judge."""
        assert solution.duals is not None
        parts = (solution.x, solution.duals.equality, solution.duals.inequality, solution.duals.bound)
        points = zip(self.programs, *(part.numpy() for part in parts), strict=True)
        return np.array([measure_point_residuals(p, x, PointMultipliers(*map(wide, y))).worst for p, x, *y in points])

    def differences(self, steps: Array, solver: str) -> Array:
        """Compute central differences (B, k) of the regret per unit of step. They are infinite if a solve fails.

        The regret is a quadratic function of the step as long as no constraint becomes tight or loose. Its central
        difference is then exact, and long steps have the smallest rounding errors.

        Args:
            steps: (B, k) the steps along each of k directions.
            solver: the solver that is measured.
        """
        case, (B, k) = self.case, steps.shape
        moves = torch.from_numpy(np.nan_to_num(steps)[:, :, None] * self.directions)
        copies = torch.arange(B).repeat_interleave(2 * k)
        shifts = torch.stack([moves, -moves], 2).reshape(len(copies), -1)
        loss = PEARLoss(case.problem[copies], case.smoothing, 0.0, 0.0, solver, "mask", "none")
        Q, true_Q = (None if part is None else part[copies] for part in (case.Q, case.true_Q))
        value = loss(case.predicted[copies] + shifts, case.true[copies], Q=Q, true_Q=true_Q)
        assert loss.last is not None
        value = torch.where(loss.last.status == 0, value, torch.inf).reshape(B, k, 2).numpy()
        with np.errstate(invalid="ignore"):
            difference = (value[:, :, 0] - value[:, :, 1]) / (2 * steps)
        return np.where(np.isinf(value).any(2), np.inf, difference)

    def errors_of_differences(self, answers: ExactGradients, gradient: Array, differences: Array) -> Array:
        """Compute the relative errors (B, k) of gradients along k directions, against finite differences.

        An error is relative to the slope gᵀd along a direction d, or to a thousandth of s‖d‖ if that is larger, because
        a slope near zero has large relative rounding errors. s is ``answers.scale``, in general the norm of the exact
        gradient, so that s‖d‖ is the steepest slope.

        Args:
            answers: the exact gradients.
            gradient: (B, n) the measured gradients g.
            differences: (B, k) central differences.
        """
        slope = np.einsum("bn,bkn->bk", gradient, self.directions)
        steepest = answers.scale[:, None] * np.linalg.norm(self.directions, axis=2)
        return np.asarray(np.abs(differences - slope) / np.maximum(np.abs(slope), _ACROSS * steepest))


def _draw_exactness_batches(family: str, seed: int, share: float) -> list[_ExactnessBatch]:
    """Draw the batches of a family of problems, with ``share`` of the samples of a full run."""
    # problems and directions have their own random numbers, so that neither depends on how many the other draws
    problems, directions = np.random.default_rng([seed, zlib.crc32(family.encode())]).spawn(2)
    return [_ExactnessBatch(case, directions) for case in EXACTNESS_FAMILIES[family](problems, share)]


def _measure_exactness_row(family: str, batches: list[_ExactnessBatch], solver: str) -> ExactnessRow:
    """Measure one solver on the batches of one family."""
    residuals, references, differences, repaired, on_edge = [], [], [], [], []
    for batch in batches:
        answers, steps = batch.answers(solver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)  # the row says it
            solution = batch.solve(solver)
            gradient = batch.gradient(solver)
            found = batch.differences(steps, solver)
        failed = ~solution.solved.numpy()
        comparable = failed | ~answers.on_edge
        residuals.append(batch.residuals(solution))
        references.append(np.where(failed, np.inf, answers.relative(gradient))[comparable])
        wrong = np.where(failed[:, None], np.inf, batch.errors_of_differences(answers, gradient, found))
        differences.append(wrong[comparable[:, None] & (failed[:, None] | ~np.isnan(steps))])
        repaired.append(solution.repaired.numpy())
        on_edge.append(answers.on_edge)
    errors = map(_largest_exactness_error, (residuals, references, differences))
    shares = (float(np.concatenate(part).mean()) for part in (repaired, on_edge))
    return ExactnessRow(solver, family, sum(map(len, on_edge)), *errors, *shares)


def _largest_exactness_error(parts: list[Array]) -> float:
    """Return the largest of all errors. NaN counts as infinite. Without errors the result is NaN."""
    values = np.concatenate(parts)
    return float(np.where(np.isnan(values), np.inf, values).max()) if len(values) else math.nan


def _format_exactness_progress(row: ExactnessRow, done: int, total: int) -> str:
    """Return a line of text with the number of finished rows and the errors of the latest one."""
    return (
        f"{done}/{total} {row.solver}, {row.family}: {row.problems} problems, residual {row.kkt_residual:.1e}, "
        f"reference {row.reference_error:.1e}, differences {row.fd_error:.1e}"
    )

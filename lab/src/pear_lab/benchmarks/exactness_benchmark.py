"""Benchmark: the errors of decisions and gradients of every back end, compared with an independent reference.

A row has three numbers, each the largest over all problems of a family: the residual of the optimality conditions,
the error of the gradient against the null-space reference, and its error against finite differences of the regret.
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
from torch import Tensor

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
"""Largest accepted value of each error."""

QUICK = 0.1
"""Share of the problems that a quick run draws."""

DIRECTIONS = 2
"""Directions per problem along which differences are taken."""

_LONGEST, _SHORTEST = 1.0, 1e-4
"""Steps of finite differences, in units of the median cost."""
_ACROSS = 1e-3


@dataclass(frozen=True)
class ExactnessRow:
    """The largest errors of one back end on one family.

    Attributes:
        solver: name of the back end.
        family: name of the family of problems.
        problems: number of solved problems.
        kkt_residual: largest scaled residual of the optimality conditions.
        reference_error: largest relative error of the gradient against the reference, away from edges.
        fd_error: largest relative error against central differences of the regret, away from edges.
        repaired_share: share of the problems in which the solver's active set was wrong and was exchanged.
        degenerate_share: share of the problems on an edge, where no derivative exists; the two errors leave them out.

    If a problem could not be solved, all three errors are infinite. NaN means that there was nothing to compare.
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
        """True if every error is within its goal."""
        return all(getattr(self, name) <= goal for name, goal in GOALS.items())


def run(
    solvers: list[str] | None = None, quick: bool = False, seed: int = 0, progress: Callable[[str], None] | None = None
) -> list[ExactnessRow]:
    """Measure every family with every back end.

    Args:
        solvers: names of back ends; None for all that are installed and solve quadratic programs.
        quick: True to draw only a tenth of the problems.
        seed: seed of the random problems. A family does not depend on the other families that are run.
        progress: called with one line of text after each row.

    Returns:
        One row per back end and family, by back end.

    Raises:
        MissingExtraError: no other solver is installed that could serve as a reference.
    """
    names = [b.name for b in available_backends() if "qp" in b.kinds] if solvers is None else solvers
    for name in names:
        reference_solvers(name)
    rows = []
    for family in EXACTNESS_FAMILIES:
        exams = _draw_exams(family, seed, QUICK if quick else 1.0)
        for name in names:
            rows.append(_exactness_row(family, exams, name))
            if progress is not None:
                progress(_progress_line(rows[-1], len(rows), len(names) * len(EXACTNESS_FAMILIES)))
    return sorted(rows, key=lambda row: names.index(row.solver))


def tables(rows: list[ExactnessRow]) -> list[TextTable]:
    """Make a table with one line per back end and family, and the goals in the headings."""
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


class _ExactnessExam:
    """A batch of problems with reference solutions, which back ends share."""

    def __init__(self, case: ExactnessCase, rng: np.random.Generator) -> None:
        self.case = case
        fields = judged_fields(case.problem, Q=case.Q)
        self.programs = judged_programs(fields, case.predicted.numpy(), case.smoothing, case.problem.sense)
        B, n = case.predicted.shape
        size = np.median(np.abs(case.predicted.numpy()), 1)
        self.directions = size[:, None, None] * rng.normal(size=(B, DIRECTIONS, n))
        self._known: dict[tuple[str, ...], tuple[ExactGradients, Array]] = {}

    def answers(self, tested: str) -> tuple[ExactGradients, Array]:
        """Return exact gradients by solvers other than ``tested``, and steps for finite differences.

        The steps (B, DIRECTIONS) are so short that no constraint becomes tight or loose. A step that is too short for
        a difference is NaN.
        """
        key = tuple(reference_solvers(tested))
        if key not in self._known:
            references = [solve_reference(program, tested) for program in self.programs]
            self._known[key] = ExactGradients.of(references, self._errors(references)), self._fd_steps(references)
        return self._known[key]

    def _errors(self, references: list[ReferenceSolution]) -> Array:
        """Return the errors (B, n) of the predicted gradient of the objective at the decision."""
        case = self.case
        e: Array = (case.predicted - case.true).numpy()
        if case.Q is not None and case.true_Q is not None:
            x = np.stack([r.x for r in references]).astype(np.float64)
            e = e + np.einsum("bij,bj->bi", (case.Q - case.true_Q).numpy(), x)
        return e

    def _fd_steps(self, references: list[ReferenceSolution]) -> Array:
        longest = [[r.longest_step(d) for d in along] for r, along in zip(references, self.directions, strict=True)]
        steps = np.minimum(_LONGEST, 0.5 * np.asarray(longest))
        return np.where(steps < _SHORTEST, np.nan, steps)


def _draw_exams(family: str, seed: int, share: float) -> list[_ExactnessExam]:
    # one stream for the problems and one for the directions, so that neither depends on how much the other draws
    problems, directions = np.random.default_rng([seed, zlib.crc32(family.encode())]).spawn(2)
    return [_ExactnessExam(case, directions) for case in EXACTNESS_FAMILIES[family](problems, share)]


def _exactness_row(family: str, exams: list[_ExactnessExam], solver: str) -> ExactnessRow:
    """Measure one solver on the exams of one family: residuals, errors of gradients, shares of repaired samples."""
    residuals, references, differences, repaired, on_edge = [], [], [], [], []
    for exam in exams:
        answers, steps = exam.answers(solver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)  # the row says it
            solution = _solution(exam.case, solver)
            gradient = _gradient(exam.case, solver).numpy()
            found = _central_differences(exam, steps, solver)
        failed = ~solution.solved.numpy()
        comparable = failed | ~answers.on_edge
        residuals.append(_residuals(exam, solution))
        references.append(np.where(failed, np.inf, answers.relative(gradient))[comparable])
        wrong = np.where(failed[:, None], np.inf, _fd_errors(exam, answers, gradient, found))
        differences.append(wrong[comparable[:, None] & (failed[:, None] | ~np.isnan(steps))])
        repaired.append(solution.repaired.numpy())
        on_edge.append(answers.on_edge)
    errors = map(_largest_error, (residuals, references, differences))
    shares = (float(np.concatenate(part).mean()) for part in (repaired, on_edge))
    return ExactnessRow(solver, family, sum(map(len, on_edge)), *errors, *shares)


def _solution(case: ExactnessCase, solver: str) -> Solution:
    return solve(case.problem, case.predicted, case.smoothing, solver, "mask", Q=case.Q)


def _gradient(case: ExactnessCase, solver: str) -> Tensor:
    problem, predicted, true, smoothing, Q, true_Q = case
    return regret_gradient(problem, predicted, true, smoothing, 0.0, solver, "mask", Q, true_Q)


def _residuals(exam: _ExactnessExam, solution: Solution) -> Array:
    """Compute the residuals (B,) of the returned decisions and multipliers with the judge's own arithmetic."""
    assert solution.duals is not None
    parts = (solution.x, solution.duals.equality, solution.duals.inequality, solution.duals.bound)
    points = zip(exam.programs, *(part.numpy() for part in parts), strict=True)
    return np.array([measure_point_residuals(p, x, PointMultipliers(*map(wide, y))).worst for p, x, *y in points])


def _central_differences(exam: _ExactnessExam, steps: Array, solver: str) -> Array:
    """Return central differences (B, DIRECTIONS) of the regret per unit of step; infinite for failed solves.

    As long as no constraint becomes tight or loose the regret is a quadratic function of the step. Its central
    difference is then exact for steps of any length, and long ones leave least to rounding.
    """
    case, (B, k) = exam.case, steps.shape
    moves = torch.from_numpy(np.nan_to_num(steps)[:, :, None] * exam.directions)
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


def _fd_errors(exam: _ExactnessExam, answers: ExactGradients, gradient: Array, differences: Array) -> Array:
    """Return the relative errors (B, DIRECTIONS) of the slopes gᵀd.

    An error is relative to the slope, or to a thousandth of the steepest slope ‖g‖‖d‖ if that is larger. The slope
    across the gradient is zero up to the rounding error of the regret.
    """
    slope = np.einsum("bn,bkn->bk", gradient, exam.directions)
    steepest = answers.scale[:, None] * np.linalg.norm(exam.directions, axis=2)
    return np.asarray(np.abs(differences - slope) / np.maximum(np.abs(slope), _ACROSS * steepest))


def _largest_error(parts: list[Array]) -> float:
    """Return the largest of all errors. NaN counts as infinite. Without any error the result is NaN."""
    values = np.concatenate(parts)
    return float(np.where(np.isnan(values), np.inf, values).max()) if len(values) else math.nan


def _progress_line(row: ExactnessRow, done: int, total: int) -> str:
    return (
        f"{done}/{total} {row.solver}, {row.family}: {row.problems} problems, residual {row.kkt_residual:.1e}, "
        f"reference {row.reference_error:.1e}, differences {row.fd_error:.1e}"
    )

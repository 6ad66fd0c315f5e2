"""Examining a case: the library solves it as a batch and sample by sample, and the judge checks every answer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pear.decisions import solve
from pear.errors import NotUniqueError, PearError
from pear.losses import PEARLoss, regret_gradient
from pear.optimality.status import Status
from pear.problem import Problem
from pear_lab.judge import judge_answer as judging
from pear_lab.judge.exact_tangent import ExactTangent
from pear_lab.judge.judge_answer import Answer, Verdict
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import StressCase

SLOW = 50.0
"""A sample that takes more than this many times the median time of its batch is timed twice more."""

_FLOOR = 1e-3  # the least median time in seconds, because shorter times are mostly noise of the clock
_SHORTEST = 1e-4  # the shortest step of a central difference, relative to the cost; rounding dominates below
_CRASHES = (PearError, ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class CaseVerdicts:
    """The verdicts on the samples of a case, and the times of their solutions.

    Attributes:
        verdicts: the verdict on each of the B samples.
        seconds: (B,) the time to solve each sample alone.
        slowest: the largest of these times divided by their median, or by a millisecond if the median is shorter; 1 if
            the case raised an error.
        gradients: the number of gradients that were examined.
    """

    verdicts: list[Verdict]
    seconds: Array
    slowest: float
    gradients: int


def examine(case: StressCase) -> CaseVerdicts:
    """Solve and differentiate every sample of a case, and return the judge's verdicts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samples may fail
        try:
            problem = Problem(**case.problem_fields())
            solution = solve(problem, case.cost, case.smoothing, "auto", "mask", None, **case.overrides)
            batch = case.answers(solution)
        except _CRASHES as error:
            crashed = Verdict("wrong", f"raised {type(error).__name__}: {error}")
            return CaseVerdicts([crashed] * case.batch, np.zeros(case.batch), 1.0, 0)
        return CaseExamination(case, problem, batch).run()


class CaseExamination:
    """The examination of the library's answers to one case.

    Args:
        case: the case.
        problem: the problem of the case.
        batch: the answers to all samples, solved as one batch.

    Attributes:
        programs: the samples as the judge's programs.
        verdicts: the verdicts so far, one for each sample.
    """

    def __init__(self, case: StressCase, problem: Problem, batch: list[Answer]) -> None:
        self.case, self.problem, self.batch, self.programs = case, problem, batch, case.programs()
        self.verdicts = [
            judging.judge_answer(program, answer) for program, answer in zip(self.programs, batch, strict=True)
        ]

    def run(self) -> CaseVerdicts:
        """Judge the answers and the gradients of all samples, and return the verdicts.

        If the first answer is right and its program is linear, its objective is compared with that of HiGHS. Each
        answer of the batch is compared with the answer to the same sample solved alone. Gradients are judged only if
        the case has curvature or smoothing, and neither integers nor fields that replace those of the problem.
        """
        if self.verdicts[0].kind == "right":  # HiGHS solves only one sample of a batch, which saves time
            self.blame(0, judging.judge_answer_objective(self.programs[0], self.batch[0]))
        seconds = np.zeros(self.case.batch)
        for i, here in enumerate(self.batch):
            there, seconds[i] = self.solve_alone(i)
            self.blame(
                i,
                there
                if isinstance(there, str)
                else judging.judge_answer_in_batch(self.programs[i], here, there, self.verdicts[i]),
            )
        case, gradients = self.case, 0
        if not case.overrides and case.integer is None and (case.smoothing > 0 or "Q" in case.fields):
            gradients = self.judge_gradients()
        return CaseVerdicts(self.verdicts, seconds, self.slowest_ratio(seconds), gradients)

    def blame(self, i: int, reason: str) -> None:
        """Change the verdict on sample i to "wrong". An empty reason, or an earlier "wrong", changes nothing."""
        self.verdicts[i] = self.verdicts[i].blamed(reason)

    def solve_alone(self, i: int) -> tuple[Answer | str, float]:
        """Solve sample i alone.

        Returns:
            The answer, or a sentence on the error that was raised; and the seconds of the solve.
        """
        one, own = self.case.only(i), self.problem[i]
        start = time.perf_counter()
        try:
            solution = solve(own, one.cost, one.smoothing, "auto", "mask", None, **one.overrides)
        except _CRASHES as error:
            return f"raised {type(error).__name__} alone: {error}", time.perf_counter() - start
        took = time.perf_counter() - start
        return one.answers(solution)[0], took

    def slowest_ratio(self, seconds: Array) -> float:
        """Return the longest time divided by the median time, or by a millisecond if the median is shorter.

        A sample whose time is more than ``SLOW`` times this divisor is timed twice more.

        Args:
            seconds: (B,) the times of the samples. The time of a slow sample is replaced, in place, by the shortest of
                its three times.
        """
        median = max(float(np.median(seconds)), _FLOOR)
        for i in np.flatnonzero(seconds > SLOW * median):
            seconds[i] = min(seconds[i], *(self.solve_alone(int(i))[1] for _ in range(2)))
        return float(seconds.max() / median)

    def judge_gradients(self) -> int:
        """Judge the gradients of all samples that have one, and return their number; 0 if an error was raised."""
        case, batch = self.case, self.batch
        spaces = [judging.answer_tangent(*pair) for pair in zip(self.programs, self.verdicts, strict=True)]
        truth = case.programs(case.true)
        sure = [i for i, space in enumerate(spaces) if space is not None]
        if not sure:
            return 0

        def blame_each(reason: Callable[[int], str]) -> None:
            for i in sure:
                self.blame(i, reason(i))

        try:
            g = regret_gradient(self.problem, case.cost, case.true, case.smoothing, on_failure="mask").numpy()
            value, slope = self.regrets_and_gradients(case.cost)
            ideal = case.answers(solve(self.problem, case.true, case.smoothing, "auto", "mask"))
            differences = self.central_differences(spaces)
        except NotUniqueError as error:
            named = set(error.samples)
            blame_each(lambda i: "NotUniqueError, but the decision is unique" if i in named else "")
            return 0
        except _CRASHES as error:
            text = f"the gradient raised {type(error).__name__}: {error}"
            blame_each(lambda i: text)
            return 0

        def wrong_derivatives(i: int) -> str:
            space, e = spaces[i], case.cost[i] - case.true[i]
            assert space is not None
            found = judging.judge_answer_gradient(space, g[i], e)
            true = truth[i]
            if found or ideal[i].status != "SOLVED" or judging.judge_answer(true, ideal[i]).kind != "right":
                return found
            if np.isnan(value[i]):
                return "PEARLoss has no solution, and pear.solve has"
            again = judging.judge_answer_gradient(space, slope[i], e)
            if again:
                return f"PEARLoss: {again}"
            found = judging.judge_answer_regret(true, batch[i].x, ideal[i], value[i], space.rounding)
            room = judging.answer_regret_rounding(true, batch[i].x, ideal[i], space.rounding)
            return found or _wrong_case_slope(slope[i], differences, i, room)

        blame_each(wrong_derivatives)
        return len(sure)

    def regrets_and_gradients(self, cost: Array) -> tuple[Array, Array]:
        """Return regrets (B,) of costs (B, n) and their gradients (B, n) by ``PEARLoss``; NaN without a solution."""
        loss = PEARLoss(self.problem, self.case.smoothing, 0.0, 0.0, "auto", "mask", "none")
        moving = torch.tensor(cost, requires_grad=True)
        value = loss(moving, torch.from_numpy(self.case.true))
        value.sum().backward()
        assert moving.grad is not None
        assert loss.last is not None
        solved = (loss.last.status == Status.SOLVED).numpy()
        return np.where(solved, value.detach().numpy(), np.nan), moving.grad.numpy()

    def central_differences(self, spaces: list[ExactTangent | None]) -> tuple[Array, Array, Array]:
        """Return central differences of the regret along random directions of the cost.

        Args:
            spaces: the tangent space at each decision; None if the regret has no gradient.

        Returns:
            Directions (B, n), steps (B,) and quotients (B,). Steps and quotients are NaN without a gradient, or if a
            constraint becomes tight or loose so soon that rounding errors would dominate a shorter step.
        """
        case = self.case
        rng = np.random.default_rng(0)
        size = np.abs(np.nan_to_num(case.cost))
        directions = np.where(size > 0, size, size.max(1, keepdims=True)) * rng.normal(size=case.cost.shape)
        steps = np.full(case.batch, np.nan)
        for i, space in enumerate(spaces):
            if space is not None:
                answer = self.batch[i]
                longest = space.longest_step(answer.x, (answer.inequality, answer.bound), directions[i])
                longest = 0.3 * min(1.0, longest)
                steps[i] = longest if longest > _SHORTEST else np.nan
        moves = np.nan_to_num(steps)[:, None] * directions
        over, under = (self.regrets_and_gradients(case.cost + sign * moves)[0] for sign in (1.0, -1.0))
        return directions, steps, (over - under) / (2 * steps)


def _wrong_case_slope(g: Array, differences: tuple[Array, Array, Array], i: int, rounding: float) -> str:
    """Return a sentence if a gradient contradicts the central difference of the regret, else an empty text.

    Args:
        g: (n,) the gradient.
        differences: the result of ``CaseExamination.central_differences``.
        i: the sample.
        rounding: the largest rounding error of a regret.
    """
    direction, step, found = (part[i] for part in differences)
    if np.isnan(found):
        return ""
    slope, steepest = float(g @ direction), float(np.abs(g) @ np.abs(direction))
    if abs(found - slope) <= judging.SLOPE * steepest + rounding / step:
        return ""
    return f"the loss changes by {found:.6e} per unit, the gradient says {slope:.6e}"

"""Solve a case with the library, in a batch and sample by sample, and judge every answer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pear.decisions import solve
from pear.decisions.solution import Solution
from pear.errors import NotUniqueError, PearError
from pear.losses import PEARLoss, regret_gradient
from pear.optimality.status import Status
from pear.problem import Problem
from pear_lab.judge import judge_answer as judging
from pear_lab.judge.exact_tangent import ExactTangent
from pear_lab.judge.judge_answer import Answer, Verdict
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import Case

SLOW = 50.0
"""A sample that takes this many times the median of its batch is measured again, twice."""

_FLOOR = 1e-3  # seconds: a batch is never called faster than this, or the clock's own noise would count
_SHORTEST = 1e-4  # step of a central difference, relative to the cost, below which rounding is all there is
_CRASHES = (PearError, ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class CaseVerdicts:
    """The verdicts on the samples of a case, and how long they took.

    Attributes:
        verdicts: one for each sample.
        seconds: (B,) what each takes alone.
        slowest: the largest of them against the median.
        gradients: how many gradients were compared.
    """

    verdicts: list[Verdict]
    seconds: Array
    slowest: float
    gradients: int


def examine(case: Case) -> CaseVerdicts:
    """Solve, differentiate and judge every sample of a case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # failed samples are what this is about
        return _examine(case)


def _examine(case: Case) -> CaseVerdicts:
    """Solve a case as a batch and sample by sample, and judge every answer and gradient."""
    try:
        problem = Problem(**case.problem_fields())
        batch = answers(case, solve(problem, case.cost, case.smoothing, "auto", "mask", None, **case.overrides))
    except _CRASHES as error:
        crashed = Verdict("wrong", f"raised {type(error).__name__}: {error}")
        return CaseVerdicts([crashed] * case.batch, np.zeros(case.batch), 1.0, 0)
    programs, seconds = case.programs(), np.zeros(case.batch)
    verdicts = [judging.judge_answer(program, answer) for program, answer in zip(programs, batch, strict=True)]
    if verdicts[0].kind == "right":  # one answer of a batch is compared with another solver, too
        verdicts[0] = verdicts[0].blamed(judging.judge_objective(programs[0], batch[0]))
    for i, here in enumerate(batch):
        there, seconds[i] = _solve_alone(case, problem, i)
        why = there if isinstance(there, str) else judging.judge_batch_answer(programs[i], here, there, verdicts[i])
        verdicts[i] = verdicts[i].blamed(why)
    compared = 0
    if not case.overrides and case.integer is None and (case.smoothing > 0 or "Q" in case.fields):
        compared = _judge_gradients(case, problem, batch, verdicts)
    return CaseVerdicts(verdicts, seconds, _slowest_ratio(case, problem, seconds), compared)


def answers(case: Case, solution: Solution) -> list[Answer]:
    """What the library says of each sample of a case."""
    sign = 1.0 if case.sense == "min" else -1.0
    duals: list[Any] = [(None, None, None)] * case.batch
    if solution.duals is not None:
        parts = (solution.duals.equality, solution.duals.inequality, solution.duals.bound)
        duals = list(zip(*(part.double().numpy() for part in parts), strict=True))
    columns = zip(solution.status.tolist(), solution.x.double().numpy(), solution.value.tolist(), duals, strict=True)
    return [Answer(Status(int(k)).name, x, sign * value, *y) for k, x, value, y in columns]


def _solve_alone(case: Case, problem: Problem, i: int) -> tuple[Answer | str, float]:
    """The answer to sample i solved by itself, or the error that was raised; and the seconds it took."""
    one, own = case.only(i), problem[i]
    start = time.perf_counter()
    try:
        solution = solve(own, one.cost, one.smoothing, "auto", "mask", None, **one.overrides)
    except _CRASHES as error:
        return f"raised {type(error).__name__} alone: {error}", time.perf_counter() - start
    took = time.perf_counter() - start
    return answers(one, solution)[0], took


def _slowest_ratio(case: Case, problem: Problem, seconds: Array) -> float:
    """Time of the slowest sample over the median of its batch. Samples that look slow are timed twice more."""
    median = max(float(np.median(seconds)), _FLOOR)
    for i in np.flatnonzero(seconds > SLOW * median):
        seconds[i] = min(seconds[i], *(_solve_alone(case, problem, int(i))[1] for _ in range(2)))
    return float(seconds.max() / median)


def _judge_gradients(case: Case, problem: Problem, batch: list[Answer], verdicts: list[Verdict]) -> int:
    """Compare every gradient that must exist; returns how many there were."""
    spaces = [judging.tangent_at_answer(*pair) for pair in zip(case.programs(), verdicts, strict=True)]
    truth = case.programs(case.true)
    sure = [i for i, space in enumerate(spaces) if space is not None]
    if not sure:
        return 0

    def blame(found: Callable[[int], str]) -> None:
        for i in sure:
            verdicts[i] = verdicts[i].blamed(found(i))

    try:
        g = regret_gradient(problem, case.cost, case.true, case.smoothing, on_failure="mask").numpy()
        value, slope = _regrets_and_gradients(case, problem, case.cost)
        ideal = answers(case, solve(problem, case.true, case.smoothing, "auto", "mask"))
        steps = _central_differences(case, problem, batch, spaces)
    except NotUniqueError as error:
        named = set(error.samples)
        blame(lambda i: "NotUniqueError, but the decision is unique" if i in named else "")
        return 0
    except _CRASHES as error:
        text = f"the gradient raised {type(error).__name__}: {error}"
        blame(lambda i: text)
        return 0

    def why(i: int) -> str:
        space, e = spaces[i], case.cost[i] - case.true[i]
        assert space is not None
        found = judging.judge_gradient(space, g[i], e)
        true = truth[i]
        if found or ideal[i].status != "SOLVED" or judging.judge_answer(true, ideal[i]).kind != "right":
            return found
        if np.isnan(value[i]):
            return "PEARLoss has no solution, and pear.solve has"
        again = judging.judge_gradient(space, slope[i], e)
        if again:
            return f"PEARLoss: {again}"
        found = judging.judge_regret(true, batch[i].x, ideal[i], value[i], space.rounding)
        room = judging.regret_rounding(true, batch[i].x, ideal[i], space.rounding)
        return found or _wrong_slope(slope[i], steps, i, room)

    blame(why)
    return len(sure)


def _regrets_and_gradients(case: Case, problem: Problem, cost: Array) -> tuple[Array, Array]:
    """(B,) regrets, NaN where there is none, and (B, n) their gradients, by ``PEARLoss``."""
    loss = PEARLoss(problem, case.smoothing, 0.0, 0.0, "auto", "mask", "none")
    moving = torch.tensor(cost, requires_grad=True)
    value = loss(moving, torch.from_numpy(case.true))
    value.sum().backward()
    assert moving.grad is not None
    assert loss.last is not None
    solved = (loss.last.status == Status.SOLVED).numpy()
    return np.where(solved, value.detach().numpy(), np.nan), moving.grad.numpy()


def _central_differences(
    case: Case, problem: Problem, batch: list[Answer], spaces: list[ExactTangent | None]
) -> tuple[Array, Array, Array]:
    """Directions (B, n), steps (B,) and central differences (B,) of the loss, NaN where there are none."""
    rng = np.random.default_rng(0)
    size = np.abs(np.nan_to_num(case.cost))
    directions = np.where(size > 0, size, size.max(1, keepdims=True)) * rng.normal(size=case.cost.shape)
    steps = np.full(case.batch, np.nan)
    for i, space in enumerate(spaces):
        if space is not None:
            longest = space.longest_step(batch[i].x, (batch[i].inequality, batch[i].bound), directions[i])
            longest = 0.3 * min(1.0, longest)
            steps[i] = longest if longest > _SHORTEST else np.nan
    moves = np.nan_to_num(steps)[:, None] * directions
    over, under = (_regrets_and_gradients(case, problem, case.cost + sign * moves)[0] for sign in (1.0, -1.0))
    return directions, steps, (over - under) / (2 * steps)


def _wrong_slope(g: Array, steps: tuple[Array, Array, Array], i: int, rounding: float) -> str:
    """Why the gradient contradicts the central difference of the loss, whose values may be off by ``rounding``."""
    direction, step, found = (part[i] for part in steps)
    if np.isnan(found):
        return ""
    slope, steepest = float(g @ direction), float(np.abs(g) @ np.abs(direction))
    if abs(found - slope) <= judging.SLOPE * steepest + rounding / step:
        return ""
    return f"the loss changes by {found:.6e} per unit, the gradient says {slope:.6e}"

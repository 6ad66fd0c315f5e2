"""Long training through degenerate points, in which memory, the times of steps and the answers are watched."""

from __future__ import annotations

import gc
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from pear.decisions import solve
from pear.losses import PEARLoss
from pear.losses.last_call import LastCall
from pear.optimality.status import Status
from pear.problem import Problem
from pear.tasks import shortest_path
from pear.train import FitConfig, fit
from pear_lab.benchmarks.process_memory import resident_process_memory
from pear_lab.benchmarks.random_programs import Fields, Rng
from pear_lab.judge.judge_answer import (
    Answer,
    answer_tangent,
    judge_answer,
    judge_answer_gradient,
    judge_answer_in_batch,
)
from pear_lab.judge.judged_program import DIMENSIONS
from pear_lab.stress.recipes import Recipe
from pear_lab.stress.stress_case import StressCase

GROWTH = 0.01
"""The share by which resident memory may grow after the first tenth of the steps."""
SLOWDOWN = 1.25
"""The factor by which steps may take longer in the last tenth of the steps than in the first.

The time of a tenth is the 10 % quantile of the processor times of its steps, divided by the same quantile of plain
torch steps between them. The division cancels the effect of other processes on the machine.
"""

_SAMPLES, _BATCH, _FEATURES = 64, 16, 3
_SMOOTHING = 0.25
_TIE, _ANEW = 10, 100  # after every 10 steps costs tie exactly, after every 100 training begins anew
_JUDGED = 100  # a sample is judged after every 100 steps


@dataclass(frozen=True)
class SoakProblem:
    """A problem of the long training.

    Attributes:
        name: the name of the problem.
        draw: function that draws the arguments of ``pear.Problem``.
        sense: "min" or "max".
        solver: the solver of the loss.
        keyed: whether samples have keys, so that the loss keeps warm starts.
        epochs: whether ``pear.fit`` trains in compiled epochs; otherwise training goes step by step.
    """

    name: str
    draw: Callable[[Rng], Fields]
    sense: str = "min"
    solver: str = "auto"
    keyed: bool = True
    epochs: bool = False


@dataclass
class SoakResult:
    """The measurements and verdicts of one training.

    Attributes:
        structure: the name of the problem.
        steps: the number of steps.
        statuses: the number of samples with each status, over all recorded batches.
        early, late: resident memory in bytes after the first tenth of the steps, and at the end.
        first, last: the 10 % quantile of the seconds of a step, over the first and over the last tenth of the steps.
        plain: the same two quantiles for the plain torch steps between these steps.
        judged: the number of judged answers.
        gradients: the number of judged gradients.
        wrong: the reasons of the wrong answers.
    """

    structure: str
    steps: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    early: int = 0
    late: int = 0
    first: float = 0.0
    last: float = 0.0
    plain: tuple[float, float] = (1.0, 1.0)
    judged: int = 0
    gradients: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """The relative growth of resident memory."""
        return self.late / self.early - 1.0

    @property
    def slowdown(self) -> float:
        """The time of a step at the end divided by that at the beginning, both relative to plain steps of torch."""
        return self.last / self.first * self.plain[0] / self.plain[1]

    def missed(self) -> list[str]:
        """Return a sentence on each failure: wrong or inaccurate answers, too much growth or slowdown, none solved."""
        found = [f"{self.structure}: {why}" for why in self.wrong]
        if self.growth > GROWTH:
            found.append(f"{self.structure}: memory grew by {self.growth:.1%} (goal {GROWTH:.0%})")
        if self.slowdown > SLOWDOWN:
            found.append(f"{self.structure}: a step takes {self.slowdown:.2f} times as long (goal {SLOWDOWN})")
        if not self.statuses["SOLVED"] or self.statuses["INACCURATE"]:
            found.append(f"{self.structure}: {self.statuses['INACCURATE']} samples are inaccurate")
        return found


def _soak_paths(rng: Rng) -> Fields:
    """Return shortest paths through a grid. Nothing is drawn."""
    problem = shortest_path((5, 5)).problem
    return {name: getattr(problem, name).numpy() for name in ("A", "b", "lb")}


def _soak_assignments(rng: Rng) -> Fields:
    """Return assignments with degenerate vertices, a redundant equality and a repeated one. Nothing is drawn."""
    side = np.arange(16) // 4, np.arange(16) % 4
    A = np.array([group == k for group in side for k in range(4)], float)
    return {"A": np.vstack([A, A[:1]]), "b": np.ones(9), "lb": np.zeros(16)}


def _soak_repeated_rows(rng: Rng) -> Fields:
    """Draw knapsacks whose rows occur three times, once in other units."""
    weights = rng.integers(1, 5, (3, 12)).astype(float)
    h = weights.sum(1) // 2
    return {
        "G": np.vstack([weights, weights, 8 * weights]),
        "h": np.r_[h, h, 8 * h],
        "lb": np.zeros(12),
        "ub": np.ones(12),
    }


def _soak_vertices(rng: Rng) -> Fields:
    """Draw a polytope of small integers, in which many rows meet in one vertex."""
    return Recipe("degenerate", n=8, equalities=2, rows=6).draw_polytope(rng, whole=True)


def _soak_low_rank(rng: Rng) -> Fields:
    """Draw a simplex with upper bounds and a curvature of low rank."""
    L = rng.integers(-1, 2, (10, 3)).astype(float)
    return {"Q": L @ L.T, "A": np.ones((1, 10)), "b": np.ones(1), "lb": np.zeros(10), "ub": np.full(10, 0.5)}


def _soak_infeasible(rng: Rng) -> Fields:
    """Draw rows, and right-hand sides for every sample. An eighth of the samples is infeasible."""
    G = rng.integers(0, 3, (4, 8)).astype(float)
    h = rng.integers(4, 9, (_SAMPLES, 4)).astype(float)
    least = np.where(np.arange(_SAMPLES) % 8 == 0, -9.0, 0.0)
    return {"G": np.vstack([G, -np.ones((1, 8))]), "h": np.c_[h, least], "lb": np.zeros(8), "ub": np.ones(8)}


STRUCTURES = (
    SoakProblem("paths", _soak_paths),
    SoakProblem("paths, in compiled epochs", _soak_paths, epochs=True),
    SoakProblem("assignments", _soak_assignments),
    SoakProblem("assignments without ids", _soak_assignments, keyed=False),
    SoakProblem("assignments, interior point", _soak_assignments, solver="interior-point"),
    SoakProblem("repeated rows", _soak_repeated_rows, sense="max"),
    SoakProblem("many rows through a vertex", _soak_vertices),
    SoakProblem("curvature of low rank", _soak_low_rank),
    SoakProblem("some samples infeasible", _soak_infeasible, sense="max"),
)


def soak_all(
    steps: int, seed: int = 0, show: Callable[[str, int], None] = lambda name, steps: None
) -> list[SoakResult]:
    """Train on every problem of ``STRUCTURES``, one after the other, and return a result for each.

    Args:
        steps: the number of steps of all trainings together; each has at least 40.
        seed: the seed of all random numbers.
        show: function that is called with the name of the problem and the number of steps since its last call.
    """
    each = max(40, -(-steps // len(STRUCTURES)))
    return [soak(one, each, seed, lambda done, name=one.name: show(name, done)) for one in STRUCTURES]  # type: ignore


def soak(
    structure: SoakProblem, steps: int, seed: int = 0, show: Callable[[int], None] = lambda steps: None
) -> SoakResult:
    """Train on one problem, watch memory, times and answers, and return what was found.

    Args:
        structure: the problem.
        steps: the number of steps, at least 40.
        seed: the seed of all random numbers.
        show: function that is called with the number of steps since its last call.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samples may fail
        training = SoakTraining(structure, steps, seed, show)
        training.by_epochs() if structure.epochs else training.by_steps()
    return training.found


class SoakTraining:
    """A training with the measurements and verdicts so far. It takes the arguments of ``soak``."""

    def __init__(self, structure: SoakProblem, steps: int, seed: int, show: Callable[[int], None]) -> None:
        self.structure, self.steps, self.show = structure, steps, show
        self.rng = np.random.default_rng(seed)
        self.fields: Fields = structure.draw(self.rng)
        problem = Problem(**self.fields, sense=structure.sense)
        self.loss = PEARLoss(problem, _SMOOTHING, 0.0, 0.0, structure.solver, "mask")
        n = problem.n
        self.model = nn.Linear(_FEATURES, n, bias=False).double()
        self.X = torch.from_numpy(self.rng.integers(-1, 2, (_SAMPLES, _FEATURES)).astype(float))
        self.C = torch.from_numpy(self.rng.integers(-2, 3, (_SAMPLES, n)).astype(float))
        self.found, self.seconds, self.plain = SoakResult(structure.name), list[float](), list[float]()
        other = nn.Linear(_FEATURES, n, bias=False).double()
        self.other, self.optimizer = other, torch.optim.SGD(other.parameters(), 1e-3, momentum=0.9)
        self._tie_costs(anew=True)
        self.began = time.process_time()

    def by_steps(self) -> None:
        """Train step by step."""
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        while self.found.steps < self.steps:
            for rows in torch.from_numpy(self.rng.permutation(_SAMPLES)).split(_BATCH):
                optimizer.zero_grad()
                keys = rows if self.structure.keyed else None
                self.loss(self.model(self.X[rows]), self.C[rows], keys=keys).backward()
                optimizer.step()
                self.loss.step()
                self._record_steps(1)

    def by_epochs(self) -> None:
        """Train with ``pear.fit``, and record the last batch of each epoch."""
        steps = _SAMPLES // _BATCH
        epochs = -(-self.steps // steps)
        config = FitConfig(batch_size=_BATCH, max_epochs=epochs, check_every=100, patience=epochs, start="given")
        data = self.X, self.C
        fit(self.model, self.loss, data, data, config=config, progress=lambda now: self._record_steps(steps))

    def _record_steps(self, steps: int) -> None:
        """Record the last ``steps`` steps. At regular intervals, judge a sample, make costs tie and read the memory."""
        now, found, last = time.process_time(), self.found, self.loss.last
        assert last is not None
        before, found.steps = found.steps, found.steps + steps
        self.seconds.append((now - self.began) / steps)
        found.statuses.update(Status(code).name for code in last.status.tolist())
        if before // _JUDGED != found.steps // _JUDGED:
            self._judge(last)
            self.show(_JUDGED)
        if before // _TIE != found.steps // _TIE:
            self._tie_costs(anew=before // _ANEW != found.steps // _ANEW)
        if before < self.steps // 10 <= found.steps:
            gc.collect()
            found.early = resident_process_memory()
        if before < self.steps <= found.steps:
            gc.collect()
            found.late, tenth = resident_process_memory(), len(self.seconds) // 10
            found.first, found.last, *plain = (
                float(np.quantile(part, 0.1))
                for part in (self.seconds[:tenth], self.seconds[-tenth:], self.plain[:tenth], self.plain[-tenth:])
            )
            found.plain = plain[0], plain[1]
        self._plain_step()
        self.began = time.process_time()

    def _plain_step(self) -> None:
        """Take and time a step on the squared error, which measures the present speed of the machine."""
        began = time.process_time()
        self.optimizer.zero_grad()
        (self.other(self.X[:_BATCH]) - self.C[:_BATCH]).square().mean().backward()
        self.optimizer.step()
        self.plain.append(time.process_time() - began)

    def _tie_costs(self, anew: bool) -> None:
        """Round the weights to multiples of 1/4 or, if ``anew``, draw such multiples, so that costs tie exactly."""
        with torch.no_grad():
            weight = self.model.weight
            drawn = torch.from_numpy(self.rng.integers(-8, 9, tuple(weight.shape)).astype(float))
            weight.copy_((drawn if anew else (4 * weight).round()) / 4)

    def _judge(self, last: LastCall) -> None:
        """Judge one sample of the last batch: its status, its decision and, if the derivative exists, its gradient."""
        call, i, found = last._call, int(self.rng.integers(len(last.regret))), self.found
        cost, true = (part[i : i + 1].numpy() for part in (call.predicted, call.true))
        own = {k: v[[call.keys[i]]] if v.ndim > DIMENSIONS[k] else v for k, v in self.fields.items()}  # type: ignore
        case = StressCase("soak", cost, true, own, smoothing=_SMOOTHING, sense=self.structure.sense)
        problem, program = Problem(**case.problem_fields()), case.programs()[0]
        answer = case.answers(solve(problem, case.cost, _SMOOTHING, "auto", "mask"))[0]
        verdict = judge_answer(program, answer)
        why = verdict.reason if verdict.kind in ("wrong", "inaccurate") else ""
        mine = Answer(Status(int(last.status[i])).name, last.decision[i].numpy(), float("nan"))
        why = why or judge_answer_in_batch(program, mine, answer, verdict)
        space = answer_tangent(program, verdict)
        found.judged += 1
        if space is not None and mine.status == "SOLVED":
            found.gradients += 1
            why = why or judge_answer_gradient(space, last._parts.exact[i].numpy(), cost[0] - true[0])
        if why:
            found.wrong.append(f"step {found.steps}: {why}")

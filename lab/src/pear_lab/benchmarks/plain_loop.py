"""The paper's training as a careful user writes it without this library: a plain loop, one sample at a time.

This is a baseline for timing, not a part of the library. OSQP solves each sample to a tolerance of 1e-4; it is set up
once, and only its cost is updated. The active set follows from complementarity. NumPy computes the projection with a
Schur complement and a ridge of 1e-8, and adds the injection. A shuffling ``DataLoader``, a linear layer and Adam
complete the loop. Random numbers are drawn in the same order as in the protocol.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pear.optional_packages import import_optional
from pear.problem import Problem
from pear.tasks import Split
from pear_lab.judge.judged_program import Array, Mask, judged_fields, judged_programs

TOLERANCE, RIDGE = 1e-4, 1e-8
Metric = Callable[[Tensor, Tensor], float]


@dataclass
class PlainHistory:
    """Epochs, times and checks of a run.

    Attributes:
        epochs: number of trained epochs.
        seconds: total time.
        split: seconds spent on solving ("solve"), projecting ("project"), network, optimizer and loader ("network"),
            checks ("validation") and the "rest".
        checks: epoch and metric of each look at the validation samples.
    """

    epochs: int = 0
    seconds: float = 0.0
    split: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("solve", "project", "network", "validation", "rest"), 0.0)
    )
    checks: list[tuple[int, float]] = field(default_factory=list)

    @property
    def epoch_seconds(self) -> float:
        """Seconds an epoch without the checks."""
        return (self.seconds - self.split["validation"]) / max(self.epochs, 1)


class PlainProgram:
    """One smoothed linear program, ``min ½ λ zᵀz + cᵀz`` on the problem's rows, solved for one cost after the other.

    Args:
        problem: rows and bounds shared by all samples, no curvature of its own; an integer problem is relaxed.
        smoothing: λ > 0.
    """

    def __init__(self, problem: Problem, smoothing: float) -> None:
        osqp = import_optional("osqp", "osqp", "the plain loop")
        self.sign, self.smoothing, self.n = problem.sign, smoothing, problem.n
        self.J, self.lower, self.upper = _stack_rows(problem)
        self.equal = self.lower == self.upper
        self.solver = osqp.OSQP()
        objective = {"P": sp.csc_matrix(smoothing * np.eye(self.n)), "q": np.zeros(self.n)}
        rows = {"A": sp.csc_matrix(self.J), "l": self.lower, "u": self.upper}
        self.solver.setup(**objective, **rows, eps_abs=TOLERANCE, eps_rel=TOLERANCE, verbose=False)

    def active_set(self, cost: Array) -> Mask:
        """(m,) the rows that OSQP's answer for ``cost`` (n,) holds tight, by complementarity; equalities always."""
        self.solver.update(q=self.sign * cost)
        result = self.solver.solve(raise_error=False)
        r, y = self.J @ result.x, result.y
        return np.asarray(self.equal | (r - self.lower < -y) | (self.upper - r < y))

    def project(self, error: Array, active: Mask, injection: float) -> Array:
        """(n,) g = H⁻¹e − H⁻¹Jᵀ(JH⁻¹Jᵀ + 1e-8 I)⁻¹JH⁻¹e with H = λI, and β (‖g‖/‖n‖) n on top."""
        J, scaled = self.J[active], error / self.smoothing
        schur = J @ J.T / self.smoothing + RIDGE * np.eye(len(J))
        g = scaled - J.T @ np.linalg.solve(schur, J @ scaled) / self.smoothing
        normal = scaled - g
        size = np.linalg.norm(normal)
        return np.asarray(g + injection * np.linalg.norm(g) / size * normal if size > 0 else g)

    def gradient(self, predicted: Array, true: Array, injection: float, spent: dict[str, float]) -> Array:
        """(B, n) gradients, one sample after the other; the seconds are added to ``spent``."""
        gradients = np.empty_like(predicted)
        for i in range(len(predicted)):
            began = time.perf_counter()
            active = self.active_set(predicted[i])
            solved = time.perf_counter()
            gradients[i] = self.project(self.sign * (predicted[i] - true[i]), active, injection)
            spent["solve"] += solved - began
            spent["project"] += time.perf_counter() - solved
        return self.sign * gradients


def _stack_rows(problem: Problem) -> tuple[Array, Array, Array]:
    """All rows and bounds as l ≤ Jz ≤ u."""
    (p,) = judged_programs(judged_fields(problem), np.zeros((1, problem.n)))
    lower = np.concatenate([p.b, np.full(len(p.h), -np.inf), p.lb])
    return np.vstack([p.A, p.G, np.eye(problem.n)]), lower, np.concatenate([p.b, p.h, p.ub])


def train_plain_loop(
    problem: Problem,
    split: Split,
    metric: Metric,
    seed: int,
    max_epochs: int,
    smoothing: float = 0.1,
    injection: float = 0.1,
    time_cap: float = 600.0,
    progress: Callable[[int], None] = lambda epoch: None,
) -> tuple[nn.Linear, PlainHistory]:
    """Train under the paper's protocol, drawing from torch's global generator, which is left as it was.

    Args:
        problem: the problem that is decided.
        split: training, validation and test samples, features and costs in float32.
        metric: the score of the validation samples, computed after the first epoch, every tenth, and the last.
        seed: the seed of the first weights and of the order of the samples.
        max_epochs: the most epochs. Training ends earlier where three scores in a row improve by at most 1 %.
        smoothing: λ.
        injection: β.
        time_cap: seconds after which training ends.
        progress: called after every epoch.

    Returns:
        The model with its best weights, and the time spent on each part.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Linear(split.train.features.shape[1], problem.n)
        loop = _Loop(model, PlainProgram(problem, smoothing), split, metric, injection)
        loop.run(max_epochs, time_cap, progress)
        return model, loop.history


class _Loop:
    """The training loop; the seconds go to ``history.split``."""

    def __init__(self, model: nn.Linear, program: PlainProgram, split: Split, metric: Metric, injection: float) -> None:
        self.model, self.program, self.metric, self.injection = model, program, metric, injection
        self.train = DataLoader(TensorDataset(*split.train), batch_size=32, shuffle=True)
        self.validation = DataLoader(TensorDataset(*split.validation), batch_size=32, shuffle=False)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        self.history = PlainHistory()

    def run(self, max_epochs: int, time_cap: float, progress: Callable[[int], None]) -> None:
        """Train by the paper's protocol: a check every 10 epochs, patience 3, the best weights kept."""
        history, start = self.history, time.perf_counter()
        best, reference, waited = copy.deepcopy(self.model.state_dict()), float("inf"), 0
        for epoch in range(1, max_epochs + 1):
            self.epoch()
            history.epochs = epoch
            progress(epoch)
            over_time_cap = time.perf_counter() - start >= time_cap
            if (epoch - 1) % 10 == 0 or epoch == max_epochs or over_time_cap:
                value = self.check()
                if not history.checks or value < min(old for _, old in history.checks):
                    best = copy.deepcopy(self.model.state_dict())
                history.checks.append((epoch, value))
                waited = 0 if reference == float("inf") or reference - value > 0.01 * abs(reference) else waited + 1
                reference = value if waited == 0 else reference
            if waited >= 3 or over_time_cap:
                break
        self.model.load_state_dict(best)
        history.seconds = time.perf_counter() - start
        history.split["rest"] = max(0.0, history.seconds - sum(history.split.values()))

    def epoch(self) -> None:
        """Train for one epoch, and add the time of its parts to the history."""
        spent, mark = self.history.split, time.perf_counter()
        for features, costs in self.train:
            self.optimizer.zero_grad()
            predicted = self.model(features)
            forecast, true = predicted.detach().double().numpy(), costs.double().numpy()
            spent["network"] += time.perf_counter() - mark
            gradient = self.program.gradient(forecast, true, self.injection, spent) / len(features)
            mark = time.perf_counter()
            predicted.backward(torch.from_numpy(gradient).to(predicted.dtype))
            self.optimizer.step()
        spent["network"] += time.perf_counter() - mark

    def check(self) -> float:
        """Return the metric on the validation samples."""
        began = time.perf_counter()
        with torch.no_grad():
            pairs = [(self.model(features), costs) for features, costs in self.validation]
        predicted, costs = (torch.cat(part) for part in zip(*pairs, strict=True))
        value = self.metric(predicted, costs)
        self.history.split["validation"] += time.perf_counter() - began
        return value

"""The paper's training as a careful user writes it without PEAR: a plain loop over single samples, as a baseline.

OSQP solves each sample to a tolerance of 1e-4. It is set up once, and then only its cost is updated. The active set
follows from complementarity. NumPy projects the prediction error with a Schur complement and a ridge of 1e-8. A
shuffling ``DataLoader``, a linear layer and Adam complete the loop. Random numbers are drawn in the order of the
paper's protocol.
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
    """The epochs, times and checks of a training.

    Attributes:
        epochs: the number of trained epochs.
        seconds: the total time.
        split: the seconds spent on solving ("solve"), on projecting ("project"), on the network, its optimizer and the
            loader ("network"), on checks ("validation"), and on the "rest".
        checks: for each check on the validation samples its epoch and metric.
    """

    epochs: int = 0
    seconds: float = 0.0
    split: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("solve", "project", "network", "validation", "rest"), 0.0)
    )
    checks: list[tuple[int, float]] = field(default_factory=list)

    @property
    def epoch_seconds(self) -> float:
        """The seconds per epoch, without the checks."""
        return (self.seconds - self.split["validation"]) / max(self.epochs, 1)


class PlainProgram:
    """The smoothed linear program ``min ½ λ zᵀz + cᵀz`` with the constraints of a problem, for one cost c at a time.

    Args:
        problem: a linear problem whose rows and bounds all samples share. Integers are relaxed.
        smoothing: λ > 0.
    """

    def __init__(self, problem: Problem, smoothing: float) -> None:
        osqp = import_optional("osqp", "osqp", "the plain loop")
        self.sign, self.smoothing, self.n = problem.sign, smoothing, problem.n
        self.J, self.lower, self.upper = _stack_plain_rows(problem)
        self.equal = self.lower == self.upper
        self.solver = osqp.OSQP()
        objective = {"P": sp.csc_matrix(smoothing * np.eye(self.n)), "q": np.zeros(self.n)}
        rows = {"A": sp.csc_matrix(self.J), "l": self.lower, "u": self.upper}
        self.solver.setup(**objective, **rows, eps_abs=TOLERANCE, eps_rel=TOLERANCE, verbose=False)

    def active_set(self, cost: Array) -> Mask:
        """Solve for a cost (n,). Return the mask (m,) of active rows of J, the matrix of all rows and bounds."""
        self.solver.update(q=self.sign * cost)
        result = self.solver.solve(raise_error=False)
        r, y = self.J @ result.x, result.y
        return np.asarray(self.equal | (r - self.lower < -y) | (self.upper - r < y))

    def project(self, error: Array, active: Mask, injection: float) -> Array:
        """Project a prediction error onto the tangent space of the active rows.

        With H = λI and J the active rows, the projection is g = H⁻¹e − H⁻¹Jᵀ(JH⁻¹Jᵀ + 1e-8 I)⁻¹JH⁻¹e. The remaining
        part of the error is v = H⁻¹e − g.

        Args:
            error: (n,) the prediction error e.
            active: (m,) mask of the active rows, from ``active_set``.
            injection: β, the size of the part of v that is added, relative to g.

        Returns:
            g + β (‖g‖/‖v‖) v, (n,).
        """
        J, scaled = self.J[active], error / self.smoothing
        schur = J @ J.T / self.smoothing + RIDGE * np.eye(len(J))
        g = scaled - J.T @ np.linalg.solve(schur, J @ scaled) / self.smoothing
        normal = scaled - g
        size = np.linalg.norm(normal)
        return np.asarray(g + injection * np.linalg.norm(g) / size * normal if size > 0 else g)

    def gradient(self, predicted: Array, true: Array, injection: float, spent: dict[str, float]) -> Array:
        """Compute the regret's gradients (B, n) sample by sample, and add the seconds of the phases to ``spent``."""
        gradients = np.empty_like(predicted)
        for i in range(len(predicted)):
            began = time.perf_counter()
            active = self.active_set(predicted[i])
            solved = time.perf_counter()
            gradients[i] = self.project(self.sign * (predicted[i] - true[i]), active, injection)
            spent["solve"] += solved - began
            spent["project"] += time.perf_counter() - solved
        return self.sign * gradients


def _stack_plain_rows(problem: Problem) -> tuple[Array, Array, Array]:
    """Return all rows and bounds as J (m, n), l (m,) and u (m,): a feasible z has l ≤ Jz ≤ u."""
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
    """Train a linear model under the paper's protocol. The state of torch's global random generator does not change.

    Args:
        problem: the problem that is decided.
        split: the training, validation and test samples, features and costs in float32.
        metric: the score of predicted and true costs of the validation samples; lower is better. It is computed after
            the epochs 1, 11, 21, … and after the last one.
        seed: the seed of the first weights and of the order of the samples.
        max_epochs: the largest number of epochs. Training ends earlier if three scores in a row improve by at most 1 %.
        smoothing: λ.
        injection: β.
        time_cap: the seconds after which training ends.
        progress: called with the number of each epoch.

    Returns:
        The model with its best weights, and the history of the training.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Linear(split.train.features.shape[1], problem.n)
        loop = _PlainLoop(model, PlainProgram(problem, smoothing), split, metric, injection)
        loop.run(max_epochs, time_cap, progress)
        return model, loop.history


class _PlainLoop:
    """The training loop. It adds the seconds of its parts to ``history.split``."""

    def __init__(self, model: nn.Linear, program: PlainProgram, split: Split, metric: Metric, injection: float) -> None:
        self.model, self.program, self.metric, self.injection = model, program, metric, injection
        self.train = DataLoader(TensorDataset(*split.train), batch_size=32, shuffle=True)
        self.validation = DataLoader(TensorDataset(*split.validation), batch_size=32, shuffle=False)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        self.history = PlainHistory()

    def run(self, max_epochs: int, time_cap: float, progress: Callable[[int], None]) -> None:
        """Train by the paper's protocol, and restore the best weights."""
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
        """Train one epoch."""
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

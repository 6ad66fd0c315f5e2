"""Our side of the gradient benchmark: the steps that are timed, and how their time is spent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.losses import DecisionLayer, PEARLoss
from pear.problem import Problem
from pear.solvers.active_set import kernel_calls as batch
from pear.solvers.active_set.compiled_pass import CompiledPass
from pear.solvers.active_set.kernel_arrays import States
from pear.solvers.regret_call import RegretCall
from pear_lab.benchmarks.exact_gradients import ExactGradients, GradientBatch
from pear_lab.benchmarks.timing import Step, synchronize, timed_gradient, times_curvature

_UNTIL_REPLAYED = 3  # calls: one that runs step by step, one that captures, one that replays
LAYER, WARM, ONE_CORE = "pear layer", "pear warm", "pear layer, one CPU core"


class OurSteps:
    """Our rows at one point. Problems and losses are new in every measurement, so that there is no warm start.

    Args:
        instances: the programs.
        batch: how many of them.
        device: "cpu" or "cuda".

    Attributes:
        steps: function that prepares each measurement, by the name of the row: "pear" is ``PEARLoss``, "pear layer" is
            ``DecisionLayer`` and the true objective, "pear warm" is ``PEARLoss`` at a second visit of every sample.
    """

    def __init__(self, instances: GradientBatch, batch: int, device: str) -> None:
        self.instances, self.device = instances, device
        parts = (part[:batch] for part in (instances.cost, instances.true, instances.moved))
        self.cost, self.true, self.moved = (torch.from_numpy(part).to(device) for part in parts)
        self.fields, lam = instances.tensors(batch, device), instances.smoothing
        self.Q = torch.from_numpy(instances.curvature(batch)).to(device) if lam else self.fields["Q"]
        self.loss: PEARLoss | None = None
        self.steps: dict[str, Callable[[], Step]] = {"pear": self._pear, LAYER: self._layer}
        if instances.structure.warm:
            self.steps[WARM] = self._warm

    def answers(self, who: str) -> ExactGradients:
        """The exact gradients at the costs of the row."""
        moved = self.instances.moved_answers
        return moved if who == WARM and moved is not None else self.instances.answers

    def reuse_rate(self, who: str) -> float | None:
        """Reuse rate of the last measurement; None for rows without warm starts."""
        last = None if self.loss is None else self.loss.last
        return last.reuse_rate if who == WARM and last is not None else None

    def profile(self, who: str) -> dict[str, float]:
        """Measure once more, and return the seconds by phase: those the loss counts, the others, and the set-up.

        Empty for a row without a loss.
        """
        wait, self.loss = synchronize(self.device), None
        began = time.perf_counter()
        step = self.steps[who]()
        wait()
        before = time.perf_counter() - began
        return {**_profile_step(self.loss, step, wait), "set-up, not timed": before} if self.loss is not None else {}

    def _make_loss(self) -> PEARLoss:
        lam = self.instances.smoothing
        loss = PEARLoss(Problem(**self.fields), smoothing=lam, injection=0.0, guidance=0.0, reduction="sum")
        self._prepare(lambda cost: loss(cost, self.true))
        self.loss = loss
        return loss

    def _prepare(self, value: Callable[[Tensor], Tensor]) -> None:
        """Do the one-time work of a problem before the clock starts.

        This prepares what depends on the problem alone, where all samples share one. On a GPU it also captures the CUDA
        graph that a training replays in every step, as the compilation of a peer's code is not timed either.
        """
        for _ in range(_UNTIL_REPLAYED if self.device == "cuda" else int(self.instances.is_shared)):
            _backward_pass(self.moved, value)

    def _pear(self) -> Step:
        loss = self._make_loss()
        return lambda: _backward_pass(self.cost, lambda cost: loss(cost, self.true))

    def _warm(self) -> Step:
        loss, keys = self._make_loss(), torch.arange(len(self.cost))
        _backward_pass(self.cost, lambda cost: loss(cost, self.true, keys=keys))
        return lambda: _backward_pass(self.moved, lambda cost: loss(cost, self.true, keys=keys))

    def _layer(self) -> Step:
        """Return a step that differentiates the true objective through ``DecisionLayer``."""
        layer = DecisionLayer(Problem(**self.fields), smoothing=self.instances.smoothing)

        def true_objective(cost: Tensor) -> Tensor:
            z = layer(cost)
            return 0.5 * (z * times_curvature(self.Q, z)).sum() + (self.true * z).sum()

        self._prepare(true_objective)
        return lambda: _backward_pass(self.cost, true_objective)


def _profile_step(loss: PEARLoss, step: Step, wait: Callable[[], None]) -> dict[str, float]:
    """Time the parts of one step: those that the loss counts, the phases of its kernel, and the rest."""
    start, before = time.perf_counter(), dict(loss.seconds)
    step()
    wait()
    total = time.perf_counter() - start
    parts = {name: value - before.get(name, 0.0) for name, value in loss.seconds.items()}
    rest = max(0.0, total - sum(parts.values()))
    if isinstance(loss.decider.fused, CompiledPass) and loss.last is not None:
        for name, seconds in _time_phases(loss.decider.fused, loss.last._call).items():
            parts[name] = min(seconds, parts["solve"])
            parts["solve"] -= parts[name]
    return {**parts, "rest": rest}


def _time_phases(compiled: CompiledPass, call: RegretCall) -> dict[str, float]:
    """Seconds that a compiled pass takes to verify a batch at its solution, and to project there."""
    prepared = compiled.programs.prepare(
        call.predicted, call.smoothing, call.keys, {} if call.Q is None else {"Q": call.Q}
    )
    if prepared is None:
        return {}
    P, default, at = prepared
    kept, slots = compiled.store.states(call.keys, len(call.predicted))
    states, rows = States._make(part[slots] for part in kept), np.arange(len(slots))
    cost = np.ascontiguousarray(call.predicted.double().numpy())
    batch.call_kernel_to_solve(P, cost, at, states, rows, default)  # to the solution, where there is no warm start
    began = time.perf_counter()
    batch.call_kernel_to_solve(P, cost, at, states, rows, default)
    verified = time.perf_counter()
    batch.call_kernel_to_project(P, cost, at, states, rows)
    return {"verify": verified - began, "project": time.perf_counter() - verified}


def _backward_pass(cost: Tensor, value: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    return {"gradient": timed_gradient(cost, value).cpu().numpy()}

"""``OurSteps``: the steps of PEAR that the gradient benchmark times, and the seconds of their phases."""

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
from pear_lab.benchmarks.exact_gradients import ExactGradients
from pear_lab.benchmarks.gradient_batch import GradientBatch
from pear_lab.benchmarks.timing import timed_gradient
from pear_lab.peers.workers.worker import Step, times_curvature, wait_for_worker_device

_UNTIL_REPLAYED = 3  # calls of a CUDA graph: one without it, one that captures it, and one that replays it
LAYER, WARM, ONE_CORE = "pear layer", "pear warm", "pear layer, one CPU core"


class OurSteps:
    """The steps of PEAR on one batch. Every measurement makes a new problem, and a new loss or layer.

    Args:
        programs: the programs.
        batch: the number of samples.
        device: "cpu" or "cuda".

    Attributes:
        steps: for each step by name, a function that prepares a measurement and returns the step to time. "pear" is
            ``PEARLoss`` without warm starts. "pear layer" is the true objective of the decisions of ``DecisionLayer``,
            without warm starts, too. "pear warm" is ``PEARLoss`` at the second visit of every sample, with warm starts.
    """

    def __init__(self, programs: GradientBatch, batch: int, device: str) -> None:
        self.programs, self.device = programs, device
        parts = (part[:batch] for part in (programs.cost, programs.true, programs.moved))
        self.cost, self.true, self.moved = (torch.from_numpy(part).to(device) for part in parts)
        self.fields, lam = programs.tensors(batch, device), programs.smoothing
        self.Q = torch.from_numpy(programs.curvature(batch)).to(device) if lam else self.fields["Q"]
        self.loss: PEARLoss | None = None
        self.steps: dict[str, Callable[[], Step]] = {"pear": self._pear, LAYER: self._layer}
        if programs.structure.warm:
            self.steps[WARM] = self._warm

    def answers(self, who: str) -> ExactGradients:
        """Return the exact gradients to which the gradients of the step ``who`` are compared."""
        moved = self.programs.moved_answers
        return moved if who == WARM and moved is not None else self.programs.answers

    def reuse_rate(self, who: str) -> float | None:
        """Return the share of samples that needed no solver in the last step; None unless ``who`` is "pear warm"."""
        last = None if self.loss is None else self.loss.last
        return last.reuse_rate if who == WARM and last is not None else None

    def profile(self, who: str) -> dict[str, float]:
        """Measure the step ``who`` once more, and return the seconds of its phases by name.

        The phases are those of ``PEARLoss.seconds``, two of the compiled kernel ("verify" and "project") if it solves,
        the rest of the step, and the set-up. The result is empty for "pear layer", which has no loss.
        """
        wait, self.loss = wait_for_worker_device(self.device), None
        began = time.perf_counter()
        step = self.steps[who]()
        wait()
        before = time.perf_counter() - began
        return (
            {**_profile_our_step(self.loss, step, wait), "set-up, not timed": before} if self.loss is not None else {}
        )

    def _make_loss(self) -> PEARLoss:
        """Make a new loss, ready to be timed."""
        lam = self.programs.smoothing
        loss = PEARLoss(Problem(**self.fields), smoothing=lam, injection=0.0, guidance=0.0, reduction="sum")
        self._prepare(lambda cost: loss(cost, self.true))
        self.loss = loss
        return loss

    def _prepare(self, value: Callable[[Tensor], Tensor]) -> None:
        """Do the one-time work of a problem before the clock starts.

        If all samples share a problem, everything that depends on the problem alone is prepared. On a GPU, the CUDA
        graph that a training replays in every step is captured. Other libraries compile before the clock starts, too.

        Args:
            value: the function whose gradient is timed.
        """
        for _ in range(_UNTIL_REPLAYED if self.device == "cuda" else int(self.programs.is_shared)):
            _our_step_gradient(self.moved, value)

    def _pear(self) -> Step:
        """Make a new loss, and return the function that computes its gradient."""
        loss = self._make_loss()
        return lambda: _our_step_gradient(self.cost, lambda cost: loss(cost, self.true))

    def _warm(self) -> Step:
        """Let a new loss solve all samples. Return the function that computes its gradient at slightly other costs."""
        loss, keys = self._make_loss(), torch.arange(len(self.cost))
        _our_step_gradient(self.cost, lambda cost: loss(cost, self.true, keys=keys))
        return lambda: _our_step_gradient(self.moved, lambda cost: loss(cost, self.true, keys=keys))

    def _layer(self) -> Step:
        """Return the function that computes the gradient of the true objective through a new ``DecisionLayer``."""
        layer = DecisionLayer(Problem(**self.fields), smoothing=self.programs.smoothing)

        def true_objective(cost: Tensor) -> Tensor:
            z = layer(cost)
            return 0.5 * (z * times_curvature(self.Q, z)).sum() + (self.true * z).sum()

        self._prepare(true_objective)
        return lambda: _our_step_gradient(self.cost, true_objective)


def _profile_our_step(loss: PEARLoss, step: Step, wait: Callable[[], None]) -> dict[str, float]:
    """Return the seconds of a step's phases: those of ``loss.seconds``, those of the compiled kernel, and the rest."""
    start, before = time.perf_counter(), dict(loss.seconds)
    step()
    wait()
    total = time.perf_counter() - start
    parts = {name: value - before.get(name, 0.0) for name, value in loss.seconds.items()}
    rest = max(0.0, total - sum(parts.values()))
    if isinstance(loss.decider.fused, CompiledPass) and loss.last is not None:
        for name, seconds in _time_our_phases(loss.decider.fused, loss.last._call).items():
            parts[name] = min(seconds, parts["solve"])
            parts["solve"] -= parts[name]
    return {**parts, "rest": rest}


def _time_our_phases(compiled: CompiledPass, call: RegretCall) -> dict[str, float]:
    """Return the seconds of two phases of the compiled kernel on a batch, by name.

    "verify" is the verification of the solutions, and "project" the projection of the prediction errors at the
    solutions. The result is empty if the kernel does not support the programs.
    """
    prepared = compiled.programs.prepare(
        call.predicted, call.smoothing, call.keys, {} if call.Q is None else {"Q": call.Q}
    )
    if prepared is None:
        return {}
    P, default, at = prepared
    kept, slots = compiled.store.states(call.keys, len(call.predicted))
    states, rows = States._make(part[slots] for part in kept), np.arange(len(slots))
    cost = np.ascontiguousarray(call.predicted.double().numpy())
    batch.call_kernel_to_solve(P, cost, at, states, rows, default)  # to the solution, if there is no warm start
    began = time.perf_counter()
    batch.call_kernel_to_solve(P, cost, at, states, rows, default)
    verified = time.perf_counter()
    batch.call_kernel_to_project(P, cost, at, states, rows)
    return {"verify": verified - began, "project": time.perf_counter() - verified}


def _our_step_gradient(cost: Tensor, value: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Return the gradient of a function at costs, as an array under the key "gradient"."""
    return {"gradient": timed_gradient(cost, value).cpu().numpy()}

"""Epochs of a linear model under PEAR's loss in compiled code; everything else goes the usual way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.losses import PEARLoss
from pear.solvers.active_set import epoch as kernel
from pear.solvers.active_set.batch import Samples, new_results, work_for

_MOMENTS = ("exp_avg", "exp_avg_sq")
_PLAIN: dict[str, Any] = {"weight_decay": 0, "amsgrad": False, "maximize": False, "capturable": False}


class LinearEpochs:
    """Runs epochs of ``nn.Linear`` under ``PEARLoss`` and ``torch.optim.Adam``, in place, with the same arithmetic.

    The optimiser's state stays where it is, so that checkpoints, and steps of the usual loop in between, see no
    difference.

    Args:
        model, loss, optimizer: what is trained; ``open_to`` must have said yes.
        features: (N, p); costs: (N, n).
        batch_size: samples a step.
    """

    def __init__(
        self, model: nn.Linear, loss: PEARLoss, optimizer: Any, features: Tensor, costs: Tensor, batch_size: int
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.features, self.costs = features.contiguous().numpy(), costs.double().contiguous().numpy()
        n, rows = loss.problem.n, loss.remembered.rows
        size = min(batch_size, len(features))
        p = loss.remembered.equalities
        samples = Samples(*(np.zeros((size, n)) for _ in range(2)), *(np.zeros(size, np.int64) for _ in range(2)))
        self.room = kernel.Room(samples, new_results(size, n, p, rows - p))
        self.work = work_for(n, rows)

    @staticmethod
    def open_to(model: nn.Module, loss: Any, optimizer: Any, features: Tensor, costs: Tensor) -> bool:
        """True where nothing about the run is out of the ordinary."""
        if type(model) is not nn.Linear or type(loss) is not PEARLoss or type(optimizer) is not torch.optim.Adam:
            return False
        hooks = model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or loss._forward_hooks
        here = all(part.device.type == "cpu" and part.dim() == 2 for part in (features, costs))
        fits = here and features.shape[1] == model.in_features and costs.shape[1] == loss.problem.n
        group = optimizer.param_groups[0]
        mine = [id(q) for q in model.parameters() if q.requires_grad]
        plain = len(optimizer.param_groups) == 1 and [id(q) for q in group["params"]] == mine
        plain = plain and len(mine) == (1 if model.bias is None else 2) and isinstance(group["lr"], float)
        plain = plain and all(group.get(name) == value for name, value in _PLAIN.items()) and not group.get("fused")
        curved = loss.problem.Q is not None or not isinstance(loss.smoothing, float) or loss.smoothing <= 0
        mean = loss.reduction == "mean" and model.out_features == loss.problem.n
        return bool(plain and fits and mean and not (hooks or curved or loss.profile) and loss.remembered.usable)

    def run(self, order: Tensor, usual: Callable[[Tensor], Tensor], late: Callable[[], bool]) -> tuple[float, int]:
        """One pass over the samples in ``order``; returns the sum of the regrets and the samples it was taken over.

        Args:
            order: (N,) int64.
            usual: takes one step the usual way, for batches with a sample that the compiled one has to leave.
            late: whether to stop.
        """
        size, count = len(self.room.samples.at), len(order)
        indices, done, total, seen = order.numpy(), 0, 0.0, 0
        while done * size < count and not late():
            began = time.perf_counter()
            totals = np.zeros(2)
            reached = self._compiled(indices, done, totals)
            fresh = min(reached * size, count) - done * size
            self.loss.samples += fresh
            self.loss.reused += int(totals[1])
            self.loss.seconds["solve"] += time.perf_counter() - began
            total, seen, done = total + float(totals[0]), seen + fresh, reached
            if done * size < count:
                rows = order[done * size : (done + 1) * size]
                total, seen, done = total + float(usual(rows)) * len(rows), seen + len(rows), done + 1
        return total, seen

    def _compiled(self, order: Any, first: int, totals: Any) -> int:
        known = self.loss.remembered.all_samples(len(self.features), float(self.loss.smoothing))
        if known is None:
            return first
        P, slots, memory = known
        state = self._state()
        steps = int(state[0]["step"])
        group = self.optimizer.param_groups[0]
        decay, square_decay = group["betas"]
        adam = kernel.Adam(group["lr"], decay, square_decay, group["eps"], steps)
        own = self.loss.problem.batch is not None
        reached = kernel.linear_epoch(
            P, self.features, self.costs, order, slots, own, self.loss.injection, memory, self._model(state), adam,
            self.room, totals, self.work, first,
        )  # fmt: skip
        for part in state:
            part["step"].fill_(steps + reached - first)
        return int(reached)

    def _state(self) -> list[dict[str, Tensor]]:
        """Adam's state of weight and bias, made as Adam makes it where there has been no step yet."""
        parameters = [q for q in (self.model.weight, self.model.bias) if q is not None]
        for parameter in parameters:
            state = self.optimizer.state[parameter]
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return [self.optimizer.state[parameter] for parameter in parameters]

    def _model(self, state: list[dict[str, Tensor]]) -> kernel.Model:
        weight = self.model.weight.detach().numpy()
        n, kind = len(weight), weight.dtype
        bias = [] if self.model.bias is None else [self.model.bias.detach(), *(state[1][k] for k in _MOMENTS)]
        rows = [part.numpy()[None] for part in bias] or [np.zeros((0, n), kind)] * 3
        mean, square = (state[0][name].numpy() for name in _MOMENTS)
        slope = np.zeros_like(weight), np.zeros((2, n), kind)
        return kernel.Model(weight, rows[0], mean, square, rows[1], rows[2], *slope)

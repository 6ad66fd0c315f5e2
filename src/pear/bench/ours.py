"""Our side of the gradient benchmark: what is measured, and what it was spent on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pear.bench.clock import Step, gradient_at, synchronize
from pear.bench.evaluation import Answers, Markets
from pear.bench.families import long_only
from pear.losses import DecisionLayer, PEARLoss

WARM = "pear warm"


class Ours:
    """Our rows at one point. Problems and losses are made anew before every measurement: there is no warm start.

    Args:
        markets: the portfolios.
        batch: how many of them.
        device: "cpu" or "cuda".

    Attributes:
        steps: what to call before each measurement, by the name of the row: "pear" is ``PEARLoss``, "pear layer" is
            ``DecisionLayer`` and the true objective, "pear warm" is ``PEARLoss`` at a second visit of every sample.
    """

    def __init__(self, markets: Markets, batch: int, device: str) -> None:
        self.markets, self.device = markets, device
        parts = (markets.cost, markets.true, markets.moved, markets.Q)
        self.cost, self.true, self.moved, self.Q = (torch.from_numpy(part[:batch]).to(device) for part in parts)
        self.loss: PEARLoss | None = None
        self.steps: dict[str, Callable[[], Step]] = {"pear": self._pear, "pear layer": self._layer, WARM: self._warm}

    def answers(self, who: str) -> Answers:
        """The exact gradients at the costs of the row."""
        return self.markets.moved_answers if who == WARM else self.markets.answers

    def reuse_rate(self, who: str) -> float | None:
        """Of the last measurement; None for rows without warm starts."""
        last = None if self.loss is None else self.loss.last
        return last.reuse_rate if who == WARM and last is not None else None

    def profile(self, who: str) -> dict[str, float]:
        """Seconds of one more measurement by what they were spent on: what the loss counts, the rest, what came before.

        Nothing for a row without a loss.
        """
        wait, self.loss = synchronize(self.device), None
        began = time.perf_counter()
        step = self.steps[who]()
        wait()
        before = time.perf_counter() - began
        return {**_spent(loss, step, wait), "set-up, not timed": before} if (loss := self._profiled()) else {}

    def _profiled(self) -> PEARLoss | None:
        """The loss of the row, told to take its time apart."""
        if self.loss is not None:
            self.loss.profile = True
        return self.loss

    def _make_loss(self) -> PEARLoss:
        self.loss = PEARLoss(long_only(self.Q), smoothing=0.0, injection=0.0, guidance=0.0, reduction="sum")
        return self.loss

    def _pear(self) -> Step:
        loss = self._make_loss()
        return lambda: _backward(self.cost, lambda cost: loss(cost, self.true))

    def _warm(self) -> Step:
        loss, keys = self._make_loss(), torch.arange(len(self.cost))
        _backward(self.cost, lambda cost: loss(cost, self.true, keys=keys))
        return lambda: _backward(self.moved, lambda cost: loss(cost, self.true, keys=keys))

    def _layer(self) -> Step:
        layer = DecisionLayer(long_only(self.Q))

        def true_objective(cost: Tensor) -> Tensor:
            z = layer(cost)
            return 0.5 * (z * (self.Q @ z[:, :, None])[:, :, 0]).sum() + (self.true * z).sum()

        return lambda: _backward(self.cost, true_objective)


def _spent(loss: PEARLoss, step: Step, wait: Callable[[], None]) -> dict[str, float]:
    start, before = time.perf_counter(), dict(loss.seconds)
    step()
    wait()
    total = time.perf_counter() - start
    parts = {name: value - before.get(name, 0.0) for name, value in loss.seconds.items()}
    return {**parts, "rest": max(0.0, total - sum(parts.values()))}


def _backward(cost: Tensor, value: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    return {"gradient": gradient_at(cost, value).cpu().numpy()}

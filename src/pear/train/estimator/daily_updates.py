"""``DailyUpdates``: a trained model that learns from the samples of every day, and is judged before it learns."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.losses import PEARLoss
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear.losses.regret_outcome import regret_outcome_of_forecast
from pear.problem import Model, Problem
from pear.train.correction import Correction
from pear.train.optimizer import shrink_optimizer_eps
from pear.train.samples.features import Features, call_on_features
from pear.train.samples.sample_batch import SampleBatch
from pear.train.training_loss import loss_with_keys

logger = logging.getLogger("pear")

PACES = {"fit": 0.0, "slow": 0.1, "fast": 1.0}
"""Weights that go on from those of ``fit``, by name: their learning rate as a share of that of ``fit``."""

FIRST = "slow"
"""The weights that decide before there are samples to compare by."""

MEMORY = 128
"""The samples that are kept, the last ones; a step sees some of them beside the new ones."""

JUDGED = 60
"""The last samples by which weights are compared."""

_CAUTION = 2.0  # standard errors by which other weights must have lost less to take over
_FEWEST = 10  # samples before which weights are not compared
_GUIDANCE = 1.0  # the strength of guidance in every step, where the loss has guidance


class DailyUpdates:
    """Three copies of a network: one keeps the weights of ``fit``, two learn on, slowly and fast. The best decides.

    Every copy decides for a new sample before it learns from it, so that the comparison is fair. Steps are small while
    few samples are in memory: the learning rate of a copy is multiplied by the share of the memory that is filled.
    Another copy takes over where its decisions have lost less over the last samples, by more than two standard errors
    of the paired difference. That is more than in a race, because the question is asked every day.

    Args:
        network: the trained network, which gets the weights that decide.
        problem: the decision problem.
        loss: the loss that is minimised.
        learning_rate: that of ``fit``.
        scale: the deviation of the costs in ``fit``, by which the learning rate of the last layer is multiplied.

    Attributes:
        lost: what the decisions of every sample would have lost, by the name of the weights.
        deciding: the name of the weights that decide now: "fit", "slow" or "fast".
    """

    def __init__(
        self, network: nn.Module, problem: Problem | Model, loss: Any, learning_rate: float, scale: float
    ) -> None:
        self.network, self.problem, self.loss, self.deciding = network, problem, loss, FIRST
        self.networks = {name: copy.deepcopy(network).eval() for name in PACES}
        self.optimizers = {
            name: _make_update_optimizer(self.networks[name], share * learning_rate, scale)
            for name, share in PACES.items()
            if share
        }
        self.lost: dict[str, list[float]] = {name: [] for name in PACES}
        self.memory: SampleBatch | None = None

    def update(self, new: SampleBatch, batch_size: int, generator: torch.Generator) -> None:
        """Judge all copies by new samples, let them learn from these, and choose the copy that decides from now on.

        Args:
            new: N samples, as the network gets them.
            batch_size: samples in a step, new ones and ones of the memory.
            generator: the generator of the order of the new samples and of the choice from the memory.
        """
        self._judge(new)
        known = self.memory
        joint = new if known is None else _join_update_samples(known, new)
        self.memory = joint.only(torch.arange(len(joint.costs))[-MEMORY:])
        for rows in torch.randperm(len(new.costs), generator=generator).split(batch_size):
            batch = new.only(rows)
            if known is not None and len(rows) < batch_size:
                some = torch.randperm(len(known.costs), generator=generator)[: batch_size - len(rows)]
                batch = _join_update_samples(known.only(some), batch)
            for name, optimizer in self.optimizers.items():
                self._step(self.networks[name], optimizer, batch)
        self._choose()
        self.network.load_state_dict(self.networks[self.deciding].state_dict())

    @property
    def note(self) -> str:
        """A sentence on the weights that decide and what all of them lost on the last samples."""
        count = min(len(self.lost[FIRST]), JUDGED)
        if count < 2:
            return f"the {self.deciding} weights decide; there are no samples yet to compare them by"
        means = ", ".join(f"{name} {np.mean(lost[-JUDGED:]):.4g}" for name, lost in self.lost.items())
        note = f"the {self.deciding} weights decide; lost a sample over the last {count}: {means}"
        if self.deciding == "fit":
            return note
        found = self._difference(self.deciding, "fit")
        if not found.mean:
            return f"{note}; that is as much as by the weights of fit"
        much = f"{abs(found.mean):.2g} ± {found.standard_error:.2g} {'more' if found.mean > 0 else 'less'}"
        return f"{note}; that is {much} than by the weights of fit"

    def content(self) -> dict[str, Any]:
        """The state as numbers, names and tensors, for a model file; ``restore`` takes it back."""
        memory = self.memory
        return {
            "deciding": self.deciding,
            "lost": {name: lost[-JUDGED:] for name, lost in self.lost.items()},
            "memory": None if memory is None else {"features": memory.features, "costs": memory.costs},
            "weights": {name: dict(network.state_dict()) for name, network in self.networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
        }

    def restore(self, said: dict[str, Any]) -> None:
        """Take over the state that ``content`` has given.

        Raises:
            ValueError: it is not the state of such updates.
        """
        if said["deciding"] not in PACES or set(said["lost"]) != set(PACES):
            raise ValueError(f"the updates are those of {sorted(said['lost'])}, with {said['deciding']!r} deciding")
        self.deciding = said["deciding"]
        self.lost = {name: [float(value) for value in said["lost"][name]] for name in PACES}
        if said["memory"] is not None:
            self.memory = SampleBatch(said["memory"]["features"], said["memory"]["costs"], None)
        for name, network in self.networks.items():
            network.load_state_dict(said["weights"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(said["optimizers"][name])

    def _judge(self, new: SampleBatch) -> None:
        """Record what the decisions of new samples lose, before anything is learnt from them."""
        true = new.costs.double().cpu().numpy()
        for name, network in self.networks.items():
            with torch.no_grad():
                predicted = call_on_features(network, new.features).double().cpu().numpy()
            self.lost[name] += regret_outcome_of_forecast(self.problem, predicted, true).regret.tolist()

    def _step(self, network: nn.Module, optimizer: torch.optim.Adam, batch: SampleBatch) -> None:
        """Take one step of Adam, whose rate grows with the memory."""
        assert self.memory is not None
        for group in optimizer.param_groups:
            group["lr"] = group["full_rate"] * len(self.memory.costs) / MEMORY
        _limit_update_guidance(self.loss)
        optimizer.zero_grad()
        network.train()
        loss_with_keys(self.loss)(call_on_features(network, batch.features), batch.costs, keys=None).backward()
        network.eval()
        optimizer.step()

    def _choose(self) -> None:
        """Let other weights decide where they have clearly lost less."""
        if len(self.lost[FIRST]) < _FEWEST:
            return
        others = {name: self._difference(name, self.deciding) for name in PACES if name != self.deciding}
        name, found = min(others.items(), key=lambda item: item[1].mean)
        if found.mean + _CAUTION * found.standard_error < 0:
            self.deciding = name
            logger.log(logging.WARNING if name == "fit" else logging.INFO, self.note)

    def _difference(self, name: str, other: str) -> PairedDifference:
        """What decisions by some weights lost more than by others, over the last samples."""
        return paired_difference(self.lost[name][-JUDGED:], self.lost[other][-JUDGED:])


def daily_update_scale(costs: Tensor) -> float:
    """The mean absolute deviation of costs (N, k) from their columns' means; 1 where they are constant."""
    return float((costs - costs.mean(0)).abs().mean()) or 1.0


def _make_update_optimizer(network: nn.Module, rate: float, scale: float) -> torch.optim.Adam:
    """Make an Adam with the learning rate ``rate``, and ``rate`` times ``scale`` for the last linear layer.

    The outputs of that layer have the unit of the costs, and so have its steps. A correction of a base multiplies its
    outputs by a scale of its own, and needs no other rate.
    """
    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    own = list(layers[-1].parameters()) if layers and not isinstance(network, Correction) else []
    last = {id(parameter) for parameter in own}
    rest = [parameter for parameter in network.parameters() if id(parameter) not in last]
    groups: list[dict[str, Any]] = [{"params": rest, "lr": rate}, {"params": own, "lr": rate * scale}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]], lr=rate)
    for group in optimizer.param_groups:
        group["full_rate"] = group["lr"]
    shrink_optimizer_eps(optimizer, scale, next(network.parameters()).dtype)
    return optimizer


def _limit_update_guidance(loss: Any) -> None:
    """Keep the guidance of every ``PEARLoss`` inside a loss at a constant strength, where it has guidance."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss) and module.guidance > 0:
            module.guidance = min(module.guidance, _GUIDANCE)


def _join_update_samples(first: SampleBatch, second: SampleBatch) -> SampleBatch:
    """Samples after each other."""
    features: Features
    if isinstance(first.features, tuple) and isinstance(second.features, tuple):
        features = tuple(torch.cat(pair) for pair in zip(first.features, second.features, strict=True))
    else:
        features = torch.cat([first.features, second.features])  # type: ignore[list-item]
    return SampleBatch(features, torch.cat([first.costs, second.costs]), None)

"""``DailyUpdates``: trains a fitted model on new samples, such as those of a day, after it has decided for them."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.losses import PEARLoss
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear.losses.regret_outcome import regret_outcome_of_forecast
from pear.problem import Model, Problem
from pear.train.correction import Correction
from pear.train.optimizer import shrink_optimizer_eps
from pear.train.samples.features import call_on_features, join_features
from pear.train.samples.sample_batch import SampleBatch
from pear.train.training_loss import loss_with_keys

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor

logger = logging.getLogger("pear")

PACES = {"fit": 0.0, "slow": 0.1, "fast": 1.0}
"""The names of the copies of the network, and their learning rates as shares of the learning rate of ``fit``."""

FIRST = "slow"
"""The name of the copy that decides until the copies are compared for the first time."""

MEMORY = 128
"""The number of latest samples that are kept. A step uses some of them together with new samples."""

JUDGED = 60
"""The number of latest samples on which copies are compared."""

_CAUTION = 2.0  # the number of standard errors by which another copy must be better to take over
_FEWEST = 10  # the least number of samples for a comparison
_GUIDANCE = 1.0  # the largest strength of guidance in a step


class DailyUpdates:
    """The updates of a trained network with new samples, by way of three copies: "fit", "slow" and "fast".

    The copy "fit" keeps the weights of ``fit``. The other two are trained on new samples, with a low and with a high
    learning rate. One copy decides: the network has its weights. At first that is the copy "slow". Another copy takes
    over if its decisions have lost less over the latest samples, by more than two standard errors of the paired
    difference. (The race of ``fit`` requires only 1.5 standard errors, but chooses only once.) For a fair comparison,
    every copy decides for a new sample before it is trained on the sample.

    A memory keeps the latest samples (``MEMORY``), which steps with few new samples use again. While the memory is
    filling, the learning rates are multiplied by the share of it that is filled.

    Args:
        network: the trained network, which gets the weights of the copy that decides.
        problem: the decision problem.
        loss: the loss that is minimised.
        learning_rate: the learning rate of ``fit``.
        scale: the mean absolute deviation of the costs in ``fit``, which multiplies the learning rate of the last
            layer unless the network is a ``Correction``.

    Attributes:
        lost: a list for each copy, by the name of the copy: the regrets of its decisions for the new samples so far. A
            model file keeps only the regrets of the last samples (``JUDGED``).
        deciding: the name of the copy that decides now.
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

    @classmethod
    def of_estimator(cls, estimator: DecisionRegressor) -> DailyUpdates:
        """Return a ``DailyUpdates`` for the network of a fitted estimator, before any update."""
        network, problem, loss = estimator.model_[1], estimator.problem, estimator.loss_
        return cls(network, problem, loss, estimator.learning_rate, estimator._scale)

    def update(self, new: SampleBatch, batch_size: int, generator: torch.Generator) -> None:
        """Judge the three copies of the network on new samples, train "slow" and "fast", and choose which one decides.

        Args:
            new: the new samples, with the features that the network gets.
            batch_size: the number of samples in a training step. If fewer new samples are left for a step, it also
                uses earlier samples, from the memory.
            generator: the generator that draws the order of the new samples, and the samples from the memory.
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
        """A sentence on the copy that decides, and on the mean regret of each copy over the latest samples."""
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
        """Return the state as numbers, names and tensors, for a model file."""
        memory = self.memory
        return {
            "deciding": self.deciding,
            "lost": {name: lost[-JUDGED:] for name, lost in self.lost.items()},
            "memory": None if memory is None else {"features": memory.features, "costs": memory.costs},
            "weights": {name: dict(network.state_dict()) for name, network in self.networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
        }

    def restore(self, said: dict[str, Any]) -> None:
        """Set the state to one that ``content`` returned.

        Raises:
            ValueError: the copies in the state do not have the names "fit", "slow" and "fast".
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
        """Record the regrets of each copy's decisions for new samples."""
        true = new.costs.double().cpu().numpy()
        for name, network in self.networks.items():
            with torch.no_grad():
                predicted = call_on_features(network, new.features).double().cpu().numpy()
            self.lost[name] += regret_outcome_of_forecast(self.problem, predicted, true).regret.tolist()

    def _step(self, network: nn.Module, optimizer: torch.optim.Adam, batch: SampleBatch) -> None:
        """Take one step of Adam on a batch, with a learning rate that is lower while the memory is not full."""
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
        """Let another copy decide if its decisions for the latest samples have clearly lost less."""
        if len(self.lost[FIRST]) < _FEWEST:
            return
        others = {name: self._difference(name, self.deciding) for name in PACES if name != self.deciding}
        name, found = min(others.items(), key=lambda item: item[1].mean)
        if found.mean + _CAUTION * found.standard_error < 0:
            self.deciding = name
            logger.log(logging.WARNING if name == "fit" else logging.INFO, self.note)

    def _difference(self, name: str, other: str) -> PairedDifference:
        """Return by how much the copy ``name`` lost more than the copy ``other`` on the latest samples."""
        return paired_difference(self.lost[name][-JUDGED:], self.lost[other][-JUDGED:])


def daily_update_scale(costs: Tensor) -> float:
    """Return the mean absolute deviation of costs (N, k) from the means of the k columns; 1 if it is zero."""
    return float((costs - costs.mean(0)).abs().mean()) or 1.0


def _make_update_optimizer(network: nn.Module, rate: float, scale: float) -> torch.optim.Adam:
    """Return an Adam with the learning rate ``rate``, and ``rate · scale`` for the last linear layer.

    The outputs of the last layer are in the unit of the costs, so that the steps of its weights must grow with the
    ``scale`` of the costs. A ``Correction`` scales its outputs itself; all of its layers get ``rate``.
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
    """Lower the guidance of every ``PEARLoss`` in a loss to the largest strength for updates, ``_GUIDANCE``."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss) and module.guidance > 0:
            module.guidance = min(module.guidance, _GUIDANCE)


def _join_update_samples(first: SampleBatch, second: SampleBatch) -> SampleBatch:
    """Return a batch with the samples of ``first`` and then those of ``second``."""
    features = join_features([first.features, second.features])
    return SampleBatch(features, torch.cat([first.costs, second.costs]), None)

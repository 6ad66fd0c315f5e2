"""``RollingLoss``: the realised cost of whole rollouts, differentiable through every plan and every state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pear.decisions.failures import OnFailure, report_failures
from pear.errors import ProblemError
from pear.losses.sample_weights import read_weights, weighted_mean
from pear.problem.sample_keys import as_keys
from pear.rolling.planner import Planner, State
from pear.rolling.rolling import Rolling
from pear.rolling.rollout_steps import run_rollout_steps
from pear.rolling.time_series import read_known_series

TerminalValue = Callable[[State, dict[str, Tensor]], Tensor]
"""A function of the last states and of the true values of the last plan's periods, which returns a cost (B,)."""


class RollingLoss(nn.Module):
    """The realised cost of rollouts, in which plans follow forecasts and are paid for at the true values.

    The gradient goes through the whole rollout: a forecast changes the plan, the plan changes the state, and the state
    changes every later plan. The derivatives of each plan with respect to forecast and state are exact.

    Args:
        rolling: the model and its states.
        smoothing: the smoothing λ ≥ 0 of the plans, or "auto" to choose λ from plans for true values. A linear program
            needs λ > 0, because its decisions are vertices, which do not move with the forecast.
        terminal: a function ``(state, true) → cost`` that values the last states: a cost (B,), or a profit if the model
            maximises. Its arguments are dictionaries: the last states (B, …), and the true values (B, T, …) of the T
            periods of the last plan. By default the last states have no value.
        known: the known values of the model that are not states: arrays (N, …) by name, a row for each of N periods, or
            (…) for a value that all periods share; an array if there is one such value. If they have rows, the ``keys``
            of a call must be the first periods of the rollouts.
        initial: the states that rollouts begin with, as for ``Rolling``.
        on_failure: "raise" raises an error if a step has no plan. "mask" leaves out rollouts with such a step, and
            warns.

    Attributes:
        planner: makes the plans.
        status: (B, S) int8 values of ``pear.Status`` for the plans of the last call, with B rollouts of S steps; None
            before the first call.
        cost: (B, S) the realised cost of each step of the last call, or the profit if the model maximises; None before
            the first call.

    Example:
        >>> import pear, torch
        >>> cost_map = pear.CostMap([[1.0, 0.0], [0.0, 1.0], [0, 0], [0, 0], [0, 0]], names=["price[0]", "price[1]"])
        >>> names = ["buy[0]", "buy[1]", "stock[0]", "stock[1]", "stock[2]"]
        >>> rows = [[0, 0, 1.0, 0, 0], [-1.0, 0, -1, 1, 0], [0, -1.0, 0, -1, 1]]
        >>> problem = pear.Problem(Q=torch.eye(5), A=rows, b=[0.0, 0.0, 0.0], lb=0.0)
        >>> model = pear.Model(problem, variables=names, cost_map=cost_map)
        >>> loss = pear.RollingLoss(pear.Rolling(model, state={"stock": "stock[0]"}), smoothing=0.0)
        >>> forecast = torch.tensor([[[-1.0, -2.0], [-3.0, -1.0]]], requires_grad=True)
        >>> value = loss(forecast, torch.tensor([[[-1.0, -2.0], [-2.0, -1.0]]]))
        >>> value.backward()
        >>> forecast.grad.shape
        torch.Size([1, 2, 2])
    """

    def __init__(
        self,
        rolling: Rolling,
        smoothing: float | Literal["auto"] = "auto",
        *,
        terminal: TerminalValue | None = None,
        known: Any = None,
        initial: Mapping[str, Any] | None = None,
        on_failure: OnFailure = "raise",
    ) -> None:
        super().__init__()
        if not isinstance(rolling, Rolling):
            raise ProblemError(f"RollingLoss takes a pear.Rolling; got {type(rolling).__name__}")
        self.rolling, self.terminal, self.initial, self.on_failure = rolling, terminal, initial, on_failure
        self.planner = Planner(rolling.program, smoothing, rolling.solver, on_failure)
        self.known = read_known_series(rolling.model, known, 0, rolling.known_states)
        self.status: Tensor | None = None
        self.cost: Tensor | None = None

    @property
    def smoothing(self) -> float | Literal["auto"]:
        """The argument ``smoothing``: the smoothing λ or "auto"."""
        return self.planner.layer.smoothing

    def forward(
        self,
        predicted: Tensor,
        true: Any,
        keys: Tensor | Iterable[Hashable] | None = None,
        weight: Any = None,
    ) -> Tensor:
        """Return the mean cost of B rollouts of S steps. If the model maximises, the cost is the negative profit.

        Args:
            predicted: (B, S, k) the forecast of every step, k values each.
            true: (B, S, k) the true values of the same periods.
            keys: B ids of the rollouts. If the loss has ``known`` values, the ids must be the first periods of the
                rollouts.
            weight: (B,) weights of the rollouts in the mean.

        Returns:
            A scalar in the dtype of ``predicted``.
        """
        forecasts, truth = self._as_values(predicted, "predicted"), self._as_values(true, "true").detach()
        truth = truth.to(forecasts.device)
        if forecasts.shape != truth.shape:
            raise ProblemError(
                f"predicted and true must have the same shape; got {tuple(forecasts.shape)} and {tuple(truth.shape)}"
            )
        known = self._known_of(as_keys(keys, len(forecasts)), forecasts)
        state = self.rolling.initial_state(len(forecasts), self.initial)
        if self.planner.layer.chosen_smoothing is None:
            self._choose_smoothing(truth, known, state)
        costs, statuses, reached, rolling = [], [], state, self.rolling
        for one in run_rollout_steps(rolling.world, self.planner, rolling.commitment, forecasts, truth, known, state):
            costs.append(one.cost)
            statuses.append(one.status)
            reached = one.reached
        self.cost, self.status = torch.stack(costs, 1).detach(), torch.stack(statuses, 1)
        total = torch.stack(costs, 1).sum(1)
        if self.terminal is not None:
            total = total + self._terminal_cost(reached, truth[:, -1])
        total = self.rolling.model.problem.sign * total
        return self._mean(total, weight).to(predicted.dtype)

    def calibrate(self, true: Any, keys: Tensor | Iterable[Hashable] | None = None) -> float | None:
        """Choose the smoothing λ from the first plan of each rollout under true values, if λ is "auto".

        Args:
            true: (N, S, k) true values of the training set: k values for each of S steps of N rollouts.
            keys: N ids, as for a call.

        Returns:
            λ.
        """
        truth = self._as_values(true, "true").detach()
        if self.planner.layer.chosen_smoothing is None:
            known = self._known_of(as_keys(keys, len(truth)), truth)
            self._choose_smoothing(truth, known, self.rolling.initial_state(len(truth), self.initial))
        return self.planner.layer.chosen_smoothing

    def _choose_smoothing(self, truth: Tensor, known: Tensor | None, state: State) -> None:
        """Choose λ from the first plans under true values (B, S, k), with known numbers (B, S, q) and first states."""
        now = {name: value.to(truth) for name, value in state.items()}
        self.planner.settle(self.rolling.program.data(truth[:, 0], now, None if known is None else known[:, 0]))

    def _as_values(self, values: Any, name: str) -> Tensor:
        """Return k values for each of S steps, (B, S, k) or (B, S · k), as (B, S, k) in float64."""
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
        k = self.rolling.model.inputs
        if tensor.ndim == 2 and tensor.shape[1] % k == 0:
            tensor = tensor.reshape(len(tensor), -1, k)
        if tensor.ndim != 3 or tensor.shape[2] != k:
            raise ProblemError(
                f"{name} must have shape (B, S, {k}), {k} values for each of S steps; got {tuple(tensor.shape)}"
            )
        return tensor.double()

    def _known_of(self, ids: list[Hashable] | None, values: Tensor) -> Tensor | None:
        """Return the q known numbers (B, S, q) at S steps of rollouts that begin at the periods ``ids``, or None."""
        if self.known is None:
            return None
        if self.known.ndim == 1:
            return self.known.expand(*values.shape[:2], -1).to(values)
        if ids is None:
            raise ProblemError("the model has known values, so that keys must be the first periods of the rollouts")
        starts = torch.as_tensor(ids)[:, None] + self.rolling.step * torch.arange(values.shape[1])
        if int(starts.max()) >= len(self.known) or int(starts.min()) < 0:
            raise ProblemError(f"known has {len(self.known)} rows, and the rollouts reach period {int(starts.max())}")
        return self.known[starts].to(values)

    def _terminal_cost(self, state: State, truth: Tensor) -> Tensor:
        """Return the cost (B,) of the last states, as the user's function ``terminal`` computes it.

        ``truth`` (B, k) are the true values of the periods of the last plan.
        """
        assert self.terminal is not None
        true = {name: truth[:, at.to(truth.device)] for name, at in self.rolling.timeline.series.items()}
        value = self.terminal(state, true)
        if value.shape != (len(truth),):
            raise ProblemError(
                f"terminal must return a number for each rollout, ({len(truth)},); got {tuple(value.shape)}"
            )
        return value

    def _mean(self, total: Tensor, weight: Any) -> Tensor:
        """Return the weighted mean of the costs ``total`` (B,) of those rollouts in which every step has a plan."""
        assert self.status is not None
        failed = (self.status != 0).any(1)
        weights = torch.ones_like(total) if weight is None else read_weights(weight, len(total)).to(total)
        if bool(failed.any()):
            if bool(failed.all()):
                report_failures(self.status.amax(1), "raise", "every rollout")
            total = torch.where(failed, 0.0, total)
            weights = torch.where(failed, 0.0, weights)
        return weighted_mean(total, weights)

    def extra_repr(self) -> str:
        """Return the description of ``rolling`` in one line."""
        return repr(self.rolling)

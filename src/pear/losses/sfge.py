"""``SFGELoss``: any loss of decisions, with a gradient estimated from random forecasts around the predicted one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss, DrawSettings
from pear.losses.recourse_judge import RecourseJudge
from pear.losses.surrogate_gradient import estimate_gradient_by_score
from pear.problem import CostMap, Model, Problem
from pear.problem.model import model_with_predicted_rows, problem_of_model
from pear.problem.sample_keys import call_with_keys, select_by_keys, takes_keys
from pear.setting_checks import check_count_setting, check_positive_setting

TaskLoss = Callable[..., Tensor]
"""A function from decisions (N, n) and true costs or values (N, k) to the loss of each decision, (N,).
It may have an argument ``keys``, the ids of the N samples."""


class SFGELoss(DrawingLoss):
    """``ℓ = mean_m L(z*(ĉ + σuε_m), c)``, mean over the batch; gradient ``mean_m (L_m − b_m) ε_m / σu``.

    This is score function gradient estimation (Silvestri et al., 2023). ĉ and c are the predicted and the true costs,
    z* is the best decision, and u is the unit of the costs. L is the regret or any other loss of a decision, and L_m
    its value under the random forecast ĉ + σuε_m. ε is standard normal and drawn anew in every step. b_m is the mean of
    L over the other random forecasts, which reduces the variance. L is only evaluated, never differentiated.
    Right-hand sides may therefore be predicted, too. In this case the default L is the regret with the model's
    recourse, and each predicted value has its own unit u. Each training step decides ``samples`` times per sample.

    Args:
        problem: the decision problem, which may have a curved objective; or a ``Model``, which may predict right-hand
            sides if it has a recourse.
        decide: maps costs (B, n) to best decisions (B, n), or, for a model that predicts right-hand sides, predicted
            values (B, k) to decisions; ``pear.solve`` on ``problem`` if omitted.
        task_loss: L, a function of N decisions (N, n) and their true costs (N, n), or true values (N, k) if the model
            predicts right-hand sides. It returns the loss of each decision, (N,). L is the regret if omitted.
        samples: the number of random forecasts per sample and step.
        sigma: σ, the standard deviation of the random forecasts, in units u.
        seed, mse_weight: as for ``DrawingLoss``; ``mse_weight`` must be 0 if right-hand sides are predicted.
        cost_unit: u, the unit of the predicted costs or values. "auto" is the typical deviation of all true costs or,
            if right-hand sides are predicted, of each true value; see ``DecisionLoss``.

    Attributes:
        model: the model if it predicts right-hand sides, otherwise None.

    Example:
        >>> import torch, pear
        >>> from pear.losses import SFGELoss
        >>> def late(z, true):  # the cost of an order z if the demand is true
        ...     return (z + 4 * (true - z).clamp(min=0)).sum(1)
        >>> shop = pear.Problem(lb=0.0, n=1)
        >>> loss = SFGELoss(shop, decide=lambda order: order, task_loss=late, samples=100, cost_unit=1.0)
        >>> order = torch.tensor([[2.0]], requires_grad=True)
        >>> loss(order, torch.tensor([[5.0]])).backward()
        >>> bool(order.grad < 0)  # a step orders more
        True
    """

    linear_alone: ClassVar[bool] = False
    model: Model | None
    _units: Tensor | None

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        task_loss: TaskLoss | None = None,
        samples: int = 10,
        sigma: float = 1.0,
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        if task_loss is not None and not callable(task_loss):
            raise ProblemError(f"task_loss must be a function of decisions and true values; got {task_loss!r}")
        if self.model is not None and self.mse_weight:
            raise ProblemError(
                "mse_weight is for costs alone, and this model predicts right-hand sides, whose errors have other "
                "units; pass mse_weight=0"
            )
        self.samples, self.sigma = check_count_setting("samples", samples), check_positive_setting("sigma", sigma)
        self.task_loss = task_loss

    def read_problem(self, problem: Problem | Model) -> tuple[Problem, CostMap | None]:
        """Return the plain problem and its cost map, which is None for a model that predicts right-hand sides."""
        self.model, self._units = model_with_predicted_rows(problem), None
        return super().read_problem(problem) if self.model is None else (problem_of_model(problem), None)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the mean loss of each sample's random forecasts, (B,), with the gradient that the class documents."""
        true = true.double()
        noise = self.problem.sign * self.draws.normal(self.samples, *predicted.shape).to(true)
        unit = self.settle_unit(true)
        size = self.sigma * (unit if self._units is None else self._units.to(true))
        lost = self._losses(predicted.detach().double() + size * noise, true, ids)
        with self.timed("gradient"):
            slope = estimate_gradient_by_score(lost, noise) / size
            linear = (predicted * slope.to(predicted)).sum(1)
            return lost.mean(0).to(predicted) + (linear - linear.detach())

    def _losses(self, forecasts: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss (m, B) of the decisions under m forecasts per sample (m, B, k)."""
        if self.model is None:
            free = self.task_loss is not None and self._decide is not None
            z = self._decide_freely(forecasts, ids) if free else self.decide_each(forecasts, ids)
            return self._regrets(z, true, ids) if self.task_loss is None else self._own_losses(z, true, ids)
        if self.task_loss is not None and self._decide is not None:
            return self._own_losses(self._decide_freely(forecasts, ids), true, ids)
        with self.timed("solve"):
            judge = RecourseJudge(self.model, true, ids)
            if self._decide is None:
                z = torch.stack([judge.decide(part) for part in forecasts])
            else:
                z = self._decide_freely(forecasts, ids).to(true)
            if self.task_loss is None:
                return torch.stack([judge.regret(part) for part in z])
        return self._own_losses(z, true, ids)

    def _decide_freely(self, forecasts: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Decide by the user's function, under forecasts (m, B, k) of costs or values; return decisions (m, B, n)."""
        assert self._decide is not None
        count, batch = forecasts.shape[:2]
        if ids is None and self.problem.batch is not None:
            ids = list(range(batch))
        z = call_with_keys(self._decide, forecasts.flatten(0, 1), None if ids is None else ids * count).detach()
        if z.ndim != 2 or len(z) != count * batch or not bool(z.isfinite().all()):
            raise ProblemError(
                f"decide must return a decision of finite numbers for each of {count * batch} forecasts; got shape "
                f"{tuple(z.shape)}{'' if bool(z.isfinite().all()) else ' with numbers that are not finite'}"
            )
        return z.unflatten(0, (count, batch))

    def _regrets(self, z: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret (m, B) of decisions (m, B, n)."""
        best = self.best(true, ids)
        with self.timed("gradient"):
            if not self.problem.is_curved:
                return self.problem.sign * (true * (z - best)).sum(2)
            rows = select_by_keys(self.problem, ids)
            paid = torch.stack([rows.objective(part, true) for part in z])
            return self.problem.sign * (paid - rows.objective(best, true))

    def _own_losses(self, z: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the user's loss (m, B) of decisions (m, B, n)."""
        assert self.task_loss is not None
        count, batch = z.shape[:2]
        named: dict[str, Any] = {}
        if takes_keys(self.task_loss):
            named["keys"] = None if ids is None else ids * count
        with self.timed("gradient"):
            lost = torch.as_tensor(self.task_loss(z.flatten(0, 1), true.repeat(count, 1), **named)).detach()
        if lost.shape != (count * batch,):
            raise ProblemError(
                f"task_loss must return a number for each decision, of shape {(count * batch,)}; got shape "
                f"{tuple(lost.shape)}"
            )
        if not bool(lost.isfinite().all()):
            raise ProblemError("task_loss must return finite numbers; some are not")
        return lost.to(true).view(count, batch)

    def settle_unit(self, costs: Tensor) -> float:
        """Return the unit of the costs; for ``cost_unit="auto"`` the first call chooses it from true costs (B, n).

        If right-hand sides are predicted, ``costs`` are true values (B, k). For "auto" the first call then also chooses
        and stores a unit for each of the k values.
        """
        if self.model is not None and self._units is None and self.cost_unit == "auto":
            self._units = torch.tensor([self.typical_deviation(column[:, None]) for column in costs.T]).double()
        return super().settle_unit(costs)

    def get_extra_state(self) -> dict[str, Any]:
        """Return what ``DrawingLoss`` saves, and the units of the values."""
        return {**super().get_extra_state(), "units": self._units}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``DrawingLoss`` saves, and the units of the values."""
        super().set_extra_state(state)
        self._units = state["units"]

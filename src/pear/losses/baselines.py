"""Baselines from the literature: ``MSELoss``, ``SPOPlusLoss``, ``PFYLLoss`` and ``DBBLoss``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.losses.decision_loss import Decide, DecisionLoss, check_number
from pear.losses.regret_metrics import check_pair
from pear.losses.sample_weights import read_weights, weighted_mean
from pear.problem import Model, Problem
from pear.problem.oracle import decided_by


class MSELoss(nn.Module):
    """The mean squared error over all entries, as ``torch.nn.MSELoss``; the baseline of the other methods.

    Args:
        problem: not used by the loss. ``fit`` computes its default metric, the regret, on this problem.
        decide: not used by the loss. Maps costs (B, n) to decisions (B, n) in the default metric of ``fit``; left out,
            the problem is solved.

    Attributes:
        seconds: zero for "solve" and "gradient", because nothing is solved.

    Example:
        >>> import torch
        >>> from pear.losses import MSELoss
        >>> MSELoss()(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
        tensor(2.)
    """

    def __init__(self, problem: Problem | Model | None = None, decide: Decide | None = None) -> None:
        super().__init__()
        if problem is None and decide is not None:
            raise ProblemError("decide came without a problem, which says what a decision is worth; pass both")
        self.given = problem if problem is None or decide is None else decided_by(problem, decide)
        self.seconds = {"solve": 0.0, "gradient": 0.0}

    def forward(
        self, predicted: Tensor, true: Tensor, keys: Tensor | Iterable[Hashable] | None = None, weight: Any = None
    ) -> Tensor:
        """Compute the mean of (ĉ − c)² over all entries (B, n), weighted by ``weight`` (B,); ``keys`` is ignored."""
        check_pair(predicted, true)
        if weight is None:
            return nn.functional.mse_loss(predicted, true)
        weights = read_weights(weight, len(predicted)).to(predicted.device)
        return weighted_mean(nn.functional.mse_loss(predicted, true, reduction="none"), weights)


class SPOPlusLoss(DecisionLoss):
    """``ℓ = −min_z (2ĉ − c)ᵀz + 2ĉᵀz*(c) − cᵀz*(c)``, mean over the batch; gradient ``2 (z*(c) − z*(2ĉ − c))``.

    The loss is a convex upper bound of the regret (Elmachtoub and Grigas, 2022). For maximisation every cost changes
    its sign. Each training step solves one problem per sample. For an integer problem, ``decide`` may use exact
    decisions or those of the relaxation; these are two different methods, the second much faster.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` where left out.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import SPOPlusLoss
        >>> loss = SPOPlusLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0))
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (4.0, tensor([[ 2., -2.]]))
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the bound with both decisions held fixed, so that its derivative is the gradient of the class."""
        best = self.best(true, ids)
        beyond = 2 * predicted - true
        z = self.decide(beyond, ids)
        with self.timed("gradient"):
            # (2ĉ − c)ᵀ(z*(c) − z*(2ĉ − c)): no large sums that cancel.
            return self.problem.sign * (beyond * (best - z)).sum(1)


class PFYLLoss(DecisionLoss):
    """``ℓ = ĉᵀz*(c) − mean_m min_z (ĉ + σuε_m)ᵀz``, mean over the batch; gradient ``z*(c) − mean_m z*(ĉ + σuε_m)``.

    This is the perturbed Fenchel–Young loss (Berthet et al., 2020). ε is standard normal and drawn anew in every step.
    For maximisation every cost changes its sign. The smallest value is negative and unknown (at least
    ``E min_z σuεᵀz``), so that only changes of the value are meaningful.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` where left out.
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units of the costs.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import PFYLLoss
        >>> loss = PFYLLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), samples=4, sigma=0.1)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> loss(predicted, torch.tensor([[1.0, 3.0]])).backward()
        >>> predicted.grad
        tensor([[ 1., -1.]])
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        samples: int = 1,
        sigma: float = 1.0,
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, mse_weight, cost_unit)
        if samples != int(samples) or samples < 1:
            raise ProblemError(f"samples must be a whole number of at least 1; got {samples!r}")
        check_number("sigma", sigma, least=0.0, strict=True)
        self.samples = int(samples)
        self.sigma = float(sigma)
        self._random = np.random.RandomState(seed)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss with all decisions held fixed, so that its derivative is the gradient of the class."""
        best = self.best(true, ids)
        # Published numbers depend on the order of the draws: one draw of (m, B, n) per step.
        noise = torch.from_numpy(self._random.normal(0, 1, (self.samples, *predicted.shape))).to(predicted)
        perturbed = predicted + self.problem.sign * self.sigma * self.settle_unit(true) * noise
        z = self.decide(perturbed.flatten(0, 1), None if ids is None else ids * self.samples).view_as(noise)
        with self.timed("gradient"):
            return self.problem.sign * ((predicted * best).sum(1) - (perturbed * z).sum(2).mean(0))

    def get_extra_state(self) -> dict[str, Any]:
        """Return the unit of the costs, and the state of the random generator: a resumed run draws the same numbers."""
        name, words, *rest = self._random.get_state(legacy=True)
        numbers = {"name": name, "words": torch.from_numpy(np.asarray(words, dtype=np.int64)), "rest": rest}
        return {**super().get_extra_state(), **numbers}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the unit of the costs and the random generator from a saved state."""
        super().set_extra_state(state)
        words = state["words"].numpy().astype(np.uint32)
        self._random.set_state((state["name"], words, *state["rest"]))


class DBBLoss(DecisionLoss):
    """``ℓ = mean |cᵀz*(ĉ) − cᵀz*(c)|``, with the gradient ``(z*(ĉ + λw) − z*(ĉ)) / λ``, where w = ∂ℓ/∂z*(ĉ).

    The loss differentiates a black-box solver by interpolation (Vlastelica et al., 2020). w contains the factor 1/B of
    the mean, so that the step λw depends on the size of the batch, and on the sample's weight where it has one. For
    maximisation every cost changes its sign. Each training step solves two problems per sample.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` where left out.
        interpolation: λ > 0, how far the costs are moved in the backward pass. w is in the unit of the costs, so that λ
            has none.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import DBBLoss
        >>> loss = DBBLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), interpolation=10.0)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (2.0, tensor([[ 0.1000, -0.1000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        interpolation: float = 10.0,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, mse_weight, cost_unit)
        check_number("interpolation", interpolation, least=0.0, strict=True)
        self.interpolation = float(interpolation)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample; its gradient comes from the interpolation."""
        best = self.best(true, ids)
        step = self.problem.sign * self.interpolation
        z: Tensor = _InterpolatedDecision.apply(predicted, lambda cost: self.decide(cost, ids), step)
        with self.timed("gradient"):
            return ((true * z).sum(1) - (true * best).sum(1)).abs()


class _InterpolatedDecision(torch.autograd.Function):
    """The decision as an autograd function; its derivative is a finite difference to the decision at moved costs."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, decide: Callable[[Tensor], Tensor], step: float) -> Tensor:
        z = decide(cost)
        ctx.save_for_backward(cost, z)
        ctx.decide, ctx.step = decide, step
        return z.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None, None]:
        cost, z = ctx.saved_tensors
        moved = ctx.decide(cost + ctx.step * up)
        return (moved - z) / ctx.step, None, None

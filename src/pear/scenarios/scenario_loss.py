"""``ScenarioLoss``: the regret of first-stage decisions under predicted scenarios, with exact derivatives."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pear.decisions.choose_smoothing import choose_smoothing
from pear.decisions.decider import Decider
from pear.decisions.failures import OnFailure, check_on_failure, report_failures
from pear.decisions.recourse_smoothing import choose_recourse_smoothing
from pear.decisions.smoothing import Smoothing
from pear.errors import ProblemError
from pear.losses.autograd_inputs import fit_gradient_to_input
from pear.losses.eager import eager
from pear.losses.sample_weights import Reduction, check_weighted_reduction, read_weights, reduce_weighted
from pear.losses.second_derivatives import refuse_second_derivatives, save_inputs
from pear.optimality.status import Status
from pear.problem import Model
from pear.problem.problem_fields import FIELDS
from pear.problem.sample_keys import as_keys, select_by_keys, select_model_by_keys
from pear.problem.tensor_conversion import to_batch_tensor
from pear.scenarios.extensive_form import ExtensiveForm
from pear.scenarios.second_stage import SecondStage
from pear.scenarios.stochastic import Stochastic
from pear.scenarios.two_stages import TwoStages
from pear.sensitivity.derivatives import all_derivatives, derivatives_of_unique_variables
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.setting_checks import check_smoothing_setting


@dataclass(frozen=True)
class LastScenarios:
    """The decisions of the last call of a ``ScenarioLoss``.

    Attributes:
        x: (B, n₁) decisions of the n₁ first-stage variables; zero for a failed sample.
        regret: (B,) regrets; zero for a failed sample.
        status: (B,) int8 values of ``pear.Status``.
    """

    x: Tensor
    regret: Tensor
    status: Tensor


class ScenarioLoss(nn.Module):
    """The regret ``V(x̂; c) − min V(·; c)`` of the first stage that a plan decides under predicted scenarios.

    x̂ is the first stage that ``plan`` decides under the predicted scenarios. V(x; c) is the cost of a first stage x and
    of its best second stage under the true values c. The regret is never negative. Its derivative with respect to every
    value of every scenario is exact: the derivative of V with respect to x̂ follows from the multipliers of the second
    stage, and the derivative of x̂ from one linear solve with the extensive program. A program with integers is trained
    on its relaxation.

    Args:
        plan: the two-stage program.
        smoothing: λ ≥ 0, the curvature that is added in every variable of the model, to the objective of the plan and
            to V. "auto" chooses λ once, from true values and the decisions under them, as ``PEARLoss`` does.
        on_failure: "raise", or "mask" to leave failed samples out of the loss and warn.
        reduction: "mean" (over the samples that are solved), "sum" or "none".

    Attributes:
        last: the decisions of the last call; None before the first call.

    Example:
        >>> import torch, pear
        >>> kiosk = pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0)
        >>> demand = pear.ConstraintMap(h=[[-1.0]])
        >>> m = pear.Model(kiosk, known=[1.0], variables=("buy",), constraint_map=demand, recourse=pear.Penalty(h=4.0))
        >>> loss = ScenarioLoss(pear.Stochastic(m, first=["buy"], scenarios=4), smoothing=0.1)
        >>> scenarios = torch.tensor([[1.0, 2.0, 3.0, 9.0]], requires_grad=True)
        >>> lost = loss(scenarios, torch.tensor([[2.0]]))
        >>> lost.backward()
        >>> round(lost.item(), 4), round(scenarios.grad[0, 2].item(), 4)
        (1.25, 1.3)
    """

    def __init__(
        self,
        plan: Stochastic,
        smoothing: float | Literal["auto"] = "auto",
        on_failure: OnFailure = "raise",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        if not isinstance(plan, Stochastic):
            raise ProblemError(f"ScenarioLoss takes a pear.Stochastic; got {type(plan).__name__}")
        check_on_failure(on_failure)
        check_smoothing_setting(smoothing)
        check_weighted_reduction(reduction)
        self.plan, self.smoothing, self.on_failure, self.reduction = plan, smoothing, on_failure, reduction
        self.last: LastScenarios | None = None
        self._use(None if smoothing == "auto" else Smoothing.given(float(smoothing)))

    @property
    def chosen_smoothing(self) -> float | None:
        """The λ in use; None until "auto" has chosen it."""
        return None if self._chosen is None else self._chosen.value

    def calibrate(self, costs: Any, keys: Tensor | Iterable[Hashable] | None = None, times: float = 1.0) -> float:
        """Choose λ for ``smoothing="auto"`` from true values. A λ that is already chosen is not changed.

        Args:
            costs: (N, k) true values of k predicted numbers, preferably of the training set.
            keys: N sample ids. If samples have their own data, the ids must be row numbers.
            times: a factor that multiplies the chosen λ.

        Returns:
            λ.
        """
        if self._chosen is None:
            true = to_batch_tensor(costs, "costs").detach().double()
            own = self.plan.model.problem.batch
            ids = as_keys(range(len(true)) if keys is None and own is not None else keys, len(true))
            self._use(self._choose_smoothing(self.plan.model, true, ids).times(times))
        assert self._chosen is not None
        return self._chosen.value

    @eager
    def forward(
        self,
        predicted: Tensor,
        true: Any,
        keys: Tensor | Iterable[Hashable] | None = None,
        weight: Any = None,
        scenario_weights: Any = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            predicted: (B, S·k) or (B, S, k) values of S scenarios, k values each.
            true: (B, k) true values.
            keys: B sample ids, under which warm starts and best decisions are kept. If samples have their own data, the
                ids must be row numbers.
            weight: (B,) weights of the samples in the loss.
            scenario_weights: (B, S) weights of the scenarios, which may require gradients; those of the plan if
                omitted.

        Returns:
            The loss in the dtype of ``predicted``: a scalar, or (B,) with reduction "none".
        """
        values, truth = self.plan.read_values(predicted), to_batch_tensor(true, "true").detach().double()
        if truth.shape != (len(values), self.plan.model.inputs):
            raise ProblemError(
                f"true must have shape ({len(values)}, {self.plan.model.inputs}), the true values; got "
                f"{tuple(truth.shape)}"
            )
        ids = as_keys(keys, len(values), self.plan.problem)
        self.calibrate(truth, ids)
        x, status = self._decide_first_stage(values, ids, scenario_weights)
        with torch.no_grad():
            realised = self._second.realise(x.detach(), truth, ids)
            cost, fields = self._stages.costs(truth, ids), self._stages.sides(truth, ids)
            best, best_status = self._truths.solve_true(cost, 0.0, ids, **fields)
            least = select_by_keys(self._stages.problem, ids).objective(best.x, cost)
        for other, what in ((realised.status, "the second stage"), (best_status, "the truth")):
            report_failures(torch.where(status == 0, other, 0).to(torch.int8), self.on_failure, what)
            status = torch.where(status == 0, other, status)
        good = status == Status.SOLVED
        regret = torch.where(good, (realised.cost - least).clamp(min=0), 0.0)
        self.last = LastScenarios(torch.where(good[:, None], x.detach(), 0.0), regret, status)
        slope = torch.where(good[:, None], realised.slope, 0.0)
        each = regret + (slope * (x - x.detach())).sum(1)
        counted = good.double() if weight is None else good * read_weights(weight, len(each))
        return reduce_weighted(each, counted, self.reduction).to(predicted.dtype)

    def _decide_first_stage(self, values: Tensor, ids: list[Hashable] | None, weights: Any) -> tuple[Tensor, Tensor]:
        """Return first-stage decisions under scenarios.

        Args:
            values: (B, S, k) values of S scenarios, k values each.
            ids: B sample ids, or None.
            weights: weights of the scenarios, or None.

        Returns:
            Differentiable decisions (B, n₁) of the n₁ first-stage variables in float64, and statuses (B,).
        """
        p = None if weights is None else self.plan.read_call_weights(weights, len(values))
        cost, fields = self._extensive.data(values.double(), ids, p)
        detached = {name: field.detach() for name, field in fields.items()}
        with self._plans.locked(ids):
            known = self._plans.known_failures("predicted", cost.detach(), 0.0, ids, detached)
            solved = self._plans.solve(cost.detach(), 0.0, ids, known=known, **detached)
        report_failures(solved.status, self.on_failure, "the scenarios", spreads=values.requires_grad)
        data = [cost, *(fields.get(name) for name in FIELDS)]
        x: Tensor = _ScenarioLossFirstStage.apply(solved, self._extensive.first, self._strict, *data)
        return x, solved.status

    def _use(self, chosen: Smoothing | None) -> None:
        """Set the smoothing, and build the programs with it.

        With None, there are no programs until a smoothing is chosen.
        """
        self._chosen = chosen
        if chosen is None:
            return
        plan, model = self.plan, self.plan.model.relaxed()
        self._stages = TwoStages(model, plan.first, chosen.curvature_for_user(model.problem))
        self._extensive = ExtensiveForm(self._stages, plan.weights, plan.risk)
        self._plans = Decider(self._extensive.problem, plan.solver)
        self._strict = chosen.value == 0 and chosen.floor == 0
        self._second = SecondStage(self._stages, plan.solver)
        self._truths = Decider(self._stages.problem, plan.solver)

    @staticmethod
    def _choose_smoothing(model: Model, true: Tensor, ids: list[Hashable] | None) -> Smoothing:
        """Return the smoothing that "auto" chooses from true values (B, k) and the model's decisions under them."""
        if model.constraint_map is not None and model.recourse is not None:
            return choose_recourse_smoothing(model, true, "auto", ids)
        own = select_model_by_keys(model, ids).problem.relaxed()
        sides = model.right_hand_sides(true, ids)
        return choose_smoothing(own, model.cost(true, ids), "auto", model.problem.relaxed(), **sides)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the smoothing in use, for ``state_dict``: λ as "smoothing", and the entries of ``Smoothing.state``.

        Before "auto" has chosen λ, "smoothing" is None.
        """
        chosen = self._chosen
        return {"smoothing": None} if chosen is None else {"smoothing": chosen.value, **chosen.state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore λ from a saved state if ``smoothing`` is "auto"."""
        if self.smoothing == "auto" and (saved := Smoothing.from_state(state)) is not None:
            self._use(saved)

    def extra_repr(self) -> str:
        """Return one line with the plan and one with the settings."""
        auto = f" ({self.chosen_smoothing:g})" if self.smoothing == "auto" and self.chosen_smoothing is not None else ""
        return f"{self.plan}\nsmoothing={self.smoothing!r}{auto}, on_failure={self.on_failure!r}"


class _ScenarioLossFirstStage(torch.autograd.Function):
    """The first-stage decisions of solved extensive programs, as an autograd function of costs and fields."""

    @staticmethod
    def forward(ctx: Any, solved: VerifiedSolutions, first: int, strict: bool, *data: Tensor | None) -> Tensor:
        save_inputs(ctx, *data)
        ctx.solved, ctx.strict = solved, strict
        ctx.inputs = [None if one is None else (one.dtype, tuple(one.shape)) for one in data]
        return solved.x[:, :first].clone()

    @staticmethod
    @refuse_second_derivatives
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient with respect to each input that needs one.

        ``up`` (B, n₁) is the gradient with respect to the n₁ first-stage decisions.
        """
        solved = ctx.solved
        w = torch.nn.functional.pad(up, (0, solved.qp.n - up.shape[1]))
        # with curvature in every first-stage variable, x is unique even if slacks or η are not
        found = (all_derivatives if ctx.strict else derivatives_of_unique_variables)(solved, w, 1)
        grads: list[Tensor | None] = [None] * len(ctx.inputs)
        for i, (derivative, kind) in enumerate(zip(found, ctx.inputs, strict=False)):
            if ctx.needs_input_grad[3 + i] and kind is not None:
                grads[i] = fit_gradient_to_input(derivative(), *kind)
        return (None, None, None, *grads)

"""``PEARLoss``: the regret of decisions, with its exact gradient."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.failures import OnFailure, report_failures
from pear.decisions.recourse_regret_finder import RecourseRegretFinder
from pear.decisions.regret_finder import BatchRegrets, CostRegretFinder, RegretFinder
from pear.errors import ProblemError, VariableNamesInErrors
from pear.losses.autograd_inputs import detach_input, input_requires_gradient
from pear.losses.cost_pairs import check_cost_pair, true_curvature_of_pair
from pear.losses.decision_module import DecisionModule, on_module_device
from pear.losses.defaults import DECAY, GUIDED
from pear.losses.eager import eager
from pear.losses.guided_regret import GuidedCall, guided_regret
from pear.losses.last_call import LastCall
from pear.losses.sample_weights import Reduction, check_weighted_reduction, read_weights, reduce_weighted
from pear.problem import Model, Problem
from pear.problem.model import model_variable_names
from pear.problem.sample_keys import as_keys
from pear.problem.tensor_conversion import count_true_in_tensor, to_batch_tensor
from pear.setting_checks import check_number_setting
from pear.solvers.regret_call import RegretCall, RegretCallResults

logger = logging.getLogger("pear")

_MANY_CALLS = 1000  # gradients without a call of ``step``, after which a warning reminds the user of it


class PEARLoss(DecisionModule):
    """Regret of the decision, ``R = f(z*(ĉ); c) − f(z*(c); c)``, with gradient ``g = P(ĉ − c)``, and guidance.

    ĉ and c are the predicted and the true costs, z* the best decision, and f the objective with smoothing. The loss is
    never negative and is zero at ĉ = c, and its gradient agrees with finite differences. P projects onto the tangent
    space of the active constraints; ``pear.regret_gradient`` has its formula. Guidance adds ``α F`` to R. F is the
    suboptimality of z*(c) under ĉ. At a vertex other than z*(c) the gradient of R is zero, and that of F is not.
    α falls to zero during training, so that only the regret is left. ``step()`` lowers α. Call it after each step of
    the optimiser, as ``pear.fit`` does.

    With a predicted curvature Q̂ (``Q``) and a true curvature Q (``true_Q``) the gradient of R is ``g = P[(ĉ − c) + (Q̂
    − Q) z*]`` with respect to ĉ and ``½ (g z*ᵀ + z* gᵀ)`` with respect to Q̂. An integer problem is trained on its
    continuous relaxation.

    Args:
        problem: the decision problem. If its fields differ by sample, ``keys`` selects its rows. With a ``Model`` that
            predicts values ŷ, costs are ``ĉ = M ŷ + known`` with the matrix M of its cost map, and gradients are those
            with respect to ŷ. If the model predicts right-hand sides, R is the regret with recourse, and the loss also
            contains the least violation that an infeasible forecast allows.
        smoothing: λ, the curvature added to the objective. "auto" chooses λ once, from true costs and the decisions
            under them: in ``calibrate``, which ``pear.fit`` calls with the training set, or else in the first call.
            The choice does not depend on the units of costs and variables.
        injection: β. A vector of β times the length of g is added to g, in the direction of the component of
            ``H⁻¹(ĉ − c)`` that P removes, where H is the curvature of f. With 0 the gradient is exact.
        guidance: α before the first ``step()``. Every step multiplies α by 0.995. With 0 the loss is PEAR as
            published. Assigning another α starts the schedule again. The current α is part of ``state_dict``.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error for failed samples; "mask" leaves them out of the loss, with a warning.
            ``pear.fit`` leaves INACCURATE samples out of a step in both cases.
        reduction: "mean" (over the samples that are solved), "sum" or "none".

    Attributes:
        last: a ``LastCall`` with the decisions and statistics of the last call; None before the first call.
        samples: the number of samples of all calls.
        reused: the number of these samples whose warm start was still optimal.
        seconds: the time of all calls, by "solve" and "gradient". If compiled code does both in one call, all of its
            time counts as "solve".

    Example:
        >>> import torch, pear
        >>> simplex = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> loss = pear.PEARLoss(simplex, smoothing=1.0, injection=0.0, guidance=0.0)
        >>> predicted = torch.tensor([[0.2, 0.4]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[0.4, 0.2]]))
        >>> value.backward()
        >>> round(value.item(), 6), predicted.grad
        (0.04, tensor([[-0.2000,  0.2000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        smoothing: float | Literal["auto"] = GUIDED.smoothing,
        injection: float = GUIDED.injection,
        guidance: float = GUIDED.guidance,
        solver: str = "auto",
        on_failure: OnFailure = "raise",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(problem, smoothing, solver, on_failure)
        check_weighted_reduction(reduction)
        self.injection = check_number_setting("injection", injection, least=0.0)
        self.guidance = guidance
        self.reduction = reduction
        self.last: LastCall | None = None
        self.samples = self.reused = 0
        self.seconds = {"solve": 0.0, "gradient": 0.0}

    @property
    def guidance(self) -> float:
        """The strength α of guidance that the user gave."""
        return self._guidance

    @guidance.setter
    def guidance(self, guidance: float) -> None:
        self._guidance = self._alpha = check_number_setting("guidance", guidance, least=0.0)
        self._calls = 0  # calls with a gradient since the last step

    @property
    def current_guidance(self) -> float:
        """The strength α of guidance in use: the given α, multiplied by 0.995 for every step so far."""
        return self._alpha

    def step(self, steps: int = 1) -> None:
        """Lower the strength α of guidance after one or more steps of the optimiser.

        ``pear.fit`` calls this method. In your own training loop, call it after ``optimizer.step()``.

        Args:
            steps: the number of steps that the optimiser has taken.
        """
        self._alpha *= DECAY**steps
        self._calls = 0

    def get_extra_state(self) -> dict[str, Any]:
        """Return the smoothing in use and the current strength α of guidance, for ``state_dict``."""
        return {**super().get_extra_state(), "guidance": self._alpha}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the smoothing λ if ``smoothing`` is "auto", and the strength α if ``guidance`` is not 0."""
        super().set_extra_state(state)
        if self._guidance > 0:
            self._alpha = state.get("guidance", self._alpha)

    def extra_repr(self) -> str:
        """Return a line with the problem and a line with the settings."""
        strengths = f"injection={self.injection:g}, guidance={self._guidance:g}"
        return f"{super().extra_repr()}, {strengths}, reduction={self.reduction!r}"

    @eager
    def forward(
        self,
        predicted: Tensor,
        true: Any,
        keys: Tensor | Iterable[Hashable] | None = None,
        Q: Tensor | None = None,
        true_Q: Tensor | None = None,
        weight: Any = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            predicted: (B, n) predicted costs ĉ, or (B, k) predicted values.
            true: the true costs c or values, of the same shape.
            keys: B sample ids, under which solutions are stored for later calls. A solution under predicted costs is a
                warm start, which is checked before a solver is called. A solution under true costs is reused. If the
                problem has fields per sample, ids are the numbers of its rows.
            Q: (n, n) or (B, n, n) predicted curvature.
            true_Q: the curvature of the true objective; the problem's own if omitted.
            weight: (B,) how much each sample counts; all samples count equally if omitted. "mean" is then the weighted
                mean, and "sum" and "none" give weighted losses.

        Returns:
            A scalar, or (B,) with reduction "none", in the dtype of ``predicted``.
        """
        return self.detailed(predicted, true, keys, Q, true_Q, weight)[0]

    @on_module_device
    def detailed(
        self,
        predicted: Tensor,
        true: Any,
        keys: Tensor | Iterable[Hashable] | None = None,
        Q: Any = None,
        true_Q: Any = None,
        weight: Any = None,
    ) -> tuple[Tensor, LastCall]:
        """Compute the loss, and return it with a ``LastCall``, which has the decisions and statistics of the call.

        The arguments are those of ``forward``. The attribute ``last`` is this ``LastCall`` until the next call.
        """
        predicted, true = to_batch_tensor(predicted), to_batch_tensor(true)
        check_cost_pair(predicted, true)
        count = predicted.shape[0]
        ids = as_keys(keys, count, self.problem)
        weights = None if weight is None else read_weights(weight, count).to(predicted.device)
        shares_curvature = Q is not None and true_Q is Q
        finder: RegretFinder
        if (curved := getattr(self.given, "curvature_map", None)) is not None:
            Q, true_Q = curved.of_samples(self.problem, ids, predicted, true.detach())
        if self.recourse_model is None:
            predicted, true = self.costs(predicted, ids), self.costs(true, ids)
            lam, predicted, true, Q, true_Q = self.convert_to_units(predicted, true, ids, Q, true_Q, shares_curvature)
            finder = CostRegretFinder(self.decider)  # after convert_to_units, which may replace the decider
        else:
            self._refuse_with_recourse(true, Q if true_Q is None else true_Q)
            lam, finder = 0.0, RecourseRegretFinder(self.recourse_decider(true.detach(), ids))
        wanted = torch.is_grad_enabled() and (predicted.requires_grad or input_requires_gradient(Q))
        if self._alpha > 0 and torch.is_grad_enabled() and (true.requires_grad or input_requires_gradient(true_Q)):
            raise ProblemError(
                "guidance has no derivative with respect to the true costs; pass guidance=0 or true.detach()"
            )
        call = RegretCall(
            predicted.detach().clone(),  # ``last`` keeps it, and the caller may change the tensor
            true.detach(),
            lam,
            self.injection,
            ids,
            detach_input(Q),
            detach_input(true_Q),
            shares_curvature,
            guidance=self._alpha,
        )
        with self.decider.locked(ids), VariableNamesInErrors(model_variable_names(self.given)):
            found = finder.find(call, wanted, self.seconds)
            regrets = found.regrets
            if not found.all_solved:
                self._report_failures(found, wanted)
            fresh = found.all_solved and regrets.reused.is_cuda  # a fused pass on a GPU uses no warm starts
            last = self.record(call, regrets, wanted, reused=0 if fresh else None, finder=finder)
        good = count
        if not found.all_solved:
            good = int(((regrets.status == 0) & (regrets.true_status == 0)).sum())
        shares = 0 if weights is not None else {"none": 0, "sum": 1, "mean": max(good, 1)}[self.reduction]
        guided = GuidedCall(call, regrets, shares, self._problem.sign, good == count)
        value = guided_regret((predicted, true, Q, true_Q), guided)
        if weights is not None:
            weights = torch.where((regrets.status == 0) & (regrets.true_status == 0), weights, 0.0)
            value = reduce_weighted(value, weights, self.reduction)
        self.__dict__["_calls"] = self._calls + int(wanted)
        if self._calls == _MANY_CALLS and self._alpha > 0:
            logger.warning(
                f"PEARLoss was asked for {_MANY_CALLS:,} gradients since its last step, and guidance is still "
                f"{self._alpha:g}: call loss.step() after every step of the optimiser, as pear.fit does, or pass "
                "guidance=0.0"
            )
        return value, last

    def convert_to_units(
        self, predicted: Tensor, true: Tensor, keys: list[Hashable] | None, Q: Any, true_Q: Any, shares_curvature: bool
    ) -> tuple[float, Tensor, Tensor, Any, Any]:
        """Convert costs and curvatures to ``units``, the units in which "auto" measures variables.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs.
            keys: sample ids, or None.
            Q: (n, n) or (B, n, n) predicted curvature, or None.
            true_Q: the true curvature, or None.
            shares_curvature: whether the true objective has the predicted curvature.

        Returns:
            λ, predicted costs, true costs, predicted curvature and true curvature.
        """
        Q = None if Q is None else torch.as_tensor(Q)
        scale = self.settle_smoothing(true, keys, Q=Q)
        predicted, true, Q = scale.times_units(predicted), scale.times_units(true), self.curvature_of_call(Q, keys)
        if shares_curvature:
            true_Q = Q
        elif Q is not None or true_Q is not None:
            true_Q = self.curvature_of_call(true_Q, keys)
            true_Q = true_curvature_of_pair(self.decider.problem_of(keys), Q, true_Q, len(predicted))
        return scale.value, predicted, true, Q, true_Q

    def _refuse_with_recourse(self, true: Tensor, Q: Any) -> None:
        """Raise ProblemError for inputs that a model with predicted right-hand sides does not support."""
        if Q is not None:
            raise ProblemError("Q came with a model that predicts right-hand sides; predict the one or the other")
        if true.requires_grad and torch.is_grad_enabled():
            raise ProblemError(
                "a derivative with respect to the true values was asked for, and a model that predicts right-hand "
                "sides has none; pass true.detach()"
            )

    def _report_failures(self, found: BatchRegrets, wanted: bool) -> None:
        """Raise an error for failed samples, or, with ``on_failure="mask"``, warn of new failures."""
        regrets, known = found.regrets, found.known
        status, true_status = regrets.status, torch.where(regrets.status == 0, regrets.true_status, 0)
        if known is not None and self.on_failure == "mask":
            status, true_status = torch.where(known[0] == 0, status, 0), torch.where(known[1] == 0, true_status, 0)
        plain = self.recourse_model is None
        report_failures(status, self.on_failure, "the predicted costs" if plain else "the forecast", spreads=wanted)
        report_failures(true_status, self.on_failure, "the true costs" if plain else "the truth")

    def count(self, samples: int, reused: int) -> None:
        """Add numbers of samples to the totals ``samples`` and ``reused`` of all calls."""
        self.__dict__.update(samples=self.samples + samples, reused=self.reused + reused)  # Module.__setattr__ is slow

    def record(
        self,
        call: RegretCall,
        parts: RegretCallResults,
        wanted: bool = True,
        reused: int | None = None,
        finder: RegretFinder | None = None,
    ) -> LastCall:
        """Store the results of a call in ``last`` and return them; add its samples to the totals of all calls.

        Args:
            call: the inputs of the call. Its predicted costs are kept, and must not change later.
            parts: the regrets of the call.
            wanted: whether gradients were computed.
            reused: the number of samples whose warm start was still optimal; counted from ``parts`` if omitted.
            finder: the ``RegretFinder`` that computed the regrets; one for predicted costs if omitted.
        """
        reused, samples = count_true_in_tensor(parts.reused) if reused is None else reused, parts.value.shape[0]
        self.count(samples, reused)
        last = LastCall(
            decision=parts.x if self.recourse_model is not None else self.times_units(parts.x),
            regret=parts.value,
            reuse_rate=reused / max(samples, 1),
            kkt_residual=parts.kkt_residual,
            _parts=parts,
            _wanted=wanted,
            _call=call,
            _finder=CostRegretFinder(self.decider) if finder is None else finder,
        )
        self.__dict__["last"] = last
        return last

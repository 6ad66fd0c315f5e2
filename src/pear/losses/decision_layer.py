"""``DecisionLayer``: a torch module that decides, with exact derivatives with respect to all data of the problem."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.decided_batch import DecidedBatch
from pear.decisions.failures import OnFailure, report_failures
from pear.decisions.recourse_decider import RecourseDecider
from pear.errors import ProblemError, VariableNamesInErrors
from pear.losses.autograd_inputs import copy_in_dtype, fit_gradient_to_input, input_requires_gradient
from pear.losses.decision_module import DecisionModule, on_module_device
from pear.losses.defaults import DECISION
from pear.losses.eager import eager
from pear.losses.second_derivatives import refuse_second_derivatives, save_inputs
from pear.problem import Model, Problem
from pear.problem.matrix import MATRICES
from pear.problem.model import model_variable_names, problem_of_model
from pear.problem.problem_fields import FIELDS
from pear.problem.sample_keys import as_keys
from pear.problem.tensor_conversion import to_batch_tensor
from pear.sensitivity.derivatives import objective_derivatives

_INPUTS = ("cost", *FIELDS)
"""The inputs that have derivatives, in the order of ``objective_derivatives`` and ``DecidedBatch.derivatives``."""
_ROW_FIELDS = frozenset(FIELDS) - {"Q"}


class DecisionLayer(DecisionModule):
    """The decision z*(c, Q, A, b, G, h, lb, ub) as a layer with exact derivatives, for any loss L of the decision.

    For the upstream gradient w = ∂L/∂z at the decision z, the backward pass solves the reduced system

        [H Jᵀ; J 0][p; q] = [w; 0]

    with the factorisation of the forward pass. H is the curvature of the objective, smoothing included. J has the
    active rows of A and G, and v are their multipliers. The system contains only the variables that are not at a bound;
    p is zero for the others. With ∂c for ∂L/∂c and so on, the derivatives are

        ∂c = −p,    ∂Q = −½(p zᵀ + z pᵀ),    ∂(right-hand sides of J) = q,    ∂J = −(v pᵀ + q zᵀ),

    and ``∂bound = w − Hp − Jᵀq`` for a variable at a bound. For a maximum, ∂c and ∂Q have the opposite sign. Inactive
    constraints have derivative zero, and weakly active constraints count as active. If rows are linearly dependent,
    right-hand sides get the derivative of least norm, with rows scaled to length one.

    Args:
        problem: the decision problem; an integer problem is relaxed. The cost map of a ``Model`` maps predicted values
            to costs. If the model also predicts right-hand sides, the layer solves the elastic problem of its recourse.
        smoothing: λ ≥ 0, the curvature that is added to the objective; or "auto" (see ``calibrate``).
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error for failed samples. "mask" warns, and failed samples have decisions and
            derivatives of zero.

    Attributes:
        status: (B,) int8 of ``pear.Status``, the statuses of the last call, on the device that computed its decisions;
            None before the first call.

    Example:
        >>> import torch, pear
        >>> layer = pear.DecisionLayer(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0)
        >>> cost = torch.tensor([[0.2, 0.4]], requires_grad=True)
        >>> z = layer(cost)
        >>> z[0, 0].backward()
        >>> z, cost.grad
        (tensor([[0.6000, 0.4000]], grad_fn=<_LayerDecisionBackward>), tensor([[-0.5000,  0.5000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        smoothing: float | Literal["auto"] = DECISION.smoothing,
        solver: str = "auto",
        on_failure: OnFailure = "raise",
    ) -> None:
        if not problem_of_model(problem).has_program:
            raise ProblemError(
                "a DecisionLayer returns the decisions that it differentiates, and those of an Oracle have no "
                "derivative; pass its relaxation: pear.DecisionLayer(oracle.relaxation)"
            )
        if isinstance(problem, Model) and problem.curvature_map is not None:
            raise ProblemError(
                "the model predicts the weight of a quadratic term, and a layer takes curvature as Q: pass "
                "layer(m.cost(values), Q=m.curvature(values)) to a DecisionLayer(m.problem)"
            )
        super().__init__(problem, smoothing, solver, on_failure)
        self.status: Tensor | None = None

    @eager
    @on_module_device
    def forward(
        self,
        cost: Tensor,
        Q: Tensor | None = None,
        A: Tensor | None = None,
        b: Tensor | None = None,
        G: Tensor | None = None,
        h: Tensor | None = None,
        lb: Tensor | None = None,
        ub: Tensor | None = None,
        keys: Tensor | Iterable[Hashable] | None = None,
    ) -> Tensor:
        """Decide for a batch.

        Args:
            cost: (B, n) costs, or (B, k) values, which the cost map of a ``Model`` maps to costs.
            Q: (n, n) or (B, n, n) curvature. Q, A, b, G, h, lb and ub replace the problem's own fields in this call.
            A: (p, n) or (B, p, n) equality rows.
            b: (p,) or (B, p) right-hand sides of A.
            G: (m, n) or (B, m, n) inequality rows.
            h: (m,) or (B, m) right-hand sides of G.
            lb: (n,) or (B, n) lower bounds.
            ub: (n,) or (B, n) upper bounds.
            keys: B sample ids, as for ``PEARLoss``.

        Returns:
            (B, n) decisions in the dtype of ``cost``.
        """
        cost = to_batch_tensor(cost)
        ids = as_keys(keys, cost.shape[0], self.problem)
        fields = zip(FIELDS, (Q, A, b, G, h, lb, ub), strict=True)
        given: dict[str, Any] = {name: value for name, value in fields if value is not None}
        if self.recourse_model is not None:
            return self._under_forecast(cost, ids, given)
        cost = self.costs(cost, ids)
        scale = self.settle_smoothing(cost, ids, **given)
        lam, cost = scale.value, scale.times_units(cost)
        followed: set[str] = set()
        if given:
            given |= scale.fields({name: value for name, value in given.items() if name != "Q"})
            if "Q" in given:
                given["Q"] = self.curvature_of_call(given["Q"], ids)
            followed = {name for name in given if torch.is_grad_enabled() and input_requires_gradient(given[name])}
        with self.decider.locked(ids):
            decisions = self.decider.decide(
                cost.detach(), lam, ids, given, bool(followed - {"Q"}), by_matrices=bool(followed & {"A", "G"})
            )
        self._report_failures(decisions, cost)
        trained = cost.requires_grad or any(map(input_requires_gradient, given.values()))
        if not (trained and torch.is_grad_enabled()):
            return scale.times_units(copy_in_dtype(decisions.x, cost.dtype))
        return scale.times_units(self._differentiable(decisions, cost, given))

    def _differentiable(self, decisions: DecidedBatch, cost: Tensor, fields: dict[str, Any]) -> Tensor:
        """Return the decisions (B, n) as an autograd function of the costs and the given fields."""
        names = model_variable_names(self.given)
        found: Tensor = _LayerDecision.apply(decisions, self.problem.sign, names, tuple(fields), cost, *fields.values())
        return found

    def _report_failures(self, decisions: DecidedBatch, inputs: Tensor) -> None:
        """Store the statuses of the call in ``status``; raise an error or warn if samples failed."""
        self.__dict__["status"] = decisions.status  # faster than Module.__setattr__, which checks the type
        if not decisions.all_solved:
            trained = torch.is_grad_enabled() and inputs.requires_grad
            report_failures(decisions.status, self.on_failure, "the decision layer", spreads=trained)

    def _under_forecast(self, values: Tensor, ids: list[Hashable] | None, given: dict[str, Any]) -> Tensor:
        """Solve the elastic problem under predicted values (B, k); return differentiable decisions (B, n)."""
        RecourseDecider.refuse_fields(given)
        decider = self.recourse_decider(values.detach(), ids)
        forecast, elastic = decider.values(values, ids), decider.elastic
        detached = forecast.detach()
        with self.decider.locked(ids):
            found = decider.decide(detached, ids, decider.known_failures(detached, ids))
        decisions = DecidedBatch(found.solved)
        self._report_failures(decisions, values)
        fields = elastic.fields(forecast.sides, forecast.matrices)
        cost = torch.cat([forecast.cost, found.cost[:, elastic.n :]], 1)
        return self._differentiable(decisions, cost, fields)[:, : elastic.n].to(values.dtype)


class _LayerDecision(torch.autograd.Function):
    """The decision as an autograd function, whose backward pass reuses the factorisation of the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        decisions: DecidedBatch,
        sign: int,
        names: tuple[str, ...],
        given: tuple[str, ...],
        cost: Tensor,
        *fields: Any,
    ) -> Tensor:
        ctx.decisions, ctx.sign, ctx.names, ctx.given = decisions, sign, names, ("cost", *given)
        ctx.inputs = [(t.dtype, t.shape) if isinstance(t, Tensor) else None for t in (cost, *fields)]
        save_inputs(ctx, cost, *fields)
        ctx.matrices = [
            (name, t, t._version) for name, t in zip(given, fields, strict=True) if _is_tracked_matrix(name, t)
        ]
        # a copy: the caller may change it in place, and the backward pass needs the original
        return copy_in_dtype(decisions.x, cost.dtype)

    @staticmethod
    @refuse_second_derivatives
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        """Compute ∂L/∂input for each input that requires a gradient, from ``up`` (B, n), which is ∂L/∂z."""
        _check_unchanged_matrices(ctx.matrices)
        decisions, w, needed = ctx.decisions, up.double(), ctx.needs_input_grad[4:]
        by_rows = any(need and name in _ROW_FIELDS for name, need in zip(ctx.given, needed, strict=True))
        with VariableNamesInErrors(ctx.names):
            if by_rows:
                found = decisions.derivatives(w, ctx.sign)
            else:
                found = objective_derivatives(decisions.project(w), decisions.x, ctx.sign)
        grads = [
            fit_gradient_to_input(found[_INPUTS.index(name)](), *kind) if need and kind is not None else None
            for name, need, kind in zip(ctx.given, needed, ctx.inputs, strict=True)
        ]
        return (None, None, None, None, *grads)


def _is_tracked_matrix(name: str, value: Any) -> bool:
    """Return whether a field is a matrix in a tensor that counts its in-place changes."""
    return name in MATRICES and isinstance(value, Tensor) and not value.is_inference()


def _check_unchanged_matrices(matrices: list[tuple[str, Tensor, int]]) -> None:
    """Raise an error if a matrix was changed in place after the forward pass, which does not copy matrices.

    Args:
        matrices: the name of each matrix, its tensor, and the version of the tensor in the forward pass.

    Raises:
        ProblemError: the version of a matrix has changed.
    """
    for name, value, version in matrices:
        if value._version != version:
            raise ProblemError(
                f"{name} was changed in place between the decision and backward(), which needs the old values; pass "
                f"{name}.clone() to the layer, or change {name} after backward()"
            )

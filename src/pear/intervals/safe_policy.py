"""``SafePolicy``: acts on a forecast if the bound on the cost allows it, and otherwise takes a safe decision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.intervals.bounded_decisions import label_decisions, tabulate_decisions
from pear.intervals.conformal_rule import RATE, ConformalRule, Order
from pear.intervals.cost_residuals import CostResiduals
from pear.intervals.decision_costs import (
    Array,
    PlannedDecisions,
    cost_of_decisions,
    plan_decision_costs,
    read_forecasts_and_truth,
)
from pear.optimality.rule import OPTIMAL
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.matrix import matvec
from pear.problem.model import model_with_predicted_rows, problem_of_model


@dataclass(frozen=True, eq=False, repr=False)
class SafeDecisions:
    """B decisions, each of which is either the plan under the forecast or the fallback.

    Amounts are in the problem's own sense.

    Attributes:
        decisions: (B, n) an array, or a DataFrame if the features are one.
        acted: (B,) bool, True for the plan, False for the fallback.
        planned: (B,) what the plan costs if its forecast comes true. Unless the policy has a limit, the cost of the
            fallback under the same forecast is subtracted.
        bound: (B,) the bound on the realised value of ``planned``: an upper bound of costs, a lower bound of gains.
        limit: the value with which the bound is compared; 0 if the policy has no limit.
        variables: names of the n variables.
    """

    decisions: Any
    acted: Any
    planned: Array
    bound: Array
    limit: float
    variables: Sequence[Any]

    def to_frame(self) -> Any:
        """Return a DataFrame with a row for each decision: acted, planned and bound, and then the variables."""
        columns = {"acted": self.acted, "planned": self.planned, "bound": self.bound}
        return tabulate_decisions(columns, self.decisions, self.variables)

    def __repr__(self) -> str:
        return f"SafeDecisions({len(self.acted)} of {len(self.variables)} variables, {int(self.acted.sum())} acted on)"


class SafePolicy:
    """A policy that takes the plan, the decision under a forecast, if it is safe enough, and otherwise a fallback.

    Without a limit, the policy bounds the cost of the plan minus the cost of the fallback, and takes the plan if the
    bound is at most 0. With a limit, the policy bounds the cost of the plan, and takes the plan if the bound is at most
    the limit. If the problem maximises, the lower bound on the gain must be at least 0, or at least the limit.

    Bounds hold with the probability ``level`` over all samples, whether or not the plan is taken. Among the samples for
    which the plan is taken, they may be missed more often. Test the policy on past samples, and see
    ``CostIntervals.walk``.

    Args:
        model: a fitted ``DecisionRegressor``; or any object with ``predict(X)`` that forecasts values of ``problem``.
        fallback: a decision (n,), a decision for each row (B, n), a function from X to one of these, or an object with
            ``decide(X)``. The fallback must be feasible.
        problem: the decision problem; if omitted, that of the model.
        limit: the highest cost, or the smallest gain, that the plan may have; None compares plan and fallback.
        level: the probability of the bound, for each sample.
        order, half_life, rate: as for ``CostIntervals``.

    Attributes:
        residuals: for each calibration sample, the realised minus the planned cost of the plan; without a limit, of the
            difference in cost between the plan and the fallback. Gains count as negative costs.

    Example:
        >>> import numpy as np, pear
        >>> rng = np.random.default_rng(0)
        >>> trade = pear.Problem(lb=[-1.0], ub=[1.0])  # sell or buy a unit
        >>> X = rng.normal(size=(200, 1))
        >>> price = X + rng.normal(size=(200, 1))
        >>> class Forecaster:
        ...     predict = staticmethod(lambda X: X)
        >>> policy = pear.SafePolicy(Forecaster(), fallback=[0.0], problem=trade, level=0.9).calibrate(X, price)
        >>> policy.decide([[0.2], [3.0]]).decisions.tolist()
        [[0.0], [-1.0]]
    """

    def __init__(
        self,
        model: Any,
        fallback: Any,
        *,
        problem: Problem | Model | None = None,
        limit: float | None = None,
        level: float = 0.9,
        order: Order = "time",
        half_life: float | None = None,
        rate: float = RATE,
    ) -> None:
        own = getattr(model, "problem", None) if problem is None else problem
        if own is None or not hasattr(model, "predict"):
            raise ProblemError(
                "model must be a fitted DecisionRegressor, or anything with predict(X) and then problem=…; got "
                f"{type(model).__name__}"
            )
        problem_of_model(own)
        if limit is not None and not math.isfinite(limit):
            raise ProblemError(f"limit must be a finite cost, or None to compare with the fallback; got {limit!r}")
        self.model, self.fallback, self.problem, self.limit, self.level = model, fallback, own, limit, level
        self.rule = ConformalRule(order, half_life, rate)
        self.rule.samples_needed(level, two_sided=False)  # raises for an invalid level
        self.residuals = CostResiduals(np.empty(0), np.empty(0))

    def calibrate(self, X: Any, y: Any, *, append: bool = False, **rows: Any) -> Self:
        """Learn from past samples that the model has not seen, and return this object.

        In time order, the latest sample comes last.

        Args:
            X: features, in the form that the model's ``predict`` accepts.
            y: (N, k) the k true values of each sample.
            append: True to keep the samples of earlier calls, which come before these samples.
            **rows: further arguments for these samples, if the model needs them: ``known`` or ``problem``, and for a
                ``DecisionRegressor`` also ``groups`` or ``base_forecast``.
        """
        problem, values, true = self._rows(X, y, rows)
        values, true = read_forecasts_and_truth(problem, values, true)
        plan, other, size = self._compare(problem, X, values)
        came_true = cost_of_decisions(problem, plan.z, true)
        if other is not None:
            came_true = came_true - cost_of_decisions(problem, other, true)
        value = self._sign * (came_true - size)
        new = CostResiduals(np.abs(size), value)
        if append:
            new = CostResiduals(*(np.append(old, one) for old, one in zip(self.residuals, new, strict=True)))
        self.residuals = new
        return self

    def decide(self, X: Any, **rows: Any) -> SafeDecisions:
        """Return the plan or the fallback for every row of X.

        Args:
            X: features, as for ``calibrate``.
            **rows: further arguments, as for ``calibrate``.

        Raises:
            ProblemError: there are too few calibration samples for the level, or the fallback is not feasible.
        """
        if not len(self.residuals.value):
            raise ProblemError("nothing is calibrated; call calibrate(X, y) with rows that the model has not seen")
        problem, values, _ = self._rows(X, None, rows)
        plan, other, planned = self._compare(problem, X, values)
        upper = self.rule.bounds(self.residuals, np.abs(planned), self.level, two_sided=False).upper
        bound, limit = planned + self._sign * upper, 0.0 if self.limit is None else float(self.limit)
        acted = self._sign * bound <= self._sign * limit
        safe = self._fallback(problem, X, len(values)) if other is None else other
        found = torch.where(torch.from_numpy(acted).to(plan.z.device)[:, None], plan.z, safe.to(plan.z)).cpu().numpy()
        decisions, names = label_decisions(problem, found, X)
        return SafeDecisions(decisions, acted, planned, bound, limit, names)

    def _rows(self, X: Any, y: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Return the problem, the forecasts and the true values of N samples.

        Args:
            X: features of the samples.
            y: true values, or None.
            given: further arguments for these samples, by name.

        Returns:
            The problem with the known values of the samples, the forecasts (N, k), and the true values (N, k) or None.
        """
        if hasattr(self.model, "rows_to_decide"):
            own = {} if self.problem is self.model.problem else {"problem": self.problem}
            found = self.model.rows_to_decide(X, y, **{**own, **given})
            return found.problem, found.values, found.true
        if extra := sorted(set(given) - {"known", "problem"}):
            raise ProblemError(f"{extra[0]}= is for a DecisionRegressor; {type(self.model).__name__} does not take it")
        predicted = self.model.predict(X)
        values, true = (
            (None if one is None else np.asarray(one)[:, None] if np.ndim(one) == 1 else one) for one in (predicted, y)
        )
        return fill_known_samples(given.get("problem", self.problem), given.get("known"), values), values, true

    def _compare(self, problem: Any, X: Any, values: Tensor) -> tuple[PlannedDecisions, Tensor | None, Array]:
        """Return the plans, the fallback, and the planned amounts that need bounds.

        Returns:
            The plans. With a limit: None and the planned costs (B,). Without one: the fallback (B, n), and the planned
            costs of the plans minus those of the fallback (B,).
        """
        plan = plan_decision_costs(problem, values)
        if self.limit is not None:
            return plan, None, plan.planned
        other = self._fallback(problem, X, len(values))
        return plan, other, plan.planned - cost_of_decisions(problem, other, values)

    def _fallback(self, problem: Any, X: Any, count: int) -> Tensor:
        """Return the fallback for ``count`` samples, (B, n). Raise ``ProblemError`` if it is not feasible."""
        given = self.fallback
        if hasattr(given, "decide"):
            given = given.decide(X)
        elif callable(given):
            given = given(X)
        z = torch.as_tensor(np.asarray(given, dtype=np.float64))
        n = problem_of_model(problem).n
        if z.shape not in ((n,), (count, n)):
            raise ProblemError(
                f"the fallback must be a decision ({n},), or one for each row, ({count}, {n}); got {tuple(z.shape)}"
            )
        z = z.expand(count, n)
        _check_fallback(problem, z)
        return z

    @property
    def _sign(self) -> int:
        """1 if the problem minimises, −1 if it maximises."""
        return problem_of_model(self.problem).sign

    def __repr__(self) -> str:
        aim = "better than the fallback" if self.limit is None else f"limit {self.limit:g}"
        return f"SafePolicy({aim}, level {self.level:g}, {len(self.residuals.value)} calibration samples)"


def _check_fallback(problem: Problem | Model, z: Tensor) -> None:
    """Raise ``ProblemError`` if a fallback z (B, n) is infeasible.

    For an oracle, and with predicted right-hand sides, every fallback is accepted.
    """
    plain = problem_of_model(problem)
    if not plain.has_program or model_with_predicted_rows(problem) is not None:
        return
    qp = plain.relaxed().canonical(torch.zeros_like(z, device=plain.device))
    z = z.to(plain.device)
    slack = torch.cat([-(matvec(qp.A, z) - qp.b).abs(), qp.h - matvec(qp.G, z), z - qp.lb, qp.ub - z], 1)
    size = 1 + z.abs().amax(1, keepdim=True)
    worst = (slack / size).amin(1)
    if bool((worst < -_FEASIBLE).any()):
        at = int(worst.argmin())
        raise ProblemError(
            f"the fallback violates a constraint of sample {at} by {float(-slack[at].min()):.3g}; it must be a "
            "decision that can always be taken"
        )


_FEASIBLE = 100 * OPTIMAL
"""Largest relative violation of a fallback that counts as feasible."""

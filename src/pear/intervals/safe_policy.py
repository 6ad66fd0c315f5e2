"""``SafePolicy``: act on a forecast where the bound on its cost allows it, and fall back to a safe plan elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.intervals.conformal_rule import RATE, ConformalRule, Order
from pear.intervals.decision_costs import Array, PlannedDecisions, cost_of_decisions, plan_decisions, read_pair
from pear.intervals.residual_scores import Residuals
from pear.optimality.rule import OPTIMAL
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.matrix import matvec
from pear.problem.model import model_with_predicted_rows, problem_of_model
from pear.problem.pandas_data import is_pandas_frame


@dataclass(frozen=True, eq=False, repr=False)
class SafeDecisions:
    """B decisions, each of them the plan under the forecast or the fallback.

    Attributes:
        decisions: (B, n) an array, or a DataFrame where X is one.
        acted: (B,) bool, whether the plan is taken.
        planned: (B,) what the plan costs if its forecast comes true; less the cost of the fallback then, unless the
            policy has a limit. In the problem's own sense.
        bound: (B,) its worst value with the policy's level: the upper bound of a cost, the lower bound of a gain.
        limit: the value that the bound is compared with.
        variables: n names.
    """

    decisions: Any
    acted: Any
    planned: Array
    bound: Array
    limit: float
    variables: Sequence[Any]

    def to_frame(self) -> Any:
        """A DataFrame with a row for each decision: whether it acts, plan and bound, and then the variables."""
        import pandas

        table = self.decisions
        if not isinstance(table, pandas.DataFrame):
            table = pandas.DataFrame(table, columns=list(self.variables))
        said = {"acted": self.acted, "planned": self.planned, "bound": self.bound}
        return pandas.concat([pandas.DataFrame(said, index=table.index), table], axis=1)

    def __repr__(self) -> str:
        return f"SafeDecisions({len(self.acted)} of {len(self.variables)} variables, {int(self.acted.sum())} acted on)"


class SafePolicy:
    """Takes the plan under a forecast where it is safe enough, and a fallback elsewhere.

    Without a limit, the difference of the two costs is bounded, plan minus fallback, and the plan is taken where the
    bound is at most 0: it then is no worse than the fallback with the probability ``level``. With a limit, the plan is
    taken where the bound of its cost is at most the limit; of a gain, where the bound is at least the limit.

    The probability is that of a sample before it is known whether the plan is taken. Among the samples that are acted
    on, misses may be more frequent; ``walk`` of ``CostIntervals`` and a test over past days show it.

    Args:
        model: a fitted ``DecisionRegressor``; or anything with ``predict(X)``, whose forecasts are values of
            ``problem``.
        fallback: (n,) a decision, (B, n) one for each row, a function from X to these, or anything with ``decide(X)``.
            It must be feasible.
        problem: the decision problem; that of the model if omitted.
        limit: the highest cost, or least gain, that the plan may have; None compares plan and fallback.
        level: the probability of the bound, for each sample.
        order, half_life, rate: as for ``CostIntervals``.

    Attributes:
        residuals: the residuals of the calibration samples.

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
        self.rule.samples_needed(level, two_sided=False)  # which refuses a level that is none
        self.residuals = Residuals(np.empty(0), np.empty(0))

    def calibrate(self, X: Any, y: Any, *, append: bool = False, **rows: Any) -> Self:
        """Learn from rows that the model has not seen; in time order, the last one comes last.

        Args:
            X: rows as the model takes them.
            y: (N, k) the true values.
            append: keep earlier rows, which come before these.
            **rows: what else the model needs for these rows: ``groups``, ``base_forecast``, ``known`` or ``problem``.
        """
        problem, values, true = self._rows(X, y, rows)
        values, true = read_pair(problem, values, true)
        plan, other, size = self._compare(problem, X, values)
        came_true = cost_of_decisions(problem, plan.z, true)
        if other is not None:
            came_true = came_true - cost_of_decisions(problem, other, true)
        value = self._sign * (came_true - size)
        new = Residuals(np.abs(size), value)
        if append:
            new = Residuals(*(np.append(old, one) for old, one in zip(self.residuals, new, strict=True)))
        self.residuals = new
        return self

    def decide(self, X: Any, **rows: Any) -> SafeDecisions:
        """Take the plan or the fallback for every row of X; ``rows`` are as for ``calibrate``.

        Raises:
            ProblemError: there are too few calibration rows for the level, or the fallback is not feasible.
        """
        if not len(self.residuals.value):
            raise ProblemError("nothing is calibrated; call calibrate(X, y) with rows that the model has not seen")
        problem, values, _ = self._rows(X, None, rows)
        plan, _, planned = self._compare(problem, X, values)
        upper = self.rule.bounds(self.residuals, np.abs(planned), self.level, two_sided=False).upper
        bound, limit = planned + self._sign * upper, 0.0 if self.limit is None else float(self.limit)
        acted = self._sign * bound <= self._sign * limit
        safe = self._fallback(problem, X, len(values))
        found = torch.where(torch.from_numpy(acted).to(plan.z.device)[:, None], plan.z, safe.to(plan.z)).cpu().numpy()
        names = problem.variables if isinstance(problem, Model) else tuple(f"x{i}" for i in range(found.shape[1]))
        if is_pandas_frame(X) and len(X) == len(found):
            import pandas

            return SafeDecisions(pandas.DataFrame(found, X.index, list(names)), acted, planned, bound, limit, names)
        return SafeDecisions(found, acted, planned, bound, limit, names)

    def _rows(self, X: Any, y: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
        """The problem of these rows, known values filled in, the forecasts (N, k), and the true values or None."""
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
        """The plans, the fallback where it is compared with them, and what is planned: a cost, or a difference."""
        plan = plan_decisions(problem, values)
        if self.limit is not None:
            return plan, None, plan.planned
        other = self._fallback(problem, X, len(values))
        return plan, other, plan.planned - cost_of_decisions(problem, other, values)

    def _fallback(self, problem: Any, X: Any, count: int) -> Tensor:
        """(B, n) decisions of the fallback, checked."""
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
        _check_feasible(problem, z)
        return z

    @property
    def _sign(self) -> int:
        return problem_of_model(self.problem).sign

    def __repr__(self) -> str:
        aim = "better than the fallback" if self.limit is None else f"limit {self.limit:g}"
        return f"SafePolicy({aim}, level {self.level:g}, {len(self.residuals.value)} calibration samples)"


def _check_feasible(problem: Problem | Model, z: Tensor) -> None:
    """Raise ProblemError where a fallback violates the constraints; the violations of a recourse have their price."""
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
"""Relative violation up to which a fallback counts as feasible."""

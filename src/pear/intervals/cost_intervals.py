"""``CostIntervals``: bounds on what the decisions of any forecaster will cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from pear.errors import ProblemError
from pear.intervals.bounded_decisions import BoundedDecisions, Quantity, label_decisions
from pear.intervals.conformal_rule import RATE, ConformalRule, Order, ResidualBounds
from pear.intervals.cost_residuals import CostResiduals
from pear.intervals.decision_costs import (
    Array,
    cost_of_decisions,
    plan_decision_costs,
    read_forecasts_and_truth,
    regrets_of_decision_costs,
)
from pear.intervals.interval_record import IntervalRecord
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import problem_of_model
from pear.problem.pandas_data import check_pandas_rows, shared_pandas_index

_QUANTITIES = ("cost", "regret")


class CostIntervals:
    """Bounds on the cost or the regret of decisions, from calibration samples whose true values are known.

    The calibration samples must be new to the forecaster: they have been used neither to train it nor to choose it. The
    bounds follow from the ranks of the differences between realised and planned costs (conformal prediction). They need
    only the forecasts, and assume nothing about the forecaster or about the distribution of these differences.

    Args:
        problem: the decision problem. A ``Model`` maps predicted values to costs and to right-hand sides.
        of: "cost" for lower and upper bounds on what a decision costs; "regret" for upper bounds on its regret.
        order: "time" for samples in time order. Each bound then moves outwards after a sample that misses it, and
            inwards after any other (``rate``). Later samples may have larger weights (``half_life``). "exchangeable"
            for samples whose order has no meaning. Bounds then hold with at least the promised probability, even with
            few samples.
        half_life: in time order, the number of samples after which the weight of a sample has halved; None for equal
            weights.
        rate: in time order, from 0 to 1, about how far a bound moves outwards after a miss, relative to the width of
            the interval; with 0, bounds are quantiles.

    Attributes:
        planned: (N,) planned costs of the calibration samples.
        realised: (N,) realised costs, or regrets, of the calibration samples.

    Example:
        >>> import numpy as np, pear
        >>> rng = np.random.default_rng(0)
        >>> choose_one = pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0)
        >>> true = rng.uniform(1, 5, (200, 3))
        >>> forecast = true + rng.normal(size=true.shape)
        >>> intervals = pear.CostIntervals(choose_one).calibrate(forecast[:150], true[:150])
        >>> found = intervals.bounds(forecast[150:], level=0.9)
        >>> cost = (found.decisions * true[150:]).sum(1)
        >>> float(((found.lower <= cost) & (cost <= found.upper)).mean())
        0.88
    """

    def __init__(
        self,
        problem: Problem | Model,
        of: Quantity = "cost",
        *,
        order: Order = "time",
        half_life: float | None = None,
        rate: float = RATE,
    ) -> None:
        problem_of_model(problem)  # raises for anything that is not a problem
        if of not in _QUANTITIES:
            raise ProblemError(f'of must be "cost" or "regret"; got {of!r}')
        self.problem, self.of, self.rule = problem, of, ConformalRule(order, half_life, rate)
        self.planned: Array = np.empty(0)
        self.realised: Array = np.empty(0)

    def calibrate(
        self,
        forecasts: Any,
        true: Any,
        *,
        problem: Problem | Model | None = None,
        known: Any = None,
        append: bool = False,
    ) -> Self:
        """Learn from samples whose true values are known, and return this object.

        In time order, the latest sample comes last.

        Args:
            forecasts: (N, k), k predicted values of each sample.
            true: (N, k) true values.
            problem: the problem of these samples, if fields of the problem differ between samples.
            known: the known values of each sample, if the model has any; see ``Model.with_known``.
            append: True to keep the samples of earlier calls, which come before these samples.

        Raises:
            ProblemError: the shapes differ, or a number is not finite.
            SolveError: a sample has no decision.
        """
        planned, realised = self._past(forecasts, true, problem, known)
        if append:
            planned, realised = np.append(self.planned, planned), np.append(self.realised, realised)
        self.planned, self.realised = planned, realised
        return self

    def bounds(
        self, forecasts: Any, level: float = 0.9, *, problem: Problem | Model | None = None, known: Any = None
    ) -> BoundedDecisions:
        """Return decisions under forecasts, and bounds on their realised costs or regrets.

        Args:
            forecasts: (B, k), k predicted values of each sample. The samples come after those of ``calibrate``.
            level: the probability with which the cost or regret of a decision lies within its bounds.
            problem, known: as for ``calibrate``.

        Raises:
            ProblemError: there are too few calibration samples for the level; the message says how many are needed.
        """
        own = fill_known_samples(self.problem if problem is None else problem, known, forecasts)
        made = plan_decision_costs(own, forecasts)
        lower, upper = self.amounts(made.planned, level)
        decisions, names = label_decisions(own, made.z.cpu().numpy(), forecasts)
        return BoundedDecisions(decisions, made.planned, lower, upper, level, self.of, names)

    def amounts(self, planned: Array, level: float) -> tuple[Array, Array]:
        """Return lower and upper bounds, (B,) each, for decisions with planned costs (B,).

        Raises:
            ProblemError: there are no calibration samples, or too few for the level.
        """
        if not len(self.planned):
            raise ProblemError("nothing is calibrated; call calibrate(…) with samples that the forecaster has not seen")
        own = self._residuals(self.planned, self.realised)
        found = self.rule.bounds(own, np.abs(planned), level, two_sided=self.of == "cost")
        return self._in_own_sense(planned, found)

    def walk(
        self,
        forecasts: Any,
        true: Any,
        level: float = 0.9,
        *,
        gap: int = 0,
        problem: Problem | Model | None = None,
        known: Any = None,
    ) -> IntervalRecord:
        """Return bounds on the cost or regret of each past sample, from the samples before it, and what was realised.

        The samples of ``calibrate`` are neither used nor changed.

        Args:
            forecasts: (N, k), k predicted values of each sample, in time order. The forecaster must not have been
                trained on the samples that it forecasts.
            true: (N, k) true values.
            level: the probability that the bounds promise.
            gap: the number of samples directly before a sample that are not used for it, because their true values are
                still unknown when the sample is decided.
            problem, known: as for ``calibrate``.

        Raises:
            ProblemError: the samples are too few for any bound at this level; the message says how many are needed.
        """
        if isinstance(gap, bool) or not isinstance(gap, (int, np.integer)) or gap < 0:
            raise ProblemError(f"gap must be a whole number of samples, at least 0; got {gap!r}")
        planned, realised = self._past(forecasts, true, problem, known)
        found = self.rule.walk(self._residuals(planned, realised), level, self.of == "cost", int(gap))
        bounds = self._in_own_sense(planned, found)
        if not np.isfinite(bounds[1]).any():
            needed = self.rule.samples_needed(level, self.of == "cost") + gap
            raise ProblemError(
                f"an interval of level {level:g} needs {needed} samples before the first that has one, and there are "
                f"{len(planned)} in all; give more, or ask for a lower level"
            )
        return IntervalRecord(planned, realised, *bounds, level, self.of, shared_pandas_index(true, forecasts))

    def content(self) -> dict[str, Any]:
        """Return settings and calibration as a dict of numbers, texts and arrays, for a model file; see ``restore``."""
        rule = self.rule
        settings = {"of": self.of, "order": rule.order, "half_life": rule.half_life, "rate": rule.rate}
        return settings | {"planned": self.planned, "realised": self.realised}

    @classmethod
    def restore(cls, problem: Problem | Model, content: Mapping[str, Any]) -> Self:
        """Return intervals for this problem with the settings and the calibration in ``content``.

        Raises:
            ValueError: the costs of the calibration are not finite, or differ in shape.
        """
        said = dict(content)
        planned, realised = (np.asarray(said.pop(name), dtype=np.float64) for name in ("planned", "realised"))
        if planned.ndim != 1 or planned.shape != realised.shape or not np.isfinite([planned, realised]).all():
            raise ValueError(
                "the planned and realised costs of a calibration must be finite numbers, (N,) each; got shapes "
                f"{planned.shape} and {realised.shape}"
            )
        made = cls(problem, said.pop("of"), **said)
        made.planned, made.realised = planned, realised
        return made

    def _past(self, forecasts: Any, true: Any, problem: Any, known: Any) -> tuple[Array, Array]:
        """Return planned costs, and realised costs or regrets, of samples whose truth is known, (N,) each."""
        check_pandas_rows({"forecasts": forecasts, "true": true, "known": known})
        own = fill_known_samples(self.problem if problem is None else problem, known, forecasts)
        predicted, came_true = read_forecasts_and_truth(own, forecasts, true)
        made = plan_decision_costs(own, predicted)
        cost = cost_of_decisions(own, made.z, came_true)
        return made.planned, cost if self.of == "cost" else regrets_of_decision_costs(own, cost, came_true)

    def _residuals(self, planned: Array, realised: Array) -> CostResiduals:
        """Return residuals: realised minus planned costs of the minimised problem, or regrets."""
        value = realised if self.of == "regret" else self._sign * (realised - planned)
        return CostResiduals(np.abs(planned), value)

    def _in_own_sense(self, planned: Array, found: ResidualBounds) -> tuple[Array, Array]:
        """Return bounds on costs in the problem's own sense, or on regrets: lower and upper bounds, (B,) each.

        Args:
            planned: (B,) planned costs.
            found: bounds on the residuals, which are those of the minimised problem.
        """
        if self.of == "regret":
            return np.where(np.isnan(found.upper), np.nan, 0.0), np.maximum(found.upper, 0.0)
        ends = [planned + self._sign * one for one in found]
        return (ends[0], ends[1]) if self._sign > 0 else (ends[1], ends[0])

    @property
    def _sign(self) -> int:
        """1 if the problem minimises, −1 if it maximises."""
        return problem_of_model(self.problem).sign

    def __repr__(self) -> str:
        return f"CostIntervals(of {self.of!r}, order {self.rule.order!r}, {len(self.planned)} calibration samples)"

"""The regret of a model that predicts right-hand sides, attributed to the predicted values.

Let y be the true and ŷ the predicted values, F(z; y) the cost of a decision z under y, which includes the price of
violations, and V(y) the smallest F(z; y) over all z. With a ``Penalty``, the decision is the ẑ that minimises F(z; ŷ),
and its realised cost is F(ẑ; y). The regret is therefore

    [V(ŷ) − V(y)] + [F(ẑ; y) − F(ẑ; ŷ)].

The second difference is a sum over costs and violated constraints, and it is known which predicted values each of them
depends on. The first difference is attributed in steps from y to ŷ (``forecast_steps``); V is continuous, even with
integers. With a ``Projection``, the realised cost as a whole is attributed in such steps. Costs and values in this file
are those of the minimised problem.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pear.decisions.recourse_decider import RecourseDecider
from pear.diagnosis.constraint_violations import find_violations
from pear.diagnosis.decision_path import ACCURACY
from pear.diagnosis.forecast_steps import follow_forecast_steps
from pear.optimality.status import Status
from pear.problem import Model, Penalty
from pear.wording import format_percent

MOST_DECISIONS = 20_000
"""Largest number of decisions that are computed for an attribution."""
MOST_INTEGER_DECISIONS = 2_000
"""Largest number of decisions that are computed for an attribution if there are integers."""
_AT_A_TIME, _AT_A_TIME_OWN = 4_096, 256  # decisions of a batch; the latter if samples differ in their constraints


class RecourseAttribution:
    """An attribution of regrets to the predicted values of a model with a recourse.

    Args:
        model: a model with a constraint map and a recourse.
        predicted: (B, k) predicted values.
        true: (B, k) true values.
        decision: (B, n) decisions under the predicted values.
        best: (B,) the realised cost of the best decisions.
        solver: "auto" or a name that ``pear solvers`` lists.
    """

    def __init__(
        self, model: Model, predicted: Tensor, true: Tensor, decision: Tensor, best: Tensor, solver: str
    ) -> None:
        self.model, self.predicted, self.true = model, predicted, true
        self.decision, self.best, self.solver = decision, best, solver
        own_costs = model.cost_map is not None and model.cost_map.batch is not None
        self._own_rows = model.problem.batch is not None or own_costs
        self._by_value = isinstance(model.recourse, Penalty)

    def attribute(self, regret: Tensor) -> tuple[dict[str, Tensor], list[str]]:
        """Attribute regret (B,) to the predicted values.

        Returns:
            The fields ``attribution``, ``attributed``, ``margin`` and ``pieces`` of a ``Diagnosis``, and sentences on
            the samples whose regret is not attributed.
        """
        separable = self._separable_parts() if self._by_value else torch.zeros_like(self.true)
        last = self._value_of_decision() if self._by_value else self.best + regret
        most = MOST_INTEGER_DECISIONS if self.model.problem.is_integer else MOST_DECISIONS
        at = _AT_A_TIME_OWN if self._own_rows else _AT_A_TIME
        ends = self.best, last
        stepped = follow_forecast_steps(self._evaluate, self.true, self.predicted, ends, regret, most, at)
        parts = stepped.parts + separable
        size = self.best.abs() + last.abs() + regret + separable.abs().sum(1)
        known = (parts.sum(1) - regret).abs() <= ACCURACY * size  # False where a part is NaN
        attributed = {
            "attribution": torch.where(known[:, None], parts, torch.nan),
            "attributed": known,
            "margin": torch.full_like(regret, torch.nan),
            "pieces": torch.where(known, stepped.steps, 0),
        }
        return attributed, _describe_missing_attribution(regret, known.cpu(), stepped.followed, most)

    def _model_of(self, samples: Tensor) -> Model:
        """Return the model restricted to M samples (M,), or the whole model if all samples share it."""
        return self.model[samples] if self._own_rows else self.model

    def _evaluate(self, values: Tensor, samples: Tensor) -> Tensor:
        """Return the function whose change is attributed in steps (see the module), at M points.

        With a ``Penalty``, it is V, the smallest cost under the given values. With a ``Projection``, it is the realised
        cost, under the true values, of the decision under the given values.

        Args:
            values: (M, k) k values at each of M points.
            samples: (M,) numbers of the samples.

        Returns:
            (M,) costs, NaN if there is no decision.
        """
        model = self._model_of(samples)
        decider = RecourseDecider(model, self.solver)
        forecast = decider.values(values, None)
        if model.problem.is_integer:
            solution = decider.solve_integers(forecast, None)
            x, status = solution.x, solution.status
        elif self._by_value:
            cost, fields = decider.elastic_data(forecast)
            decided = decider.forecasts.decide(cost, 0.0, None, fields, by_rows=False)
            x, status = decided.x, decided.status
        else:
            solved = decider.decide(forecast, None).solved
            x, status = solved.x, solved.status
        failed = status != Status.SOLVED
        z = torch.where(failed[:, None], 0.0, x[:, : model.elastic.n])
        paid_under = forecast if self._by_value else decider.values(self.true[samples], None)
        realised = decider.realise(z, paid_under, None, wanted=False)
        failed |= realised.status != Status.SOLVED
        return torch.where(failed, torch.nan, realised.program.objective(realised.x))

    def _value_of_decision(self) -> Tensor:
        """Return the cost (B,) of the decisions under the predicted values: V(ŷ) = F(ẑ; ŷ) (see the module)."""
        decider = RecourseDecider(self.model, self.solver)
        realised = decider.realise(self.decision, decider.values(self.predicted, None), None, wanted=False)
        return realised.program.objective(realised.x)

    def _separable_parts(self) -> Tensor:
        """Return the part (B, k) of each of the k values in F(ẑ; y) − F(ẑ; ŷ) (see the module)."""
        model, error = self.model, self.predicted - self.true
        assert model.cost_map is not None
        assert model.constraint_map is not None
        rate = -model.problem.sign * model.cost_map.pull_back(self.decision)
        at_truth, at_forecast = (find_violations(model, self.decision, one) for one in (self.true, self.predicted))
        moved = model.constraint_map(error, {name: error.new_zeros(1) for name in model.constraint_map.sides})
        by_side = {}
        for name, change in moved.items():
            charged = sum(kind.charge() for kind in at_truth[name]) - sum(kind.charge() for kind in at_forecast[name])
            by_side[name] = torch.where(change != 0, charged / change, 0.0)
        return error * (rate + model.constraint_map.pull_back(by_side))


def _describe_missing_attribution(regret: Tensor, known: Tensor, followed: Tensor, most: int) -> list[str]:
    """Return sentences on how many regrets are not attributed, and why.

    Args:
        regret: (B,) the regret of each sample.
        known: (B,) bool, whether the regret is attributed.
        followed: (B,) bool, False for samples that were left out because there would be too many decisions.
        most: the largest number of decisions.
    """
    notes = []
    left, lost = ~followed, followed & ~known
    if bool(left.any()):
        total = float(regret.sum())
        share = float(regret.cpu()[left].sum()) / total if total > 0 else 0.0
        notes.append(
            f"The regret of {int(left.sum())} samples, {format_percent(share)} of the loss, is not attributed: all "
            f"samples would take more than {most:,} decisions, and those that lose most come first."
        )
    if bool(lost.any()):
        notes.append(
            f"The regret of {int(lost.sum())} samples is not attributed: a mixture of truth and forecast has no "
            "decision."
        )
    return notes

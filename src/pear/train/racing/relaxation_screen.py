"""``RelaxationScreen``: judges the contenders of a race by relaxed decisions, and chooses those to judge with integers.

An integer program may take a hundred times as long as its smoothed relaxation, which the loss solves in the training. A
contender whose relaxed decisions on held-out samples are no better than those of the start is unlikely to win. The
screen only chooses: the winner is found with integer decisions, among the start and the chosen contenders.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from pear.errors import SolveError
from pear.losses import PEARLoss
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.train.model_weights import Weights, load_model_weights
from pear.train.racing.held_out_judge import HeldOutJudge, HeldOutLosses
from pear.train.racing.race_row import RaceRow
from pear.train.samples.sample_batch import join_batch_keys
from pear.train.training_loss import problem_of_loss
from pear.train.unsolved_samples import UnsolvedSamples
from pear.train.validation_score import forecast_validation

FINALISTS = 2
"""The largest number of contenders that are judged with integer decisions."""


def decides_by_search(problem: Any) -> bool:
    """Return whether each decision of a problem is a long search, as in a sparse problem with integers."""
    plain = problem_of_model(problem) if isinstance(problem, (Problem, Model)) else None
    return plain is not None and plain.is_integer and plain.is_sparse


class RelaxationScreen:
    """A judge of a model's weights in each fold. A call returns what relaxed decisions lose on held-out samples.

    Args:
        judges: the judge of each fold.
        loss: the loss, which solves the smoothed relaxation.
        starts: the weights of the start in each fold.
        unit: the unit of the losses with integer decisions (``HeldOutLosses.unit``). Relaxed losses get the same unit.
        unsolved: counts the samples without a verified relaxed decision, which take no part in comparisons.

    Attributes:
        starting: the losses of the start with relaxed decisions.
        rows: by the name of each contender, its best row and the weights of that row in each fold.
    """

    def __init__(
        self,
        judges: Sequence[HeldOutJudge],
        loss: PEARLoss,
        starts: list[Weights],
        unit: float,
        unsolved: UnsolvedSamples,
    ) -> None:
        self.judges, self.loss, self.unit, self.unsolved = judges, loss, unit, unsolved
        self.rows: dict[str, tuple[RaceRow, list[Weights]]] = {}
        self.starting = self(starts)

    @classmethod
    def of(
        cls,
        loss: Callable[..., Tensor],
        judges: Sequence[HeldOutJudge],
        starts: list[Weights],
        unit: float,
        unsolved: UnsolvedSamples,
    ) -> RelaxationScreen | None:
        """Return a screen if decisions are long searches and the loss solves their relaxations; None otherwise.

        With a metric of the user, the result is None, too. The arguments are those of the class.
        """
        if not isinstance(loss, PEARLoss) or any(judge.outcomes is None for judge in judges):
            return None
        return cls(judges, loss, starts, unit, unsolved) if decides_by_search(problem_of_loss(loss)) else None

    def __call__(self, weights: list[Weights]) -> HeldOutLosses:
        """Return what the relaxed decisions lose on the samples of all folds, given the weights in each fold."""
        return HeldOutLosses.join([self._judge_fold(fold, one) for fold, one in enumerate(weights)])

    def _judge_fold(self, fold: int, weights: Weights) -> HeldOutLosses:
        """Return what the relaxed decisions lose under these weights, on the samples of the fold with this number."""
        judge = self.judges[fold]
        load_model_weights(judge.model, weights)
        predicted, true, keys = forecast_validation(judge.model, judge.held_out)
        if keys is None:  # the names only identify warm starts: the problem has no fields for each sample
            keys = [f"held out {fold}, {row}" for row in range(len(true))]
        each = self._relaxed_regrets(predicted, true, join_batch_keys([keys]) or []).cpu()
        weight = judge.held_out.weight
        shares = torch.ones_like(each) if weight is None else weight.cpu().to(each) / weight.to(each).mean()
        metric = float((shares * each).nanmean()) / self.unit
        return HeldOutLosses(
            each.numpy(), metric, self.unit, len(each), None if weight is None else weight.cpu().numpy()
        )

    def _relaxed_regrets(self, predicted: Tensor, true: Tensor, keys: list[Hashable]) -> Tensor:
        """Return the regrets (B,) of the relaxed decisions, NaN for samples without a verified decision."""
        try:
            with torch.no_grad():
                return self.loss.detailed(predicted, true, keys)[1].regret
        except SolveError as error:
            rest = self.unsolved.solved_rows(self.loss, error, len(true), keys)
        each = torch.full_like(true[:, 0], torch.nan, dtype=torch.float64)
        if len(rest):
            each[rest] = self._relaxed_regrets(predicted[rest], true[rest], [keys[i] for i in rest.tolist()])
        return each

    def note(self, row: RaceRow, weights: list[Weights]) -> None:
        """Keep a row and its weights in each fold if the row is the best one of its contender."""
        best = self.rows.get(row.contender)
        if best is None or row.bound < best[0].bound:
            self.rows[row.contender] = row, weights

    def finalists(self) -> list[tuple[RaceRow, list[Weights]]]:
        """Return the rows to judge with integers, and their weights in each fold.

        The best row is always among them. Other rows must be better than the start. There are at most ``FINALISTS``.
        """
        ranked = sorted(self.rows.values(), key=lambda pair: pair[0].bound)
        return [pair for k, pair in enumerate(ranked[:FINALISTS]) if k == 0 or pair[0].difference < 0]

    def state(self) -> dict[str, Any]:
        """Return everything that the choice of contenders depends on, by name."""
        rows = {name: (asdict(row), weights) for name, (row, weights) in self.rows.items()}
        return {"starting": asdict(self.starting), "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the screen to a state that ``state`` returned."""
        self.starting = HeldOutLosses(**state["starting"])
        self.rows = {name: (RaceRow.from_dict(row), list(weights)) for name, (row, weights) in state["rows"].items()}

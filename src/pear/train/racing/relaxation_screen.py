"""``RelaxationScreen``: judges the contenders of a race by the relaxation, and chooses those to judge with integers.

Integer programs may take a hundred times as long as their smoothed relaxations, which the loss solves in training
anyway. A contender that is no better than the start on the relaxation of held-out samples is hardly the winner. The
screen only chooses: the winner is found with integers, among the start and the contenders that the screen lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from pear.losses import PEARLoss
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.train.model_weights import Weights, load_model_weights
from pear.train.racing.held_out_judge import HeldOutJudge, HeldOutLosses
from pear.train.racing.race_row import RaceRow
from pear.train.training_loss import problem_of_loss
from pear.train.validation_score import forecast_validation

FINALISTS = 2
"""The number of contenders, at most, that are judged with integers."""


def decides_by_search(problem: Any) -> bool:
    """Whether each decision needs a tree search, as in a large sparse problem with integers."""
    plain = problem_of_model(problem) if isinstance(problem, (Problem, Model)) else None
    return plain is not None and plain.is_integer and plain.is_sparse


class RelaxationScreen:
    """Judges weights of a model by the relaxed decisions on the held-out samples of all folds.

    Args:
        judges: the judges of the folds.
        loss: the loss, which solves the smoothed relaxation.
        starts: the first weights in each fold.
        starting: the loss of the start with integers; its unit is used here.

    Attributes:
        starting: the loss of the start on the relaxation.
        rows: the best row of every contender, with its weights in each fold.
    """

    def __init__(
        self, judges: Sequence[HeldOutJudge], loss: PEARLoss, starts: list[Weights], starting: HeldOutLosses
    ) -> None:
        self.judges, self.loss, self.unit = judges, loss, starting.unit
        self.rows: dict[str, tuple[RaceRow, list[Weights]]] = {}
        self.starting = self(starts)

    @classmethod
    def of(
        cls, loss: Callable[..., Tensor], judges: Sequence[HeldOutJudge], starts: list[Weights], starting: HeldOutLosses
    ) -> RelaxationScreen | None:
        """Make a screen where it saves time: decisions are searches, and the loss solves their relaxations."""
        if not isinstance(loss, PEARLoss) or any(judge.outcomes is None for judge in judges):
            return None
        return cls(judges, loss, starts, starting) if decides_by_search(problem_of_loss(loss)) else None

    def __call__(self, weights: list[Weights]) -> HeldOutLosses:
        """Judge the weights of all folds."""
        return HeldOutLosses.join([self._judge_fold(fold, one) for fold, one in enumerate(weights)])

    def _judge_fold(self, fold: int, weights: Weights) -> HeldOutLosses:
        judge = self.judges[fold]
        load_model_weights(judge.model, weights)
        predicted, true, keys = forecast_validation(judge.model, judge.held_out)
        if keys is None:  # for warm starts; samples without ids have no fields of their own
            keys = [f"held out {fold}, {row}" for row in range(len(true))]
        with torch.no_grad():
            each = self.loss.detailed(predicted, true, keys)[1].regret.cpu()
        weight = judge.held_out.weight
        shares = torch.ones_like(each) if weight is None else weight.cpu().to(each) / weight.to(each).mean()
        metric = float((shares * each).mean()) / self.unit
        return HeldOutLosses(
            each.numpy(), metric, self.unit, len(each), None if weight is None else weight.cpu().numpy()
        )

    def note(self, row: RaceRow, weights: list[Weights]) -> None:
        """Keep a row where it is the best one of its contender."""
        best = self.rows.get(row.contender)
        if best is None or row.bound < best[0].bound:
            self.rows[row.contender] = row, weights

    def finalists(self) -> list[tuple[RaceRow, list[Weights]]]:
        """The contenders to judge with integers, the best first: one, and others that are better than the start."""
        ranked = sorted(self.rows.values(), key=lambda pair: pair[0].bound)
        return [pair for k, pair in enumerate(ranked[:FINALISTS]) if k == 0 or pair[0].difference < 0]

    def state(self) -> dict[str, Any]:
        """Everything that its choice depends on."""
        rows = {name: (asdict(row), weights) for name, (row, weights) in self.rows.items()}
        return {"starting": asdict(self.starting), "rows": rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a result of ``state``."""
        self.starting = HeldOutLosses(**state["starting"])
        self.rows = {name: (RaceRow.from_dict(row), list(weights)) for name, (row, weights) in state["rows"].items()}

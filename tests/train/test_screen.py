"""The screen of a race: relaxed decisions select the contenders whose integer decisions are compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

import pear
from pear.train.history import History

pytestmark = pytest.mark.usefixtures("keep_small_ones_sparse")

ITEMS, DAYS = 8, 48


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(DAYS, 3))
    values = 5 + X @ rng.normal(size=(3, ITEMS)) + 0.3 * rng.normal(size=(DAYS, ITEMS))
    return torch.from_numpy(X).float(), torch.from_numpy(values).float()


def trained(sparse_problem: bool) -> History:
    weights = np.random.default_rng(1).integers(1, 9, (2, ITEMS)).astype(float)
    G = sparse.csr_array(weights) if sparse_problem else weights
    problem = pear.Problem(G=G, h=weights.sum(1) / 2, lb=0.0, ub=1.0, integer=True, sense="max")
    assert problem.is_sparse == sparse_problem
    torch.manual_seed(0)
    net, loss = torch.nn.Linear(3, ITEMS), pear.PEARLoss(problem)
    return pear.fit(net, loss, samples(), config=pear.FitConfig(max_epochs=16))


def test_two_contenders_at_most_are_judged_with_integers() -> None:
    history = trained(True)
    screened = [row for row in history.race if row.screened]
    judged = [row for row in history.race if not row.screened]
    assert {row.epochs for row in screened} == {8, 16}
    assert {row.share for row in screened} == {1.0, 0.5, 0.25}
    assert judged[0].contender == "start"
    assert 1 <= len(judged) - 1 <= 2
    best = min(screened, key=lambda row: row.bound)
    assert (judged[1].contender, judged[1].epochs, judged[1].share) == (best.contender, best.epochs, best.share)
    winner = min(judged, key=lambda row: row.bound)
    assert history.best is not None
    assert history.best.metric == winner.metric
    assert f"chosen among {len(screened)} trained models by their relaxed decisions" in history.choice
    assert History.from_dict(history.as_dict()).race == history.race


def test_small_problems_are_judged_with_integers_alone() -> None:
    history = trained(False)
    assert not any(row.screened for row in history.race)
    assert "relaxed" not in history.choice

"""A diagnosis of an oracle: what follows from its decisions alone."""

from __future__ import annotations

import numpy as np
import pytest
from tours import Tours

import pear

TOURS = Tours()
X, C = TOURS.samples(40)
PREDICTED = C[::-1].copy()


@pytest.fixture(scope="module")
def found():
    return pear.diagnose(pear.Oracle(TOURS.decide_all, n=10, batched=True), PREDICTED, C)


def test_regret_is_attributed_by_the_decisions_alone(found):
    """The attribution follows from the mean decision along the path from truth to forecast, here at 4,000 points."""
    np.testing.assert_allclose(found.regret, TOURS.regret(PREDICTED, C))
    assert found.attributed.all()
    np.testing.assert_allclose(found.attribution.sum(1), found.regret, atol=1e-9)
    error, steps = PREDICTED - C, (np.arange(4000) + 0.5) / 4000
    for i in (0, 7, 21):
        path = TOURS.decide_all(C[i] + steps[:, None] * error[i])
        parts = error[i] * (path.mean(0) - TOURS.decide_all(PREDICTED[[i]])[0])
        np.testing.assert_allclose(found.attribution[i], parts, atol=2e-3 * np.abs(error[i]).max())


def test_what_is_not_known_is_not_said(found):
    assert np.isnan(found.tangent_share)
    assert found.constraint_names == ()
    said = " ".join(found.sentences)
    assert "is not checked" in said
    assert "could not be split" not in said
    assert "binds" not in said
    assert found.constraints().empty
    assert len(found.samples()) == 40


def test_a_relaxation_splits_the_squared_error():
    oracle = pear.Oracle(TOURS.decide_all, batched=True, relaxation=TOURS.degrees)
    found = pear.diagnose(oracle, PREDICTED, C)
    inner = pear.diagnose(TOURS.degrees, PREDICTED, C)
    np.testing.assert_allclose(found.tangent, inner.tangent)
    assert "split on its relaxation" in found.sentences[-1]


def test_a_page_is_written_of_an_oracle(found, tmp_path):
    found.save_html(tmp_path / "tours.html")
    assert "is not checked" in (tmp_path / "tours.html").read_text("utf-8")


def test_a_curved_objective_of_an_oracle_is_not_attributed():
    box = pear.Problem(Q=np.eye(2), lb=0.0, ub=1.0)
    oracle = pear.Oracle(lambda cost: cost < -0.5, relaxation=box)
    found = pear.diagnose(oracle, [[-1.0, 2.0]], [[1.0, -2.0]])
    assert found.regret.tolist() == [1 + 0.5 - (-2 + 0.5)]
    assert not found.attributed.any()
    assert "is curved" in " ".join(found.sentences)

"""``pear calibrate``, and ``pear decide --interval``."""

from pathlib import Path

import numpy as np
import pytest
from command_line import run, said

import pear

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

SIMPLEX = pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0, ub=1.0, integer=[0, 1, 2])
COSTS = ["coal", "gas", "buy"]


@pytest.fixture
def folder(terminal):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(120, 2))
    C = 5 + X @ draw.normal(size=(2, 3)) + draw.normal(size=(120, 3)) * 0.3
    table = pandas.DataFrame(np.hstack([X, C]), columns=["sun", "wind", *COSTS])
    table[60:100].to_csv("lately.csv", index=False)
    table[100:].to_csv("tomorrow.csv", index=False)
    model = pear.DecisionRegressor(SIMPLEX, loss="mse", max_epochs=3, check_every=1)
    model.fit(table[["sun", "wind"]][:60], table[COSTS][:60]).save("model.pear")
    return table


def test_bounds_come_with_the_decisions(folder):
    done = run("calibrate", "model.pear", "lately.csv")
    assert done.exit_code == 0, done.output
    assert "Calibrated with 40 samples: model.pear." in said(done)
    done = run("decide", "model.pear", "tomorrow.csv", "--interval", "0.9")
    assert done.exit_code == 0, done.output
    assert "3 variables each, with bounds that hold with probability 90 %: decisions.csv" in said(done)
    model, features = pear.DecisionRegressor.load("model.pear"), folder[["sun", "wind"]]
    again = model.calibrate(features[60:100], folder[COSTS][60:100]).decide(features[100:], interval=0.9)
    written = pandas.read_csv("decisions.csv")
    assert list(written.columns) == ["planned cost", "lower cost", "upper cost", *COSTS]
    np.testing.assert_allclose(written["upper cost"], again.upper)
    assert Path("decisions.csv").read_text().splitlines()[1].count(".") == 3  # of the integers none
    done = run("calibrate", "model.pear", "lately.csv", "--append")
    assert "Calibrated with 80 samples" in said(done)


def test_messages(folder):
    done = run("decide", "model.pear", "tomorrow.csv", "--interval", "0.9")
    assert done.exit_code == 2
    assert "call calibrate(X, C) before, or pear calibrate, with at least 29 rows" in said(done)
    done = run("decide", "model.pear", "tomorrow.csv", "--interval", "0.9", "--forecasts", "lately.csv")
    assert "leave out --forecasts" in said(done)
    folder[["sun", "wind"]][:30].to_csv("features.csv", index=False)
    done = run("calibrate", "model.pear", "features.csv")
    assert done.exit_code == 2
    assert "features.csv has no column 'coal', only sun, wind; true costs are looked up by these names" in said(done)
    done = run("calibrate", "model.pear", "lately.csv", "--append")
    assert "--append keeps the rows of an earlier calibration, and model.pear has none; leave it out" in said(done)
    run("calibrate", "model.pear", "lately.csv")
    done = run("decide", "model.pear", "tomorrow.csv", "--interval", "0.99")
    assert "level 0.99 needs 209 calibration samples, and there are 40" in said(done)

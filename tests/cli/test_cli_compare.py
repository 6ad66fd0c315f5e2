"""``pear compare``: it reads a model, a table and forecasts, and writes a table, a picture and every decision."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import command_line
import numpy as np
import pytest
from command_line import Run

import pear
from pear.evaluation.walk_forward_result import MEAN

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("highspy")

MODEL = """max
 value: tent + stove + lamp
st
 weight: 5 tent + 4 stove + 2 lamp <= 6
binary
 tent stove lamp
end
"""
ITEMS = ["tent", "stove", "lamp"]


@pytest.fixture
def run(terminal: None) -> Run:
    """Return a function that runs the command in a folder with a model, dated samples, and forecasts.

    The forecast of a day is the costs of the day before.
    """
    Path("bag.lp").write_text(MODEL)
    draw = np.random.default_rng(0)
    X = draw.normal(size=(80, 2))
    C = X @ draw.uniform(size=(2, 3)) + draw.uniform(3, 5, size=3) + 0.2 * draw.normal(size=(80, 3))
    table = pandas.DataFrame(np.hstack([X, C]), columns=["sun", "wind", *ITEMS])
    table.insert(0, "day", pandas.date_range("2026-01-01", periods=80).strftime("%Y-%m-%d"))
    table.to_csv("data.csv", index=False)
    table[ITEMS].shift(1).to_csv("yesterday.csv", index=False)
    return partial(command_line.run, "compare")


def test_compare_from_end_to_end(run: Run) -> None:
    options = ("--dates", "day", "--forecasts", "yesterday.csv", "--splits", 3, "--max-epochs", 5, "--out", "found")
    result = run("bag.lp", "data.csv", *options, "--forecasters", "ridge,mse,pear,correction")
    assert result.exit_code == 0, result.output
    table = pandas.read_csv("found/comparison.csv", index_col=0)
    assert list(table.index) == ["yesterday", "ridge", "mse", "pear", "yesterday + pear", MEAN]
    assert np.isnan(table.loc["yesterday", "difference"])
    samples = pandas.read_csv("found/samples.csv")
    assert len(samples) == 6 * 60
    assert samples["label"].iloc[0] == "2026-01-21"
    # the decisions under the forecasts of the day before, by hand
    data = pandas.read_csv("data.csv")[ITEMS].to_numpy()
    problem = pear.from_mps("bag.lp").problem
    by_hand = pear.regret(problem, data[19:79], data[20:80]).numpy()
    own = samples[samples["forecaster"] == "yesterday"]
    np.testing.assert_allclose(own["regret"], by_hand, atol=1e-12)
    assert table.loc["yesterday", "regret"] == pytest.approx(by_hand.mean())
    assert Path("found/comparison.png").stat().st_size > 10_000
    for name in ("Picture: found/comparison.png", "Table: found/comparison.csv", "Every decision: found/samples.csv"):
        assert name in result.output
    assert "minus yesterday (95 %)" in result.output


def test_all_usual_forecasters_stand_beside_each_other(run: Run) -> None:
    result = run(
        "bag.lp", "data.csv", "--features", "sun,wind", "--splits", 2, "--gap", 3, "--window", 20, "--max-epochs", 2
    )
    assert result.exit_code == 0, result.output
    names = list(pandas.read_csv("pear-output/compare/comparison.csv")["forecaster"])
    trees = ["lightgbm"] if importlib.util.find_spec("lightgbm") else []
    assert names == ["ridge", *trees, "mse", "pear", MEAN]


def test_long_tables_give_the_same_as_wide_ones(run: Run) -> None:
    """A shuffled table with a row for each item gives the same results, except where training depends on the layout.

    The given forecasts and the mean of the costs do not depend on it.
    """
    options = ("--splits", 3, "--forecasters", "correction", "--max-epochs", 2)
    wide = run(
        "bag.lp", "data.csv", "--features", "sun,wind", "--forecasts", "yesterday.csv", *options, "--out", "wide"
    )
    assert wide.exit_code == 0, wide.output
    data, own = pandas.read_csv("data.csv"), pandas.read_csv("yesterday.csv")
    long = data.melt(["day", "sun", "wind"], ITEMS, "item", "worth").sort_values("day", kind="stable")
    long["guess"] = own.assign(day=data["day"]).melt(["day"], ITEMS)["value"].loc[long.index]
    mixed = long.sample(frac=1.0, random_state=0).sort_values("day", kind="stable")
    mixed.drop(columns="guess").to_csv("long.csv", index=False)
    mixed[["day", "item", "guess"]].to_csv("guess.csv", index=False)
    names = ("--groups", "day", "--variables", "item", "--costs", "worth", "--dates", "day")
    result = run("bag.lp", "long.csv", *names, "--forecasts", "guess.csv", *options, "--out", "long")
    assert result.exit_code == 0, result.output
    one, other = (pandas.read_csv(f"{folder}/samples.csv") for folder in ("wide", "long"))
    assert list(other["forecaster"].unique()) == ["guess", "guess + pear", MEAN]
    for name, same in (("yesterday", "guess"), (MEAN, MEAN)):
        np.testing.assert_allclose(
            one.loc[one["forecaster"] == name, "regret"], other.loc[other["forecaster"] == same, "regret"], atol=1e-12
        )
    assert other["label"].iloc[0] == "2026-01-21"


def test_corrections_begin_at_the_forecasts(run: Run) -> None:
    """The first row has no forecast, so that the correction is fitted on the other rows."""
    from pear.cli.compared_forecasters import CorrectedForecaster

    data, own = pandas.read_csv("data.csv"), pandas.read_csv("yesterday.csv").to_numpy()
    problem = pear.from_mps("bag.lp")
    regressor = pear.DecisionRegressor(problem, loss="mse", max_epochs=2)
    table = np.column_stack([data[["sun", "wind"]].to_numpy(), own])
    fitted = CorrectedForecaster(regressor, 2).fit(table[:60], data[ITEMS].to_numpy()[:60])
    same = pear.DecisionRegressor(problem, loss="mse", max_epochs=2)
    same.fit(table[1:60, :2], data[ITEMS].to_numpy()[1:60], base_forecast=own[1:60])
    np.testing.assert_array_equal(fitted.predict(table[60:]), same.predict(table[60:, :2], base_forecast=own[60:]))
    with pytest.raises(pear.DataError, match="no training row has a forecast"):
        CorrectedForecaster(regressor, 2).fit(table[:1], data[ITEMS].to_numpy()[:1])


def test_a_missing_lightgbm_is_left_out_with_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "lightgbm" else find(name, *rest)
    )
    result = run("bag.lp", "data.csv", "--features", "sun,wind", "--splits", 1, "--forecasters", "lightgbm,ridge")
    assert result.exit_code == 0, result.output
    assert "LightGBM is not installed, and left out" in result.output
    assert list(pandas.read_csv("pear-output/compare/comparison.csv")["forecaster"]) == ["ridge", MEAN]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--forecasters", "rigde"), "there is no 'rigde', did you mean 'ridge'?"),
        (("--dates", "date"), "has no column 'date'"),
        (("--dates", "broken"), "column 'broken' of data.csv holds no date in line 7: 'soon'"),
        (("--dates", "mixed"), "the dates of X are not in order"),
        (("--forecasts", "short.csv"), "data.csv has 80 rows and short.csv 79"),
        (("--forecasts", "text.csv"), "holds text, such as 'much'"),
        (("--forecasts", "holes.csv"), "forecaster 'holes' failed (fold 2 of 2)"),
        (("--forecasts", "narrow.csv"), "narrow.csv has no column 'lamp'"),
        (("--features", "sun,lamp"), "column 'lamp' is a feature and predicted"),
        (("--splits", "90"), "80 rows are too few for 90 test folds"),
    ],
)
def test_what_is_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    data = pandas.read_csv("data.csv")
    data["broken"], data["mixed"] = data["day"], data["day"].to_numpy()[::-1]
    data.loc[5, "broken"] = "soon"
    data.to_csv("data.csv", index=False)
    own = data[ITEMS]
    own[:79].to_csv("short.csv", index=False)
    own.astype(object).replace(own.iloc[3, 0], "much").to_csv("text.csv", index=False)
    own.assign(lamp=own["lamp"].where(own.index != 70)).to_csv("holes.csv", index=False)
    own.drop(columns="lamp").to_csv("narrow.csv", index=False)
    default = () if "--features" in arguments else ("--features", "sun,wind")
    few = () if "--splits" in arguments else ("--splits", "2")
    names = () if "--forecasters" in arguments else ("--forecasters", "ridge")
    result = run("bag.lp", "data.csv", *default, *few, *names, *arguments)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())


def test_an_interrupt_ends_the_comparison(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import RidgeCV

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RidgeCV, "fit", stop)
    result = run("bag.lp", "data.csv", "--features", "sun,wind", "--forecasters", "ridge")
    assert result.exit_code == 130
    assert "Stopped; nothing is saved." in result.output
    assert not Path("pear-output/compare/comparison.csv").exists()


def test_an_interrupted_training_ends_the_comparison(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """``DecisionRegressor`` keeps its best weights after Ctrl-C, but it would be unfair to compare them with others."""
    from pear.train.history import History

    monkeypatch.setattr(History, "interrupted", property(lambda self: True))
    result = run("bag.lp", "data.csv", "--features", "sun,wind", "--forecasters", "mse", "--max-epochs", 2)
    assert result.exit_code == 130

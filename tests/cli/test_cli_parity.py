"""The commands can do what Python can: named rows, known data, cost maps, base forecasts, and forecasts in files."""

from pathlib import Path

import numpy as np
import pytest
from command_line import run, said

import pear

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("highspy")

PLANT = (
    "min\n cost: 2 coal + 3 gas + 9 buy\nst\n demand: coal + gas + buy >= 5\n"
    "bounds\n coal <= 4\n gas <= 4\n buy <= 20\nend\n"
)
FUELS, ROWS = ("coal", "gas"), 60


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(ROWS, 2))
    fuels = np.abs(X @ draw.normal(size=(2, 2)) + 3)
    demand = 5 + np.abs(X @ draw.normal(size=2))
    return pandas.DataFrame(
        {"sun": X[:, 0], "wind": X[:, 1], **dict(zip(FUELS, fuels.T, strict=True)), "demand": demand}
    )


@pytest.fixture
def folder(table, terminal):
    Path("plant.lp").write_text(PLANT)
    table.to_csv("data.csv", index=False)
    return table


def test_a_column_that_is_called_like_a_row_is_no_feature_in_silence(folder):
    done = run("train", "plant.lp", "data.csv", "--costs", "coal,gas")
    assert done.exit_code == 2
    assert "column 'demand' is called like a row of the model" in said(done)
    assert "--costs demand=PRICE" in said(done)
    assert "--known demand" in said(done)


def test_a_column_that_is_called_like_a_variable_is_no_feature_in_silence(folder):
    done = run("train", "plant.lp", "data.csv", "--costs", "coal", "--known", "demand")
    assert done.exit_code == 2
    assert "column 'gas' is called like a variable of the model" in said(done)


def test_named_features_may_be_called_as_they_like(folder):
    options = ("--costs", "coal,gas", "--features", "sun,demand", "--max-epochs", 2)
    done = run("train", "plant.lp", "data.csv", *options, "--learning-rate", 0.02)
    assert done.exit_code == 0, done.output
    assert pear.DecisionRegressor.load("model.pear").learning_rate == 0.02


def test_a_row_among_the_costs_is_answered_as_a_row(folder):
    done = run("train", "plant.lp", "data.csv", "--costs", "coal,demand")
    assert done.exit_code == 2
    assert "'demand' is a row of plant.lp; to predict its right-hand side, write demand=PRICE" in said(done)


@pytest.mark.parametrize("options", [("--costs", "coal,gas,demand=9"), ("--costs", "coal,gas", "--known", "demand")])
@pytest.mark.parametrize("integer", [False, True])
def test_advise_takes_right_hand_sides(folder, options, integer):
    Path("plant.lp").write_text(PLANT.replace("end\n", "general\n gas\nend\n") if integer else PLANT)
    advice = run("advise", "plant.lp", "data.csv", *options)
    assert advice.exit_code == 0, advice.output


def test_diagnose_takes_known_right_hand_sides(folder):
    folder.assign(coal=3.0).to_csv("forecast.csv", index=False)
    done = run("diagnose", "plant.lp", "data.csv", "forecast.csv", "--costs", "coal,gas", "--known", "demand")
    assert done.exit_code == 0, done.output
    assert Path("diagnosis.html").exists()


def test_diagnose_attributes_predicted_right_hand_sides(folder):
    folder.assign(coal=3.0, demand=6.0).to_csv("forecast.csv", index=False)
    done = run("diagnose", "plant.lp", "data.csv", "forecast.csv", "--costs", "coal,gas,demand=9")
    assert done.exit_code == 0, done.output
    assert "2 of the 3 costs of plant.lp, and the right-hand sides of demand, are taken from the tables" in said(done)
    model = pear.from_file("plant.lp", predicted=list(FUELS), rows=["demand"], recourse={"demand": 9.0})
    true, predicted = (pandas.read_csv(name)[[*FUELS, "demand"]] for name in ("data.csv", "forecast.csv"))
    found = pear.diagnose(model, predicted.to_numpy(), true.to_numpy())
    short = int((true["demand"] > 6 + 1e-6).sum())
    assert f"demand: too little under the truth in {short} of {ROWS} samples" in said(done)
    assert found.sentences[0] in said(done)
    assert found.attribution[:, 1].tolist() == [0.0] * ROWS  # gas was predicted exactly
    assert "What the truth does not allow" in Path("diagnosis.html").read_text("utf-8")


def test_options_about_columns_need_a_table(folder):
    done = run("advise", "plant.lp", "--known", "demand")
    assert done.exit_code == 2
    assert "--known names columns of a table, and none was given" in said(done)


def test_a_cost_map_makes_costs_of_prices(folder):
    Path("map.csv").write_text("variable,price\ncoal,1\nbuy,2\n")
    folder.assign(price=folder["coal"]).drop(columns=[*FUELS, "demand"]).to_csv("prices.csv", index=False)
    done = run("train", "plant.lp", "prices.csv", "--cost-map", "map.csv", "--max-epochs", 2)
    assert done.exit_code == 0, done.output
    model = pear.DecisionRegressor.load("model.pear").problem
    np.testing.assert_allclose(model.cost([5.0]), [7.0, 3.0, 19.0])  # those of the file are added
    assert model.names == ("price",)


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("variable,price\noil,1\n", (), "plant.lp has no variable 'oil'"),
        ("variable,price\ncoal,1\ncoal,2\n", (), "a row for 'coal' twice"),
        ("variable\ncoal\n", (), "has the column 'variable' alone"),
        ("variable,price\ncoal,1\n", ("--costs", "demand=3"), "cannot be predicted beside it"),
        ("variable,price\ncoal,1\n", ("--costs", "coal"), "leave out --costs"),
        ("variable,price\ncoal,1\n", ("--known", "gas"), "both make costs"),
        ("variable,price\ncoal,1\n", ("--groups", "sun", "--costs", "coal"), "needs a table with a row for each"),
    ],
)
def test_a_cost_map_that_does_not_fit_is_refused(folder, text, options, sentence):
    Path("map.csv").write_text(text)
    done = run("train", "plant.lp", "data.csv", "--cost-map", "map.csv", *options)
    assert done.exit_code == 2
    assert sentence in said(done)


@pytest.fixture
def trained(folder):
    done = run("train", "plant.lp", "data.csv", "--known", "demand", "--max-epochs", 2, "--out", "first.pear")
    assert done.exit_code == 0, done.output
    return folder


def test_forecasts_out_and_in_again_decide_the_same(trained):
    assert run("decide", "first.pear", "data.csv", "--out", "own.csv").exit_code == 0
    done = run("predict", "first.pear", "data.csv")
    assert "Forecasts for 60 rows: forecasts.csv" in said(done)
    model = pear.DecisionRegressor.load("first.pear")
    np.testing.assert_allclose(pandas.read_csv("forecasts.csv"), model.predict(trained[["sun", "wind"]]), rtol=1e-6)
    done = run("decide", "first.pear", "data.csv", "--forecasts", "forecasts.csv", "--out", "again.csv")
    assert done.exit_code == 0, done.output
    pandas.testing.assert_frame_equal(pandas.read_csv("own.csv"), pandas.read_csv("again.csv"), atol=1e-5)


def test_other_forecasts_decide_otherwise(trained):
    pandas.DataFrame({"coal": [9.0] * ROWS, "gas": [0.0] * ROWS}).to_csv("odd.csv", index=False)
    assert run("decide", "first.pear", "data.csv", "--forecasts", "odd.csv").exit_code == 0
    np.testing.assert_allclose(pandas.read_csv("decisions.csv")["gas"], 4.0)
    refused = run("decide", "first.pear", "data.csv", "--forecasts", "odd.csv", "--base", "odd.csv")
    assert "name one" in said(refused)


def test_a_model_file_is_a_base(trained):
    options = ("--known", "demand", "--max-epochs", 2)
    done = run("train", "plant.lp", "data.csv", *options, "--base", "first.pear", "--out", "second.pear")
    assert done.exit_code == 0, done.output
    assert "the given forecasts" in said(done)
    assert "pass those of these rows" in said(run("decide", "second.pear", "data.csv"))
    done = run("predict", "second.pear", "data.csv", "--base", "first.pear")
    assert done.exit_code == 0, done.output
    trained.drop(columns="wind").to_csv("short.csv", index=False)
    assert "has no column 'wind'" in said(run("train", "plant.lp", "short.csv", *options, "--base", "first.pear"))


def test_compare_knows_what_is_known(folder):
    done = run("compare", "plant.lp", "data.csv", "--known", "demand", "--forecasters", "ridge", "--splits", 2)
    assert done.exit_code == 0, done.output
    assert "2 values are forecast from 2 features" in said(done)


def test_compare_corrects_forecasts_with_what_is_known(folder):
    forecast = folder[list(FUELS)].mean().to_frame().T.loc[[0] * ROWS].reset_index(drop=True)
    forecast.iloc[:5] = np.nan  # no forecasts of the first days
    forecast.to_csv("ours.csv", index=False)
    options = ("--known", "demand", "--forecasters", "correction", "--splits", 2, "--max-epochs", 2)
    done = run("compare", "plant.lp", "data.csv", "--forecasts", "ours.csv", *options)
    assert done.exit_code == 0, done.output
    assert "ours + pear" in done.output

"""``pear train`` and ``pear decide`` on tables with a row for each value, and with base forecasts from a file."""

from __future__ import annotations

from pathlib import Path

import command_line
import numpy as np
import pytest
from command_line import Run

import pear

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("highspy")

ITEMS = ("tent", "stove", "rope", "lamp")
BAG = """max
 value: tent + stove + rope + lamp
st
 weight: 5 tent + 4 stove + 3 rope + 2 lamp <= 8
binary
 tent stove rope lamp
end
"""
QUICK = ("--max-epochs", "20")


def long_table(days: int) -> pandas.DataFrame:
    draw = np.random.default_rng(0)
    rows = pandas.DataFrame(
        {
            "day": np.repeat([f"day {i}" for i in range(days)], 4),
            "item": np.tile(ITEMS, days),
            "sun": draw.normal(size=4 * days),
            "size": np.tile(np.arange(4.0), days),
        }
    )
    rows["value"] = (rows["sun"] + rows["size"] + 2) ** 2 / 4 + 0.1 * draw.normal(size=len(rows))
    return rows


@pytest.fixture
def run(terminal: None) -> Run:
    Path("bag.lp").write_text(BAG)
    long_table(60).to_csv("long.csv", index=False)
    return command_line.run


def wide() -> tuple[pandas.DataFrame, np.ndarray]:
    rows = long_table(60)
    return rows[["sun", "size"]], rows["value"].to_numpy().reshape(-1, 4)


def test_a_long_table_from_end_to_end(run: Run) -> None:
    result = run("train", "bag.lp", "long.csv", "--groups", "day", "--variables", "item", "--costs", "value", *QUICK)
    assert result.exit_code == 0, result.output
    assert "48 groups train and choose the weights, the last 12 judge the decisions" in result.output
    assert "pear decide model.pear long.csv --groups day --variables item" in result.output
    estimator, (features, costs) = pear.DecisionRegressor.load("model.pear"), wide()
    predicted = estimator.predict(features).to_numpy().reshape(-1, 4)
    lost = pear.normalized_regret(estimator.problem, predicted[48:], costs[48:])
    assert f"{100 * lost:.2f} %" in result.output

    long_table(60).sample(frac=1, random_state=1).drop(columns="value").to_csv("mixed.csv", index=False)
    result = run("decide", "model.pear", "mixed.csv", "--groups", "day", "--variables", "item")
    assert result.exit_code == 0, result.output
    assert "Decisions for 60 groups, 4 variables each" in result.output
    decided = pandas.read_csv("decisions.csv", index_col="day").loc[[f"day {i}" for i in range(60)]]
    expected = pear.solve(pear.from_mps("bag.lp").problem, predicted).x.numpy()
    np.testing.assert_array_equal(decided[[*ITEMS]].to_numpy(), expected)


def test_rows_without_names_are_in_the_order_of_the_variables(run: Run) -> None:
    rows = long_table(60).drop(columns="item")
    rows.to_csv("plain.csv", index=False)
    assert run("train", "bag.lp", "plain.csv", "--groups", "day", "--costs", "value", *QUICK).exit_code == 0
    plain = pear.DecisionRegressor.load("model.pear").predict(wide()[0])
    assert (
        run(
            *("train", "bag.lp", "long.csv", "--groups", "day", "--variables", "item"),
            *("--features", "sun,size", "--costs", "value", *QUICK),
        ).exit_code
        == 0
    )
    pandas.testing.assert_series_equal(plain, pear.DecisionRegressor.load("model.pear").predict(wide()[0]))


def test_named_rows_in_another_order_are_not_taken_in_the_models_order(run: Run) -> None:
    """The model file does not record that training matched rows by name, so that rows in another order are refused."""
    columns = ("--groups", "day", "--variables", "item")
    assert run("train", "bag.lp", "long.csv", *columns, "--costs", "value", "--max-epochs", 1).exit_code == 0
    rows = long_table(3)
    rows.to_csv("same.csv", index=False)
    assert run("decide", "model.pear", "same.csv", "--groups", "day").exit_code == 0
    rows.iloc[[0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 11]].to_csv("other.csv", index=False)
    for command in ("decide", "predict", "calibrate"):
        result = run(command, "model.pear", "other.csv", "--groups", "day")
        assert result.exit_code == 2
        assert "column 'item' of other.csv names the values of the model, and line 6 is not in" in result.output
        assert "match rows by their names: --variables item" in result.output


def test_a_long_table_and_its_model_go_together(run: Run) -> None:
    columns = ("--groups", "day", "--variables", "item")
    assert run("train", "bag.lp", "long.csv", *columns, "--costs", "value", "--max-epochs", 1).exit_code == 0
    result = run("decide", "model.pear", "long.csv")
    assert (result.exit_code, "trained on a long table, with a row for each value" in result.output) == (2, True)
    days = long_table(60).pivot(index="day", columns="item", values="value").assign(sun=1.0)
    days.to_csv("wide.csv", index=False)
    assert run("train", "bag.lp", "wide.csv", "--max-epochs", 1).exit_code == 0
    result = run("decide", "model.pear", "long.csv", "--groups", "day")
    assert (result.exit_code, "a row for each sample; leave out --groups" in result.output) == (2, True)


def test_some_variables_alone(run: Run) -> None:
    rows = long_table(60)
    rows[rows["item"].isin(["lamp", "tent"])].to_csv("two.csv", index=False)
    columns = ("--groups", "day", "--variables", "item")
    result = run("train", "bag.lp", "two.csv", *columns, "--costs", "value", *QUICK)
    assert result.exit_code == 0, result.output
    assert "2 of its 4 costs are predicted from 2 features; the other 2 are those of the file" in result.output
    assert pear.DecisionRegressor.load("model.pear").problem.names == ("tent", "lamp")


@pytest.mark.parametrize("long", [True, False])
def test_forecasts_of_a_file_are_corrected(run: Run, long: bool) -> None:
    rows, (_, costs) = long_table(60), wide()
    draw = np.random.default_rng(2)
    if long:
        given = costs.ravel() + draw.normal(size=240)
        rows[["day", "item"]].assign(model=given).to_csv("forecast.csv", index=False)
        columns, data = ("--groups", "day", "--variables", "item"), "long.csv"
    else:
        table = pandas.DataFrame(draw.normal(size=(60, 2)), columns=["a", "b"])
        pandas.concat([table, pandas.DataFrame(costs, columns=ITEMS)], axis=1).to_csv("wide.csv", index=False)
        given = costs + draw.normal(size=costs.shape)
        pandas.DataFrame(given, columns=ITEMS).to_csv("forecast.csv", index=False)
        columns, data = (), "wide.csv"
    value = ("--costs", "value") if long else ()
    result = run("train", "bag.lp", data, *columns, *value, "--base-forecast", "forecast.csv", *QUICK)
    assert result.exit_code == 0, result.output
    before = pear.normalized_regret(pear.from_mps("bag.lp"), given.reshape(-1, 4)[48:], costs[48:])
    assert f"the given forecasts │ {100 * before:.2f} %" in result.output
    assert "Gained over the given forecasts: " in result.output
    result = run("decide", "model.pear", data, *columns, "--base-forecast", "forecast.csv")
    assert result.exit_code == 0, result.output
    result = run("decide", "model.pear", data, *columns)
    assert (result.exit_code, "pass those of these rows" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--variables", "item"), "name --groups as well"),
        (("--groups", "dya"), "--groups: long.csv has no column 'dya', did you mean 'day'?"),
        (("--groups", "day", "--variables", "thing"), "--variables: long.csv has no column 'thing'"),
        (("--groups", "day", "--variables", "day"), "names 'day 0', which is no variable of the model"),
        (("--groups", "item", "--variables", "day"), "which is no variable"),
        (("--groups", "size"), "every group must have exactly 4 rows"),
        (("--groups", "day", "--base-forecast", "short.csv"), "long.csv has 240 rows and short.csv 8"),
        (("--groups", "day", "--base-forecast", "other.csv"), "column 'day' is 'day 0' in line 2 of long.csv"),
    ],
)
def test_what_is_wrong_gets_a_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    long_table(2).to_csv("short.csv", index=False)
    long_table(60).assign(day="x").to_csv("other.csv", index=False)
    result = run("train", "bag.lp", "long.csv", "--costs", "value", *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not Path("model.pear").exists()


def test_a_value_twice_or_two_columns_of_values(run: Run) -> None:
    rows = long_table(60)
    rows.loc[1, "item"] = "tent"
    rows.to_csv("twice.csv", index=False)
    columns = ("--groups", "day", "--variables", "item")
    result = run("train", "bag.lp", "twice.csv", "--costs", "value", *columns)
    assert (result.exit_code, "group day 0 of twice.csv has 'tent' twice" in result.output) == (2, True), result.output
    result = run("train", "bag.lp", "long.csv", "--costs", "value,sun", *columns)
    assert (result.exit_code, "--costs must name one column of a long table" in result.output) == (2, True)

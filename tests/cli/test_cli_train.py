"""``pear train`` and ``pear decide``: they read a model and a table, and write a model file and decisions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import command_line
import numpy as np
import pytest
import safetensors.torch
import torch
from command_line import Run

import pear
from pear.cli.train import _describe_stopped_training, _print_training_outcomes
from pear.losses.regret_outcome import RegretOutcome
from pear.train.estimator import progress_display
from pear.train.racing.race_row import RaceRow

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("highspy")

ITEMS = ("tent", "stove", "rope", "lamp", "map")
WEIGHTS = (5, 4, 3, 2, 1)
FEATURES = ("sun", "wind", "rain")
KNAPSACK = "\n".join(
    [
        "NAME KNAPSACK",
        "OBJSENSE",
        "    MAX",
        "ROWS",
        " N  value",
        " L  weight",
        "COLUMNS",
        "    M1  'MARKER'  'INTORG'",
        *(f"    {item}  value  {i + 1}  weight  {w}" for i, (item, w) in enumerate(zip(ITEMS, WEIGHTS, strict=True))),
        "    M2  'MARKER'  'INTEND'",
        "RHS",
        "    RHS  weight  8",
        "BOUNDS",
        *(f" BV BND  {item}" for item in ITEMS),
        "ENDATA\n",
    ]
)


@pytest.fixture
def run(terminal: None) -> Run:
    """Return a function that runs the command in a folder with ``knapsack.mps`` and ``data.csv``."""
    Path("knapsack.mps").write_text(KNAPSACK)
    table(120).to_csv("data.csv", index=False)
    return command_line.run


def table(rows: int) -> pandas.DataFrame:
    """Return a table with values that a linear model cannot predict: cubes of a linear function of the features."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(rows, len(FEATURES)))
    C = (X @ draw.uniform(size=(len(FEATURES), len(ITEMS))) + 3) ** 3 / 10
    return pandas.DataFrame(np.hstack([X, C]), columns=[*FEATURES, *ITEMS])


QUICK = ("--max-epochs", "30")


def test_another_loss_is_trained_by_its_name(run: Run) -> None:
    result = run("train", "knapsack.mps", "data.csv", "--loss", "spo+relaxed", "--max-epochs", "3")
    assert result.exit_code == 0, result.output
    assert "trained with SPO+ (relaxed): model.pear" in result.output
    assert pear.DecisionRegressor.load("model.pear").loss == "spo+relaxed"
    result = run("train", "knapsack.mps", "data.csv", "--loss", "spo")
    assert result.exit_code == 2
    assert result.output.startswith("Error: --loss: unknown method 'spo'; there are mse, spo+,")
    result = run("train", "knapsack.mps", "data.csv", "--loss", "mse")
    assert "--loss names what is trained beside the squared error" in result.output


def test_train_and_decide_from_end_to_end(run: Run) -> None:
    result = run("train", "knapsack.mps", "data.csv", "--features", "sun,wind,rain", "--costs", ",".join(ITEMS), *QUICK)
    assert result.exit_code == 0, result.output
    assert "96 rows train and choose the weights, the last 24 judge the decisions" in result.output
    assert "trained with PEAR: model.pear" in result.output
    assert result.output.count("held-out samples in 5 folds") == 2  # what won, for MSE and for PEAR
    estimator = pear.DecisionRegressor.load("model.pear")
    frame = pandas.read_csv("data.csv")
    held_out = frame[96:]
    assert f"{-100 * estimator.score(held_out[[*FEATURES]], held_out[[*ITEMS]]):.2f} %" in result.output

    frame[[*reversed(FEATURES)]][90:].to_csv("new.csv", index=False)  # in another order, and without costs
    result = run("decide", "model.pear", "new.csv", "--out", "out/decisions.csv")
    assert result.exit_code == 0, result.output
    assert "Decisions for 30 rows, 5 variables each" in result.output
    decisions = pandas.read_csv("out/decisions.csv")
    assert tuple(decisions.columns) == ITEMS
    assert all(kind == "int64" for kind in decisions.dtypes)
    predicted = estimator.predict(frame[[*FEATURES]][90:])
    expected = pear.solve(pear.from_mps("knapsack.mps").problem, predicted.to_numpy()).x
    np.testing.assert_array_equal(decisions.to_numpy(), expected.numpy())


def test_decisions_and_forecasts_on_the_standard_output(run: Run) -> None:
    """Standard output holds the table alone, so that another program can read it."""
    run("train", "knapsack.mps", "data.csv", "--max-epochs", "1")
    for command in ("decide", "predict"):
        result = run(command, "model.pear", "data.csv", "--out", "-")
        assert (result.exit_code, Path("-").exists()) == (0, False)
        assert result.stdout.splitlines()[0] == ",".join(ITEMS)
        assert len(result.stdout.splitlines()) == 121
        assert "for 120 rows" in result.stderr


def test_the_model_file_holds_no_pickle(run: Run) -> None:
    assert run("train", "knapsack.mps", "data.csv", *QUICK, "--out", "deep/own.pear").exit_code == 0
    tensors = safetensors.torch.load_file("deep/own.pear")
    document = json.loads(tensors.pop("document").numpy().tobytes())
    assert document["format"] == "PEAR model file"
    text = json.dumps(document)
    assert len(tensors) == text.count('"$tensor"') + text.count('"$array"')  # the document mentions every array


def test_costs_that_are_not_predicted_are_those_of_the_file(run: Run) -> None:
    """Two columns of costs, in another order than the variables, are predicted; the other columns are features."""
    frame = pandas.read_csv("data.csv")[[*FEATURES, "map", "tent"]]
    frame.to_csv("two.csv", index=False)
    result = run("train", "knapsack.mps", "two.csv", "--costs", "map,tent", "--model", "mlp", *QUICK)
    assert result.exit_code == 0, result.output
    assert "2 of its 5 costs are predicted from 3 features; the other 3 are those of the file" in result.output
    assert run("decide", "model.pear", "two.csv").exit_code == 0
    predicted = pear.DecisionRegressor.load("model.pear").predict(frame[[*FEATURES]])
    assert list(predicted.columns) == ["map", "tent"]
    cost = np.column_stack([predicted["tent"], *(np.full(len(frame), c) for c in (2.0, 3.0, 4.0)), predicted["map"]])
    expected = pear.solve(pear.from_mps("knapsack.mps").problem, cost).x
    np.testing.assert_array_equal(pandas.read_csv("decisions.csv").to_numpy(), expected.numpy())


def test_costs_by_the_order_of_the_variables(run: Run) -> None:
    frame = pandas.read_csv("data.csv").rename(columns={item: f"value {i}" for i, item in enumerate(ITEMS)})
    frame.to_csv("other.csv", index=False)
    costs = ",".join(f"value {i}" for i in range(5))
    result = run("train", "knapsack.mps", "other.csv", "--costs", costs, *QUICK)
    assert result.exit_code == 0, result.output
    assert run("decide", "model.pear", "other.csv").exit_code == 0
    assert tuple(pandas.read_csv("decisions.csv").columns) == ITEMS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--features", "sun,wnid"), "has no column 'wnid', did you mean 'wind'?"),
        (("--features", "snow"), "has no column 'snow', only sun, wind, rain, tent"),
        (("--costs", "tent,stov"), "--costs: knapsack.mps has no variable 'stov', did you mean 'stove'?"),
        (
            ("--features", "when"),
            "column 'when' of bad.csv holds text, such as 'monday', in lines 2, 3, 4, 5, 6 and 115",
        ),
        (("--features", "gaps"), "column 'gaps' of bad.csv is empty, NaN or infinite in lines 4, 9"),
        (("--features", "sun", "--test-share", "1.5"), "--test-share must lie between 0 and 1; got 1.5"),
        (("--features", "sun", "--out", "."), "cannot write to .: it is a folder"),
    ],
)
def test_a_wrong_column_gets_a_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    frame = table(120)
    frame["when"], frame["gaps"] = "monday", 1.0
    frame.loc[[2, 7], "gaps"] = [float("nan"), float("inf")]
    frame.to_csv("bad.csv", index=False)
    result = run("train", "knapsack.mps", "bad.csv", *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert not Path("model.pear").exists()


@pytest.mark.parametrize("epochs", [0, 8])
def test_a_start_that_was_kept_is_no_gain_of_the_loss(epochs: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A gain that comes from PEAR's start alone is not reported as a gain of the loss.

    With a time cap, this start may differ from the separate training on the squared error.
    """
    regret = {"MSE": torch.tensor([2.0, 4.0]), "PEAR": torch.tensor([1.0, 1.0])}
    judged = {name: RegretOutcome(part, torch.ones(2)) for name, part in regret.items()}
    history = pear.train.History(epochs=epochs, race=(RaceRow("start", 0, 1.0, 0.1, 0.0, 0.0, (0.0, 0.0)),))
    trained = {name: SimpleNamespace(n_iter_=1, history_=history) for name in regret}
    _print_training_outcomes(judged, trained)
    said = capsys.readouterr().out
    assert ("Gained over MSE: 2 a row" in said) == (epochs > 0)
    assert ("no training with PEAR was clearly better than its start" in said) == (epochs == 0)


def test_dates_are_told_from_other_texts(run: Run) -> None:
    frame = table(120)
    frame.insert(0, "day", pandas.date_range("2024-01-01", periods=120).strftime("%Y-%m-%d"))
    frame.to_csv("dated.csv", index=False)
    result = run("train", "knapsack.mps", "dated.csv")
    assert result.exit_code == 2
    assert "these are dates; --dates day puts the rows in their order" in result.output


def test_a_cost_in_other_letters_is_no_feature(run: Run) -> None:
    table(120).rename(columns={"stove": "Stove"}).to_csv("letters.csv", index=False)
    result = run("train", "knapsack.mps", "letters.csv")
    assert result.exit_code == 2
    assert "column 'Stove' differs from the variable 'stove' of the model in capital letters alone" in result.output


def test_a_table_without_commas_gets_a_sentence(run: Run) -> None:
    for mark, said in ((";", "';'"), ("\t", "tabs")):
        table(20).to_csv("other.csv", index=False, sep=mark)
        result = run("train", "knapsack.mps", "other.csv")
        assert result.exit_code == 2
        assert f"expected commas between columns, and found {said}: save it with commas" in result.output


def test_files_that_are_none_get_a_sentence(run: Run) -> None:
    Path("empty.csv").touch()
    table(1).to_csv("single.csv", index=False)
    Path("headings.csv").write_text("sun,wind\n")
    table(6).to_csv("short.csv", index=False)
    table(20)[[*FEATURES]].to_csv("features.csv", index=False)
    table(20)[[*ITEMS]].to_csv("costs.csv", index=False)
    for name, said in (
        ("missing.csv", "there is no file missing.csv"),
        ("empty.csv", "empty.csv cannot be read as a table"),
        ("headings.csv", "headings.csv has no rows below its headings"),
        ("short.csv", "short.csv has 6 rows, 1 of them to judge by; expected at least 10"),
        ("single.csv", "single.csv has 1 row, 1 of them to judge by"),
        ("features.csv", "no column of the table (sun, wind, rain) is named as a variable of knapsack.mps (tent,"),
        ("costs.csv", "costs.csv has no column to predict from"),
    ):
        result = run("train", "knapsack.mps", name)
        assert (result.exit_code, said in result.output) == (2, True), result.output
    result = run("decide", "missing.pear", "data.csv")
    assert (result.exit_code, "there is no file missing.pear" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("epochs", "model", "said"),
    [
        (33, "linear", "Stopped while PEAR was trained; the best weights so far are kept."),
        (5, "mlp", "Stopped while MSE was trained; nothing is saved, for no weights were checked yet."),
    ],
)
def test_ctrl_c_keeps_the_best_so_far(
    run: Run, monkeypatch: pytest.MonkeyPatch, epochs: int, model: str, said: str
) -> None:
    """Ctrl-C in the second training keeps its best weights; in the first, before any check, nothing is saved."""
    seen: list[int] = []

    def stop(now: pear.train.Progress) -> str:
        seen.append(now.epoch)
        if len(seen) == epochs:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(progress_display, "_progress_line", stop)
    result = run("train", "knapsack.mps", "data.csv", "--model", model, *QUICK)
    assert result.exit_code == 130, result.output
    assert said in result.output
    assert Path("model.pear").exists() == ("kept" in said)
    if "kept" in said:
        assert pear.DecisionRegressor.load("model.pear").predict(table(3)[[*FEATURES]]).shape == (3, 5)


def test_ctrl_c_before_the_first_check_saves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pear.train.training_run.TrainingRun.epoch", stop)
    result = run("train", "knapsack.mps", "data.csv", "--model", "mlp", *QUICK)
    assert result.exit_code == 130, result.output
    assert "Stopped while MSE was trained; nothing is saved" in result.output
    assert not Path("model.pear").exists()


@pytest.mark.parametrize(
    ("trained", "said"),
    [
        (["MSE", "PEAR"], "the best weights so far are kept"),
        (["MSE"], "none of its weights were checked yet, and the model file holds the forecaster trained with MSE"),
        ([], "nothing is saved, for no weights were checked yet"),
    ],
)
def test_ctrl_c_says_which_training_is_kept(trained: list[str], said: str) -> None:
    estimators = {name: pear.DecisionRegressor(pear.Problem(A=[[1.0]], b=[1.0])) for name in trained}
    assert _describe_stopped_training("PEAR", estimators) == said


def test_what_was_gained_is_said(run: Run) -> None:
    """The gain over the squared error is printed; 100 epochs are enough for the two trainings to differ."""
    result = run("train", "knapsack.mps", "data.csv", "--seed", "1", "--max-epochs", "100")
    assert result.exit_code == 0, result.output
    assert "trained with PEAR lose" in result.output
    assert "Gained over MSE: " in result.output
    assert "The best decisions are worth " in result.output


def test_dates_say_which_rows_are_the_last_ones(run: Run) -> None:
    dated = table(120).assign(day=pandas.date_range("2026-01-01", periods=120).astype(str))
    dated.to_csv("sorted.csv", index=False)
    dated.sample(frac=1.0, random_state=1).to_csv("mixed.csv", index=False)
    found = []
    for name in ("sorted", "mixed"):
        result = run(
            "train", "knapsack.mps", f"{name}.csv", "--dates", "day", "--max-epochs", 2, "--out", f"{name}.pear"
        )
        assert result.exit_code == 0, result.output
        found.append(pear.DecisionRegressor.load(f"{name}.pear").predict(table(120)[list(FEATURES)]))
    pandas.testing.assert_frame_equal(*found)
    missing = run("train", "knapsack.mps", "mixed.csv", "--dates", "dya")
    assert missing.exit_code == 2
    assert "has no column 'dya', did you mean 'day'?" in missing.output

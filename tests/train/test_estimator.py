"""``DecisionRegressor`` and ``regret_scorer``: scikit-learn's rules, tables with names, tuning."""

from __future__ import annotations

import io
import logging
import pickle
from typing import Any

import joblib
import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError
from pear.train.estimator import progress_display

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

SHORT: dict[str, Any] = {"max_epochs": 6, "check_every": 2, "patience": 3}
TASK = pear.tasks.shortest_path((3, 3))
X, C = (np.asarray(part) for part in TASK.samples(240, degree=6, seed=3))
TRAIN, TEST = slice(0, 180), slice(180, 240)
ROWS = [f"day {i}" for i in range(len(X))]
TABLE = pd.DataFrame(X, columns=list("abcde"), index=ROWS)
COSTS = pd.DataFrame(C, columns=[f"arc {i}" for i in range(C.shape[1])], index=ROWS)
BATTERY = pear.Model(
    pear.Problem(A=[[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]], b=[0.0, 1.0], lb=0.0, ub=1.0),
    cost_map=pear.CostMap([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], known=[0.0, 0.1, 0.2]),
    variables=("buy", "store", "wait"),
)


def regressor(**settings: Any) -> Any:
    return pear.DecisionRegressor(**{"problem": TASK.problem, **SHORT, **settings})


@pytest.fixture(scope="module")
def fitted() -> Any:
    return regressor().fit(X[TRAIN], C[TRAIN])


EXPECTED = {
    "check_regressor_multioutput": "the check brings five targets, and the problem fixes their number",
    "check_sample_weight_equivalence_on_dense_data": "repeated rows make other folds",
    "check_estimators_overwrite_params": "joblib hashes a tensor and its copy differently; tested below by value",
}


@parametrize_with_checks(
    [pear.DecisionRegressor(pear.Problem(lb=-1.0, ub=1.0, n=1), max_epochs=1, base=base) for base in (None, Ridge())],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_rules_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_fit_leaves_its_parameters_alone() -> None:
    module, loss = torch.nn.Linear(5, 12), pear.PEARLoss(TASK.problem)
    weights, fields = module.weight.detach().clone(), {name: getattr(TASK.problem, name) for name in ("A", "b", "lb")}
    model = regressor(model=module, loss=loss)
    given = model.get_params(deep=False)
    model.fit(X[TRAIN], C[TRAIN])
    assert all(value is given[name] for name, value in model.get_params(deep=False).items())
    assert torch.equal(module.weight, weights)
    assert loss.chosen_smoothing is None
    assert model.loss_.chosen_smoothing == model.smoothing_ > 0
    assert all(getattr(TASK.problem, name) is value for name, value in fields.items())


def test_decides_better_than_squared_error() -> None:
    x, c = (np.asarray(part) for part in TASK.samples(1300, degree=8, seed=1))
    trained = [regressor(loss=loss, max_epochs=40).fit(x[:300], c[:300]) for loss in ("pear-guided", "mse")]
    ours, squared = (-model.score(x[300:], c[300:]) for model in trained)
    assert 0 < ours < squared


def test_score_is_minus_the_normalised_regret_of_the_decisions(fitted: Any) -> None:
    predicted = fitted.predict(X[TEST])
    assert fitted.score(X[TEST], C[TEST]) == -pear.normalized_regret(TASK.problem, predicted, C[TEST])
    expected = pear.solve(TASK.problem, predicted.astype(float)).x.numpy()
    assert np.array_equal(fitted.decide(X[TEST]), expected)


def test_integers_stay_integers() -> None:
    knapsack = pear.Problem(G=[[3.0, 4.0, 2.0]], h=[5.0], lb=0, ub=1, sense="max", integer=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    decisions = regressor(problem=knapsack).fit(x, np.exp(x @ rng.normal(size=(2, 3)))).decide(x)
    assert set(np.unique(decisions)) <= {0.0, 1.0}
    assert (decisions @ [3.0, 4.0, 2.0] <= 5.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forecasts_have_the_type_of_the_features(dtype: Any) -> None:
    model = regressor().fit(X[TRAIN].astype(dtype), C[TRAIN].astype(dtype))
    assert model.predict(X[TEST].astype(dtype)).dtype == dtype
    assert next(model.model_.parameters()).dtype == (torch.float32 if dtype is np.float32 else torch.float64)


def test_units_of_features_and_costs_do_not_matter() -> None:
    plain = regressor().fit(X[TRAIN].astype(float), C[TRAIN])
    scaled = regressor().fit(X[TRAIN].astype(float) * [1e-6, 1, 1e6, 1, 1] + [0, 5, 0, -3e3, 0], 1e4 * C[TRAIN])
    there = scaled.predict(X[TEST].astype(float) * [1e-6, 1, 1e6, 1, 1] + [0, 5, 0, -3e3, 0])
    assert np.allclose(there / 1e4, plain.predict(X[TEST]), rtol=1e-4, atol=1e-5)


def test_a_constant_column_says_nothing_even_where_it_changes_later() -> None:
    wide = np.column_stack([X, np.full(len(X), 7.0)])
    model = regressor().fit(wide[TRAIN], C[TRAIN])
    other = wide[TEST].copy()
    other[:, 5] = -1e6
    assert np.array_equal(model.predict(wide[TEST]), model.predict(other))


# tables


def test_tables_come_back_with_their_names() -> None:
    model = regressor().fit(TABLE[TRAIN], COSTS[TRAIN])
    predicted, decided = model.predict(TABLE[TEST]), model.decide(TABLE[TEST])
    assert list(predicted.columns) == list(COSTS.columns) == list(decided.columns)
    assert list(predicted.index) == ROWS[TEST] == list(decided.index)
    assert list(model.feature_names_in_) == list("abcde")
    assert model.score(TABLE[TEST], COSTS[TEST]) == model.score(TABLE[TEST], C[TEST])
    plain = regressor().fit(X[TRAIN], C[TRAIN])
    assert np.array_equal(predicted.to_numpy(), plain.predict(X[TEST]))


def test_columns_in_another_order_are_refused() -> None:
    model = regressor().fit(TABLE[TRAIN], COSTS[TRAIN])
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(TABLE[list("bacde")])
    with pytest.raises(ProblemError, match="columns of y must be those of fit"):
        model.partial_fit(TABLE, COSTS[COSTS.columns[::-1]])


def test_a_model_predicts_the_values_of_its_cost_map() -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(80, 3)), columns=list("xyz"))
    values = pd.DataFrame({"day": 1 + table["x"] ** 2, "night": 1.3 + table["y"]})
    model = regressor(problem=BATTERY).fit(table, values)
    assert list(model.predict(table).columns) == ["day", "night"]
    decisions = model.decide(table)
    assert list(decisions.columns) == ["buy", "store", "wait"]
    assert np.allclose(decisions["buy"], decisions["store"])
    assert model.score(table, values) == -pear.normalized_regret(
        BATTERY, model.predict(table).to_numpy(), values.to_numpy()
    )
    with pytest.raises(ProblemError, match=r"columns of y must be those of fit, \['day', 'night'\]"):
        model.score(table, values[["night", "day"]])
    with pytest.raises(ProblemError, match=r"y must have shape \(N, 2\).*got \(80, 3\)"):
        regressor(problem=BATTERY).fit(table, table)


def test_columns_named_as_the_values_come_in_the_models_order() -> None:
    cost_map = pear.CostMap([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], names=["day", "night"])
    model = regressor(problem=pear.Model(BATTERY.problem, cost_map=cost_map))
    values = pd.DataFrame(C[:40, :2], columns=["night", "day"])
    with pytest.raises(ProblemError, match=r"in another order: \['night', 'day'\] for \['day', 'night'\]"):
        model.fit(X[:40], values)
    assert model.fit(X[:40], values[["day", "night"]]).predict(X[:2]).shape == (2, 2)


# scikit-learn's tools


def test_a_pipeline_under_a_grid_search() -> None:
    pipeline = make_pipeline(StandardScaler(), regressor())
    grid = {"decisionregressor__loss": ["mse", "pear"], "decisionregressor__learning_rate": [1e-3, 1e-1]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TABLE[TRAIN], COSTS[TRAIN])
    assert search.best_score_ == max(search.cv_results_["mean_test_score"]) < 0
    assert list(search.predict(TABLE[TEST]).columns) == list(COSTS.columns)


def test_any_regressor_is_judged_by_its_decisions() -> None:
    scorer = pear.regret_scorer(TASK.problem)
    scores = cross_val_score(Ridge(), X, C, scoring=scorer, cv=3)
    by_hand = Ridge().fit(X[80:], C[80:]).predict(X[:80])
    assert scores[0] == -pear.normalized_regret(TASK.problem, by_hand, C[:80])
    search = GridSearchCV(Ridge(), {"alpha": [1e-3, 1e6]}, scoring=pickle.loads(pickle.dumps(scorer)), cv=2).fit(X, C)
    assert search.best_params_ == {"alpha": 1e-3}
    assert repr(scorer) == f"regret_scorer({TASK.problem})"


def test_clone_copies_parameters_and_forgets_training(fitted: Any) -> None:
    copy = clone(fitted)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert np.array_equal(copy.fit(X[TRAIN], C[TRAIN]).predict(X), fitted.predict(X))


def test_pickle_and_joblib_keep_everything(fitted: Any, tmp_path: Any) -> None:
    joblib.dump(fitted, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        assert np.array_equal(other.predict(X), fitted.predict(X))
        assert (other.smoothing_, other.n_iter_) == (fitted.smoothing_, fitted.n_iter_)
        assert str(other.history_.as_dict()) == str(fitted.history_.as_dict())  # NaN is not equal to itself
        assert other.loss_.current_guidance == fitted.loss_.current_guidance


# training


@pytest.mark.parametrize("loss", ["pear", "pear-guided", "mse", "spo+", "pfyl", "dbb", "lava"])
def test_every_method_by_its_name(loss: str) -> None:
    model = regressor(loss=loss, max_epochs=2).fit(X[:40], C[:40])
    assert np.isfinite(model.predict(X)).all()


def test_pear_means_the_defaults_of_this_package() -> None:
    model = regressor(max_epochs=1).fit(X[:40], C[:40])
    own = pear.PEARLoss(TASK.problem)
    assert (model.loss_.smoothing, model.loss_.injection, model.loss_.guidance) == ("auto", own.injection, own.guidance)
    other = regressor(max_epochs=1, smoothing=0.25, injection=0.0, guidance=1.0).fit(X[:40], C[:40])
    assert (other.smoothing_, other.loss_.injection, other.loss_.guidance) == (0.25, 0.0, 1.0)
    triple = regressor(max_epochs=1, smoothing="auto*3", validation_fraction=0.5).fit(X[:40], C[:40])
    assert triple.smoothing_ == pytest.approx(3 * pear.PEARLoss(TASK.problem).calibrate(C[:40]), rel=1e-6)


def test_a_loss_as_an_object_or_a_function() -> None:
    made = regressor(loss=lambda problem: pear.losses.SPOPlusLoss(problem, mse_weight=0.1)).fit(X[:40], C[:40])
    given = regressor(loss=pear.losses.SPOPlusLoss(TASK.problem, mse_weight=0.1)).fit(X[:40], C[:40])
    assert np.array_equal(made.predict(X), given.predict(X))
    with pytest.raises(ProblemError, match="smoothing of a loss that is given as an object"):
        regressor(loss=torch.nn.MSELoss(), smoothing=1.0).fit(X, C)
    with pytest.raises(ProblemError, match="it gave 'nothing'"):
        regressor(loss=lambda problem: "nothing").fit(X, C)


def test_a_module_of_ones_own_sees_features_as_they_come() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 12))
    model = regressor(model=module).fit(X[TRAIN], C[TRAIN])
    assert np.allclose(model.predict(X), model.model_[1](torch.from_numpy(X).float()).detach().numpy())


def test_validation_rows_of_ones_own() -> None:
    held_out = regressor().fit(X[TRAIN], C[TRAIN], validation=(X[TEST], C[TEST]))
    best = held_out.history_.best
    assert best.metric == pytest.approx(-held_out.score(X[TEST], C[TEST]), rel=1e-6)
    assert regressor(validation_fraction=0.25).fit(X, C).history_.best.metric == pytest.approx(best.metric, rel=0.2)


def test_partial_fit_learns_and_goes_on() -> None:
    model = regressor()
    model.partial_fit(X[:90], C[:90])
    first = model.score(X[TEST], C[TEST])
    for _ in range(30):
        model.partial_fit(X[:90], C[:90]).partial_fit(X[90:180], C[90:180])
    assert model.score(X[TEST], C[TEST]) > 0.7 * first
    assert model.n_iter_ == 61
    weights = model.model_[1].weight.detach().clone()
    copy = pickle.loads(pickle.dumps(model)).partial_fit(X[TRAIN], C[TRAIN])
    model.partial_fit(X[TRAIN], C[TRAIN])
    assert torch.equal(copy.model_[1].weight, model.model_[1].weight)
    assert not torch.equal(model.model_[1].weight, weights)


def test_the_seed_decides_and_nothing_else() -> None:
    torch.manual_seed(1)
    first = regressor(model="mlp", random_state=4).fit(X[:60], C[:60]).predict(X)
    state = torch.get_rng_state()
    again = regressor(model="mlp", random_state=4).fit(X[:60], C[:60]).predict(X)
    other = regressor(model="mlp", random_state=np.random.RandomState(4)).fit(X[:60], C[:60]).predict(X)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


def test_progress_is_shown_to_those_who_ask(capsys: Any, caplog: Any, monkeypatch: Any) -> None:
    regressor(max_epochs=2).fit(X[:40], C[:40])
    assert capsys.readouterr() == ("", "")
    regressor(max_epochs=2, verbose=True).fit(X[:40], C[:40])
    assert "epoch 2: loss" in capsys.readouterr().out
    monkeypatch.setattr(progress_display, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO, "pear"):
        regressor(max_epochs=2, verbose=True).fit(X[:40], C[:40])
    assert "epoch 2: loss" in caplog.text


def test_progress_in_a_file_has_lines_and_in_a_terminal_a_bar_alone(monkeypatch: Any) -> None:
    monkeypatch.setattr(progress_display, "SECONDS_BETWEEN_LINES", 0.0)
    console_module, progress_module = pytest.importorskip("rich.console"), pytest.importorskip("rich.progress")
    for terminal, lines in ((False, 2), (True, 0)):
        console = console_module.Console(file=io.StringIO(), force_terminal=terminal)
        print_line = progress_display.progress_line_printer(progress_module.Progress(console=console))
        print_line("epoch 1: loss [1]")
        print_line("epoch 2: loss [1]")
        assert console.file.getvalue().count("loss [1]") == lines
    monkeypatch.setattr(progress_display, "SECONDS_BETWEEN_LINES", 3600.0)
    console = console_module.Console(file=io.StringIO(), force_terminal=False)
    progress_display.progress_line_printer(progress_module.Progress(console=console))("epoch 1")
    assert not console.file.getvalue()


# problems with rows of their own


def test_rows_of_their_own_belong_to_fit() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 2))
    c = np.exp(x @ rng.normal(size=(2, 3)))
    budgets = rng.uniform(0.5, 2.0, size=(60, 1))
    own = pear.Problem(G=np.ones((1, 3)), h=budgets, lb=0.0, ub=1.0, sense="max")
    model = regressor(problem=own).fit(x, c)
    with pytest.raises(ProblemError, match=r"fields of its own for the 60 rows of fit.*pass problem="):
        model.decide(x[:5])
    chosen, worth = model.decide(x[:5], problem=own[:5]), model.predict(x[:5])
    assert np.allclose(chosen.sum(1), np.minimum(budgets[:5, 0], (worth > 0).sum(1)))
    assert model.score(x, c, problem=own) > -0.2
    with pytest.raises(ProblemError, match="for 60 samples, and X has 50 rows"):
        regressor(problem=own).fit(x[:50], c[:50])
    with pytest.raises(ProblemError, match="partial_fit takes a problem that all samples share"):
        regressor(problem=own).partial_fit(x, c)
    with pytest.raises(ProblemError, match="a scorer is not told which rows"):
        pear.regret_scorer(own)
    with pytest.raises(ProblemError, match="takes 12 values, and 3 are predicted"):
        model.decide(x, problem=TASK.problem)


# what is refused


def test_what_is_refused_in_words(fitted: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'epochs'"):
        regressor().fit(X, C, epochs=3)
    with pytest.raises(ProblemError, match="model must be 'linear', 'mlp' or a torch module; got 'tree'"):
        regressor(model="tree").fit(X, C)
    with pytest.raises(ProblemError, match="hidden_layer_sizes must be whole numbers"):
        regressor(model="mlp", hidden_layer_sizes=(8, 0)).fit(X, C)
    with pytest.raises(ProblemError, match="unknown method 'peer'"):
        regressor(loss="peer").fit(X, C)
    with pytest.raises(ProblemError, match=r"pass its problem: task\.problem"):
        pear.DecisionRegressor(TASK).fit(X, C)
    with pytest.raises(ValueError, match="X is NaN or infinite in rows"):
        regressor().fit(np.where(X > 2, np.nan, X), C)
    with pytest.raises(NotFittedError):
        regressor().decide(X)


def test_a_fit_that_fails_leaves_no_model_behind() -> None:
    model = regressor(max_epochs=1).fit(X[:40], C[:40])
    with pytest.raises(ProblemError, match="unknown method"):
        model.set_params(loss="peer").fit(X[:40], C[:40])
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("dates", r"column 'extra' of X holds dates; make it the index, set_index\('extra'\)"),
        ("text", "column 'extra' of X holds text, such as 'north'; turn categories into numbers"),
        ("gaps", "column 'extra' of X is NaN or infinite in rows 3, 7: fill these cells"),
    ],
)
def test_a_column_that_holds_no_numbers_is_named(column: str, said: str) -> None:
    pandas = pytest.importorskip("pandas")
    task = pear.tasks.shortest_path((2, 2))
    X, C = (pandas.DataFrame(np.asarray(part)) for part in task.samples(20, degree=2))
    gaps = np.zeros(20)
    gaps[[3, 7]] = np.nan, np.inf
    X["extra"] = {"dates": pandas.date_range("2024-01-01", periods=20), "text": "north", "gaps": gaps}[column]
    with pytest.raises(pear.ProblemError, match=said):
        pear.DecisionRegressor(task.problem, max_epochs=1).fit(X, C)
    C.iloc[2, 1] = np.nan
    with pytest.raises(pear.ProblemError, match="y is NaN or infinite in row 2"):
        pear.DecisionRegressor(task.problem, max_epochs=1).fit(X[X.columns[:-1]].to_numpy(), C.to_numpy())

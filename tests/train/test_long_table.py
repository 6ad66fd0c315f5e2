"""Long tables: a row for every predicted value, one model for all rows, and a decision for each group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError
from pear.train.long_table import group_long_table

pd = pytest.importorskip("pandas")
sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, GroupKFold  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

SHORT: dict[str, Any] = {"max_epochs": 5, "check_every": 2, "patience": 3}
PROBLEM = pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0)  # one of four
G, K, P = 90, 4, 3
rng = np.random.default_rng(0)
CUBE = rng.normal(size=(G, K, P))
COSTS = np.exp(CUBE @ [0.5, -0.3, 0.2]) + 0.1 * rng.normal(size=(G, K))
X, Y = CUBE.reshape(-1, P), COSTS.ravel()
DAYS = np.repeat(np.arange(G), K)


def interleaved() -> np.ndarray[Any, Any]:
    """Return an order of the rows in which groups are mixed, and the rows of each group keep their order."""
    order = np.argsort(rng.permuted(np.tile(np.arange(G), (K, 1)), axis=1), axis=1)  # (K, G)
    return np.concatenate([K * order[value] + value for value in range(K)])


def regressor(**settings: Any) -> Any:
    return pear.DecisionRegressor(**{"problem": PROBLEM, **SHORT, **settings})


class Wide(torch.nn.Module):
    """The same model on a wide table of K·P columns."""

    def __init__(self, row: torch.nn.Module) -> None:
        super().__init__()
        self.row = row

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.row(torch.stack(features.split(P, 1), 1))[:, :, 0]


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(P, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()


@pytest.mark.parametrize("loss", ["pear-guided", "mse"])
def test_a_long_table_trains_as_the_same_shared_weights_on_a_wide_one(loss: str) -> None:
    wide = regressor(model=Wide(network()), loss=loss).fit(CUBE.reshape(G, -1), COSTS)
    long = regressor(model=network(), loss=loss).fit(X, Y, groups=DAYS)
    np.testing.assert_allclose(long.predict(X).reshape(G, K), wide.predict(CUBE.reshape(G, -1)), rtol=1e-6)
    np.testing.assert_array_equal(long.decide(X, groups=DAYS), wide.decide(CUBE.reshape(G, -1)))
    assert long.score(X, Y, groups=DAYS) == pytest.approx(wide.score(CUBE.reshape(G, -1), COSTS), rel=1e-6)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_rows_may_come_interleaved(model: str) -> None:
    order = interleaved()
    plain = regressor(model=model).fit(X, Y, groups=DAYS)
    first = order[np.sort(np.unique(DAYS[order], return_index=True)[1])]
    again = CUBE[DAYS[first]].reshape(-1, P), COSTS[DAYS[first]].ravel(), np.repeat(DAYS[first], K)
    sorted_alike = regressor(model=model).fit(again[0], again[1], groups=again[2])
    mixed = regressor(model=model).fit(X[order], Y[order], groups=DAYS[order])
    np.testing.assert_array_equal(mixed.predict(X), sorted_alike.predict(X))
    assert mixed.model_[1].network is not plain.model_[1].network
    decided = mixed.decide(X[order], groups=DAYS[order])
    np.testing.assert_array_equal(decided, mixed.decide(again[0], groups=again[2]))
    assert mixed.score(X[order], Y[order], groups=DAYS[order]) == mixed.score(again[0], again[1], groups=again[2])


def test_one_model_for_all_values_and_no_groups_to_predict() -> None:
    model = regressor().fit(X, Y, groups=DAYS)
    assert sum(parameter.numel() for parameter in model.model_.parameters()) == P + 1
    np.testing.assert_array_equal(model.predict(X[7:19]), model.predict(X)[7:19])
    expected = pear.solve(PROBLEM, model.predict(X).reshape(G, K)).x.numpy()
    np.testing.assert_array_equal(model.decide(X, groups=DAYS), expected)
    assert model.score(X, Y, groups=DAYS) == -pear.normalized_regret(PROBLEM, model.predict(X).reshape(G, K), COSTS)


def test_standardisation_is_that_of_all_rows() -> None:
    scaled = regressor().fit(X, Y, groups=DAYS).model_[0]
    np.testing.assert_allclose(scaled.mean, X.mean(0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(scaled.factor, 1 / X.std(0), rtol=1e-12)


def test_tables_keep_index_and_names() -> None:
    table = pd.DataFrame(X, columns=list("abc"), index=[f"row {i}" for i in range(len(X))])
    days = pd.Series(pd.date_range("2026-01-01", periods=G).repeat(K), name="day")
    price = pd.Series(Y, name="price")
    named = pear.Model(PROBLEM, variables=("n", "e", "s", "w"))
    model = regressor(problem=named).fit(table, price, groups=days)
    predicted, decided = model.predict(table[5:10]), model.decide(table, groups=days)
    assert (predicted.name, list(predicted.index)) == ("price", [f"row {i}" for i in range(5, 10)])
    assert (list(decided.columns), decided.index.name) == (["n", "e", "s", "w"], "day")
    assert list(decided.index) == list(days.unique())
    frame = regressor().fit(table, price.to_frame(), groups=days).predict(table)
    assert list(frame.columns) == ["price"]
    np.testing.assert_array_equal(frame["price"], model.predict(table))
    assert isinstance(regressor().fit(X, Y, groups=days).predict(X), np.ndarray)


def test_validation_rows_and_partial_fit_take_groups() -> None:
    cut = 60 * K
    held_out = {"X": X[cut:], "y": Y[cut:], "groups": DAYS[cut:]}
    model = regressor().fit(X[:cut], Y[:cut], held_out, groups=DAYS[:cut])
    assert model.history_.held_out == 0
    before = model.predict(X)
    model.partial_fit(X[cut:], Y[cut:], groups=DAYS[cut:])
    assert not np.array_equal(model.predict(X), before)
    with pytest.raises(ProblemError, match=r"fit was given groups=.*pass groups= here as well"):
        model.partial_fit(X, Y)


def test_problems_with_rows_of_their_own_have_one_for_each_group() -> None:
    budgets = rng.uniform(0.5, 2.0, size=(G, 1))
    own = pear.Problem(A=np.ones((1, K)), b=budgets, lb=0.0, ub=1.0)
    model = regressor(problem=own).fit(X, Y, groups=DAYS)
    np.testing.assert_allclose(model.decide(X, own, groups=DAYS).sum(1), budgets[:, 0])
    with pytest.raises(ProblemError, match="for 90 samples, and X has 89 rows"):
        regressor(problem=own).fit(X[K:], Y[K:], groups=DAYS[K:])


def test_a_search_routes_the_groups() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = regressor().set_fit_request(groups=True).set_score_request(groups=True)
        search = GridSearchCV(model, {"loss": ["mse", "pear"]}, cv=GroupKFold(3)).fit(X, Y, groups=DAYS)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"]) < 0
    copy = clone(search.best_estimator_).fit(X, Y, groups=DAYS)
    np.testing.assert_array_equal(copy.predict(X), search.best_estimator_.predict(X))


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_saved_and_loaded(model: str, tmp_path: Path) -> None:
    fitted = regressor(model=model).fit(X, pd.Series(Y, name="price"), groups=DAYS)
    fitted.save(tmp_path / "a.pear")
    again = pear.DecisionRegressor.load(tmp_path / "a.pear")
    pd.testing.assert_series_equal(again.predict(X), fitted.predict(X))
    pd.testing.assert_frame_equal(again.decide(X, groups=DAYS), fitted.decide(X, groups=DAYS))
    own = regressor(model=network()).fit(X, Y, groups=DAYS)
    own.save(tmp_path / "b.pear")
    other = pear.DecisionRegressor.load(tmp_path / "b.pear", model=network())
    np.testing.assert_array_equal(other.predict(X), own.predict(X))


def test_a_module_may_give_flat_values() -> None:
    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row = network()

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            assert rows.dim() == 2
            return self.row(rows)[:, 0]

    ours, plain = (regressor(model=model).fit(X, Y, groups=DAYS).predict(X) for model in (Flat(), network()))
    np.testing.assert_allclose(ours, plain, rtol=1e-9)
    with pytest.raises(ProblemError, match=r"one value for each row.*it gave \(\d+, 4\) for"):
        regressor(model=torch.nn.Linear(P, K).double(), loss="mse").fit(X, Y, groups=DAYS)


def test_what_is_refused_in_words() -> None:
    with pytest.raises(ProblemError, match=r"exactly 4 rows.*group 2 has 3 \(rows 8, 9, 10\).*or drop the group"):
        regressor().fit(np.delete(X, 11, 0), np.delete(Y, 11), groups=np.delete(DAYS, 11))
    twice = np.where(DAYS == 5, 4, DAYS)
    with pytest.raises(ProblemError, match=r"group 4 has 8 \(rows 16, 17, 18, 19, 20 and 3 more\)"):
        regressor().fit(X, Y, groups=twice)
    with pytest.raises(ProblemError, match=r"groups must have shape \(360,\).*got \(12,\)"):
        regressor().fit(X, Y, groups=DAYS[:12])
    with pytest.raises(ProblemError, match="row 3 has nan: fill or drop it"):
        regressor().fit(X, Y, groups=np.where(np.arange(360) == 3, np.nan, DAYS))
    with pytest.raises(ProblemError, match=r"with groups=, y must have shape \(360,\).*got \(360, 4\)"):
        regressor().fit(X, np.tile(Y[:, None], (1, 4)), groups=DAYS)
    with pytest.raises(ProblemError, match=r"y must have shape \(N, 4\).*pass groups="):
        regressor().fit(X, Y)
    model = regressor(max_epochs=1).fit(X, Y, groups=DAYS)
    with pytest.raises(ProblemError, match="pass groups= here as well"):
        model.decide(X)
    with pytest.raises(ProblemError, match="pass groups= here as well"):
        model.score(X, Y)
    wide = regressor(max_epochs=1).fit(CUBE.reshape(G, -1), COSTS)
    with pytest.raises(ProblemError, match="leave groups= out here as well"):
        wide.decide(CUBE.reshape(G, -1), groups=np.arange(G))


def test_groups_keep_the_order_of_their_first_rows() -> None:
    found = group_long_table(np.array(["b", "a", "b", "c", "a", "c"]), 6, 2)
    assert (list(found.ids), found.rows.tolist()) == (["b", "a", "c"], [[0, 2], [1, 4], [3, 5]])
    values = np.arange(6.0)
    np.testing.assert_array_equal(found.scatter(found.gather(values)), values)


def test_a_pipeline_passes_groups_and_forecasts_on() -> None:
    forecast = Y + 0.1
    pipeline = make_pipeline(StandardScaler(), regressor()).fit(
        X, Y, decisionregressor__groups=DAYS, decisionregressor__base_forecast=forecast
    )
    scaled = StandardScaler().fit_transform(X)
    plain = regressor().fit(scaled, Y, groups=DAYS, base_forecast=forecast)
    np.testing.assert_array_equal(
        pipeline[-1].decide(pipeline[:-1].transform(X), groups=DAYS, base_forecast=forecast),
        plain.decide(scaled, groups=DAYS, base_forecast=forecast),
    )


def test_the_name_of_a_column_is_no_group() -> None:
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    for call in (
        lambda: pear.DecisionRegressor(problem).fit(np.ones((4, 1)), np.ones(4), groups="day"),
        lambda: pear.walk_forward(problem, np.ones((4, 1)), np.ones(4), {"ones": np.ones(4)}, groups="day"),
    ):
        with pytest.raises(pear.ProblemError, match=r"one for each row of X; got 'day': pass the column"):
            call()

"""Pandas tables are aligned by their index, in the same way by every function."""

import numpy as np
import pandas as pd
import pytest
import torch

import pear
from pear.errors import ProblemError
from pear.problem.pandas_data import check_pandas_rows

DAYS = pd.date_range("2026-01-01", periods=12)
PROBLEM = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(12, 2)), DAYS)
C = pd.DataFrame(RANDOM.uniform(1, 2, size=(12, 3)), DAYS)
QUICK = pear.FitConfig(max_epochs=1)


def fitted():
    return pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(X, C)


def fit_directly(x, c):
    model = torch.nn.Linear(2, 3, dtype=torch.float64)
    return pear.fit(model, pear.PEARLoss(PROBLEM), (x, c), config=QUICK)


def long_objective(x, c):
    groups = pd.Series(np.repeat(np.arange(4), 3), c.index)
    return pear.boosting.objective(PROBLEM, x[0], groups=groups)


def out_of_fold(x, c):
    from sklearn.linear_model import Ridge

    return pear.boosting.out_of_fold(Ridge(), x, c)


CALLS = {
    "estimator.fit": lambda x, c: pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(x, c),
    "estimator.validation": lambda x, c: pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(X, C, (x, c)),
    "estimator.partial_fit": lambda x, c: pear.DecisionRegressor(PROBLEM).partial_fit(x, c),
    "estimator.base_forecast": lambda x, c: pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(X, C, base_forecast=c),
    "estimator.score": lambda x, c: fitted().score(x, c),
    "regret_scorer": lambda x, c: pear.regret_scorer(PROBLEM)(fitted(), x, c),
    "fit": fit_directly,
    "tune": lambda x, c: pear.tune(PROBLEM, x, c, candidates=[{"method": "mse"}], config=QUICK),
    "regret": lambda x, c: pear.regret(PROBLEM, C.set_axis(x.index), c),
    "normalized_regret": lambda x, c: pear.normalized_regret(PROBLEM, C.set_axis(x.index), c),
    "regret_gradient": lambda x, c: pear.regret_gradient(PROBLEM, C.set_axis(x.index), c),
    "diagnose": lambda x, c: pear.diagnose(PROBLEM, C.set_axis(x.index), c),
    "diagnose, groups": lambda x, c: pear.diagnose(PROBLEM, C.to_numpy(), c, groups=pd.Series("a", x.index)),
    "walk_forward": lambda x, c: pear.walk_forward(PROBLEM, x, c, {"own": C.to_numpy()}, splits=2),
    "walk_forward, table": lambda x, c: pear.walk_forward(PROBLEM, X, C.to_numpy(), {"own": c}, splits=2),
    "boosting.objective": long_objective,
    "boosting.out_of_fold": out_of_fold,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_day_apart_is_refused_everywhere(name):
    later = C.set_axis(DAYS + pd.Timedelta(days=1))
    with pytest.raises(ProblemError, match=r"11 are among the 12 of .* first in row 0: .*2026-01-0.*\.intersection\("):
        CALLS[name](X, later)
    with pytest.raises(ProblemError, match="same index in different orders"):
        CALLS[name](X, C[::-1])


@pytest.mark.parametrize("name", CALLS)
def test_the_same_index_and_no_index_are_taken(name):
    CALLS[name](X, C)
    CALLS[name](X, C.reset_index(drop=True))


def test_what_the_sentence_says():
    rows = X[0]
    with pytest.raises(ProblemError) as shorter:
        check_pandas_rows({"X": X, "y": rows[2:]})
    assert "of the 12 labels in the index of X, 10 are among the 10 of y; the two differ first in row 0" in str(
        shorter.value
    )
    assert "set_axis" not in str(shorter.value)
    with pytest.raises(ProblemError, match=r"first in row 10: 2026-01-11 00:00:00 in X, nothing in y"):
        check_pandas_rows({"X": X, "y": rows[:10]})
    with pytest.raises(ProblemError, match=r"pass y\.set_axis\(X\.index\)"):
        check_pandas_rows({"X": X, "y": rows.set_axis(list("abcdefghijkl"))})
    twice = pd.DataFrame({"a": [1, 2, 3]}, ["p", "p", "q"])
    with pytest.raises(ProblemError, match="sort both in the same way"):
        check_pandas_rows({"X": twice, "y": twice.set_axis(["p", "q", "p"])})


def test_an_advice_of_the_sentence_helps():
    later = C.set_axis(DAYS + pd.Timedelta(days=1))
    both = X.index.intersection(later.index)
    check_pandas_rows({"X": X.loc[both], "y": later.loc[both]})
    check_pandas_rows({"X": X, "y": later.set_axis(X.index)})
    check_pandas_rows({"X": X, "y": C[::-1].loc[X.index]})


def test_the_default_index_names_nothing_unless_its_numbers_are_shuffled():
    plain = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    check_pandas_rows({"X": plain, "y": plain.set_axis([7, 3, 9])})  # a test set and forecasts of it as a fresh table
    check_pandas_rows({"X": plain.set_axis([7, 3, 9]), "y": plain})
    for pair in (plain, plain.set_axis([2, 0, 1])), (plain.set_axis([2, 0, 1]), plain):
        with pytest.raises(ProblemError, match="same index in different orders"):
            check_pandas_rows({"X": pair[0], "y": pair[1]})


def test_known_data_is_paired_where_it_has_a_row_for_each_sample():
    later = pd.Series(1.0, DAYS + pd.Timedelta(days=1))
    check_pandas_rows({"X": X, "known": {"level": X[0], "limit": pd.Series([1.0], ["all"])}})
    check_pandas_rows({"X": X, "known": later[:3]})  # of the groups of a long table
    with pytest.raises(ProblemError, match=r"the rows of X and known\['level'\] do not belong together"):
        check_pandas_rows({"X": X, "known": {"level": later}})
    variables = pear.Problem(lb=0.0, ub=1.0, A=[[1.0, 1.0, 1.0]], b=[0.0])
    model = pear.Model(variables, known_map=pear.KnownMap({"level": ()}, b=[[1.0]]))
    assert len(pear.regret(model, C, C, known={"level": X[0].abs() % 1})) == 12
    calls = {
        "solve": lambda known: pear.solve(model, C, known=known),
        "regret": lambda known: pear.regret(model, C, C, known=known),
        "diagnose": lambda known: pear.diagnose(model, C, C, known=known),
        "walk_forward": lambda known: pear.walk_forward(model, X, C, {"own": C}, splits=2, known=known),
        "fit": lambda known: pear.DecisionRegressor(model, max_epochs=1).fit(X, C, known=known),
    }
    for call in calls.values():
        with pytest.raises(ProblemError, match="11 are among the 12 of known"):
            call({"level": later})


def test_several_inputs_are_checked_each():
    later = X.set_axis(DAYS + pd.Timedelta(days=1))
    with pytest.raises(ProblemError, match="the rows of input 'a' and input 'b' do not belong together"):
        pear.fit(torch.nn.Linear(2, 3), pear.PEARLoss(PROBLEM), ({"a": X, "b": later}, C))


# dates survive


def test_regret_returns_the_index_that_came():
    predicted = C.to_numpy()[:, ::-1].copy()
    plain = pear.regret(PROBLEM, predicted, C.to_numpy())
    assert isinstance(plain, torch.Tensor)
    for pair in (C.set_axis(DAYS) * 0 + predicted, C), (predicted, C), (pd.DataFrame(predicted), C):
        found = pear.regret(PROBLEM, *pair)
        assert found.name == "regret"
        pd.testing.assert_index_equal(found.index, DAYS)
        np.testing.assert_array_equal(found.to_numpy(), plain.numpy())
    assert pear.regret(PROBLEM, pd.DataFrame(predicted), C.to_numpy()).index.equals(pd.RangeIndex(12))


def test_a_series_is_one_sample():
    """The index of the Series names the values, and its name is that of the sample."""
    predicted = C + 1.0
    predicted.iloc[3] = C.iloc[4]
    whole = pear.regret(PROBLEM, predicted, C)
    one = pear.regret(PROBLEM, predicted.iloc[3], C.iloc[3])
    pd.testing.assert_series_equal(one, whole[3:4], check_freq=False)
    assert pear.normalized_regret(PROBLEM, predicted.iloc[3], C.iloc[3]) == pytest.approx(
        pear.normalized_regret(PROBLEM, predicted[3:4], C[3:4])
    )
    with pytest.raises(pear.ProblemError, match="the rows of true and predicted do not belong together"):
        pear.regret(PROBLEM, predicted.iloc[3], C.iloc[4])
    with pytest.raises(pear.ProblemError, match="must have the same columns in the same order"):
        pear.regret(PROBLEM, predicted.iloc[3][::-1], C.iloc[3])


def test_a_diagnosis_names_samples_by_their_dates(tmp_path):
    predicted = C.to_numpy()[:, ::-1].copy()
    found, plain = pear.diagnose(PROBLEM, predicted, C), pear.diagnose(PROBLEM, predicted, C.to_numpy())
    pd.testing.assert_index_equal(found.samples().index, DAYS)
    np.testing.assert_array_equal(found.samples().to_numpy(), plain.samples().to_numpy())
    worst = int(plain.worst(1).index[0])
    assert found.worst(1).index[0] == DAYS[worst]
    assert plain.samples().index.name == "sample"
    at = plain.values()["worst_sample"].to_numpy()
    assert list(found.values()["worst_sample"]) == list(DAYS[at])
    page = found.save_html(tmp_path / "page.html").read_text("utf-8")
    assert str(DAYS[worst].date()) in page
    assert "00:00:00" not in page
    assert "counted from 0" not in page


def test_decisions_of_a_model_keep_their_index():
    layout = {"buy": torch.tensor([0, 1]), "sell": torch.tensor(2)}
    model = pear.Model(PROBLEM, layout=layout)
    z = pear.solve(PROBLEM, C.to_numpy()).x
    parts, tables = model.decision(z), model.decision(pd.DataFrame(z.numpy(), DAYS))
    assert isinstance(parts["buy"], torch.Tensor)
    for name, part in parts.items():
        pd.testing.assert_index_equal(tables[name].index, DAYS)
        np.testing.assert_array_equal(tables[name].to_numpy(), part.numpy())
    assert tables["sell"].name == "sell"
    assert list(tables["buy"].columns) == [0, 1]


def test_the_estimator_decides_with_dates():
    decided = fitted().decide(X)
    pd.testing.assert_index_equal(decided.index, DAYS)
    assert isinstance(pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(X, C.to_numpy()).decide(X), pd.DataFrame)


TYPES = {
    "nullable": lambda table: table.convert_dtypes(),
    "pyarrow": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
    "a column of bool": lambda table: table.assign(**{table.columns[0]: table.iloc[:, 0] > 1}),
    "sparse": lambda table: table.astype(pd.SparseDtype(float)),
}


@pytest.mark.parametrize("name", TYPES)
def test_numbers_of_every_type_of_pandas(name):
    table = TYPES[name](C.rename(columns=str))
    same = torch.tensor(table.astype(float).to_numpy())
    assert torch.equal(pear.solve(PROBLEM, table).x, pear.solve(PROBLEM, same).x)
    assert np.array_equal(pear.regret(PROBLEM, table, table), np.zeros(12))
    assert np.array_equal(pear.Problem(lb=table["1"]).lb, same[:, 1])


GAPS = {
    "nullable": C.convert_dtypes().mask(C.gt(C.max().sort_values().iloc[-2])),
    "masked": np.ma.masked_greater(C.to_numpy(), C.max().sort_values().iloc[-2]),
}


@pytest.mark.parametrize("name", GAPS)
def test_missing_entries_are_never_read_as_numbers(name):
    """A masked array keeps a number under its mask, which must not enter any decision."""
    gaps = GAPS[name]
    at = int(C.to_numpy().max(1).argmax())
    with pytest.raises(pear.SolveError, match=f"sample {at} .NOT_FINITE"):
        pear.regret(PROBLEM, C.to_numpy(), gaps)
    with pytest.raises(ProblemError, match=f"y.* is NaN or infinite in row {at}: fill these cells"):
        pear.DecisionRegressor(PROBLEM).fit(X.to_numpy(), gaps)
    with pytest.raises(ProblemError, match=f"base_forecast must be finite; row {at} is not"):
        pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(X.to_numpy(), C.to_numpy(), base_forecast=gaps)
    with pytest.raises(pear.SolveError, match=f"sample {at} .NOT_FINITE"):
        fitted().score(X.to_numpy(), gaps)
    with pytest.raises(ProblemError, match=f"C is not finite in row {at}; leave such rows out"):
        pear.walk_forward(PROBLEM, X.to_numpy(), gaps, {"own": C.to_numpy()}, splits=2)
    with pytest.raises(ProblemError, match=r"lb\[\d\] is nan; lb may hold"):
        pear.Problem(lb=gaps.iloc[at] if hasattr(gaps, "iloc") else gaps[at])


def test_masked_features_are_missing():
    rows = np.ma.array(X.to_numpy(), mask=np.eye(12, 2, dtype=bool))
    with pytest.raises(ProblemError, match="X is NaN or infinite in rows 0, 1: fill"):
        pear.DecisionRegressor(PROBLEM).fit(rows, C.to_numpy())
    with pytest.raises(ValueError, match="contains NaN"):
        fitted().predict(rows)


def test_a_column_without_numbers_is_named():
    with pytest.raises(ProblemError, match=r"^column 1 of cost holds (str|object); expected numbers: convert it"):
        pear.solve(PROBLEM, C.assign(level="low")[[0, "level", 1]].set_axis([0, 1, 2], axis=1))
    with pytest.raises(ProblemError, match=r"^ub holds datetime64.*; expected numbers"):
        pear.Problem(ub=pd.Series(DAYS))

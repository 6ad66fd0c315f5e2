"""The diagnosis: parts that add up, checked against brute force, finite differences and perturbed forecasts."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import pear
from pear.diagnosis import Diagnosis, decision_path
from pear.errors import ProblemError
from pear.wording import format_percent

N = 6


def problems():
    rng = np.random.default_rng(5)
    rows = {"G": rng.normal(size=(4, N)), "h": rng.uniform(0.5, 2, 4), "lb": -1.0, "ub": rng.uniform(0.5, 2, N)}
    L = rng.normal(size=(N, N))
    Q, flat = L @ L.T + 0.1 * np.eye(N), L[:, :2] @ L[:, :2].T
    items = {"G": rng.integers(1, 9, (2, N)), "h": [14, 13], "lb": 0.0, "ub": 1.0, "sense": "max"}
    own = {"G": rng.normal(size=(8, 4, N)), "h": rng.uniform(0.5, 2, (8, 4)), "lb": -1.0, "ub": 1.0}
    return {
        "LP": pear.Problem(**rows),
        "LP to maximise": pear.Problem(**rows, sense="max"),
        "LP with rows of each sample": pear.Problem(**own),
        "QP": pear.Problem(Q=Q, **rows),
        "QP to maximise": pear.Problem(Q=-Q, **rows, sense="max"),
        "QP on a simplex": pear.Problem(Q=Q, A=np.ones((1, N)), b=[1.0], lb=0.0),
        "QP with singular curvature": pear.Problem(Q=flat, **rows),
        "QP with flat variables": pear.Problem(Q=np.diag([1.0, 2.0, 1.0, 0.0, 0.0, 0.0]), **rows),
        "integer": pear.Problem(**items, integer=True),
        "mixed integer": pear.Problem(**items, integer=[0, 1, 2]),
        "paths": pear.tasks.shortest_path((3, 3)).problem,
    }


PROBLEMS = problems()


def pair(problem, seed=0, size=0.8, count=8):
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.2, 1.0, (count, problem.n)) if problem.n == 12 else rng.normal(size=(count, problem.n))
    return true + size * np.abs(true).mean() * rng.normal(size=true.shape), true


@pytest.fixture(scope="module")
def found():
    """Return the diagnosis of every problem, by name."""
    return {name: pear.diagnose(problem, *pair(problem)) for name, problem in PROBLEMS.items()}


@pytest.mark.parametrize("name", PROBLEMS)
def test_parts_add_up_to_the_regret(found, name):
    problem, one = PROBLEMS[name], found[name]
    regret = pear.regret(problem, *pair(problem)).numpy()
    np.testing.assert_array_equal(one.regret, regret)
    assert one.attributed.all()
    assert regret.max() > 0.01
    assert np.abs(one.attribution.sum(1) - regret).max() <= 1e-8 * np.abs(one.best).max()
    assert one.normalized_regret == pear.normalized_regret(problem, *pair(problem))


@pytest.mark.parametrize("name", PROBLEMS)
def test_attribution_is_the_integral_along_the_path(found, name):
    """The attribution follows from the mean of the decisions at many points between the true and the predicted cost."""
    problem, one = PROBLEMS[name], found[name]
    predicted, true = pair(problem)
    count = 300 if name == "mixed integer" else 2000
    points, steps = (np.arange(count) + 0.5) / count, 4 / count
    for i in range(2):
        cost = true[i] + points[:, None] * (predicted - true)[i]
        mean = pear.solve(problem[[i] * count] if problem.batch else problem, cost).x.mean(0).numpy()
        expected = problem.sign * (predicted - true)[i] * (mean - one.decision[i])
        scale = np.abs((predicted - true)[i]).max() * (
            np.abs(one.decision[i]).max() + np.abs(one.best_decision[i]).max()
        )
        np.testing.assert_allclose(one.attribution[i], expected, atol=steps * scale)


def test_half_of_error_times_gradient_on_one_active_set():
    rng = np.random.default_rng(1)
    L = rng.normal(size=(4, 4))
    problem = pear.Problem(Q=L @ L.T + np.eye(4), A=np.ones((1, 4)), b=[1.0])
    true = rng.normal(size=(5, 4))
    predicted = true + rng.normal(size=(5, 4))
    one = pear.diagnose(problem, predicted, true)
    g = pear.regret_gradient(problem, predicted, true, smoothing=0.0).numpy()
    np.testing.assert_allclose(one.attribution, 0.5 * (predicted - true) * g, atol=1e-12)
    np.testing.assert_array_equal(one.margin, 1.0)
    assert (one.pieces == 1).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_tangent_and_normal_add_up_to_the_squared_error(found, name):
    one = found[name]
    assert (one.tangent >= 0).all()
    assert (one.normal >= 0).all()
    np.testing.assert_allclose(one.tangent + one.normal, one.squared_error, rtol=1e-10)


def test_tangent_part_at_the_forecast_is_what_the_loss_sees():
    """The tangent part at the forecast is eᵀPe, which equals eᵀg for the gradient g of a loss with the same λ."""
    task = pear.tasks.shortest_path((3, 3))
    predicted, true = pair(task.problem)
    one = pear.diagnose(task.problem, predicted, true)
    g = pear.regret_gradient(task.problem, predicted, true, smoothing="auto").numpy()
    local, size = ((predicted - true) * g).sum(1), one.squared_error.max()
    np.testing.assert_allclose(one.tangent_at_forecast, local, atol=1e-10 * size)
    assert one.zero_gradient.tolist() == (np.abs(g).max(1) == 0).tolist()
    given = pear.diagnose(task.problem, predicted, true, smoothing=0.5)
    np.testing.assert_allclose(given.squared_error, ((predicted - true) ** 2).sum(1) / 0.5)


@pytest.mark.parametrize("name", ["QP", "paths", "LP to maximise", "integer"])
def test_tangent_part_is_the_mean_along_the_path(found, name):
    """The tangent part is the mean of eᵀPe at many points between the true and the predicted cost."""
    problem = PROBLEMS[name].relaxed()
    predicted, true = pair(problem)
    smoothing = 0.0 if name == "QP" else 0.5
    one = pear.diagnose(problem, predicted, true, smoothing=smoothing)
    error, count = (predicted - true)[0], 2000
    between = true[0] + ((np.arange(count) + 0.5) / count)[:, None] * error
    g = pear.regret_gradient(problem, between, between - error, smoothing=smoothing).numpy()
    np.testing.assert_allclose(one.tangent[0], (g @ error).mean(), atol=4 / count * one.squared_error[0])


@pytest.mark.parametrize("name", ["LP", "integer", "paths"])
def test_margin_is_where_the_decision_changes(found, name):
    problem, one = PROBLEMS[name], found[name]
    predicted, true = pair(problem)

    def decide(share):
        return pear.solve(problem, true + share[:, None] * (predicted - true)).x.numpy()

    same = np.abs(decide(one.margin * (1 - 1e-6)) - one.best_decision).max(1) <= 1e-9
    assert same.all()
    changed = one.margin < 1
    assert changed.any()
    moved = np.abs(decide(np.minimum(one.margin * (1 + 1e-6), 1.0)) - one.best_decision).max(1) > 1e-9
    assert moved[changed].all()


def test_margin_of_a_quadratic_program_is_where_its_active_set_changes(found):
    problem, one = PROBLEMS["QP on a simplex"], found["QP on a simplex"]
    predicted, true = pair(problem)
    inside = one.margin < 1
    assert inside.any()
    sets = [
        pear.solve(problem, true + (share * one.margin)[:, None] * (predicted - true)).active.lower.numpy()
        for share in (1e-6, 1 - 1e-6, 1 + 1e-6)
    ]
    assert (sets[0] == sets[1]).all()
    assert (sets[1] != sets[2]).any(1)[inside].all()


def test_constraints_bind_at_prices_that_are_differences_of_values():
    fields = {"G": [[1.0, 2.0]], "h": [2.0], "A": [[1.0, -1.0]], "b": [0.5], "lb": [0.0, 0.0], "ub": [5.0, 5.0]}
    true = np.array([[1.0, 1.0], [-1.0, -1.0]])
    one = pear.diagnose(pear.Problem(**fields, sense="max"), true, true)
    table = one.constraints().set_index("constraint")
    assert list(table["kind"]) == ["equality", "row", "lower bound", "lower bound", "upper bound", "upper bound"]

    def value(**changed):
        return pear.solve(pear.Problem(**(fields | changed), sense="max"), true).value.mean().item()

    step = 1e-4
    gains = {
        "row 0": value(h=[2.0 + step]),
        "equality 0": value(b=[0.5 + step]),
        "x1 at its lower bound": value(lb=[0.0, -step]),
    }
    for name, gain in gains.items():
        np.testing.assert_allclose(table.loc[name, "shadow_price"], (gain - value()) / step, atol=1e-9)
        assert table.loc[name, "shadow_price"] != 0
    assert table.loc["equality 0", "binding"] == 1.0
    assert table.loc["row 0", "binding"] == table.loc["x1 at its lower bound", "binding"] == 0.5
    assert (table["binding"] == table["best_binding"]).all()


def test_a_model_is_diagnosed_by_its_predicted_values():
    rng = np.random.default_rng(2)
    M = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -1.0]])
    model = pear.Model(
        pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0),
        cost_map=pear.CostMap(M, known=[0.1, 0.2, 0.3, 0.4], names=["gas", "power"]),
        variables=("buy", "sell", "store", "wait"),
    )
    true, predicted = rng.normal(size=(12, 2)), rng.normal(size=(12, 2))
    one = pear.diagnose(model, predicted, true)
    assert one.attribution.shape == (12, 2)
    np.testing.assert_allclose(one.attribution.sum(1), pear.regret(model, predicted, true).numpy(), atol=1e-12)
    assert one.names == ("gas", "power")
    assert "buy at its lower bound" in one.constraint_names
    assert set(one.values()["value"]) == {"gas", "power"}


def test_inputs_of_every_kind_are_the_same():
    problem = PROBLEMS["LP"]
    predicted, true = pair(problem)
    one = pear.diagnose(problem, predicted, true)
    frames = [pd.DataFrame(values, columns=list("abcdef")) for values in (predicted, true)]
    kinds = [
        (torch.from_numpy(predicted).requires_grad_(), torch.from_numpy(true)),
        (predicted.tolist(), true.tolist()),
        tuple(frames),
    ]
    for given in kinds:
        np.testing.assert_array_equal(pear.diagnose(problem, *given).attribution, one.attribution)
    assert pear.diagnose(problem, *frames).names == tuple("abcdef")


@pytest.mark.parametrize("curvature", [None, 0.1])
def test_a_sparse_problem_is_diagnosed_like_a_dense_one(curvature):
    n, rng = 500, np.random.default_rng(3)
    ramp = sparse.diags([np.ones(n), -np.ones(n - 1)], [0, 1], shape=(n - 1, n))
    fields = {"G": sparse.vstack([ramp, -ramp]).tocsr(), "h": np.full(2 * (n - 1), 0.5), "lb": -1.0, "ub": 1.0}
    problem = pear.Problem(**fields, Q=None if curvature is None else curvature * sparse.eye(n, format="csr"))
    assert problem.is_sparse
    true = np.sin(np.arange(n) / 20) + np.zeros((2, 1))
    predicted = true + 0.02 * rng.normal(size=true.shape)
    one = pear.diagnose(problem, predicted, true)
    assert one.attributed.all()
    np.testing.assert_allclose(one.attribution.sum(1), one.regret, atol=1e-8 * np.abs(one.best).max())
    np.testing.assert_allclose(one.tangent + one.normal, one.squared_error, rtol=1e-10)


def test_a_perfect_forecast_loses_nothing():
    problem = PROBLEMS["LP"]
    _, true = pair(problem)
    one = pear.diagnose(problem, true, true)
    assert (one.attribution == 0).all()
    assert (one.margin == 1).all()
    assert not one.zero_gradient.any()
    assert one.sentences[0] == "The decisions lose nothing: all 8 are as good as the best ones."
    assert one.worst(1)["why"].tolist() == ["Nothing is lost."]


def test_a_tie_under_the_truth_is_no_loss_and_no_change():
    """Truth and forecast may have several optimal decisions; the parts add up whichever of them a solver returns."""
    choose = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    true = np.array([[1.0, 1.0, 3.0], [1.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    predicted = np.array([[2.0, 1.0, 0.5], [3.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    one = pear.diagnose(choose, predicted, true)
    np.testing.assert_allclose(one.attribution.sum(1), [2.0, 1.0, 0.0], atol=1e-12)


def margin_sentence(one):
    return next(line for line in one.sentences if "that of the truth" in line)


def test_the_margin_is_told_of_what_it_is_of():
    """The sentence speaks of decisions for linear programs, and of sets of binding constraints for quadratic ones."""
    curved = pear.diagnose(pear.Problem(Q=[[1.0]], lb=0.0), [[1.0]], [[-1.0]])
    assert not curved.linear
    assert margin_sentence(curved) == (
        "In 0 of 1 samples the set of binding constraints is that of the truth; in the others it first changes at 50 % "
        "of the error (median)."
    )
    choose = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    tied = pear.diagnose(choose, [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], [[1.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    assert tied.linear
    same = int((tied.decision == tied.best_decision).all(1).sum())
    more = f"; in {2 - same} more it is another one, as good under the true costs" if same < 2 else ""
    assert margin_sentence(tied) == f"In {same} of 2 samples the decision is that of the truth{more}."
    lost = pear.diagnose(choose, [[2.0, 2.0, 2.0]] * 3, 2 - np.eye(3))  # tied under the forecast alone
    assert (lost.margin == 1).all()
    assert margin_sentence(lost) == (
        "In 1 of 3 samples the decision is that of the truth; in the others it first changes at 100 % of the error "
        "(median)."
    )


def test_worst_samples_say_why():
    choose = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    one = pear.diagnose(choose, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 3.0]], names=["coal", "gas"])
    assert one.worst(1)["why"].item() == (
        "gas was predicted as 1 and came to 3: 67 % of the loss. x1 is 1 where 0 was best."
    )
    assert one.sentences[0] == "The decisions lose 100 % of the best value (2 of 2); all of it in 1 of 2 samples."
    assert one.sentences[1] == "Of 2 predicted values the errors of these cost most: gas (67 %), coal (33 %)."
    assert str(one).splitlines() == one.sentences


@pytest.mark.parametrize(
    ("groups", "kind", "labels"),
    [
        (["a", "b"] * 4, "group", {"a", "b"}),
        (pd.Series(["a", "b"] * 4, name="region"), "region", {"a", "b"}),
        (pd.date_range("2024-01-01", periods=8, freq="3h"), "hour of day", set(range(0, 24, 3))),
        (pd.date_range("2024-01-01", periods=8, freq="3h", tz="Europe/Dublin"), "hour of day", set(range(0, 24, 3))),
        (pd.date_range("2024-01-15", periods=8, freq="10D"), "month", {"2024-01", "2024-02", "2024-03"}),
        ([datetime.date(2024, 1, day) for day in range(1, 9)], "weekday", {"Monday", "Sunday", "Tuesday", "Wednesday"}),
    ],
)
def test_groups(groups, kind, labels):
    problem = PROBLEMS["LP"]
    one = pear.diagnose(problem, *pair(problem), groups=groups)
    table = one.by_group()
    assert one.grouped_by == kind == table.columns[0]
    assert labels <= set(table[kind])
    np.testing.assert_allclose(table["regret"].sum(), one.regret.sum())
    assert table["samples"].sum() == 8
    assert (np.diff(table["regret"]) <= 0).all()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT, pd.NA])
def test_a_sample_without_a_label_is_named(missing):
    problem = PROBLEMS["LP"]
    dates = [*pd.date_range("2024-01-01", periods=7, freq="3h"), missing]
    for labels in (["a"] * 7 + [missing], pd.Series(["a"] * 7 + [missing]), dates, pd.Series(dates)):
        with pytest.raises(ProblemError, match="sample 7 has no group"):
            pear.diagnose(problem, *pair(problem), groups=labels)


def test_groups_named_as_a_column_keep_their_labels():
    problem = PROBLEMS["LP"]
    one = pear.diagnose(problem, *pair(problem))
    dated = pear.diagnose(problem, *pair(problem), groups=["a"] * 8)
    for name in {*one.worst(1).reset_index().columns, *dated.by_group().columns} - {"group"}:
        grouped = pear.diagnose(problem, *pair(problem), groups=pd.Series(["a", "b"] * 4, name=name))
        assert set(grouped.by_group()[f"group {name}"]) == {"a", "b"}
        assert list(grouped.samples()[f"group {name}"]) == ["a", "b"] * 4


def test_a_missing_gradient_is_told_where_it_costs():
    choose = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    for predicted, told in (([[9.0, 1.0]], True), ([[1.0, 9.0]], False)):
        one = pear.diagnose(choose, predicted, [[1.0, 3.0]], smoothing=0.1)
        assert one.zero_gradient.all()
        assert any("no gradient" in line and "train with guidance" in line for line in one.sentences) == told


def test_comparison_says_what_fell():
    """One forecaster has a normal error, the other a tangent error of the same size."""
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    true = np.array([[1.0, 1.2], [1.1, 1.0]])
    tangent, normal = true + [[0.5, -0.5]] * np.array([[1.0], [-1.0]]), true + 0.5
    found = [pear.diagnose(problem, predicted, true, smoothing=10.0) for predicted in (tangent, normal)]
    lines = found[0].compare(found[1], ("MSE", "PEAR"))
    assert lines[0].startswith("PEAR loses 0 % of the best value where MSE loses ")
    assert lines[1] == (
        "The tangent share of the squared error, which moves decisions, falls from 100 % (MSE) to 0 % (PEAR)."
    )
    assert lines[2] == "PEAR decides better in 2 of 2 samples and worse in 0."
    other = pear.diagnose(problem, normal, true, smoothing=1.0)
    assert found[0].compare(other)[1] == (
        "Their tangent shares are not compared: they are of different smoothed problems (the first: smoothing is 10, "
        "as it was given; the second: smoothing is 1, as it was given); pass both the same smoothing."
    )
    with pytest.raises(ProblemError, match="compare takes a Diagnosis; got int"):
        found[0].compare(3)
    with pytest.raises(ProblemError, match="of the same samples"):
        found[0].compare(pear.diagnose(problem, tangent[:1], true[:1]))


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_share_that_is_lost_is_the_same_in_every_unit(unit):
    choose = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    true = unit * np.array([[2.0, 5.0]])
    one = pear.diagnose(choose, true[:, ::-1].copy(), true)
    assert one.sentences[0].startswith(f"The decisions lose 150 % of the best value ({3 * unit:.4g} of {2 * unit:.4g})")
    assert one.compare(one)[0].startswith("The second loses 150 % of the best value where the first loses 150 %")
    free = pear.diagnose(choose, [[2.0, 1.0]], [[0.0, 3.0]])
    assert free.sentences[0].startswith("The decisions lose 3, where the best value is 0; all of it in 1 of 1")


@pytest.mark.parametrize("seed", [0, 1])
def test_training_on_regret_lowers_the_tangent_share(seed):
    task = pear.tasks.shortest_path((4, 4))
    train, validation, test = task.split(task.samples(400, degree=8, noise=0.5, seed=seed))
    found = []
    for loss in (torch.nn.MSELoss(), pear.PEARLoss(task.problem)):
        torch.manual_seed(0)
        model = torch.nn.Linear(5, task.problem.n)
        pear.fit(model, loss, train, validation, metric=task.normalized_regret, config=pear.FitConfig(max_epochs=20))
        found.append(pear.diagnose(task.problem, model(test.features), test.costs))
    assert found[1].normalized_regret < found[0].normalized_regret
    assert found[1].tangent_share < found[0].tangent_share
    assert any("falls from" in line for line in found[0].compare(found[1]))
    for one in found:
        assert np.abs(one.attribution.sum(1) - one.regret).max() <= 1e-8 * np.abs(one.best).max()


def test_a_path_that_is_not_followed_to_the_end_is_marked(monkeypatch):
    monkeypatch.setattr(decision_path, "MAX_PIECES", 3)
    problem = PROBLEMS["QP on a simplex"]
    one = pear.diagnose(problem, *pair(problem))
    whole = pear.regret(problem, *pair(problem)).numpy()
    given_up = ~one.attributed
    assert given_up.any()
    assert np.isnan(one.attribution[given_up]).all()
    np.testing.assert_array_equal(one.regret, whole)
    assert any(f"The regret of {given_up.sum()} samples is not attributed" in line for line in one.sentences)
    assert len(one.values()) == N


def test_a_smooth_term_is_diagnosed_without_attribution():
    entropy = pear.Smooth(
        value=lambda z: (z * z.log()).sum(1),
        gradient=lambda z: z.log() + 1,
        hessian=lambda z: torch.diag_embed(1 / z),
        start=[0.3, 0.3, 0.4],
    )
    problem = pear.Problem(A=np.ones((1, 3)), b=[1.0], phi=entropy)
    true = np.array([[0.1, 0.2, 0.3]])
    one = pear.diagnose(problem, true[:, ::-1].copy(), true)
    assert one.regret[0] > 0
    assert not one.attributed.any()
    assert any("φ" in line for line in one.sentences)
    np.testing.assert_allclose(one.tangent + one.normal, one.squared_error, rtol=1e-10)


def refusals():
    problem = PROBLEMS["LP"]
    predicted, true = pair(problem)
    frame = pd.DataFrame(true, columns=list("abcdef"))
    return {
        "same shape": lambda: pear.diagnose(problem, predicted[:3], true),
        "same columns": lambda: pear.diagnose(problem, frame[list("fedcba")], frame),
        "different orders": lambda: pear.diagnose(problem, frame[::-1], frame),
        "names must name the 6": lambda: pear.diagnose(problem, predicted, true, names=["a"]),
        "one label for each of the 8": lambda: pear.diagnose(problem, predicted, true, groups=["a"]),
        "no groups were given": lambda: pear.diagnose(problem, predicted, true).by_group(),
        "worst takes the number": lambda: pear.diagnose(problem, predicted, true).worst(-1),
        "smoothing must be": lambda: pear.diagnose(problem, predicted, true, smoothing=-1.0),
        "no sample to diagnose": lambda: pear.diagnose(problem, predicted[:0], true[:0]),
        "pass its problem": lambda: pear.diagnose(pear.tasks.shortest_path((3, 3)), predicted, true),
    }


@pytest.mark.parametrize("message", refusals())
def test_refusals(message):
    with pytest.raises(ProblemError, match=message):
        refusals()[message]()


MPS = """NAME sell
OBJSENSE
    MAX
ROWS
 N value
 G least
 L weight
 L range
 E total
COLUMNS
    a value 1 least 1
    a weight 1 range 1
    a total 1
    b value 2 least 1
    b weight 2 total 1
    b range 2
RHS
    RHS least 0.5 weight 3
    RHS range 4 total 2
RANGES
    RNG range 3
ENDATA
"""


def test_rows_of_a_file_keep_their_names(tmp_path):
    """Constraints have the order equalities, upper limits, lower limits, which is not the order of the file."""
    (tmp_path / "sell.mps").write_text(MPS)
    model = pear.from_mps(tmp_path / "sell.mps")
    one = pear.diagnose(model, [[1.0, 2.0]], [[2.0, 1.0]])
    assert one.constraint_names[:5] == ("total", "weight", "range (upper limit)", "least", "range (lower limit)")
    x = one.decision[0]
    tight = {"total": True, "weight": x[0] + 2 * x[1] > 3 - 1e-9, "least": x[0] + x[1] < 0.5 + 1e-9}
    assert {name: bool(one.active[0, one.constraint_names.index(name)]) for name in tight} == tight


def test_a_sample_without_a_number_is_named():
    problem = PROBLEMS["LP"]
    predicted, true = pair(problem)
    predicted[3, 0] = np.nan
    with pytest.raises(pear.SolveError, match="sample 3"):
        pear.diagnose(problem, predicted, true)


def test_a_diagnosis_is_public_and_short():
    one = pear.diagnose(PROBLEMS["LP"], *pair(PROBLEMS["LP"]))
    assert isinstance(one, Diagnosis)
    assert repr(one).startswith("Diagnosis(8 samples, 6 predicted values, normalised regret ")
    assert len(one.samples()) == 8


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.00004, "0 %"),
        (0.0005, "0.05 %"),
        (0.0412, "4.1 %"),
        (0.5, "50 %"),
        (-1e-9, "0 %"),
        (0.9967, "99.7 %"),
        (0.99999999, "100 %"),
    ],
)
def test_shares_in_words(share, text):
    assert format_percent(share) == text

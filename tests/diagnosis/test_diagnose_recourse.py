"""A diagnosis of models that predict right-hand sides: what their errors cost, and which violations are paid for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pear
from pear.diagnosis import forecast_steps, recourse_attribution
from pear.errors import ProblemError, SolveError

SAMPLES = 12


def plant(**changes):
    """Return a model in which two fuels and a purchase meet a demand.

    The costs of the fuels, the demand and the joint capacity of the fuels are predicted.
    """
    fields = {"A": [[1.0, 1.0, 1.0]], "b": [5.0], "G": [[1.0, 1.0, 0.0]], "h": [6.0], "lb": 0.0, "ub": [4.0, 4.0, 20.0]}
    problem = pear.Problem(**{**fields, **changes})
    known = np.array([0.0, 0.0, 9.0])
    return pear.Model.predicting(
        problem, cost=[0, 1], b=True, h=True, known=known, recourse=pear.Penalty(b=(12.0, 1.0), h=4.0)
    )


def values(seed=0):
    """Return predicted and true values (N, 4); the capacity is predicted exactly."""
    draw = np.random.default_rng(seed)
    low, high = [1.0, 1.0, 3.0, 4.0], [5.0, 5.0, 9.0, 7.0]
    true = draw.uniform(low, high, (SAMPLES, 4))
    predicted = true + draw.normal(size=true.shape)
    predicted[:, 3] = true[:, 3]
    return predicted, true


CURVED = {"Q": np.diag([1.0, 2.0, 3.0])}
KINDS = {
    "linear": plant(),
    "curved": plant(**CURVED),
    "integer": plant(integer=[0]),
    "projection": plant().with_recourse(pear.Projection()),
    "maximised": pear.Model.predicting(
        pear.Problem(G=[[1.0, 2.0]], h=[3.0], lb=0.0, ub=2.0, sense="max"), h=True, recourse=pear.Penalty(h=9.0)
    ),
}


def values_of(kind):
    predicted, true = values()
    return (predicted[:, [0, 1, 3]] + 0.3, true[:, [0, 1, 3]]) if kind == "maximised" else (predicted, true)


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_add_up_to_the_regret(kind):
    predicted, true = values_of(kind)
    found = pear.diagnose(KINDS[kind], predicted, true)
    regret = pear.regret(KINDS[kind], predicted, true).numpy()
    assert regret.max() > 0.1
    np.testing.assert_allclose(found.regret, regret, atol=1e-9)
    assert found.attributed.all()
    np.testing.assert_allclose(found.attribution.sum(1), regret, atol=1e-9)
    exact = predicted == true
    assert (found.attribution[exact] == 0).all()


def shapley_of_steps(model, predicted, true, steps):
    """Return the parts of one sample by their definition for a ``Projection``, from calls of ``pear.regret``."""
    parts, error = np.zeros(len(true)), predicted - true
    wrong = np.flatnonzero(error)
    for order in (wrong, wrong[::-1]):
        at, before = true.copy(), 0.0
        for step in range(1, steps + 1):
            for j in order:
                at[j] = predicted[j] if step == steps else true[j] + step / steps * error[j]
                after = float(pear.regret(model, at[None], true[None]))
                parts[j] += 0.5 * (after - before)
                before = after
    return parts


def test_the_parts_of_a_projection_are_those_of_the_moves(monkeypatch):
    monkeypatch.setattr(forecast_steps, "_STEPS", (2, 1))
    model = KINDS["projection"]
    predicted, true = values()
    found = pear.diagnose(model, predicted, true)
    assert (found.pieces == 2).all()
    for i in (0, 5):
        np.testing.assert_allclose(found.attribution[i], shapley_of_steps(model, predicted[i], true[i], 2), atol=1e-8)


def test_costs_alone_are_attributed_as_in_a_model_without_recourse():
    """If only costs are wrong, 16 steps come close to the exact attribution of a model without recourse."""
    predicted, true = values()
    true[:, 2:], predicted[:, 2:] = [5.0, 6.0], [5.0, 6.0]
    model = plant()
    rows = {name: torch.tensor([side], dtype=torch.float64) for name, side in (("b", 5.0), ("h", 6.0))}
    exact = pear.diagnose(pear.Model(model.problem._with(**rows), cost_map=model.cost_map), predicted, true)
    found = pear.diagnose(model, predicted, true)
    np.testing.assert_allclose(found.regret, exact.regret, atol=1e-9)
    np.testing.assert_allclose(found.attribution, exact.attribution, atol=0.01 * exact.regret.max())
    assert exact.regret.max() > 0.5
    assert (found.attribution[:, 2:] == 0).all()


def test_the_parts_of_a_program_whose_active_set_stays_are_exact():
    """The value V is quadratic while the active set stays, so that the steps integrate its gradient exactly.

    The integral is the gradient at the middle of the path.
    """
    problem = pear.Problem(Q=np.eye(2), A=[[1.0, 1.0]], b=[0.0])
    model = pear.Model.predicting(problem, b=True, recourse=pear.Penalty(b=1000.0))
    true, predicted = np.array([1.0, 3.0, 4.0]), np.array([2.0, 2.5, 5.0])
    found = pear.diagnose(model, predicted[None], true[None])

    def gradient(y):  # of V by c₁, c₂ and b: the decision, and the multiplier (b + c₁ + c₂)/2 of x₁ + x₂ = b
        price = (y[2] + y[0] + y[1]) / 2
        return np.array([price - y[0], price - y[1], price])

    error, middle = predicted - true, (true + predicted) / 2
    z = gradient(predicted)[:2]
    paid = np.append(-z, 1000.0)  # too much of b costs 1000 a unit
    np.testing.assert_allclose(found.attribution[0], error * (gradient(middle) + paid), rtol=1e-9)


def test_a_row_of_two_values_is_shared_by_their_errors():
    problem = pear.Problem(A=[[1.0]], b=[0.0], lb=0.0)
    demand = pear.ConstraintMap(b=[[1.0, 1.0]])
    model = pear.Model(problem, known=[1.0], constraint_map=demand, recourse=pear.Penalty(b=(10.0, 1.0)))
    found = pear.diagnose(model, [[1.0, 2.0]], [[2.0, 5.0]])
    np.testing.assert_allclose(found.attribution, [[9.0, 27.0]])  # 10 − 1 for each of the 1 + 3 that are missing
    assert found.violation_names == ("equality 0", "equality 0")


def test_violations_are_named_and_priced():
    predicted, true = values()
    found = pear.diagnose(plant(), predicted, true, names=["coal", "gas", "demand", "line"])
    z, price = found.decision, {"too little": 12.0, "too much": 1.0}
    missing = true[:, 2] - z.sum(1)
    for j, (name, kind) in enumerate(zip(found.violation_names, found.violation_kinds, strict=True)):
        if name == "demand":
            amount = np.maximum(missing if kind == "too little" else -missing, 0)
            np.testing.assert_allclose(found.violation[:, j], amount, atol=1e-8)
            np.testing.assert_allclose(found.violation_cost[:, j], price[kind] * amount, atol=1e-7)
    often = int((missing > 1e-6).sum())
    assert 0 < often < SAMPLES
    said = " ".join(found.sentences)
    assert f"demand: too little under the truth in {often} of {SAMPLES} samples, which costs" in said
    assert "are not found" in said
    assert "tangent" not in said
    table = found.violations()
    assert {*table["value"]} == {"demand", "line"}
    assert table["cost"].is_monotonic_decreasing


def test_a_row_at_least_as_large_as_its_value_has_too_little(tmp_path):
    lines = "min\n cost: 2 coal + 9 buy\nst\n demand: coal + buy >= 5\nbounds\n coal <= 4\n buy <= 20\nend\n"
    (tmp_path / "plant.lp").write_text(lines)
    pytest.importorskip("highspy")
    model = pear.from_file(tmp_path / "plant.lp", predicted=["coal"], rows=["demand"], recourse={"demand": 30.0})
    found = pear.diagnose(model, [[2.0, 4.0]], [[2.0, 6.0]])
    assert list(zip(found.violation_names, found.violation_kinds, strict=True)) == [("demand", "too little")]
    np.testing.assert_allclose(found.regret, [60.0 - 18.0])
    np.testing.assert_allclose(found.attribution, [[0.0, 42.0]], atol=1e-9)


def test_the_page_shows_violations(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    predicted, true = values()
    found = pear.diagnose(plant(), predicted, true, groups=["a", "b"] * (SAMPLES // 2))
    text = found.save_html(tmp_path / "plant.html").read_text("utf-8")
    assert "What the truth does not allow" in text
    assert "too little" in text
    assert len(found.by_group()) == 2
    assert "predicted as" in found.worst(1)["why"].iloc[0]


def test_right_hand_sides_do_not_weigh_the_variables():
    """The variable that differs most is named; the predicted demand is not taken for the cost of a variable."""
    problem = pear.Problem(A=[[1.0, 1.0]], b=[0.0], lb=0.0, ub=[3.0, 9.0])
    model = pear.Model.predicting(problem, cost=[0], b=True, known=[0.0, 20.0], recourse=pear.Penalty(b=50.0))
    found = pear.diagnose(model, [[25.0, 4.0]], [[10.0, 0.5]])
    assert "x1 is 4 where 0 was best" in found.worst(1)["why"].iloc[0]


def test_known_values_differ_by_sample():
    """Each sample is diagnosed as a model with its own known values."""
    problem = pear.Problem(A=[[1.0, 1.0]], b=[0.0], lb=0.0, ub=[1.0, 30.0])
    level = pear.KnownMap({"level": ()}, ub=[[1.0], [0.0]])
    recourse = pear.Penalty(b=(12.0, 1.0))
    model = pear.Model.predicting(problem, b=True, recourse=recourse)
    model = pear.Model(
        model.problem,
        cost_map=model.cost_map,
        constraint_map=model.constraint_map,
        recourse=recourse,
        known_map=level,
    )
    predicted, true = values()
    predicted, true = predicted[:3, :3], true[:3, :3]
    levels = np.array([0.0, 1.0, 2.0])
    found = pear.diagnose(model, predicted, true, known={"level": levels})
    for i in range(3):
        one = pear.diagnose(model, predicted[[i]], true[[i]], known={"level": levels[[i]]})
        np.testing.assert_allclose(found.attribution[[i]], one.attribution, atol=1e-9)


def test_the_work_is_bounded(monkeypatch):
    """Each sample has three wrong values and needs 4 decisions, so that a limit of 20 is enough for five samples."""
    monkeypatch.setattr(recourse_attribution, "MOST_DECISIONS", 20)
    predicted, true = values()
    found = pear.diagnose(plant(), predicted, true)
    assert found.attributed.sum() == 5
    assert set(np.flatnonzero(found.attributed)) == set(np.argsort(-found.regret)[:5])
    said = " ".join(found.sentences)
    assert "The regret of 7 samples, " in said
    assert "more than 20 decisions" in said


def test_a_mixture_without_a_decision_is_not_attributed():
    """The problem is bounded under truth and forecast, but unbounded at a mixture of the two."""
    problem = pear.Problem(A=[[1.0, -1.0]], b=[0.0], lb=0.0, G=[[-1.0, 0.0]], h=[0.0])
    model = pear.Model.predicting(problem, h=True, recourse=pear.Penalty(h=9.0))
    found = pear.diagnose(model, [[99.0, -98.0, 0.0]], [[-98.0, 99.0, -1.0]])
    assert not found.attributed.any()
    assert np.isfinite(found.regret).all()
    assert "a mixture of truth and forecast has no decision" in " ".join(found.sentences)


def test_bad_input_is_refused():
    predicted, true = values()
    with pytest.raises(ProblemError, match="same shape"):
        pear.diagnose(plant(), predicted[:, :3], true)
    with pytest.raises(ProblemError, match="4 predicted values"):
        pear.diagnose(plant(), predicted, true, names=["a"])
    careless = pear.Model.predicting(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), b=True)
    with pytest.raises(ProblemError, match="must say what happens"):
        pear.diagnose(careless, predicted[:, :3], true[:, :3])
    predicted[3, 1] = np.nan
    with pytest.raises(SolveError, match="3"):
        pear.diagnose(plant(), predicted, true)


def test_two_forecasters_are_compared():
    predicted, true = values()
    found, better = (pear.diagnose(plant(), one, true) for one in (predicted, true))
    assert better.regret.max() < 1e-9
    lines = found.compare(better)
    assert "less" in lines[0]
    assert not any("smooth" in line or "tangent" in line for line in lines)

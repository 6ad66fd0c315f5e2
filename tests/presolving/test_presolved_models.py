"""Presolve in importers: it removes CVXPY's auxiliary variables, keeps the problem's own, and changes no result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pear

cp = pytest.importorskip("cvxpy", reason="CVXPY is not installed; pip install 'pear-dfl[cvxpy]'")
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
HOURS, CAPACITY, EFFICIENCY = 24, 1.0, 0.9


def battery_cvxpy() -> tuple[Any, list[Any]]:
    """Return the battery in CVXPY, with day-ahead prices and quadratic terms of state, charge and discharge."""
    price = cp.Parameter(HOURS, name="price")
    charge, discharge = (cp.Variable(HOURS, name=name, nonneg=True) for name in ("charge", "discharge"))
    state = cp.Variable(HOURS + 1, name="state", nonneg=True)
    wear = 0.05 * cp.sum_squares(charge) + 0.05 * cp.sum_squares(discharge)
    goal = price @ (charge - discharge) + 0.1 * cp.sum_squares(state - CAPACITY / 2) + wear
    rows = [
        state[0] == CAPACITY / 2,
        state[1:] == state[:-1] + EFFICIENCY * charge - discharge,
        state <= CAPACITY,
        charge <= 0.5,
        discharge <= 0.2,
    ]
    return cp.Problem(cp.Minimize(goal), rows), [price]


def battery_matrices() -> pear.Model:
    """Return the same battery from matrices; its variables are charge, discharge and state."""
    one, none = np.eye(HOURS), np.zeros((HOURS, 1))
    before, after = np.hstack([one, none]), np.hstack([none, one])
    first = np.eye(1, 3 * HOURS + 1, 2 * HOURS)
    known = np.r_[np.zeros(2 * HOURS), np.full(HOURS + 1, -0.1 * CAPACITY)]
    problem = pear.Problem(
        Q=np.diag(np.r_[np.full(2 * HOURS, 0.1), np.full(HOURS + 1, 0.2)]),
        A=np.vstack([first, np.hstack([-EFFICIENCY * one, one, after - before])]),
        b=np.r_[CAPACITY / 2, np.zeros(HOURS)],
        lb=0.0,
        ub=np.r_[np.full(HOURS, 0.5), np.full(HOURS, 0.2), np.full(HOURS + 1, CAPACITY)],
    )
    M = np.vstack([one, -one, np.zeros((HOURS + 1, HOURS))])
    return pear.Model(problem, cost_map=pear.CostMap(M, known), offset=0.1 * (HOURS + 1) * (CAPACITY / 2) ** 2)


def prices(samples: int, seed: int = 0) -> torch.Tensor:
    return 2.0 + torch.randn(samples, HOURS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_battery_has_the_size_that_it_has_by_hand() -> None:
    problem, parameters = battery_cvxpy()
    m, by_hand = pear.from_cvxpy(problem, parameters), battery_matrices()
    assert m.problem.n == by_hand.problem.n == 73
    assert m.problem.b.shape[-1] == 24  # by hand one more, which is a bound here: the state of the first hour
    assert m.problem.h is None
    assert m.offset == pytest.approx(by_hand.offset, rel=1e-14)
    assert "CVXPY adds 25 variables of its own; decisions leave them out." in m.report
    assert "Presolve removed 25 defining equalities, 25 defined variables." in m.report
    assert set(m.layout) == {"charge", "discharge", "state"}
    assert not any(name.startswith("auxiliary") for name in m.variables)
    found, expected = pear.solve(m, prices(5)), pear.solve(by_hand, prices(5))
    torch.testing.assert_close(found.value + m.offset, expected.value + by_hand.offset, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(m.decision(found.x)["state"], expected.x[:, 2 * HOURS :], rtol=0, atol=1e-9)
    parameters[0].value = prices(5)[0].numpy()
    problem.solve(cp.CLARABEL, **TIGHT)
    assert float(found.value[0]) + m.offset == pytest.approx(problem.value, abs=1e-8)


def test_the_loss_and_its_gradient_are_those_by_hand() -> None:
    m, by_hand = pear.from_cvxpy(*battery_cvxpy()), battery_matrices()
    results = []
    for model in (m, by_hand):
        predicted = prices(6).requires_grad_()
        loss = pear.PEARLoss(model, smoothing=0.05, injection=0.1, guidance=0.1)(predicted, prices(6, seed=1))
        results.append((loss.detach(), *torch.autograd.grad(loss, predicted)))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_a_model_file_and_its_decisions(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")
    m, rng = pear.from_cvxpy(*battery_cvxpy()), np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    fitted = pear.DecisionRegressor(m, smoothing=0.05, max_epochs=2, check_every=1).fit(X, prices(30).numpy())
    fitted.save(tmp_path / "battery.pear")
    loaded = pear.DecisionRegressor.load(tmp_path / "battery.pear")
    z = loaded.decide(X[:4])
    np.testing.assert_array_equal(z, fitted.decide(X[:4]))
    state = loaded.problem.decision(z)["state"]
    torch.testing.assert_close(state[:, 0], torch.full((4,), CAPACITY / 2).to(state), rtol=0, atol=1e-9)
    assert loaded.problem.offset == m.offset
    assert loaded.problem.report == m.report


TERMS: dict[str, Any] = {
    "turnover": lambda x, rng: cp.norm1(x - rng.uniform(0, 0.5, 5)) + cp.sum_squares(x),
    "factors": lambda x, rng: (
        cp.sum_squares(rng.normal(size=(2, 5)) @ x - rng.normal(size=2)) + 0.1 * cp.sum_squares(x)
    ),
    "huber": lambda x, rng: cp.sum(cp.huber(x - 0.3, 0.1)) + 0.1 * cp.sum_squares(x),
    "shifted squares": lambda x, rng: cp.sum_squares(x - rng.normal(size=5)),
    "a quadratic form": lambda x, rng: cp.quad_form(x - 0.2, np.diag([1.0, 2, 3, 4, 5]) + 0.5),
    "squares of sums": lambda x, rng: cp.square(cp.sum(x) - 1) + cp.sum_squares(cp.diff(x) - 0.1) + cp.max(x),
    "positive parts": lambda x, rng: 3 * cp.sum_squares(cp.pos(x - 0.4)) + cp.sum(cp.abs(2 * x - 1)),
}


@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("term", TERMS)
def test_the_optimum_is_that_of_cvxpy(term: str, sense: str) -> None:
    """The model has CVXPY's optimum, with redundant constraints and terms that need auxiliary variables."""
    rng = np.random.default_rng(list(TERMS).index(term))
    price, x = cp.Parameter(5, name="price"), cp.Variable(5, name="x")
    goal = price @ x + TERMS[term](x, rng) + 1.5
    a = rng.normal(size=5)
    rows = [x >= -1, 2 * x <= 4, cp.sum(x) == 1, 3 * cp.sum(x) == 3, a @ x <= 1, 2 * a @ x <= 3, 0 * x <= 1]
    problem = cp.Problem(cp.Minimize(goal) if sense == "min" else cp.Maximize(-goal), rows)
    m = pear.from_cvxpy(problem, [price])
    assert m.problem.b.shape[-1] == 1  # CVXPY's own equalities are gone, and one of the two sums
    assert "5 empty rows" in m.report
    assert m.problem.ub[m.layout["x"]].tolist() == [2.0] * 5
    ratios = m.problem.G[:, m.layout["x"]] / torch.from_numpy(a)
    assert int(((ratios - ratios[:, :1]).abs().amax(1) < 1e-12 * ratios.abs().amax(1)).sum()) == 1
    for value in rng.normal(size=(2, 5)):
        price.value = value
        problem.solve(cp.CLARABEL, **TIGHT)
        found = pear.solve(m, value)
        assert float(found.value) + m.offset == pytest.approx(problem.value, rel=1e-7, abs=1e-7)
        np.testing.assert_allclose(m.decision(found.x)["x"][0], x.value, atol=1e-4)


def test_the_derivative_by_a_parameter_is_that_of_the_optimum() -> None:
    """The derivative of the optimum by a price agrees with finite differences of CVXPY's own optimum."""
    problem, parameters = battery_cvxpy()
    m = pear.from_cvxpy(problem, parameters)
    price = prices(1)[0].requires_grad_()
    z = pear.DecisionLayer(m)(price[None])
    value = m.problem.objective(z, m.cost(price[None]))[0]
    (gradient,) = torch.autograd.grad(value, price)
    for hour in (0, 7, 23):
        ends = []
        for step in (1e-4, -1e-4):
            parameters[0].value = price.detach().numpy() + step * np.eye(HOURS)[hour]
            ends.append(problem.solve(cp.CLARABEL, **TIGHT))
        assert float(gradient[hour]) == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-5)


def orders(recourse: Any = None) -> tuple[pear.Model, Any]:
    """Return a model of orders near a target for a predicted demand; a missing unit costs 3, a surplus unit 1."""
    demand, order = cp.Parameter(2, name="demand"), cp.Variable(2, name="order", nonneg=True)
    meet, again = order == demand, order == demand
    goal = cp.sum_squares(order - 2.0)
    rows = [meet, again, cp.sum(order) <= 10, 2 * cp.sum(order) <= 30]
    given = {meet: (3.0, 1.0), again: (0.5, 0.25)} if recourse is None else recourse
    return pear.from_cvxpy(cp.Problem(cp.Minimize(goal), rows), [demand], recourse=given), meet


def test_predicted_right_hand_sides_and_prices_stay() -> None:
    m, _ = orders()
    assert (m.problem.n, m.problem.b.shape[-1], m.problem.h.shape[-1]) == (2, 4, 1)
    by_hand = pear.Model(
        pear.Problem(Q=2 * np.eye(2), A=np.tile(np.eye(2), (2, 1)), b=np.zeros(4), G=[[1.0, 1.0]], h=[10.0], lb=0.0),
        cost_map=pear.CostMap(np.zeros((2, 2)), [-4.0, -4.0]),
        constraint_map=pear.ConstraintMap(b=np.tile(np.eye(2), (2, 1))),
        recourse=pear.Penalty(b=(np.array([3.0, 3.0, 0.5, 0.5]), np.array([1.0, 1.0, 0.25, 0.25]))),
    )
    true, predicted = [[2.0, 6.0], [5.0, 1.0], [7.0, 7.0]], [[4.0, 5.0], [1.0, 1.0], [6.0, 3.0]]
    torch.testing.assert_close(
        pear.regret(m, predicted, true), pear.regret(by_hand, predicted, true), rtol=1e-9, atol=0
    )


def test_a_recourse_with_a_number_for_each_row_keeps_all_rows() -> None:
    """The recourse has one price for each row that CVXPY writes, so that presolve may remove none of them."""
    price = np.full(6, 2.0)
    m, _ = orders(pear.Penalty(b=(price, price)))
    assert (m.problem.n, m.problem.b.shape[-1], m.problem.h.shape[-1]) == (4, 6, 2)


def test_a_predicted_cost_of_an_auxiliary_variable() -> None:
    price, x = cp.Parameter(2, name="price", nonneg=True), cp.Variable(2, name="x", bounds=[-1, 1])
    problem = cp.Problem(cp.Minimize(price @ cp.abs(x - 0.5) + cp.sum_squares(x - 0.25)))
    m = pear.from_cvxpy(problem, [price])
    assert m.variables.count("auxiliary[0]") == 1
    assert m.problem.n == 4  # of CVXPY's own four variables, two are defined by equalities
    price.value = np.array([0.2, 3.0])
    problem.solve(cp.CLARABEL, **TIGHT)
    assert float(pear.solve(m, price.value).value) + m.offset == pytest.approx(problem.value, abs=1e-8)


def test_the_rows_of_a_file_keep_their_places(tmp_path: Path) -> None:
    """Importers keep the rows of a file, because duals are read by position; only ``pear.presolve`` removes rows."""
    pytest.importorskip("highspy", reason="highspy is not installed; pip install 'pear-dfl[highs]'")
    path = tmp_path / "plan.lp"
    path.write_text(
        "max\n profit: 3 x + 2 y + z\nst\n hours: x + y <= 4\n same: 2 x + 2 y <= 7\n all: x + y + z = 5\n"
        " twice: 2 x + 2 y + 2 z = 10\n least: x >= 0.5\nbounds\n x <= 3\n z = 1.5\nend\n"
    )
    m = pear.from_mps(path)
    assert m.constraints == ("all", "twice", "hours", "same", "least")
    small, recovery = pear.presolve(m.problem)
    assert small.n < m.problem.n
    z = recovery.decision(pear.solve(small, recovery.cost(m.known)).x)
    found = {name: float(value) for name, value in m.decision(z).items()}
    assert found == pytest.approx({"x": 3.0, "y": 0.5, "z": 1.5})

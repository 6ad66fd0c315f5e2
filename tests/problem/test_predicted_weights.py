"""Predicted weights of quadratic terms: decisions compared with CVXPY, gradients with differences, and training."""

import cvxpy as cp
import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError

N = 4
TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def fund():
    """Return a portfolio problem with predicted returns and weight of risk, and known holdings of yesterday."""
    draw = np.random.default_rng(0)
    root = draw.normal(size=(N, N))
    w, mu = cp.Variable(N, name="w", nonneg=True), cp.Parameter(N, name="mu")
    risk, held = cp.Parameter(nonneg=True, name="risk"), cp.Parameter(N, name="held")
    curved = risk * cp.quad_form(w, root @ root.T) + 0.1 * cp.sum_squares(w)
    problem = cp.Problem(cp.Maximize(mu @ w - curved - 0.1 * cp.norm1(w - held)), [cp.sum(w) == 1])
    return problem, mu, risk, held, w


@pytest.fixture(scope="module")
def case():
    problem, mu, risk, held, w = fund()
    m = pear.from_cvxpy(problem, predicted=[mu, risk], known=[held])
    draw = np.random.default_rng(1)
    values = np.column_stack([draw.normal(size=(6, N)), draw.uniform(0.2, 2, 6)])
    return problem, (mu, risk, held, w), m, values, {"held": draw.dirichlet(np.ones(N), 6)}


def test_decisions_are_those_of_cvxpy(case):
    problem, (mu, risk, held, w), m, values, known = case
    assert m.names == (*(f"mu[{i}]" for i in range(N)), "risk")
    found = pear.solve(m, values, known=known)
    for i in range(len(values)):
        mu.value, risk.value, held.value = values[i, :N], values[i, N], known["held"][i]
        problem.solve(**TIGHT)
        np.testing.assert_allclose(m.decision(found.x)["w"][i], w.value, atol=1e-7)
        assert float(found.value[i]) + float(m.offset) == pytest.approx(problem.value, abs=1e-7)


def test_the_gradient_of_regret_reaches_the_weight(case):
    _, _, m, values, known = case
    bound = m.with_known(known)
    loss = pear.PEARLoss(bound, smoothing=0.2, injection=0.0, guidance=0.0, reduction="none")
    true = torch.tensor(values[::-1].copy())
    predicted = torch.tensor(values, requires_grad=True)
    loss(predicted, true).sum().backward()
    step, exact = 1e-5, predicted.grad
    for j in range(N + 1):
        move = step * torch.eye(N + 1).double()[j]
        up, down = (loss(torch.tensor(values) + sign * move, true).detach() for sign in (1, -1))
        torch.testing.assert_close(exact[:, j], (up - down) / (2 * step), rtol=1e-5, atol=1e-6)
    assert bool((exact[:, N] != 0).any())


def test_regret_compares_by_the_true_weight(case):
    _, _, m, values, known = case
    true = values[::-1].copy()
    lost = pear.regret(m, values, true, known=known)
    bound = m.with_known(known)
    chosen, best = (pear.solve(bound, one).x for one in (values, true))
    Q = bound.curvature(torch.tensor(true))
    worth = [bound.problem.objective(z, bound.cost(true), Q=Q) for z in (best, chosen)]
    torch.testing.assert_close(lost, worth[0] - worth[1])
    assert float(pear.regret(m, values, values, known=known).abs().max()) <= 1e-12


def test_a_forecast_of_the_wrong_sign_counts_as_no_weight(case):
    _, _, m, values, known = case
    wrong, zero = values.copy(), values.copy()
    wrong[:, N], zero[:, N] = -3.0, 0.0
    torch.testing.assert_close(pear.solve(m, wrong, known=known).x, pear.solve(m, zero, known=known).x)


def test_the_estimator_trains_decides_and_comes_back_from_its_file(tmp_path):
    problem, mu, risk, held, _ = fund()
    m = pear.from_cvxpy(problem, predicted=[mu, risk], known=[held])
    draw = np.random.default_rng(2)
    X = draw.normal(size=(40, 2))
    Y = np.column_stack([X @ draw.normal(size=(2, N)), np.exp(X[:, 0] / 2)])
    known = {"held": draw.dirichlet(np.ones(N), 40)}
    model = pear.DecisionRegressor(m, max_epochs=4).fit(X, Y, known=known)
    assert -1 < model.score(X, Y, known=known) <= 0
    model.save(tmp_path / "fund.pear")
    again = pear.DecisionRegressor.load(tmp_path / "fund.pear")
    np.testing.assert_array_equal(again.decide(X, known=known), model.decide(X, known=known))


def test_what_predicts_no_curvature_says_so(case):
    _, _, m, values, known = case
    bound = m.with_known(known)
    with pytest.raises(ProblemError, match="this one predicts the weight of a quadratic term; use PEARLoss"):
        pear.diagnose(bound, values, values)
    with pytest.raises(ProblemError, match="this one predicts the weight of a quadratic term; use PEARLoss"):
        pear.regret_gradient(bound, values, values)
    with pytest.raises(ProblemError, match=r"layer\(m.cost\(values\), Q=m.curvature\(values\)\)"):
        pear.DecisionLayer(bound)


def test_advice_is_about_the_curvature_of_the_samples(case):
    _, _, m, values, known = case
    assert pear.advise(m.with_known(known), values).findings

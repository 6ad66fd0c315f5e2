"""Two-stage programs: against SciPy's own extensive forms, the deterministic model, and closed forms."""

import numpy as np
import pytest
import torch
from scenario_models import factory, factory_by_scipy, factory_values

import pear
from pear.errors import ProblemError, SolveError

WEIGHTS = [1.0, 2.0, 3.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("risk", "share", "tail"),
    [("expectation", 0.0, 1.0), (pear.CVaR(0.7), 1.0, 0.3), (pear.CVaR(0.5, 0.4), 0.4, 0.5)],
    ids=["expectation", "cvar", "mean and cvar"],
)
@pytest.mark.parametrize("integer", [False, True], ids=["continuous", "integer"])
def test_agrees_with_the_extensive_form_of_scipy(risk, share, tail, integer):
    plan = pear.Stochastic(factory(integer=integer), ["on"], len(WEIGHTS), risk, weights=WEIGHTS)
    values = factory_values(1, 2, len(WEIGHTS))
    found = plan.solve(values)
    for i in range(2):
        p = np.array(WEIGHTS) / np.sum(WEIGHTS)
        best, _ = factory_by_scipy(values[i].numpy(), p, share, tail, integer)
        assert float(found.value[i]) == pytest.approx(best, abs=1e-8)
        # the decision itself, with its best recourse in each scenario, comes to that number
        x = found.x[i].expand(len(WEIGHTS), -1)
        costs = plan.cost(x, values[i])
        assert float(plan.risk.value(costs[None], p)) == pytest.approx(best, abs=1e-8)


def test_worst_case_is_the_limit_of_cvar():
    values = factory_values(2, 3, 5)
    worst = pear.Stochastic(factory(), ["on"], 5, "worst case").solve(values)
    rare = pear.Stochastic(factory(), ["on"], 5, pear.CVaR(0.95)).solve(values)
    torch.testing.assert_close(worst.value, rare.value, rtol=0, atol=1e-8)
    torch.testing.assert_close(worst.value, worst.costs.amax(1), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("risk", "weights"),
    [("worst case", None), (pear.CVaR(0.8), None), ("expectation", [1.0, 0.0, 1.0, 1.0, 0.0])],
    ids=["worst case", "cvar", "weights of 0"],
)
@pytest.mark.parametrize("integer", [False, True], ids=["continuous", "integer"])
def test_scenarios_that_the_risk_does_not_count_have_their_best_second_stage(risk, weights, integer):
    values, plan = factory_values(2, 2, 5), pear.Stochastic(factory(integer=integer), ["on"], 5, risk, weights=weights)
    found = plan.solve(values)
    best = [plan.cost(x.expand(5, -1), each) for x, each in zip(found.x, values, strict=True)]
    torch.testing.assert_close(found.costs, torch.stack(best), rtol=0, atol=1e-8)


def test_cvar_of_weight_0_is_the_expectation():
    values = factory_values(3, 2, 4)
    mean, none = (pear.Stochastic(factory(), ["on"], 4, r).solve(values) for r in ("expectation", pear.CVaR(0.9, 0.0)))
    assert torch.equal(mean.x, none.x)
    torch.testing.assert_close(mean.value, mean.costs.mean(1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("risk", ["expectation", "worst case", pear.CVaR(0.9, 0.5)], ids=str)
@pytest.mark.parametrize("integer", [False, True], ids=["continuous", "integer"])
def test_one_scenario_is_the_deterministic_model(risk, integer):
    m, values = factory(integer=integer), factory_values(4, 5, 1)
    found, plain = pear.Stochastic(m, ["on"], 1, risk).solve(values), pear.solve(m, values[:, 0])
    torch.testing.assert_close(found.value, plain.value, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.z[:, 0], plain.x, rtol=0, atol=1e-10)


def test_sparse_and_dense_programs_agree():
    m, values = factory(hours=8), factory_values(5, 1, 40, hours=8)
    large = pear.Stochastic(m, ["on"], 40)
    assert large.problem.is_sparse
    dense = pear.Problem(**{k: _dense(getattr(large.problem, k)) for k in ("A", "b", "G", "h", "lb", "ub")})
    cost, fields = large.extensive.data(values)
    other = pear.solve(dense, cost, **fields)
    torch.testing.assert_close(large.solve(values).value, other.value, rtol=0, atol=1e-8)


def _dense(value):
    return value.csr.toarray() if hasattr(value, "csr") else value


def test_risk_of_a_portfolio_with_predicted_returns():
    # one stage: the weights; the costs of a scenario are the negative returns
    returns = torch.from_numpy(np.random.default_rng(6).normal(0.01, 0.1, (2, 30, 4)))
    market = pear.Model(pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0, sense="max"), variables=("a", "b", "c", "d"))
    plan = pear.Stochastic(market, ["a", "b", "c", "d"], 30, pear.CVaR(0.8))
    found = plan.solve(returns)
    from scipy.optimize import linprog

    for i in range(2):
        R = returns[i].numpy()
        rows = np.hstack([-R, -np.ones((30, 1)), -np.eye(30)])
        cost = np.concatenate([np.zeros(4), [1.0], np.full(30, 1 / (30 * 0.2))])
        A = np.concatenate([np.ones(4), np.zeros(31)])[None]
        by_scipy = linprog(cost, rows, np.zeros(30), A, [1.0], [(0, None)] * 4 + [(None, None)] + [(0, None)] * 30)
        assert float(found.value[i]) == pytest.approx(-by_scipy.fun, abs=1e-9)
    worst = (returns @ found.x[..., None])[..., 0].sort(1).values[:, :6].mean(1)
    torch.testing.assert_close(found.value, worst, rtol=0, atol=1e-9)


def test_quadratic_terms_get_the_weights_of_their_scenarios():
    m = factory()
    Q = np.diag(np.linspace(0.1, 1.0, 9))
    Q[0, 3] = Q[3, 0] = 0.05  # between the stages
    Q[4, 5] = Q[5, 4] = 0.02
    p = m.problem
    curved = pear.Model(
        pear.Problem(Q=Q, A=p.A, b=p.b, G=p.G, h=p.h, lb=p.lb, ub=p.ub),
        **{k: getattr(m, k) for k in ("cost_map", "constraint_map", "recourse", "variables", "layout")},
    )
    values = factory_values(7, 1, 3)
    plan = pear.Stochastic(curved, ["on"], 3, weights=[1.0, 2.0, 1.0])
    found = plan.solve(values)
    assert float(found.value) == pytest.approx(float(found.costs @ torch.tensor([0.25, 0.5, 0.25]).double()), abs=1e-9)
    at = plan.cost(found.x.expand(3, -1), values[0])
    torch.testing.assert_close(at, found.costs[0], rtol=0, atol=1e-9)
    for step in 1e-3 * torch.eye(3).double():  # a convex function that rises to both sides
        for x in (found.x + step, found.x - step):
            x = x.clamp(0, 1)
            moved = plan.cost(x.expand(3, -1), values[0]) @ torch.tensor([0.25, 0.5, 0.25]).double()
            assert float(moved) >= float(found.value) - 1e-9
    with pytest.raises(ProblemError, match="quadratic term in second-stage"):
        pear.Stochastic(curved, ["on"], 3, "worst case")


def test_regret_is_what_perfect_knowledge_would_have_saved():
    m, truth = factory(integer=True), factory_values(8, 20)
    plan = pear.Stochastic(m, ["on"], 6)
    regret = plan.regret(factory_values(9, 20, 6), truth)
    assert bool((regret >= 0).all())
    assert float(regret.max()) > 0.1
    same = plan.regret(truth[:, None].expand(-1, 6, -1), truth)
    torch.testing.assert_close(same, torch.zeros(20).double(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("integer", [False, True])
def test_rounding_of_the_first_stage_does_not_take_the_second_stage_away(integer):
    plan, true = pear.Stochastic(factory(integer=integer), ["on"], 2), factory_values(12, 1)
    plain = torch.tensor([[0.0, 1.0, 1.0]], dtype=torch.float64)
    rounded = torch.tensor([[-1e-20, 1.0, 1.0 + 2e-16]], dtype=torch.float64)
    torch.testing.assert_close(plan.cost(rounded, true), plan.cost(plain, true), rtol=1e-12, atol=0)
    with pytest.raises(SolveError, match="INFEASIBLE"):  # make <= 4 on < 0
        plan.cost(plain - 1e-6, true)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
def test_rounding_of_the_first_stage_has_no_unit(unit):
    rows = [[0.0, -1.0, -1.0], [-4.0, 1.0, 0.0]]  # make + spare covers the demand, make <= 4 on
    plant = pear.Problem(G=rows, h=[0.0, 0.0], lb=0.0, ub=[unit, torch.inf, torch.inf])
    m = pear.Model(
        plant,
        known=[1.0, 2.0, 5.0],
        variables=("on", "make", "spare"),
        constraint_map=pear.ConstraintMap(h=[[-1.0], [0.0]]),
    )
    plan, true = pear.Stochastic(m, ["on"], 2), [[unit]]
    assert plan.cost([[-1e-20 * unit]], true).tolist() == [5.0 * unit]
    with pytest.raises(SolveError, match="INFEASIBLE"):
        plan.cost([[-1e-3 * unit]], true)


def test_weights_of_a_call():
    values = factory_values(10, 2, 4)
    weights = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    found = pear.Stochastic(factory(), ["on"], 4, "cvar").solve(values, weights=weights)
    alone = pear.solve(factory(), values[0, :1])
    torch.testing.assert_close(found.value[:1], alone.value, rtol=0, atol=1e-9)
    pair = pear.Stochastic(factory(), ["on"], 2, "cvar").solve(values[1:, 1:3])
    torch.testing.assert_close(found.value[1:], pair.value, rtol=0, atol=1e-9)


def test_data_of_samples():
    stock = pear.Problem(G=[[-1.0, -1.0]], h=[0.0], lb=0.0)
    m = pear.Model(
        stock,
        known=[1.0, 2.5],
        variables=("order", "rush"),
        constraint_map=pear.ConstraintMap(h=[[-1.0]]),
        known_map=pear.KnownMap({"store": ()}, h=[[1.0]]),
    )
    store = [0.0, 2.0, 5.0]
    plan = pear.Stochastic(m.with_known({"store": store}), ["order"], 3)
    values = torch.tensor([1.0, 2.0, 4.0]).expand(3, 3)
    assert plan.solve(values).x.flatten().tolist() == [2.0, 0.0, 0.0]
    assert plan.solve(values[1:], keys=[1, 0]).x.flatten().tolist() == [0.0, 2.0]
    assert plan.cost([[1.0]], [[4.0]], keys=[1]).tolist() == [1.0 + 2.5]
    with pytest.raises(ProblemError, match="pass keys"):
        plan.solve(values[:2])


def test_a_failed_sample_has_a_status():
    m = factory()
    bare = pear.Model(
        m.problem, cost_map=m.cost_map, constraint_map=m.constraint_map, variables=m.variables, layout=m.layout
    )
    values = factory_values(11, 2, 3).clamp(max=2.0)
    values[1, 1, 3:] = 99.0  # more than all machines and purchases
    plan = pear.Stochastic(bare, ["on"], 3)
    with pytest.raises(SolveError, match="sample 1 "):
        plan.solve(values)
    with pytest.warns(pear.FailedSamplesWarning):
        found = plan.solve(values, on_failure="mask")
    assert [pear.Status(int(s)).name for s in found.status] == ["SOLVED", "INFEASIBLE"]
    assert bool(found.x[0].isfinite().all())
    assert bool(found.x[1].isnan().all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": ["of"]}, "no variable of the model"),
        ({"first": []}, "names no variable"),
        ({"first": "on"}, "must be a list"),
        ({"scenarios": 0}, "whole number"),
        ({"risk": "variance"}, "risk must be"),
        ({"weights": [1.0, -1.0]}, "not negative"),
        ({"weights": [1.0]}, "for each of 2"),
        ({"model": factory().problem}, "pear.Model"),
        ({"model": factory().with_recourse(pear.Projection())}, "Penalty"),
    ],
)
def test_bad_input_is_refused(change, message):
    with pytest.raises(ProblemError, match=message):
        pear.Stochastic(**({"model": factory(), "first": ["on"], "scenarios": 2} | change))


def test_a_predicted_row_of_the_first_stage_alone_is_refused():
    m = pear.Model(
        pear.Problem(A=[[1.0]], b=[0.0]), known=[1.0], variables=("x",), constraint_map=pear.ConstraintMap(b=[[1.0]])
    )
    with pytest.raises(ProblemError, match=r"b\[0\] is predicted"):
        pear.Stochastic(m, ["x"], 2)


def test_values_of_another_shape_are_refused():
    with pytest.raises(ProblemError, match=r"shape \(B, 2, 6\) or \(B, 12\)"):
        pear.Stochastic(factory(), ["on"], 2).solve(torch.zeros(1, 3, 6))

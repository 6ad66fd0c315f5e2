"""Known data that differs by sample: models decide as CVXPY does with the parameters at these values."""

import cvxpy as cp
import numpy as np
import pytest
import torch

import pear
from pear.errors import DataError, ProblemError

SAMPLES, ASSETS, HOURS = 4, 4, 5
TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def portfolio(seed):
    """Return a portfolio with turnover from known holdings, and a known Σ, risk weight, cap and target per sample."""
    draw, n = np.random.default_rng(seed), ASSETS
    w, mu = cp.Variable(n, name="w", nonneg=True), cp.Parameter(n, name="mu")
    w0, sigma, risk = (
        cp.Parameter(n, name="w0"),
        cp.Parameter((n, n), PSD=True, name="Sigma"),
        cp.Parameter(nonneg=True),
    )
    cap, factors, target = (
        cp.Parameter(name="cap"),
        cp.Parameter((2, n), name="factors"),
        cp.Parameter(2, name="target"),
    )
    curved = cp.quad_form(w, sigma) + risk * cp.sum_squares(w) + cp.sum_squares(factors @ w - target)
    value = mu @ w - curved - 0.1 * cp.norm1(w - w0) - cp.sum(target)
    rows = [cp.sum(w) == 1, w[0] <= cap, cp.norm1(w - w0) <= 1.2]
    root = draw.normal(size=(SAMPLES, n, n))
    known = {
        w0: draw.dirichlet(np.ones(n), SAMPLES),
        sigma: root @ root.transpose(0, 2, 1),
        risk: draw.uniform(0, 1, SAMPLES),
        cap: draw.uniform(0.1, 0.5, SAMPLES),
        factors: draw.normal(size=(SAMPLES, 2, n)),
        target: draw.normal(size=(SAMPLES, 2)),
    }
    return cp.Problem(cp.Maximize(value), rows), mu, known, w


def storage(seed):
    """Return a storage with a known initial level, power limit and wear per sample.

    Its costs are linear, with a small Q that makes the decision unique.
    """
    draw, T = np.random.default_rng(seed), HOURS
    move, level = cp.Variable(T, name="move"), cp.Variable(T + 1, name="level", nonneg=True)
    price, start = cp.Parameter(T, name="price"), cp.Parameter(name="start", nonneg=True)
    power, wear = cp.Parameter(T, name="power", nonneg=True), cp.Parameter(nonneg=True, name="wear")
    rows = [level[0] == start, level[1:] == level[:-1] + move, level <= 4, cp.abs(move) <= power]
    cost = price @ move + wear * cp.sum(cp.abs(move)) + 0.05 * cp.sum_squares(move) + start * cp.sum(level)
    known = {
        start: draw.uniform(0, 4, SAMPLES),
        power: draw.uniform(0.2, 1, (SAMPLES, T)),
        wear: draw.uniform(0, 0.3, SAMPLES),
    }
    return cp.Problem(cp.Minimize(cost), rows), price, known, level


MODELS = {"portfolio": portfolio, "storage": storage}


@pytest.fixture(params=[(name, seed) for name in MODELS for seed in (0, 1)], ids=str, scope="module")
def case(request):
    name, seed = request.param
    problem, predicted, known, variable = MODELS[name](seed)
    m = pear.from_cvxpy(problem, predicted=[predicted], known=list(known))
    forecast = np.random.default_rng(seed + 7).normal(size=(SAMPLES, predicted.size)) * 2
    return problem, predicted, known, variable, m, forecast


def by_name(known):
    return {p.name(): values for p, values in known.items()}


def test_decisions_and_optima_are_those_of_cvxpy(case):
    problem, predicted, known, variable, m, forecast = case
    bound = m.with_known(by_name(known))
    solution = pear.solve(m, forecast, known=by_name(known))
    found, values = m.decision(solution.x)[variable.name()].numpy(), solution.value + bound.offset
    for i in range(SAMPLES):
        predicted.value = forecast[i]
        for p, numbers in known.items():
            p.value = numbers[i]
        problem.solve(**TIGHT)
        np.testing.assert_allclose(found[i], variable.value, atol=1e-7)
        assert float(values[i]) == pytest.approx(problem.value, abs=1e-7)
    some, offset = bound[[1, 2]], torch.as_tensor(bound.offset).expand(SAMPLES)
    assert torch.as_tensor(some.offset).expand(2).tolist() == offset[1:3].tolist()
    torch.testing.assert_close(pear.solve(some, forecast[1:3]).x, solution.x[1:3])


def test_gradient_of_regret_is_that_of_finite_differences(case):
    *_, known, _, m, forecast = case
    true, data = forecast[::-1].copy(), by_name(known)
    exact = pear.regret_gradient(m, forecast, true, smoothing=0.3, known=data)
    loss = pear.PEARLoss(m.with_known(data), smoothing=0.3, injection=0.0, guidance=0.0, reduction="none")
    step = 1e-5
    for j in range(forecast.shape[1]):
        moved = [forecast + sign * step * np.eye(forecast.shape[1])[j] for sign in (1, -1)]
        up, down = (loss(torch.tensor(one), torch.tensor(true)).detach() for one in moved)
        torch.testing.assert_close(exact[:, j], (up - down) / (2 * step), rtol=1e-5, atol=1e-6)


def test_known_tables_and_shared_values_say_the_same():
    pandas = pytest.importorskip("pandas")
    problem, _, known, _ = storage(3)
    m = pear.from_cvxpy(problem, known=list(known))
    assert m.inputs == HOURS
    data, forecast = by_name(known), np.ones((SAMPLES, HOURS))
    expected = pear.solve(m, forecast, known=data).x
    columns = {"start": data["start"], "wear": data["wear"]} | {
        f"power[{t}]": data["power"][:, t] for t in range(HOURS)
    }
    assert m.known_map.names == ("start", *(f"power[{t}]" for t in range(HOURS)), "wear")
    torch.testing.assert_close(pear.solve(m, forecast, known=pandas.DataFrame(columns)).x, expected, rtol=0, atol=0)
    one = {name: values[1] for name, values in data.items()}
    shared = m.with_known(one)
    assert shared.problem.batch is None
    torch.testing.assert_close(pear.solve(shared, forecast).x, expected[[1] * SAMPLES])
    mixed = pear.solve(m, forecast[:1], known=one | {"start": data["start"][1:2]}).x
    torch.testing.assert_close(mixed, expected[1:2])


def test_selected_samples_keep_their_known_costs_without_a_cost_map():
    prices = np.arange(6.0).reshape(3, 2)
    m = pear.Model(pear.Problem(n=2, lb=0.0), known_map=pear.KnownMap({"price": (2,)}, cost=np.eye(2)))
    told = m.with_known({"price": prices})
    assert told.known.tolist() == prices.tolist()
    assert told[1:].known.tolist() == prices[1:].tolist()
    assert told[[2, 0]].known.tolist() == prices[[2, 0]].tolist()


def test_a_known_value_and_a_predicted_right_hand_side_stand_together():
    demand, stock = cp.Parameter(2, name="demand"), cp.Parameter(name="stock")
    buy, use = cp.Variable(nonneg=True, name="buy"), cp.Variable(2, nonneg=True, name="use")
    meet = use >= demand
    plan = cp.Problem(cp.Minimize(3 * buy + 0.1 * cp.sum(use)), [cp.sum(use) <= stock + buy, meet])
    m = pear.from_cvxpy(plan, predicted=[demand], recourse={meet: 10.0}, known=[stock])
    forecast, true, stocks = [[2.0, 3.0], [1.0, 1.0]], [[2.0, 4.0], [1.0, 0.5]], np.array([4.0, 9.0])
    bought = m.decision(pear.solve(m, forecast, known=stocks).x[:, : m.problem.n])["buy"]
    assert bought.tolist() == pytest.approx([1.0, 0.0])
    # one unit short costs 10 and saves 3 + 0.1; half a unit too much costs 0.05
    assert pear.regret(m, forecast, true, known=stocks).tolist() == pytest.approx([6.9, 0.05])


WRONG = {
    "none came": (None, r"the model has known values, start, power, wear, and none came; pass known="),
    "array": (
        np.ones(4),
        "known came as an array, and there are 3 known values, start, power, wear; pass a dictionary",
    ),
    "missing": ({"start": np.ones(4), "power": np.ones((4, 5))}, "known has no wear; it must hold start, power, wear"),
    "unknown": ({"start": 1, "power": np.ones(5), "wear": 1, "wera": 1}, "known holds 'wera', which is no known value"),
    "shape": ({"start": 1, "power": np.ones((4, 6)), "wear": 1}, r"known power has shape \(4, 6\); expected \(N, 5\)"),
    "rows": ({"start": np.ones(3), "power": np.ones(5), "wear": 1}, "known has rows of another number: 3 of start"),
    "nan": (
        {"start": [1, np.nan, 1, 1], "power": np.ones(5), "wear": 1},
        "known start of row 1 is nan; expected a fin",
    ),
    "sign": (
        {"start": -1, "power": np.ones(5), "wear": 1},
        "known start is -1; expected a finite number that is not n",
    ),
    "entry": ({"start": 1, "power[0]": 1, "power[1]": 1, "wear": 1}, r"known has no power\[2\]"),
}


@pytest.mark.parametrize(("known", "message"), WRONG.values(), ids=WRONG)
def test_wrong_known_data_is_refused_in_a_sentence(known, message):
    problem, _, parameters, _ = storage(0)
    m = pear.from_cvxpy(problem, known=list(parameters))
    with pytest.raises(ProblemError, match=message):
        pear.solve(m, np.ones((4, HOURS)), known=known)


def test_known_data_that_nobody_asked_for_is_refused():
    square = pear.Problem(lb=0, ub=1, n=2)
    with pytest.raises(ProblemError, match="known= came, and the problem has no known values"):
        pear.regret(square, [[1.0, 2.0]], [[1.0, 2.0]], known=[[1.0]])
    with pytest.raises(ProblemError, match="the model has no known values; name them when it is imported"):
        pear.Model(square).with_known({"level": 1.0})
    with pytest.raises(ProblemError, match="cost of the known map must have 2 rows; got 1"):
        pear.Model(square, known_map=pear.KnownMap({"level": ()}, cost=[[1.0]]))
    with pytest.raises(ProblemError, match="a column for each of the 1 known numbers; got 2"):
        pear.KnownMap({"level": ()}, b=[[1.0, 2.0]])
    with pytest.raises(ProblemError, match="none came"):
        pear.PEARLoss(pear.Model(square, known_map=pear.KnownMap({"level": ()}, ub=[[1.0], [0.0]])))


def test_what_cannot_be_known_is_refused_in_a_sentence():
    x, p, k = cp.Variable(2, name="x"), cp.Parameter(2, name="p"), cp.Parameter(name="k")
    rows = [x >= 0, cp.sum(x) <= 1]
    with pytest.raises(DataError, match="parameter k is predicted and known; name it once"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(p @ x + k * x[0]), rows), predicted=[p, k], known=[k])
    with pytest.raises(DataError, match=r"not linear in the parameters \(p, k\): a product of two of them"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(k * (p @ x)), rows), predicted=[p], known=[k])
    with pytest.raises(DataError, match="the known parameter k stands in the costs, and no parameter is predicted"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(k * x[0]), rows), known=[k])
    with pytest.raises(DataError, match="the parameter k is not in it"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(p @ x), rows), known=[k])
    bounded = cp.Variable(2, name="y", bounds=[0, k])
    with pytest.raises(DataError, match="the known parameter k stands in the bounds of variable y; write them as"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(p @ bounded)), predicted=[p], known=[k])
    with pytest.raises(DataError, match="two names of one argument"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(p @ x), rows), predicted=[p], parameters=[p])


def test_a_covariance_of_the_wrong_curvature_is_refused():
    w, mu, sigma = cp.Variable(2, name="w"), cp.Parameter(2, name="mu"), cp.Parameter((2, 2), PSD=True, name="Sigma")
    m = pear.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_form(w, sigma) - mu @ w), [cp.sum(w) == 1]), [mu], known=[sigma])
    with pytest.raises(ProblemError, match="Q must be positive semidefinite"):
        pear.solve(m, [[1.0, 2.0]], known=[[[1.0, 0.0], [0.0, -1.0]]])
    with pytest.raises(ProblemError, match="Q must be symmetric"):
        pear.solve(m, [[1.0, 2.0]], known=[[[1.0, 0.5], [0.0, 1.0]]])

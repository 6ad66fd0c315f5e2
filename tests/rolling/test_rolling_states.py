"""Where states enter a plan, and what stays fixed in it: beside predicted demand, and in the names of files."""

import numpy as np
import pytest

import pear
from pear.errors import ProblemError

PRICES = np.array([5.0, 4.0, 6.0, 5.0, 4.0])
DEMAND = np.full(5, 1.0)
PLAN = """min
 cost: 5 buy({0}) + 5 buy({1}) + 0.1 level({1}) + 0.1 level({2})
subject to
 balance({0}): level({1}) - level({0}) - buy({0}) + sell({0}) = 0
 balance({1}): level({2}) - level({1}) - buy({1}) + sell({1}) = 0
 cover({0}): sell({0}) {5} 1
 cover({1}): sell({1}) {5} 1
 cap({0}): level({1}) <= 1.5
 cap({1}): level({2}) <= 1.5
 {3}
bounds
 buy({0}) <= 2
 buy({1}) <= 2
 sell({0}) <= 1
 sell({1}) <= 1
 {4}
end
"""
PRICED = {"cover": 9.0, "cap": 0.25}


def shop(path, first=0, start="", bound="level({0}) = 2", known=None, relation=">="):
    """Return the model of a plan of two periods whose demand is predicted. Its names begin with the index ``first``."""
    numbers = [first, first + 1, first + 2]
    text = PLAN.format(*numbers, start.format(*numbers), bound.format(*numbers), relation)
    (path / "shop.lp").write_text(text)
    return pear.from_mps(path / "shop.lp", predicted=["buy"], rows=["cover"], recourse=PRICED, known=known)


def simulated(rolling, prices=PRICES):
    """Return the rollout with true forecasts."""
    return rolling.simulate("perfect", {"buy": prices, "cover": DEMAND[: len(prices)]})


@pytest.mark.parametrize("known", [None, ["level(0)"]])
def test_a_state_that_enters_by_bounds_enters_a_plan_with_predicted_demand(tmp_path, known):
    model = shop(tmp_path, known=known)
    found = simulated(pear.Rolling(model, state={"level": "level(0)"}, initial={"level": 2.0}))
    level = found.states["level"]
    assert level[:2] == pytest.approx([2.0, 1.0])
    assert level[1:] == pytest.approx(level[:-1] + found.decisions["buy"] - found.decisions["sell"])


def test_what_the_plan_before_has_decided_stays_decided_beside_predicted_demand(tmp_path):
    rolling = pear.Rolling(shop(tmp_path), state={"level": "level(0)"}, fixed={"buy": 1})
    forecasts = [[9.0, -1.0, 1.0, 1.0], [9.0, 9.0, 1.0, 1.0]]  # the second hour is cheap, and then dear
    found = rolling.simulate(forecasts, {"buy": PRICES[:3], "cover": DEMAND[:3]})
    assert found.decisions["buy"] == pytest.approx([0.0, 2.0])


def test_the_price_of_a_violation_is_paid_where_no_limit_is_predicted(tmp_path):
    model = shop(tmp_path, bound="level({0}) = 4", relation="=")
    found = simulated(pear.Rolling(model, state={"level": "level(0)"}))
    level, buy = found.states["level"], found.decisions["buy"]
    over = (level[1:] - 1.5).clip(0)
    assert over[0] == pytest.approx(1.5)
    assert found.cost == pytest.approx(PRICES[:4] * buy + 0.1 * level[1:] + 0.25 * over)


@pytest.mark.parametrize("start", ["begin: level({0}) = 2", "begin: - 2 level({0}) = -4"])
def test_names_may_begin_with_one(tmp_path, start):
    zero = shop(tmp_path, 0, start, "")
    expected = simulated(pear.Rolling(zero, state={"level": "level(0)"}))
    one = shop(tmp_path, 1, start, "")
    for name in ("level(1)", "level[1]"):
        found = simulated(pear.Rolling(one, state={"level": name}))
        assert found.states["level"] == pytest.approx(expected.states["level"])
    with pytest.raises(ProblemError, match=r"no known value, variable or row .* such as buy\(1\)"):
        pear.Rolling(one, state={"level": "level(0)"})


def test_a_row_that_fixes_a_variable_fixes_it_beyond_its_bounds(tmp_path):
    model = shop(tmp_path, 0, "begin: - level({0}) = -2", "level({0}) <= 4")
    initial = {"level(0)": {"level": 5.0}, "begin": {"level": -5.0}}
    states = {
        entry: simulated(pear.Rolling(model, state={"level": entry}, step=1, initial=first), PRICES[:2]).states
        for entry, first in initial.items()
    }
    assert states["level(0)"]["level"] == pytest.approx([5.0, 4.0])
    assert states["begin"]["level"] == pytest.approx([-5.0, 4.0])


@pytest.mark.parametrize("where", ["a row", "the objective"])
def test_a_known_coefficient_beside_predicted_demand(where):
    cp = pytest.importorskip("cvxpy")
    price, demand, share = cp.Parameter(2, name="price"), cp.Parameter(2, name="demand"), cp.Parameter(nonneg=True)
    buy, level, sell = cp.Variable(2, name="buy"), cp.Variable(3, name="level"), cp.Variable(2, name="sell")
    kept, weight = (share, 0.3) if where == "a row" else (0.8, share)
    cover = sell >= demand
    rows = [level[0] == 1, level[1:] == level[:-1] + kept * buy - sell, level >= 0, buy >= 0, buy <= 2, cover]
    plan = cp.Problem(cp.Minimize(price @ buy + weight * cp.sum_squares(buy)), rows)
    data = {"price": PRICES, "demand": DEMAND}
    share.value = 0.6
    expected = pear.Rolling(pear.from_cvxpy(plan, [price, demand], {cover: 9.0}), state={"level": "level[0]"})
    model = pear.from_cvxpy(plan, [price, demand], {cover: 9.0}, known=[share])
    found = pear.Rolling(model, state={"level": "level[0]"}).simulate("perfect", data, known={share.name(): 0.6})
    assert found.cost == pytest.approx(expected.simulate("perfect", data).cost, abs=1e-7)


def test_a_loss_without_the_known_values_says_what_it_needs(tmp_path):
    rolling = pear.Rolling(shop(tmp_path, known=["cap"]), state={"level": "level(0)"})
    with pytest.raises(ProblemError, match="known has no cap"):
        pear.RollingLoss(rolling)

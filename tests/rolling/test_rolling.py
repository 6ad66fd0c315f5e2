"""``Rolling``: what a plan gets and returns, simulations, and errors."""

import numpy as np
import pandas as pd
import pytest
import torch

import pear
from pear.errors import ProblemError, SolveError

T = 3


def shop(sense="min", recourse=None, horizon=T, **problem):
    """Return a model that buys at predicted prices and meets a demand from its stock; stock[0] is the present stock."""
    n = 3 * horizon + 1  # buy, lack, stock
    A, b = np.zeros((horizon + 1, n)), np.zeros(horizon + 1)
    A[0, 2 * horizon] = 1.0
    for t in range(horizon):
        A[t + 1, [t, horizon + t, 2 * horizon + t, 2 * horizon + t + 1]] = 1.0, 1.0, 1.0, -1.0
        b[t + 1] = 1.0
    M, known = np.zeros((n, horizon)), np.zeros(n)
    M[:horizon] = np.eye(horizon)
    known[horizon : 2 * horizon], known[2 * horizon + 1 :] = 10.0, 0.05
    names = [f"{name}[{t}]" for name in ("buy", "lack") for t in range(horizon)]
    names += [f"stock[{t}]" for t in range(horizon + 1)]
    rows = ["start", *(f"balance[{t}]" for t in range(horizon))]
    ub = np.concatenate([np.full(horizon, 2.0), np.full(horizon, 9.0), np.full(horizon + 1, 4.0)])
    program = pear.Problem(A=A, b=b, lb=0.0, ub=ub, **problem)
    cost_map = pear.CostMap(M, known, [f"price[{t}]" for t in range(horizon)])
    layout = {
        name: torch.tensor([names.index(one) for one in names if one.startswith(name)])
        for name in ("buy", "lack", "stock")
    }
    return pear.Model(program, variables=tuple(names), cost_map=cost_map, layout=layout, constraints=tuple(rows))


def with_demand(model):
    """Return the model with a demand that is known each day."""
    matrix = np.zeros((T + 1, T + 1))
    matrix[0, 0] = 1.0
    matrix[1:, 1:] = np.eye(T)
    problem = pear.Problem(A=model.problem.A, b=np.zeros(T + 1), lb=model.problem.lb, ub=model.problem.ub)
    known = pear.KnownMap({"e0": (), "demand": (T,)}, b=matrix)
    return pear.Model(problem, variables=model.variables, cost_map=model.cost_map, layout=model.layout, known_map=known)


PRICES = np.array([1.0, 3.0, 2.0, 0.5, 4.0, 1.0, 2.5, 3.0, 1.0, 2.0])


def test_a_simulation_pays_for_what_was_done_and_reaches_what_was_planned():
    rolling = pear.Rolling(shop(), state={"stock": "stock[0]"})
    found = rolling.simulate("perfect", PRICES)
    steps = len(PRICES) - T + 1
    assert found.cost.shape == (steps,)
    buy, lack, stock = found.decisions["buy"], found.decisions["lack"], found.states["stock"]
    assert stock[0] == 0.0
    assert stock[1:] == pytest.approx(stock[:-1] + buy + lack - 1.0, abs=1e-9)
    assert found.cost == pytest.approx(PRICES[:steps] * buy + 10 * lack + 0.05 * stock[1:], abs=1e-9)
    assert found.total == pytest.approx(found.cost.sum())
    assert (found.status == 0).all()


def test_every_way_to_enter_a_state_and_every_forecaster_come_to_the_same():
    model = shop()
    expected = pear.Rolling(model, state={"stock": "stock[0]"}).simulate("perfect", PRICES).cost
    table = np.lib.stride_tricks.sliding_window_view(PRICES, T)
    features = torch.tensor(table, dtype=torch.float32)

    class Forecaster:
        def predict(self, rows):
            return np.asarray(rows, dtype=float)

    named = pear.Rolling(model, state={"stock": "start"})
    for forecaster, given in [
        (table, None),
        (Forecaster(), table),
        (torch.nn.Identity(), features),
        (lambda x: x, table),
    ]:
        assert named.simulate(forecaster, {"price": PRICES}, given).cost == pytest.approx(expected, abs=1e-6)
    known = pear.Rolling(with_demand(model), state={"stock": "e0"}, initial={"stock": 0.0})
    found = known.simulate(table, PRICES, known={"demand": np.ones((len(PRICES), T))})
    assert found.cost == pytest.approx(expected, abs=1e-9)
    bounds = model.problem.lb.clone(), model.problem.ub.clone()
    bounds[1][2 * T] = 0.0
    fixed = pear.Problem(A=model.problem.A[1:], b=model.problem.b[1:], lb=bounds[0], ub=bounds[1])
    by_bounds = pear.Model(fixed, variables=model.variables, cost_map=model.cost_map, layout=model.layout)
    assert pear.Rolling(by_bounds, state={"stock": "stock[0]"}).simulate(table, PRICES).cost == pytest.approx(expected)


def test_known_data_of_each_step_changes_the_plan():
    rolling = pear.Rolling(with_demand(shop()), state={"stock": "e0"}, initial={"stock": 1.0})
    demand = np.arange(3 * 8).reshape(8, 3) % 2 + 0.5
    found = rolling.simulate("perfect", PRICES, known={"demand": demand})
    stock = found.states["stock"]
    served = stock[:-1] + found.decisions["buy"] + found.decisions["lack"] - stock[1:]
    assert served == pytest.approx(demand[:8, 0], abs=1e-9)
    loss = pear.RollingLoss(rolling, smoothing=0.0, known={"demand": demand})
    truth = torch.tensor(np.lib.stride_tricks.sliding_window_view(PRICES, T).copy())
    assert float(loss(truth[None, 2:6], truth[None, 2:6], keys=[2])) == pytest.approx(
        rolling.simulate("perfect", PRICES, known={"demand": demand}, start=2, steps=4).total
    )
    with pytest.raises(ProblemError, match="keys must be the first periods"):
        loss(truth[None, 2:6], truth[None, 2:6])


def test_a_single_known_value_may_come_as_an_array_of_any_number_of_periods():
    rolling = pear.Rolling(with_demand(shop()), state={"stock": "e0"}, initial={"stock": 1.0})
    truth = torch.tensor(np.lib.stride_tricks.sliding_window_view(PRICES, T).copy())[None, 2:6]
    shared = np.array([0.5, 1.5, 0.5])
    for demand in (np.arange(3 * len(PRICES)).reshape(-1, T) % 2 + 0.5, np.tile(shared, (8, 1)), shared):
        for known in (demand, {"demand": demand}):
            simulated = rolling.simulate("perfect", PRICES, known=known, start=2, steps=4)
            loss = pear.RollingLoss(rolling, smoothing=0.0, known=known)
            assert float(loss(truth, truth, keys=[2])) == pytest.approx(simulated.total)
    assert float(loss(truth, truth)) == pytest.approx(simulated.total)  # values that all periods share need no keys
    with pytest.raises(ProblemError, match="known has 7 rows; expected at least 8"):
        rolling.simulate("perfect", PRICES, known=np.ones((7, T)))


def test_predicted_demand_is_charged_where_it_is_missed():
    model = shop()
    names = [*(f"price[{t}]" for t in range(T)), *(f"demand[{t}]" for t in range(T))]
    M = torch.cat([torch.as_tensor(model.cost_map.M), torch.zeros(3 * T + 1, T)], 1)
    B = torch.zeros(T + 1, 2 * T)
    B[1:, T:] = torch.eye(T)
    problem = pear.Problem(A=model.problem.A, b=[0.0] * (T + 1), lb=0.0, ub=model.problem.ub)
    predicting = pear.Model(
        problem, variables=model.variables, layout=model.layout, recourse=pear.Penalty(b=[1e9, *[7.0] * T]),
        cost_map=pear.CostMap(M, model.known, names), constraint_map=pear.ConstraintMap(b=B),
    )  # fmt: skip

    def to_stock(state, done, true):
        supply = state["stock"] + done["buy"][:, 0] + done["lack"][:, 0]
        return {"stock": (supply - true["demand"][:, 0]).clamp(min=0)}

    rolling = pear.Rolling(predicting, state={"stock": "stock[0]"}, transition=to_stock)
    forecast = torch.tensor([[1.0, 2.0, 3.0, 1.0, 1.0, 1.0]]).double()
    truth = torch.tensor([[1.5, 2.0, 3.0, 1.25, 1.0, 1.0]]).double()
    loss = pear.RollingLoss(rolling, smoothing=1e-3)
    value = float(loss(forecast[None].repeat(1, 2, 1), truth[None].repeat(1, 2, 1)))
    done = loss.cost[0]
    assert value == pytest.approx(float(done.sum()))
    plan = pear.solve(predicting, forecast, smoothing=1e-3).x[0]
    expected = (
        1.5 * plan[0] + 10 * plan[T] + 0.05 * plan[2 * T + 1] + 7 * abs(plan[0] + plan[T] - plan[2 * T + 1] - 1.25)
    )
    assert float(done[0]) == pytest.approx(float(expected), abs=1e-6)
    moved = forecast[None].repeat(1, 2, 1).requires_grad_()
    loss(moved, truth[None].repeat(1, 2, 1)).backward()
    assert bool(moved.grad.isfinite().all())
    assert float(moved.grad.abs().max()) > 0


def test_what_is_decided_one_plan_ahead_stays_decided():
    rolling = pear.Rolling(shop(), state={"stock": "stock[0]"}, fixed={"buy": 1})
    random = np.random.default_rng(0)
    table = np.lib.stride_tricks.sliding_window_view(PRICES, T) + random.normal(size=(8, T))
    plans = []
    free = rolling.simulate(table, PRICES)
    again = pear.Rolling(
        shop(), state={"stock": "stock[0]"}, fixed={"buy": 1}, cost=lambda s, d, t: plans.append(d) or s["stock"]
    )
    again.simulate(table, PRICES)
    assert len(plans) == 8
    # the purchase of a day is known one day ahead: it does not depend on that day's forecast
    changed = table.copy()
    changed[5] += 100.0
    assert rolling.simulate(changed, PRICES).decisions["buy"][:6] == pytest.approx(free.decisions["buy"][:6], abs=1e-9)
    loose = pear.Rolling(shop(), state={"stock": "stock[0]"})
    assert loose.simulate(changed, PRICES).decisions["buy"][5] != pytest.approx(
        loose.simulate(table, PRICES).decisions["buy"][5]
    )


def test_an_integer_model_is_planned_in_integers():
    rolling = pear.Rolling(shop(integer=[0, 1, 2]), state={"stock": "stock[0]"}, initial={"stock": 0.5})
    found = rolling.simulate("perfect", PRICES, steps=3)
    assert found.decisions["buy"] == pytest.approx(found.decisions["buy"].round(), abs=1e-9)


def test_a_rollout_as_a_table():
    days = pd.date_range("2024-01-01", periods=len(PRICES))
    rolling = pear.Rolling(shop(), state={"stock": "stock[0]"}, step=2)
    found = rolling.simulate("perfect", pd.DataFrame({"price": PRICES}, index=days))
    table = found.to_frame()
    assert list(table.columns) == [
        "cost",
        "status",
        "stock before",
        "buy[0]",
        "buy[1]",
        "lack[0]",
        "lack[1]",
        "stock[0]",
        "stock[1]",
    ]
    assert list(table.index) == list(days[:8:2])
    assert table["cost"].sum() == pytest.approx(found.total)
    assert "4 steps, cost" in repr(found)


def test_a_rollout_as_a_picture(tmp_path):
    found = pear.Rolling(shop(), state={"stock": "stock[0]"}).simulate("perfect", PRICES)
    figure = found.plot(tmp_path / "rollout.svg", most=5)
    left, right = figure.axes[:2]
    lines = {line.get_label(): line for line in left.lines}
    assert list(lines["stock"].get_ydata()) == pytest.approx(list(found.states["stock"][-5:]))
    assert right.lines[0].get_ydata()[-1] == pytest.approx(found.total)
    assert "8 steps cost" in (tmp_path / "rollout.svg").read_text("utf-8")


def test_fit_trains_through_rollouts():
    random = np.random.default_rng(1)
    features = random.normal(size=(60, 2))
    prices = np.exp(0.5 * features[:, 0])
    rolling = pear.Rolling(shop(), state={"stock": "stock[0]"})
    X, Y, starts = rolling.samples(
        np.stack([features, np.roll(features, -1, 0), np.roll(features, -2, 0)], 1).reshape(60, 6), prices, 4
    )
    loss = pear.RollingLoss(rolling)
    model = torch.nn.Linear(6, T)
    before = float(loss(model(X.float()), Y).detach())
    config = pear.FitConfig(max_epochs=6, check_every=3, start="given", learning_rate=0.05)
    history = pear.fit(model, loss, (X, Y, starts), (X, Y, starts), config=config)
    assert loss.smoothing == "auto"
    assert history.checks[-1].metric < before


def test_rollouts_without_a_plan_are_named_or_left_out():
    rolling = pear.Rolling(
        shop(),
        state={"stock": "stock[0]"},
        transition=lambda s, d, t: {"stock": s["stock"] + 30 * (t["price"][:, 0] > 3).double()},
    )
    truth = torch.tensor([[[1.0, 1, 1], [1.0, 1, 1]], [[4.0, 1, 1], [1.0, 1, 1]]]).double()
    with pytest.raises(
        SolveError, match=r"no plan was found at step 1 of the rollout for sample 1: no point satisfies"
    ):
        pear.RollingLoss(rolling, smoothing=0.0)(truth, truth)
    masked = pear.RollingLoss(rolling, smoothing=0.0, on_failure="mask")
    with pytest.warns(pear.FailedSamplesWarning):
        value = masked(truth, truth)
    assert float(value) == pytest.approx(float(pear.RollingLoss(rolling, smoothing=0.0)(truth[:1], truth[:1])))
    assert masked.status.tolist() == [[0, 0], [0, 2]]
    with pytest.raises(SolveError, match="step 1"):
        rolling.simulate("perfect", [4.0, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": {"level": "stock[0]"}}, "the state 'level' is no array of the model"),
        ({"state": {"stock": "level[0]"}}, "enters at 'level\\[0\\]', which is no known value, variable or row"),
        ({"state": {"stock": "buy[0]"}}, "the model does not fix this variable; add a row such as buy\\[0\\] == start"),
        ({"state": {}}, "state must be a dictionary"),
        ({"step": 4}, "step must be a number of periods from 1 to 3; got 4"),
        ({"horizon": 5}, "that of its predicted values; price has 3; got horizon=5"),
        ({"fixed": 3}, "fixed must be a number of periods from 0 to 2"),
        ({"fixed": {"stock": 1}}, "fixed names 'stock', which is no array of 3 rows; expected one of buy, lack"),
        ({"initial": {"level": 1.0}}, "initial holds 'level', which is no state; expected stock"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(options, message):
    with pytest.raises(ProblemError, match=message):
        pear.Rolling(shop(), **{"state": {"stock": "stock[0]"}, **options})


def test_errors_of_data_and_calls_say_what_to_do():
    rolling = pear.Rolling(shop(), state={"stock": "stock[0]"})
    for call, message in [
        (lambda: rolling.simulate("perfect", [1.0, 2.0]), "a plan takes 3 periods, and the data has 2"),
        (lambda: rolling.simulate("perfect", [1.0, 2.0, np.nan, 1.0]), "the series 'price' is not finite in period 2"),
        (lambda: rolling.simulate("perfect", {"cost": PRICES}), "data holds no series 'price'"),
        (lambda: rolling.simulate("last", PRICES), "'perfect'; got 'last'"),
        (lambda: rolling.simulate(torch.nn.Linear(2, 3), PRICES), "a forecaster needs features"),
        (lambda: rolling.simulate(np.ones((8, 2)), PRICES), "must have shape \\(8, 3\\)"),
        (lambda: rolling.simulate(np.ones((5, 3)), PRICES), "has 5 rows; expected one for each of the 8 plans"),
        (lambda: rolling.simulate("perfect", PRICES, start=9), "8 plans|0 plans"),
        (lambda: rolling.simulate("perfect", PRICES, known={"demand": 1}), "the model has no known values"),
        (lambda: pear.Rolling(shop().problem, state={"stock": "stock[0]"}), "Rolling takes a pear.Model"),
        (lambda: pear.RollingLoss(shop()), "RollingLoss takes a pear.Rolling"),
        (lambda: pear.RollingLoss(rolling)(torch.ones(1, 2, 4), torch.ones(1, 2, 4)), "must have shape \\(B, S, 3\\)"),
        (lambda: rolling.samples(np.ones((10, 2)), PRICES, 4, [7]), "must begin between 0 and 4"),
    ]:
        with pytest.raises(ProblemError, match=message):
            call()
    model = with_demand(shop())
    with pytest.raises(ProblemError, match="must begin with a state 'stock'"):
        pear.Rolling(model, state={"stock": "e0"}).simulate("perfect", PRICES, known={"demand": np.ones((8, T))})


def test_a_cost_without_a_period_is_refused():
    model = shop()
    layout = {name: at for name, at in model.layout.items() if name != "lack"}
    stray = pear.Model(model.problem, variables=model.variables, cost_map=model.cost_map, layout=layout)
    pear.Rolling(stray, state={"stock": "stock[0]"})  # a variable of one balance row belongs to its period
    A = torch.cat([model.problem.A, torch.zeros(4, 1)], 1)
    A[1:, -1] = 1.0
    wide = pear.Problem(A=A, b=model.problem.b, lb=0.0)
    M = torch.cat([torch.as_tensor(model.cost_map.M), torch.zeros(1, T)])
    known = torch.cat([model.known, torch.ones(1)])
    peak = pear.Model(
        wide, variables=(*model.variables, "peak"), cost_map=pear.CostMap(M, known, model.names), layout=model.layout
    )
    with pytest.raises(ProblemError, match="peak has a cost and no period"):
        pear.Rolling(peak, state={"stock": "stock[0]"})


@pytest.mark.parametrize(("row", "state"), [("buy(0) + lack >= 9", 1.5), ("- buy(0) - lack <= -9", -1.5)])
def test_a_state_enters_a_row_of_a_file_with_the_sign_of_the_file(tmp_path, row, state):
    file = tmp_path / "shop.lp"
    file.write_text(f"min\n cost: buy(0) + buy(1) + 9 lack\nst\n need: {row}\n other: buy(0) + buy(1) <= 5\nend\n")
    rolling = pear.Rolling(
        pear.from_mps(file, ["buy(0)", "buy(1)"]),
        state={"need": "need"},
        initial={"need": state},
        transition=lambda states, decisions, true: {"need": states["need"]},
    )
    found = rolling.simulate("perfect", PRICES[:4])
    assert found.decisions["buy"] == pytest.approx([1.5] * 3)  # what is needed, in every period


def test_a_state_enters_no_row_of_a_cvxpy_model():
    cp = pytest.importorskip("cvxpy")
    price, stock, buy = cp.Parameter(3), cp.Variable(4, name="stock"), cp.Variable(3, name="buy")
    rows = [stock[1:] == stock[:-1] + buy - 1, stock >= 0, buy >= 0, buy <= 2, stock[0] + 0 * buy[0] == 0.5]
    m = pear.from_cvxpy(cp.Problem(cp.Minimize(price @ buy), rows), [price])
    with pytest.raises(ProblemError, match=r"constants may be on either side .* known="):
        pear.Rolling(m, state={"stock": m.constraints[0]})

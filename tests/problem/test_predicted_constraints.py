"""Predicted constraints in everything that users call: importers, the estimator and its file, examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scripts import import_script

import pear
from pear.errors import DataError, ProblemError

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")
cp = pytest.importorskip("cvxpy", reason="CVXPY is not installed; pip install 'pear-dfl[cvxpy]'")

TOOL = Path(__file__).parents[2] / "lab" / "studies" / "recourse_study.py"
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return import_script(TOOL)


# from_cvxpy


class Kitchen:
    """Two kinds of meals for three days in CVXPY, with predicted demand, budget and prices."""

    def __init__(self) -> None:
        self.demand, self.budget = cp.Parameter((2, 3), name="demand"), cp.Parameter(name="budget")
        self.price = cp.Parameter(2, name="price")
        self.cook, self.freeze = (
            cp.Variable((2, 3), name="cook", nonneg=True),
            cp.Variable(2, name="freeze", nonneg=True),
        )
        self.slack = [cp.Variable((2, 3), nonneg=True) for _ in range(2)] + [cp.Variable(nonneg=True)]
        self.meet = self.cook == self.demand
        self.spend = 2 * cp.sum(self.cook) + cp.sum(self.freeze) <= self.budget + 1
        self.spend.set_label("spend")
        self.keep = self.freeze >= cp.abs(self.cook[:, 0] - 1) - 5
        self.goal = self.price @ cp.sum(self.cook, 1) + 0.05 * cp.sum_squares(self.cook) - 0.1 * cp.sum(self.freeze)
        self.parameters = [self.budget, self.demand, self.price]
        self.little, self.spent = np.array([[9.0, 8.0, 7.0], [6.0, 5.0, 4.0]]), 3.0
        self.recourse: Any = {self.meet: (self.little, 2.0), "spend": self.spent}

    def model(self) -> pear.Model:
        problem = cp.Problem(cp.Minimize(self.goal), [self.keep, self.spend, self.freeze <= 4, self.meet])
        return pear.from_cvxpy(problem, self.parameters, self.recourse)

    def best(self, values: np.ndarray[Any, Any]) -> float:
        """Return the optimum of the elastic program, written by hand and solved by CVXPY."""
        self.budget.value, self.demand.value, self.price.value = values[0], values[1:7].reshape(2, 3), values[7:]
        missing, surplus, over = self.slack
        fine = cp.sum(cp.multiply(self.little, missing)) + 2.0 * cp.sum(surplus) + self.spent * over
        rows = [
            self.keep,
            self.freeze <= 4,
            self.cook + missing - surplus == self.demand,
            2 * cp.sum(self.cook) + cp.sum(self.freeze) <= self.budget + 1 + over,
        ]
        problem = cp.Problem(cp.Minimize(self.goal + fine), rows)
        problem.solve(cp.CLARABEL, **TIGHT)
        return float(problem.value)

    def paid(self, cook: Any, freeze: Any, values: np.ndarray[Any, Any]) -> float:
        budget, demand, price = values[0], values[1:7].reshape(2, 3), values[7:]
        short = np.maximum(demand - cook, 0)
        fine = (self.little * short).sum() + 2 * np.maximum(cook - demand, 0).sum()
        fine += self.spent * max(2 * cook.sum() + freeze.sum() - budget - 1, 0)
        return float(price @ cook.sum(1) + 0.05 * (cook**2).sum() - 0.1 * freeze.sum() + fine)


def drawn(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return np.hstack([random.uniform(10, 30, (count, 1)), random.uniform(1, 4, (count, 6)), random.random((count, 2))])


def test_parameters_on_right_hand_sides_become_the_constraint_map() -> None:
    m = Kitchen().model()
    assert m.constraint_map is not None
    assert m.names[:3] == ("budget", "demand[0,0]", "demand[0,1]")
    values = drawn(2)
    sides = m.right_hand_sides(values)
    columns = m.layout["cook"]
    assert m.problem.A is not None
    assert m.problem.G is not None
    for j, at in enumerate(columns.reshape(-1)):
        row = int((m.problem.A[:, int(at)] == 1).nonzero()[0])
        assert sides["b"][:, row].tolist() == pytest.approx(values[:, 1 + j].tolist(), abs=1e-12)
    spend = int((m.problem.G[:, int(columns[0, 0])] == 2).nonzero()[0])
    assert sides["h"][:, spend].tolist() == pytest.approx((values[:, 0] + 1).tolist(), abs=1e-12)
    assert torch.equal(m.cost(values)[:, columns[0, 1]], torch.tensor(values[:, 7]))


def test_regret_is_what_the_decision_pays_less_the_best_that_cvxpy_finds() -> None:
    kitchen = Kitchen()
    m, predicted, true = kitchen.model(), drawn(4), drawn(4, seed=1)
    decided = m.decision(pear.solve(m, torch.tensor(predicted)).x)
    lost = pear.regret(m, predicted, true)
    for i in range(4):
        paid = kitchen.paid(decided["cook"][i].numpy(), decided["freeze"][i].numpy(), true[i])
        assert float(lost[i]) == pytest.approx(paid - kitchen.best(true[i]), abs=1e-6)
    assert pear.regret(m, true, true).abs().max() < 1e-9


def test_the_report_says_which_rows_depend_on_which_parameter() -> None:
    kitchen = Kitchen()
    report = kitchen.model().report
    assert "The right-hand side of spend (1 row) depends on budget." in report
    assert "The right-hand sides of constraint 3 (6 rows) depend on demand." in report
    kitchen.recourse = None
    assert "To train, declare what a violation costs" in kitchen.model().report


def test_recourse_is_declared_later_and_without_it_a_loss_says_how() -> None:
    kitchen = Kitchen()
    full = kitchen.model()
    kitchen.recourse = None
    m, values = kitchen.model(), torch.tensor(drawn(2))
    for use in (pear.PEARLoss, lambda m: pear.regret(m, values, values), lambda m: pear.solve(m, values)):
        with pytest.raises(ProblemError, match=r"with_recourse\(pear\.Penalty"):
            use(m)
    later = m.with_recourse(full.recourse)
    other = torch.tensor(drawn(2, seed=3))
    assert torch.equal(pear.regret(later, other, values), pear.regret(full, other, values))


P, X = cp.Parameter(3, name="p"), cp.Variable(3, name="x")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "inside a function": (lambda: ([cp.abs(X - P) <= 1], None), r"constraint 0, abs.*is not linear in decisions"),
    "a power": (lambda: ([X <= P**2], None), "is not linear in decisions and predicted parameters \\(p\\)"),
    "no constraint of it": (
        lambda: ([X <= P], {"limit": 1.0}),
        "recourse names limit, which is no constraint of it; expected .* constraint 0",
    ),
    "no price": (
        lambda: ([X <= P, X >= 0], {"constraint 1": 1.0}),
        "constraint 0 depends on p, which is predicted, and",
    ),
    "negative": (
        lambda: ([X <= P], {"constraint 0": -1.0}),
        "the price of constraint 0 is -1.0; expected a number of at",
    ),
    "a pair": (lambda: ([X <= P], {"constraint 0": (1.0, 2.0)}), "is a pair, and constraint 0 is an inequality"),
    "another shape": (lambda: ([X <= P], {"constraint 0": [1.0, 2.0]}), r"has shape \(2,\); expected a number, or one"),
    "of bounds": (
        lambda: ([cp.sum(cp.Variable(3, name="y", bounds=[0, P])) >= 1], None),
        "stands in the bounds of variable y; write them as constraints, which can have a price: y <= p",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, words = REFUSED[name]
    rows, recourse = make()
    with pytest.raises(DataError, match=words):
        pear.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(X)), rows), [P], recourse)


def test_a_number_is_no_recourse() -> None:
    with pytest.raises(ProblemError, match=r"must be a dictionary from constraints, .*\{constraint: 9.0\}.*; got 2.0"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(X)), [X <= P]), [P], 2.0)


def test_a_parameter_in_a_constraint_may_not_also_stand_inside_a_function_of_the_objective() -> None:
    problem = cp.Problem(cp.Minimize(cp.norm1(X - P)), [X <= P])
    with pytest.raises(DataError, match="the predicted parameter p stands inside a nonlinear function"):
        pear.from_cvxpy(problem, [P])


# models of files, by the names of rows

PLAN = """min
 cost: 3 x + 2 y + z
st
 cover: x + y >= 4
 limit: x <= 3
 meet: z - x = 1
bounds
 y <= 9
end
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    pytest.importorskip("highspy", reason="highspy is not installed; pip install 'pear-dfl[highs]'")
    path = tmp_path / "plan.lp"
    path.write_text(PLAN)
    return path


def test_rows_of_a_file_are_predicted_by_their_names(plan: Path) -> None:
    m = pear.from_mps(plan, predicted=["y"], rows=["meet", "cover"], recourse={"cover": 10.0, "meet": (5.0, 7.0)})
    assert m.names == ("y", "meet", "cover")
    sides = m.right_hand_sides([[2.0, 1.5, 4.0]])
    assert sides["b"].tolist() == [[1.5]]
    assert m.problem.sense == "min"
    assert "Predicted behind the costs: the right-hand sides of meet, cover." in m.report
    at_the_file = [[2.0, 1.0, 4.0]]
    assert pear.solve(m, at_the_file).x.tolist() == pear.solve(pear.from_mps(plan), [[3.0, 2.0, 1.0]]).x.tolist()
    # y = 3 and z = 1.5 are decided; 2 more are needed at 10 each, and half a unit of z too much costs 7 a unit
    assert float(pear.regret(m, [[2.0, 1.5, 3.0]], [[2.0, 1.0, 5.0]])) == pytest.approx(20 + 3.5 + 6 + 1.5 - 11)


def test_rows_alone_are_predicted_where_no_cost_is(plan: Path) -> None:
    m = pear.from_mps(plan, predicted=[], rows="cover", recourse={"cover": 10.0})
    assert m.names == ("cover",)
    assert float(pear.regret(m, [[3.0]], [[5.0]])) == pytest.approx(16)


def test_rows_of_a_pyomo_model_are_predicted_by_their_names() -> None:
    pyo = pytest.importorskip("pyomo.environ", reason="Pyomo is not installed; pip install 'pear-dfl[pyomo]'")
    model = pyo.ConcreteModel()
    model.x = pyo.Var([1, 2], bounds=(0, 9))
    model.cover = pyo.Constraint([1, 2], rule=lambda m, i: m.x[i] + 1 >= 4)
    model.cost = pyo.Objective(expr=2 * model.x[1] + 3 * model.x[2])
    m = pear.from_pyomo(model, predicted=[], rows=["cover[1]", "cover[2]"], recourse={"cover[1]": 5.0, "cover[2]": 7.0})
    assert m.names == ("cover[1]", "cover[2]")
    # 2 and 4 are decided: the second is one short, at 7 a unit, and the first one too many, at its cost of 2
    assert float(pear.regret(m, [[2.0, 4.0]], [[1.0, 5.0]])) == pytest.approx((4 + 12 + 7) - (2 + 15))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"rows": ["hours"]},
            "rows must name rows, each once; got 'hours', which is no row of it. They are called cover",
        ),
        ({"rows": ["cover", "cover"]}, "got 'cover', twice"),
        ({"rows": ["cover"], "recourse": {"hours": 1.0}}, "recourse names 'hours', which is no row of it"),
        (
            {"rows": "cover", "recourse": {"limit": 1.0}},
            r"row cover is predicted, and recourse has no finite price for it; .*recourse=\{'cover': price, …\}",
        ),
        (
            {"rows": ["meet"], "recourse": {"meet": (1.0, float("inf"))}},
            "row meet is predicted, and recourse has no finite",
        ),
        (
            {"rows": "cover", "recourse": 9.0},
            r"must be a dictionary from names of rows to prices, \{'cover': 9.0\}, .*; got 9.0",
        ),
        ({"recourse": {"limit": 1.0}}, "recourse is about predicted right-hand sides, and there are none"),
    ],
)
def test_rows_that_are_refused(plan: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        pear.from_mps(plan, **options)


def test_the_command_line_trains_and_decides_with_predicted_rows(plan: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from pear.cli.app import app

    random = np.random.default_rng(0)
    feature = random.random(40)
    table = pd.DataFrame({"f": feature, "y": 2 + feature, "cover": 4 + feature * random.random(40)})
    table.to_csv(tmp_path / "days.csv", index=False)
    model, out = tmp_path / "model.pear", tmp_path / "decisions.csv"
    common = [str(plan), str(tmp_path / "days.csv"), "--out", str(model), "--max-epochs", "3"]
    result = CliRunner().invoke(app, ["train", *common, "--costs", "y,cover=10"])
    assert result.exit_code == 0, result.output
    assert "1 of its 3 costs and 1 of its right-hand sides are predicted from 1 feature" in " ".join(
        result.output.split()
    )
    result = CliRunner().invoke(app, ["decide", str(model), str(tmp_path / "days.csv"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert list(pd.read_csv(out).columns) == ["x", "y", "z"]
    result = CliRunner().invoke(app, ["train", *common, "--costs", "cover=much"])
    assert "expected ROW=PRICE" in " ".join(result.output.split()) or "expected ROW=PRICE" in str(result.exception)


# the estimator


def tables(example: Any) -> tuple[Any, Any]:
    return (
        pd.DataFrame(example.features, columns=[f"f{i}" for i in range(example.features.shape[1])]),
        pd.DataFrame(example.values, columns=list(example.model.names)),
    )


def test_the_estimator_fits_decides_scores_and_comes_back_from_its_file(tool: ModuleType, tmp_path: Path) -> None:
    example = tool.staffing(60, seed=0, hours=6)
    X, Y = tables(example)
    model = pear.DecisionRegressor(example.model, max_epochs=3).fit(X[:40], Y[:40])
    predicted, decided = model.predict(X[40:]), model.decide(X[40:])
    assert list(predicted.columns) == [*(f"hour{i}" for i in range(6)), "temporary"]
    assert list(decided.columns) == list(example.model.variables)
    lost = pear.normalized_regret(example.model, predicted.to_numpy(), Y[40:].to_numpy())
    assert model.score(X[40:], Y[40:]) == pytest.approx(-lost)
    model.save(tmp_path / "model.pear")
    again = pear.DecisionRegressor.load(tmp_path / "model.pear")
    assert again.decide(X[40:]).equals(decided)
    assert again.score(X[40:], Y[40:]) == model.score(X[40:], Y[40:])
    with pytest.raises(ProblemError, match="in another order"):
        model.fit(X, Y[list(reversed(Y.columns))])


PRICES = np.array([2.0, 3.0])
RECOURSES = {
    "a number": pear.Penalty(h=4.0),
    "a pair": pear.Penalty(b=(PRICES, 1.0), h=np.array([1.0, np.inf])),
    "projection": pear.Projection([1.0, 2.0]),
}


@pytest.mark.parametrize("name", RECOURSES)
def test_a_model_file_holds_the_constraint_map_and_the_recourse(name: str, tmp_path: Path) -> None:
    recourse, predicts_b = RECOURSES[name], name == "a pair"
    problem = pear.Problem(A=np.eye(2), b=[1.0, 2.0], G=[[1.0, 1.0], [1.0, -1.0]], h=[9.0, 9.0])
    rows = pear.ConstraintMap(b=np.eye(2) if predicts_b else None, h=np.array([[1.0, 0.0], [0.0, 0.0]]))
    own = pear.Model(problem, known=[1.0, 2.0], constraint_map=rows, recourse=recourse)
    X, Y = np.random.default_rng(0).normal(size=(2, 20, 2))
    estimator = pear.DecisionRegressor(own, max_epochs=2).fit(X, Y)
    estimator.save(tmp_path / "model.pear")
    back = pear.DecisionRegressor.load(tmp_path / "model.pear").problem
    assert back.right_hand_sides(Y)["h"].equal(own.right_hand_sides(Y)["h"])
    assert type(back.recourse) is type(recourse)
    before, after = (one.prices(problem, rows) for one in (recourse, back.recourse))
    assert all(before[side].equal(after[side]) for side in before)
    if isinstance(recourse, pear.Projection):
        assert back.recourse.metric(problem).tolist() == [1.0, 2.0]


# newsvendor and staffing


@pytest.mark.parametrize(("name", "size"), [("newsvendor", 4), ("staffing", 6)])
def test_training_with_recourse_loses_less_than_the_squared_error(name: str, size: int, tool: ModuleType) -> None:
    found = [tool.compare(tool.EXAMPLES[name](360, seed, size), seed, max_epochs=31) for seed in range(2)]
    assert all(0 < one["pear"] < one["mse"] for one in found), found


@pytest.mark.parametrize("name", ["newsvendor", "staffing"])
def test_gradients_agree_with_finite_differences_to_the_end(name: str, tool: ModuleType) -> None:
    """The gradient runs from the loss through right-hand sides and costs to the weights of a linear model."""
    model, X, Y = tool.EXAMPLES[name](6, 3)
    loss = pear.PEARLoss(model, smoothing=0.3, injection=0.0, guidance=0.0)
    random = torch.Generator().manual_seed(0)
    features, true = torch.tensor(X), torch.tensor(Y)
    weights = torch.randn(features.shape[1], true.shape[1], dtype=torch.float64, generator=random)

    def value(weights: Any) -> Any:
        return loss(true.mean(0) + features @ weights, true)

    weights.requires_grad_()
    (gradient,) = torch.autograd.grad(value(weights), weights)
    for _ in range(6):
        step = torch.randn(weights.shape, dtype=torch.float64, generator=random)
        with torch.no_grad():
            slope = (value(weights + 1e-6 * step) - value(weights - 1e-6 * step)) / 2e-6
        assert float(slope) == pytest.approx(float((gradient * step).sum()), rel=1e-6, abs=1e-6)
    assert gradient.abs().max() > 0

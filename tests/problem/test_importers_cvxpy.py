"""``pear.from_cvxpy``: the cost map from parameters, the shapes of decisions, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pear

cp = pytest.importorskip("cvxpy", reason="CVXPY is not installed; pip install 'pear-dfl[cvxpy]'")
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)


def same_optimum(problem: Any, parameters: list[Any], values: list[Any]) -> pear.Model:
    """Return the imported model; check that it has CVXPY's optimum under these values of the parameters.

    The parameters have no values when the problem is imported.
    """
    m = pear.from_cvxpy(problem, parameters)
    y = torch.tensor(np.concatenate([np.ravel(v) for v in values]), dtype=torch.float64)
    for p, v in zip(parameters, values, strict=True):
        p.value = v
    integer = problem.is_mixed_integer()
    problem.solve(cp.HIGHS) if integer else problem.solve(cp.CLARABEL, **TIGHT)
    solution = pear.solve(m, y)
    assert float(solution.value) + m.offset == pytest.approx(problem.value, rel=1e-8, abs=1e-8)
    return m


def value_of(m: pear.Model) -> float:
    return float(pear.solve(m.problem, m.known).value) + m.offset


def store(sense: str = "min") -> tuple[Any, list[Any], list[Any]]:
    """Return a problem with two predicted parameters, a matrix variable, and a parameter as a factor."""
    price, fee, rate = (
        cp.Parameter(3, name="price"),
        cp.Parameter((2, 2), name="fee"),
        cp.Parameter(name="rate", value=2),
    )
    x, X = cp.Variable(3, name="x", nonneg=True), cp.Variable((2, 2), name="X", bounds=[-1, 2])
    goal = rate * (price @ x) + cp.sum(cp.multiply(fee, X)) + 0.5 * cp.sum_squares(x) + 4
    rows = [cp.sum(x) >= 1, X[0, 1] + x[2] == 0.5, x <= 3]
    return cp.Problem(cp.Minimize(goal) if sense == "min" else cp.Maximize(-goal), rows), [price, fee], [
        np.array([1.0, -0.5, 2.0]),
        np.array([[1.0, -2.0], [0.5, -0.25]]),
    ]  # fmt: skip


@pytest.mark.parametrize("sense", ["min", "max"])
def test_the_cost_map_comes_from_the_parameters(sense: str) -> None:
    problem, parameters, values = store(sense)
    m = same_optimum(problem, parameters, values)
    assert m.cost_map is not None
    assert m.names == ("price[0]", "price[1]", "price[2]", "fee[0,0]", "fee[0,1]", "fee[1,0]", "fee[1,1]")
    assert (m.problem.n, m.inputs, m.problem.sense) == (7, 7, sense)
    assert m.offset == (4.0 if sense == "min" else -4.0)
    by_name = dict(zip(m.variables, m.cost(np.arange(1.0, 8.0)).tolist(), strict=True))
    sign = 1 if sense == "min" else -1
    assert by_name["x[1]"] == sign * 2 * 2.0
    assert by_name["X[0,1]"] == sign * 5.0
    assert by_name["X[1,0]"] == sign * 6.0
    found = m.decision(pear.solve(m, np.stack([np.concatenate([np.ravel(v) for v in values])] * 2)).x)
    assert found["X"].shape == (2, 2, 2)
    np.testing.assert_allclose(found["X"][1], problem.var_dict["X"].value, atol=1e-6)
    np.testing.assert_allclose(found["x"][0], problem.var_dict["x"].value, atol=1e-6)
    assert "Parameters taken at their values: rate." in m.report
    assert "Predicted: 7 values, price[0], price[1], price[2], fee[0,0], …, fee[1,1]; 7 of 7 costs" in m.report


def test_the_order_of_parameters_is_the_one_given() -> None:
    problem, (price, fee), _ = store()
    m = pear.from_cvxpy(problem, [fee, price])
    assert m.names[:2] == ("fee[0,0]", "fee[0,1]")
    assert m.names[4:] == ("price[0]", "price[1]", "price[2]")
    price.value = [1.0, 2.0, 3.0]
    one = pear.from_cvxpy(problem, fee)
    assert one.inputs == 4
    assert dict(zip(one.variables, one.cost(np.zeros(4)).tolist(), strict=True))["x[2]"] == 6.0


AUXILIARY: dict[str, Callable[[Any, Any], Any]] = {
    "abs": lambda x, p: cp.sum(cp.abs(x - 0.5)),
    "norm1 and max": lambda x, p: cp.norm1(x) + cp.max(x),
    "sum_largest": lambda x, p: cp.sum_largest(x, 2),
    "huber": lambda x, p: cp.sum(cp.huber(x)),
    "pos squared": lambda x, p: cp.sum_squares(cp.pos(x)),
    "quad_form": lambda x, p: cp.quad_form(x, np.diag([1.0, 2.0, 0.0])),
    "constant": lambda x, p: cp.Constant(2.5),
    "square of a sum": lambda x, p: cp.square(cp.sum(x) - 1),
}


@pytest.mark.parametrize("name", AUXILIARY)
def test_what_cvxpy_writes_with_further_variables(name: str) -> None:
    price, x = cp.Parameter(3, name="price"), cp.Variable(3, name="x")
    problem = cp.Problem(cp.Minimize(price @ x + AUXILIARY[name](x, price)), [cp.sum(x) == 1, cp.norm_inf(x) <= 2])
    m = same_optimum(problem, [price], [np.array([0.3, -0.2, 0.5])])
    assert list(m.layout) == ["x"]
    assert m.decision(torch.zeros(m.problem.n))["x"].shape == (3,)
    assert m.variables.count("auxiliary[0]") == (1 if m.problem.n > 3 else 0)
    added = re.search(r"CVXPY adds (a|\d+) variables? of its own", m.report)
    removed = re.search(r"(\d+) defined variables?", m.report)
    number = 1 if added[1] == "a" else int(added[1])
    assert m.problem.n - 3 == number - (int(removed[1]) if removed else 0)
    assert m.report.startswith("The CVXPY problem: a ")


def test_a_sign_that_cvxpy_needs_is_said() -> None:
    price, x = cp.Parameter(2, nonneg=True, name="price"), cp.Variable(2, name="x")
    problem = cp.Problem(cp.Minimize(price @ cp.pos(x) - cp.sum(x)), [x <= 3, x >= -1])
    m = same_optimum(problem, [price], [np.array([0.5, 2.0])])
    assert "must keep the sign that the problem declares" in m.report


def test_kinds_of_variables() -> None:
    p = cp.Parameter(2, name="p")
    x = cp.Variable(2, boolean=True, name="x")
    y = cp.Variable(3, integer=[[0, 2]], name="y", bounds=[np.array([-1.5, 0, 0]), 4])
    z, s, neg = cp.Variable(name="z"), cp.Variable(nonpos=True, name="s"), cp.Variable((1, 1), name="w", neg=True)
    rows = [cp.sum(y) + z <= 7.5, z >= x[0], z <= 2 + s, neg >= -3, y[0] <= 2.5]
    problem = cp.Problem(cp.Maximize(p @ x + cp.sum(y) + 0.5 * z - neg[0, 0]), rows)
    m = same_optimum(problem, [p], [np.array([1.0, -2.0])])
    kinds = dict(zip(m.variables, m.problem.integer.tolist(), strict=True))
    assert kinds == {
        "x[0]": True,
        "x[1]": True,
        "y[0]": True,
        "y[1]": False,
        "y[2]": True,
        "z": False,
        "s": False,
        "w[0,0]": False,
    }
    assert m.decision(torch.zeros(m.problem.n))["w"].shape == (1, 1)
    assert m.decision(torch.zeros(m.problem.n))["z"].shape == ()
    low, high = (dict(zip(m.variables, side.tolist(), strict=True)) for side in (m.problem.lb, m.problem.ub))
    assert (low["y[0]"], high["y[0]"], high["x[0]"], high["s"], low["z"]) == (-1.5, 2.5, 1.0, 0.0, -np.inf)


def test_integers_with_a_quadratic_objective_and_unused_variables() -> None:
    p, x, idle = cp.Parameter(2, name="p"), cp.Variable(2, boolean=True, name="x"), cp.Variable(2, name="idle")
    problem = cp.Problem(cp.Minimize(p @ x + cp.sum_squares(x)), [0 * idle <= 1, cp.Constant(1) <= 2, x[0] + x[1] >= 1])
    m = pear.from_cvxpy(problem, [p])
    assert m.problem.Q is not None
    assert m.problem.is_integer
    assert m.decision(torch.zeros(m.problem.n))["idle"].shape == (2,)


def test_a_term_without_decisions_is_left_out_and_said() -> None:
    p, x = cp.Parameter(2, name="p"), cp.Variable(2, name="x")
    m = pear.from_cvxpy(cp.Problem(cp.Minimize(p @ x + 3 * p[1] + 1), [x >= 0]), [p])
    assert m.offset == 1.0
    assert "A term of the objective with p[1] and no decision is left out: it changes none." in m.report


def test_a_quadratic_term_that_is_zero_is_none() -> None:
    x, weight = cp.Variable(2, name="x"), cp.Parameter(nonneg=True, value=0, name="weight")
    m = pear.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + weight * cp.sum_squares(x)), [x >= 1]), [])
    assert m.problem.Q is None
    assert value_of(m) == 2.0


def test_labels_name_rows() -> None:
    x = cp.Variable(2, name="x")
    rows = [x >= 0, (cp.sum(x) <= 1).set_label("budget")]
    assert pear.from_cvxpy(cp.Problem(cp.Minimize(-x[0]), rows)).rows == (
        "constraint 0[0]",
        "constraint 0[1]",
        "budget",
    )


def test_the_problem_is_left_as_it_is() -> None:
    problem, parameters, _ = store()
    before = str(problem)
    pear.from_cvxpy(problem, parameters)
    assert str(problem) == before
    assert [p.value for p in parameters] == [None, None]
    assert problem.status is None


def problem_with(goal: Any, rows: Any = (), sense: Any = None) -> Any:
    return cp.Problem((sense or cp.Minimize)(goal), list(rows))


P, R, X, S = (
    cp.Parameter(2, name="p"),
    cp.Parameter(name="r", nonneg=True),
    cp.Variable(2, name="x"),
    cp.Variable(name="s"),
)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no problem": (lambda: (P @ X,), r"expected a cvxpy\.Problem, got \w+; write cvxpy\.Problem\(objective, rows\)"),
    "another parameter": (
        lambda: (problem_with(P @ X), [R]),
        "the parameter r is not in it; its parameters: p. Pass those that are predicted, the same objects",
    ),
    "a variable as parameter": (lambda: (problem_with(P @ X), [X]), r"predicted\[0\] is a Variable; expected a cvxpy"),
    "twice": (lambda: (problem_with(P @ X), [P, P]), "the parameter p is given twice; pass each once"),
    "two of one name": (
        lambda: (problem_with(P @ X + cp.Parameter(2, name="p") @ X),),
        "two predicted parameters are called p; give each its own name",
    ),
    "no value": (
        lambda: (problem_with(P @ X + R * S, [S >= 0]), [P]),
        r"the parameter r is not predicted and has no value; set r\.value, or name it in predicted",
    ),
    "in bounds": (
        lambda: (problem_with(R * cp.sum(cp.Variable(2, name="y", bounds=[0, R]))),),
        "the predicted parameter r stands in the bounds of variable y; write them as constraints",
    ),
    "inside a square": (
        lambda: (problem_with(cp.sum_squares(X - P)),),
        r"the predicted parameter p stands inside a nonlinear function of the objective.*- 2 \* p @ x",
    ),
    "product of two": (
        lambda: (problem_with(R * (P @ X)),),
        r"the objective is not linear in the predicted parameters \(.*p.*\): a product of two of them",
    ),
    "a function of it": (
        lambda: (problem_with(cp.exp(P) @ X),),
        r"the objective is not linear in the predicted parameters \(p\): a product",
    ),
    "quadratic constraint": (
        lambda: (problem_with(P @ X, [cp.sum_squares(X) <= 1]),),
        "constraint 0, quad_over_lin.* is a quadratic constraint, which cannot be taken",
    ),
    "second-order cone": (
        lambda: (problem_with(P @ X, [X >= 0, cp.norm2(X) <= 1]),),
        r"constraint 1, .* needs a cone, from P?norm.*\(x, 2.*\), which cannot be taken",
    ),
    "a cone by name": (lambda: (problem_with(P @ X, [cp.SOC(S, X)]),), "is of kind SOC, which cannot be taken"),
    "semidefinite": (
        lambda: (problem_with(S, [cp.bmat([[S, X[0]], [X[0], X[1]]]) >> 0]),),
        "is of kind PSD, which cannot be taken; expected linear constraints",
    ),
    "exponential": (
        lambda: (problem_with(P @ X + cp.sum(cp.exp(X))),),
        r"the objective needs a cone, from exp\(x\); expected linear, quadratic and piecewise-linear terms",
    ),
    "norm in the objective": (lambda: (problem_with(P @ X + cp.norm2(X)),), "the objective needs a cone, from P?norm"),
    "not convex": (lambda: (problem_with(P @ X - cp.sum_squares(X)),), "is not convex by CVXPY's rules"),
    "not concave": (
        lambda: (problem_with(P @ X + cp.sum_squares(X), sense=cp.Maximize),),
        "is not concave by CVXPY's rules",
    ),
    "no sign": (
        lambda: (problem_with(P @ cp.abs(X)),),
        "is not convex by CVXPY's rules .*where p multiplies a convex expression, declare it with nonneg=True",
    ),
    "row not convex": (lambda: (problem_with(P @ X, [cp.abs(X) >= 1]),), "constraint 0, .* is not convex by CVXPY's"),
    "semidefinite variable": (
        lambda: (problem_with(cp.trace(cp.Variable((2, 2), PSD=True, name="Y"))),),
        "variable Y is declared PSD, which cannot be taken",
    ),
    "complex": (
        lambda: (problem_with(cp.real(cp.Variable(complex=True, name="c"))),),
        "variable c is declared complex, which cannot be taken",
    ),
    "structured parameter": (
        lambda: (problem_with(cp.sum(cp.Parameter((2, 2), PSD=True, name="D") @ X)),),
        "the predicted parameter D is declared PSD",
    ),
    "two variables of one name": (
        lambda: (problem_with(P @ X + cp.sum(cp.Variable(2, name="x"))),),
        "two variables are called x; decisions come back by name: give each its own",
    ),
    "no variables": (lambda: (problem_with(cp.Constant(1)),), "has no variables; a decision needs at least one"),
    "wrong positions": (
        lambda: (problem_with(P @ X + cp.sum(cp.Variable(3, name="k", integer=[(0,), (1,)]))),),
        r"integer=\[\(0,\), \(1,\)\] of variable k does not fit its shape \(3,\).*integer=\[\[0, 2\]\]",
    ),
    "finite set": (lambda: (problem_with(P @ X, [cp.FiniteSet(S, [1, 2])]),), "is of kind FiniteSet, which cannot"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_is_refused_in_words(case: str) -> None:
    make, sentence = REFUSED[case]
    with pytest.raises(pear.DataError, match=sentence):
        pear.from_cvxpy(*make())


def test_bounds_that_cross() -> None:
    x = cp.Variable(2, name="x", nonneg=True, bounds=[-2, -1])
    with pytest.raises(pear.ProblemError, match="the CVXPY problem: lb > ub at variable 0"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x))))


def test_labels_name_the_rows_of_mixed_constraints() -> None:
    """CVXPY puts equalities first and adds auxiliary rows, but each row keeps the name of its constraint."""
    x, y = cp.Variable(3, name="x"), cp.Variable((2, 2), name="y")
    weights = np.array([[1.0, 2.0], [3.0, 5.0]])
    rows = {
        "limit": x[0] + 2 * x[1] <= 7,
        "total": cp.sum(x) == 2,
        "grid": cp.multiply(weights, y) + 2 * x[2] <= np.array([[1.0, 2.0], [3.0, 4.0]]),
        "near": cp.abs(x[0] - x[2]) <= 3,
        "pair": y[0] + x[:2] == np.array([5.0, 6.0]),
    }
    for name, row in rows.items():
        row.set_label(name)
    price = cp.Parameter(3, name="price")
    goal = cp.Minimize(price @ x + cp.sum_squares(x) + cp.sum_squares(y))
    model = pear.from_cvxpy(cp.Problem(goal, list(rows.values())), [price])
    rng = np.random.default_rng(0)
    x.value, y.value = rng.normal(size=3), rng.normal(size=(2, 2))
    z = np.full(model.problem.n, np.nan)
    for name, variable in (("x", x), ("y", y)):
        z[model.layout[name].numpy()] = variable.value
    found = {}
    A, G = model.problem.A.numpy(), model.problem.G.numpy()
    sides = np.concatenate([model.problem.b.numpy(), model.problem.h.numpy()])
    for name, row, side in zip(model.constraints, np.concatenate([A, G]), sides, strict=True):
        if not np.isnan(z[row != 0]).any():
            found[name] = abs(row[row != 0] @ z[row != 0] - side)

    def off(row: Any) -> Any:
        return np.abs(row.args[0].value - row.args[1].value).reshape(-1)

    expected = {"limit": off(rows["limit"])[0], "total": off(rows["total"])[0]}
    for name in ("grid", "pair"):
        expected |= {f"{name}[{j}]": value for j, value in enumerate(off(rows[name]))}
    assert expected.keys() <= found.keys()
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    added = [name for name in model.constraints if name not in expected]
    assert len(added) == 2  # what the absolute value takes; its limit has become a bound
    assert all(name.startswith("auxiliary row ") for name in added)

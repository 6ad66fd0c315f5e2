"""Importers of HiGHS, SciPy, PyEPO, Gurobi and Pyomo: the peculiarities and the errors of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from modellers import CASES, INF, Case, gurobi_model, highs_model, pyepo_model, pyomo_model, value
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, linprog, milp

import pear

# --- SciPy ----------------------------------------------------------------------------------------------------------

UB = {"A_ub": [[1, 1, 1], [1, -1, 0]], "b_ub": [4, 1]}
EQ = {"A_eq": [[1, 0, 2]], "b_eq": [1.5]}
LINPROG: dict[str, dict[str, Any]] = {
    "default bounds": {"c": [-1, -2, 1], **UB},
    "one pair": {"c": [-1, 2, 1], **UB, "bounds": (-1, 2)},
    "a list of one pair": {"c": [-1, 2, 1], **UB, "bounds": [(-1, 2)]},
    "pairs": {"c": [-1, 2, 1], **UB, **EQ, "bounds": [(None, 3), (-2, None), (None, None)]},
    "infinite": {"c": [-1, 2, 1], **UB, **EQ, "bounds": [(-INF, 3), (-2, INF), (0, 9)]},
    "None": {"c": [1, 1, 1], **EQ, "bounds": None},
    "sparse": {"c": [-1, -2, 1], "A_ub": sparse.csc_array(UB["A_ub"]), "b_ub": UB["b_ub"]},
    "integers": {"c": [-1, -2, 1], **UB, "integrality": [1, 0, 1]},
    "all integers": {"c": [-1, -2, 1.5], "A_ub": [[2, 3, -1]], "b_ub": [7.5], "integrality": 1},
    "no rows": {"c": [1, -2, 1], "bounds": (0, 1)},
    "fixed": {"c": [1, -2, 1], **UB, "bounds": [(1, 1), (0, 1), (-1, -1)]},
    "negative upper bounds": {"c": [-1, 2, 1], **UB, "bounds": [(-3, -1), (-3, -1), (-5, None)]},
    "empty rows": {"c": [1, -1, 1], "A_ub": [[0, 0, 0], [1, 1, 0]], "b_ub": [1, 2]},
}


@pytest.mark.parametrize("name", LINPROG)
def test_scipy_arguments_have_the_optimum_of_linprog(name: str) -> None:
    arguments = LINPROG[name]
    m = pear.from_scipy(**arguments)
    assert m.known.tolist() == arguments["c"]
    assert value(m) == pytest.approx(linprog(**arguments).fun, rel=1e-9, abs=1e-9)


def test_scipy_costs_may_be_left_out() -> None:
    m = pear.from_scipy(**UB, **EQ)
    assert (m.problem.n, m.known.tolist()) == (3, [0.0, 0.0, 0.0])
    assert m.rows == ("A_ub[0]", "A_ub[1]", "A_eq[0]")
    assert pear.from_scipy(bounds=[(0, 1), (0, 2)]).problem.n == 2
    assert pear.from_scipy(integrality=[1, 0], bounds=(0, 1)).problem.n == 2
    rows = LinearConstraint([[1, 1]], -1, 2)
    assert pear.from_scipy([1, 2], constraints=rows).rows == ("constraints[0][0]",)


@pytest.mark.parametrize(
    "constraints",
    [
        LinearConstraint(UB["A_ub"], -1, UB["b_ub"]),
        (UB["A_ub"], -1, UB["b_ub"]),
        [UB["A_ub"], -1, UB["b_ub"]],
        [(UB["A_ub"][:1], -1, 4), LinearConstraint(UB["A_ub"][1:], -1, 1)],
        ((UB["A_ub"][:1], -1, 4), (UB["A_ub"][1:], -1, 1), ([[0, 0, 1]], 0, 9)),
    ],
    ids=["one", "a tuple", "a list", "a list of both", "a tuple of tuples"],
)
def test_scipy_constraints_in_every_form_of_milp(constraints: Any) -> None:
    costs, box = [-1.0, -2.0, 1.0], Bounds(0, 5)
    m = pear.from_scipy(costs, constraints=constraints, bounds=box)
    assert value(m) == pytest.approx(milp(costs, constraints=constraints, bounds=box).fun, rel=1e-9)


SCIPY_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no size": ({}, "nothing tells the number of variables; pass c"),
    "half of a pair": ({"c": [1, 2], "A_ub": [[1, 2]]}, "A_ub and b_ub belong together; got only A_ub"),
    "rows": ({"c": [1, 2], "A_ub": [[1, 2]], "b_ub": [1, 2]}, "has 1 rows and b_ub 2 entries; expected one for each"),
    "columns": ({"c": [1, 2], "A_eq": [[1, 2, 3]], "b_eq": [1]}, "A_eq has 3 variables but c has 2; make them equal"),
    "bounds": ({"c": [1, 2], "bounds": [(0, 1)] * 3}, r"one pair \(low, high\) or 2 pairs.*got shape \(3, 2\)"),
    "semi": ({"c": [1, 2], "integrality": [0, 2]}, r"integrality\[1\] is 2; expected 0 .*semi-continuous"),
    "integrality": ({"c": [1, 2], "integrality": [0, 1, 1]}, "integrality must be a number or have 2 entries; got 3"),
    "crossed": ({"c": [1, 2], "bounds": (1, 0)}, "from_scipy: lb > ub at variable 0: 1 > 0"),
    "nonlinear": (
        {"c": [1, 2], "constraints": [NonlinearConstraint(lambda z: z @ z, 0, 1)]},
        r"constraints\[0\] is a NonlinearConstraint; expected scipy\.optimize\.LinearConstraint",
    ),
    "a list that is no constraint": (
        {"c": [1, 2], "constraints": [[[1, 2]], 3]},
        r"constraints\[0\] is a list; expected .*or the tuple \(A, lb, ub\)",
    ),
}


@pytest.mark.parametrize("case", SCIPY_REFUSED)
def test_scipy_arguments_that_are_refused(case: str) -> None:
    arguments, sentence = SCIPY_REFUSED[case]
    with pytest.raises(pear.ProblemError, match=sentence):
        pear.from_scipy(**arguments)


def test_scipy_numbers_that_are_none() -> None:
    with pytest.raises(pear.DataError, match=r"from_scipy: cost of variable\[1\] is nan; expected a finite number"):
        pear.from_scipy([1, np.nan])
    with pytest.raises(pear.DataError, match=r"lower bound of variable\[0\] is inf"):
        pear.from_scipy([1, 2], bounds=Bounds([INF, 0], INF))


# --- HiGHS ----------------------------------------------------------------------------------------------------------


def test_highs_takes_every_form_of_its_models() -> None:
    highspy = pytest.importorskip("highspy")
    case = CASES["maximisation with a constant"]
    model = highs_model(case)
    highs = highspy.Highs()
    highs.silent()
    highs.passModel(model)
    values = [value(pear.from_highs(source)) for source in (model, model.lp_, highs)]
    assert values == [values[0]] * 3
    model.lp_.col_names_, model.lp_.row_names_ = [], []
    m = pear.from_highs(model)
    assert (m.variables, m.rows) == (("x0", "x1", "x2"), ("r0", "r1"))


def test_highs_models_that_are_refused() -> None:
    highspy = pytest.importorskip("highspy")
    with pytest.raises(pear.DataError, match=r"expected a highspy\.Highs, HighsModel or HighsLp, got str; of a file"):
        pear.from_highs("model.mps")
    with pytest.raises(pear.DataError, match="the HiGHS model has no variables; add them"):
        pear.from_highs(highspy.Highs())
    model = highs_model(CASES["ranges"])
    model.lp_.col_names_ = ["x", "y", "x"]
    with pytest.raises(pear.ProblemError, match="the HiGHS model: two variables are called x; decisions come back by"):
        pear.from_highs(model)
    model = highs_model(CASES["ranges"])
    kinds = highspy.HighsVarType
    model.lp_.integrality_ = [kinds.kContinuous, kinds.kSemiContinuous, kinds.kContinuous]
    with pytest.raises(pear.DataError, match="variable v1 is semi-continuous, which cannot be taken; write it with"):
        pear.from_highs(model)
    with pytest.raises(pear.ProblemError, match="the HiGHS model: Q must be positive semidefinite"):
        pear.from_highs(highs_model(Case([1, 1], Q=[[1, 0], [0, -1]])))


# --- MPS: bounds and ranges of every kind ---------------------------------------------------------------------------

COLUMNS = "ROWS\n N COST\n {kind} R\nCOLUMNS\n X COST 1 R 1\n Y COST -1 R 1\nRHS\n RHS R 4\n"


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("", (0, INF)), (" LO B X 2", (2, INF)), (" UP B X 3", (0, 3)), (" FX B X 1.5", (1.5, 1.5)),
        (" FR B X", (-INF, INF)), (" MI B X", (-INF, INF)), (" PL B X", (0, INF)), (" BV B X", (0, 1)),
        (" LI B X 2", (2, INF)), (" UI B X 3", (0, 3)),
        (" MI B X\n UP B X -2", (-INF, -2)), (" LO B X -5\n UP B X -2", (-5, -2)), (" UP B X 1e30", (0, INF)),
    ],
)  # fmt: skip
def test_mps_bounds_of_every_kind(tmp_path: Path, bound: str, expected: tuple[float, float]) -> None:
    pytest.importorskip("highspy")
    path = tmp_path / "a.mps"
    path.write_text(f"NAME A\n{COLUMNS.format(kind='L')}BOUNDS\n{bound or ' PL B Y'}\nENDATA\n")
    m = pear.from_mps(path)
    ub = torch.full((2,), INF) if m.problem.ub is None else m.problem.ub
    assert (m.problem.lb[0].item(), ub[0].item()) == expected
    assert (m.problem.integer is not None) == any(kind in bound for kind in ("BV", "LI", "UI"))


@pytest.mark.parametrize(
    ("kind", "size", "limits"),
    [("L", 3, (1, 4)), ("G", 3, (4, 7)), ("E", 3, (4, 7)), ("E", -3, (1, 4)), ("L", -3, (1, 4)), ("G", 0, (4, 4))],
)
def test_mps_ranges_of_every_kind(tmp_path: Path, kind: str, size: float, limits: tuple[float, float]) -> None:
    pytest.importorskip("highspy")
    path = tmp_path / "a.mps"
    path.write_text(f"NAME A\n{COLUMNS.format(kind=kind)}RANGES\n RNG R {size}\nBOUNDS\n UP B Y 9\nENDATA\n")
    m = pear.from_mps(path)
    best, least = (float((pear.solve(m.problem, sign * torch.ones(2).double()).x[0]).sum()) for sign in (-1, 1))
    assert (least, best) == pytest.approx(limits, abs=1e-9)


# --- PyEPO ----------------------------------------------------------------------------------------------------------


def test_pyepo_costs_go_where_the_class_puts_them() -> None:
    """A subclass predicts some costs, one of them twice and halved, and maximises by minimising the negative."""
    opt, epo = pytest.importorskip("pyepo.model.opt"), pytest.importorskip("pyepo").EPO
    plain = type(pyepo_model(CASES["ranges"]))

    class Part(plain):
        def _getModel(self) -> tuple[Any, list[int]]:  # noqa: N802 - PyEPO's name
            model, x = super()._getModel()
            self.modelSense = epo.MAXIMIZE
            return model, x

        @property
        def num_cost(self) -> int:
            return 2

        def setObj(self, c: Any) -> None:  # noqa: N802 - PyEPO's name
            super().setObj([-float(c[1]), -0.5 * float(c[0]) - 0.5 * float(c[1]), 2.25])

    assert issubclass(Part, opt.optModel)
    m = pear.from_pyepo(Part())
    assert m.cost_map is not None
    assert m.known.tolist() == [0.0, 0.0, 2.25]
    assert m.cost([2.0, 6.0]).tolist() == [-6.0, -4.0, 2.25]
    assert m.names == ("v1", "cost[1]")
    model = Part()
    model.setObj([2.0, 6.0])
    assert float(pear.solve(m, [[2.0, 6.0]]).value) == pytest.approx(model.solve()[1], rel=1e-9)


def test_pyepo_classes_with_arrays_of_their_own() -> None:
    opt = pytest.importorskip("pyepo.model.opt")

    class Arrays(opt.optModel):
        def _getModel(self) -> tuple[None, list[int]]:  # noqa: N802 - PyEPO's name
            self.A, self.b = np.ones((1, 3)), np.array([1.0])
            self.G, self.h = np.array([[1.0, -1.0, 0.0]]), np.array([-0.25])
            self.l, self.u = np.zeros(3), np.full(3, 0.75)
            return None, []

        def setObj(self, c: Any) -> None: ...  # noqa: N802 - PyEPO's name

        def solve(self) -> tuple[Any, float]:
            raise NotImplementedError

    m = pear.from_pyepo(Arrays())
    assert pear.solve(m, [[2.0, 1.0, 3.0]]).x[0].tolist() == pytest.approx([0.375, 0.625, 0.0])


def test_pyepo_models_that_are_refused() -> None:
    opt = pytest.importorskip("pyepo.model.opt")
    around = pyepo_model(CASES["ranges"])

    class Plain(opt.optModel):
        def _getModel(self) -> tuple[Any, list[int]]:  # noqa: N802 - PyEPO's name
            return sparse.eye_array(2), [0, 1]

        def setObj(self, c: Any) -> None: ...  # noqa: N802 - PyEPO's name

        def solve(self) -> tuple[Any, float]:
            raise NotImplementedError

    class Squared(type(around)):
        def setObj(self, c: Any) -> None:  # noqa: N802 - PyEPO's name
            super().setObj([float(cost) ** 2 for cost in c])

    class Turned(type(around)):
        def _getModel(self) -> tuple[Any, list[int]]:  # noqa: N802 - PyEPO's name
            model, x = super()._getModel()
            self.modelSense = -1
            return model, x

    with pytest.raises(pear.DataError, match=r"expected an object of a PyEPO optModel class, got Plain; make one"):
        pear.from_pyepo(Plain)
    with pytest.raises(pear.DataError, match=r"Plain holds a scipy\.\S+, from which no matrices can be read.*from_mps"):
        pear.from_pyepo(Plain())
    with pytest.raises(pear.DataError, match=r"Squared: setObj does not set costs that are linear in its argument"):
        pear.from_pyepo(Squared())
    with pytest.raises(pear.DataError, match="modelSense says maximise, and the model inside minimises"):
        pear.from_pyepo(Turned())


@pytest.mark.parametrize("backend", ["grb", "omo"])
@pytest.mark.parametrize("name", ["shortestPathModel", "knapsackModel", "tspMTZModel"])
def test_pyepo_own_models(backend: str, name: str) -> None:
    pytest.importorskip({"grb": "gurobipy", "omo": "pyomo"}[backend])
    module = pytest.importorskip(f"pyepo.model.{backend}")
    solver = {"solver": "appsi_highs"} if backend == "omo" else {}
    arguments = {"shortestPathModel": [(3, 4)], "knapsackModel": [[[3.0, 4, 5, 2]], [7.0]], "tspMTZModel": [5]}[name]
    model = getattr(module, name)(*arguments, **solver)
    m = pear.from_pyepo(model)
    costs = 1 + torch.rand(3, model.num_cost, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert m.inputs == model.num_cost
    for c in costs:
        model.setObj(c.numpy())
        assert float(pear.solve(m, c[None]).value) == pytest.approx(model.solve()[1], rel=1e-6)


def test_pyepo_models_with_lazy_or_quadratic_constraints_are_refused() -> None:
    pytest.importorskip("gurobipy")
    grb = pytest.importorskip("pyepo.model.grb")
    with pytest.raises(pear.DataError, match="lazy constraints, which only its callback knows, which cannot be taken"):
        pear.from_pyepo(grb.tspDFJModel(4))
    with pytest.raises(pear.DataError, match="has 1 quadratic constraints, which cannot be taken"):
        pear.from_pyepo(grb.portfolioModel(3, np.eye(3)))


# --- Gurobi ---------------------------------------------------------------------------------------------------------


def _sos(gp: Any, model: Any) -> None:
    model.addSOS(gp.GRB.SOS_TYPE1, model.getVars()[:2])


def _quadratic(gp: Any, model: Any) -> None:
    model.addQConstr(model.getVars()[0] * model.getVars()[0] <= 1)


def _general(gp: Any, model: Any) -> None:
    model.addGenConstrAbs(model.getVars()[0], model.getVars()[1])


def _piecewise(gp: Any, model: Any) -> None:
    model.setPWLObj(model.getVars()[0], [0, 1, 2], [0, 1, 4])


def _several(gp: Any, model: Any) -> None:
    model.setObjectiveN(model.getVars()[0], 1)


def _semi(gp: Any, model: Any) -> None:
    model.getVars()[1].VType = "S"


def _twice(gp: Any, model: Any) -> None:
    model.getVars()[1].VarName = "v0"


GUROBI_REFUSED: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "SOS": (_sos, "has 1 SOS constraints, which cannot be taken; expected one linear or convex quadratic objective"),
    "quadratic constraint": (_quadratic, "has 1 quadratic constraints"),
    "general constraint": (_general, "has 1 general constraints"),
    "piecewise objective": (_piecewise, "has 1 variables with a piecewise-linear objective"),
    "several objectives": (_several, "has 2 objectives"),
    "semi-continuous": (_semi, "has the semi-continuous variable v1"),
    "duplicate names": (_twice, "two variables are called v0; decisions come back by name"),
}


@pytest.mark.parametrize("case", GUROBI_REFUSED)
def test_gurobi_models_that_are_refused(case: str) -> None:
    gp = pytest.importorskip("gurobipy")
    model = gurobi_model(CASES["ranges"])
    model.update()
    change, sentence = GUROBI_REFUSED[case]
    change(gp, model)
    with pytest.raises((pear.DataError, pear.ProblemError), match=sentence):
        pear.from_gurobipy(model)


def test_gurobi_ranges_have_no_variable_of_their_own() -> None:
    pytest.importorskip("gurobipy")
    m = pear.from_gurobipy(gurobi_model(CASES["quadratic with ranges"]))
    assert m.variables == ("v0", "v1", "v2")
    assert "2 rows with two limits" in m.report
    with pytest.raises(pear.DataError, match=r"expected a gurobipy\.Model, got str; of a file, use pear\.from_mps"):
        pear.from_gurobipy("model.mps")


# --- Pyomo ----------------------------------------------------------------------------------------------------------


def test_pyomo_blocks_indices_and_fixed_variables() -> None:
    pyo = pytest.importorskip("pyomo.environ")
    model = pyo.ConcreteModel("plan")
    model.x = pyo.Var(["a", "b"], [1, 2], domain=pyo.NonNegativeReals)
    model.open = pyo.Var(domain=pyo.Binary)
    model.scale = pyo.Var(initialize=1)
    model.scale.fix(2)
    model.part = pyo.Block()
    model.part.y = pyo.Var(bounds=(-1, 4))
    model.price = pyo.Param(["a", "b"], initialize={"a": 3, "b": -1}, mutable=True)
    model.part.cap = pyo.Constraint(expr=sum(model.x[k] for k in model.x) + model.part.y <= 6 * model.open)
    model.off = pyo.Constraint(expr=model.x["a", 1] <= -5)
    model.off.deactivate()
    model.both = pyo.Constraint(expr=(1, model.x["a", 1] + 2, 5))
    expression = sum(model.price[k] * model.x[k, i] for k, i in model.x) + model.scale * model.part.y + 7 * model.scale
    model.goal = pyo.Objective(expr=expression + 2 * model.open)
    pyo.SolverFactory("appsi_highs").solve(model)
    m = pear.from_pyomo(model)
    assert m.variables == ("x[a,1]", "x[a,2]", "x[b,1]", "x[b,2]", "open", "scale", "part.y")
    assert m.rows == ("both", "part.cap") or m.rows == ("part.cap", "both")
    assert m.offset == 14.0
    assert value(m) == pytest.approx(pyo.value(model.goal), rel=1e-9)
    found = m.decision(pear.solve(m.problem, m.known).x)
    assert found["scale"].item() == 2.0
    assert "7 variables, 1 integer (1 of them binary), 1 fixed" in m.report
    with pytest.raises(pear.DataError, match="scale is fixed, so that its cost changes no decision; leave it out"):
        pear.from_pyomo(model, predicted=["open", "scale"])


def _pyomo_sos(pyo: Any, model: Any) -> None:
    model.k = pyo.Var([1, 2, 3], bounds=(0, 1))
    model.s = pyo.SOSConstraint(var=model.k, sos=1)


PYOMO_REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "SOS": (_pyomo_sos, "s is a SOSConstraint, which cannot be taken; expected variables, linear constraints"),
    "no objective": (lambda pyo, m: m.goal.deactivate(), "has 0 active objectives; expected one"),
    "two objectives": (lambda pyo, m: setattr(m, "o", pyo.Objective(expr=m.v0)), "has 2 active objectives"),
    "quadratic constraint": (
        lambda pyo, m: setattr(m, "q", pyo.Constraint(expr=m.v0 * m.v1 <= 1)),
        "constraint q is quadratic, which cannot be taken; expected linear constraints",
    ),
    "nonlinear constraint": (
        lambda pyo, m: setattr(m, "q", pyo.Constraint(expr=pyo.exp(m.v0) <= 1)),
        r"constraint q is not linear or quadratic: exp\(v0\); write it",
    ),
    "nonlinear objective": (
        lambda pyo, m: m.goal.set_value(m.v0**3),
        "objective goal is not linear or quadratic: v0",
    ),
    "another set": (
        lambda pyo, m: setattr(m, "w", pyo.Var(domain=pyo.RangeSet(0, 10, 2))),
        r"w lies in \[0:10:2\]; expected reals, integers or binaries",
    ),
    "not convex": (lambda pyo, m: m.goal.set_value(-m.v0**2), "the Pyomo model test: Q must be positive semidefinite"),
}  # fmt: skip


@pytest.mark.parametrize("case", PYOMO_REFUSED)
def test_pyomo_models_that_are_refused(case: str) -> None:
    pyo = pytest.importorskip("pyomo.environ")
    model = pyomo_model(CASES["ranges"])
    change, sentence = PYOMO_REFUSED[case]
    change(pyo, model)
    with pytest.raises((pear.DataError, pear.ProblemError), match=sentence):
        pear.from_pyomo(model)


def test_pyomo_takes_concrete_models_alone() -> None:
    pyo = pytest.importorskip("pyomo.environ")
    for other in ("model", pyo.AbstractModel()):
        with pytest.raises(pear.DataError, match=r"expected a pyomo\.environ\.ConcreteModel, got"):
            pear.from_pyomo(other)
    with pytest.raises(pear.DataError, match="has no variables"):
        pear.from_pyomo(pyo.ConcreteModel())


@pytest.mark.parametrize(
    ("importer", "package", "extra"),
    [
        ("from_cvxpy", "cvxpy", "cvxpy"),
        ("from_highs", "highspy", "highs"),
        ("from_pyepo", "pyepo.model.opt", "baselines"),
        ("from_gurobipy", "gurobipy", "gurobi"),
        ("from_pyomo", "pyomo.environ", "pyomo"),
    ],
)
def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, importer: str, package: str, extra: str) -> None:
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    sentence = rf"needs the package {package.split('.')[0]}; run pip install 'pear-dfl\[{extra}\]'"
    with pytest.raises(pear.MissingExtraError, match=sentence):
        getattr(pear, importer)(None)

"""Awkward models, written once as arrays, and built from these in every modelling language that is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import pear
from pear.testing.model_zoo import CASES, WITHOUT_OPTIMUM
from pear.testing.model_zoo import ModelCase as Case

__all__ = ["CASES", "WITHOUT_OPTIMUM"]  # used by tests that import this module

INF = np.inf


def value(m: pear.Model, cost: Any = None) -> float:
    """Return the optimal value of an imported model, in its own sense, under ``cost`` or under its own costs."""
    if m.problem.is_integer and m.problem.is_curved:
        pytest.skip("no solver of ours takes integers and curvature together")
    return float(pear.solve(m.problem, m.known if cost is None else cost).value) + m.offset


# --- SciPy: the independent answer, and a modelling language of its own ----------------------------------------------


def scipy_arguments(case: Case) -> dict[str, Any]:
    """Return the arguments of SciPy's ``milp``, which minimises."""
    from scipy.optimize import Bounds, LinearConstraint

    sign = 1 if case.sense == "min" else -1
    rows = [LinearConstraint(case.rows, case.low, case.high)] if len(case.rows) else []
    return {
        "c": sign * np.array(case.c, float),
        "constraints": rows,
        "bounds": Bounds(*case.bounds),
        "integrality": case.marks.astype(int),
    }


def scipy_optimum(case: Case) -> float:
    from scipy.optimize import milp

    done = milp(**scipy_arguments(case))
    assert done.success, done.message
    return (1 if case.sense == "min" else -1) * done.fun + case.offset


def from_scipy(case: Case, folder: Path) -> tuple[pear.Model, float]:
    if case.Q is not None:
        pytest.skip("SciPy's milp is linear")
    m = pear.from_scipy(**scipy_arguments(case))
    sign = 1 if case.sense == "min" else -1
    return m, sign * (scipy_optimum(case) - case.offset)


# --- HiGHS, and files that it writes --------------------------------------------------------------------------------


def highs_model(case: Case) -> Any:
    highspy = pytest.importorskip("highspy")
    model = highspy.HighsModel()
    lp, A = model.lp_, sparse.csc_array(case.rows)
    lb, ub = case.bounds
    lp.num_col_, lp.num_row_, lp.offset_ = case.n, len(case.rows), case.offset
    lp.sense_ = highspy.ObjSense.kMinimize if case.sense == "min" else highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.array(case.c, float), lb, ub
    lp.row_lower_, lp.row_upper_ = np.array(case.low, float), np.array(case.high, float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = A.indptr, A.indices, A.data
    lp.col_names_, lp.row_names_ = case.names, [f"row{i}" for i in range(len(case.rows))]
    if case.integer:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(mark)] for mark in case.marks]
    if case.Q is not None:
        half = sparse.csc_array(np.tril(np.array(case.Q, float)))
        model.hessian_.dim_, model.hessian_.format_ = case.n, highspy.HessianFormat.kTriangular
        model.hessian_.start_, model.hessian_.index_, model.hessian_.value_ = half.indptr, half.indices, half.data
    return model


def solved_highs(case: Case) -> tuple[Any, float]:
    import highspy

    highs = highspy.Highs()
    highs.silent()
    assert highs.passModel(highs_model(case)) != highspy.HighsStatus.kError
    highs.run()
    return highs, highs.getInfo().objective_function_value


def from_highs(case: Case, folder: Path) -> tuple[pear.Model, float]:
    pytest.importorskip("highspy")
    highs, optimum = solved_highs(case)
    return pear.from_highs(highs), optimum


def from_mps(case: Case, folder: Path) -> tuple[pear.Model, float]:
    pytest.importorskip("highspy")
    highs, optimum = solved_highs(case)
    highs.writeModel(str(folder / "model.mps"))
    return pear.from_mps(folder / "model.mps"), optimum


# --- CVXPY ----------------------------------------------------------------------------------------------------------


def cvxpy_problem(case: Case, cost: Any = None) -> Any:
    """Return the CVXPY problem of a case with the variable v (n,). ``cost`` replaces the case's own costs."""
    cp = pytest.importorskip("cvxpy")
    lb, ub = (np.where(np.abs(side) >= 1e20, np.copysign(INF, side), side) for side in case.bounds)
    v = cp.Variable(case.n, name="v", integer=[case.integer] if case.integer else False, bounds=[lb, ub])
    goal = (np.array(case.c, float) if cost is None else cost) @ v + case.offset
    if case.Q is not None:
        goal = goal + 0.5 * cp.quad_form(v, np.array(case.Q, float))
    rows = []
    for row, low, high in zip(case.rows, case.low, case.high, strict=True):
        if low == high:
            rows.append(row @ v == low)
            continue
        rows += [row @ v >= low] if low > -1e20 else []
        rows += [row @ v <= high] if high < 1e20 else []
    return cp.Problem(cp.Minimize(goal) if case.sense == "min" else cp.Maximize(goal), rows)


def from_cvxpy(case: Case, folder: Path) -> tuple[pear.Model, float]:
    cp = pytest.importorskip("cvxpy")
    problem = cvxpy_problem(case)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    optimum = problem.solve(cp.HIGHS) if case.Q is None else problem.solve(cp.CLARABEL, **tight)
    return pear.from_cvxpy(problem), optimum


# --- Gurobi and Pyomo, where they are installed -----------------------------------------------------------------------


def gurobi_model(case: Case) -> Any:
    gp = pytest.importorskip("gurobipy")
    env = gp.Env(params={"OutputFlag": 0})
    model = gp.Model("test", env=env)
    lb, ub = case.bounds
    kinds = ["I" if mark else "C" for mark in case.marks]
    v = [model.addVar(*pair, vtype=k, name=name) for *pair, k, name in zip(lb, ub, kinds, case.names, strict=True)]
    goal = gp.quicksum(c * x for c, x in zip(case.c, v, strict=True)) + case.offset
    if case.Q is not None:
        Q = np.array(case.Q, float)
        goal = goal + 0.5 * gp.quicksum(Q[i, j] * v[i] * v[j] for i, j in np.argwhere(Q))
    model.setObjective(goal, gp.GRB.MINIMIZE if case.sense == "min" else gp.GRB.MAXIMIZE)
    for i, (row, low, high) in enumerate(zip(case.rows, case.low, case.high, strict=True)):
        left = gp.LinExpr(list(row), v)
        if low == high:
            model.addLConstr(left, "=", low, f"row{i}")
        elif low > -1e20 and high < 1e20:
            model.addRange(left, low, high, f"row{i}")
        elif high < 1e20:
            model.addLConstr(left, "<", high, f"row{i}")
        elif low > -1e20:
            model.addLConstr(left, ">", low, f"row{i}")
    model.Params.OptimalityTol = model.Params.FeasibilityTol = model.Params.BarQCPConvTol = 1e-9
    model.Params.BarConvTol = 1e-12
    return model


def from_gurobipy(case: Case, folder: Path) -> tuple[pear.Model, float]:
    model = gurobi_model(case)
    model.optimize()
    return pear.from_gurobipy(model), model.ObjVal


def pyomo_model(case: Case) -> Any:
    pyo = pytest.importorskip("pyomo.environ")
    model = pyo.ConcreteModel("test")
    lb, ub = case.bounds
    for i, name in enumerate(case.names):
        sides = [float(side) if abs(side) < 1e20 else None for side in (lb[i], ub[i])]
        setattr(model, name, pyo.Var(bounds=tuple(sides), domain=pyo.Integers if case.marks[i] else pyo.Reals))
    v = [getattr(model, name) for name in case.names]
    goal = sum(c * x for c, x in zip(case.c, v, strict=True)) + case.offset
    if case.Q is not None:
        Q = np.array(case.Q, float)
        goal = goal + 0.5 * sum(Q[i, j] * v[i] * v[j] for i, j in np.argwhere(Q))
    model.goal = pyo.Objective(expr=goal, sense=pyo.minimize if case.sense == "min" else pyo.maximize)
    model.rows = pyo.ConstraintList()
    for row, low, high in zip(case.rows, case.low, case.high, strict=True):
        low, high = (side if abs(side) < 1e20 else None for side in (low, high))
        if np.any(row) and (low is not None or high is not None):  # Pyomo itself refuses the others
            left = sum(a * x for a, x in zip(row, v, strict=True))
            model.rows.add((low, left, high))
    return model


def from_pyomo(case: Case, folder: Path) -> tuple[pear.Model, float]:
    pyo = pytest.importorskip("pyomo.environ")
    model = pyomo_model(case)
    if case.Q is not None:
        pytest.importorskip("gurobipy")
    solver = pyo.SolverFactory("appsi_highs" if case.Q is None else "gurobi_direct")
    solver.solve(model)
    return pear.from_pyomo(model), pyo.value(model.goal)


# --- PyEPO, around HiGHS: what a lean environment has -----------------------------------------------------------------


def pyepo_model(case: Case) -> Any:
    opt = pytest.importorskip("pyepo.model.opt")
    highspy = pytest.importorskip("highspy")
    epo = pytest.importorskip("pyepo").EPO

    class Around(opt.optModel):
        def _getModel(self) -> tuple[Any, list[int]]:  # noqa: N802 - PyEPO's name
            self.modelSense = epo.MINIMIZE if case.sense == "min" else epo.MAXIMIZE
            highs = highspy.Highs()
            highs.silent()
            highs.passModel(highs_model(case))
            return highs, list(range(case.n))

        def setObj(self, c: Any) -> None:  # noqa: N802 - PyEPO's name
            for i, cost in enumerate(c):
                self._model.changeColCost(i, float(cost))

        def solve(self) -> tuple[Any, float]:
            self._model.run()
            return self._model.getSolution().col_value, self._model.getInfo().objective_function_value

    return Around()


def from_pyepo(case: Case, folder: Path) -> tuple[pear.Model, float]:
    model = pyepo_model(case)
    model.setObj(case.c)
    optimum = model.solve()[1]
    m = pear.from_pyepo(model)
    assert m.inputs == model.num_cost == case.n
    return m, optimum


IMPORTERS: dict[str, Callable[[Case, Path], tuple[pear.Model, float]]] = {
    "scipy": from_scipy,
    "highs": from_highs,
    "mps": from_mps,
    "cvxpy": from_cvxpy,
    "gurobipy": from_gurobipy,
    "pyomo": from_pyomo,
    "pyepo": from_pyepo,
}

"""Importers: awkward models give the optimum of their own solver, or an error that says why not."""

from __future__ import annotations

from pathlib import Path

import modellers
import numpy as np
import pytest
import torch
from modellers import CASES, IMPORTERS, WITHOUT_OPTIMUM, scipy_optimum, value
from scipy import sparse

import pear
from pear.problem.importers import ModelArrays, RowLimits


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("importer", IMPORTERS)
def test_the_optimum_is_that_of_the_original(importer: str, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    m, optimum = IMPORTERS[importer](case, tmp_path)
    cost = torch.tensor(case.c, dtype=torch.float64) if importer == "pyepo" else None
    assert value(m, cost) == pytest.approx(optimum, rel=1e-8, abs=1e-8)
    if case.Q is None and importer != "scipy":
        assert optimum == pytest.approx(scipy_optimum(case), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("importer", IMPORTERS)
def test_what_is_integer_free_or_fixed_stays_so(importer: str, tmp_path: Path) -> None:
    m, _ = IMPORTERS[importer](CASES["integers beside others"], tmp_path)
    assert m.problem.integer.tolist()[:4] == [True, True, False, True]
    m, _ = IMPORTERS[importer](CASES["bounds of every kind"], tmp_path)
    assert m.problem.lb.tolist() == [0, -np.inf, -4, -np.inf, 2.5]
    assert m.problem.ub.tolist() == [np.inf, -2, 7, 0, 2.5]


@pytest.mark.parametrize("importer", IMPORTERS)
def test_names_and_the_report(importer: str, tmp_path: Path) -> None:
    case = CASES["maximisation with a constant"]
    m, _ = IMPORTERS[importer](case, tmp_path)
    cost = torch.tensor(case.c, dtype=torch.float64) if importer == "pyepo" else m.known
    z = pear.solve(m.problem, cost).x
    names = {"scipy": ["x0", "x1", "x2"], "cvxpy": ["v"]}.get(importer, case.names)
    assert list(m.decision(z)) == names
    assert len(m.rows) == 2
    text = str(m)
    assert "3 variables" in text
    assert "2 inequalities" in text
    assert ("to minimise" if importer == "scipy" else "to maximise") in text
    assert importer == "scipy" or "constant 10.5" in text


@pytest.mark.parametrize("names", [{"limits": ["row 0"]}, {"predicted": ["x0"]}, {"predicted": []}])
def test_predicted_names_beside_a_cost_map_are_refused(names: dict[str, list[str]]) -> None:
    """A plug-in may pass both; the cost map was discarded."""
    rows = RowLimits(sparse.csr_array(np.ones((1, 2))), np.zeros(1), np.ones(1), ("row 0",))
    arrays = ModelArrays("toy", rows, np.zeros(2), np.zeros(2), np.ones(2))
    with pytest.raises(pear.ProblemError, match="toy: predicted names came beside a cost map"):
        arrays.model(cost_map=pear.CostMap(np.ones((2, 1)), [0.0, 1.0]), **names)


@pytest.mark.parametrize("name", WITHOUT_OPTIMUM)
@pytest.mark.parametrize("importer", ["highs", "mps", "cvxpy", "scipy"])
def test_what_has_no_optimum_has_none_after_import(importer: str, name: str, tmp_path: Path) -> None:
    case = WITHOUT_OPTIMUM[name]
    if importer == "scipy":
        m = pear.from_scipy(**modellers.scipy_arguments(case))
    elif importer == "cvxpy":
        m = pear.from_cvxpy(modellers.cvxpy_problem(case))
    else:
        m, _ = IMPORTERS[importer](case, tmp_path)
    with pytest.warns(pear.FailedSamplesWarning):
        status = pear.solve(m.problem, m.known, on_failure="mask").status
    assert status.tolist() == [pear.Status[name.upper()]]


# --- the battery: one model, three ways in ----------------------------------------------------------------------------

T, WEAR, EFFICIENCY = 24, 0.03, 0.9


def battery_matrices() -> pear.Model:
    """Return a battery over a day from matrices: 24 prices determine the 72 costs of charge, discharge and level."""
    one = np.eye(T)
    A = np.hstack([-EFFICIENCY * one, one / EFFICIENCY, np.eye(T) - np.eye(T, k=-1)])
    M = np.vstack([one, -one, np.zeros((T, T))])
    known = np.repeat([WEAR, WEAR, 0.0], T)
    problem = pear.Problem(A=A, b=np.zeros(T), lb=0.0, ub=np.repeat([1.0, 1.0, 4.0], T))
    return pear.Model(problem, cost_map=pear.CostMap(M, known, [f"price[{t}]" for t in range(T)]))


def battery_cvxpy() -> pear.Model:
    cp = pytest.importorskip("cvxpy")
    price = cp.Parameter(T, name="price")
    charge, discharge, level = (cp.Variable(T, name=name, nonneg=True) for name in ("charge", "discharge", "level"))
    before = cp.hstack([0, level[:-1]])
    rows = [level == before + EFFICIENCY * charge - discharge / EFFICIENCY, charge <= 1, discharge <= 1, level <= 4]
    goal = price @ (charge - discharge) + WEAR * cp.sum(charge + discharge)
    return pear.from_cvxpy(cp.Problem(cp.Minimize(goal), rows), [price])


def battery_mps(folder: Path) -> pear.Model:
    """Return the battery from an MPS file.

    A file has no cost map. A variable for the energy from the grid has the price as its cost, and only these costs are
    predicted.
    """
    highspy = pytest.importorskip("highspy")
    highs = highspy.Highs()
    highs.silent()
    charge, discharge, level = (
        [highs.addVariable(0, top, WEAR if top < 4 else 0, name=f"{name}[{t}]") for t in range(T)]
        for name, top in (("charge", 1), ("discharge", 1), ("level", 4))
    )
    grid = [highs.addVariable(-highspy.kHighsInf, highspy.kHighsInf, 1, name=f"grid[{t}]") for t in range(T)]
    for t in range(T):
        before = level[t - 1] if t else 0
        highs.addConstr(level[t] - before - EFFICIENCY * charge[t] + (1 / EFFICIENCY) * discharge[t] == 0)
        highs.addConstr(grid[t] - charge[t] + discharge[t] == 0)
    highs.writeModel(str(folder / "battery.mps"))
    return pear.from_mps(folder / "battery.mps", predicted=[f"grid[{t}]" for t in range(T)])


def test_the_battery_is_the_same_through_matrices_cvxpy_and_mps(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    true = 1 + torch.rand(20, T, dtype=torch.float64, generator=generator)
    predicted = true + 0.3 * torch.randn(20, T, dtype=torch.float64, generator=generator)
    plain, by_cvxpy, by_file = battery_matrices(), battery_cvxpy(), battery_mps(tmp_path)
    expected = pear.solve(plain, predicted).x
    regret = pear.normalized_regret(plain, predicted, true)
    assert regret > 0.01
    assert (by_cvxpy.problem.n, by_file.problem.n) == (72, 96)
    for m in (by_cvxpy, by_file):
        assert m.inputs == T
        assert pear.normalized_regret(m, predicted, true) == pytest.approx(regret, abs=1e-9)
        found = m.decision(pear.solve(m, predicted).x)
        for i, name in enumerate(("charge", "discharge", "level")):
            own = found[name] if name in found else torch.stack([found[f"{name}[{t}]"] for t in range(T)], 1)
            torch.testing.assert_close(own, expected[:, T * i : T * (i + 1)], rtol=0, atol=1e-9)


# --- predicted costs by name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("importer", ["highs", "mps", "gurobipy", "pyomo"])
def test_some_costs_are_predicted_and_the_others_known(importer: str, tmp_path: Path) -> None:
    case = CASES["maximisation with a constant"]
    IMPORTERS[importer](case, tmp_path)  # skips where the package is not there, and writes the file
    source = {
        "highs": lambda: modellers.solved_highs(case)[0],
        "mps": lambda: tmp_path / "model.mps",
        "gurobipy": lambda: modellers.gurobi_model(case),
        "pyomo": lambda: modellers.pyomo_model(case),
    }[importer]()
    read = getattr(pear, f"from_{importer}")
    m = read(source, predicted=["v2", "v0"])
    assert m.names == ("v2", "v0")
    assert m.cost([-1.0, 3.0]).tolist() == [3.0, 5.0, -1.0]
    assert m.known.tolist() == [0.0, 5.0, 0.0]
    assert float(pear.solve(m, [[-1.0, 3.0]]).value) + m.offset == pytest.approx(scipy_optimum(case), rel=1e-10)
    assert "Predicted: 2 values, v2, v0; 2 of 3 costs depend on them" in m.report
    assert read(source, predicted="v1").inputs == 1
    with pytest.raises(pear.ProblemError, match=r"got 'price', which is no variable. They are called v0, v1, v2"):
        read(source, predicted=["price"])
    with pytest.raises(pear.ProblemError, match="predicted must name variables, each once; got 'v0' twice"):
        read(source, predicted=["v0", "v0"])
    with pytest.raises(pear.ProblemError, match=r"got an empty list.*leave predicted out where all costs are"):
        read(source, predicted=[])

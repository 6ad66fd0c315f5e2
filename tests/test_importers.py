"""Importers: awkward models give the optimum of the original, by the original's own solver, or are refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import pear
from modellers import CASES, IMPORTERS, WITHOUT_OPTIMUM, scipy_optimum, value


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


@pytest.mark.parametrize("name", WITHOUT_OPTIMUM)
@pytest.mark.parametrize("importer", ["highs", "mps", "cvxpy", "scipy"])
def test_what_has_no_optimum_has_none_after_import(importer: str, name: str, tmp_path: Path) -> None:
    case = WITHOUT_OPTIMUM[name]
    import modellers

    if importer == "scipy":
        m = pear.from_scipy(**modellers.scipy_arguments(case))
    elif importer == "cvxpy":
        m = pear.from_cvxpy(modellers.cvxpy_problem(case))
    else:
        m, _ = IMPORTERS[importer](case, tmp_path)
    with pytest.warns(pear.FailedSamplesWarning):
        status = pear.solve(m.problem, m.known, on_failure="mask").status
    assert status.tolist() == [pear.Status[name.upper()]]

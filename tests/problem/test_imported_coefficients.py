"""Predicted coefficients of rows from CVXPY and from files, compared with programs that contain their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError

Array = np.ndarray[Any, Any]
FARM = """min
 cost: 1 wheat + 2 corn + 9 buy
st
 need: 7 wheat + 8 corn + buy >= 6
 land: wheat + corn <= 5
 mix: wheat - 3 corn + rest = 0
end
"""
PRICES = {"need": 9.0, "mix": (2.0, 1.0)}
DRAWN = np.random.default_rng(0).uniform(1.0, 3.0, (5, 6))


def farm_of_cvxpy() -> tuple[Any, Any, list[Any], dict[Any, Any]]:
    """Return a farm with predicted prices, yields and share of a crop, and a known size of the field."""
    cp = pytest.importorskip("cvxpy")
    yields, price = cp.Parameter(3, name="yields", nonneg=True), cp.Parameter(2, name="price")
    share, field = cp.Parameter(name="share"), cp.Parameter(name="field")
    sow, buy = cp.Variable(3, name="sow", nonneg=True), cp.Variable(name="buy", nonneg=True)
    need, mix = yields @ sow + buy >= 6, share * sow[0] == 2 * sow[1] + cp.abs(0.1)
    rows = [need, cp.sum(sow) <= field, mix, cp.norm1(sow) <= 9]
    cost = price @ sow[:2] + 2 * sow[2] + 3 * buy + 0.1 * cp.sum_squares(sow)
    return cp.Problem(cp.Minimize(cost), rows), cp, [price, yields, share, field], {need: 9.0, mix: (2.0, 1.0)}


def test_cvxpy_decides_alike() -> None:
    problem, cp, (price, yields, share, field), recourse = farm_of_cvxpy()
    m = pear.from_cvxpy(problem, [price, yields, share], recourse=recourse, known=[field])
    assert m.names == ("price[0]", "price[1]", "yields[0]", "yields[1]", "yields[2]", "share")
    assert "Predicted coefficients of rows: yields, share." in m.report
    fields = np.linspace(4.0, 6.0, 5)
    found = m.decision(pear.solve(m, DRAWN, known={"field": fields}).x)
    for i, values in enumerate(DRAWN):
        price.value, yields.value, share.value, field.value = values[:2], values[2:5], values[5], fields[i]
        sow, buy = problem.variables()[:2] if problem.variables()[0].name() == "sow" else problem.variables()[1::-1]
        problem.solve(cp.CLARABEL)
        np.testing.assert_allclose(found["sow"][i], sow.value, atol=1e-5)
        np.testing.assert_allclose(found["buy"][i], buy.value, atol=1e-5)


def test_a_predicted_coefficient_in_the_objective_as_well() -> None:
    cp = pytest.importorskip("cvxpy")
    weight, take = cp.Parameter(2, name="weight", nonneg=True), cp.Variable(2, name="take")
    load = weight @ take <= 1
    m = pear.from_cvxpy(cp.Problem(cp.Maximize(weight @ take), [load, take >= 0, take <= 1]), recourse={load: 5.0})
    assert pear.solve(m, [[0.5, 4.0]]).value.tolist() == [1.0]
    assert pear.regret(m, [[0.5, 4.0]], [[0.5, 4.0]]).tolist() == [0.0]


@pytest.fixture
def farm(tmp_path: Path) -> Path:
    pytest.importorskip("highspy")
    path = tmp_path / "farm.lp"
    path.write_text(FARM)
    return path


def test_files_name_rows_and_variables(farm: Path) -> None:
    named = ["buy", "need", ("need", "wheat"), ("need", "corn"), ("mix", "corn")]
    m = pear.from_mps(farm, predicted=named, recourse=PRICES)
    assert m.names == ("buy", "need", "need:wheat", "need:corn", "mix:corn")
    assert "the right-hand sides of need, and the coefficients need:wheat, need:corn, mix:corn." in m.report
    values = DRAWN[:, :5] * [3, 3, 1, 1, -1]
    found = pear.solve(m, values)
    for i, (buy, need, wheat, corn, mix) in enumerate(values):
        text = FARM.replace("9 buy", f"{buy} buy").replace(">= 6", f">= {need}").replace("7 wheat", f"{wheat} wheat")
        farm.write_text(text.replace("8 corn", f"{corn} corn").replace("- 3 corn", f"{mix:+} corn"))
        own = pear.from_mps(farm)
        np.testing.assert_allclose(found.x[i], pear.solve(own, own.known[None]).x[0], atol=1e-9)
    torch.testing.assert_close(pear.regret(m, values, values), torch.zeros(5).double())
    assert (pear.regret(m, values * 1.1, values) >= 0).all()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            [("need", "rye")],
            r"a pair \(row, variable\), each once; got \('need', 'rye'\), which is no row and variable",
        ),
        ([("need", "corn")] * 2, "which came before"),
        ([("kneed", "corn")], "got 'kneed', which is no row of it"),
        ([("mix", "corn"), ("land", "corn")], "row land is predicted, and recourse has no finite price"),
    ],
)
def test_messages(farm: Path, named: list[Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        pear.from_mps(farm, predicted=named, recourse=PRICES)

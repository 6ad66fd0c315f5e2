"""Known data in files and other sources, by the names of rows and variables; indexed names become arrays."""

import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError
from pear.problem.indexed_names import expand_indexed_names, group_indexed_names

PLAN = """min
 cost: 3 x(1) + 2 x(2) + {y} y + 0 level(0)
st
 dem_0: x(1) + y + level(0) >= {dem_0}
 dem_1: x(2) + y = {dem_1}
 most: x(1) + x(2) <= 9
bounds
 x(1) <= {x1}
 x(2) <= {x2}
 -8 <= y <= -2
 level(0) = {level}
end
"""
FIRST = {"y": 5.0, "dem_0": 3.0, "dem_1": 2.0, "x1": 6.0, "x2": 6.0, "level": 1.0}
SECOND = {"y": -1.0, "dem_0": -1.5, "dem_1": 1.0, "x1": 3.5, "x2": 5.0, "level": 0.5}
KNOWN = ["dem_0", "level(0)", "y", "x.ub", "dem_1"]


def write(path, numbers):
    path.write_text(PLAN.format(**numbers))
    return path


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    pytest.importorskip("highspy")
    return write(tmp_path_factory.mktemp("plan") / "plan.lp", FIRST)


def known_of(*rows):
    return {
        "dem_0": [one["dem_0"] for one in rows],
        "level(0)": [one["level"] for one in rows],
        "y": [one["y"] for one in rows],
        "x.ub": [[one["x1"], one["x2"]] for one in rows],
        "dem_1": [one["dem_1"] for one in rows],
    }


def test_known_numbers_of_a_file_are_those_of_another_file(plan, tmp_path):
    m = pear.from_mps(plan, predicted=["x"], known=KNOWN)
    assert m.names == ("x(1)", "x(2)")
    assert m.known_map.names == ("dem_0", "level(0)", "y", "x(1).ub", "x(2).ub", "dem_1")
    forecast = torch.tensor([[3.0, 2.0], [1.0, 4.0]]).double()
    found = pear.solve(m, forecast, known=known_of(FIRST, SECOND))
    for i, numbers in enumerate((FIRST, SECOND)):
        other = pear.from_mps(write(tmp_path / f"{i}.lp", numbers), predicted=["x"])
        expected = pear.solve(other, forecast[i : i + 1])
        torch.testing.assert_close(found.x[i : i + 1], expected.x)
        torch.testing.assert_close(found.value[i : i + 1], expected.value)
    assert m.decision(found.x)["level(0)"].tolist() == [1.0, 0.5]
    assert "Known for every sample: dem_0, level(0), y, x.ub, dem_1." in m.report
    assert "4 variables, 1 fixed: x, y, level(0)." in m.report


def test_rows_may_be_predicted_by_the_same_word_and_stand_beside_known_numbers(plan):
    m = pear.from_mps(plan, predicted=["dem_0", "x"], recourse={"dem_0": 9.0}, known=["level(0)", "dem_1"])
    assert m.names == ("x(1)", "x(2)", "dem_0")
    same = pear.from_mps(plan, predicted=["x"], rows=["dem_0"], recourse={"dem_0": 9.0}, known=["level(0)", "dem_1"])
    forecast, true = [[3.0, 2.0, 3.0], [1.5, 4.0, 2.5]], [[2.0, 3.0, 4.0], [2.0, 4.0, 2.0]]
    known = {"level(0)": [1.0, 0.5], "dem_1": [2.0, 1.0]}
    lost = pear.regret(m, forecast, true, known=known)
    torch.testing.assert_close(lost, pear.regret(same, forecast, true, known=known))
    assert lost.tolist() == pytest.approx([7.0, 1.0])  # 9 − 2 for a unit short; 2 · 0.5 for half a unit too much


def test_costs_that_are_not_known_are_predicted(plan):
    m = pear.from_mps(plan, known=["x", "dem_0"])
    assert m.names == ("y", "level(0)")
    bound = m.with_known({"x": [[3.0, 2.0]], "dem_0": [3.0]})
    assert bound.cost([[5.0, 0.0]]).tolist() == [[3.0, 2.0, 5.0, 0.0]]
    assert pear.from_mps(plan, predicted=["y"], known=["x.cost"]).known_map.names == ("x(1).cost", "x(2).cost")


WRONG = {
    "nothing": (["foo"], "known holds 'foo'; expected names of rows, .*Its rows are called dem_0, dem_1, most, …"),
    "no row": (["x.rhs"], "known holds 'x.rhs'; expected names of rows"),
    "twice": (["dem_0", "dem_0"], "known names the rhs of dem_0 twice"),
    "twice by its array": (["x", "x(1).cost"], r"known names the cost of x\(1\) twice"),
}


@pytest.mark.parametrize(("known", "message"), WRONG.values(), ids=WRONG)
def test_names_that_stand_for_nothing_are_refused(plan, known, message):
    with pytest.raises(ProblemError, match=message):
        pear.from_mps(plan, known=known)


def test_what_is_predicted_and_known_is_refused(plan):
    with pytest.raises(ProblemError, match=r"x\(1\) is predicted and known; name it once"):
        pear.from_mps(plan, predicted=["x"], known=["x(1)"])
    with pytest.raises(ProblemError, match="dem_0 is predicted and known; name it once"):
        pear.from_mps(plan, rows=["dem_0"], recourse={"dem_0": 1.0}, known=["dem_0"])
    m = pear.from_mps(plan, known=["x(1).ub"])
    with pytest.raises(ProblemError, match=r"lb > ub at variable 0 of sample 1"):
        pear.solve(m, np.ones((2, 4)), known=[1.0, -1.0])


def test_scipy_and_highs_take_known_numbers_by_the_same_word():
    m = pear.from_scipy([-1, -2], A_ub=[[1, 1], [1, 0]], b_ub=[4, 3], bounds=(0, 5), known=["A_ub", "x1.ub"])
    found = pear.solve(m, [[-1.0, -2.0], [-2.0, -1.0]], known={"A_ub": [[4, 3], [6, 2]], "x1.ub": [3.0, 9.0]})
    assert found.x.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    highspy = pytest.importorskip("highspy")
    highs = highspy.Highs()
    x, y = highs.addVariable(ub=3.0, obj=-1.0, name="x"), highs.addVariable(ub=4.0, obj=-2.0, name="y")
    highs.addConstr(x + y <= 5.0)
    m = pear.from_highs(highs, known=["r0"])
    assert pear.solve(m, [[-1.0, -2.0]] * 2, known=[5.0, 3.0]).x.tolist() == [[1.0, 4.0], [0.0, 3.0]]


def test_a_sparse_problem_takes_known_right_hand_sides():
    draw, n = np.random.default_rng(0), 600
    A = np.zeros((20, n))
    A[np.arange(n) % 20, np.arange(n)] = 1.0
    names = ["A_eq"]
    m = pear.from_scipy(np.ones(n), A_eq=A, b_eq=np.zeros(20), bounds=(0, 1), known=names)
    assert m.problem.is_sparse
    cost, b = draw.uniform(size=(2, n)), draw.uniform(1, 3, (2, 20))
    found = pear.solve(m, cost, known={"A_eq": b}).x
    torch.testing.assert_close(found @ torch.from_numpy(A.T), torch.from_numpy(b), rtol=0, atol=1e-9)
    one = pear.from_scipy(np.ones(n), A_eq=A, b_eq=b[1], bounds=(0, 1))
    torch.testing.assert_close(pear.solve(one, cost[1:]).x, found[1:], rtol=0, atol=1e-9)


def test_names_with_an_index_make_arrays():
    names = ["charge[1]", "flow[0,1]", "flow[0,2]", "charge[2]", "profit", "flow[3,1]", "flow[3,2]", "lone[4]", "u(0)"]
    groups = group_indexed_names(names)
    assert {name: (one.shape, one.positions.tolist()) for name, one in groups.items()} == {
        "charge": ((2,), [0, 3]),
        "flow": ((2, 2), [1, 2, 5, 6]),
    }
    assert expand_indexed_names(["profit", "charge"], names) == ["profit", "charge[1]", "charge[2]"]
    assert group_indexed_names(["a[0]", "a[1]", "a"]) == {}  # the name is taken
    assert group_indexed_names(["a[0]", "a[0,1]"]) == {}
    assert group_indexed_names(["a[0,0]", "a[0,1]", "a[1,0]"]) == {}


def test_decisions_come_back_as_arrays_and_one_by_one(tmp_path):
    pytest.importorskip("highspy")
    path = tmp_path / "plan.mps"
    path.write_text(
        "NAME\nROWS\n N cost\n L hours\nCOLUMNS\n charge[0] cost -1 hours 1\n charge[1] cost -2 hours 1\n rest cost 0\n"
        " rest hours 1\nRHS\n RHS hours 4\nBOUNDS\n UP B charge[1] 3\nENDATA\n"
    )
    m = pear.from_mps(path)
    decisions = m.decision(pear.solve(m, [[-1.0, -2.0, 0.0]]).x)
    assert list(decisions) == ["charge", "rest"]
    assert decisions["charge"].tolist() == [[1.0, 3.0]]
    assert decisions["charge[1]"].tolist() == [3.0]
    with pytest.raises(KeyError, match="discharge"):
        decisions["discharge"]
    assert pear.from_mps(path, predicted=["charge"]).names == ("charge[0]", "charge[1]")

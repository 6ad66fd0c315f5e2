"""Variables and parameters of CVXPY that are declared symmetric, diagonal or sparse."""

import cvxpy as cp
import numpy as np
import pytest

import pear
from pear.errors import DataError

TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
KINDS = {
    "symmetric": {"symmetric": True},
    "symmetric and not negative": {"symmetric": True, "nonneg": True},
    "diagonal": {"diag": True},
    "sparse": {"sparsity": [(0, 0, 2), (1, 2, 1)]},
}


@pytest.mark.filterwarnings("ignore:Reading from a sparse CVXPY expression:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_structured_variables_decide_as_in_cvxpy(kind):
    draw = np.random.default_rng(0)
    Y, C = cp.Variable((3, 3), name="Y", **KINDS[kind]), cp.Parameter((3, 3), name="C")
    target = draw.normal(size=(3, 3))
    rows = [cp.sum(Y) <= 1, Y[0] <= 2, cp.abs(Y) <= 3]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(C, Y)) + 0.3 * cp.sum_squares(Y - target)), rows)
    m = pear.from_cvxpy(problem, predicted=[C])
    values = draw.normal(size=(4, 3, 3)) * 2
    solution = pear.solve(m, values.reshape(4, 9))
    found = m.decision(solution.x)["Y"]
    assert found.shape == (4, 3, 3)
    for i in range(4):
        C.value = values[i]
        problem.solve(**TIGHT)
        best = Y.value.todense() if kind == "diagonal" else Y.value
        np.testing.assert_allclose(found[i], np.asarray(best), atol=1e-7)
        assert float(solution.value[i]) + m.offset == pytest.approx(problem.value, abs=1e-7)


def test_only_independent_entries_of_a_symmetric_parameter_are_predicted():
    S, D = cp.Parameter((2, 2), name="S", symmetric=True), cp.Parameter((2, 2), name="D", diag=True)
    x = cp.Variable((2, 2), name="x", nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(S, x)) + 2 * cp.trace(D @ x)), [x <= 1])
    m = pear.from_cvxpy(problem, predicted=[S, D])
    assert m.names == ("S[0,0]", "S[0,1]", "S[1,1]", "D[0,0]", "D[1,1]")
    costs = m.cost([1.0, 2.0, 3.0, 10.0, 20.0])
    assert m.decision(costs)["x"].tolist() == [[21.0, 2.0], [2.0, 43.0]]


def test_symmetric_integers_and_bounds_are_kept():
    Y, C = cp.Variable((2, 2), name="Y", symmetric=True, bounds=[0, 1.5]), cp.Parameter((2, 2), name="C")
    m = pear.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(cp.multiply(C, Y))), [cp.sum(Y) <= 4]), predicted=[C])
    assert m.problem.n == 3
    assert m.variables == ("Y[0,0]", "Y[0,1]", "Y[1,1]")
    assert m.decision(pear.solve(m, [[1.0, 3.0, 0.0, 2.5]]).x)["Y"].tolist() == [[[0.0, 1.25], [1.25, 1.5]]]
    with pytest.raises(DataError, match="variable Z is declared PSD, which cannot be taken; expected real variables"):
        pear.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(cp.Variable((2, 2), PSD=True, name="Z")))))


def test_structured_parameters_are_known():
    draw = np.random.default_rng(1)
    w, mu = cp.Variable(3, name="w"), cp.Parameter(3, name="mu")
    N, T = cp.Parameter((3, 3), NSD=True, name="N"), cp.Parameter((3, 3), symmetric=True, name="T")
    D = cp.Parameter((3, 3), diag=True, name="D")
    problem = cp.Problem(cp.Maximize(mu @ w + cp.quad_form(w, N)), [T @ w <= 1, D @ w <= 2, cp.sum(w) == 1])
    m = pear.from_cvxpy(problem, predicted=[mu], known=[N, T, D])
    root, matrix = draw.normal(size=(4, 3, 3)), draw.normal(size=(4, 3, 3))
    known = {"N": -root @ root.transpose(0, 2, 1), "T": matrix + matrix.transpose(0, 2, 1)}
    known["D"] = np.stack([np.diag(row) for row in draw.uniform(1, 2, (4, 3))])
    values = draw.normal(size=(4, 3))
    found = pear.solve(m, values, known=known).x
    for i in range(4):
        mu.value, N.value, T.value = values[i], known["N"][i], known["T"][i]
        D.value = known["D"][i]
        problem.solve(**TIGHT)
        np.testing.assert_allclose(m.decision(found)["w"][i], w.value, atol=1e-7)

"""Units: huge bounds, mixed units, rounding and nearly parallel rows, judged by closed forms and exact fractions."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from numpy_residual import solution_residual
from scipy import sparse
from scipy.linalg import hilbert

import pear
from pear.solvers import Status, available_backends

Array = np.ndarray[Any, Any]
LP_SOLVERS = ["auto", *(backend.name for backend in available_backends() if "lp" in backend.kinds)]
SOLVERS = ["auto", *(backend.name for backend in available_backends() if "qp" in backend.kinds)]
HUGE = [1e15, 1e19, 1e30, 1e100, 1e150]
PREDICTED = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
TRUE = torch.tensor([[1.5, -2.0, 2.0]], dtype=torch.float64)


def problem_in(bound: float, **fields: Any) -> pear.Problem:
    """Return a problem with variables between −bound and bound; ignore the warning about bounds that stand for none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if bound >= 1e20 else "error")
        return pear.Problem(lb=-bound, ub=bound, **fields)


def simplex(bound: float) -> pear.Problem:
    """Return a problem with three variables between −bound and bound that sum to 1."""
    return problem_in(bound, A=[[1, 1, 1]], b=[1])


def exact_solve(matrix: list[list[Fraction]], side: list[Fraction]) -> list[Fraction]:
    """Return the exact solution of a square system, by elimination in fractions."""
    rows = [[*row, value] for row, value in zip(matrix, side, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k]:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def fractions(values: Array) -> list[Any]:
    """Return the exact values of floating-point numbers as fractions."""
    return [Fraction(float(v)) for v in values] if values.ndim == 1 else [fractions(row) for row in values]


def held(smoothing: float, cost: Array, J: Array, side: Array) -> tuple[list[Fraction], list[Fraction]]:
    """Return z and the multipliers y of min ½λ|z|² + cᵀz with Jz = side, exactly."""
    n, k = len(cost), len(side)
    rows = fractions(J)
    matrix = [[Fraction(smoothing) * (i == j) for j in range(n)] + [row[i] for row in rows] for i in range(n)]
    matrix += [row + [Fraction(0)] * k for row in rows]
    found = exact_solve(matrix, [-c for c in fractions(cost)] + fractions(side))
    return found[:n], found[n:]


# -- huge bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", HUGE)
@pytest.mark.parametrize("solver", SOLVERS)
def test_bounds_that_nobody_meets_change_nothing(solver: str, bound: float) -> None:
    """The solution of min ½λ|z|² + cᵀz with Σz = 1 is z = 1/3 − (c − mean c) / λ."""
    x = pear.solve(simplex(bound), PREDICTED, smoothing=0.1, solver=solver).x
    assert torch.allclose(x, 1 / 3 - (PREDICTED - PREDICTED.mean()) / 0.1, rtol=0, atol=1e-11)
    free = pear.solve(problem_in(bound, n=3), PREDICTED, smoothing=0.1, solver=solver).x
    assert torch.allclose(free, -10 * PREDICTED, rtol=1e-12, atol=0)


@pytest.mark.parametrize("bound", HUGE)
@pytest.mark.parametrize("solver", SOLVERS)
def test_regret_within_bounds_that_nobody_meets(solver: str, bound: float) -> None:
    """With e = (ĉ − c) − mean(ĉ − c), the regret is |e|² / 2λ, here 35/6, and its gradient is e / λ."""
    loss = pear.PEARLoss(simplex(bound), smoothing=0.1, injection=0.0, solver=solver, guidance=0.0)
    predicted = PREDICTED.clone().requires_grad_()
    value = loss(predicted, TRUE)
    value.backward()
    error = PREDICTED - TRUE
    assert value.item() == pytest.approx(35 / 6, rel=1e-11)
    assert torch.allclose(predicted.grad, (error - error.mean()) / 0.1, rtol=0, atol=1e-11)


def test_what_is_no_bound_is_said_once() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        problem = pear.Problem(
            G=[[1, 0], [0, 1], [1, 1]], h=[1e20, 1, 1e100], lb=[-1e30, 0], ub=[1e19, 1e20], A=[[1, -1]], b=[0]
        )
        for _ in range(2):
            pear.solve(problem, [[-1.0, 0.0]])
    assert [str(one.message) for one in said] == [
        "bounds of 1e+20 and more are taken as no bound (2 in h, 1 in lb, 1 in ub); write inf to say so"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pear.Problem(G=[[1.0]], h=[9.9e19], lb=-9.9e19, ub=9.9e19)
        pear.Problem(G=[[1.0]], h=[np.inf], lb=-np.inf, ub=np.inf)


@pytest.mark.parametrize("solver", LP_SOLVERS)
def test_the_largest_bound_holds_and_the_next_does_not(solver: str) -> None:
    bounded = pear.solve(pear.Problem(lb=0, ub=[9e19, 1.0]), [[-1.0, 1.0]], solver=solver)
    assert bounded.x.tolist() == [[9e19, 0.0]]
    with pytest.warns(UserWarning, match="no bound"):
        problem = pear.Problem(lb=0, ub=[1e20, 1.0])
    with pytest.warns(UserWarning, match="UNBOUNDED"):
        assert pear.solve(problem, [[-1.0, 1.0]], solver=solver, on_failure="mask").status.tolist() == [
            Status.UNBOUNDED
        ]


@pytest.mark.parametrize("bound", [1e20, 1e100, np.inf])
def test_predicted_bounds_of_that_size_are_none(bound: float) -> None:
    cost = PREDICTED.clone().requires_grad_()
    layer = pear.DecisionLayer(pear.Problem(A=[[1, 1, 1]], b=[1], G=[[1, 0, 0]], h=[0], lb=0, ub=1), smoothing=0.1)
    fields = {
        "lb": torch.full((1, 3), -bound, dtype=torch.float64, requires_grad=True),
        "ub": torch.full((1, 3), bound, dtype=torch.float64, requires_grad=True),
        "h": torch.full((1, 1), bound, dtype=torch.float64, requires_grad=True),
    }
    x = layer(cost, **fields)
    assert torch.allclose(x, 1 / 3 - (PREDICTED - PREDICTED.mean()) / 0.1, rtol=0, atol=1e-11)
    weights = torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
    (x * weights).sum().backward()
    assert torch.allclose(cost.grad, -(weights - 1) / 0.1, rtol=0, atol=1e-11)
    assert all(not field.grad.any() for field in fields.values())


# -- units -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_small_variable_keeps_its_bounds_beside_a_large_one(solver: str) -> None:
    """min ½x² − 1.5e6 x + ½ (1e6 y − k)² with y in [0, 5e-6] has x = 1.5e6 and y = k / 1e6, clipped to its bounds."""
    k = torch.tensor([9.0, -3.0, 2.0, 5.000001, 1e-6], dtype=torch.float64)
    cost = torch.stack([torch.full_like(k, -1.5e6), -1e6 * k], 1)
    problem = pear.Problem(Q=[[1, 0], [0, 1e12]], lb=0, ub=[np.inf, 5e-6])
    x = pear.solve(problem, cost, solver=solver).x
    assert torch.allclose(x[:, 0], torch.tensor(1.5e6, dtype=torch.float64), rtol=1e-12)
    assert torch.allclose(x[:, 1], (k / 1e6).clamp(0, 5e-6), rtol=0, atol=5e-17)
    assert float(x[:, 1].min()) >= 0
    assert float(x[:, 1].max()) <= 5e-6


@pytest.mark.parametrize("solver", SOLVERS)
def test_units_of_variables_and_rows_do_not_matter(solver: str) -> None:
    """Variables and rows in units of 1e-6 to 1e6 give the same decisions."""
    rng = np.random.default_rng(3)
    B, n = 6, 5
    root = rng.normal(size=(n, n))
    Q, G = root @ root.T + np.eye(n), np.round(rng.normal(size=(3, n)), 2)
    h, cost = np.array([0.5, 1.0, 0.2]), 4 * rng.normal(size=(B, n))
    unit, row = 10.0 ** np.array([-6, 6, 0, 3, -3]), 10.0 ** np.array([3.0, -6, 6])
    plain = pear.solve(pear.Problem(Q=Q, G=G, h=h, lb=-1, ub=1), cost).x.numpy()
    scaled = pear.Problem(Q=Q / unit / unit[:, None], G=G / unit * row[:, None], h=h * row, lb=-unit, ub=unit)
    x = pear.solve(scaled, cost / unit, solver=solver).x.numpy()
    assert (np.abs(x) <= unit * (1 + 1e-12)).all()
    assert np.abs(x / unit - plain).max() <= 1e-9


# -- rounding is no unit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 6, 9])
@pytest.mark.parametrize("solver", SOLVERS)
def test_no_cost_and_a_singular_curvature(solver: str, n: int) -> None:
    """Without a cost, every feasible point in the null space of Q is a solution; rounding must not reject it."""
    rng, B = np.random.default_rng(n), 20
    root = rng.normal(size=(B, n, n // 2))
    A, x = rng.normal(size=(B, 1, n)), rng.uniform(-1, 1, (B, n))
    G = rng.normal(size=(B, 2, n))
    problem = pear.Problem(
        Q=root @ root.transpose(0, 2, 1), A=A, b=(A @ x[..., None])[..., 0], G=G, h=(G @ x[..., None])[..., 0] + 0.5,
        lb=-2, ub=2,
    )  # fmt: skip
    cost = torch.zeros(B, n, dtype=torch.float64)
    solution = pear.solve(problem, cost, solver=solver)
    assert solution.status.tolist() == [Status.SOLVED] * B
    assert solution_residual(problem, cost, solution.x, solution.duals) <= 1e-9


@pytest.mark.parametrize("least", [1e-11, 3e-12, 1e-12])
@pytest.mark.parametrize("solver", SOLVERS)
def test_little_curvature_is_not_none(solver: str, least: float) -> None:
    """min ½ Σ dᵢzᵢ² + cᵀz on free variables is bounded if the least eigenvalue is positive, however small."""
    problem = pear.Problem(Q=np.diag([least, 1.0, 2.0]), lb=-np.inf, ub=np.inf)
    solution = pear.solve(problem, [[-3 * least, 1.0, -4.0]], solver=solver)
    assert torch.allclose(solution.x, torch.tensor([[3.0, -1.0, 2.0]], dtype=torch.float64), rtol=1e-9)


@pytest.mark.parametrize("least", [1e-10, 1e-11, 2e-12])
@pytest.mark.parametrize("solver", SOLVERS)
def test_little_curvature_in_a_mixed_direction(solver: str, least: float) -> None:
    rng = np.random.default_rng(1)
    V = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    Q = V * [least, 1.0, 1.0, 2.0] @ V.T
    Q = (Q + Q.T) / 2
    cost = -Q @ np.array([1.0, -2.0, 0.5, 1.0])
    x = pear.solve(pear.Problem(Q=Q, lb=-np.inf, ub=np.inf), cost, solver=solver).x[0].numpy()
    assert np.abs(Q @ x + cost).max() <= 1e-12


def right_sides() -> dict[str, Array]:
    """Return right-hand sides b for the Hilbert matrix A of order 10, by name.

    The solution z of A z = b has entries of about 1 for "of ones" and "of a point". Its largest entry is about 1e7 for
    "ones" and "first", and 1e13 for "alternating".
    """
    A, rng = hilbert(10), np.random.default_rng(0)
    return {
        "of ones": A @ np.ones(10), "of a point": A @ rng.normal(size=10), "ones": np.ones(10), "first": np.eye(10)[0],
        "alternating": (-1.0) ** np.arange(10), "zero": np.zeros(10),
    }  # fmt: skip


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", right_sides())
def test_a_hilbert_matrix_as_equalities(name: str, smoothing: float) -> None:
    A, b = hilbert(10), right_sides()[name]
    cost = np.random.default_rng(1).normal(size=(2, 10))
    solution = pear.solve(pear.Problem(A=A, b=b, lb=-np.inf, ub=np.inf), cost, smoothing=smoothing)
    assert solution.status.tolist() == [Status.SOLVED] * 2
    for x in solution.x.numpy():
        z = fractions(x)
        for row, side in zip(fractions(A), fractions(b), strict=True):
            terms = [a * v for a, v in zip(row, z, strict=True)]
            assert abs(sum(terms) - side) <= Fraction(1, 10**10) * (sum(map(abs, terms)) + abs(side))


# -- nearly parallel rows ----------------------------------------------------------------------------------------------


def nearly_parallel(delta: float, seed: int) -> tuple[pear.Problem, Array, Array, Array]:
    """Return a problem with two rows that differ by ``delta`` and are both active; all numbers are exact in float64.

    Returns:
        The problem, its solution, and the predicted and true costs, for λ = 1/8.
    """
    rng = np.random.default_rng(seed)
    row, other, z, error = rng.integers(-16, 17, (4, 4)) / 16
    G = np.stack([row, row + delta * other])
    y = rng.integers(4, 12, 2) / 8
    predicted = -z / 8 - y @ G
    return pear.Problem(G=G, h=G @ z, lb=-50, ub=50), z, predicted, predicted + error


@pytest.mark.parametrize("power", [20, 23, 26, 30, 33])
@pytest.mark.parametrize("seed", range(4))
def test_both_of_two_nearly_parallel_rows_are_held(power: int, seed: int) -> None:
    """The rows differ by 1e-6 to 1e-10, and the tangent space is that of both."""
    problem, z, predicted, true = nearly_parallel(2.0**-power, seed)
    G, h = problem.G.numpy(), problem.h.numpy()
    point, multipliers = held(0.125, predicted, G, h)
    assert [float(v) for v in point] == z.tolist()
    assert min(multipliers) >= 0.5  # both are active, by far
    solution = pear.solve(problem, predicted, smoothing=0.125)
    assert solution.status.tolist() == [Status.SOLVED]
    assert np.abs(G @ solution.x[0].numpy() - h).max() <= 1e-14
    # P e is minus the decision under the cost e with both rows held at zero
    gradient, _ = held(0.125, predicted - true, G, np.zeros(2))
    found = pear.regret_gradient(problem, predicted, true, smoothing=0.125)[0].numpy()
    assert np.abs(found).max() >= 0.01
    assert np.abs(found + np.array(gradient, dtype=float)).max() <= 1e-8


@pytest.mark.parametrize("power", [26, 30, 33])
def test_a_batch_with_nearly_parallel_rows_equals_its_singles(power: int) -> None:
    """Each sample has its own nearly parallel rows; one sample is ordinary, and another is infeasible."""
    cases = [nearly_parallel(2.0**-power, seed) for seed in range(8)]
    G, h = (torch.stack([getattr(case[0], name) for case in cases]) for name in ("G", "h"))
    G[3, 1] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    G[5, 1], h[5] = -G[5, 0], -1000.0
    problem = pear.Problem(G=G, h=h, lb=-50, ub=50)
    cost = torch.from_numpy(np.stack([case[2] for case in cases]))

    def solved(index: Any) -> pear.Solution:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pear.FailedSamplesWarning)
            return pear.solve(problem[index], cost[index], smoothing=0.125, on_failure="mask")

    together = solved(list(range(8)))
    assert together.status.tolist() == [Status.INFEASIBLE if i == 5 else Status.SOLVED for i in range(8)]
    for index in (*([i] for i in range(8)), [7, 2, 0], [1, 3, 5, 6]):
        part = solved(index)
        assert torch.equal(part.status, together.status[index])
        assert torch.allclose(part.x, together.x[index], rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("delta", [1e-8, 1e-9, 1e-10])
def test_a_batch_with_rows_in_common_equals_its_singles(delta: float) -> None:
    rng = np.random.default_rng(7)
    row, other = rng.normal(size=(2, 4))
    G = np.stack([row, row + delta * other, rng.normal(size=4)])
    problem = pear.Problem(G=G, h=[1.0, 1.0, 0.5], lb=-3, ub=3)
    cost = torch.from_numpy(rng.normal(size=(24, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        together = pear.solve(problem, cost, smoothing=0.1, on_failure="mask")
        alone = [pear.solve(problem, one, smoothing=0.1, on_failure="mask") for one in cost]
        half = pear.solve(problem, cost[1::2], smoothing=0.1, on_failure="mask")
    assert together.status.tolist() == [one.status.item() for one in alone]
    assert torch.equal(together.status[1::2], half.status)
    assert torch.allclose(together.x, torch.cat([one.x for one in alone]), rtol=0, atol=1e-11)
    assert torch.allclose(together.x[1::2], half.x, rtol=0, atol=1e-11)
    assert together.status.tolist() == [Status.SOLVED] * 24


def test_rounding_at_a_bound_is_no_range() -> None:
    """Rounding of 1e-24 at a bound is not taken for the range of a variable; half of them have no upper bound."""
    n, count = 600, 40
    costs = torch.rand(count, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    A = sparse.csr_array(sparse.kron(sparse.eye_array(60), np.ones((1, 10))))
    problem = pear.Problem(A=A, b=np.ones(60), lb=0.0, ub=np.where(np.arange(n) % 2, 1.0, np.inf))
    loss = pear.PEARLoss(problem)
    loss.calibrate(costs)
    units = torch.ones(n) if loss.units is None else loss.units
    assert units.min() > 0.1
    assert units.max() < 10

"""Exact solutions, active sets, and identities of the projection, on planted problems and on degenerate ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_residual import solution_residual
from scipy import sparse
from torch import Tensor
from zoo import LINEAR, ZOO, Planted, arrays, jacobian, projection, tight

import pear
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.optimality.active_set_rule import guess_active_set
from pear.optimality.duals_and_active_sets import Duals
from pear.sensitivity.dense_reduced_systems import DenseReducedSystems
from pear.solvers import available_backends
from pear.solvers.normal_component import add_normal_component
from pear_lab.judge.judged_program import JudgedProgram

INF = float("inf")
TOL = 1e-11
EACH = [(name, i) for name, case in ZOO.items() for i in range(case.B)]
every_case = pytest.mark.parametrize("name", ZOO)
every_sample = pytest.mark.parametrize(("name", "i"), EACH)


def parts(name: str, i: int) -> tuple[Planted, JudgedProgram, np.ndarray, np.ndarray]:
    """Return a case, its sample i in numpy, and the sample's H and J."""
    case = ZOO[name]
    a = arrays(case.problem, case.cost, case.smoothing, i)
    return case, a, a.H, jacobian(a, case.x[i].numpy(), case.size)


def project_by_columns(case: Planted, i: int) -> np.ndarray:
    """Return P from ``DenseReducedSystems.project``, one unit vector after another."""
    verified = solve_continuous_programs(case.problem, case.cost, case.smoothing, "auto")
    copies = torch.full((case.n,), i)
    kkt = DenseReducedSystems(verified.qp[copies], verified.active[copies])
    columns, _, _, unique = kkt.project(torch.eye(case.n, dtype=torch.float64))
    assert bool(unique.all())
    return columns.T.numpy()


def project_by_gradient(case: Planted, i: int) -> np.ndarray:
    """Return P from ``pear.regret_gradient``: for an error that is a unit vector, the gradient is a column of P."""
    copies = [i] * case.n
    predicted = case.cost[copies]
    true = predicted - case.force * torch.eye(case.n, dtype=torch.float64)
    return pear.regret_gradient(case.problem[copies], predicted, true, case.smoothing).T.numpy() / case.force


def close(actual: Any, expected: Any, scale: float, tol: float = TOL) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tol * scale)


# --------------------------------------------------------------------------------------------------------- solutions


@every_case
def test_planted_solution_is_found(name: str) -> None:
    case = ZOO[name]
    s = pear.solve(case.problem, case.cost, smoothing=case.smoothing)
    assert s.status.tolist() == [pear.Status.SOLVED] * case.B
    close(s.x, case.x, case.size)
    for i in range(case.B):
        a = arrays(case.problem, case.cost, case.smoothing, i)
        x = case.x[i].numpy()
        for mine, planted in zip((s.active.rows, s.active.lower, s.active.upper), tight(a, x, case.size), strict=True):
            assert mine[i].tolist() == planted.tolist()
        sign = 1 if case.problem.sense == "min" else -1
        close(s.value[i].item(), sign * (0.5 * x @ a.H @ x + a.c @ x), case.size * case.force * 10)
    assert s.weakly_active.tolist() == [0] * case.B
    assert float(s.kkt_residual.max()) <= 1e-10


SOLVERS = [backend.name for backend in available_backends() if "qp" in backend.kinds]
LP_SOLVERS = [backend.name for backend in available_backends() if "lp" in backend.kinds]
CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", CURVED)
def test_every_solver_on_every_case(name: str, solver: str) -> None:
    """Solutions are exact at the planted costs, and at the true ones, whose solutions may be degenerate."""
    case = ZOO[name]
    for cost in (case.cost, case.true):
        s = pear.solve(case.problem, cost, smoothing=case.smoothing, solver=solver)
        assert solution_residual(case.problem, cost, s.x, s.duals, case.smoothing) <= 1e-9


@pytest.mark.parametrize("solver", LP_SOLVERS)
@pytest.mark.parametrize("name", LINEAR)
def test_every_solver_on_every_linear_program(name: str, solver: str) -> None:
    case = ZOO[name]
    for cost in (case.cost, case.true):
        s = pear.solve(case.problem, cost, solver=solver)
        assert solution_residual(case.problem, cost, s.x, s.duals) <= 1e-9


def test_the_tables_hold_every_solver_of_the_extras() -> None:
    """All optional solvers are installed, so that no row of the tables below is skipped unnoticed."""
    assert set(SOLVERS) == {"interior-point", "active-set", "osqp", "daqp", "piqp", "clarabel", "proxqp"}
    assert set(LP_SOLVERS) == {"interior-point", "active-set", "osqp", "daqp", "piqp", "clarabel", "highs", "scipy"}


@st.composite
def small_programs(draw: st.DrawFn) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Draw a feasible problem with small integers, and two costs.

    Ties, repeated rows and empty interiors are common.
    """
    n, p, m = draw(st.integers(1, 4)), draw(st.integers(0, 2)), draw(st.integers(0, 4))
    digit = st.integers(-2, 2)

    def matrix(rows: int, columns: int, entries: st.SearchStrategy[int] = digit) -> np.ndarray:
        flat = draw(st.lists(entries, min_size=rows * columns, max_size=rows * columns))
        return np.array(flat, dtype=float).reshape(rows, columns)

    inside, A, G = matrix(1, n)[0], matrix(p, n), matrix(m, n)
    slack, below, above = (matrix(1, k, st.integers(0, 2))[0] for k in (m, n, n))
    lb = np.where(matrix(1, n, st.integers(0, 1))[0] > 0, inside - below, -INF)
    ub = np.where(matrix(1, n, st.integers(0, 1))[0] > 0, inside + above, INF)
    fields: dict[str, Any] = {"lb": lb, "ub": ub}
    fields |= {"A": A, "b": A @ inside} if p else {}
    fields |= {"G": G, "h": G @ inside + slack} if m else {}
    costs = (torch.from_numpy(matrix(2, n, st.integers(-3, 3))) for _ in range(2))
    return fields, *costs


@settings(max_examples=150)
@given(small_programs(), st.sampled_from([0.1, 1.0]), st.sampled_from(["min", "max"]))
def test_every_feasible_curved_problem_is_solved(drawn: Any, smoothing: float, sense: str) -> None:
    fields, cost, _ = drawn
    problem = pear.Problem(**fields, sense=sense)
    s = pear.solve(problem, cost, smoothing=smoothing)
    assert solution_residual(problem, cost, s.x, s.duals, smoothing) <= 1e-9


@settings(max_examples=100)
@given(small_programs(), st.sampled_from(["auto", "interior-point"]))
def test_every_feasible_bounded_linear_program_is_solved(drawn: Any, solver: str) -> None:
    fields, cost, _ = drawn
    fields["lb"], fields["ub"] = np.maximum(fields["lb"], -9.0), np.minimum(fields["ub"], 9.0)
    problem = pear.Problem(**fields)
    s = pear.solve(problem, cost, solver=solver)
    assert solution_residual(problem, cost, s.x, s.duals) <= 1e-9


ZERO_AND_TIED: dict[str, tuple[dict[str, Any], list[float], float]] = {
    "solution zero": ({"G": [[0, 1], [1, 1]], "h": [0, 0]}, [0, -1], 0.1),
    "solution zero, cost zero": ({"G": [[0, 1, 0, -1], [0, 0, 1, 1]], "h": [0, 0]}, [0, 0, 0, 0], 0.1),
    "zero row, cost zero": ({"A": [[0]], "b": [0], "lb": [-1]}, [0], 0.1),
    "repeated equality at a bound": (
        {"A": [[1, 0], [1, 0]], "b": [0, 0], "ub": [0, INF], "lb": [-INF, -1]},
        [0, 0],
        0.1,
    ),
    "two rows on one variable": ({"G": [[1], [1]], "h": [0, 2], "lb": [-1]}, [-1], 0.1),
    "rows that pin a variable": ({"G": [[0], [1], [-1], [1]], "h": [0, 0, 0, 1], "lb": -9, "ub": 9}, [0], 0.0),
    "rows that pin a variable, pulled": ({"G": [[0], [1], [-1]], "h": [0, 0, 0], "lb": -9, "ub": 9}, [1], 0.0),
    "zero row among rows": (
        *({"G": [[0, 0, 0, 0], [1, 0, 1, 1], [0, 2, -2, 0]], "h": [0, -1, 0], "lb": -9, "ub": 9}, [0, 0, 0, 0], 0.0),
    ),
    "linear, cost zero, equalities": (
        *({"A": [[1, 0, 1, 0], [0, 1, 1, 1]], "b": [0, 0], "lb": -9, "ub": [9, 9, 0, 9]}, [0, 0, 0, 0], 0.0),
    ),
    "linear, cost zero": ({"G": [[0, 0, 1]], "h": [0], "lb": -9, "ub": 9}, [0, 0, 0], 0.0),
    "linear, everything tied": ({"A": [[1, 1, 1]], "b": [1], "lb": 0, "ub": 1}, [2, 2, 2], 0.0),
    "linear, set of one point": ({"A": [[1, 1]], "b": [0], "lb": 0}, [1, -1], 0.0),
}


@pytest.mark.parametrize("name", ZERO_AND_TIED)
def test_zero_and_tied_data(name: str) -> None:
    """Every solver gives a verified solution if all data is zero, or if every point is optimal."""
    fields, cost, smoothing = ZERO_AND_TIED[name]
    problem, costs = pear.Problem(**fields), torch.tensor([cost], dtype=torch.float64)
    for solver in SOLVERS if smoothing else LP_SOLVERS:
        s = pear.solve(problem, costs, smoothing=smoothing, solver=solver)
        assert solution_residual(problem, costs, s.x, s.duals, smoothing) <= 1e-9, solver
        assert float(s.kkt_residual.max()) <= 1e-9, solver


@pytest.mark.parametrize("solver", SOLVERS)
def test_units_of_variables_do_not_matter(solver: str) -> None:
    """In the variables x' with x = D x', decisions and gradients are the same after conversion."""
    case = ZOO["own everything"]
    p, D = case.problem, torch.tensor([1e-3, 1e3, 1.0, 10.0, 0.1, 1e2], dtype=torch.float64)
    fields = {"Q": p.Q * D[:, None] * D, "A": p.A * D, "b": p.b, "G": p.G * D, "h": p.h, "lb": p.lb / D, "ub": p.ub / D}
    scaled = pear.Problem(**fields)
    close(D * pear.solve(scaled, case.cost * D, solver=solver).x, case.x, 1.0)
    before = pear.regret_gradient(p, case.cost, case.true, 0.0)
    after = pear.regret_gradient(scaled, case.cost * D, case.true * D, 0.0, solver=solver)
    close(D * after, before, 1.0)


@pytest.mark.parametrize("solver", LP_SOLVERS)
def test_a_sample_without_cost_does_not_disturb_its_neighbour(solver: str) -> None:
    problem = pear.Problem(lb=-9.0, ub=9.0, n=3)
    costs = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, -2.0]], dtype=torch.float64)
    s = pear.solve(problem, costs, solver=solver)
    assert solution_residual(problem, costs, s.x, s.duals) <= 1e-9
    assert float(s.kkt_residual.max()) <= 1e-9
    assert (s.x[1, 0].item(), s.x[1, 2].item()) == (-9.0, 9.0)


# -------------------------------------------------------------------------------------------------------- identities


@every_sample
@pytest.mark.parametrize("columns", [project_by_columns, project_by_gradient])
def test_projection_is_that_of_the_null_space(name: str, i: int, columns: Any) -> None:
    case, _, H, J = parts(name, i)
    expected = projection(H, J)
    close(columns(case, i), expected, max(1.0, np.abs(expected).max()))


@every_sample
def test_projection_identities(name: str, i: int) -> None:
    case, _, H, J = parts(name, i)
    P = project_by_columns(case, i)
    size, bend = max(1.0, np.abs(P).max()), max(1.0, np.abs(P).max() * np.abs(H).max())
    close(P, P.T, size)
    close(J @ P, 0, size)
    close(P @ J.T, 0, size)
    close(P @ H @ P, P, size * bend)
    Pi = P @ H
    close(Pi @ Pi, Pi, bend * bend)
    close(H @ Pi, (H @ Pi).T, bend * np.abs(H).max())
    rank = np.linalg.matrix_rank(J, tol=1e-9) if len(J) else 0
    close(np.trace(Pi), case.n - rank, bend)


@every_sample
def test_tangent_dimension(name: str, i: int) -> None:
    case, _, _, J = parts(name, i)
    verified = solve_continuous_programs(case.problem, case.cost, case.smoothing, "auto")
    rank = np.linalg.matrix_rank(J, tol=1e-9) if len(J) else 0
    assert int(verified.systems.tangent_dim()[i]) == case.n - rank


@every_case
def test_normal_errors_are_filtered(name: str) -> None:
    """An error in the range of Jᵀ changes no decision: its gradient is zero."""
    case, rng = ZOO[name], np.random.default_rng(0)
    normal = np.zeros((case.B, case.n))
    for i in range(case.B):
        _, _, _, J = parts(name, i)
        normal[i] = case.force * J.T @ rng.normal(size=len(J))
    g = pear.regret_gradient(case.problem, case.cost, case.cost - torch.from_numpy(normal), case.smoothing)
    close(g, 0, max(case.size, 1e-300))


@every_case
def test_normal_invariance(name: str) -> None:
    """Moving ĉ in the range of Jᵀ changes neither decision nor gradient while the active set stays.

    The planted multipliers are at least half a unit of force; a change of a fifth does not change their signs.
    """
    case, rng = ZOO[name], np.random.default_rng(1)
    normal = np.zeros((case.B, case.n))
    for i in range(case.B):
        _, _, _, J = parts(name, i)
        normal[i] = case.force * J.T @ rng.uniform(-0.2, 0.2, len(J))
    moved = case.cost + torch.from_numpy(normal)
    s = pear.solve(case.problem, moved, smoothing=case.smoothing)
    close(s.x, case.x, case.size)
    before, after = (pear.regret_gradient(case.problem, c, case.true, case.smoothing) for c in (case.cost, moved))
    close(after, before, max(float(before.abs().max()), case.size))


@every_case
@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_normal_injection(name: str, beta: float) -> None:
    """Injection adds β‖g‖ n/‖n‖ with n = H⁻¹e − g, and nothing if n = 0.

    A singular H is replaced by the definite H + ρJᵀJ, with ρ of the size of H, which does not change P.
    """
    case = ZOO[name]
    a = [arrays(case.problem, case.cost, case.smoothing, i) for i in range(case.B)]
    arguments = (case.problem, case.cost, case.true, case.smoothing)
    g = pear.regret_gradient(*arguments).numpy()
    added = pear.regret_gradient(*arguments, injection=beta).numpy() - g
    for i in range(case.B):
        H, J = a[i].H, jacobian(a[i], case.x[i].numpy(), case.size)
        if np.linalg.matrix_rank(H) < case.n:
            definite = H + (H.diagonal().max() or 1.0) * J.T @ J
            unit = 1 / max(H.diagonal().max(), 1e-300)
            close(projection(definite, J), projection(H, J) if H.any() else 0 * H, unit if H.any() else 1.0)
            H = definite
        rescaled = np.linalg.solve(H, (case.cost - case.true)[i].numpy())
        n = rescaled - g[i]
        if np.linalg.norm(n) <= 1e-10 * np.linalg.norm(rescaled):
            assert len(jacobian(a[i], case.x[i].numpy(), case.size)) == 0
            close(added[i], 0, np.linalg.norm(rescaled))
        else:
            close(added[i], beta * np.linalg.norm(g[i]) * n / np.linalg.norm(n), max(np.linalg.norm(g[i]), case.size))


@pytest.mark.parametrize("noise", [0.0, 1e-8])
def test_the_active_set_is_guessed_from_a_point_nearby(noise: float) -> None:
    """The comparison of slack and multiplier finds the tight constraints, in any units and for any bounds."""
    for name, case in ZOO.items():
        generator = torch.Generator().manual_seed(0)
        exact = solve_continuous_programs(case.problem, case.cost, case.smoothing, "auto")
        x = exact.x + noise * case.size * torch.randn(exact.x.shape, generator=generator, dtype=torch.float64)
        share = [torch.randn(v.shape, generator=generator, dtype=torch.float64) for v in vars(exact.duals).values()]
        values = vars(exact.duals).values()
        duals = Duals(*(v * (1 + 1e-6 * some) for v, some in zip(values, share, strict=True)))
        assert guess_active_set(exact.qp, x, duals).same(exact.active).tolist() == [True] * case.B, name


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_rounding_is_no_normal_component(scale: float) -> None:
    """A normal component that is rounding is not scaled up to the gradient's length; a real one is, in any unit."""
    rescaled = scale * torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    g = rescaled * (1 + torch.tensor([[3e-15, 0.0, -2e-15]], dtype=torch.float64))
    torch.testing.assert_close(add_normal_component(rescaled, g, 0.5), g, rtol=1e-13, atol=0.0)
    tangent = rescaled * torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    expected = tangent + 0.5 * scale * 5**0.5 * torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(add_normal_component(rescaled, tangent, 0.5), expected, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("injection", [0.0, 0.1])
def test_injection_needs_no_curvature(injection: float) -> None:
    """The gradient at the vertex of a linear program is zero, and injection adds nothing to it."""
    box, costs = pear.Problem(lb=0.0, ub=1.0, n=2), torch.tensor([[1.0, -1.0], [2.0, 3.0]])
    assert pear.regret_gradient(box, costs, -costs, smoothing=0.0, injection=injection).tolist() == [[0.0, 0.0]] * 2


def test_injection_into_a_sparse_program_is_that_into_the_dense_one() -> None:
    """Sparse and dense forms agree, with one quadratic term and one row for each pair of variables."""
    n, rng = 600, np.random.default_rng(0)
    Q = np.diag(np.tile([2.0, 0.0], n // 2))
    A = np.kron(np.eye(n // 2), [[1.0, 1.0]])
    costs, true = torch.from_numpy(rng.normal(size=(2, 3, n)))
    kept = pear.Problem(Q=sparse.csr_array(Q), A=sparse.csr_array(A), b=np.ones(n // 2), lb=0.0)
    assert kept.is_sparse
    found = pear.regret_gradient(kept, costs, true, smoothing=0.0, injection=0.5)
    dense = pear.Problem(Q=Q, A=A, b=np.ones(n // 2), lb=0.0)
    expected = pear.regret_gradient(dense, costs, true, smoothing=0.0, injection=0.5)
    close(found, expected, float(expected.abs().max()))
    assert float((expected - pear.regret_gradient(dense, costs, true, smoothing=0.0)).abs().max()) > 0.01


def test_normal_injection_adds_nothing_to_a_zero_gradient() -> None:
    """At a vertex there is no tangent direction: g = 0, and β‖g‖ = 0."""
    case = ZOO["vertex"]
    g = pear.regret_gradient(case.problem, case.cost, case.true, case.smoothing, injection=1.0)
    assert bool((g == 0).all())


# ----------------------------------------------------------------------------------------------------- weak activity


def weakly_held() -> tuple[pear.Problem, Tensor]:
    """Return min ½‖z‖² + ĉᵀz with z₀ ≤ 1, z₀ + z₁ ≤ 3 and z₂ ≥ 0, and a cost.

    All three constraints are tight at the solution z = (1, 2, 0), with multipliers of zero.
    """
    problem = pear.Problem(Q=np.eye(3), G=[[1.0, 1.0, 0.0]], h=[3.0], lb=[-INF, -INF, 0.0], ub=[1.0, INF, INF])
    return problem, torch.tensor([[-1.0, -2.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("solver", SOLVERS)
def test_weakly_active_constraints_are_reported(solver: str) -> None:
    problem, cost = weakly_held()
    s = pear.solve(problem, cost, solver=solver)
    close(s.x, [[1.0, 2.0, 0.0]], 1.0)
    assert s.weak.rows.tolist() == s.active.rows.tolist() == [[True]]
    assert s.weak.lower.tolist() == s.active.lower.tolist() == [[False, False, True]]
    assert s.weak.upper.tolist() == s.active.upper.tolist() == [[True, False, False]]
    assert s.weakly_active.tolist() == [3]


@pytest.mark.parametrize("solver", SOLVERS)
def test_weakly_active_constraints_count_as_active(solver: str) -> None:
    """By the rule, a tight constraint counts as active whatever its multiplier, so that no direction remains.

    With only the strongly active constraints, of which there are none, the gradient would be the error itself.
    """
    problem, cost = weakly_held()
    g = pear.regret_gradient(problem, cost, cost - 1.0, smoothing=0.0, solver=solver)
    assert g.tolist() == [[0.0, 0.0, 0.0]]
    loose = pear.Problem(Q=np.eye(3), G=problem.G, h=problem.h)
    held = pear.regret_gradient(loose, cost, cost - torch.tensor([[1.0, 0.0, 1.0]]), smoothing=0.0, solver=solver)
    close(held, [[0.5, -0.5, 1.0]], 1.0)


def test_pinned_variables_are_not_called_weak() -> None:
    problem = pear.Problem(lb=[1.0, 0.0], ub=[1.0, 5.0])
    s = pear.solve(problem, [[-1.0, -2.0]], smoothing=1.0)
    close(s.x, [[1.0, 2.0]], 1.0)
    assert s.active.fixed.tolist() == [[True, False]]
    assert s.weakly_active.tolist() == [0]


@pytest.mark.parametrize("solver", ["auto", *LP_SOLVERS])
def test_a_tied_linear_program_has_no_derivative(solver: str) -> None:
    """Every point of an edge is optimal for sample 1: it has no derivative, whichever point a solver returns."""
    problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    cost = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 3.0]], dtype=torch.float64)
    s = pear.solve(problem, cost, solver=solver)
    assert solution_residual(problem, cost, s.x, s.duals) <= 1e-9
    pattern = (
        "^the decision of sample 1 is not unique, so that it has no derivative: variables 0, 1 can move at no cost; a "
        "bound, a quadratic term or smoothing > 0 makes it unique$"
    )
    with pytest.raises(pear.NotUniqueError, match=pattern) as caught:
        pear.regret_gradient(problem, cost, cost + 1, smoothing=0.0, solver=solver)
    assert caught.value.samples == [1]
    predicted = cost.clone().requires_grad_()
    with pytest.raises(pear.NotUniqueError, match=pattern):
        pear.PEARLoss(problem, smoothing=0.0, injection=0.0, solver=solver, guidance=0.0)(predicted, cost + 1)
    with pytest.raises(pear.NotUniqueError, match=pattern):
        pear.DecisionLayer(problem, solver=solver)(predicted).sum().backward()
    value = pear.PEARLoss(problem, smoothing=0.0, injection=0.0, solver=solver, guidance=0.0)(cost, cost + 1)
    assert abs(value.item()) <= 1e-12  # the value is defined all the same

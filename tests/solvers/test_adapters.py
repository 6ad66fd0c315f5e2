"""Every backend on a zoo of small problems, judged by the optimality conditions and not by ``x``."""

from __future__ import annotations

import importlib.util
import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pear.errors import MissingExtraError, UnknownSolverError
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import BACKENDS, Backend, Candidate, Status, available, check, choose, get, kind_of, resolve
from pear.solvers.registry import usable_backends

INF = float("inf")
TOL = 1e-7


def program(c: Any, **fields: Any) -> QuadraticProgram:
    """A batch from lists: fields have their batch dimension where they are per sample, and lack it where shared."""
    c = torch.as_tensor(np.atleast_2d(c), dtype=torch.float64)
    n = c.shape[1]
    shapes = {"H": (n, n), "A": (0, n), "b": (0,), "G": (0, n), "h": (0,), "lb": (n,), "ub": (n,)}
    fill = {"lb": -INF, "ub": INF}
    tensors: dict[str, Any] = {}
    for name, shape in shapes.items():
        value = fields.get(name)
        value = np.full(shape, fill.get(name, 0.0)) if value is None else np.asarray(value, dtype=float)
        tensors[name] = torch.as_tensor(value if value.ndim > len(shape) else value[None], dtype=torch.float64)
    integer = fields.get("integer")
    return QuadraticProgram(c=c, **tensors, integer=None if integer is None else torch.as_tensor(integer))


def grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Flow balance of a square grid, from the first corner to the last; its rows add up to zero."""
    nodes = list(itertools.product(range(size), repeat=2))
    edges = [(a, b) for a in nodes for b in nodes if b in ((a[0], a[1] + 1), (a[0] + 1, a[1]))]
    A = np.zeros((len(nodes), len(edges)))
    for k, (a, b) in enumerate(edges):
        A[nodes.index(a), k], A[nodes.index(b), k] = 1.0, -1.0
    return A, np.eye(len(nodes))[0] - np.eye(len(nodes))[-1]


def zoo() -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """Cost and constraints of bounded problems; each is run as an LP and, with curvature, as a QP."""
    rng = np.random.default_rng(0)
    A, b = grid(3)
    weights = rng.integers(1, 11, (2, 8)).astype(float)
    B, n = 4, 6
    rows, inside = rng.normal(size=(B, 5, n)), rng.normal(size=(B, n))
    slack = rng.uniform(0, 1, (B, 3))
    values = np.einsum("brn,bn->br", rows, inside)
    holes = values[:, 2:] + slack
    holes[1, 0] = holes[2, 1:] = INF
    box = {"lb": inside - 1, "ub": inside + rng.uniform(0, 1, (B, n))}
    own = {"A": rows[:, :2], "b": values[:, :2], "G": rows[:, 2:], "h": holes, **box}
    wide = np.maximum(inside, inside[0]) + np.array([INF, 1, 1, 2, 1, 1])
    wide[1] = INF
    shared = {"A": rows[0, :1], "b": values[0, :1], "G": rows[0, 2:], "h": np.minimum(holes[0], 9), "lb": inside[0] - 1}
    return {
        "one variable": (rng.normal(size=(3, 1)), {"lb": [-1.0], "ub": [2.0]}),
        "one variable, one row": (-rng.uniform(1, 2, (3, 1)), {"G": [[2.0]], "h": [1.0]}),
        "box": (rng.normal(size=(5, 4)), {"lb": -np.ones(4), "ub": [1.0, 2.0, 3.0, 4.0]}),
        "simplex": (rng.normal(size=(5, 6)), {"A": np.ones((1, 6)), "b": [1.0], "lb": np.zeros(6)}),
        "redundant equalities": (rng.uniform(0.5, 2, (5, 12)), {"A": A, "b": b, "lb": np.zeros(12)}),
        "knapsack": (
            -rng.uniform(1, 9, (5, 8)),
            {"G": weights, "h": weights.sum(1) / 2, "lb": np.zeros(8), "ub": np.ones(8)},
        ),
        "zero rows": (
            rng.normal(size=(3, 3)),
            {"A": [[1, 1, 1], [0, 0, 0]], "b": [1, 0], "G": [[0, 0, 0], [1, 0, -1]], "h": [1, 2], "lb": np.zeros(3)},
        ),
        "fixed variables": (rng.normal(size=(3, 3)), {"lb": [0.5, -1.0, 2.0], "ub": [0.5, 1.0, 2.0]}),
        "absent rows": (
            rng.normal(size=(3, 2)),
            {"G": [[1, 1], [1, -1], [-1, 0]], "h": [INF, 1, INF], "lb": [-1, -2], "ub": [2, 3]},
        ),
        "all rows absent": (rng.uniform(1, 2, (2, 2)), {"G": np.eye(2), "h": [INF, INF], "lb": np.zeros(2)}),
        "free variables": (-np.ones((2, 2)), {"G": [[1, 2], [2, 1], [-1, -1]], "h": [3, 3, 1]}),
        "own right-hand sides": (
            rng.normal(size=(3, 2)),
            {"A": [[1.0, 1.0]], "b": [[1.0], [2.0], [0.5]], "lb": np.zeros(2), "ub": [[1, 1], [2, INF], [INF, 1]]},
        ),
        "own everything": (rng.normal(size=(B, n)), own),
        "own upper bounds": (rng.normal(size=(B, n)), {**shared, "ub": wide}),
        "large units": (1e3 * rng.uniform(1, 2, (3, 3)), {"A": np.ones((1, 3)), "b": [50.0], "lb": np.zeros(3)}),
    }


ZOO = zoo()
INSTALLED = [backend.name for backend in available()]
COMPILED = [name for name in INSTALLED if name not in ("interior-point", "active-set", "binary")]
CASES = [(backend, kind, name) for backend in INSTALLED for kind in ("lp", "qp") for name in ZOO]
CASES = [case for case in CASES if case[1] in get(case[0]).kinds]


def able(kind: str) -> list[str]:
    return [name for name in INSTALLED if kind in get(name).kinds]


BRANCH_AND_CUT = [name for name in able("milp") if name != "binary"]  # which takes 0-1 programs only


def build(kind: str, name: str) -> QuadraticProgram:
    c, fields = ZOO[name]
    n, rng = c.shape[1], np.random.default_rng(1)
    if kind == "lp":
        return program(c, **fields)
    factor = rng.normal(size=((len(c), n, n) if "own everything" in name else (n, n)))
    return program(c, H=factor @ factor.swapaxes(-1, -2) + 0.1 * np.eye(n), **fields)


def residual(qp: QuadraticProgram, candidate: Candidate) -> np.ndarray:
    """(B,) the largest violation of any optimality condition, relative to the sizes of the data, in plain numpy."""
    worst = []
    for i in range(qp.batch):
        H, c, A, b, G, h, lb, ub = (
            v[0 if v.shape[0] == 1 else i].numpy() for v in (qp.H, qp.c, qp.A, qp.b, qp.G, qp.h, qp.lb, qp.ub)
        )
        x, y = candidate.x[i].numpy(), candidate.duals.equality[i].numpy()
        z, w = candidate.duals.inequality[i].numpy(), candidate.duals.bound[i].numpy()
        slack = np.concatenate([h - G @ x, x - lb, ub - x])
        multiplier = np.concatenate([z, np.maximum(-w, 0), np.maximum(w, 0)])
        assert not z[np.isinf(h)].any(), "an absent row carries a multiplier"
        size = 1 + np.abs(np.concatenate([x, b, h[np.isfinite(h)]])).max()
        force = 1 + np.abs(c).max() + np.abs(H @ x).max()
        # an absent constraint may carry no multiplier at all
        product = multiplier * np.where(np.isinf(slack), 1.0, np.nan_to_num(slack) / size) / force
        stationarity = (H @ x + c + A.T @ y + G.T @ z + w) / force
        parts = [(A @ x - b) / size, np.minimum(slack, 0) / size, np.minimum(multiplier, 0), stationarity, product]
        worst.append(max(np.abs(part).max(initial=0.0) for part in parts))
    return np.array(worst)


def same(a: Candidate, b: Candidate, rounding: float = 0.0) -> bool:
    pairs = [(a.x, b.x), (a.status, b.status)]
    pairs += [(getattr(a.duals, f), getattr(b.duals, f)) for f in ("equality", "inequality", "bound")]
    return all(torch.allclose(u.double(), v.double(), rtol=0.0, atol=rounding, equal_nan=True) for u, v in pairs)


@pytest.mark.parametrize(("backend", "kind", "name"), CASES)
def test_optimality_conditions_hold(backend: str, kind: str, name: str) -> None:
    qp = build(kind, name)
    candidate = get(backend).solve(qp, TOL)
    assert candidate.status.tolist() == [Status.SOLVED] * qp.batch
    assert residual(qp, candidate).max() < 10 * TOL
    assert bool((candidate.duals.inequality >= 0).all())


@pytest.mark.parametrize(("backend", "kind", "name"), [case for case in CASES if case[0] in COMPILED])
def test_batch_equals_singles_in_any_order(backend: str, kind: str, name: str) -> None:
    qp, solver = build(kind, name), get(backend)
    # ProxQP differs in the last digit when it is asked the same thing twice (up to 6e-16 in 90 calls); no other does
    rounding = 1e-13 if backend == "proxqp" else 0.0
    together = solver.solve(qp, TOL)
    for i in range(qp.batch):
        assert same(solver.solve(qp[i : i + 1], TOL), together[i : i + 1], rounding)
    order = torch.arange(qp.batch).flip(0)
    assert same(solver.solve(qp[order], TOL), together[order], rounding)


@pytest.mark.parametrize("backend", able("lp"))
def test_signs_of_multipliers_lp(backend: str) -> None:
    qp = program([-1.0, 2.0, -3.0], G=[[1.0, 0.0, 0.0]], h=[0.5], lb=np.zeros(3), ub=np.ones(3))
    candidate = get(backend).solve(qp, TOL)
    np.testing.assert_allclose(candidate.x, [[0.5, 0.0, 1.0]], atol=1e-5)
    np.testing.assert_allclose(candidate.duals.inequality, [[1.0]], atol=1e-5)
    np.testing.assert_allclose(candidate.duals.bound, [[0.0, -2.0, 3.0]], atol=1e-5)


@pytest.mark.parametrize("backend", able("qp"))
def test_signs_of_multipliers_qp(backend: str) -> None:
    rows = {"A": [[1.0, 1.0, 0.0, 0.0]], "b": [2.0], "G": [[0.0, 0.0, -1.0, 0.0]], "h": [-3.0]}
    candidate = get(backend).solve(program([0, 0, 0, -5.0], H=np.eye(4), ub=[INF, INF, INF, 1.0], **rows), TOL)
    np.testing.assert_allclose(candidate.x, [[1.0, 1.0, 3.0, 1.0]], atol=1e-5)
    np.testing.assert_allclose(candidate.duals.equality, [[-1.0]], atol=1e-5)
    np.testing.assert_allclose(candidate.duals.inequality, [[3.0]], atol=1e-5)
    np.testing.assert_allclose(candidate.duals.bound, [[0.0, 0.0, 0.0, 4.0]], atol=1e-5)


@pytest.mark.parametrize("backend", able("qp"))
def test_no_constraints(backend: str) -> None:
    qp = program([[1.0, -2.0], [0.0, 3.0]], H=[[2.0, 1.0], [1.0, 2.0]])
    candidate = get(backend).solve(qp, TOL)
    assert candidate.status.tolist() == [Status.SOLVED] * 2
    np.testing.assert_allclose(candidate.x, -np.linalg.solve(qp.H[0], qp.c.T).T, atol=1e-5)
    assert candidate.duals.equality.shape == candidate.duals.inequality.shape == (2, 0)
    np.testing.assert_allclose(candidate.duals.bound, np.zeros((2, 2)))


@pytest.mark.parametrize("backend", able("qp"))
def test_singular_curvature(backend: str) -> None:
    qp = program([[1.0, -2.0, 0.0], [-0.5, 1.0, 1.0]], H=np.diag([1.0, 0.0, 0.0]), lb=-np.ones(3), ub=np.ones(3))
    candidate = get(backend).solve(qp, TOL)
    assert candidate.status.tolist() == [Status.SOLVED] * 2
    assert residual(qp, candidate).max() < 10 * TOL


# Who may answer INACCURATE where a sample is hopeless: the built-in solver leaves infeasibility to others, the reason
# of DAQP does not come through qpsolvers, ProxQP's word is not trusted, PIQP can run out of iterations first.
CANNOT_TELL = {"interior-point", "active-set", "daqp", "proxqp", "piqp"}
# Clarabel says "almost infeasible" to this one, and almost is not enough.
CANNOT_TELL_CASE = {("clarabel", "qp", "contradicting equalities")}

CURVED = {"H": np.diag([1.0, 0.0])}
HOPELESS: dict[str, tuple[list[float], dict[str, Any], Status]] = {
    "contradicting rows": ([1.0, -2.0], {"G": [[1, 1], [-1, -1]], "h": [1, -2], "lb": [-9, -9]}, Status.INFEASIBLE),
    "contradicting equalities": ([1.0, 2.0], {"A": [[1, 1], [1, 1]], "b": [1, 2], "lb": [0, 0]}, Status.INFEASIBLE),
    "row against bounds": ([1.0, 2.0], {"A": [[1, 1]], "b": [5], "lb": [0, 0], "ub": [1, 1]}, Status.INFEASIBLE),
    "contradicting zero row": ([1.0, 2.0], {"A": [[0, 0]], "b": [1], "lb": [0, 0]}, Status.INFEASIBLE),
    "open below": ([1.0, -2.0], {"lb": [0, 0]}, Status.UNBOUNDED),
    "open below a row": ([1.0, -2.0], {"G": [[1, -1]], "h": [1], "lb": [0, 0]}, Status.UNBOUNDED),
    "open everywhere": ([1.0, -2.0], {}, Status.UNBOUNDED),
}


@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize(("backend", "kind"), [(b, k) for k in ("lp", "qp") for b in able(k)])
def test_hopeless_samples_have_a_fate_and_no_answer(backend: str, kind: str, name: str) -> None:
    c, fields, expected = HOPELESS[name]
    candidate = get(backend).solve(program(c, **fields, **(CURVED if kind == "qp" else {})), TOL)
    lenient = backend in CANNOT_TELL or (backend, kind, name) in CANNOT_TELL_CASE
    assert candidate.status.tolist() in ([[expected], [Status.INACCURATE]] if lenient else [[expected]])
    if candidate.status.tolist() == [expected]:
        assert bool(candidate.x.isnan().all())
        assert bool(candidate.duals.bound.isnan().all())


@pytest.mark.parametrize("backend", COMPILED)
def test_data_alone_can_settle_the_status(backend: str) -> None:
    nan = float("nan")
    qp = program(
        np.ones((6, 1)),
        H=[[1.0]] if "qp" in get(backend).kinds else None,
        A=[[0.0]],
        b=[[0], [0], [0], [INF], [0], [0]],
        G=[[1.0]],
        h=[[9], [-INF], [9], [9], [nan], [9]],
        lb=[[0], [0], [2], [0], [0], [0]],
        ub=[1.0],
    )
    statuses = [
        Status.SOLVED,
        Status.INFEASIBLE,
        Status.INFEASIBLE,
        Status.NOT_FINITE,
        Status.NOT_FINITE,
        Status.SOLVED,
    ]
    assert get(backend).solve(qp, TOL).status.tolist() == statuses


@pytest.mark.parametrize(("backend", "kind"), [(b, k) for k in ("lp", "qp") for b in able(k)])
def test_a_bad_sample_leaves_its_neighbours_alone(backend: str, kind: str) -> None:
    fields = {"A": [[1.0, 1.0]], "b": [[1.0], [5.0], [1.5]], "lb": [0, 0], "ub": [1, 1]}
    qp = program([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]], H=np.eye(2) if kind == "qp" else None, **fields)
    candidate = get(backend).solve(qp, TOL)
    assert candidate.status.tolist() in ([0, Status.INFEASIBLE, 0], [0, Status.INACCURATE, 0])
    good = torch.tensor([0, 2])
    assert residual(qp[good], candidate[good]).max() < 10 * TOL


@pytest.mark.parametrize(("backend", "kind"), [(b.name, k) for b in available() for k in b.kinds])
def test_empty_batch(backend: str, kind: str) -> None:
    fields = {"H": np.eye(3) if kind == "qp" else None, "A": np.ones((1, 3)), "b": [1.0], "lb": np.zeros(3)}
    qp = program(np.zeros((0, 3)), **fields, integer=[True, False, True] if kind == "milp" else None)
    candidate = get(backend).solve(qp, TOL)
    assert (candidate.x.shape, candidate.duals.equality.shape, candidate.status.shape) == ((0, 3), (0, 1), (0,))


def best_by_enumeration(qp: QuadraticProgram, highest: int) -> list[float]:
    points = np.array(list(itertools.product(range(highest + 1), repeat=qp.n)), dtype=float)
    values = []
    for i in range(qp.batch):
        one = qp[i : i + 1]
        feasible = (points @ one.G[0].numpy().T <= one.h[0].numpy()).all(1)
        feasible &= (points @ one.A[0].numpy().T == one.b[0].numpy()).all(1)
        values.append((points[feasible] @ one.c[0].numpy()).min())
    return values


@pytest.mark.parametrize("backend", able("milp"))
def test_integer_optima_are_proven(backend: str) -> None:
    # One item is worth a million and always taken: at HiGHS's own gap of 1e-4 any packing of the rest would do.
    rng = np.random.default_rng(3)
    weights, values = rng.integers(20, 60, (2, 10)).astype(float), rng.integers(10, 60, (6, 10)).astype(float)
    weights[:, 0], values[:, 0] = 0.0, 1e6
    fields = {"h": weights.sum(1) / 2, "lb": np.eye(10)[0], "ub": np.ones(10), "integer": [True] * 10}
    qp = program(-values, G=weights, **fields)
    candidate = get(backend).solve(qp, TOL)
    assert candidate.status.tolist() == [Status.SOLVED] * 6
    np.testing.assert_allclose((qp.c * candidate.x).sum(1), best_by_enumeration(qp, 1), atol=1e-3, rtol=0)
    np.testing.assert_allclose(candidate.x, candidate.x.round(), atol=1e-6)
    assert not candidate.duals.inequality.any()
    assert not candidate.duals.bound.any()
    order = torch.arange(6).flip(0)
    assert same(get(backend).solve(qp[order], TOL), candidate[order])
    assert same(get(backend).solve(qp[2:3], TOL), candidate[2:3])


@pytest.mark.parametrize("backend", BRANCH_AND_CUT)
def test_integers_with_own_rows_and_equalities(backend: str) -> None:
    rng = np.random.default_rng(4)
    G, h = rng.integers(1, 5, (4, 2, 3)), rng.integers(6, 12, (4, 2)).astype(float)
    h[1, 0] = INF
    box = {"lb": np.zeros(3), "ub": np.full(3, 4.0), "integer": [True] * 3}
    qp = program(rng.normal(size=(4, 3)), A=[[1, 1, -1]], b=[[0], [1], [0], [2]], G=G, h=h, **box)
    candidate = get(backend).solve(qp, TOL)
    np.testing.assert_allclose((qp.c * candidate.x).sum(1), best_by_enumeration(qp, 4), atol=1e-6)


@pytest.mark.parametrize("backend", BRANCH_AND_CUT)
def test_only_the_integer_variables_are_integer(backend: str) -> None:
    qp = program([-1.0, -1.0], G=[[1, 0], [0, 1]], h=[1.5, 1.5], integer=[True, False])
    np.testing.assert_allclose(get(backend).solve(qp, TOL).x, [[1.0, 1.5]], atol=1e-6)


@pytest.mark.parametrize("backend", BRANCH_AND_CUT)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"lb": [0.2, 0.0], "ub": [0.8, 1.0]}, Status.INFEASIBLE),
        ({"A": [[2, -2]], "b": [1], "lb": [0, 0]}, Status.INFEASIBLE),
        ({"G": [[1, -1], [-1, 1]], "h": [-1, -1], "lb": [0, 0]}, Status.INFEASIBLE),
        ({"lb": [0, 0]}, Status.UNBOUNDED),
        ({"G": [[1, -1]], "h": [1], "lb": [0, 0]}, Status.UNBOUNDED),
    ],
)
def test_hopeless_integer_programs(backend: str, fields: dict[str, Any], expected: Status) -> None:
    candidate = get(backend).solve(program([-1.0, -2.0], **fields, integer=[True, True]), TOL)
    assert candidate.status.tolist() == [expected]
    assert bool(candidate.x.isnan().all())


def test_osqp_out_of_iterations_keeps_its_best_point() -> None:
    pytest.importorskip("osqp")
    qp = build("lp", "knapsack")
    candidate = get("osqp").solve(qp, 1e-30)
    assert Status.INACCURATE in candidate.status.tolist()
    assert residual(qp, candidate).max() < 1e-6


def test_highs_runs_beside_models_with_more_threads() -> None:
    highspy = pytest.importorskip("highspy")
    highspy.Highs.resetGlobalScheduler(True)
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)
    other.setOptionValue("threads", 2)
    other.addVar(0.0, 1.0)
    assert other.run() == highspy.HighsStatus.kOk
    qp = build("lp", "box")
    candidate = get("highs").solve(qp, TOL)
    assert candidate.status.tolist() == [Status.SOLVED] * qp.batch


@pytest.mark.parametrize("error", ["ProblemError", "SolverError"])
def test_an_error_inside_qpsolvers_costs_one_sample(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    qpsolvers = pytest.importorskip("qpsolvers")
    pytest.importorskip("daqp")
    qp, real = build("qp", "box"), qpsolvers.solve_problem

    def fails_on_second(problem: Any, *args: Any, **kwargs: Any) -> Any:
        if np.array_equal(problem.q, qp.c[1].numpy()):
            raise getattr(qpsolvers.exceptions, error)("no")
        return real(problem, *args, **kwargs)

    monkeypatch.setattr(qpsolvers, "solve_problem", fails_on_second)
    candidate = get("daqp").solve(qp, TOL)
    assert candidate.status.tolist() == [0, Status.INACCURATE, 0, 0, 0]
    assert candidate.x.isnan().all(1).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("backend", ["qpsolvers:osqp", "qpsolvers:highs", "qpsolvers:daqp"])
def test_any_solver_of_qpsolvers_can_be_named(backend: str) -> None:
    qpsolvers = pytest.importorskip("qpsolvers")
    if get(backend).options["name"] not in qpsolvers.available_solvers:
        pytest.skip("not installed")
    for qp in (build("qp", "own right-hand sides"), program([[1.0, 2.0], [0.0, 1.0]], H=np.eye(2))):
        candidate = get(backend).solve(qp, TOL)
        assert candidate.status.tolist() == [Status.SOLVED] * qp.batch
        assert residual(qp, candidate).max() < 10 * TOL


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("backend", able("lp"))
def test_answers_return_to_the_device_of_the_costs(backend: str) -> None:
    qp = build("qp" if "qp" in get(backend).kinds else "lp", "box")
    names = ("H", "c", "A", "b", "G", "h", "lb", "ub")
    there = QuadraticProgram(**{name: getattr(qp, name).cuda() for name in names})
    candidate = get(backend).solve(there, TOL)
    assert candidate.x.device == candidate.duals.bound.device == candidate.status.device == there.c.device
    assert residual(qp, candidate.to("cpu")).max() < 10 * TOL


def test_costs_that_carry_gradients_are_welcome() -> None:
    qp = program([1.0, -1.0], lb=[0, 0], ub=[1, 1])
    candidate = get("scipy").solve(replace(qp, c=qp.c.clone().requires_grad_()), TOL)
    assert candidate.x.tolist() == [[0.0, 1.0]]


# ------------------------------------------------------------------------------------------------------- registry


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in missing else real(name, *a))


def test_names_are_unique_and_the_built_in_solver_comes_first() -> None:
    names = [backend.name for backend in BACKENDS]
    assert names[:2] == ["active-set", "interior-point"]
    assert len(set(names)) == len(names)
    assert {"interior-point", "scipy"} <= set(INSTALLED)


def test_the_old_name_of_the_interior_point_says_the_new_one() -> None:
    with pytest.raises(UnknownSolverError, match="'pear' is now called 'interior-point'"):
        get("pear")


def test_unknown_name() -> None:
    listing = (
        "There are auto, active-set, interior-point, binary, highs, scipy, clarabel, daqp, piqp, osqp, proxqp, "
        "and qpsolvers:NAME for any other solver of the qpsolvers package"
    )
    with pytest.raises(UnknownSolverError, match=re.escape(f"unknown solver 'OSPQ': did you mean 'osqp'? {listing}")):
        get("OSPQ")
    with pytest.raises(UnknownSolverError, match=re.escape(f"unknown solver 'gurobi': {listing}")):
        get("gurobi")
    with pytest.raises(UnknownSolverError, match="unknown solver 'qpsolvers:'"):
        get("qpsolvers:")


def test_unknown_name_within_qpsolvers() -> None:
    pytest.importorskip("qpsolvers")
    with pytest.raises(UnknownSolverError, match=r"qpsolvers has no solver 'nosuch' here; it has .*daqp"):
        get("qpsolvers:nosuch").solve(build("qp", "box"), TOL)


def test_wrong_kind() -> None:
    able = "active-set, interior-point, clarabel, daqp, piqp, osqp"
    message = f"solver 'highs' solves problems of kind lp and milp, not qp: use one of {able}"
    with pytest.raises(UnknownSolverError, match=message):
        check(get("highs"), "qp")
    with pytest.raises(
        UnknownSolverError, match=r"solver 'interior-point' solves .* not milp: use one of binary, highs, scipy"
    ):
        get("interior-point").solve(program([1.0], lb=[0], ub=[1], integer=[True]), TOL)
    with pytest.raises(UnknownSolverError, match=r"solver 'scipy' solves .* not miqp: no solver here can"):
        get("scipy").solve(program([1.0], H=[[1.0]], integer=[True]), TOL)


def test_kinds() -> None:
    assert kind_of(program([1.0])) == "lp"
    assert kind_of(program([1.0], integer=[False])) == "lp"
    assert kind_of(program([1.0], H=[[1.0]])) == "qp"
    assert kind_of(program([1.0], integer=[True])) == "milp"
    assert kind_of(program([1.0], H=[[1.0]], integer=[True])) == "miqp"


def test_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row of the table that takes the problem, and is installed."""
    integers = program([1.0], lb=[0], ub=[3], integer=[True])
    assert choose("qp").name == choose("lp").name == "active-set"
    assert choose("qp", sparse=True).name == choose("lp", sparse=True).name == "interior-point"
    assert choose("milp").name == "binary"
    without(monkeypatch, "highspy")
    assert choose("milp", sparse=True).name == "scipy"
    assert "highs" not in [row.name for row in usable_backends(resolve("auto", "milp"), integers)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert choose("milp", sparse=True).name == "highs"
    with pytest.raises(UnknownSolverError, match="miqp"):
        choose("miqp")


def test_resolve() -> None:
    """The one that is asked for first, then all others that can, each once."""
    assert resolve("auto", "qp")[0].name == "active-set"
    names = [row.name for row in resolve("osqp", "qp")]
    assert names[:3] == ["osqp", "active-set", "interior-point"]
    assert len(set(names)) == len(names)
    with pytest.raises(UnknownSolverError, match="'proxqp' solves problems of kind qp, not lp"):
        resolve("proxqp", "lp")
    with pytest.raises(UnknownSolverError, match=r"'daqp' takes dense matrices only.*leave it to solver='auto'"):
        resolve("daqp", "qp", sparse=True)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "osqp", "daqp", "qpsolvers")
    assert not {"osqp", "daqp", "piqp"} & {backend.name for backend in available()}
    message = "solver 'osqp' needs the package osqp, not installed here; run pip install 'pear-dfl[osqp]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        get("osqp").solve(build("qp", "box"), TOL)
    message = "needs the packages qpsolvers and daqp, not installed here; run pip install 'pear-dfl[qpsolvers]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        get("daqp").solve(build("qp", "box"), TOL)


def test_a_row_without_packages_is_always_there() -> None:
    backend = Backend("mine", "pear.solvers.adapters.scipy")
    assert backend.installed
    assert backend.how_to_install == "always there"

"""Hard instances: the first solvers asked solve degenerate models in mixed units in few iterations."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from numpy_residual import solution_residual
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import linprog

import pear
from pear.solvers.active_set import active_set_solver as active_set
from pear.solvers.active_set import compiled_pass
from pear.solvers.backend_registry import Backend
from pear.solvers.interior_point.sparse_iterates import SparseIterates
from pear_lab.benchmarks.hard_models import HardModel, draw_hard_models

INSTANCES = {instance.name: instance for instance in draw_hard_models(quick=True)}
SMALLEST = [next(name for name in INSTANCES if name.startswith(kind)) for kind in ("transport", "blending", "flows")]
COUPLED = [name for name in INSTANCES if name.endswith("coupled")]


def in_units(instance: HardModel, spread: float, seed: int = 0) -> HardModel:
    """Return the same model with random units of rows and variables, over 2 × ``spread`` powers of ten."""
    rng, n = np.random.default_rng(seed), len(instance.q)
    unit = 10.0 ** rng.uniform(-spread, spread, n)
    row = np.concatenate([10.0 ** rng.uniform(-spread, spread, instance.A.shape[0] - n), 1 / unit])
    by_unit = sparse.diags_array(unit)
    return HardModel(
        instance.name,
        sparse.csc_array(by_unit @ instance.P @ by_unit),
        instance.q * unit,
        sparse.csc_array(sparse.diags_array(row) @ instance.A @ by_unit),
        instance.l * row,
        instance.u * row,
    )


def solved(instance: HardModel, **options: Any) -> tuple[pear.Problem, torch.Tensor, pear.Solution]:
    """Solve one instance as a dense problem, and check the residuals of the answer in numpy."""
    problem, cost = instance.as_dense_problem()
    costs = torch.from_numpy(cost)[None]
    solution = pear.solve(problem, costs, **options)
    smoothing = options.get("smoothing", 0.0)
    assert solution_residual(problem, costs, solution.x, solution.duals, smoothing) <= 1e-9
    return problem, costs, solution


def array(value: torch.Tensor | None) -> np.ndarray[Any, Any]:
    """Return a field that is not None, in numpy."""
    assert value is not None
    return value.numpy()


# -- the generator -----------------------------------------------------------------------------------------------------


def test_instances_are_reproducible_and_of_the_sizes_they_claim() -> None:
    again = draw_hard_models(quick=True)
    assert len(again) == len(INSTANCES) == 12
    for instance in again:
        first = INSTANCES[instance.name]
        assert np.array_equal(first.q, instance.q)
        assert np.array_equal(first.A.toarray(), instance.A.toarray())
    assert all(len(instance.q) <= 400 for instance in again)
    assert all(300 <= len(instance.q) <= 2200 for instance in draw_hard_models())


@pytest.mark.parametrize("name", INSTANCES)
def test_instances_are_degenerate_and_badly_scaled(name: str) -> None:
    problem = INSTANCES[name].as_dense_problem()[0]
    A = array(problem.A)
    assert np.linalg.matrix_rank(A / np.linalg.norm(A, axis=1, keepdims=True)) < len(A)
    assert (array(problem.lb) == array(problem.ub)).any()
    entries = np.abs(INSTANCES[name].A.data)
    assert entries.max() / entries[entries > 0].min() >= 1e4
    eigenvalues = np.linalg.eigvalsh(INSTANCES[name].P.toarray())
    assert eigenvalues.min() >= -1e-9 * max(eigenvalues.max(), 1.0)


# -- decisions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SMALLEST, *COUPLED])
def test_hard_models_are_solved(name: str) -> None:
    _, _, solution = solved(INSTANCES[name])
    assert solution.kkt_residual.item() <= 1e-9


@pytest.mark.parametrize("name", SMALLEST)
def test_linear_models_reach_the_optimum_of_another_solver(name: str) -> None:
    problem, costs, solution = solved(INSTANCES[name])
    G, h, A, b, lb, ub = (array(getattr(problem, name)) for name in ("G", "h", "A", "b", "lb", "ub"))
    found = linprog(costs[0].numpy(), G, h, A, b, np.column_stack([lb, ub]))
    assert solution.value.item() == pytest.approx(found.fun, rel=1e-7)


@pytest.mark.parametrize("name", [SMALLEST[1], *COUPLED])
def test_units_of_rows_and_variables_do_not_matter(name: str) -> None:
    """Units that differ by a factor of a million change neither status nor value."""
    _, _, expected = solved(INSTANCES[name])
    _, _, solution = solved(in_units(INSTANCES[name], 3.0))
    assert solution.value.item() == pytest.approx(expected.value.item(), rel=1e-9)


def test_no_solver_beyond_the_first_two_is_asked_and_iterations_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, methods = [], []
    solve, begin = Backend.solve, SparseIterates.__init__

    def counted(self: Backend, *args: Any, **options: Any) -> Any:
        asked.append(self.name)
        return solve(self, *args, **options)

    def noted(self: SparseIterates, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        methods.append(self)

    monkeypatch.setattr(Backend, "solve", counted)
    monkeypatch.setattr(SparseIterates, "__init__", noted)
    for name in COUPLED:
        solved(in_units(INSTANCES[name], 2.0))
    assert set(asked) <= {"active-set", "interior-point"}
    assert methods
    assert max(method.iterations for method in methods) <= 30


def test_a_batch_equals_single_solves() -> None:
    problem, cost = INSTANCES[COUPLED[1]].as_dense_problem()
    costs = torch.from_numpy(cost * np.random.default_rng(0).uniform(0.8, 1.2, (3, len(cost))))
    together = pear.solve(problem, costs, smoothing=0.1)
    for i in range(3):
        torch.testing.assert_close(pear.solve(problem, costs[i : i + 1], smoothing=0.1).x[0], together.x[i])


@pytest.mark.parametrize("name", [name for name in COUPLED if not name.startswith("blending")])  # decides at a vertex
def test_regret_gradient_agrees_with_a_null_space(name: str) -> None:
    instance, smoothing = INSTANCES[name], 0.1
    problem, costs, solution = solved(instance, smoothing=smoothing)
    true = costs * torch.from_numpy(np.random.default_rng(1).uniform(0.5, 1.5, costs.shape))
    gradient = pear.regret_gradient(problem, costs, true, smoothing=smoothing)[0].numpy()
    free = ~(solution.active.lower | solution.active.upper)[0].numpy()
    J = np.vstack([array(problem.A), array(problem.G)[solution.active.rows[0].numpy()]])[:, free]
    H = (instance.P.toarray() + smoothing * np.eye(len(free)))[np.ix_(free, free)]
    unit = 1 / np.sqrt(np.diag(H))  # units in which the rank can be seen
    J = J * unit
    J = J[J.any(1)]
    Z = unit[:, None] * null_space(J / np.linalg.norm(J, axis=1, keepdims=True), rcond=1e-9)
    expected = np.zeros_like(gradient)
    expected[free] = Z @ np.linalg.solve(Z.T @ H @ Z, Z.T @ (costs - true)[0].numpy()[free])
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(gradient, expected, atol=1e-10 * np.abs(expected).max())


# -- dense programs on their non-zeros ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "share", "taken"), [(149, 0.02, True), (150, 0.02, False), (150, 1.0, True)])
def test_linear_programs_with_many_rows_of_few_nonzeros_are_not_for_the_active_set(
    rows: int, share: float, taken: bool
) -> None:
    random = np.random.default_rng(0)
    G = random.normal(size=(rows, 400)) * (random.random((rows, 400)) < share)
    problem = pear.Problem(G=G, h=np.ones(rows), lb=0.0, ub=1.0)
    linear, curved = (problem.canonical(torch.ones(1, 400).double(), smoothing) for smoothing in (0.0, 1.0))
    assert active_set.supports(linear) is taken
    assert active_set.supports(curved)  # training goes on with it


def test_dense_programs_of_few_nonzeros_have_a_sparse_form() -> None:
    problem, cost = INSTANCES[COUPLED[0]].as_dense_problem()
    qp = problem.canonical(torch.from_numpy(cost)[None], 0.1)
    sparse_qp = qp.sparse_form()
    assert sparse_qp.is_sparse
    for name in ("H", "A", "G"):
        assert np.array_equal(getattr(sparse_qp, name).csr.toarray(), getattr(qp, name)[0].numpy())
    # another curvature on the same constraints is not taken for the first
    other = problem.canonical(torch.from_numpy(cost)[None], 0.2).sparse_form()
    assert other is not None
    assert (other.H.csr - sparse_qp.H.csr).diagonal() == pytest.approx(0.1)


@pytest.mark.parametrize(
    "fields", [{"Q": np.ones((120, 120)) + np.eye(120)}, {"lb": 0.0, "n": 20}, {"A": np.eye(120)[None].repeat(2, 0)}]
)
def test_small_dense_and_differing_programs_have_none(fields: dict[str, Any]) -> None:
    if "A" in fields:
        fields = fields | {"b": np.zeros((2, 120))}
    problem = pear.Problem(**fields)
    assert problem.canonical(torch.zeros(2, problem.n, dtype=torch.float64), 0.1).sparse_form() is None


@pytest.mark.parametrize(
    ("curvature", "smoothing", "calls"),
    [(np.eye(500), 0.0, 0), (None, 0.1, 0), (None, 0.0, 1), (np.ones((500, 500)), 0.1, 1)],
)
def test_the_compiled_pass_leaves_what_its_solver_leaves(
    curvature: Any, smoothing: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large curved programs with few non-zeros go to sparse solvers, and not to the compiled pass."""
    problem = pear.Problem(Q=curvature, lb=0, ub=1, n=500)
    cost = torch.linspace(-1, 1.5, 500, dtype=torch.float64)[None].requires_grad_()
    counted = []

    class BegunError(Exception):
        """The compiled pass was begun."""

    def begun(*args: Any) -> None:
        counted.append(args)
        raise BegunError

    for name in ("call_kernel_to_solve", "call_kernel_for_regrets"):
        monkeypatch.setattr(compiled_pass.kernel_calls, name, begun)
    layer, loss = pear.DecisionLayer(problem, smoothing), pear.PEARLoss(problem, smoothing, guidance=0.0, injection=0.1)
    for call in (lambda: layer(cost, keys=[0]), lambda: loss(cost, 2 * cost.detach(), keys=[0])):
        for _ in range(2):
            with pytest.raises(BegunError) if calls else nullcontext():
                call()
    assert len(counted) == 4 * calls
    if not calls:  # z = −c/λ within the bounds
        assert torch.allclose(layer(cost), (-cost / (smoothing or 1.0)).clamp(0, 1), atol=1e-9)

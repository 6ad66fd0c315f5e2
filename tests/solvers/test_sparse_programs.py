"""Large sparse problems: the same results as the dense path, and no dense matrix on the way."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import pear
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.problem.matrix import SparseMatrix
from pear.sensitivity.sparse_reduced_systems import SparseReducedSystems
from pear.solvers.backend_registry import get_backend
from pear.solvers.exchanges import exchange_plan
from pear.solvers.linalg import saddle as sparse_kkt
from pear.solvers.linalg.ldl import SymbolicLDL

EXACT = 1e-9
n, BATCH = 60, 5


def costs(seed: int = 0, batch: int = BATCH, size: int = n) -> torch.Tensor:
    return torch.randn(batch, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def both(**fields: Any) -> tuple[pear.Problem, pear.Problem]:
    """Return the same problem in sparse and in dense form."""
    dense = {name: v.toarray() if sparse.issparse(v) else v for name, v in fields.items()}
    thin, thick = pear.Problem(**fields), pear.Problem(**dense)
    assert thin.is_sparse
    assert not thick.is_sparse
    return thin, thick


def rows(count: int, rng: np.random.Generator) -> sparse.csr_array:
    return sparse.csr_array(sparse.random_array((count, n), density=0.15, rng=rng, data_sampler=rng.standard_normal))


def coupled(rng: np.random.Generator) -> sparse.csr_array:
    factor = sparse.random_array((n, n), density=0.05, rng=rng, data_sampler=rng.standard_normal)
    return sparse.csr_array(factor @ factor.T + 0.1 * sparse.eye_array(n))


def constraints(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    A, G, inside = rows(6, rng), rows(15, rng), rng.uniform(0, 1, n)
    return {"A": A, "b": A @ inside, "G": G, "h": G @ inside + rng.uniform(0, 0.2, 15), "lb": 0.0, "ub": 1.0}


def grid(size: int) -> dict[str, Any]:
    graph = pear.tasks.shortest_path((size, size)).graph
    supply = np.zeros(graph.nodes)
    supply[0], supply[-1] = 1.0, -1.0
    return {"A": graph.incidence(), "b": supply, "lb": 0.0}


ZOO: dict[str, tuple[dict[str, Any], float]] = {
    "qp": (constraints(0) | {"Q": coupled(np.random.default_rng(10))}, 0.0),
    "qp max": (constraints(1) | {"Q": -coupled(np.random.default_rng(11)), "sense": "max"}, 0.0),
    "singular qp": (constraints(2) | {"Q": sparse.diags_array(np.repeat([1.0, 0.0], n // 2)).tocsr()}, 0.0),
    "smoothed lp": (constraints(3), 0.1),
    "lp": (constraints(4), 0.0),
    "grid": (grid(6), 0.1),
    "grid lp": (grid(6), 0.0),
    "no rows": ({"Q": coupled(np.random.default_rng(12)), "lb": -1.0, "ub": 1.0}, 0.0),
    "no bounds": ({"Q": coupled(np.random.default_rng(13)), "A": constraints(5)["A"], "b": constraints(5)["b"]}, 0.0),
    "rows in odd units": (
        constraints(6)
        | {"A": 1e5 * constraints(6)["A"], "b": 1e5 * constraints(6)["b"]}
        | {"G": 1e-4 * constraints(6)["G"], "h": 1e-4 * constraints(6)["h"]},
        0.1,
    ),
    "pinned variables": (
        {"A": sparse.csr_array(np.ones((1, n))), "b": [n / 2], "ub": 1.0, "lb": np.where(np.arange(n) < 5, 1.0, 0.0)},
        0.1,
    ),
    "huge limits": (constraints(8) | {"ub": np.where(np.arange(n) < 3, 1e9, 1.0)}, 0.1),
    "a row twice": (
        constraints(9) | {"A": sparse.vstack([constraints(9)["A"]] * 2).tocsr(), "b": np.tile(constraints(9)["b"], 2)},
        0.1,
    ),
}


@pytest.mark.usefixtures("keep_small_ones_sparse")
class TestAgainstDense:
    @pytest.mark.parametrize("case", ZOO)
    def test_solutions_and_gradients_are_equal(self, case: str) -> None:
        fields, smoothing = ZOO[case]
        thin, thick = both(**fields)
        c, other = costs(0), costs(1)
        if "grid" in case:
            c, other = c.abs(), other.abs()
        mine, theirs = (pear.solve(p, c, smoothing=smoothing) for p in (thin, thick))
        assert float(mine.kkt_residual.max()) <= EXACT
        assert torch.allclose(mine.value, theirs.value, rtol=EXACT, atol=EXACT)
        assert torch.allclose(mine.x, theirs.x, rtol=0, atol=EXACT)
        assert bool(mine.active.same(theirs.active).all())
        g = [pear.regret_gradient(p, c, other, smoothing=smoothing) for p in (thin, thick)]
        assert torch.allclose(*g, rtol=EXACT, atol=EXACT * (1 + float(g[1].abs().max())))

    @pytest.mark.parametrize("case", ["qp", "smoothed lp", "grid"])
    def test_loss_and_injection_are_equal(self, case: str) -> None:
        fields, smoothing = ZOO[case]
        grads, values = [], []
        for problem in both(**fields):
            predicted = costs(0).abs().requires_grad_()
            value = pear.PEARLoss(problem, smoothing=smoothing, injection=0.3, guidance=0.0)(predicted, costs(1).abs())
            value.backward()
            grads.append(predicted.grad)
            values.append(float(value.detach()))
        assert values[0] == pytest.approx(values[1], rel=EXACT)
        assert torch.allclose(*grads, rtol=EXACT, atol=EXACT)

    def test_degenerate_grid(self) -> None:
        """With equal costs, all paths tie."""
        thin, thick = both(**grid(6))
        c = torch.ones(2, n, dtype=torch.float64)
        c[1] = torch.arange(n) % 3
        mine, theirs = (pear.solve(p, c, smoothing=0.1) for p in (thin, thick))
        assert torch.allclose(mine.x, theirs.x, rtol=0, atol=EXACT)
        assert bool(mine.active.same(theirs.active).all())
        g = [pear.regret_gradient(p, c, costs(1, 2), smoothing=0.1) for p in (thin, thick)]
        assert torch.allclose(*g, rtol=0, atol=EXACT * float(g[1].abs().max()))

    def test_of_several_solutions_of_an_lp_a_vertex_is_found(self) -> None:
        thin, _ = both(**grid(6))
        z = pear.solve(thin, torch.ones(1, n, dtype=torch.float64)).x
        assert torch.allclose(z, z.round(), atol=EXACT)
        assert float(z.sum()) == pytest.approx(10.0)

    def test_vectors_per_sample(self) -> None:
        fields = constraints(0)
        shift = np.random.default_rng(0).uniform(0, 0.05, (BATCH, 1))
        fields |= {"b": np.tile(fields["b"], (BATCH, 1)), "h": fields["h"] + shift, "ub": np.ones((BATCH, n)) + shift}
        thin, thick = both(**fields)
        assert thin.batch == BATCH
        mine, theirs = (pear.solve(p, costs(), smoothing=0.1) for p in (thin, thick))
        assert torch.allclose(mine.x, theirs.x, rtol=0, atol=EXACT)
        keys = torch.tensor([3, 1])
        value = [
            pear.PEARLoss(p, smoothing=0.1, guidance=0.0, injection=0.1)(costs()[keys], costs(1)[keys], keys=keys)
            for p in (thin, thick)
        ]
        assert float(value[0]) == pytest.approx(float(value[1]), rel=EXACT)

    def test_a_batch_equals_a_loop_of_singles(self) -> None:
        thin, _ = both(**ZOO["qp"][0])
        whole = pear.solve(thin, costs()).x
        assert all(torch.equal(whole[i], pear.solve(thin, costs()[i]).x[0]) for i in range(BATCH))

    def test_threads_change_nothing(self) -> None:
        thin, _ = both(**ZOO["grid"][0])
        threads = torch.get_num_threads()
        results = []
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                results.append(pear.regret_gradient(thin, costs(), costs(1)))
        finally:
            torch.set_num_threads(threads)
        assert torch.equal(*results)

    def test_the_layer_has_the_same_derivatives(self) -> None:
        grads: list[list[torch.Tensor]] = []
        for problem in both(**ZOO["qp"][0]):
            assert problem.b is not None
            assert problem.h is not None
            inputs = [costs(), problem.b.clone(), problem.h.clone(), torch.zeros(n).double(), torch.ones(n).double()]
            c, b, h, lb, ub = (value.requires_grad_() for value in inputs)
            pear.DecisionLayer(problem)(c, b=b, h=h, lb=lb, ub=ub).square().sum().backward()
            grads.append([v.grad for v in (c, b, h, lb, ub) if v.grad is not None])
        assert len(grads[0]) == 5
        assert all(torch.allclose(a, b, rtol=1e-8, atol=1e-8) for a, b in zip(*grads, strict=True))

    def test_integer_programs(self) -> None:
        fields = constraints(0)
        knapsack = {"G": abs(fields["G"]), "h": np.full(15, 3.0), "lb": 0, "ub": 1, "sense": "max", "integer": True}
        thin, thick = both(**knapsack)
        mine, theirs = (pear.solve(p, costs().abs()) for p in (thin, thick))
        assert torch.allclose(mine.value, theirs.value)
        assert pear.normalized_regret(thin, costs(1).abs(), costs().abs()) >= 0

    @pytest.mark.parametrize("solver", ["interior-point", "osqp", "clarabel", "piqp"])
    def test_named_solvers_of_qps(self, solver: str) -> None:
        thin, thick = both(**ZOO["smoothed lp"][0])
        mine, theirs = (
            pear.solve(thin, costs(), smoothing=0.1, solver=solver),
            pear.solve(thick, costs(), smoothing=0.1),
        )
        assert torch.allclose(mine.x, theirs.x, rtol=0, atol=EXACT)

    @pytest.mark.parametrize("solver", ["interior-point", "highs", "scipy"])
    def test_named_solvers_of_lps(self, solver: str) -> None:
        thin, thick = both(**ZOO["lp"][0])
        mine, theirs = pear.solve(thin, costs(), solver=solver), pear.solve(thick, costs())
        assert torch.allclose(mine.x, theirs.x, rtol=0, atol=EXACT)

    def test_conjugate_gradients(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If a factorisation would be too expensive, conjugate gradients reach the same accuracy."""
        thin, thick = both(**ZOO["qp"][0])
        monkeypatch.setattr(sparse_kkt, "_CHEAP", 0.0)
        mine, theirs = pear.solve(thin, costs()), pear.solve(thick, costs())
        qp = thin.canonical(costs())
        assert qp.is_sparse
        assert not qp.plan["interior"][0].direct
        assert torch.allclose(mine.x, theirs.x, rtol=0, atol=EXACT)
        g = [pear.regret_gradient(p, costs(), costs(1), smoothing=0.0, injection=0.2) for p in (thin, thick)]
        assert torch.allclose(*g, rtol=EXACT, atol=EXACT)


@pytest.mark.usefixtures("keep_small_ones_sparse")
class TestDerivatives:
    @pytest.mark.parametrize("case", ["qp", "smoothed lp"])
    def test_regret_gradient_is_the_finite_difference(self, case: str) -> None:
        fields, smoothing = ZOO[case]
        thin, _ = both(**fields)
        loss = pear.PEARLoss(thin, smoothing=smoothing, injection=0.0, reduction="sum", guidance=0.0)
        c, true, step = costs(0, 1), costs(1, 1), 1e-5
        g = pear.regret_gradient(thin, c, true, smoothing=smoothing)
        directions = costs(2, 3)
        for d in directions:
            slope = float(loss(c + step * d, true) - loss(c - step * d, true)) / (2 * step)
            assert slope == pytest.approx(float((g * d).sum()), rel=1e-5, abs=1e-6)

    def test_the_objective_is_differentiable(self) -> None:
        thin, thick = both(**ZOO["qp"][0])
        grads = []
        for problem in (thin, thick):
            z = costs(3).requires_grad_()
            problem.objective(z, costs(), smoothing=0.2).sum().backward()
            grads.append(z.grad)
        assert torch.allclose(*grads)

    def test_no_derivative_where_the_decision_is_not_unique(self) -> None:
        thin, thick = both(**grid(6))
        c = torch.ones(1, n, dtype=torch.float64)
        for problem in (thin, thick):
            with pytest.raises(pear.NotUniqueError, match="not unique"):
                pear.regret_gradient(problem, c, costs(1, 1), smoothing=0.0)


@pytest.mark.usefixtures("keep_small_ones_sparse")
class TestFailures:
    def test_every_sample_has_its_own_fate(self) -> None:
        thin, thick = both(**ZOO["qp"][0])
        c = costs()
        c[1, 3] = torch.nan
        assert thin.h is not None
        h = thin.h.repeat(BATCH, 1)
        h[2] = -100.0
        outcomes = []
        for problem in (thin, thick):
            with pytest.warns(pear.FailedSamplesWarning, match="2 of 5"):
                outcomes.append(pear.solve(problem, c, on_failure="mask", h=h))
        assert outcomes[0].status.tolist() == outcomes[1].status.tolist() == [0, 4, 2, 0, 0]
        assert torch.allclose(outcomes[0].x, outcomes[1].x, rtol=0, atol=EXACT, equal_nan=True)

    def test_masked_samples_reach_nobody(self) -> None:
        thin, _ = both(**ZOO["smoothed lp"][0])
        predicted = costs()
        predicted[0, 0] = torch.inf
        predicted.requires_grad_()
        with pytest.warns(pear.FailedSamplesWarning):
            pear.PEARLoss(thin, on_failure="mask", guidance=0.0, smoothing=0.1, injection=0.1)(
                predicted, costs(1)
            ).backward()
        assert predicted.grad is not None
        assert bool(predicted.grad.isfinite().all())
        assert not bool(predicted.grad[0].any())
        assert bool(predicted.grad[1].any())

    def test_unbounded_crossed_and_not_convex(self) -> None:
        fields = constraints(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            free = pear.Problem(A=fields["A"], b=fields["b"])
            assert set(pear.solve(free, costs(), on_failure="mask").status.tolist()) == {int(pear.Status.UNBOUNDED)}
            thin, _ = both(**fields)
            crossed = pear.solve(thin, costs(), smoothing=0.1, on_failure="mask", lb=2.0)
            assert set(crossed.status.tolist()) == {int(pear.Status.INFEASIBLE)}
            saddle = sparse.diags_array([np.ones(n), np.full(n - 1, -2.0), np.full(n - 1, -2.0)], offsets=[0, 1, -1])
            bent = pear.Problem(Q=saddle.tocsr(), lb=0.0, ub=1.0)
            assert set(pear.solve(bent, costs(), on_failure="mask").status.tolist()) == {int(pear.Status.NOT_CONVEX)}

    def test_raising_names_the_samples(self) -> None:
        thin, _ = both(**ZOO["smoothed lp"][0])
        c = costs()
        c[3] = torch.nan
        with pytest.raises(pear.SolveError, match=r"sample 3 \(NOT_FINITE\)"):
            pear.solve(thin, c, smoothing=0.1)


@pytest.mark.usefixtures("keep_small_ones_sparse")
class TestMemory:
    def test_a_warm_start_is_verified_and_used_again(self) -> None:
        thin, _ = both(**grid(6))
        loss, keys = pear.PEARLoss(thin, guidance=0.0, smoothing=0.1, injection=0.1), torch.arange(BATCH)
        c, true = costs().abs(), costs(1).abs()
        loss(c, true, keys=keys)
        again = loss(c, true, keys=keys)
        assert loss.last is not None
        assert loss.last.reuse_rate == 1.0
        moved = loss(c * (1 + 0.01 * costs(2)), true, keys=keys)
        fresh = pear.PEARLoss(thin, guidance=0.0, smoothing=0.1, injection=0.1)(c * (1 + 0.01 * costs(2)), true)
        assert float(moved) == pytest.approx(float(fresh), rel=EXACT)
        assert float(loss.last.kkt_residual.max()) <= EXACT
        assert float(again) > 0

    def test_the_factor_of_the_forward_pass_serves_the_gradient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange_plan, "MOST_UNKNOWNS", 0)  # smaller systems are factored whole, and again
        thin, _ = both(**ZOO["smoothed lp"][0])
        verified = solve_continuous_programs(thin, costs(), 0.1, "auto")
        assert isinstance(verified.systems, SparseReducedSystems)
        assert all(system is not None for system in verified.systems.kept)


class TestWhatStaysSparse:
    def wide(self, columns: int = 2000) -> sparse.coo_array:
        return sparse.random_array((50, columns), density=0.01, rng=np.random.default_rng(0))

    def test_large_and_sparse(self) -> None:
        problem = pear.Problem(A=self.wide(), b=np.zeros(50), lb=0)
        assert problem.is_sparse
        assert isinstance(problem.A, SparseMatrix)
        assert repr(problem) == "Problem(min, n=2000, 50 equalities, bounds, sparse)"
        assert abs(problem.A.csr - self.wide()).max() == 0

    def test_torch_sparse_tensors(self) -> None:
        A = torch.from_numpy(self.wide().toarray()).to_sparse()
        problem = pear.Problem(A=A, b=np.zeros(50))
        assert isinstance(problem.A, SparseMatrix)
        assert abs(problem.A.csr - self.wide()).max() == 0

    def test_the_data_is_private(self) -> None:
        A = sparse.csr_array(self.wide())
        problem = pear.Problem(A=A, b=np.zeros(50))
        A.data[:] = np.nan
        assert isinstance(problem.A, SparseMatrix)
        assert bool(problem.A.isfinite())

    @pytest.mark.parametrize(
        "fields",
        [
            {"A": sparse.eye_array(100).tocsr(), "b": np.zeros(100)},
            {"A": np.eye(1000), "b": np.zeros(1000)},
            {"Q": sparse.csr_array(np.ones((1000, 1000)))},
            {"n": 2000, "lb": 0},
        ],
        ids=["small", "dense", "full", "bounds alone"],
    )
    def test_what_becomes_dense(self, fields: dict[str, Any]) -> None:
        assert not pear.Problem(**fields).is_sparse

    def test_bounds_alone_may_be_many(self) -> None:
        solution = pear.solve(pear.Problem(n=50_000, lb=0.0, ub=1.0), -torch.ones(1, 50_000), smoothing=0.5)
        assert bool((solution.x == 1).all())

    def test_per_sample_matrices_are_dense_or_refused(self) -> None:
        stack = torch.stack([torch.eye(1200)] * 2).to_sparse()
        assert not pear.Problem(A=stack, b=np.zeros(1200)).is_sparse

    def test_messages(self) -> None:
        problem = pear.Problem(A=self.wide(), b=np.zeros(50), lb=0)
        with pytest.raises(pear.ProblemError, match="a sparse problem lives on the CPU and cannot go to meta"):
            problem.to("meta")
        with pytest.raises(pear.ProblemError, match="the matrices of a sparse problem are fixed"):
            pear.solve(problem, torch.zeros(1, 2000), A=self.wide())
        with pytest.raises(pear.UnknownSolverError, match="solver 'daqp' takes dense matrices only"):
            pear.solve(problem, torch.ones(1, 2000), solver="daqp", smoothing=0.1)
        spoilt = sparse.csr_array(self.wide())
        spoilt.data[0] = np.nan
        with pytest.raises(pear.ProblemError, match="A holds NaN or infinity"):
            pear.Problem(A=spoilt, b=np.zeros(50))
        skew = sparse.eye_array(2000).tolil()
        skew[0, 5] = 1.0
        with pytest.raises(pear.ProblemError, match="Q must be symmetric: entries differ"):
            pear.Problem(Q=skew.tocsr())
        with pytest.raises(pear.ProblemError, match="Q must be positive semidefinite for sense='min': its diagonal"):
            pear.Problem(Q=-sparse.eye_array(2000).tocsr())


class TestLarge:
    def test_a_large_qp_within_little_memory(self) -> None:
        """With n = 100,000, a dense matrix would take 80 GB, and a dense block of rows 1.6 GB."""
        size, rng = 100_000, np.random.default_rng(0)
        couplings = sparse.random_array((size, size), density=1 / size, rng=rng)
        H = couplings + couplings.T + sparse.diags_array(np.full(size, 6.0))
        A = sparse.random_array((2000, size), density=4 / size, rng=rng)
        problem = pear.Problem(Q=H.tocsr(), A=A, b=A @ rng.uniform(0, 1, size), lb=0.0, ub=1.0)
        true = costs(1, 1, size)
        predicted = (true + 0.1 * costs(2, 1, size)).requires_grad_()
        tracemalloc.start()
        loss = pear.PEARLoss(problem, smoothing=0.0, guidance=0.0, injection=0.1)
        loss(predicted, true).backward()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert loss.last is not None
        assert float(loss.last.kkt_residual.max()) <= EXACT
        assert predicted.grad is not None
        assert bool(predicted.grad.any())
        assert peak < 500e6

    def test_a_grid_of_eighty_by_eighty(self) -> None:
        task = pear.tasks.shortest_path((80, 80))
        assert task.problem.is_sparse
        _, C = task.samples(2, degree=4, dtype=torch.float64)
        predicted = C.roll(1, 0).requires_grad_()
        loss = pear.PEARLoss(task.problem, guidance=0.0, smoothing=0.1, injection=0.1)
        loss(predicted, C).backward()
        assert loss.last is not None
        assert float(loss.last.kkt_residual.max()) <= EXACT
        assert predicted.grad is not None
        assert bool(predicted.grad.any())
        assert task.normalized_regret(C, C) == 0.0

    def test_the_linear_program_finds_the_path(self) -> None:
        task = pear.tasks.shortest_path((30, 30))
        _, C = task.samples(2, dtype=torch.float64)
        assert torch.allclose(pear.solve(task.problem, C).x, task.decide(C), atol=EXACT)
        assert pear.normalized_regret(task.problem, C, C) == pytest.approx(0.0, abs=1e-12)

    def test_a_grid_of_two_hundred_is_made_and_decided(self) -> None:
        task = pear.tasks.shortest_path((200, 200))
        assert task.problem.n == 79_600
        _, C = task.samples(8)
        assert task.decide(C).sum(1).tolist() == [398.0] * 8


class TestFactor:
    @pytest.mark.parametrize("seed", range(3))
    def test_solves_quasi_definite_systems(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        k, r = 80, 30
        H = sparse.random_array((k, k), density=0.05, rng=rng)
        H = H @ H.T + sparse.diags_array(rng.uniform(0.5, 2, k))
        J = sparse.random_array((r, k), density=0.1, rng=rng)
        K = sparse.csc_array(sparse.block_array([[H, J.T], [J, -0.1 * sparse.eye_array(r)]]))
        upper = sparse.csc_array(sparse.triu(K))
        upper.sort_indices()
        ordering = SymbolicLDL(upper, 1e9)
        assert ordering.affordable
        rhs = rng.standard_normal(k + r)
        assert np.allclose(ordering.factor(upper.data).solve(rhs), np.linalg.solve(K.toarray(), rhs))

    def test_an_arrow_has_no_fill(self) -> None:
        """A dense row is eliminated last, wherever it is in the matrix."""
        size = 400
        arrow = sparse.eye_array(size).tolil()
        arrow[0, :] = 0.01
        arrow[0, 0] = 5.0
        upper = sparse.csc_array(arrow)
        upper.sort_indices()
        assert SymbolicLDL(upper, 1e9).fill == size - 1

    def test_gives_up_where_the_factor_fills_up(self) -> None:
        full = sparse.csc_array(np.triu(np.ones((200, 200))))
        assert not SymbolicLDL(full, 1e4).affordable

    def test_the_builtin_solver_gives_a_hint(self, keep_small_ones_sparse: None) -> None:
        thin, _ = both(**ZOO["qp"][0])
        hint = get_backend("interior-point").solve(thin.canonical(costs()), 1e-9)
        assert hint.status.tolist() == [0] * BATCH
        assert torch.allclose(hint.x, pear.solve(thin, costs()).x, atol=1e-5)

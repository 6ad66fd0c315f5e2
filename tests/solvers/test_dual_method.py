"""The dual active-set method: programs with many dense rows, against other solvers and finite differences."""

import numpy as np
import pytest
import torch

import pear
from pear.solvers.active_set.compiled_pass import CompiledPass
from pear.solvers.active_set.dual_plan import make_dual_plan
from pear.solvers.active_set.kernel_arrays import DUAL_START
from pear.solvers.active_set.program_packing import pack_programs
from pear.solvers.warm_starts import WarmStarts

EXACT = 1e-9


def draw_polytope(seed, n=12, m=30, p=3, curved=False, sense="min", degenerate=False):
    """Draw a feasible, strictly convex program with many inequalities, and costs for eight samples."""
    r = np.random.default_rng(seed)
    inside, G, A = r.normal(size=n), r.normal(size=(m, n)), r.normal(size=(p, n))
    if degenerate:  # duplicate rows, a sum of rows, a pinned variable, and rows that meet in one point
        G[1], G[2] = G[0], G[0] + G[3]
        A[-1] = A[0] + A[1]
    h = G @ inside + np.where(np.arange(m) < m // 3, 0.0, r.uniform(0, 1, m))
    lb, ub = inside - r.uniform(0, 1, n), inside + r.uniform(0, 1, n)
    lb[0] = -np.inf
    if degenerate:
        lb[1] = ub[1] = inside[1]
    W = r.normal(size=(n, n))
    Q = W @ W.T / n + 0.1 * np.eye(n)
    sign = 1.0 if sense == "min" else -1.0
    fields = {"A": A, "b": A @ inside, "G": G, "h": h, "lb": lb, "ub": ub, "sense": sense}
    problem = pear.Problem(Q=sign * Q if curved else None, **fields)
    return problem, torch.from_numpy(r.normal(size=(8, n))), 0.0 if curved else 0.5


CASES = [
    {"seed": seed, "curved": curved, "sense": sense, "degenerate": degenerate}
    for seed in range(3)
    for curved in (False, True)
    for sense in ("min", "max")
    for degenerate in (False, True)
]


def dual_plan(problem, smoothing):
    own = {name: v for name in ("Q", "A", "b", "G", "h", "lb", "ub") if (v := getattr(problem, name)) is not None}
    return make_dual_plan(pack_programs(own, problem.n, problem.sign, smoothing))


@pytest.mark.parametrize("case", CASES)
def test_decisions_are_those_of_another_solver(case):
    problem, cost, smoothing = draw_polytope(**case)
    assert len(dual_plan(problem, smoothing).gram) == problem.n + 30
    decisions = pear.DecisionLayer(problem, smoothing=smoothing)(cost)
    other = pear.solve(problem, cost, smoothing=smoothing, solver="daqp")
    assert (decisions - other.x).abs().max() < EXACT
    residual = pear.PEARLoss(problem, smoothing=smoothing, guidance=0.0)
    residual(cost, cost.flip(0))
    assert residual.last.kkt_residual.max() < EXACT


@pytest.mark.parametrize("case", [c for c in CASES if not c["degenerate"]])
def test_gradients_are_finite_differences(case):
    problem, cost, smoothing = draw_polytope(**case)
    layer = pear.DecisionLayer(problem, smoothing=smoothing)
    loss = pear.PEARLoss(problem, smoothing=smoothing, injection=0.0, guidance=0.0, reduction="sum")
    true, step = cost.flip(0), 1e-6
    direction = torch.from_numpy(np.random.default_rng(case["seed"]).normal(size=cost.shape))
    for value in (lambda c: (layer(c) * true).sum(), lambda c: loss(c, true)):
        leaf = cost.clone().requires_grad_()
        value(leaf).backward()
        slope = (value(cost + step * direction) - value(cost - step * direction)) / (2 * step)
        assert abs(float((leaf.grad * direction).sum() - slope)) < 1e-5 * (1 + abs(float(slope)))


def test_the_method_solves_the_samples_and_not_its_fallback():
    problem, cost, smoothing = draw_polytope(0)
    starts = WarmStarts()
    compiled = CompiledPass(problem, starts)
    assert compiled.decide(cost, smoothing, list(range(len(cost))), {}) is not None
    states, slots = compiled.store.states(list(range(len(cost))), len(cost))
    assert (states.has_start[slots] == DUAL_START).all()


@pytest.mark.parametrize("degenerate", [False, True])
def test_warm_starts_give_the_results_of_fresh_ones(degenerate):
    problem, cost, smoothing = draw_polytope(5, degenerate=degenerate)
    kept = pear.PEARLoss(problem, smoothing=smoothing, guidance=0.0)
    random, predicted = np.random.default_rng(1), cost.clone()
    for _ in range(20):
        predicted = predicted + 0.2 * torch.from_numpy(random.normal(size=cost.shape))
        leaf, again = predicted.clone().requires_grad_(), predicted.clone().requires_grad_()
        value = kept(leaf, cost, keys=range(8))
        value.backward()
        fresh = pear.PEARLoss(problem, smoothing=smoothing, guidance=0.0)(again, cost)
        fresh.backward()
        assert abs(float(value.detach() - fresh.detach())) < EXACT
        assert (leaf.grad - again.grad).abs().max() < EXACT
    assert kept.reused > 0


def test_right_hand_sides_may_differ_by_sample():
    problem, cost, smoothing = draw_polytope(2)
    h = problem.h + torch.from_numpy(np.random.default_rng(0).uniform(0, 0.3, (8, 30)))
    own = pear.Problem(A=problem.A, b=problem.b, G=problem.G, h=h, lb=problem.lb, ub=problem.ub)
    assert len(dual_plan(own, smoothing).gram)
    alone = [pear.solve(problem, cost[[i]], smoothing=smoothing, h=h[i], solver="daqp").x[0] for i in range(8)]
    assert (pear.DecisionLayer(own, smoothing=smoothing)(cost) - torch.stack(alone)).abs().max() < EXACT


def test_a_corner_with_too_many_constraints_is_reused():
    """A working set is reused although tight constraints with multiplier zero may leave and enter it."""
    corner = pear.Problem(G=[[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], h=[2.0, 1.0, 1.0, 3.0])
    loss = pear.PEARLoss(corner, smoothing=0.1, guidance=0.0)
    cost = torch.tensor([[-1.0, -1.0], [-2.0, -1.0], [-1.0, -3.0]], dtype=torch.float64)
    for _ in range(2):
        loss(cost, cost.flip(0), keys=range(3))
    assert loss.last.reuse_rate == 1.0
    torch.testing.assert_close(loss.last.decision, torch.ones_like(cost))


def test_a_contradiction_is_infeasible():
    problem, cost, smoothing = draw_polytope(0)
    G, h = torch.cat([problem.G, -problem.G[:1]]), torch.cat([problem.h, -problem.h[:1] - 1.0])
    empty = pear.Problem(A=problem.A, b=problem.b, G=G, h=h, lb=problem.lb, ub=problem.ub)
    with pytest.raises(pear.SolveError, match="INFEASIBLE"):
        pear.PEARLoss(empty, smoothing=smoothing)(cost, cost.flip(0))


@pytest.mark.parametrize("degenerate", [False, True])
def test_a_saved_store_continues(degenerate):
    problem, cost, smoothing = draw_polytope(4, degenerate=degenerate)
    loss, other = (pear.PEARLoss(problem, smoothing=smoothing, guidance=0.0) for _ in range(2))
    loss(cost, cost.flip(0), keys=range(8))
    other.load_sample_state(loss.sample_state())
    assert float(other(cost, cost.flip(0), keys=range(8))) == float(loss(cost, cost.flip(0), keys=range(8)))
    assert other.reused == 8


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale):
    problem, cost, smoothing = draw_polytope(3)
    x = pear.DecisionLayer(problem, smoothing=smoothing)(cost)
    scaled = pear.DecisionLayer(problem, smoothing=smoothing * scale)(cost * scale)
    assert (x - scaled).abs().max() < EXACT


def test_far_free_minima_are_reached_exactly():
    """Costs that are huge relative to the curvature put the unconstrained minimum far outside the feasible set."""
    problem, cost, _ = draw_polytope(6)
    x = pear.DecisionLayer(problem, smoothing=1e-8)(cost)
    other = pear.solve(problem, cost, smoothing=1e-8)
    assert (x - other.x).abs().max() < 1e-6
    assert other.kkt_residual.max() < EXACT


def test_programs_of_equalities_and_bounds_keep_the_primal_method():
    assert len(dual_plan(pear.tasks.shortest_path((5, 5)).problem, 0.1).gram) == 0
    assert len(dual_plan(draw_polytope(0)[0], 0.0).gram) == 0  # a linear program has no curvature


@pytest.mark.parametrize("case", CASES[::5])
def test_one_call_of_solve_has_the_digits_of_the_pipeline(case):
    """Both use the dual method, and the primal one chooses multipliers that are not unique."""
    problem, cost, smoothing = draw_polytope(**case)
    assert len(dual_plan(problem, smoothing).gram)
    found = CompiledPass(problem, WarmStarts()).solve(cost, smoothing)
    piped = pear.solve(problem, cost, smoothing=smoothing, h=problem.h)  # a field of the call: not the pass
    assert torch.equal(found.x, piped.x)
    assert torch.equal(found.duals.inequality, piped.duals.inequality)
    assert torch.equal(found.active.rows, piped.active.rows)


def draw_own_rows(seed, **kinds):
    """Return the program of ``draw_polytope`` with inequality rows and right-hand sides for each sample."""
    problem, cost, smoothing = draw_polytope(seed, **kinds)
    r = np.random.default_rng(seed)
    inside = 0.5 * (problem.lb.clamp(min=-3) + problem.ub)
    G = problem.G + torch.from_numpy(r.normal(size=(8, *problem.G.shape)))
    fields = {name: v for name in ("Q", "A", "lb", "ub") if (v := getattr(problem, name)) is not None}
    h = (G @ inside) + torch.from_numpy(r.uniform(0, 1, (8, 30)))
    return pear.Problem(**fields, b=problem.A @ inside, G=G, h=h), cost, smoothing


@pytest.mark.parametrize("case", [c for c in CASES if c["sense"] == "min"])
def test_rows_of_each_samples_own(case):
    problem, cost, smoothing = draw_own_rows(**case)
    plan = dual_plan(problem, smoothing)
    assert len(plan.response) == problem.n
    assert len(plan.gram) == 0  # each sample computes the rows that it needs
    x = pear.DecisionLayer(problem, smoothing=smoothing)(cost)
    other = pear.solve(problem, cost, smoothing=smoothing, solver="daqp").x
    assert (x - other).abs().max() < EXACT
    assert (pear.solve(problem, cost, smoothing=smoothing).x - other).abs().max() < EXACT
    given = {name: getattr(problem, name) for name in ("G", "h")}
    rest = pear.Problem(
        Q=problem.Q, A=problem.A, b=problem.b, G=problem.G[0], h=problem.h[0], lb=problem.lb, ub=problem.ub
    )
    in_call = pear.DecisionLayer(rest, smoothing=smoothing)(cost, **given)
    assert torch.equal(in_call, x)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_with_own_rows_are_finite_differences(seed):
    problem, cost, smoothing = draw_own_rows(seed, curved=seed == 1)
    loss = pear.PEARLoss(problem, smoothing=smoothing, injection=0.0, guidance=0.0, reduction="sum")
    true, step = cost.flip(0), 1e-6
    direction = torch.from_numpy(np.random.default_rng(seed).normal(size=cost.shape))
    for keys in (None, range(8), range(8)):  # the second time from warm starts
        leaf = cost.clone().requires_grad_()
        loss(leaf, true, keys=keys).backward()
        slope = (loss(cost + step * direction, true) - loss(cost - step * direction, true)) / (2 * step)
        assert abs(float((leaf.grad * direction).sum() - slope)) < 1e-5 * (1 + abs(float(slope)))
    assert loss.last.reuse_rate == 0.0  # calls without keys keep nothing
    loss(cost, true, keys=range(8))
    assert loss.last.reuse_rate == 1.0


def test_many_dense_equalities():
    r = np.random.default_rng(0)
    A, inside = r.normal(size=(30, 40)), r.uniform(0.2, 0.8, 40)
    problem = pear.Problem(
        A=np.vstack([A, A[0] + A[1]]), b=np.append(A @ inside, (A[0] + A[1]) @ inside), lb=0.0, ub=1.0
    )
    cost = torch.from_numpy(r.normal(size=(8, 40)))
    assert dual_plan(problem, 0.3).freedom == 10
    found = pear.solve(problem, cost, smoothing=0.3)
    assert (found.x - pear.solve(problem, cost, smoothing=0.3, solver="daqp").x).abs().max() < EXACT
    layer = pear.DecisionLayer(problem, smoothing=0.3)
    assert torch.autograd.gradcheck(layer, cost[:2].clone().requires_grad_(), atol=1e-6)


def test_nearly_parallel_rows_are_told_from_dependent_ones():
    """Two rows that differ by 1e-9 fix a vertex, so that the gradient is zero; two equal rows leave an edge."""
    for tilt, moves in ((0.0, True), (1e-9, False)):
        G = torch.tensor([[1.0, 1.0], [1.0 + tilt, 1.0]], dtype=torch.float64)
        problem = pear.Problem(G=G, h=G @ torch.ones(2, dtype=torch.float64))
        cost = torch.tensor([[-3.0, -3.0]], dtype=torch.float64, requires_grad=True)
        true = torch.tensor([[-1.0, -3.0]], dtype=torch.float64)
        pear.PEARLoss(problem, smoothing=1.0, injection=0.0, guidance=0.0)(cost, true).backward()
        assert bool((cost.grad != 0).any()) == moves

"""The GPU kernel's own source, run by a reference of Triton's language, against the compiled method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton_reference
from torch import Tensor

from pear.optimality.verification import verify
from pear.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set import active_set_solver as active_set
from pear.solvers.active_set.gpu import gpu_plan as gpu
from pear.solvers.active_set.gpu import primal_method
from pear.solvers.active_set.gpu.dual_method import DualMethod
from pear.solvers.active_set.gpu.gpu_solution import RUNNING, SINGULAR
from pear.solvers.active_set.gpu.primal_method import PrimalMethod, VertexPrimalMethod
from pear_lab.benchmarks import gpu_methods
from pear_lab.benchmarks.program_draws import draw_sector_programs
from pear_lab.benchmarks.random_programs import grid_flow_balance


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import the kernels with the reference in place of Triton."""
    with triton_reference.in_place(monkeypatch):
        yield


def program(n: int, B: int = 4, own_Q: bool = False, seed: int = 0, **rows: Any) -> QuadraticProgram:
    """Draw B convex programs with shared constraints."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(B if own_Q else 1, n, n, generator=generator, dtype=torch.float64)
    H = root @ root.mT / n + 0.1 * torch.eye(n, dtype=torch.float64)
    c = torch.randn(B, n, generator=generator, dtype=torch.float64)
    none = {"A": torch.zeros(1, 0, n), "b": torch.zeros(1, 0), "G": torch.zeros(1, 0, n), "h": torch.zeros(1, 0)}
    none |= {"lb": torch.zeros(1, n), "ub": torch.full((1, n), torch.inf)}
    return QuadraticProgram(H=H, c=c, **{name: value.double() for name, value in (none | rows).items()})


def rows_of(n: int, m: int) -> Tensor:
    return torch.rand(1, m, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def points(B: int, n: int) -> Tensor:
    return torch.rand(B, n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


PROGRAMS = {
    "portfolio": program(24, A=torch.ones(1, 1, 24), b=torch.ones(1, 1)),
    "portfolio with own curvature": program(10, own_Q=True, A=torch.ones(1, 1, 10), b=torch.ones(1, 1)),
    "box": program(9, lb=-0.2 * torch.ones(1, 9), ub=0.3 * torch.ones(1, 9)),
    "knapsack": program(12, G=rows_of(12, 3), h=torch.ones(1, 3), ub=0.5 * torch.ones(1, 12)),
    "own rows": program(
        6,
        G=rows_of(6, 3).repeat(4, 1, 1) * torch.tensor([1.0, 1.3, 0.7, 2.0])[:, None, None],
        h=-torch.ones(4, 3),
        lb=-2 * torch.ones(1, 6),
        ub=torch.ones(1, 6),
    ),
    "own equalities": program(6, A=rows_of(6, 2), b=points(4, 6) @ rows_of(6, 2)[0].mT),
    "own bounds": program(5, lb=points(4, 5) - 1.0),
    "without bounds": program(6, lb=torch.full((1, 6), -torch.inf), G=-rows_of(6, 2), h=-torch.ones(1, 2)),
    "repeated equality": program(5, A=torch.ones(1, 2, 5), b=torch.ones(1, 2)),
    "diagonal": replace(
        program(7, A=torch.ones(1, 1, 7), b=torch.ones(1, 1), ub=0.4 * torch.ones(1, 7)),
        H=torch.diag_embed(torch.linspace(0.5, 2.0, 7).double())[None],
        diagonal=True,
    ),
    "both": program(
        8, A=torch.ones(1, 1, 8), b=torch.ones(1, 1), G=rows_of(8, 2), h=0.45 * torch.ones(1, 2), ub=torch.ones(1, 8)
    ),
}
every_program = pytest.mark.parametrize("name", PROGRAMS)


def planned(qp: QuadraticProgram, method: str = "primal") -> gpu.GPUPlan:
    """Return a plan that does not change its method."""
    plan = gpu.make_gpu_plan(qp) if method == "primal" else gpu.GPUPlan(DualMethod.of(qp, 32))
    assert plan is not None
    plan.settled = True
    return plan


@every_program
@pytest.mark.parametrize("method", ["primal", "dual"])
def test_solutions_and_projections(name: str, method: str) -> None:
    qp = PROGRAMS[name]
    here = active_set.solve(qp, 0.0, active_set.prepare(qp))
    there = active_set.solve_active_set_on_gpu(qp, planned(qp, method))
    assert here.status.tolist() == there.status.tolist() == [0] * qp.batch
    torch.testing.assert_close(there.x, here.x, rtol=1e-12, atol=1e-13)
    assert bool(there.working.same(here.working).all())
    assert bool(verify(qp, there.x, there.duals, there.working).solved.all())
    e = qp.c.flip(1).contiguous()
    (expected, fine), (g, converged) = here.projector.project(e), there.projector.project(e)
    assert bool(fine.all() & converged.all())
    torch.testing.assert_close(g, expected, rtol=1e-11, atol=1e-13)


def test_a_plan_serves_every_cost() -> None:
    qp = PROGRAMS["both"]
    plan, other = planned(qp), replace(qp, c=qp.c.flip(0, 1).contiguous())
    expected = active_set.solve(other, 0.0, active_set.prepare(qp)).x
    torch.testing.assert_close(plan.solve(other).x, expected, rtol=1e-12, atol=1e-13)


def test_more_free_variables_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports that it has no room left, and the plan then allocates more."""
    monkeypatch.setattr(PrimalMethod, "rooms", {4: (1, 255), 32: (1, 255)})
    qp = PROGRAMS["portfolio"]
    plan = planned(qp)
    plan.method = replace(plan.method, room=4)
    found = plan.solve(qp)
    assert bool(found.no_room.any())
    assert not bool((found.optimal & found.no_room).any())
    assert plan.adapt(found)
    assert bool(plan.solve(qp).optimal.all())
    assert not plan.adapt(plan.solve(qp))


def test_one_cost_after_another() -> None:
    """The second cost starts from the solution for the first, and leads to the same result as alone."""
    qp = PROGRAMS["own rows"]
    costs = torch.stack([qp.c, qp.c.flip(0, 1)])
    both, plan = planned(qp).solve_all(qp, costs), planned(qp)
    assert bool(both.optimal.all())
    for found, cost in zip(both.x.split(qp.batch), costs, strict=True):
        torch.testing.assert_close(found, plan.solve(replace(qp, c=cost)).x, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(both.curvature, (qp.H @ both.x.T).mT[0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("few", [0, 256])
def test_costs_of_few_samples_are_searched_for_at_once(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primal_method, "_FEW_BLOCKS", few)
    qp = PROGRAMS["knapsack"]
    costs = torch.stack([qp.c, -qp.c, qp.c.flip(0)])
    every, plan, e = planned(qp).solve_all(qp, costs), planned(qp), qp.c.flip(1).contiguous()
    assert bool(every.optimal.all())
    for found, cost in zip(every.x.split(qp.batch), costs, strict=True):
        torch.testing.assert_close(found, plan.solve(replace(qp, c=cost)).x, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(every.project(e)[0], plan.solve(qp).project(e)[0], rtol=1e-12, atol=1e-13)


def test_rounding_stays_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five full sectors make up the whole portfolio: free variables of other sectors are zero, and never below."""
    monkeypatch.setattr(primal_method, "_FEW_BLOCKS", 0)
    draw, some = draw_sector_programs(np.random.default_rng([0, 100]), 100, 14), [2, 7, 13]
    problem = Problem(**{name: torch.as_tensor(value) for name, value in draw.fields.items()})
    programs = [problem.canonical(torch.from_numpy(costs[some]), 0.0) for costs in (draw.cost, draw.true)]
    found = planned(programs[0]).solve_all(programs[0], torch.stack([qp.c for qp in programs]))
    assert bool(found.optimal.all())
    assert float(found.x.min()) >= 0.0
    free = ~found.lower & (found.x == 0.0)
    assert bool(free.any())  # where rounding could have gone either way
    whole = torch.full((6,), 1.0, dtype=torch.float64)
    torch.testing.assert_close(found.x.sum(1), whole, rtol=0, atol=1e-15)


def test_what_has_not_converged_is_said() -> None:
    qp = PROGRAMS["portfolio"]
    found = planned(qp).solve(qp)
    *others, M = found.kept
    wrong = M * torch.tensor([1.0, 1.3, 1.0, 1.0], dtype=torch.float64)[:, None, None]
    found = replace(found, kept=(*others, wrong))
    assert found.project(qp.c.flip(1))[1].tolist() == [True, False, True, True]


def test_nothing_to_start_from() -> None:
    assert gpu.make_gpu_plan(program(6, A=torch.ones(1, 2, 6), b=torch.tensor([[1.0, 2.0]]))) is None


def test_a_sample_without_a_feasible_point_does_not_end() -> None:
    b = torch.ones(4, 2)
    b[1, 1] = 2.0  # of two equal rows
    qp = program(6, A=torch.ones(1, 2, 6), b=b)
    assert planned(qp).solve(qp).optimal.tolist() == [True, False, True, True]


def test_flat_curvature_does_not_end() -> None:
    qp = program(3, lb=-torch.ones(1, 3), ub=torch.ones(1, 3))
    flat = replace(qp, H=torch.zeros_like(qp.H))
    assert not bool(planned(flat).solve(flat).optimal.any())


# -------------------------------------------------------------------------------------------------- the dual method


@every_program
def test_a_known_inverse(name: str) -> None:
    qp = PROGRAMS[name]
    plan = planned(qp, "dual")
    expected, found = plan.solve(qp), plan.solve(qp, plan.curvature(qp, torch.linalg.inv(qp.H)))
    assert bool(found.optimal.all())
    torch.testing.assert_close(found.x, expected.x, rtol=1e-12, atol=1e-13)


def flat_in_one(n: int, whole: bool) -> Tensor:
    """Return curvatures (4, n, n); the second is singular along (1, …, 1), or along the last variable."""
    H = program(n, own_Q=True).H
    way = torch.ones(n, dtype=torch.float64) if whole else torch.eye(n, dtype=torch.float64)[-1]
    off = torch.eye(n, dtype=torch.float64) - torch.outer(way, way) / (way @ way)
    H[1] = off @ H[1] @ off
    return H


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 9, 12])
def test_inverses_in_halves(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices are inverted in halves if they exceed a block, also those of odd sizes."""
    inverse_kernel = import_module("pear.solvers.active_set.gpu.inverse_kernel")
    monkeypatch.setattr(inverse_kernel, "LAUNCH", {2: (1, 255), 4: (1, 255)})
    H = program(n, own_Q=True).H
    inverse, outcome = inverse_kernel.invert_by_kernel(H)
    torch.testing.assert_close(inverse, torch.linalg.inv(H), rtol=1e-10, atol=1e-12)
    assert outcome.tolist() == [RUNNING] * 4


def test_a_last_pivot_that_is_rounding_is_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding may make the last pivot positive; relative to the entry itself it is zero."""
    inverse_kernel = import_module("pear.solvers.active_set.gpu.inverse_kernel")
    monkeypatch.setattr(inverse_kernel, "LAUNCH", {1: (1, 255)})
    off = torch.eye(5, dtype=torch.float64) - 0.2
    assert inverse_kernel.invert_by_kernel(off @ program(5, B=16, own_Q=True).H @ off)[1].tolist() == [SINGULAR] * 16


@pytest.mark.parametrize("most", [4, 16])
@pytest.mark.parametrize("whole", [False, True])
def test_a_singular_curvature_is_said_and_the_others_are_solved(
    most: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A singular matrix is reported even if both halves are invertible; a matrix with NaN is not called singular."""
    inverse_kernel = import_module("pear.solvers.active_set.gpu.inverse_kernel")
    monkeypatch.setattr(inverse_kernel, "LAUNCH", {most: (1, 255)})
    qp = program(9, A=torch.ones(1, 1, 9), b=torch.ones(1, 1), ub=torch.ones(1, 9))
    H = flat_in_one(9, whole)
    expected = planned(qp, "dual").solve_all(replace(qp, H=program(9, own_Q=True).H), torch.stack([qp.c, -qp.c]))
    H[3, 0, 0] = torch.nan
    found = planned(qp, "dual").solve_all(replace(qp, H=H), torch.stack([qp.c, -qp.c]))
    assert found.singular.tolist() == 2 * [False, True, False, False]
    assert not bool(found.optimal[found.singular].any())
    torch.testing.assert_close(found.x[[0, 2, 4, 6]], expected.x[[0, 2, 4, 6]], rtol=1e-12, atol=1e-13)


def test_costs_do_not_follow_each_other() -> None:
    qp = PROGRAMS["own rows"]
    costs = torch.stack([qp.c, qp.c.flip(0, 1)])
    both, plan = planned(qp, "dual").solve_all(qp, costs), planned(qp)
    for found, cost in zip(both.x.split(qp.batch), costs, strict=True):
        torch.testing.assert_close(found, plan.solve(replace(qp, c=cost)).x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("ub", "method"), [(0.01, "VertexPrimalMethod"), (10.0, "DualMethod")])
def test_the_first_batch_chooses_the_method(ub: float, method: str) -> None:
    """If most variables of the first batch are free, the plan changes to the dual method; the results stay the same."""
    qp = program(9, lb=-ub * torch.ones(1, 9), ub=ub * torch.ones(1, 9))
    plan = gpu.make_gpu_plan(qp)
    assert plan is not None
    first = plan.solve(qp)
    assert plan.state[0] == method
    second = plan.solve(qp)
    assert bool(first.optimal.all() & second.optimal.all())
    torch.testing.assert_close(second.x, first.x, rtol=1e-12, atol=1e-13)


def test_a_batch_without_room_does_not_choose_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends because it has no room has few free variables, whatever the solution has."""
    monkeypatch.setattr(PrimalMethod, "rooms", {4: (1, 255), 32: (1, 255)})
    qp = program(16, lb=-10 * torch.ones(1, 16), ub=10 * torch.ones(1, 16))
    plan = gpu.make_gpu_plan(qp)
    assert plan is not None
    plan.method = replace(plan.method, room=4)
    first = plan.solve(qp)
    assert bool(first.no_room.all())
    assert plan.state == ("VertexPrimalMethod", 4)
    assert plan.adapt(first)
    assert bool(plan.solve(qp).optimal.all())
    assert plan.state == ("DualMethod", 64)


def test_a_failure_of_the_first_batch_is_not_one_of_the_method_it_chose() -> None:
    """After the first batch chose the dual method, a failure of this batch does not lead back to the primal method."""
    qp = program(9, lb=-10 * torch.ones(1, 9), ub=10 * torch.ones(1, 9))
    plan = gpu.make_gpu_plan(qp)
    assert plan is not None
    first = plan.solve(qp)
    assert plan.adapt(replace(first, singular=torch.ones_like(first.singular)))
    assert plan.state[0] == "DualMethod"
    second = plan.solve(qp)
    assert not plan.adapt(second)
    assert plan.adapt(replace(second, singular=torch.ones_like(second.singular)))
    assert plan.state[0] == "VertexPrimalMethod"


@pytest.mark.parametrize("seed", range(4))
def test_constraints_are_dropped_on_the_way(seed: int) -> None:
    """Many rows are nearly opposite, so that constraints are added and dropped again."""
    generator = torch.Generator().manual_seed(seed)
    G = torch.randn(1, 24, 8, generator=generator, dtype=torch.float64)
    h = 0.05 + 0.1 * torch.rand(1, 24, generator=generator, dtype=torch.float64)
    qp = program(8, seed=seed, own_Q=True, G=G, h=h, lb=-torch.ones(1, 8), ub=torch.ones(1, 8))
    qp = replace(qp, c=10 * qp.c)
    found = planned(qp, "dual").solve(qp)
    assert bool(found.optimal.all())
    torch.testing.assert_close(found.x, active_set.solve(qp, 0.0, active_set.prepare(qp)).x, rtol=1e-11, atol=1e-12)


def drawn(kind: str, seed: int) -> QuadraticProgram:
    """Draw programs that have a feasible point; most of them are degenerate."""
    generator = torch.Generator().manual_seed(seed)
    n, m, p = (int(torch.randint(low, high, (1,), generator=generator)) for low, high in ((4, 14), (0, 12), (0, 3)))
    G, A, U = (torch.randn(k, r, n, generator=generator, dtype=torch.float64) for k, r in ((1, m), (1, p), (4, n)))
    some = torch.rand(2, max(n, m), generator=generator, dtype=torch.float64)
    x, slack, lb, ub = some[:1, :n], 0.3 * some[1:, :m], torch.zeros(1, n), torch.ones(1, n)
    if kind == "nothing is strictly feasible":
        slack = 0.0 * slack
    if kind == "most is fixed, to zero":
        x, ub = 0.0 * x, (some[:1, :n] > 0.6).double()
    if kind == "no bounds":
        lb, ub = lb - torch.inf, ub + torch.inf
    h, b = (G @ x[0]) + slack, A @ x[0]
    if kind == "equalities that follow":
        A, b = torch.cat([A, A.sum(1, keepdim=True)], 1), torch.cat([b, b.sum(1, keepdim=True)], 1)
    qp = program(n, seed=seed, own_Q=True, A=A, b=b, G=G, h=h, lb=lb, ub=ub)
    if kind == "curvatures of 1e-6 to 100":
        U = torch.linalg.qr(U)[0]
        H = U @ torch.diag(torch.logspace(-6, 2, n, dtype=torch.float64)) @ U.mT
        qp = replace(qp, H=(H + H.mT) / 2)
    return replace(qp, c=3.0 * qp.c)


KINDS = [
    "strictly feasible",
    "nothing is strictly feasible",
    "most is fixed, to zero",
    "no bounds",
    "equalities that follow",
]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [*KINDS, "curvatures of 1e-6 to 100"])
def test_solutions_are_those_of_the_compiled_method(kind: str, seed: int) -> None:
    qp = drawn(kind, seed)
    plan = gpu.GPUPlan(DualMethod.of(qp, 64), settled=True)
    here, there = active_set.solve(qp, 0.0, active_set.prepare(qp)), active_set.solve_active_set_on_gpu(qp, plan)
    assert here.status.tolist() == [0] * 4
    assert bool(verify(qp, there.x, there.duals, there.working).solved.all())
    torch.testing.assert_close(there.x, here.x, rtol=1e-10, atol=1e-12)


def test_contradicting_rows_are_not_solved() -> None:
    b = torch.ones(4, 2)
    b[1, 1] = 2.0  # of two equal rows
    qp = program(6, A=torch.ones(1, 2, 6), b=b)
    plan = planned(qp, "dual")
    found = active_set.solve_active_set_on_gpu(qp, plan)
    assert verify(qp, found.x, found.duals, found.working).solved.tolist() == [True, False, True, True]
    assert not plan.adapt(plan.solve(qp))  # the primal method would not find a point, either


def test_where_the_dual_method_fails_the_primal_one_comes_back() -> None:
    """H is singular, so that the dual method fails; the primal method solves it with the constraints."""
    qp = program(6, A=torch.ones(1, 1, 6), b=torch.ones(1, 1), ub=torch.ones(1, 6))
    plan = gpu.make_gpu_plan(qp)
    assert plan is not None
    plan.solve(replace(qp, c=0.0 * qp.c))
    assert plan.needs_inverse
    flat = replace(qp, H=torch.diag_embed(torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]]).double()))
    found = plan.solve(flat)
    assert bool(found.singular.all())
    assert plan.adapt(found)
    assert plan.state == ("VertexPrimalMethod", 32)
    assert bool(plan.solve(flat).optimal.all())
    assert not plan.adapt(plan.solve(flat))


def grid(k: int) -> QuadraticProgram:
    """Return smoothed paths through a grid of k × k nodes; one flow balance depends on the others."""
    A, b = (torch.from_numpy(part)[None] for part in grid_flow_balance(k))
    n = A.shape[2]
    curvature = torch.diag_embed(torch.full((1, n), 0.1, dtype=torch.float64))
    return replace(program(n, A=A, b=b, ub=torch.ones(1, n)), H=curvature, diagonal=True)


def test_many_rows_are_for_the_dual_method() -> None:
    qp = grid(6)
    assert qp.p > gpu._MAX_PRIMAL_ROWS
    plan = gpu.make_gpu_plan(qp)
    assert plan is not None
    assert plan.needs_inverse
    here, there = active_set.solve(qp, 0.0, active_set.prepare(qp)), active_set.solve_active_set_on_gpu(qp, plan)
    assert bool(verify(qp, there.x, there.duals, there.working).solved.all())
    torch.testing.assert_close(there.x, here.x, rtol=1e-12, atol=1e-13)
    e = qp.c.flip(1).contiguous()
    expected, g = here.projector.project(e)[0], there.projector.project(e)[0]
    free = (there.x > 1e-9) & (there.x < 1 - 1e-9)
    torch.testing.assert_close(g[free], expected[free], rtol=1e-10, atol=1e-12)


def test_many_rows_need_a_definite_curvature() -> None:
    """The dual method, which many rows need, starts from H⁻¹; with few rows the primal method can do without."""
    qp = grid(6)
    flat = replace(qp, H=qp.H * torch.eye(qp.n).double()[0])  # curvature of one variable alone
    assert gpu.has_gpu_plan_method(qp)
    assert not gpu.has_gpu_plan_method(flat)
    assert gpu.has_gpu_plan_method(replace(qp, H=torch.cat([qp.H, flat.H])))  # the sample that has one is solved
    few = slice(0, gpu._MAX_PRIMAL_ROWS)
    assert gpu.has_gpu_plan_method(replace(flat, A=qp.A[:, few], b=qp.b[:, few]))
    linear = replace(qp, H=0.0 * qp.H)
    assert not gpu.has_gpu_plan_method(linear)


def test_a_batch_that_memory_has_no_room_for_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    qp = PROGRAMS["box"]
    plan = planned(qp, "dual")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=10**6))
    fits = [plan.fits(B, torch.device("cuda")) for B in (10, 100)]
    assert fits == [True, False]
    monkeypatch.setattr(gpu.GPUPlan, "fits", lambda self, B, device: False)
    assert not bool((active_set.solve_active_set_on_gpu(qp, plan).status == 0).any())


def test_contradicting_inequalities_do_not_end() -> None:
    h = torch.tensor([[1.0, 0.0], [1.0, -2.0], [1.0, 0.0], [1.0, 0.5]])
    qp = program(6, G=torch.stack([torch.ones(6), -torch.ones(6)])[None], h=h, lb=torch.full((1, 6), -torch.inf))
    assert planned(qp, "dual").solve(qp).optimal.tolist() == [True, False, True, True]


def test_no_room_for_another_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan first allocates more room; if that is impossible, it returns to the primal method."""
    monkeypatch.setattr(DualMethod, "rooms", (2, 4))
    qp = program(8, ub=1e-3 * torch.ones(1, 8))
    plan = gpu.GPUPlan(DualMethod.of(qp, 2), settled=True, _primal=VertexPrimalMethod.of(program(8)))
    for state in (("DualMethod", 4), ("VertexPrimalMethod", 32)):
        found = plan.solve(qp)
        assert bool(found.no_room.any())
        assert plan.adapt(found)
        assert plan.state == state


def test_the_benchmark_forces_each_method() -> None:
    for name, method in (("primal", VertexPrimalMethod), ("dual", DualMethod)):
        qp = PROGRAMS["knapsack"]
        prepare = gpu_methods.METHODS[name]
        assert prepare is not None
        plan = prepare(qp)
        assert plan is not None
        assert bool(plan.solve(qp).optimal.all())
        assert isinstance(plan.method, method)
        assert (prepare(grid(6)) is None) == (name == "primal")

"""The compiled active-set method: it agrees with the pipeline for all starts, batches and threads."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_residual import solution_residual
from zoo import ZOO

import pear
from pear.compile import kernel_cache
from pear.compile import openmp as torch_openmp
from pear.compile.kernel_cache import discard_stale_kernel_cache
from pear.decisions.decider import Decider
from pear.optimality import rule
from pear.solvers.active_set import active_set_solver, kernel_threads, solution_store
from pear.solvers.active_set import batch_kernel as kernels
from pear.solvers.active_set import kernel_arrays as layout
from pear.solvers.active_set import kernel_calls as batch
from pear.solvers.active_set.compiled_pass import CompiledPass
from pear.solvers.active_set.compiled_programs import CompiledPrograms
from pear.solvers.active_set.kernel_arrays import GIVEN_UP
from pear.solvers.active_set.program_packing import pack_curvature, pack_program_pair, pack_programs
from pear.solvers.regret_call import RegretCall
from pear.solvers.warm_starts import WarmStarts

every_case = pytest.mark.parametrize("name", sorted(ZOO))
Array = np.ndarray[Any, Any]


def both(problem: pear.Problem, cost: torch.Tensor, smoothing: float) -> list[pear.Solution]:
    return [pear.solve(problem, cost, smoothing, solver=s, on_failure="mask") for s in ("active-set", "interior-point")]


def of_paths(B: int, seed: int = 0) -> tuple[layout.Programs, Array]:
    task = pear.tasks.shortest_path((5, 5))
    p = task.problem
    assert p.A is not None
    assert p.b is not None
    fields = {"A": p.A, "b": p.b, "lb": torch.zeros(p.n, dtype=torch.float64)}
    return pack_programs(fields, p.n, smoothing=0.1), np.random.default_rng(seed).uniform(0.5, 3.0, (B, p.n))


def run(
    P: layout.Programs, cost: Array, states: layout.States | None = None
) -> tuple[layout.CompiledSolutions, layout.States]:
    B, n = cost.shape
    rows = np.arange(B)
    states = layout.new_kernel_states(B, n, P.J.shape[1]) if states is None else states
    return batch.call_kernel_to_solve(P, cost, rows, states, rows, batch.call_kernel_for_start(P)), states


# ------------------------------------------------------------------------------------------------------------- answers


def test_what_a_workspace_held_before_does_not_count() -> None:
    """Threads reuse their workspace, but no value of an earlier sample may affect a later one."""
    rng = np.random.default_rng(5)
    F, G = rng.normal(size=(6, 6)), rng.normal(size=(4, 6))
    fields = {"G": torch.from_numpy(G), "h": torch.ones(4).double(), "lb": -torch.ones(6).double()}
    P, cost = pack_programs(fields | {"Q": torch.from_numpy(F @ F.T)}, 6), rng.normal(size=(8, 6))
    outcomes = []
    for left in (0.0, 7.0, 1e12):
        room = kernel_threads.kernel_thread_team(6, 4).memory
        for part in (room.v, room.inverse, room.scratch, room.W, room.L):
            part[...] = left
        outcomes.append(run(P, cost)[0])
    for other in outcomes[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(outcomes[0], other, strict=True))


def test_a_step_that_ends_on_a_bound_up_to_rounding_ends_on_it() -> None:
    """Only 0 is feasible, and the first step to it is −2/3: rounding of the sum must not make the end infeasible."""
    problem = pear.Problem(Q=[[0.6]], G=[[-3.0], [-2.0]], h=[2.0, 0.0], lb=[-2.0], ub=[0.0])
    found = run(
        pack_programs({k: getattr(problem, k) for k in ("G", "h", "lb", "ub")}, 1, smoothing=0.1), np.ones((1, 1))
    )[0]
    assert found.code[0] == layout.SOLVED
    assert found.x[0, 0] == 0.0


def test_zeros_outside_the_band_of_a_curvature_are_left_out_and_nothing_else() -> None:
    Q = np.zeros((2, 5, 5))
    Q[0] = np.diag([2.0, 0.0, 3.0, 1.0, 1.0])
    Q[1, 3, 4] = Q[1, 4, 3] = 0.5
    assert pack_curvature(Q)["band"].tolist() == [[0, 1], [0, 0], [2, 3], [3, 5], [3, 5]]
    assert pack_curvature(np.zeros((0, 0, 0)))["band"].shape == (0, 2)
    rng = np.random.default_rng(3)
    curvature = np.diag(rng.uniform(1.0, 3.0, 12)) + 0.4 * (np.eye(12, k=1) + np.eye(12, k=-1))
    fields = {"A": rng.normal(size=(3, 12)), "b": np.ones(3), "lb": -np.ones(12), "ub": np.ones(12), "Q": curvature}
    banded, cost = (
        pack_programs({name: torch.from_numpy(v) for name, v in fields.items()}, 12),
        rng.normal(size=(6, 12)),
    )
    whole = banded._replace(band=np.tile([0, 12], (12, 1)))
    (found, states), (other, others) = run(banded, cost), run(whole, cost)
    assert (found.code == layout.SOLVED).all()
    rows = np.arange(6)
    projected, expected = (
        batch.call_kernel_to_project(P, cost, rows, s, rows)[0] for P, s in ((banded, states), (whole, others))
    )
    np.testing.assert_allclose(found.x, other.x, atol=1e-14)
    np.testing.assert_allclose(projected, expected, atol=1e-14)


def test_the_two_curvatures_of_a_regret_share_a_band_that_holds_both() -> None:
    fields = {"Q": torch.eye(3).double(), "lb": torch.zeros(3).double()}
    predicted, true = pack_programs(fields, 3), np.array([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    pair = pack_program_pair(predicted, true)
    assert pair.decision.band.tolist() == [[0, 2], [0, 2], [2, 3]]
    assert pack_program_pair(predicted, predicted.Q).decision is predicted


@pytest.mark.parametrize(("fixed", "unique"), [(1, True), (0, False)])
def test_decisions_are_unique_if_equalities_fix_what_has_no_curvature(fixed: int, unique: bool) -> None:
    row = [float(j == fixed) for j in range(3)]
    problem = pear.Problem(Q=np.diag([2.0, 0.0, 1e-3]), A=[row], b=[0.5], lb=0.0, ub=1.0)
    programs = CompiledPrograms(problem)
    P = programs.own(0.0)[0]
    assert not programs.is_definite(P)
    assert programs.has_unique_decisions(P) == unique
    cost = torch.ones(2, 3, dtype=torch.float64)
    prepared = programs.prepare(cost, 0.0, None, {"b": torch.tensor([[0.2], [0.3]], dtype=torch.float64)})
    assert prepared is not None
    assert programs.has_own_matrices(prepared[0])
    assert prepared[0].rhs.tolist() == [[0.2], [0.3]]
    prepared = programs.prepare(cost, 0.0, None, {"A": torch.eye(3, dtype=torch.float64)[None, :1].expand(2, -1, -1)})
    assert prepared is not None
    assert not programs.has_own_matrices(prepared[0])
    assert not programs.has_unique_decisions(prepared[0])


def test_constraints_of_its_own_give_a_sample_the_same_start() -> None:
    """A sample with its own constraints computes the default start that shared constraints have."""
    rng = np.random.default_rng(1)
    G, cost = torch.from_numpy(rng.normal(size=(5, 4))), rng.normal(size=(2, 4))
    fields = {
        "G": G,
        "h": -0.1 * torch.ones(5).double(),
        "lb": -3 * torch.ones(4).double(),
        "ub": 3 * torch.ones(4).double(),
    }
    shared = run(pack_programs(fields, 4, smoothing=0.1), cost)[0]
    own = run(pack_programs(fields | {"G": G.expand(2, -1, -1).contiguous()}, 4, smoothing=0.1), cost)[0]
    assert (shared.code == layout.SOLVED).all()
    assert all(np.array_equal(a, b) for a, b in zip(shared, own, strict=True))


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("bound", [1e9, 1e12, 1e15])
def test_far_bounds_are_no_start(bound: float, rows: int) -> None:
    """The compiled method treats huge bounds as absent, and does not start at them."""
    rng = np.random.default_rng(rows)
    F, n = rng.normal(size=(6, 6)), 6
    fields = {"Q": torch.from_numpy(F @ F.T), "G": torch.from_numpy(rng.normal(size=(rows, n))), "h": torch.ones(rows)}
    fields |= {"lb": torch.full((n,), -bound), "ub": torch.full((n,), bound)}
    fields = {name: value.double() for name, value in fields.items()}
    cost = rng.normal(size=(20, n))
    found, _ = run(pack_programs(fields, n, smoothing=0.1), cost)
    assert (found.code == layout.SOLVED).all()
    absent = {name: value for name, value in fields.items() if name not in ("lb", "ub")}
    free, _ = run(pack_programs(absent, n, smoothing=0.1), cost)
    np.testing.assert_allclose(found.x, free.x, rtol=1e-9, atol=1e-12)


@every_case
def test_zoo(name: str) -> None:
    """Planted solutions, optimality conditions, and the gradients of the default path."""
    case = ZOO[name]
    found = pear.solve(case.problem, case.cost, case.smoothing, solver="active-set")
    torch.testing.assert_close(found.x, case.x, rtol=1e-9, atol=1e-9 * case.size)
    assert solution_residual(case.problem, case.cost, found.x, found.duals, case.smoothing) < 1e-9
    assert float(found.kkt_residual.max()) < 1e-13
    arguments = (case.problem, case.cost, case.true, case.smoothing)
    mine, theirs = (pear.regret_gradient(*arguments, solver=s) for s in ("active-set", "interior-point"))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10 * float(theirs.abs().max()))


small = st.integers(-2, 2)


@st.composite
def programs(draw: st.DrawFn) -> tuple[pear.Problem, torch.Tensor, float]:
    """Draw a problem of small integers, with a cost and a smoothing.

    Vertices may be degenerate, rows redundant or absent, variables free or fixed, and fields given per sample.
    """
    n, p, m, B = draw(st.integers(1, 4)), draw(st.integers(0, 2)), draw(st.integers(0, 3)), draw(st.integers(1, 2))

    def numbers(*shape: int) -> Array:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(small, min_size=size, max_size=size)), float).reshape(shape)

    lower = draw(st.lists(st.sampled_from([-np.inf, -1.0, 0.0]), min_size=n, max_size=n))
    width = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf]), min_size=n, max_size=n))
    upper = [w - 1.0 if np.isinf(low) else low + w for low, w in zip(lower, width, strict=True)]
    inside = np.clip(numbers(n), lower, upper)
    lead = (B,) if draw(st.booleans()) else ()
    A, G = numbers(*lead, p, n), numbers(*lead, m, n)
    h = G @ inside + np.abs(numbers(m))
    if m and draw(st.booleans()):
        h[..., 0] = np.inf
    fields: dict[str, Any] = {"lb": lower, "ub": upper, "n": n}
    fields |= {"A": A, "b": A @ inside} if p else {}
    fields |= {"G": G, "h": h} if m else {}
    smoothing = draw(st.sampled_from([0.0, 0.5]))
    return pear.Problem(**fields), torch.from_numpy(numbers(B, n)), smoothing


@pytest.mark.filterwarnings("ignore::pear.errors.FailedSamplesWarning")
@settings(max_examples=60, deadline=None)
@given(programs())
def test_random_programs(drawn: tuple[pear.Problem, torch.Tensor, float]) -> None:
    """Status and value are those of the interior point, and the optimality conditions hold."""
    problem, cost, smoothing = drawn
    mine, theirs = both(problem, cost, smoothing)
    assert mine.status.tolist() == theirs.status.tolist()
    good = mine.solved
    torch.testing.assert_close(mine.value[good], theirs.value[good], rtol=1e-9, atol=1e-9)
    if smoothing:
        torch.testing.assert_close(mine.x[good], theirs.x[good], rtol=1e-9, atol=1e-9)
    assert float(mine.kkt_residual[good].amax() if good.any() else 0.0) < 1e-10


def test_degenerate_programs_end() -> None:
    """The method ends on Beale's program, on which the plain simplex method cycles, and on an assignment with ties."""
    beale = pear.Problem(
        G=[[0.25, -60, -1 / 25, 9], [0.5, -90, -1 / 50, 3], [0, 0, 1, 0]], h=[0.0, 0.0, 1.0], lb=0.0, n=4
    )
    found = pear.solve(beale, torch.tensor([[-0.75, 150.0, -0.02, 6.0]], dtype=torch.float64), solver="active-set")
    assert found.value.item() == pytest.approx(-0.05, abs=1e-14)
    k = 6
    A = np.vstack([np.kron(np.eye(k), np.ones(k)), np.kron(np.ones(k), np.eye(k))])
    assignment = pear.Problem(A=A, b=np.ones(2 * k), lb=0.0)
    found = pear.solve(assignment, torch.ones(1, k * k).double(), solver="active-set")
    assert found.value.item() == pytest.approx(k, abs=1e-12)


# --------------------------------------------------------------------------------------------------- starts and company


def test_warm_is_cold() -> None:
    P, cost = of_paths(40)
    cold, _ = run(P, cost)
    _, states = run(P, np.random.default_rng(1).uniform(0.5, 3.0, cost.shape))
    warm, _ = run(P, cost, states)
    again, _ = run(P, cost, states)
    assert (cold.code == 0).all()
    assert (warm.changes > 0).any()
    assert (again.changes == 0).all()
    for found in (warm, again):
        np.testing.assert_allclose(found.x, cold.x, rtol=0, atol=1e-13)
        assert found.kkt_residual.max() < 1e-14


def test_neighbours_change_no_bit() -> None:
    P, cost = of_paths(20)
    together, _ = run(P, cost)
    for i in (0, 7, 19):
        alone, _ = run(P, cost[i : i + 1])
        for mine, theirs in zip(alone, together, strict=True):
            assert np.array_equal(mine[0], theirs[i])


@pytest.mark.parametrize("openmp", [True, False], ids=["torch's threads", "threads of our own"])
@pytest.mark.parametrize(("threads", "parts"), [(3, 8), (3, 1), (7, 1_000), (16, 2)])
def test_threads_change_no_bit(openmp: bool, threads: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are equal to the bit for every number of threads, and of samples that a thread takes at a time."""
    P, cost = of_paths(300)
    one, _ = run(P, cost)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(kernel_threads, "_PARTS", parts)
    if not openmp:
        monkeypatch.setattr(torch_openmp, "openmp_address", lambda: 0)
    several, _ = run(P, cost)
    for mine, theirs in zip(one, several, strict=True):
        assert np.array_equal(mine, theirs)


def regrets(P: layout.Programs, cost: Array) -> tuple[layout.CompiledRegrets, Array]:
    """Return the results for true costs that are the predicted ones reversed, without stored starts."""
    (B, n), (_, R, _), default = cost.shape, P.J.shape, batch.call_kernel_for_start(P)
    table = kernel_threads.kernel_thread_table(B, n, P.equalities, R - P.equalities)
    samples = layout.SampleCosts(cost, cost[:, ::-1].copy(), np.arange(B), np.zeros(0, np.int64))
    return batch.call_kernel_for_regrets(pack_program_pair(P, P.Q), samples, table, default, 0.1), table.best.x


@pytest.mark.parametrize("openmp", [True, False], ids=["torch's threads", "threads of our own"])
def test_regrets_of_which_nothing_is_kept(openmp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that are not stored use a row for each worker, and are equal to the bit for any number of workers."""
    P, cost = of_paths(300)
    (B, n), R = cost.shape, P.J.shape[1]
    slots, best = np.arange(B), layout.new_kernel_solutions(B, n, R, 0)
    states = (layout.new_kernel_states(B, n, R) for _ in range(2))
    table = layout.SolutionTable(*states, best, np.zeros((0, 0)))
    samples = layout.SampleCosts(cost, cost[:, ::-1].copy(), slots, slots)
    default = batch.call_kernel_for_start(P)
    kept = batch.call_kernel_for_regrets(pack_program_pair(P, P.Q), samples, table, default, 0.1)
    assert (kept.outcome.code == layout.SOLVED).all()
    if not openmp:
        monkeypatch.setattr(torch_openmp, "openmp_address", lambda: 0)
    for threads in (1, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found, x = regrets(P, cost)
        assert np.array_equal(x, best.x)
        assert all(np.array_equal(a, b) for a, b in zip(found[1:], kept[1:], strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(found.outcome, kept.outcome, strict=True))


def litter(make: Any) -> Any:
    """Return a version of ``make`` whose arrays are filled with sevens."""

    def littered(*sizes: int) -> Any:
        made = make(*sizes)
        for part in made:
            if isinstance(part, np.ndarray):
                part[...] = 7
        return made

    return littered


@pytest.mark.parametrize("bad", [np.nan, 2e150])
def test_samples_that_are_given_up_are_zero(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of failed samples are zero, although the arrays are not initialised."""
    P, cost = of_paths(6)
    cost[2, 3] = bad
    littered = {name: litter(getattr(layout, name)) for name in ("new_kernel_solutions", "new_kernel_regrets")}
    for name, make in littered.items():
        for module in (layout, batch, kernel_threads):  # each has a name of its own for the function
            monkeypatch.setattr(module, name, make, raising=False)
    results, _ = regrets(P, cost)
    for found in (results.outcome, run(P, cost)[0]):
        solved = np.arange(6) != 2
        assert np.array_equal(found.code == layout.SOLVED, solved)
        assert found.code[2] == GIVEN_UP
        assert not any(part[2].any() for name, part in found._asdict().items() if name != "code")
    assert not any(part[2].any() for part in results[1:])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_does_not_wait_for_threads_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    P, cost = of_paths(300)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    here, _ = run(P, cost)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, run(P, cost)[0].x.sum().tobytes())
        os._exit(0)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], 60)
        assert ready, "the child waits"
        assert np.frombuffer(os.read(reader, 8))[0] == here.x.sum()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)


def test_callers_in_several_threads_do_not_meet() -> None:
    """The kernels run without Python's lock; if callers shared a workspace, they would overwrite each other's data."""
    P, cost = of_paths(2_000)
    alone, _ = run(P, cost)
    with ThreadPoolExecutor(3) as pool:
        for found, _ in pool.map(lambda _: run(P, cost), range(6)):
            assert np.array_equal(found.x, alone.x)
            assert np.array_equal(found.code, alone.code)


@pytest.mark.parametrize("field", ["h", "ub", "G", "Q"])
def test_fields_that_change_under_the_same_keys(field: str) -> None:
    """A result that was stored with other data is a start, never an answer."""
    case, keys = ZOO["knapsack"], [0, 1, 2]
    p = case.problem
    assert p.G is not None
    changes = {"h": 0.7 * p.h, "ub": 0.5 * p.ub, "G": p.G.flip(1), "Q": -2.0 * torch.eye(p.n, dtype=torch.float64)}
    layer = pear.DecisionLayer(p, case.smoothing)
    layer(case.cost, keys=keys)
    for changed in ({field: changes[field]}, {}):
        cost = case.cost.clone().requires_grad_()
        fresh = case.cost.clone().requires_grad_()
        mine, theirs = (
            layer(cost, keys=keys, **changed),
            pear.DecisionLayer(p, case.smoothing, "interior-point")(fresh, **changed),
        )
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
        weight = torch.linspace(-1, 1, p.n).double()
        (mine @ weight).sum().backward()
        (theirs @ weight).sum().backward()
        torch.testing.assert_close(cost.grad, fresh.grad, rtol=1e-9, atol=1e-9)


def test_a_factor_that_is_kept_belongs_to_its_smoothing() -> None:
    """Injection uses a factor of H, which is stored separately for each λ."""
    r = np.random.default_rng(0)
    W = r.normal(size=(6, 6))
    problem = pear.Problem(Q=W @ W.T + np.eye(6), A=np.ones((1, 6)), b=[1.0], lb=0.0, ub=1.0)
    true, predicted = torch.from_numpy(r.normal(size=(2, 8, 6)))

    def injected(compiled: CompiledPass, smoothing: float) -> torch.Tensor:
        found = compiled.regret(RegretCall(predicted, true, smoothing, 0.5, None))
        assert found is not None
        return found[0].injected

    shared = CompiledPass(problem, WarmStarts())
    for smoothing in (0.0, 2.0, 2.0, 0.0):
        assert torch.equal(injected(shared, smoothing), injected(CompiledPass(problem, WarmStarts()), smoothing))


def test_backward_after_the_table_moved_on() -> None:
    """The derivative belongs to the decision of its call, even if the store holds a later one."""
    case, keys = ZOO["simplex"], [0, 1, 2]
    layer = pear.DecisionLayer(case.problem, case.smoothing)
    cost, fresh = (case.cost.clone().requires_grad_() for _ in range(2))
    decision = layer(cost, keys=keys)
    layer(case.cost.flip(1), keys=keys)
    weight = torch.linspace(-1, 1, case.n).double()
    (decision @ weight).sum().backward()
    (pear.DecisionLayer(case.problem, case.smoothing, "interior-point")(fresh) @ weight).sum().backward()
    torch.testing.assert_close(cost.grad, fresh.grad, rtol=1e-12, atol=1e-13)


def test_tables_grow() -> None:
    task = pear.tasks.shortest_path((3, 3))
    loss = pear.PEARLoss(task.problem, guidance=0.0, smoothing=0.1, injection=0.1)
    cost = torch.rand(64, task.problem.n, generator=torch.Generator().manual_seed(0)).double() + 0.5
    for size in (3, 10, 64):
        loss(cost[:size], cost[:size].flip(1), keys=range(size))
    loss(cost, cost.flip(1), keys=range(64))
    assert loss.last is not None
    assert loss.last.reuse_rate == 1.0


# -------------------------------------------------------------------------------------------------------- handing over


def test_given_up_samples_go_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    task = pear.tasks.shortest_path((3, 3))
    cost = torch.rand(6, task.problem.n, generator=torch.Generator().manual_seed(0)).double() + 0.5
    true = cost.flip(1)

    def gradients() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        predicted, price = cost.clone().requires_grad_(), cost.clone().requires_grad_()
        loss = pear.PEARLoss(task.problem, reduction="none", guidance=0.0, smoothing=0.1, injection=0.1)(
            predicted, true
        )
        loss.sum().backward()
        pear.DecisionLayer(task.problem, 0.1)(price).square().sum().backward()
        assert predicted.grad is not None
        assert price.grad is not None
        return loss.detach(), predicted.grad, price.grad

    expected = gradients()
    asked = []
    for name in ("call_kernel_to_solve", "call_kernel_for_regrets"):
        whole = getattr(batch, name)

        def part(*args: Any, whole: Any = whole) -> Any:
            found = whole(*args)
            outcome = found if isinstance(found, layout.CompiledSolutions) else found[0]
            outcome.code[1::2] = GIVEN_UP
            asked.append(len(outcome.code))
            return found

        monkeypatch.setattr(batch, name, part)
    for mine, theirs in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)
    assert len(asked) >= 3


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_VARIABLES"])
def test_limits_hand_over_quietly(
    limit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case = ZOO["knapsack"]
    expected = pear.solve(case.problem, case.cost, case.smoothing).x
    monkeypatch.setattr(active_set_solver, limit, 0)
    assert Decider(case.problem, "auto").fused is None
    found = pear.solve(case.problem, case.cost, case.smoothing)
    assert not caplog.records
    torch.testing.assert_close(found.x, expected, rtol=1e-10, atol=1e-11)
    predicted = case.cost.clone().requires_grad_()
    pear.PEARLoss(case.problem, case.smoothing, guidance=0.0, injection=0.1)(predicted, case.true).backward()
    assert predicted.grad is not None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the table of stored solutions would be too large, samples start afresh."""
    monkeypatch.setattr(solution_store, "_TABLE_BYTES", 0)
    case = ZOO["simplex"]
    loss = pear.PEARLoss(case.problem, case.smoothing, guidance=0.0, injection=0.1)
    values = [loss(case.cost, case.true, keys=[0, 1, 2]) for _ in range(2)]
    assert values[0] == values[1]
    assert loss.reused == 0


def test_upstream_nan_stays_with_its_sample() -> None:
    case = ZOO["simplex"]
    cost = case.cost.clone().requires_grad_()
    decision = pear.DecisionLayer(case.problem, case.smoothing)(cost)
    weight = torch.ones_like(decision)
    weight[1, 0] = torch.nan
    decision.backward(weight)
    assert cost.grad is not None
    assert cost.grad[[0, 2]].isfinite().all()
    assert cost.grad[1].isnan().all()


# ---------------------------------------------------------------------------------------------------------------- cache


def test_one_specialisation_each() -> None:
    """All shapes, with and without curvature, dense and sparse, shared and per sample, use one compiled version."""
    for name in ("simplex", "portfolio", "knapsack", "flow", "box"):
        case = ZOO[name]
        loss = pear.PEARLoss(case.problem, case.smoothing, injection=0.0, guidance=0.0)
        predicted = case.cost.float().requires_grad_()
        keys = range(case.B)
        for true in (case.true, case.true.float().numpy()):
            loss(predicted, true, keys=keys).backward()
        pear.DecisionLayer(case.problem, case.smoothing)(case.cost.clone().requires_grad_()).sum().backward()
    assert len(kernels.run_batch_kernel.signatures) == 1


def test_cache_is_emptied_when_a_source_changes(tmp_path: Path) -> None:
    package, cached = tmp_path / "package", tmp_path / "package" / "__pycache__"
    cached.mkdir(parents=True)
    source, compiled = package / "callee.py", cached / "caller.f-1.py311.nbi"
    shared = tmp_path / "constants.py"
    source.write_text("x = 1")
    shared.write_text("TIGHT = 1")
    discard_stale_kernel_cache((package, shared), cached)
    compiled.write_text("machine code")
    discard_stale_kernel_cache((package, shared), cached)
    assert compiled.exists()
    source.write_text("x = 2")
    discard_stale_kernel_cache((package, shared), cached)
    assert not compiled.exists()
    assert not list(cached.glob("*.sha256.*"))
    for changed in (package / "another.py", shared):
        compiled.write_text("machine code")
        changed.write_text("TIGHT = 2")
        discard_stale_kernel_cache((package, shared), cached)
        assert not compiled.exists()


def test_the_cache_depends_on_the_rule_and_on_both_packages() -> None:
    """The cache key covers the rule and both packages, because an entry point elsewhere contains code of this one."""
    package = Path(pear.__file__).resolve().parent
    shared = (package / "compile", package / "solvers", Path(rule.__file__).resolve())

    def stranger() -> None: ...

    assert kernel_cache.kernel_cache_sources(stranger) == (*shared, Path(__file__).resolve().parent)
    assert kernel_cache.kernel_cache_sources(kernels.run_batch_kernel.py_func) == shared


def test_cache_that_cannot_be_written_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")
    compiled = tmp_path / "f-1.nbi"
    compiled.write_text("machine code")

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError("read-only")

    for name in ("unlink", "write_text", "mkdir"):
        monkeypatch.setattr(Path, name, refuse)
    discard_stale_kernel_cache((tmp_path,), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "f-1.nbi"]


def test_cache_is_tended_by_many_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "stale.nbc").write_text("")
    # by its path, because importing the whole library takes much longer than what is tested
    load = f"import runpy; discard = runpy.run_path({kernel_cache.__file__!r})['discard_stale_kernel_cache']"
    code = f"{load}; from pathlib import Path; p = Path({str(tmp_path)!r}); discard((p,), p)"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(timeout=100) for process in started] == [0, 0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "sources.sha256"]


def test_nothing_is_kept_without_keys() -> None:
    case = ZOO["simplex"]
    loss = pear.PEARLoss(case.problem, case.smoothing, guidance=0.0, injection=0.1)
    for _ in range(2):
        loss(case.cost, case.true)
    assert loss.reused == 0
    assert Decider(case.problem, "osqp").fused is None


DEPENDENT: dict[str, dict[str, Any]] = {
    "linear": {
        "A": [[2, 2, 0], [-1, -1, -2], [0, 0, -2]],
        "b": [2, 1, 2],
        "lb": [0, 0, -1],
        "ub": [np.inf, np.inf, 1],
        "c": [5, 1, 2],
        "value": -1.0,
    },
    "quadratic": {
        "Q": np.diag([5.0, 0, 1, 0]),
        "A": [[-1, -1, -1, 2], [0, 0, 1, 0], [-1, -1, -2, 2]],
        "b": [1, -1, 2],
        "lb": [-np.inf, -np.inf, -1, 0],
        "ub": [1, np.inf, np.inf, 1],
        "c": [3, -2, 1, 1],
        "value": -6.0,
    },
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_equalities_that_depend_on_each_other_in_any_unit(name: str) -> None:
    """In extreme units, the rounding of one row was taken for a pivot, and a non-optimal point for the solution."""
    A, b, lb, ub, c = (np.array(DEPENDENT[name][field], dtype=float) for field in ("A", "b", "lb", "ub", "c"))
    Q, random = DEPENDENT[name].get("Q"), np.random.default_rng(0)
    for _ in range(400):
        unit, money, rows = 10 ** random.uniform(-8, 8), 10 ** random.uniform(-9, 9), 10 ** random.uniform(-4, 4, 3)
        problem = pear.Problem(
            Q=None if Q is None else money * Q / unit**2,
            A=A * rows[:, None] / unit,
            b=b * rows,
            lb=lb * unit,
            ub=ub * unit,
        )
        value = pear.solve(problem, money * c[None] / unit).value.item() / money
        assert value == pytest.approx(DEPENDENT[name]["value"], rel=1e-9)


def test_flat_direction_gets_no_curvature_from_rounding() -> None:
    """In these units an entry of 3e-17 gave curvature to a flat direction, and a point of 2e32 counted as solved."""
    unit = np.array([0.007165404364390099, 72.33911940644133, 6.808704603293725, 0.037569087124086444])
    rows = np.array([604.5993823092194, 4902.194695147551, 4061.2015359520883, 4.82604137674135, 1.7342324586589783])
    row, money = 0.6832434875075266, 0.035494255519056314
    G = np.array([[-1.0, 1, -1, 1], [-1, 1, -1, 1], [1, -2, 1, -1], [-1, -1, -1, -2], [2, -2, 0, 1]])
    problem = pear.Problem(
        Q=money * np.diag([0.0, 0, 0, 5]) / unit[:, None] / unit,
        A=np.array([[-1.0, 1, 1, 1]]) * row / unit,
        b=[row],
        G=G * rows[:, None] / unit,
        h=np.array([-1.0, 0, 3, 2, -2]) * rows,
        lb=np.array([-1, 0, 0, -np.inf]) * unit,
    )
    cost = money * np.array([[-2.0, 1, 1, 3]]) / unit  # (1, 1, 0, 0) lowers the cost without end
    solution = pear.solve(problem, cost, solver="active-set", on_failure="mask")
    assert solution.status.tolist() == [int(pear.Status.UNBOUNDED)]

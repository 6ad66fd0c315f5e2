"""The GPU pass on the CPU, with the compiled method in place of its kernel."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import ZOO, Planted

import pear
from pear.compile import cuda_graphs as replay
from pear.decisions.decider import Decider
from pear.optimality.status import Status
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set import active_set_solver as active_set
from pear.solvers.active_set.compiled_pass import CompiledPass
from pear.solvers.active_set.gpu import gpu_pass
from pear.solvers.active_set.gpu.gpu_pass import GPUPass
from pear.solvers.active_set.gpu.gpu_tangent_space import GPUTangentSpace
from pear.solvers.candidate import CandidateProjector

PLAIN_SUPPORTS = GPUPass.supports


@dataclass(frozen=True)
class StandInSolution:
    """The results of the kernel that the pass reads."""

    x: Tensor
    curvature: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    rows: Tensor
    optimal: Tensor
    no_room: Tensor
    singular: Tensor
    projector: CandidateProjector

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        return self.projector.project(e)

    def copied(self) -> StandInSolution:
        return replace(self)  # whose projector has new arrays in every call

    def joined(self, other: StandInSolution) -> StandInSolution:
        parts = {name: torch.cat([one, vars(other)[name]]) for name, one in vars(self).items() if name != "projector"}
        return replace(self, **parts)


class Compiled:
    """The compiled method in place of the kernel; the pipeline can keep its own plan in it."""

    slots = numbers = 32
    needs_inverse = False

    @property
    def state(self) -> tuple[int]:
        return (self.slots,)

    def __init__(self, qp: QuadraticProgram) -> None:
        self.plan = active_set.prepare(qp)
        self.programs, self.default, self.dual = self.plan.programs, self.plan.default, self.plan.dual

    def solve(self, qp: QuadraticProgram, curvature: Any = None) -> Any:
        there = active_set.solve(qp, 0.0, self.plan)
        assert there.working is not None
        assert there.projector is not None
        y, held = torch.cat([there.duals.equality, there.duals.inequality], 1), there.working
        solved = there.status == Status.SOLVED
        sets = held.lower, held.upper, held.rows, solved, ~solved, ~solved
        return StandInSolution(there.x, matvec(qp.H, there.x), y, *sets, there.projector)

    def solve_all(self, qp: QuadraticProgram, costs: Tensor, curvature: Any = None) -> Any:
        first, *others = (self.solve(replace(qp, c=cost)) for cost in costs)
        return functools.reduce(StandInSolution.joined, others, first)

    def adapt(self, found: Any) -> bool:
        return False

    def fits(self, B: int, device: torch.device) -> bool:
        return True


def as_on_gpu(problem: pear.Problem) -> bool:
    """Return whether the pass supports the same problem on a GPU."""
    return PLAIN_SUPPORTS(problem._with(device=torch.device("cuda")))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the GPU pass on the CPU."""
    monkeypatch.setattr(CompiledPass, "supports", staticmethod(lambda problem: False))
    monkeypatch.setattr(GPUPass, "supports", staticmethod(as_on_gpu))
    monkeypatch.setattr(gpu_pass.gpu, "supports_gpu_plan", lambda qp: True)
    monkeypatch.setattr(gpu_pass.gpu, "make_gpu_plan", Compiled)


CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]
LEFT = ["uneven rows"]
"""Where the stand-in gives a sample up, which goes down the pipeline."""
every_case = pytest.mark.parametrize("name", CURVED)


def own(case: Planted) -> pear.Problem:
    """Return the problem with an empty store of plans of its own."""
    return case.problem._with(_plans={})


def leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def loss_of(case: Planted, injection: float, solver: str, **given: Any) -> list[Tensor]:
    """Return values and gradients of a loss, and its last decisions and statuses."""
    loss = pear.PEARLoss(own(case), case.smoothing, injection, guidance=0.3, reduction="none", solver=solver)
    predicted = leaf(case.cost)
    given = {name: leaf(value) if name == "Q" else value for name, value in given.items()}
    value = loss(predicted, case.true, **given)
    value.sum().backward()
    assert loss.last is not None
    grads = [predicted.grad, *(given[name].grad for name in given if name == "Q")]
    assert all(grad is not None for grad in grads)
    return [value.detach(), *grads, loss.last.decision, loss.last.status.double()]  # type: ignore[list-item]


def agree(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12 * max(float(other.abs().max()), 1e-300))


def without_pipeline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in LEFT:
        monkeypatch.setattr(Decider, "solve", lambda *args, **fields: pytest.fail("the pipeline was asked"))


@pytest.mark.parametrize("injection", [0.0, 0.1])
@every_case
def test_losses_are_those_of_the_pipeline(
    name: str, injection: float, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ZOO[name]
    if name == "singular curvature":
        injection = 0.0  # its normal component is left to the pipeline
    expected = loss_of(case, injection, "interior-point")
    without_pipeline(name, monkeypatch)
    agree(loss_of(case, injection, "auto"), expected)


@pytest.mark.parametrize("name", [name for name in CURVED if name not in LEFT])
def test_layers_are_those_of_the_pipeline(name: str, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO[name]
    results = []
    for solver in ("interior-point", "auto"):
        if solver == "auto":
            without_pipeline(name, monkeypatch)
        cost, weights = leaf(case.cost), torch.arange(1.0, case.n + 1, dtype=torch.float64)
        layer = pear.DecisionLayer(own(case), case.smoothing, solver=solver)
        z = layer(cost)
        (z * weights).sum().backward()
        assert cost.grad is not None
        assert layer.status is not None
        results.append([z.detach(), cost.grad, layer.status.double()])
    agree(*reversed(results))


# ------------------------------------------------------------------------------------------- what the pass leaves


COSTS = torch.tensor([[0.3, -0.8, 0.1], [-0.5, -0.2, 0.4], [0.2, 0.1, -0.6]], dtype=torch.float64)
SIMPLEX = {"A": [[1.0, 1.0, 1.0]], "b": [1.0], "lb": 0.0}


def both_ways(monkeypatch: pytest.MonkeyPatch, run: Any) -> tuple[Any, Any]:
    """Return the results of ``run`` with the GPU pass, and without any pass."""
    found = run()
    with monkeypatch.context() as without:
        without.setattr(Decider, "fused", None)
        return found, run()


def test_the_pass_is_taken(here: None) -> None:
    assert isinstance(Decider(pear.Problem(**SIMPLEX), "auto").fused, GPUPass)
    assert Decider(pear.Problem(**SIMPLEX), "osqp").fused is None
    assert not PLAIN_SUPPORTS(pear.Problem(**SIMPLEX))


def test_costs_that_are_no_numbers_are_left(here: None) -> None:
    loss = pear.PEARLoss(pear.Problem(**SIMPLEX), 0.5, on_failure="mask", reduction="none")
    for bad in (torch.nan, torch.inf, 1e200):
        predicted = COSTS.clone()
        predicted[1, 0] = bad
        leaf_of = leaf(predicted)
        with pytest.warns(pear.FailedSamplesWarning, match=r"sample 1 \(NOT_FINITE\)"):
            loss(leaf_of, COSTS.flip(0)).sum().backward()
        assert loss.last is not None
        assert loss.last.status.tolist() == [0, Status.NOT_FINITE, 0]
        assert leaf_of.grad is not None
        assert leaf_of.grad[1].tolist() == [0.0] * 3
        assert bool(leaf_of.grad.isfinite().all())


def test_points_that_are_wrong_are_left(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong point that the kernel calls optimal is rejected, and so is an inaccurate projection."""
    plain = Compiled.solve

    def spoilt(self: Compiled, qp: QuadraticProgram, curvature: Any = None) -> Any:
        found = plain(self, qp)
        return replace(found, x=found.x + torch.tensor([[0.0], [1e-6], [0.0]], dtype=torch.float64))

    @dataclass
    class Halfway:
        projector: CandidateProjector

        def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
            g, converged = self.projector.project(e)
            first = torch.tensor([True, False, False])
            return torch.where(first[:, None], e, g), converged & ~first

    def loss() -> list[Tensor]:
        predicted = leaf(COSTS)
        value = pear.PEARLoss(pear.Problem(**SIMPLEX), 0.5, 0.1, guidance=0.0)(predicted, COSTS.flip(0))
        value.backward()
        assert predicted.grad is not None
        return [value.detach(), predicted.grad]

    def layer() -> list[Tensor]:
        cost = leaf(COSTS)
        z = pear.DecisionLayer(pear.Problem(**SIMPLEX), 0.5)(cost)
        (z * COSTS).sum().backward()
        assert cost.grad is not None
        return [z.detach(), cost.grad]

    def halfway(self: Compiled, qp: QuadraticProgram, curvature: Any = None) -> Any:
        found = plain(self, qp)
        return replace(found, projector=Halfway(found.projector))

    for change in (spoilt, halfway):
        with monkeypatch.context() as spoiling:
            spoiling.setattr(Compiled, "solve", change)
            for run in (loss, layer):
                agree(*both_ways(spoiling, run))


def test_room_that_was_missing_is_made(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel had no room, it is called again, and no other solver is asked."""
    calls: list[str] = []
    plain = Compiled.solve

    def crowded(self: Compiled, qp: QuadraticProgram, curvature: Any = None) -> Any:
        calls.append("solve")
        found = plain(self, qp)
        return replace(found, optimal=found.optimal & ("adapt" in calls))

    def adapt(self: Compiled, found: Any) -> bool:
        calls.append("adapt")
        return calls.count("adapt") == 1

    monkeypatch.setattr(Compiled, "solve", crowded)
    monkeypatch.setattr(Compiled, "adapt", adapt)
    without_pipeline("", monkeypatch)
    pear.PEARLoss(pear.Problem(**SIMPLEX), 0.5)(leaf(COSTS), COSTS.flip(0)).backward()
    assert calls == ["solve", "solve", "adapt", "solve", "solve"]
    calls.clear()
    pear.DecisionLayer(pear.Problem(**SIMPLEX), 0.5)(COSTS)
    assert calls == ["solve", "adapt", "solve"]


def test_the_inverse_is_that_of_the_problem(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that needs H⁻¹ gets it, computed once, if all samples share H and it is not predicted."""
    given: list[Tensor | None] = []
    plain = Compiled.solve

    def solve(self: Compiled, qp: QuadraticProgram, curvature: Any = None) -> Any:
        given.append(curvature)
        return plain(self, qp)

    monkeypatch.setattr(Compiled, "solve", solve)
    monkeypatch.setattr(Compiled, "needs_inverse", True)
    monkeypatch.setattr(Compiled, "curvature", lambda self, qp, inverse: inverse, raising=False)
    Q = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64)
    layer = pear.DecisionLayer(pear.Problem(Q, lb=-1.0, ub=1.0), 0.0)
    layer(COSTS)
    layer(COSTS.flip(0))
    first, second = given
    assert first is not None
    assert first is second
    torch.testing.assert_close(first[0], torch.linalg.inv(Q))
    layer(COSTS, Q=2 * Q)
    pear.DecisionLayer(pear.Problem(Q.expand(len(COSTS), 3, 3), lb=-1.0, ub=1.0), 0.0)(COSTS)  # of each sample's own
    assert given[2:] == [None, None]


@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("shared", [True, False])
def test_predicted_curvature(sense: str, shared: bool, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = 1 if sense == "min" else -1
    root = torch.randn(2, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Q, true_Q = sign * (root @ root.mT + 0.5 * torch.eye(3, dtype=torch.float64))
    problem = pear.Problem(**SIMPLEX, sense=sense, Q=sign * torch.eye(3))
    for theirs in (true_Q, None):

        def run(theirs: Any = theirs) -> list[Tensor]:
            predicted, curvature = leaf(COSTS), leaf(Q[0] if shared else Q)
            loss = pear.PEARLoss(problem, 0.1, 0.1, guidance=0.3, reduction="sum")
            value = loss(predicted, COSTS.flip(0), Q=curvature, true_Q=theirs)
            value.backward()
            assert predicted.grad is not None
            assert curvature.grad is not None
            return [value.detach(), predicted.grad, curvature.grad]

        agree(*both_ways(monkeypatch, run))


def test_a_predicted_curvature_that_is_none_is_named(here: None) -> None:
    loss = pear.PEARLoss(pear.Problem(**SIMPLEX, Q=torch.eye(3)), 0.1)
    Q = torch.eye(3, dtype=torch.float64).repeat(3, 1, 1)
    Q[2, 0, 1] = 0.5
    with pytest.raises(pear.ProblemError, match=r"must be symmetric.* in sample 2"):
        loss(COSTS, COSTS.flip(0), Q=Q)
    Q[2] = -torch.eye(3)
    with pytest.raises(pear.SolveError, match=r"sample 2 \(NOT_CONVEX\)"):
        loss(COSTS, COSTS.flip(0), Q=Q)


def test_samples_by_their_keys(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys select curvatures of a problem that has one per sample; constraints per sample are left to the pipeline."""
    scales = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    own_Q = pear.Problem(**SIMPLEX, Q=scales[:, None, None] * torch.eye(3))
    own_b = pear.Problem(**(SIMPLEX | {"b": scales[:, None]}), Q=torch.eye(3))
    for problem in (own_Q, own_b):
        for keys in ([2, 0, 3], [0, 1, 2]):

            def run(problem: Any = problem, keys: Any = keys) -> list[Tensor]:
                predicted = leaf(COSTS)
                loss = pear.PEARLoss(problem, 0.0, 0.1, guidance=0.0)
                value = loss(predicted, COSTS.flip(0), keys=keys)
                value.backward()
                assert predicted.grad is not None
                return [value.detach(), predicted.grad]

            agree(*both_ways(monkeypatch, run))


def test_another_smoothing_is_another_program(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Tensor]:
        loss = pear.PEARLoss(pear.Problem(**SIMPLEX), 0.5, 0.1, guidance=0.0)
        values = [loss(COSTS, COSTS.flip(0))]
        loss.smoothing = 3.0
        return [*values, loss(COSTS, COSTS.flip(0))]

    found, expected = both_ways(monkeypatch, run)
    agree(found, expected)
    assert found[0] != found[1]


def test_a_decision_that_is_not_unique_has_no_derivative(here: None) -> None:
    flat = pear.Problem(Q=torch.diag(torch.tensor([1.0, 0.0, 0.0])), lb=0.0, ub=1.0)
    cost = torch.tensor([[-0.5, 0.0, 1.0]], dtype=torch.float64)
    layer = pear.DecisionLayer(flat)
    z = layer(leaf(cost))
    with pytest.raises(pear.NotUniqueError):
        z.sum().backward()
    with pytest.raises(pear.NotUniqueError):
        pear.PEARLoss(flat, 0.0, injection=0.0)(leaf(cost), -cost)


# ------------------------------------------------------------------------------------------------------------ graphs


def overwrite(old: Any, new: Any) -> None:
    """Write the tensors of a result over those of another, as the replay of a graph does."""
    if isinstance(old, Tensor):
        old.copy_(new)
    elif isinstance(old, tuple):
        for mine, theirs in zip(old, new, strict=True):
            overwrite(mine, theirs)
    elif isinstance(old, (StandInSolution, GPUTangentSpace)):
        for name, mine in vars(old).items():
            overwrite(mine, getattr(new, name))
        if isinstance(old, StandInSolution):
            object.__setattr__(old, "projector", new.projector)


class Graph:
    """A stand-in for a graph: its replay calls the function again, and overwrites the earlier result."""

    def __init__(self, run: Any) -> None:
        run()
        self.run, self.made = run, run.__self__

    def replay(self) -> None:
        before = self.made.result
        self.run()
        overwrite(before, self.made.result)
        self.made.result = before


@pytest.fixture
def captured(here: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Capture graphs on the CPU by the rules for a GPU, except those about memory; return the list of their keys."""
    made: list[Any] = []

    def asked(name: Any, tensors: list[Tensor], numbers: int, make: Any, store: replay.CudaGraphStore) -> Any:
        key = name, *((tensor.shape, tensor.dtype) for tensor in tensors)
        if numbers > LARGE or key not in store.found:
            store.found[key] = None
            return None
        if store.found[key] is None:
            made.append(key)
            store.found[key] = make(), numbers
        return store.found[key][0]  # type: ignore[index]

    monkeypatch.setattr(gpu_pass, "captured_graph", asked)
    monkeypatch.setattr(replay, "capture_graph", Graph)
    return made


LARGE = 10_000


def test_what_a_graph_gave_is_not_written_to(captured: list[Any]) -> None:
    """The results of a call remain those of this call, even if they are read after later replays."""
    problem = pear.Problem(**SIMPLEX, Q=torch.eye(3))
    loss, layer = pear.PEARLoss(problem, 0.2, 0.1, guidance=0.0), pear.DecisionLayer(problem, 0.2)
    batches = [COSTS * k for k in (1.0, -0.5, 2.0, 0.3, -1.0)]
    expected = []
    for batch in batches:
        fresh = pear.PEARLoss(problem, 0.2, 0.1, guidance=0.0), pear.DecisionLayer(problem, 0.2)
        leaves = leaf(batch), leaf(batch)
        value, z = fresh[0](leaves[0], COSTS.flip(0)), fresh[1](leaves[1])
        (value + (z * COSTS).sum()).backward()
        assert fresh[0].last is not None
        expected.append([value.detach(), z.detach(), leaves[0].grad, leaves[1].grad, fresh[0].last.decision])
    assert not captured  # a first call is not worth it
    pending = []
    for batch in batches:
        leaves = leaf(batch), leaf(batch)
        value, z = loss(leaves[0], COSTS.flip(0)), layer(leaves[1])
        pending.append((value, z, leaves, loss.last))
    assert len(captured) == 2
    for (value, z, leaves, last), right in zip(pending, expected, strict=True):
        (value + (z * COSTS).sum()).backward()
        agree([value.detach(), z.detach(), leaves[0].grad, leaves[1].grad, last.decision], right)  # type: ignore[list-item, union-attr]


def test_a_graph_is_for_one_shape_and_one_setting(captured: list[Any]) -> None:
    loss = pear.PEARLoss(pear.Problem(**SIMPLEX), 0.2, 0.1, guidance=0.0)
    for count in (3, 3, 3, 2, 2):
        loss(COSTS[:count], COSTS[:count].flip(0))
    assert len(captured) == 2
    loss.injection = 0.0
    for _ in range(3):
        loss(COSTS, COSTS.flip(0))
    assert len(captured) == 3
    loss.smoothing = 0.4
    for _ in range(2):
        value = loss(COSTS, COSTS.flip(0))
    assert len(captured) == 4
    fresh = pear.PEARLoss(pear.Problem(**SIMPLEX), 0.4, 0.0, guidance=0.0)(COSTS, COSTS.flip(0))
    assert value.item() == pytest.approx(fresh.item(), rel=1e-12)


def test_a_predicted_curvature_is_part_of_the_graph(captured: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pear.Problem(**SIMPLEX, Q=torch.eye(3))
    loss, layer = pear.PEARLoss(problem, 0.0, 0.1, guidance=0.0), pear.DecisionLayer(problem)
    for k in (1.0, 2.0, 3.0):
        Q = k * torch.eye(3, dtype=torch.float64).repeat(3, 1, 1)
        found = loss(COSTS, COSTS.flip(0), Q=leaf(Q), true_Q=Q + torch.eye(3)), layer(COSTS, Q=leaf(Q))
        fresh = pear.PEARLoss(problem, 0.0, 0.1, guidance=0.0), pear.DecisionLayer(problem)
        with monkeypatch.context() as without:
            without.setattr(Decider, "fused", None)
            agree(
                [one.detach() for one in found],
                [fresh[0](COSTS, COSTS.flip(0), Q=Q, true_Q=Q + torch.eye(3)), fresh[1](COSTS, Q=Q)],
            )
    assert len(captured) == 2
    for true_Q in (Q, None):  # the same, and the problem's own, are two functions of one curvature
        values = [loss(COSTS, COSTS.flip(0), Q=Q, true_Q=true_Q).item() for _ in range(3)]
        with monkeypatch.context() as without:
            without.setattr(Decider, "fused", None)
            fresh_loss = pear.PEARLoss(problem, 0.0, 0.1, guidance=0.0)
            right = fresh_loss(COSTS, COSTS.flip(0), Q=Q, true_Q=true_Q).item()
        assert values == [pytest.approx(right, rel=1e-12)] * 3
    assert len(captured) == 4
    monkeypatch.setattr(gpu_pass, "_WORK", 1000)  # what comes with a call is small with the costs alone
    for _ in range(3):
        loss(COSTS[:2], COSTS[:2], Q=Q[:2])
    assert len(captured) == 4

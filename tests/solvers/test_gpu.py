"""On a GPU, all data stays there and results agree with the CPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import LINEAR, ZOO, Planted

import pear
from pear_lab.benchmarks.random_programs import grid_flow_balance

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch.cuda.is_available() is False"),
]
TOL = 1e-9
CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]
every_case = pytest.mark.parametrize("name", CURVED)


def moved(case: Planted) -> Planted:
    """Return the same case on the GPU."""
    tensors = {name: getattr(case, name).cuda() for name in ("cost", "x", "true")}
    return dataclasses.replace(case, problem=case.problem.to("cuda"), **tensors)


def leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def agree(here: Tensor, there: Tensor, case: Planted) -> None:
    assert there.is_cuda
    assert not here.is_cuda
    top = max(float(here.abs().max()), case.size)
    torch.testing.assert_close(there.cpu(), here, rtol=TOL, atol=TOL * top)


def tensors_of(value: Any) -> list[Tensor]:
    """Return all tensors in a (nested) dataclass."""
    if isinstance(value, Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in tensors_of(getattr(value, f.name))]
    return []


@pytest.mark.parametrize("solver", ["auto", "interior-point"])
@every_case
def test_solve(name: str, solver: str) -> None:
    case = ZOO[name]
    there = moved(case)
    for here_cost, there_cost in ((case.cost, there.cost), (case.true, there.true)):
        here = pear.solve(case.problem, here_cost, case.smoothing, solver=solver)
        far = pear.solve(there.problem, there_cost, case.smoothing, solver=solver)
        agree(here.x, far.x, case)
        assert all(tensor.is_cuda for tensor in tensors_of(far))
        assert far.status.tolist() == here.status.tolist()
        assert torch.equal(far.active.fixed.cpu(), here.active.fixed)
        assert torch.equal(far.active.rows.cpu(), here.active.rows)


@pytest.mark.parametrize("name", LINEAR)
def test_solve_linear(name: str) -> None:
    case = ZOO[name]
    there = moved(case)
    agree(pear.solve(case.problem, case.true).x, pear.solve(there.problem, there.true).x, case)


@pytest.mark.parametrize("injection", [0.0, 0.1])
@every_case
def test_regret_gradient(name: str, injection: float) -> None:
    case = ZOO[name]
    there = moved(case)
    here_g, there_g = (pear.regret_gradient(k.problem, k.cost, k.true, k.smoothing, injection) for k in (case, there))
    agree(here_g, there_g, case)


@pytest.mark.parametrize("keys", [None, [0, 1, 2]])
@every_case
def test_loss(name: str, keys: Any) -> None:
    case = ZOO[name]
    results = []
    for k in (case, moved(case)):
        function = pear.PEARLoss(k.problem, k.smoothing, injection=0.0, reduction="none", guidance=0.0)
        for _ in range(2 if keys else 1):  # the second time from memory
            predicted, true = leaf(k.cost), leaf(k.true)
            value = function(predicted, true, keys=keys)
        value.sum().backward()
        assert function.last is not None
        if k is case:  # on the GPU most cases are solved afresh, which is faster than checking a warm start
            assert function.last.reuse_rate == (1.0 if keys else 0.0)
        assert all(t.device == k.cost.device for t in (function.last.decision, function.last.tangent_dim))
        results.append((value.detach(), predicted.grad, true.grad))
    for here, there in zip(*results, strict=True):
        agree(here, there, case)


@every_case
def test_layer(name: str) -> None:
    case = ZOO[name]
    results = []
    for k in (case, moved(case)):
        given = {n: getattr(k.problem, n) for n in ("Q", "b", "h", "lb", "ub")}
        given = {n: leaf(v) for n, v in given.items() if v is not None}
        cost = leaf(k.cost)
        z = pear.DecisionLayer(k.problem, k.smoothing)(cost, **given)
        (z * torch.arange(1.0, k.n + 1, device=z.device)).sum().backward()
        results.append((z.detach(), cost.grad, *(v.grad for v in given.values())))
    for here, there in zip(*results, strict=True):
        agree(here, there, case)


@pytest.mark.parametrize("side", [7, 12])
def test_many_rows(side: int) -> None:
    """Paths have more rows than the primal method supports, and one of the rows depends on the others."""
    A, b = grid_flow_balance(side)
    problem = pear.Problem(A=A, b=b, lb=0.0, ub=1.0)
    true = 0.5 + torch.rand(40, problem.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    guess = true + 0.3 * torch.randn(true.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for one in (problem, problem.to("cuda")):
        function = pear.PEARLoss(one, 0.1, injection=0.0, reduction="none", guidance=0.0)
        layer = pear.DecisionLayer(one, 0.1)
        for _ in range(3):  # step by step, captured, and replayed
            predicted, cost = leaf(guess.to(one.device)), leaf(guess.to(one.device))
            value = function(predicted, true.to(one.device))
            value.sum().backward()
            z = layer(cost)
            (z * torch.arange(1.0, one.n + 1, device=z.device)).sum().backward()
        results.append((value.detach(), predicted.grad, z.detach(), cost.grad))
    assert layer.decider.fused is not None
    assert layer.decider.fused.decide(guess.cuda(), 0.1, None, {}) is not None
    for here, there in zip(*results, strict=True):
        assert here is not None
        assert there is not None
        torch.testing.assert_close(there.cpu(), here, rtol=TOL, atol=TOL * float(here.abs().max()))


def test_a_decision_outlives_the_next_one() -> None:
    """The derivative is computed after later calls have replayed the same graph."""
    case = moved(ZOO[CURVED[0]])
    layer = pear.DecisionLayer(case.problem, case.smoothing)
    expected = leaf(case.cost)
    layer(expected).sum().backward()
    for _ in range(3):
        cost = leaf(case.cost)
        z = layer(cost)
        layer(case.cost * 0.5)
        layer(-case.cost)
        z.sum().backward()
        assert cost.grad is not None
        assert expected.grad is not None
        torch.testing.assert_close(cost.grad, expected.grad, rtol=TOL, atol=TOL)


def test_curvature() -> None:
    case = ZOO["portfolio"]
    results = []
    for k in (case, moved(case)):
        Q, true_Q = leaf(k.problem.Q), leaf(2 * k.problem.Q)
        pear.PEARLoss(k.problem, 0.0, injection=0.0, guidance=0.0)(k.cost, k.true, Q=Q, true_Q=true_Q).backward()
        results.append((Q.grad, true_Q.grad))
    for here, there in zip(*results, strict=True):
        agree(here, there, case)


def test_single_precision_comes_back_in_kind() -> None:
    case = moved(ZOO["knapsack"])
    g = pear.regret_gradient(case.problem, case.cost.float(), case.true.float(), case.smoothing)
    assert (g.dtype, g.device) == (torch.float32, case.cost.device)


def test_failures_are_masked() -> None:
    case = moved(ZOO["simplex"])
    cost = case.cost.clone()
    cost[1, 0] = float("nan")
    with pytest.raises(pear.SolveError, match=r"sample 1 \(NOT_FINITE\)"):
        pear.solve(case.problem, cost, case.smoothing)
    predicted = leaf(cost)
    function = pear.PEARLoss(case.problem, case.smoothing, injection=0.0, on_failure="mask", guidance=0.0)
    with pytest.warns(pear.FailedSamplesWarning):
        value = function(predicted, case.true)
    value.backward()
    assert predicted.grad is not None
    assert bool(value.isfinite() & predicted.grad.isfinite().all())
    assert predicted.grad[1].tolist() == [0.0] * 6


def test_infeasible_and_unbounded_are_told_apart() -> None:
    problem = pear.Problem(A=[[1.0, 1.0]], b=[[1.0], [-1.0]], lb=0.0).to("cuda")
    with pytest.raises(pear.SolveError, match=r"sample 1 \(INFEASIBLE\)"):
        pear.solve(problem, torch.ones(2, 2, device="cuda"), 0.1)
    with pytest.raises(pear.SolveError, match=r"sample 0 \(UNBOUNDED\)"):
        pear.solve(pear.Problem(lb=0.0, n=2).to("cuda"), -torch.ones(1, 2, device="cuda"))


def test_costs_and_problem_meet_and_the_result_returns_to_the_costs() -> None:
    case = ZOO["simplex"]
    expected = pear.solve(case.problem, case.cost, case.smoothing).x
    agree(expected, pear.solve(case.problem, case.cost.cuda(), case.smoothing).x, case)
    far = pear.solve(case.problem.to("cuda"), case.cost, case.smoothing).x
    agree(expected, far.cuda(), case)
    assert not far.is_cuda


def test_a_smooth_term() -> None:
    phi = pear.Smooth(
        value=lambda z: z.logsumexp(1),
        gradient=lambda z: z.softmax(1),
        hessian=lambda z: torch.diag_embed(z.softmax(1)) - z.softmax(1)[:, :, None] * z.softmax(1)[:, None, :],
    )
    problem = pear.Problem(lb=-0.5, ub=1.0, n=3, phi=phi)
    cost = torch.tensor([[0.3, -0.8, 0.1], [-0.5, -0.2, 0.4]], dtype=torch.float64)
    here = pear.solve(problem, cost, 0.5).x
    there = pear.solve(problem.to("cuda"), cost.cuda(), 0.5).x
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, rtol=TOL, atol=TOL)


def test_integers_return_to_the_device() -> None:
    problem = pear.Problem(G=[[2.0, 3.0, 1.0]], h=[4.0], lb=0.0, ub=1.0, sense="max", integer=True).to("cuda")
    s = pear.solve(problem, torch.tensor([[3.0, 4.0, 2.0]], device="cuda"))
    assert s.x.is_cuda
    assert s.x.tolist() == [[0.0, 1.0, 1.0]]

"""The pass on a GPU, on the CPU: with a stand-in for its kernel, and with tensors that have no values at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import pear
from pear.decisions import gpu_pass
from pear.decisions.decider import Decider
from pear.decisions.gpu_pass import GPUPass
from pear.decisions.one_pass import OnePass
from pear.decisions.regrets import RegretCall
from pear.optimality.point import Status
from pear.problem.canonical import QuadraticProgram
from pear.solvers.active_set import solve as active_set
from pear.solvers.base import Projector
from zoo import ZOO, Planted

PLAIN_SUPPORTS = GPUPass.supports


@dataclass(frozen=True)
class Found:
    """What the kernel leaves, as far as the pass looks at it."""

    x: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    rows: Tensor
    ended: Tensor
    projector: Projector

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        return self.projector.project(e)


class Compiled:
    """The compiled method in the kernel's place."""

    def __init__(self, qp: QuadraticProgram) -> None:
        self.plan = active_set.prepare(qp)

    def solve(self, qp: QuadraticProgram) -> Any:
        there = active_set.solve(qp, 0.0, self.plan)
        assert there.working is not None
        assert there.projector is not None
        y, held = torch.cat([there.duals.equality, there.duals.inequality], 1), there.working
        return Found(
            there.x, y, held.lower, held.upper, held.rows, there.status == Status.SOLVED, there.projector
        )


def is_shared(problem: pear.Problem) -> bool:
    return PLAIN_SUPPORTS(replace_device(problem))


def replace_device(problem: pear.Problem) -> Any:
    """The problem as if it were on a GPU."""
    return problem._with(device=torch.device("cuda"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass for a GPU is taken on the CPU."""
    monkeypatch.setattr(OnePass, "supports", staticmethod(lambda problem: False))
    monkeypatch.setattr(GPUPass, "supports", staticmethod(is_shared))
    monkeypatch.setattr(gpu_pass.gpu, "supports", lambda qp: True)
    monkeypatch.setattr(gpu_pass.gpu, "prepare", Compiled)


@pytest.fixture
def alone(here: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Nothing goes down the pipeline, until it is called."""
    plain = Decider.solve
    monkeypatch.setattr(Decider, "solve", lambda *args, **fields: pytest.fail("the pipeline was asked"))
    yield lambda: monkeypatch.setattr(Decider, "solve", plain)


SHARED = [
    name
    for name, case in ZOO.items()
    if is_shared(case.problem) and (case.smoothing > 0 or case.problem.Q is not None)
]
every_case = pytest.mark.parametrize("name", SHARED)


def leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def loss_of(case: Planted, injection: float, solver: str, **given: Any) -> list[Tensor]:
    """Values and gradients of a loss, and what it tells."""
    loss = pear.PEARLoss(case.problem, case.smoothing, injection, guidance=0.3, reduction="none", solver=solver)
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


@pytest.mark.parametrize("injection", [0.0, 0.1])
@every_case
def test_losses_are_those_of_the_pipeline(
    name: str, injection: float, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ZOO[name]
    if name == "singular curvature":
        injection = 0.0  # injection needs H⁻¹
    expected = loss_of(case, injection, "pear")
    monkeypatch.setattr(Decider, "solve", lambda *args, **fields: pytest.fail("the pipeline was asked"))
    agree(loss_of(case, injection, "auto"), expected)


@every_case
def test_layers_are_those_of_the_pipeline(name: str, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO[name]
    results = []
    for solver in ("pear", "auto"):
        if solver == "auto":
            monkeypatch.setattr(Decider, "solve", lambda *args, **fields: pytest.fail("the pipeline was asked"))
        cost, weights = leaf(case.cost), torch.arange(1.0, case.n + 1, dtype=torch.float64)
        layer = pear.DecisionLayer(case.problem, case.smoothing, solver=solver)
        z = layer(cost)
        (z * weights).sum().backward()
        assert cost.grad is not None
        assert layer.status is not None
        results.append([z.detach(), cost.grad, layer.status.double()])
    agree(*reversed(results))


# ---------------------------------------------------------------------------------------------- launches and waiting


class Counter(TorchDispatchMode):
    """Counts the operations that launch something: views and empty tensors do not."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(not one.alias_info.is_write for one in func._schema.arguments if one.alias_info is not None)
        name = func.name().removeprefix("aten::")
        free = views or name.startswith(("prim::", "empty", "detach", "_unsafe_view", "scalar_tensor"))
        if not free and isinstance(out, Tensor) and out.numel():
            self.names.append(name)
        return out


class Nothing:
    """A kernel that launches nothing."""

    def __init__(self, qp: QuadraticProgram) -> None:
        self.R = qp.p + qp.m

    def solve(self, qp: QuadraticProgram) -> Any:
        B, n = qp.c.shape
        x, y = (torch.empty(B, k, dtype=torch.float64, device=qp.c.device) for k in (n, self.R))
        sets = [torch.empty(B, k, dtype=torch.bool, device=qp.c.device) for k in (n, n, qp.m)]
        return Found(x, y, *sets, sets[0][:, 0], Unmoved())


class Unmoved:
    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(e), torch.empty(len(e), dtype=torch.bool, device=e.device)


EYE = torch.eye(5, dtype=torch.float64)
PORTFOLIO = {"A": torch.ones(1, 5), "b": torch.ones(1), "lb": 0.0}
KNAPSACK = {"G": torch.ones(2, 5), "h": torch.ones(2), "lb": 0.0, "ub": 1.0}
PROBLEMS = {
    "portfolio, own curvature": pear.Problem(Q=EYE.expand(4, 5, 5), **PORTFOLIO),
    "portfolio": pear.Problem(Q=EYE, **PORTFOLIO),
    "knapsack": pear.Problem(**KNAPSACK, sense="max"),
    "box, own curvature": pear.Problem(Q=EYE.expand(4, 5, 5), lb=0.0, ub=1.0),
}


def nowhere(problem: pear.Problem) -> pear.Problem:
    """The problem on a GPU that is not there."""
    there = torch.device("cpu")
    fields = {name: getattr(problem, name) for name in ("Q", "A", "b", "G", "h", "lb", "ub")}
    empty = {name: torch.empty_like(v, device=there) for name, v in fields.items() if v is not None}
    return problem._with(**empty, device=there)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    """Everything within runs on a GPU that is not there: whatever wants a value raises."""
    monkeypatch.setattr(gpu_pass.gpu, "supports", lambda qp: True)
    monkeypatch.setattr(gpu_pass.gpu, "prepare", Nothing)
    monkeypatch.setattr(gpu_pass, "singular", lambda qp: np.zeros(1, bool))
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield Counter()


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_regret_waits_for_nothing(name: str, launches: Counter) -> None:
    there = nowhere(PROBLEMS[name])
    one_pass, cost = GPUPass(there, "any"), torch.empty(4, 5, dtype=torch.float64, device="cpu")
    call = RegretCall(cost, cost, 0.5, 0.1)
    pair = one_pass._pair(call)
    assert pair is not None
    one_pass.regret_unread(call, *pair)
    with launches:
        parts, good = one_pass.regret_unread(call, *one_pass._pair(call))
    assert good.shape == (4,)
    print(len(launches.names))
    print(" ".join(launches.names).replace("aten::",""))

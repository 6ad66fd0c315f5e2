"""The launches of the GPU pass, and that it never waits for a value: tested on tensors without values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_gpu_pass import StandInSolution
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import pear
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu import gpu_pass
from pear.solvers.active_set.gpu.gpu_pass import GPUPass
from pear.solvers.regret_call import RegretCall


class Counter(TorchDispatchMode):
    """Count the operations that launch kernels; views and empty tensors launch none."""

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

    state = (32,)
    needs_inverse = False
    numbers = 0

    def __init__(self, qp: QuadraticProgram) -> None:
        self.R = qp.p + qp.m

    def fits(self, B: int, device: torch.device) -> bool:
        return True

    def solve(self, qp: QuadraticProgram, curvature: Any = None) -> Any:
        B, n = qp.c.shape
        x, y = (torch.empty(B, k, dtype=torch.float64, device=qp.c.device) for k in (n, self.R))
        sets = [torch.empty(B, k, dtype=torch.bool, device=qp.c.device) for k in (n, n, qp.m)]
        return StandInSolution(x, x, y, *sets, *3 * [sets[0][:, 0]], Unmoved())

    def solve_all(self, qp: QuadraticProgram, costs: Tensor, curvature: Any = None) -> Any:
        return self.solve(replace(qp, c=costs.flatten(0, 1)))


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
    """Return the problem on a simulated GPU."""
    there = torch.device("cpu")
    fields = {name: getattr(problem, name) for name in ("Q", "A", "b", "G", "h", "lb", "ub")}
    empty = {name: torch.empty_like(v, device=there) for name, v in fields.items() if v is not None}
    return problem._with(**empty, device=there)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    """Simulate a GPU: code that reads a value of a tensor raises an error."""
    monkeypatch.setattr(gpu_pass.gpu, "supports_gpu_plan", lambda qp: True)
    monkeypatch.setattr(gpu_pass.gpu, "make_gpu_plan", Nothing)
    monkeypatch.setattr(GPUPass, "_read_flag", staticmethod(lambda flags: False))
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield Counter()


def ready(name: str, smoothing: float) -> tuple[GPUPass, Tensor]:
    """Return a pass that is prepared as by a first call, and a cost."""
    one_pass, cost = GPUPass(nowhere(PROBLEMS[name]), "any"), torch.empty(4, 5, dtype=torch.float64)
    one_pass._own_programs(smoothing)
    programs = one_pass._programs_for_call(cost, smoothing, None, ())
    assert programs is not None
    assert programs.twice.inverse is not None
    one_pass._probe_error(cost)
    return one_pass, cost


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_regret_waits_for_nothing(name: str, given: bool, launches: Counter) -> None:
    one_pass, cost = ready(name, 0.5)
    Q = torch.empty(4, 5, 5) if given else None
    call = RegretCall(cost, cost, 0.5, 0.1, Q=Q, true_Q=None if Q is None else Q + 1.0)
    function, curvatures, _ = one_pass._regret_function(call)
    own = one_pass._programs_for_call(cost, 0.5, None, curvatures)
    assert own is not None
    assert len(curvatures) == (2 if given else 0)
    with launches:
        found = function(own, cost, cost, *curvatures)
    assert found.good.shape == (4,)
    assert len(launches.names) <= (230 if given else 180 if name == "knapsack" else 150), launches.names


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_decision_waits_for_nothing_nor_does_its_derivative(name: str, launches: Counter) -> None:
    one_pass, cost = ready(name, 0.5)
    programs = one_pass._programs_for_call(cost, 0.5, None, ())
    assert programs is not None
    with launches:
        _, tangent, flags = one_pass.decide_on_device(cost, programs)
    assert flags.shape == (2,)
    assert len(launches.names) <= (140 if name == "knapsack" else 115), launches.names
    launches.names.clear()
    with launches:
        g, _ = replace(tangent, proven=True).project(cost)
    assert g.shape == cost.shape
    assert len(launches.names) <= 1, launches.names

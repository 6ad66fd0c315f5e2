"""The time of one training step on a GPU with the primal, the dual and the interior-point method.

Run ``python -m pear_lab.benchmarks.gpu_methods`` on a machine with a GPU. It measures the structures (kinds of
programs) of the gradient benchmark, and portfolios in which each sample has its own upper bounds. The primal method
starts outside these bounds.

A cell of the table has the milliseconds of a step of ``PEARLoss``, then in brackets the milliseconds of the kernel's
search alone, for predicted and true costs, and then the error of the gradient. "auto" is the method that the library
chooses. "–" means that a method does not support a structure, and "!" that it leaves samples to another solver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import typer
from torch import Tensor

from pear.losses import PEARLoss
from pear.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu import gpu_plan
from pear.solvers.active_set.gpu.dual_method import LAUNCH, DualMethod
from pear_lab.benchmarks.program_draws import ProgramDraw
from pear_lab.benchmarks.program_structures import STRUCTURES, Structure
from pear_lab.benchmarks.timing import timed_gradient
from pear_lab.judge.judged_program import DIMENSIONS

SMALL = 64
"""The number of samples in the smallest batch, and of samples whose gradients are compared with those of the CPU."""
_WARM_UP, _SECONDS, _MOST = 4, 0.25, 50  # calls before the clock starts, seconds to measure, and most measurements
_prepare = gpu_plan.make_gpu_plan


def prepare_primal_gpu_method(qp: QuadraticProgram) -> gpu_plan.GPUPlan | None:
    """Make a ``GPUPlan`` that solves by the primal method only; None if the method does not support the programs."""
    plan = _prepare(qp)
    if plan is None or plan.needs_inverse:
        return None
    return replace(plan, settled=True)


def prepare_dual_gpu_method(qp: QuadraticProgram) -> gpu_plan.GPUPlan | None:
    """Make a ``GPUPlan`` that solves by the dual method only; None if the method does not support the programs."""
    if qp.n + qp.p + qp.m > max(LAUNCH):
        return None
    return gpu_plan.GPUPlan(DualMethod.of(qp, qp.n // 2), settled=True)


METHODS: dict[str, Callable[[QuadraticProgram], gpu_plan.GPUPlan | None] | None] = {
    "primal": prepare_primal_gpu_method,
    "dual": prepare_dual_gpu_method,
    "interior point": None,
    "auto": _prepare,
}
"""For each method the function that makes its plan; None for a method without a kernel."""


def list_gpu_method_structures() -> list[Structure]:
    """Return the structures of the gradient benchmark, and portfolios in which each sample has its own upper bounds."""
    first = STRUCTURES[0]

    def own_bounds(rng: np.random.Generator, n: int, B: int) -> ProgramDraw:
        """Draw portfolios in which each sample has its own upper bounds."""
        draw = first.draw(rng, n, B)
        return replace(draw, fields=draw.fields | {"ub": rng.uniform(0.05, 0.5, (B, n))})

    return [*STRUCTURES, replace(first, name="own-bounds", draw=own_bounds)]


class _GpuMethodsSample:
    """The first B programs of a ``ProgramDraw``, as a problem and costs on a device."""

    def __init__(self, draw: ProgramDraw, B: int, device: str) -> None:
        def part(name: str, value: Any) -> Any:
            own = np.ndim(value) > DIMENSIONS[name]
            return value if isinstance(value, float) else torch.from_numpy(value[:B] if own else value).to(device)

        self.problem = Problem(**{name: part(name, value) for name, value in draw.fields.items()})
        self.cost, self.true = (torch.from_numpy(costs[:B]).to(device) for costs in (draw.cost, draw.true))
        self.smoothing = draw.smoothing

    def step(self, solver: str) -> Callable[[], Tensor]:
        """Return a function that computes the gradient (B, n) of the loss with respect to the predicted costs."""
        loss = PEARLoss(self.problem, self.smoothing, injection=0.0, guidance=0.0, reduction="sum", solver=solver)
        return lambda: timed_gradient(self.cost, lambda cost: loss(cost, self.true))

    def program(self) -> QuadraticProgram:
        """Return the quadratic programs with the predicted costs."""
        return self.problem.canonical(self.cost, self.smoothing)


def gpu_method_milliseconds(function: Callable[[], Any]) -> float:
    """Return the median milliseconds of a call of ``function``, which computes on a GPU."""
    for _ in range(_WARM_UP):
        function()
    torch.cuda.synchronize()
    took: list[float] = []
    while sum(took) < 1e3 * _SECONDS and len(took) < _MOST:
        began = time.perf_counter()
        function()
        torch.cuda.synchronize()
        took.append(1e3 * (time.perf_counter() - began))
    return median(took)


def measure_gpu_method(name: str, sample: _GpuMethodsSample, expected: Tensor) -> str:
    """Measure a method on a batch. Return the text of its table cell: times, marks and the error of the gradient.

    Args:
        name: the name of the method, a key of ``METHODS``.
        sample: the programs.
        expected: (b, n) the gradients of the first b samples, computed on the CPU.
    """
    prepare, search, mark = METHODS[name], "", ""
    if prepare is not None:
        qp = sample.program()
        plan = prepare(qp) if gpu_plan.supports_gpu_plan(qp) else None
        if plan is None:
            return "–"
        costs = torch.stack([qp.c, sample.problem.canonical(sample.true, sample.smoothing).c])
        while plan.adapt(solution := plan.solve_all(qp, costs)):
            pass
        mark = "" if bool(solution.optimal.all()) else "!"
        shared = plan.needs_inverse and len(qp.H) == 1  # the library inverts a shared curvature once
        curvature = plan.curvature(qp, torch.linalg.inv(qp.H)) if shared else None
        search = f" ({gpu_method_milliseconds(lambda: plan.solve_all(qp, costs, curvature)):.2f})"
    with patch.object(gpu_plan, "make_gpu_plan", prepare or _prepare):
        step = sample.step("auto" if prepare is not None else "interior-point")
        error = float((step()[: len(expected)].cpu() - expected).abs().max() / expected.abs().max())
        return f"{gpu_method_milliseconds(step):.2f}{search}{mark} {error:.0e}"


def measure_gpu_method_rows() -> Iterator[list[str]]:
    """Measure every method on every structure and batch size. Yield each table row, as cells, when it is measured."""
    for structure in list_gpu_method_structures():
        largest = max(B for B in structure.batches if B != 512)
        draw = structure.draw(np.random.default_rng([0, structure.size]), structure.size, largest)
        expected = _GpuMethodsSample(draw, SMALL, "cpu").step("auto")()
        for B in (SMALL, largest):
            row = [structure.name, str(B)]
            for name in METHODS:
                try:
                    row.append(measure_gpu_method(name, _GpuMethodsSample(draw, B, "cuda"), expected))
                except Exception as error:  # noqa: BLE001 (a table with a gap is worth more than none)
                    row.append(f"failed: {type(error).__name__}: {error}"[:60])
            yield row


def print_gpu_methods() -> None:
    """Measure all methods, and print each row of the table as soon as it is measured."""
    typer.echo("step in ms (search in ms) largest error of a gradient, relative to the largest entry")
    typer.echo("| structure | B | " + " | ".join(METHODS) + " |")
    typer.echo("|---|---|" + "---|" * len(METHODS))
    for row in measure_gpu_method_rows():
        typer.echo("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    print_gpu_methods()

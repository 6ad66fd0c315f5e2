"""Time one training step on a GPU with the primal, the dual and the interior-point method.

Run it on a machine with a GPU: ``python -m pear_lab.benchmarks.gpu_methods``. Every structure of the gradient
benchmark is measured, and portfolios with bounds of each sample's own, which the primal method starts outside of. A
cell has the milliseconds of a step of ``PEARLoss``, and those of the kernel's search for both costs alone. "auto" is
the method that the library chooses. "–" stands where a method does not take a structure, "!" where it leaves samples
to another solver.
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
from pear.solvers.backend_registry import BACKENDS
from pear_lab.benchmarks.program_draws import Draw
from pear_lab.benchmarks.program_structures import STRUCTURES, Structure
from pear_lab.benchmarks.timing import timed_gradient
from pear_lab.judge.judged_program import DIMENSIONS

SMALL = 64
"""Samples of the smallest batch. Gradients of as many samples are compared with the CPU's."""
_WARM_UP, _SECONDS, _MOST = 4, 0.25, 50  # calls before the clock starts; how long is measured, and how often at most
_prepare = gpu_plan.make_gpu_plan


def prepare_primal(qp: QuadraticProgram) -> gpu_plan.GPUPlan | None:
    """Make a plan that uses the primal method only; None if that method does not accept the programs."""
    plan = _prepare(qp)
    if plan is None or plan.needs_inverse:
        return None
    return replace(plan, settled=True)


def prepare_dual(qp: QuadraticProgram) -> gpu_plan.GPUPlan | None:
    """Make a plan that uses the dual method only; None if that method does not accept the programs."""
    if qp.n + qp.p + qp.m > max(LAUNCH):
        return None
    return gpu_plan.GPUPlan(DualMethod.of(qp, qp.n // 2), settled=True)


METHODS: dict[str, Callable[[QuadraticProgram], gpu_plan.GPUPlan | None] | None] = {
    "primal": prepare_primal,
    "dual": prepare_dual,
    "interior point": None,
    "auto": _prepare,
}
"""Function that makes the plan of each method, by name; None for a method without a kernel."""


def measured_structures() -> list[Structure]:
    """Return the structures to measure."""
    first = STRUCTURES[0]

    def own_bounds(rng: np.random.Generator, n: int, B: int) -> Draw:
        draw = first.draw(rng, n, B)
        return replace(draw, fields=draw.fields | {"ub": rng.uniform(0.05, 0.5, (B, n))})

    return [*STRUCTURES, replace(first, name="own-bounds", draw=own_bounds)]


class _DeviceSample:
    """The first B programs of a draw on a device."""

    def __init__(self, draw: Draw, B: int, device: str) -> None:
        def part(name: str, value: Any) -> Any:
            own = np.ndim(value) > DIMENSIONS[name]
            return value if isinstance(value, float) else torch.from_numpy(value[:B] if own else value).to(device)

        self.problem = Problem(**{name: part(name, value) for name, value in draw.fields.items()})
        self.cost, self.true = (torch.from_numpy(costs[:B]).to(device) for costs in (draw.cost, draw.true))
        self.smoothing = draw.smoothing

    def step(self, solver: str) -> Callable[[], Tensor]:
        """Return a function that computes the gradient of the loss by the predicted cost."""
        loss = PEARLoss(self.problem, self.smoothing, injection=0.0, guidance=0.0, reduction="sum", solver=solver)
        return lambda: timed_gradient(self.cost, lambda cost: loss(cost, self.true))

    def program(self) -> QuadraticProgram:
        """Return the quadratic programs with the predicted costs."""
        return self.problem.canonical(self.cost, self.smoothing)


def median_milliseconds(function: Callable[[], Any]) -> float:
    """Time a function on a GPU: the median in milliseconds."""
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


def measure_method(name: str, sample: _DeviceSample, expected: Tensor) -> str:
    """Make one cell of the table: milliseconds of a step, those of the search, and the error of the gradient."""
    interior = next(row.name for row in BACKENDS if row.name in ("interior-point", "pear"))
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
        shared = plan.needs_inverse and len(qp.H) == 1  # which the library inverts once
        curvature = plan.curvature(qp, torch.linalg.inv(qp.H)) if shared else None
        search = f" ({median_milliseconds(lambda: plan.solve_all(qp, costs, curvature)):.2f})"
    with patch.object(gpu_plan, "make_gpu_plan", prepare or _prepare):
        step = sample.step("auto" if prepare is not None else interior)
        error = float((step()[: len(expected)].cpu() - expected).abs().max() / expected.abs().max())
        return f"{median_milliseconds(step):.2f}{search}{mark} {error:.0e}"


def measured_rows() -> Iterator[list[str]]:
    """Yield the rows of the table as they are measured."""
    for structure in measured_structures():
        largest = max(B for B in structure.batches if B != 512)
        draw = structure.draw(np.random.default_rng([0, structure.size]), structure.size, largest)
        expected = _DeviceSample(draw, SMALL, "cpu").step("auto")()
        for B in (SMALL, largest):
            row = [structure.name, str(B)]
            for name in METHODS:
                try:
                    row.append(measure_method(name, _DeviceSample(draw, B, "cuda"), expected))
                except Exception as error:  # noqa: BLE001 (a table with a gap is worth more than none)
                    row.append(f"failed: {type(error).__name__}: {error}"[:60])
            yield row


def main() -> None:
    """Print the table as it is measured."""
    typer.echo("step in ms (search in ms) largest error of a gradient, relative to the largest entry")
    typer.echo("| structure | B | " + " | ".join(METHODS) + " |")
    typer.echo("|---|---|" + "---|" * len(METHODS))
    for row in measured_rows():
        typer.echo("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()

"""The time of public functions on a single sample, beside the time of the compiled method that they call.

    python lab/studies/small_calls_study.py [--structures path-5 battery …] [--rounds 20]

The command prints a table for docs/speed.md. The measured calls take turns, many times, on one thread. A number is the
least processor time of a call, in microseconds, followed by its ratio to the compiled method on the same arrays.
``predict`` and ``decide`` are methods of a fitted ``DecisionRegressor``; ``decide`` predicts and decides. "empty
autograd" is what torch takes at least for a gradient: the forward and the backward pass of an autograd function that
computes nothing, with the inputs of the loss.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pear
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.compiled_programs import CompiledPrograms
from pear.solvers.active_set.kernel_arrays import SampleCosts, new_kernel_states
from pear.solvers.active_set.kernel_threads import kernel_thread_table
from pear.solvers.active_set.program_packing import pack_program_pair
from pear_lab.benchmarks.program_structures import Structure, choose_structures

STRUCTURES = ("path-5", "sectors", "battery", "assignment", "polytope", "dense-100")
CALLS = 30  # of one function in a row
BASES = {
    "solve": "compiled solve",
    "layer": "compiled solve",
    "layer and gradient": "compiled solve and projection",
    "loss": "compiled regret",
    "loss and gradient": "compiled regret",
    "decide": "compiled solve",
}
"""The compiled call with which each call is compared."""
Calls = dict[str, Callable[[], object]]


class EmptyFunction(torch.autograd.Function):
    """An autograd function with the inputs of the loss, whose value and gradient are not computed."""

    @staticmethod
    def forward(ctx: Any, predicted: Tensor, true: Tensor, Q: None, true_Q: None, given: Tensor) -> Tensor:
        """Return a scalar that is not initialised."""
        ctx.given = given
        return torch.empty((), dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return a gradient of the predicted costs that is not initialised."""
        return torch.empty_like(ctx.given), None, None, None, None


def calls_of(structure: Structure) -> Calls:
    """Return the calls that are compared, by name. Each is on one sample of a structure."""
    draw = structure.draw(np.random.default_rng(0), structure.size, 1)
    problem, smoothing = pear.Problem(**draw.fields), draw.smoothing
    cost, true = torch.tensor(draw.cost), torch.tensor(draw.true)
    prepared = CompiledPrograms(problem).prepare(cost, smoothing, None, {})
    assert prepared is not None
    P, default, at = prepared
    rows, pair, none = P.J.shape[1], pack_program_pair(P, P.Q), np.zeros(0, np.int64)
    arrays = draw.cost, draw.true
    layer, loss = pear.DecisionLayer(problem, smoothing), pear.PEARLoss(problem, smoothing, guidance=0.0)
    generator, up = np.random.default_rng(1), torch.tensor(draw.true)
    features, costs = generator.normal(size=(20, 5)), arrays[1] + generator.normal(size=(20, problem.n))
    curvature = {"Q": smoothing * np.eye(problem.n)} if smoothing > 0 else {}  # which a regressor's decisions have not
    curved = pear.Problem(**(draw.fields | curvature))
    regressor = pear.DecisionRegressor(curved, loss="mse", max_epochs=1).fit(features, costs)

    def solve_compiled() -> object:
        return kernel_calls.call_kernel_to_solve(P, arrays[0], at, new_kernel_states(1, problem.n, rows), at, default)

    def project_compiled() -> object:
        states = new_kernel_states(1, problem.n, rows)
        kernel_calls.call_kernel_to_solve(P, arrays[0], at, states, at, default)
        return kernel_calls.call_kernel_to_project(P, arrays[1], at, states, at)

    def find_regret_compiled() -> object:
        table = kernel_thread_table(1, problem.n, P.equalities, rows - P.equalities)
        return kernel_calls.call_kernel_for_regrets(pair, SampleCosts(*arrays, at, none), table, default, 0.1)

    return {
        "compiled solve": solve_compiled,
        "solve": lambda: pear.solve(problem, cost, smoothing=smoothing),
        "layer": lambda: layer(cost),
        "compiled solve and projection": project_compiled,
        "layer and gradient": lambda: layer(cost.clone().requires_grad_()).backward(up),
        "compiled regret": find_regret_compiled,
        "loss": lambda: loss(cost, true),
        "loss and gradient": lambda: loss(cost.clone().requires_grad_(), true).backward(),
        "empty autograd": lambda: EmptyFunction.apply(cost.clone().requires_grad_(), true, None, None, cost).backward(),
        "predict": lambda: regressor.predict(features[:1]),
        "decide": lambda: regressor.decide(features[:1]),
    }


def measure(calls: Calls, rounds: int) -> dict[str, float]:
    """Return the least processor time of each call, in microseconds."""
    least = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            for _ in range(CALLS):
                call()
            least[name] = min(least[name], 1e6 * (time.process_time() - began) / CALLS)
    return least


def row_of(name: str, found: dict[str, float]) -> str:
    """Return the table row of the structure ``name``, from the microseconds of its calls."""
    cells = [name]
    for call, microseconds in found.items():
        ratio = f" ({microseconds / found[BASES[call]]:.1f})" if call in BASES else ""
        cells.append(f"{microseconds:.0f}{ratio}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--structures", nargs="+", default=list(STRUCTURES))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for number, structure in enumerate(choose_structures(options.structures)):
        found = measure(calls_of(structure), options.rounds)
        if number == 0:
            print(f"| one row of | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
        print(row_of(structure.name, found), flush=True)


if __name__ == "__main__":
    main()

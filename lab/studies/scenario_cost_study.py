"""The processor time of plans with scenarios and of the deterministic plan: one day of unit commitment, relaxed.

    python lab/studies/scenario_cost_study.py [--scenarios 1 10 50 200] [--repeats 5]

Both kinds of plans are computed in turn in one process; the table has medians. A plan is a linear program. A training
step solves the smoothed program and the best recourse under the truth, and computes the derivatives of both. The last
column compares the value of the plan with that of SciPy, which solves the same program over all scenarios with dense
matrices.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

import pear
from pear_lab.tasks.irish_commitment import irish_commitment_days, irish_commitment_model

FIRST = ["on", "start"]


def days_of(count: int, seed: int = 0) -> Tensor:
    """Return the demands (count, 12) of days drawn from the data."""
    demand = irish_commitment_days().net_load
    return torch.from_numpy(demand[np.random.default_rng(seed).choice(len(demand), count, replace=False)])


def seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def training_step(plan: pear.Stochastic, values: Tensor, truth: Tensor) -> Callable[[], Any]:
    """Return a function that does one training step: the loss of one sample with its gradient, without warm starts.

    Args:
        plan: the plan under scenarios.
        values: (1, S, 12) the demand in S scenarios, of which the gradient is computed.
        truth: (1, 12) the true demand.
    """
    loss = pear.ScenarioLoss(plan)
    loss.calibrate(days_of(50, seed=1), times=10.0)

    def step() -> None:
        given = values.clone().requires_grad_()
        loss(given, truth).backward()

    return step


def by_scipy(plan: pear.Stochastic, values: Tensor) -> float:
    """Return the optimal value of the program over all scenarios, as SciPy's HiGHS computes it with dense matrices."""
    cost, fields = plan.extensive.data(values)
    problem = plan.problem
    A, G = (M.csr.toarray() if M.is_sparse else M.numpy() for M in (problem.A, problem.G))
    b, h = (fields[name][0].numpy() if name in fields else getattr(problem, name).numpy() for name in ("b", "h"))
    bounds = np.stack([problem.lb.numpy(), problem.ub.numpy()], 1)
    found = linprog(cost[0].numpy(), G, h, A, b, bounds, method="highs")
    assert found.status == 0
    return float(found.fun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, nargs="+", default=[1, 10, 50, 200])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    model = irish_commitment_model(integer=False)
    truth = days_of(1, seed=2)
    plain = pear.Stochastic(model, FIRST, 1)
    single = training_step(plain, truth[:, None] + 50.0, truth)
    print("| S | risk | plan, ms | times one | step, ms | times one | relative difference from SciPy |")
    print("|---:|---|---:|---:|---:|---:|---:|", flush=True)
    for S in args.scenarios:
        values = days_of(S)[None]
        for name, risk in (("expectation", pear.Expectation()), ("half CVaR", pear.CVaR(0.9, 0.5))):
            plan = pear.Stochastic(model, FIRST, S, risk)
            step = training_step(plan, values, truth)
            calls = partial(pear.solve, model, truth), partial(plan.solve, values), single, step
            for call in calls:
                call()
            times = np.median([[seconds(call) for call in calls] for _ in range(args.repeats)], 0) * 1000
            ours = float(plan.solve(values).value)
            apart = abs(ours - by_scipy(plan, values)) / abs(ours)
            print(
                f"| {S} | {name} | {times[1]:.1f} | {times[1] / times[0]:.1f} | {times[3]:.1f} | "
                f"{times[3] / times[2]:.1f} | {apart:.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""One job of the memory benchmark in a process of its own: ``python -m pear_lab.benchmarks.memory_job NAME JSON``.

Prints one line of JSON: the largest resident memory of this process, and the seconds of the job. Everything but pear
itself is imported by the job that needs it, so that "import" shows what the library alone takes.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import pear
from pear_lab.benchmarks.process_memory import peak_process_memory

_log = logging.getLogger(__name__)


def main() -> None:
    """Run the job that the command line names."""
    name, options = sys.argv[1], json.loads(sys.argv[2])
    cap = options.pop("cap", None)
    if cap is not None:
        import resource  # not on Windows, where nothing says how much is free and no cap is set

        # beyond it allocation fails with an error that names it, instead of the system ending some process
        resource.setrlimit(resource.RLIMIT_AS, (int(cap), int(cap)))
    began = time.perf_counter()
    JOBS[name](**options)
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({"peak": peak_process_memory(), "seconds": seconds}) + "\n")


def import_only() -> None:
    """Import the library's losses and tasks, which every job needs, and do nothing."""
    _log.debug("imported %s and %s", pear.losses.__name__, pear.tasks.__name__)


def solve_grid(side: int, batch: int, seed: int = 0) -> None:
    """Compute the regret of a batch of paths through a square grid, and its gradient."""
    import torch

    task = pear.tasks.shortest_path((side, side))
    true = task.samples(batch, seed=seed, dtype=torch.float64).costs
    factors = 0.7 + 0.6 * torch.rand(true.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    predicted = (true * factors).requires_grad_()
    pear.PEARLoss(task.problem)(predicted, true).backward()


def solve_portfolios(assets: int, batch: int, seed: int = 0) -> None:
    """Compute the regret of a batch of portfolios and its gradient. Each portfolio has its own covariance."""
    import numpy as np
    import torch

    from pear_lab.benchmarks.random_programs import random_markets

    drawn = random_markets(np.random.default_rng(seed), assets, batch)
    cost, true, _, Q = (torch.from_numpy(part) for part in drawn)
    moving = cost.requires_grad_()
    problem = pear.Problem(Q=Q, A=np.ones((1, assets)), b=[1.0], lb=0.0)
    pear.PEARLoss(problem, smoothing=0.0, injection=0.0, guidance=0.0)(moving, true).backward()


def train_on_paths(epochs: int, seed: int = 0) -> None:
    """The paper's training on paths, degree 8."""
    from pear_lab.benchmarks.training_benchmark import TrainingSettings, train_once

    (run,) = TrainingSettings(seeds=(seed,), epochs=epochs).runs("paths")
    train_once(run)


JOBS: dict[str, Any] = {
    "import": import_only,
    "grid": solve_grid,
    "portfolio": solve_portfolios,
    "training": train_on_paths,
}

if __name__ == "__main__":
    main()

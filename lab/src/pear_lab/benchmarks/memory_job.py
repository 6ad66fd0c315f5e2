"""One job of the memory benchmark, to be run as ``python -m pear_lab.benchmarks.memory_job NAME JSON``.

The process prints one line of JSON with its largest resident memory and the seconds of the job. Each job imports by
itself what it needs besides pear. The job "import" therefore shows the memory of the library alone.
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


def run_memory_job() -> None:
    """Run the job that the command line names, and print its memory and its seconds."""
    name, options = sys.argv[1], json.loads(sys.argv[2])
    cap = options.pop("cap", None)
    if cap is not None:
        import resource  # not on Windows, where no cap is set because the free memory is not known

        # beyond the cap an allocation raises an error; without a cap the system might end any process
        resource.setrlimit(resource.RLIMIT_AS, (int(cap), int(cap)))
    began = time.perf_counter()
    JOBS[name](**options)
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({"peak": peak_process_memory(), "seconds": seconds}) + "\n")


def run_import_job() -> None:
    """Import the library's losses and tasks, and do nothing else."""
    _log.debug("imported %s and %s", pear.losses.__name__, pear.tasks.__name__)


def run_grid_job(side: int, batch: int, seed: int = 0) -> None:
    """Compute the regret of a batch of paths through a square grid, and the gradient of the regret."""
    import torch

    task = pear.tasks.shortest_path((side, side))
    true = task.samples(batch, seed=seed, dtype=torch.float64).costs
    factors = 0.7 + 0.6 * torch.rand(true.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    predicted = (true * factors).requires_grad_()
    pear.PEARLoss(task.problem)(predicted, true).backward()


def run_portfolio_job(assets: int, batch: int, seed: int = 0) -> None:
    """Compute the regret of a batch of portfolios, each with its own covariance, and the gradient of the regret."""
    import numpy as np
    import torch

    from pear_lab.benchmarks.random_programs import random_markets

    drawn = random_markets(np.random.default_rng(seed), assets, batch)
    cost, true, _, Q = (torch.from_numpy(part) for part in drawn)
    moving = cost.requires_grad_()
    problem = pear.Problem(Q=Q, A=np.ones((1, assets)), b=[1.0], lb=0.0)
    pear.PEARLoss(problem, smoothing=0.0, injection=0.0, guidance=0.0)(moving, true).backward()


def run_training_job(epochs: int, seed: int = 0) -> None:
    """Train for shortest paths with costs of degree 8, by the paper's protocol."""
    from pear_lab.benchmarks.training_benchmark import TrainingBenchmarkSettings, train_as_benchmark

    (run,) = TrainingBenchmarkSettings(seeds=(seed,), epochs=epochs).runs("paths")
    train_as_benchmark(run)


JOBS: dict[str, Any] = {
    "import": run_import_job,
    "grid": run_grid_job,
    "portfolio": run_portfolio_job,
    "training": run_training_job,
}

if __name__ == "__main__":
    run_memory_job()

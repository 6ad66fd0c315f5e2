"""``pear bench``: a benchmark is one module of ``pear_lab.benchmarks`` and one row here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from pear.cli.lazy_commands import LazyCommands

BENCHMARKS = {
    "exactness": "Compare decisions and gradients with independent references; exit code 1 where a goal is missed.",
    "gradient": "Time gradients of the regret, forward and backward, with their errors, also of other libraries.",
    "training": "Time training with PEAR and with a plain loop over single samples, and compare the regrets of both.",
    "methods": "Time a training step of every method, and of PyEPO's own implementation with open solvers.",
    "integers": "Time the integer programs of a validation, compared with a plain loop over HiGHS.",
    "commitment": "Train on a unit commitment of 600 variables whose demand and prices are predicted.",
    "scaling": "Time regret and gradient of ever larger grids and sparse programs, and fit the exponent of the growth.",
    "sparse-solvers": "Time the solution of large sparse programs by several solvers, each to a verified solution.",
    "memory": "Measure the peak memory of a large grid, a large batch and a training, and of the import alone.",
    "epoch": "Time an epoch of portfolio training, one thread for each library, with the error of the gradients.",
    "rolling": "Time a step through battery rollouts, one thread for each library, with the error of the gradients.",
    "files": "Solve every LP, QP and MIP in a folder (MPS, QPS, LP, .mat in OSQP's form), and measure the answers.",
    "streams": "Train on paths from Parquet files that are written first, and on a part of them in memory.",
    "workers": "Measure training on one worker and on several, and predict time and core hours for more of both.",
}
"""Each benchmark and its help. Its module is imported when it is run: help and completion do without torch."""


class Benchmarks(LazyCommands):
    """The group of all benchmarks."""

    lazy = BENCHMARKS

    def load_command(self, name: str) -> Any:
        """Make the command of a benchmark from its module."""
        from pear_lab.cli.bench.benchmark_commands import benchmark_command, exactness

        command = typer.Typer(add_completion=False)
        module = import_module(f"pear_lab.benchmarks.{name.replace('-', '_')}_benchmark")
        command.command(name)(exactness if name == "exactness" else benchmark_command(module))
        return typer.main.get_command(command)


app = typer.Typer(cls=Benchmarks, add_completion=False, no_args_is_help=True, help="Measure this installation.")


@app.callback()
def _bench_group() -> None:
    pass

"""``pear bench``: a group of commands, one for each benchmark of ``pear_lab.benchmarks``."""

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
"""The help text of each benchmark. The module of a benchmark imports torch, and is imported only if it is needed."""


class BenchCommands(LazyCommands):
    """A command group of typer that imports the module of a benchmark only when its command is called."""

    lazy = BENCHMARKS

    def load_command(self, name: str) -> Any:
        """Import the module of the benchmark ``name``, and return its command."""
        from pear_lab.cli.benchmark_commands import benchmark_command, exactness_command

        command = typer.Typer(add_completion=False)
        module = f"{name.replace('-', '_')}_benchmark"
        found = import_module(f"pear_lab.benchmarks.{module}")
        make = exactness_command if name == "exactness" else benchmark_command(module, found.BENCHMARK)
        command.command(name)(make)
        return typer.main.get_command(command)


app = typer.Typer(cls=BenchCommands, add_completion=False, no_args_is_help=True, help="Measure this installation.")


@app.callback()
def _bench_group() -> None:
    pass

"""``pear bench``: a benchmark is one module of ``pear_lab.benchmarks`` and one row here."""

from __future__ import annotations

import typer

from pear_lab.benchmarks import (
    epoch,
    files,
    gradient,
    integers,
    memory,
    scaling,
    sparse_solvers,
    streams,
    training,
    workers,
)
from pear_lab.cli.bench import exactness
from pear_lab.cli.bench.session import benchmark_command

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure this installation.")
app.command("exactness")(exactness.exactness)
for _benchmark in (gradient, training, integers, scaling, sparse_solvers, memory, epoch, files, streams, workers):
    app.command(_benchmark.__name__.rpartition(".")[2].replace("_", "-"))(benchmark_command(_benchmark))

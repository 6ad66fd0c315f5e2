"""``pear bench``: measurements of this installation. A benchmark is one module of ``pear.bench`` and one row here."""

from __future__ import annotations

import typer

from pear.bench import epoch, gradient, memory, scaling, training
from pear.cli.bench import exactness, integers
from pear.cli.bench.session import command

app = typer.Typer(no_args_is_help=True, help="Measure this installation.")
app.command("exactness")(exactness.exactness)
app.command("gradient")(command(gradient))
app.command("training")(command(training))
app.command("integers")(integers.integers)
app.command("scaling")(command(scaling))
app.command("memory")(command(memory))
app.command("epoch")(command(epoch))

"""``pear bench``: measurements of this installation. A benchmark is one file and one row here."""

from __future__ import annotations

import typer

from pear.cli.bench import epoch, exactness, gradient, integers, memory, scaling, training

app = typer.Typer(no_args_is_help=True, help="Measure this installation.")
app.command("exactness")(exactness.exactness)
app.command("gradient")(gradient.gradient)
app.command("training")(training.training)
app.command("integers")(integers.integers)
app.command("scaling")(scaling.scaling)
app.command("memory")(memory.memory)
app.command("epoch")(epoch.epoch)

"""``pear solvers``: which solvers there are and how to install them. ``pear compile``: compile them all now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pear.cli.console import out, print_plain

if TYPE_CHECKING:
    from pear.solvers.backend_registry import Backend


_CAPTION = "solver='auto' chooses among them; 'qpsolvers:NAME' reaches any other solver of the qpsolvers package."


def solvers() -> None:
    """List all solvers, plug-ins included: what each solves, whether it is installed, and how to get it."""
    from pear.plugins import load_all_plugins
    from pear.solvers.backend_registry import BACKENDS

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, caption=_CAPTION, caption_justify="left")
    for heading in ("name", "solves", "GPU", "installed", "how to get it:\npip install …"):
        table.add_column(heading, no_wrap=True)
    table.add_column("note")
    for backend in BACKENDS:
        table.add_row(*_solver_cells(backend, backend.how_to_install.removeprefix("pip install ")))
    plugins, problems = load_all_plugins("solver")
    for one in plugins:
        table.add_row(*_solver_cells(one.row, one.origin))
        table.caption = f"{_CAPTION} Those of other packages are asked by their names alone."
    out.print(table)
    for problem in problems:
        print_plain(f"{problem[0].upper()}{problem[1:]}.", "yellow")


def _solver_cells(backend: Backend, origin: str) -> tuple[Text, ...]:
    """Return the cells of one solver in the table of ``pear solvers``.

    Args:
        backend: its row.
        origin: what to install, or, for a solver of another package, that package and its version.
    """
    installed = Text("yes", style="green") if backend.installed else Text("no", style="yellow")
    return (
        Text(backend.name, style="bold"),
        Text(", ".join(backend.kinds)),
        Text("yes" if backend.gpu else "no"),
        installed,
        Text(origin),
        Text(backend.note),
    )


def compile_now() -> None:
    """Compile all solvers now, instead of each when it is first called."""
    from pear.solvers.active_set import batch_kernel
    from pear.train.compiled.compile_all import compile_all

    total, kept = 0.0, batch_kernel.run_batch_kernel.stats.cache_path
    for part, seconds, was_cached in compile_all():
        if not was_cached:
            print_plain(f"{part}: compiled, {seconds:.1f} s")
            total += seconds
    where = "no directory can be written to; set NUMBA_CACHE_DIR to one that can" if kept is None else str(Path(kept))
    print_plain(
        f"{total:.1f} s in all; kept in {where}"
        if total
        else f"Nothing to do: everything is compiled already, in {where}"
    )

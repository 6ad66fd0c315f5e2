"""``pear solvers``: the table of all solvers, and how to install them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pear.cli.console import out, print_plain

if TYPE_CHECKING:
    from pear.solvers.backend_registry import Backend


_CAPTION = "solver='auto' chooses among them; 'qpsolvers:NAME' reaches any other solver of the qpsolvers package."


def solvers_command() -> None:
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
        backend: the solver.
        origin: what to install; for a plug-in, its package and version.
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

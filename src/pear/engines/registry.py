"""The table of engines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from pear.engines.base import Engine, Resources
from pear.engines.errors import EngineError


class Row(NamedTuple):
    """One engine.

    Attributes:
        name: what a user writes; title: where tasks run.
        module: has ``start(address, jobs, resources) -> Engine``.
        has_address: whether ``name://address`` is understood.
    """

    name: str
    title: str
    module: str
    has_address: bool = False


ENGINES = {
    row.name: row
    for row in (
        Row("local", "processes of this machine", "pear.engines.local"),
        Row("ray", "Ray: on this machine, or on a cluster at ray://HOST:PORT", "pear.engines.ray", has_address=True),
    )
}


def check_name(name: str) -> tuple[Row, str | None]:
    """The row that a name asks for, and the address in it.

    Raises:
        EngineError: there is no such engine, or it takes no address; lists those there are.

    Example:
        >>> check_name("ray://10.0.0.1:10001")[1], check_name("local")[1]
        ('10.0.0.1:10001', None)
    """
    kind, said, address = name.partition("://")
    row = ENGINES.get(kind)
    if row is None or (said and not (row.has_address and address)):
        there = ", ".join(f"{row.name} or {row.name}://HOST:PORT" if row.has_address else row.name for row in _rows())
        raise EngineError(f"there is no engine {name!r}; there is {there}")
    return row, address or None


def start(name: str = "local", jobs: int | None = None, resources: Resources | None = None) -> Engine:
    """Start an engine, or connect to it.

    Args:
        name: "local", "ray", or "ray://HOST:PORT".
        jobs: tasks at once; left out, as many as there are cores, here or in the cluster.
        resources: what a task needs; left out, a core.

    Raises:
        EngineError: there is no such engine, or it cannot be reached.
        MissingExtraError: its package is not installed.

    Example:
        >>> def twice(tell, number):
        ...     return 2 * number
        >>> with start(jobs=1) as engine:
        ...     ticket, heard = engine.submit(twice, 21), []
        ...     engine.wait(heard.append)
        ...     heard
        [Begun(ticket=0), Ended(ticket=0, value=42)]
    """
    row, address = check_name(name)
    if jobs is not None and jobs < 1:
        raise EngineError(f"jobs must be at least 1; got {jobs}")
    make: Callable[[str | None, int | None, Resources], Engine] = importlib.import_module(row.module).start
    return make(address, jobs, resources or Resources())


def _rows() -> list[Row]:
    return list(ENGINES.values())

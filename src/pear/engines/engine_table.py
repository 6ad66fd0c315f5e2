"""The table of engines, and ``start``, which starts an engine by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from pear.engines.engine import Engine, Resources
from pear.errors import EngineError, PluginError
from pear.plugins import find_plugin, load_all_plugins


class EngineRow(NamedTuple):
    """An engine in the table of engines.

    Attributes:
        module: the name of a module with a function ``start(address, jobs, resources) -> Engine``.
        has_address: whether users may write ``name://address``.
    """

    module: str
    has_address: bool = False


ENGINES = {
    "local": EngineRow("pear.engines.local_engine"),
    "ray": EngineRow("pear.engines.ray_engine", has_address=True),
}
"""The engines of PEAR, by the names that users write."""


def check_engine_name(name: str) -> tuple[EngineRow, str | None]:
    """Return the row of the engine that a user names, and the address in the name, or None if it contains no address.

    Raises:
        EngineError: there is no such engine, or the name contains an address that the engine cannot use. The message
            lists all engines.

    Example:
        >>> check_engine_name("ray://10.0.0.1:10001")[1], check_engine_name("local")[1]
        ('10.0.0.1:10001', None)
    """
    kind, said, address = name.partition("://")
    row: EngineRow | None = ENGINES.get(kind) or find_plugin("engine", kind)
    if row is None or (said and not (row.has_address and address)):
        rows = ENGINES | {one.name: one.row for one in load_all_plugins("engine").plugins}
        there = [f"{one} or {one}://HOST:PORT" if rows[one].has_address else one for one in rows]
        raise EngineError(f"there is no engine {name!r}; there is {', '.join(there)}")
    return row, address or None


def own_engine_names() -> tuple[str, ...]:
    """Return the names that an engine of another package cannot have."""
    return tuple(ENGINES)


def check_engine_plugin(name: str, value: Any) -> EngineRow:
    """Return ``value``, the row of an engine of another package, after a check.

    Raises:
        PluginError: ``value`` is not an ``EngineRow``, or the name contains "://".
    """
    if not isinstance(value, EngineRow):
        raise PluginError(f"expected a pear.engines.EngineRow, got {value!r}")
    if "://" in name:
        raise PluginError("a name with :// is read as an address; has_address=True lets users add one")
    return value


def start(name: str = "local", jobs: int | None = None, resources: Resources | None = None) -> Engine:
    """Start an engine, or connect to a running cluster, and return the engine.

    Args:
        name: the name of an engine; ``name://address`` for the cluster at an address.
        jobs: the number of tasks that run at the same time; None for as many as the engine has room for.
        resources: what each task needs; the defaults of ``Resources`` if omitted.

    Raises:
        EngineError: there is no such engine, ``jobs`` is not valid for it, or it cannot be started.
    """
    row, address = check_engine_name(name)
    if jobs is not None and jobs < 1:
        raise EngineError(f"jobs must be at least 1; got {jobs}")
    make: Callable[[str | None, int | None, Resources], Engine] = importlib.import_module(row.module).start
    return make(address, jobs, resources or Resources())

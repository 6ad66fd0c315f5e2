"""Plug-ins: solvers, losses, importers, tasks and engines that other packages, or a user's own code, add to PEAR.

A package adds one by an entry point, in a group of ``KINDS``; its name is what users write. A script adds one by
``pear.register``. Nothing is searched for or imported before a name is asked for that is not one of PEAR's own, so that
an installed package changes nothing for those who do not name it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from pear.errors import PluginError

HERE = "registered in this process"
"""The origin of what ``register`` has added."""


class Kind(NamedTuple):
    """A kind of plug-in.

    Attributes:
        group: the group of entry points.
        table: the module of PEAR's own table. Its ``own_names()`` are the names that are taken; its
            ``plugin_row(name, value)`` checks what a plug-in gives and returns a row of the table.
    """

    group: str
    table: str


KINDS = {
    "solver": Kind("pear.solvers", "pear.solvers.registry"),
    "loss": Kind("pear.losses", "pear.losses.methods"),
    "importer": Kind("pear.importers", "pear.problem.importers.importer_table"),
    "task": Kind("pear.tasks", "pear.tasks.task"),
    "engine": Kind("pear.engines", "pear.engines.engine_table"),
}
COMMANDS = "pear.commands"
"""The group of entry points through which packages add commands; each is a ``typer.Typer``."""


class Plugin(NamedTuple):
    """A plug-in that is loaded.

    Attributes:
        name: the name that users write.
        row: what it adds, as a row of PEAR's table.
        origin: the distribution that brings it, with its version, or ``HERE``.
    """

    name: str
    row: Any
    origin: str


class PluginList(NamedTuple):
    """All plug-ins of a kind.

    Attributes:
        plugins: those that can be used, by name.
        problems: a sentence for each that cannot, with the distribution it comes from.
    """

    plugins: tuple[Plugin, ...]
    problems: tuple[str, ...]


_registered: dict[tuple[str, str], Any] = {}
_loaded: dict[EntryPoint, Any] = {}


def register(kind: str, name: str, row: Any, *, replace: bool = False) -> None:
    """Add a solver, a loss, an importer, a task or an engine to this process, under a name of its own.

    A package that is installed adds one without a call, by an entry point in the group "pear.solvers", "pear.losses",
    "pear.importers", "pear.tasks" or "pear.engines".

    Args:
        kind: "solver", "loss", "importer", "task" or "engine".
        name: the name that users write: ``solver=name``, ``loss=name``, ``pear.from_name``, ``pear.tasks.name``,
            ``engine=name``.
        row: for a solver a ``pear.solvers.Backend`` of that name; for a loss a class, a function from the problem to a
            loss, or a ``pear.losses.Method``; for an importer a ``pear.problem.importers.Importer``; for a task a
            function that makes one; for an engine a ``pear.engines.EngineRow``.
        replace: True to take the place of what was registered under this name before, as in a notebook.

    Raises:
        PluginError: there is no such kind, the name is taken, or ``row`` is nothing of that kind.

    Example:
        >>> import pear
        >>> class AbsoluteError(pear.losses.MSELoss):
        ...     def forward(self, predicted, true, keys=None):
        ...         return (predicted - true).abs().mean()
        >>> pear.register("loss", "mae", AbsoluteError, replace=True)
        >>> type(pear.losses.make_loss("mae", pear.Problem(lb=0, ub=1, n=2))).__name__
        'AbsoluteError'
    """
    if kind not in KINDS:
        raise PluginError(f"there is no kind of plug-in {kind!r}; there are {', '.join(KINDS)}")
    if not isinstance(name, str) or not name or name != name.strip():
        raise PluginError(f"the name of a {kind} must be a word; got {name!r}")
    if taken := [origin for origin, _ in _sources(kind, name) if not (replace and origin == HERE)]:
        how = "; register(…, replace=True) takes its place" if taken == [HERE] else ""
        raise PluginError(f"the {kind} {name!r} is there already, from {taken[0]}; choose another name{how}")
    _registered[kind, name] = _as_row(kind, name, row, HERE)


def unregister(kind: str, name: str) -> None:
    """Take back what ``register`` has added under this name; nothing happens where there is nothing."""
    _registered.pop((kind, name), None)


def find(kind: str, name: str) -> Any | None:
    """Return the row of the plug-in with this name; None where there is none.

    Names of PEAR's own tables are not looked for: their caller has done so.

    Raises:
        PluginError: several distributions bring a plug-in of this name, or it cannot be loaded.
    """
    sources = _sources(kind, name)
    if not sources or sources[0][0] == _OWN:
        return None
    return _only_one(kind, name, sources)


def plugin_names(kind: str) -> list[str]:
    """The names of all plug-ins of a kind, without loading them."""
    here = [name for of, name in _registered if of == kind]
    return sorted({*here, *(entry.name for entry in _entries(KINDS[kind].group))})


def load_all(kind: str) -> PluginList:
    """Load all plug-ins of a kind; one that cannot be used becomes a sentence and leaves the others alone."""
    plugins, problems = [], []
    for name in plugin_names(kind):
        sources = _sources(kind, name)
        try:
            plugins.append(Plugin(name, _only_one(kind, name, sources), sources[-1][0]))
        except PluginError as error:
            problems.append(str(error))
    return PluginList(tuple(plugins), tuple(problems))


_OWN = "pear itself"
Source = tuple[str, Callable[[], Any]]


def _sources(kind: str, name: str) -> list[Source]:
    """Where a name comes from: PEAR's own table, this process and distributions, each with a function that loads it."""
    group, table = KINDS[kind]
    found: list[Source] = []
    if name in import_module(table).own_names():
        found.append((_OWN, lambda: None))
    if (kind, name) in _registered:
        found.append((HERE, lambda: _registered[kind, name]))
    for entry in _entries(group):
        if entry.name == name:
            found.append((_origin(entry), partial(_load, kind, entry)))
    return found


def _only_one(kind: str, name: str, sources: list[Source]) -> Any:
    """Load the only source of a name; raise PluginError where there are several."""
    if len(sources) > 1:
        origins = " and from ".join(origin for origin, _ in sources)
        raise PluginError(
            f"the {kind} {name!r} comes from {origins}, and a name belongs to one; uninstall one of them, or ask its "
            "authors for another name"
        )
    return sources[0][1]()


def _load(kind: str, entry: EntryPoint) -> Any:
    """Import what an entry point names, and return it as a row; the result is kept."""
    if entry not in _loaded:
        try:
            value = entry.load()
        except Exception as error:  # a module of another package may raise anything when it is imported
            raise PluginError(
                f"the {kind} {entry.name!r} of {_origin(entry)} cannot be loaded from {entry.value}: "
                f"{type(error).__name__}: {error}; repair or uninstall that package"
            ) from error
        _loaded[entry] = _as_row(kind, entry.name, value, _origin(entry))
    return _loaded[entry]


def _as_row(kind: str, name: str, value: Any, origin: str) -> Any:
    """Check what a plug-in gives, by the table of its kind; the message of an error says where it comes from."""
    try:
        return import_module(KINDS[kind].table).plugin_row(name, value)
    except PluginError as error:
        said = "" if origin == HERE else f" of {origin}"
        raise PluginError(f"the {kind} {name!r}{said} cannot be used: {error}") from None


def _origin(entry: EntryPoint) -> str:
    """The distribution of an entry point, with its version."""
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _entries(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, searched for once for each state of the path."""
    return _search(group, tuple(sys.path))


@lru_cache(maxsize=32)
def _search(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    found = {(entry.name, entry.value, _origin(entry)): entry for entry in entry_points(group=group)}
    return tuple(found.values())

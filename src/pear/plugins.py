"""Plug-ins: solvers, losses, importers, tasks and engines that other packages or a user's own code add to PEAR.

A package adds a plug-in by an entry point in one of the groups in ``KINDS``. The name of the entry point is the name
that users write. A script adds a plug-in by ``pear.register``. PEAR loads plug-ins only when a user writes a name or a
file name that PEAR itself does not know, or asks for a list. An installed package therefore changes nothing for those
who do not use its plug-in.
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
"""The origin of a plug-in that ``register`` has added."""


class PluginKind(NamedTuple):
    """A kind of plug-in, such as "solver".

    Attributes:
        group: the name of the group of entry points by which packages add plug-ins of this kind.
        table: the module that holds PEAR's own solvers, losses, and so on. It has two functions with the kind in their
            names. For the kind "solver", ``own_solver_names()`` returns the names that plug-ins cannot have, and
            ``check_solver_plugin(name, value)`` checks the object of a plug-in and returns a row of the table.
    """

    group: str
    table: str


KINDS = {
    "solver": PluginKind("pear.solvers", "pear.solvers.backend_registry"),
    "loss": PluginKind("pear.losses", "pear.losses.methods"),
    "importer": PluginKind("pear.importers", "pear.problem.importers.importer_table"),
    "task": PluginKind("pear.tasks", "pear.tasks.task"),
    "engine": PluginKind("pear.engines", "pear.engines.engine_table"),
}
COMMANDS = "pear.commands"
"""The group of entry points by which packages add commands; each entry point names a ``typer.Typer``."""


class Plugin(NamedTuple):
    """A loaded plug-in.

    Attributes:
        name: the name that users write.
        row: the plug-in as a row of PEAR's table of this kind.
        origin: the distribution that contains the plug-in, with its version; or "registered in this process".
    """

    name: str
    row: Any
    origin: str


class PluginList(NamedTuple):
    """All plug-ins of a kind.

    Attributes:
        plugins: the plug-ins that can be used, sorted by name.
        problems: a sentence for each plug-in that cannot be used, with the reason and the distribution.
    """

    plugins: tuple[Plugin, ...]
    problems: tuple[str, ...]


_registered: dict[tuple[str, str], Any] = {}
_loaded: dict[EntryPoint, Any] = {}


def register(kind: str, name: str, row: Any, *, replace: bool = False) -> None:
    """Add a solver, a loss, an importer, a task or an engine to this process under a new name.

    An installed package needs no call: it adds a plug-in by an entry point in the group "pear.solvers", "pear.losses",
    "pear.importers", "pear.tasks" or "pear.engines".

    Args:
        kind: "solver", "loss", "importer", "task" or "engine".
        name: the name that users write: ``solver=name``, ``loss=name``, ``pear.from_name``, ``pear.tasks.name``,
            ``engine=name``.
        row: for a solver a ``pear.solvers.Backend`` of that name; for a loss a class, a function that makes a loss for
            a problem, or a ``pear.losses.Method``; for an importer a ``pear.problem.importers.Importer``; for a task a
            function that makes a task; for an engine a ``pear.engines.EngineRow``.
        replace: True to replace an object that was registered under this name before, as when a cell of a notebook
            runs again.

    Raises:
        PluginError: the kind is unknown; the name is taken, is empty or has spaces at an end; or ``row`` is not an
            object of that kind.

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
        raise PluginError(f"the name of a {kind} must be a text without spaces at its ends; got {name!r}")
    if taken := [origin for origin, _ in _plugin_sources(kind, name) if not (replace and origin == HERE)]:
        how = "; register(…, replace=True) takes its place" if taken == [HERE] else ""
        raise PluginError(f"the {kind} {name!r} is there already, from {taken[0]}; choose another name{how}")
    _registered[kind, name] = _plugin_as_row(kind, name, row, HERE)


def unregister(kind: str, name: str) -> None:
    """Remove a plug-in that ``register`` has added. An unknown name is ignored."""
    _registered.pop((kind, name), None)


def find_plugin(kind: str, name: str) -> Any | None:
    """Return the row of a plug-in: the plug-in as an entry of PEAR's table of its kind.

    The result is None if no plug-in has the name, or if the name is one of PEAR's own.

    Raises:
        PluginError: several plug-ins have this name, or the plug-in cannot be loaded.
    """
    sources = _plugin_sources(kind, name)
    if not sources or sources[0][0] == _OWN:
        return None
    return _load_only_plugin(kind, name, sources)


def plugin_names(kind: str) -> list[str]:
    """Return the sorted names of all plug-ins of a kind, without loading them."""
    here = [name for of, name in _registered if of == kind]
    return sorted({*here, *(entry.name for entry in _plugin_entries(KINDS[kind].group))})


def load_all_plugins(kind: str) -> PluginList:
    """Load all plug-ins of a kind, and return them with a sentence for each plug-in that cannot be used."""
    plugins, problems = [], []
    for name in plugin_names(kind):
        sources = _plugin_sources(kind, name)
        try:
            plugins.append(Plugin(name, _load_only_plugin(kind, name, sources), sources[-1][0]))
        except PluginError as error:
            problems.append(str(error))
    return PluginList(tuple(plugins), tuple(problems))


_OWN = "pear itself"
PluginSource = tuple[str, Callable[[], Any]]
"""The origin of a name as text, and a function that loads the row."""


def _plugin_sources(kind: str, name: str) -> list[PluginSource]:
    """Return all sources of a name, in this order: PEAR's own table, ``register``, entry points of distributions."""
    group, table = KINDS[kind]
    found: list[PluginSource] = []
    if name in getattr(import_module(table), f"own_{kind}_names")():
        found.append((_OWN, lambda: None))
    if (kind, name) in _registered:
        found.append((HERE, lambda: _registered[kind, name]))
    for entry in _plugin_entries(group):
        if entry.name == name:
            found.append((_plugin_origin(entry), partial(_load_plugin, kind, entry)))
    return found


def _load_only_plugin(kind: str, name: str, sources: list[PluginSource]) -> Any:
    """Return the row of the plug-in ``name``. Raise ``PluginError`` if there are several ``sources`` of the name."""
    if len(sources) > 1:
        origins = " and from ".join(origin for origin, _ in sources)
        raise PluginError(
            f"the {kind} {name!r} comes from {origins}, and a name belongs to one; uninstall one of them, or ask its "
            "authors for another name"
        )
    return sources[0][1]()


def _load_plugin(kind: str, entry: EntryPoint) -> Any:
    """Return the object of an entry point as a row of PEAR's table of its kind. Only the first call imports it."""
    if entry not in _loaded:
        try:
            value = entry.load()
        except Exception as error:  # a module of another package may raise anything when it is imported
            raise PluginError(
                f"the {kind} {entry.name!r} of {_plugin_origin(entry)} cannot be loaded from {entry.value}: "
                f"{type(error).__name__}: {error}; repair or uninstall that package"
            ) from error
        _loaded[entry] = _plugin_as_row(kind, entry.name, value, _plugin_origin(entry))
    return _loaded[entry]


def _plugin_as_row(kind: str, name: str, value: Any, origin: str) -> Any:
    """Return ``value``, the object of a plug-in, as a row of PEAR's table of its kind, after a check.

    The message of an error names the origin, unless ``register`` has added the plug-in.
    """
    try:
        return getattr(import_module(KINDS[kind].table), f"check_{kind}_plugin")(name, value)
    except PluginError as error:
        said = "" if origin == HERE else f" of {origin}"
        raise PluginError(f"the {kind} {name!r}{said} cannot be used: {error}") from None


def _plugin_origin(entry: EntryPoint) -> str:
    """Return the name and version of the distribution that has an entry point."""
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _plugin_entries(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group. They are searched for again only after ``sys.path`` has changed."""
    return _search_plugin_entries(group, tuple(sys.path))


@lru_cache(maxsize=32)
def _search_plugin_entries(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the distinct entry points of a group.

    The result is cached. The argument ``path`` is ``sys.path``; it makes sure that the function searches again after a
    change of ``sys.path``.
    """
    found = {(entry.name, entry.value, _plugin_origin(entry)): entry for entry in entry_points(group=group)}
    return tuple(found.values())

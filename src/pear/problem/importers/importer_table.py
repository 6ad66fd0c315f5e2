"""The table of the importers that read files. A new importer is a row of this table, or a plug-in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.errors import DataError, PluginError
from pear.plugins import load_all_plugins
from pear.problem.importers import mps, osqp_mat
from pear.problem.importers.packed_files import packed_file_suffix
from pear.problem.model import Model


@dataclass(frozen=True)
class Importer:
    """An importer and the files that it reads.

    Attributes:
        name: the files that the importer reads, in words.
        suffixes: the endings of these files, in lower case and without ``.gz``. Empty if the importer takes objects
            instead of files; users then call it as ``pear.from_NAME``, with the name of its plug-in.
        read: a function from a path, or from an object, to a model. If the function has an argument ``predicted``, the
            argument must take the names of the variables whose costs are predicted.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[..., Model]


IMPORTERS = (
    Importer("MPS, QPS and LP files", mps.SUFFIXES, mps.from_mps),
    Importer("OSQP's arrays", osqp_mat.SUFFIXES, osqp_mat.from_osqp_mat),
)


OWN_NAMES = ("cvxpy", "file", "gurobipy", "highs", "mps", "osqp_mat", "pyepo", "pyomo", "scipy")


def has_importer(path: Path) -> bool:
    """Return True if an importer, PEAR's own or a plug-in, reads files with the ending of this file."""
    suffix = packed_file_suffix(path)
    return any(
        suffix in row.suffixes for row in (*IMPORTERS, *(one.row for one in load_all_plugins("importer").plugins))
    )


def importer_of(path: Path) -> Importer:
    """Return the importer of files with the ending of this file.

    Raises:
        DataError: no importer reads such files; the message lists all endings, and plug-ins that cannot be loaded.
        PluginError: several packages have an importer of such files.
    """
    suffix = packed_file_suffix(path)
    for row in IMPORTERS:
        if suffix in row.suffixes:
            return row
    plugins, problems = load_all_plugins("importer")
    able = [one for one in plugins if suffix in one.row.suffixes]
    if len(able) > 1:
        origins = " and ".join(f"{one.name!r} from {one.origin}" for one in able)
        raise PluginError(f"files that end in '{suffix}' are read by {origins}; call pear.from_NAME for one of them")
    if able:
        found: Importer = able[0].row
        return found
    known = ", ".join(suffix for row in (*IMPORTERS, *(one.row for one in plugins)) for suffix in row.suffixes)
    also = "".join(f"; {problem}" for problem in problems)
    raise DataError(f"{path} ends in '{suffix}'; expected one of {known}, or one of these with .gz{also}")


def from_file(path: str | Path, **options: Any) -> Model:
    r"""Read a model from a file, with the importer or plug-in for the ending of the file's name.

    Args:
        path: the path of the file.
        options: arguments of the importer, such as ``predicted`` or ``rows``. Arguments that are None are ignored.

    Raises:
        DataError: no importer reads such files, the importer has no such argument, or the file cannot be imported.
        PluginError: several packages have an importer of such files.

    Example:
        >>> import pear, tempfile
        >>> path = Path(tempfile.mkdtemp(), "plan.lp")
        >>> _ = path.write_text("max\n profit: 3 x + 2 y\nst\n hours: x + y <= 4\nbounds\n x <= 3\nend\n")
        >>> pear.from_file(path, predicted=["x"]).inputs
        1
    """
    path = Path(path)
    row = importer_of(path)
    given = {name: value for name, value in options.items() if value is not None}
    known = inspect.signature(row.read).parameters
    for name in given:
        if name not in known:
            raise DataError(f"{path}: the importer of {row.name} takes no argument {name!r}; leave it out")
    return row.read(path, **given)


def own_importer_names() -> tuple[str, ...]:
    """Return the names of PEAR's own importers, which an importer of another package must not have."""
    return OWN_NAMES


def check_importer_plugin(name: str, value: Any) -> Importer:
    """Return the importer of another package after a check.

    Args:
        name: the name of the plug-in, NAME in ``pear.from_NAME``.
        value: the object that the plug-in offers.

    Raises:
        PluginError: ``value`` is not an ``Importer``, ``name`` is not an identifier, an ending is not written as
            ".abc", or PEAR itself reads files with such an ending.
    """
    if not isinstance(value, Importer):
        raise PluginError(f"expected a pear.problem.importers.Importer, got {value!r}")
    if not name.isidentifier():
        raise PluginError("its name must be an identifier, because users call pear.from_NAME")
    for suffix in value.suffixes:
        if not suffix.startswith(".") or suffix != suffix.lower() or suffix == ".gz":
            raise PluginError(f"an ending must be as '.abc', in lower case; got {suffix!r}")
        for row in IMPORTERS:
            if suffix in row.suffixes:
                raise PluginError(f"files that end in '{suffix}' are read as {row.name}; choose another ending")
    return value

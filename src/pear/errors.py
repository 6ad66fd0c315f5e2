"""The errors that PEAR raises. Each message names the given value, the expected one and a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_MOST_LISTED = 5  # positions that a message lists


class PearError(Exception):
    """The base class of all errors that this package raises."""


class ProblemError(PearError, ValueError):
    """A problem or an argument is invalid: its shape, type, sign or name."""


class DataError(PearError, ValueError):
    """A data file or an imported model is missing, or its content cannot be used."""


class UnknownSolverError(PearError, ValueError):
    """A solver is not in the registry, or cannot solve this kind of problem."""


class MissingExtraError(PearError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class NotUniqueError(PearError, RuntimeError):
    """The decision is not unique, so that its derivative does not exist; smoothing makes it unique.

    Attributes:
        samples: positions of the samples in the batch. They replace "{samples}" in the message.
        variables: positions of the variables that are free to move in the first of these samples. They, or their names,
            replace "{variables}" in the message.
    """

    def __init__(
        self, message: str, samples: Sequence[int] = (), variables: Sequence[int] = (), names: Sequence[str] = ()
    ) -> None:
        movable = [names[j] if j < len(names) else j for j in variables]
        text = message.replace("{samples}", list_positions("sample", samples))
        super().__init__(text.replace("{variables}", list_positions("variable", movable)))
        self._message, self._names, self.samples, self.variables = message, names, list(samples), list(variables)

    def at(self, index: Sequence[int]) -> NotUniqueError:
        """Return the same error with positions in the whole batch, where sample i has the position ``index[i]``."""
        return NotUniqueError(self._message, [index[i] for i in self.samples], self.variables, self._names)

    def with_names(self, names: Sequence[str]) -> NotUniqueError:
        """Return the same error with the names of all variables."""
        return NotUniqueError(self._message, self.samples, self.variables, names)


class SolveError(PearError, RuntimeError):
    """Some samples have no verified solution.

    Attributes:
        samples: positions of the failed samples in the batch. They replace "{samples}" in the message.
        statuses: their statuses (``pear.Status``), in the same order.
    """

    def __init__(self, message: str, samples: Sequence[int] = (), statuses: Sequence[int] = ()) -> None:
        super().__init__(message.replace("{samples}", list_positions("sample", samples)))
        self._message = message
        self.samples = list(samples)
        self.statuses = list(statuses)

    def at(self, index: Sequence[int]) -> SolveError:
        """Return the same error with positions in the whole batch, where sample i has the position ``index[i]``."""
        return SolveError(self._message, [index[i] for i in self.samples], self.statuses)


class TrainingError(PearError, RuntimeError):
    """Training cannot go on; the message names the epoch."""


class ForecasterError(PearError, RuntimeError):
    """A forecaster that is compared with others fails; the message names it and the fold, and its own error follows."""


class EngineError(PearError, RuntimeError):
    """An engine is unknown, cannot be reached, or cannot go on; the message says what to do."""


class PluginError(PearError, RuntimeError):
    """A plug-in cannot be used: its name is taken, or it cannot be loaded. The message names where it comes from."""


class OutputError(PearError, OSError):
    """A file or folder cannot be written: the folder is missing, the disk is full, or access is denied."""


class FailedSamplesWarning(UserWarning):
    """Samples were masked out of a batch because they could not be solved."""


@contextmanager
def naming_variables(names: Sequence[str]) -> Iterator[None]:
    """Put the names of all variables, where there are any, into a ``NotUniqueError`` that is raised inside."""
    try:
        yield
    except NotUniqueError as error:
        raise (error.with_names(names) if names else error) from error.__cause__


@contextmanager
def naming_output(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of the operating system inside into an ``OutputError`` that names the file and says what to do."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        where = os.path.dirname(os.path.abspath(path))
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f"the disk of {where} is full: make room there, or name another place"
        elif not os.path.isdir(where):
            remedy = f"there is no folder {where}: make it, or name another place"
        else:
            remedy = f"{error.strerror or error}: name another place"
        raise OutputError(f"cannot write {os.fspath(path)}; {remedy}") from error


def list_positions(what: str, positions: Sequence[int | str]) -> str:
    """The first five positions or names after the noun ``what``, and the number of further ones, as text.

    Example:
        >>> list_positions("sample", [3]), list_positions("row", range(8))
        ('sample 3', 'rows 0, 1, 2, 3, 4 and 3 more')
    """
    more = f" and {len(positions) - _MOST_LISTED} more" if len(positions) > _MOST_LISTED else ""
    return f"{what}{'s' if len(positions) > 1 else ''} {', '.join(map(str, positions[:_MOST_LISTED]))}{more}"

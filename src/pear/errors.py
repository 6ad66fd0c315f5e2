"""The errors and warnings of PEAR. A message names the given value, the expected value and a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pear.wording import list_positions


class PearError(Exception):
    """The base class of the errors that this package defines for its users."""


class ProblemError(PearError, ValueError):
    """A problem or an argument is invalid: its shape, type, sign or name."""


class DataError(PearError, ValueError):
    """A data file or an imported model is missing, or its content cannot be used."""


class UnknownSolverError(PearError, ValueError):
    """No solver has the given name, or the solver cannot solve this kind of problem."""


class MissingExtraError(PearError, ImportError):
    """A needed optional package is not installed; the message names the extra that installs the package."""


class NotUniqueError(PearError, RuntimeError):
    """A decision is not unique, and therefore has no derivative. Smoothing makes the decision unique.

    Attributes:
        samples: positions in the batch of the samples without a unique decision. They replace "{samples}" in the
            message.
        variables: positions of the variables that can move without a change in cost, in the first of these samples.
            Their names, or the positions of variables without a name, replace "{variables}" in the message.
    """

    def __init__(
        self, message: str, samples: Sequence[int] = (), variables: Sequence[int] = (), names: Sequence[str] = ()
    ) -> None:
        movable = [names[j] if j < len(names) else j for j in variables]
        text = message.replace("{samples}", list_positions("sample", samples))
        super().__init__(text.replace("{variables}", list_positions("variable", movable)))
        self._message, self._names, self.samples, self.variables = message, names, list(samples), list(variables)

    def at(self, index: Sequence[int]) -> NotUniqueError:
        """Return this error with sample i renumbered as ``index[i]``, its position in the whole batch."""
        return NotUniqueError(self._message, [index[i] for i in self.samples], self.variables, self._names)

    def with_names(self, names: Sequence[str]) -> NotUniqueError:
        """Return this error with variable names in the message; ``names`` are those of all variables."""
        return NotUniqueError(self._message, self.samples, self.variables, names)


class SolveError(PearError, RuntimeError):
    """Some samples have no verified solution.

    Attributes:
        samples: positions of the failed samples in the batch. They replace "{samples}" in the message.
        statuses: the ``pear.Status`` of each of these samples. The samples with the status 3 replace "{samples 3}".
    """

    def __init__(self, message: str, samples: Sequence[int] = (), statuses: Sequence[int] = ()) -> None:
        text = message.replace("{samples}", list_positions("sample", samples))
        for status in dict.fromkeys(statuses):
            alike = [i for i, other in zip(samples, statuses, strict=False) if other == status]
            text = text.replace(f"{{samples {int(status)}}}", list_positions("sample", alike))
        super().__init__(text)
        self._message = message
        self.samples = list(samples)
        self.statuses = list(statuses)

    def at(self, index: Sequence[int]) -> SolveError:
        """Return this error with sample i renumbered as ``index[i]``, its position in the whole batch."""
        return SolveError(self._message, [index[i] for i in self.samples], self.statuses)


class TrainingError(PearError, RuntimeError):
    """A training cannot begin, be resumed or continue; the message gives the reason."""


class ForecasterError(PearError, RuntimeError):
    """A forecaster fails in a comparison; the message names the forecaster, the fold and the forecaster's own error."""


class EngineError(PearError, RuntimeError):
    """An engine is unknown, cannot be reached, or cannot continue; the message says what to do."""


class PluginError(PearError, RuntimeError):
    """A plug-in cannot be used, for example because its name is taken or its package cannot be loaded."""


class OutputError(PearError, OSError):
    """A file or folder cannot be written, for example because the disk is full or access is denied."""


class FailedSamplesWarning(UserWarning):
    """A warning that a batch was used without some samples, because they could not be solved."""


class VariableNamesInErrors:
    """A context that puts variable names into the message of a ``NotUniqueError`` that is raised in its block.

    Args:
        names: the names of all variables; empty if they have no names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._names and isinstance(error, NotUniqueError):
            raise error.with_names(self._names) from error.__cause__


@contextmanager
def renumber_samples_in_errors(index: Sequence[int]) -> Iterator[None]:
    """A context that renumbers the samples in errors raised in its block: sample i becomes sample ``index[i]``."""
    try:
        yield
    except (NotUniqueError, SolveError) as error:
        raise error.at(index) from error


@contextmanager
def name_output_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that turns an ``OSError`` of its block into an ``OutputError`` that names the file and a remedy."""
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

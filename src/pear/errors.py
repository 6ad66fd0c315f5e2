"""The errors PEAR raises. Each message says what came, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 5  # positions that a message lists


class PearError(Exception):
    """Base of every error this package raises on purpose."""


class ProblemError(PearError, ValueError):
    """A problem or an argument that cannot be right: shape, dtype, sign, name."""


class DataError(PearError, ValueError):
    """A data file that is missing, or holds something else than what was expected."""


class UnknownSolverError(PearError, ValueError):
    """A solver name that is not in the registry, or one that cannot solve this kind of problem."""


class MissingExtraError(PearError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class NotUniqueError(PearError, RuntimeError):
    """The decision is not unique, so that its derivative does not exist; smoothing makes it unique.

    Attributes:
        samples: positions in the batch of the samples it is about; "{samples}" in the message stands for them.
    """

    def __init__(self, message: str, samples: Sequence[int] = ()) -> None:
        super().__init__(message.replace("{samples}", listed("sample", samples)))
        self._message, self.samples = message, list(samples)

    def at(self, index: Sequence[int]) -> NotUniqueError:
        """The same error about a part of a batch whose samples have the positions ``index`` in the whole."""
        return NotUniqueError(self._message, [index[i] for i in self.samples])


class SolveError(PearError, RuntimeError):
    """Some samples have no verified solution.

    Attributes:
        samples: positions in the batch of the samples that failed; "{samples}" in the message stands for them.
        statuses: their statuses (``pear.Status``), in the same order.
    """

    def __init__(self, message: str, samples: Sequence[int] = (), statuses: Sequence[int] = ()) -> None:
        super().__init__(message.replace("{samples}", listed("sample", samples)))
        self._message = message
        self.samples = list(samples)
        self.statuses = list(statuses)

    def at(self, index: Sequence[int]) -> SolveError:
        """The same error about a part of a batch whose samples have the positions ``index`` in the whole."""
        return SolveError(self._message, [index[i] for i in self.samples], self.statuses)


class FailedSamplesWarning(UserWarning):
    """Samples were masked out of a batch because they could not be solved."""


def listed(what: str, positions: Sequence[int]) -> str:
    """List the first five positions, and say how many more there are.

    Example:
        >>> listed("sample", [3]), listed("row", range(8))
        ('sample 3', 'rows 0, 1, 2, 3, 4 and 3 more')
    """
    more = f" and {len(positions) - _NAMED} more" if len(positions) > _NAMED else ""
    return f"{what}{'s' if len(positions) > 1 else ''} {', '.join(map(str, positions[:_NAMED]))}{more}"

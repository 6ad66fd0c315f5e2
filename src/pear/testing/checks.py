"""``Check``: one named condition of a conformance suite, which raises a sentence where it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pear.errors import PearError


class ConformanceError(PearError, AssertionError):
    """Something does not pass a check of ``pear.testing``; the message names it, the check, and what is wrong."""


@dataclass(frozen=True)
class Check:
    """A check, to be called without arguments.

    Attributes:
        subject: what is checked, such as "the solver 'mine'".
        name: what is required of it, in a few words; ``str`` gives it.
        body: raises ``ConformanceError`` where the requirement is not met.

    Example:
        >>> from pear.testing import solver_checks
        >>> first = solver_checks("scipy")[0]
        >>> str(first)
        'lp: one variable'
        >>> first()
    """

    subject: str
    name: str
    body: Callable[[], None]

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        """Run the check.

        Raises:
            ConformanceError: it fails, or what is checked raises an error that it should not.
        """
        try:
            self.body()
        except ConformanceError as error:
            raise ConformanceError(f"{self.subject} fails the check '{self.name}': {error}") from None
        except Exception as error:  # what is checked is not ours, and may raise anything
            raise ConformanceError(
                f"{self.subject} fails the check '{self.name}': it raises {type(error).__name__}: {error}"
            ) from error


def require(condition: bool, sentence: str) -> None:
    """Raise ConformanceError with this sentence unless the condition holds."""
    if not condition:
        raise ConformanceError(sentence)


def require_error(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    """Raise ConformanceError unless ``call`` raises an error of this kind with a message.

    Args:
        kind: the expected error.
        call: what should raise it.
        what: what is wrong with the call, for the message.
    """
    try:
        call()
    except kind as error:
        require(bool(str(error)), f"{what}: its {kind.__name__} has no message; say what came and what to do")
        return
    raise ConformanceError(f"{what}: expected a {kind.__name__}, and nothing was raised")


def run_checks(checks: Iterable[Check]) -> tuple[str, ...]:
    """Run all checks, also after one has failed.

    Returns:
        The names of the checks, all of which passed.

    Raises:
        ConformanceError: some failed, with a line for each.
    """
    names, failures = [], []
    for check in checks:
        names.append(check.name)
        try:
            check()
        except ConformanceError as error:
            failures.append(str(error))
    if failures:
        lines = "\n".join(f"- {failure}" for failure in failures)
        raise ConformanceError(f"{len(failures)} of {len(names)} checks failed:\n{lines}")
    return tuple(names)

"""``Check``: a named requirement of a conformance suite. If it is not met, the check raises ``ConformanceError``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pear.errors import PearError

Body = Callable[[], None]


class ConformanceError(PearError, AssertionError):
    """An object fails a check of ``pear.testing``; the message names the object, the check and the reason."""


@dataclass(frozen=True)
class Check:
    """A requirement that an object must meet, with a name. Call the check without arguments to run it.

    Attributes:
        subject: the object that is checked, such as "the solver 'mine'".
        name: the requirement in a few words; also the text that ``str`` returns.
        body: a function that raises ``ConformanceError`` if the requirement is not met.

    Example:
        >>> from pear.testing import solver_checks
        >>> first = solver_checks("scipy")[0]
        >>> str(first)
        'lp: one variable'
        >>> first()
    """

    subject: str
    name: str
    body: Body

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        """Run the check.

        Raises:
            ConformanceError: the check fails, or the checked object raises an unexpected error.
        """
        try:
            self.body()
        except ConformanceError as error:
            raise ConformanceError(f"{self.subject} fails the check '{self.name}': {error}") from None
        except Exception as error:  # the checked object is not ours, and may raise anything
            raise ConformanceError(
                f"{self.subject} fails the check '{self.name}': it raises {type(error).__name__}: {error}"
            ) from error


def check_that(condition: bool, sentence: str) -> None:
    """Raise ``ConformanceError`` with the message ``sentence`` unless the condition is true."""
    if not condition:
        raise ConformanceError(sentence)


def check_raises(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    """Raise ``ConformanceError`` unless ``call`` raises an error of this kind with a message.

    An error of another kind is not caught.

    Args:
        kind: the expected error.
        call: a function that should raise the error.
        what: what is wrong with the call, for the message.
    """
    try:
        call()
    except kind as error:
        check_that(bool(str(error)), f"{what}: its {kind.__name__} has no message; say what came and what to do")
        return
    raise ConformanceError(f"{what}: expected a {kind.__name__}, and nothing was raised")


def run_checks(checks: Iterable[Check]) -> tuple[str, ...]:
    """Run all checks, even if some of them fail.

    Returns:
        The names of the checks, if all of them passed.

    Raises:
        ConformanceError: some checks failed; the message has a line for each of them.
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

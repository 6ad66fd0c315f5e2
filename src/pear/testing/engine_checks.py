"""The conformance suite of engines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pear.engines import Engine, SendMessage, TaskFailure, TaskMessage, TaskResult, start
from pear.testing.checks import Check, ConformanceError, check_that, run_checks


def engine_checks(engine: str) -> list[Check]:
    """Return the checks of an engine, given the name that users write.

    Example:
        >>> [str(check) for check in engine_checks("local")]
        ['results', 'messages', 'shared values', 'errors']
    """
    return _EngineChecks(engine).all()


def check_engine(engine: str) -> tuple[str, ...]:
    """Run all checks of an engine, and return their names. Raise ``ConformanceError`` if some of them fail.

    Example:
        >>> check_engine("local")
        ('results', 'messages', 'shared values', 'errors')
    """
    return run_checks(engine_checks(engine))


class _EngineChecks:
    """The checks of the engine with a given name. Each check starts the engine anew."""

    def __init__(self, name: str) -> None:
        self.name = name

    def all(self) -> list[Check]:
        """Return all checks."""
        bodies: dict[str, Callable[[Engine], None]] = {
            "results": self.returns_results,
            "messages": self.sends_messages,
            "shared values": self.shares_values,
            "errors": self.raises_errors,
        }
        subject = f"the engine '{self.name}'"
        return [Check(subject, name, partial(self._with_engine, body)) for name, body in bodies.items()]

    def _with_engine(self, body: Callable[[Engine], None]) -> None:
        """Start the engine with a single job, and run a check with it."""
        with start(self.name, jobs=1) as engine:
            check_that(engine.slots >= 1, f"it has {engine.slots} slots")
            body(engine)

    def returns_results(self, engine: Engine) -> None:
        """Check that every task returns the value of its function."""
        tickets, updates = self._run(engine, *((_double_in_engine, number) for number in range(3)))
        values = {one.ticket: one.value for one in updates if isinstance(one, TaskResult)}
        check_that(values == {ticket: 2 * k for k, ticket in enumerate(tickets)}, f"results by ticket are {values}")

    def sends_messages(self, engine: Engine) -> None:
        """Check that messages arrive unchanged or not at all."""
        (ticket,), updates = self._run(engine, (_double_in_engine, 4))
        said = [one.message for one in updates if isinstance(one, TaskMessage) and one.ticket == ticket]
        check_that(said in ([], ["doubling 4"]), f"messages are {said}")

    def shares_values(self, engine: Engine) -> None:
        """Check that a task gets the value that was shared."""
        _, updates = self._run(engine, (_double_in_engine, engine.share(21)))
        values = [one.value for one in updates if isinstance(one, TaskResult)]
        check_that(values == [42], f"a shared value of 21, doubled, is {values}")

    def raises_errors(self, engine: Engine) -> None:
        """Check that ``wait`` raises the error of a task."""
        try:
            self._run(engine, (_fail_in_engine,))
        except ZeroDivisionError as error:
            check_that("on purpose" in str(error), f"the error of a task lost its message: {error}")
            return
        raise ConformanceError("the error of a task is not raised")

    @staticmethod
    def _run(engine: Engine, *tasks: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
        """Submit tasks, each a function and its arguments, and wait for them.

        Return the tasks' tickets and all updates.
        """
        tickets: list[int] = []
        updates: list[Any] = []
        for task in tasks:
            while engine.free < 1:
                engine.wait(updates.append)
            tickets.append(engine.submit(*task))
        while len([one for one in updates if isinstance(one, (TaskResult, TaskFailure))]) < len(tickets):
            engine.wait(updates.append)
        return tickets, updates


def _double_in_engine(send: SendMessage, number: int) -> int:
    """Send a message, and return twice a number."""
    send(f"doubling {number}")
    return 2 * number


def _fail_in_engine(send: SendMessage) -> None:
    """Raise an error."""
    raise ZeroDivisionError("on purpose")

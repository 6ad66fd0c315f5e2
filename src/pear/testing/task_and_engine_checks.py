"""The conformance suites of tasks and of engines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pear.decisions.solve import solve
from pear.engines import Engine, SendMessage, TaskLoss, TaskMessage, TaskResult, start
from pear.plugins import find_plugin
from pear.tasks.task import Samples, Task
from pear.testing.checks import Check, ConformanceError, require, run_checks

SAME = 1e-8
"""The largest relative difference of two values that must be equal."""

_COUNT = 6


def task_checks(task: str | Task) -> list[Check]:
    """List the checks of a task with synthetic samples.

    Args:
        task: the task, or the name of a plug-in that makes one without arguments.

    Example:
        >>> import pear
        >>> [str(check) for check in task_checks(pear.tasks.shortest_path((3, 3)))]
        ['samples', 'decisions', 'regret']
    """
    if isinstance(task, str):
        made = find_plugin("task", task)
        if made is None:
            raise ConformanceError(f"there is no task {task!r} among the plug-ins; give the task itself")
        task = made()
    bodies: dict[str, Callable[[Any], None]] = {"samples": _samples, "decisions": _decisions, "regret": _regret}
    subject = f"the task '{getattr(task, 'name', task)}'"
    return [Check(subject, name, partial(body, task)) for name, body in bodies.items()]


def check_task(task: str | Task) -> tuple[str, ...]:
    """Run all checks of a task; returns their names, and raises ``ConformanceError`` where some fail.

    Example:
        >>> import pear
        >>> check_task(pear.tasks.shortest_path((3, 3)))
        ('samples', 'decisions', 'regret')
    """
    return run_checks(task_checks(task))


def _drawn(task: Any, seed: int = 0) -> Samples:
    return Samples(*task.samples(_COUNT, seed=seed))


def _samples(task: Any) -> None:
    """Samples have the shapes of the problem, are finite, and depend on the seed alone."""
    first, again, other = _drawn(task), _drawn(task), _drawn(task, seed=1)
    require(first.costs.shape == (_COUNT, task.problem.n), f"costs have shape {tuple(first.costs.shape)}")
    require(first.features.shape[0] == _COUNT, f"features have shape {tuple(first.features.shape)}")
    require(all(bool(part.isfinite().all()) for part in first), "features or costs are not finite")
    same = all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    require(same, "the same seed gives other samples; draw from a generator with that seed")
    require(not torch.equal(first.costs, other.costs), "another seed gives the same costs")


def _decisions(task: Any) -> None:
    """Decisions are as good as those of ``pear.solve``, of the same dtype, and feasible."""
    costs = _drawn(task).costs.double()
    decided, best = task.decide(costs), solve(task.problem, costs).x
    require(decided.shape == best.shape, f"decisions have shape {tuple(decided.shape)}; expected {tuple(best.shape)}")
    values, expected = (task.problem.objective(z, costs) for z in (decided, best))
    worst = float(((values - expected).abs() / (1 + expected.abs())).max())
    require(worst <= SAME, f"decisions differ in value from those of pear.solve by {worst:.1e}")
    narrow = task.decide(costs.float())
    require(narrow.dtype == torch.float32, f"decisions have dtype {narrow.dtype} for costs in float32")


def _regret(task: Any) -> None:
    """Regret is never negative, zero for the truth, and positive for some wrong forecast."""
    true, other = _drawn(task).costs.double(), _drawn(task, seed=1).costs.double()
    scale = 1 + float(task.problem.objective(task.decide(true), true).abs().max())
    wrong, right = task.regret(other, true), task.regret(true, true)
    require(float(wrong.min()) >= -SAME * scale, f"a regret is {float(wrong.min()):g}")
    require(float(right.abs().max()) <= SAME * scale, f"the regret of the truth is {float(right.abs().max()):g}")
    require(float(wrong.max()) > SAME * scale, "no forecast has a regret; the samples do not tell decisions apart")


def engine_checks(engine: str) -> list[Check]:
    """List the checks of an engine, by the name that users write.

    Example:
        >>> [str(check) for check in engine_checks("local")]
        ['results', 'messages', 'shared values', 'errors']
    """
    bodies = {"results": _results, "messages": _messages, "shared values": _shared, "errors": _errors}
    return [Check(f"the engine '{engine}'", name, partial(_with_engine, engine, body)) for name, body in bodies.items()]


def check_engine(engine: str) -> tuple[str, ...]:
    """Run all checks of an engine; returns their names, and raises ``ConformanceError`` where some fail.

    Example:
        >>> check_engine("local")
        ('results', 'messages', 'shared values', 'errors')
    """
    return run_checks(engine_checks(engine))


def _with_engine(name: str, body: Callable[[Engine], None]) -> None:
    with start(name, jobs=1) as engine:
        require(engine.slots >= 1, f"it has {engine.slots} slots")
        body(engine)


def double(send: SendMessage, number: int) -> int:
    """A task that returns twice a number, and says so before."""
    send(f"doubling {number}")
    return 2 * number


def fail(send: SendMessage) -> None:
    """A task that raises an error."""
    raise ZeroDivisionError("on purpose")


def _updates_of(engine: Engine, *tasks: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
    """Submit tasks as there is room; returns their tickets and all updates."""
    tickets: list[int] = []
    updates: list[Any] = []
    for task in tasks:
        while engine.free < 1:
            engine.wait(updates.append)
        tickets.append(engine.submit(*task))
    while len([one for one in updates if isinstance(one, (TaskResult, TaskLoss))]) < len(tickets):
        engine.wait(updates.append)
    return tickets, updates


def _results(engine: Engine) -> None:
    tickets, updates = _updates_of(engine, *((double, number) for number in range(3)))
    values = {one.ticket: one.value for one in updates if isinstance(one, TaskResult)}
    require(values == {ticket: 2 * k for k, ticket in enumerate(tickets)}, f"results by ticket are {values}")


def _messages(engine: Engine) -> None:
    (ticket,), updates = _updates_of(engine, (double, 4))
    said = [one.message for one in updates if isinstance(one, TaskMessage) and one.ticket == ticket]
    require(said in ([], ["doubling 4"]), f"messages are {said}")  # some may get lost


def _shared(engine: Engine) -> None:
    _, updates = _updates_of(engine, (double, engine.share(21)))
    values = [one.value for one in updates if isinstance(one, TaskResult)]
    require(values == [42], f"a shared value of 21, doubled, is {values}")


def _errors(engine: Engine) -> None:
    """The error of a task is raised where the engine is waited for."""
    try:
        _updates_of(engine, (fail,))
    except ZeroDivisionError as error:
        require("on purpose" in str(error), f"the error of a task lost its message: {error}")
        return
    raise ConformanceError("the error of a task is not raised")

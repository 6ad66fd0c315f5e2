"""The conformance suite of tasks."""

from __future__ import annotations

from typing import Any

import torch

from pear.decisions.solve import solve
from pear.plugins import find_plugin
from pear.tasks.task import Samples, Task
from pear.testing.checks import Body, Check, ConformanceError, check_that, run_checks

SAME = 1e-8
"""The largest relative difference between two values that count as equal."""

_COUNT = 6  # samples


def task_checks(task: str | Task) -> list[Check]:
    """Return the checks of a task with synthetic samples.

    Args:
        task: the task, or the name of a plug-in that makes a task without arguments.

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
    return _TaskChecks(task).all()


def check_task(task: str | Task) -> tuple[str, ...]:
    """Run all checks of a task, and return their names. Raise ``ConformanceError`` if some of them fail.

    Example:
        >>> import pear
        >>> check_task(pear.tasks.shortest_path((3, 3)))
        ('samples', 'decisions', 'regret')
    """
    return run_checks(task_checks(task))


class _TaskChecks:
    """The checks of a task."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def all(self) -> list[Check]:
        """Return all checks."""
        bodies: dict[str, Body] = {
            "samples": self.draws_samples,
            "decisions": self.decides_well,
            "regret": self.measures_regret,
        }
        subject = f"the task '{getattr(self.task, 'name', self.task)}'"
        return [Check(subject, name, body) for name, body in bodies.items()]

    def _draw(self, seed: int = 0) -> Samples:
        """Return a few samples of the task."""
        return Samples(*self.task.samples(_COUNT, seed=seed))

    def draws_samples(self) -> None:
        """Check that samples are finite and have the shapes of the problem, and that only the seed determines them."""
        first, again, other = self._draw(), self._draw(), self._draw(seed=1)
        check_that(first.costs.shape == (_COUNT, self.task.problem.n), f"costs have shape {tuple(first.costs.shape)}")
        check_that(first.features.shape[0] == _COUNT, f"features have shape {tuple(first.features.shape)}")
        check_that(all(bool(part.isfinite().all()) for part in first), "features or costs are not finite")
        same = all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        check_that(same, "the same seed gives other samples; draw from a generator with that seed")
        check_that(not torch.equal(first.costs, other.costs), "another seed gives the same costs")

    def decides_well(self) -> None:
        """Check that decisions are as good as those of ``pear.solve``, and have the dtype of the costs."""
        task, costs = self.task, self._draw().costs.double()
        decided, best = task.decide(costs), solve(task.problem, costs).x
        check_that(
            decided.shape == best.shape, f"decisions have shape {tuple(decided.shape)}; expected {tuple(best.shape)}"
        )
        values, expected = (task.problem.objective(z, costs) for z in (decided, best))
        worst = float(((values - expected).abs() / (1 + expected.abs())).max())
        check_that(worst <= SAME, f"decisions differ in value from those of pear.solve by {worst:.1e}")
        narrow = task.decide(costs.float())
        check_that(narrow.dtype == torch.float32, f"decisions have dtype {narrow.dtype} for costs in float32")

    def measures_regret(self) -> None:
        """Check that regrets are not negative, zero for the truth, and positive for some wrong forecast."""
        task, true, other = self.task, self._draw().costs.double(), self._draw(seed=1).costs.double()
        scale = 1 + float(task.problem.objective(task.decide(true), true).abs().max())
        wrong, right = task.regret(other, true), task.regret(true, true)
        check_that(float(wrong.min()) >= -SAME * scale, f"a regret is {float(wrong.min()):g}")
        check_that(float(right.abs().max()) <= SAME * scale, f"the regret of the truth is {float(right.abs().max()):g}")
        check_that(
            float(wrong.max()) > SAME * scale, "no forecast has a regret; the samples do not tell decisions apart"
        )

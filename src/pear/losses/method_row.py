"""``Method``: a row of the table of training methods; ``OwnProblem``: a user's problem as a task to train on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.defaults import Strengths
from pear.losses.mse import MSELoss
from pear.losses.vertices import adjacent_in_problem
from pear.problem import Model, Problem
from pear.problem.keys_and_columns import select_model_rows, select_rows
from pear.problem.model import problem_and_cost_map, recourse_model
from pear.problem.oracle import decided_by

REQUIREMENTS: dict[str, str] = {
    "nothing": "the true values alone",
    "decisions": "best decisions for given costs: a problem that is solved, or a function (an Oracle)",
    "relaxation": "the constraints, without integers: a Problem, or the relaxation of an Oracle",
    "vertices": "the neighbours of a vertex; found for a Problem",
    "pool": "decisions to compare with; collected while training, from given decisions",
}
"""The words of ``Method.requires``, and what each of them asks of the user."""


class TaskLike(Protocol):
    """The interface of a task that a method can train on; LAVA also needs a method ``adjacent``.

    The default metric of ``pear.fit`` is decided by ``decide``, or, where a task says ``decides_problem = True``, by
    solving its problem, which must come to the same.
    """

    @property
    def name(self) -> str:
        """The task's name; it begins with the kind of task, for example "knapsack"."""
        ...

    @property
    def problem(self) -> Problem | Model:
        """The decision problem."""
        ...

    def decide(self, cost: Any) -> Tensor:
        """Return the exact decisions (B, n) under costs (B, n)."""
        ...

    def decide_relaxed(self, cost: Any) -> Tensor:
        """Return the decisions (B, n) of the continuous relaxation under costs (B, n)."""
        ...


class OwnProblem:
    """A task made of a user's problem: decides by ``pear.solve``, and finds the neighbours of a vertex.

    Args:
        problem: the decision problem. Where it has fields per sample, ``keys`` selects its rows.

    Example:
        >>> import pear
        >>> simplex = OwnProblem(pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0))
        >>> simplex.adjacent(simplex.decide([[1.0, 2.0, 3.0]]))[0]
        tensor([[0., 1., 0.],
                [0., 0., 1.]], dtype=torch.float64)
    """

    name = "own problem"
    decides_problem = True

    def __init__(self, problem: Problem | Model) -> None:
        self.problem = problem

    def _problem_of(self, keys: list[Hashable] | None) -> Problem:
        """Return the problem of the samples with these keys, without its cost map."""
        return select_rows(problem_and_cost_map(self.problem)[0], keys)

    def decide(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """Return the best decisions (B, n) for costs (B, n), or for values (B, k) with predicted right-hand sides."""
        model = recourse_model(self.problem)
        return solve(self._problem_of(keys) if model is None else select_model_rows(model, keys), cost).x

    def decide_relaxed(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """Return the best decisions (B, n) of the continuous relaxation for costs (B, n)."""
        return solve(self._problem_of(keys).relaxed(), cost).x

    def adjacent(self, z: Tensor, keys: list[Hashable] | None = None) -> list[Tensor]:
        """Find the neighbours of each vertex in z (B, n), as ``adjacent_in_problem`` does: B tensors (k, n)."""
        return adjacent_in_problem(self._problem_of(keys).relaxed(), z)


@dataclass(frozen=True)
class Method:
    """One training method, a row of ``METHODS``.

    Attributes:
        name: the name that users write.
        title: the name that tables print.
        loss: the class of the loss, or a function from the problem, and options, to a loss.
        needs: for each argument of the class that comes from the task, the name of the task's attribute.
        requires: what the method needs from the user, in words of ``REQUIREMENTS``; () where a package does not say.
        options: the settings in the published experiments, by kind of task (the beginning of the task's name);
            settings under "" hold for every task. Those that measure costs do so in the unit of the training costs; the
            published experiments add ``published_unit``, which makes them absolute.
        shuffled: False where an epoch visits the samples in their own order.
        note: a description in one line.
    """

    name: str
    title: str
    loss: Callable[..., nn.Module]
    needs: dict[str, str] = field(default_factory=dict)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    shuffled: bool = True
    note: str = ""
    requires: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ProblemError where ``requires`` has a word that ``REQUIREMENTS`` does not explain."""
        if any(word not in REQUIREMENTS for word in self.requires):  # a plain string fails by its letters
            there = ", ".join(map(repr, REQUIREMENTS))
            raise ProblemError(f"requires must be a tuple of words among {there}; got {self.requires!r}")

    def options_for(self, task: TaskLike) -> dict[str, Any]:
        """Return the published settings for this task."""
        return {k: v for kind, some in self.options.items() if task.name.startswith(kind) for k, v in some.items()}

    @property
    def defaults(self) -> dict[str, Any]:
        """The tunable settings that the row leaves to the defaults of the class.

        An experiment records them, because the defaults may change.

        Example:
            >>> from pear.losses import method
            >>> method("pear").defaults, sorted(method("pear-guided").defaults)[-2:]
            ({}, ['injection', 'smoothing'])
        """
        said = {name for some in self.options.values() for name in some}
        known = inspect.signature(self.loss).parameters.values()
        return {one.name: one.default for one in known if one.name in Strengths._fields and one.name not in said}

    @property
    def published_unit(self) -> dict[str, float]:
        """The option that makes the numbers in the row absolute, as in the paper; {} where they have no unit.

        Example:
            >>> from pear.losses import method
            >>> method("pfyl").published_unit, method("mse").published_unit
            ({'cost_unit': 1.0}, {})
        """
        return {"cost_unit": 1.0} if "cost_unit" in inspect.signature(self.loss).parameters else {}

    def make(self, task: TaskLike, **options: Any) -> nn.Module:
        """Make the loss for a task, with the row's settings where ``options`` does not replace them.

        Raises:
            ProblemError: the method has no such option, or the task lacks something that the method needs.
        """
        settings = self.options_for(task) | options
        arguments = inspect.signature(self.loss).parameters
        known = [] if self.loss is MSELoss else [name for name in arguments if name not in ("problem", *self.needs)]
        takes_any = any(one.kind is one.VAR_KEYWORD for one in arguments.values())
        for name in settings:
            if name not in known and not takes_any:
                there = ", ".join(known) if known else "none"
                raise ProblemError(f"method '{self.name}' has no option {name!r}; its options: {there}")
        given = {}
        for argument, attribute in self.needs.items():
            if not hasattr(task, attribute):
                raise ProblemError(f"method '{self.name}' needs a task with {attribute}(), and {task.name} has none")
            given[argument] = getattr(task, attribute)
        solved = getattr(task, "decides_problem", not hasattr(task, "decide"))
        problem = task.problem if solved else decided_by(task.problem, task.decide)
        loss: Any = self.loss(problem, **given, **settings)
        loss.given = problem  # the metric is exact where training decides on the relaxation
        return loss

"""``Task``: a named decision problem with its best decisions, the regret of a forecast, and a split of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from pear.decisions import solve
from pear.decisions.failures import report_failures
from pear.errors import PluginError, ProblemError
from pear.losses.cost_pairs import check_cost_pair, true_curvature_of_pair
from pear.losses.regret_outcome import RegretOutcome
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.tensor_conversion import is_tensor_finite, to_batch_tensor


class Samples(NamedTuple):
    """Features and true costs, with one row per sample; unpacks as ``X, C``.

    Attributes:
        features: (N, p).
        costs: (N, n).
    """

    features: Tensor
    costs: Tensor


class Split(NamedTuple):
    """Samples to train on, to choose the weights by, and to test the result on."""

    train: Samples
    validation: Samples
    test: Samples


@dataclass(frozen=True)
class Task:
    """A named decision problem. A subclass overrides ``decide`` where it knows a faster method.

    Synthetic tasks also have ``samples``, which draws data that ``split`` divides.

    Attributes:
        name: short, for tables and file names.
        problem: the decision problem.
    """

    decides_problem: ClassVar[bool] = True  # ``decide`` finds what solving ``problem`` finds

    name: str
    problem: Problem

    def split(self, samples: Samples, sizes: Sequence[int] | None = None) -> Split:
        """Cut samples, in the order they have, into train, validation and test.

        Args:
            samples: N of them.
            sizes: three counts with a sum of at most N; if omitted, half, a quarter and the rest: 1,000, 500 and 500 of
                2,000.

        Example:
            >>> from pear.tasks import shortest_path
            >>> task = shortest_path((3, 3))
            >>> [len(part.costs) for part in task.split(task.samples(2000))]
            [1000, 500, 500]
        """
        count = len(samples.features)
        sizes = [count // 2, count // 4, count - count // 2 - count // 4] if sizes is None else list(sizes)
        if len(sizes) != 3 or min(sizes) < 1 or sum(sizes) > count:
            raise ProblemError(
                f"sizes must be three counts of at least 1 for train, validation and test that sum to at most {count}, "
                f"the number of samples; got {tuple(sizes)}"
            )
        first, second, third = sizes[0], sizes[0] + sizes[1], sum(sizes)
        cuts = (slice(0, first), slice(first, second), slice(second, third))
        return Split(*(Samples(samples.features[cut], samples.costs[cut]) for cut in cuts))

    def decide(self, cost: Any, Q: Any = None) -> Tensor:
        """The optimal decisions (B, n) under ``cost``; integer where the problem is.

        Args:
            cost: (B, n) or (n,), in the problem's own sense.
            Q: (n, n) or (B, n, n) curvature, where it comes with the cost; the problem's own if omitted.

        Returns:
            Decisions in the dtype of ``cost``.
        """
        return solve(self.problem, to_batch_tensor(cost).detach(), Q=Q).x

    def decide_relaxed(self, cost: Any) -> Tensor:
        """The optimal decisions (B, n) of the continuous relaxation under ``cost``.

        Args:
            cost: (B, n) or (n,), in the problem's own sense.
        """
        return solve(self.problem.relaxed(), to_batch_tensor(cost).detach()).x

    def regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> Tensor:
        """The regret (B,) of the decisions under ``predicted``, in float64.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs.
            Q: (n, n) or (B, n, n) predicted curvature, where a task has one.
            true_Q: the true one; the problem's own if omitted.
        """
        return self.outcome(predicted, true, Q, true_Q).regret

    def normalized_regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> float:
        """``Σ [f(z*(ĉ); c) − f(z*(c); c)] / Σ |f(z*(c); c)|``, the sign turned for maximisation.

        Where all best values are exactly 0, it is 0 if nothing is lost, otherwise infinite.

        Args:
            predicted, true, Q, true_Q: as for ``regret``.

        Example:
            >>> from pear.tasks import shortest_path
            >>> task = shortest_path((2, 2))
            >>> round(task.normalized_regret([[2.0, 1.0, 1.0, 1.0]], [[1.0, 2.0, 1.0, 1.0]]), 6)
            0.5
        """
        return self.outcome(predicted, true, Q, true_Q).normalized

    def outcome(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> RegretOutcome:
        """Return the regret and the best value of every sample; the arguments are those of ``regret``."""
        forecast, costs = to_batch_tensor(predicted).detach(), to_batch_tensor(true).detach()
        check_cost_pair(forecast, costs)
        true_Q = true_curvature_of_pair(self.problem, Q, true_Q, len(forecast))
        return RegretOutcome.of_decisions(
            self.problem, self.decide(forecast, Q), self.decide(costs, true_Q), costs, true_Q
        )

    def outcome_of(self, decisions: Tensor, true: Any, true_Q: Any = None) -> RegretOutcome:
        """Return the regret of given decisions and the values of the best decisions.

        Args:
            decisions: (B, n) z.
            true: (B, n) the true costs c.
            true_Q: the true curvature; the problem's own if omitted.
        """
        costs = to_batch_tensor(true).detach()
        check_cost_pair(decisions, costs)
        return RegretOutcome.of_decisions(self.problem, decisions, self.decide(costs, true_Q), costs, true_Q)


def check_finite_costs(costs: Tensor, what: str) -> None:
    """Raise SolveError for rows of ``costs`` (B, n) with NaN or infinity; the message says that ``what`` failed."""
    if is_tensor_finite(costs):
        return
    unusable = ~costs.isfinite().all(1)
    report_failures(torch.where(unusable, int(Status.NOT_FINITE), int(Status.SOLVED)), "raise", what)


def own_task_names() -> tuple[str, ...]:
    """The names that a task of another package cannot have."""
    return tuple(vars(import_module("pear.tasks")))


def check_task_plugin(name: str, value: Any) -> Callable[..., Task]:
    """Check the task of another package, and return the function that makes it.

    Raises:
        PluginError: it is not a function, or its name is not an identifier.
    """
    if not callable(value):
        raise PluginError(f"expected a function that makes a pear.tasks.Task, got {value!r}")
    if not name.isidentifier() or name.startswith("_"):
        raise PluginError("its name must be an identifier, because users write pear.tasks.NAME")
    made: Callable[..., Task] = value
    return made

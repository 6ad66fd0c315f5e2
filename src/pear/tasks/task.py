"""``Task``: a named decision problem that decides, measures regret and splits samples."""

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
    """Features and true costs of N samples. The tuple unpacks as ``X, C``.

    Attributes:
        features: (N, p) p features of each sample.
        costs: (N, n) true costs.
    """

    features: Tensor
    costs: Tensor


class Split(NamedTuple):
    """Training, validation and test samples. Validation samples decide which weights of a model are kept."""

    train: Samples
    validation: Samples
    test: Samples


@dataclass(frozen=True)
class Task:
    """A named decision problem.

    Subclasses with a faster method than ``pear.solve`` override ``decide``. Synthetic tasks also have a method
    ``samples``, which draws data.

    Attributes:
        name: a short name, for tables and file names.
        problem: the decision problem.
    """

    decides_problem: ClassVar[bool] = True  # whether ``decide`` returns optimal decisions of ``problem``

    name: str
    problem: Problem

    def split(self, samples: Samples, sizes: Sequence[int] | None = None) -> Split:
        """Return samples in three parts, in their order: to train on, to validate and to test.

        Args:
            samples: N samples.
            sizes: the sizes of the three parts, with a sum of at most N; if omitted, a half, a quarter and the rest.

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
        """Return the optimal decisions under given costs, with integers if the problem has any.

        Args:
            cost: (B, n) or (n,) costs, in the problem's own sense.
            Q: (n, n) or (B, n, n) curvature of the objective; if omitted, that of the problem.

        Returns:
            (B, n) decisions, in the dtype of ``cost``.
        """
        return solve(self.problem, to_batch_tensor(cost).detach(), Q=Q).x

    def decide_relaxed(self, cost: Any) -> Tensor:
        """Return the optimal decisions (B, n) of the continuous relaxation.

        Args:
            cost: (B, n) or (n,) costs, in the problem's own sense.
        """
        return solve(self.problem.relaxed(), to_batch_tensor(cost).detach()).x

    def regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> Tensor:
        """Return the regret (B,) of the decisions under predicted costs, in float64.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs.
            Q: (n, n) or (B, n, n) predicted curvature; if omitted, that of the problem.
            true_Q: (n, n) or (B, n, n) true curvature; if omitted, that of the problem. It is given only with ``Q``.
        """
        return self.outcome(predicted, true, Q, true_Q).regret

    def normalized_regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> float:
        """Return the sum of all regrets, divided by the sum of the absolute best values.

        The best value of a sample is the objective of the best decision under true costs. If all best values are 0, the
        result is 0 if all regrets are 0, otherwise infinite.

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
        """Return the regret and the best value of every sample. The arguments are those of ``regret``."""
        forecast, costs = to_batch_tensor(predicted).detach(), to_batch_tensor(true).detach()
        check_cost_pair(forecast, costs)
        true_Q = true_curvature_of_pair(self.problem, Q, true_Q, len(forecast))
        return RegretOutcome.of_decisions(
            self.problem, self.decide(forecast, Q), self.decide(costs, true_Q), costs, true_Q
        )

    def outcome_of(self, decisions: Tensor, true: Any, true_Q: Any = None) -> RegretOutcome:
        """Return the regret of given decisions and the best value of every sample.

        Args:
            decisions: (B, n) decisions.
            true: (B, n) true costs.
            true_Q: (n, n) or (B, n, n) true curvature; if omitted, that of the problem.
        """
        costs = to_batch_tensor(true).detach()
        check_cost_pair(decisions, costs)
        return RegretOutcome.of_decisions(self.problem, decisions, self.decide(costs, true_Q), costs, true_Q)


def check_finite_costs(costs: Tensor, what: str) -> None:
    """Raise ``SolveError`` if costs (B, n) contain NaN or infinity.

    ``what`` names in the message what cannot be found with such costs, such as "their cheapest path".
    """
    if is_tensor_finite(costs):
        return
    unusable = ~costs.isfinite().all(1)
    report_failures(torch.where(unusable, int(Status.NOT_FINITE), int(Status.SOLVED)), "raise", what)


def own_task_names() -> tuple[str, ...]:
    """Return the names that no plug-in can have, because PEAR itself uses them in ``pear.tasks``."""
    return tuple(vars(import_module("pear.tasks")))


def check_task_plugin(name: str, value: Any) -> Callable[..., Task]:
    """Check a plug-in ``value``, a function that makes a task, and return it unchanged.

    Raises:
        PluginError: ``value`` is not callable, or the name is no identifier or begins with an underscore.
    """
    if not callable(value):
        raise PluginError(f"expected a function that makes a pear.tasks.Task, got {value!r}")
    if not name.isidentifier() or name.startswith("_"):
        raise PluginError("its name must be an identifier, because users write pear.tasks.NAME")
    made: Callable[..., Task] = value
    return made

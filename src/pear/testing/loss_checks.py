"""The conformance suite of losses: what ``pear.fit``, ``pear.tune`` and checkpoints need of every loss."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import PearError
from pear.losses.methods import Method, as_method
from pear.losses.own_problem import OwnProblem
from pear.losses.regret_metrics import normalized_regret
from pear.problem import CostMap, Model, Problem
from pear.problem.sample_keys import takes_keys
from pear.tasks import Samples, shortest_path
from pear.testing.checks import Body, Check, check_raises, check_that, run_checks
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.sample_order import in_order, shuffled

SAME = 1e-9
"""The largest relative difference between two values of a loss that count as equal, because of rounding."""

SHARE = 0.5
"""The largest regret after training, as a share of the regret before."""

_COUNT, _FEATURES = 40, 4  # training samples, and features of each of them


def loss_checks(loss: Any, **options: Any) -> list[Check]:
    """Return the checks of a loss.

    Args:
        loss: the name of the loss, its class, a function that makes a loss for a problem, or a ``pear.losses.Method``.
        options: settings of the loss. Those without a default are required.

    Example:
        >>> [str(check) for check in loss_checks("spo+")][:2]
        ['paths: a number', 'paths: a gradient']
    """
    return _LossChecks(loss, options).all()


def check_loss(loss: Any, **options: Any) -> tuple[str, ...]:
    """Run all checks of a loss.

    Args:
        loss: the name of the loss, its class, a function that makes a loss for a problem, or a ``pear.losses.Method``.
        options: settings of the loss. Those without a default are required.

    Returns:
        The names of the checks, if all of them passed.

    Raises:
        ConformanceError: some checks failed; the message has a line for each of them.

    Example:
        >>> import pear
        >>> len(check_loss(pear.losses.SPOPlusLoss)) > 10
        True
    """
    return run_checks(loss_checks(loss, **options))


class _LossChecks:
    """The checks of a loss. Each of them makes the loss anew.

    Args:
        given: the argument ``loss`` of ``loss_checks``.
        options: settings of the loss. Those without a default are required.
    """

    def __init__(self, given: Any, options: dict[str, Any]) -> None:
        self.method: Method = as_method(given)
        self.options = options

    def make(self, problem: Problem | Model) -> nn.Module:
        """Return a new loss for a problem."""
        return self.method.make(OwnProblem(problem), **self.options)

    def all(self) -> list[Check]:
        """Return all checks."""
        bodies: dict[str, Body] = {}
        for name in _PROBLEMS:
            bodies[f"{name}: a number"] = partial(self.returns_a_number, name)
            bodies[f"{name}: a gradient"] = partial(self.has_a_gradient, name)
            bodies[f"{name}: the truth is best"] = partial(self.prefers_the_truth, name)
        bodies |= {
            "sample ids change nothing": self.ignores_sample_ids,
            "each sample has its own right-hand side": self.selects_samples_by_ids,
            "a cost map": self.uses_a_cost_map,
            "single precision": self.keeps_precision,
            "costs of other shapes are refused": self.refuses_other_shapes,
            "a copy": self.can_be_copied,
            "a checkpoint": self.can_be_resumed,
            "training lowers the regret": self.lowers_the_regret,
        }
        return [Check(f"the loss '{self.method.name}'", name, body) for name, body in bodies.items()]

    def returns_a_number(self, name: str) -> None:
        """Check that the loss is one finite number, in float64 for costs in float64."""
        problem = _PROBLEMS[name]()
        value = self.make(problem)(*_draw_loss_costs(problem.n))
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        check_that(
            isinstance(value, Tensor) and value.shape == (), f"it returns {got}; expected a tensor with one number"
        )
        check_that(bool(value.isfinite()), f"it returns {value.item()}")
        check_that(value.dtype == torch.float64, f"it returns {value.dtype} for costs in float64")

    def has_a_gradient(self, name: str) -> None:
        """Check that predicted costs get a finite gradient. It may be zero, because regret has flat pieces."""
        problem = _PROBLEMS[name]()
        predicted, true = _draw_loss_costs(problem.n)
        self.make(problem)(predicted, true).backward()
        gradient = predicted.grad
        check_that(gradient is not None, "what is predicted gets no gradient")
        check_that(gradient is not None and bool(gradient.isfinite().all()), "its gradient is not finite")

    def prefers_the_truth(self, name: str) -> None:
        """Check that the loss is lower for true costs than for wrong costs."""
        problem = _PROBLEMS[name]()
        predicted, true = _draw_loss_costs(problem.n, count=32)
        wrong, right = (self.make(problem)(costs, true).item() for costs in (predicted, true))
        check_that(right < wrong, f"it is {right:g} for the true costs and {wrong:g} for wrong ones; it must be lower")

    def ignores_sample_ids(self) -> None:
        """Check that sample ids do not change the loss, neither in the first call with them nor in the second."""
        problem = _make_path_problem()
        predicted, true = _draw_loss_costs(problem.n)
        with_ids, without = self.make(problem), self.make(problem)
        check_that(takes_keys(with_ids), "its forward has no argument keys; add keys=None, the ids of the samples")
        for visit in ("first", "second"):
            first, second = with_ids(predicted, true, keys=range(8)).item(), without(predicted, true).item()
            same = abs(first - second) <= SAME * (1 + abs(second))
            check_that(same, f"at the {visit} visit it is {first:.12g} with sample ids and {second:.12g} without")

    def selects_samples_by_ids(self) -> None:
        """Check that ids select the rows of fields that differ between samples."""
        budgets = torch.tensor([[1.0], [2.0], [3.0], [1.5]], dtype=torch.float64)
        problem = Problem(A=torch.ones(1, 4, dtype=torch.float64), b=budgets, lb=0.0, ub=2.0)
        predicted, true = _draw_loss_costs(4, count=4)
        chosen = [3, 1]
        alone = Problem(A=torch.ones(1, 4, dtype=torch.float64), b=budgets[chosen], lb=0.0, ub=2.0)
        some = self.make(problem)(predicted[chosen], true[chosen], keys=chosen).item()
        same = self.make(alone)(predicted[chosen], true[chosen], keys=[0, 1]).item()
        check_that(
            abs(some - same) <= SAME * (1 + abs(same)),
            f"it is {some:.12g} for samples 3 and 1 of a problem with fields per sample, and {same:.12g} for a problem "
            "of these two; keys must select the rows",
        )

    def uses_a_cost_map(self) -> None:
        """Check that the values of a cost map get a gradient."""
        problem, M = _make_knapsack_problem(), torch.as_tensor(np.random.default_rng(1).normal(size=(5, 2)))
        values, true = _draw_loss_costs(2)
        self.make(Model(problem, cost_map=CostMap(M, torch.ones(5).double())))(values, true).backward()
        check_that(
            values.grad is not None and values.grad.shape == (8, 2),
            "the predicted values of a cost map get no gradient",
        )
        check_that(
            bool(values.grad is not None and values.grad.isfinite().all()), "the gradient of its values is not finite"
        )

    def keeps_precision(self) -> None:
        """Check that loss and gradient have the precision of the costs."""
        problem = _make_path_problem()
        predicted, true = (costs.detach().float() for costs in _draw_loss_costs(problem.n))
        predicted.requires_grad_()
        value = self.make(problem)(predicted, true)
        value.backward()
        check_that(value.dtype == torch.float32, f"it returns {value.dtype} for costs in float32")
        check_that(
            predicted.grad is not None and predicted.grad.dtype == torch.float32, "its gradient is not in float32"
        )

    def refuses_other_shapes(self) -> None:
        """Check that true costs of another shape raise an error."""
        problem = _make_path_problem()
        predicted, true = _draw_loss_costs(problem.n)
        loss = self.make(problem)
        check_raises(PearError, lambda: loss(predicted, true[:, :-1]), "true costs with a column less")

    def can_be_copied(self) -> None:
        """Check that a copy has the same value. ``tune``, races and estimators train copies."""
        problem = _make_path_problem()
        predicted, true = _draw_loss_costs(problem.n)
        loss = self.make(problem)
        other = copy.deepcopy(loss)
        first, second = loss(predicted, true).item(), other(predicted, true).item()
        check_that(abs(first - second) <= SAME * (1 + abs(first)), f"it is {first:.12g}, and its copy {second:.12g}")

    def can_be_resumed(self) -> None:
        """Check that a loss that gets the saved state of another loss returns the same next value as that loss."""
        problem = _make_path_problem()
        predicted, true = _draw_loss_costs(problem.n)
        loss, other = self.make(problem), self.make(problem)
        loss(predicted, true)
        file = io.BytesIO()
        torch.save(loss.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        first, second = loss(predicted, true).item(), other(predicted, true).item()
        check_that(
            abs(first - second) <= SAME * (1 + abs(first)),
            f"its second value is {first:.12g}, and {second:.12g} for a loss that was resumed from its state_dict; "
            "get_extra_state must hold what changes, such as random numbers",
        )

    def lowers_the_regret(self) -> None:
        """Check that 20 epochs of training bring the regret of an untrained model below half of its value."""
        problem, rng = _make_path_problem(), np.random.default_rng(0)
        X = torch.as_tensor(rng.normal(size=(2 * _COUNT, _FEATURES)), dtype=torch.float32)
        true = (X @ torch.as_tensor(rng.normal(size=(_FEATURES, problem.n)), dtype=torch.float32) / 2).exp()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Linear(_FEATURES, problem.n)
        train, held_out = Samples(X[:_COUNT], true[:_COUNT]), (X[_COUNT:], true[_COUNT:])

        def regret() -> float:
            with torch.no_grad():
                return normalized_regret(problem, model(X), true)

        before = regret()
        order = shuffled if self.method.shuffled else in_order
        config = FitConfig(batch_size=8, max_epochs=20, check_every=5, start="standardised", learning_rate=0.05)
        metric = partial(normalized_regret, problem)
        fit(model, self.make(problem), train, held_out, metric, config, order=order)
        after = regret()
        check_that(
            after < SHARE * before, f"20 epochs bring the regret from {before:.3g} to {after:.3g}; expected below half"
        )


def _make_path_problem() -> Problem:
    """Return a shortest path problem on a small grid."""
    return shortest_path((3, 3)).problem


def _make_knapsack_problem() -> Problem:
    """Return a knapsack problem without integers, which is a maximisation."""
    return Problem(G=[[3.0, 1.0, 2.0, 4.0, 2.0]], h=[6.0], lb=0.0, ub=1.0, sense="max")


_PROBLEMS: dict[str, Callable[[], Problem]] = {
    "paths": _make_path_problem,
    "a knapsack to maximise": _make_knapsack_problem,
}


def _draw_loss_costs(n: int, count: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random predicted and true costs (count, n), positive and independent.

    Predicted costs require a gradient.
    """
    rng = np.random.default_rng(seed)
    predicted, true = (torch.as_tensor(rng.uniform(0.5, 5.0, (count, n))) for _ in range(2))
    return predicted.requires_grad_(), true

"""The conformance suite of losses: what ``pear.fit``, checkpoints and tables of methods ask of every loss."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
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
from pear.testing.checks import Check, require, require_error, run_checks
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.sample_order import in_order, shuffled

SAME = 1e-9
"""The largest relative difference of two values of a loss that must be equal; warm starts may differ in rounding."""

SHARE = 0.5
"""Training must bring the regret of an untrained model below this share of it."""

_COUNT, _FEATURES = 40, 4

Body = Callable[["_Subject"], None]


class _Subject:
    """The loss that is checked, made anew for every problem."""

    def __init__(self, given: Any, options: dict[str, Any]) -> None:
        self.method: Method = as_method(given)
        self.options = options

    def make(self, problem: Problem | Model) -> nn.Module:
        return self.method.make(OwnProblem(problem), **self.options)


def loss_checks(loss: Any, **options: Any) -> list[Check]:
    """List the checks of a loss.

    Args:
        loss: its name, its class, a function from the problem to a loss, or a ``pear.losses.Method``.
        options: settings of the loss that have no default.

    Example:
        >>> [str(check) for check in loss_checks("spo+")][:2]
        ['paths: a number', 'paths: a gradient']
    """
    subject = _Subject(loss, options)
    name = f"the loss '{subject.method.name}'"
    return [Check(name, title, partial(body, subject)) for title, body in _all_checks()]


def check_loss(loss: Any, **options: Any) -> tuple[str, ...]:
    """Run all checks of a loss.

    Args:
        loss: its name, its class, a function from the problem to a loss, or a ``pear.losses.Method``.
        options: settings of the loss that have no default.

    Returns:
        The names of the checks, all of which passed.

    Raises:
        ConformanceError: some failed, with a line for each.

    Example:
        >>> import pear
        >>> len(check_loss(pear.losses.SPOPlusLoss)) > 10
        True
    """
    return run_checks(loss_checks(loss, **options))


def _all_checks() -> Iterator[tuple[str, Body]]:
    for name in _PROBLEMS:
        yield f"{name}: a number", partial(_gives_a_number, name=name)
        yield f"{name}: a gradient", partial(_gives_a_gradient, name=name)
        yield f"{name}: the truth is best", partial(_prefers_the_truth, name=name)
    yield "sample ids change nothing", _ids_change_nothing
    yield "each sample has its own right-hand side", _own_rows
    yield "a cost map", _takes_a_cost_map
    yield "single precision", _keeps_precision
    yield "costs of other shapes are refused", _refuses_other_shapes
    yield "a copy", _can_be_copied
    yield "a checkpoint", _can_be_resumed
    yield "training lowers the regret", _training_lowers_the_regret


def _paths() -> Problem:
    return shortest_path((3, 3)).problem


def _knapsack() -> Problem:
    return Problem(G=[[3.0, 1.0, 2.0, 4.0, 2.0]], h=[6.0], lb=0.0, ub=1.0, sense="max")


_PROBLEMS: dict[str, Callable[[], Problem]] = {"paths": _paths, "a knapsack to maximise": _knapsack}


def _costs(n: int, count: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw predicted and true costs (count, n), unlike each other and positive; the predicted ones need a gradient."""
    rng = np.random.default_rng(seed)
    predicted, true = (torch.as_tensor(rng.uniform(0.5, 5.0, (count, n))) for _ in range(2))
    return predicted.requires_grad_(), true


def _gives_a_number(subject: _Subject, name: str) -> None:
    problem = _PROBLEMS[name]()
    value = subject.make(problem)(*_costs(problem.n))
    got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    require(isinstance(value, Tensor) and value.shape == (), f"it returns {got}; expected a tensor with one number")
    require(bool(value.isfinite()), f"it returns {value.item()}")
    require(value.dtype == torch.float64, f"it returns {value.dtype} for costs in float64")


def _gives_a_gradient(subject: _Subject, name: str) -> None:
    problem = _PROBLEMS[name]()
    predicted, true = _costs(problem.n)
    subject.make(problem)(predicted, true).backward()
    _require_gradient(predicted)


def _require_gradient(predicted: Tensor) -> None:
    """Check that predicted costs or values have a finite gradient. It may be zero: the regret has flat pieces."""
    gradient = predicted.grad
    require(gradient is not None, "what is predicted gets no gradient")
    require(gradient is not None and bool(gradient.isfinite().all()), "its gradient is not finite")


def _prefers_the_truth(subject: _Subject, name: str) -> None:
    problem = _PROBLEMS[name]()
    predicted, true = _costs(problem.n, count=32)
    wrong, right = (subject.make(problem)(costs, true).item() for costs in (predicted, true))
    require(right < wrong, f"it is {right:g} for the true costs and {wrong:g} for wrong ones; it must be lower")


def _ids_change_nothing(subject: _Subject) -> None:
    problem = _paths()
    predicted, true = _costs(problem.n)
    with_ids, without = subject.make(problem), subject.make(problem)
    require(takes_keys(with_ids), "its forward has no argument keys; add keys=None, the ids of the samples")
    for visit in ("first", "second"):
        first, second = with_ids(predicted, true, keys=range(8)).item(), without(predicted, true).item()
        same = abs(first - second) <= SAME * (1 + abs(second))
        require(same, f"at the {visit} visit it is {first:.12g} with sample ids and {second:.12g} without")


def _own_rows(subject: _Subject) -> None:
    """Where samples have right-hand sides of their own, ids select them."""
    budgets = torch.tensor([[1.0], [2.0], [3.0], [1.5]], dtype=torch.float64)
    problem = Problem(A=torch.ones(1, 4, dtype=torch.float64), b=budgets, lb=0.0, ub=2.0)
    predicted, true = _costs(4, count=4)
    chosen = [3, 1]
    alone = Problem(A=torch.ones(1, 4, dtype=torch.float64), b=budgets[chosen], lb=0.0, ub=2.0)
    some = subject.make(problem)(predicted[chosen], true[chosen], keys=chosen).item()
    same = subject.make(alone)(predicted[chosen], true[chosen], keys=[0, 1]).item()
    require(
        abs(some - same) <= SAME * (1 + abs(same)),
        f"it is {some:.12g} for samples 3 and 1 of a problem with fields per sample, and {same:.12g} for a problem of "
        "these two; keys must select the rows",
    )


def _takes_a_cost_map(subject: _Subject) -> None:
    """Where few values make the costs, the gradient is that of the values, by the chain rule."""
    problem, M = _knapsack(), torch.as_tensor(np.random.default_rng(1).normal(size=(5, 2)))
    values, true = _costs(2)
    subject.make(Model(problem, cost_map=CostMap(M, torch.ones(5).double())))(values, true).backward()
    require(
        values.grad is not None and values.grad.shape == (8, 2), "the predicted values of a cost map get no gradient"
    )
    require(bool(values.grad is not None and values.grad.isfinite().all()), "the gradient of its values is not finite")


def _keeps_precision(subject: _Subject) -> None:
    problem = _paths()
    predicted, true = (costs.detach().float() for costs in _costs(problem.n))
    predicted.requires_grad_()
    value = subject.make(problem)(predicted, true)
    value.backward()
    require(value.dtype == torch.float32, f"it returns {value.dtype} for costs in float32")
    require(predicted.grad is not None and predicted.grad.dtype == torch.float32, "its gradient is not in float32")


def _refuses_other_shapes(subject: _Subject) -> None:
    problem = _paths()
    predicted, true = _costs(problem.n)
    loss = subject.make(problem)
    require_error(PearError, lambda: loss(predicted, true[:, :-1]), "true costs with a column less")


def _can_be_copied(subject: _Subject) -> None:
    """``tune``, races and estimators train copies."""
    problem = _paths()
    predicted, true = _costs(problem.n)
    loss = subject.make(problem)
    other = copy.deepcopy(loss)
    first, second = loss(predicted, true).item(), other(predicted, true).item()
    require(abs(first - second) <= SAME * (1 + abs(first)), f"it is {first:.12g}, and its copy {second:.12g}")


def _can_be_resumed(subject: _Subject) -> None:
    """The state that a checkpoint keeps is all that the next value depends on, besides its inputs."""
    problem = _paths()
    predicted, true = _costs(problem.n)
    loss, other = subject.make(problem), subject.make(problem)
    loss(predicted, true)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    first, second = loss(predicted, true).item(), other(predicted, true).item()
    require(
        abs(first - second) <= SAME * (1 + abs(first)),
        f"its second value is {first:.12g}, and {second:.12g} for a loss that was resumed from its state_dict; "
        "get_extra_state must hold what changes, such as random numbers",
    )


def _training_lowers_the_regret(subject: _Subject) -> None:
    problem, rng = _paths(), np.random.default_rng(0)
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
    order = shuffled if subject.method.shuffled else in_order
    config = FitConfig(batch_size=8, max_epochs=20, check_every=5, start="standardised", learning_rate=0.05)
    fit(
        model,
        subject.make(problem),
        train,
        held_out,
        lambda p, c: normalized_regret(problem, p, c),
        config,
        order=order,
    )
    after = regret()
    require(after < SHARE * before, f"20 epochs bring the regret from {before:.3g} to {after:.3g}; expected below half")

"""``DecisionLoss``: the base of losses that need decisions alone."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.eager import eager
from pear.losses.regret import check_pair
from pear.problem import CostMap, Model, Problem
from pear.problem.convert import as_batch
from pear.problem.keys import as_keys, rows_of
from pear.problem.model import shown, unwrap
from pear.solvers.warm_starts import WarmStarts, fingerprint

Result = TypeVar("Result")

Decide = Callable[..., Tensor]
"""(B, n) costs, in the problem's own sense → (B, n) best decisions. One with an argument ``keys`` gets the B sample ids
with it, or None: the way to a problem whose samples differ in more than their costs."""


class DecisionLoss(nn.Module):
    """A loss that uses the decisions of a problem and nothing else of it.

    Args:
        problem: the decision problem, with a linear objective. Where it has fields per sample, ``keys`` selects its
            rows. A ``Model`` maps predicted values to costs.
        decide: (B, n) costs → (B, n) best decisions, with ``keys`` where it takes them; left out, ``pear.solve`` on
            ``problem``.
        mse_weight: weight of ``½ ‖ĉ − c‖²``, mean over the samples, added to the loss.

    Attributes:
        seconds: spent since construction, "solve" in decisions and "gradient" on the loss around them.
    """

    def __init__(self, problem: Problem | Model, decide: Decide | None = None, mse_weight: float = 0.0) -> None:
        super().__init__()
        self.problem = problem
        if self.problem.is_curved:
            raise ProblemError(
                f"{type(self).__name__} is made for linear objectives, and the problem has a curvature or a smooth "
                "term; use PEARLoss"
            )
        check_number("mse_weight", mse_weight, least=0.0)
        self.mse_weight = float(mse_weight)
        self.seconds = {"solve": 0.0, "gradient": 0.0}
        self._decide = None if decide is None else KeyedFunction(decide)

    @eager
    def forward(self, predicted: Tensor, true: Any, keys: Tensor | Iterable[Hashable] | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            predicted: (B, n) predicted costs ĉ, or (B, k) values that the cost map takes.
            true: the true ones, in the same shape.
            keys: B sample ids. The best decision of a sample is found once and kept under its id.

        Returns:
            A scalar in the dtype of ``predicted``.
        """
        predicted, true = as_batch(predicted), as_batch(true)
        check_pair(predicted, true)
        true = true.detach().to(predicted)
        ids = as_keys(keys, len(predicted))
        if self._cost_map is not None:
            predicted, true = self._cost_map(predicted, ids), self._cost_map(true, ids)
        value = self.value(predicted, true, ids)
        if self.mse_weight:
            with self.timed("gradient"):
                value = value + self.mse_weight * 0.5 * ((predicted - true) ** 2).sum(1).mean()
        return value

    @property
    def problem(self) -> Problem:
        """The decision problem; assigning another one drops the decisions that are kept."""
        return self._problem

    @problem.setter
    def problem(self, problem: Problem | Model) -> None:
        self._problem, self._cost_map = unwrap(problem)
        self.starts = WarmStarts()

    @property
    def cost_map(self) -> CostMap | None:
        """From predicted values to costs; None where the costs themselves are predicted."""
        return self._cost_map

    def sample_state(self) -> dict[str, Any]:
        """The best decisions that are kept, as arrays, numbers and strings."""
        return self.starts.state()

    def load_sample_state(self, state: Mapping[str, Any]) -> None:
        """Restore what ``sample_state`` returned."""
        self.starts = WarmStarts.from_state(state)

    def extra_repr(self) -> str:
        """The problem and the settings, in one line."""
        settings = {name: v for name, v in vars(self).items() if isinstance(v, float) and not name.startswith("_")}
        return ", ".join([shown(self.problem, self._cost_map), *(f"{name}={v:g}" for name, v in settings.items())])

    def value(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """The method's own part of the loss: a scalar, differentiable by ``predicted``."""
        raise NotImplementedError

    def decide(self, cost: Tensor, ids: list[Hashable] | None = None) -> Tensor:
        """(B, n) best decisions for these costs, in their dtype."""
        cost = cost.detach()
        with self.timed("solve"):
            z = solve(rows_of(self.problem, ids), cost).x if self._decide is None else self._decide(cost, ids)
        if z.shape != cost.shape:
            raise ProblemError(
                f"decide must return one decision for each cost, of shape {tuple(cost.shape)}; got {tuple(z.shape)}"
            )
        return z.detach().to(cost)

    def best(self, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """(B, n) best decisions under the true costs; found once for samples that have an id."""
        if ids is None:
            return self.decide(true)
        with self.starts.lock:
            slots, mark = self.starts.slots(ids), fingerprint(true, 0.0)
            name, n = f"best, {true.dtype}, {true.device}", true.shape[1]
            kept = self.starts.table(name, lambda size: true.new_zeros(size, n))
            known: Tensor | None = kept.exact_rows(slots, mark)
            if known is None:
                known = self.decide(true, ids)
                kept.put(slots, known, mark)
        return known

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time spent inside to ``seconds``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - began


class KeyedFunction(Generic[Result]):
    """Calls a function with a tensor, and with its sample ids where the function has an argument ``keys``."""

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function, self._takes_keys = function, "keys" in inspect.signature(function).parameters

    def __call__(self, rows: Tensor, ids: list[Hashable] | None) -> Result:
        """The function's result for ``rows``."""
        return self._function(rows, keys=ids) if self._takes_keys else self._function(rows)


def check_number(name: str, value: float, least: float = -float("inf"), strict: bool = False) -> None:
    """Raise where the value is no finite number of at least ``least``, or above it where ``strict``."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and least <= value < float("inf")) or (strict and value == least):
        bound = "" if least == -float("inf") else f" {'above' if strict else 'of at least'} {least:g}"
        raise ProblemError(f"{name} must be a finite number{bound}; got {value!r}")

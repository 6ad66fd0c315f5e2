"""``DecisionLoss``: the base class of the baselines, which use decisions but no derivatives of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, TypedDict, get_args, get_type_hints

from torch import Tensor, nn

from pear.clock import Stopwatch
from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.losses.eager import eager
from pear.losses.sample_weights import read_weights, weighted_mean
from pear.problem import CostMap, Model, Problem
from pear.problem.model import describe_model, model_with_predicted_rows, split_cost_model
from pear.problem.oracle import make_oracle
from pear.problem.sample_keys import as_keys, select_by_keys, takes_keys
from pear.problem.tensor_conversion import is_tensor_finite, to_batch_tensor
from pear.setting_checks import check_number_setting, check_positive_setting
from pear.solvers.warm_starts import WarmStarts

Decide = Callable[..., Tensor]
"""A function from costs (B, n), in the problem's own sense, to best decisions (B, n).

A function with an argument ``keys`` also gets the B sample ids, or None. It needs them if samples differ in more than
their costs."""


class CostSettings(TypedDict, total=False):
    """The settings that all ``DecisionLoss`` classes have; ``DecisionLoss`` documents them.

    A subclass with settings of its own takes these as ``**shared`` and passes them on to ``DecisionLoss``.
    """

    mse_weight: float
    cost_unit: float | Literal["auto"]


class DecisionLoss(nn.Module):
    """A loss that is computed from the decisions of a problem with a linear objective.

    Args:
        problem: the decision problem, with a linear objective. If it has fields per sample, ``keys`` selects its
            rows. The cost map of a ``Model`` maps predicted values to costs.
        decide: maps costs (B, n), and ``keys`` if it has that argument, to best decisions (B, n); ``pear.solve`` on
            ``problem`` if omitted. The default metric of ``pear.fit`` uses the same function.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, which is added to the loss; ĉ and c are the
            predicted and the true costs.
        cost_unit: u, the unit in which the settings of the loss measure costs. "auto" is the typical deviation of the
            true costs (``typical_deviation``), so that training does not depend on their currency. "auto" chooses u
            once: in ``calibrate``, which ``pear.fit`` calls with the training set, or from the first batch. With 1.0
            the settings are in the costs' own unit, as in the published experiments.

    Attributes:
        cost_map: the map from predicted values to costs; None if the costs themselves are predicted.
        given: the problem for which the default metric of ``pear.fit`` computes the regret: ``problem`` as given, or an
            ``Oracle`` of ``decide`` if that was given. ``make_loss`` assigns the exact problem of the task instead, so
            that the metric is exact even if the loss trains on relaxed decisions.
        seconds: the time spent since construction: "solve" for decisions, "gradient" for the rest of the loss.
    """

    linear_alone: ClassVar[bool] = True
    """Whether the loss requires a linear objective."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Replace ``**shared`` by its settings in the signature of a subclass, so that ``help()`` shows them."""
        super().__init_subclass__(**kwargs)
        init: Any = vars(cls).get("__init__")
        *own, last = [None] if init is None else inspect.signature(init).parameters.values()
        if last is not None and last.kind is last.VAR_KEYWORD and last.name == "shared":
            (settings,) = get_args(get_type_hints(init)["shared"])
            base = inspect.signature(cls.__mro__[1]).parameters.values()
            shared = [one.replace(kind=one.KEYWORD_ONLY) for one in base if one.name in settings.__annotations__]
            init.__signature__ = inspect.Signature([*own, *shared])

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        self._decide = decide
        self._decide_takes_keys = decide is not None and takes_keys(decide)
        self.cost_unit: float | Literal["auto"] = "auto"
        if cost_unit != "auto":
            self.cost_unit = check_positive_setting("cost_unit", cost_unit)
        self.problem = problem
        if self.problem.is_curved and self.linear_alone:
            raise ProblemError(
                f"{type(self).__name__} is made for linear objectives, and the problem has a curvature or a smooth "
                "term; use PEARLoss"
            )
        self.mse_weight = check_number_setting("mse_weight", mse_weight, least=0.0)
        self.seconds = {"solve": 0.0, "gradient": 0.0}

    @eager
    def forward(
        self, predicted: Tensor, true: Any, keys: Tensor | Iterable[Hashable] | None = None, weight: Any = None
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            predicted: (B, n) predicted costs ĉ, or (B, k) predicted values, which the cost map maps to costs.
            true: the true costs or values, of the same shape.
            keys: B sample ids. The best decision of a sample is computed once and stored under its id.
            weight: (B,) how much each sample counts in the mean; all samples count equally if omitted. A sample of
                weight 0 is left out.

        Returns:
            A scalar in the dtype of ``predicted``.
        """
        predicted, true = to_batch_tensor(predicted), to_batch_tensor(true)
        check_cost_pair(predicted, true)
        true = true.detach().to(predicted)
        ids = as_keys(keys, len(predicted))
        weights = None if weight is None else read_weights(weight, len(predicted)).to(predicted.device)
        if self.cost_map is not None:
            predicted, true = self.cost_map(predicted, ids), self.cost_map(true, ids)
        if weights is not None and not bool((weights > 0).all()):
            ids = list(range(len(true))) if ids is None and self.problem.batch is not None else ids
            counted = (weights > 0).nonzero()[:, 0]
            ids = None if ids is None else [ids[i] for i in counted.tolist()]
            predicted, true, weights = predicted[counted], true[counted], weights[counted]
        unit = self.settle_unit(true)
        if weights is None:
            value = self.value(predicted, true, ids)
        else:
            value = weighted_mean(self.values(predicted, true, ids), weights)
        if self.mse_weight:
            with self.timed("gradient"):
                squares = ((predicted - true) ** 2).sum(1)
                value = value + self.mse_weight * 0.5 / unit * weighted_mean(squares, weights)
        return value

    @property
    def problem(self) -> Problem:
        """The decision problem. Assigning another problem drops stored decisions and a unit that "auto" has chosen."""
        return self._problem

    @problem.setter
    def problem(self, problem: Problem | Model) -> None:
        self._problem, self.cost_map = self.read_problem(problem)
        # The regret of a model with predicted right-hand sides includes its recourse, which a function does not know.
        own = None if model_with_predicted_rows(problem) is not None else self._decide
        self.given = problem if own is None else make_oracle(problem, own)
        self.starts = WarmStarts()
        self._unit = None if self.cost_unit == "auto" else self.cost_unit

    def read_problem(self, problem: Problem | Model) -> tuple[Problem, CostMap | None]:
        """Return the problem without its cost map, and the cost map, which is None for a plain ``Problem``.

        Raises:
            ProblemError: the loss does not support this model.
        """
        return split_cost_model(problem)

    @property
    def chosen_unit(self) -> float | None:
        """The unit of the costs in use: the given number, or the choice of "auto"; None before "auto" has chosen."""
        return self._unit

    def calibrate(self, costs: Any, keys: Tensor | Iterable[Hashable] | None = None) -> float:
        """Choose the unit of the costs if ``cost_unit`` is "auto" and no unit has been chosen; return the unit in use.

        Args:
            costs: (N, n) true costs, preferably of the training set; with a cost map (N, k) true values, k per sample.
            keys: N sample ids, which select rows of a cost map with known costs per sample; the first N rows if
                omitted.
        """
        values = to_batch_tensor(costs).detach()
        if self.cost_map is not None:
            keys = range(len(values)) if keys is None and self.cost_map.batch is not None else keys
            values = self.cost_map(values, as_keys(keys, len(values)))
        return self.settle_unit(values)

    def settle_unit(self, costs: Tensor) -> float:
        """Return the unit of the costs; for ``cost_unit="auto"`` the first call chooses it from true costs (B, n)."""
        if self._unit is None:
            self._unit = self.typical_deviation(costs)
        return self._unit

    @staticmethod
    def typical_deviation(costs: Tensor) -> float:
        """Compute the mean absolute difference between costs (N, n) and the median of their column.

        Rows with numbers that are not finite are left out. If no column varies, as in a single sample, the result is
        the mean absolute cost, or 1 if all costs are zero.

        Example:
            >>> import torch
            >>> DecisionLoss.typical_deviation(torch.tensor([[1.0, 10.0], [4.0, 10.0], [7.0, 10.0]]))
            1.0
        """
        rows = costs.detach().double()
        rows = rows[rows.isfinite().all(1)]
        if not rows.numel():
            return 1.0
        return float((rows - rows.median(0).values).abs().mean()) or float(rows.abs().mean()) or 1.0

    def get_extra_state(self) -> dict[str, Any]:
        """Return the unit of the costs in use, for ``state_dict``."""
        return {"cost_unit": self._unit}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the unit of the costs if ``cost_unit`` is "auto"."""
        if self.cost_unit == "auto":
            self._unit = state["cost_unit"]

    def sample_state(self) -> dict[str, Any]:
        """Return the stored best decisions, as arrays, numbers and strings."""
        return self.starts.state()

    def load_sample_state(self, state: Mapping[str, Any]) -> None:
        """Restore the stored best decisions from a result of ``sample_state``."""
        self.starts = WarmStarts.from_state(state)

    def extra_repr(self) -> str:
        """Return the problem and the settings in one line."""
        own = {name: v for name, v in vars(self).items() if not name.startswith("_") and name != "cost_unit"}
        settings = [f"{name}={value:g}" for name, value in own.items() if isinstance(value, float)]
        chosen = "" if self._unit is None else f" ({self._unit:g})"
        unit = f"'auto'{chosen}" if self.cost_unit == "auto" else f"{self.cost_unit:g}"
        return ", ".join([describe_model(self.problem, self.cost_map), *settings, f"cost_unit={unit}"])

    def value(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss without the squared error: a scalar, differentiable with respect to ``predicted``.

        The value is the mean of ``values``. A loss that is not a mean over samples overrides this method instead of
        ``values``, and then supports no sample weights.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs.
            ids: B sample ids, or None.
        """
        return self.values(predicted, true, ids).mean()

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample without the squared error, (B,); the arguments are those of ``value``.

        Raises:
            ProblemError: the batch has weights, and the subclass defines only ``value``.
        """
        raise ProblemError(
            f"{type(self).__name__} takes no weights, because its method value returns a mean; write a method values "
            "with the same arguments that returns a loss for each sample, (B,)"
        )

    def decide(self, cost: Tensor, ids: list[Hashable] | None = None) -> Tensor:
        """Compute the best decisions (B, n) for costs (B, n), in their dtype."""
        cost = cost.detach()
        with self.timed("solve"):
            if self._decide is None:
                z = solve(select_by_keys(self.problem, ids), cost).x
            else:
                z = self._decide(cost, keys=ids) if self._decide_takes_keys else self._decide(cost)
        if z.shape != cost.shape:
            raise ProblemError(
                f"decide must return one decision for each cost, of shape {tuple(cost.shape)}; got {tuple(z.shape)}"
            )
        if self._decide is not None and not is_tensor_finite(z):
            sample = int((~z.isfinite().all(1)).nonzero()[0, 0])
            raise ProblemError(f"decide must return finite numbers; those of sample {sample} are not")
        return z.detach().to(cost)

    def decide_each(self, costs: Tensor, ids: list[Hashable] | None = None) -> Tensor:
        """Compute the best decisions (m, B, n) for m cost vectors per sample, (m, B, n), in one call of ``decide``."""
        count, batch = costs.shape[:2]
        if ids is None and self.problem.batch is not None:
            ids = list(range(batch))
        return self.decide(costs.flatten(0, 1), None if ids is None else ids * count).view_as(costs)

    def best(self, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Return the best decisions (B, n) under the true costs; the decisions of samples with ids are stored."""
        if ids is None:
            return self.decide(true)
        with self.starts.lock:
            slots, mark = self.starts.slots(ids), true.double()
            name, n = f"best, {true.dtype}, {true.device}", true.shape[1]
            kept = self.starts.table(name, lambda size: true.new_zeros(size, n))
            known: Tensor | None = kept.exact_rows(slots, mark)
            if known is None:
                known = self.decide(true, ids)
                kept.put(slots, known, mark)
        return known

    def regret_of(self, z: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute ``|cᵀz − cᵀz*(c)|`` (B,) for decisions z (B, n) and true costs c (B, n).

        The result is differentiable with respect to z. z*(c) are the best decisions under the true costs.
        """
        best = self.best(true, ids)
        with self.timed("gradient"):
            return ((true * z).sum(1) - (true * best).sum(1)).abs()

    def timed(self, what: str) -> AbstractContextManager[None]:
        """Return a context that adds the time spent inside to ``seconds[what]``."""
        return Stopwatch(self.seconds, what)

"""``DecisionModule``: the base class of ``PEARLoss`` and ``DecisionLayer``, with a problem, solver and smoothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from pear.decisions.choose_smoothing import choose_smoothing
from pear.decisions.decider import Decider
from pear.decisions.decision_device import (
    choose_device,
    count_samples_for_device,
    find_device_argument,
    move_arguments_to_device,
    move_problem_to_device,
    move_result_to_device,
)
from pear.decisions.failures import OnFailure, check_on_failure
from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.recourse_smoothing import choose_recourse_smoothing
from pear.decisions.smoothing import Smoothing
from pear.problem import Model, Problem
from pear.problem.model import describe_model, model_with_predicted_rows, problem_of_model
from pear.problem.oracle import program_of_oracle
from pear.problem.sample_keys import as_keys
from pear.problem.tensor_conversion import to_batch_tensor
from pear.setting_checks import check_smoothing_setting
from pear.solvers.backend_registry import check_solver_name

logger = logging.getLogger("pear")

Method = TypeVar("Method", bound=Callable[..., Any])


def on_module_device(method: Method) -> Method:
    """Decorate a method of a ``DecisionModule`` so that its costs may be on another device than the problem.

    All tensors that the method receives are copied, differentiably, to the module's ``decision_device``. All tensors
    that it returns are copied back to the device of the costs.
    """

    @wraps(method)
    def call(self: DecisionModule, *args: Any, **kwargs: Any) -> Any:
        costs = find_device_argument(args, kwargs)
        if costs is None or (device := self.device_for(costs)) == costs.device:
            return method(self, *args, **kwargs)
        args, kwargs = move_arguments_to_device(args, kwargs, device)
        return move_result_to_device(method(self, *args, **kwargs), costs.device)

    return cast(Method, call)


class DecisionModule(nn.Module):
    """A torch module that solves a decision problem.

    The smoothing λ is the curvature that is added to the objective. ``smoothing="auto"`` chooses λ once, in
    ``calibrate`` or from the first batch. The chosen λ is part of ``state_dict``, so that a resumed run uses the same
    λ.

    Args:
        problem: the decision problem; an integer problem is relaxed, and an ``Oracle`` must have a relaxation. A
            ``Model`` is given predicted values instead of costs.
        smoothing: λ ≥ 0, or "auto".
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error for failed samples. "mask" warns; a loss then leaves them out, and a layer
            returns decisions of zero.

    Attributes:
        given: the problem as the user gave it, with its integers or as an oracle.
        cost_map: the map from predicted values to costs; None if the costs themselves are predicted.
        recourse_model: the model if it predicts right-hand sides, otherwise None.
        decider: the ``Decider``, which solves the problem and stores warm starts. If right-hand sides are predicted,
            other deciders solve it under the true values.
    """

    def __init__(
        self, problem: Problem | Model, smoothing: float | Literal["auto"], solver: str, on_failure: OnFailure
    ) -> None:
        super().__init__()
        check_on_failure(on_failure)
        check_solver_name(solver)
        self.warned_of_flat = False  # see pear.train.flat_regret
        self._chosen: Smoothing | None = None
        self._recourse: RecourseDecider | None = None
        self._decision_device: torch.device | None = None
        self.on_failure, self._solver = on_failure, solver
        self._set_problem(problem)
        self.smoothing = smoothing

    @property
    def problem(self) -> Problem:
        """The decision problem, relaxed. Assigning another problem drops warm starts and a λ that "auto" has chosen."""
        return self._problem

    @problem.setter
    def problem(self, problem: Problem | Model) -> None:
        self._set_problem(problem)
        self._decision_device = None
        self.smoothing = self._smoothing  # drops the λ that "auto" has chosen for the old problem

    def _set_problem(self, problem: Problem | Model) -> None:
        self.given = problem
        trained = program_of_oracle(problem, type(self).__name__)
        self.recourse_model = model_with_predicted_rows(trained)
        self._problem = problem_of_model(trained).relaxed()
        self.cost_map = trained.cost_map if isinstance(trained, Model) else None

    @property
    def decision_device(self) -> torch.device | None:
        """The device that computes decisions; None until a call has costs on another device than the problem.

        The first such call chooses the device and logs the reason. It chooses the CPU if, for a batch of this size, one
        core is faster than the device of the costs. Otherwise it chooses the device of the costs, to which the problem
        is then copied. A problem on a GPU stays there. Assign "cpu" or "cuda" to choose the device yourself. Assign
        None, or another problem, to let the next call choose again.
        """
        return self._decision_device

    @decision_device.setter
    def decision_device(self, device: torch.device | str | None) -> None:
        self._decision_device = None if device is None else torch.empty(0, device=device).device

    def device_for(self, costs: Tensor) -> torch.device:
        """Return the device that computes decisions for costs (B, n), and move the problem there if necessary."""
        own = self._problem.device
        if self._decision_device is None:
            if own == costs.device:
                return own
            fused, decided = self._problem.is_curved or self._smoothing != 0, self.recourse_model or self._problem
            self._decision_device, note = choose_device(decided, costs.device, count_samples_for_device(costs), fused)
            logger.info(f"{note}; assign decision_device to change it")
        if own != self._decision_device:
            self._move_problem(self._decision_device)
        return self._decision_device

    def _move_problem(self, device: torch.device) -> None:
        """Replace the problem by a copy on a device; λ, units, warm starts and ``given`` stay the same."""
        starts, chosen, given = self.sample_state(), self._chosen, self.given
        self._set_problem(move_problem_to_device(given, device))
        self.given = given  # the validation metric chooses its own device
        if chosen is not None and chosen.units is not None:
            chosen = replace(chosen, units=chosen.units.to(device))
        self._use_smoothing(chosen)
        self.load_sample_state(starts)

    def costs(self, values: Tensor, keys: list[Hashable] | None = None) -> Tensor:
        """Compute costs (B, n) from predicted or true values (B, k). Without a cost map, the values are the costs."""
        return values if self.cost_map is None else self.cost_map(values, keys)

    @property
    def solver(self) -> str:
        """The name of the solver that the user gave."""
        return self._solver

    @property
    def smoothing(self) -> float | Literal["auto"]:
        """The smoothing λ that the user gave: a number or "auto"."""
        return self._smoothing

    @smoothing.setter
    def smoothing(self, smoothing: float | Literal["auto"]) -> None:
        check_smoothing_setting(smoothing)
        self._smoothing: float | Literal["auto"] = smoothing if smoothing == "auto" else float(smoothing)
        self._use_smoothing(None if smoothing == "auto" else Smoothing.given(smoothing))

    @property
    def chosen_smoothing(self) -> float | None:
        """The smoothing λ in use: the given number, or the choice of "auto"; None before "auto" has chosen.

        If ``units`` is not None, this is the λ of variables measured in these units. For a problem with a Q, "auto"
        chooses 0 and raises the curvature of Q to ``least_curvature`` instead.
        """
        return None if self._chosen is None else self._chosen.value

    @property
    def units(self) -> Tensor | None:
        """The unit in which "auto" measures each variable, (n,); None if all units are 1."""
        return None if self._chosen is None else self._chosen.units

    @property
    def least_curvature(self) -> float:
        """The curvature, in ``units``, to which "auto" raises a Q in every direction; 0 if it raises none."""
        return 0.0 if self._chosen is None else self._chosen.floor

    @property
    def smoothing_note(self) -> str:
        """One sentence that says how λ was chosen."""
        return "smoothing='auto' has not settled yet" if self._chosen is None else self._chosen.note

    def calibrate(self, costs: Any, keys: Tensor | Iterable[Hashable] | None = None, times: float = 1.0) -> float:
        """Choose λ for ``smoothing="auto"`` from costs and the decisions under them; return λ.

        Variable j gets the curvature ``λ_j = ρ s / u_j²``, with ρ = 0.5. u_j is the range of the variable. s is how
        much more a sample typically pays for the decision of another sample than for its own, per unit of squared
        distance; distances are measured in the u_j. The choice does not depend on the units of costs and variables. If
        the problem has a Q, "auto" adds only the curvature that Q lacks, and the returned λ is 0. A λ that was chosen
        before does not change.

        Args:
            costs: (N, n) true costs, preferably of the training set; with a cost map (N, k) true values.
            keys: N sample ids, which select rows of a problem with fields per sample; the first N rows if omitted.
            times: a factor that multiplies the chosen λ.
        """
        costs = to_batch_tensor(costs).to(self.problem.device)
        own = self.problem.batch if self.cost_map is None else self.cost_map.batch or self.problem.batch
        if keys is None and own is not None:
            keys = range(len(costs))
        ids = as_keys(keys, len(costs))
        unsettled = self._chosen is None
        chosen = self.settle_smoothing(costs if self.recourse_model is not None else self.costs(costs, ids), ids)
        if unsettled and times != 1:
            chosen = chosen.times(times)
            self._use_smoothing(chosen)
        return chosen.value

    def recourse_decider(self, values: Tensor, keys: list[Hashable] | None) -> RecourseDecider:
        """Return the decider of a model that predicts right-hand sides; the first call chooses λ for "auto".

        Args:
            values: (B, k) true values, from which "auto" chooses λ.
            keys: sample ids, or None.
        """
        self.settle_smoothing(values, keys)
        assert self._recourse is not None
        return self._recourse

    def settle_smoothing(self, costs: Tensor, keys: list[Hashable] | None, **fields: Any) -> Smoothing:
        """Return the smoothing in use; the first call chooses λ for "auto".

        Args:
            costs: (B, n) true costs, from which "auto" chooses λ; (B, k) true values if right-hand sides are predicted.
            keys: sample ids, or None.
            **fields: fields that replace those of the problem in this call.
        """
        chosen = self._chosen
        if chosen is None:
            costs = costs.detach()
            if self.recourse_model is None:
                own = self.decider.problem_of(keys)
                chosen = choose_smoothing(own, costs, self._smoothing, self._problem, **fields)
            else:
                chosen = choose_recourse_smoothing(self.recourse_model, costs, self._smoothing, keys)
            self._use_smoothing(chosen)
        return chosen

    def times_units(self, values: Tensor) -> Tensor:
        """Multiply values (..., n) by ``units``.

        This converts decisions in ``units`` to the user's variables, or the user's costs to costs of variables in
        ``units``.
        """
        return values if self._chosen is None else self._chosen.times_units(values)

    def curvature_of_call(self, Q: Any, keys: list[Hashable] | None) -> Any:
        """Convert the curvature of a call to ``units``, and add to it what "auto" adds to the problem's curvature.

        Args:
            Q: (n, n) or (B, n, n) curvature. None is returned unchanged.
            keys: sample ids, or None.
        """
        if Q is None or self._chosen is None:
            return Q
        chosen, rows = self._chosen, self.decider.row_numbers(keys)
        if chosen.floor == 0:
            return chosen.curvature(Q)
        own = self._problem if rows is None else self._problem[rows]
        added = self.decider.problem_of(keys).Q - chosen.curvature(own.Q)
        return torch.as_tensor(chosen.curvature(Q)) + added

    def _use_smoothing(self, chosen: Smoothing | None) -> None:
        """Store a smoothing, and make a new decider if the smoothing changes the problem."""
        self._chosen = chosen
        if self.recourse_model is not None:
            model, solver = self.recourse_model, self._solver
            self._recourse = None if chosen is None else RecourseDecider(model, solver, chosen)
            self.decider = Decider(self._problem, solver) if self._recourse is None else self._recourse.forecasts
            return
        problem = self._problem if chosen is None else chosen.problem(self._problem)
        decider = self.__dict__.get("decider")
        if decider is None or decider.problem is not problem:
            self.decider = Decider(problem, self._solver)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the smoothing in use, for ``state_dict``."""
        chosen = self._chosen
        return {"smoothing": None} if chosen is None else {"smoothing": chosen.value, **chosen.state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore λ from a saved state if ``smoothing`` is "auto"."""
        if self._smoothing == "auto":
            self._use_smoothing(Smoothing.from_state(state))

    def sample_state(self) -> dict[str, Any]:
        """Return the warm starts of all samples, as arrays, numbers and strings; they are not in ``state_dict``."""
        return {name: decider.starts.state() for name, decider in self._deciders().items()}

    def load_sample_state(self, state: Mapping[str, Any]) -> None:
        """Restore warm starts from a result of ``sample_state``. ``load_state_dict`` must be called before.

        Raises:
            DataError, KeyError, TypeError, ValueError: ``state`` does not come from ``sample_state``.
        """
        deciders = self._deciders()
        if set(state) != set(deciders):
            raise KeyError(f"warm starts of {sorted(state)}")
        for name, decider in deciders.items():
            decider.restore(state[name])

    def _deciders(self) -> dict[str, Decider]:
        """Return the deciders whose warm starts are saved, by name."""
        return {"decider": self.decider} if self._recourse is None else self._recourse.deciders

    def extra_repr(self) -> str:
        """Return a line with the problem and a line with the settings."""
        auto = f" ({self._chosen.value:g})" if self._smoothing == "auto" and self._chosen is not None else ""
        smoothing = "'auto'" if self._smoothing == "auto" else f"{self._smoothing:g}"
        given = f"smoothing={smoothing}{auto}, solver={self.solver!r}, on_failure={self.on_failure!r}"
        model = self.recourse_model
        rows = "" if model is None else f", {model.constraint_map}, {model.recourse}"
        return f"{describe_model(self.problem, self.cost_map)}{rows}\n{given}"

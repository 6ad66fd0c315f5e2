"""``DecisionModule``: the problem, solver and smoothing that ``PEARLoss`` and ``DecisionLayer`` share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from pear.decisions.decider import Decider
from pear.decisions.recourse_decider import RecourseDecider, choose_recourse_smoothing
from pear.decisions.smoothing import Smoothing
from pear.decisions.solve import OnFailure, check_on_failure, check_smoothing, check_solver, choose_smoothing
from pear.problem import CostMap, Model, Problem
from pear.problem.convert import as_batch
from pear.problem.keys import as_keys
from pear.problem.model import plain_of, recourse_model, shown


class DecisionModule(nn.Module):
    """A module around a decision problem.

    ``smoothing="auto"`` chooses λ once, in ``calibrate`` or by the first batch. The chosen λ is part of ``state_dict``,
    so that a resumed run goes on with it.

    Args:
        problem: the decision problem; an integer problem is relaxed. A ``Model`` brings its cost map with it: then
            predicted values take the place of costs.
        smoothing: λ ≥ 0, or "auto".
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" or "mask".
    """

    def __init__(
        self, problem: Problem | Model, smoothing: float | Literal["auto"], solver: str, on_failure: OnFailure
    ) -> None:
        super().__init__()
        check_on_failure(on_failure)
        check_solver(solver)
        self.warned_of_flat = False  # see pear.train.flat_regret
        self._chosen: Smoothing | None = None
        self._recourse: RecourseDecider | None = None
        self.on_failure, self._solver = on_failure, solver
        self._set_problem(problem)
        self.smoothing = smoothing

    @property
    def problem(self) -> Problem:
        """The decision problem, relaxed; assigning another one drops all warm starts."""
        return self._problem

    @problem.setter
    def problem(self, problem: Problem | Model) -> None:
        self._set_problem(problem)
        self.smoothing = self._smoothing  # what "auto" settled on was for the other problem

    def _set_problem(self, problem: Problem | Model) -> None:
        self.given = problem  # with its integers: a metric is computed on it
        self.recourse_model = recourse_model(problem)
        self._problem = plain_of(problem).relaxed()
        self._cost_map = problem.cost_map if isinstance(problem, Model) else None

    @property
    def cost_map(self) -> CostMap | None:
        """From predicted values to costs; None where the costs themselves are predicted."""
        return self._cost_map

    def costs(self, values: Tensor, keys: list[Hashable] | None = None) -> Tensor:
        """(B, n) costs of predicted or true values (B, k): themselves, where there is no cost map."""
        return values if self._cost_map is None else self._cost_map(values, keys)

    @property
    def solver(self) -> str:
        """The solver's name, as it was given."""
        return self._solver

    @property
    def smoothing(self) -> float | Literal["auto"]:
        """λ as it was given."""
        return self._smoothing

    @smoothing.setter
    def smoothing(self, smoothing: float | Literal["auto"]) -> None:
        check_smoothing(smoothing)
        self._smoothing: float | Literal["auto"] = smoothing if smoothing == "auto" else float(smoothing)
        self._use_smoothing(None if smoothing == "auto" else Smoothing.given(smoothing))

    @property
    def chosen_smoothing(self) -> float | None:
        """λ in use: as it was given, or what "auto" has settled on; None before it has.

        Where ``units`` are in use, it is the λ of variables measured in them.
        """
        return None if self._chosen is None else self._chosen.value

    @property
    def units(self) -> Tensor | None:
        """(n,) the unit in which "auto" measures each variable, or None where all units are 1."""
        return None if self._chosen is None else self._chosen.units

    @property
    def smoothing_note(self) -> str:
        """One sentence that says where λ comes from."""
        return "smoothing='auto' has not settled yet" if self._chosen is None else self._chosen.note

    def calibrate(self, costs: Any, keys: Tensor | Iterable[Hashable] | None = None, times: float = 1.0) -> float:
        """Choose λ for ``smoothing="auto"`` by these costs and the decisions under them; returns λ.

        λ_j = ρ s / u_j², where u_j is the range of variable j and s the typical deviation of c_j u_j, so that no unit
        matters. A λ that has been chosen already stays.

        Args:
            costs: (N, n), preferably of the training set; with a cost map (N, k) values.
            keys: N sample ids, which are rows of a problem with fields per sample; its first N where left out.
            times: a factor of the chosen λ.
        """
        costs = as_batch(costs)
        own = self.problem.batch if self._cost_map is None else self._cost_map.batch or self.problem.batch
        if keys is None and own is not None:
            keys = range(len(costs))
        ids = as_keys(keys, len(costs))
        unsettled = self._chosen is None
        if self.recourse_model is None:
            chosen = self.settle_smoothing(self.costs(costs, ids), ids)
        else:
            self.recourse_decider(costs, ids)
            assert self._chosen is not None
            chosen = self._chosen
        if unsettled and times != 1:
            chosen = chosen.times(times)
            self._use_smoothing(chosen)
        return chosen.value

    def recourse_decider(self, values: Tensor, keys: list[Hashable] | None) -> RecourseDecider:
        """The decider of a model that predicts right-hand sides; "auto" chooses λ by the first values (B, k) that come.

        Args:
            values: (B, k).
            keys: of the samples, or None.
        """
        assert self.recourse_model is not None
        if self._recourse is None:
            self._use_smoothing(choose_recourse_smoothing(self.recourse_model, values.detach(), self._smoothing, keys))
        assert self._recourse is not None
        return self._recourse

    def settle_smoothing(self, costs: Tensor, keys: list[Hashable] | None, **fields: Any) -> Smoothing:
        """The smoothing in use; "auto" chooses it by the first costs (B, n) that come.

        Args:
            costs: (B, n).
            keys: of the samples, or None.
            **fields: what replaces the problem's fields in this call.
        """
        if self._chosen is None:
            self._use_smoothing(
                choose_smoothing(self.decider.problem_of(keys), costs.detach(), self._smoothing, **fields)
            )
            assert self._chosen is not None
        return self._chosen

    def times_units(self, values: Tensor) -> Tensor:
        """Convert decisions (..., n) of the decider's problem to the user's, or costs (..., n) the other way round."""
        return values if self._chosen is None else self._chosen.times_units(values)

    def _use_smoothing(self, chosen: Smoothing | None) -> None:
        """Use this smoothing; new units make another problem for the solver."""
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
        """The λ that "auto" has chosen, for ``state_dict``."""
        chosen = self._chosen
        return {"smoothing": None} if chosen is None else {"smoothing": chosen.value, **chosen.state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on with the λ of a saved state, where this one is "auto" too."""
        if self._smoothing == "auto":
            value = state["smoothing"]
            self._use_smoothing(None if value is None else Smoothing(value, state.get("units"), state.get("note", "")))

    def sample_state(self) -> dict[str, Any]:
        """What is kept of the samples between calls, as arrays, numbers and strings; not part of ``state_dict``."""
        return {name: decider.starts.state() for name, decider in self._deciders().items()}

    def load_sample_state(self, state: Mapping[str, Any]) -> None:
        """Restore what ``sample_state`` returned, after ``state_dict`` is restored.

        Raises:
            DataError, KeyError, TypeError, ValueError: it is something else.
        """
        deciders = self._deciders()
        if set(state) != set(deciders):
            raise KeyError(f"warm starts of {sorted(state)}")
        for name, decider in deciders.items():
            decider.restore(state[name])

    def _deciders(self) -> dict[str, Decider]:
        return {"decider": self.decider} if self._recourse is None else self._recourse.deciders()

    def extra_repr(self) -> str:
        """The problem and the settings, a line each."""
        auto = f" ({self._chosen.value:g})" if self._smoothing == "auto" and self._chosen is not None else ""
        smoothing = "'auto'" if self._smoothing == "auto" else f"{self._smoothing:g}"
        given = f"smoothing={smoothing}{auto}, solver={self.solver!r}, on_failure={self.on_failure!r}"
        model = self.recourse_model
        rows = "" if model is None else f", {model.constraint_map}, {model.recourse}"
        return f"{shown(self.problem, self._cost_map)}{rows}\n{given}"

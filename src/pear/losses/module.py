"""What ``PEARLoss`` and ``DecisionLayer`` share: the problem, its solver, and a smoothing that is part of the state."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from pear.decisions.decider import Decider
from pear.decisions.solve import OnFailure, check_on_failure, check_smoothing, check_solver, choose_smoothing
from pear.problem import Problem
from pear.problem.convert import as_batch


class DecisionModule(nn.Module):
    """A module around a decision problem.

    ``smoothing="auto"`` is settled once, by ``calibrate`` or by the first batch. What it settles on is part of
    ``state_dict``, so that a run that is resumed goes on with it.

    Args:
        problem: what is decided; an integer problem is relaxed.
        smoothing: λ ≥ 0, or "auto".
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" or "mask".
    """

    def __init__(
        self, problem: Problem, smoothing: float | Literal["auto"], solver: str, on_failure: OnFailure
    ) -> None:
        super().__init__()
        check_on_failure(on_failure)
        check_solver(solver)
        self.on_failure = on_failure
        self.decider = Decider(problem.relaxed(), solver)
        self.smoothing = smoothing

    @property
    def problem(self) -> Problem:
        """What is decided; another one may be assigned, which drops all warm starts."""
        return self.decider.problem

    @problem.setter
    def problem(self, problem: Problem) -> None:
        self.decider = Decider(problem.relaxed(), self.solver)
        self.smoothing = self._smoothing  # what "auto" settled on was for the other problem

    @property
    def solver(self) -> str:
        """The solver's name, as it was given."""
        return self.decider.solver

    @property
    def smoothing(self) -> float | Literal["auto"]:
        """λ as it was given."""
        return self._smoothing

    @smoothing.setter
    def smoothing(self, smoothing: float | Literal["auto"]) -> None:
        check_smoothing(smoothing)
        self._smoothing: float | Literal["auto"] = smoothing if smoothing == "auto" else float(smoothing)
        self._chosen: float | None = None if smoothing == "auto" else float(smoothing)

    @property
    def chosen_smoothing(self) -> float | None:
        """λ in use: as it was given, or what "auto" has settled on; None before it has."""
        return self._chosen

    def calibrate(self, costs: Any) -> float:
        """Settle ``smoothing="auto"`` by these costs (N, n), the training set's for choice; returns λ.

        A λ that is settled already stays.
        """
        return self._settled(as_batch(costs))

    def _settled(self, costs: Tensor) -> float:
        if self._chosen is None:
            self._chosen = choose_smoothing(self.problem, costs, self._smoothing)
        return self._chosen

    def get_extra_state(self) -> dict[str, float | None]:
        """What "auto" has settled on, for ``state_dict``."""
        return {"smoothing": self._chosen}

    def set_extra_state(self, state: dict[str, float | None]) -> None:
        """Go on with the λ of a saved state, where this one is "auto" too."""
        if self._smoothing == "auto":
            self._chosen = state["smoothing"]

    def extra_repr(self) -> str:
        """The settings, in one line."""
        auto = f" ({self._chosen:g})" if self._smoothing == "auto" and self._chosen is not None else ""
        smoothing = "'auto'" if self._smoothing == "auto" else f"{self._smoothing:g}"
        return f"{self.problem}, smoothing={smoothing}{auto}, solver={self.solver!r}, on_failure={self.on_failure!r}"

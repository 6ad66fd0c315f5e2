"""``Smoothing``: the curvature that is added to the objective of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pear.decisions.missing_curvature import missing_curvature
from pear.problem import Problem
from pear.problem.derived_problems import minimised_problem_curvature, problem_with_curvature
from pear.problem.matrix import Matrix
from pear.problem.problem_units import fields_in_units, problem_in_units


@dataclass(frozen=True)
class Smoothing:
    """A smoothing λ that the user has given or that "auto" has chosen.

    Attributes:
        value: λ if it is added in every direction, for variables measured in ``units``; otherwise 0.
        units: (n,) the unit of each variable, or None if all units are 1. In the user's variables, ``value /
            units[j]²`` is added to the curvature of variable j.
        note: one sentence that says how λ was chosen.
        floor: λ if it is the least curvature of a problem with a Q, for variables measured in ``units``; otherwise 0.
            Along each direction in which Q has less curvature than ``floor``, the difference is added.
    """

    value: float
    units: Tensor | None = None
    note: str = ""
    floor: float = 0.0

    @classmethod
    def given(cls, value: float) -> Smoothing:
        """Make a smoothing from a λ that the user gave."""
        return cls(float(value), note=f"smoothing is {float(value):g}, as it was given")

    def times(self, factor: float) -> Smoothing:
        """Return this smoothing with ``value`` and ``floor`` multiplied by a factor."""
        if factor == 1:
            return self
        note = f"{self.note}; {factor:g} times it"
        return replace(self, value=factor * self.value, floor=factor * self.floor, note=note)

    def state(self) -> dict[str, Any]:
        """Return ``units``, ``note`` and ``floor`` by name, which are saved together with ``value``."""
        return {"units": self.units, "note": self.note, "floor": self.floor}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Smoothing | None:
        """Make the smoothing of a saved state, in which "smoothing" is ``value``; return None if it is None."""
        value = state["smoothing"]
        return None if value is None else cls(value, state.get("units"), state.get("note", ""), state.get("floor", 0.0))

    def problem(self, problem: Problem) -> Problem:
        """Return a problem with its variables in ``units``, and with the curvature of its Q raised to ``floor``.

        ``value`` is not added; it is an argument of the solve.
        """
        scaled = self._in_units(problem)
        missing = self._missing(scaled)
        return scaled if missing is None else problem_with_curvature(scaled, missing)

    def added_curvature(self, problem: Problem) -> Matrix | None:
        """Return the curvature that raises Q to ``floor`` in every direction; None if nothing must be added.

        The result is for variables in ``units`` and has shape (n, n), or (B, n, n) for a Q per sample. It is the
        curvature of the minimised objective, and therefore positive semidefinite also for maximisation.
        """
        return self._missing(self._in_units(problem))

    def curvature_for_user(self, problem: Problem) -> Matrix | None:
        """Return all curvature that this smoothing adds to a problem, in the user's variables; None if it adds none.

        From ``value``, the result is the diagonal (n,) of a matrix. From ``floor``, it is a matrix (n, n) or (B, n, n).
        """
        units = torch.ones(problem.n, dtype=torch.float64) if self.units is None else self.units.double()
        if self.floor > 0:
            missing = self.added_curvature(problem.relaxed())
            return None if missing is None else fields_in_units({"Q": missing}, 1 / units)["Q"]
        return (self.value / units.square()).to(problem.device) if self.value > 0 else None

    def _in_units(self, problem: Problem) -> Problem:
        """Return a problem with its variables in ``units``."""
        return problem if self.units is None else problem_in_units(problem, self.units.to(problem.device))

    def _missing(self, scaled: Problem) -> Matrix | None:
        """Return the curvature that raises the Q of a problem in ``units`` to ``floor``; None if none must be added."""
        if self.floor == 0 or scaled.Q is None:
            return None
        return missing_curvature(minimised_problem_curvature(scaled), self.floor)

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Convert fields of a problem, given by name, from the user's variables to variables in ``units``."""
        return dict(fields) if self.units is None else fields_in_units(fields, self.units)

    def curvature(self, Q: Any) -> Any:
        """Convert a curvature Q from the user's variables to variables in ``units``; None stays None."""
        return None if Q is None else self.fields({"Q": Q})["Q"]

    def times_units(self, values: Tensor) -> Tensor:
        """Multiply values (B, n) by ``units``.

        This converts the user's costs to costs of variables in ``units``, or decisions in ``units`` to the user's
        variables.
        """
        return values if self.units is None else values * self.units.to(values)

    def per_unit(self, values: Tensor) -> Tensor:
        """Divide values (B, n) by ``units``.

        This converts the multipliers of bounds in ``units`` to those of the user's bounds.
        """
        return values if self.units is None else values / self.units.to(values)

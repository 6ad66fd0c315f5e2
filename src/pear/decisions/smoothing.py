"""``Smoothing``: the curvature λ that is added to the objective, and how ``smoothing="auto"`` chooses it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_verified
from pear.errors import ProblemError
from pear.problem import Problem
from pear.problem.array_conversion import given_fields, is_per_sample
from pear.problem.derived_problems import fields_in_units, in_units

logger = logging.getLogger("pear")

STRENGTH = 0.5
"""ρ: the cost that smoothing adds, relative to the typical difference in cost between two decisions."""
_LOOSE = 10.0  # bounds more than this many times wider than the spread of the decisions are ignored
_SAME = 1e-5  # relative difference below which two numbers count as equal
_PAIRS = 8  # other samples that each sample is compared with
_USUAL = 0.4  # share of the deviation of all costs that is used where no two decisions can be compared
_ENOUGH, _ENOUGH_SPARSE = 256, 32  # most samples, and most variables without a range, that "auto" solves for


@dataclass(frozen=True)
class Smoothing:
    """A smoothing λ that has been given or chosen.

    Attributes:
        value: λ of the variables measured in ``units``.
        units: (n,) the unit of each variable, or None where all are 1. Variable j has the curvature
            ``value / units[j]²``.
        note: one sentence that says where λ comes from.
    """

    value: float
    units: Tensor | None = None
    note: str = ""

    @classmethod
    def given(cls, value: float) -> Smoothing:
        """Make a smoothing from a λ that the user gave."""
        return cls(float(value), note=f"smoothing is {float(value):g}, as it was given")

    def times(self, factor: float) -> Smoothing:
        """Return this smoothing with λ multiplied by a factor."""
        return (
            self if factor == 1 else replace(self, value=factor * self.value, note=f"{self.note}; {factor:g} times it")
        )

    def state(self) -> dict[str, Any]:
        """Return units and note, which are saved together with λ."""
        return {"units": self.units, "note": self.note}

    def problem(self, problem: Problem) -> Problem:
        """Convert a problem to these units."""
        return problem if self.units is None else in_units(problem, self.units.to(problem.device))

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Convert fields of the problem to these units."""
        return dict(fields) if self.units is None else fields_in_units(fields, self.units)

    def curvature(self, Q: Any) -> Any:
        """Convert a curvature to these units; None stays None."""
        return None if Q is None else self.fields({"Q": Q})["Q"]

    def times_units(self, values: Tensor) -> Tensor:
        """Convert costs (B, n) to the problem in these units, or its decisions (B, n) back to the user's variables."""
        return values if self.units is None else values * self.units.to(values)

    def per_unit(self, values: Tensor) -> Tensor:
        """Convert multipliers of bounds (B, n) back to the user's variables."""
        return values if self.units is None else values / self.units.to(values)


def choose_smoothing(problem: Problem, cost: Tensor, smoothing: float | str, **overrides: Any) -> Smoothing:
    """Return the given λ; for "auto", choose λ from costs and the decisions under them.

    Args:
        problem: the continuous problem of these samples.
        cost: (B, n).
        smoothing: λ or "auto".
        **overrides: as for ``solve``.
    """
    curved = problem.is_curved or overrides.get("Q") is not None
    return given_or_auto(smoothing, curved, lambda: _smoothing_from_costs(problem, cost, given_fields(**overrides)))


def given_or_auto(smoothing: float | str, curved: bool, choose: Callable[[], Smoothing]) -> Smoothing:
    """Return the smoothing for a λ or for "auto"; the choice of "auto" is logged.

    Args:
        smoothing: λ or "auto".
        curved: whether the objective has curvature of its own. "auto" then adds none.
        choose: makes the choice of "auto" for an objective without curvature.
    """
    check_smoothing(smoothing)
    if smoothing != "auto":
        return Smoothing.given(float(smoothing))
    curved_note = "smoothing='auto' settled on λ = 0: the objective is curved by itself"
    found = Smoothing(0.0, note=curved_note) if curved else choose()
    logger.info(found.note)
    return found


def _smoothing_from_costs(problem: Problem, cost: Tensor, overrides: dict[str, Any]) -> Smoothing:
    """Solve some of the samples without smoothing, and choose λ from their decisions."""
    fields, enough = problem.checked(cost, **overrides), _ENOUGH_SPARSE if problem.is_sparse else _ENOUGH

    def solve_for(costs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        given = {name: fields[name] for name in overrides}
        own: Any = {name: value[rows] if is_per_sample(name, value) else value for name, value in given.items()}
        solved = solve_verified(problem[rows], costs, 0.0, "auto", **own)
        # Put variables that a bound holds exactly on it: the rounding between them is not a range.
        x = torch.where(solved.active.lower, solved.qp.lb, torch.where(solved.active.upper, solved.qp.ub, solved.x))
        return x, solved.solved

    def reach(variables: Tensor) -> Tensor:
        if len(variables) > enough:
            return torch.full_like(cost[0, variables], torch.nan, dtype=torch.float64)
        ends = torch.zeros(len(variables), problem.n, dtype=torch.float64, device=cost.device)
        ends.scatter_(1, variables[:, None], 1.0)
        points, solved = solve_for(torch.cat([ends, -ends]), torch.zeros_like(variables).repeat(2))
        low, high = (points * ends.repeat(2, 1)).sum(1).chunk(2)
        return torch.where(solved.reshape(2, -1).all(0), (high - low).abs(), torch.nan)

    some = torch.linspace(0, len(cost) - 1, min(len(cost), enough), device=cost.device).round().long()
    decisions, solved = solve_for(cost[some], some)
    costs = problem.sign * cost.detach()[some]
    return smoothing_from_decisions(costs, decisions, solved, (fields.get("lb"), fields.get("ub")), reach)


def check_smoothing(smoothing: float | str) -> None:
    """Raise ProblemError where λ is neither a finite number of at least 0 nor "auto"."""
    number = isinstance(smoothing, (int, float)) and not isinstance(smoothing, bool)
    if smoothing != "auto" and not (number and 0 <= float(smoothing) < math.inf):
        raise ProblemError(f"smoothing must be a number of at least 0, or 'auto'; got {smoothing!r}")


def smoothing_from_decisions(
    costs: Tensor,
    decisions: Tensor,
    solved: Tensor,
    bounds: tuple[Tensor | None, Tensor | None],
    reach: Callable[[Tensor], Tensor],
) -> Smoothing:
    """Choose the smoothing λ_j = ρ s / u_j² of each variable j from sample costs and the optimal decisions for them.

    u_j is the range of variable j. s measures what it costs sample i to take the decision of another sample k, per unit
    of squared distance: the median of ``cᵢᵀ(zₖ − zᵢ) / ‖(zₖ − zᵢ)/u‖²`` over pairs of samples. ρ is the constant
    STRENGTH. Smoothing adds ½ Σⱼ λ_j z_j² to the objective; ρ is the size of this term relative to the typical
    difference in cost between two decisions. The choice does not depend on the units of costs and decisions. If all
    ranges are equal, λ is one number.

    Args:
        costs: (N, n) costs to be minimised; rows that are not finite are ignored.
        decisions: (N, n) optimal decisions for these costs, without smoothing.
        solved: (N,) bool, whether a sample has an optimal decision.
        bounds: lb and ub of the problem.
        reach: a function that takes the indices (m,) of variables and returns the ranges (m,) that the constraints
            allow them, NaN where unknown.
    """
    costs, decisions = costs.detach().double(), decisions.detach().double()[solved]
    units, deciding, costs = _variable_ranges(decisions, bounds, reach), costs[solved], costs[costs.isfinite().all(1)]
    known, spread = units.isfinite(), _standard_deviation(costs, 0)
    if not bool(known.any()):  # nothing limits the decisions: any unit would do
        units, known = torch.ones_like(units), ~known
    units = torch.where(known, units, _units_from_costs(spread, units, known))
    size = _median_cost_of_exchange(deciding * units, decisions / units) or _USUAL * _cost_size(costs * units)
    least, most = float(units.min()), float(units.max())
    origin = f"{STRENGTH:g} × what the decision of another sample typically costs a unit of squared distance"
    if most - least > _SAME * most:
        value, measured = STRENGTH * size, f" in variables measured in their ranges, {least:.3g} to {most:.3g}"
    else:
        value, measured = STRENGTH * size / most**2, ""
    return Smoothing(
        value, units if measured else None, f"smoothing='auto' settled on λ = {value:.3g}{measured}: {origin}"
    )


def _variable_ranges(
    decisions: Tensor, bounds: tuple[Tensor | None, Tensor | None], reach: Callable[[Tensor], Tensor]
) -> Tensor:
    """Compute the range of every variable, (n,).

    The range is the distance between its bounds or, where these are far apart, the spread of the decisions. Where the
    decisions do not vary, it is the range that the constraints allow; NaN where that is unknown.
    """
    lb, ub = (None if bound is None else bound.to(decisions) for bound in bounds)
    allowed = torch.full_like(decisions[0] if len(decisions) else decisions.sum(0), torch.inf)
    if lb is not None and ub is not None:
        allowed = ub.reshape(-1, len(allowed)).amax(0) - lb.reshape(-1, len(allowed)).amin(0)
    limited = allowed.isfinite() & (allowed > 0)
    used = torch.zeros_like(allowed)
    if len(decisions):
        used = decisions.amax(0) - decisions.amin(0)
        used = torch.where(used > _SAME * decisions.abs().amax(0), used, 0.0)
    units = torch.where(limited & ((used == 0) | (_LOOSE * used >= allowed)), allowed, used)
    idle = (units == 0).nonzero()[:, 0]
    units[idle] = torch.nan
    if len(idle):
        found = reach(idle)
        units[idle] = torch.where(found > 0, found, torch.nan)
    return units


def _median_cost_of_exchange(costs: Tensor, decisions: Tensor) -> float:
    """Return the median of ``cᵢᵀ(zₖ − zᵢ) / ‖zₖ − zᵢ‖²`` over pairs of samples with other decisions; 0 without any."""
    ratios = [costs.new_zeros(0)]
    for shift in range(1, min(_PAIRS, len(costs) - 1) + 1):
        change = decisions.roll(shift, 0) - decisions
        distance = change.square().sum(1)
        apart = distance > _SAME  # beyond rounding, where a range is 1
        ratios.append((costs * change).sum(1)[apart] / distance[apart])
    found = torch.cat(ratios)
    found = found[found > _SAME * costs.abs().mean()] if len(found) else found
    return float(found.median()) if len(found) else 0.0


def _cost_size(costs: Tensor) -> float:
    """Return the deviation of all costs (k, n); their mean size where all are equal, and 1 where all are zero."""
    entries = costs.flatten()
    return float(_standard_deviation(entries, 0)) or float(entries.abs().sum()) / max(len(entries), 1) or 1.0


def _standard_deviation(values: Tensor, dim: int) -> Tensor:
    """Return the standard deviation along ``dim``; 0 where there are no values."""
    return values.std(dim, correction=0) if len(values) else values.sum(dim)


def _units_from_costs(spread: Tensor, units: Tensor, known: Tensor) -> Tensor:
    """Return units (n,) for variables of unknown range, in which their costs vary as much as those of the others."""
    typical = (spread * units)[known & (spread > 0)]
    if not len(typical):
        return units[known].median().expand_as(units)
    return torch.where(spread > 0, typical.median() / spread, units[known].median())

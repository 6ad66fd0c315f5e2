"""``Smoothing``: the curvature that is added to the objective, and how ``smoothing="auto"`` chooses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.missing_curvature import missing_curvature
from pear.optimality.definiteness import is_only_semidefinite, is_semidefinite
from pear.optimality.rule import ROUNDOFF
from pear.problem import Problem
from pear.problem.derived_problems import minimised_problem_curvature, problem_with_curvature
from pear.problem.matrix import Matrix, matvec
from pear.problem.problem_fields import given_fields, is_field_per_sample
from pear.problem.problem_units import fields_in_units, problem_in_units
from pear.setting_checks import check_smoothing_setting

logger = logging.getLogger("pear")

STRENGTH = 0.5
"""ρ: the cost that smoothing adds, relative to the typical difference in cost between two decisions."""
_LOOSE = 10.0  # bounds more than this many times wider than the spread of the decisions are ignored
_SAME = 1e-5  # relative difference below which two numbers count as equal
_PAIRS = 8  # other samples that each sample is compared with
_USUAL = 0.4  # share of the deviation of all costs that is used where no two decisions can be compared
_ENOUGH, _ENOUGH_SPARSE = 256, 32  # most samples, and most variables without a range, that "auto" solves for
_ENOUGH_CURVED = 64  # most samples of a quadratic program, which takes longer to solve
_CURVED = "smoothing='auto' settled on λ = 0: the objective is curved by itself"


@dataclass(frozen=True)
class Smoothing:
    """A smoothing λ that has been given or chosen.

    Attributes:
        value: λ of the variables measured in ``units``, which is added in every direction.
        units: (n,) the unit of each variable, or None where all are 1. Variable j has the curvature
            ``value / units[j]²``.
        note: one sentence that says where λ comes from.
        floor: λ for a problem with a Q, in the same units. Along each direction in which Q has less curvature than
            ``floor``, the difference is added. 0 adds nothing.
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
        """Return this smoothing with λ multiplied by a factor."""
        if factor == 1:
            return self
        note = f"{self.note}; {factor:g} times it"
        return replace(self, value=factor * self.value, floor=factor * self.floor, note=note)

    def state(self) -> dict[str, Any]:
        """Return units, note and floor, which are saved together with λ."""
        return {"units": self.units, "note": self.note, "floor": self.floor}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Smoothing | None:
        """Make the smoothing of a saved state, whose λ is stored as "smoothing"; None where none was chosen."""
        value = state["smoothing"]
        return None if value is None else cls(value, state.get("units"), state.get("note", ""), state.get("floor", 0.0))

    def problem(self, problem: Problem) -> Problem:
        """Convert a problem to these units, and raise the curvature of its Q to ``floor`` in every direction."""
        scaled = self._in_units(problem)
        missing = self._missing(scaled)
        return scaled if missing is None else problem_with_curvature(scaled, missing)

    def added_curvature(self, problem: Problem) -> Matrix | None:
        """Return the curvature that raises Q to ``floor`` in every direction; None where Q lacks nothing.

        It is (n, n) or (N, n, n), in these units. It belongs to the minimised objective, so that it is positive
        semidefinite in either sense.
        """
        return self._missing(self._in_units(problem))

    def curvature_for_user(self, problem: Problem) -> Matrix | None:
        """Return all curvature that this smoothing adds to a problem, in the user's variables; None if it adds none.

        The result is the diagonal (n,), or a matrix (n, n) or (N, n, n) if a Q lacks curvature.
        """
        units = torch.ones(problem.n, dtype=torch.float64) if self.units is None else self.units.double()
        if self.floor > 0:
            missing = self.added_curvature(problem.relaxed())
            return None if missing is None else fields_in_units({"Q": missing}, 1 / units)["Q"]
        return (self.value / units.square()).to(problem.device) if self.value > 0 else None

    def _in_units(self, problem: Problem) -> Problem:
        return problem if self.units is None else problem_in_units(problem, self.units.to(problem.device))

    def _missing(self, scaled: Problem) -> Matrix | None:
        return (
            None
            if self.floor == 0 or scaled.Q is None
            else missing_curvature(minimised_problem_curvature(scaled), self.floor)
        )

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


def choose_smoothing(
    problem: Problem, cost: Tensor, smoothing: float | str, whole: Problem | None = None, **overrides: Any
) -> Smoothing:
    """Return the given λ; for "auto", choose λ from costs and the decisions under them.

    A linear objective gets λ in every direction. An objective with a Q gets as much in each direction as Q lacks of λ,
    and nothing where no direction lacks any. A Q that comes with the call gets λ in every direction where it is
    singular for some sample, and nothing where it is definite.

    Args:
        problem: the continuous problem of these samples.
        cost: (B, n).
        smoothing: λ or "auto".
        whole: the problem with all its samples, where ``problem`` holds only some of them. The curvature is raised for
            all of them alike.
        **overrides: as for ``solve``.
    """
    given = given_fields(**overrides)

    def choose() -> Smoothing:
        if problem.phi is not None or ("Q" in given and not _is_singular_somewhere(problem, cost, given)):
            return Smoothing(0.0, note=_CURVED)
        found = _smoothing_from_costs(problem, cost, given)
        return found if "Q" in given else drop_idle_floor(found, problem if whole is None else whole)

    return given_or_auto(smoothing, choose)


def given_or_auto(smoothing: float | str, choose: Callable[[], Smoothing]) -> Smoothing:
    """Return the smoothing for a λ or for "auto"; the choice of "auto" is logged.

    Args:
        smoothing: λ or "auto".
        choose: makes the choice of "auto".
    """
    check_smoothing_setting(smoothing)
    if smoothing != "auto":
        return Smoothing.given(float(smoothing))
    found = choose()
    logger.info(found.note)
    return found


def drop_idle_floor(found: Smoothing, problem: Problem) -> Smoothing:
    """Replace a smoothing by an empty one where Q already has the curvature ``floor`` in every direction."""
    idle = found.floor > 0 and found.added_curvature(problem) is None
    return Smoothing(0.0, note=_CURVED) if idle else found


def _is_singular_somewhere(problem: Problem, cost: Tensor, overrides: dict[str, Any]) -> bool:
    """Whether the curvature of a call is convex and singular for a sample. One that is not convex has a status."""
    Q = problem.sign * problem.checked(cost, **overrides)["Q"].detach()
    H = Q if Q.ndim == 3 else Q[None]
    H = H[H.flatten(1).isfinite().all(1)]
    return bool((is_semidefinite(H) & is_only_semidefinite(H)).any())


def _smoothing_from_costs(problem: Problem, cost: Tensor, overrides: dict[str, Any]) -> Smoothing:
    """Solve some of the samples without smoothing, and choose λ from their decisions."""
    fields, enough = problem.checked(cost, **overrides), _ENOUGH_SPARSE if problem.is_sparse else _ENOUGH
    Q: Any = fields.get("Q")
    curved = Q is not None and bool(Q.any())

    def solve_for(costs: Tensor, rows: Tensor, curved: bool = curved) -> tuple[Tensor, Tensor]:
        given = {name: fields[name] for name in overrides if curved or name != "Q"}
        own: Any = {name: value[rows] if is_field_per_sample(name, value) else value for name, value in given.items()}
        chosen = problem[rows]
        if not curved and problem.Q is not None:
            chosen = chosen._with(Q=None, _plans={})
        solved = solve_continuous_programs(chosen, costs, 0.0, "auto", **own)
        # Put variables that a bound holds exactly on it: the rounding between them is not a range.
        x = torch.where(solved.active.lower, solved.qp.lb, torch.where(solved.active.upper, solved.qp.ub, solved.x))
        return x, solved.solved

    def reach(variables: Tensor) -> Tensor:
        if len(variables) > enough:
            return torch.full_like(cost[0, variables], torch.nan, dtype=torch.float64)
        ends = torch.zeros(len(variables), problem.n, dtype=torch.float64, device=cost.device)
        ends.scatter_(1, variables[:, None], 1.0)
        # what the constraints allow, whatever the objective
        points, solved = solve_for(torch.cat([ends, -ends]), torch.zeros_like(variables).repeat(2), curved=False)
        low, high = (points * ends.repeat(2, 1)).sum(1).chunk(2)
        return torch.where(solved.reshape(2, -1).all(0), (high - low).abs(), torch.nan)

    count = min(len(cost), enough, _ENOUGH_CURVED) if curved else min(len(cost), enough)
    some = torch.linspace(0, len(cost) - 1, count, device=cost.device).round().long()
    decisions, solved = solve_for(cost[some], some)
    costs, bounds = problem.sign * cost.detach()[some], (fields.get("lb"), fields.get("ub"))
    if not curved:
        return smoothing_from_decisions(costs, decisions, solved, bounds, reach)
    H = minimised_problem_curvature(problem._with(Q=Q))
    H = H[some] if H.ndim == 3 else H
    return smoothing_from_decisions(costs, decisions, solved, bounds, reach, H, floor="Q" not in overrides)


def smoothing_from_decisions(
    costs: Tensor,
    decisions: Tensor,
    solved: Tensor,
    bounds: tuple[Tensor | None, Tensor | None],
    reach: Callable[[Tensor], Tensor],
    H: Matrix | None = None,
    floor: bool = False,
) -> Smoothing:
    """Choose the smoothing λ_j = ρ s / u_j² of each variable j from sample costs and the optimal decisions for them.

    u_j is the range of variable j. s measures what it costs sample i to take the decision of another sample k, per unit
    of squared distance: the median of ``cᵢᵀ(zₖ − zᵢ) / ‖(zₖ − zᵢ)/u‖²`` over pairs of samples. ρ is the constant
    STRENGTH. Smoothing adds ½ Σⱼ λ_j z_j² to the objective; ρ is the size of this term relative to the typical
    difference in cost between two decisions. The choice does not depend on the units of costs and decisions. If all
    ranges are equal, λ is one number. Where the objective has a curvature H, the extra cost of another decision is
    ``(cᵢ + Hzᵢ)ᵀd + ½dᵀHd`` with d = zₖ − zᵢ.

    Args:
        costs: (N, n) costs to be minimised; rows that are not finite are ignored.
        decisions: (N, n) optimal decisions for these costs, without smoothing.
        solved: (N,) bool, whether a sample has an optimal decision.
        bounds: lb and ub of the problem.
        reach: a function that takes the indices (m,) of variables and returns the ranges (m,) that the constraints
            allow them, NaN where unknown.
        H: (n, n) or (N, n, n) curvature of the minimised objective; None where it is linear.
        floor: whether λ is the ``floor`` of the smoothing instead of its ``value``.
    """
    costs, decisions = costs.detach().double(), decisions.detach().double()[solved]
    units, deciding, costs = _variable_ranges(decisions, bounds, reach), costs[solved], costs[costs.isfinite().all(1)]
    known, spread = units.isfinite(), _standard_deviation(costs)
    if not bool(known.any()):  # nothing limits the decisions: any unit would do
        units, known = torch.ones_like(units), ~known
    units = torch.where(known, units, _units_from_costs(spread, units, known))
    curvature = None if H is None else _CurvatureInUnits(H[solved] if H.ndim == 3 else H, units)
    size = _median_cost_of_swaps(deciding * units, decisions / units, curvature)
    size = size or _USUAL * _cost_size(costs * units)
    least, most = float(units.min()), float(units.max())
    origin = f"{STRENGTH:g} × what the decision of another sample typically costs a unit of squared distance"
    if most - least > _SAME * most:
        value, measured = STRENGTH * size, f" in variables measured in their ranges, {least:.3g} to {most:.3g}"
    else:
        value, measured = STRENGTH * size / most**2, ""
    role = " as the least curvature of every direction" if floor else ""
    note = f"smoothing='auto' settled on λ = {value:.3g}{measured}{role}: {origin}"
    return Smoothing(0.0 if floor else value, units if measured else None, note, value if floor else 0.0)


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
        sizes = decisions.abs().amax(0)
        # Rounding spreads from the largest decision to all others, unless bounds show a smaller unit.
        noise = ROUNDOFF * torch.minimum(sizes.amax(), torch.where(allowed > 0, allowed, torch.inf))
        used = torch.where(used > torch.maximum(_SAME * sizes, noise), used, 0.0)
    units = torch.where(limited & ((used == 0) | (_LOOSE * used >= allowed)), allowed, used)
    idle = (units == 0).nonzero()[:, 0]
    units[idle] = torch.nan
    if len(idle):
        found = reach(idle)
        units[idle] = torch.where(found > 0, found, torch.nan)
    return units


class _CurvatureInUnits(NamedTuple):
    """The curvature UHU of variables that are measured in units.

    Attributes:
        H: (n, n) or (N, n, n) curvature in the user's variables.
        units: (n,) the diagonal of U.
    """

    H: Matrix
    units: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        """Multiply vectors (N, n)."""
        H = self.H if self.H.is_sparse or self.H.ndim == 3 else self.H[None]
        return self.units * matvec(H, self.units * vectors)


def _median_cost_of_swaps(costs: Tensor, decisions: Tensor, curvature: _CurvatureInUnits | None = None) -> float:
    """Return the median over pairs of samples of the extra cost of the other decision, per squared distance.

    Without curvature this is ``cᵢᵀ(zₖ − zᵢ) / ‖zₖ − zᵢ‖²``. Only pairs with different decisions count; 0 without any.
    """
    slopes = costs if curvature is None else costs + curvature(decisions)
    ratios = [costs.new_zeros(0)]
    for shift in range(1, min(_PAIRS, len(costs) - 1) + 1):
        change = decisions.roll(shift, 0) - decisions
        distance = change.square().sum(1)
        apart = distance > _SAME  # beyond rounding, where a range is 1
        extra = (slopes * change).sum(1)
        if curvature is not None:
            extra = extra + 0.5 * (curvature(change) * change).sum(1)
        ratios.append(extra[apart] / distance[apart])
    found = torch.cat(ratios)
    found = found[found > _SAME * costs.abs().mean()] if len(found) else found
    return float(found.median()) if len(found) else 0.0


def _cost_size(costs: Tensor) -> float:
    """Return the standard deviation of all costs (k, n); their mean size if all are equal, and 1 if all are zero."""
    entries = costs.flatten()
    return float(_standard_deviation(entries)) or float(entries.abs().sum()) / max(len(entries), 1) or 1.0


def _standard_deviation(values: Tensor) -> Tensor:
    """Return the standard deviation over the first dimension; 0 where there are no values."""
    return values.std(0, correction=0) if len(values) else values.sum(0)


def _units_from_costs(spread: Tensor, units: Tensor, known: Tensor) -> Tensor:
    """Choose units (n,) for variables of unknown range: in these, their costs vary as much as the other costs do."""
    typical = (spread * units)[known & (spread > 0)]
    if not len(typical):
        return units[known].median().expand_as(units)
    return torch.where(spread > 0, typical.median() / spread, units[known].median())

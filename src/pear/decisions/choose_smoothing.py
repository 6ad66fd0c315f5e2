"""The choice of the smoothing λ for ``smoothing="auto"``, from sample costs and the decisions under them.

Smoothing adds curvature λ to the objective, so that decisions change continuously with the costs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.smoothing import Smoothing
from pear.optimality.definiteness import is_semidefinite, is_singular
from pear.optimality.rule import ROUNDOFF
from pear.problem import Problem
from pear.problem.derived_problems import minimised_problem_curvature
from pear.problem.matrix import Matrix, matvec
from pear.problem.problem_fields import given_fields, is_field_per_sample
from pear.setting_checks import check_smoothing_setting

logger = logging.getLogger("pear")

STRENGTH = 0.5
"""ρ: what smoothing adds to the objective, relative to the typical difference in cost between two decisions."""
_LOOSE = 10.0  # bounds further apart than so many times the spread of the decisions are ignored
_SAME = 1e-5  # relative difference below which two numbers count as equal
_PAIRS = 8  # the number of other samples with which each sample is compared
_USUAL = 0.4  # share of the standard deviation of all costs that is used if no two decisions can be compared
_ENOUGH, _ENOUGH_SPARSE = 256, 32  # the most samples, and variables of unknown range, of a dense or sparse problem
_ENOUGH_CURVED = 64  # the most samples of a quadratic program, which takes longer to solve
_CURVED = "smoothing='auto' settled on λ = 0: the objective is curved by itself"


def choose_smoothing(
    problem: Problem, cost: Tensor, smoothing: float | str, whole: Problem | None = None, **overrides: Any
) -> Smoothing:
    """Return the smoothing for a given λ, or for the λ that "auto" chooses from costs and the decisions under them.

    * A given λ is curvature that is added to the objective in every direction.
    * For a linear objective, the λ of "auto" is added in every direction, too.
    * If ``overrides`` have a Q, "auto" adds λ in every direction, but only if this Q is singular for some sample.
    * If only the problem has a Q, "auto" raises the curvature to λ in those directions in which Q has less.
    * If the objective has a smooth term φ, "auto" adds nothing.

    Args:
        problem: the problem, without integers. Its fields per sample have one row for each sample of ``cost``.
        cost: (B, n) costs.
        smoothing: λ or "auto".
        whole: the problem with all samples, if ``problem`` contains only some of them. If the Q of every sample of
            ``whole`` has at least the curvature λ, nothing is added.
        **overrides: as for ``pear.solve``.
    """
    given = given_fields(**overrides)

    def choose() -> Smoothing:
        if problem.phi is not None or ("Q" in given and not _choice_is_needed(problem, cost, given)):
            return Smoothing(0.0, note=_CURVED)
        found = _choose_from_costs(problem, cost, given)
        return found if "Q" in given else drop_idle_choice(found, problem if whole is None else whole)

    return choose_given_or_auto(smoothing, choose)


def choose_given_or_auto(smoothing: float | str, choose: Callable[[], Smoothing]) -> Smoothing:
    """Return the smoothing for a given λ. For "auto", return the result of ``choose``, and log its note.

    Args:
        smoothing: λ or "auto".
        choose: a function that returns the smoothing for "auto".
    """
    check_smoothing_setting(smoothing)
    if smoothing != "auto":
        return Smoothing.given(float(smoothing))
    found = choose()
    logger.info(found.note)
    return found


def drop_idle_choice(found: Smoothing, problem: Problem) -> Smoothing:
    """Return ``found``, or a smoothing of 0 if ``found`` would add nothing to the Q of a problem.

    It adds nothing if ``found.floor`` is positive and Q has at least the curvature ``found.floor`` in every direction.
    """
    idle = found.floor > 0 and found.added_curvature(problem) is None
    return Smoothing(0.0, note=_CURVED) if idle else found


def _choice_is_needed(problem: Problem, cost: Tensor, overrides: dict[str, Any]) -> bool:
    """Return whether the Q in ``overrides`` is singular for some sample with a convex objective."""
    Q = problem.sign * problem.checked(cost, **overrides)["Q"].detach()
    H = Q if Q.ndim == 3 else Q[None]
    H = H[H.flatten(1).isfinite().all(1)]
    return bool((is_semidefinite(H) & is_singular(H)).any())


def _choose_from_costs(problem: Problem, cost: Tensor, overrides: dict[str, Any]) -> Smoothing:
    """Choose λ from the decisions of some of the samples, which are solved here without smoothing."""
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
        # put variables exactly on their active bounds, so that rounding errors do not count as a range
        x = torch.where(solved.active.lower, solved.qp.lb, torch.where(solved.active.upper, solved.qp.ub, solved.x))
        return x, solved.solved

    def reach(variables: Tensor) -> Tensor:
        if len(variables) > enough:
            return torch.full_like(cost[0, variables], torch.nan, dtype=torch.float64)
        ends = torch.zeros(len(variables), problem.n, dtype=torch.float64, device=cost.device)
        ends.scatter_(1, variables[:, None], 1.0)
        # the range that the constraints allow, whatever the objective
        points, solved = solve_for(torch.cat([ends, -ends]), torch.zeros_like(variables).repeat(2), curved=False)
        low, high = (points * ends.repeat(2, 1)).sum(1).chunk(2)
        return torch.where(solved.reshape(2, -1).all(0), (high - low).abs(), torch.nan)

    count = min(len(cost), enough, _ENOUGH_CURVED) if curved else min(len(cost), enough)
    some = torch.linspace(0, len(cost) - 1, count, device=cost.device).round().long()
    decisions, solved = solve_for(cost[some], some)
    costs, bounds = problem.sign * cost.detach()[some], (fields.get("lb"), fields.get("ub"))
    if not curved:
        return choose_smoothing_from_decisions(costs, decisions, solved, bounds, reach)
    H = minimised_problem_curvature(problem._with(Q=Q))
    H = H[some] if H.ndim == 3 else H
    return choose_smoothing_from_decisions(costs, decisions, solved, bounds, reach, H, floor="Q" not in overrides)


def choose_smoothing_from_decisions(
    costs: Tensor,
    decisions: Tensor,
    solved: Tensor,
    bounds: tuple[Tensor | None, Tensor | None],
    reach: Callable[[Tensor], Tensor],
    H: Matrix | None = None,
    floor: bool = False,
) -> Smoothing:
    """Choose the smoothing ``λ_j = ρ s / u_j²`` of each variable j from sample costs and the optimal decisions.

    Smoothing adds ``½ Σ λ_j z_j²`` to the objective of a decision z.

    * u_j is the range of variable j, which ``_choose_units`` computes.
    * s is how much more a sample typically pays for the decision of another sample than for its own, per unit of
      squared distance: the median of ``cᵢᵀ(zₖ − zᵢ) / ‖(zₖ − zᵢ)/u‖²`` over pairs of samples i and k with costs cᵢ and
      decisions zᵢ and zₖ. If the objective has a curvature H, the numerator is ``(cᵢ + Hzᵢ)ᵀd + ½dᵀHd`` with
      d = zₖ − zᵢ.
    * ρ, the constant ``STRENGTH``, is the size of the added term relative to the typical difference in cost between two
      decisions.

    The choice does not depend on the units of costs and decisions. If all ranges are equal, all λ_j are equal.

    Args:
        costs: (N, n) costs of N samples, to be minimised; rows that are not finite are ignored.
        decisions: (N, n) optimal decisions for these costs, without smoothing.
        solved: (N,) bool, whether a sample has an optimal decision.
        bounds: lb and ub of the problem; None where the problem has none.
        reach: maps the positions (k,) of k variables to the ranges (k,) that the constraints allow these variables; NaN
            for unknown ranges.
        H: (n, n) or (N, n, n) curvature of the minimised objective; None if it is linear.
        floor: whether λ becomes ``Smoothing.floor``, the least curvature of every direction, instead of
            ``Smoothing.value``, which is added in every direction.
    """
    costs, decisions = costs.detach().double(), decisions.detach().double()[solved]
    units, deciding, costs = (
        _choose_units(decisions, bounds, reach),
        costs[solved],
        costs[costs.isfinite().all(1)],
    )
    known, spread = units.isfinite(), _deviation_for_choice(costs)
    if not bool(known.any()):  # nothing limits the decisions, so that any unit is possible
        units, known = torch.ones_like(units), ~known
    units = torch.where(known, units, _choose_units_from_costs(spread, units, known))
    curvature = None if H is None else _CurvatureInUnits(H[solved] if H.ndim == 3 else H, units)
    size = _choose_size(deciding * units, decisions / units, curvature)
    size = size or _USUAL * _choose_size_from_costs(costs * units)
    least, most = float(units.min()), float(units.max())
    origin = f"{STRENGTH:g} × what the decision of another sample typically costs a unit of squared distance"
    if most - least > _SAME * most:
        value, measured = STRENGTH * size, f" in variables measured in their ranges, {least:.3g} to {most:.3g}"
    else:
        value, measured = STRENGTH * size / most**2, ""
    role = " as the least curvature of every direction" if floor else ""
    note = f"smoothing='auto' settled on λ = {value:.3g}{measured}{role}: {origin}"
    return Smoothing(0.0 if floor else value, units if measured else None, note, value if floor else 0.0)


def _choose_units(
    decisions: Tensor, bounds: tuple[Tensor | None, Tensor | None], reach: Callable[[Tensor], Tensor]
) -> Tensor:
    """Compute the range of every variable, (n,), which serves as its unit; NaN for unknown ranges.

    The spread of a variable is its largest minus its smallest value in the decisions. The range is the distance between
    the bounds of the variable, with two exceptions. If the spread is positive, and the distance is infinite or more
    than ten times the spread, the range is the spread. If the spread is zero, and the distance is infinite or zero, the
    range comes from ``reach``.

    Args:
        decisions: (N, n) decisions of N samples.
        bounds: lb and ub of the problem; None where the problem has none.
        reach: as for ``choose_smoothing_from_decisions``.
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
        # rounding errors of the largest variable affect all variables, unless their bounds have a smaller size
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
    """The curvature UHU of an objective whose variables are measured in units; a call multiplies it by vectors.

    Attributes:
        H: (n, n) or (N, n, n) curvature in the user's variables.
        units: (n,) the unit of each variable, which is the diagonal of U.
    """

    H: Matrix
    units: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        """Multiply UHU by vectors (N, n), one per sample; return the products (N, n)."""
        H = self.H if self.H.is_sparse or self.H.ndim == 3 else self.H[None]
        return self.units * matvec(H, self.units * vectors)


def _choose_size(costs: Tensor, decisions: Tensor, curvature: _CurvatureInUnits | None = None) -> float:
    """Compute s of ``choose_smoothing_from_decisions``, for variables that are measured in their units.

    Without curvature s is the median of ``cᵢᵀ(zₖ − zᵢ) / ‖zₖ − zᵢ‖²`` over pairs of samples i and k, where cᵢ and zᵢ
    are the costs and the decision of sample i. Only pairs with different decisions and a positive numerator count. If
    there are none, the result is 0.

    Args:
        costs: (N, n) costs of N samples, for variables measured in their units.
        decisions: (N, n) decisions, measured in these units.
        curvature: the curvature of the objective in these units; None if the objective is linear.
    """
    slopes = costs if curvature is None else costs + curvature(decisions)
    ratios = [costs.new_zeros(0)]
    for shift in range(1, min(_PAIRS, len(costs) - 1) + 1):
        change = decisions.roll(shift, 0) - decisions
        distance = change.square().sum(1)
        apart = distance > _SAME  # not only by rounding; ranges are about 1
        extra = (slopes * change).sum(1)
        if curvature is not None:
            extra = extra + 0.5 * (curvature(change) * change).sum(1)
        ratios.append(extra[apart] / distance[apart])
    found = torch.cat(ratios)
    found = found[found > _SAME * costs.abs().mean()] if len(found) else found
    return float(found.median()) if len(found) else 0.0


def _choose_size_from_costs(costs: Tensor) -> float:
    """Return the standard deviation of all entries of costs (N, n).

    If all entries are equal, return their absolute value; if all are zero, return 1.
    """
    entries = costs.flatten()
    return float(_deviation_for_choice(entries)) or float(entries.abs().sum()) / max(len(entries), 1) or 1.0


def _deviation_for_choice(values: Tensor) -> Tensor:
    """Return the standard deviation of values (N, …) over the first dimension; 0 if N is 0."""
    return values.std(0, correction=0) if len(values) else values.sum(0)


def _choose_units_from_costs(spread: Tensor, units: Tensor, known: Tensor) -> Tensor:
    """Choose units for variables of unknown range, so that the cost of one unit varies as much as for other variables.

    Args:
        spread: (n,) the standard deviation of each variable's cost, in the variables of the problem.
        units: (n,) the units of variables whose range is known.
        known: (n,) bool, the variables whose range is known.

    Returns:
        (n,) units; the entries of variables whose range is known have no meaning.
    """
    typical = (spread * units)[known & (spread > 0)]
    if not len(typical):
        return units[known].median().expand_as(units)
    return torch.where(spread > 0, typical.median() / spread, units[known].median())

"""``Solution``: the result of ``pear.solve``, its conversions, and its description in one line."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pear.decisions.smoothing import Smoothing
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status, has_decision_status
from pear.optimality.tensor_record import TensorRecord
from pear.problem import Problem
from pear.problem.html_tables import html_table
from pear.problem.matrix import matvec
from pear.sensitivity.verified_solutions import VerifiedSolutions


@dataclass(frozen=True, repr=False)
class Solution(TensorRecord):
    """Verified solutions of a batch.

    Attributes:
        x: (B, n) decisions: optimal ones for the status SOLVED, those of an oracle for CLAIMED. For the status
            TIME_LIMIT, the row has the best feasible point that was found, if any. All other rows are NaN.
        value: (B,) objective at ``x`` in the problem's own sense, smoothing included; NaN without a point.
        status: (B,) int8 of ``Status``.
        active: the constraints that are tight at ``x``.
        weak: the tight constraints whose multiplier is zero; they count as active.
        duals: multipliers of the minimised problem; None for integer problems.
        kkt_residual: (B,) the largest of the scaled primal, dual and complementarity residuals; for integer problems
            the largest of constraint violation, distance to integers and relative gap. NaN for decisions of an oracle,
            and for samples without a point.
        repaired: (B,) bool, whether the solver's active set was wrong and was corrected.
        gap: (B,) relative distance of the objective at ``x`` from the proven bound: 0 for a solved continuous problem,
            infinite without a bound, NaN without a point.
        unchecked: (B,) bool, whether the status of an integer program rests on the claim of a single solver, which
            neither a short search by PEAR nor a second solver has confirmed. False for continuous problems.
    """

    x: Tensor
    value: Tensor
    status: Tensor
    active: ActiveSet
    weak: ActiveSet
    duals: Duals | None
    kkt_residual: Tensor
    repaired: Tensor
    gap: Tensor
    unchecked: Tensor

    @property
    def solved(self) -> Tensor:
        """Whether each sample has a decision, which is proven to be optimal or claimed by an oracle, (B,) bool."""
        return has_decision_status(self.status)

    @property
    def weakly_active(self) -> Tensor:
        """The number of weakly active constraints of each sample, (B,)."""
        return self.weak.count()

    def __repr__(self) -> str:
        facts = "".join(f"; {name} {fact}" for name, fact in self._facts().items())
        return f"Solution({describe_solution_statuses(self.status, self.x.shape[1])}{facts})"

    def _repr_html_(self) -> str:
        return html_table(
            "Solution", {"samples": describe_solution_statuses(self.status, self.x.shape[1]), **self._facts()}
        )

    def _facts(self) -> dict[str, str]:
        """Return what ``repr`` shows after the statuses, as text by name."""
        found = self.value[self.value.isfinite()]
        mean = {"mean value": f"{float(found.mean()):.4g}"} if len(found) else {}
        unchecked = int(self.unchecked.sum())
        words = {"unchecked": f"{unchecked} (the solver's word)"} if unchecked else {}
        return mean | worst_solution_residual(self.kkt_residual) | words


def describe_solution_statuses(status: Tensor, variables: int) -> str:
    """Return one line of text with the number of samples of each status (B,), and with the number of variables."""
    kinds, counts = status.unique(return_counts=True)
    found = ", ".join(f"{int(k)} {Status(int(s)).name}" for s, k in zip(kinds, counts, strict=True))
    samples = "1 sample" if len(status) == 1 else f"{len(status)} samples"
    return f"{samples} of {variables} variables{': ' if found else ''}{found}"


def worst_solution_residual(residual: Tensor) -> dict[str, str]:
    """Return a dictionary from "kkt_residual" to the largest finite residual (B,) as text; {} if none is finite."""
    known = residual[residual.isfinite()]
    return {"kkt_residual": f"≤ {float(known.max()):.1e}"} if len(known) else {}


def as_solution(problem: Problem, v: VerifiedSolutions) -> Solution:
    """Convert verified solutions to a ``Solution``, with values in the problem's own sense."""
    value = problem.sign * v.qp.objective(v.x)
    if problem.phi is not None:  # v.qp contains the quadratic model of φ at z, which lacks a constant
        slope, curvature = problem.phi.gradient(v.x), problem.phi.hessian(v.x)
        value = value + (problem.phi.value(v.x) - (v.x * (slope - 0.5 * matvec(curvature, v.x))).sum(1))
    return Solution(
        x=torch.where(v.solved[:, None], v.x, torch.nan),
        value=torch.where(v.solved, value, torch.nan),
        status=v.status,
        active=v.active,
        weak=v.weak,
        duals=v.duals,
        kkt_residual=v.kkt_residual,
        repaired=v.repaired,
        gap=torch.where(v.solved, 0.0, torch.nan).to(v.x),
        unchecked=torch.zeros_like(v.solved),
    )


def solution_in_dtype(solution: Solution, dtype: torch.dtype) -> Solution:
    """Return a solution with its floating-point tensors in a dtype."""
    if dtype == torch.float64:  # every solution is computed in float64
        return solution
    return solution.map(lambda value: value.to(dtype) if value.is_floating_point() else value)


def solution_in_user_units(solution: Solution, scale: Smoothing) -> Solution:
    """Convert decisions and multipliers of bounds from the units of a smoothing to the user's variables."""
    if scale.units is None or solution.duals is None:
        return solution
    duals = replace(solution.duals, bound=scale.per_unit(solution.duals.bound))
    return replace(solution, x=scale.times_units(solution.x), duals=duals)

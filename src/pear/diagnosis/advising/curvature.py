"""Curvature: rank and condition of Q, and the smoothing that "auto" takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.recourse import choose_recourse_smoothing
from pear.decisions.smoothing import Smoothing, settle
from pear.decisions.solve import choose_smoothing
from pear.diagnosis.advising.decided import Decided
from pear.diagnosis.advising.finding import Finding, Part, counted
from pear.diagnosis.advising.subject import Array, Subject

_MOST_VARIABLES = 2000  # whose eigenvalues take a second or two
_NO_CURVATURE = 1e-10  # of the largest eigenvalue
_CONDITION = 1e8
_MOST_IDLE = 256  # variables whose range "auto" asks for


def curvature(s: Subject, decided: Decided | None) -> Part:
    """Eigenvalues of the objective's Hessian; nothing of a linear objective."""
    if not s.problem.is_curved:
        return Part()
    if s.n > _MOST_VARIABLES:
        said = (
            f"Rank and condition of the curvature were not computed: {s.n:,} variables are too many to do so quickly."
        )
        return Part([Finding("curvature", said, {"skipped_curvature": True})])
    where, H = f"Q{s.first}", None if s.Q is None else s.Q.toarray()
    if s.problem.phi is not None:
        if decided is None or not bool(decided.solved.any()):
            return Part()
        where = "The Hessian at the first decision"
        H = decided.hessian(int(decided.solved.nonzero()[0, 0]))
    assert H is not None
    return Part(_eigenvalues(s, where, H))


def _little(top: float) -> float:
    """A smoothing that changes a curved objective little, with one digit."""
    return float(f"{1e-3 * top:.0e}")


def _eigenvalues(s: Subject, where: str, H: Array) -> list[Finding]:
    sizes = np.abs(np.linalg.eigvalsh(H))
    top = float(sizes.max(initial=0.0))
    kept = sizes[sizes > _NO_CURVATURE * top] if top else sizes[:0]
    rank = len(kept)
    condition = float(kept.max() / kept.min()) if rank else float("nan")
    numbers: dict[str, Any] = {"curvature_rank": rank, "curvature_condition": condition, "max_curvature": top}
    if not rank:
        return [
            Finding("curvature", f"{where} is zero: leave it out, so that smoothing='auto' applies.", numbers, True)
        ]
    which = f"{where} has rank {rank:,} of {s.n:,}, a condition of {condition:.2g} and eigenvalues up to {top:.3g}"
    if rank == s.n:
        more = ": every decision is unique, and no smoothing is needed; 'auto' takes λ = 0"
        found = [Finding("curvature", f"{which}{more}.", numbers)]
    else:
        more = (
            f"; along {counted(s.n - rank, 'direction')} the objective is linear, where decisions can jump or tie. "
            f"'auto' adds nothing to an objective that is curved: pass smoothing={_little(top):g} to PEARLoss, a "
            "thousandth of the largest eigenvalue; without it injection must be 0, and ties are refused"
        )
        found = [Finding("curvature", f"{which}{more}.", numbers, to_do=True)]
    if condition > _CONDITION:
        said = (
            f"A condition of {condition:.2g} makes gradients large where the curvature is least; measure the variables "
            "in units in which the diagonal of Q is near 1."
        )
        found.append(Finding("curvature", said, to_do=True))
    return found


def smoothing(
    s: Subject, decided: Decided | None, seconds: float, numbers: Mapping[str, Any]
) -> tuple[Smoothing | None, Part]:
    """What ``smoothing="auto"`` settles on by the decided samples, as ``PEARLoss.calibrate`` would; None without any.

    Where the ranges of idle variables would take longer than ``seconds``, they are not asked for. A curved objective
    gets none, or what ``curvature`` advises where its Hessian is singular.
    """
    if s.problem.is_curved:
        flat = numbers.get("curvature_rank", s.n) < s.n and numbers["max_curvature"] > 0
        return Smoothing.given(_little(numbers["max_curvature"]) if flat else 0.0), Part()
    if decided is None or s.costs is None or not bool(decided.solved.any()):
        return None, Part()
    rows, idle, skipped = decided.rows, decided.idle(s), ""
    if s.recourse is not None:
        assert s.values is not None
        found = choose_recourse_smoothing(s.recourse[rows], s.values[rows], "auto", None)
    elif idle and (len(rows) + 2 * min(idle, _MOST_IDLE)) * decided.seconds <= seconds:
        found = choose_smoothing(s.problem.relaxed()[rows], s.costs[rows], "auto")
    else:  # by the decisions that are there already
        bounds = s.problem.lb, s.problem.ub
        found = settle(s.problem.sign * s.costs[rows], decided.x, decided.solved, bounds, _unknown)
        if idle:
            skipped = f" The ranges of {counted(idle, 'variable')} that no decision used were left out for time."
    units = {} if found.units is None else {"unit_of_smoothing": found.units.numpy()}
    sentence = f"The objective is linear; from {counted(len(rows), 'sample')}, {found.note}.{skipped}"
    return found, Part([Finding("curvature", sentence, {"smoothing": found.value})], variables=units)


def _unknown(variables: Tensor) -> Tensor:
    """No ranges."""
    return torch.full((len(variables),), torch.nan, dtype=torch.float64)

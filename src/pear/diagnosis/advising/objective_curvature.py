"""The curvature of the objective: rank and condition of Q, and the smoothing that "auto" takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.recourse_decider import choose_recourse_smoothing
from pear.decisions.smoothing import Smoothing, choose_smoothing, smoothing_from_decisions
from pear.diagnosis.advising.sampled_decisions import SampledDecisions
from pear.diagnosis.advising.subject_and_findings import Array, Findings, Subject
from pear.wording import count_noun

_MOST_VARIABLES = 2000  # whose eigenvalues take a second or two
_NO_CURVATURE = 1e-10  # eigenvalues below this share of the largest count as zero
_CONDITION = 1e8
_MOST_IDLE = 256  # "auto" finds the ranges of at most so many variables


def describe_curvature(s: Subject, sampled: SampledDecisions | None, findings: Findings) -> None:
    """Describe the eigenvalues of the objective's Hessian. A linear objective has none."""
    if not s.problem.is_curved:
        return
    if s.n > _MOST_VARIABLES:
        why = f"{s.n:,} variables are too many to do so quickly"
        sentence = f"Rank and condition of the curvature were not computed: {why}."
        return findings.add("curvature", sentence, skipped_curvature=True)
    if s.problem.phi is None:
        _describe_eigenvalues(s, f"Q{s.first}", s.Q.toarray(), findings)
    elif sampled is not None and bool(sampled.solved.any()):
        H = sampled.verified.qp.H
        first = int(sampled.solved.nonzero()[0, 0]) if len(H) > 1 else 0
        _describe_eigenvalues(s, "The Hessian at the first decision", H[first].numpy(), findings)


def _describe_eigenvalues(s: Subject, where: str, H: Array, findings: Findings) -> None:
    """Describe rank, condition and largest eigenvalue of a Hessian H (n, n); ``where`` names it in the sentence."""
    sizes = np.abs(np.linalg.eigvalsh(H))
    top = float(sizes.max(initial=0.0))
    kept = sizes[sizes > _NO_CURVATURE * top] if top else sizes[:0]
    rank = len(kept)
    condition = float(kept.max() / kept.min()) if rank else float("nan")
    numbers: dict[str, Any] = {"curvature_rank": rank, "curvature_condition": condition, "max_curvature": top}
    if not rank:
        return findings.add("curvature", f"{where} is zero: the objective is linear.", **numbers)
    sentence = f"{where} has rank {rank:,} of {s.n:,}, a condition of {condition:.2g} and eigenvalues up to {top:.3g}"
    if rank == s.n:
        sentence += ": every decision is unique."
    else:
        sentence += (
            f"; along {count_noun(s.n - rank, 'direction')} the objective is linear, where decisions can jump or tie. "
            "smoothing='auto' adds the curvature that is missing there."
        )
    findings.add("curvature", sentence, **numbers)
    if condition > _CONDITION:
        sentence = (
            f"A condition of {condition:.2g} makes gradients large where the curvature is least; measure the variables "
            "in units in which the diagonal of Q is near 1."
        )
        findings.add("curvature", sentence, to_do=True)


def find_auto_smoothing(
    s: Subject, sampled: SampledDecisions | None, seconds: float, findings: Findings
) -> Smoothing | None:
    """Find the smoothing that ``smoothing="auto"`` chooses for the sampled decisions, as ``PEARLoss.calibrate`` does.

    The ranges of idle variables are left out if finding them would take longer than ``seconds``. An objective with a
    smooth term gets no smoothing.

    Returns:
        The smoothing, or None if no sample was decided.
    """
    if s.problem.phi is not None:
        return Smoothing.given(0.0)
    if sampled is None or s.costs is None or not bool(sampled.solved.any()):
        return None
    rows, idle, skipped = sampled.rows, sampled.count_idle(s), ""
    if s.recourse is not None:
        assert s.values is not None
        found = choose_recourse_smoothing(s.recourse[rows], s.values[rows], "auto", None)
    elif s.problem.is_curved or (idle and (len(rows) + 2 * min(idle, _MOST_IDLE)) * sampled.seconds <= seconds):
        found = choose_smoothing(s.problem.relaxed()[rows], s.costs[rows], "auto")
    else:  # by the decisions that are there already
        bounds = s.problem.lb, s.problem.ub
        found = smoothing_from_decisions(
            s.problem.sign * s.costs[rows], sampled.x, sampled.solved, bounds, _unknown_ranges
        )
        if idle:
            skipped = f" The ranges of {count_noun(idle, 'variable')} that no decision used were left out for time."
    kind = "quadratic" if s.problem.is_curved else "linear"
    sentence = f"The objective is {kind}; from {count_noun(len(rows), 'sample')}, {found.note}.{skipped}"
    findings.add("curvature", sentence, smoothing=found.value, least_curvature=found.floor)
    if found.units is not None:
        findings.variables["unit_of_smoothing"] = found.units.numpy()
    return found


def _unknown_ranges(variables: Tensor) -> Tensor:
    """Return NaN for each of k variables, (k,): their ranges are not known."""
    return torch.full((len(variables),), torch.nan, dtype=torch.float64)

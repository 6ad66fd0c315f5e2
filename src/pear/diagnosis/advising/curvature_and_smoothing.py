"""Advice on the curvature of the objective (rank and condition number), and on the smoothing that "auto" chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.choose_smoothing import choose_smoothing, choose_smoothing_from_decisions
from pear.decisions.recourse_smoothing import choose_recourse_smoothing
from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.advice_subject import AdviceSubject, Array
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.sampled_decisions import SampledDecisions
from pear.wording import count_noun

_MOST_VARIABLES = 2000  # eigenvalues of this many variables take a second or two
_NO_CURVATURE = 1e-10  # eigenvalues below this share of the largest count as zero
_CONDITION = 1e8  # a larger condition is reported
_MOST_IDLE = 256  # "auto" finds the ranges of at most this many variables


def advise_on_curvature(s: AdviceSubject, sampled: SampledDecisions | None, findings: Findings) -> None:
    """Add findings on the rank and the condition number of the objective's Hessian; none if the objective is linear."""
    if not s.problem.is_curved:
        return
    if s.n > _MOST_VARIABLES:
        why = f"{s.n:,} variables are too many to do so quickly"
        sentence = f"Rank and condition of the curvature were not computed: {why}."
        return findings.add("curvature", sentence, skipped_curvature=True)
    if s.problem.phi is None:
        _describe_curvature(s, f"Q{s.first}", s.Q.toarray(), findings)
    elif sampled is not None and bool(sampled.solved.any()):
        H = sampled.verified.qp.H
        first = int(sampled.solved.nonzero()[0, 0]) if len(H) > 1 else 0
        _describe_curvature(s, "The Hessian at the first decision", H[first].numpy(), findings)


def _describe_curvature(s: AdviceSubject, where: str, H: Array, findings: Findings) -> None:
    """Add findings on the rank, condition number and largest eigenvalue of a Hessian.

    Args:
        s: problem and samples.
        where: name of the Hessian, with which the sentence begins.
        H: (n, n) the Hessian.
        findings: receives the findings.
    """
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


def advise_on_smoothing(
    s: AdviceSubject, sampled: SampledDecisions | None, seconds: float, findings: Findings
) -> Smoothing | None:
    """Return the smoothing that ``PEARLoss`` with ``smoothing="auto"`` would choose for the sampled decisions.

    A finding describes the smoothing. An objective with a smooth term gets the smoothing 0 and no finding.

    Args:
        s: problem and samples.
        sampled: the sampled decisions, or None.
        seconds: time limit. The ranges of variables that lack a bound and are the same in all decisions need additional
            solves. If these would take longer than the limit, the smoothing is chosen without these ranges.
        findings: receives the finding.

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
    else:  # from decisions that are known already
        bounds = s.problem.lb, s.problem.ub
        found = choose_smoothing_from_decisions(
            s.problem.sign * s.costs[rows], sampled.x, sampled.solved, bounds, _no_smoothing_ranges
        )
        if idle:
            skipped = f" The ranges of {count_noun(idle, 'variable')} that no decision used were left out for time."
    kind = "quadratic" if s.problem.is_curved else "linear"
    sentence = f"The objective is {kind}; from {count_noun(len(rows), 'sample')}, {found.note}.{skipped}"
    findings.add("curvature", sentence, smoothing=found.value, least_curvature=found.floor)
    if found.units is not None:
        findings.variables["unit_of_smoothing"] = found.units.numpy()
    return found


def _no_smoothing_ranges(variables: Tensor) -> Tensor:
    """Return NaN, an unknown range, for each of k variables, (k,): finding the ranges would take too long."""
    return torch.full((len(variables),), torch.nan, dtype=torch.float64)

"""The integrality gap: how much better than the integer program its relaxation looks, on a few samples."""

from __future__ import annotations

import time
import warnings
from typing import Any

from torch import Tensor

from pear.decisions.solve import solve
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.sampled_decisions import SampledDecisions
from pear.diagnosis.advising.subject import Subject, evenly_spread_rows
from pear.diagnosis.wording import count_noun, format_seconds
from pear.errors import FailedSamplesWarning
from pear.optimality.duals_and_active_sets import Status
from pear.optimality.rule import INTEGRAL

_MOST = 16  # samples
_LARGE = 0.05  # from this gap on, the relaxation is a poor stand-in for the integer program
_TINY = 1e-12


def measure_integrality(s: Subject, sampled: SampledDecisions, limit: float, findings: Findings) -> None:
    """Measure the integrality gap on a few samples within ``limit`` seconds. A continuous problem adds no finding."""
    if not s.problem.is_integer:
        return
    if s.problem.is_curved:
        sentence = (
            "No solver here takes integers with a curved objective: training and pear.solve(problem.relaxed(), …) work "
            "on the relaxation; pear.regret and pear.fit's default metric cannot be taken on the problem as it is."
        )
        return findings.add("integrality", sentence, to_do=True, miqp=True)
    good = sampled.solved.nonzero()[:, 0]
    if len(good):
        at = good[evenly_spread_rows(len(good), _MOST)]
        _measure_gap(s, sampled.rows[at], sampled.x[at], limit, findings)


def _measure_gap(s: Subject, rows: Tensor, x: Tensor, limit: float, findings: Findings) -> None:
    """Compare the integer programs of samples ``rows`` (B,) with the decisions x (B, n) of their relaxations."""
    assert s.costs is not None
    assert s.problem.integer is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)  # what is not solved in time is counted below
        solve(s.problem[rows[:1]], s.costs[rows[:1]], on_failure="mask", time_limit=limit / 2)  # compiles
        began = time.perf_counter()
        found = solve(s.problem[rows], s.costs[rows], on_failure="mask", time_limit=limit)
        each = (time.perf_counter() - began) / len(rows)
    proven, late = found.solved, int((found.status == Status.TIME_LIMIT).sum())
    off = (x[:, s.problem.integer] - x[:, s.problem.integer].round()).abs().amax(1)
    whole = float((off <= INTEGRAL).double().mean())
    numbers: dict[str, Any] = {
        "integer_seconds": each,
        "integer_samples": len(rows),
        "integer_unproven": late,
        "integral_relaxations": whole,
    }
    if not bool(proven.any()):
        none = f"None of {count_noun(len(rows), 'integer program')} was proven within {format_seconds(limit)}"
        return findings.add("integrality", f"{none}; the gap is unknown.", to_do=True, **numbers)
    relaxed = s.problem.relaxed().objective(x, s.costs[rows])
    gaps = ((found.value - relaxed).abs() / found.value.abs().clamp(min=_TINY))[proven]
    gap, largest = float(gaps.mean()), float(gaps.max())
    not_proven = f"; {late} more were not proven within {format_seconds(limit)}" if late else ""
    sentence = (
        f"The relaxation looks {100 * gap:.2g} % better than the integer program on "
        f"{count_noun(int(proven.sum()), 'sample')} ({100 * largest:.2g} % at most), and {100 * whole:.0f} % of its "
        f"decisions are whole; an integer program takes {format_seconds(each)}{not_proven}."
    )
    findings.add("integrality", sentence, **numbers, integrality_gap=gap, integrality_gap_max=largest)
    if gap > _LARGE:
        sentence = (
            f"Losses train on the relaxation, and with a gap of {100 * gap:.2g} % its decisions are not "
            "those that are taken: rounding them is no option, regret is judged in integers. Compare with method "
            "'spo+', which solves the integer program in every step, by pear.tune; valid inequalities (cuts) in G "
            "narrow the gap for both."
        )
        findings.add("integrality", sentence, to_do=True)

"""Advice on the integrality gap between integer programs and their relaxations, and on the time of integer programs."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from torch import Tensor

from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.solve import solve
from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.sampled_decisions import SampledDecisions, spread_samples
from pear.errors import FailedSamplesWarning
from pear.optimality.rule import INTEGRAL
from pear.optimality.status import Status
from pear.problem import Model
from pear.problem.derived_problems import problem_without_plans
from pear.solvers.time_limit import limit_time
from pear.wording import count_noun, format_seconds

_MOST_INTEGER = 16  # samples whose integer program is solved
_FEW_ELASTIC = 6  # samples whose integer program is timed with its recourse
_LARGE = 0.05  # a larger gap is reported as something to act on


def advise_on_integrality(s: AdviceSubject, sampled: SampledDecisions, limit: float, findings: Findings) -> None:
    """Add findings on the integrality gap, measured on a few samples; none if the problem is continuous.

    Args:
        s: problem and samples.
        sampled: the sampled decisions of the relaxation.
        limit: time limit in seconds of the measured solves; a first solve, which compiles, may take half as long.
        findings: receives the findings.
    """
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
        at = good[spread_samples(len(good), _MOST_INTEGER)]
        _measure_integrality_gap(s, sampled.rows[at], sampled.x[at], limit, findings)


def _time_integer_programs(model: Model, s: AdviceSubject, rows: Tensor, limit: float) -> float:
    """Return the mean seconds of solving an integer program with recourse, measured on a few of the samples.

    Args:
        model: the model with its recourse.
        s: problem and samples.
        rows: (B,) positions of the samples.
        limit: time limit in seconds.
    """
    assert s.values is not None
    few = rows[spread_samples(len(rows), _FEW_ELASTIC)]
    decider = RecourseDecider(model[few])
    truth = decider.values(s.values[few].to(model.problem.device), None)
    with limit_time(limit):
        began = time.perf_counter()
        decider.solve_integers(truth, None)
        return (time.perf_counter() - began) / len(few)


def _measure_integrality_gap(s: AdviceSubject, rows: Tensor, x: Tensor, limit: float, findings: Findings) -> None:
    """Add findings that compare the optimal values of integer programs with those of their relaxations.

    Args:
        s: problem and samples.
        rows: (B,) positions of the samples.
        x: (B, n) the decisions of the relaxations.
        limit: as for ``advise_on_integrality``.
        findings: receives the findings.
    """
    assert s.costs is not None
    assert s.problem.integer is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)  # programs that are not solved in time are counted below
        solve(s.problem[rows[:1]], s.costs[rows[:1]], on_failure="mask", time_limit=limit / 2)  # compiles
        timed = problem_without_plans(s.problem[rows])
        began = time.perf_counter()
        found = solve(timed, s.costs[rows], on_failure="mask", time_limit=limit)
        each = (time.perf_counter() - began) / len(rows)
        if s.recourse is not None:
            each = _time_integer_programs(s.recourse, s, rows, limit)
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
    relaxed = s.problem[rows].relaxed().objective(x, s.costs[rows])
    # The gap is relative to the relaxation if the integer program is worth 0, and 0 if both are.
    size = torch.where(found.value == 0, relaxed, found.value).abs()
    gaps = ((found.value - relaxed).abs() / size).nan_to_num(nan=0.0)[proven]
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
            f"Losses train on the relaxation, and with a gap of {100 * gap:.2g} % its decisions are not those that are "
            "taken: rounding them is no option, regret is judged in integers. Compare with method 'spo+', which solves "
            "the integer program in every step, by pear.tune; valid inequalities (cuts) in G narrow the gap for both."
        )
        findings.add("integrality", sentence, to_do=True)

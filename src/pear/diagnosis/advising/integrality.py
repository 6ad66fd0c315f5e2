"""The integrality gap: how much better than the integer program its relaxation looks, on a few samples."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch

from pear.decisions.solve import solve
from pear.diagnosis.advising.decided import Decided
from pear.diagnosis.advising.finding import Finding, Part, counted, seconds
from pear.diagnosis.advising.subject import Subject, evenly
from pear.errors import FailedSamplesWarning
from pear.optimality.point import Status
from pear.optimality.rule import INTEGRAL

_MOST = 16  # samples
_LARGE = 0.05  # a gap from which the relaxation is another problem
_TINY = 1e-12


def integrality(s: Subject, decided: Decided, limit: float) -> Part:
    """The gap on a few samples, within a time limit in seconds; nothing of a continuous problem."""
    if not s.problem.is_integer:
        return Part()
    if s.problem.is_curved:
        said = (
            "No solver here takes integers with a curved objective: training and pear.solve(problem.relaxed(), …) work "
            "on the relaxation; pear.regret and pear.fit's default metric cannot be taken on the problem as it is."
        )
        return Part([Finding("integrality", said, {"miqp": True}, to_do=True)])
    good = decided.solved.nonzero()[:, 0]
    if not len(good):
        return Part()
    return Part(_gaps(s, decided, good[evenly(len(good), _MOST)], limit))


def _gaps(s: Subject, decided: Decided, at: torch.Tensor, limit: float) -> list[Finding]:
    assert s.costs is not None
    assert s.problem.integer is not None
    rows, x = decided.rows[at], decided.x[at]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)  # what is not solved in time is counted below
        solve(s.problem[rows[:1]], s.costs[rows[:1]], on_failure="mask", time_limit=limit / 2)  # compiles
        began = time.perf_counter()
        found = solve(s.problem[rows], s.costs[rows], on_failure="mask", time_limit=limit)
        each = (time.perf_counter() - began) / len(rows)
    proven, late = found.solved, int((found.status == Status.TIME_LIMIT).sum())
    whole = (x[:, s.problem.integer] - x[:, s.problem.integer].round()).abs().amax(1) <= INTEGRAL
    numbers: dict[str, Any] = {
        "integer_seconds": each,
        "integer_samples": len(rows),
        "integer_unproven": late,
        "integral_relaxations": float(whole.double().mean()),
    }
    if not bool(proven.any()):
        sentence = (
            f"None of {counted(len(rows), 'integer program')} was proven within {seconds(limit)}; the gap is unknown."
        )
        return [Finding("integrality", sentence, numbers, to_do=True)]
    relaxed = s.problem.relaxed().objective(x, s.costs[rows])
    gap = ((found.value - relaxed).abs() / found.value.abs().clamp(min=_TINY))[proven]
    numbers |= {"integrality_gap": float(gap.mean()), "integrality_gap_max": float(gap.max())}
    not_proven = f"; {late} more were not proven within {seconds(limit)}" if late else ""
    sentence = (
        f"The relaxation looks {100 * float(gap.mean()):.2g} % better than the integer program on "
        f"{counted(int(proven.sum()), 'sample')} ({100 * float(gap.max()):.2g} % at most), and "
        f"{100 * float(whole.double().mean()):.0f} % of its decisions are whole; an integer program takes "
        f"{seconds(each)}{not_proven}."
    )
    more = []
    if float(gap.mean()) > _LARGE:
        said = (
            f"Losses train on the relaxation, and with a gap of {100 * float(gap.mean()):.2g} % its decisions are not "
            "those that are taken: rounding them is no option, regret is judged in integers. Compare with method "
            "'spo+', which solves the integer program in every step, by pear.tune; valid inequalities (cuts) in G "
            "narrow the gap for both."
        )
        more = [Finding("integrality", said, to_do=True)]
    return [Finding("integrality", sentence, numbers), *more]

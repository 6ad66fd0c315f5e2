"""Decisions on some samples: failures, ties, degeneracy, idle constraints, stakes and the integrality gap."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.solve import solve
from pear.diagnosis.advising.subject_and_findings import Clock, Findings, Subject, evenly_spread_rows
from pear.errors import FailedSamplesWarning, SolveError
from pear.losses.recourse_outcome import RecourseOutcome
from pear.losses.regret_outcome import RegretOutcome
from pear.optimality.rule import INTEGRAL
from pear.optimality.status import Status
from pear.problem import Model
from pear.problem.derived_problems import problem_without_plans
from pear.sensitivity.uniqueness import is_unique
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.linalg.cholesky_factor import row_rank
from pear.solvers.time_limit import limit_time
from pear.wording import count_noun, format_seconds, list_names

_MOST = 256  # samples that are decided
_RANKED = 64  # samples whose tight constraints are counted
_ASKED = 32  # samples that are searched for a second optimal decision
_MOST_WORK = 1e9  # multiplications of a rank
_SAME = 1e-6  # relative
_FAR = 1e4  # a bound so many times beyond all decisions is reported


@dataclass(frozen=True)
class SampledDecisions:
    """Decisions of some of the samples. For an integer program, these are decisions of its relaxation.

    Attributes:
        rows: (B,) positions of the samples.
        verified: their solutions.
        seconds: seconds per solution.
    """

    rows: Tensor
    verified: VerifiedSolutions
    seconds: float

    @property
    def solved(self) -> Tensor:
        """(B,) bool: whether the sample has a decision."""
        return self.verified.solved

    @property
    def x(self) -> Tensor:
        """(B, n) decisions, exactly at the bounds that hold them."""
        v = self.verified
        return torch.where(v.active.lower, v.qp.lb, torch.where(v.active.upper, v.qp.ub, v.x))

    def count_idle(self, s: Subject) -> int:
        """Count the variables without two finite bounds that have the same value in all decisions."""
        used = np.ptp(self.x[self.solved].numpy(), 0) if bool(self.solved.any()) else np.zeros(s.n)
        return int(((used == 0) & ~np.isfinite(s.ub - s.lb)).sum())

    def spread(self, count: int) -> list[int]:
        """Return at most ``count`` positions of solved samples, evenly spread."""
        positions: list[int] = self.solved.nonzero()[:, 0][evenly_spread_rows(int(self.solved.sum()), count)].tolist()
        return positions


def decide_samples(s: Subject, seconds: float) -> SampledDecisions | None:
    """Decide as many samples as fit into the time limit ``seconds``, at least one. Return None without costs."""
    if s.costs is None:
        return None
    relaxed = s.problem.relaxed()
    solve_continuous_programs(relaxed[[0]], s.costs[:1], 0.0, "auto")  # compiles and prepares, which is not timed
    rows, each = evenly_spread_rows(s.samples, 1), 0.0
    while True:
        began = time.perf_counter()
        found = solve_continuous_programs(relaxed[rows], s.costs[rows], 0.0, "auto")
        spent = time.perf_counter() - began
        each, seconds = spent / len(rows), seconds - spent
        most = min(_MOST, s.samples)
        more = min(most, int(max(seconds, 0.0) / max(each, 1e-6)), 8 * len(rows))
        if more <= len(rows) or (more < 2 * len(rows) and more < most):  # not worth another call
            return SampledDecisions(rows, found, each)
        rows = evenly_spread_rows(s.samples, more)


def describe_decisions(s: Subject, sampled: SampledDecisions, seconds: float, findings: Findings) -> None:
    """Describe failures, degenerate decisions, ties, constraints that never bind, and what is at stake."""
    clock = Clock(seconds)
    _describe_failures(s, sampled, findings)
    if bool(sampled.solved.any()):
        _count_degenerate(s, sampled, clock, findings)
        _count_ties(s, sampled, clock, findings)
        _find_never_binding(s, sampled, findings)
        _find_far_bounds(s, sampled, findings)
        _measure_stakes(s, sampled, findings)


def _on_samples(s: Subject, count: int) -> str:
    """Describe in words the decisions that a sentence is about."""
    return f"{'of the relaxation ' if s.problem.is_integer else ''}on {_examined_samples(s, count)}"


def _examined_samples(s: Subject, count: int) -> str:
    """Say how many of the samples were examined."""
    return count_noun(count, "sample") if count == s.samples else f"{count:,} of {count_noun(s.samples, 'sample')}"


def _describe_failures(s: Subject, sampled: SampledDecisions, findings: Findings) -> None:
    """Add a sentence for every status other than SOLVED: the share of samples that have it, and the remedy."""
    status = sampled.verified.status
    for kind in status.unique().tolist():
        if kind != Status.SOLVED:
            share, name = float((status == kind).double().mean()), Status(kind).name
            which = f"{100 * share:.0f} % of the decisions {_on_samples(s, len(sampled.rows))} fail as {name}"
            numbers = {f"share_{name.lower()}": share}
            findings.add("decisions", f"{which}: {Status(kind).sentence}.", to_do=True, **numbers)


def _count_degenerate(s: Subject, sampled: SampledDecisions, clock: Clock, findings: Findings) -> None:
    """Count the decisions with more tight constraints than are independent."""
    active = sampled.verified.active
    A, G = s.A.toarray() if s.A.nnz < 4e7 else None, s.G
    if A is None or "A" in s.per_sample or "G" in s.per_sample:
        why = "A or G is too large or differs"
        return findings.add("degeneracy", f"Degenerate decisions were not counted{s.first}: {why}.")
    rank = row_rank(A)[0] if A.shape[0] ** 2 * s.n <= 4 * _MOST_WORK else A.shape[0]
    degenerate = []
    for i in sampled.spread(_RANKED):
        free, rows = ~active.fixed[i].numpy(), np.flatnonzero(active.rows[i].numpy())
        tight = np.concatenate([A[:, free], G[rows][:, np.flatnonzero(free)].toarray()])
        if not clock.left() or len(tight) ** 2 * max(int(free.sum()), 1) > _MOST_WORK:
            break
        degenerate.append(rank + len(rows) > row_rank(tight)[0])
    if not degenerate:
        why = "the problem is too large to do so quickly"
        return findings.add("degeneracy", f"Degenerate decisions were not counted: {why}.")
    share = sum(degenerate) / len(degenerate)
    sentence = (
        f"{100 * share:.0f} % of the decisions (of {_examined_samples(s, len(degenerate))}) are degenerate: more "
        "constraints are "
        f"tight than are independent{'; gradients are exact there too, multipliers are not unique' if share else ''}."
    )
    findings.add("degeneracy", sentence, degenerate_share=share, degenerate_samples=len(degenerate))


def _count_ties(s: Subject, sampled: SampledDecisions, clock: Clock, findings: Findings) -> None:
    """Count the samples that have a second decision of exactly the same cost."""
    if s.problem.phi is not None:
        return
    v, tied, asked = sampled.verified, 0, 0
    for i in sampled.spread(_ASKED):
        if not clock.left():
            break
        asked += 1
        one = slice(i, i + 1)
        if int(v.weak[one].count()):
            tied += not bool(is_unique(v.qp[one], v.active[one], v.weak[one]))
    if not asked:
        return findings.add("degeneracy", "Ties were not looked for: there was no time left.")
    share = tied / asked
    more = "; regret does not depend on which one is taken, but DecisionLayer needs smoothing there" if tied else ""
    sentence = (
        f"In {100 * share:.0f} % of {count_noun(asked, 'sample')} another decision is exactly as good (a tie){more}."
    )
    findings.add("degeneracy", sentence, tied_share=share, tied_samples=asked)


def _find_never_binding(s: Subject, sampled: SampledDecisions, findings: Findings) -> None:
    """Find the inequalities and bounds that hold no decision."""
    active, good = sampled.verified.active, sampled.solved
    rows, lower, upper = (part[good].double().mean(0).numpy() for part in (active.rows, active.lower, active.upper))
    findings.rows["binding_share"] = np.concatenate([np.ones(s.A.shape[0]), rows])
    findings.variables |= {"at_lower_share": lower, "at_upper_share": upper}
    kinds = {
        "inequalities": (rows, np.isfinite(s.h), s.rows[s.A.shape[0] :]),
        "lower bounds": (lower, np.isfinite(s.lb), s.variables),
        "upper bounds": (upper, np.isfinite(s.ub), s.variables),
    }
    if not any(there.any() for _, there, _ in kinds.values()):
        return
    said: list[str] = []
    numbers: dict[str, Any] = {}
    for kind, (binding, there, names) in kinds.items():
        never = np.flatnonzero((binding == 0) & there)
        numbers[f"never_binding_{kind.replace(' ', '_')}"] = len(never)
        if len(never):
            said.append(f"{len(never):,} of {int(there.sum()):,} {kind} ({list_names([names[k] for k in never], 3)})")
    where = f"the decisions {_on_samples(s, len(sampled.rows))}"
    sentence = f"In {where} {'; '.join(said)} never bind."
    findings.add(
        "constraints", sentence if said else f"Every inequality and bound binds in some of {where}.", **numbers
    )


def _find_far_bounds(s: Subject, sampled: SampledDecisions, findings: Findings) -> None:
    """Find bounds that are far beyond what any decision uses."""
    largest = float(sampled.x[sampled.solved].abs().max())
    far = [
        f"{name} ({bound:.3g})"
        for name, low, high in zip(s.variables, s.lb, s.ub, strict=True)
        for bound in (low, high)
        if np.isfinite(bound) and abs(bound) > _FAR * largest > 0
    ]
    if far:
        sentence = (
            f"{count_noun(len(far), 'bound')} are more than {_FAR:g} times what any decision uses, {largest:.3g}: "
            f"{list_names(far, 3)}; where they stand for no bound, write inf."
        )
        findings.add("constraints", sentence, to_do=True, far_bounds=len(far))


def _measure_stakes(s: Subject, sampled: SampledDecisions, findings: Findings) -> None:
    """Count the different decisions, and measure what a forecast of the mean loses."""
    good = sampled.solved
    x, rows = sampled.x[good], sampled.rows[good]
    if len(rows) < 2:
        return
    scale = x.abs().amax(0).clamp(min=1e-300)
    different = len((x / scale / _SAME).round().unique(dim=0))
    sentence = f"{len(rows):,} decisions {_on_samples(s, len(sampled.rows))} come to {different:,} different ones"
    lost = _judge_mean(s, rows, x)
    if lost is None:
        return findings.add("stakes", f"{sentence}.", different_decisions=different)
    share, each = lost.normalized, float(lost.regret.mean())
    if different == 1:
        sentence += ": whatever is forecast near these costs, nothing is lost, and there is nothing to learn."
    else:
        sentence += (
            f"; to decide on the mean of what is predicted loses {100 * share:.3g} % ({each:.3g} a sample), which is "
            "what a forecaster can save at most."
        )
    numbers = {"different_decisions": different, "regret_of_mean": share, "lost_on_mean": each}
    findings.add("stakes", sentence, to_do=different == 1, **numbers)


def _judge_mean(s: Subject, rows: Tensor, best: Tensor) -> RegretOutcome | None:
    """Measure the regret of deciding on the mean of the predicted values, in the relaxation. None if the solve fails.

    Args:
        s: problem and samples.
        rows: (B,) the samples to judge on.
        best: (B, n) their best decisions.
    """
    assert s.values is not None
    assert s.costs is not None
    mean = s.values.mean(0, keepdim=True)
    if s.recourse is not None:
        try:
            judged = RecourseOutcome(s.recourse.relaxed()[rows], s.values[rows])
            return RegretOutcome(judged(mean.expand(len(rows), -1)), judged.best)
        except SolveError:
            return None
    relaxed = s.problem.relaxed()[rows]
    same = s.costs.mean(0, keepdim=True).expand(1 if relaxed.batch is None else len(rows), -1)
    on_mean = solve_continuous_programs(relaxed, same, 0.0, "auto")
    if not bool(on_mean.solved.all()):
        return None
    return RegretOutcome.of_decisions(relaxed, on_mean.x.expand(len(rows), -1), best, s.costs[rows])


_MOST_INTEGER = 16  # samples
_FEW_ELASTIC = 6  # samples whose integer program is timed with its recourse
_LARGE = 0.05  # from this gap on, the relaxation is a poor stand-in for the integer program


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
        at = good[evenly_spread_rows(len(good), _MOST_INTEGER)]
        _measure_integrality_gap(s, sampled.rows[at], sampled.x[at], limit, findings)


def _time_elastic_integers(model: Model, s: Subject, rows: Tensor, limit: float) -> float:
    """The seconds of an integer program with its recourse, as a race judges it, on a few of the samples ``rows``."""
    assert s.values is not None
    few = rows[evenly_spread_rows(len(rows), _FEW_ELASTIC)]
    decider = RecourseDecider(model[few])
    truth = decider.values(s.values[few].to(model.problem.device), None)
    with limit_time(limit):
        began = time.perf_counter()
        decider.solve_integers(truth, None)
        return (time.perf_counter() - began) / len(few)


def _measure_integrality_gap(s: Subject, rows: Tensor, x: Tensor, limit: float, findings: Findings) -> None:
    """Compare the integer programs of samples ``rows`` (B,) with the decisions x (B, n) of their relaxations."""
    assert s.costs is not None
    assert s.problem.integer is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)  # what is not solved in time is counted below
        solve(s.problem[rows[:1]], s.costs[rows[:1]], on_failure="mask", time_limit=limit / 2)  # compiles
        timed = problem_without_plans(s.problem[rows])
        began = time.perf_counter()
        found = solve(timed, s.costs[rows], on_failure="mask", time_limit=limit)
        each = (time.perf_counter() - began) / len(rows)
        if s.recourse is not None:
            each = _time_elastic_integers(s.recourse, s, rows, limit)
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
    # relative to the relaxation where the integer program is worth 0; no gap where both are
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

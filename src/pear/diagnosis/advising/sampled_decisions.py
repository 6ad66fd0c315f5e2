"""Advice from decisions on some samples: failures, ties, degeneracy, constraints that never bind, regret at stake."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.findings import Findings
from pear.errors import SolveError
from pear.losses.recourse_judge import RecourseJudge
from pear.losses.regret_outcome import RegretOutcome
from pear.optimality.rule import RANK
from pear.optimality.status import Status
from pear.presolving.independent_rows import independent_rows
from pear.sensitivity.uniqueness import is_unique
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.wording import count_noun, list_names

_MOST = 256  # samples that are decided
_RANKED = 64  # samples whose tight constraints are counted
_ASKED = 32  # samples that are searched for a second optimal decision
_MOST_WORK = 1e9  # multiplications of a factorisation that finds a rank
_SAME = 1e-6  # relative difference of decisions that count as equal
_FAR = 1e4  # a bound this many times beyond all decisions is reported


@dataclass(frozen=True)
class SampledDecisions:
    """Decisions of B samples. For an integer program, these are decisions of its relaxation.

    Attributes:
        rows: (B,) positions of the samples among all samples.
        verified: the verified solutions.
        seconds: the mean time of one decision in seconds.
    """

    rows: Tensor
    verified: VerifiedSolutions
    seconds: float

    @property
    def solved(self) -> Tensor:
        """(B,) bool, whether the sample has a decision."""
        return self.verified.solved

    @property
    def x(self) -> Tensor:
        """(B, n) decisions. Variables at an active bound have exactly the value of this bound."""
        v = self.verified
        return torch.where(v.active.lower, v.qp.lb, torch.where(v.active.upper, v.qp.ub, v.x))

    def count_idle(self, s: AdviceSubject) -> int:
        """Return the number of variables that are constant over all decisions and have an infinite bound."""
        used = np.ptp(self.x[self.solved].numpy(), 0) if bool(self.solved.any()) else np.zeros(s.n)
        return int(((used == 0) & ~np.isfinite(s.ub - s.lb)).sum())

    def spread(self, count: int) -> list[int]:
        """Return the positions of at most ``count`` solved samples among the B samples, evenly spread."""
        positions: list[int] = self.solved.nonzero()[:, 0][spread_samples(int(self.solved.sum()), count)].tolist()
        return positions


def decide_samples(s: AdviceSubject, seconds: float) -> SampledDecisions | None:
    """Decide as many samples as fit into ``seconds``, but at least one. Return None if there are no costs."""
    if s.costs is None:
        return None
    relaxed = s.problem.relaxed()
    solve_continuous_programs(relaxed[[0]], s.costs[:1], 0.0, "auto")  # compilation and preparation are not timed
    rows, each = spread_samples(s.samples, 1), 0.0
    while True:
        began = time.perf_counter()
        found = solve_continuous_programs(relaxed[rows], s.costs[rows], 0.0, "auto")
        spent = time.perf_counter() - began
        each, seconds = spent / len(rows), seconds - spent
        most = min(_MOST, s.samples)
        more = min(most, int(max(seconds, 0.0) / max(each, 1e-6)), 8 * len(rows))
        if more <= len(rows) or (more < 2 * len(rows) and more < most):  # not worth another call
            return SampledDecisions(rows, found, each)
        rows = spread_samples(s.samples, more)


def advise_on_decisions(s: AdviceSubject, sampled: SampledDecisions, seconds: float, findings: Findings) -> None:
    """Add findings on failures, degenerate decisions, ties, constraints that never bind, and the regret at stake.

    Args:
        s: problem and samples.
        sampled: the sampled decisions.
        seconds: time limit of the counts of degenerate decisions and ties together.
        findings: receives the findings.
    """
    examination = _SampledDecisionsExamination(s, sampled, findings, time.perf_counter() + seconds)
    examination.describe_failures()
    if bool(sampled.solved.any()):
        examination.count_degenerate()
        examination.count_ties()
        examination.name_never_binding()
        examination.name_far_bounds()
        examination.measure_stakes()


class _SampledDecisionsExamination:
    """The examination of sampled decisions; each method adds findings.

    Args:
        s: problem and samples.
        sampled: the sampled decisions.
        findings: receives the findings.
        deadline: the value of ``time.perf_counter`` at which the counts of degenerate decisions and of ties end.
    """

    def __init__(self, s: AdviceSubject, sampled: SampledDecisions, findings: Findings, deadline: float) -> None:
        self.s, self.sampled, self.findings, self.deadline = s, sampled, findings, deadline
        prefix = "of the relaxation " if s.problem.is_integer else ""
        self._on_samples = f"{prefix}on {self._samples_in_words(len(sampled.rows))}"

    def _samples_in_words(self, count: int) -> str:
        """Return "N samples" if ``count`` is N, the number of all samples, otherwise "``count`` of N samples"."""
        total = self.s.samples
        return count_noun(count, "sample") if count == total else f"{count:,} of {count_noun(total, 'sample')}"

    def describe_failures(self) -> None:
        """Add a finding for every status other than SOLVED: the share of samples with this status, and the remedy."""
        status = self.sampled.verified.status
        for kind in status.unique().tolist():
            if kind != Status.SOLVED:
                share, name = float((status == kind).double().mean()), Status(kind).name
                which = f"{100 * share:.0f} % of the decisions {self._on_samples} fail as {name}"
                numbers = {f"share_{name.lower()}": share}
                self.findings.add("decisions", f"{which}: {Status(kind).sentence}.", to_do=True, **numbers)

    def count_degenerate(self) -> None:
        """Add a finding on the share of degenerate decisions.

        At a degenerate decision, the normals of the tight constraints are linearly dependent. Dependent rows of A alone
        do not count.
        """
        s, sampled, findings = self.s, self.sampled, self.findings
        active = sampled.verified.active
        A, G = s.A.toarray() if s.A.nnz < 4e7 else None, s.G
        if A is None or "A" in s.per_sample or "G" in s.per_sample:
            why = "A or G is too large or differs"
            return findings.add("degeneracy", f"Degenerate decisions were not counted{s.first}: {why}.")
        rank = independent_rows(A, RANK)[0] if A.shape[0] ** 2 * s.n <= 4 * _MOST_WORK else A.shape[0]
        degenerate = []
        for i in sampled.spread(_RANKED):
            free, rows = ~active.fixed[i].numpy(), np.flatnonzero(active.rows[i].numpy())
            tight = np.concatenate([A[:, free], G[rows][:, np.flatnonzero(free)].toarray()])
            if time.perf_counter() >= self.deadline or len(tight) ** 2 * max(int(free.sum()), 1) > _MOST_WORK:
                break
            degenerate.append(rank + len(rows) > independent_rows(tight, RANK)[0])
        if not degenerate:
            why = "the problem is too large to do so quickly"
            return findings.add("degeneracy", f"Degenerate decisions were not counted: {why}.")
        share = sum(degenerate) / len(degenerate)
        sentence = (
            f"{100 * share:.0f} % of the decisions (of {self._samples_in_words(len(degenerate))}) are degenerate: more "
            "constraints are tight than are independent"
            f"{'; gradients are exact there too, multipliers are not unique' if share else ''}."
        )
        findings.add("degeneracy", sentence, degenerate_share=share, degenerate_samples=len(degenerate))

    def count_ties(self) -> None:
        """Add a finding on the share of samples with a second decision of exactly the same cost."""
        s, sampled, findings = self.s, self.sampled, self.findings
        if s.problem.phi is not None:
            return
        v, tied, asked = sampled.verified, 0, 0
        for i in sampled.spread(_ASKED):
            if time.perf_counter() >= self.deadline:
                break
            one = slice(i, i + 1)
            if int(v.weak[one].count()):
                try:
                    tied += not bool(is_unique(v.qp[one], v.active[one], v.weak[one]))
                except SolveError:  # no solver could tell
                    continue
            asked += 1
        if not asked:
            return findings.add("degeneracy", "Ties were not counted: there was no time left, or no solver could tell.")
        share = tied / asked
        more = "; regret does not depend on which one is taken, but DecisionLayer needs smoothing there" if tied else ""
        which = f"{100 * share:.0f} % of {count_noun(asked, 'sample')}"
        sentence = f"In {which} another decision is exactly as good (a tie){more}."
        findings.add("degeneracy", sentence, tied_share=share, tied_samples=asked)

    def name_never_binding(self) -> None:
        """Add a finding that names the inequalities and bounds that bind in no decision."""
        s, sampled, findings = self.s, self.sampled, self.findings
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
                said.append(
                    f"{len(never):,} of {int(there.sum()):,} {kind} ({list_names([names[k] for k in never], 3)})"
                )
        where = f"the decisions {self._on_samples}"
        sentence = f"In {where} {'; '.join(said)} never bind."
        findings.add(
            "constraints", sentence if said else f"Every inequality and bound binds in some of {where}.", **numbers
        )

    def name_far_bounds(self) -> None:
        """Add a finding that names the bounds far beyond all decisions, if there are any."""
        s, sampled, findings = self.s, self.sampled, self.findings
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

    def measure_stakes(self) -> None:
        """Add a finding on the number of different decisions, and on the regret of deciding by mean values."""
        sampled, findings = self.sampled, self.findings
        good = sampled.solved
        x, rows = sampled.x[good], sampled.rows[good]
        if len(rows) < 2:
            return
        scale = x.abs().amax(0).clamp(min=1e-300)
        different = len((x / scale / _SAME).round().unique(dim=0))
        sentence = f"{len(rows):,} decisions {self._on_samples} come to {different:,} different ones"
        lost = self._judge_mean(rows, x)
        if lost is None:
            return findings.add("stakes", f"{sentence}.", different_decisions=different)
        share, each = lost.normalized, float(lost.regret.mean())
        if different == 1:
            sentence += ": whatever is forecast near these costs, nothing is lost, and there is nothing to learn."
        else:
            sentence += (
                f"; to decide on the mean of what is predicted loses {100 * share:.3g} % ({each:.3g} a sample), which "
                "is what a forecaster can save at most."
            )
        numbers = {"different_decisions": different, "regret_of_mean": share, "lost_on_mean": each}
        findings.add("stakes", sentence, to_do=different == 1, **numbers)

    def _judge_mean(self, rows: Tensor, best: Tensor) -> RegretOutcome | None:
        """Return the regret of deciding by the mean of all samples' values, or None if there is no decision under it.

        Integers are relaxed.

        Args:
            rows: (B,) positions of the samples whose regret is measured.
            best: (B, n) the best decisions of these samples.
        """
        s = self.s
        assert s.values is not None
        assert s.costs is not None
        mean = s.values.mean(0, keepdim=True)
        if s.recourse is not None:
            try:
                judged = RecourseJudge(s.recourse.relaxed()[rows], s.values[rows])
                return RegretOutcome(judged(mean.expand(len(rows), -1)), judged.best)
            except SolveError:
                return None
        relaxed = s.problem.relaxed()[rows]
        same = s.costs.mean(0, keepdim=True).expand(1 if relaxed.batch is None else len(rows), -1)
        on_mean = solve_continuous_programs(relaxed, same, 0.0, "auto")
        if not bool(on_mean.solved.all()):
            return None
        return RegretOutcome.of_decisions(relaxed, on_mean.x.expand(len(rows), -1), best, s.costs[rows])


def spread_samples(total: int, count: int) -> Tensor:
    """Return the positions of at most ``count`` samples, evenly spread over ``total`` samples.

    Example:
        >>> spread_samples(10, 3).tolist(), spread_samples(2, 3).tolist()
        ([0, 4, 9], [0, 1])
    """
    return torch.linspace(0, total - 1, min(total, count), dtype=torch.float64).round().long()

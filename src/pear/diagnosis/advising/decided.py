"""Decisions on the given costs: failures, ties, degenerate vertices, constraints that never bind, what is at stake."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pear.decisions.solve import solve_verified
from pear.diagnosis.advising.finding import Finding, Part, counted, some
from pear.diagnosis.advising.subject import Array, Clock, Subject, evenly
from pear.errors import SolveError
from pear.losses.recourse_outcome import RecourseOutcome
from pear.losses.regret import Outcome, outcome
from pear.optimality.point import Status
from pear.sensitivity.uniqueness import is_unique
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.linalg.rank import row_rank

_MOST = 256  # samples that are decided
_RANKED = 64  # samples whose tight constraints are counted
_ASKED = 32  # samples that are asked for another decision as good
_MOST_WORK = 1e9  # multiplications of a rank
_SAME = 1e-6  # relative
_FAR = 1e4  # times what decisions use: a bound that says nothing


@dataclass(frozen=True)
class Decided:
    """Decisions of some samples, of the relaxation where there are integers.

    Attributes:
        rows: (B,) which samples.
        verified: their solutions.
        seconds: that one of them takes.
    """

    rows: Tensor
    verified: VerifiedSolutions
    seconds: float

    @property
    def solved(self) -> Tensor:
        """(B,) bool."""
        return self.verified.solved

    @property
    def x(self) -> Tensor:
        """(B, n) decisions, exactly at the bounds that hold them."""
        v = self.verified
        return torch.where(v.active.lower, v.qp.lb, torch.where(v.active.upper, v.qp.ub, v.x))

    def hessian(self, i: int) -> Array:
        """(n, n) of the objective at decision i."""
        H = self.verified.qp.H
        array: Array = H[i if len(H) > 1 else 0].numpy()
        return array

    def idle(self, s: Subject) -> int:
        """Variables whose range neither finite bounds nor the decisions tell."""
        used = np.ptp(self.x[self.solved].numpy(), 0) if bool(self.solved.any()) else np.zeros(s.n)
        return int(((used == 0) & ~np.isfinite(s.ub - s.lb)).sum())


def decide(s: Subject, seconds: float) -> Decided | None:
    """Decide as many samples as fit into so many seconds, one at least; None without costs."""
    if s.costs is None:
        return None
    relaxed = s.problem.relaxed()
    solve_verified(relaxed[[0]], s.costs[:1], 0.0, "auto")  # compiles and prepares, which is not timed
    rows, each = evenly(s.samples, 1), 0.0
    while True:
        began = time.perf_counter()
        found = solve_verified(relaxed[rows], s.costs[rows], 0.0, "auto")
        spent = time.perf_counter() - began
        each, seconds = spent / len(rows), seconds - spent
        most = min(_MOST, s.samples)
        more = min(most, int(max(seconds, 0.0) / max(each, 1e-6)), 8 * len(rows))
        if more <= len(rows) or (more < 2 * len(rows) and more < most):  # not worth another call
            return Decided(rows, found, each)
        rows = evenly(s.samples, more)


def decisions(s: Subject, decided: Decided, seconds: float) -> Part:
    """What the decisions tell."""
    clock = Clock(seconds)
    found = _failures(s, decided)
    good = decided.solved
    if not bool(good.any()):
        return Part(found)
    found += [*_degenerate(s, decided, clock), *_ties(s, decided, clock)]
    never, rows, variables = _never_binding(s, decided)
    return Part([*found, *never, *_far_bounds(s, decided), *_stakes(s, decided)], rows, variables)


def on_samples(s: Subject, decided: Decided) -> str:
    """Which samples a sentence is about."""
    relaxed = "of the relaxation " if s.problem.is_integer else ""
    return f"{relaxed}on {tried(len(decided.rows), s)}"


def tried(count: int, s: Subject) -> str:
    """How many of the samples were looked at.

    Where not all were, it says so.
    """
    return counted(count, "sample") if count == s.samples else f"{count:,} of {counted(s.samples, 'sample')}"


def _failures(s: Subject, decided: Decided) -> list[Finding]:
    status = decided.verified.status
    found = []
    for kind in status.unique().tolist():
        if kind != Status.SOLVED:
            share = float((status == kind).double().mean())
            name = Status(kind).name
            which = f"{100 * share:.0f} % of the decisions {on_samples(s, decided)} fail as {name}"
            sentence = f"{which}: {Status(kind).sentence}."
            found.append(Finding("decisions", sentence, {f"share_{name.lower()}": share}, to_do=True))
    return found


def _degenerate(s: Subject, decided: Decided, clock: Clock) -> list[Finding]:
    """The share of decisions with more tight constraints than are independent."""
    v = decided.verified
    asked = decided.solved.nonzero()[:, 0][evenly(int(decided.solved.sum()), _RANKED)].tolist()
    A, G = s.A.toarray() if s.A.nnz < 4e7 else None, s.G
    if A is None or "A" in s.per_sample or "G" in s.per_sample:
        return [
            Finding("degeneracy", f"Degenerate decisions were not counted{s.first}: A or G is too large or differs.")
        ]
    rank = row_rank(A)[0] if A.shape[0] ** 2 * s.n <= 4 * _MOST_WORK else A.shape[0]
    counts = []
    for i in asked:
        free, rows = ~v.active.fixed[i].numpy(), np.flatnonzero(v.active.rows[i].numpy())
        tight = np.concatenate([A[:, free], G[rows][:, np.flatnonzero(free)].toarray()])
        if not clock.left() or len(tight) ** 2 * max(int(free.sum()), 1) > _MOST_WORK:
            break
        counts.append(rank + len(rows) > row_rank(tight)[0])
    if not counts:
        return [
            Finding("degeneracy", "Degenerate decisions were not counted: the problem is too large to do so quickly.")
        ]
    share = sum(counts) / len(counts)
    sentence = (
        f"{100 * share:.0f} % of the decisions (of {tried(len(counts), s)}) are degenerate: more constraints are tight "
        f"than are independent{'; gradients are exact there too, multipliers are not unique' if share else ''}."
    )
    return [Finding("degeneracy", sentence, {"degenerate_share": share, "degenerate_samples": len(counts)})]


def _ties(s: Subject, decided: Decided, clock: Clock) -> list[Finding]:
    """The share of decisions beside which another one is exactly as good."""
    v, tied, asked = decided.verified, 0, 0
    if s.problem.phi is not None:
        return []
    for i in decided.solved.nonzero()[:, 0][evenly(int(decided.solved.sum()), _ASKED)].tolist():
        if not clock.left():
            break
        asked += 1
        if int(v.weak[i : i + 1].count()):
            one = slice(i, i + 1)
            tied += not bool(is_unique(v.qp[one], v.active[one], v.weak[one]))
    if not asked:
        return [Finding("degeneracy", "Ties were not looked for: there was no time left.")]
    share, numbers = tied / asked, {"tied_share": tied / asked, "tied_samples": asked}
    sentence = f"In {100 * share:.0f} % of {counted(asked, 'sample')} another decision is exactly as good (a tie)"
    if not share:
        return [Finding("degeneracy", f"{sentence}.", numbers)]
    more = "; regret does not depend on which one is taken, but DecisionLayer needs smoothing there"
    return [Finding("degeneracy", f"{sentence}{more}.", numbers)]


def _never_binding(s: Subject, decided: Decided) -> tuple[list[Finding], dict[str, object], dict[str, object]]:
    active, good = decided.verified.active, decided.solved
    share = {name: getattr(active, name)[good].double().mean(0).numpy() for name in ("rows", "lower", "upper")}
    kinds = {
        "inequalities": (share["rows"], np.isfinite(s.h), s.rows[s.A.shape[0] :]),
        "lower bounds": (share["lower"], np.isfinite(s.lb), s.variables),
        "upper bounds": (share["upper"], np.isfinite(s.ub), s.variables),
    }
    said, numbers = [], {}
    for kind, (binding, there, names) in kinds.items():
        never = np.flatnonzero((binding == 0) & there)
        numbers[f"never_binding_{kind.replace(' ', '_')}"] = len(never)
        if len(never):
            said.append(f"{len(never):,} of {int(there.sum()):,} {kind} ({some([names[k] for k in never], 3)})")
    columns = {"binding_share": np.concatenate([np.ones(s.A.shape[0]), share["rows"]])}
    bounds = {"at_lower_share": share["lower"], "at_upper_share": share["upper"]}
    if not any(there.any() for _, there, _ in kinds.values()):
        return [], dict(columns), dict(bounds)
    where = f"the decisions {on_samples(s, decided)}"
    sentence = f"Every inequality and bound binds in some of {where}."
    if said:
        sentence = f"In {where} {'; '.join(said)} never bind."
    return [Finding("constraints", sentence, numbers)], dict(columns), dict(bounds)


def _far_bounds(s: Subject, decided: Decided) -> list[Finding]:
    used = np.abs(decided.x[decided.solved].numpy()).max(0)
    largest = float(used.max(initial=0.0))
    if not largest:
        return []
    far = [
        f"{name} ({bound:.3g})"
        for name, low, high, most in zip(s.variables, s.lb, s.ub, used, strict=True)
        for bound in (low, high)
        if np.isfinite(bound) and abs(bound) > _FAR * max(most, largest)
    ]
    if not far:
        return []
    sentence = (
        f"{counted(len(far), 'bound')} are more than {_FAR:g} times what any decision uses, {largest:.3g}: "
        f"{some(far, 3)}; where they stand for no bound, write inf."
    )
    return [Finding("constraints", sentence, {"far_bounds": len(far)}, to_do=True)]


def _stakes(s: Subject, decided: Decided) -> list[Finding]:
    """How many different decisions there are, and what the best fixed forecast loses."""
    good, x = decided.solved, decided.x
    if int(good.sum()) < 2 or s.costs is None:
        return []
    rows = decided.rows[good]
    scale = x[good].abs().amax(0).clamp(min=1e-300)
    different = len((x[good] / scale / _SAME).round().unique(dim=0))
    sentence = f"{int(good.sum()):,} decisions {on_samples(s, decided)} come to {different:,} different ones"
    numbers: dict[str, float] = {"different_decisions": different}
    lost = _lost_on_mean(s, rows, x[good])
    if lost is None:
        return [Finding("stakes", f"{sentence}.", numbers)]
    share, each = lost.normalized, float(lost.regret.mean())
    numbers |= {"regret_of_mean": share, "lost_on_mean": each}
    if different == 1:
        sentence = f"{sentence}: whatever is forecast near these costs, nothing is lost, and there is nothing to learn"
        return [Finding("stakes", f"{sentence}.", numbers, to_do=True)]
    more = (
        f"; to decide on the mean of what is predicted loses {100 * share:.3g} % ({each:.3g} a sample), which is what "
        "a forecaster can save at most"
    )
    return [Finding("stakes", f"{sentence}{more}.", numbers)]


def _lost_on_mean(s: Subject, rows: Tensor, best: Tensor) -> Outcome | None:
    """What decisions of the relaxation lose that are taken on the mean of what is predicted; None where they fail."""
    assert s.values is not None
    assert s.costs is not None
    mean = s.values.mean(0, keepdim=True)
    if s.recourse is not None:
        try:
            judged = RecourseOutcome(s.recourse.relaxed()[rows], s.values[rows])
            return Outcome(judged(mean.expand(len(rows), -1)), judged.best)
        except SolveError:
            return None
    relaxed = s.problem.relaxed()[rows]
    same = s.costs.mean(0, keepdim=True).expand(1 if relaxed.batch is None else len(rows), -1)
    on_mean = solve_verified(relaxed, same, 0.0, "auto")
    if not bool(on_mean.solved.all()):
        return None
    return outcome(relaxed, on_mean.x.expand(len(rows), -1), best, s.costs[rows])

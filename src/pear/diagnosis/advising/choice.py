"""Which solver "auto" takes and why, and which loss to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.finding import Finding, Part
from pear.diagnosis.advising.subject import Subject
from pear.problem import Problem
from pear.solvers.registry import Backend, in_turn, kind_of, resolve

_FEW = 50  # samples
_SMALL = 1e-3  # regret of the mean below which there is little to win

_KINDS = {
    "lp": "linear programs",
    "qp": "quadratic programs",
    "milp": "integer programs",
    "miqp": "integer programs with curvature",
}


def solver(s: Subject, smoothing: Smoothing | None) -> Part:
    """The row of the registry that trains, and the one that decides the problem as it is."""
    cost = torch.ones(1, s.n, dtype=torch.float64) if s.costs is None else s.costs[:1]
    scale = smoothing or Smoothing.given(0.0 if s.problem.is_curved else 1.0)
    if s.recourse is None:
        trained = _chosen(scale.problem(s.problem.relaxed()), scale.times_units(cost), scale.value)
    else:  # the elastic problem, whose slacks have a price
        trained = _chosen(s.recourse.elastic.problem.relaxed().to("cpu"), s.recourse.elastic.cost(cost), scale.value)
    found = [_finding(s, "training", *trained)]
    if s.problem.is_integer and s.problem.is_curved:
        return Part(found)
    as_it_is = _chosen(s.problem, cost, 0.0)
    if as_it_is[0] is not None and trained[0] is not None and as_it_is[0].name != trained[0].name:
        found.append(_finding(s, "decisions", *as_it_is))
    return Part(found)


def _chosen(problem: Problem, cost: torch.Tensor, smoothing: float) -> tuple[Backend, list[str], str]:
    """The first installed row that takes the problem, why those before it do not, and the kind of program."""
    qp = problem[[0]].canonical(cost, smoothing)
    kind = kind_of(qp) if problem.phi is None else "qp"
    able = resolve("auto", kind, problem.is_sparse)
    taken = next(in_turn([row for row in able if row.installed], qp))
    before = able[: able.index(taken)]
    passed = [
        f"{row.name} {'does not take one of this shape' if row.installed else 'is not installed'}" for row in before
    ]
    return taken, passed, kind


def _finding(s: Subject, what: str, row: Backend, passed: list[str], kind: str) -> Finding:
    form = "sparse" if s.problem.is_sparse else "dense"
    smoothed = " (what smoothing makes of a linear one)" if kind == "qp" and not s.problem.is_curved else ""
    why = f"the first in the table of pear solvers that takes {form} {_KINDS[kind]}{smoothed} of this size"
    others = f" ({'; '.join(passed)})" if passed else ""
    sentence = f"For {what} solver='auto' takes {row.name}, {why}{others}: {row.note}."
    return Finding("solver", sentence, {f"solver_{what}": row.name})


def loss(s: Subject, numbers: Mapping[str, Any]) -> Part:
    """What to train with, after what was found out about the problem."""
    found = [_first_choice(s, numbers)]
    if 1 < s.samples < _FEW:
        sentence = (
            f"{s.samples} samples are few: regret is a noisy guide, and the squared error may do better. Compare them "
            "on held-out samples with pear.tune(problem, X, C), whose candidates include it."
        )
        found.append(Finding("loss", sentence, to_do=True))
    lost = numbers.get("regret_of_mean")
    if lost is not None and 0 < lost < _SMALL:
        sentence = (
            f"To decide on the mean of what is predicted loses {100 * lost:.2g} % only: expect little from any loss, "
            "and check that the costs and the problem belong together."
        )
        found.append(Finding("loss", sentence, to_do=True))
    return Part(found)


def _first_choice(s: Subject, numbers: Mapping[str, Any]) -> Finding:
    rank = numbers.get("curvature_rank", s.n) if s.problem.is_curved else 0
    if s.recourse is not None:
        sentence = (
            f"Start with pear.PEARLoss(model): it counts what {s.recourse.recourse} makes of a decision that the true "
            "right-hand sides do not allow, and its gradient leads an infeasible forecast back."
        )
    elif not rank:
        sentence = (
            "Start with pear.PEARLoss(problem) and its defaults: a linear objective decides for vertices, where regret "
            "is flat or jumps; smoothing makes it differentiable, and guidance leads where it is flat."
        )
    elif rank < s.n:
        sentence = (
            "Start with pear.PEARLoss(problem, smoothing=…) and the smoothing named under curvature: the objective is "
            "curved in some directions only."
        )
    else:
        sentence = (
            "Start with pear.PEARLoss(problem): the objective is curved, decisions move with the costs, and the exact "
            "gradient of regret needs no smoothing."
        )
    return Finding("loss", sentence, {"loss": "PEARLoss", "method": "pear"})

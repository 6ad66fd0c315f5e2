"""The solver that "auto" chooses and why, and the loss to try first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.subject import Subject
from pear.problem import Problem
from pear.solvers.registry import kind_of, resolve, usable_backends

_FEW = 50  # samples
_SMALL = 1e-3  # regret of the mean below which there is little to win

_KINDS = {
    "lp": "linear programs",
    "qp": "quadratic programs",
    "milp": "integer programs",
    "miqp": "integer programs with curvature",
}


def name_solvers(s: Subject, smoothing: Smoothing | None, findings: Findings) -> None:
    """Name the solver that trains and, where it is another one, the solver that decides the problem as it is."""
    cost = torch.ones(1, s.n, dtype=torch.float64) if s.costs is None else s.costs[:1]
    scale = smoothing or Smoothing.given(0.0 if s.problem.is_curved else 1.0)
    if s.recourse is None:
        trained = _choose_solver(
            s, "training", scale.problem(s.problem.relaxed()), scale.times_units(cost), scale.value
        )
    else:  # the elastic problem, whose slacks have a price
        elastic = s.recourse.elastic
        trained = _choose_solver(s, "training", elastic.problem.relaxed().to("cpu"), elastic.cost(cost), scale.value)
    findings.add("solver", trained[1], solver_training=trained[0])
    if s.problem.is_integer and s.problem.is_curved:
        return
    decides = _choose_solver(s, "decisions", s.problem, cost, 0.0)
    if decides[0] != trained[0]:
        findings.add("solver", decides[1], solver_decisions=decides[0])


def _choose_solver(s: Subject, what: str, problem: Problem, cost: torch.Tensor, smoothing: float) -> tuple[str, str]:
    """Return the name of the first installed solver that accepts the problem, and a sentence with the reason."""
    qp = problem[[0]].canonical(cost, smoothing)
    kind = kind_of(qp) if problem.phi is None else "qp"
    able = resolve("auto", kind, problem.is_sparse)
    taken = next(usable_backends([row for row in able if row.installed], qp))
    passed = [
        f"{row.name} {'does not take one of this shape' if row.installed else 'is not installed'}"
        for row in able[: able.index(taken)]
    ]
    form = "sparse" if s.problem.is_sparse else "dense"
    smoothed = " (what smoothing makes of a linear one)" if kind == "qp" and not s.problem.is_curved else ""
    why = f"the first in the table of pear solvers that takes {form} {_KINDS[kind]}{smoothed} of this size"
    others = f" ({'; '.join(passed)})" if passed else ""
    return taken.name, f"For {what} solver='auto' takes {taken.name}, {why}{others}: {taken.note}."


def suggest_loss(s: Subject, findings: Findings) -> None:
    """Recommend a loss, given the findings of all other examinations."""
    numbers = findings.numbers
    findings.add("loss", _first_loss_to_try(s, numbers), loss="PEARLoss", method="pear")
    if 1 < s.samples < _FEW:
        sentence = (
            f"{s.samples} samples are few: regret is a noisy guide, and the squared error may do better. Compare them "
            "on held-out samples with pear.tune(problem, X, C), whose candidates include it."
        )
        findings.add("loss", sentence, to_do=True)
    lost = numbers.get("regret_of_mean")
    if lost is not None and 0 < lost < _SMALL:
        sentence = (
            f"To decide on the mean of what is predicted loses {100 * lost:.2g} % only: expect little from any loss, "
            "and check that the costs and the problem belong together."
        )
        findings.add("loss", sentence, to_do=True)


def _first_loss_to_try(s: Subject, numbers: Mapping[str, Any]) -> str:
    rank = numbers.get("curvature_rank", s.n) if s.problem.is_curved else 0
    if s.recourse is not None:
        return (
            f"Start with pear.PEARLoss(model): it counts what {s.recourse.recourse} makes of a decision that the true "
            "right-hand sides do not allow, and its gradient leads an infeasible forecast back."
        )
    if not rank:
        return (
            "Start with pear.PEARLoss(problem) and its defaults: a linear objective decides for vertices, where regret "
            "is flat or jumps; smoothing makes it differentiable, and guidance leads where it is flat."
        )
    if rank < s.n:
        return (
            "Start with pear.PEARLoss(problem, smoothing=…) and the smoothing named under curvature: the objective is "
            "curved in some directions only."
        )
    return (
        "Start with pear.PEARLoss(problem): the objective is curved, decisions move with the costs, and the exact "
        "gradient of regret needs no smoothing."
    )

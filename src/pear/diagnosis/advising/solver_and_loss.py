"""Advice on the solver that "auto" chooses, and on the loss to try first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.findings import Findings
from pear.problem import Problem
from pear.solvers.backend_registry import backend_kind, order_backends_by_cost, resolve_backends, usable_backends
from pear.wording import format_seconds

_FEW = 50  # fewer samples are reported
_SMALL = 1e-3  # a smaller regret of the decision on the mean is reported: there is little to win

_KINDS = {
    "lp": "linear programs",
    "qp": "quadratic programs",
    "milp": "integer programs",
    "miqp": "integer programs with curvature",
}


def advise_on_solvers(s: AdviceSubject, smoothing: Smoothing | None, findings: Findings) -> None:
    """Add a finding on the solver of training, which solves smoothed problems.

    If decisions use another solver, a second finding names that solver.
    """
    cost = torch.ones(1, s.n, dtype=torch.float64) if s.costs is None else s.costs[:1]
    scale = smoothing or Smoothing.given(0.0 if s.problem.is_curved else 1.0)
    if s.recourse is None:
        trained = _choose_advised_solver(
            s, "training", scale.problem(s.problem.relaxed()), scale.times_units(cost), scale.value
        )
    else:  # with recourse, the elastic problem is solved, in which violations have a price
        elastic = s.recourse.elastic
        trained = _choose_advised_solver(
            s, "training", elastic.problem.relaxed().to("cpu"), elastic.cost(cost), scale.value
        )
    findings.add("solver", trained[1], solver_training=trained[0])
    if s.problem.is_integer and s.problem.is_curved:
        return
    decides = _choose_advised_solver(s, "decisions", s.problem, cost, 0.0)
    if decides[0] != trained[0]:
        findings.add("solver", decides[1], solver_decisions=decides[0])


def _choose_advised_solver(
    s: AdviceSubject, what: str, problem: Problem, cost: torch.Tensor, smoothing: float
) -> tuple[str, str]:
    """Return the solver that "auto" uses for a problem: the first installed one that accepts the problem.

    The order is that of the table of solvers, or that of the expected times if they are known.

    Args:
        s: problem and samples.
        what: what the solver is for: "training" or "decisions".
        problem: the problem to solve.
        cost: (1, n) costs.
        smoothing: the smoothing λ.

    Returns:
        The name of the solver, and a sentence that says why "auto" uses it.
    """
    qp = problem[[0]].canonical(cost, smoothing)
    kind = backend_kind(qp) if problem.phi is None else "qp"
    table = resolve_backends("auto", kind, problem.is_sparse)
    able = order_backends_by_cost(table, qp)
    taken = next(usable_backends([row for row in able if row.installed], qp))
    passed = [
        f"{row.name} {'does not take one of this shape' if row.installed else 'is not installed'}"
        for row in able[: able.index(taken)]
    ]
    form = "sparse" if s.problem.is_sparse else "dense"
    smoothed = " (what smoothing makes of a linear one)" if kind == "qp" and not s.problem.is_curved else ""
    why = f"the first in the table of pear solvers that takes {form} {_KINDS[kind]}{smoothed} of this size"
    if able != table and taken.lp_seconds is not None:
        slower = next(row for row in able[able.index(taken) + 1 :] if row.lp_seconds is not None and row.installed)
        assert slower.lp_seconds is not None
        why = (
            f"which is expected to take {format_seconds(taken.lp_seconds.of(qp))} for one of these {form} "
            f"{_KINDS[kind]} where {slower.name} takes {format_seconds(slower.lp_seconds.of(qp))}"
        )
    others = f" ({'; '.join(passed)})" if passed else ""
    return taken.name, f"For {what} solver='auto' takes {taken.name}, {why}{others}: {taken.note}."


def advise_on_loss(s: AdviceSubject, findings: Findings) -> None:
    """Add findings that recommend a loss and warn of few samples or little regret. They depend on earlier findings."""
    numbers = findings.numbers
    findings.add("loss", _recommend_loss(s, numbers), loss="PEARLoss", method="pear")
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


def _recommend_loss(s: AdviceSubject, numbers: Mapping[str, Any]) -> str:
    """Return a sentence that recommends a loss.

    It depends on recourse and curvature; ``numbers`` are those of earlier findings.
    """
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
            "Start with pear.PEARLoss(problem) and its defaults: the objective is curved in some directions only, and "
            "smoothing='auto' adds what the others lack."
        )
    return (
        "Start with pear.PEARLoss(problem) and its defaults: the objective is curved, decisions move with the costs, "
        "and smoothing='auto' adds curvature only where there is very little."
    )

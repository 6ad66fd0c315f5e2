"""Advice on training: the solver that "auto" chooses, the loss to try first, and the measured time of an epoch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.sampled_decisions import SampledDecisions
from pear.diagnosis.advising.subject_and_findings import Clock, Findings, Subject, evenly_spread_rows
from pear.errors import FailedSamplesWarning, PearError
from pear.losses import PEARLoss
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.solvers.backend_registry import backend_kind, order_backends_by_cost, resolve_backends, usable_backends
from pear.train import FitConfig, fit
from pear.train.estimator.networks import make_network
from pear.train.history import Progress
from pear.train.racing.race import FIRST_STAGE
from pear.train.racing.race_folds import ENOUGH, FOLDS, count_race_folds
from pear.wording import count_noun, format_seconds

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
    """Choose the loss to start with by recourse and curvature, and return the sentence that recommends it."""
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


_MOST_TIMED = 512  # samples
_LEAST_TIMED = 8  # samples of a sparse problem, which differ in how many constraints they exchange
_EPOCHS = 6
_CALLS = 1.5  # mean cost of an epoch, in passes without a warm start
_LINEAR = 0.6  # share of the time limit that the linear model gets
_FEATURES = 5
_HIDDEN = (64,)
_NETWORKS = {"linear": "a linear model", "mlp": "a network with a hidden layer of 64"}


def time_epochs(s: Subject, sampled: SampledDecisions, smoothing: Smoothing, limit: float, findings: Findings) -> None:
    """Time an epoch over all samples, for the two forecasters of ``DecisionRegressor``.

    The first epoch has no warm starts and also solves the true problems, so it is reported separately. Compilation and
    one-time preparation are not counted.

    Args:
        s: problem and samples.
        sampled: the decided samples; only samples with a decision are trained on.
        smoothing: smoothing of the loss.
        limit: time limit in seconds.
        findings: receives the sentences.
    """
    if not bool(sampled.solved.any()) or not len(s.names):
        return
    numbers: dict[str, Any] = {}
    rows = sampled.rows[sampled.solved]
    try:
        each = _time_call(s, rows, smoothing)
        for name, what in _NETWORKS.items():
            if numbers and limit < _CALLS * each:
                findings.add("time", f"{what[0].upper()}{what[1:]} was not timed: there was no time left.")
                continue
            _time_each_epoch(s, rows[:1], smoothing, name, 0.0)  # compiles
            room = limit if numbers else limit * _LINEAR
            least = min(_LEAST_TIMED, s.samples) if s.problem.is_sparse else 1
            count = max(least, min(_MOST_TIMED, int(room / (_CALLS * max(each, 1e-6)))))
            chosen = _choose_training_rows(s, rows, count)
            times = _time_each_epoch(s, chosen, smoothing, name, room)
            limit -= sum(times)
            all_samples = s.samples / len(chosen)
            warm, first = median(times[1:]) * all_samples, times[0] * all_samples
            numbers |= {f"epoch_seconds_{name}": warm, f"first_epoch_seconds_{name}": first}
            sentence = (
                f"An epoch of pear.fit over {count_noun(s.samples, 'sample')} takes about {format_seconds(warm)} on "
                f"this machine with {what}, and the first one, without warm starts, {format_seconds(first)}: an "
                f"estimate from {count_noun(len(times) - 1, 'epoch')} after the first on "
                f"{count_noun(len(chosen), 'sample')}, in batches of {min(FitConfig.batch_size, len(chosen))}."
            )
            findings.add("time", sentence, **numbers)
    except PearError as error:
        sentence = f"An epoch could not be timed: {str(error).rstrip('.')}."
        findings.add("time", sentence, to_do=True, **numbers)
    each_integer = findings.numbers.get("integer_seconds")
    if each_integer is not None and numbers:
        _describe_judgements(s, each_integer, findings)


def _describe_judgements(s: Subject, each: float, findings: Findings) -> None:
    """Say how long a race takes to judge a contender in integers, ``each`` seconds for a program."""
    size = max(1, s.samples // FOLDS)
    folds = min(count_race_folds(1, s.problem), -(-ENOUGH // size))
    count = folds * size
    sentence = (
        f"The default training, a race, judges contenders after {FIRST_STAGE} epochs, {2 * FIRST_STAGE}, and so on: "
        f"{count_noun(count, 'integer program')} in {count_noun(folds, 'fold')}, about "
        f"{format_seconds(each * count)} each time. The best decisions take as long, once."
    )
    findings.add("time", sentence, check_seconds=each * count)


def _choose_training_rows(s: Subject, rows: Tensor, count: int) -> Tensor:
    """Choose ``count`` samples to train on. They are solved ones if there are enough, otherwise any samples."""
    whole = torch.arange(s.samples) if len(rows) == s.samples or count > len(rows) else rows
    return whole[evenly_spread_rows(len(whole), count)]


def _make_loss(problem: Problem | Model, smoothing: Smoothing) -> PEARLoss:
    """Make a new loss with this smoothing."""
    loss = PEARLoss(problem, on_failure="mask")
    loss.set_extra_state({"smoothing": smoothing.value, **smoothing.state()})
    return loss


def _time_call(s: Subject, rows: Tensor, smoothing: Smoothing) -> float:
    """Time a forward and a backward pass of one sample in seconds, after a first pass that compiles and prepares."""
    assert s.values is not None
    device, elapsed = problem_of_model(s.given).device, 0.0
    for row in (rows[:1], rows[-1:]):
        true = s.values[row].to(device)
        predicted = s.values.mean(0, keepdim=True).to(device).requires_grad_()
        loss = _make_loss(s.given[row], smoothing)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)
            loss(predicted, true).backward()
        elapsed = time.perf_counter() - began
    return elapsed


def _time_each_epoch(s: Subject, rows: Tensor, smoothing: Smoothing, name: str, limit: float) -> list[float]:
    """Return the seconds of each epoch on these samples. At least two epochs run, more if they fit into the limit."""
    assert s.values is not None
    device = problem_of_model(s.given).device
    clock, ends = Clock(limit), []
    features = torch.randn(len(rows), _FEATURES, generator=torch.Generator().manual_seed(0)).to(device)
    model: nn.Module = make_network(name, _FEATURES, len(s.names), _HIDDEN, seed=0).to(device)
    costs = s.values[rows].float().to(device)

    def note(now: Progress) -> bool:
        ends.append(time.perf_counter())
        return len(ends) > 1 and not clock.left()

    config = FitConfig(max_epochs=_EPOCHS, check_every=_EPOCHS, start="standardised", data_parallel=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)
        loss = _make_loss(s.given[rows], smoothing)
        began = time.perf_counter()
        fit(model, loss, (features, costs), (features[:1], costs[:1]), lambda p, c: 0.0, config, progress=note)
    return [end - start for start, end in zip([began, *ends], ends, strict=False)]

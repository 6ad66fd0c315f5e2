"""How long an epoch takes on this machine: a few epochs of ``pear.fit`` on some of the samples, measured."""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.decided import Decided
from pear.diagnosis.advising.finding import Finding, Part, counted, seconds
from pear.diagnosis.advising.subject import Clock, Subject, evenly
from pear.errors import FailedSamplesWarning, PearError
from pear.losses import PEARLoss
from pear.problem import Model, Problem
from pear.train import FitConfig, fit
from pear.train.estimator.networks import make_network
from pear.train.history import Progress

_MOST = 512  # samples
_EPOCHS = 6
_CALLS = 1.5  # what an epoch and those after it take, in calls without a warm start
_LINEAR = 0.6  # share of the time for the linear model
_FEATURES = 5
_HIDDEN = (64,)
_CHECK = 0.2  # share of the samples that a check is taken on
_NETWORKS = {"linear": "a linear model", "mlp": "a network with a hidden layer of 64"}


def epoch_time(s: Subject, decided: Decided, smoothing: Smoothing, limit: float, integer_seconds: float | None) -> Part:
    """Seconds of an epoch over all samples, for the two forecasters of ``DecisionRegressor``.

    The first epoch has no warm starts and solves the true problems; it is told apart from the others. Compilation and
    what is prepared once are not counted.

    Args:
        s: problem and samples.
        decided: which samples have a decision.
        smoothing: of the loss.
        limit: seconds that may be spent.
        integer_seconds: that one integer program takes, or None.
    """
    if not bool(decided.solved.any()) or not len(s.names):
        return Part()
    found: list[Finding] = []
    numbers: dict[str, Any] = {}
    rows = decided.rows[decided.solved]
    try:
        each = _one_call(s, rows, smoothing)
        for name, what in _NETWORKS.items():
            if found and limit < _CALLS * each:
                said = f"{what[0].upper()}{what[1:]} was not timed: there was no time left."
                found.append(Finding("time", said))
                continue
            _epochs(s, rows[:1], smoothing, name, 0.0)  # compiles
            room = limit if found else limit * _LINEAR
            chosen = _spread_out(s, rows, max(1, min(_MOST, int(room / (_CALLS * max(each, 1e-6))))))
            times = _epochs(s, chosen, smoothing, name, room)
            limit -= sum(times)
            warm = median(times[1:]) * s.samples / len(chosen)
            numbers |= {
                f"epoch_seconds_{name}": warm,
                f"first_epoch_seconds_{name}": times[0] * s.samples / len(chosen),
            }
            found.append(_said(s, what, len(chosen), times, numbers))
    except PearError as error:
        found.append(Finding("time", f"An epoch could not be timed: {str(error).rstrip('.')}.", numbers, to_do=True))
    if integer_seconds is not None and numbers:
        found.append(_check(s, integer_seconds))
    return Part(found)


def _spread_out(s: Subject, rows: Tensor, count: int) -> Tensor:
    """Samples to train on: those that are known to have a decision, and where all have one, any others, too."""
    whole = torch.arange(s.samples) if len(rows) == s.samples or count > len(rows) else rows
    return whole[evenly(len(whole), count)]


def _loss(problem: Problem | Model, smoothing: Smoothing) -> PEARLoss:
    """A fresh loss that goes on with this smoothing."""
    loss = PEARLoss(problem, on_failure="mask")
    loss.set_extra_state({"smoothing": smoothing.value, **smoothing.state()})
    return loss


def _one_call(s: Subject, rows: Tensor, smoothing: Smoothing) -> float:
    """Seconds of a forward and a backward pass for a sample, after one that compiles and prepares."""
    assert s.values is not None
    device, elapsed = s.problem_device, 0.0
    for row in (rows[:1], rows[-1:]):
        true = s.values[row].to(device)
        predicted = s.values.mean(0, keepdim=True).to(device).requires_grad_()
        loss = _loss(s.given[row], smoothing)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)
            loss(predicted, true).backward()
        elapsed = time.perf_counter() - began
    return elapsed


def _epochs(s: Subject, rows: Tensor, smoothing: Smoothing, name: str, limit: float) -> list[float]:
    """Seconds of each epoch on these samples, as many as fit into the limit, two at least."""
    assert s.values is not None
    device = s.problem_device
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
        loss = _loss(s.given[rows], smoothing)
        began = time.perf_counter()
        fit(model, loss, (features, costs), (features[:1], costs[:1]), lambda p, c: 0.0, config, progress=note)
    return [end - start for start, end in zip([began, *ends], ends, strict=False)]


def _said(s: Subject, what: str, count: int, times: list[float], numbers: dict[str, Any]) -> Finding:
    warm, first = list(numbers.values())[-2:]
    epochs = f"{counted(len(times) - 1, 'epoch')} after the first"
    sentence = (
        f"An epoch of pear.fit over {counted(s.samples, 'sample')} takes about {seconds(warm)} on this machine with "
        f"{what}, and the first one, without warm starts, {seconds(first)}: an estimate from {epochs} on "
        f"{counted(count, 'sample')}, in batches of {min(FitConfig.batch_size, count)}."
    )
    return Finding("time", sentence, dict(numbers))


def _check(s: Subject, each: float) -> Finding:
    count = max(1, round(_CHECK * s.samples))
    sentence = (
        f"A check of the validation regret, every {FitConfig.check_every} epochs, solves "
        f"{counted(count, 'integer program')} ({100 * _CHECK:.0f} % of the samples), about "
        f"{seconds(each * count)}."
    )
    return Finding("time", sentence, {"check_seconds": each * count})

"""The time of an epoch on this machine, measured by a few epochs of ``pear.fit`` on some of the samples."""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.sampled_decisions import SampledDecisions
from pear.diagnosis.advising.subject import Clock, Subject, evenly_spread_rows
from pear.diagnosis.wording import count_noun, format_seconds
from pear.errors import FailedSamplesWarning, PearError
from pear.losses import PEARLoss
from pear.problem import Model, Problem
from pear.train import FitConfig, fit
from pear.train.estimator.networks import make_network
from pear.train.history import Progress

_MOST = 512  # samples
_EPOCHS = 6
_CALLS = 1.5  # mean cost of an epoch, in passes without a warm start
_LINEAR = 0.6  # share of the time limit that the linear model gets
_FEATURES = 5
_HIDDEN = (64,)
_CHECK = 0.2  # share of the samples used for validation
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
            chosen = _choose_training_rows(s, rows, max(1, min(_MOST, int(room / (_CALLS * max(each, 1e-6))))))
            times = _time_each_epoch(s, chosen, smoothing, name, room)
            limit -= sum(times)
            all_samples = s.samples / len(chosen)
            warm, first = median(times[1:]) * all_samples, times[0] * all_samples
            numbers |= {f"epoch_seconds_{name}": warm, f"first_epoch_seconds_{name}": first}
            sentence = (
                f"An epoch of pear.fit over {count_noun(s.samples, 'sample')} takes about {format_seconds(warm)} on "
                "this machine "
                f"with {what}, and the first one, without warm starts, {format_seconds(first)}: an estimate from "
                f"{count_noun(len(times) - 1, 'epoch')} after the first on {count_noun(len(chosen), 'sample')}, in "
                "batches "
                f"of {min(FitConfig.batch_size, len(chosen))}."
            )
            findings.add("time", sentence, **numbers)
    except PearError as error:
        sentence = f"An epoch could not be timed: {str(error).rstrip('.')}."
        findings.add("time", sentence, to_do=True, **numbers)
    each_integer = findings.numbers.get("integer_seconds")
    if each_integer is not None and numbers:
        count = max(1, round(_CHECK * s.samples))
        sentence = (
            f"A check of the validation regret, every {FitConfig.check_every} epochs, solves "
            f"{count_noun(count, 'integer program')} ({100 * _CHECK:.0f} % of the samples), about "
            f"{format_seconds(each_integer * count)}."
        )
        findings.add("time", sentence, check_seconds=each_integer * count)


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
    device, elapsed = s.problem_device, 0.0
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
        loss = _make_loss(s.given[rows], smoothing)
        began = time.perf_counter()
        fit(model, loss, (features, costs), (features[:1], costs[:1]), lambda p, c: 0.0, config, progress=note)
    return [end - start for start, end in zip([began, *ends], ends, strict=False)]

"""Advice on time: measured training epochs, and the integer programs that the default training, a race, solves."""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pear.decisions.smoothing import Smoothing
from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.sampled_decisions import SampledDecisions, spread_samples
from pear.errors import FailedSamplesWarning, PearError
from pear.losses import PEARLoss
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.train import FitConfig, fit
from pear.train.blocked_folds import FOLDS
from pear.train.estimator.networks import make_network
from pear.train.history import Progress
from pear.train.racing.contender import FIRST_STAGE
from pear.train.racing.race_folds import ENOUGH, count_race_folds
from pear.wording import count_noun, format_seconds

_MOST_TIMED = 512  # samples
_LEAST_TIMED = 8  # samples of a sparse problem; their times differ widely
_EPOCHS = 6
_CALLS = 1.5  # mean time of an epoch, in passes without a warm start
_LINEAR = 0.6  # the linear model gets this share of the time limit
_FEATURES = 5  # random features of each sample
_HIDDEN = (64,)
_NETWORKS = {"linear": "a linear model", "mlp": "a network with a hidden layer of 64"}


def advise_on_epoch_times(
    s: AdviceSubject, sampled: SampledDecisions, smoothing: Smoothing, limit: float, findings: Findings
) -> None:
    """Add findings on the time of a training epoch over all samples, estimated from measured epochs on some samples.

    A linear model is timed, and a small network if the limit allows it. The first epoch is reported separately, because
    it has no warm starts and also solves the problems under the true costs. Compilation and preparation are not
    counted.

    Args:
        s: problem and samples.
        sampled: the sampled decisions.
        smoothing: smoothing of the loss.
        limit: time limit in seconds.
        findings: receives the findings.
    """
    if not bool(sampled.solved.any()) or not len(s.names):
        return
    numbers: dict[str, Any] = {}
    rows = sampled.rows[sampled.solved]
    try:
        each = _time_loss_call(s, rows, smoothing)
        for name, what in _NETWORKS.items():
            if numbers and limit < _CALLS * each:
                findings.add("time", f"{what[0].upper()}{what[1:]} was not timed: there was no time left.")
                continue
            _time_each_epoch(s, rows[:1], smoothing, name, 0.0)  # compiles
            room = limit if numbers else limit * _LINEAR
            least = min(_LEAST_TIMED, s.samples) if s.problem.is_sparse else 1
            count = max(least, min(_MOST_TIMED, int(room / (_CALLS * max(each, 1e-6)))))
            chosen = _choose_epoch_samples(s, rows, count)
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
        _describe_race_times(s, each_integer, findings)


def _describe_race_times(s: AdviceSubject, each: float, findings: Findings) -> None:
    """Add a finding on the seconds that a race spends on integer programs each time it judges a contender.

    A race is the default training. It compares contenders, which are ways of training, by their regret on held-out
    folds.

    Args:
        s: problem and samples.
        each: seconds of one integer program.
        findings: receives the finding.
    """
    size = max(1, s.samples // FOLDS)
    folds = min(count_race_folds(1, s.problem), -(-ENOUGH // size))
    count = folds * size
    sentence = (
        f"The default training, a race, judges contenders after {FIRST_STAGE} epochs, {2 * FIRST_STAGE}, and so on: "
        f"{count_noun(count, 'integer program')} in {count_noun(folds, 'fold')}, about "
        f"{format_seconds(each * count)} each time. The best decisions take as long, once."
    )
    findings.add("time", sentence, check_seconds=each * count)


def _choose_epoch_samples(s: AdviceSubject, rows: Tensor, count: int) -> Tensor:
    """Return the positions of at most ``count`` samples to train on, evenly spread.

    Args:
        s: problem and samples.
        rows: positions of the solved samples, which are used if they are enough; otherwise all samples are used.
        count: the number of samples to choose.
    """
    whole = torch.arange(s.samples) if len(rows) == s.samples or count > len(rows) else rows
    return whole[spread_samples(len(whole), count)]


def _make_epoch_loss(problem: Problem | Model, smoothing: Smoothing) -> PEARLoss:
    """Return a new ``PEARLoss`` with the given smoothing. The loss leaves out samples that fail."""
    loss = PEARLoss(problem, on_failure="mask")
    loss.set_extra_state({"smoothing": smoothing.value, **smoothing.state()})
    return loss


def _time_loss_call(s: AdviceSubject, rows: Tensor, smoothing: Smoothing) -> float:
    """Return the seconds of a forward and backward pass of one sample, the last of the samples ``rows`` (B,).

    A pass of the first sample comes before, and is not timed, because it compiles.
    """
    assert s.values is not None
    device, elapsed = problem_of_model(s.given).device, 0.0
    for row in (rows[:1], rows[-1:]):
        true = s.values[row].to(device)
        predicted = s.values.mean(0, keepdim=True).to(device).requires_grad_()
        loss = _make_epoch_loss(s.given[row], smoothing)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)
            loss(predicted, true).backward()
        elapsed = time.perf_counter() - began
    return elapsed


def _time_each_epoch(s: AdviceSubject, rows: Tensor, smoothing: Smoothing, name: str, limit: float) -> list[float]:
    """Return the seconds of each epoch. At least two epochs run, and up to six if they fit into the limit.

    Args:
        s: problem and samples.
        rows: positions of the samples to train on.
        smoothing: smoothing of the loss.
        name: kind of forecaster, "linear" or "mlp".
        limit: time limit in seconds.
    """
    assert s.values is not None
    device = problem_of_model(s.given).device
    deadline, ends = time.perf_counter() + limit, []
    features = torch.randn(len(rows), _FEATURES, generator=torch.Generator().manual_seed(0)).to(device)
    model: nn.Module = make_network(name, _FEATURES, len(s.names), _HIDDEN, seed=0).to(device)
    costs = s.values[rows].float().to(device)

    def stop_in_time(now: Progress) -> bool:
        ends.append(time.perf_counter())
        return len(ends) > 1 and ends[-1] >= deadline

    config = FitConfig(max_epochs=_EPOCHS, check_every=_EPOCHS, start="standardised", data_parallel=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)
        loss = _make_epoch_loss(s.given[rows], smoothing)
        began = time.perf_counter()
        fit(model, loss, (features, costs), (features[:1], costs[:1]), lambda p, c: 0.0, config, progress=stop_in_time)
    return [end - start for start, end in zip([began, *ends], ends, strict=False)]

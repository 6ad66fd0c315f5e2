"""``tune``: finds the loss and the settings with the lowest validation regret."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.engines import Resources, check_engine_name, start
from pear.errors import ProblemError, TrainingError
from pear.losses import PEARLoss
from pear.losses.methods import as_method, make_loss
from pear.problem import Model, Problem
from pear.problem.model import model_input_count, model_with_predicted_rows, problem_of_model
from pear.problem.oracle import DECISIONS_ALONE
from pear.problem.sample_keys import count_keyed_samples
from pear.train.estimator.networks import make_network
from pear.train.fit_config import FitConfig
from pear.train.history import History
from pear.train.samples.features import feature_tensors, read_features
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch
from pear.train.samples.sample_rows import check_sample_rows, read_sample_rows
from pear.train.successive_halving import SuccessiveHalving, TuneProgress
from pear.train.time_order import sort_samples_by_time
from pear.train.training_loss import training_loss_smoothing_multiple
from pear.train.tune_candidate import CandidateRow, Settings, TuneCandidate
from pear.train.validation import describe_validation, hold_out_validation
from pear.train.validation_score import Metric, RegretMetric

FINALISTS = 2
"""The number of candidates that are trained to the end."""


@dataclass(frozen=True)
class TuneResult:
    """The result of ``tune``.

    Attributes:
        best: the settings with the lowest validation regret, in the form of ``tune(…, candidates=[best])``.
        loss: a new loss with these settings, which no training has changed. If it is PEAR's loss, it is calibrated on
            the training costs.
        model: the model that was trained with these settings, with its best weights.
        history: the history of the training of ``model``.
        rows: the results of all candidates.
        interrupted: whether the user has stopped ``tune`` by Ctrl-C; the result is then the best one so far.
    """

    best: Settings
    loss: nn.Module
    model: nn.Module
    history: History
    rows: tuple[CandidateRow, ...]
    interrupted: bool = False

    def table(self) -> list[CandidateRow]:
        """Return the rows of all candidates, the lowest validation regret first."""
        return sorted(self.rows, key=lambda row: math.inf if math.isnan(row.regret) else row.regret)

    def __str__(self) -> str:
        rows = self.table()
        wide = max(len(row.candidate) for row in rows)
        lines = [f"{'candidate':<{wide}}  epochs  validation regret  seconds"]
        for row in rows:
            line = f"{row.candidate:<{wide}}  {row.epochs:6d}  {row.regret:17.5g}  {row.seconds:7.1f}"
            lines.append(f"{line}  {row.note}".rstrip())
        return "\n".join(lines)


_DECIDING = tuple(name for name in DECISIONS_ALONE if name != "mse")


def default_candidates(problem: Problem | Model) -> list[Settings]:
    """Return the default candidates of ``tune``, at most twelve.

    They are the squared error, SPO+, and PEAR with several smoothings, injections and guidances. For a problem with a
    quadratic term the smoothing does not vary, and SPO+ is left out. SPO+ is also left out for a model that predicts
    right-hand sides or quadratic terms. For an ``Oracle`` without a relaxation, the candidates are the squared error
    and methods that need only decisions, each of them with and without a small weight of the squared error.
    """
    if not (oracle := problem_of_model(problem)).has_program and getattr(oracle, "relaxation", None) is None:
        weights = [0.0, 0.01]
        return [{"method": "mse"}, *({"method": name, "mse_weight": w} for name in _DECIDING for w in weights)]
    costs_alone = model_with_predicted_rows(problem) is None and getattr(problem, "curvature_map", None) is None
    problem = problem_of_model(problem)
    spo = "spo+relaxed" if problem.is_integer else "spo+"  # which trains on the relaxation, as PEAR does
    others: list[Settings] = [{"method": "mse"}]
    # (multiple of "auto", injection, guidance)
    grid: list[tuple[float, float, float]] = [(1, 0.0, 1.0), (1, 0.1, 1.0), (1, 0.0, 3.0), (1, 0.1, 0.0)]
    if not problem.is_curved:
        others += [{"method": spo, "mse_weight": 0.0}] if costs_alone else []
        grid += [(0.3, 0.0, 1.0), (0.3, 0.1, 1.0), (0.3, 0.1, 0.0), (3, 0.0, 1.0), (3, 0.1, 1.0), (0.1, 0.1, 1.0)]
    names = [("auto" if times == 1 else f"auto*{times:g}", beta, alpha) for times, beta, alpha in grid]
    return others + [{"method": "pear", "smoothing": lam, "injection": b, "guidance": a} for lam, b, a in names]


def tune(
    problem: Problem | Model,
    X: Any,
    C: Any,
    *,
    model: nn.Module | None = None,
    validation: float | tuple[Any, Any] | None = None,
    candidates: Sequence[Settings | Any] | None = None,
    config: FitConfig | None = None,
    metric: Metric | None = None,
    engine: str = "local",
    progress: Callable[[TuneProgress], None] | None = None,
) -> TuneResult:
    """Find the loss and the settings that decide best on validation samples.

    ``tune`` uses successive halving: all candidates train for a few epochs, the better half continues for twice as
    many, and so on; the last two train to the end. Candidates are compared by their validation regret. All candidates
    begin with the same weights and see the samples in the same order, except methods that keep the order of the data.

    Args:
        problem: the decision problem. A field that differs between samples, such as b, has a row for each row of ``X``,
            in order. A ``Model`` maps predicted values to costs.
        X: (N, p), p features: a tensor, an array or a DataFrame, or several inputs as in ``fit``.
        C: (N, n) the true costs, or (N, k) the k true values that the cost map of a ``Model`` maps to costs.
        model: a module from features to costs. Each candidate trains a copy of it. By default a linear model whose
            first weights depend on the seed.
        validation: the share of samples that is held out, by default 0.2, or a pair of features and costs. The held-out
            samples are the last rows, in the order of their dates if the rows have an index of dates.
        candidates: mappings with a method under "method" and options of the loss. A method is a name, a class of
            losses, a function from the problem to a loss, or a loss, which is copied. A method without options need not
            be in a mapping. The option "smoothing" may be a multiple of "auto":
            ``{"method": "pear", "smoothing": "auto*3"}``. By default ``default_candidates(problem)``.
        config: the settings of each training, as in ``fit``, except that no candidate races or begins with the squared
            error. The seed determines the order of the samples and the first weights of the default model. ``time_cap``
            is the time of all candidates together, including checks; each stage gets an equal part of it.
        metric: a function of predicted and true costs of the validation samples that returns a number; lower is better.
            By default the normalised regret.
        engine: where candidates train: "local", one after the other in this process; or "ray" or "ray://HOST:PORT", in
            parallel on a Ray cluster, with the same result.
        progress: a function that is called after every epoch; on Ray it is called a few times a second.

    Returns:
        The best settings, a new loss with these settings, the trained model, its history, and a table of all
        candidates.

    Raises:
        ProblemError: the samples, the validation samples or the candidates do not have the required form.
        TrainingError: every candidate fails.
        EngineError: the engine does not exist, or cannot be reached.
        MissingExtraError: the engine is Ray, which is not installed.

    Example:
        >>> import pear
        >>> task = pear.tasks.shortest_path((3, 3))
        >>> X, C = task.samples(120, degree=6, seed=1)
        >>> tuned = pear.tune(task.problem, X, C, config=pear.FitConfig(max_epochs=3, check_every=1))
        >>> len(tuned.table()), tuned.table()[0].regret == tuned.history.best.metric
        (12, True)
    """
    began, config = read_clock(), config or FitConfig()
    seed = config.seed if isinstance(config.seed, int) else config.seed.initial_seed()  # one order for all candidates
    config = replace(config, seed=seed)
    if config.start in ("race", "mse"):  # the squared error is one of the candidates
        config = replace(config, start="standardised")
    problem_of_model(problem)  # raises for anything but a Problem or a Model
    train, held_out = _split_tune_samples(problem, X, C, validation)
    choices = default_candidates(problem) if candidates is None else [_read_tune_candidate(one) for one in candidates]
    if not choices:
        raise ProblemError("candidates must hold at least one; got none")
    first = _make_tune_model(train, seed) if model is None else model
    check_engine_name(engine)
    field = [
        TuneCandidate(
            one,
            _make_tune_loss(problem, one, train.costs),
            copy.deepcopy(first),
            shuffled=as_method(one["method"]).shuffled,
        )
        for one in choices
    ]
    score = metric or RegretMetric(problem, held_out.costs, held_out.keys)
    with start(engine, resources=Resources(gpus=int(train.costs.is_cuda))) as opened:
        common = (config, train, held_out, score)
        interrupted = SuccessiveHalving(field, opened, common, progress, began).run(_tune_stages(len(field), config))
    best = min(field, key=lambda one: one.regret)
    if math.isinf(best.regret):
        if interrupted:
            raise KeyboardInterrupt
        raise TrainingError(f"every candidate failed; the first one: {field[0].note}")
    if not isinstance(validation, (tuple, list)):
        best.history.held_out, best.history.note = len(held_out), describe_validation(len(held_out), len(train))
    rows = tuple(one.row() for one in field)
    return TuneResult(best.settings, best.loss, best.model, best.history, rows, interrupted)


def _read_tune_candidate(given: Any) -> Settings:
    """Return the settings of a candidate, which the user may also give as a method without options.

    Raises:
        ProblemError: the settings name no method, or a method that does not exist.
    """
    settings: Settings = given if isinstance(given, Mapping) else {"method": given}
    if "method" not in settings:
        raise ProblemError(f"a candidate must name its method under 'method'; got {dict(settings)!r}")
    as_method(settings["method"])
    return settings


def _tune_stages(count: int, config: FitConfig) -> list[tuple[int, int]]:
    """Return a pair for every stage: the number of candidates, and the epoch that ends the stage.

    Epochs are counted from the beginning of the first stage. Every stage but the last ends at an epoch with a regular
    check, so that the stages add no checks to the history.

    Example:
        >>> _tune_stages(12, FitConfig(max_epochs=500))
        [(12, 21), (6, 41), (3, 81), (2, 500)]
    """
    stages, epochs = [], 2 * config.check_every
    while count > FINALISTS and epochs + 1 < config.max_epochs:
        stages.append((count, epochs + 1))
        count, epochs = -(-count // 2), 2 * epochs
    return [*stages, (count, config.max_epochs)]


def _make_tune_loss(problem: Problem | Model, settings: Settings, costs: Tensor) -> nn.Module:
    """Return the loss of a candidate. PEAR's loss is calibrated on the training costs (N, k)."""
    options = {name: value for name, value in settings.items() if name != "method"}
    times = training_loss_smoothing_multiple(options.get("smoothing"))
    if times is not None:
        options["smoothing"] = "auto"
    loss = make_loss(settings["method"], problem, **options)
    if isinstance(loss, PEARLoss):
        loss.calibrate(costs, times=times or 1.0)
    return loss


def _make_tune_model(train: MemorySamples, seed: int) -> nn.Module:
    """Return a linear model for these samples, whose first weights depend only on the seed."""
    features, costs = train.features, train.costs
    if not isinstance(features, Tensor) or features.dim() != 2:
        came = f"of shape {tuple(features.shape)}" if isinstance(features, Tensor) else "for several inputs"
        raise ProblemError(f"features {came} need a model of their own; pass model=…")
    return make_network("linear", features.shape[1], costs.shape[1], (), seed).to(costs.device)


def _split_tune_samples(
    problem: Problem | Model, X: Any, C: Any, validation: float | tuple[Any, Any] | None
) -> tuple[MemorySamples, MemorySamples]:
    """Return the training samples and the validation samples.

    The validation samples are those that the user gives, or the last rows of X and C.
    """
    rows = count_keyed_samples(problem)
    given, *_ = sort_samples_by_time((X, C), rows is not None)
    samples = _read_tune_samples(problem, given, "X and C")
    if not isinstance(validation, (tuple, list)):
        return hold_out_validation(samples, validation, problem)
    if rows is not None:
        raise ProblemError(
            f"the problem has fields of its own for {rows} samples; put the validation samples last in X, "
            "C and the problem, and pass their share as validation"
        )
    return samples, _read_tune_samples(problem, validation, "validation")


def _read_tune_samples(problem: Problem | Model, pair: Sequence[Any], name: str) -> MemorySamples:
    """Return features and costs as samples in memory.

    Args:
        problem: the problem or model that the samples belong to.
        pair: the features and the costs, or a triple that also has the row numbers of the samples in the problem.
        name: the name of the pair in error messages.

    Raises:
        ProblemError: the shapes do not fit, or features and costs have different pandas indices.
    """
    features = read_features(pair[0], f"the features of {name}")
    costs, wanted = read_sample_rows(pair[1], f"the costs of {name}"), model_input_count(problem)
    parts = feature_tensors(features)
    if costs.dim() != 2 or costs.shape[1] != wanted or any(len(part) != len(costs) for part in parts):
        raise ProblemError(
            f"{name} must be features (N, p) and costs (N, {wanted}) of the same samples; got shapes "
            f"{' and '.join(str(tuple(part.shape)) for part in (*parts, costs))}"
        )
    check_sample_rows(pair[0], pair[1])
    return MemorySamples(SampleBatch(features, costs, torch.from_numpy(pair[2]) if len(pair) > 2 else None))

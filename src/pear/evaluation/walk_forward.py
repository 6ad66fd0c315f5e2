"""``pear.walk_forward``: forecasters compared, trained on the past and tested by their later decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from pear.errors import ForecasterError, ProblemError, SolveError
from pear.evaluation.forecasters import (
    EstimatorForecaster,
    Forecaster,
    MeanForecaster,
    as_forecaster,
)
from pear.evaluation.time_splits import Fold, Rows, read_folds
from pear.evaluation.walk_forward_result import MEAN, WalkForward
from pear.evaluation.walk_samples import Array, Samples, as_rows
from pear.losses.forecast_judge import ForecastJudge
from pear.losses.paired_difference import difference_block_length
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.problem.pandas_data import pandas_columns
from pear.train.samples.sample_rows import read_sample_values, sample_rows_to_tensor
from pear.wording import list_positions


class WalkProgress(NamedTuple):
    """How far a comparison is.

    Attributes:
        forecaster: the name of the forecaster that has just forecast a fold.
        fold: the number of the fold, from 1.
        folds: the number of folds.
        done: pairs of forecaster and fold that are done.
        total: all such pairs.
    """

    forecaster: str
    fold: int
    folds: int
    done: int
    total: int


def walk_forward(
    problem: Problem | Model,
    X: Any,
    C: Any,
    forecasters: Mapping[str, Any],
    splits: Any = 5,
    *,
    groups: Any = None,
    retrain: bool = True,
    reference: str | None = None,
    block: int | None = None,
    progress: Callable[[WalkProgress], None] | None = None,
    known: Any = None,
) -> WalkForward:
    """Compare forecasters by what their decisions cost over time: train on the past, decide for what follows.

    Every forecaster is trained on the training rows of a fold and forecasts its test rows. The decisions under the
    forecasts are paid for at the true costs. Beside the given forecasters stands the constant forecast "mean of the
    training costs": a forecaster that is worse than it is worth nothing.

    Args:
        problem: the decision problem, with its integers. With a ``Model`` the k values that its cost map takes are
            forecast. Where samples have fields of their own, there is a row for each of X.
        X: (N, p) features in time order: an array or a DataFrame. Dates in an index must be in order.
        C: (N, k) the true costs or values; (N,) where k is 1.
        forecasters: by name, estimators with ``fit(X, y)`` and ``predict(X)`` (scikit-learn, LightGBM,
            ``DecisionRegressor``; a copy is trained on every fold, and one for each column where an estimator takes a
            single output), functions ``(X_train, C_train, X_test) -> forecasts``, and tables (N, k) of forecasts that
            were made elsewhere. A pair ``(estimator, table)`` has features of its own: an array with a row for each
            sample, or, with groups, for each value.
        splits: the number of test folds, each trained on all rows before it; ``pear.TimeSplits`` for a gap, a rolling
            window or other sizes; a splitter of scikit-learn; or pairs of row numbers.
        groups: (N·k,) for long tables, the id of the sample that each row belongs to, such as its day. Then X may have
            a row for each forecast value, C may be of shape (N·k,), and one model forecasts all values. Every group has
            k rows in the order of the problem's values; samples are in the order of the groups' first rows.
        retrain: whether to train anew for every fold. If False, the training rows of the first fold serve all.
        reference: the name of the forecaster that the others are compared with; the first one if left out.
        block: length of the blocks of the bootstrap, in rows; about the cube root of the number of tested rows if left
            out. Take a week, a season or another span after which losses have forgotten each other.
        progress: a function that is called after each fold of each forecaster.
        known: the known values of each of the N samples, if the model has any; see ``Model.with_known``. A
            ``DecisionRegressor`` of this model is trained with the known data of its rows.

    Raises:
        ForecasterError: a forecaster fails; the message names it and the fold.
        ProblemError: arguments do not go together.
        SolveError: a row has no best decision under the true costs.

    Example:
        >>> import numpy as np, pear
        >>> from sklearn.linear_model import LinearRegression
        >>> task = pear.tasks.shortest_path((3, 3))
        >>> X, C = map(np.asarray, task.samples(120, degree=1, noise=0.1))
        >>> found = pear.walk_forward(task.problem, X, C, {"least squares": LinearRegression()}, splits=3)
        >>> found.best_forecaster, found.regret.shape
        ('least squares', (2, 90))
    """
    samples = Samples(problem, X, C, groups, known)
    folds = read_folds(splits, samples.true, samples.true, len(samples))
    compared = _read_forecasters(forecasters, samples)
    reference = next(iter(compared)) if reference is None else reference
    if reference not in compared:
        raise ProblemError(f"there is no forecaster {reference!r} to compare with; only {', '.join(compared)}")
    tests = np.concatenate([fold.test for fold in folds])
    difference_block_length(len(tests), block)  # refused before hours of training, not after
    order = np.argsort(tests, kind="stable")
    tested = tests[order]
    judge = _judge_of(samples, tested)
    forecasts, seconds = _forecast_all(compared, samples, folds if retrain else _trained_once(folds), progress)
    forecasts = {name: values[order] for name, values in forecasts.items()}
    outcomes = {name: _judge(name, judge, samples, values, tested) for name, values in forecasts.items()}
    return WalkForward(
        forecasts=forecasts,
        true=samples.true[tested],
        regret=np.stack([outcome.regret.cpu().numpy() for outcome in outcomes.values()]),
        best=judge.best.cpu().numpy(),
        sample=tested,
        label=samples.labels[tested],
        fold=np.repeat(np.arange(1, len(folds) + 1), [len(fold.test) for fold in folds])[order],
        sense=problem_of_model(problem).sense,
        seconds=seconds,
        notes=_notes(compared, folds, retrain),
        reference=reference,
        block=block,
    )


def _read_forecasters(given: Mapping[str, Any], samples: Samples) -> dict[str, Forecaster]:
    """Return the forecasters by name, with the constant one last."""
    if not isinstance(given, Mapping) or not given:
        raise ProblemError(
            f'forecasters must be a dict of names and forecasters, such as {{"ridge": …}}; got {given!r}'
        )
    if MEAN in given or not all(isinstance(name, str) for name in given):
        raise ProblemError(f"names of forecasters must be texts other than {MEAN!r}, which is added; got {list(given)}")
    compared = {name: as_forecaster(name, one, samples) for name, one in given.items()}
    return {**compared, MEAN: MeanForecaster()}


def _trained_once(folds: list[Fold]) -> list[Fold]:
    """Return a single fold: the training rows of the first one, and the test rows of all."""
    tests = np.concatenate([fold.test for fold in folds])
    if np.isin(tests, folds[0].train).any():
        raise ProblemError("retrain=False trains on the first fold alone, and other folds test rows of its training")
    return [Fold(folds[0].train, tests)]


def _forecast_all(
    compared: dict[str, Forecaster],
    samples: Samples,
    folds: list[Fold],
    progress: Callable[[WalkProgress], None] | None,
) -> tuple[dict[str, Array], dict[str, float]]:
    """Train and forecast all folds; returns forecasts (T, k) in the order of the folds, and seconds, by name."""
    forecasts, seconds = {}, {}
    for i, (name, forecaster) in enumerate(compared.items()):
        parts, start = [], time.perf_counter()
        for number, fold in enumerate(folds, 1):
            with _Naming(name, f"fold {number} of {len(folds)}"):
                parts.append(_read_forecast(forecaster.forecast(samples, fold), samples, fold))
            if progress is not None:
                done = i * len(folds) + number
                progress(WalkProgress(name, number, len(folds), done, len(compared) * len(folds)))
        forecasts[name], seconds[name] = np.concatenate(parts), time.perf_counter() - start
    return forecasts, seconds


def _read_forecast(values: Any, samples: Samples, fold: Fold) -> Array:
    """Return forecasts as float64 (T, k), checked."""
    columns, own = pandas_columns(values), pandas_columns(samples.C)
    if columns != own and set(columns or ()) == set(own or (None,)):
        raise ProblemError(f"the forecasts have the columns of C in another order: {list(columns or ())[:5]}")
    found = np.asarray(as_rows(values), dtype=np.float64)
    if found.ndim == 1 and found.size == len(fold.test) * samples.true.shape[1]:  # sample by sample
        found = found.reshape(len(fold.test), -1)
    found = read_sample_values(samples.problem, found, "the forecasts")
    if len(found) != len(fold.test):
        raise ProblemError(f"{len(found)} forecasts came for {len(fold.test)} test rows")
    unusable = np.flatnonzero(~np.isfinite(found).all(1))
    if len(unusable):
        raise ProblemError(f"the forecast of row {fold.test[unusable[0]]} and {len(unusable) - 1} others is not finite")
    return found


def _judge_of(samples: Samples, tested: Rows) -> ForecastJudge:
    """Return the judge of all tested rows. Its errors name rows without a best decision by their numbers in X."""
    try:
        return ForecastJudge(
            samples.problem[tested.tolist()], sample_rows_to_tensor(samples.problem, samples.true[tested])
        )
    except SolveError as error:
        raise _with_row_numbers(error, tested) from error


def _judge(name: str, judge: ForecastJudge, samples: Samples, values: Array, tested: Rows) -> RegretOutcome:
    """Judge the decisions of one forecaster."""
    with _Naming(name, "its decisions"):
        try:
            return judge(sample_rows_to_tensor(samples.problem, values))
        except SolveError as error:
            raise _with_row_numbers(error, tested) from error


def _with_row_numbers(error: SolveError, tested: Rows) -> SolveError:
    """Return an error about some of the tested rows as one that names these rows by their numbers in X."""
    rows = [int(tested[i]) for i in error.samples]
    message = f"{list_positions('row', rows)} of X cannot be decided; counted among the tested rows: {error}"
    return SolveError(message, rows, error.statuses)


def _notes(compared: dict[str, Forecaster], folds: list[Fold], retrain: bool) -> list[str]:
    """Return sentences on how the comparison was made, where that is not what one expects."""
    notes = [
        f"{name} takes one output, so that {one.models_per_fold} models were trained on each fold, one for each column."
        for name, one in compared.items()
        if isinstance(one, EstimatorForecaster) and one.models_per_fold > 1
    ]
    if any(fold.train.max() > fold.test.min() for fold in folds[: None if retrain else 1]):
        notes.append(
            "Some folds are trained on rows after those that they are tested on: this is no walk forward in time."
        )
    if not retrain:
        notes.append("All forecasters were trained once, on the first fold.")
    return notes


class _Naming:
    """A context that turns an error of a forecaster into one that names the forecaster and the fold."""

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):  # an interrupt stays one
            raise ForecasterError(
                f"forecaster {self.name!r} failed ({self.where}): {kind.__name__ if kind else ''}: {error}"
            ) from error

"""``pear.walk_forward``: trains forecasters on the past, and compares them by what their later decisions cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pear.errors import ForecasterError, ProblemError, SolveError
from pear.evaluation.forecasters import (
    EstimatorForecaster,
    Forecaster,
    MeanForecaster,
    as_forecaster,
)
from pear.evaluation.time_splits import TimeFold, read_time_splits
from pear.evaluation.walk_forward_result import MEAN, WalkForward
from pear.evaluation.walk_samples import Array, WalkSamples, to_walk_table
from pear.losses.forecast_judge import ForecastJudge
from pear.losses.paired_difference import difference_block_length
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.problem.pandas_data import pandas_columns
from pear.train.samples.sample_rows import read_sample_values, sample_rows_to_tensor
from pear.wording import list_positions


class WalkProgress(NamedTuple):
    """The progress of ``pear.walk_forward``.

    Attributes:
        forecaster: the name of the forecaster that has just forecast a fold.
        fold: the number of this fold, from 1.
        folds: the number of folds.
        done: the number of pairs of forecaster and fold that are done.
        total: the number of all such pairs.
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
    """Compare forecasters, trained on the past, by what their decisions cost on the rows that follow.

    For each fold of the rows, every forecaster is trained on the training rows and forecasts the test rows. The
    decisions under the forecasts are paid for at the true costs. The comparison also includes a constant forecast,
    "mean of the training costs": a forecaster that loses more than this forecast is worth nothing.

    Args:
        problem: the decision problem, with its integers. With a ``Model``, forecasters forecast the k values that the
            model maps to costs. If fields of the problem differ between samples, their rows are in the order of X.
        X: (N, p), p features in time order: an array or a DataFrame. Dates in an index must be in order.
        C: (N, k) the true costs or values; (N,) if k is 1.
        forecasters: the forecasters by name. A forecaster is an estimator with ``fit(X, y)`` and ``predict(X)``
            (scikit-learn, LightGBM, ``DecisionRegressor``), of which a copy is trained on every fold, and for every
            column if the estimator has a single output; or a function ``(X_train, C_train, X_test) -> forecasts``; or a
            table (N, k) of forecasts that were made elsewhere. A pair of an estimator or a function and a table of
            features uses this table in place of X: a row for each sample, or, with groups, for each value.
        splits: the number of test folds, each trained on all rows before it; ``pear.TimeSplits`` for a gap, a rolling
            window or other sizes; a splitter of scikit-learn; or pairs of the rows to train on and the rows to test on.
        groups: (N·k,) for long tables, the id of the sample that each row belongs to, such as its day. Then X may have
            a row for each forecast value, C may be of shape (N·k,), and one model forecasts all values. Every group has
            k rows in the order of the problem's values. Samples are in the order of the groups' first rows.
        retrain: whether forecasters are trained again for every fold. If False, they are trained once, on the training
            rows of the first fold.
        reference: the name of the forecaster that the others are compared with; if omitted, the first one.
        block: length in rows of the blocks of the bootstrap, which gives the intervals; if omitted, about the cube root
            of the number of tested rows. Choose a span, such as a week or a season, after which losses no longer
            depend on earlier ones.
        progress: a function that is called with a ``WalkProgress`` after each fold of each forecaster.
        known: the known values of each of the N samples, if the model has any; see ``Model.with_known``. A
            ``DecisionRegressor`` of this model is trained with the known values of its training rows.

    Raises:
        ForecasterError: a forecaster fails; the message names the forecaster and the fold.
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
    samples = WalkSamples(problem, X, C, groups, known)
    folds = read_time_splits(splits, samples.true, samples.true, len(samples))
    compared = _read_walk_forecasters(forecasters, samples)
    reference = next(iter(compared)) if reference is None else reference
    if reference not in compared:
        raise ProblemError(f"there is no forecaster {reference!r} to compare with; only {', '.join(compared)}")
    run = _WalkForwardRun(samples, compared, folds, retrain)
    difference_block_length(len(run.tested), block)  # raises before hours of training, not after
    judge = run.make_judge()
    forecasts, seconds = run.forecast_all(progress)
    outcomes = [run.judge_forecasts(name, judge, values) for name, values in forecasts.items()]
    return WalkForward(
        forecasts=forecasts,
        true=samples.true[run.tested],
        regret=np.stack([outcome.regret.cpu().numpy() for outcome in outcomes]),
        best=judge.best.cpu().numpy(),
        sample=run.tested,
        label=samples.labels[run.tested],
        fold=np.repeat(np.arange(1, len(folds) + 1), [len(fold.test) for fold in folds])[run.order],
        sense=problem_of_model(problem).sense,
        seconds=seconds,
        notes=run.notes(),
        reference=reference,
        block=block,
    )


def _read_walk_forecasters(given: Mapping[str, Any], samples: WalkSamples) -> dict[str, Forecaster]:
    """Return the user's forecasters by name, and the constant forecast as the last one."""
    if not isinstance(given, Mapping) or not given:
        raise ProblemError(
            f'forecasters must be a dict of names and forecasters, such as {{"ridge": …}}; got {given!r}'
        )
    if MEAN in given or not all(isinstance(name, str) for name in given):
        raise ProblemError(f"names of forecasters must be texts other than {MEAN!r}, which is added; got {list(given)}")
    compared = {name: as_forecaster(name, one, samples) for name, one in given.items()}
    return {**compared, MEAN: MeanForecaster()}


class _WalkForwardRun:
    """A run of all forecasters over all folds.

    Args:
        samples: all samples.
        compared: the forecasters by name.
        folds: the folds.
        retrain: whether forecasters are trained again for every fold.

    Attributes:
        order: (T,) the permutation that brings the T tested rows from the order of the folds into that of X.
        tested: (T,) the numbers of the tested rows, in increasing order.
    """

    def __init__(
        self, samples: WalkSamples, compared: dict[str, Forecaster], folds: list[TimeFold], retrain: bool
    ) -> None:
        self.samples, self.compared, self.folds, self.retrain = samples, compared, folds, retrain
        tests = np.concatenate([fold.test for fold in folds])
        self.order = np.argsort(tests, kind="stable")
        self.tested = tests[self.order]

    def make_judge(self) -> ForecastJudge:
        """Return a ``ForecastJudge`` of the tested rows, which computes their best decisions once.

        Raises:
            SolveError: rows have no best decision; the message names them by their numbers in X.
        """
        try:
            return ForecastJudge(
                self.samples.problem[self.tested.tolist()],
                sample_rows_to_tensor(self.samples.problem, self.samples.true[self.tested]),
            )
        except SolveError as error:
            raise self._with_row_numbers(error) from error

    def forecast_all(
        self, progress: Callable[[WalkProgress], None] | None
    ) -> tuple[dict[str, Array], dict[str, float]]:
        """Train all forecasters, and return their forecasts of all tested rows.

        Returns:
            Two dictionaries by the names of the forecasters: forecasts of k values for the T tested rows, (T, k), in
            the order of ``tested``; and times in seconds.
        """
        folds = self.folds if self.retrain else [self._fold_trained_once()]
        forecasts, seconds = {}, {}
        for i, (name, forecaster) in enumerate(self.compared.items()):
            parts, start = [], time.perf_counter()
            for number, fold in enumerate(folds, 1):
                with _name_forecaster_in_errors(name, f"fold {number} of {len(folds)}"):
                    parts.append(self._read_forecast(forecaster.forecast(self.samples, fold), fold))
                if progress is not None:
                    done = i * len(folds) + number
                    progress(WalkProgress(name, number, len(folds), done, len(self.compared) * len(folds)))
            forecasts[name], seconds[name] = np.concatenate(parts)[self.order], time.perf_counter() - start
        return forecasts, seconds

    def judge_forecasts(self, name: str, judge: ForecastJudge, forecasts: Array) -> RegretOutcome:
        """Return the regrets of the decisions under forecasts.

        Args:
            name: the name of the forecaster, for the message of an error.
            judge: the judge of the T tested rows.
            forecasts: (T, k) forecasts, k values for each tested row.
        """
        with _name_forecaster_in_errors(name, "its decisions"):
            try:
                return judge(sample_rows_to_tensor(self.samples.problem, forecasts))
            except SolveError as error:
                raise self._with_row_numbers(error) from error

    def notes(self) -> list[str]:
        """Return sentences about those details of the comparison that a user may not expect."""
        notes = [
            f"{name} takes one output, so that {one.models_per_fold} models were trained on each fold, one for each "
            "column."
            for name, one in self.compared.items()
            if isinstance(one, EstimatorForecaster) and one.models_per_fold > 1
        ]
        if any(fold.train.max() > fold.test.min() for fold in self.folds[: None if self.retrain else 1]):
            notes.append(
                "Some folds are trained on rows after those that they are tested on: this is no walk forward in time."
            )
        if not self.retrain:
            notes.append("All forecasters were trained once, on the first fold.")
        return notes

    def _fold_trained_once(self) -> TimeFold:
        """Return one fold with the training rows of the first fold and the test rows of all folds."""
        tests = np.concatenate([fold.test for fold in self.folds])
        if np.isin(tests, self.folds[0].train).any():
            raise ProblemError(
                "retrain=False trains on the first fold alone, and other folds test rows of its training"
            )
        return TimeFold(self.folds[0].train, tests)

    def _read_forecast(self, values: Any, fold: TimeFold) -> Array:
        """Return the forecasts for a fold as float64 (T, k): k values for each of T test rows.

        Raise ``ProblemError`` if the shape is wrong or a number is not finite.
        """
        samples = self.samples
        columns, own = pandas_columns(values), pandas_columns(samples.C)
        if columns != own and set(columns or ()) == set(own or (None,)):
            raise ProblemError(f"the forecasts have the columns of C in another order: {list(columns or ())[:5]}")
        found = np.asarray(to_walk_table(values), dtype=np.float64)
        if found.ndim == 1 and found.size == len(fold.test) * samples.true.shape[1]:  # the values of a long table
            found = found.reshape(len(fold.test), -1)
        found = read_sample_values(samples.problem, found, "the forecasts")
        if len(found) != len(fold.test):
            raise ProblemError(f"{len(found)} forecasts came for {len(fold.test)} test rows")
        unusable = np.flatnonzero(~np.isfinite(found).all(1))
        if len(unusable):
            raise ProblemError(
                f"the forecast of row {fold.test[unusable[0]]} and {len(unusable) - 1} others is not finite"
            )
        return found

    def _with_row_numbers(self, error: SolveError) -> SolveError:
        """Return an error that names rows by their numbers in X; ``error`` counts them among the tested rows."""
        rows = [int(self.tested[i]) for i in error.samples]
        message = f"{list_positions('row', rows)} of X cannot be decided; counted among the tested rows: {error}"
        return SolveError(message, rows, error.statuses)


@contextmanager
def _name_forecaster_in_errors(name: str, where: str) -> Iterator[None]:
    """A context that turns an error of a forecaster into a ``ForecasterError``.

    The message has the ``name`` of the forecaster, and says ``where`` it failed.
    """
    try:
        yield
    except Exception as error:  # a forecaster is not ours, and may raise anything
        raise ForecasterError(f"forecaster {name!r} failed ({where}): {type(error).__name__}: {error}") from error

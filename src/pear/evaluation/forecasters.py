"""The forecasters that ``walk_forward`` compares: estimators, functions and tables of forecasts, with one interface."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.evaluation.time_splits import TimeFold
from pear.evaluation.walk_samples import Array, WalkFeatures, WalkSamples
from pear.problem import Model, Problem
from pear.problem.known_samples import insert_known_samples
from pear.problem.pandas_data import check_pandas_order, has_pandas_index
from pear.problem.sample_keys import count_keyed_samples
from pear.train.base_copies import takes_many_outputs

_REFUSALS = (ValueError, TypeError)
"""The errors that estimators with a single output raise if the targets have several columns."""


class Forecaster(Protocol):
    """An object that forecasts the T test samples of a fold."""

    def forecast(self, samples: WalkSamples, fold: TimeFold) -> Any:
        """Return forecasts of k values for the T test samples, (T, k) or (T·k,), learnt from training samples only."""


class EstimatorForecaster:
    """An estimator with ``fit`` and ``predict``, of which a new copy is trained on each fold.

    Args:
        estimator: the estimator, which is not changed. If its ``fit`` has an argument ``groups``, the argument gets the
            groups of a long table.
        features: the features to train on and to forecast from.

    Attributes:
        models_per_fold: the number of copies trained on a fold: 1, or k if the estimator has a single output.
    """

    def __init__(self, estimator: Any, features: WalkFeatures) -> None:
        self.estimator, self.features, self.models_per_fold = estimator, features, 1

    def forecast(self, samples: WalkSamples, fold: TimeFold) -> Any:
        """Train a copy on the training samples, and return its forecasts for the test samples.

        If the copy raises a ValueError or TypeError for targets of k columns, a copy is trained for each column, in
        this fold and in all later ones. An error of an estimator that is known to have several outputs is raised.
        """
        if self.models_per_fold > 1:
            return self._forecast_columns(samples, fold, None)
        targets = samples.targets(fold.train, self.features.is_long)
        fresh = self._copy(samples, fold)
        options = self._group_option(fresh, fold) if self.features.is_long else {}
        try:
            fitted = fresh.fit(self.features.take(fold.train), targets, **options)
        except _REFUSALS as refused:
            if targets.ndim == 1 or takes_many_outputs(self.estimator):
                raise
            found = self._forecast_columns(samples, fold, refused)
            self.models_per_fold = found.shape[1]
            return found
        if _forecaster_was_interrupted(fitted):
            raise KeyboardInterrupt
        return fitted.predict(self.features.take(fold.test))

    def _forecast_columns(self, samples: WalkSamples, fold: TimeFold, refused: Exception | None) -> Array:
        """Return the forecasts (T, k) of k copies, each trained on one column of the targets.

        ``refused`` is the error of a training on all columns together, or None.
        """
        features, ahead = self.features.take(fold.train), self.features.take(fold.test)
        found = []
        for j in range(samples.true.shape[1]):
            try:
                fitted = self._copy(samples, fold).fit(features, samples.true[fold.train, j])
            except _REFUSALS as error:
                raise error from refused
            found.append(np.asarray(fitted.predict(ahead), dtype=np.float64).reshape(len(fold.test)))
        return np.stack(found, axis=1)

    def _copy(self, samples: WalkSamples, fold: TimeFold) -> Any:
        """Return an untrained copy of the estimator.

        If a parameter of the estimator is a problem with fields per sample or with known values, the parameter of the
        copy is this problem restricted to the training samples.
        """
        if not hasattr(self.estimator, "get_params"):
            return copy.deepcopy(self.estimator)
        from sklearn.base import clone

        fresh = clone(self.estimator)
        for name, value in fresh.get_params(deep=True).items():
            if isinstance(value, Model) and value.known_map is not None and samples.known is not None:
                fresh.set_params(**{name: insert_known_samples(value, samples.known[fold.train.tolist()])})
            elif isinstance(value, (Problem, Model)) and count_keyed_samples(value) == len(samples):
                fresh.set_params(**{name: value[fold.train.tolist()]})
        return fresh

    def _group_option(self, fresh: Any, fold: TimeFold) -> dict[str, Any]:
        """Return the argument ``groups`` of ``fit`` as a dict; empty if the estimator takes no groups.

        If the estimator is a pipeline, the argument is for its last step.
        """
        name, last = fresh.steps[-1] if hasattr(fresh, "steps") else ("", fresh)
        if "groups" not in inspect.signature(last.fit).parameters:
            return {}
        columns = self.features.values_per_sample
        return {f"{name}__groups" if name else "groups": np.repeat(np.arange(len(fold.train)), columns)}


class FunctionForecaster:
    """A forecaster that calls the user's function with training features, training costs and test features."""

    def __init__(self, function: Callable[[Any, Any, Any], Any], features: WalkFeatures) -> None:
        self.function, self.features = function, features

    def forecast(self, samples: WalkSamples, fold: TimeFold) -> Any:
        """Return what the function returns for the training features, training costs and test features of the fold."""
        targets = samples.targets(fold.train, self.features.is_long)
        return self.function(self.features.take(fold.train), targets, self.features.take(fold.test))


class TableForecaster:
    """A forecaster whose forecasts were made elsewhere.

    Args:
        name: the user's name of the forecaster, for messages.
        table: forecasts of k values for all N samples: (N, k), or (N·k,) in a long table. Samples that are not tested
            may have NaN.
        samples: all samples.
    """

    def __init__(self, name: str, table: Any, samples: WalkSamples) -> None:
        check_pandas_order(samples.problem, table, samples.C)
        samples.check_pairing(f"the forecasts of {name!r}", table)
        self.values = samples.read_values(table, f"the forecasts of {name!r}")
        if len(self.values) != len(samples):
            raise ProblemError(
                f"the table of forecasts {name!r} has {len(self.values)} rows, and there are {len(samples)} samples; "
                "give it a row for each, with NaN where none was made"
            )

    def forecast(self, samples: WalkSamples, fold: TimeFold) -> Any:
        """Return the forecasts of the test samples from the table."""
        return self.values[fold.test]


class MeanForecaster:
    """A forecaster that forecasts the mean of the training costs for every sample."""

    def forecast(self, samples: WalkSamples, fold: TimeFold) -> Array:
        """Return the means of the k columns of training costs for each of the T test samples, (T, k)."""
        return np.tile(samples.true[fold.train].mean(axis=0), (len(fold.test), 1))


def as_forecaster(name: str, given: Any, samples: WalkSamples) -> Forecaster:
    """Return the forecaster that the user's object stands for.

    Args:
        name: the user's name of the forecaster, for messages.
        given: an estimator, a function, a pair of one of these and its own features, or a table of forecasts.
        samples: all samples.

    Raises:
        ProblemError: ``given`` is none of these.
    """
    features = samples.features
    if isinstance(given, tuple) and len(given) == 2 and (hasattr(given[0], "predict") or callable(given[0])):
        given, features = given[0], samples.read_features(f"the table of forecaster {name!r}", given[1])
    if isinstance(given, type):
        raise ProblemError(f"forecaster {name!r} is a class; pass an object of it: {given.__name__}(…)")
    if hasattr(given, "predict") and hasattr(given, "fit"):
        return EstimatorForecaster(given, features)
    if isinstance(given, nn.Module):
        raise ProblemError(
            f"forecaster {name!r} is a torch module, which has no fit(X, y); pass pear.DecisionRegressor(problem, "
            "model=module), or a function (X_train, C_train, X_test) -> forecasts"
        )
    if hasattr(given, "predict"):
        raise ProblemError(
            f"forecaster {name!r} has predict and no fit, and a walk forward trains anew on each fold; pass its "
            "forecasts of all rows as a table, if it was trained on none of the tested ones"
        )
    if has_pandas_index(given) or (isinstance(given, (Tensor, np.ndarray, Sequence)) and not isinstance(given, str)):
        return TableForecaster(name, given, samples)
    if callable(given):
        return FunctionForecaster(given, features)
    raise ProblemError(
        f"forecaster {name!r} must have fit(X, y) and predict(X), be a function (X_train, C_train, X_test) -> "
        f"forecasts, or a table (N, k) of forecasts; got {type(given).__name__}"
    )


def _forecaster_was_interrupted(fitted: Any) -> bool:
    """Return whether Ctrl-C ended the training of a ``DecisionRegressor``, which does not raise an error then."""
    last = fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted
    return bool(getattr(getattr(last, "history_", None), "interrupted", False))

"""The forecasters of the study. A new one is a function that trains it and a row here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear.problem import Model, Problem
from pear_lab.forecasters.study_case import Array

ALPHAS = np.logspace(-3, 6, 19)
"""The strengths that ridge chooses from, for standardised features."""

SMALL_TREES = {"num_leaves": 7, "colsample_bytree": 0.5}
"""LightGBM for few rows and many columns: the best of four settings on test days of the study, a strong rival."""

QUICK_EPOCHS, QUICK_TREES = 2, 5


@dataclass(frozen=True)
class TrainedForecaster:
    """A trained forecaster.

    Attributes:
        predict: from the features of new rows to forecasts.
        note: what the training says about itself.
    """

    predict: Callable[[Array], Array]
    note: str = ""


@dataclass(frozen=True)
class TrainingSet:
    """What a forecaster is trained on.

    Attributes:
        problem: the decision problem of the N samples.
        X: (N, p), or (N·k, p) with a row for each value.
        y: (N, k), or (N·k,) with a row for each value.
        groups: (N·k,) the sample of each row, where there is one for each value; None otherwise.
        held_out: number of samples at the end that are set apart for early stopping.
        seed: the seed of first weights and of the order of samples.
        quick: whether to train for a moment only.
    """

    problem: Problem | Model
    X: Array
    y: Array
    groups: Any = None
    held_out: int = 0
    seed: int = 0
    quick: bool = False

    @property
    def rows_per_sample(self) -> int:
        """k with a row for each value, otherwise 1."""
        return 1 if self.groups is None else int(np.sum(self.groups == self.groups[0]))

    def parts(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Arguments of ``DecisionRegressor.fit``: rows to train on, and those to stop by where they are set apart."""
        every = {"X": self.X, "y": self.y, **({} if self.groups is None else {"groups": self.groups})}
        if not self.held_out:
            return every, None
        first = len(self.X) - self.held_out * self.rows_per_sample
        return {name: rows[:first] for name, rows in every.items()}, {
            name: rows[first:] for name, rows in every.items()
        }


@dataclass(frozen=True)
class Forecaster:
    """One row of the tables.

    Attributes:
        title: its name in the tables.
        train: trains it.
        rival: whether it is trained on the squared error, so that PEAR is compared with it.
        seeded: whether the result depends on the seed.
        package: what must be installed; empty where nothing is.
        instead_of: the package that it stands in for: it takes part where that is not installed, or by its name.
    """

    title: str
    train: Callable[[TrainingSet], TrainedForecaster]
    rival: bool = True
    seeded: bool = False
    package: str = ""
    instead_of: str = ""

    @property
    def installed(self) -> bool:
        """Whether its package can be imported."""
        return not self.package or find_spec(self.package) is not None

    @property
    def by_default(self) -> bool:
        """Whether it takes part where no forecasters are named."""
        return not self.instead_of or find_spec(self.instead_of) is None


def train_mean(data: TrainingSet) -> TrainedForecaster:
    """The mean of each value over the training samples, whatever the features are."""
    rows = data.rows_per_sample
    mean = data.y.reshape(len(data.X) // rows, -1).mean(0)
    return TrainedForecaster(lambda X: np.tile(mean, (len(X) // rows, 1)))


def train_regressor(make: Callable[[TrainingSet], Any], data: TrainingSet) -> TrainedForecaster:
    """A regressor of scikit-learn, trained on the squared error.

    Args:
        make: makes it, untrained.
        data: the rows.
    """
    fitted = make(data).fit(data.X, data.y)
    return TrainedForecaster(lambda X: np.asarray(fitted.predict(X), dtype=np.float64))


def make_ridge(data: TrainingSet) -> Any:
    """Standardised features and ridge, whose strength leave-one-out errors choose, as most users write it."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(ALPHAS))


def make_lightgbm(settings: dict[str, Any], data: TrainingSet) -> Any:
    """LightGBM with squared error, on one core; a model for each column of y."""
    from lightgbm import LGBMRegressor

    options = {**settings, **({"n_estimators": QUICK_TREES} if data.quick else {})}
    return _for_each_column(LGBMRegressor(**options, random_state=data.seed, n_jobs=1, verbose=-1), data)


def make_histogram_trees(data: TrainingSet) -> Any:
    """scikit-learn's gradient boosting, the method of LightGBM, with small trees; a model for each column of y."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    options: dict[str, Any] = {"max_iter": QUICK_TREES} if data.quick else {}
    small = HistGradientBoostingRegressor(max_leaf_nodes=7, max_features=0.5, random_state=data.seed, **options)
    return _for_each_column(small, data)


def _for_each_column(regressor: Any, data: TrainingSet) -> Any:
    from sklearn.multioutput import MultiOutputRegressor

    return regressor if data.y.ndim == 1 else MultiOutputRegressor(regressor)


def train_decision_regressor(
    model: str, data: TrainingSet, make_base: Callable[[TrainingSet], Any] | None = None, **options: Any
) -> TrainedForecaster:
    """``DecisionRegressor`` with nothing set but the model and, for the squared error, the loss.

    Args:
        model: "linear" or "mlp".
        data: the rows.
        make_base: makes the forecaster that it corrects, untrained; None where there is none.
        options: further arguments.
    """
    import pear

    if data.quick:
        options["max_epochs"] = QUICK_EPOCHS
    if make_base is not None:
        options["base"] = make_base(data)
    made: Any = model
    regressor = pear.DecisionRegressor(data.problem, made, random_state=data.seed, **options)
    train, held_out = data.parts()
    regressor.fit(**train, validation=held_out)
    return TrainedForecaster(lambda X: np.asarray(regressor.predict(X), dtype=np.float64), str(regressor.history_))


def _ours(title: str, model: str, **options: Any) -> Forecaster:
    package = options.pop("package", "")
    instead_of = options.pop("instead_of", "")
    train = partial(train_decision_regressor, model, **options)
    return Forecaster(f"**{title}**", train, rival=False, seeded=True, package=package, instead_of=instead_of)


LIGHTGBM = "lightgbm"

FORECASTERS = {
    "mean": Forecaster("mean of the training rows", train_mean),
    "ridge": Forecaster("ridge (RidgeCV)", partial(train_regressor, make_ridge)),
    "lightgbm": Forecaster("LightGBM", partial(train_regressor, partial(make_lightgbm, {})), package=LIGHTGBM),
    "lightgbm-small": Forecaster(
        "LightGBM, small trees", partial(train_regressor, partial(make_lightgbm, SMALL_TREES)), package=LIGHTGBM
    ),
    "trees": Forecaster("HistGradientBoosting", partial(train_regressor, make_histogram_trees), instead_of=LIGHTGBM),
    "mse-linear": Forecaster(
        'linear, loss="mse"', partial(train_decision_regressor, "linear", loss="mse"), seeded=True
    ),
    "mse-mlp": Forecaster('mlp, loss="mse"', partial(train_decision_regressor, "mlp", loss="mse"), seeded=True),
    "pear-linear": _ours("PEAR, linear", "linear"),
    "pear-mlp": _ours("PEAR, mlp", "mlp"),
    "pear-on-ridge": _ours("PEAR on ridge", "linear", make_base=make_ridge),
    "pear-on-lightgbm": _ours("PEAR on LightGBM", "linear", make_base=partial(make_lightgbm, {}), package=LIGHTGBM),
    "pear-on-lightgbm-small": _ours(
        "PEAR on LightGBM, small trees", "linear", make_base=partial(make_lightgbm, SMALL_TREES), package=LIGHTGBM
    ),
    "pear-on-trees": _ours(
        "PEAR on HistGradientBoosting", "linear", make_base=make_histogram_trees, instead_of=LIGHTGBM
    ),
}
"""Name → forecaster, in the order of the tables."""


def forecasters_of(words: Sequence[str]) -> list[str]:
    """Check names of forecasters; all that take part by default where none is given.

    Example:
        >>> forecasters_of(["ridge", "pear-linear"])
        ['ridge', 'pear-linear']
    """
    for word in words:
        if word not in FORECASTERS:
            close = difflib.get_close_matches(word, FORECASTERS, n=1) or FORECASTERS
            raise ProblemError(f"there is no forecaster {word!r}; did you mean {' or '.join(close)}?")
    return list(dict.fromkeys(words)) or [name for name, one in FORECASTERS.items() if one.by_default]

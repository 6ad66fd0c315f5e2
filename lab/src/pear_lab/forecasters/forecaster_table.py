"""The table of the forecasters of the study. Each has a function that trains it, and a row of the table."""

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
"""The strengths of ridge regression on standardised features, of which cross-validation chooses one."""

SMALL_TREES = {"num_leaves": 7, "colsample_bytree": 0.5}
"""Settings of LightGBM for few rows and many columns: the best of four combinations on the test days, which
favours LightGBM."""

QUICK_EPOCHS, QUICK_TREES = 2, 5


@dataclass(frozen=True)
class TrainedForecaster:
    """A trained forecaster.

    Attributes:
        predict: function from the features of new rows to forecasts.
        note: a summary of the training.
    """

    predict: Callable[[Array], Array]
    note: str = ""


@dataclass(frozen=True)
class ForecasterTrainingSet:
    """The data on which a forecaster is trained: N samples of k values.

    Attributes:
        problem: the decision problem of the samples.
        X: (N, p) features, or (N·k, p) with a row for each value.
        y: (N, k) true values, or (N·k,) with a row for each value.
        groups: (N·k,) the sample of each row if each value has a row; otherwise None.
        held_out: the number of samples, at the end, that are reserved for early stopping.
        seed: the seed of first weights and of the order of samples.
        quick: whether to train only briefly, as a check that everything works.
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
        """The number of rows of a sample: k if each value has a row, otherwise 1."""
        return 1 if self.groups is None else int(np.sum(self.groups == self.groups[0]))

    def parts(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return two sets of arguments of ``DecisionRegressor.fit``: the training rows, and the held-out rows.

        The second set is None if no samples are held out.
        """
        every = {"X": self.X, "y": self.y, **({} if self.groups is None else {"groups": self.groups})}
        if not self.held_out:
            return every, None
        first = len(self.X) - self.held_out * self.rows_per_sample
        return {name: rows[:first] for name, rows in every.items()}, {
            name: rows[first:] for name, rows in every.items()
        }


@dataclass(frozen=True)
class ForecasterTableRow:
    """The description of one forecaster.

    Attributes:
        title: the name in tables of results.
        train: function that trains the forecaster.
        rival: whether the forecaster is trained on the squared error, and is therefore a rival of PEAR.
        seeded: whether the result depends on the seed.
        package: the package that the forecaster needs; empty if it needs none.
        instead_of: the package of the forecaster that this one stands in for; empty if there is none. If the package
            is installed, this forecaster takes part only if the user names it.
    """

    title: str
    train: Callable[[ForecasterTrainingSet], TrainedForecaster]
    rival: bool = True
    seeded: bool = False
    package: str = ""
    instead_of: str = ""

    @property
    def installed(self) -> bool:
        """Whether the needed package can be imported."""
        return not self.package or find_spec(self.package) is not None

    @property
    def by_default(self) -> bool:
        """Whether the forecaster takes part if the user names no forecasters."""
        return not self.instead_of or find_spec(self.instead_of) is None


def train_mean_forecaster(data: ForecasterTrainingSet) -> TrainedForecaster:
    """Return the forecaster that predicts, for any features, the mean of each value over the training samples."""
    rows = data.rows_per_sample
    mean = data.y.reshape(len(data.X) // rows, -1).mean(0)
    return TrainedForecaster(lambda X: np.tile(mean, (len(X) // rows, 1)))


def train_regressor_forecaster(
    make: Callable[[ForecasterTrainingSet], Any], data: ForecasterTrainingSet
) -> TrainedForecaster:
    """Train a regressor with the interface of scikit-learn on the squared error.

    Args:
        make: function that makes the untrained regressor.
        data: the training data.
    """
    fitted = make(data).fit(data.X, data.y)
    return TrainedForecaster(lambda X: np.asarray(fitted.predict(X), dtype=np.float64))


def make_ridge_forecaster(data: ForecasterTrainingSet) -> Any:
    """Return an untrained ridge regression on standardised features. Leave-one-out errors choose its strength."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(ALPHAS))


def make_lightgbm_forecaster(settings: dict[str, Any], data: ForecasterTrainingSet) -> Any:
    """Return an untrained LightGBM model with squared error for each column of y, on one core."""
    from lightgbm import LGBMRegressor

    options = {**settings, **({"n_estimators": QUICK_TREES} if data.quick else {})}
    return _forecaster_of_each_column(LGBMRegressor(**options, random_state=data.seed, n_jobs=1, verbose=-1), data)


def make_trees_forecaster(data: ForecasterTrainingSet) -> Any:
    """Return an untrained model with small trees for each column of y: scikit-learn's histogram gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    options: dict[str, Any] = {"max_iter": QUICK_TREES} if data.quick else {}
    small = HistGradientBoostingRegressor(max_leaf_nodes=7, max_features=0.5, random_state=data.seed, **options)
    return _forecaster_of_each_column(small, data)


def _forecaster_of_each_column(regressor: Any, data: ForecasterTrainingSet) -> Any:
    """Return a regressor of all columns of y that fits a copy of ``regressor`` to each column."""
    from sklearn.multioutput import MultiOutputRegressor

    return regressor if data.y.ndim == 1 else MultiOutputRegressor(regressor)


def train_pear_forecaster(
    model: str,
    data: ForecasterTrainingSet,
    make_base: Callable[[ForecasterTrainingSet], Any] | None = None,
    **options: Any,
) -> TrainedForecaster:
    """Train a ``DecisionRegressor``. Its arguments have their defaults, unless ``options`` sets them.

    Args:
        model: "linear" or "mlp".
        data: the training data.
        make_base: function that makes the untrained forecaster to be corrected; None for a forecaster without a base.
        options: further arguments, such as the loss.
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


def _pear_forecaster_row(title: str, model: str, **options: Any) -> ForecasterTableRow:
    """Return the row of a forecaster that PEAR trains.

    Args:
        title: the name in tables of results.
        model: "linear" or "mlp".
        options: further arguments of ``train_pear_forecaster``, and ``package`` and ``instead_of`` of the row.
    """
    package = options.pop("package", "")
    instead_of = options.pop("instead_of", "")
    train = partial(train_pear_forecaster, model, **options)
    return ForecasterTableRow(f"**{title}**", train, rival=False, seeded=True, package=package, instead_of=instead_of)


LIGHTGBM = "lightgbm"

FORECASTERS = {
    "mean": ForecasterTableRow("mean of the training rows", train_mean_forecaster),
    "ridge": ForecasterTableRow("ridge (RidgeCV)", partial(train_regressor_forecaster, make_ridge_forecaster)),
    "lightgbm": ForecasterTableRow(
        "LightGBM", partial(train_regressor_forecaster, partial(make_lightgbm_forecaster, {})), package=LIGHTGBM
    ),
    "lightgbm-small": ForecasterTableRow(
        "LightGBM, small trees",
        partial(train_regressor_forecaster, partial(make_lightgbm_forecaster, SMALL_TREES)),
        package=LIGHTGBM,
    ),
    "trees": ForecasterTableRow(
        "HistGradientBoosting", partial(train_regressor_forecaster, make_trees_forecaster), instead_of=LIGHTGBM
    ),
    "mse-linear": ForecasterTableRow(
        'linear, loss="mse"', partial(train_pear_forecaster, "linear", loss="mse"), seeded=True
    ),
    "mse-mlp": ForecasterTableRow('mlp, loss="mse"', partial(train_pear_forecaster, "mlp", loss="mse"), seeded=True),
    "pear-linear": _pear_forecaster_row("PEAR, linear", "linear"),
    "pear-mlp": _pear_forecaster_row("PEAR, mlp", "mlp"),
    "pear-on-ridge": _pear_forecaster_row("PEAR on ridge", "linear", make_base=make_ridge_forecaster),
    "pear-on-lightgbm": _pear_forecaster_row(
        "PEAR on LightGBM", "linear", make_base=partial(make_lightgbm_forecaster, {}), package=LIGHTGBM
    ),
    "pear-on-lightgbm-small": _pear_forecaster_row(
        "PEAR on LightGBM, small trees",
        "linear",
        make_base=partial(make_lightgbm_forecaster, SMALL_TREES),
        package=LIGHTGBM,
    ),
    "pear-on-trees": _pear_forecaster_row(
        "PEAR on HistGradientBoosting", "linear", make_base=make_trees_forecaster, instead_of=LIGHTGBM
    ),
}
"""All rows by the name of the forecaster, in the order of the tables of results."""


def find_table_forecasters(words: Sequence[str]) -> list[str]:
    """Return the given names of forecasters, each once; without names, all forecasters that take part by default.

    Raises:
        ProblemError: a name is unknown.

    Example:
        >>> find_table_forecasters(["ridge", "pear-linear"])
        ['ridge', 'pear-linear']
    """
    for word in words:
        if word not in FORECASTERS:
            close = difflib.get_close_matches(word, FORECASTERS, n=1) or FORECASTERS
            raise ProblemError(f"there is no forecaster {word!r}; did you mean {' or '.join(close)}?")
    return list(dict.fromkeys(words)) or [name for name, one in FORECASTERS.items() if one.by_default]

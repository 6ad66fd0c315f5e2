"""``DecisionRegressor``: a scikit-learn regressor that is trained and scored by the regret of its decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import MissingExtraError, ProblemError
from pear.intervals.cost_intervals import CostIntervals
from pear.losses.regret_metrics import normalized_regret
from pear.problem import Model, Oracle, Problem
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.train.estimator import model_file
from pear.train.estimator.daily_updates import daily_update_scale
from pear.train.estimator.estimator_tables import decision_table, forecast_table, read_table_weights
from pear.train.estimator.loss_and_config import describe_loss_method, estimator_config, make_estimator_loss
from pear.train.estimator.networks import build_network
from pear.train.estimator.partial_fit import partial_fit_estimator
from pear.train.estimator.progress_display import display_choice, display_progress
from pear.train.estimator.regret_scorer import score_regret
from pear.train.estimator.rows_to_decide import (
    RowsToDecide,
    calibrated_intervals,
    decide_within_bounds,
    forecast_rows_to_decide,
    problem_to_decide,
    read_rows_to_decide,
)
from pear.train.estimator.training_rows import problem_of_training_rows, read_training_rows
from pear.train.fit import fit
from pear.train.history import join_history_notes
from pear.train.time_order import describe_time_order, sort_tables_by_time
from pear.train.training_loss import problem_of_loss

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"DecisionRegressor needs scikit-learn, and {error.name} is not installed; run pip install 'pear-dfl[sklearn]'"
    ) from error

_RESULTS = "model_", "loss_", "history_", "n_iter_", "smoothing_", "base_", "updates_", "_optimizer", "intervals_"
"""What a training and a calibration leave."""


class DecisionRegressor(RegressorMixin, BaseEstimator):
    """Predicts the costs of a problem, trained on the regret of the decisions; an estimator of scikit-learn.

    ``fit`` calls ``pear.fit``: the model is fitted to the squared error, trained on the loss in several ways, and what
    decides best on held-out samples is kept; ``history_.choice`` says what won. Features of "linear" and "mlp" are
    standardised inside; costs may be in any unit.

    A table has a row for each sample; or, where ``groups`` are given, a row for each predicted value, and one model
    forecasts all of them. With ``base``, the forecast is that of the base plus a correction, which begins at zero.

    Args:
        problem: the decision problem. With a ``Model`` the k values that its cost map takes are predicted, and C has k
            columns. Where samples have fields or known costs of their own, their rows are those of ``fit``'s X; where
            the model has known values (``known=`` of an importer), they come with every call as ``known``.
        model: "linear", "mlp", or a torch module from features (B, p) to values (B, k), which is copied, and sees X as
            it comes. With groups it maps rows (B, p) to a value each, (B, 1) or (B,).
        loss: the name of a method of ``pear.losses.METHODS`` ("pear-guided", "pear" with the paper's settings, "mse",
            "spo+", …), a loss, which is copied, or a function from the problem to a loss. "auto" is "pear-guided", and
            "spo+" for an ``Oracle`` without a relaxation.
        smoothing: λ of PEAR's loss; "auto*3" is three times the choice of "auto". None uses the method's default.
        injection: β of PEAR's loss; None uses the method's default.
        guidance: α of PEAR's loss; None uses the method's default.
        base: a forecaster that is corrected: anything with ``predict`` (scikit-learn, LightGBM, XGBoost), a torch
            module or a function of X. One that is fitted forecasts as it is; one that is not is copied and fitted to
            the rows of ``fit``. Where an estimator of scikit-learn forecasts these rows better than others, the
            correction is trained on forecasts by copies that had not seen the row (``pear.train.base_forecast``);
            ``sklearn.frozen.FrozenEstimator(base)`` is asked as it is.
        hidden_layer_sizes: widths of the hidden layers of "mlp".
        learning_rate, batch_size, max_epochs, check_every, patience, time_cap, gap, label_neighbours,
            label_own_weight, label_mixing, normalise_costs: as in ``pear.FitConfig``.
        validation_fraction: the share of samples, the last ones, that is held out to choose the training by. None holds
            out all of them in turn, by cross-validation. The chosen training is repeated on all samples.
        random_state: the random state of the first weights and of the order of the samples: an int, a ``RandomState``
            or None.
        verbose: show progress, and what won: a bar where rich is installed, log lines (logger "pear") elsewhere.

    Attributes:
        model_: the trained module, standardisation included: (B, p) → (B, k). A correction takes the forecasts of the
            base as second input.
        base_: the fitted base, where there is one.
        loss_: the loss, as training left it.
        history_: what ``pear.fit`` returned; after ``partial_fit`` alone there is none.
        updates_: the ``DailyUpdates`` of ``partial_fit`` after ``fit``, with ``updates_.note``.
        intervals_: the ``CostIntervals`` of ``calibrate``.
        n_iter_: epochs trained, those on the squared error included.
        n_features_in_, feature_names_in_: of X; names where it was a DataFrame with names of columns.
        smoothing_: λ in use; None for a loss without one.

    Example:
        >>> import numpy as np, pear
        >>> task = pear.tasks.shortest_path((3, 3))
        >>> X, C = map(np.asarray, task.samples(200, degree=4))
        >>> model = pear.DecisionRegressor(task.problem, max_epochs=40).fit(X[:150], C[:150])
        >>> model.predict(X[150:]).shape, model.decide(X[150:]).sum(1).tolist() == [4.0] * 50
        ((50, 12), True)
        >>> -0.2 < model.score(X[150:], C[150:]) < 0
        True
    """

    def __init__(
        self,
        problem: Problem | Model,
        model: Literal["linear", "mlp"] | nn.Module = "linear",
        loss: str | Callable[..., Any] | None = "auto",
        *,
        smoothing: float | str | None = None,
        injection: float | None = None,
        guidance: float | None = None,
        base: Any = None,
        hidden_layer_sizes: Sequence[int] = (64,),
        learning_rate: float = 1e-2,
        batch_size: int = 32,
        max_epochs: int = 10_000,
        check_every: int = 10,
        patience: int = 10,
        time_cap: float | None = None,
        validation_fraction: float | None = None,
        gap: int = 0,
        label_neighbours: int = 0,
        label_own_weight: float = 0.5,
        label_mixing: Literal["mean", "each"] = "mean",
        normalise_costs: bool = False,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.problem = problem
        self.model = model
        self.loss = loss
        self.smoothing = smoothing
        self.injection = injection
        self.guidance = guidance
        self.base = base
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.check_every = check_every
        self.patience = patience
        self.time_cap = time_cap
        self.validation_fraction = validation_fraction
        self.gap = gap
        self.label_neighbours = label_neighbours
        self.label_own_weight = label_own_weight
        self.label_mixing = label_mixing
        self.normalise_costs = normalise_costs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, Any] | Mapping[str, Any] | None = None,
        *,
        groups: Any = None,
        base_forecast: Any = None,
        known: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train from scratch; rows that carry dates, in an index or as groups, are held out in the order of the dates.

        Args:
            X: (N, p) features, an array or a DataFrame; with groups (N·k, p), a row for each predicted value.
            y: (N, k) the true costs C, or the values that the cost map takes; (N,) where k is 1. With groups
                (N·k,), a value for each row.
            validation: features and costs of rows held out, (X, y), or a dict of these and ``groups``,
                ``base_forecast``, ``known`` and ``sample_weight``; if omitted, as ``validation_fraction`` says.
            groups: (N·k,) ids of the samples that rows belong to, such as days. Every group has k rows, in the order
                of the problem's values; groups are ordered by their first rows.
            base_forecast: forecasts that are corrected, in the shape of y, in place of ``base``. They should be of rows
                that their forecaster had not seen. ``predict``, ``decide`` and ``score`` then need those of their rows.
            known: the known values of each sample, if the problem is a model with known values: a dictionary from
                their names to arrays (N, …), a DataFrame, or an array where there is one; see ``Model.with_known``.
            sample_weight: (N,) how much each row counts, in the loss, in the squared error and where trainings are
                judged; with groups (N·k,), the same for all rows of a group. Only ratios matter; 0 leaves a row out.
        """
        tables = {"X": X, "y": y, "groups": groups, "base_forecast": base_forecast, "sample_weight": sample_weight}
        check_pandas_rows({**tables, "known": known})
        given, order = sort_tables_by_time(tables)
        own, held_out, given = count_keyed_samples(self.problem), None, {**given, "known": known}
        rows = read_training_rows(self, given, least=2 if validation is None else 1)
        rows = rows.with_known_in(order if own is None else None)
        if own not in (None, len(rows.costs)):
            raise ProblemError(f"the problem has fields of its own for {own} samples, and X has {len(rows.costs)} rows")
        if validation is not None:
            named = validation if isinstance(validation, Mapping) else dict(zip(("X", "y"), validation, strict=True))
            check_pandas_rows(named)
            held_out = read_training_rows(self, named, dtype=rows.features.dtype)
        problem = problem_of_training_rows(self.problem, rows, held_out)
        config, model, loss = (
            estimator_config(self),
            build_network(self, rows),
            make_estimator_loss(self, problem, rows.costs),
        )
        scaled, network = model
        with display_progress(self.verbose) as progress:
            split = self.validation_fraction if held_out is None else held_out.samples(scaled, after=len(rows.costs))
            metric = None if problem_of_loss(loss) is not None else self._regret
            train = rows.training_samples(scaled, None if own is None else order)
            weights: dict[str, Any] = {
                "sample_weight": rows.weight,
                "validation_weight": None if held_out is None else held_out.weight,
            }
            history = fit(network, loss, train, split, metric, config, progress=progress, **weights)
        display_choice(self.verbose, history)
        notes = describe_time_order(order is not None), history.note, self._base_note, describe_loss_method(self)
        history.note = join_history_notes(*notes)
        self.model_, self.loss_, self.history_, self._scale = (
            model.eval(),
            loss,
            history,
            daily_update_scale(rows.costs),
        )
        self.n_iter_ = max(1, history.epochs + (history.before.epochs if history.before is not None else 0))
        self.smoothing_ = getattr(loss, "chosen_smoothing", None)
        return self

    def partial_fit(self, X: Any, y: Any, *, groups: Any = None, base_forecast: Any = None) -> Self:
        """Learn from new rows, such as those of a day, without training anew; the last weights are kept.

        After ``fit`` the weights take a small step (``pear.train.estimator.daily_updates``). Before the step, the
        present weights and those of ``fit`` both decide for the new rows. ``updates_.note`` compares the two over the
        last samples in a sentence, which is logged as a warning where the updates have made decisions worse. Where
        ``fit`` was never called, this trains for one epoch at the full learning rate, and the first rows determine the
        standardisation and the smoothing "auto".

        Args:
            X, y, groups, base_forecast: rows as in ``fit``.
        """
        partial_fit_estimator(self, {"X": X, "y": y, "groups": groups, "base_forecast": base_forecast})
        return self

    def predict(self, X: Any, *, base_forecast: Any = None) -> Any:
        """(N, k) predicted costs, or values that the cost map takes; with groups (N·k,), a value for each row of X.

        Args:
            X: rows as in ``fit``; those of a long table come in any order, and need no groups.
            base_forecast: forecasts of these rows that are corrected, where ``fit`` was given them.

        Returns:
            A DataFrame or, of a long table, a Series, where the costs of ``fit`` were one, with the index of X where X
            is a DataFrame. Otherwise an array, (N,) where the costs were (N,).
        """
        return forecast_table(self, forecast_rows_to_decide(self, X, base_forecast), X)

    def decide(
        self,
        X: Any,
        problem: Problem | Model | None = None,
        *,
        groups: Any = None,
        base_forecast: Any = None,
        known: Any = None,
        interval: float | None = None,
    ) -> Any:
        """(N, n) decisions under the predicted costs; integer variables get integer values.

        Args:
            X, groups, base_forecast, known: rows as in ``fit``.
            problem: the problem of these rows, where samples have fields or known costs of their own.
            interval: a probability, such as 0.9, with which the cost of each decision lies within bounds that come with
                it; after ``calibrate``.

        Returns:
            A DataFrame where X or the costs of ``fit`` were one, otherwise an array. Its columns are named as the
            ``Model``'s variables, or as the costs; its rows, with groups, as the groups.
            With ``interval`` these are the ``decisions`` of ``BoundedDecisions``.
        """
        rows = self.rows_to_decide(X, None, problem, groups=groups, base_forecast=base_forecast, known=known)
        if interval is not None:
            return decide_within_bounds(self, X, rows, interval)
        return decision_table(self, solve(rows.problem, rows.values).x.cpu().numpy(), X, rows.table)

    def calibrate(
        self,
        X: Any,
        y: Any,
        problem: Problem | Model | None = None,
        *,
        groups: Any = None,
        base_forecast: Any = None,
        known: Any = None,
        intervals: CostIntervals | None = None,
        append: bool = False,
    ) -> Self:
        """Learn planned and realised costs of decisions, so that ``decide(X, interval=0.9)`` can bound their cost.

        Args:
            X, groups, base_forecast, known: rows as in ``fit`` that come after those it was trained on; the last row is
                the latest one.
            y: (N, k) the true values; with groups (N·k,).
            problem: the problem of these rows, where samples have fields or known costs of their own.
            intervals: another way to make bounds, such as ``pear.CostIntervals(problem, of="regret")``.
            append: keep earlier calibration rows, which come before these: call it with the rows of every day.
        """
        rows = self.rows_to_decide(X, y, problem, groups=groups, base_forecast=base_forecast, known=known)
        self.intervals_ = calibrated_intervals(self, rows, intervals, append)
        return self

    def score(
        self,
        X: Any,
        y: Any,
        problem: Problem | Model | None = None,
        *,
        groups: Any = None,
        base_forecast: Any = None,
        known: Any = None,
        sample_weight: Any = None,
    ) -> float:
        """Minus the normalised regret, which is 0 where every decision is the best one; it is not R².

        Args:
            X, groups, base_forecast, known, sample_weight: rows as in ``fit``.
            y: (N, k) the true values; with groups (N·k,).
            problem: the problem of these rows, where samples have fields or known costs of their own.
        """
        check_pandas_rows({"X": X, "sample_weight": sample_weight})
        rows = self.rows_to_decide(X, y, problem, groups=groups, base_forecast=base_forecast, known=known)
        weight = read_table_weights(sample_weight, rows.size, rows.table)
        return score_regret(rows.problem, rows.values, rows.true, weight)

    def rows_to_decide(
        self,
        X: Any,
        y: Any = None,
        problem: Problem | Model | None = None,
        *,
        groups: Any = None,
        base_forecast: Any = None,
        known: Any = None,
    ) -> RowsToDecide:
        """The problem, the forecasts and, with ``y``, the true values of these rows; arguments as for ``score``."""
        predicted = forecast_rows_to_decide(self, X, base_forecast, y=y, groups=groups, known=known)
        return read_rows_to_decide(self, predicted, y, problem, groups, known)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file: safetensors with a JSON document, no pickle; ``load`` reads it.

        The file holds the problem, the weights, the parameters, the names and the calibration. After ``partial_fit``
        it also holds the last samples, from which updates continue. It does not hold the history, a loss that was given
        as an object, the base, or the function of an ``Oracle``. Of a module of your own it holds the weights alone.
        """
        check_is_fitted(self, "model_")
        model_file.write_model_file(self, Path(path))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module | None = None,
        base: Any = None,
        oracle: Oracle | None = None,
    ) -> Self:
        """The estimator in a model file.

        Args:
            path: the file to read.
            model: the module that the file's weights belong to, where it is one of your own.
            base: the fitted base that the file's weights correct, where there is one.
            oracle: the ``Oracle`` that decides, where the file was written with one.

        Raises:
            DataError: the file is not there, is not a model file, is cut off, or was altered.
            ProblemError: the file needs a module, a base or an oracle, or another one.
        """
        return model_file.read_model_file(cls, Path(path), model, base, oracle)

    def _forget(self) -> None:
        """Drop the results of an earlier training, so that a fit that fails leaves no model."""
        for name in _RESULTS:
            self.__dict__.pop(name, None)

    def _regret(self, predicted: Tensor, true: Tensor) -> float:
        """The validation metric for a loss without a problem."""
        return normalized_regret(problem_to_decide(self.problem, None, None, predicted), predicted, true)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is no R²: at best 0
        return tags

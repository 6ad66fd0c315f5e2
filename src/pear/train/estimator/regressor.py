"""``DecisionRegressor``: a scikit-learn regressor that is trained and scored by the regret of decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import MissingExtraError, ProblemError
from pear.intervals.cost_intervals import CostIntervals
from pear.losses.regret_metrics import normalized_regret
from pear.problem import Model, Oracle, Problem
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.train.estimator import model_file
from pear.train.estimator.base_offset import leave_base_out
from pear.train.estimator.daily_updates import daily_update_scale
from pear.train.estimator.estimator_tables import decision_table, forecast_table, read_table_weights
from pear.train.estimator.loss_and_config import describe_loss_method, estimator_config, make_estimator_loss
from pear.train.estimator.networks import build_network
from pear.train.estimator.partial_fit import partial_fit_estimator
from pear.train.estimator.progress_display import display_choice, display_progress
from pear.train.estimator.regret_scorer import score_regret
from pear.train.estimator.rows_to_decide import (
    RowsToDecide,
    forecast_rows_to_decide,
    problem_of_rows_to_decide,
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
"""The attributes that a training or a calibration sets."""


class DecisionRegressor(RegressorMixin, BaseEstimator):
    """A scikit-learn estimator that predicts the costs of a problem, and is trained on the regret of the decisions.

    ``fit`` calls ``pear.fit``: the model is fitted to the squared error and trained on the loss in several ways, and
    the training that decides best on held-out samples is kept; ``history_.choice`` says which one that is. The models
    "linear" and "mlp" standardise their features. Costs may have any unit.

    X has a row for each sample. If ``groups`` are given, X is a long table with a row for each predicted value, and one
    model forecasts all values. With ``base``, a forecast is that of the base plus a correction, which begins at zero.

    Args:
        problem: the decision problem. For a ``Model``, the k values that its cost map maps to costs are predicted, and
            y has k columns. If the problem has fields (such as b) or known costs for each sample, they belong to the
            rows of X in ``fit``, in order. If the model has known values (``known=`` of an importer), every call needs
            ``known``.
        model: "linear", "mlp", or a torch module from p features (B, p) to values (B, k), which is copied. It gets
            the features without standardisation. With groups it maps rows (B, p) to values (B, 1) or (B,).
        loss: the name of a method of ``pear.losses.METHODS`` ("pear-guided", "pear" with the settings of the paper,
            "mse", "spo+", …), a loss, which is copied, or a function from the problem to a loss. "auto" stands for
            "pear-guided", and for "spo+" if the problem is an ``Oracle`` without a relaxation.
        smoothing: λ, the strength of the smoothing in PEAR's loss (see ``pear.PEARLoss``); "auto*3" is three times the
            choice of "auto". None is the default of the method.
        injection: β, the strength of the normal component that is added to the gradient of PEAR's loss (see
            ``pear.PEARLoss``); None is the default of the method.
        guidance: α, the first strength of the guidance in PEAR's loss; None is the default of the method.
        base: a forecaster that is corrected: an object with ``predict`` (of scikit-learn, LightGBM or XGBoost), a torch
            module or a function of X. A base that is not fitted is copied, and the copy is fitted to the rows of
            ``fit``. An estimator of scikit-learn may forecast these rows better than rows it has not seen. A correction
            of forecasts by copies that were not fitted to the row therefore competes, and with "linear" and "mlp" also
            a model without the base (``history_.note``). ``sklearn.frozen.FrozenEstimator(base)`` avoids all this.
        hidden_layer_sizes: the widths of the hidden layers of "mlp".
        learning_rate, batch_size, max_epochs, check_every, patience, time_cap, gap, label_neighbours,
            label_own_weight, label_mixing, normalise_costs: as in ``pear.FitConfig``.
        validation_fraction: the share of the samples, the last ones, that is held out to choose a training. None
            chooses by cross-validation. The chosen training is repeated on all samples.
        random_state: the random state of the first weights and of the order of the samples: an int, a ``RandomState``
            or None.
        verbose: whether to show progress and the choice of the training: with a progress bar if rich is installed,
            otherwise as log lines (logger "pear").

    Attributes:
        model_: the trained module, including standardisation, from features (B, p) to values (B, k). A correction gets
            the forecasts of the base as second input.
        base_: the fitted base, if there is one.
        loss_: the loss, in its state after the training.
        history_: the result of ``pear.fit``; missing if only ``partial_fit`` was called.
        updates_: the ``DailyUpdates`` that ``partial_fit`` makes after ``fit``; ``updates_.note`` describes them.
        intervals_: the ``CostIntervals`` of ``calibrate``.
        n_iter_: the number of epochs, including those on the squared error.
        n_features_in_, feature_names_in_: the number of features; their names if X was a DataFrame with names.
        smoothing_: the λ that is used; None for a loss without smoothing.

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
        """Train a new model, and return this estimator.

        Rows with dates, in a pandas index or as ``groups``, are sorted by date before the last rows are held out.

        Args:
            X: (N, p), p features, an array or a DataFrame; with groups (N·k, p), a row for each predicted value.
            y: (N, k) the true costs C, or the true values that the cost map of a ``Model`` maps to costs; (N,) if k is
                1. With groups (N·k,), a value for each row.
            validation: held-out rows: a pair (X, y), or a dict with X, y, ``groups``, ``base_forecast``, ``known`` and
                ``sample_weight``. By default ``validation_fraction`` says which rows are held out.
            groups: (N·k,) the id of the sample that each row belongs to, such as a day. Every group has k rows, in the
                order of the problem's values. Samples are in the order of the first rows of their groups.
            base_forecast: forecasts of these rows that are corrected, in the shape of y; only without ``base``. The
                forecaster that made them should not have seen these rows. ``predict``, ``decide`` and ``score`` then
                also need such forecasts.
            known: the known values of each sample, if the problem is a model with known values: a dictionary from
                names to arrays (N, …), a DataFrame, or an array if there is only one; see ``Model.with_known``.
            sample_weight: (N,) how much each row counts in the loss, in the squared error and on held-out rows; with
                groups (N·k,), the same for all rows of a group. Only ratios matter, and 0 leaves a row out.
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
        config, model = estimator_config(self), build_network(self, rows)
        loss, (scaled, network) = make_estimator_loss(self, problem, rows.costs), model
        with display_progress(self.verbose) as progress:
            split: Any = self.validation_fraction
            if held_out is not None:
                after = None if held_out.known is None else torch.arange(len(held_out.costs)) + len(rows.costs)
                split = held_out.samples(scaled, after)
            metric = None if problem_of_loss(loss) is not None else self._regret
            train = rows.samples(scaled, None if own is None else order)
            weights: dict[str, Any] = {
                "sample_weight": rows.weight,
                "validation_weight": None if held_out is None else held_out.weight,
            }
            history = fit(network, loss, train, split, metric, config, progress=progress, **weights)
        display_choice(self.verbose, history)
        notes = describe_time_order(order is not None), self._base_note, history.note, describe_loss_method(self)
        history.note = join_history_notes(*notes)
        self.model_, self.loss_, self.history_ = leave_base_out(self, model).eval(), loss, history
        self._scale = daily_update_scale(rows.costs)
        self.n_iter_ = max(1, history.epochs + (history.before.epochs if history.before is not None else 0))
        self.smoothing_ = getattr(loss, "chosen_smoothing", None)
        return self

    def partial_fit(self, X: Any, y: Any, *, groups: Any = None, base_forecast: Any = None) -> Self:
        """Update the model with new rows, such as those of a day.

        After ``fit``, two copies of the network take small steps, and a third one keeps the weights of ``fit``. All of
        them decide for new rows before these steps, and a copy that decides clearly better gives the model its weights
        (``DailyUpdates``). ``updates_.note`` compares the copies over the last samples in a sentence. It is logged as a
        warning when the weights of ``fit`` take over. If ``fit`` was never called, every call trains for one epoch at
        the full learning rate, and the first rows determine the standardisation and the smoothing "auto".

        Args:
            X, y, groups, base_forecast: rows as in ``fit``.
        """
        partial_fit_estimator(self, {"X": X, "y": y, "groups": groups, "base_forecast": base_forecast})
        return self

    def predict(self, X: Any, *, base_forecast: Any = None) -> Any:
        """Return the k predicted costs or values of each sample, (N, k); for a long table (N·k,).

        Args:
            X: rows as in ``fit``. The rows of a long table may have any order, and need no groups.
            base_forecast: the forecasts of these rows that are corrected, if ``fit`` got such forecasts.

        Returns:
            A DataFrame or a Series if the costs of ``fit`` were one, with the index of X if X is a DataFrame. Otherwise
            an array, with the shape (N,) if the costs had the shape (N,).
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
        """Return the decisions (N, n) under the predicted costs, with integer values of integer variables.

        Args:
            X, groups, base_forecast, known: rows as in ``fit``.
            problem: the problem of these rows, if it has fields or known costs for each sample.
            interval: a probability, such as 0.9, with which the cost of each decision lies within bounds. The bounds
                are returned, too; ``calibrate`` must have been called before.

        Returns:
            A DataFrame if X or the costs of ``fit`` were one, otherwise an array. The columns have the names of the
            ``Model``'s variables, or those of the costs. With groups, the index is the ids of the groups.
            With ``interval`` a ``BoundedDecisions``, whose ``decisions`` have this form.
        """
        rows = self.rows_to_decide(X, None, problem, groups=groups, base_forecast=base_forecast, known=known)
        if interval is not None:
            return rows.decide_within_bounds(self, X, interval)
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
        """Compare planned and realised costs of decisions, so that ``decide(X, interval=0.9)`` can bound costs.

        Args:
            X, groups, base_forecast, known: rows as in ``fit``, from a time after the rows of ``fit``. The last row is
                the latest one.
            y: (N, k) the k true values of each sample; with groups (N·k,).
            problem: the problem of these rows, if it has fields or known costs for each sample.
            intervals: the intervals to calibrate, such as ``pear.CostIntervals(problem, of="regret")``, instead of the
                default ``pear.CostIntervals(problem)``.
            append: whether the rows of earlier calibrations are kept; they must be from a time before these rows.
        """
        rows = self.rows_to_decide(X, y, problem, groups=groups, base_forecast=base_forecast, known=known)
        self.intervals_ = rows.calibrate_intervals(self, intervals, append)
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
        """Return minus the normalised regret, and not R². The score is 0 if every decision is the best one.

        Args:
            X, groups, base_forecast, known, sample_weight: rows as in ``fit``.
            y: (N, k) the k true values of each sample; with groups (N·k,).
            problem: the problem of these rows, if it has fields or known costs for each sample.
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
        """Return the problem, the forecasts and, if y is given, the true values of rows; arguments as in ``score``."""
        predicted = forecast_rows_to_decide(self, X, base_forecast, y=y, groups=groups, known=known)
        return read_rows_to_decide(self, predicted, y, problem, groups, known)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file, which ``load`` reads: safetensors with a JSON document, and no pickle.

        The file holds the problem, the weights, the parameters, the names of columns and the calibration. After
        ``partial_fit`` it also holds the last samples, from which updates continue. It does not hold the history, a
        loss that is an object, the base, or the function of an ``Oracle``. Of a torch module that the user gave, it
        holds only the weights.
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
        """Return the estimator that a model file holds.

        Args:
            path: the path of the file.
            model: a module with the shape of the weights in the file, if ``model`` was a torch module.
            base: the fitted base, if there was one.
            oracle: the ``Oracle``, if the problem was one.

        Raises:
            DataError: the file is missing, is no model file, is cut off, or was altered.
            ProblemError: a module, a base or an oracle is missing, is not needed, or does not fit the file.
        """
        return model_file.read_model_file(cls, Path(path), model, base, oracle)

    def _forget(self) -> None:
        """Delete the results of an earlier training, so that no model remains if the new training fails."""
        for name in _RESULTS:
            self.__dict__.pop(name, None)

    def _regret(self, predicted: Tensor, true: Tensor) -> float:
        """Return the normalised regret of predicted values (N, k), which is the metric if the loss has no problem."""
        return normalized_regret(problem_of_rows_to_decide(self.problem, None, None, predicted), predicted, true)

    def __sklearn_tags__(self) -> Any:
        """Return the properties of the estimator that scikit-learn asks for."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is no R²: at best 0
        return tags

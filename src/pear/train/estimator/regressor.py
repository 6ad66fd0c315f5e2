"""``DecisionRegressor``: a scikit-learn regressor that is trained and scored by the regret of its decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import MissingExtraError, ProblemError
from pear.losses.regret_metrics import normalized_regret
from pear.problem import Model, Oracle, Problem
from pear.problem.row_pairing import check_paired_rows, is_frame
from pear.train.estimator import model_file
from pear.train.estimator.architecture import build_model
from pear.train.estimator.daily_updates import DailyUpdates, deviation
from pear.train.estimator.first_epoch import train_one_epoch
from pear.train.estimator.loss_setup import describe_method, make_estimator_loss, seed_of
from pear.train.estimator.progress_display import show_progress
from pear.train.estimator.regret_scorer import as_tensor, minus_regret
from pear.train.estimator.result_tables import as_group_table, as_series, as_table, variable_names
from pear.train.estimator.training_rows import (
    check_columns,
    forecast_offset,
    problem_of_rows,
    problem_to_decide,
    read_groups,
    read_row_weights,
    read_training_rows,
    true_values,
)
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.loss_interface import problem_of_loss
from pear.train.time_order import describe_order, sort_tables
from pear.train.validation import own_rows

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"DecisionRegressor needs scikit-learn, and {error.name} is not installed; run pip install 'pear-dfl[sklearn]'"
    ) from error

Array = np.ndarray[Any, Any]


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
        random_state: of the first weights and of the order of the samples: an int, a ``RandomState`` or None.
        verbose: show progress: a bar where rich is installed, log lines (logger "pear") elsewhere.

    Attributes:
        model_: the trained module, standardisation included: (B, p) → (B, k). A correction takes the forecasts of the
            base as second input.
        base_: the fitted base, where there is one.
        loss_: the loss, as training left it.
        history_: what ``pear.fit`` returned; after ``partial_fit`` alone there is none.
        updates_: the ``DailyUpdates`` of ``partial_fit`` after ``fit``, with ``updates_.note``.
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
            y: (N, k) the costs C that came true, or the values that the cost map takes; (N,) where k is 1. With groups
                (N·k,), a value for each row.
            validation: features and costs of rows held out, (X, y), or a dict of these and ``groups``,
                ``base_forecast``, ``known`` and ``sample_weight``; left out, as ``validation_fraction`` says.
            groups: (N·k,) ids of the samples that rows belong to, such as days. Every group has k rows, in the order
                of the problem's values; groups are ordered by their first rows.
            base_forecast: forecasts that are corrected, in the shape of y, in place of ``base``. They should be of rows
                that their forecaster had not seen. ``predict``, ``decide`` and ``score`` then need those of their rows.
            known: what is known about each sample, where the problem is a model with known values: a dictionary from
                their names to arrays (N, …), a DataFrame, or an array where there is one; see ``Model.with_known``.
            sample_weight: (N,) how much each row counts, in the loss, in the squared error and where trainings are
                judged; with groups (N·k,), the same for all rows of a group. Only ratios matter; 0 leaves a row out.
        """
        tables = {"X": X, "y": y, "groups": groups, "base_forecast": base_forecast, "sample_weight": sample_weight}
        check_paired_rows({**tables, "known": known})
        given, order = sort_tables(tables)
        own, held_out, given = own_rows(self.problem), None, {**given, "known": known}
        rows = read_training_rows(self, given, least=2 if validation is None else 1)
        rows = rows.with_known_in(order if own is None else None)
        if own not in (None, len(rows.costs)):
            raise ProblemError(f"the problem has fields of its own for {own} samples, and X has {len(rows.costs)} rows")
        if validation is not None:
            named = validation if isinstance(validation, Mapping) else dict(zip(("X", "y"), validation, strict=True))
            check_paired_rows(named)
            held_out = read_training_rows(self, named, dtype=rows.features.dtype)
        problem = problem_of_rows(self.problem, rows, held_out)
        config, model, loss = self._config(), build_model(self, rows), make_estimator_loss(self, problem, rows.costs)
        scaled, network = model
        with show_progress(self.verbose) as progress:
            judged_by: Any = self.validation_fraction
            if held_out is not None:
                judged_by = held_out.samples(scaled, after=len(rows.costs))
            metric = None if problem_of_loss(loss) is not None else self._regret
            train = rows.training_samples(scaled, None if own is None else order)
            weights: dict[str, Any] = {
                "sample_weight": rows.weight,
                "validation_weight": None if held_out is None else held_out.weight,
            }
            history = fit(network, loss, train, judged_by, metric, config, progress=progress, **weights)
        notes = [describe_order(order is not None), history.note, self._base_note, describe_method(self)]
        history.note = "; ".join(filter(None, notes))
        self.model_, self.loss_, self.history_, self._scale = model.eval(), loss, history, deviation(rows.costs)
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
        if own_rows(self.problem) is not None or getattr(self.problem, "known_map", None) is not None:
            raise ProblemError(
                "partial_fit takes a problem that all samples share; this one has fields or known values per sample: "
                "call fit with all rows"
            )
        fresh = not hasattr(self, "model_")
        given = {"X": X, "y": y, "groups": groups, "base_forecast": base_forecast}
        check_paired_rows(given)
        rows = read_training_rows(self, given, dtype=None if fresh else next(self.model_.parameters()).dtype)
        if not hasattr(self, "loss_"):  # that of a model file may have been an object, which the file does not hold
            self.loss_ = make_estimator_loss(self, self.problem, rows.costs)
        if fresh:
            self.model_, self._scale = build_model(self, rows), deviation(rows.costs)
        done = getattr(self, "n_iter_", 0)
        new, generator = rows.batch(self.model_[0]), torch.Generator().manual_seed(self._seed() + done)
        if fresh or hasattr(self, "_optimizer"):
            train_one_epoch(self, new, generator, fresh)
        else:
            if not hasattr(self, "updates_"):
                self.updates_ = self._begin_updates()
            self.updates_.update(new, self.batch_size, generator)
        self.n_iter_ = done + 1
        self.smoothing_ = getattr(self.loss_, "chosen_smoothing", None)
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
        values = self._forecast(X, base_forecast)
        if self._columns is not None and self._flat:
            return as_series(values, X, self._columns[0])
        if self._columns is not None:
            return as_table(values[:, None] if self._long else values, X, self._columns)
        return values[:, 0] if self._flat and not self._long else values

    def decide(
        self,
        X: Any,
        problem: Problem | Model | None = None,
        *,
        groups: Any = None,
        base_forecast: Any = None,
        known: Any = None,
    ) -> Any:
        """(N, n) decisions under the predicted costs; integer variables get integer values.

        Args:
            X, groups, base_forecast, known: rows as in ``fit``.
            problem: the problem of these rows, where samples have fields or known costs of their own.

        Returns:
            A DataFrame where X or the costs of ``fit`` were one, otherwise an array. Its columns are named as the
            ``Model``'s variables, or as the costs; its rows, with groups, as the groups.
        """
        predicted = self._forecast(X, base_forecast, groups=groups, known=known)
        table = read_groups(self, groups, len(predicted))
        values = predicted if table is None else table.gather(predicted)
        problem = problem_to_decide(self.problem, problem, known, values)
        decisions = solve(problem, as_tensor(problem, values)).x.cpu().numpy()
        if not is_frame(X) and self._columns is None:
            return decisions
        if table is not None:
            return as_group_table(decisions, table, variable_names(problem, None))
        return as_table(decisions, X, variable_names(problem, self._columns))

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
            y: (N, k) what came true; with groups (N·k,).
            problem: the problem of these rows, where samples have fields or known costs of their own.
        """
        beside = {"y": y, "groups": groups, "known": known, "sample_weight": sample_weight}
        predicted = self._forecast(X, base_forecast, **beside)
        check_columns(self, y)
        table = read_groups(self, groups, len(predicted))
        values = predicted if table is None else table.gather(predicted)
        problem = problem_to_decide(self.problem, problem, known, values)
        weight = read_row_weights(sample_weight, len(predicted), table)
        return minus_regret(problem, values, true_values(self, y, table), weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file: safetensors with a JSON document, no pickle; ``load`` reads it.

        The file holds the problem, the weights, the parameters and the names. After ``partial_fit`` it also holds the
        last samples, from which updates continue. It does not hold the history, a loss that was given as an object, the
        base, or the function of an ``Oracle``. Of a module of your own it holds the weights alone.
        """
        check_is_fitted(self, "model_")
        model_file.save(self, Path(path))

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
            DataError: the file is not there, is no model file, is cut off, or was altered.
            ProblemError: the file needs a module, a base or an oracle, or another one.
        """
        return model_file.load(cls, Path(path), model, base, oracle)

    def _forget(self) -> None:
        """Drop the results of an earlier training, so that a fit that fails leaves no model."""
        for name in ("model_", "loss_", "history_", "n_iter_", "smoothing_", "base_", "updates_", "_optimizer"):
            self.__dict__.pop(name, None)

    def _begin_updates(self) -> DailyUpdates:
        return DailyUpdates(self.model_[1], self.problem, self.loss_, self.learning_rate, self._scale)

    def _config(self) -> FitConfig:
        names = ["learning_rate", "batch_size", "max_epochs", "check_every", "patience", "time_cap", "gap"]
        names += ["label_neighbours", "label_own_weight", "label_mixing", "normalise_costs"]
        return FitConfig(**{name: getattr(self, name) for name in names}, seed=self._seed())

    def _seed(self) -> int:
        return seed_of(self.random_state)

    def _regret(self, predicted: Tensor, true: Tensor) -> float:
        """The validation metric for a loss without a problem."""
        return normalized_regret(problem_to_decide(self.problem, None, None, predicted), predicted, true)

    def _forecast(self, X: Any, base_forecast: Any = None, **beside: Any) -> Array:
        """Predicted values (N, k), or (N·k,) of a long table; what comes beside X must have its index."""
        check_is_fitted(self, "model_")
        check_paired_rows({"X": X, "base_forecast": base_forecast, **beside})
        rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        like, offset = next(self.model_.parameters()), forecast_offset(self, X, base_forecast)
        others = () if offset is None else (torch.from_numpy(offset).to(like),)
        self.model_.eval()
        with torch.no_grad():
            return self.model_(torch.from_numpy(np.array(rows)).to(like), *others).cpu().numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is no R²: at best 0
        return tags

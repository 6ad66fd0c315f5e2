"""``DecisionRegressor``: a scikit-learn regressor that is trained and scored by the regret of its decisions."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from pear.decisions.solve import solve
from pear.errors import MissingExtraError, ProblemError
from pear.losses.methods import make_loss
from pear.losses.regret_metrics import normalized_regret
from pear.problem import Model, Problem
from pear.problem.keys_and_columns import check_column_order, column_names, is_frame
from pear.problem.model import input_count, plain_problem
from pear.train.estimator import model_file
from pear.train.estimator.networks import Standardise, make_network
from pear.train.estimator.progress_display import show_progress
from pear.train.estimator.regret_scorer import as_tensor, as_values, minus_regret
from pear.train.estimator.result_tables import as_table, variable_names
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.loss_interface import accept_keys, problem_of_loss, step_guidance
from pear.train.sample_order import shuffled
from pear.train.successive_halving import multiple_of_auto
from pear.train.training_start import make_optimizer
from pear.train.validation import own_rows

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"DecisionRegressor needs scikit-learn, and {error.name} is not installed; run pip install 'pear-dfl[sklearn]'"
    ) from error

Array = np.ndarray[Any, Any]


class DecisionRegressor(RegressorMixin, BaseEstimator):
    """Predicts the costs of a problem, trained on the regret of the decisions; an estimator of scikit-learn.

    ``fit`` calls ``pear.fit``: it trains on the squared error first, then on the loss. Validation rows decide when to
    stop and which weights are kept. Features of "linear" and "mlp" are standardised inside; costs may be in any unit.

    Args:
        problem: the decision problem. With a ``Model`` the k values that its cost map takes are predicted, and C has k
            columns. Where samples have fields or known costs of their own, their rows are those of ``fit``'s X.
        model: "linear", "mlp", or a torch module from features (B, p) to values (B, k), which is copied, and sees X as
            it comes.
        loss: the name of a method of ``pear.losses.METHODS`` ("pear-guided", "pear" with the paper's settings, "mse",
            "spo+", …), a loss, which is copied, or a function from the problem to a loss.
        smoothing: λ of PEAR's loss; "auto*3" is three times the choice of "auto". None uses the method's default.
        injection: β of PEAR's loss; None uses the method's default.
        guidance: α of PEAR's loss; None uses the method's default.
        hidden_layer_sizes: widths of the hidden layers of "mlp".
        learning_rate, batch_size, max_epochs, check_every, patience, time_cap: as in ``pear.FitConfig``.
        validation_fraction: share of the rows, the last ones, that is held out, unless ``fit`` is given others.
        random_state: of the first weights and of the order of the samples: an int, a ``RandomState`` or None.
        verbose: show progress: a bar where rich is installed, log lines (logger "pear") elsewhere.

    Attributes:
        model_: the trained module, standardisation included: (B, p) → (B, k).
        loss_: the loss, as training left it.
        history_: what ``pear.fit`` returned; after ``partial_fit`` alone there is none.
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
        loss: str | Callable[..., Any] | None = "pear-guided",
        *,
        smoothing: float | str | None = None,
        injection: float | None = None,
        guidance: float | None = None,
        hidden_layer_sizes: Sequence[int] = (64,),
        learning_rate: float = 1e-2,
        batch_size: int = 32,
        max_epochs: int = 10_000,
        check_every: int = 10,
        patience: int = 10,
        time_cap: float | None = None,
        validation_fraction: float = 0.2,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.problem = problem
        self.model = model
        self.loss = loss
        self.smoothing = smoothing
        self.injection = injection
        self.guidance = guidance
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.check_every = check_every
        self.patience = patience
        self.time_cap = time_cap
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, validation: tuple[Any, Any] | None = None, **unsupported: Any) -> Self:
        """Train from scratch.

        Args:
            X: (N, p) features, an array or a DataFrame.
            y: (N, k) the costs C that came true, or the values that the cost map takes; (N,) where k is 1.
            validation: features and costs of rows held out; left out, the last ``validation_fraction`` of the rows.
            **unsupported: nothing; ``sample_weight`` is refused.
        """
        _refuse_arguments(unsupported)
        features, costs = self._samples(X, y, least=2 if validation is None else 1)
        own, held_out = own_rows(self.problem), None
        if own not in (None, len(features)):
            raise ProblemError(f"the problem has fields of its own for {own} samples, and X has {len(features)} rows")
        if validation is not None:
            held_out = self._samples(*validation, dtype=features.dtype)
        config, model, loss = self._config(), self._architecture(features), self._make_loss(costs)
        scaled, network = _split_model(model)
        with show_progress(self.verbose) as progress:
            history = fit(
                network,
                loss,
                (scaled(features), costs),
                self.validation_fraction if held_out is None else (scaled(held_out[0]), held_out[1]),
                None if problem_of_loss(loss) is not None else self._regret,
                config,
                progress=progress,
            )
        self.model_, self.loss_, self.history_ = model.eval(), loss, history
        self.n_iter_ = max(1, history.epochs + (history.before.epochs if history.before is not None else 0))
        self.smoothing_ = getattr(loss, "chosen_smoothing", None)
        return self

    def partial_fit(self, X: Any, y: Any, **unsupported: Any) -> Self:
        """Train for one more epoch on these rows; nothing is held out, and the last weights are kept.

        Where the model is not fitted yet, these rows determine the standardisation and the smoothing "auto".

        Args:
            X: (N, p) features.
            y: (N, k) costs or values.
            **unsupported: nothing; ``sample_weight`` is refused.
        """
        _refuse_arguments(unsupported)
        if own_rows(self.problem) is not None:
            raise ProblemError("partial_fit takes a problem that all samples share; this one has fields per sample")
        fresh = not hasattr(self, "model_")
        features, costs = self._samples(X, y, dtype=None if fresh else next(self.model_.parameters()).dtype)
        config = self._config()
        if not hasattr(self, "loss_"):  # that of a model file may have been an object, which the file does not hold
            self.loss_ = self._make_loss(costs)
        if fresh:
            self.model_ = self._architecture(features)
        scaled, network = _split_model(self.model_)
        features, loss = scaled(features), accept_keys(self.loss_)
        if not hasattr(self, "_optimizer"):
            decides = hasattr(self.loss_, "problem")
            self._optimizer = make_optimizer(network, features, costs, config, keep=not fresh, typical=decides)
        network.train()
        done = getattr(self, "n_iter_", 0)
        for rows in shuffled(len(features), torch.Generator().manual_seed(self._seed() + done)).split(self.batch_size):
            self._optimizer.zero_grad()
            loss(network(features[rows]), costs[rows], keys=None).backward()
            self._optimizer.step()
            step_guidance(self.loss_)
        network.eval()
        self.n_iter_ = done + 1
        self.smoothing_ = getattr(self.loss_, "chosen_smoothing", None)
        return self

    def predict(self, X: Any) -> Any:
        """(N, k) predicted costs, or values that the cost map takes.

        Returns:
            A DataFrame with the columns of C where C was one, and with the index of X where that is one. (N,) where C
            was. Otherwise an array.
        """
        values = self._forecast(X)
        if self._columns is not None:
            return as_table(values, X, self._columns)
        return values[:, 0] if self._flat else values

    def decide(self, X: Any, problem: Problem | Model | None = None) -> Any:
        """(N, n) decisions under the predicted costs; integer variables get integer values.

        Args:
            X: (N, p) features.
            problem: the problem of these rows, where samples have fields or known costs of their own.

        Returns:
            A DataFrame where X is one or C was: columns are named as the variables of a ``Model``, or as the costs.
            Otherwise an array.
        """
        problem, values = self._problem_of(problem), self._forecast(X)
        decisions = solve(problem, as_tensor(problem, values)).x.cpu().numpy()
        if is_frame(X) or self._columns is not None:
            return as_table(decisions, X, variable_names(problem, self._columns))
        return decisions

    def score(self, X: Any, y: Any, problem: Problem | Model | None = None) -> float:
        """Minus the normalised regret, which is 0 where every decision is the best one; it is not R².

        Args:
            X: (N, p) features.
            y: (N, k) what came true.
            problem: the problem of these rows, where samples have fields or known costs of their own.
        """
        problem, predicted = self._problem_of(problem), self.predict(X)
        self._check_columns(y)
        return minus_regret(problem, predicted, y)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file: safetensors with a JSON document, no pickle; ``load`` reads it.

        It holds the problem, the weights, the parameters and the names; not the history, nor a loss that was given as
        an object. Of a module of your own it holds the weights alone.
        """
        check_is_fitted(self, "model_")
        model_file.save(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module | None = None) -> Self:
        """The estimator in a model file.

        Args:
            path: the file to write.
            model: the module that the file's weights belong to, where it is one of your own.

        Raises:
            DataError: the file is not there, is no model file, is cut off, or was altered.
            ProblemError: the file needs a module, or another one.
        """
        return model_file.load(cls, Path(path), model)

    def _samples(self, X: Any, y: Any, dtype: torch.dtype | None = None, least: int = 1) -> tuple[Tensor, Tensor]:
        """Features and costs as tensors, checked by scikit-learn.

        Args:
            X, y: the rows.
            dtype: of the model; None for rows that a fresh model gets its type, its columns and its names from.
            least: so many rows are needed.
        """
        fresh, columns = dtype is None, column_names(y)
        if fresh:
            self._forget()
        numbers: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": fresh, "ensure_min_samples": least}
        rows, true = validate_data(self, X, y, multi_output=True, y_numeric=True, **numbers)
        values = as_values(self.problem, true, "y")
        if fresh:
            check_column_order(self.problem, columns)
            self._columns, self._flat = columns, true.ndim == 1
        else:
            self._check_columns(y)
        device, features = plain_problem(self.problem).device, torch.from_numpy(np.array(rows))
        dtype = dtype or features.dtype
        return features.to(device, dtype), torch.from_numpy(np.array(values)).to(device, dtype)

    def _check_columns(self, y: Any) -> None:
        """Raise ProblemError unless the columns of a table of costs are those of ``fit``, in the same order."""
        columns = column_names(y)
        if columns is not None and self._columns is not None and columns != self._columns:
            raise ProblemError(f"the columns of y must be those of fit, {list(self._columns)}; got {list(columns)}")

    def _forget(self) -> None:
        """Drop the results of an earlier training, so that a fit that fails leaves no model."""
        for name in ("model_", "loss_", "history_", "n_iter_", "smoothing_", "_optimizer"):
            self.__dict__.pop(name, None)

    def _architecture(self, features: Tensor) -> nn.Sequential:
        """The standardisation of these features, followed by the untrained model."""
        if isinstance(self.model, nn.Module):
            return nn.Sequential(nn.Identity(), copy.deepcopy(self.model))
        hidden, outputs = tuple(self.hidden_layer_sizes), input_count(self.problem)
        network = make_network(self.model, features.shape[1], outputs, hidden, self._seed())
        return nn.Sequential(Standardise(features), network.to(features))

    def _make_loss(self, costs: Tensor | None = None) -> Any:
        """Make the loss; a smoothing that is a multiple of "auto" is calibrated where costs are given."""
        given = {"smoothing": self.smoothing, "injection": self.injection, "guidance": self.guidance}
        options = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.loss, str):
            times = multiple_of_auto(options.get("smoothing"))
            options |= {} if times is None else {"smoothing": "auto"}
            loss: Any = make_loss(self.loss, self.problem, **options)
            if times is not None and costs is not None:
                loss.calibrate(costs, times=times)
            return loss
        if options:
            raise ProblemError(f"{', '.join(options)} of a loss that is given as an object must be set on the object")
        if self.loss is None:
            raise ProblemError("the loss was an object, which a model file does not hold; set_params(loss=…) first")
        loss = copy.deepcopy(self.loss) if isinstance(self.loss, nn.Module) else self.loss(self.problem)
        if not callable(loss):
            raise ProblemError(f"loss must be a name, a loss, or a function from the problem to one; it gave {loss!r}")
        return loss

    def _config(self) -> FitConfig:
        names = ("learning_rate", "batch_size", "max_epochs", "check_every", "patience", "time_cap")
        return FitConfig(**{name: getattr(self, name) for name in names}, seed=self._seed())

    def _seed(self) -> int:
        """The seed: ``random_state`` where that is an int, otherwise a number drawn from it."""
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _regret(self, predicted: Tensor, true: Tensor) -> float:
        """The validation metric for a loss without a problem."""
        return normalized_regret(self._problem_of(None), predicted, true)

    def _forecast(self, X: Any) -> Array:
        """Predicted values (N, k), in the dtype of the model."""
        check_is_fitted(self, "model_")
        rows = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        like = next(self.model_.parameters())
        self.model_.eval()
        with torch.no_grad():
            return self.model_(torch.from_numpy(np.array(rows)).to(like)).cpu().numpy()

    def _problem_of(self, given: Problem | Model | None) -> Problem | Model:
        """The problem to decide on: the estimator's, or the caller's for rows with fields of their own."""
        own = own_rows(self.problem)
        if given is None and own is not None:
            raise ProblemError(
                f"the problem has fields of its own for the {own} rows of fit, and nobody says what those of "
                "other rows are; pass problem=…, with a row for each of X"
            )
        if given is not None and input_count(given) != input_count(self.problem):
            raise ProblemError(
                f"the problem given takes {input_count(given)} values, and {input_count(self.problem)} are predicted"
            )
        return self.problem if given is None else given

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is no R²: at best 0
        return tags


def _split_model(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The standardisation and the trained part of a model."""
    assert isinstance(model, nn.Sequential)
    return model[0], model[1]


def _refuse_arguments(unsupported: dict[str, Any]) -> None:
    """Raise on keyword arguments that ``fit`` does not support, ``sample_weight`` among them."""
    given = [name for name, value in unsupported.items() if value is not None]
    if "sample_weight" in given:
        raise ProblemError(
            "sample_weight is not supported: a decision is taken for every sample alike; repeat rows that count more"
        )
    if given:
        raise TypeError(f"unexpected argument {given[0]!r}; fit takes X, y and validation")

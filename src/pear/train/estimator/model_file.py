"""The model file of a ``DecisionRegressor``, with its problem, its weights, its parameters and the names of columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from pear.errors import DataError, PearError, ProblemError
from pear.intervals.cost_intervals import CostIntervals
from pear.losses.decision_module import DecisionModule
from pear.problem import ConstraintMap, CostMap, KnownMap, Model, Oracle, Penalty, Problem, Projection
from pear.problem.constraint_map import SIDES
from pear.problem.curvature_map import CurvatureMap
from pear.problem.known_map import KnownValue
from pear.problem.problem_fields import FIELDS
from pear.train.estimator.daily_updates import DailyUpdates
from pear.train.estimator.loss_and_config import make_estimator_loss
from pear.train.estimator.networks import build_network
from pear.train.estimator.training_rows import TrainingRows
from pear.train.safetensors_file import MALFORMED, read_safetensors, write_safetensors

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor

KIND, VERSION = "PEAR model file", 4
_REMEDY = "DecisionRegressor.save and `pear train` write one"

_ENTRIES = {
    *("parameters", "own_module", "problem", "weights", "loss_state", "features", "feature_names", "columns"),
    *("flat", "long", "corrects", "base", "epochs", "scale", "updates", "intervals"),
}
"""The names of the entries of a model file. A file with another entry is refused."""
_PROBLEM_ENTRIES = {"fields", "sense", "n", "oracle", "relaxation", "model"}
_MODEL_ENTRIES = {
    *("known", "offset", "variables", "rows", "report", "layout", "cost_map"),
    *("constraints", "constraint_signs", "constraint_map", "penalty", "projection", "known_map", "curvature_map"),
}

Regressor = TypeVar("Regressor", bound="DecisionRegressor")


def write_model_file(estimator: DecisionRegressor, path: Path) -> None:
    """Write a fitted estimator to a model file."""
    own = isinstance(estimator.model, nn.Module)
    content = {
        "parameters": _parameters_for_file(estimator),
        "own_module": type(estimator.model).__name__ if own else None,
        "problem": _problem_for_file(estimator.problem),
        "weights": {name: _weight_for_file(name, weight) for name, weight in estimator.model_.state_dict().items()},
        "loss_state": _loss_state_for_file(estimator),
        "features": estimator.n_features_in_,
        "feature_names": _names_for_file(getattr(estimator, "feature_names_in_", None), "columns of X"),
        "columns": _names_for_file(estimator._columns, "columns of C"),
        "flat": estimator._flat,
        "long": estimator._long,
        "corrects": estimator._corrects,
        "base": type(estimator.base_).__name__ if hasattr(estimator, "base_") else None,
        "epochs": estimator.n_iter_,
        "scale": estimator._scale,
        "updates": estimator.updates_.content() if hasattr(estimator, "updates_") else None,
    }
    if hasattr(estimator, "intervals_"):
        content["intervals"] = estimator.intervals_.content()
    write_safetensors(path, KIND, VERSION, content)


def read_model_file(
    kind: type[Regressor], path: Path, model: nn.Module | None, base: Any, oracle: Oracle | None = None
) -> Regressor:
    """Read a fitted estimator from a model file.

    Args:
        kind: the class of the estimator.
        path: the path of the file.
        model: the torch module of the estimator, which a file does not hold; None for "linear" and "mlp".
        base: the fitted base forecaster, which a file does not hold; None if there was none.
        oracle: the ``Oracle`` in the problem, which a file does not hold; None if there was none.
    """
    said = read_safetensors(path, KIND, VERSION, _REMEDY)
    try:
        _check_file_entries(said)
        if said["problem"]["n"] > path.stat().st_size:
            raise ValueError(f"{said['problem']['n']} variables in a file of {path.stat().st_size} bytes")
        return _estimator_from_file(kind, said, path, model, base, oracle)
    except PearError:
        raise
    except MALFORMED as error:
        raise DataError(f"{path} is no {KIND} that PEAR has written ({error!r}); {_REMEDY}") from error


def _check_file_entries(said: dict[str, Any]) -> None:
    """Raise ValueError if the content of a file has an entry that model files do not have."""
    problem = said["problem"]
    parts = (said, _ENTRIES), (problem, _PROBLEM_ENTRIES), (problem.get("model") or {}, _MODEL_ENTRIES)
    for part, names in parts:
        if strange := sorted(set(part) - names):
            raise ValueError(f"unknown entry {strange[0]!r}")


def _estimator_from_file(
    kind: type[Regressor],
    said: dict[str, Any],
    path: Path,
    model: nn.Module | None,
    base: Any,
    oracle: Oracle | None,
) -> Regressor:
    """Return the estimator that the content ``said`` describes; other arguments are as in ``read_model_file``."""
    if (said["own_module"] is None) != (model is None):
        wanted = "no model: its own is in the file" if model is not None else f"model=…, a {said['own_module']} like it"
        raise ProblemError(f"{path} was written with {said['own_module'] or 'a model made by name'}; pass {wanted}")
    _check_file_base(said, path, base)
    architecture = said["parameters"].pop("model") if model is None else model
    problem = _problem_from_file(said["problem"], _check_file_oracle(said["problem"], path, oracle))
    estimator = kind(problem, architecture, base=base, **said["parameters"])
    estimator.n_features_in_, estimator.n_iter_ = said["features"], said["epochs"]
    estimator._scale = float(said["scale"])
    if said["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(said["feature_names"], dtype=object)
    estimator._columns = None if said["columns"] is None else tuple(said["columns"])
    estimator._flat, estimator._long, estimator._corrects = said["flat"], said["long"], said["corrects"]
    if base is not None:
        estimator.base_ = base
    _load_weights_from_file(estimator, said["weights"], path)
    _load_loss_from_file(estimator, said["loss_state"])
    if "intervals" in said:
        estimator.intervals_ = CostIntervals.restore(problem, said["intervals"])
    if said["updates"] is not None and hasattr(estimator, "loss_"):
        estimator.updates_ = DailyUpdates.of_estimator(estimator)
        estimator.updates_.restore(said["updates"])
    return estimator


def _check_file_base(said: dict[str, Any], path: Path, base: Any) -> None:
    """Raise ProblemError if a base forecaster is needed and not given, or is given and not needed.

    ``said`` is the content of the file at ``path``.
    """
    if said["corrects"] == "base" and base is None:
        raise ProblemError(
            f"{path} holds the correction of a {said['base']}, and a model file does not hold the forecaster itself; "
            "save that in its own way, and pass base=…, fitted as it was"
        )
    if said["base"] is None and base is not None:
        raise ProblemError(f"the weights in {path} correct no base forecaster; pass no base")


def _parameters_for_file(estimator: DecisionRegressor) -> dict[str, Any]:
    """Return the constructor's parameters by name, except the problem, the base and a torch module.

    A loss that is not a string becomes None, and so does a random state that is not an int.
    """
    given = {
        name: _plain_value_for_file(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("problem", "base")
    }
    given["hidden_layer_sizes"] = tuple(_plain_value_for_file(size) for size in given["hidden_layer_sizes"])
    if isinstance(estimator.model, nn.Module):
        del given["model"]
    if not isinstance(given["loss"], str):
        given["loss"] = None
    if not isinstance(given["random_state"], int):
        given["random_state"] = None  # a file does not hold the state of a generator
    return given


def _plain_value_for_file(value: Any) -> Any:
    """Return a number of NumPy as a number of Python, and any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def _names_for_file(names: Sequence[Any] | None, what: str) -> list[Any] | None:
    """Return the names of columns as texts and numbers; None if there are no names.

    Raises:
        ProblemError: a name is neither a text nor a number. ``what`` says in the message what the columns are.
    """
    if names is None:
        return None
    found = [_plain_value_for_file(name) for name in names]
    for name in found:
        if not isinstance(name, (str, int, float)):
            raise ProblemError(f"{what} must be named by strings or numbers to be written; got {name!r}: rename it")
    return found


def _weight_for_file(name: str, value: Any) -> torch.Tensor:
    """Return an entry of a ``state_dict`` unchanged; raise ProblemError if it is no tensor."""
    if not isinstance(value, torch.Tensor):
        raise ProblemError(
            f"the module keeps {name} of type {type(value).__name__}, and a model file holds tensors only"
        )
    return value


def _problem_for_file(problem: Problem | Model) -> dict[str, Any]:
    """Return a problem or model as arrays, names and numbers for a model file.

    Raises:
        ProblemError: the problem has a smooth term, which consists of functions.
    """
    model, plain = (problem, problem.problem) if isinstance(problem, Model) else (None, problem)
    if plain.phi is not None:
        raise ProblemError("the problem has a smooth term, which is made of functions; a model file holds arrays only")
    fields = {name: getattr(plain, name) for name in (*FIELDS, "integer")}
    said: dict[str, Any] = {"fields": fields, "sense": plain.sense, "n": plain.n}
    if isinstance(plain, Oracle):
        name = getattr(plain.function, "__name__", type(plain.function).__name__)
        said |= {"fields": {}, "oracle": name, "relaxation": plain.relaxation is not None}
    if model is not None:
        own = model.cost_map
        said["model"] = {
            "known": model.known if own is None else own.known,
            "offset": model.offset if isinstance(model.offset, torch.Tensor) else float(model.offset),
            "variables": list(model.variables),
            "rows": list(model.rows),
            "constraints": list(model.constraints),
            "constraint_signs": list(model.constraint_signs),
            "report": model.report,
            "layout": dict(model.layout),
            "cost_map": None if own is None else {"M": own.M, "names": list(own.names)},
        }
        if model.constraint_map is not None:
            said["model"] |= _constraints_for_file(model.constraint_map, model.recourse)
        if model.known_map is not None:
            said["model"]["known_map"] = _known_map_for_file(model.known_map)
        if model.curvature_map is not None:
            said["model"]["curvature_map"] = {"M": model.curvature_map.M, "signs": model.curvature_map.signs}
    return said


def _known_map_for_file(known: KnownMap) -> dict[str, Any]:
    """Return the known values of a model, and the matrices that map them to the problem, as a dict for a model file."""
    fields = ("name", "shape", "labels", "sign")
    return {
        "values": [{field: getattr(one, field) for field in fields} for one in known.values],
        "matrices": {name: known.matrix(name) for name in known.targets},
    }


def _known_map_from_file(said: dict[str, Any] | None) -> KnownMap | None:
    """Return the known map from the result of ``_known_map_for_file``; None if ``said`` is None."""
    if said is None:
        return None
    return KnownMap([KnownValue(**one) for one in said["values"]], **said["matrices"])


def _constraints_for_file(rows: ConstraintMap, recourse: Penalty | Projection | None) -> dict[str, Any]:
    """Return a constraint map as matrices, and its recourse as prices and weights, in a dict for a model file."""
    said: dict[str, Any] = {"constraint_map": {side: rows.matrix(side) for side in (*SIDES, *rows.matrices)}}
    if isinstance(recourse, Penalty):
        said["penalty"] = {side: _price_for_file(getattr(recourse, side)) for side in SIDES}
    elif recourse is not None:
        said["projection"] = {"weights": _price_for_file(recourse.weights), "price": float(recourse.price)}
    return said


def _price_for_file(given: Any) -> Any:
    """Return a price of a recourse, or each entry of a pair of prices, as None, a number, a tensor or an array."""
    if given is None or isinstance(given, (int, float, torch.Tensor)):
        return given
    return tuple(_price_for_file(one) for one in given) if isinstance(given, tuple) else np.asarray(given)


def _constraints_from_file(said: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments ``constraint_map`` and ``recourse`` of a ``Model``, as a dict.

    ``said`` describes the model in a model file. An argument that it does not describe is left out.
    """
    if "constraint_map" not in said:
        return {}
    found: dict[str, Any] = {"constraint_map": ConstraintMap(**said["constraint_map"])}
    if "penalty" in said:
        found["recourse"] = Penalty(**said["penalty"])
    elif "projection" in said:
        found["recourse"] = Projection(**said["projection"])
    return found


def _check_file_oracle(said: dict[str, Any], path: Path, oracle: Oracle | None) -> Oracle | None:
    """Return the given oracle if the file was written with an oracle; None if the file holds a problem of its own.

    Raises:
        ProblemError: the oracle is missing, does not fit the file, or the file was written without an oracle.
    """
    if "oracle" not in said:
        if oracle is not None:
            raise ProblemError(f"{path} was written with a problem of its own, not an oracle; pass no oracle")
        return None
    trained = ", with a relaxation" if said["relaxation"] else ""
    wanted = f"oracle=pear.Oracle(…, n={said['n']}, sense={said['sense']!r}){trained}, to DecisionRegressor.load"
    if oracle is None:
        raise ProblemError(
            f"{path} was written with the oracle {said['oracle']!r}, and a model file does not hold its function; "
            f"pass {wanted}"
        )
    fits = isinstance(oracle, Oracle) and (oracle.n, oracle.sense) == (said["n"], said["sense"])
    if not fits or (said["relaxation"] and oracle.relaxation is None):
        raise ProblemError(f"{path} was written with another oracle than {oracle!r}; pass {wanted}")
    return oracle


def _problem_from_file(said: dict[str, Any], oracle: Oracle | None) -> Problem | Model:
    """Return the problem or model that a model file describes. A given oracle takes the place of the ``Problem``."""
    problem = oracle if oracle is not None else Problem(**said["fields"], sense=said["sense"], n=said["n"])
    model = said.get("model")
    if model is None:
        return problem
    known, own = torch.as_tensor(model["known"]), model["cost_map"]
    return Model(
        problem,
        known=known,
        offset=model["offset"],
        variables=tuple(model["variables"]),
        rows=tuple(model["rows"]),
        constraints=tuple(model.get("constraints", ())),
        constraint_signs=tuple(model.get("constraint_signs", ())),
        cost_map=None if own is None else CostMap(own["M"], known, own["names"]),
        layout={name: torch.as_tensor(at) for name, at in model["layout"].items()},
        report=model["report"],
        known_map=_known_map_from_file(model.get("known_map")),
        curvature_map=CurvatureMap(**model["curvature_map"]) if "curvature_map" in model else None,
        **_constraints_from_file(model),
    )


def _load_weights_from_file(estimator: DecisionRegressor, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Make the network of an estimator, and load the weights of a model file into it."""
    if isinstance(estimator.model, str):  # a small file must not ask for huge layers
        asked = [estimator.n_features_in_, *(estimator.hidden_layer_sizes if estimator.model == "mlp" else ())]
        sizes = {size for weight in weights.values() for size in weight.shape}
        if not set(asked) <= sizes:
            raise DataError(f"{path} asks for layers of {asked}, and holds weights of {sorted(sizes)}; {_REMEDY}")
    like = weights.get("0.mean", next(iter(weights.values())))
    features = torch.zeros(1, estimator.n_features_in_, dtype=like.dtype)
    zeros = torch.zeros(1, 1, dtype=like.dtype)
    rows = TrainingRows(features, zeros, None if estimator._corrects is None else zeros)
    estimator.model_ = build_network(estimator, rows)
    try:
        estimator.model_.load_state_dict(weights)
    except RuntimeError as error:
        raise ProblemError(f"the weights in {path} do not fit the module that was passed: {error}") from error
    estimator.model_.eval()


def _loss_state_for_file(estimator: DecisionRegressor) -> dict[str, Any] | None:
    """Return the state of an estimator's loss, with which updates can continue.

    The result is None for a loss that is an object, which a file does not hold, and for a loss without a state.
    """
    loss = getattr(estimator, "loss_", None)
    return loss.get_extra_state() if isinstance(loss, DecisionModule) and isinstance(estimator.loss, str) else None


def _load_loss_from_file(estimator: DecisionRegressor, state: dict[str, Any] | None) -> None:
    """Make the loss of an estimator in the state that it had after the training.

    No loss is made in two cases: the loss was an object, which a file does not hold; or the problem is a model with
    known values, whose loss belongs to the training rows, which a file does not hold.
    """
    estimator.smoothing_ = None if state is None else state["smoothing"]
    if estimator.loss is None or getattr(estimator.problem, "known_map", None) is not None:
        return
    estimator.loss_ = make_estimator_loss(estimator, estimator.problem)
    if state is not None:
        estimator.loss_.set_extra_state(state)
        estimator.smoothing_ = estimator.loss_.chosen_smoothing

"""The model file of ``DecisionRegressor``: its problem, weights, parameters and names, without pickle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from pear.errors import ProblemError
from pear.losses.module import DecisionModule
from pear.problem import ConstraintMap, CostMap, Model, Penalty, Problem, Projection
from pear.problem.constraint_map import SIDES
from pear.problem.problem import FIELDS
from pear.train.estimator.archive import Archive

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor

KIND, VERSION = "pear model", 2
_WITHOUT_CONSTRAINT_MAP = 1  # which an older pear reads; it would not see the map

Regressor = TypeVar("Regressor", bound="DecisionRegressor")


def save(estimator: DecisionRegressor, path: Path) -> None:
    """Write a fitted estimator."""
    archive = Archive()
    own = isinstance(estimator.model, nn.Module)
    weights = {
        name: archive.put(f"weights/{name}", _tensor(name, w)) for name, w in estimator.model_.state_dict().items()
    }
    rows = estimator.problem.constraint_map if isinstance(estimator.problem, Model) else None
    archive.document |= {
        "format": KIND,
        "version": _WITHOUT_CONSTRAINT_MAP if rows is None else VERSION,
        "parameters": _parameters(estimator),
        "own_module": type(estimator.model).__name__ if own else None,
        "problem": _put_problem(archive, estimator.problem),
        "weights": weights,
        "loss_state": _put_loss_state(archive, estimator),
        "features": estimator.n_features_in_,
        "feature_names": _names(getattr(estimator, "feature_names_in_", None), "columns of X"),
        "columns": _names(estimator._columns, "columns of C"),
        "flat": estimator._flat,
        "epochs": estimator.n_iter_,
    }
    archive.write(path)


def load(kind: type[Regressor], path: Path, model: nn.Module | None) -> Regressor:
    """The fitted estimator in a file; ``model`` where its module is the user's own."""
    archive = Archive.read(path, KIND, VERSION)
    said = archive.document
    weights = {name: torch.from_numpy(archive.get(one)) for name, one in said["weights"].items()}
    if (said["own_module"] is None) != (model is None):
        wanted = "no model: its own is in the file" if model is not None else f"model=…, a {said['own_module']} like it"
        raise ProblemError(f"{path} was written with {said['own_module'] or 'a model made by name'}; pass {wanted}")
    architecture = said["parameters"].pop("model") if model is None else model
    said["parameters"]["hidden_layer_sizes"] = tuple(said["parameters"]["hidden_layer_sizes"])
    estimator = kind(_get_problem(archive, said["problem"]), architecture, **said["parameters"])
    estimator.n_features_in_, estimator.n_iter_ = said["features"], said["epochs"]
    if said["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(said["feature_names"], dtype=object)
    estimator._columns = None if said["columns"] is None else tuple(said["columns"])
    estimator._flat = said["flat"]
    _restore_weights(estimator, weights, path)
    _restore_loss(estimator, archive, said["loss_state"])
    return estimator


def _parameters(estimator: DecisionRegressor) -> dict[str, Any]:
    """The constructor's parameters as JSON can say them: those that are objects are left to ``load``'s caller."""
    given = {name: _plain(value) for name, value in estimator.get_params(deep=False).items() if name != "problem"}
    given["hidden_layer_sizes"] = [_plain(size) for size in given["hidden_layer_sizes"]]
    if isinstance(estimator.model, nn.Module):
        del given["model"]
    if not isinstance(given["loss"], str):
        given["loss"] = None
    if not isinstance(given["random_state"], int):
        given["random_state"] = None  # a generator's state is not kept: None draws anew, as the generator would have
    return given


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _names(names: Sequence[Any] | None, what: str) -> list[Any] | None:
    if names is None:
        return None
    found = [_plain(name) for name in names]
    for name in found:
        if not isinstance(name, (str, int, float)):
            raise ProblemError(f"{what} must be named by strings or numbers to be written; got {name!r}: rename it")
    return found


def _tensor(name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ProblemError(
            f"the module keeps {name} of type {type(value).__name__}, and a model file holds tensors only"
        )
    return value


def _put_problem(archive: Archive, problem: Problem | Model) -> dict[str, Any]:
    model, plain = (problem, problem.problem) if isinstance(problem, Model) else (None, problem)
    if plain.phi is not None:
        raise ProblemError("the problem has a smooth term, which is made of functions; a model file holds arrays only")
    fields = {name: archive.put(f"problem/{name}", getattr(plain, name)) for name in (*FIELDS, "integer")}
    said: dict[str, Any] = {"fields": fields, "sense": plain.sense, "n": plain.n}
    if model is not None:
        layout = [[name, archive.put(f"layout/{i}", at)] for i, (name, at) in enumerate(model.layout.items())]
        own = model.cost_map
        cost_map = None if own is None else {"M": archive.put("M", own.M), "names": list(own.names)}
        said["model"] = {
            "known": archive.put("known", model.known if own is None else own.known),
            "offset": float(model.offset),
            "variables": list(model.variables),
            "rows": list(model.rows),
            "report": model.report,
            "layout": layout,
            "cost_map": cost_map,
        }
        if model.constraint_map is not None:
            said["model"] |= _put_constraints(archive, model.constraint_map, model.recourse)
    return said


def _put_constraints(archive: Archive, rows: ConstraintMap, recourse: Penalty | Projection | None) -> dict[str, Any]:
    """The constraint map and the recourse; prices as they were given: a number, an array or a pair of these."""
    said: dict[str, Any] = {
        "constraint_map": {side: archive.put(f"constraint_map/{side}", rows.matrix(side)) for side in SIDES}
    }
    if isinstance(recourse, Penalty):
        prices = {side: getattr(recourse, side) for side in SIDES}
        said["penalty"] = {
            side: [archive.put(f"penalty/{side}/{i}", one) for i, one in enumerate(price)]
            if isinstance(price, tuple)
            else archive.put(f"penalty/{side}", price)
            for side, price in prices.items()
        }
    elif recourse is not None:
        weights = archive.put("projection/weights", recourse.weights)
        said["projection"] = {"weights": weights, "price": float(recourse.price)}
    return said


def _get_constraints(archive: Archive, said: dict[str, Any]) -> dict[str, Any]:
    """Fields of a ``Model`` from what ``_put_constraints`` wrote; none where nothing was."""
    if "constraint_map" not in said:
        return {}
    found: dict[str, Any] = {
        "constraint_map": ConstraintMap(**{side: archive.get(one) for side, one in said["constraint_map"].items()})
    }
    if "penalty" in said:
        prices = {
            side: tuple(archive.get(one) for one in price) if isinstance(price, list) else archive.get(price)
            for side, price in said["penalty"].items()
        }
        found["recourse"] = Penalty(**prices)
    elif "projection" in said:
        own = said["projection"]
        found["recourse"] = Projection(archive.get(own["weights"]), own["price"])
    return found


def _get_problem(archive: Archive, said: dict[str, Any]) -> Problem | Model:
    fields = {name: archive.get(one) for name, one in said["fields"].items()}
    problem = Problem(**fields, sense=said["sense"], n=said["n"])
    model = said.get("model")
    if model is None:
        return problem
    known, own = archive.get(model["known"]), model["cost_map"]
    return Model(
        problem,
        known=torch.from_numpy(known),
        offset=model["offset"],
        variables=tuple(model["variables"]),
        rows=tuple(model["rows"]),
        cost_map=None if own is None else CostMap(archive.get(own["M"]), known, own["names"]),
        layout={name: torch.from_numpy(archive.get(at)) for name, at in model["layout"]},
        report=model["report"],
        **_get_constraints(archive, model),
    )


def _restore_weights(estimator: DecisionRegressor, weights: dict[str, torch.Tensor], path: Path) -> None:
    """A model of the right shape, with the weights of the file."""
    like = weights.get("0.mean", next(iter(weights.values())))
    estimator.model_ = estimator._architecture(torch.zeros(1, estimator.n_features_in_, dtype=like.dtype))
    try:
        estimator.model_.load_state_dict(weights)
    except RuntimeError as error:
        raise ProblemError(f"the weights in {path} do not fit the module that was passed: {error}") from error
    estimator.model_.eval()


def _put_loss_state(archive: Archive, estimator: DecisionRegressor) -> dict[str, Any] | None:
    """What PEAR's loss has settled on, so that training can go on."""
    loss = estimator.loss_
    if not isinstance(loss, DecisionModule) or not isinstance(estimator.loss, str):
        return None
    state = loss.get_extra_state()
    return {**state, "units": archive.put("units", state.get("units"))}


def _restore_loss(estimator: DecisionRegressor, archive: Archive, state: dict[str, Any] | None) -> None:
    """The loss, as training left it; a loss that was an object is not in the file, and training needs another."""
    estimator.smoothing_ = None
    if estimator.loss is None:
        return
    estimator.loss_ = estimator._make_loss()
    if state is not None:
        units = archive.get(state["units"])
        estimator.loss_.set_extra_state({**state, "units": None if units is None else torch.from_numpy(units)})
        estimator.smoothing_ = estimator.loss_.chosen_smoothing

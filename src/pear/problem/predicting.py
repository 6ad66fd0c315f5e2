"""The cost map and constraint map of ``Model.predicting``, from the entries that the user chooses to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.constraint_map import ConstraintMap, own_sides
from pear.problem.convert import shape, to_float64
from pear.problem.cost_map import CostMap
from pear.problem.problem import Problem

Entries = bool | Sequence[int]
_MOST_DENSE = 2**20  # entries of a map that is kept as a dense array


def predicted_entries(
    problem: Problem, cost: Entries, sides: Mapping[str, Entries], known: Any
) -> tuple[Problem, CostMap, ConstraintMap | None]:
    """The problem with 0 at predicted entries, its cost map, and its constraint map.

    Args:
        problem: the problem to decide.
        cost: which costs are predicted: True for all, False for none, or indices.
        sides: which entries of b, h, lb and ub are predicted, by name, in the same form.
        known: (n,) or (N, n) costs that are not predicted, or None.

    Raises:
        ProblemError: an index is out of range, nothing is predicted, or a predicted cost is also known.
    """
    if not isinstance(problem, Problem):
        raise ProblemError(f"Model.predicting takes a pear.Problem; got {type(problem).__name__}: pass its problem")
    own = own_sides(problem)
    sizes = {"cost": problem.n, **{name: own[name].shape[-1] for name in sides}}
    chosen = {name: _indices(name, which, sizes[name]) for name, which in {"cost": cost, **sides}.items()}
    k, first, maps, changed = sum(map(len, chosen.values())), 0, {}, {}
    for name, at in chosen.items():
        entries = np.ones(len(at)), (at, first + np.arange(len(at)))
        matrix = sparse.csr_array(entries, shape=(sizes[name], k))
        maps[name] = _dense_if_small(matrix)
        first += len(at)
        if name != "cost" and len(at):
            changed[name] = own[name].clone()
            changed[name][..., at] = 0.0
    if not k:
        raise ProblemError("nothing is predicted; say which costs, right-hand sides or bounds are: h=True, b=[0, 2], …")
    fixed = torch.zeros(problem.n, dtype=torch.float64) if known is None else known
    names = [_name(name, i) for name, at in chosen.items() for i in at.tolist()]
    rows = ConstraintMap(**{name: maps[name] for name in changed}) if changed else None
    batch = next((len(value) for value in changed.values() if value.ndim == 2), problem.batch)
    cost_map = CostMap(maps["cost"], fixed, names)
    _check_known(cost_map.known, chosen["cost"])
    return problem._with(**changed, batch=batch), cost_map, rows


def _check_known(known: Tensor, predicted: Any) -> None:
    """Raise where a predicted cost is also known, because the two would be added."""
    nonzero = known.reshape(-1, known.shape[-1])[:, predicted] != 0
    if bool(nonzero.any()):
        sample, at = nonzero.nonzero()[0].tolist()
        i = int(predicted[at])
        raise ProblemError(
            f"known is {float(known.reshape(-1, known.shape[-1])[sample, i]):g} at index {i}, and that cost is "
            "predicted; expected 0 there: leave it 0, predict fewer costs (cost=[…], or False for none), or write "
            "pear.Model(problem, cost_map=pear.CostMap(M, known), …) where the prediction is to be added to it"
        )


def read_known(known: Any, n: int) -> Tensor:
    """Convert the known costs of a model to float64, (n,) or (N, n); empty where none were given.

    Raises:
        ProblemError: a map was given instead of costs, or the shape is wrong.
    """
    if isinstance(known, (CostMap, ConstraintMap)):
        name = "cost_map" if isinstance(known, CostMap) else "constraint_map"
        raise ProblemError(f"known must be numbers; a {type(known).__name__} came in their place; pass {name}=")
    found = to_float64("known", () if known is None else known)
    if found.numel() and (found.ndim not in (1, 2) or found.shape[-1] != n):
        raise ProblemError(f"known must have shape ({n},) or (N, {n}), a cost for each variable; got {shape(found)}")
    return found


def zero_map(rows: int, k: int) -> Any:
    """A matrix (rows, k) of zeros, for a map that predicts nothing."""
    return _dense_if_small(sparse.csr_array((rows, k)))


def _dense_if_small(matrix: sparse.csr_array) -> Any:
    return matrix if np.prod(matrix.shape) > _MOST_DENSE else matrix.toarray()


def _name(what: str, index: int) -> str:
    return f"x{index}" if what == "cost" else f"{what}[{index}]"


def _indices(name: str, which: Any, size: int) -> Any:
    """The indices of the predicted entries, in the given order."""
    if isinstance(which, (bool, np.bool_)):
        if which and not size:
            raise ProblemError(f"{name}=True, but the problem has no {name}; give it rows, or leave {name} out")
        return np.arange(size if which else 0)
    found = np.asarray(which.tolist() if isinstance(which, Tensor) else which)
    if found.size == 0:
        return np.arange(0)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise ProblemError(f"{name} must be True, False, or a list of indices; got {which!r}")
    outside = found[(found < 0) | (found >= size)]
    if len(outside):
        raise ProblemError(f"{name} holds the index {outside[0]}; its entries are numbered 0 to {size - 1}")
    if len(set(found.tolist())) < len(found):
        raise ProblemError(f"{name} holds an index twice; each entry is predicted once")
    return found

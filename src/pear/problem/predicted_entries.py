"""Maps of models in which every predicted value is one entry of a problem: a cost, a limit or a coefficient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.constraint_map import CONSTRAINT_MATRICES, ConstraintMap, constraint_sides
from pear.problem.cost_map import CostMap
from pear.problem.matrix import densify_small_matrix
from pear.problem.problem import Problem

Entries = bool | Sequence[Any]
"""The predicted entries of a field: True for all, False for none, or a list of indices; for a matrix a list of pairs
(row, column)."""


def map_predicted_entries(
    problem: Problem, cost: Entries, fields: Mapping[str, Entries], known: Any
) -> tuple[Problem, CostMap, ConstraintMap | None]:
    """Return the problem and the maps of a model whose predicted values are single costs, limits or coefficients.

    Args:
        problem: the problem to decide.
        cost: which costs are predicted: True for all, False for none, or a list of indices.
        fields: which entries of b, h, lb, ub, A and G are predicted, by name, in the form of ``cost``. For A and G the
            list has pairs (row, column), and True means all entries that are not zero.
        known: (n,) or (N, n) costs that are not predicted, or None.

    Returns:
        The problem with 0 at predicted entries of its fields; the cost map; and the constraint map, which is None if
        only costs are predicted.

    Raises:
        ProblemError: an index is out of range, nothing is predicted, or a predicted cost is also known.
    """
    if not isinstance(problem, Problem):
        raise ProblemError(f"Model.predicting takes a pear.Problem; got {type(problem).__name__}: pass its problem")
    own = constraint_sides(problem) | {
        name: _matrix_with_predicted_entries(problem, name, fields.get(name, False)) for name in CONSTRAINT_MATRICES
    }
    sizes = {"cost": problem.n}
    sizes |= {
        name: own[name].shape[-2:].numel() if name in CONSTRAINT_MATRICES else own[name].shape[-1] for name in fields
    }
    chosen = {
        name: _predicted_matrix_entry_indices(name, which, own[name])
        if name in CONSTRAINT_MATRICES
        else _predicted_entry_indices(name, which, sizes[name])
        for name, which in {"cost": cost, **fields}.items()
    }
    k, first, maps, changed = sum(map(len, chosen.values())), 0, {}, {}
    for name, at in chosen.items():
        entries = np.ones(len(at)), (at, first + np.arange(len(at)))
        maps[name] = densify_small_matrix(sparse.csr_array(entries, shape=(sizes[name], k)))
        first += len(at)
        if name != "cost" and len(at):
            changed[name] = own[name].clone(memory_format=torch.contiguous_format)
            flat = changed[name].flatten(-2) if name in CONSTRAINT_MATRICES else changed[name]  # a view
            flat[..., at] = 0.0
    if not k:
        raise ProblemError("nothing is predicted; say which costs, right-hand sides or bounds are: h=True, b=[0, 2], …")
    names = [_predicted_entry_name(name, i, problem.n) for name, at in chosen.items() for i in at.tolist()]
    cost_map = CostMap(maps["cost"], torch.zeros(problem.n, dtype=torch.float64) if known is None else known, names)
    _refuse_known_predicted_entries(cost_map.known, chosen["cost"])
    rows = ConstraintMap(**{name: maps[name] for name in changed}) if changed else None
    per_sample = [
        len(value) for name, value in changed.items() if value.ndim == (3 if name in CONSTRAINT_MATRICES else 2)
    ]
    batch = per_sample[0] if per_sample else problem.batch
    return problem._with(**changed, batch=batch), cost_map, rows


def _refuse_known_predicted_entries(known: Tensor, predicted: Any) -> None:
    """Raise ProblemError if a predicted cost has a known part that is not 0, because the two numbers would be added.

    Args:
        known: (n,) or (N, n) known costs.
        predicted: the indices of the predicted costs.
    """
    costs = known.reshape(-1, known.shape[-1])[:, predicted]
    if bool((costs != 0).any()):
        sample, at = (costs != 0).nonzero()[0].tolist()
        raise ProblemError(
            f"known is {float(costs[sample, at]):g} at index {int(predicted[at])}, and that cost is "
            "predicted; expected 0 there: leave it 0, predict fewer costs (cost=[…], or False for none), or write "
            "pear.Model(problem, cost_map=pear.CostMap(M, known), …) where the prediction is to be added to it"
        )


def _predicted_entry_indices(name: str, which: Any, size: int) -> Any:
    """Return the indices of the predicted entries of a field that is not a matrix, in the order of ``which``.

    Args:
        name: the name of the field.
        which: the predicted entries: True for all, False for none, or a list of indices.
        size: the number of entries of the field.
    """
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


def _matrix_with_predicted_entries(problem: Problem, name: str, which: Entries) -> Tensor:
    """Return A or G of the problem, (r, n) or (N, r, n); a matrix without rows if none of its entries is predicted.

    Raises:
        ProblemError: an entry is predicted, and the problem does not have the matrix or is sparse.
    """
    if isinstance(which, (bool, np.bool_)) and not which:
        return torch.zeros(0, problem.n, dtype=torch.float64)
    if getattr(problem, name) is None:
        raise ProblemError(f"{name}=…, but the problem has no {name}; give it rows, or leave {name} out")
    if problem.is_sparse:
        raise ProblemError(
            f"coefficients of {name} are predicted, and the problem is sparse: its matrices are the same for all "
            "samples; pass dense matrices, A.toarray() and G.toarray()"
        )
    found: Tensor = getattr(problem, name)
    return found


def _predicted_matrix_entry_indices(name: str, which: Any, own: Tensor) -> Any:
    """Return the positions ``row · n + column`` of the predicted coefficients of a matrix, in the order of ``which``.

    Args:
        name: the name of the matrix.
        which: the predicted coefficients: True for all that are not zero in some sample, False for none, or a list of
            pairs (row, column).
        own: (r, n) or (N, r, n) the matrix of the problem.
    """
    rows, n = own.shape[-2:]
    if isinstance(which, (bool, np.bool_)):
        return (
            np.flatnonzero((own != 0).flatten(-2).reshape(-1, rows * n).any(0).cpu().numpy()) if which else np.arange(0)
        )
    pairs = np.asarray(which.tolist() if isinstance(which, Tensor) else which)
    if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer)):
        raise ProblemError(f"{name} must be True, False, or a list of pairs (row, column); got {which!r}")
    for i, j in pairs.reshape(-1, 2).tolist():
        if not (0 <= i < rows and 0 <= j < n):
            raise ProblemError(f"{name} holds the entry ({i}, {j}), and it has {rows} rows and {n} columns")
    at = pairs.reshape(-1, 2) @ np.array([n, 1])
    if len(set(at.tolist())) < len(at):
        raise ProblemError(f"{name} holds an entry twice; each is predicted once")
    return at.astype(int)


def _predicted_entry_name(name: str, at: int, n: int) -> str:
    """Return the name of a predicted entry, such as x3 for a cost, b[0] for a limit, and A[0,3] for a coefficient.

    Args:
        name: "cost" or the name of the field.
        at: the index of the entry; ``row · n + column`` in a matrix.
        n: the number of variables.
    """
    if name == "cost":
        return f"x{at}"
    return f"{name}[{at // n},{at % n}]" if name in CONSTRAINT_MATRICES else f"{name}[{at}]"

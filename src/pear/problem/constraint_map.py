"""``ConstraintMap``: right-hand sides and bounds as functions of the predicted values, ``own value + matrix · ŷ``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.array_conversion import ArrayLike, given_fields, shape_of, to_float64
from pear.problem.cost_map import CostMap, read_map
from pear.problem.matrix import to_csr
from pear.problem.problem import Problem

SIDES = ("b", "h", "lb", "ub")
"""The fields of a problem that a constraint map may predict."""
Entries = bool | Sequence[int]
"""Which entries of a field are predicted: all, none, or those at the indices."""
_MOST_DENSE = 2**20  # entries of a map that is kept as a dense array
_ROWS = {"b": "p", "h": "m", "lb": "n", "ub": "n"}
_KIND = {"b": "equality rows", "h": "inequality rows", "lb": "variables", "ub": "variables"}


class ConstraintMap:
    """``b = own b + B ŷ``, and in the same way h, lb and ub: predicted demands, capacities and budgets.

    An entry of b, h, lb or ub is predicted where its row of the matrix is not zero. Every matrix has one column for
    each of the k predicted values, including values that are costs.

    Args:
        b: (p, k) matrix for b, dense or sparse (scipy or torch).
        h: (m, k) matrix for h.
        lb: (n, k) matrix for lb.
        ub: (n, k) matrix for ub.

    Attributes:
        inputs: the number k of predicted values.
        sides: the names, among b, h, lb and ub, of the fields that are predicted.

    Raises:
        ProblemError: no matrix, an entry that is not finite, or matrices of different k.

    Example:
        >>> import torch
        >>> demand = ConstraintMap(b=[[0.0, 1.0]])
        >>> demand(torch.tensor([[5.0, 7.0]]), {"b": torch.tensor([0.5])})
        {'b': tensor([[7.5000]])}
    """

    def __init__(self, b: ArrayLike = None, h: ArrayLike = None, lb: ArrayLike = None, ub: ArrayLike = None) -> None:
        given = given_fields(b=b, h=h, lb=lb, ub=ub)
        if not given:
            raise ProblemError("a ConstraintMap needs a matrix for b, h, lb or ub; got none")
        self._maps = {
            name: CostMap(read_map(value, f"{name} of a constraint map", f"({_ROWS[name]}, k)"))
            for name, value in given.items()
        }
        self.sides = tuple(self._maps)
        columns = {name: one.inputs for name, one in self._maps.items()}
        self.inputs = next(iter(columns.values()))
        if len(set(columns.values())) > 1:
            raise ProblemError(f"the matrices of a constraint map must have the same number of columns; got {columns}")

    def __call__(self, predicted: ArrayLike, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The right-hand sides and bounds for predicted values, by name. They are differentiable, in the values' dtype.

        Args:
            predicted: (k,) or (B, k) predicted values.
            own: for each of ``sides`` the problem's own values, (r,) or (B, r).
        """
        found = {}
        for name, one in self._maps.items():
            change = one(predicted)
            found[name] = own[name].to(change) + change
        return found

    def pull_back(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Gradient with respect to the predicted values, (B, k), from the gradients with respect to b, h, lb and ub."""
        return torch.stack([one.pull_back(gradients[name]) for name, one in self._maps.items()]).sum(0)

    def matrix(self, name: str) -> Any:
        """The matrix (r, k) of one of b, h, lb and ub, a tensor or SciPy's CSR; None where it is not predicted."""
        return self._maps[name].M if name in self._maps else None

    def predicted(self, name: str, rows: int) -> Tensor:
        """Which entries of ``name``, one of b, h, lb and ub, are predicted. Shape (rows,), bool."""
        if name not in self._maps:
            return torch.zeros(rows, dtype=torch.bool)
        return torch.from_numpy(abs(to_csr(self._maps[name].M)).sum(1) > 0)

    def check(self, problem: Problem) -> None:
        """Check that the map fits the problem.

        Raises:
            ProblemError: a matrix has another number of rows, or the problem's own value of a predicted row is not
                finite.
        """
        own = own_sides(problem)
        for name, one in self._maps.items():
            rows = own[name].shape[-1]
            if one.n != rows:
                raise ProblemError(
                    f"{name} of the constraint map must have a row for each of the problem's {rows} {_KIND[name]}, "
                    f"shape ({rows}, k); got ({one.n}, {one.inputs})"
                )
            absent = self.predicted(name, rows).to(own[name].device) & own[name].reshape(-1, rows).isinf().any(0)
            if bool(absent.any()):
                at = int(absent.nonzero()[0])
                raise ProblemError(
                    f"{name}[{at}] is predicted, and the problem's own value, to which the prediction is added, is "
                    f"infinite; write 0 there, or use pear.Model.predicting(problem, {name}=[{at}, …]), which does"
                )

    def __repr__(self) -> str:
        counts = [f"{int(self.predicted(name, one.n).sum())} of {name}" for name, one in self._maps.items()]
        return f"ConstraintMap({self.inputs} predicted values → {', '.join(counts)})"


def own_sides(problem: Problem) -> dict[str, Tensor]:
    """The right-hand sides and bounds b, h, lb and ub of a problem, by name, (r,) or (N, r).

    Right-hand sides that the problem does not have are empty; bounds that it does not have are infinite.
    """
    absent = {"b": (0, 0.0), "h": (0, 0.0), "lb": (problem.n, -torch.inf), "ub": (problem.n, torch.inf)}
    return {
        name: torch.full((size,), value, dtype=torch.float64, device=problem.device)
        if getattr(problem, name) is None
        else getattr(problem, name)
        for name, (size, value) in absent.items()
    }


def map_predicted_entries(
    problem: Problem, cost: Entries, sides: Mapping[str, Entries], known: Any
) -> tuple[Problem, CostMap, ConstraintMap | None]:
    """Build the maps of a model that predicts chosen entries directly, each as one predicted value.

    Args:
        problem: the problem to decide.
        cost: which costs are predicted: True for all, False for none, or indices.
        sides: which entries of b, h, lb and ub are predicted, by name, in the same form.
        known: (n,) or (N, n) costs that are not predicted, or None.

    Returns:
        The problem with 0 at predicted entries of b, h, lb and ub, the cost map, and the constraint map, which is None
        where costs alone are predicted.

    Raises:
        ProblemError: an index is out of range, nothing is predicted, or a predicted cost is also known.
    """
    if not isinstance(problem, Problem):
        raise ProblemError(f"Model.predicting takes a pear.Problem; got {type(problem).__name__}: pass its problem")
    own = own_sides(problem)
    sizes = {"cost": problem.n, **{name: own[name].shape[-1] for name in sides}}
    chosen = {name: _entry_indices(name, which, sizes[name]) for name, which in {"cost": cost, **sides}.items()}
    k, first, maps, changed = sum(map(len, chosen.values())), 0, {}, {}
    for name, at in chosen.items():
        entries = np.ones(len(at)), (at, first + np.arange(len(at)))
        maps[name] = dense_if_small(sparse.csr_array(entries, shape=(sizes[name], k)))
        first += len(at)
        if name != "cost" and len(at):
            changed[name] = own[name].clone()
            changed[name][..., at] = 0.0
    if not k:
        raise ProblemError("nothing is predicted; say which costs, right-hand sides or bounds are: h=True, b=[0, 2], …")
    names = [f"x{i}" if name == "cost" else f"{name}[{i}]" for name, at in chosen.items() for i in at.tolist()]
    cost_map = CostMap(maps["cost"], torch.zeros(problem.n, dtype=torch.float64) if known is None else known, names)
    _check_known_costs(cost_map.known, chosen["cost"])
    rows = ConstraintMap(**{name: maps[name] for name in changed}) if changed else None
    batch = next((len(value) for value in changed.values() if value.ndim == 2), problem.batch)
    return problem._with(**changed, batch=batch), cost_map, rows


def _check_known_costs(known: Tensor, predicted: Any) -> None:
    """Raise an error where a predicted cost is also known, because the two would be added."""
    costs = known.reshape(-1, known.shape[-1])[:, predicted]
    if bool((costs != 0).any()):
        sample, at = (costs != 0).nonzero()[0].tolist()
        raise ProblemError(
            f"known is {float(costs[sample, at]):g} at index {int(predicted[at])}, and that cost is "
            "predicted; expected 0 there: leave it 0, predict fewer costs (cost=[…], or False for none), or write "
            "pear.Model(problem, cost_map=pear.CostMap(M, known), …) where the prediction is to be added to it"
        )


def dense_if_small(matrix: sparse.csr_array) -> Any:
    """The matrix as a dense array where it has at most 2²⁰ entries; larger ones stay sparse."""
    return matrix if np.prod(matrix.shape) > _MOST_DENSE else matrix.toarray()


def _entry_indices(name: str, which: Any, size: int) -> Any:
    """The indices of the predicted entries, in the given order, from True, False or a list of indices."""
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


def read_known_costs(known: Any, n: int) -> Tensor:
    """The known costs of a model in float64, (n,) or (N, n); empty where none were given.

    Raises:
        ProblemError: a map was given instead of costs, or the shape is wrong.
    """
    if isinstance(known, (CostMap, ConstraintMap)):
        name = "cost_map" if isinstance(known, CostMap) else "constraint_map"
        raise ProblemError(f"known must be numbers; a {type(known).__name__} came in their place; pass {name}=")
    found = to_float64("known", () if known is None else known)
    if found.numel() and (found.ndim not in (1, 2) or found.shape[-1] != n):
        raise ProblemError(f"known must have shape ({n},) or (N, {n}), a cost for each variable; got {shape_of(found)}")
    return found

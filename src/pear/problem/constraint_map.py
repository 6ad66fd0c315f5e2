"""``ConstraintMap``: right-hand sides and bounds as functions of the predicted values, ``own value + matrix · ŷ``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.convert import ArrayLike, present
from pear.problem.cost_map import CostMap, read_map
from pear.problem.matrix import to_csr
from pear.problem.problem import Problem

SIDES = ("b", "h", "lb", "ub")
"""The fields of a problem that a constraint map may predict."""
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
        given = present(b=b, h=h, lb=lb, ub=ub)
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
        """Derivatives by the predicted values, (B, k), from the derivatives by the right-hand sides, (B, r) each."""
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
    """b, h, lb and ub of a problem, (r,) or (N, r). Absent right-hand sides are empty, absent bounds infinite."""
    absent = {"b": (0, 0.0), "h": (0, 0.0), "lb": (problem.n, -torch.inf), "ub": (problem.n, torch.inf)}
    return {
        name: torch.full((size,), value, dtype=torch.float64, device=problem.device)
        if getattr(problem, name) is None
        else getattr(problem, name)
        for name, (size, value) in absent.items()
    }

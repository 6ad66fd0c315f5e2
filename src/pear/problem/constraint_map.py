"""``ConstraintMap``: right-hand sides, bounds and coefficients of constraints as functions of predicted values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.cost_map import CostMap, read_cost_map_matrix
from pear.problem.matrix import to_csr_matrix
from pear.problem.problem import Problem
from pear.problem.problem_fields import given_fields
from pear.problem.tensor_conversion import ArrayLike

SIDES = ("b", "h", "lb", "ub")
"""The fields of a problem that a constraint map may predict."""
CONSTRAINT_MATRICES = ("A", "G")
"""The matrices of a problem whose coefficients a constraint map may predict."""
_ROWS = {"b": "p", "h": "m", "lb": "n", "ub": "n", "A": "p·n", "G": "m·n"}
_MATRIX_OF = {"b": "A", "h": "G"}
_KIND = {"b": "equality rows", "h": "inequality rows", "lb": "variables", "ub": "variables"}


class ConstraintMap:
    """The map from predicted values ŷ (k,), such as demands or yields, to right-hand sides, bounds and coefficients.

    The map of b is ``b = b₀ + M ŷ``, where b₀ is the b of the problem and M (p, k) the argument ``b``. The maps of h,
    lb, ub, A and G have the same form. An entry is predicted if its row of M is not zero. Every matrix has one column
    for each predicted value, also for values that change only costs. The problem has n variables, p equalities and m
    inequalities.

    Args:
        b: (p, k) matrix for the right-hand sides of equalities, dense or sparse (scipy or torch).
        h: (m, k) matrix for the right-hand sides of inequalities.
        lb: (n, k) matrix for the lower bounds.
        ub: (n, k) matrix for the upper bounds.
        A: (p·n, k) matrix for the coefficients of equalities, flattened row by row. The problem's A must be dense.
        G: (m·n, k) matrix for the coefficients of inequalities, flattened row by row. The problem's G must be dense.

    Attributes:
        inputs: the number k of predicted values.
        sides: the names, among b, h, lb and ub, of the fields that are predicted.
        matrices: the names, among A and G, of the matrices with predicted coefficients.

    Raises:
        ProblemError: no matrix is passed, an entry is not finite, or two matrices have different numbers of columns.

    Example:
        >>> import torch
        >>> demand = ConstraintMap(b=[[0.0, 1.0]])
        >>> demand(torch.tensor([[5.0, 7.0]]), {"b": torch.tensor([0.5])})
        {'b': tensor([[7.5000]])}
    """

    def __init__(
        self,
        b: ArrayLike = None,
        h: ArrayLike = None,
        lb: ArrayLike = None,
        ub: ArrayLike = None,
        A: ArrayLike = None,
        G: ArrayLike = None,
    ) -> None:
        given = given_fields(b=b, h=h, lb=lb, ub=ub, A=A, G=G)
        if not given:
            raise ProblemError("a ConstraintMap needs a matrix for b, h, lb, ub, A or G; got none")
        self._maps = {
            name: CostMap(read_cost_map_matrix(value, f"{name} of a constraint map", f"({_ROWS[name]}, k)"))
            for name, value in given.items()
        }
        self.sides = tuple(name for name in self._maps if name in SIDES)
        self.matrices = tuple(name for name in self._maps if name in CONSTRAINT_MATRICES)
        columns = {name: one.inputs for name, one in self._maps.items()}
        self.inputs = next(iter(columns.values()))
        if len(set(columns.values())) > 1:
            raise ProblemError(f"the matrices of a constraint map must have the same number of columns; got {columns}")

    def __call__(self, predicted: ArrayLike, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the right-hand sides and bounds under predicted values. The result is differentiable.

        Args:
            predicted: (k,) or (B, k) predicted values.
            own: the values b₀, h₀, lb₀ and ub₀ of the problem, by name, at least for the fields in ``sides``. Each has
                the shape (r,) or (B, r) for r rows or bounds.

        Returns:
            The fields in ``sides``, by name: (r,) or (B, r), in the dtype of the predicted values.
        """
        found = {}
        for name in self.sides:
            change = self._maps[name](predicted)
            found[name] = own[name].to(change) + change
        return found

    def coefficients(self, predicted: ArrayLike, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the matrices with predicted coefficients. The result is differentiable.

        Args:
            predicted: (B, k) predicted values.
            own: the dense A and G of the problem, by name, at least for those in ``matrices``. Each has the shape
                (r, n) or (B, r, n) for r rows.

        Returns:
            The matrices in ``matrices``, by name: (B, r, n).

        Example:
            >>> yields = ConstraintMap(G=[[0.0], [-1.0]])  # G is 1 by 2, and its second entry is minus a yield
            >>> yields.coefficients(torch.tensor([[0.9], [0.8]]), {"G": torch.tensor([[1.0, 0.0]])})["G"].tolist()
            [[[1.0, -0.8999999761581421]], [[1.0, -0.800000011920929]]]
        """
        found = {}
        for name in self.matrices:
            change = self._maps[name](predicted)
            found[name] = own[name].to(change) + change.reshape(-1, *own[name].shape[-2:])
        return found

    def pull_back(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Convert gradients with respect to predicted fields to the gradient (B, k) with respect to predicted values.

        Args:
            gradients: the gradients with respect to the predicted fields, by name: (B, p) for b, (B, m) for h, (B, n)
                for lb and ub, (B, p, n) for A and (B, m, n) for G.
        """
        return torch.stack([one.pull_back(gradients[name].flatten(1)) for name, one in self._maps.items()]).sum(0)

    def matrix(self, name: str) -> Any:
        """Return the matrix M of b, h, lb, ub, A or G, a tensor or SciPy's CSR; None if the field is not predicted."""
        return self._maps[name].M if name in self._maps else None

    def predicted(self, name: str, rows: int) -> Tensor:
        """Return a bool mask (rows,) of the predicted entries of b, h, lb or ub.

        Args:
            name: one of b, h, lb and ub.
            rows: the number of entries of this field.
        """
        if name not in self._maps:
            return torch.zeros(rows, dtype=torch.bool)
        return torch.from_numpy(abs(to_csr_matrix(self._maps[name].M)).sum(1) > 0)

    @property
    def priced_sides(self) -> tuple[str, ...]:
        """The names, among b, h, lb and ub, of the limits that a decision under a forecast may violate.

        A limit is among them if its value is predicted, or if its matrix (A for b, G for h) has predicted coefficients.
        A ``Penalty`` or ``Projection`` says what a violation of these limits costs.
        """
        return tuple(name for name in SIDES if name in self.sides or _MATRIX_OF.get(name) in self.matrices)

    def uncertain(self, name: str, rows: int) -> Tensor:
        """Return a bool mask (rows,) of the rows or bounds with a predicted limit or a predicted coefficient.

        Args:
            name: "b" for the rows of A, "h" for the rows of G, "lb" or "ub" for bounds.
            rows: the number of rows or bounds.
        """
        found, matrix = self.predicted(name, rows), _MATRIX_OF.get(name)
        if matrix in self.matrices:
            touched = torch.from_numpy(abs(to_csr_matrix(self._maps[matrix].M)).sum(1) > 0)
            found = found | touched.reshape(rows, -1).any(1)
        return found

    def check(self, problem: Problem) -> None:
        """Check that the map fits the problem.

        Raises:
            ProblemError: a matrix has the wrong number of rows, the problem's value of a predicted limit is infinite,
                or coefficients of a sparse problem are predicted.
        """
        own = constraint_sides(problem)
        for name in self.sides:
            one, rows = self._maps[name], own[name].shape[-1]
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
        for name in self.matrices:
            entries = own["b" if name == "A" else "h"].shape[-1] * problem.n
            if self._maps[name].n != entries:
                raise ProblemError(
                    f"{name} of the constraint map must have a row for each of the {entries} entries of the problem's "
                    f"{name}, row by row; got shape ({self._maps[name].n}, {self._maps[name].inputs})"
                )
            if problem.is_sparse:
                raise ProblemError(
                    f"coefficients of {name} are predicted, and the problem is sparse: its matrices are the same for "
                    "all samples; pass dense matrices, A.toarray() and G.toarray()"
                )

    def __repr__(self) -> str:
        counts = [f"{int(self.predicted(name, one.n).sum())} of {name}" for name, one in self._maps.items()]
        return f"ConstraintMap({self.inputs} predicted values → {', '.join(counts)})"


def refuse_constraint_coefficients(rows: ConstraintMap | None, who: str) -> None:
    """Raise ProblemError if coefficients of A or G are predicted.

    Args:
        rows: the constraint map of a model, or None.
        who: the name of the caller, which does not support predicted coefficients, for the message.
    """
    if rows is not None and rows.matrices:
        raise ProblemError(
            f"the model predicts coefficients of {' and '.join(rows.matrices)}, and {who} takes predicted costs and "
            "right-hand sides alone; use PEARLoss, SFGELoss, DecisionLayer, MSELoss, regret, solve, fit or "
            "DecisionRegressor"
        )


def constraint_sides(problem: Problem) -> dict[str, Tensor]:
    """Return b, h, lb and ub of a problem by name. Those that differ between samples are (N, …).

    A missing b or h is empty, and a missing bound is infinite.
    """
    absent = {"b": (0, 0.0), "h": (0, 0.0), "lb": (problem.n, -torch.inf), "ub": (problem.n, torch.inf)}
    return {
        name: torch.full((size,), value, dtype=torch.float64, device=problem.device)
        if getattr(problem, name) is None
        else getattr(problem, name)
        for name, (size, value) in absent.items()
    }

"""``presolve``: a smaller problem with the same decisions, and ``Recovery``, which maps its solutions back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.presolving import ProgramReduction, RowProgram, reduce_program
from pear.presolving.row_program import Array
from pear.problem.constraint_map import constraint_sides
from pear.problem.cost_map import CostMap
from pear.problem.importers.row_limits import RowLimits
from pear.problem.matrix import to_csr_matrix
from pear.problem.problem import Problem
from pear.problem.tensor_conversion import ArrayLike, tensor_shape, to_tensor


class Recovery:
    """The map ``z = T w + t`` from decisions w (k,) of a reduced problem to decisions z (n,) of the original problem.

    Args:
        problem: the original problem.
        reduction: the result of ``reduce_program``, which holds the map.
        rows: the rows of A and G of the reduced problem, each with a lower and an upper limit.

    Attributes:
        n: the number of original variables.
        columns: (k,) the original numbers of the variables that are left.
        T: (n, k) matrix of the map, in SciPy's CSR form.
        t: (n,) constant of the map.
        removed: how many rows, limits and variables were removed, by kind.
    """

    def __init__(self, problem: Problem, reduction: ProgramReduction, rows: RowLimits) -> None:
        self.n, self.columns, self.removed = problem.n, reduction.columns, dict(reduction.removed)
        self.T, self.t = reduction.T, reduction.t
        self._reduction, self._rows, self._sign = reduction, rows, problem.sign
        self._Q = None if problem.Q is None else to_csr_matrix(problem.Q)
        self._equalities = 0 if problem.b is None else problem.b.shape[-1]
        force = np.zeros(problem.n) if self._Q is None else self._Q @ self.t
        self._half_constant = float(0.5 * force @ self.t)
        self._decision = CostMap(self.T, self.t)
        self._cost = CostMap(sparse.csr_array(self.T.T), self.T.T @ force)

    def decision(self, w: ArrayLike) -> Tensor:
        """Compute decisions z of the original problem, (n,) or (B, n), from decisions w, (k,) or (B, k)."""
        return self._decision(_read_recovery_input("decisions of the reduced problem", w, len(self.columns)))

    def cost(self, cost: ArrayLike) -> Tensor:
        """Compute the costs ``Tᵀ(c + Qt)`` of the reduced problem from original costs c. Differentiable.

        T and t belong to the map ``z = T w + t``, and Q to the original problem.

        Args:
            cost: (n,) or (B, n) costs c of the original problem.

        Returns:
            (k,) or (B, k).
        """
        return self._cost(_read_recovery_input("costs of the original problem", cost, self.n))

    def constant(self, cost: ArrayLike) -> Tensor:
        """Compute the original objective minus the reduced objective, ``½ tᵀQt + cᵀt``. Differentiable.

        t is the constant of the map ``z = T w + t``, and Q belongs to the original problem.

        Args:
            cost: (n,) or (B, n) costs c of the original problem.

        Returns:
            () or (B,).
        """
        costs = _read_recovery_input("costs of the original problem", cost, self.n)
        constant = (costs.double() @ torch.from_numpy(self.t).to(costs.device)) + self._half_constant
        return constant.to(costs.dtype)

    def duals(self, duals: Any, w: ArrayLike, cost: ArrayLike) -> Any:
        """Compute the duals of the original problem from those of the reduced problem. The result is detached.

        Args:
            duals: ``solution.duals`` of the reduced problem.
            w: (B, k) ``solution.x`` of the reduced problem.
            cost: (n,) or (B, n) costs of the original problem.

        Returns:
            The duals of the original rows and bounds, an object of the class of ``duals``.
        """
        z = self.decision(w).detach().double().cpu().numpy()
        costs = _read_recovery_input("costs of the original problem", cost, self.n).detach().double().cpu().numpy()
        force = 0.0 if self._Q is None else (self._Q @ z.T).T
        equality, inequality, bound = (
            getattr(duals, name).detach().double().cpu().numpy() for name in ("equality", "inequality", "bound")
        )
        y, bounds = self._reduction.multipliers(
            self._sign * (force + costs), self._row_multipliers(equality, inequality), bound
        )
        p = self._equalities
        parts = {"equality": y[:, :p], "inequality": y[:, p:], "bound": bounds}
        return replace(duals, **{name: torch.from_numpy(part).to(duals.bound) for name, part in parts.items()})

    def _row_multipliers(self, equality: Array, inequality: Array) -> Array:
        """Return the duals of A and G as one multiplier for each of the s rows of the reduced program.

        A row of the program may have two limits, which are two rows of G.

        Args:
            equality: (B, p) duals of the rows of A of the reduced problem.
            inequality: (B, m) duals of the rows of G of the reduced problem.

        Returns:
            (B, s), positive at an upper limit and negative at a lower limit.
        """
        equal, above, below = self._rows.kinds()
        y = np.zeros((len(equality), len(self._rows.low)))
        y[:, equal] = equality
        y[:, above] += inequality[:, : len(above)]
        y[:, below] -= inequality[:, len(above) :]
        return y

    def __repr__(self) -> str:
        return f"Recovery({len(self.columns)} of {self.n} variables; {self._reduction.sentence()})"


def presolve(problem: Problem) -> tuple[Problem, Recovery]:
    """Return a smaller problem with the same decisions, values and gradients, for a problem that is solved many times.

    Empty and duplicate rows and dependent equalities are dropped, rows with one variable become bounds, fixed variables
    become constants, and continuous variables without bounds that an equality defines are substituted.

    Args:
        problem: a problem whose fields are shared by all samples, without a smooth term.

    Returns:
        The reduced problem and a ``Recovery``. ``recovery.cost(c)`` gives the costs of the reduced problem,
        ``recovery.decision(w)`` the original decisions, ``recovery.constant(c)`` the original objective minus the
        reduced objective, and ``recovery.duals`` the original duals.

    Raises:
        ProblemError: the problem has fields per sample or a smooth term, or its constraints contradict each other.

    Example:
        >>> import pear
        >>> p = pear.Problem(Q=[[0, 0], [0, 2]], A=[[1, -1]], b=[0.5], lb=[0, -float("inf")])  # z0 − z1 = 0.5
        >>> reduced, recovery = pear.presolve(p)
        >>> reduced
        Problem(min, n=1, quadratic, bounds)
        >>> solution = pear.solve(reduced, recovery.cost([[1.0, 0.0]]))
        >>> recovery.decision(solution.x).tolist()
        [[0.0, -0.5]]
    """
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"presolve takes a pear.Problem, got {type(problem).__name__}; pass model.problem of a model"
        )
    if not problem.has_program:
        raise ProblemError("presolve makes a program smaller, and an Oracle has none; pass its relaxation")
    if problem.batch is not None or problem.phi is not None:
        came = "a smooth term" if problem.phi is not None else f"fields of {problem.batch} samples"
        raise ProblemError(
            f"presolve takes a problem whose fields all samples share; this one has {came}: solve it as it is"
        )
    reduction = reduce_program(_rows_to_presolve(problem))
    small = reduction.program
    rows = RowLimits(small.rows, small.low, small.high, small.names)
    reduced = Problem(
        Q=_presolved_field(problem, small.Q),
        **{name: _presolved_field(problem, value) for name, value in rows.fields().items()},
        lb=small.lb if np.isfinite(small.lb).any() else None,
        ub=small.ub if np.isfinite(small.ub).any() else None,
        sense=problem.sense,
        integer=small.integer if small.integer is not None and small.integer.any() else None,
        n=small.n,
    )
    return reduced.to(problem.device, problem.dtype), Recovery(problem, reduction, rows)


def _rows_to_presolve(problem: Problem) -> RowProgram:
    """Return the arrays of a problem as a ``RowProgram``, with the rows of A before the rows of G."""
    own = {name: side.detach().cpu().numpy().astype(float) for name, side in constraint_sides(problem).items()}
    parts = [to_csr_matrix(part) for part in (problem.A, problem.G) if part is not None]
    rows = sparse.vstack(parts, format="csr") if parts else sparse.csr_array((0, problem.n))
    return RowProgram(
        rows=sparse.csr_array(rows),
        low=np.concatenate([own["b"], np.full(len(own["h"]), -np.inf)]),
        high=np.concatenate([own["b"], own["h"]]),
        lb=own["lb"],
        ub=own["ub"],
        Q=None if problem.Q is None else to_csr_matrix(problem.Q),
        integer=None if problem.integer is None else problem.integer.cpu().numpy(),
        names=(*(f"A[{i}]" for i in range(len(own["b"]))), *(f"G[{i}]" for i in range(len(own["h"])))),
    )


def _presolved_field(problem: Problem, matrix: Any) -> Any:
    """Return a SciPy matrix in dense form, unless the problem is sparse. Vectors and None are returned unchanged."""
    return matrix if problem.is_sparse or not sparse.issparse(matrix) else matrix.toarray()


def _read_recovery_input(what: str, value: ArrayLike, n: int) -> Tensor:
    """Convert decisions or costs to a floating-point tensor, after a check of the shape.

    Args:
        what: what the value is, for the error message.
        value: (n,) or (B, n).
        n: the expected number of entries.
    """
    found = to_tensor(what, value)
    found = found if found.is_floating_point() else found.double()
    if found.ndim not in (1, 2) or found.shape[-1] != n:
        raise ProblemError(f"{what} must have shape ({n},) or (B, {n}); got {tensor_shape(found)}")
    return found

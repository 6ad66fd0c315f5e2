"""``CvxpyDerivatives``: how the matrices of a CVXPY problem depend on known or predicted parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.presolving.row_program import Array, Index, Mask
from pear.problem.curvature_map import CurvatureMap
from pear.problem.importers.cvxpy_leaves import leaf_sign
from pear.problem.importers.cvxpy_matrices import CvxpyMatrices
from pear.problem.importers.cvxpy_names import WHERE
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.known_map import KnownMap, KnownValue
from pear.wording import join_names


@dataclass(frozen=True)
class CvxpyDerivatives:
    """The derivatives of CVXPY's matrices with respect to the k entries of some parameters.

    The matrices have n variables z and r rows, ``coefficients · z = right-hand sides`` or ``≤``. Costs, constant and
    curvature have the signs of the original problem. A flattened matrix is listed row by row. The derivatives of the
    coefficients and of the curvature are in coordinate form, because they are long and have few entries.

    Attributes:
        values: the name, shape and declared sign of each parameter.
        q: (n, k) derivatives of the costs.
        d: (1, k) derivatives of the objective's constant.
        b: (r, k) derivatives of the right-hand sides.
        R: (r·n, k) derivatives of the flattened coefficients of the rows.
        P: (n·n, k) derivatives of the flattened curvature.
    """

    values: tuple[KnownValue, ...]
    q: sparse.csr_array
    d: sparse.csr_array
    b: sparse.csr_array
    R: sparse.coo_array
    P: sparse.coo_array

    @classmethod
    def read(cls, matrices: CvxpyMatrices, parameters: Sequence[Any], copies: Sequence[Any]) -> CvxpyDerivatives:
        """Return the derivatives of CVXPY's matrices with respect to all entries of these parameters.

        Args:
            matrices: the matrices, as functions of the parameters.
            parameters: the parameters of the original problem.
            copies: the copies of these parameters in the copied problem.

        Raises:
            DataError: the matrices are not linear in a parameter.
        """
        n, r, sign = len(matrices.q), len(matrices.b), matrices.sign
        parts = [_cvxpy_parameter_derivatives(matrices, copy) for copy in copies]
        *vectors, R, P = (sparse.coo_array(sparse.hstack(blocks)) for blocks in zip(*parts, strict=True))
        q, d, b = (sparse.csr_array(matrix) for matrix in vectors)
        assert R.shape[0] == r * n
        values = tuple(KnownValue(p.name(), p.shape, sign=leaf_sign(p)) for p in parameters)
        return cls(values, sign * q, sign * d, b, -R, sign * P)

    def changed_rows(self) -> Mask:
        """Return a bool mask (r,) of the rows that depend on the parameters. Presolve must keep these rows."""
        found: Mask = np.diff(self.b.indptr) > 0
        found[self.R.row // self.q.shape[0]] = True
        return found

    def changed_variables(self) -> Mask:
        """Return a bool mask (n,) of variables whose costs, coefficients or curvature depend on the parameters.

        Presolve must keep these variables, and may remove the others.
        """
        n = self.q.shape[0]
        found: Mask = np.diff(self.q.indptr) > 0
        for places in (self.R.row, self.P.row, self.P.row // n):
            found[places % n] = True
        return found

    def check_costs(self, predicted: Sequence[Any]) -> None:
        """Check that no cost depends on the known parameters of this object, if no parameter is predicted.

        Without a predicted parameter all costs are predicted, so that none may be known.

        Args:
            predicted: the predicted parameters.

        Raises:
            DataError: ``predicted`` is empty, and a cost depends on a known parameter.
        """
        if not predicted and self.q.nnz:
            at = int(self.q.tocoo().col[0])
            name = [one.name for one in self.values for _ in one.labels][at]
            raise DataError(
                f"{WHERE}: the known parameter {name} stands in the costs, and no parameter is predicted, so that all "
                "costs are; name the parameters that are predicted: predicted=[…]"
            )

    def known_map(self, arrays: ModelArrays, columns: Index) -> KnownMap:
        """Return the ``KnownMap`` of a model whose known values are the parameters of this object.

        Args:
            arrays: the arrays of the model, after presolve.
            columns: the numbers of the model's variables among the n variables.
        """
        b, h = arrays.rows.split(self.b[arrays.rows.positions])
        given = {"cost": self.q[columns], "offset": self.d, "b": b, "h": h}
        given |= self.coefficients(arrays, columns)
        if self.P.nnz:
            given["Q"] = self._curvature(columns)
        return KnownMap(self.values, **{name: matrix for name, matrix in given.items() if matrix.nnz})

    def coefficients(self, arrays: ModelArrays, columns: Index) -> dict[str, sparse.csr_array]:
        """Return the derivatives of A and G of a model, flattened row by row, by name.

        A matrix that does not depend on the parameters is left out.

        Args:
            arrays: the arrays of the model, after presolve.
            columns: the numbers of the model's variables among the n variables.
        """
        rows = arrays.rows
        A, G = rows.split(_select_cvxpy_derivatives(self.R, self.q.shape[0], rows.positions, columns), len(columns))
        return {name: matrix for name, matrix in (("A", A), ("G", G)) if matrix.nnz}

    def curvature_map(self, columns: Index, parameters: Sequence[Any]) -> CurvatureMap | None:
        """Return the ``CurvatureMap`` of a model whose predicted values are the entries of the parameters.

        Args:
            columns: the numbers of the model's variables among the n variables.
            parameters: CVXPY's objects for the parameters of this object; they declare the signs of the entries.

        Returns:
            The map; None if Q does not depend on the parameters.
        """
        if not self.P.nnz:
            return None
        weights = np.asarray(abs(self.P).sum(0)).reshape(-1) > 0
        signs = [leaf_sign(p) for p in parameters for _ in range(p.size)]
        return CurvatureMap(self._curvature(columns), np.where(weights, signs, 0))

    def sentence(self) -> str:
        """Return the sentence of the model's report that names the parameters, as values known for every sample."""
        return f"Known for every sample: {join_names([one.name for one in self.values])}; pass them as known=."

    def _curvature(self, columns: Index) -> sparse.csr_array:
        """Return the derivatives (c·c, k) of the flattened curvature of the c variables ``columns``."""
        return _select_cvxpy_derivatives(self.P, self.q.shape[0], columns, columns)


def read_predicted_cvxpy_derivatives(
    matrices: CvxpyMatrices, predicted: Sequence[Any], copies: Sequence[Any]
) -> tuple[CvxpyDerivatives | None, list[str]]:
    """Read the derivatives with respect to predicted parameters, if some of them change coefficients or curvature.

    Args:
        matrices: the matrices, as functions of the parameters.
        predicted: the predicted parameters of the original problem.
        copies: the copies of these parameters in the copied problem.

    Returns:
        The derivatives with respect to all predicted parameters, or None if no parameter multiplies decisions in
        constraints or quadratic terms; and the names of the parameters that multiply decisions in constraints.

    Raises:
        DataError: there are derivatives to read, and the matrices are not linear in a predicted parameter.
    """
    random, curved, names = np.random.default_rng(0), False, []
    for p, copy in zip(predicted, copies, strict=True):
        P, _, _, A, _ = matrices.matrices_at({copy.id: random.uniform(1.0, 2.0, copy.shape)})
        curved = curved or len(_derivative_pattern(P, (0, 0))[0]) > 0
        if len(_derivative_pattern(A, (0, 0))[0]):
            names.append(p.name())
    return (CvxpyDerivatives.read(matrices, predicted, copies) if curved or names else None), names


def _cvxpy_parameter_derivatives(matrices: CvxpyMatrices, parameter: Any) -> tuple[sparse.sparray, ...]:
    """Compute the derivatives of CVXPY's matrices with respect to the k entries of one parameter.

    Returns:
        The derivatives of q (n, k), d (1, k), b (r, k), flattened A (r·n, k) and flattened P (n·n, k), which are the
        attributes of ``CvxpyMatrices``, with n variables and r rows.
    """
    n, r = len(matrices.q), len(matrices.b)
    somewhere = np.random.default_rng(0).uniform(1.0, 2.0, parameter.shape)
    P, _, _, A, _ = matrices.matrices_at({parameter.id: somewhere})
    at_A, at_P = _derivative_pattern(A, (r, n)), _derivative_pattern(P, (n, n))

    def terms(values: Array) -> Array:
        P, q, d, A, b = matrices.matrices_at({parameter.id: values.reshape(parameter.shape)})
        return np.concatenate([q, [d], b, _derivative_entries(A, at_A), _derivative_entries(P, at_P)])

    M = linear_map(terms, parameter.size)
    if M is None:
        raise DataError(
            f"{WHERE}: the parameter {parameter.name()} does not stand in it linearly; pass the function of it "
            "as the parameter"
        )
    sizes = np.cumsum([n, 1, r, len(at_A[0]), len(at_P[0])])
    q, d, b, a, p = (M[first:last] for first, last in zip([0, *sizes[:-1]], sizes, strict=True))
    return q, d, b, _spread_cvxpy_derivatives(a, at_A, (r, n)), _spread_cvxpy_derivatives(p, at_P, (n, n))


_Places = tuple[Index, Index]  # rows and columns of entries of a matrix


def _derivative_pattern(matrix: Any, shape: tuple[int, int]) -> _Places:
    """Return the rows and columns of the non-zeros of ``matrix``. None stands for a matrix of zeros of this shape."""
    entries = sparse.coo_array(shape if matrix is None else matrix)
    some = entries.data != 0
    return entries.row[some], entries.col[some]


def _derivative_entries(matrix: Any, at: _Places) -> Array:
    """Return the entries (e,) of a matrix at the e rows and columns ``at``."""
    if not len(at[0]):
        return np.zeros(0)
    return np.asarray(sparse.csr_array(matrix)[at[0], at[1]], dtype=float).reshape(-1)


def _spread_cvxpy_derivatives(entries: sparse.csr_array, at: _Places, shape: tuple[int, int]) -> sparse.coo_array:
    """Return the derivatives of all entries of a matrix, given those of e entries. The others have derivative zero.

    Args:
        entries: (e, k) derivatives of the e entries.
        at: the rows and columns of the e entries.
        shape: (rows, columns) of the matrix.

    Returns:
        (rows · columns, k) derivatives of the matrix, flattened row by row.
    """
    found, places = entries.tocoo(), at[0].astype(np.int64) * shape[1] + at[1]
    size = shape[0] * shape[1], entries.shape[1]
    return sparse.coo_array((found.data, (places[found.row], found.col.astype(np.int64))), shape=size)


def _select_cvxpy_derivatives(matrix: sparse.coo_array, n: int, rows: Index, columns: Index) -> sparse.csr_array:
    """Select the derivatives of the entries in some rows and columns of a matrix.

    Args:
        matrix: (all rows · n, k) derivatives of a matrix with n columns, flattened row by row.
        n: the number of columns of that matrix.
        rows: the rows to select.
        columns: the columns to select.

    Returns:
        (selected rows · selected columns, k).
    """
    row_of, column_of = np.full(matrix.shape[0] // n, -1), np.full(n, -1)
    row_of[rows], column_of[columns] = np.arange(len(rows)), np.arange(len(columns))
    i, j = row_of[matrix.row // n], column_of[matrix.row % n]
    kept = (i >= 0) & (j >= 0)
    places = i[kept].astype(np.int64) * len(columns) + j[kept]
    size = len(rows) * len(columns), matrix.shape[1]
    return sparse.csr_array((matrix.data[kept], (places, matrix.col[kept])), shape=size)

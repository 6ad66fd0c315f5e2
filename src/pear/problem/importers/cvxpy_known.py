"""Known parameters of a CVXPY problem: how its matrices depend on them, as a ``KnownMap``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.errors import DataError
from pear.problem.curvature_map import CurvatureMap
from pear.problem.importers.cvxpy_matrices import CanonicalForm
from pear.problem.importers.cvxpy_names import WHERE, parameter_names, sign_of
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.importers.row_limits import Array
from pear.problem.known_map import KnownMap, KnownValue
from pear.wording import join_names


@dataclass(frozen=True)
class KnownTerms:
    """The derivatives of CVXPY's matrices by the k numbers of known parameters.

    Attributes:
        values: the known parameters as values of a model.
        q: (n, k) of the costs, in the problem's own sense.
        d: (1, k) of the objective's constant, likewise.
        b: (r, k) of the right-hand sides.
        R: (r·n, k) of the rows, flattened row by row, so that ``rows ≤ right-hand sides``; in coordinates, because it
            is long and has few entries.
        P: (n·n, k) of the curvature, in the problem's own sense, likewise.
    """

    values: tuple[KnownValue, ...]
    q: sparse.csr_array
    d: sparse.csr_array
    b: sparse.csr_array
    R: sparse.coo_array
    P: sparse.coo_array

    @classmethod
    def read(cls, canonical: CanonicalForm, parameters: Sequence[Any], copies: Sequence[Any]) -> KnownTerms:
        """Read the terms off CVXPY's canonical form.

        Args:
            canonical: the canonical form, as a function of its parameters.
            parameters: the known parameters of the problem.
            copies: the parameters that stand for them in the canonical form.
        """
        n, r, sign = len(canonical.q), len(canonical.b), canonical.sign
        parts = [_derivatives(canonical, copy) for copy in copies]
        *vectors, R, P = (sparse.coo_array(sparse.hstack(blocks)) for blocks in zip(*parts, strict=True))
        q, d, b = (sparse.csr_array(matrix) for matrix in vectors)
        assert R.shape[0] == r * n
        signs = [sign_of(p) for p in parameters]
        values = tuple(
            KnownValue(p.name(), p.shape, sign=1 if "nonneg" in s else -1 if s else 0)
            for p, s in zip(parameters, signs, strict=True)
        )
        return cls(values, sign * q, sign * d, b, -R, sign * P)

    def rows(self) -> NDArray[np.bool_]:
        """Which rows depend on known numbers, (r,) bool. Presolve neither removes them nor turns them into bounds."""
        found = _touched(self.b)
        found[self.R.row // self.q.shape[0]] = True
        return found

    def columns(self) -> NDArray[np.bool_]:
        """Which variables have costs, rows or curvature that depend on known numbers, (n,) bool. Presolve keeps them.

        The others may disappear, because no known number multiplies them.
        """
        n, found = self.q.shape[0], _touched(self.q)
        for places in (self.R.row, self.P.row, self.P.row // n):
            found[places % n] = True
        return found

    def check_costs(self, predicted: Sequence[Any]) -> None:
        """Raise DataError where known parameters stand in costs, and all costs are predicted."""
        if not predicted and self.q.nnz:
            at = int(self.q.tocoo().col[0])
            name = [one.name for one in self.values for _ in one.labels][at]
            raise DataError(
                f"{WHERE}: the known parameter {name} stands in the costs, and no parameter is predicted, so that all "
                "costs are; name the parameters that are predicted: predicted=[…]"
            )

    def map(self, arrays: ModelArrays, columns: NDArray[np.int_]) -> KnownMap:
        """The known map of a model made of these arrays, which have the original variables ``columns``."""
        n, rows = self.q.shape[0], arrays.rows
        numbers = np.arange(len(rows.low)) if rows.numbers is None else rows.numbers
        b, h = rows.split(self.b[numbers])
        given = {"cost": self.q[columns], "offset": self.d, "b": b, "h": h}
        given |= self.coefficients(arrays, columns)
        if self.P.nnz:
            given["Q"] = _select(self.P, n, columns, columns)
        return KnownMap(self.values, **{name: matrix for name, matrix in given.items() if matrix.nnz})

    def coefficients(self, arrays: ModelArrays, columns: NDArray[np.int_]) -> dict[str, sparse.csr_array]:
        """The derivatives of A and G, flattened row by row, of a model made of these arrays; those that are not zero.

        The arrays have the original variables ``columns``.
        """
        rows = arrays.rows
        numbers = np.arange(len(rows.low)) if rows.numbers is None else rows.numbers
        A, G = rows.split(_select(self.R, self.q.shape[0], numbers, columns), len(columns))
        return {name: matrix for name, matrix in (("A", A), ("G", G)) if matrix.nnz}

    def sentence(self) -> str:
        """What is known for every sample, in a sentence for the report."""
        return f"Known for every sample: {join_names([one.name for one in self.values])}; pass them as known=."


def read_curvature(canonical: CanonicalForm, predicted: Sequence[Any], copies: Sequence[Any]) -> KnownTerms | None:
    """The terms of predicted parameters that multiply quadratic terms; None where none does."""
    for copy in copies:
        P = canonical.matrices_at({copy.id: np.random.default_rng(0).uniform(1.0, 2.0, copy.shape)})[0]
        if len(_pattern(P, (0, 0))[0]):
            return KnownTerms.read(canonical, predicted, copies)
    return None


def read_coefficients(
    canonical: CanonicalForm, predicted: Sequence[Any], copies: Sequence[Any]
) -> tuple[KnownTerms, list[str]] | None:
    """The terms of predicted parameters that multiply decisions in constraints, and their names; None where none does.

    Raises:
        DataError: the rows do not depend on them linearly.
    """
    random, names = np.random.default_rng(0), []
    for p, copy in zip(predicted, copies, strict=True):
        A = canonical.matrices_at({copy.id: random.uniform(1.0, 2.0, copy.shape)})[3]
        if len(_pattern(A, (0, 0))[0]):
            names.append(p.name())
    return (KnownTerms.read(canonical, predicted, copies), names) if names else None


def curvature_map(terms: KnownTerms, columns: NDArray[np.int_], copies: Sequence[Any]) -> CurvatureMap:
    """The map from predicted weights to the curvature of a model that has the original variables ``columns``."""
    n = terms.q.shape[0]
    Q = _select(terms.P, n, columns, columns)
    weights = np.asarray(abs(terms.P).sum(0)).reshape(-1) > 0
    signs = [("nonneg" in sign_of(copy)) - ("nonpos" in sign_of(copy)) for copy in copies for _ in range(copy.size)]
    return CurvatureMap(Q, np.where(weights, signs, 0))


def _derivatives(canonical: CanonicalForm, parameter: Any) -> tuple[sparse.sparray, ...]:
    """The derivatives of q (n, ·), d (1, ·), b (r, ·), A (r·n, ·) and P (n·n, ·) by the entries of one parameter."""
    n, r = len(canonical.q), len(canonical.b)
    somewhere = np.random.default_rng(0).uniform(1.0, 2.0, parameter.shape)
    P, _, _, A, _ = canonical.matrices_at({parameter.id: somewhere})
    at_A, at_P = _pattern(A, (r, n)), _pattern(P, (n, n))

    def terms(values: Array) -> Array:
        P, q, d, A, b = canonical.matrices_at({parameter.id: values.reshape(parameter.shape)})
        return np.concatenate([q, [d], b, _entries(A, at_A), _entries(P, at_P)])

    M = linear_map(terms, parameter.size)
    if M is None:
        raise DataError(
            f"{WHERE}: the known parameter {parameter.name()} does not stand in it linearly; pass the function of it "
            "as the parameter"
        )
    sizes = np.cumsum([n, 1, r, len(at_A[0]), len(at_P[0])])
    q, d, b, a, p = (M[first:last] for first, last in zip([0, *sizes[:-1]], sizes, strict=True))
    return q, d, b, _spread(a, at_A, (r, n)), _spread(p, at_P, (n, n))


_Places = tuple[NDArray[np.int_], NDArray[np.int_]]


def _pattern(matrix: Any, shape: tuple[int, int]) -> _Places:
    """Rows and columns of the non-zeros of a matrix, which may be None."""
    entries = sparse.coo_array(shape if matrix is None else matrix)
    some = entries.data != 0
    return entries.row[some], entries.col[some]


def _entries(matrix: Any, at: _Places) -> Array:
    """The entries of a matrix at these places."""
    if not len(at[0]):
        return np.zeros(0)
    return np.asarray(sparse.csr_array(matrix)[at[0], at[1]], dtype=float).reshape(-1)


def _spread(entries: sparse.csr_array, at: _Places, shape: tuple[int, int]) -> sparse.coo_array:
    """Derivatives of all entries of a matrix, (rows · columns, ·), from those of its entries ``at``."""
    found, places = entries.tocoo(), at[0].astype(np.int64) * shape[1] + at[1]
    size = shape[0] * shape[1], entries.shape[1]
    return sparse.coo_array((found.data, (places[found.row], found.col.astype(np.int64))), shape=size)


def _select(matrix: sparse.coo_array, n: int, rows: NDArray[np.int_], columns: NDArray[np.int_]) -> sparse.csr_array:
    """Select the derivatives of some rows and columns from ``matrix``, the derivatives of a flattened matrix.

    The flattened matrix has n columns. The derivatives that are left out are zero.
    """
    row_of, column_of = np.full(matrix.shape[0] // n, -1), np.full(n, -1)
    row_of[rows], column_of[columns] = np.arange(len(rows)), np.arange(len(columns))
    i, j = row_of[matrix.row // n], column_of[matrix.row % n]
    kept = (i >= 0) & (j >= 0)
    places = i[kept].astype(np.int64) * len(columns) + j[kept]
    size = len(rows) * len(columns), matrix.shape[1]
    return sparse.csr_array((matrix.data[kept], (places, matrix.col[kept])), shape=size)


def _touched(matrix: sparse.csr_array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.diff(matrix.indptr) > 0
    return found


def copy_parameter(parameter: Any, cvxpy: Any) -> tuple[Any, Any]:
    """A plain parameter, and the expression that stands for a parameter of the problem in its copy.

    CVXPY replaces parameters with a structure by others of its own; the structure is declared around a plain one.
    """
    plain = cvxpy.Parameter(
        parameter.shape, name=parameter.name(), value=np.zeros(parameter.shape), **sign_of(parameter)
    )
    if parameter.attributes.get("PSD"):
        return plain, cvxpy.psd_wrap(plain)
    if parameter.attributes.get("NSD"):
        return plain, -cvxpy.psd_wrap(-plain)
    if parameter.attributes.get("symmetric"):
        return plain, cvxpy.symmetric_wrap(plain)
    return plain, plain


def check_known(known: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Raise DataError where a known parameter is predicted as well, complex, or called like another one."""
    for p in known:
        if any(p is one for one in predicted):
            raise DataError(f"{WHERE}: the parameter {p.name()} is predicted and known; name it once")
        if structure := [name for name in ("complex", "imag", "hermitian") if p.attributes.get(name)]:
            raise DataError(
                f"{WHERE}: the known parameter {p.name()} is declared {structure[0]}; expected real numbers"
            )
    names = parameter_names(known)
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise DataError(f"{WHERE}: two known parameters are called {twice[0]}; give each its own name")


def parametric_quadratic_forms(cvxpy: Any) -> AbstractContextManager[Any]:
    """A context in which CVXPY's rules for parameters allow ``quad_form(x, P)`` with a parameter P.

    Solvers of quadratic programs take such a P; older versions of CVXPY refuse it, and there the context does nothing.
    """
    scope = getattr(cvxpy.utilities.scopes, "quad_form_dpp_scope", None)
    return nullcontext() if scope is None else cast("AbstractContextManager[Any]", scope())

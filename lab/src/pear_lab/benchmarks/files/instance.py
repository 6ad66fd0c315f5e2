"""The arrays of a file as the judge reads them: from the parser's own output, whatever the library makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import loadmat

from pear.errors import DataError
from pear.problem.importers.mps import read_highs
from pear.problem.importers.osqp_mat import load
from pear.problem.importers.source import plain_file, suffix_of
from pear_lab.benchmarks.program import Array, Mask

_NONE = 1e20  # limits of this size are none


@dataclass(frozen=True)
class Instance:
    """``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u, lb ≤ x ≤ ub``; what is maximised comes with its signs turned.

    Attributes:
        P, q: (n, n) and (n,).
        A, l, u: (m, n) and (m,); absent limits are infinite.
        lb, ub: (n,).
        integer: (n,) bool.
        sign: −1 where the file maximises, else +1.
        offset: constant of the file's objective, in its own sense.
    """

    P: sp.csc_array
    q: Array
    A: sp.csr_array
    l: Array  # noqa: E741  the letter that OSQP and its files use
    u: Array
    lb: Array
    ub: Array
    integer: Mask
    sign: float = 1.0
    offset: float = 0.0

    @property
    def kind(self) -> str:
        """One of "lp", "qp", "milp" and "miqp"."""
        return ("mi" if self.integer.any() else "") + ("qp" if self.P.nnz else "lp")

    @property
    def nonzeros(self) -> int:
        """Of P and A."""
        return int(self.P.nnz + self.A.nnz)

    def value(self, x: Array) -> float:
        """What is minimised, at x (n,)."""
        return float(0.5 * x @ (self.P @ x) + self.q @ x)

    def sides(self) -> tuple[Mask, Mask, Mask]:
        """(m,) each: rows that are equalities, and those of the others with an upper and with a lower limit."""
        equal = self.l == self.u
        return equal, ~equal & (self.u < np.inf), ~equal & (self.l > -np.inf)


def read_instance(path: Path) -> Instance:
    """The arrays of a file of any kind that the importers know.

    Raises:
        DataError: the file cannot be taken; importers refuse it with the same words.
    """
    return _from_mat(path) if suffix_of(path) == ".mat" else _from_highs(read_highs(path))


def _from_highs(model: Any) -> Instance:
    lp, hessian = model.lp_, model.hessian_
    n, m, sign = lp.num_col_, lp.num_row_, 1.0 if int(lp.sense_) == 1 else -1.0
    P = np.zeros(0)
    rows, columns = np.zeros((2, 0), dtype=int)
    if hessian.dim_:  # one triangle, column by column
        P, rows = np.asarray(hessian.value_), np.asarray(hessian.index_)
        columns = np.repeat(np.arange(n), np.diff(hessian.start_))
        off = rows != columns
        P = np.concatenate([P, P[off]])
        rows, columns = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
    half = sp.csc_array(sp.coo_array((sign * P, (rows, columns)), shape=(n, n)))
    half.eliminate_zeros()
    a = lp.a_matrix_
    entries = (np.asarray(a.value_), np.asarray(a.index_), np.asarray(a.start_))
    A = sp.csc_array(entries, shape=(m, n)) if m else sp.csc_array((0, n))
    kinds = [int(kind) for kind in lp.integrality_] or [0] * n
    return Instance(
        half,
        sign * np.asarray(lp.col_cost_, dtype=float),
        sp.csr_array(A),
        np.asarray(lp.row_lower_, dtype=float),
        np.asarray(lp.row_upper_, dtype=float),
        np.asarray(lp.col_lower_, dtype=float),
        np.asarray(lp.col_upper_, dtype=float),
        integer=np.array(kinds) == 1,
        sign=sign,
        offset=float(lp.offset_),
    )


def _from_mat(path: Path) -> Instance:
    load(path)  # its refusals
    with plain_file(path, (".mat",)) as file:
        found = loadmat(str(file))
    q, l, u = (np.asarray(found[name], dtype=float).reshape(-1) for name in ("q", "l", "u"))  # noqa: E741
    if not np.isfinite(q).all() or np.isnan(l).any() or np.isnan(u).any():
        raise DataError(f"{path} holds NaN or infinity where numbers are expected: correct q, l and u")
    P, A = sp.csc_array(found["P"], dtype=float), sp.csr_array(found["A"], dtype=float)
    P.eliminate_zeros()
    A.eliminate_zeros()
    l, u = np.where(l <= -_NONE, -np.inf, l), np.where(u >= _NONE, np.inf, u)  # noqa: E741
    lb, ub, kept = split_bounds(A, l, u)
    integer = np.asarray(found.get("integer", np.zeros(len(q)))).reshape(-1) != 0
    offset = float(np.asarray(found.get("r", 0.0)).reshape(-1)[0])
    return Instance(P, q, A[kept], l[kept], u[kept], lb, ub, integer, 1.0, offset)


def split_bounds(A: sp.csr_array, low: Array, high: Array) -> tuple[Array, Array, list[int]]:
    """Bounds from the rows ±x alone, and the numbers of the other rows; bounds that cross stay rows."""
    by_variable: dict[int, list[int]] = {}
    for i in np.flatnonzero(np.diff(A.indptr) == 1).tolist():
        if abs(A.data[A.indptr[i]]) == 1.0:
            by_variable.setdefault(int(A.indices[A.indptr[i]]), []).append(i)
    lb, ub = np.full(A.shape[1], -np.inf), np.full(A.shape[1], np.inf)
    taken = set()
    for j, rows in by_variable.items():
        ends = [sorted((low[i] * A.data[A.indptr[i]], high[i] * A.data[A.indptr[i]])) for i in rows]
        if any(low[i] > high[i] for i in rows) or max(e[0] for e in ends) > min(e[1] for e in ends):
            continue
        lb[j], ub[j] = max(e[0] for e in ends), min(e[1] for e in ends)
        taken.update(rows)
    return lb, ub, [i for i in range(A.shape[0]) if i not in taken]

"""``ModelFile``: the arrays of a model file for the judge, as HiGHS or SciPy reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import loadmat

from pear.errors import DataError
from pear.problem.importers.mps import read_mps_file
from pear.problem.importers.osqp_mat import load_osqp_mat
from pear.problem.importers.packed_files import packed_file_suffix, unpacked_file
from pear_lab.judge.judged_program import Array, JudgedProgram

_NONE = 1e20  # the size from which on a limit counts as absent


@dataclass(frozen=True)
class ModelFile:
    """The model of a file as a sparse program that is minimised.

    Attributes:
        program: the arrays. If the file maximises, the signs of its objective are changed.
        rows: the number of rows of the constraint matrix. Bounds are not rows.
        nonzeros: the non-zeros of the constraint matrix plus those of the curvature.
        sign: −1 if the file maximises, else +1.
        offset: the constant of the file's objective, with the sign that it has in the file.
    """

    program: JudgedProgram
    rows: int
    nonzeros: int
    sign: float = 1.0
    offset: float = 0.0

    @property
    def kind(self) -> str:
        """The kind of program: "lp", "qp", "milp" or "miqp"."""
        return ("mi" if self.program.integer.any() else "") + ("qp" if self.program.H.nnz else "lp")


def read_model_file(path: Path) -> ModelFile:
    """Read the arrays of an LP, MPS or QPS file, or of a ``.mat`` file in the form of OSQP's benchmarks.

    Raises:
        DataError: the file cannot be read. The message is that of PEAR's importers.
    """
    return _read_mat_file(path) if packed_file_suffix(path) == ".mat" else _file_arrays_of_highs(read_mps_file(path))


def _file_arrays_of_highs(model: Any) -> ModelFile:
    """Convert a model that HiGHS has read to a ``ModelFile``."""
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
    sides = (lp.row_lower_, lp.row_upper_, lp.col_lower_, lp.col_upper_)
    low, high, lb, ub = (np.asarray(side, dtype=float) for side in sides)
    cost = sign * np.asarray(lp.col_cost_, dtype=float)
    program = JudgedProgram.from_limits(half, cost, sp.csr_array(A), low, high, lb, ub, np.array(kinds) == 1)
    return ModelFile(program, m, int(half.nnz + A.nnz), sign, float(lp.offset_))


def _read_mat_file(path: Path) -> ModelFile:
    """Read a ``.mat`` file in the form of OSQP's benchmarks."""
    load_osqp_mat(path)  # raises the errors of the importer
    with unpacked_file(path, (".mat",)) as file:
        found = loadmat(str(file))
    q, l, u = (np.asarray(found[name], dtype=float).reshape(-1) for name in ("q", "l", "u"))  # noqa: E741
    if not np.isfinite(q).all() or np.isnan(l).any() or np.isnan(u).any():
        raise DataError(f"{path} holds NaN or infinity where numbers are expected: correct q, l and u")
    P, A = sp.csc_array(found["P"], dtype=float), sp.csr_array(found["A"], dtype=float)
    P.eliminate_zeros()
    A.eliminate_zeros()
    l, u = np.where(l <= -_NONE, -np.inf, l), np.where(u >= _NONE, np.inf, u)  # noqa: E741
    lb, ub, kept = split_bounds_of_file(A, l, u)
    integer = np.asarray(found.get("integer", np.zeros(len(q)))).reshape(-1) != 0
    offset = float(np.asarray(found.get("r", 0.0)).reshape(-1)[0])
    program = JudgedProgram.from_limits(P, q, A[kept], l[kept], u[kept], lb, ub, integer)
    return ModelFile(program, len(kept), int(P.nnz + A[kept].nnz), 1.0, offset)


def split_bounds_of_file(A: sp.csr_array, low: Array, high: Array) -> tuple[Array, Array, list[int]]:
    """Turn rows whose only entry is ±1 into bounds of a variable. Rows that contradict each other remain rows.

    Args:
        A: (m, n) rows.
        low, high: (m,) the limits of the rows.

    Returns:
        Lower bounds (n,), upper bounds (n,), and the indices of the remaining rows.
    """
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

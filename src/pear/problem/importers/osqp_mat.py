"""Import of ``.mat`` files with the arrays of OSQP: ``min ½ xᵀPx + qᵀx + r`` subject to ``l ≤ Ax ≤ u``."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.problem.importers.model_arrays import ModelArrays, read_model_array
from pear.problem.importers.packed_files import unpacked_file
from pear.problem.importers.row_limits import RowLimits, read_row_limits
from pear.problem.model import Model

SUFFIXES = (".mat",)
_NEEDED = ("P", "q", "A", "l", "u")
_EXPECTED = "the arrays P (n, n), q (n,), A (m, n), l (m,) and u (m,), with r, the constant, where there is one"


def from_osqp_mat(path: str | Path) -> Model:
    """Import a quadratic or linear program from a ``.mat`` file in the form that OSQP's benchmarks use.

    A row of A whose only entry is 1 or −1 becomes a bound. Any other row with equal limits becomes an equality. A limit
    of ±1e20 or beyond means no limit. Such a file has no names: variables are called x0, x1, … and rows r0, r1, …. An
    array ``integer`` (n,), which is not part of OSQP's form, may mark integer variables by numbers that are not 0.

    Args:
        path: the path of a file that ends in .mat or .mat.gz.

    Raises:
        DataError: the file is missing, empty or broken, or an array is missing or has the wrong shape.
        ProblemError: the objective is not convex. If the problem is sparse, some such objectives are found only by a
            solve, with the status ``NOT_CONVEX``.
    """
    path = Path(path)
    arrays = load_osqp_mat(path)
    P, q, A = arrays["P"], read_model_array(str(path), "q", arrays["q"]), arrays["A"]
    low, high = (
        read_row_limits(str(path), "l", arrays["l"], -np.inf),
        read_row_limits(str(path), "u", arrays["u"], np.inf),
    )
    rows, lb, ub = RowLimits(A, low, high, tuple(f"r{i}" for i in range(len(low)))).split_bounds()
    integer = np.asarray(arrays.get("integer", np.zeros(len(q)))).reshape(-1) != 0
    offset = float(read_model_array(str(path), "r", arrays.get("r", 0.0))[0])
    return ModelArrays(str(path), rows, q, lb, ub, P if P.nnz else None, integer=integer, offset=offset).model()


def load_osqp_mat(path: Path) -> dict[str, Any]:
    """Return the arrays of a file by name, with P and A in CSR form, after a check of their shapes."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    with unpacked_file(path, SUFFIXES) as file:
        try:
            found: dict[str, Any] = loadmat(str(file))
        except (MatReadError, ValueError, TypeError, OSError, EOFError, zlib.error, NotImplementedError) as error:
            reason = "MATLAB's format 7.3 is not read" if isinstance(error, NotImplementedError) else str(error)
            raise DataError(
                f"{path} cannot be read: {reason or type(error).__name__}; expected a .mat file, version 4 to 7.2, "
                "as scipy.io.savemat writes it: save it again"
            ) from error
    if missing := [name for name in _NEEDED if name not in found]:
        there = ", ".join(name for name in found if not name.startswith("__")) or "nothing"
        raise DataError(f"{path} has no {', '.join(missing)}, only {there}; expected {_EXPECTED}")
    P, A = (sparse.csr_array(found[name], dtype=float) for name in ("P", "A"))
    P.eliminate_zeros()
    A.eliminate_zeros()
    _check_osqp_mat_shapes(path, P, A, {name: np.size(found[name]) for name in ("q", "l", "u")})
    return {**found, "P": P, "A": A}


def _check_osqp_mat_shapes(path: Path, P: sparse.csr_array, A: sparse.csr_array, sizes: dict[str, int]) -> None:
    """Check that the arrays of a file fit together, and that P has both triangles.

    Args:
        path: the path of the file, for the message.
        P: the curvature of the objective.
        A: the coefficients of the rows.
        sizes: the lengths of q, l and u, by name.
    """
    (m, n), square = A.shape, P.shape
    if square != (sizes["q"],) * 2 or n != sizes["q"] or m != sizes["l"] or m != sizes["u"]:
        came = f"P {square}, A {A.shape}, " + ", ".join(f"{name} ({size},)" for name, size in sizes.items())
        raise DataError(f"{path} holds {came}, which do not fit together; expected {_EXPECTED}")
    above, below = sparse.triu(P, 1), sparse.tril(P, -1)
    if bool(above.nnz) != bool(below.nnz):
        raise DataError(
            f"{path}: P holds one of its triangles only; expected all of P: save P + P.T less its diagonal instead"
        )

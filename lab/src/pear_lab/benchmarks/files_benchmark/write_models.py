"""Write models to files: ``.mat`` in OSQP's form, and MPS by HiGHS."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import savemat

from pear.errors import DataError
from pear_lab.benchmarks.files_benchmark.file_arrays import split_bounds
from pear_lab.benchmarks.files_benchmark.file_solvers import highs_model


def write_mat(path: Path, P: Any, q: Any, A: Any, l: Any, u: Any, integer: Any = None) -> Path:  # noqa: E741
    """Write ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u`` in the form of OSQP's benchmarks.

    Args:
        path: ends in .mat.
        P: (n, n), dense or sparse; all of it, not one triangle.
        q: (n,).
        A: (m, n), dense or sparse.
        l, u: (m,), infinite where there is no limit.
        integer: (n,) bool, where some variables must be integers.
    """
    P, A = sp.csc_matrix(P, dtype=float), sp.csc_matrix(A, dtype=float)
    arrays = {"P": P, "q": _column(q), "A": A, "l": _column(l), "u": _column(u), "r": 0.0}
    marks = {} if integer is None else {"integer": _column(integer)}
    savemat(path, {**arrays, "m": A.shape[0], "n": A.shape[1], **marks}, do_compression=True)
    return path


def write_mps(path: Path, P: Any, q: Any, A: Any, l: Any, u: Any, integer: Any = None) -> Path:  # noqa: E741
    """Write the same program as an MPS file (QUADOBJ where there is curvature); rows ±x become bounds.

    Args:
        path: ends in .mps.
        P, q, A, l, u, integer: as for ``write_mat``.

    Raises:
        DataError: HiGHS does not write it.
    """
    import highspy

    low, high, cost = (np.asarray(v, dtype=float).reshape(-1) for v in (l, u, q))
    marks = np.zeros(len(cost), dtype=bool) if integer is None else np.asarray(integer, dtype=bool)
    rows = sp.csr_array(A, dtype=float)
    rows.eliminate_zeros()
    lb, ub, kept = split_bounds(rows, low, high)
    curvature = sp.csc_array(P, dtype=float)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    passed = highs.passModel(highs_model(curvature, cost, rows[kept], low[kept], high[kept], lb, ub, marks))
    if highspy.HighsStatus.kError in (passed, highs.writeModel(str(path))):
        raise DataError(f"HiGHS does not write {path}; expected finite numbers and a path that ends in .mps")
    return path


def generate(folder: Path, instances: Iterable[tuple[Any, ...]]) -> list[Path]:
    """Write instances into a folder: those with integers as MPS, the others as ``.mat``.

    Args:
        folder: is made where it does not exist.
        instances: tuples (name, P, q, A, l, u) or (name, P, q, A, l, u, integer).

    Returns:
        The files, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        (write_mps if path.suffix == ".mps" else write_mat)(path, *instance[1:])
        for instance in instances
        for path in [_instance_path(folder, instance)]
    ]


def write_once(folder: Path, instances: Iterable[tuple[Any, ...]]) -> list[Path]:
    """Write instances into a folder, but keep files that exist already.

    Returns:
        The files that are new.

    Raises:
        DataError: the folder holds other files, which would be taken for these, or cannot be written to.
    """
    wanted = {_instance_path(folder, instance): instance for instance in instances}
    others = sorted(set(folder.iterdir()) - set(wanted)) if folder.is_dir() else []
    if others:
        raise DataError(
            f"{folder} holds {len(others)} files that --generate does not write, such as {others[0].name}; expected "
            "a new folder or an empty one: name another, or leave --generate out to measure what is there"
        )
    try:
        return generate(folder, [instance for path, instance in wanted.items() if not path.exists()])
    except OSError as error:
        raise DataError(f"cannot write into {folder}: {error.strerror or error}; name another folder") from error


def _instance_path(folder: Path, instance: tuple[Any, ...]) -> Path:
    has_integers = len(instance) > 6 and instance[6] is not None and np.any(instance[6])
    return folder / f"{instance[0]}.{'mps' if has_integers else 'mat'}"


def _column(values: Any) -> Any:
    return np.asarray(values, dtype=float).reshape(-1, 1)

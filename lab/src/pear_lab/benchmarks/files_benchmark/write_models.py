"""Write models to files: ``.mat`` files in the form of OSQP's benchmarks, and MPS files by HiGHS."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import savemat

from pear.errors import DataError
from pear_lab.benchmarks.files_benchmark.file_arrays import split_bounds_of_file
from pear_lab.benchmarks.files_benchmark.file_solvers import highs_model_of_file


def write_mat(path: Path, P: Any, q: Any, A: Any, l: Any, u: Any, integer: Any = None) -> Path:  # noqa: E741
    """Write ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u`` in the form of OSQP's benchmarks. Return the path.

    Args:
        path: the file to write, which ends in .mat.
        P: (n, n) the curvature, with the entries of both triangles, dense or sparse.
        q: (n,) the costs.
        A: (m, n) the rows, dense or sparse.
        l, u: (m,) the limits; infinite for an absent one.
        integer: (n,) mask of the variables that must be integers; None for none.
    """
    P, A = sp.csc_matrix(P, dtype=float), sp.csc_matrix(A, dtype=float)
    arrays = {"P": P, "q": _column_of_mat(q), "A": A, "l": _column_of_mat(l), "u": _column_of_mat(u), "r": 0.0}
    marks = {} if integer is None else {"integer": _column_of_mat(integer)}
    savemat(path, {**arrays, "m": A.shape[0], "n": A.shape[1], **marks}, do_compression=True)
    return path


def write_mps(path: Path, P: Any, q: Any, A: Any, l: Any, u: Any, integer: Any = None) -> Path:  # noqa: E741
    """Write ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u`` as an MPS file. Return the path.

    Rows whose only entry is ±1 become bounds.

    Args:
        path: the file to write, which ends in .mps.
        P, q, A, l, u, integer: as for ``write_mat``.

    Raises:
        DataError: HiGHS cannot write the file.
    """
    import highspy

    low, high, cost = (np.asarray(v, dtype=float).reshape(-1) for v in (l, u, q))
    marks = np.zeros(len(cost), dtype=bool) if integer is None else np.asarray(integer, dtype=bool)
    rows = sp.csr_array(A, dtype=float)
    rows.eliminate_zeros()
    lb, ub, kept = split_bounds_of_file(rows, low, high)
    curvature = sp.csc_array(P, dtype=float)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    passed = highs.passModel(highs_model_of_file(curvature, cost, rows[kept], low[kept], high[kept], lb, ub, marks))
    if highspy.HighsStatus.kError in (passed, highs.writeModel(str(path))):
        raise DataError(f"HiGHS does not write {path}; expected finite numbers and a path that ends in .mps")
    return path


def write_models(folder: Path, instances: Iterable[tuple[Any, ...]]) -> list[Path]:
    """Write models into a folder: those with integers as MPS files, the others as ``.mat`` files.

    Args:
        folder: the folder, which is made if it does not exist.
        instances: models as tuples (name, P, q, A, l, u) or (name, P, q, A, l, u, integer).

    Returns:
        The paths of the files, in the order of the models.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        (write_mps if path.suffix == ".mps" else write_mat)(path, *instance[1:])
        for instance in instances
        for path in [_path_of_model(folder, instance)]
    ]


def write_new_models(folder: Path, instances: Iterable[tuple[Any, ...]]) -> list[Path]:
    """Write models into a folder, except those whose files exist already.

    Args:
        folder, instances: as for ``write_models``.

    Returns:
        The paths of the new files.

    Raises:
        DataError: the folder has other files, which would be measured as well, or cannot be written to.
    """
    wanted = {_path_of_model(folder, instance): instance for instance in instances}
    others = sorted(set(folder.iterdir()) - set(wanted)) if folder.is_dir() else []
    if others:
        raise DataError(
            f"{folder} holds {len(others)} files that --generate does not write, such as {others[0].name}; expected "
            "a new folder or an empty one: name another, or leave --generate out to measure what is there"
        )
    try:
        return write_models(folder, [instance for path, instance in wanted.items() if not path.exists()])
    except OSError as error:
        raise DataError(f"cannot write into {folder}: {error.strerror or error}; name another folder") from error


def _path_of_model(folder: Path, instance: tuple[Any, ...]) -> Path:
    """Return the path of a model's file, which ends in .mps if the model has integers, and else in .mat."""
    has_integers = len(instance) > 6 and instance[6] is not None and np.any(instance[6])
    return folder / f"{instance[0]}.{'mps' if has_integers else 'mat'}"


def _column_of_mat(values: Any) -> Any:
    """Return numbers as a column (n, 1) of floats."""
    return np.asarray(values, dtype=float).reshape(-1, 1)

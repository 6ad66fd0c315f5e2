"""The curvature that an objective lacks: what must be added so that every direction has at least a given curvature.

With the eigenvalues w and eigenvectors V of H and the least curvature λ, the missing curvature is
``S = V diag(max(λ − w, 0)) Vᵀ``. H + S has no eigenvalue below λ. S adds nothing along eigenvectors of H with an
eigenvalue of at least λ. Variables that H does not couple are independent of each other, so that S is non-zero only for
pairs of variables that H couples, directly or through others.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from pear.problem.matrix import Matrix, SparseMatrix, to_csr_matrix
from pear.sensitivity.convexity import has_convexity_above

# The most coupled variables whose eigenvalues are computed, for a dense and for a sparse H; that takes a second or two.
_MOST_COUPLED, _MOST_COUPLED_SPARSE = 2_000, 500


def missing_curvature(H: Matrix, least: float) -> Matrix | None:
    """Compute the curvature S for which all eigenvalues of H + S are at least ``least``; None if S is zero.

    S comes from the eigenvalues of each group of coupled variables. If all samples share H, the eigenvalues of a group
    of more than 2,000 variables (500 if H is sparse) would take too long. For such a group S has ``least`` on the
    diagonal, or zeros if a cheaper test shows that the eigenvalues of H are at least ``least``.

    Args:
        H: (n, n) symmetric positive semidefinite, dense or sparse; or dense (N, n, n), one matrix per sample.
        least: λ > 0.

    Returns:
        S, of the same shape and kind as H.
    """
    if H.ndim == 3:
        S = _missing_curvature_of_dense(H, least)
        return S if bool(S.any()) else None
    blocks = _missing_curvature_by_groups(
        to_csr_matrix(H), least, _MOST_COUPLED_SPARSE if H.is_sparse else _MOST_COUPLED
    )
    if not blocks.count_nonzero():
        return None
    return SparseMatrix(blocks) if H.is_sparse else torch.from_numpy(blocks.toarray()).to(H)


def _missing_curvature_of_dense(H: Tensor, least: float) -> Tensor:
    """Compute the missing curvature S (k, n, n) of k dense matrices H (k, n, n) from their eigenvectors.

    S is zero for matrices H that are not finite.
    """
    usable = H.flatten(1).isfinite().all(1)[:, None, None]
    w, V = torch.linalg.eigh(torch.where(usable, H, 0.0))
    S = (V * (least - w).clamp(min=0).unsqueeze(1)) @ V.mT
    return torch.where(usable, 0.5 * (S + S.mT), 0.0)


def _missing_curvature_by_groups(H: sparse.csr_array, least: float, most: int) -> sparse.csr_array:
    """Compute the missing curvature S (n, n) of H (n, n), one group of coupled variables after another.

    Args:
        H: the curvature.
        least: λ, the least curvature along every direction.
        most: the number of variables of the largest group whose eigenvalues are computed. For larger groups see
            ``missing_curvature``.
    """
    n = H.shape[0]
    coupled = H.copy()
    coupled.eliminate_zeros()
    _, label = connected_components(coupled, directed=False)
    size = np.bincount(label, minlength=1)[label] if n else label
    alone = np.flatnonzero(size == 1)
    rows, columns, values = [alone], [alone], [np.maximum(least - H.diagonal()[alone], 0.0)]
    for k in np.unique(size[size > 1]):
        members = np.flatnonzero(size == k)
        groups = members[np.argsort(label[members], kind="stable")].reshape(-1, k)
        for one in groups if k > most else ():
            if not has_convexity_above(sparse.csr_array(H[one][:, one]), least):
                rows, columns, values = [*rows, one], [*columns, one], [*values, np.full(k, least)]
        if k <= most:
            rows.append(np.repeat(groups, k, axis=1).ravel())
            columns.append(np.tile(groups, (1, k)).ravel())
            values.append(_missing_curvature_of_groups(H, groups, least).ravel())
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    S = sparse.csr_array(sparse.coo_array(entries, shape=(n, n)))
    S.eliminate_zeros()
    return S


def _missing_curvature_of_groups(H: sparse.csr_array, groups: NDArray[np.int64], least: float) -> NDArray[np.float64]:
    """Compute the missing curvature S (g, k, k) of g groups of k coupled variables each.

    Args:
        H: (n, n) curvature.
        groups: (g, k) the positions of each group's variables among the n variables.
        least: λ, the least curvature along every direction.
    """
    k = groups.shape[1]
    within = H[groups.ravel()].tocoo()
    place = np.empty(H.shape[0], dtype=np.int64)
    place[groups] = np.arange(k)
    dense = np.zeros((len(groups), k, k))
    dense[within.row // k, within.row % k, place[within.col]] = within.data
    return np.asarray(_missing_curvature_of_dense(torch.from_numpy(dense), least).numpy())

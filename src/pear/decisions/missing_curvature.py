"""The curvature that an objective lacks: what must be added so that every direction has at least a given curvature.

With the eigenvalues w and eigenvectors V of H, the added curvature is ``S = V diag(max(λ − w, 0)) Vᵀ``. H + S has no
eigenvalue below λ, and nothing is added along directions in which H has at least λ. Variables that H does not couple
are independent of each other, so that S has entries only where H couples variables.
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

_MOST_COUPLED, _MOST_COUPLED_SPARSE = 2_000, 500  # coupled variables whose eigenvalues are computed: a second or two


def missing_curvature(H: Matrix, floor: float) -> Matrix | None:
    """Compute the curvature S that raises all eigenvalues of H to at least ``floor``; None where H needs none.

    More than 500 coupled variables of a sparse H (2,000 of a dense one) get ``floor`` on the diagonal instead, unless
    all their eigenvalues are large enough.

    Args:
        H: (n, n) symmetric positive semidefinite, dense or sparse, or dense (N, n, n), one for each sample.
        floor: λ > 0.

    Returns:
        S in the shape and kind of H.
    """
    if H.ndim == 3:
        S = _missing_along_eigenvectors(H, floor)
        return S if bool(S.any()) else None
    blocks = _coupled_blocks(to_csr_matrix(H), floor, _MOST_COUPLED_SPARSE if H.is_sparse else _MOST_COUPLED)
    if not blocks.count_nonzero():
        return None
    return SparseMatrix(blocks) if H.is_sparse else torch.from_numpy(blocks.toarray()).to(H)


def _missing_along_eigenvectors(H: Tensor, floor: float) -> Tensor:
    """Compute the curvature S (k, n, n) that each dense H (k, n, n) lacks, from its eigenvectors.

    S is zero where H is not finite.
    """
    usable = H.flatten(1).isfinite().all(1)[:, None, None]
    w, V = torch.linalg.eigh(torch.where(usable, H, 0.0))
    S = (V * (floor - w).clamp(min=0).unsqueeze(1)) @ V.mT
    return torch.where(usable, 0.5 * (S + S.mT), 0.0)


def _coupled_blocks(H: sparse.csr_array, floor: float, most: int) -> sparse.csr_array:
    """Compute S (n, n) for H (n, n), one group of coupled variables at a time.

    Args:
        H: the curvature.
        floor: λ.
        most: the largest number of coupled variables whose eigenvalues are computed.
    """
    n = H.shape[0]
    coupled = H.copy()
    coupled.eliminate_zeros()
    _, label = connected_components(coupled, directed=False)
    size = np.bincount(label, minlength=1)[label] if n else label
    alone = np.flatnonzero(size == 1)
    rows, columns, values = [alone], [alone], [np.maximum(floor - H.diagonal()[alone], 0.0)]
    for k in np.unique(size[size > 1]):
        members = np.flatnonzero(size == k)
        groups = members[np.argsort(label[members], kind="stable")].reshape(-1, k)
        for one in groups if k > most else ():
            if not has_convexity_above(sparse.csr_array(H[one][:, one]), floor):
                rows, columns, values = [*rows, one], [*columns, one], [*values, np.full(k, floor)]
        if k <= most:
            rows.append(np.repeat(groups, k, axis=1).ravel())
            columns.append(np.tile(groups, (1, k)).ravel())
            values.append(_missing_of_groups(H, groups, floor).ravel())
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    S = sparse.csr_array(sparse.coo_array(entries, shape=(n, n)))
    S.eliminate_zeros()
    return S


def _missing_of_groups(H: sparse.csr_array, groups: NDArray[np.int64], floor: float) -> NDArray[np.float64]:
    """Compute the curvature S (g, k, k) that diagonal blocks of H lack; each row of ``groups`` (g, k) is a block."""
    k = groups.shape[1]
    within = H[groups.ravel()].tocoo()
    place = np.empty(H.shape[0], dtype=np.int64)
    place[groups] = np.arange(k)
    dense = np.zeros((len(groups), k, k))
    dense[within.row // k, within.row % k, place[within.col]] = within.data
    return np.asarray(_missing_along_eigenvectors(torch.from_numpy(dense), floor).numpy())

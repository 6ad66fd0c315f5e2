"""Checks of the curvature Q of a problem: symmetry, and the sign of the eigenvalues."""

from __future__ import annotations

from typing import Any

import torch

from pear.errors import ProblemError
from pear.problem.matrix import Matrix, SparseMatrix, to_csr_matrix
from pear.problem.tensor_conversion import float_dtype

SYMMETRY = {torch.float64: 1e-8, torch.float32: 1e-5}
"""Largest asymmetry of Q, relative to its largest entry, that counts as rounding, for each type of the user's Q."""
DEFINITENESS = 1e-9
"""Largest eigenvalue of the wrong sign, as a fraction of the largest absolute eigenvalue, that counts as rounding. In a
sparse Q, entries of the diagonal are compared with the largest entry."""


def check_curvature_symmetry(Q: Matrix, original: Any) -> Matrix:
    """Check that Q is symmetric up to rounding, and return the symmetric ``½ (Q + Qᵀ)``.

    A sample whose Q holds NaN passes the check, because the solve reports such a sample by its status.

    Args:
        Q: (n, n) or (N, n, n).
        original: Q as the user passed it. Its type, float32 or float64, sets how large rounding may be.

    Raises:
        ProblemError: an entry differs from its mirror image by more than rounding.
    """
    if Q.is_sparse:
        sizes = [float(abs(value).max()) if Q.nnz else 0.0 for value in (Q.csr - Q.csr.T, Q.csr)]
        gap, top = torch.tensor(sizes, dtype=torch.float64).reshape(2, 1)
        half = SparseMatrix(to_csr_matrix(0.5 * (Q.csr + Q.csr.T))) if gap else Q
    elif torch.equal(Q, Q.mT):  # the usual case, in one pass; also an empty batch
        return Q
    else:
        gap, top = (value.abs().amax((-2, -1)).reshape(-1) for value in (Q - Q.mT, Q))
        half = 0.5 * (Q + Q.mT)
    wrong = gap > SYMMETRY[float_dtype(original) or torch.float64] * top
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        where = f" in sample {first}" if Q.ndim == 3 else ""
        raise ProblemError(
            f"Q must be symmetric: entries differ from their mirror image by up to {gap[first].item():.3g}{where}; "
            "pass (Q + Q.T) / 2 (Q.mT for a batch), which has the same zᵀQz"
        )
    return half


def check_curvature_sign(Q: Matrix, sense: str) -> None:
    """Check that Q is positive semidefinite to minimise, or negative semidefinite to maximise, up to rounding.

    Of a sparse Q only the diagonal is checked, because the eigenvalues of a large matrix take too long. If this
    check misses an eigenvalue of the wrong sign, the sample gets a status that says so when it is solved.

    Args:
        Q: (n, n) or (N, n, n), symmetric.
        sense: "min" or "max".

    Raises:
        ProblemError: an eigenvalue, or an entry of the diagonal of a sparse Q, has the wrong sign.
    """
    sign = 1.0 if sense == "min" else -1.0
    if Q.is_sparse:
        least = float((sign * Q.csr.diagonal()).min(initial=0.0))
        if least < -DEFINITENESS * (float(abs(Q.csr).max()) if Q.nnz else 0.0):
            raise ProblemError(
                f"Q must be {'positive' if sense == 'min' else 'negative'} semidefinite for sense='{sense}': its "
                f"diagonal holds {sign * least:.3g}; check the sign of Q and the sense"
            )
        return
    matrices = sign * (Q if Q.ndim == 3 else Q.unsqueeze(0))
    # A Cholesky factor of a slightly shifted matrix settles nearly all at a tenth of the cost of the eigenvalues.
    shift = DEFINITENESS * matrices.diagonal(dim1=-2, dim2=-1).abs().amax(-1)
    shifted = matrices + shift[:, None, None] * torch.eye(Q.shape[-1], dtype=Q.dtype, device=Q.device)
    for sample in torch.linalg.cholesky_ex(shifted).info.nonzero().flatten().tolist():
        eigenvalues = torch.linalg.eigvalsh(matrices[sample])
        least = eigenvalues[0].item()
        if least < -DEFINITENESS * eigenvalues.abs().max().item():
            where = f" in sample {sample}" if Q.ndim == 3 else ""
            kind, which = ("positive", "least") if sense == "min" else ("negative", "largest")
            raise ProblemError(
                f"Q must be {kind} semidefinite for sense='{sense}': its {which} eigenvalue is "
                f"{sign * least:.3g}{where}; {_curvature_advice(sense, -least)}"
            )


def _curvature_advice(sense: str, shift: float) -> str:
    """Return advice about a Q with an eigenvalue of the wrong sign, whose largest absolute value is ``shift``."""
    if sense == "min":
        return f"if that is rounding, add {shift:.3g} times the identity; if you maximise, pass sense='max'"
    return (
        "the objective is maximised as written, so a risk or cost matrix enters with a minus sign (pass -Q); if it is "
        f"rounding, subtract {shift:.3g} times the identity"
    )

"""Inverses of positive definite matrices on a GPU. The dual method starts from the inverse of every sample's H.

One thread block inverts a matrix that fits into its registers. A larger matrix is cut into blocks H = [A B; Bᵀ C] of
half the size. The inverses of A and of the Schur complement S = C − BᵀA⁻¹B then give H⁻¹ by products. A multiprocessor
works on several small thread blocks at once, so that one computes while another waits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pear.optimality import rule
from pear.solvers.active_set.gpu import gpu_solution

LAUNCH = {32: (1, 255), 64: (2, 255)}
"""Launch settings by the size of the matrix that one block inverts: warps, and registers of a thread."""

SINGULAR = tl.constexpr(gpu_solution.SINGULAR)
_ROUNDOFF = tl.constexpr(rule.ROUNDOFF)


def invert_by_kernel(H: Tensor, more: int = 0) -> tuple[Tensor, Tensor]:
    """Invert positive definite matrices without waiting for the device.

    Args:
        H: (B, n, n), symmetric and contiguous.
        more: how many rows and columns are added to the result; they are not written.

    Returns:
        (B, n + more, n + more) H⁻¹ in the first rows and columns, and (B,) int32 RUNNING, or SINGULAR if H is not
        positive definite, up to rounding.
    """
    B, n, _ = H.shape
    inverse = H.new_empty(B, n + more, n + more)
    outcome = torch.full((B,), gpu_solution.RUNNING, dtype=torch.int32, device=H.device)
    _invert_part_by_kernel(inverse, H, H, outcome, 0, n)
    return inverse, outcome


def _invert_part_by_kernel(inverse: Tensor, source: Tensor, H: Tensor, outcome: Tensor, first: int, last: int) -> None:
    """Invert the part of ``source`` from row and column ``first`` up to ``last``, and write the result to ``inverse``.

    Args:
        inverse: (B, n + more, n + more); the same part is written.
        source: (B, n, n), or ``inverse`` itself.
        H: (B, n, n) the matrices, with whose diagonals pivots are compared.
        outcome: (B,) int32; SINGULAR is written if a pivot is lost to rounding.
        first, last: the first row of the part, and the row after its last one.
    """
    if last - first <= max(LAUNCH):
        size = next(k for k in LAUNCH if k >= last - first)
        warps, registers = LAUNCH[size]
        rows = (source.shape[1], H.shape[1], inverse.shape[1])
        invert_block_kernel[(len(H),)](
            source, H, inverse, outcome, *rows, first, last, size=size, num_warps=warps, maxnreg=registers
        )
        return
    middle = (first + last) // 2
    a, b = slice(first, middle), slice(middle, last)
    _invert_part_by_kernel(inverse, source, H, outcome, first, middle)
    solved = inverse[:, a, a] @ source[:, a, b]
    inverse[:, b, b] = torch.baddbmm(source[:, b, b], source[:, a, b].mT, solved, alpha=-1)
    _invert_part_by_kernel(inverse, inverse, H, outcome, middle, last)
    off = solved @ inverse[:, b, b]
    inverse[:, a, a].baddbmm_(off, solved.mT)
    torch.neg(off, out=inverse[:, a, b])
    torch.neg(off.mT, out=inverse[:, b, a])


@triton.jit
def _three_inverse_sums(first, second, third, other_first, other_second, other_third):  # type: ignore[no-untyped-def]
    """Return the sums of two triples; one step of a parallel reduction."""
    return first + other_first, second + other_second, third + other_third


@triton.jit
def invert_block_kernel(  # type: ignore[no-untyped-def]
    source, H, inverse, outcome, n, H_rows, inverse_rows, first, last, size: tl.constexpr
):
    """Invert a part of each matrix by bordering, two rows and columns at a time, with one block for each sample.

    Args:
        source: (B, n, n); the part from row and column ``first`` up to ``last`` is read.
        H: (B, H_rows, H_rows); a pivot is compared with the diagonal of H.
        inverse: (B, inverse_rows, inverse_rows); the same part is written.
        outcome: (B,) int32; SINGULAR is written if a pivot is lost to rounding.
        size: a power of two, at least last − first.
    """
    sample = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, size)
    source += sample * n * n + first * (n + 1)
    H += sample * H_rows * H_rows + first * (H_rows + 1)
    inverse += sample * inverse_rows * inverse_rows + first * (inverse_rows + 1)
    M = tl.zeros((size, size), tl.float64)
    for t in range(0, last - first, 2):
        second = t + 1 < last - first  # where there is no second one its diagonal is 1
        c = tl.load(source + t * n + s, mask=s < t, other=0.0)
        d = tl.load(source + (t + 1) * n + s, mask=(s < t) & second, other=0.0)
        cc = tl.load(source + t * (n + 1))
        cd = tl.load(source + t * (n + 1) + 1, mask=second, other=0.0)
        dd = tl.load(source + (t + 1) * (n + 1), mask=second, other=1.0)
        u = tl.sum(M * c[:, None], axis=0)
        v = tl.sum(M * d[:, None], axis=0)
        uc, ud, vd = tl.reduce((u * c, u * d, v * d), 0, _three_inverse_sums)
        pivot = cc - uc
        ratio = (cd - ud) / pivot
        pivot_after = dd - vd - ratio * (cd - ud)
        lost = pivot <= _ROUNDOFF * tl.load(H + t * (H_rows + 1))
        lost = lost | (pivot_after <= _ROUNDOFF * tl.load(H + (t + 1) * (H_rows + 1), mask=second, other=1.0))
        if lost:
            tl.store(outcome + sample, SINGULAR)
        u = tl.where(s == t, -1.0, u)
        v = tl.where(s == t + 1, -1.0, v - ratio * u)
        M += u[:, None] * (u * (1.0 / pivot))[None, :]
        M += v[:, None] * (v * (1.0 / pivot_after))[None, :]
    tl.debug_barrier()  # the part may be written where it was read
    inside = (s < last - first)[:, None] & (s < last - first)[None, :]
    tl.store(inverse + s[:, None] * inverse_rows + s[None, :], M, mask=inside)

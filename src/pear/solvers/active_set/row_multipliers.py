"""The multipliers of the rows in the reduced systems of the backward pass, from compiled working sets."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.rule import FEASIBLE, PROJECTED
from pear.solvers.active_set.kernel_arrays import BASIC, BASIS_START, SUPER, Programs, States
from pear.solvers.active_set.kernel_calls import Index


def row_multipliers(
    P: Programs, states: States, at: Index, active: ActiveSet, w: Tensor, p: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Solve ``Jᵀq = w − Hp`` on the free variables for the multipliers q of the active rows.

    The basis of a working set determines q. A basic variable at a bound, or the slack of a tight row among the basic
    variables, leaves q a direction in which it is not determined; q is then the solution of least norm, with rows
    scaled to length one on the free variables.

    Args:
        P: the programs.
        states: the working sets of the solutions, one per sample.
        at: (B,) each sample's row in fields that are not shared.
        active: the tight constraints.
        w: (B, n) the right-hand side of the reduced system.
        p: (B, n) the projection P w.

    Returns:
        The multipliers of the equalities (B, p) and inequalities (B, m), and (B,) bool, True where they are accurate;
        None where a sample has no basis.
    """
    if not (states.has_start == BASIS_START).all():
        return None
    J = torch.from_numpy(P.J if len(P.J) == 1 else P.J[at])
    basis, inverse = torch.from_numpy(states.basis).long(), torch.from_numpy(states.inverse)
    n, equalities = p.shape[1], P.equalities
    rest = w - _curvature_times(P, at, p)
    slack = torch.isin(torch.from_numpy(states.place[:, n:]), torch.tensor([BASIC, SUPER], dtype=torch.int8))

    def on_basis(values: Tensor) -> Tensor:
        chosen = torch.where(basis < n, values.gather(1, basis.clamp(max=n - 1)), 0.0)
        return (chosen[:, None] @ inverse)[:, 0]

    q = on_basis(rest)
    q = torch.where(slack, 0.0, q + on_basis(rest - _transpose_times(J, q)))
    tight = torch.cat(
        [active.lower | active.upper, torch.ones_like(q[:, :equalities], dtype=torch.bool), active.rows], 1
    )
    free = ~(active.lower | active.upper)
    length = free.double() @ J[0].square().T if len(J) == 1 else (J.square() @ free.double()[:, :, None])[:, :, 0]
    directions = inverse * tight.gather(1, basis)[:, :, None]
    q = _least_norm(q, directions, torch.where(length > 0, length, 1.0))
    left = torch.where(~free, 0.0, rest - _transpose_times(J, q)).abs().amax(1)
    top = torch.maximum(w.abs().amax(1), _transpose_times(J.abs(), q.abs()).amax(1))
    return q[:, :equalities], torch.where(active.rows, q[:, equalities:], 0.0), left <= PROJECTED * top


def _curvature_times(P: Programs, at: Index, p: Tensor) -> Tensor:
    """H p (B, n)."""
    bent = P.smoothing * p
    if not len(P.Q):
        return bent
    if len(P.Q) == 1:
        return bent + P.sign * (p @ torch.from_numpy(P.Q[0]))
    return bent + P.sign * (torch.from_numpy(P.Q[at]) @ p[:, :, None])[:, :, 0]


def _transpose_times(J: Tensor, q: Tensor) -> Tensor:
    """Jᵀq (B, n), of rows that all samples share, (1, R, n), or (B, R, n)."""
    return q @ J[0] if len(J) == 1 else (q[:, None] @ J)[:, 0]


def _least_norm(q: Tensor, directions: Tensor, norm: Tensor) -> Tensor:
    """Remove from q what it has in directions that are not determined.

    Args:
        q: (B, R) multipliers.
        directions: (B, R, R) rows along which q is not determined; the others are zero.
        norm: (B, R) squared lengths of the rows.
    """
    if not q.shape[1]:
        return q
    along = (directions @ (norm * q)[:, :, None])[:, :, 0]
    some = (along.abs().amax(1) > FEASIBLE * (norm * q.abs()).amax(1)).nonzero()[:, 0]
    if not len(some):
        return q
    N, scale = directions[some], norm[some]
    gram = (N * scale[:, None]) @ N.mT
    gram.diagonal(dim1=1, dim2=2).add_((N.abs().amax(2) == 0).double())
    factors, failed = torch.linalg.cholesky_ex(gram)
    change = (torch.cholesky_solve(along[some][:, :, None], factors).mT @ N)[:, 0]
    q = q.clone()
    q[some] -= torch.where((failed == 0)[:, None], change, torch.nan)
    return q

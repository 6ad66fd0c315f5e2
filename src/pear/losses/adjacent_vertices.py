"""The vertices adjacent to a vertex of ``{Az = b, Gz ≤ h, lb ≤ z ≤ ub}``; the vertex may be degenerate."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import ProblemError
from pear.optimality.rule import RANK, TIGHT
from pear.problem import Problem

Array = NDArray[np.float64]

_PAIRS = 2**22  # pairs of rays that are tested at the same time, in arrays of 16 MB
_MOST_PAIRS = 2**32  # the largest number of pairs of rays that are tested; so many take minutes


def adjacent_vertices_in_problem(problem: Problem, z: Tensor) -> list[Tensor]:
    """Find the vertices of the continuous relaxation that share an edge with each vertex in z (B, n).

    Args:
        problem: the decision problem; its fields may differ by sample.
        z: (B, n) vertices.

    Returns:
        B tensors (k, n), whose rows are the k adjacent vertices of a sample.

    Raises:
        ProblemError: the problem is sparse, or ``adjacent_vertices`` raises it.
    """
    if problem.is_sparse:
        raise ProblemError("the neighbours of a vertex are found for dense problems; this one is sparse: use PEAR")
    qp = problem.canonical(torch.zeros_like(z, dtype=torch.float64, device=problem.device))
    fields = [getattr(qp, name).cpu().numpy() for name in ("G", "h", "lb", "ub", "A")]
    found = []
    for i, point in enumerate(z.detach().double().cpu().numpy()):
        G, h, lb, ub, A = (field[min(i, len(field) - 1)] for field in fields)
        there = np.isfinite(h)
        found.append(torch.from_numpy(adjacent_vertices(point, G[there], h[there], lb, ub, A)).to(z))
    return found


def adjacent_vertices(z: Array, G: Array, h: Array, lb: Array, ub: Array, A: Array | None = None) -> Array:
    """Find all vertices that share an edge with the vertex ``z``.

    At z, the variables N are at a bound, the variables F are between their bounds, and the rows K are tight: all rows
    of A, and some of G. Let the entries of y be the distances by which a direction from z moves away from the bounds of
    N and from the rows of G in K. Rows of A stay tight. Eliminating the variables F from the rows K leaves the
    equations ``My = 0``. The feasible directions are the cone ``{y ≥ 0, My = 0}``, and the edges at z are its extreme
    rays. If z is not degenerate, M has no rows, and the unit vectors are these rays.

    Args:
        z: (n,) a vertex.
        G: (m, n) inequality rows.
        h: (m,) right-hand sides of G.
        lb: (n,) lower bounds, −inf where absent.
        ub: (n,) upper bounds, inf where absent.
        A: (p, n) equality rows, which z satisfies.

    Returns:
        (k, n) distinct vertices.

    Raises:
        ProblemError: z is not feasible, not a vertex, or so degenerate that it has too many edges.
    """
    scale = max(1.0, float(np.abs(z).max(initial=0.0)))
    low, high = z - lb <= TIGHT * scale, ub - z <= TIGHT * scale
    norm = np.maximum(np.abs(G).sum(1), 1e-300)
    tight = (h - G @ z) / norm <= TIGHT * scale
    if (np.minimum(z - lb, ub - z) < -TIGHT * scale).any() or ((h - G @ z) / norm < -TIGHT * scale).any():
        raise ProblemError("the point violates a constraint; pass what decide_relaxed() returns")
    between, held = ~(low | high), low ^ high  # a variable with equal bounds is in neither, because it never moves
    E = np.zeros((0, len(z))) if A is None else A / np.maximum(np.abs(A).sum(1, keepdims=True), 1e-300)
    G_K = np.vstack([E, G[tight] / norm[tight, None]])
    left, right = _eliminate_vertex_columns(G_K[:, between])
    inward = np.where(low, 1.0, -1.0)[held]
    # The rows K of a direction d: G_KF d_F + G_KN d_N + s = 0, with d_N = inward · y_N and s = y_K (0 for rows of A).
    moves = np.hstack([G_K[:, held] * inward, np.eye(len(G_K))[:, len(E) :]])
    rays = extreme_rays_at_vertex(left @ moves)
    directions = np.zeros((len(rays), len(z)))
    directions[:, held] = rays[:, : held.sum()] * inward
    directions[:, between] = -rays @ (right @ moves).T
    return _adjacent_along_directions(z, directions, G[~tight], h[~tight], lb, ub)


def extreme_rays_at_vertex(M: Array) -> Array:
    """Compute the extreme rays of ``{y ≥ 0, My = 0}`` for M (r, q) by the double description method.

    The equations of M are added one after another. Each ray on one side of the new equation is combined with each
    adjacent ray on the other side. Two rays are adjacent if they span a face of two dimensions. This face contains the
    vectors that satisfy the earlier equations and are zero wherever both rays are zero.

    Returns:
        (k, q) rays, each with a largest entry of 1.

    Raises:
        ProblemError: too many pairs of rays must be combined.
    """
    q = M.shape[1]
    rays = np.eye(q)
    for i, row in enumerate(M):
        side = rays @ row
        side[np.abs(side) <= RANK * max(1.0, float(np.abs(row).max(initial=0.0)))] = 0.0
        first, second = np.nonzero(side > 0)[0], np.nonzero(side < 0)[0]
        if len(first) * len(second) > _MOST_PAIRS:
            raise ProblemError(
                f"the vertex is too degenerate: {len(M)} constraints more than it needs meet in it, and with {i} of "
                f"them {len(rays):,} edges leave it already; leave the sample out, or use PEAR, which needs none"
            )
        a, b = _adjacent_ray_pairs(rays, first, second, M[:i])
        new = rays[a] * -side[b, None] + rays[b] * side[a, None]
        new /= np.maximum(new.max(1, keepdims=True, initial=0.0), 1e-300)
        rays = np.vstack([rays[side == 0], new])
    return rays


def _adjacent_ray_pairs(
    rays: Array, first: NDArray[np.intp], second: NDArray[np.intp], M: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the pairs of extreme rays of ``{y ≥ 0, My = 0}`` that span a face of two dimensions.

    Args:
        rays: (k, q) extreme rays.
        first: the row numbers of the rays that may be the first ray of a pair.
        second: the row numbers of the rays that may be the second ray.
        M: (r, q) equations.

    Returns:
        The row numbers of the first and of the second ray of each pair.
    """
    r, support = len(M), rays > RANK
    found = [(first[:0], second[:0])]
    # in blocks of pairs, because a degenerate vertex may have hundreds of millions of pairs
    for some in np.array_split(first, 1 + len(first) * len(second) // _PAIRS):
        # with more columns in their joint support, two rays leave more than two dimensions
        one, other = support[some].astype(np.float32), support[second].astype(np.float32)
        size = one.sum(1)[:, None] + other.sum(1) - one @ other.T
        i, j = np.nonzero(size <= r + 2)
        a, b = some[i], second[j]
        joint = support[a] | support[b]
        order = np.argsort(~joint, axis=1, kind="stable")[:, : r + 2]
        columns = np.moveaxis(M[:, order] * np.take_along_axis(joint, order, 1), 0, 1)  # (P, r, r + 2), zero elsewhere
        rank = np.linalg.matrix_rank(columns, tol=RANK) if r and len(a) else 0
        edge = joint.sum(1) - rank == 2
        found.append((a[edge], b[edge]))
    a, b = (np.concatenate(part) for part in zip(*found, strict=True))
    return a, b


def _eliminate_vertex_columns(G_KF: Array) -> tuple[Array, Array]:
    """Return two matrices that eliminate the f variables between their bounds from the k tight rows.

    Args:
        G_KF: (k, f) the coefficients of these variables in these rows, those of A included.

    Returns:
        An orthonormal basis (k − f, k) of the vectors orthogonal to all columns of G_KF, and the pseudo-inverse (f, k)
        of G_KF.

    Raises:
        ProblemError: the columns are dependent, so that the point is not a vertex.
    """
    k, f = G_KF.shape
    if f == 0:
        return np.eye(k), np.zeros((0, k))
    U, sizes, Vt = np.linalg.svd(G_KF)
    if k < f or sizes[-1] <= RANK:
        raise ProblemError(
            f"the point is not a vertex: {f} variables are between their bounds, and the tight rows do not fix them; "
            "pass what decide_relaxed() returns"
        )
    return U[:, f:].T, Vt.T @ (U[:, :f] / sizes).T


def _adjacent_along_directions(z: Array, directions: Array, G: Array, h: Array, lb: Array, ub: Array) -> Array:
    """Return the points (l, n) at which directions (k, n) from z meet their first constraint.

    Directions that meet no constraint are left out.
    """
    size = np.maximum(np.abs(directions).max(1, keepdims=True, initial=0.0), 1e-300)
    directions = np.where(np.abs(directions) <= RANK * size, 0.0, directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = directions @ G.T
        rows = np.where(slope > RANK * size, (h - G @ z) / slope, np.inf)
        room = np.where(directions > 0, ub - z, z - lb)
        bounds = np.where(directions != 0, room / np.abs(directions), np.inf)
    length = np.minimum(rows.min(1, initial=np.inf), bounds.min(1, initial=np.inf))
    finite = np.isfinite(length)
    v = z + length[finite, None] * directions[finite]
    for bound in (lb, ub):
        v = np.where(np.abs(v - bound) <= TIGHT * np.maximum(1.0, np.abs(v)), bound, v)
    return v

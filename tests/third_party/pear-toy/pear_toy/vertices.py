"""A solver of small linear programs: it tries all vertices until one is optimal."""

import itertools
import math

import numpy as np

from pear.optimality.status import Status
from pear.solvers import Backend
from pear.solvers.adapters.batch_arrays import ProgramArrays, groups, row
from pear.solvers.adapters.candidate_rows import CandidateRows

ROW = Backend("vertices", "pear_toy.vertices", kinds=("lp",), sparse=False, vertex=True, note="tries all vertices")
MOST = 3000  # vertices that it tries


def supports(qp):
    """Return whether there are few vertices, estimated from the largest numbers of rows and bounds."""
    bounds = int(qp.lb.isfinite().sum(-1).max() + qp.ub.isfinite().sum(-1).max()) if qp.batch else 0
    return math.comb(qp.m + bounds, min(qp.n, qp.m + bounds)) <= MOST


def solve(qp, tol):
    """Propose a vertex with multipliers of the right signs, for every sample."""
    batch, candidates = ProgramArrays.of(qp), CandidateRows(qp)
    for group in groups(batch, candidates.todo):
        for i in group.members.tolist():
            c, b, h = row(batch.c, i), row(batch.b, i), row(batch.h, i)[group.rows]
            found = best_vertex(c, group.A, b, group.G, h, row(batch.lb, i), row(batch.ub, i), tol)
            if found is not None:
                x, equality, inequality, bound = found
                candidates.put(i, Status.SOLVED, x, group, equality, inequality, bound)
    return candidates.candidate()


def best_vertex(c, A, b, G, h, lb, ub, tol):
    """Return the optimal vertex with its multipliers; None if there is none."""
    n, eye = len(c), np.eye(len(c))
    below, above = np.flatnonzero(np.isfinite(lb)), np.flatnonzero(np.isfinite(ub))
    rows, sides = np.vstack([G, -eye[below], eye[above]]), np.concatenate([h, -lb[below], ub[above]])
    room = tol * (1 + np.abs(sides).max(initial=0.0) + np.abs(b).max(initial=0.0))
    free = n - (np.linalg.matrix_rank(A) if len(A) else 0)
    for chosen in itertools.combinations(range(len(rows)), free):
        J = np.vstack([A, rows[list(chosen)]])
        x = np.linalg.lstsq(J, np.concatenate([b, sides[list(chosen)]]))[0]
        if np.linalg.matrix_rank(J) < n or np.abs(A @ x - b).max(initial=0.0) > room or (rows @ x > sides + room).any():
            continue
        multipliers = np.linalg.lstsq(J.T, -c)[0]
        if (multipliers[len(b) :] < -tol * np.abs(c).max()).any():
            continue
        held = np.zeros(len(rows))
        held[list(chosen)] = multipliers[len(b) :].clip(min=0.0)
        bound = np.zeros(n)
        bound[below] -= held[len(h) : len(h) + len(below)]
        bound[above] += held[len(h) + len(below) :]
        return x, multipliers[: len(b)], held[: len(h)], bound
    return None

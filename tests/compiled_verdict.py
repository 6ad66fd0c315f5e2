"""The compiled active-set method's own rules of acceptance, applied to a point that it has not found."""

from __future__ import annotations

import numpy as np

from pear.compile.jit import entry, inner, refer, span
from pear.optimality.rule import FEASIBLE, OPTIMAL
from pear.solvers.active_set import batch, kernels, sample
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.acceptance import feasible, imbalance, kkt_residual, write
from pear.solvers.active_set.layout import Array, Data, Memory, Outcome, Programs, Samples, Work
from pear.solvers.active_set.pricing import measure_dual_scales, most_wrong
from pear.solvers.active_set.products import set_reduced_gradient, set_slope


def judge(P: Programs, cost: Array, point: Outcome) -> Outcome:
    """The outcome for row 0 of ``point``, whose active set is its working set."""
    n, rows = len(cost), P.J.shape[1]
    outcome = ix.new_outcome(1, n, P.equalities, rows - P.equalities)
    for part in outcome[2:]:
        part[...] = 0
    samples = Samples(cost[None], np.zeros((0, 0)), np.zeros(1, np.int64), np.zeros(1, np.int64))
    run(P, samples, point, outcome, batch.team_for(n, rows).memory)
    return outcome


@inner
def load_point(D: Data, point: Outcome, k: int, w: Work) -> None:
    """Bring a point with its multipliers into the workspace; its active set is the working set."""
    R, n = D.J.shape
    p = D.equalities
    for j in span(n):
        w.x[j], w.bound[j] = point.x[k, j], point.bound[k, j]
        w.place[j] = ix.LOWER if point.lower[k, j] else (ix.UPPER if point.upper[k, j] else ix.BASIC)
    for i in span(R):
        w.y[i] = -point.equality[k, i] if i < p else -point.inequality[k, i - p]
        w.place[n + i] = ix.LOWER if i < p or point.rows[k, i - p] else ix.BASIC


@inner
def verify(D: Data, point: Outcome, k: int, outcome: Outcome, i: int, w: Work) -> None:
    """Judge a point as the solver judges its own: stationarity, signs, feasibility, KKT residual.

    Its rows, lower and upper are the working set that its multipliers are computed with.
    """
    load_point(D, point, k, w)
    set_slope(D, w)
    set_reduced_gradient(D, w)
    measure_dual_scales(D, w)
    good = imbalance(D, w) <= FEASIBLE
    good = feasible(D, w) and good
    good = kkt_residual(D, w) <= OPTIMAL and good
    write(D, outcome, i, w)
    for j in span(D.n):  # the signs that count are those of the given multipliers
        w.reduced[j] = -w.bound[j]
    if good and most_wrong(D, w, np.bool_(False), np.bool_(False)) < 0:
        outcome.code[i] = ix.SOLVED


@entry
def run(P: Programs, samples: Samples, point: Outcome, outcome: Outcome, memory: Memory) -> None:
    """Load the program and judge the point, where the program is one."""
    programs = refer(P)
    w, D = refer(kernels.workspace(refer(memory), 0)), refer(sample.select(programs, 0))
    if sample.load_program(programs, D, refer(samples).predicted[0], 0, w):
        verify(D, refer(point), 0, refer(outcome), 0, w)

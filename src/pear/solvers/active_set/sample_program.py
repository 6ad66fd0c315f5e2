"""The program of one sample: functions that select its data and load them into the workspace."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import LARGEST
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.compiled_sizes import measure_compiled_curvature, measure_compiled_least_size
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Programs, Workspace


@inner
def select_sample_program(P: Programs, curvature: Array, r: int) -> ProgramData:
    """Return the data of the sample in row r of the programs, with its Q from ``curvature``.

    Fields that all samples share have one row only.
    """
    Q = curvature[r if len(curvature) > 1 else 0]
    J = P.J[r if len(P.J) > 1 else 0]
    value = P.value[r if len(P.value) > 1 else 0]
    _, n = J.shape
    dual = P.dual
    shared = dual.response, dual.origin, dual.gram, dual.weight, dual.freedom
    return ProgramData(Q, P.band, P.sign, P.smoothing, J, P.start, P.row, value, P.equalities, n, *shared)


@inner
def load_sample_program(P: Programs, D: ProgramData, cost: Array, r: int, w: Workspace) -> bool:
    """Load the cost, the bounds and the right-hand sides of the sample in row r into the workspace.

    Args:
        P: the programs.
        D: the data of the sample.
        cost: (n,) the cost, with the sign that the user gave it.
        r: the row of the sample in the fields of P that differ by sample.
        w: the workspace.

    Returns:
        False if a cost is too large, if bounds contradict each other, or if a number that must be finite is not.
    """
    R, n = D.J.shape
    good = True
    lb, ub = P.lb[r if len(P.lb) > 1 else 0], P.ub[r if len(P.ub) > 1 else 0]
    for j in span(n):
        w.c[j] = D.sign * cost[j]
        w.lo[j], w.up[j] = lb[j], ub[j]
        good = good and abs(w.c[j]) <= LARGEST and lb[j] <= ub[j] and lb[j] < math.inf and ub[j] > -math.inf
    good = measure_compiled_curvature(D, w) < math.inf and good
    load_sample_norms(P, D, r, w)
    rhs = P.rhs[r if len(P.rhs) > 1 else 0]
    for k in span(R):
        absent = k >= D.equalities and rhs[k] == math.inf
        good = good and (absent or abs(rhs[k]) < math.inf)
        w.rhs[k] = 0.0 if absent else rhs[k]
        w.lo[n + k] = -math.inf if absent else 0.0
        w.up[n + k] = 0.0 if k < D.equalities else math.inf
    measure_compiled_least_size(D, w)
    w.tally[ix.CHANGES] = w.tally[ix.PATIENT] = 0
    return good


@inner
def load_sample_norms(P: Programs, D: ProgramData, r: int, w: Workspace) -> None:
    """Load the squared lengths of the constraint rows of the sample in row r."""
    norm = P.norm[r if len(P.norm) > 1 else 0]
    for k in span(len(D.J)):
        w.norm[k] = norm[k]

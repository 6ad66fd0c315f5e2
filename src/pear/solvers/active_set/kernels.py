"""The compiled entry points: batches, sample by sample."""

from __future__ import annotations

import math

import numpy as np

from pear.optimality.rule import FEASIBLE, NEGLIGIBLE, OPTIMAL
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set import sample
from pear.solvers.active_set.basis import times_all
from pear.solvers.active_set.compile import entry, inner
from pear.solvers.active_set.layout import Array, Data, Outcome, Pair, Programs, Results, Samples, States, Table, Work
from pear.solvers.active_set.linear import set_reduced_gradient, set_slope, subtract_rows
from pear.solvers.active_set.pricing import measure_dual_scales, most_wrong
from pear.solvers.active_set.tangent import centre, hold_tight, project_error
from pear.solvers.active_set.verdict import accept_multipliers, feasible, hold_working, imbalance, kkt_residual, write


@entry
def solve_batch(
    P: Programs,
    cost: Array,
    at: Array,
    states: States,
    slots: Array,
    default: States,
    outcome: Outcome,
    w: Work,
    first: int,
    last: int,
) -> None:
    """Solve the samples ``first`` to ``last`` (left out) of a batch.

    Where multipliers are not unique, these are zero at as few tight constraints as possible.

    Args:
        P: Programs; cost: (B, n) in the user's sense; at: (B,) row of each sample in fields that are not shared.
        states, slots: sample i starts from ``states[slots[i]]`` and is written back there.
        default: States with one row, the start of samples that have none, or with none, and each finds its own. It
            must not depend on other samples, so that no result does.
        outcome: written to, row i for sample i; w: Work.
    """
    for i in range(first, last):
        D = sample.select(P, at[i])
        reset(outcome, i)
        if not sample.load_program(P, D, cost[i], at[i], w):
            continue
        code = sample.solve_from(D, states, slots[i], default, np.int64(0), w)
        if code == ix.CLOSE:
            hold_working(D, w)
            write(D, outcome, i, w)
            outcome.code[i] = code
        elif code == ix.SOLVED:
            held = hold_tight(w)
            if centre_exactly(D, w):
                sample.write_back(D, states, slots[i], outcome, i, held, w)


@entry
def project_batch(
    P: Programs,
    at: Array,
    states: States,
    slots: Array,
    error: Array,
    g: Array,
    converged: Array,
    w: Work,
    first: int,
    last: int,
) -> None:
    """Project errors (B, n) at the solutions in ``states``; ``converged`` says where that is done."""
    for i in range(first, last):
        converged[i] = 0
        if states.has_start[slots[i]] == 1:
            D = sample.select(P, at[i])
            sample.measure_curvature(D, w)
            sample.load_norms(P, D, at[i], w)
            sample.load_start(D, states, slots[i], w)
            times_all(D, w)
            converged[i] = 1 if project_error(D, error[i], g[i], w) else 0


@entry
def regret_batch(
    pair: Pair,
    samples: Samples,
    table: Table,
    default: States,
    strength: float,
    results: Results,
    w: Work,
    first: int,
    last: int,
) -> None:
    """Regret and its gradient, sample by sample: both problems solved, then regret, projection and injection.

    Args:
        pair, samples: the two problems and their costs.
        table: where sample i starts from and is written back to, row ``slots[i]``. A predicted problem without a start
            takes the solution of the true one.
        default: as for ``solve_batch``.
        strength: β of the injection, for programs without Q; negative to be given the error instead.
        results: written to, row i for sample i.
        w: Work; first, last: which samples, the last left out.
    """
    best, outcome = table.best, results.outcome
    for i in range(first, last):
        slot, row = samples.slots[i], samples.at[i]
        D, T = sample.select(pair.decision, row), sample.select(pair.true, row)
        if not (best.code[slot] == ix.SOLVED and is_current(table, slot, samples.true[i])):
            reset(best, slot)
            if sample.load_program(pair.true, T, samples.true[i], row, w):
                sample.solve_sample(T, table.true, slot, default, np.int64(0), best, slot, w)
            if table.fingerprints.shape[0] > 0:
                for j in range(samples.true.shape[1]):
                    table.fingerprints[slot, j] = samples.true[i, j]
        reset(outcome, i)
        if best.code[slot] == ix.SOLVED and sample.load_program(pair.decision, D, samples.predicted[i], row, w):
            sample.solve_sample(D, table.predicted, slot, table.true, slot, outcome, i, w)
        if outcome.code[i] == ix.SOLVED:
            results.value[i] = realised_regret(T, best, slot, w)
            set_error(D, T, pair.curved, samples.predicted[i], samples.true[i], results.injected[i], w)
            if not project_error(D, results.injected[i], results.exact[i], w):
                outcome.code[i] = ix.GIVEN_UP
            inject(D, strength, results.injected[i], results.exact[i])


@entry
def verify_batch(
    P: Programs, cost: Array, at: Array, point: Outcome, outcome: Outcome, w: Work, first: int, last: int
) -> None:
    """Judge points as the solver judges its own: stationarity, signs, feasibility, KKT residual.

    Args:
        P, cost, at: as for ``solve_batch``.
        point: x and multipliers, row i for sample i; rows, lower and upper are the working set they are computed with.
        outcome: written to: ``code``, ``kkt_residual``, and the tight and weakly active constraints.
    """
    for i in range(first, last):
        D = sample.select(P, at[i])
        reset(outcome, i)
        if sample.load_program(P, D, cost[i], at[i], w):
            sample.load_point(D, point, i, w)
            set_slope(D, w)
            set_reduced_gradient(D, w)
            measure_dual_scales(D, w)
            good = imbalance(D, w) <= FEASIBLE
            good = feasible(D, w) and good
            good = kkt_residual(D, w) <= OPTIMAL and good
            write(D, outcome, i, w)
            for j in range(D.J.shape[1]):  # the signs that count are those of the given multipliers
                w.v[ix.REDUCED, j] = -w.v[ix.BOUND, j]
            if good and most_wrong(D, w, np.bool_(False), np.bool_(False)) < 0:
                outcome.code[i] = ix.SOLVED


@inner
def centre_exactly(D: Data, w: Work) -> bool:
    """Centre the multipliers where they stay exact, and leave them as they are where not; False where neither is."""
    R = D.J.shape[0]
    for k in range(R):
        w.v[ix.ERROR, k] = w.v[ix.Y, k]
    if not centre(D, w) or accept_multipliers(D, w):
        return True
    for k in range(R):
        w.v[ix.Y, k] = w.v[ix.ERROR, k]
    set_reduced_gradient(D, w)
    return accept_multipliers(D, w)


@inner
def reset(outcome: Outcome, k: int) -> None:
    """Row k is given up until it is solved."""
    outcome.code[k] = ix.GIVEN_UP
    outcome.changes[k] = 0


@entry
def default_start_batch(P: Programs, cost: Array, states: States, w: Work) -> None:
    """A feasible working set for the first row of the programs, as the first of ``states``; none if there is none."""
    row = np.int64(0)
    D = sample.select(P, row)
    if sample.load_program(P, D, cost[row], row, w) and sample.feasible_start(D, w):
        sample.save_start(D, states, row, np.bool_(True), w)


@inner
def is_current(table: Table, slot: int, true: Array) -> bool:
    """True where the best decision in the table was found under these costs; NaN agrees with nothing."""
    if table.fingerprints.shape[0] == 0:
        return False
    for j in range(true.shape[0]):  # noqa: SIM110 (a plain loop is what compiles well)
        if true[j] != table.fingerprints[slot, j]:
            return False
    return True


@inner
def realised_regret(T: Data, best: Outcome, slot: int, w: Work) -> float:
    """Regret of w's x under the true program T, ½dᵀHd plus multiplier times slack: terms that are never negative."""
    R, n = T.J.shape
    p, total = T.equalities, 0.0
    for j in range(n):
        w.v[ix.STEP, j] = w.v[ix.X, j] - best.x[slot, j]
        total += max(0.0, -best.bound[slot, j] * w.v[ix.STEP, j])
    curved = 0.0
    if T.Q.shape[0] > 0:
        for i in range(n):
            if w.v[ix.STEP, i] != 0.0:
                s = 0.0
                for j in range(n):
                    s += T.Q[i, j] * w.v[ix.STEP, j]
                curved += T.sign * w.v[ix.STEP, i] * s
    for j in range(n):
        curved += T.smoothing * w.v[ix.STEP, j] * w.v[ix.STEP, j]
    if p < R:
        for i in range(R):
            w.v[ix.LEFT, i] = w.v[ix.RHS, i]
        subtract_rows(T, w.v[ix.X], w.v[ix.LEFT])
    for i in range(p, R):
        if best.inequality[slot, i - p] > 0.0:
            total += max(0.0, best.inequality[slot, i - p] * w.v[ix.LEFT, i])
    return total + max(0.0, 0.5 * curved)


@inner
def set_error(D: Data, T: Data, curved: bool, predicted: Array, true: Array, e: Array, w: Work) -> None:
    """``e = (ĉ − c) + (Q̂ − Q)x``; the sign of the problem would cancel from the gradient."""
    n = e.shape[0]
    for j in range(n):
        e[j] = predicted[j] - true[j]
    if curved:
        for j in range(n):
            if w.v[ix.X, j] != 0.0:
                for i in range(n):
                    e[i] += (D.Q[j, i] - T.Q[j, i]) * w.v[ix.X, j]


@inner
def inject(D: Data, strength: float, e: Array, g: Array) -> None:
    """Turn the error e into g + β (‖g‖/‖n‖) n with n = e/λ − g, in place; g itself where β = 0, nothing where β < 0."""
    n = e.shape[0]
    if strength < 0.0:
        return
    size_n = size_g = size_e = 0.0
    if strength > 0.0:
        for j in range(n):
            e[j] /= D.smoothing
            size_n += (e[j] - g[j]) ** 2
            size_g += g[j] ** 2
            size_e += e[j] ** 2
    real = math.sqrt(size_n) > NEGLIGIBLE * math.sqrt(size_e)
    ratio = strength * math.sqrt(size_g / size_n) if strength > 0.0 and real else 0.0
    for j in range(n):
        e[j] = g[j] + ratio * (e[j] - g[j]) if ratio > 0.0 else g[j]

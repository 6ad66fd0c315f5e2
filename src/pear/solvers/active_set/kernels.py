"""The compiled entry points: batches, sample by sample."""

from __future__ import annotations

import math

import numpy as np

from pear.optimality.rule import NEGLIGIBLE
from pear.solvers.active_set.basis import times_all
from pear.solvers.active_set.compile import entry, inner
from pear.solvers.active_set.layout import (
    GIVEN_UP,
    LEFT,
    RHS,
    SOLVED,
    STEP,
    Array,
    Data,
    Outcome,
    Programs,
    States,
    Work,
    X,
)
from pear.solvers.active_set.linear import subtract_rows
from pear.solvers.active_set.sample import (
    begin,
    leave,
    load,
    measure_stiffness,
    reach,
    recall,
    select,
    solve_sample,
    store,
)
from pear.solvers.active_set.tangent import centre, hold_tight, project_error
from pear.solvers.active_set.verdict import accept_multipliers


@entry
def solve_batch(
    P: Programs,
    cost: Array,
    at: Array,
    states: States,
    slots: Array,
    home: States,
    outcome: Outcome,
    w: Work,
    first: int,
    last: int,
) -> None:
    """Solve the samples ``first`` to ``last`` (left out) of a batch.

    Where multipliers are not unique, these are zero at as few tight constraints as possible.

    Args:
        P: Programs; cost: (B, n) in the user's sense; at: (B,) row of each sample in fields that are not shared.
        states, slots: where sample i starts from and is left at, ``states[slots[i]]``.
        home: States with one row to start unknown samples from, or none. It must not depend on other samples, so that
            no result does.
        outcome: written to, row i for sample i; w: Work.
    """
    for i in range(first, last):
        D = select(P, at[i])
        outcome.code[i] = GIVEN_UP
        outcome.changes[i] = 0
        if reach(P, D, cost[i], at[i], states, slots[i], home, np.int64(0), w):
            hold_tight(w)
            if not centre(D, w) or accept_multipliers(D, w):
                leave(D, states, slots[i], outcome, i, w)


@entry
def project_batch(
    P: Programs,
    at: Array,
    states: States,
    slots: Array,
    error: Array,
    g: Array,
    good: Array,
    w: Work,
    first: int,
    last: int,
) -> None:
    """Project errors (B, n) at solutions that were left in ``states``; ``good`` says where it worked."""
    for i in range(first, last):
        good[i] = 0
        if states.known[slots[i]] == 1:
            D = select(P, at[i])
            measure_stiffness(D, w)
            recall(D, states, slots[i], w)
            times_all(D, w)
            good[i] = 1 if project_error(D, error[i], g[i], w) else 0


@entry
def regret_batch(
    P: Programs,
    T: Programs,
    curved: bool,
    predicted: Array,
    true: Array,
    at: Array,
    states: States,
    ideals: States,
    slots: Array,
    home: States,
    outcome: Outcome,
    ideal: Outcome,
    stamps: Array,
    strength: float,
    value: Array,
    g: Array,
    injected: Array,
    w: Work,
    first: int,
    last: int,
) -> None:
    """Regret and its gradient, sample by sample: both problems solved, the bill, the projection, the injection.

    Args:
        P, T: Programs of the decision and of the bill; curved: whether their Q differ.
        predicted, true: (B, n) costs in the user's sense.
        at: (B,) row of each sample in fields that are not shared.
        states, ideals: where the two problems of sample i start from and are left at, row ``slots[i]``.
        home: as for ``solve_batch``; unknown predicted problems start from the solution of the true one.
        outcome: of the predicted problems, row i; ideal: of the true ones, row ``slots[i]``.
        stamps: (K, n) costs under which the rows of ``ideal`` were solved; NaN where they must be solved again. A table
            without rows: always.
        strength: β of the injection, for programs without Q; negative to be given the error instead.
        value, g, injected: written to: regret (B,), gradient (B, n), and with injection, or the error, (B, n).
        w: Work; first, last: which samples, the last left out.
    """
    n = predicted.shape[1]
    for i in range(first, last):
        slot = slots[i]
        D, bill = select(P, at[i]), select(T, at[i])
        if not (stamps.shape[0] > 0 and ideals.known[slot] == 1 and same(true[i], stamps[slot])):
            solve_sample(T, bill, true[i], at[i], ideals, slot, home, np.int64(0), ideal, slot, w)
            if ideal.code[slot] == SOLVED and stamps.shape[0] > 0:
                for j in range(n):
                    stamps[slot, j] = true[i, j]
        solve_sample(P, D, predicted[i], at[i], states, slot, ideals, slot, outcome, i, w)
        if ideal.code[slot] != SOLVED:
            outcome.code[i] = GIVEN_UP
        if outcome.code[i] == SOLVED:
            value[i] = pay(bill, ideal, slot, w)
            set_error(D, bill, curved, predicted[i], true[i], injected[i], w)
            if not project_error(D, injected[i], g[i], w):
                outcome.code[i] = GIVEN_UP
            inject(D, strength, injected[i], g[i])


@entry
def home_batch(P: Programs, cost: Array, states: States, w: Work) -> None:
    """A feasible working set for the first row of the programs, as the first of ``states``; none if there is none."""
    row = np.int64(0)
    D = select(P, row)
    if load(P, D, cost[row], row, w) and begin(D, w):
        store(D, states, row, np.bool_(True), w)


@inner
def same(a: Array, b: Array) -> bool:
    """True where two vectors agree in every bit that matters; NaN agrees with nothing."""
    for j in range(a.shape[0]):  # noqa: SIM110 (a plain loop is what compiles well)
        if a[j] != b[j]:
            return False
    return True


@inner
def pay(bill: Data, ideal: Outcome, slot: int, w: Work) -> float:
    """Regret of w's x under the true program: ½dᵀHd plus multiplier times slack; no term is negative, none cancels."""
    R, n = bill.J.shape
    p, total = bill.equalities, 0.0
    for j in range(n):
        w.v[STEP, j] = w.v[X, j] - ideal.x[slot, j]
        total += max(0.0, -ideal.bound[slot, j] * w.v[STEP, j])
    curved = 0.0
    if bill.Q.shape[0] > 0:
        for i in range(n):
            if w.v[STEP, i] != 0.0:
                s = 0.0
                for j in range(n):
                    s += bill.Q[i, j] * w.v[STEP, j]
                curved += bill.sign * w.v[STEP, i] * s
    for j in range(n):
        curved += bill.smoothing * w.v[STEP, j] * w.v[STEP, j]
    if p < R:
        for i in range(R):
            w.v[LEFT, i] = w.v[RHS, i]
        subtract_rows(bill, w.v[X], w.v[LEFT])
    for i in range(p, R):
        if ideal.inequality[slot, i - p] > 0.0:
            total += max(0.0, ideal.inequality[slot, i - p] * w.v[LEFT, i])
    return total + max(0.0, 0.5 * curved)


@inner
def set_error(D: Data, bill: Data, curved: bool, predicted: Array, true: Array, e: Array, w: Work) -> None:
    """E = (ĉ − c) + (Q̂ − Q)x; the sign of the problem would cancel from the gradient."""
    n = e.shape[0]
    for j in range(n):
        e[j] = predicted[j] - true[j]
    if curved:
        for j in range(n):
            if w.v[X, j] != 0.0:
                for i in range(n):
                    e[i] += (D.Q[j, i] - bill.Q[j, i]) * w.v[X, j]


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

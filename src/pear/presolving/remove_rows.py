"""Steps of presolve that remove rows: empty rows, duplicate rows, bounds written as rows, and dependent equalities.

Each step changes a ``WorkingProgram`` and returns True if it has removed a row.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from scipy import sparse

from pear.presolving.independent_rows import independent_rows, row_lengths
from pear.presolving.multiplier_steps import SharedLimitMultipliers
from pear.presolving.row_program import Index
from pear.presolving.tolerances import DEPENDENT
from pear.presolving.working_program import WorkingProgram

_MOST_WORK = 10**9  # operations of a rank-revealing factorisation; if it needed more, no equality is dropped
_MOST_ROUNDS = 100  # largest number of rounds of the search for equalities that cannot depend on others


def remove_empty_rows(w: WorkingProgram) -> bool:
    """Remove from ``w`` the rows without coefficients, and return True if any was removed.

    A row whose limits exclude zero raises ProblemError. If they exclude it by little more than rounding, the row stays,
    so that the solver decides.
    """
    empty = np.flatnonzero(w.row_left & (np.diff(w.R.indptr) == 0) & ~w.fixed_rows)
    gone = []
    for row in empty.tolist():
        text = f"asks for {_describe_row_limits(w, row)} and has no variables"
        if not w.disagree(max(w.low[row], -w.high[row]), w.scale[row], row, text):
            gone.append(row)
    if gone:
        w.drop_rows(gone, "empty rows")
    return bool(gone)


def remove_single_variable_rows(w: WorkingProgram) -> bool:
    """Remove from ``w`` the rows with a single variable, and return True if any was removed.

    The limits of such a row tighten the bounds of the variable. If the variable is an integer, the row is removed only
    if its coefficient is 1 or −1. A limit that contradicts a bound raises ProblemError; if it does so by little more
    than rounding, the row stays.
    """
    single = w.row_left & (np.diff(w.R.indptr) == 1) & ~w.fixed_rows
    shared, gone = SharedLimitMultipliers(of_bounds=True), []
    for row in np.flatnonzero(single).tolist():
        at = w.R.indptr[row]
        j, a = int(w.R.indices[at]), float(w.R.data[at])
        if w.integer[j] and abs(a) != 1.0:
            continue  # rounding in the division could cut off an integer
        low, high = sorted((w.low[row] / a, w.high[row] / a))
        scale = w.scale[row] / abs(a) + sum(abs(side) for side in (w.lb[j], w.ub[j]) if np.isfinite(side))
        lower, upper = max(low, w.lb[j]), min(high, w.ub[j])
        text = f"asks for {_describe_row_limits(w, row)} and contradicts the other bounds"
        if w.disagree(lower - upper, scale, row, text):
            continue
        if low > w.lb[j]:
            shared.add(j, False, row, a)
            w.lb[j] = min(lower, w.ub[j])
        if high < w.ub[j]:
            shared.add(j, True, row, a)
            w.ub[j] = max(upper, w.lb[j])
        gone.append(row)
    if gone:
        w.steps.append(shared)
        w.drop_rows(gone, "rows with one variable")
    return bool(gone)


def remove_duplicate_rows(w: WorkingProgram) -> bool:
    """Remove from ``w`` the rows that are multiples of other rows, and return True if any was removed.

    The rows that stay get the tighter limits. If each of two inequalities has one limit that is tighter than that of
    the other, both stay, without their wider limits, unless together they make an equality.
    """
    shared, gone = SharedLimitMultipliers(of_bounds=False), []
    for group in _find_parallel_rows(w):
        left: list[int] = []
        for row in group:
            merged = ((other, _merge_parallel_rows(w, other, row, shared)) for other in left)
            other, dropped = next((pair for pair in merged if pair[1] is not None), (row, None))
            if dropped is None:
                left.append(row)
            else:
                gone.append(dropped)
                left[left.index(other)] = other if dropped == row else row
    if gone:
        w.steps.append(shared)
        w.drop_rows(gone, "duplicate rows")
    return bool(gone)


def _merge_parallel_rows(w: WorkingProgram, kept: int, row: int, shared: SharedLimitMultipliers) -> int | None:
    """Merge the limits of ``row`` into those of ``kept``, a row that is a multiple of ``row``, if one row is enough.

    Args:
        w: the program.
        kept: the number of a row.
        row: the number of the other row.
        shared: the record to which limits that ``kept`` takes over are added.

    Returns:
        The number of the row that can be removed. None if both rows must stay: either each row has a limit that is
        tighter than that of the other row, and then both lose their wider limits; or the limits contradict each other
        by so little that the solver has to decide.
    """
    factor = float(w.R.data[w.R.indptr[row]] / w.R.data[w.R.indptr[kept]])
    low, high = sorted((w.low[row] / factor, w.high[row] / factor))
    lower, upper = max(low, w.low[kept]), min(high, w.high[kept])
    scale = w.scale[kept] + w.scale[row] / abs(factor)
    text = f"asks for {_describe_row_limits(w, row)} and contradicts {w.program.name_of(kept)}"
    if w.disagree(lower - upper, scale, row, text):
        return None
    if lower >= upper:  # an equality, up to rounding
        lower = upper = w.low[kept] if w.low[kept] == w.high[kept] else upper
    if lower == w.low[kept] and upper == w.high[kept]:
        return row
    if (lower, upper) == (low, high) and not shared.has_taken(kept):
        return kept
    if lower != upper:
        _remove_wider_row_limits(w, kept, row, factor)
        return None
    if lower != w.low[kept]:
        shared.add(kept, False, row, factor)
    if upper != w.high[kept]:
        shared.add(kept, True, row, factor)
    w.low[kept], w.high[kept], w.scale[kept] = lower, upper, scale
    return row


def _remove_wider_row_limits(w: WorkingProgram, kept: int, row: int, factor: float) -> None:
    """Remove each limit of two parallel rows that the other row implies.

    Args:
        w: the program.
        kept: the number of one row.
        row: the number of the other row.
        factor: the coefficients of ``row``, divided by those of ``kept``.
    """
    before = np.isfinite([w.low[kept], w.high[kept], w.low[row], w.high[row]]).sum()
    low, high = sorted((w.low[row] / factor, w.high[row] / factor))
    below, above = low > w.low[kept], high < w.high[kept]
    w.low[kept] = -np.inf if below else w.low[kept]
    w.high[kept] = np.inf if above else w.high[kept]
    left = sorted((factor * (low if below else -np.inf), factor * (high if above else np.inf)))
    for limits, side, absent in ((w.low, left[0], -np.inf), (w.high, left[1], np.inf)):
        limits[row] = limits[row] if np.isfinite(side) else absent
    gone = before - np.isfinite([w.low[kept], w.high[kept], w.low[row], w.high[row]]).sum()
    if gone:
        w.removed["duplicate limits"] += int(gone)


def _find_parallel_rows(w: WorkingProgram) -> list[list[int]]:
    """Return groups of rows that are exact multiples of each other. Rows that must stay are in no group.

    Every row is divided by its first coefficient. The inner product of each row and one random vector is computed, and
    only rows with the same inner product are compared entry by entry.
    """
    R = w.R
    R.sort_indices()
    counts = np.diff(R.indptr)
    rows = np.flatnonzero(w.row_left & ~w.fixed_rows & (counts > 0))
    if len(rows) < 2:
        return []
    lead = np.ones(len(counts))
    lead[rows] = R.data[R.indptr[rows]]
    unit = R.data / np.repeat(lead, counts)
    probe = np.random.default_rng(0).random(R.shape[1])
    mixed = sparse.csr_array((unit, R.indices, R.indptr), shape=R.shape) @ probe
    alike = defaultdict(list)
    for row in rows.tolist():
        alike[mixed[row]].append(row)
    groups = defaultdict(list)
    for some in alike.values():
        for row in some if len(some) > 1 else ():
            part = slice(R.indptr[row], R.indptr[row + 1])
            groups[R.indices[part].tobytes(), unit[part].tobytes()].append(row)
    return [group for group in groups.values() if len(group) > 1]


def remove_dependent_equality_rows(w: WorkingProgram) -> bool:
    """Remove from ``w`` the equalities that are linear combinations of others, and return True if any was removed.

    An equality whose right-hand side contradicts the combination raises ProblemError. If it does so by little more than
    rounding, the equality stays. If there are so many equalities that a factorisation would take long, all stay.
    """
    rows = np.flatnonzero(w.row_left & (w.low == w.high) & ~w.fixed_rows)
    rows = rows[_find_possibly_dependent_rows(w.R[rows])]
    matrix = w.R[rows]
    used = np.flatnonzero(np.diff(matrix.tocsc().indptr))
    if len(rows) < 2 or len(rows) ** 2 * len(used) > _MOST_WORK:
        return False
    dense = matrix[:, used].toarray()
    lengths = row_lengths(dense)
    rank, order, combination = independent_rows(dense, DEPENDENT)
    value, scale = w.low[rows] / lengths, np.maximum(w.scale[rows], np.abs(w.low[rows])) / lengths
    left = np.abs(value[order[rank:]] - combination.T @ value[order[:rank]])
    terms = scale[order[rank:]] + np.abs(combination).T @ scale[order[:rank]]
    text = "contradicts a combination of other equalities"
    dependent = zip(rows[order[rank:]].tolist(), left, terms, strict=True)
    gone = [row for row, gap, size in dependent if not w.disagree(gap, size, row, text)]
    if gone:
        w.drop_rows(gone, "dependent equalities")
    return bool(gone)


def _find_possibly_dependent_rows(rows: sparse.csr_array) -> Index:
    """Return the positions of the rows that may be linear combinations of others.

    A row with a variable that is in no other row cannot be a combination of others. Such rows are left out, and the
    rest is searched again, at most ``_MOST_ROUNDS`` times.
    """
    left = np.arange(rows.shape[0])
    for _ in range(_MOST_ROUNDS):
        part = rows[left]
        alone = np.diff(part.tocsc().indptr) == 1
        own = abs(part) @ alone.astype(float)
        if not own.any():
            break
        left = left[own == 0]
    return left


def _describe_row_limits(w: WorkingProgram, row: int) -> str:
    """Return the limits of a row as text, such as "= 2" or "≥ 1 and ≤ 3"."""
    low, high = w.low[row], w.high[row]
    if low == high:
        return f"= {low:g}"
    return " and ".join(f"{sign} {side:g}" for sign, side in (("≥", low), ("≤", high)) if np.isfinite(side))

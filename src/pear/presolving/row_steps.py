"""Steps of presolve that remove rows: empty ones, duplicates, bounds written as rows, and dependent equalities.

Each step takes a ``WorkingProgram``, changes it, and returns whether it has removed anything.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from scipy import sparse

from pear.presolving.independent_rows import independent_rows, row_lengths
from pear.presolving.multiplier_steps import SharedLimits
from pear.presolving.row_program import Index
from pear.presolving.tolerances import DEPENDENT
from pear.presolving.working_program import WorkingProgram

_MOST_WORK = 10**9  # operations of a rank-revealing factorisation; larger sets of equalities stay as they are
_MOST_PEELS = 100


class SharedLimitList:
    """The limits that rows or bounds take over during one step, the last taker of each side winning.

    Args:
        of_bounds: True where variables take limits over, False where rows do.
    """

    def __init__(self, of_bounds: bool) -> None:
        self.of_bounds = of_bounds
        self._giver: dict[tuple[int, bool], tuple[int, float]] = {}

    def note(self, taker: int, upper: bool, giver: int, factor: float) -> None:
        """Remember that the upper or lower limit of ``taker`` comes from the row ``giver``."""
        self._giver[taker, upper] = giver, factor

    def has_taken(self, taker: int) -> bool:
        """Whether ``taker`` has taken over a limit."""
        return (taker, False) in self._giver or (taker, True) in self._giver

    def step(self) -> SharedLimits:
        """The step back."""
        takers = np.array([taker for taker, _ in self._giver], dtype=int)
        upper = np.array([side for _, side in self._giver], dtype=bool)
        givers = np.array([giver for giver, _ in self._giver.values()], dtype=int)
        return SharedLimits(
            self.of_bounds, takers, givers, np.array([factor for _, factor in self._giver.values()]), upper
        )


def drop_empty_rows(w: WorkingProgram) -> bool:
    """Remove rows without coefficients, after a check that their limits admit zero."""
    empty = np.flatnonzero(w.row_left & (np.diff(w.R.indptr) == 0) & ~w.fixed_rows)
    gone = []
    for row in empty.tolist():
        text = f"asks for {_limits(w, row)} and has no variables"
        if not w.disagree(max(w.low[row], -w.high[row]), w.scale[row], row, text):
            gone.append(row)
    if gone:
        w.drop_rows(gone, "empty rows")
    return bool(gone)


def turn_singletons_into_bounds(w: WorkingProgram) -> bool:
    """Turn rows with a single variable into bounds. For an integer only where the coefficient is 1 or −1."""
    single = w.row_left & (np.diff(w.R.indptr) == 1) & ~w.fixed_rows
    shared, gone = SharedLimitList(of_bounds=True), []
    for row in np.flatnonzero(single).tolist():
        at = w.R.indptr[row]
        j, a = int(w.R.indices[at]), float(w.R.data[at])
        if w.integer[j] and abs(a) != 1.0:
            continue  # rounding in the division could cut off an integer
        low, high = sorted((w.low[row] / a, w.high[row] / a))
        scale = w.scale[row] / abs(a) + sum(abs(side) for side in (w.lb[j], w.ub[j]) if np.isfinite(side))
        lower, upper = max(low, w.lb[j]), min(high, w.ub[j])
        if w.disagree(lower - upper, scale, row, f"asks for {_limits(w, row)} and contradicts the other bounds"):
            continue
        if low > w.lb[j]:
            shared.note(j, False, row, a)
            w.lb[j] = min(lower, w.ub[j])
        if high < w.ub[j]:
            shared.note(j, True, row, a)
            w.ub[j] = max(upper, w.lb[j])
        gone.append(row)
    if gone:
        w.steps.append(shared.step())
        w.drop_rows(gone, "rows with one variable")
    return bool(gone)


def merge_duplicate_rows(w: WorkingProgram) -> bool:
    """Keep the tightest limits of rows that are multiples of each other, and drop the rows that have none left.

    Two inequalities with limits on different sides stay two rows, unless both together are an equality.
    """
    shared, gone = SharedLimitList(of_bounds=False), []
    for group in _parallel_rows(w):
        left: list[int] = []
        for row in group:
            tried = ((other, _merge_rows(w, other, row, shared)) for other in left)
            other, dropped = next(((other, one) for other, one in tried if one is not None), (row, None))
            if dropped is None:
                left.append(row)
            else:
                gone.append(dropped)
                left[left.index(other)] = other if dropped == row else row
    if gone:
        w.steps.append(shared.step())
        w.drop_rows(gone, "duplicate rows")
    return bool(gone)


def _merge_rows(w: WorkingProgram, kept: int, row: int, shared: SharedLimitList) -> int | None:
    """Merge ``row`` and ``kept``, which is a multiple of it: which of the two can be dropped; None where both stay.

    Where both stay, each keeps the limits that are tighter than the other's.
    """
    factor = float(w.R.data[w.R.indptr[row]] / w.R.data[w.R.indptr[kept]])
    low, high = sorted((w.low[row] / factor, w.high[row] / factor))
    lower, upper = max(low, w.low[kept]), min(high, w.high[kept])
    scale = w.scale[kept] + w.scale[row] / abs(factor)
    text = f"asks for {_limits(w, row)} and contradicts {w.program.name_of(kept)}"
    if w.disagree(lower - upper, scale, row, text):
        return None
    if lower >= upper:  # an equality, up to rounding
        lower = upper = w.low[kept] if w.low[kept] == w.high[kept] else upper
    if lower == w.low[kept] and upper == w.high[kept]:
        return row
    if (lower, upper) == (low, high) and not shared.has_taken(kept):
        return kept
    if lower != upper:
        _drop_wider_limits(w, kept, row, factor)
        return None
    if lower != w.low[kept]:
        shared.note(kept, False, row, factor)
    if upper != w.high[kept]:
        shared.note(kept, True, row, factor)
    w.low[kept], w.high[kept], w.scale[kept] = lower, upper, scale
    return row


def _drop_wider_limits(w: WorkingProgram, kept: int, row: int, factor: float) -> None:
    """Of two parallel rows, remove each limit that is implied by the other row."""
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


def _parallel_rows(w: WorkingProgram) -> list[list[int]]:
    """Groups of two and more rows that are exact multiples of each other; rows that must stay are in none."""
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


def drop_dependent_equalities(w: WorkingProgram) -> bool:
    """Remove equalities that are combinations of others, after a check that their right-hand sides are, too."""
    rows = np.flatnonzero(w.row_left & (w.low == w.high) & ~w.fixed_rows)
    rows = rows[_not_peeled(w.R[rows])]
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


def _not_peeled(rows: sparse.csr_array) -> Index:
    """The positions of rows that may depend on others. A row with a variable that no other row has depends on none."""
    left = np.arange(rows.shape[0])
    for _ in range(_MOST_PEELS):
        part = rows[left]
        alone = np.diff(part.tocsc().indptr) == 1
        own = abs(part) @ alone.astype(float)
        if not own.any():
            break
        left = left[own == 0]
    return left


def _limits(w: WorkingProgram, row: int) -> str:
    """The limits of a row as text: = 2, ≥ 1, ≤ 3."""
    low, high = w.low[row], w.high[row]
    if low == high:
        return f"= {low:g}"
    return " and ".join(f"{sign} {side:g}" for sign, side in (("≥", low), ("≤", high)) if np.isfinite(side))

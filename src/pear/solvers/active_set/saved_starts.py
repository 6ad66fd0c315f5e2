"""Warm starts in files: the part that is saved, and the check of what is read."""

from __future__ import annotations

import numpy as np

from pear.solvers.active_set.compiled_arrays import BASIC, FREE, SUPER, SolutionTable, States
from pear.solvers.active_set.compiled_batch import most_superbasics
from pear.solvers.active_set.settings import REFRESH

MOST_BYTES = 1 << 22
"""Largest size of the inverses that are saved. Larger ones take longer to write than to compute again."""


def without_large_inverses(table: SolutionTable, count: int) -> SolutionTable:
    """Return the part of a table that is saved, for its first ``count`` rows.

    Inverses of bases take nearly all of the space. Where they are too large they are left out. Every basis is then
    inverted again when it is next used, both by this process and by one that reads the file.
    """
    both = (table.predicted, table.true)
    if sum(states.inverse[:count].nbytes for states in both) <= MOST_BYTES:
        return table
    for states in both:
        states.age[:] = REFRESH + 1
    predicted, true = (states._replace(inverse=states.inverse[:0]) for states in both)
    return table._replace(predicted=predicted, true=true)


def are_starts(table: SolutionTable) -> bool:
    """True where all working sets of a table are valid. Compiled code would follow a wrong index without a check."""
    return _are_working_sets(table.predicted) and _are_working_sets(table.true)


def _are_working_sets(states: States) -> bool:
    R, size = states.basis.shape[1], states.place.shape[1]
    there = states.has_start != 0
    place, basis, x = states.place[there], states.basis[there].astype(np.int64), states.x[there]
    if not (np.isin(states.has_start, (0, 1)).all() and ((place >= 0) & (place <= FREE)).all()):
        return False
    if not ((basis >= 0) & (basis < size)).all() or (np.diff(np.sort(basis, 1), axis=1) == 0).any():
        return False
    basic, supers = place == BASIC, (place == SUPER).sum(1)
    whole = np.take_along_axis(basic, basis, 1).all() and (basic.sum(1) == R).all()
    return bool(whole and (supers <= most_superbasics(size - R)).all() and np.isfinite(x).all())

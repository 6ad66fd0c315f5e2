"""``SolutionStore``: working sets and best decisions of the compiled method, kept in a store of warm starts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.kernel_arrays import Array, CompiledSolutions, Index, SolutionTable, States
from pear.solvers.active_set.kernel_threads import kernel_thread_table
from pear.solvers.active_set.settings import MOST_SUPERBASICS, REFRESH
from pear.solvers.warm_starts import WarmStarts, WarmStartTable

MOST_BYTES = 1 << 22
"""Largest size of the inverses that are saved. Larger ones take longer to write than to compute again."""

_TABLE_BYTES = 1 << 29  # largest size of the table
_NAME = "compiled"  # of the table in the store of warm starts
_NO_SLOTS = np.zeros(0, np.int64)


class SolutionStore:
    """The ``SolutionTable`` of one problem, kept in a store of warm starts.

    The fingerprint of a row says what its best decision was computed from: the true cost (n numbers), the fingerprint
    of the true curvature (n numbers), and the coefficient λ of the quadratic smoothing term.

    Args:
        starts: the store of warm starts.
        n: the number of variables.
        p: the number of equalities.
        m: the number of inequalities.
    """

    def __init__(self, starts: WarmStarts, n: int, p: int, m: int) -> None:
        self.starts, self.sizes = starts, (n, p, m)

    def restore(self) -> None:
        """Check and load the rows of a restored store, before anything is computed with them.

        Raises:
            DataError: the rows do not belong to the problem.
        """
        if self.starts.has_saved(_NAME):
            self._load_table()

    def stored_table(self) -> SolutionTable | None:
        """Return the table with a row for every key of the store; None if the table would take too much memory."""
        n, p, m = self.sizes
        rows = p + m
        fits = 8 * len(self.starts) * (rows**2 + n + rows) <= _TABLE_BYTES
        return self._load_table() if fits else None

    def _stored_rows(self, keys: list[Hashable] | None) -> tuple[SolutionTable, Index] | None:
        """Return the stored table and the row numbers (B,) of these keys.

        The result is None if there are no keys, or if the table would take too much memory.
        """
        if keys is None:
            return None
        slots, table = self.starts.slots(keys), self.stored_table()
        return None if table is None else (table, slots)

    def table(self, keys: list[Hashable] | None, B: int) -> tuple[SolutionTable, Index]:
        """Return a table for the regrets of B samples, and (B,) the row of each sample in the table.

        If there are no keys, or if the stored table would be too large, the table is a temporary one, and the row
        numbers have shape (0,).
        """
        return self._stored_rows(keys) or (kernel_thread_table(B, *self.sizes), _NO_SLOTS)

    def states(self, keys: list[Hashable] | None, B: int) -> tuple[States, Index]:
        """Return warm starts for the decisions of B samples, and (B,) the row of each sample in them.

        If there are no keys, or if the stored table would be too large, all rows are new and empty.
        """
        if (stored := self._stored_rows(keys)) is not None:
            return stored[0].predicted, stored[1]
        n, p, m = self.sizes
        return ix.new_kernel_states(B, n, p + m), np.arange(B)

    @staticmethod
    def void_solutions(table: SolutionTable, slots: Index) -> None:
        """Void the solutions of the true problems in the rows ``slots`` (B,), so that they are computed again."""
        if len(table.fingerprints):
            table.fingerprints[slots] = np.nan

    def void_changed(self, table: SolutionTable, slots: Index, mark: Array | float, smoothing: float) -> None:
        """Void the solutions of true problems whose curvature or λ has changed, and write ``mark`` and λ to the table.

        Args:
            table: the table.
            slots: (B,) row numbers.
            mark: the fingerprint of the present curvature, (B, n) or one number for all samples.
            smoothing: the coefficient λ of the quadratic smoothing term.
        """
        if not len(table.fingerprints):
            return
        n, other = self.sizes[0], ~self.is_unchanged(table, slots, mark, smoothing)
        if other.any():
            table.fingerprints[slots[other], :n] = np.nan
            table.fingerprints[slots, n:-1], table.fingerprints[slots, -1] = mark, smoothing

    def is_unchanged(
        self, table: SolutionTable, slots: Index, mark: Array | float, smoothing: float
    ) -> NDArray[np.bool_]:
        """Return (B,) bool, True if a row was solved with this λ and a curvature of this fingerprint.

        See ``void_changed`` for the arguments.
        """
        n, rows = self.sizes[0], table.fingerprints
        like = rows[slots, n] == mark if isinstance(mark, float) else (rows[slots, n:-1] == mark).all(1)
        same: NDArray[np.bool_] = like & (rows[slots, -1] == smoothing)
        return same

    def _load_table(self) -> SolutionTable:
        """Return the table of the store, grown to hold a row for every key."""
        table: WarmStartTable[SolutionTable] = self.starts.table(
            _NAME, self._new_rows, self._without_large_inverses, self._are_rows_valid
        )
        return table.rows

    def _new_rows(self, size: int) -> SolutionTable:
        """Make ``size`` empty rows, filled with zeros, so that no earlier content of the memory gets into a file."""

        def zeros(part: NDArray[Any]) -> NDArray[Any]:
            return np.zeros(part.shape, part.dtype)  # takes memory only as far as it is used, unlike np.zeros_like

        n, p, m = self.sizes
        predicted, true = (States._make(map(zeros, ix.new_kernel_states(size, n, p + m))) for _ in range(2))
        best = CompiledSolutions._make(map(zeros, ix.new_kernel_solutions(size, n, p, m)))
        best.code.fill(ix.GIVEN_UP)
        return SolutionTable(predicted, true, best, np.full((size, 2 * n + 1), np.nan))

    @staticmethod
    def _without_large_inverses(table: SolutionTable, count: int) -> SolutionTable:
        """Return the part of a table that is saved; ``count`` of its rows are in use.

        Inverses of bases take nearly all of the space. If they are too large, they are left out, and every basis is
        marked as old. It is then inverted again when it is next used, by this process and by one that reads the file.
        """
        both = (table.predicted, table.true)
        if sum(states.inverse[:count].nbytes for states in both) <= MOST_BYTES:
            return table
        for states in both:
            states.age[:] = REFRESH + 1
        predicted, true = (states._replace(inverse=states.inverse[:0]) for states in both)
        return table._replace(predicted=predicted, true=true)

    @classmethod
    def _are_rows_valid(cls, table: SolutionTable) -> bool:
        """Return True if all working sets of a table are valid. Compiled code does not check the indices in them."""
        return all(cls._are_states_valid(states) for states in (table.predicted, table.true))

    @staticmethod
    def _are_states_valid(states: States) -> bool:
        """Return True if every start has valid codes, one distinct basic variable per row, and a finite point."""
        R, size = states.basis.shape[1], states.place.shape[1]
        started, based = states.has_start != ix.NO_START, states.has_start == ix.BASIS_START
        codes = states.place[started]
        known = np.isin(states.has_start, (ix.NO_START, ix.BASIS_START, ix.DUAL_START)).all()
        if not (known and ((codes >= 0) & (codes <= ix.FREE)).all() and np.isfinite(states.x[started]).all()):
            return False
        place, basis = states.place[based], states.basis[based].astype(np.int64)
        if not ((basis >= 0) & (basis < size)).all() or (np.diff(np.sort(basis, 1), axis=1) == 0).any():
            return False
        basic, supers = place == ix.BASIC, (place == ix.SUPER).sum(1)
        whole = np.take_along_axis(basic, basis, 1).all() and (basic.sum(1) == R).all()
        return bool(whole and (supers <= min(size - R, MOST_SUPERBASICS)).all())

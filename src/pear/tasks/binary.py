"""Exact 0-1 selections: rows and values made ready for the compiled methods, which work in units of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BUDGET = 500_000
"""Nodes that a search looks at before it gives up: a few seconds."""

FITS = 1e-9
"""Relative: how far a row may be exceeded by rounding."""

_EXACT = 2.0**50  # whole numbers up to here are exact
_TABLE = 300_000  # entries of a table of items and capacities up to which it is faster than any search


@dataclass(frozen=True)
class Rows:
    """``Gz ≤ h`` for 0-1 z, as tight as whole coefficients allow, without rows that always hold.

    Attributes:
        A: (n, M) coefficients by items, divided by powers of two so that none is above 1; last come the −1 that count.
        b: (M,) limits; last comes 0.
        weights: (n,) whole numbers where they, at least 0, and ``capacity`` are all there is; None elsewhere.
        capacity: of that one row.
    """

    A: Array
    b: Array
    weights: NDArray[np.int64] | None
    capacity: int

    @classmethod
    def of(cls, G: Array, h: Array, slack: float | Array = FITS) -> Rows:
        """From rows (m, n) and limits (m,), which may be exceeded by a relative ``slack``, one for all or (m,)."""
        h = np.maximum(h, -np.abs(G).sum(1) - 1.0)  # as impossible as −inf
        extra = np.where(np.isinf(h), 0.0, slack * np.maximum(1.0, np.abs(h)))
        whole = (np.round(G) == G).all(1) & (np.abs(G).sum(1) < _EXACT) & (np.abs(h) < _EXACT)
        divisor = np.ones(len(G))
        divisor[whole] = np.maximum(np.gcd.reduce(G[whole].astype(np.int64), axis=1), 1)
        # Large whole limits are as exact as small ones.
        limits = h + np.where(whole, np.minimum(extra, 1e-6), extra)
        limits[whole] = np.floor(limits[whole] / divisor[whole]) * divisor[whole]
        binding = np.maximum(G, 0).sum(1) > limits
        G, limits, divisor, whole = G[binding], limits[binding], divisor[binding], whole[binding]
        unit = _power_of_two(np.abs(G).max(1, initial=0.0))
        counts = -np.ones((G.shape[1], 1))
        weights, capacity = None, 0
        if len(G) == 1 and whole[0] and limits[0] >= 0 and (G >= 0).all():
            capacity = int(limits[0] / divisor[0])
            if G.shape[1] * (capacity + 1) <= _TABLE:
                weights = (G[0] / divisor[0]).astype(np.int64)
        A = np.ascontiguousarray(np.hstack([(G / unit[:, None]).T, counts]))
        return cls(A, np.append(limits / unit, 0.0), weights, capacity)


class Search:
    """The selections of greatest value that fit, each proven best.

    One row of small whole weights is left to dynamic programming, everything else to branch and bound. What comes
    out depends on value and rows alone: ``start`` saves time, never decides among equals.

    Args:
        value: (n,) v of one program, or (B, n) of several.
        G: (m, n) rows of ``Gz ≤ h``, of any sign.
        h: (m,).
        start: in the shape of ``value`` or None: selections that fit, good ones if possible.
        budget: nodes to look at, for each program, before giving up.
        slack: how far rows may be exceeded, relative to their limits; one for all or (m,).

    Example:
        >>> Search(np.array([5.0, 6.0, 3.0]), np.array([[3.0, 4.0, 2.0]]), np.array([6.0])).run()
        array([0., 1., 1.])
    """

    def __init__(
        self,
        value: Array,
        G: Array,
        h: Array,
        start: Array | None = None,
        budget: int = BUDGET,
        slack: float | Array = FITS,
    ) -> None:
        self.shape = value.shape
        self.values = np.atleast_2d(value)
        self.start = None if start is None else np.atleast_2d(start)
        self.rows, self.budget = Rows.of(G, h, slack), budget

    def run(self) -> Array | None:
        """0 or 1 in the shape of ``value``, NaN for programs without a proof; None where none has one."""
        if self.rows.weights is not None:
            from pear.tasks.dynamic import fill_all  # numba, which takes a moment to import

            chosen = np.empty(self.values.shape, np.int8)
            fill_all(np.ascontiguousarray(self.values), self.rows.weights, self.rows.capacity, chosen)
            return chosen.astype(np.float64).reshape(self.shape)
        chosen, proven = self._branch()
        if not proven.any():
            return None
        return np.where(proven[:, None], chosen, np.nan).reshape(self.shape)

    def alone(self, tie: float) -> NDArray[np.bool_]:
        """(B,) True where ``start``, a best selection, is proven to have no equal, to a relative ``tie``."""
        from pear.tasks.branch import PROVEN, search_all

        assert self.start is not None
        scale = _power_of_two(np.abs(self.values).max(1, initial=0.0))
        values = np.ascontiguousarray(self.values / scale[:, None])
        best = self.start.astype(np.int8)
        close = np.maximum(tie * (1 + np.abs((self.values * best).sum(1))) / scale, _rounding(values))
        whole, known = np.zeros(len(values)), np.ones(len(values), bool)
        outcome = search_all(values, self.rows.A, self.rows.b, whole, close, best, known, self.budget)
        return np.asarray(outcome == PROVEN)

    def _branch(self) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
        """(B, n) selections and (B,) whether they are proven best."""
        from pear.tasks.branch import PROVEN, TIED, search_all  # numba again

        scale = _power_of_two(np.abs(self.values).max(1, initial=0.0))
        values = np.ascontiguousarray(self.values / scale[:, None])
        units, close = self._units(scale), _rounding(values)
        units[units < 1e3 * close] = 0.0
        close = np.where(units > 0, 1e-3 * units, close)
        known = np.full(len(values), self.start is not None) & (units == 0)
        chosen = np.zeros(values.shape, np.int8) if self.start is None else self.start.astype(np.int8)
        outcome = search_all(values, self.rows.A, self.rows.b, units, close, chosen, known, self.budget)
        again = np.flatnonzero(outcome == TIED)
        if len(again):
            # Among equals the one that a search without a start finds is taken, whatever was known before.
            part, nothing = chosen[again], np.zeros(len(again), bool)
            outcome[again] = search_all(
                values[again], self.rows.A, self.rows.b, units[again], close[again], part, nothing, self.budget
            )
            chosen[again] = part
        return chosen, outcome == PROVEN

    def _units(self, scale: Array) -> Array:
        """(B,) of what all values of a program, divided by ``scale``, are multiples; 0 where they are not whole."""
        whole = (self.values == np.round(self.values)).all(1) & (np.abs(self.values).max(1, initial=0.0) < _EXACT)
        units = np.zeros(len(self.values))
        units[whole] = np.gcd.reduce(self.values[whole].astype(np.int64), axis=1) / scale[whole]
        return units


def _rounding(values: Array) -> Array:
    """(B,) more than what rounding adds to the sums of a search."""
    size = np.maximum(1.0, np.abs(values).sum(1))
    return np.asarray(2.0 * np.finfo(np.float64).eps * values.shape[1] * size)


def _power_of_two(x: Array) -> Array:
    """Powers of two of about the size of ``x`` ≥ 0, at least ``x`` where there is one; dividing by them is exact."""
    exponent = np.ceil(np.log2(np.where(x > 0, x, 1.0)))
    return np.asarray(2.0 ** np.clip(exponent, -1022, 1023))

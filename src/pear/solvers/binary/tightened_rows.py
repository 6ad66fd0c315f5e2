"""``TightenedRows``: the rows of 0-1 programs in the scaled form that the searches read.

Limits have a margin for rounding errors. Those of rows with whole coefficients are as tight as the coefficients allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pear.optimality.rule import INTEGRAL, OPTIMAL, ROUNDOFF

Array = NDArray[np.float64]

EXACT = 2.0**50
"""Whole numbers below this limit, and sums of a few such numbers, are exact in float64."""

_TABLE = 300_000  # entries of a table of items and capacities, up to which dynamic programming is fastest


@dataclass(frozen=True)
class TightenedRows:
    """The rows ``low ≤ Gz ≤ h`` for 0-1 variables z, scaled, without rows that always hold.

    M − 1 rows are left. One more row counts the items taken.

    Attributes:
        A: (n, M) the coefficients, one column for each row. Each row is divided by a power of two, so that no
            coefficient exceeds 1. The last column, for the count, is −1.
        b: (M,) the upper limits of these rows; that of the count is 0.
        width: (M,) how far below its upper limit a row may be: infinite without a lower limit, n for the count.
        weights: (n,) whole weights ≥ 0, for a program with one row that dynamic programming solves; None otherwise.
        capacity: the whole limit of this row.
    """

    A: Array
    b: Array
    width: Array
    weights: NDArray[np.int64] | None
    capacity: int

    @classmethod
    def of(cls, G: Array, h: Array, low: Array | None = None, slack: float | Array = OPTIMAL) -> TightenedRows:
        """Tighten and scale the rows ``low ≤ Gz ≤ h``.

        Args:
            G: (m, n) coefficients of any sign.
            h: (m,) upper limits.
            low: (m,) lower limits, −inf for a row without one; None if no row has a lower limit.
            slack: by how much a limit may be exceeded, relative to the limit or to the least coefficient of the row,
                whichever is larger. One number, or one for each of the m rows.
        """
        low = np.full(len(h), -np.inf) if low is None else low
        size = np.abs(G).sum(1)
        whole = (np.round(G) == G).all(1) & (size < EXACT)
        divisor = np.ones(len(G))
        divisor[whole] = np.maximum(np.gcd.reduce(G[whole].astype(np.int64), axis=1), 1)
        # The slack is relative to the least coefficient: in a row of 1e9 and 1, a share of 1e9 could exceed the 1.
        least = np.where(G != 0, np.abs(G), np.inf).min(1, initial=np.inf)
        greatest = np.abs(G).max(1, initial=0.0)
        extra = slack * np.where(greatest > 0, np.maximum(least, ROUNDOFF / OPTIMAL * greatest), 0.0)
        upper = _tighten_row_limits(h, extra, slack, whole, divisor)
        lower = -_tighten_row_limits(-low, extra, slack, whole, divisor)
        upper = np.maximum(np.where(lower > upper, -np.inf, upper), -size - 1.0)  # as impossible as −inf
        lower = np.where(lower > upper, -np.inf, lower)
        binding = (np.maximum(G, 0).sum(1) > upper) | (np.minimum(G, 0).sum(1) < lower)
        G, upper, lower, divisor, whole = (x[binding] for x in (G, upper, lower, divisor, whole))
        unit = cls.unit_of(np.abs(G).max(1, initial=0.0))
        weights, capacity = None, 0
        if len(G) == 1 and whole[0] and upper[0] >= 0 and np.isinf(lower[0]) and (G >= 0).all():
            capacity = int(upper[0] / divisor[0])
            if G.shape[1] * (capacity + 1) <= _TABLE:
                weights = (G[0] / divisor[0]).astype(np.int64)
        A = np.ascontiguousarray(np.hstack([(G / unit[:, None]).T, -np.ones((G.shape[1], 1))]))
        width = np.append((upper - lower) / unit, float(G.shape[1]))
        return cls(A, np.append(upper / unit, 0.0), width, weights, capacity)

    @staticmethod
    def unit_of(x: Array) -> Array:
        """Return for each ``x`` > 0 the least power of two that is at least ``x``, and 1 for ``x`` = 0.

        Division by such a unit is exact.
        """
        exponent = np.ceil(np.log2(np.where(x > 0, x, 1.0)))
        return np.asarray(2.0 ** np.clip(exponent, -1022, 1023))


def _tighten_row_limits(
    limits: Array, extra: Array, slack: float | Array, whole: NDArray[np.bool_], divisor: Array
) -> Array:
    """Add a margin for rounding errors to upper limits (m,).

    The margin is ``slack`` times the absolute limit, or ``extra`` if that is larger. If a row has whole coefficients,
    its limit is then rounded down to a multiple of their greatest common divisor.

    Args:
        limits: (m,) the upper limits.
        extra: (m,) the least margins.
        slack: the margins relative to the limits, one number or (m,).
        whole: (m,) bool, True for a row of whole coefficients.
        divisor: (m,) the greatest common divisors of the coefficients.

    Returns:
        (m,) the new limits.
    """
    finite = np.where(np.isinf(limits), 0.0, limits)
    room = np.maximum(extra, slack * np.abs(finite))
    whole = whole & (np.abs(finite) < EXACT)
    # Large whole limits are as exact as small ones.
    multiple = np.floor((finite + np.minimum(room, INTEGRAL)) / divisor) * divisor
    return np.where(np.isinf(limits), limits, np.where(whole, multiple, finite + room))

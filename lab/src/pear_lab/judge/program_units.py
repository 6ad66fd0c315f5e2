"""``ProgramUnits``: the units of a program, in which its largest entries are near 1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pear_lab.judge.extended_precision import Wide, wide
from pear_lab.judge.judged_program import Array, JudgedProgram


@dataclass(frozen=True)
class ProgramUnits:
    """Units of a program, all of them powers of two, in which its largest entries are near 1.

    In these units nothing depends on whether a variable counts grams or tonnes.

    Attributes:
        column: (n,) the unit of each variable.
        row: (p + m,) the factor that each row of A and G is multiplied by.
    """

    column: Wide
    row: Wide

    @classmethod
    def of(cls, s: JudgedProgram) -> ProgramUnits:
        """Compute units in which the largest entry of every row and column of A and G is near 1.

        A variable with curvature and without a row gets a unit in which its curvature is that of a typical variable.
        """
        M = np.abs(np.vstack([s.A, s.G]))
        column: Array = np.ones(s.n)
        row: Array = np.ones(len(M))
        curved = np.sqrt(np.abs(np.diagonal(s.H)))
        for _ in range(3 if len(M) else 0):
            row = _unit_of_magnitudes((M * column).max(1, initial=0.0))
            column = _unit_of_magnitudes((M * row[:, None]).max(0, initial=0.0))
            row = _unit_of_magnitudes((M * column).max(1, initial=0.0))
        inside = M.any(0) if len(M) else np.zeros(s.n, bool)
        typical = np.median((curved * column)[inside & (curved > 0)]) if (inside & (curved > 0)).any() else 1.0
        column = np.where(~inside & (curved > 0), typical / np.where(curved > 0, curved, 1), column)
        return cls(wide(2.0 ** np.round(np.log2(column))), wide(2.0 ** np.round(np.log2(row))))

    @classmethod
    def ones(cls, s: JudgedProgram) -> ProgramUnits:
        """Return units of 1, which leave a program as it is."""
        return cls(np.ones(s.n, np.longdouble), np.ones(len(s.b) + len(s.h), np.longdouble))


def rescale_program(s: JudgedProgram) -> JudgedProgram:
    """Return a dense program in its own units. The objective is divided by a power of two as well."""
    units = ProgramUnits.of(s)
    d, r, p = units.column.astype(float), units.row.astype(float), len(s.b)
    c, H = d * s.c, d[:, None] * s.H * d
    unit = 2.0 ** np.round(np.log2(max(np.abs(c).max(initial=0.0), np.abs(H).max(initial=0.0)) or 1.0))
    rows = {"A": r[:p, None] * s.A * d, "b": r[:p] * s.b, "G": r[p:, None] * s.G * d, "h": r[p:] * s.h}
    return replace(s, H=H / unit, c=c / unit, **rows, lb=s.lb / d, ub=s.ub / d)


def _unit_of_magnitudes(values: Array) -> Array:
    """Return 1 / values, and 1 for a value of zero."""
    return np.asarray(1.0 / np.where(values > 0, values, 1.0), dtype=np.float64)

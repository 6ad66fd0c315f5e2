"""Residuals without rounding errors, for points whose terms cancel beyond the accuracy of float64.

Nearly parallel rows can have multipliers of 1e9 that cancel each other. The rounding of these terms in float64 is then
larger than the allowed residual. Here a point is stored as the unevaluated sum of two vectors, each product is computed
as the exact sum of two numbers, and each sum is rounded only once, at its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.kkt_residual import Residuals
from pear.problem.quadratic_program import QuadraticProgram

Array = NDArray[np.float64]

_SPLITTER = 2.0**27 + 1.0  # splits the 53 bits of a float64 into two halves


@dataclass
class DoubleDouble:
    """A vector stored as the unevaluated sum ``high + low``, with about twice the digits of float64.

    Attributes:
        high: (k,) the vector rounded to float64.
        low: (k,) the rounding error of ``high``; zero by default.
    """

    high: Array
    low: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.low = self.low if len(self.low) else np.zeros_like(self.high)

    def add(self, change: Array) -> None:
        """Add a float64 vector in place. The rounding error of the addition is kept in ``low``."""
        total = self.high + change
        back = total - self.high
        lost = (self.high - (total - back)) + (change - back)
        low = self.low + lost
        self.high = total + low
        self.low = low - (self.high - total)


def exact_affine(matrix: Array, x: DoubleDouble, *constants: Array) -> Array:
    """``matrix @ x`` plus the constants, with a single rounding of each entry. Shape (r,).

    Args:
        matrix: (r, k).
        x: (k,).
        *constants: vectors (r,) to add.
    """
    terms = [*_two_products(matrix, x.high), matrix * x.low, *(constant[:, None] for constant in constants)]
    return np.array([math.fsum(row) for row in np.concatenate(terms, 1).tolist()])


class ExactSample:
    """One dense program as numpy arrays, whose residuals are computed without cancellation errors.

    Args:
        qp: a batch of one program, on the CPU.
    """

    def __init__(self, qp: QuadraticProgram) -> None:
        field: Any = {name: getattr(qp, name)[0].numpy() for name in ("H", "c", "A", "b", "G", "h", "lb", "ub")}
        self._field = field
        self._columns = np.concatenate([field["H"], field["A"].T, field["G"].T], 1)
        self._rows = np.concatenate([field["A"], field["G"]])
        self._p = qp.p

    def residuals(self, x: DoubleDouble, y: DoubleDouble) -> Residuals:
        """The residuals of the optimality conditions at x (n,) with the multipliers y (p + m,) of the rows."""
        data = self._field
        both = DoubleDouble(np.concatenate([x.high, y.high]), np.concatenate([x.low, y.low]))
        absent = np.isinf(data["h"])
        right = np.concatenate([-data["b"], np.where(absent, 0.0, -data["h"])])
        rows = exact_affine(self._rows, x, right)
        slack = np.where(absent, np.inf, -rows[self._p :])
        values = (
            exact_affine(data["H"], x),
            exact_affine(self._columns, both, data["c"]),
            rows[: self._p],
            slack,
            (x.high - data["lb"]) + x.low,
            (data["ub"] - x.high) - x.low,
        )
        return Residuals(*(torch.from_numpy(np.asarray(value))[None] for value in values))


def round_to_float64(x: DoubleDouble, y: DoubleDouble, p: int, bound: Array) -> tuple[torch.Tensor, Duals]:
    """A point and its multipliers rounded to float64, as a batch of one.

    Args:
        x: (n,) the point.
        y: (p + m,) the multipliers of the rows.
        p: the number of equality rows.
        bound: (n,) the multipliers of the bounds.
    """
    point, equality, inequality, bounds = (
        torch.from_numpy(value.copy())[None] for value in (x.high, y.high[:p], y.high[p:], bound)
    )
    return point, Duals(equality, inequality, bounds)


def _two_products(matrix: Array, x: Array) -> tuple[Array, Array]:
    """The products ``matrix[i, j] * x[j]`` in float64, and the exact rounding error of each. Shapes (r, k)."""
    product = matrix * x
    a_high, a_low = _split(matrix)
    b_high, b_low = _split(x)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, lost


def _split(value: Array) -> tuple[Array, Array]:
    """Split numbers into a high and a low half, whose products are exact in float64."""
    scaled = _SPLITTER * value
    high = scaled - (scaled - value)
    return high, value - high

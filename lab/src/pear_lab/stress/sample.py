"""Plain arrays: one program as the judge sees it, and a batch of them as the library gets it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NO_BOUND = 1e20
"""A bound of this size or more is none."""

DIMENSIONS = {"Q": 2, "A": 2, "G": 2, "b": 1, "h": 1, "lb": 1, "ub": 1}
"""Of each field, where all samples share it."""


@dataclass(frozen=True)
class Sample:
    """One ``min ½ zᵀHz + cᵀz`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``; absent limits are infinite.

    Attributes:
        H, c: (n, n) and (n,).
        A, b: (p, n) and (p,).
        G, h: (m, n) and (m,).
        lb, ub: (n,).
        integer: (n,) variables that must be integers.
    """

    H: Array
    c: Array
    A: Array
    b: Array
    G: Array
    h: Array
    lb: Array
    ub: Array
    integer: Mask

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.c)

    def is_finite(self) -> bool:
        """No NaN, and infinity only where it says that a constraint is absent."""
        whole = all(bool(np.isfinite(v).all()) for v in (self.H, self.c, self.A, self.b, self.G))
        return whole and not any(bool(np.isnan(v).any()) for v in (self.h, self.lb, self.ub))


@dataclass(frozen=True)
class Case:
    """A batch of B programs of equal shape, by the names ``pear.Problem`` has for their parts.

    Attributes:
        family: that it belongs to.
        cost, true: (B, n) predicted and true costs.
        fields: what the problem is made of, shared or with a leading dimension B.
        overrides: fields that come with the call; then there is no gradient.
        smoothing: λ.
        sense: "min" or "max".
        integer: (n,) bool, or None.
        sparse: the matrices are handed over in SciPy's sparse form.
    """

    family: str
    cost: Array
    true: Array
    fields: dict[str, Array]
    overrides: dict[str, Array] = field(default_factory=dict)
    smoothing: float = 0.0
    sense: str = "min"
    integer: Mask | None = None
    sparse: bool = False

    @property
    def batch(self) -> int:
        """Number of samples B."""
        return len(self.cost)

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self.cost.shape[1])

    def only(self, i: int) -> Case:
        """The case with no sample but i."""

        def one(fields: dict[str, Array]) -> dict[str, Array]:
            return {k: v[i : i + 1] if v.ndim > DIMENSIONS[k] else v for k, v in fields.items()}

        rows = slice(i, i + 1)
        return replace(
            self, cost=self.cost[rows], true=self.true[rows], fields=one(self.fields), overrides=one(self.overrides)
        )

    def sample(self, i: int, cost: Array | None = None) -> Sample:
        """Sample i as it is minimised, under ``cost`` (B, n) or the predicted costs."""
        n, sign = self.n, 1.0 if self.sense == "min" else -1.0
        given = {**self.fields, **self.overrides}

        def part(name: str, empty: tuple[int, ...], fill: float = 0.0) -> Array:
            value = given.get(name)
            if value is None:
                return np.full(empty, fill)
            return value[i] if value.ndim > DIMENSIONS[name] else value

        lb, ub = part("lb", (n,), -np.inf), part("ub", (n,), np.inf)
        return Sample(
            H=sign * part("Q", (n, n)) + self.smoothing * np.eye(n),
            c=sign * (self.cost if cost is None else cost)[i],
            A=part("A", (0, n)),
            b=part("b", (0,)),
            G=part("G", (0, n)),
            h=part("h", (0,)),
            lb=np.where(lb <= -NO_BOUND, -np.inf, lb),
            ub=np.where(ub >= NO_BOUND, np.inf, ub),
            integer=np.zeros(n, bool) if self.integer is None else self.integer,
        )

    def problem_fields(self) -> dict[str, Any]:
        """Arguments of ``pear.Problem``."""
        fields: dict[str, Any] = dict(self.fields)
        if self.sparse:
            import scipy.sparse as sp

            fields = {k: sp.csr_array(v) if v.ndim == 2 and DIMENSIONS[k] == 2 else v for k, v in fields.items()}
        return {**fields, "sense": self.sense, "n": self.n, "integer": self.integer}

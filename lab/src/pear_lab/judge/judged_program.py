"""One quadratic program as plain arrays: the only form in which the judge sees a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NO_BOUND = 1e20
"""A bound of this size or more means that there is none."""

DIMENSIONS = {"Q": 2, "A": 2, "b": 1, "G": 2, "h": 1, "lb": 1, "ub": 1}
"""Number of dimensions of each field where all samples share it; one more where each sample has its own."""


@dataclass(frozen=True)
class JudgedProgram:
    """One ``min ½ zᵀHz + cᵀz`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``; absent limits are infinite.

    Attributes:
        H, c: (n, n) and (n,).
        A, b: (p, n) and (p,).
        G, h: (m, n) and (m,).
        lb, ub: (n,).
        integer: (n,) variables that must be integers.

    The matrices are dense; only those of models from files are sparse.
    """

    H: Any
    c: Array
    A: Any
    b: Array
    G: Any
    h: Array
    lb: Array
    ub: Array
    integer: Mask

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.c)

    @property
    def is_sparse(self) -> bool:
        """True where the matrices are in SciPy's sparse form."""
        return bool(sp.issparse(self.H))

    def is_finite(self) -> bool:
        """Whether no entry is NaN, and infinity only says that a constraint is absent."""
        whole = all(bool(np.isfinite(v).all()) for v in (self.H, self.c, self.A, self.b, self.G))
        return whole and not any(bool(np.isnan(v).any()) for v in (self.h, self.lb, self.ub))


def from_limits(P: Any, q: Array, A: Any, l: Array, u: Array, lb: Array, ub: Array, integer: Mask) -> JudgedProgram:  # noqa: E741
    """The program ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u, lb ≤ x ≤ ub`` with sparse P and A.

    A row with two limits becomes two: first all upper limits, then all lower ones, as the importers order them.
    """
    equal = l == u
    above, below = ~equal & (u < np.inf), ~equal & (l > -np.inf)
    rows = sp.csr_array(A)
    G, h = sp.vstack([rows[above], -rows[below]], format="csr"), np.concatenate([u[above], -l[below]])
    return JudgedProgram(P, q, rows[equal], l[equal], G, h, lb, ub, integer)


def largest_row_entries(rows: Any) -> Array:
    """(k,) largest magnitude in each of the rows (k, n), dense or sparse."""
    if not rows.shape[0]:
        return np.zeros(0)
    largest = abs(rows).max(axis=1)
    return np.ravel(largest.todense() if sp.issparse(largest) else largest)


def judged_programs(
    fields: Mapping[str, Any], cost: Array, smoothing: float = 0.0, sense: str = "min", integer: Mask | None = None
) -> list[JudgedProgram]:
    """The samples of a batch as they are minimised.

    Args:
        fields: arrays by the names that ``pear.Problem`` has for them, shared or per sample; absent ones are left out.
        cost: (B, n).
        smoothing: λ, which is added to the diagonal of the curvature.
        sense: "min" or "max".
        integer: (n,) variables that must be integers; None for none.
    """
    n, sign = cost.shape[1], 1.0 if sense == "min" else -1.0

    def part(name: str, i: int, shape: tuple[int, ...], absent: float = 0.0) -> Array:
        value = fields.get(name)
        if value is None:
            return np.full(shape, absent)
        own = value[i] if np.ndim(value) > DIMENSIONS[name] else value
        return np.asarray(own, dtype=np.float64) if np.ndim(own) else np.full(shape, float(own))

    def one(i: int) -> JudgedProgram:
        lb, ub = part("lb", i, (n,), -np.inf), part("ub", i, (n,), np.inf)
        return JudgedProgram(
            H=sign * part("Q", i, (n, n)) + smoothing * np.eye(n),
            c=sign * cost[i],
            A=part("A", i, (0, n)),
            b=part("b", i, (0,)),
            G=part("G", i, (0, n)),
            h=part("h", i, (0,)),
            lb=np.where(lb <= -NO_BOUND, -np.inf, lb),
            ub=np.where(ub >= NO_BOUND, np.inf, ub),
            integer=np.zeros(n, bool) if integer is None else integer,
        )

    return [one(i) for i in range(len(cost))]


def judged_fields(problem: Any, **overrides: Any) -> dict[str, Array]:
    """The fields of a ``pear.Problem`` as dense arrays; ``overrides`` replace them, None keeps what the problem has.

    They are what the user passed, not the form that the solvers see, so that the judge tests that form too.
    """
    fields = {name: getattr(problem, name) for name in DIMENSIONS}
    if problem.is_sparse:
        fields |= {name: fields[name].to_dense() for name in ("Q", "A", "G") if fields[name] is not None}
    fields |= {name: value for name, value in overrides.items() if value is not None}
    return {name: np.asarray(value) for name, value in fields.items() if value is not None}

"""``JudgedProgram``: a quadratic program as plain arrays, the only form in which the judge sees a problem."""

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
"""The size from which on a bound counts as absent."""

DIMENSIONS = {"Q": 2, "A": 2, "b": 1, "G": 2, "h": 1, "lb": 1, "ub": 1}
"""The number of dimensions of each field that all samples share. A field with a row for each sample has one more."""


@dataclass(frozen=True)
class JudgedProgram:
    """The program ``min ½ zᵀHz + cᵀz`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``. Absent limits are infinite.

    The matrices are dense, except those of models from files, which are sparse.

    Attributes:
        H, c: the curvature (n, n) and the costs (n,).
        A, b: the equalities, (p, n) and (p,).
        G, h: the inequalities, (m, n) and (m,).
        lb, ub: (n,) the bounds.
        integer: (n,) mask of the variables that must be integers.
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
        """The number of variables."""
        return len(self.c)

    @property
    def is_sparse(self) -> bool:
        """Whether the matrices are sparse ones of SciPy."""
        return bool(sp.issparse(self.H))

    @classmethod
    def from_limits(
        cls,
        P: Any,
        q: Array,
        A: Any,
        l: Array,  # noqa: E741
        u: Array,
        lb: Array,
        ub: Array,
        integer: Mask,
    ) -> JudgedProgram:
        """Make the program ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u, lb ≤ x ≤ ub`` with sparse P and A.

        A row with two limits becomes two rows of G. As in PEAR's importers, the rows of all upper limits come first,
        and then those of all lower limits.
        """
        equal = l == u
        above, below = ~equal & (u < np.inf), ~equal & (l > -np.inf)
        rows = sp.csr_array(A)
        G, h = sp.vstack([rows[above], -rows[below]], format="csr"), np.concatenate([u[above], -l[below]])
        return cls(P, q, rows[equal], l[equal], G, h, lb, ub, integer)

    def is_finite(self) -> bool:
        """Return whether no entry is NaN, and only limits are infinite."""
        whole = all(bool(np.isfinite(v).all()) for v in (self.H, self.c, self.A, self.b, self.G))
        return whole and not any(bool(np.isnan(v).any()) for v in (self.h, self.lb, self.ub))


def judged_row_magnitudes(rows: Any) -> Array:
    """Return the largest magnitude (k,) in each of k rows (k, n), dense or sparse."""
    if not rows.shape[0]:
        return np.zeros(0)
    largest = abs(rows).max(axis=1)
    return np.ravel(largest.todense() if sp.issparse(largest) else largest)


def judged_programs(
    fields: Mapping[str, Any], cost: Array, smoothing: float = 0.0, sense: str = "min", integer: Mask | None = None
) -> list[JudgedProgram]:
    """Make a program for each sample of a batch. A program is always minimised.

    A bound with a magnitude of at least ``NO_BOUND`` counts as absent.

    Args:
        fields: the fields of the problem by the names of the arguments of ``pear.Problem``, shared or with a row for
            each sample. Absent fields are left out.
        cost: (B, n) costs.
        smoothing: λ, which is added to the diagonal of the curvature.
        sense: "min" or "max".
        integer: (n,) mask of the variables that must be integers; None for none.
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
    """Return the fields of a ``pear.Problem`` as dense arrays, as the user passed them.

    The judge does not see the form that solvers get. It therefore also tests how the library makes that form.

    Args:
        problem: the problem.
        overrides: fields that replace those of the problem; None keeps a field.
    """
    fields = {name: getattr(problem, name) for name in DIMENSIONS}
    if problem.is_sparse:
        fields |= {name: fields[name].to_dense() for name in ("Q", "A", "G") if fields[name] is not None}
    fields |= {name: value for name, value in overrides.items() if value is not None}
    return {name: np.asarray(value) for name, value in fields.items() if value is not None}

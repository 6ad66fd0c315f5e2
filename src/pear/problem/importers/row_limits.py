"""``RowLimits``: the rows of an imported model, with two limits each, and their conversion to fields of a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError, ProblemError
from pear.presolving.row_program import Array, Index, Mask
from pear.problem.constraint_map import ConstraintMap
from pear.problem.importers.row_prices import check_row_prices, read_row_price
from pear.problem.indexed_names import expand_indexed_names
from pear.problem.penalty_and_projection import Penalty
from pear.problem.problem_fields import NO_BOUND


@dataclass(frozen=True)
class RowLimits:
    """The k rows ``low ≤ Mz ≤ high`` of an imported model with n variables z. Each row has two limits.

    Attributes:
        matrix: (k, n) coefficients M.
        low: (k,) lower limits; −∞ means no limit.
        high: (k,) upper limits; +∞ means no limit.
        names: the names of all rows of the imported model, including rows that have become bounds.
        numbers: (k,) the position of each of the k rows among all rows of the imported model; None if the k rows are
            all its rows, in the same order.
        canonical: whether another library, CVXPY, has brought the rows to this form. Their signs are then its choice.
    """

    matrix: sparse.csr_array
    low: Array
    high: Array
    names: tuple[str, ...]
    numbers: Index | None = None
    canonical: bool = False

    @property
    def positions(self) -> Index:
        """(k,) the position of each row among all rows of the imported model; ``numbers``, or 0 to k − 1."""
        return np.arange(len(self.low)) if self.numbers is None else self.numbers

    def kinds(self) -> tuple[Index, Index, Index]:
        """Return the positions of three kinds of rows. A row with two different limits is of two kinds.

        Returns:
            The positions of the rows with equal limits; of the other rows with an upper limit; and of the other rows
            with a lower limit.
        """
        equal = self.low == self.high
        above, below = (~equal & (np.abs(side) < NO_BOUND) for side in (self.high, self.low))
        return np.flatnonzero(equal), np.flatnonzero(above), np.flatnonzero(below)

    def labels(self) -> tuple[str, ...]:
        """Return the names of the rows of the fields A and G: first those of A, then those of G.

        A row with two different limits gives two rows of G, called "NAME (upper limit)" and "NAME (lower limit)".
        """
        equal, above, below = self.kinds()
        names = [self.names[i] if i < len(self.names) else f"row {i}" for i in self.positions.tolist()]
        both = {*above.tolist()} & {*below.tolist()}
        upper = [f"{names[i]} (upper limit)" if i in both else names[i] for i in above.tolist()]
        lower = [f"{names[i]} (lower limit)" if i in both else names[i] for i in below.tolist()]
        return (*(names[i] for i in equal.tolist()), *upper, *lower)

    def signs(self) -> tuple[int, ...]:
        """Return the signs that the rows of A and then of G have in ``fields``, in the order of ``labels``.

        The sign is −1 for a lower limit, because such rows are reversed, and 0 for a canonical row, whose sign in the
        user's model is not known.
        """
        equal, above, below = self.kinds()
        if self.canonical:
            return (0,) * (len(equal) + len(above) + len(below))
        return (1,) * (len(equal) + len(above)) + (-1,) * len(below)

    def fields(self) -> dict[str, Any]:
        """Return these rows as the fields A, b, G and h of a problem, by name. Empty fields are left out.

        A row with equal limits becomes a row of A, and every other finite limit a row of G. The rows of upper limits
        come first in G. The rows of lower limits follow, with their signs reversed.
        """
        equal, above, below = self.kinds()
        fields: dict[str, Any] = {}
        if len(equal):
            fields |= {"A": self.matrix[equal], "b": self.high[equal]}
        if len(above) or len(below):
            fields["G"] = sparse.csr_array(sparse.vstack([self.matrix[above], -self.matrix[below]]))
            fields["h"] = np.concatenate([self.high[above], -self.low[below]])
        return fields

    def split_bounds(self, kept: Mask | None = None) -> tuple[RowLimits, Array, Array]:
        """Turn rows whose only entry is 1 or −1 into bounds.

        Rows that would become contradictory bounds stay rows, so that a solve finds the problem infeasible.

        Args:
            kept: (k,) bool, True for rows that must stay rows; None for no row.

        Returns:
            The other rows, and the bounds lb (n,) and ub (n,).
        """
        A, n = self.matrix, self.matrix.shape[1]
        lb, ub = np.full(n, -np.inf), np.full(n, np.inf)
        alone = np.diff(A.indptr) == 1
        single = np.flatnonzero(alone if kept is None else alone & ~kept)
        signs = A.data[A.indptr[single]]
        unit = np.abs(signs) == 1
        single, signs = single[unit], signs[unit]
        column = A.indices[A.indptr[single]]
        np.maximum.at(lb, column, np.where(signs > 0, self.low[single], -self.high[single]))
        np.minimum.at(ub, column, np.where(signs > 0, self.high[single], -self.low[single]))
        crossed = lb > ub
        lb[crossed], ub[crossed] = -np.inf, np.inf
        general = np.ones(len(self.low), dtype=bool)
        general[single[~crossed[column]]] = False
        low, high, numbers = self.low[general], self.high[general], np.flatnonzero(general)
        return RowLimits(A[general], low, high, self.names, numbers, self.canonical), lb, ub

    def numbers_of(self, where: str, names: Sequence[str] | str | None, what: str = "predicted") -> Index:
        """Return the positions of the rows with these names in ``self.names``.

        Args:
            where: the name of the imported model or file in messages.
            names: names of rows, or of arrays of rows; None for no row.
            what: "predicted" or "known", what messages say about the right-hand sides.

        Raises:
            ProblemError: a name belongs to no row or to several, comes twice, or its row has no limit or two
                different limits.
        """
        chosen = expand_indexed_names([names] if isinstance(names, str) else list(names or ()), self.names)
        for i, name in enumerate(chosen):
            found = self.names.count(name)
            if found != 1 or name in chosen[:i]:
                came = "twice" if found == 1 else "which several rows are called" if found else "which is no row of it"
                raise ProblemError(
                    f"{where}: rows must name rows, each once; got {name!r}, {came}. They are called "
                    f"{', '.join(self.names[:6])}{', …' if len(self.names) > 6 else ''}"
                )
        at = np.array([self.names.index(name) for name in chosen], dtype=int)
        limits = np.sum([np.isin(at, kind) for kind in self.kinds()], axis=0)
        for name, ways in zip(chosen, limits, strict=True):
            if ways != 1:
                came = "no limit" if not ways else f"two limits, and nobody says which of them is {what}"
                raise ProblemError(f"{where}: row {name} has {came}; write it as rows with one limit each")
        return at

    def with_zero_limits(self, at: Index) -> RowLimits:
        """Return the rows, with 0 for the finite limits at the positions ``at``, whose values a map will add."""
        low, high = self.low.copy(), self.high.copy()
        for side in (low, high):
            side[at] = np.where(np.isfinite(side[at]), 0.0, side[at])
        return replace(self, low=low, high=high)

    def with_zero_coefficients(self, places: Index) -> RowLimits:
        """Return the rows with 0 for the coefficients at ``places`` (c, 2), pairs of a row and a column."""
        if not len(places):
            return self
        matrix = sparse.csr_array(self.matrix, copy=True).tolil()
        matrix[places[:, 0], places[:, 1]] = 0.0
        return replace(self, matrix=sparse.csr_array(matrix))

    def constraint_map(
        self, D: sparse.csr_array, coefficients: Mapping[str, sparse.csr_array] | None = None
    ) -> ConstraintMap | None:
        """Return the constraint map of the problem that these k rows make; None if no row has a predicted number.

        Args:
            D: (k, v) derivatives of the limits of the rows with respect to the v predicted values.
            coefficients: the derivatives of the entries of A and of G, row by row, with respect to these values, under
                the names "A" and "G". A matrix without predicted entries is left out; None if there are none at all.
        """
        b, h = self.split(D)
        found = {name: side for name, side in (("b", b), ("h", h)) if side.nnz} | dict(coefficients or {})
        return ConstraintMap(**found) if found else None

    def split(self, D: sparse.csr_array, width: int = 1) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Convert derivatives of the k rows to derivatives of the fields of a problem, in the order of ``fields``.

        The fields have p equalities and m inequalities. Where ``fields`` reverses the signs of a row, the derivatives
        of the row change their signs too.

        Args:
            D: derivatives with respect to v values: (k, v) of the limits, or (k · n, v) of the coefficients, row by
                row.
            width: 1 if D has the derivatives of limits, n if it has those of coefficients.

        Returns:
            The derivatives of b (p, v) and of h (m, v), or those of A (p · n, v) and of G (m · n, v).
        """
        blocks = (kind[:, None] * width + np.arange(width) for kind in self.kinds())
        equal, above, below = (D[block.reshape(-1)] for block in blocks)
        return equal, sparse.csr_array(sparse.vstack([above, -below]))

    def penalty(self, little: Array, much: Array) -> Penalty:
        """Return the ``Penalty`` of the problem that these k rows make.

        Args:
            little: (k,) prices for each unit by which a row falls below its limit; infinite for no price.
            much: (k,) prices for each unit by which a row exceeds its limit; infinite for no price.
        """
        equal, above, below = self.kinds()
        h = np.concatenate([much[above], little[below]])
        priced = np.isfinite(little[equal]) | np.isfinite(much[equal])
        return Penalty(b=(little[equal], much[equal]) if priced.any() else None, h=h if np.isfinite(h).any() else None)

    def recourse(self, where: str, given: Any, predicted: Index) -> Any:
        """Return a recourse in the form that a ``Model`` takes.

        Args:
            where: the name of the imported model or file in messages.
            given: the recourse that the user passed. A dictionary from names of rows, or of arrays of rows, to prices
                becomes a ``Penalty``; any other recourse is returned unchanged.
            predicted: numbers of the rows whose limits or coefficients are predicted. A dictionary must have a price
                for each of them.

        Raises:
            DataError: a price has the wrong form or is negative.
            ProblemError: ``given`` is no recourse, a key is not a row, or a predicted row has no finite price.
        """
        if not isinstance(given, Mapping):
            name = self.names[predicted[0]] if len(predicted) else "row"
            check_row_prices(where, given, f"names of rows to prices, {{{name!r}: 9.0}}")
            return given
        little, much = np.full(len(self.low), np.inf), np.full(len(self.low), np.inf)
        for name, price in given.items():
            for row in expand_indexed_names([name], self.names):
                if row not in self.names:
                    raise ProblemError(f"{where}: recourse names {row!r}, which is no row of it; give names of rows")
                at = self.names.index(row)
                little[at], much[at] = read_row_price(where, row, price, bool(self.low[at] == self.high[at]))
        for at in predicted:
            if not np.isfinite([little[at], much[at]]).all():
                name = self.names[at]
                raise ProblemError(
                    f"{where}: row {name} is predicted, and recourse has no finite price for it; say what a unit of "
                    f"its violation costs: recourse={{{name!r}: price, …}}"
                )
        return self.penalty(little, much)


def read_row_limits(where: str, name: str, values: Any, absent: float) -> Array:
    """Convert limits of rows, or bounds, to an array of one dimension, in which ±1e20 and beyond become infinite.

    Args:
        where: the name of the imported model or file in messages.
        name: the name of the limits in messages.
        values: the limits.
        absent: the infinity that means no limit.

    Raises:
        DataError: a limit is NaN, or infinite with the wrong sign.
    """
    array = np.array(values, dtype=float).reshape(-1) + 0.0  # -0.0 becomes 0.0
    array[np.abs(array) >= NO_BOUND] *= np.inf
    bad = np.isnan(array) | (array == -absent)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{where}: {name}[{at}] is {array[at]:g}; expected a finite number, or {absent:+g} where there is no "
            "limit: correct this entry"
        )
    return array

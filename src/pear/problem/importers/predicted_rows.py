"""Predicted right-hand sides of imported rows: their constraint map, and the prices of their violation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.errors import DataError, ProblemError
from pear.problem.constraint_map import ConstraintMap
from pear.problem.importers.row_limits import Array, RowLimits
from pear.problem.penalty_and_projection import Penalty, Projection


def constraint_map(rows: RowLimits, D: sparse.csr_array) -> ConstraintMap | None:
    """The constraint map of a problem made of these rows; None where nothing is predicted.

    Args:
        rows: the k rows.
        D: (k, values) derivatives of both limits of every row by the predicted values.
    """
    equal, above, below = rows.kinds()
    b, h = D[equal], sparse.csr_array(sparse.vstack([D[above], -D[below]]))
    if not b.nnz and not h.nnz:
        return None
    return ConstraintMap(b=b if b.nnz else None, h=h if h.nnz else None)


def penalty(rows: RowLimits, little: Array, much: Array) -> Penalty:
    """The ``Penalty`` with prices (k,) for falling below (``little``) and exceeding (``much``) the limits of k rows."""
    equal, above, below = rows.kinds()
    h = np.concatenate([much[above], little[below]])
    priced = np.isfinite(little[equal]) | np.isfinite(much[equal])
    return Penalty(b=(little[equal], much[equal]) if priced.any() else None, h=h if np.isfinite(h).any() else None)


def predicted_rows(where: str, rows: RowLimits, names: Sequence[str] | str | None) -> NDArray[np.int_]:
    """The numbers of the rows with these names, whose right-hand sides are predicted.

    Raises:
        ProblemError: a name belongs to no row or to several, is given twice, or its row has not exactly one limit.
    """
    chosen = [names] if isinstance(names, str) else list(names or ())
    for i, name in enumerate(chosen):
        found = rows.names.count(name)
        if found != 1 or name in chosen[:i]:
            came = "twice" if found == 1 else "which is no row of it" if not found else "which several rows are called"
            raise ProblemError(
                f"{where}: rows must name rows, each once; got {name!r}, {came}. They are called "
                f"{', '.join(rows.names[:6])}{', …' if len(rows.names) > 6 else ''}"
            )
    at = np.array([rows.names.index(name) for name in chosen], dtype=int)
    equal, above, below = (np.isin(at, kind) for kind in rows.kinds())
    for name, ways in zip(chosen, equal.astype(int) + above + below, strict=True):
        if ways != 1:
            came = "no limit" if not ways else "two limits, and nobody says which of them is predicted"
            raise ProblemError(f"{where}: row {name} has {came}; write it as rows with one limit each")
    return at


def without_limits(rows: RowLimits, at: NDArray[np.int_]) -> RowLimits:
    """The rows with 0 in place of the limits of the rows ``at``, which are predicted."""
    low, high = rows.low.copy(), rows.high.copy()
    low[at], high[at] = np.where(np.isfinite(low[at]), 0.0, low[at]), np.where(np.isfinite(high[at]), 0.0, high[at])
    return RowLimits(rows.matrix, low, high, rows.names, rows.numbers)


def recourse_of(where: str, rows: RowLimits, given: Any, predicted: Sequence[int] | NDArray[np.int_] = ()) -> Any:
    """Convert a dictionary from names of rows to prices to a ``Penalty``. Any other recourse is returned as it is.

    Args:
        where: the name of the source in error messages.
        rows: the rows of the source.
        given: the recourse that the user passed.
        predicted: numbers of the rows whose right-hand sides are predicted, which need a price.

    Raises:
        ProblemError: it is no recourse, a key is no row, or a predicted row has no price.
    """
    if not isinstance(given, Mapping):
        name = rows.names[predicted[0]] if len(predicted) else "row"
        check_kind(where, given, f"names of rows to prices, {{{name!r}: 9.0}}")
        return given
    little, much = np.full(len(rows.low), np.inf), np.full(len(rows.low), np.inf)
    for name, price in given.items():
        if name not in rows.names:
            raise ProblemError(f"{where}: recourse names {name!r}, which is no row of it; give names of rows")
        at = rows.names.index(name)
        little[at], much[at] = check_price(where, name, price, bool(rows.low[at] == rows.high[at]))
    for at in predicted:
        if not np.isfinite([little[at], much[at]]).all():
            name = rows.names[at]
            raise ProblemError(
                f"{where}: row {name} is predicted, and recourse has no finite price for it; say what a unit of its "
                f"violation costs: recourse={{{name!r}: price, …}}"
            )
    return penalty(rows, little, much)


def check_kind(where: str, given: Any, expected: str) -> None:
    """Check that a recourse that is no dictionary is a ``Penalty``, a ``Projection`` or None.

    Raises:
        ProblemError: it is none of these. The message describes the ``expected`` dictionary.
    """
    if given is not None and not isinstance(given, (Penalty, Projection)):
        raise ProblemError(
            f"{where}: recourse must be a dictionary from {expected}, pear.Penalty(…) or pear.Projection(); "
            f"got {given!r}"
        )


def check_price(where: str, name: str, price: Any, equality: bool) -> tuple[Any, Any]:
    """The prices per unit below and above a limit, from one price, or from a pair of prices for an equality.

    Raises:
        DataError: the price has another form or is negative.
    """
    pair = isinstance(price, tuple)
    sides = price if pair else (price, price)
    if pair and not equality:
        raise DataError(
            f"{where}: the price of {name} is a pair, and {name} is an inequality, which is violated in one way only; "
            "give one price"
        )
    if len(sides) != 2 or any(not (np.asarray(side, dtype=float) >= 0).all() for side in sides):
        raise DataError(
            f"{where}: the price of {name} is {price}; expected a number of at least 0 a unit of violation, an array "
            "with one for each row, or for an equality a pair (too little, too much) of these"
        )
    return sides[0], sides[1]

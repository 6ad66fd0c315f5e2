"""Prices of violated rows that users pass to importers as ``recourse``."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear.errors import DataError, ProblemError
from pear.problem.penalty_and_projection import Penalty, Projection


def check_row_prices(where: str, given: Any, expected: str) -> None:
    """Raise ProblemError unless a recourse that is no dictionary is a ``Penalty``, a ``Projection`` or None.

    Args:
        where: the name of the imported model or file in messages.
        given: the recourse that the user passed.
        expected: a description of the dictionary that could have been passed, for the message.
    """
    if given is not None and not isinstance(given, (Penalty, Projection)):
        raise ProblemError(
            f"{where}: recourse must be a dictionary from {expected}, pear.Penalty(…) or pear.Projection(); "
            f"got {given!r}"
        )


def read_row_price(where: str, name: str, price: Any, equality: bool) -> tuple[Any, Any]:
    """Return two prices per unit of violation: of a row below its limit, and of a row above its limit.

    Args:
        where: the name of the imported model or file in messages.
        name: the name of the row or constraint.
        price: one price for both cases, or for an equality a pair (too little, too much). A price is a number or an
            array.
        equality: True if the row is an equality.

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

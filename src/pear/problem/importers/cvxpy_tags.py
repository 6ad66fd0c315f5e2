"""Tags: additional parameters of a CVXPY problem, which show where its constraints are in CVXPY's matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pear.errors import DataError
from pear.presolving.row_program import Array, Index, Mask
from pear.problem.importers.cvxpy_names import WHERE, cvxpy_parameters_in
from pear.problem.importers.row_prices import read_row_price
from pear.wording import count_noun, join_names


@dataclass(frozen=True)
class TaggedConstraint:
    """A constraint with a tag, which is a parameter that is added to the right side of the constraint.

    CVXPY does not say which rows of its matrices belong to a constraint. They are the rows whose right-hand sides
    depend on the tag.

    Attributes:
        name: the label or the number of the constraint.
        constraint: the constraint with its tag: ``left ≤ right + tag`` or ``left = right + tag``.
        tag: a CVXPY parameter with the shape of the constraint.
        equality: True for an equality, False for an inequality.
        predicted_by: names of the predicted parameters in the constraint.
        price: the price per unit of violation; for an equality possibly a pair (too little, too much); None without a
            price.
    """

    name: str
    constraint: Any
    tag: Any
    equality: bool
    predicted_by: tuple[str, ...]
    price: Any

    @classmethod
    def tagging(cls, name: str, constraint: Any, predicted: Sequence[Any], price: Any, cvxpy: Any) -> TaggedConstraint:
        """Make a tagged constraint from a constraint of the copied problem.

        Args:
            name: the label or the number of the constraint.
            constraint: the constraint without a tag.
            predicted: the predicted parameters of the copied problem.
            price: the price per unit of violation, or None.
            cvxpy: the module.
        """
        tag = cvxpy.Parameter(constraint.shape, value=np.zeros(constraint.shape))
        kind = type(constraint).__name__
        left, right = (*constraint.args, 0.0)[:2]
        left, right = (-left, -right) if kind == "NonNeg" else (left, right)
        equality = kind in ("Equality", "Zero")
        tagged = left == right + tag if equality else left <= right + tag
        predicted_by = tuple(p.name() for p in cvxpy_parameters_in(constraint, predicted))
        return cls(name, tagged, tag, equality, predicted_by, price)

    def spread_price(self, price: Any) -> Array:
        """Return a price, which is a number or an array, broadcast to the shape of the constraint."""
        try:
            return np.broadcast_to(np.asarray(price, dtype=float), self.tag.shape)
        except ValueError as error:
            raise DataError(
                f"{WHERE}: the price of {self.name} has shape {np.shape(price)}; expected a number, or one for each "
                f"row in the shape of the constraint, {self.tag.shape}"
            ) from error


def locate_tags(tags: Sequence[Any], respond: Callable[[dict[int, Any]], Array]) -> tuple[list[Index], int]:
    """Return the position of each entry of each tag in a vector that depends on the tags.

    Every entry of every tag is set to a different number. The vector then has this number, or its negative, at the
    position of the entry.

    Args:
        tags: CVXPY parameters.
        respond: a function from values of the tags, by their ids, to the vector, in which each entry appears once.

    Returns:
        For each tag the positions of its entries, in its shape; and the length of the vector.
    """
    starts = np.cumsum([1, *(tag.size for tag in tags)])
    numbers = [s + np.arange(tag.size).reshape(tag.shape) for tag, s in zip(tags, starts, strict=False)]
    response = respond({tag.id: number.astype(float) for tag, number in zip(tags, numbers, strict=True)})
    place = np.zeros(starts[-1], dtype=int)
    found = np.flatnonzero(response)
    place[np.abs(response[found]).round().astype(int)] = found
    return [place[number] for number in numbers], len(response)


class TaggedRows:
    """The rows of CVXPY's matrices that belong to tagged constraints.

    Args:
        tagged: the tagged constraints.
        respond: a function from values of the tags, by their ids, to what the tags add to the right-hand sides (r,).

    Attributes:
        total: the number r of rows of the matrices.
    """

    def __init__(self, tagged: Sequence[TaggedConstraint], respond: Callable[[dict[int, Any]], Array]) -> None:
        rows, self.total = locate_tags([one.tag for one in tagged], respond)
        self._rows = tuple(zip(tagged, rows, strict=True))

    def mask(self) -> Mask:
        """Return a bool mask (r,) of the rows that belong to tagged constraints. These rows must stay rows."""
        found = np.zeros(self.total, dtype=bool)
        for _, at in self._rows:
            found[at] = True
        return found

    def prices(self) -> tuple[Array, Array]:
        """Return the prices per unit of violation of the r rows.

        Returns:
            Two arrays (r,): the prices of falling below a right-hand side, and the prices of exceeding it. Rows of
            constraints that are not tagged have infinite prices.

        Raises:
            DataError: a tagged constraint has no price, or a price has the wrong form.
        """
        little, much = np.full(self.total, np.inf), np.full(self.total, np.inf)
        for one, at in self._rows:
            if one.price is None:
                raise DataError(
                    f"{WHERE}: {one.name} depends on {join_names(one.predicted_by)}, which is predicted, and recourse "
                    "has no price for it; say what a unit of its violation costs: recourse={constraint: price, …}"
                )
            sides = read_row_price(WHERE, one.name, one.price, one.equality)
            little[at], much[at] = (one.spread_price(side) for side in sides)
        return little, much

    def sentences(self, recourse: bool) -> list[str]:
        """Return sentences for the model's report about predicted right-hand sides and a missing recourse.

        Args:
            recourse: True if the user passed a recourse.
        """
        found = [
            f"The right-hand side{'s' * (at.size > 1)} of {one.name} ({count_noun(at.size, 'row')}) "
            f"depend{'s' * (at.size == 1)} on {join_names(one.predicted_by)}."
            for one, at in self._rows
            if one.predicted_by
        ]
        missing = "To train, declare what a violation costs: recourse={constraint: price}, or m.with_recourse(…)."
        return [*found, missing] if found and not recourse else found

"""Constraints of a CVXPY problem that a tag marks, so that their rows are found in CVXPY's matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pear.errors import DataError
from pear.problem.importers.cvxpy_names import WHERE, parameter_names, parameters_in
from pear.problem.importers.row_limits import Array, read_price
from pear.wording import count_noun, join_names


@dataclass(frozen=True)
class TaggedConstraint:
    """A constraint whose rows are to be found in CVXPY's matrices.

    CVXPY does not say which rows of its matrices belong to a constraint. A parameter that is added to the right side of
    the constraint, its tag, shows them: these are the rows whose right-hand sides depend on the tag.

    Attributes:
        name: the label or the number of the constraint.
        constraint: the constraint with the tag on its right side: ``left ≤ right + tag``.
        tag: a CVXPY parameter with the shape of the constraint.
        equality: whether the constraint is an equality.
        predicted_by: names of the predicted parameters in the constraint.
        price: the price per unit of violation, which may be a pair for an equality; None where there is none.
    """

    name: str
    constraint: Any
    tag: Any
    equality: bool
    predicted_by: tuple[str, ...]
    price: Any

    @classmethod
    def tagging(cls, name: str, constraint: Any, predicted: Sequence[Any], price: Any, cvxpy: Any) -> TaggedConstraint:
        """Add a tag to a constraint of the copied problem."""
        tag = cvxpy.Parameter(constraint.shape, value=np.zeros(constraint.shape))
        kind = type(constraint).__name__
        left, right = (*constraint.args, 0.0)[:2]
        left, right = (-left, -right) if kind == "NonNeg" else (left, right)
        equality = kind in ("Equality", "Zero")
        tagged = left == right + tag if equality else left <= right + tag
        return cls(name, tagged, tag, equality, tuple(parameter_names(parameters_in(constraint, predicted))), price)

    def spread_price(self, price: Any) -> Array:
        """A price in the shape of the constraint, from a number or an array that can be broadcast to the shape."""
        try:
            return np.broadcast_to(np.asarray(price, dtype=float), self.tag.shape)
        except ValueError as error:
            raise DataError(
                f"{WHERE}: the price of {self.name} has shape {np.shape(price)}; expected a number, or one for each "
                f"row in the shape of the constraint, {self.tag.shape}"
            ) from error


def locate_tags(tags: Sequence[Any], respond: Callable[[dict[int, Any]], Array]) -> tuple[list[NDArray[np.int_]], int]:
    """Find where each entry of each tag stands in a vector that depends on the tags.

    Every entry is set to a number of its own. The vector then shows this number, up to its sign, at the entry's
    position.

    Args:
        tags: CVXPY parameters.
        respond: a function from values of the tags, by their ids, to the vector, in which each entry appears once.

    Returns:
        For each tag the positions of its entries; and the length of the vector.
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
        respond: a function that takes values of the tags by their ids. It returns what they add to the right-hand sides
            (r,).
    """

    def __init__(self, tagged: Sequence[TaggedConstraint], respond: Callable[[dict[int, Any]], Array]) -> None:
        rows, self.total = locate_tags([one.tag for one in tagged], respond)
        self._rows = tuple(zip(tagged, rows, strict=True))

    def mask(self) -> NDArray[np.bool_]:
        """Which rows belong to tagged constraints, (r,) bool. These rows may not become bounds."""
        found = np.zeros(self.total, dtype=bool)
        for _, at in self._rows:
            found[at] = True
        return found

    def prices(self) -> tuple[Array, Array]:
        """Prices (r,) for rows below their right-hand side, and for rows above it; infinite where there is none."""
        little, much = np.full(self.total, np.inf), np.full(self.total, np.inf)
        for one, at in self._rows:
            if one.price is None:
                raise DataError(
                    f"{WHERE}: {one.name} depends on {join_names(one.predicted_by)}, which is predicted, and recourse "
                    "has no price for it; say what a unit of its violation costs: recourse={constraint: price, …}"
                )
            sides = read_price(WHERE, one.name, one.price, one.equality)
            little[at], much[at] = (one.spread_price(side) for side in sides)
        return little, much

    def sentences(self, recourse: bool) -> list[str]:
        """Sentences for the report: which constraints are predicted, and that a recourse is missing."""
        found = [
            f"The right-hand side{'s' * (at.size > 1)} of {one.name} ({count_noun(at.size, 'row')}) "
            f"depend{'s' * (at.size == 1)} on {join_names(one.predicted_by)}."
            for one, at in self._rows
            if one.predicted_by
        ]
        missing = "To train, declare what a violation costs: recourse={constraint: price}, or m.with_recourse(…)."
        return [*found, missing] if found and not recourse else found

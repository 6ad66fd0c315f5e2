"""The matrix rows of those CVXPY constraints that contain predicted parameters or have a price."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.errors import DataError
from pear.problem.importers.cvxpy_checks import WHERE, constraint_name
from pear.problem.importers.model_arrays import count_noun, join_names
from pear.problem.importers.predicted_rows import check_kind, check_price
from pear.problem.importers.row_limits import Array


@dataclass(frozen=True)
class TaggedConstraint:
    """A constraint whose rows are to be found in CVXPY's matrices.

    Attributes:
        name: the label or the number of the constraint.
        row: the constraint, with the tag added to its right side: ``left ≤ right + tag``.
        tag: a CVXPY parameter with the shape of the constraint.
        equality: whether the constraint is an equality.
        moved_by: names of the predicted parameters in the constraint.
        price: the price per unit of violation, which may be a pair for an equality; None where there is none.
    """

    name: str
    row: Any
    tag: Any
    equality: bool
    moved_by: tuple[str, ...]
    price: Any

    @staticmethod
    def of(name: str, row: Any, predicted: Sequence[Any], price: Any, cvxpy: Any) -> TaggedConstraint:
        """Build the tagged constraint from a constraint ``row`` of the copied problem."""
        tag = cvxpy.Parameter(row.shape, value=np.zeros(row.shape))
        kind = type(row).__name__
        equality = kind in ("Equality", "Zero")
        left, right = (row.args[0], row.args[1]) if len(row.args) == 2 else (row.args[0], 0.0)
        left, right = (-left, -right) if kind == "NonNeg" else (left, right)
        moved = left == right + tag if equality else left <= right + tag
        inside = tuple(p.name() for p in predicted if any(p is other for other in row.parameters()))
        return TaggedConstraint(name, moved, tag, equality, inside, price)


def constraint_prices(constraints: Sequence[Any], recourse: Any) -> dict[int, Any]:
    """The price of each constraint that ``recourse`` names, by constraint number; empty where it is no dictionary.

    Raises:
        DataError: a key is no constraint of the problem.
        ProblemError: ``recourse`` is neither a dictionary nor a recourse.
    """
    if not isinstance(recourse, Mapping):
        check_kind(WHERE, recourse, "constraints, or their names, to prices, {constraint: 9.0}")
        return {}
    names = [constraint_name(row, i) for i, row in enumerate(constraints)]
    found: dict[int, Any] = {}
    for key, price in recourse.items():
        at = [i for i, row in enumerate(constraints) if row is key or (isinstance(key, str) and names[i] == key)]
        if len(at) != 1:
            raise DataError(
                f"{WHERE}: recourse names {key!s}, which is {'no' if not at else 'more than one'} constraint of it; "
                f"expected the constraints themselves or their names, {join_names(names) or 'of which there are none'}"
            )
        found[at[0]] = price
    return found


def locate_tags(tags: Sequence[Any], respond: Callable[[dict[int, Any]], Array]) -> tuple[list[NDArray[np.int_]], int]:
    """The position of each entry of each tag in the response to the tags, and the length of the response.

    Every entry gets a number of its own, which appears, up to its sign, at the entry's position in the response.

    Args:
        tags: CVXPY parameters.
        respond: a function from values of the tags, by their ids, to a vector in which each tag entry appears once.
    """
    starts = np.cumsum([1, *(tag.size for tag in tags)])
    numbers = [s + np.arange(tag.size).reshape(tag.shape) for tag, s in zip(tags, starts, strict=False)]
    response = respond({tag.id: number.astype(float) for tag, number in zip(tags, numbers, strict=True)})
    place = np.zeros(starts[-1], dtype=int)
    found = np.flatnonzero(response)
    place[np.abs(response[found]).round().astype(int)] = found
    return [place[number] for number in numbers], len(response)


class TaggedRows:
    """The positions of the rows of tagged constraints in CVXPY's matrices.

    Args:
        tagged: the constraints.
        respond: a function from values of the tags, by their ids, to their contributions to the right-hand sides (r,).
    """

    def __init__(self, tagged: Sequence[TaggedConstraint], respond: Callable[[dict[int, Any]], Array]) -> None:
        self.tagged = tuple(tagged)
        self.rows, self.total = locate_tags([one.tag for one in tagged], respond)

    def constraint(self, row: int) -> TaggedConstraint | None:
        """The tagged constraint that a row belongs to, if any."""
        return next((one for one, at in zip(self.tagged, self.rows, strict=True) if (at == row).any()), None)

    def kept(self) -> NDArray[np.bool_]:
        """Rows that may not become bounds, because they are predicted or have a price, (r,) bool."""
        mask = np.zeros(self.total, dtype=bool)
        for at in self.rows:
            mask[at] = True
        return mask

    def prices(self) -> tuple[Array, Array]:
        """Prices (r,) for rows below their right-hand side, and for rows above it; infinite where there is none."""
        little, much = np.full(self.total, np.inf), np.full(self.total, np.inf)
        for one, at in zip(self.tagged, self.rows, strict=True):
            if one.price is None:
                raise DataError(
                    f"{WHERE}: {one.name} depends on {join_names(one.moved_by)}, which is predicted, and recourse has "
                    "no price for it; say what a unit of its violation costs: recourse={constraint: price, …}"
                )
            sides = check_price(WHERE, one.name, one.price, one.equality)
            little[at], much[at] = (_spread(one, side) for side in sides)
        return little, much

    def sentences(self, recourse: bool) -> list[str]:
        """Sentences for the report: which constraints are predicted, and that a recourse is missing."""
        found = [
            f"The right-hand side{'s' * (at.size > 1)} of {one.name} ({count_noun(at.size, 'row')}) "
            f"depend{'s' * (at.size == 1)} on {join_names(one.moved_by)}."
            for one, at in zip(self.tagged, self.rows, strict=True)
            if one.moved_by
        ]
        missing = "To train, declare what a violation costs: recourse={constraint: price}, or m.with_recourse(…)."
        return [*found, missing] if found and not recourse else found


def _spread(one: TaggedConstraint, price: Any) -> Array:
    try:
        return np.broadcast_to(np.asarray(price, dtype=float), one.tag.shape)
    except ValueError as error:
        raise DataError(
            f"{WHERE}: the price of {one.name} has shape {np.shape(price)}; expected a number, or one for each row in "
            f"the shape of the constraint, {one.tag.shape}"
        ) from error


def check_parameter_use(name: str, A: sparse.csr_array, b: Array, rows: TaggedRows) -> None:
    """Check that a predicted parameter changes only right-hand sides of tagged constraints.

    Args:
        name: the name of the parameter.
        A: (r, n) the part of the matrix that depends on the parameter.
        b: (r,) the part of the right-hand sides that depends on the parameter.
        rows: the rows of the tagged constraints.
    """
    entries = sparse.coo_array(A)
    touched = entries.row[entries.data != 0]
    inside = [one for row in np.unique(touched) if (one := rows.constraint(int(row))) is not None]
    if inside:
        raise DataError(
            f"{WHERE}: the predicted parameter {name} multiplies a decision in {inside[0].name}; in a constraint it "
            "may stand alone, as in A @ x <= p: give it a value and leave it out of parameters, or use "
            "pear.DecisionLayer, which takes predicted A and G"
        )
    if len(touched) or (b[~rows.kept()] != 0).any():
        raise DataError(
            f"{WHERE}: the predicted parameter {name} stands inside a nonlinear function of the objective; "
            "it may multiply decisions alone: write sum_squares(x - p) as sum_squares(x) - 2 * p @ x"
        )

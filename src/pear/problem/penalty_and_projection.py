"""``Penalty`` and ``Projection``: what happens if a decision under a forecast violates the true constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.constraint_map import SIDES, ConstraintMap, constraint_sides
from pear.problem.problem import Problem
from pear.problem.problem_fields import given_fields
from pear.problem.tensor_conversion import ArrayLike, tensor_shape, to_float64_tensor


@dataclass(frozen=True, eq=False)
class Penalty:
    """A recourse that keeps the decision and charges a price per unit of violation, such as the price of overtime.

    A recourse is the rule for decisions that violate the true constraints. The problem becomes elastic: with slack
    variables s ≥ 0 on the priced rows it minimises ``f(z) + price·s``, where f is the plain objective, negated if it is
    maximised. The decision under the forecast minimises this sum under the forecast constraints, and is charged the
    value of the sum under the true constraints. The best decision minimises the sum under the true constraints, so that
    regret is never negative.

    A row or bound is called predicted if its limit or one of its coefficients is predicted. A price is a single number
    for all predicted rows of its kind, or one number for each row of the problem. It is infinite for a row that may not
    be violated. A predicted row needs a finite price. Prices are in the unit of the objective, and positive for
    minimisation and maximisation alike.

    Args:
        b: the price of violated equalities. A tuple of two prices distinguishes too little (Az < b) from too much
            (Az > b); one of the two may be 0.
        h: the price of violated inequalities, Gz > h.
        lb: the price of violated lower bounds, z < lb.
        ub: the price of violated upper bounds, z > ub.

    Example:
        >>> Penalty(b=(9.0, 1.0), h=[2.0, float("inf")])
        Penalty(b=(9.0, 1.0), h=[2.0, inf])
    """

    b: ArrayLike = None
    h: ArrayLike = None
    lb: ArrayLike = None
    ub: ArrayLike = None

    def prices(self, problem: Problem, constraints: ConstraintMap) -> dict[str, Tensor]:
        """Return the price of every row, infinite for a row that may not be violated.

        Args:
            problem: the problem.
            constraints: the map that predicts rows of the problem.

        Returns:
            (2, p) for b, with the prices of too little first; (m,) for h; (n,) for lb and ub; by name.

        Raises:
            ProblemError: a predicted row has no finite price; a price is negative, NaN or of the wrong shape; a price
                is 0 that is not in a pair; or a pair has two zeros, or only one finite price.
        """
        own, found = constraint_sides(problem), {}
        for name in SIDES:
            rows = own[name].shape[-1]
            predicted, given = constraints.uncertain(name, rows), getattr(self, name)
            pair = given if name == "b" and isinstance(given, tuple) else (given, given) if name == "b" else (given,)
            if len(pair) != (2 if name == "b" else 1):
                raise ProblemError(f"Penalty(b=…) takes a pair (too little, too much) as a tuple; got {len(pair)}")
            sides = torch.stack([_read_penalty_prices(name, one, predicted) for one in pair])
            missing = predicted & ~sides.isfinite().all(0)
            if bool(missing.any()):
                at = int(missing.nonzero()[0])
                limit = bool(constraints.predicted(name, rows)[at])
                what = f"{name}[{at}]" if limit else f"a coefficient of row {at} of {'A' if name == 'b' else 'G'}"
                raise ProblemError(
                    f"{what} is predicted and has no finite price; say what a unit of its violation costs: "
                    f"pear.Penalty({name}=…)"
                )
            one_sided = bool((sides.isfinite().any(0) & ~sides.isfinite().all(0)).any())
            if one_sided or bool((sides.sum(0) == 0).any()):
                told = "too little and too much must both have a finite price, and not both 0" if name == "b" else "> 0"
                raise ProblemError(f"Penalty({name}=…): a price must be {told}; got {given!r}")
            found[name] = sides if name == "b" else sides[0]
        return {name: price.to(problem.device) for name, price in found.items()}

    def __repr__(self) -> str:
        given = given_fields(**{name: getattr(self, name) for name in SIDES})
        return f"Penalty({', '.join(f'{name}={value!r}' for name, value in given.items())})"


@dataclass(frozen=True, eq=False)
class Projection:
    """A recourse that replaces the decision by the nearest point of the true feasible set, and charges its cost.

    The point nearest to a decision ẑ is the z that minimises ``½ Σ wᵢ(zᵢ − ẑᵢ)²`` over the true feasible set, which
    must not be empty. If no point is feasible under the forecast, ẑ is the best point among those with the least total
    violation of the predicted rows.

    Args:
        weights: the weights w, a positive number or (n,) positive numbers; 1 by default.
        price: the price that the loss adds per unit of violation if no point is feasible under the forecast.

    Example:
        >>> Projection(weights=[1.0, 4.0])
        Projection(weights=[1.0, 4.0], price=1.0)
    """

    weights: ArrayLike = None
    price: float = 1.0

    def metric(self, problem: Problem) -> Tensor:
        """Return the weights w (n,) of the distance that defines the nearest point.

        Raises:
            ProblemError: the weights are neither one positive number nor n positive numbers.
        """
        given = to_float64_tensor("weights", 1.0 if self.weights is None else self.weights)
        if tensor_shape(given) not in ((), (problem.n,)) or not bool((given.isfinite() & (given > 0)).all()):
            raise ProblemError(
                f"Projection(weights=…) must be a positive number, or {problem.n} of them, one for each variable; got "
                f"{self.weights!r}"
            )
        return given.expand(problem.n).clone().to(problem.device)

    def prices(self, problem: Problem, constraints: ConstraintMap) -> dict[str, Tensor]:
        """Return the price of every row under an infeasible forecast: ``price`` for predicted rows, else infinite.

        The arguments, the result and the meaning of "predicted row" are those of ``Penalty``.

        Raises:
            ProblemError: the price is not a positive number.
        """
        priced = dict.fromkeys(constraints.priced_sides, self.price)
        if not (isinstance(self.price, (int, float)) and 0 < self.price < float("inf")):
            raise ProblemError(f"Projection(price=…) must be a positive number; got {self.price!r}")
        return Penalty(**priced).prices(problem, constraints)


def check_penalty_or_projection(problem: Problem, constraints: ConstraintMap | None, recourse: Any) -> None:
    """Check that a recourse fits the predicted rows. None passes, because a recourse may be added later.

    Args:
        problem: the problem.
        constraints: the map that predicts rows of the problem, or None.
        recourse: a ``Penalty``, a ``Projection`` or None.

    Raises:
        ProblemError: there is a recourse but no predicted row, or the map or the recourse does not fit the problem.
    """
    if constraints is None:
        if recourse is not None:
            raise ProblemError(
                "recourse is about predicted right-hand sides, and there are none; pass constraint_map=, "
                "or to an importer rows=…"
            )
        return
    constraints.check(problem)
    if problem.phi is not None:
        raise ProblemError("right-hand sides of a problem with a smooth term φ cannot be predicted; leave out phi")
    if recourse is None:
        return
    if not isinstance(recourse, (Penalty, Projection)):
        raise ProblemError(
            "recourse must be pear.Penalty(h=…), a price per unit, or pear.Projection() (importers also take a "
            f"dictionary from names of rows to prices); got {type(recourse).__name__}"
        )
    if isinstance(recourse, Projection):
        recourse.metric(problem)
        if problem.is_integer:
            raise ProblemError(
                "the nearest integer point of the true feasible set is not computed; use recourse=pear.Penalty(…), or "
                "problem.relaxed()"
            )
    recourse.prices(problem, constraints)


def _read_penalty_prices(name: str, given: ArrayLike, predicted: Tensor) -> Tensor:
    """Return the prices of the r rows of one kind in float64.

    Args:
        name: b, h, lb or ub.
        given: a number, one number for each of the r rows, or None.
        predicted: (r,) bool, True for predicted rows, to which a single number applies.

    Returns:
        (r,), infinite for rows without a price.
    """
    rows = len(predicted)
    if given is None:
        return torch.full((rows,), torch.inf, dtype=torch.float64)
    value = to_float64_tensor(f"the price of {name}", given).cpu()
    if tensor_shape(value) not in ((), (rows,)):
        raise ProblemError(
            f"Penalty({name}=…) must be a number, or {rows} of them, one for each row; got shape {tensor_shape(value)}"
        )
    if bool((value.isnan() | (value < 0)).any()):
        raise ProblemError(f"Penalty({name}=…) must not be negative, nor NaN; got {given!r}")
    if value.ndim:
        return value
    if not bool(predicted.any()):
        raise ProblemError(
            f"Penalty({name}={given!r}) prices predicted rows, and {name} is not predicted; leave it out, or give one "
            "price for each row"
        )
    return torch.where(predicted, value, torch.inf)

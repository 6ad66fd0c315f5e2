"""Violations of constraints with a violation price: the amount, the cost and the name of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pear.decisions.recourse_decider import RecourseDecider
from pear.optimality.rule import OPTIMAL
from pear.problem import Model, Penalty
from pear.problem.constraint_map import constraint_sides
from pear.problem.matrix import matvec, to_csr_matrix


class Violation(NamedTuple):
    """How far B decisions violate r constraints in one direction.

    The constraints are those of one field: b, h, lb or ub.

    Attributes:
        too_little: True for decisions that stay below their limits, False for decisions that exceed them.
        amount: (B, r) the amount of each violation; 0 if a constraint is not violated.
        price: (r,) the price of a unit of violation; infinite for constraints without a price.
    """

    too_little: bool
    amount: Tensor
    price: Tensor

    def charge(self) -> Tensor:
        """Return what the violations cost, (B, r); 0 for constraints without a price."""
        return torch.where(self.price.isfinite(), self.amount * self.price, 0.0)


@dataclass(frozen=True)
class NamedViolations:
    """The v possible violations of constraints with a price, under the true values of B samples.

    Attributes:
        names: for each possible violation, the name of the predicted value that is the limit, or of the constraint.
        kinds: "too little", "too much" or "violated".
        amount: (B, v) the amount of the violation; 0 if there is none beyond rounding.
        cost: (B, v) what the violation costs; NaN if the recourse has no prices.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    amount: Tensor
    cost: Tensor


def find_violations(model: Model, z: Tensor, values: Tensor) -> dict[str, list[Violation]]:
    """Return by how much decisions violate the constraints that follow from predicted or true values.

    Args:
        model: a model with a constraint map, which maps values to right-hand sides, and a recourse.
        z: (B, n) decisions.
        values: (B, k) values.

    Returns:
        The violations by the field of the constraints: "b", "h", "lb" or "ub". The list of "b" has two entries, too
        little and too much; the other lists have one.
    """
    assert model.constraint_map is not None
    assert model.recourse is not None
    sides = constraint_sides(model.problem) | model.right_hand_sides(values)
    program = model.problem.relaxed().canonical(torch.zeros_like(z))
    short, over = sides["b"] - matvec(program.A, z), matvec(program.G, z) - sides["h"]
    price = model.recourse.prices(model.problem, model.constraint_map)
    return {
        "b": [
            Violation(True, short.clamp(min=0), price["b"][0]),
            Violation(False, (-short).clamp(min=0), price["b"][1]),
        ],
        "h": [Violation(False, over.clamp(min=0), price["h"])],
        "lb": [Violation(True, (sides["lb"] - z).clamp(min=0), price["lb"])],
        "ub": [Violation(False, (z - sides["ub"]).clamp(min=0), price["ub"])],
    }


def name_violations(model: Model, names: tuple[str, ...], z: Tensor, true: Tensor) -> NamedViolations:
    """Return the violations of constraints with a price, and a name for each of them.

    Args:
        model: a model with a constraint map and a recourse.
        names: names of the k predicted values.
        z: (B, n) decisions.
        true: (B, k) true values.
    """
    rounding = OPTIMAL * RecourseDecider(model).values(true, None).size()[:, None]
    rows = []
    for side, kinds in find_violations(model, z, true).items():
        for kind in kinds:
            for row in kind.price.isfinite().nonzero()[:, 0].tolist():
                amount = kind.amount[:, row, None]
                own = torch.where(amount > rounding, amount, 0.0)
                cost = own * kind.price[row] if isinstance(model.recourse, Penalty) else torch.full_like(own, torch.nan)
                rows.append((*_name_violation(model, names, side, row, kind.too_little), own, cost))
    labels, words, amounts, costs = zip(*rows, strict=True)
    return NamedViolations(labels, words, torch.cat(amounts, 1), torch.cat(costs, 1))


def _name_violation(model: Model, names: tuple[str, ...], side: str, row: int, too_little: bool) -> tuple[str, str]:
    """Return a name for the violation of a constraint, and its direction in words.

    If the limit is one predicted value, possibly scaled, the violation has the name of this value, otherwise that of
    the constraint. A constraint "≥" of a file is stored as a row of G with reversed signs: exceeding such a row means
    too little.

    Args:
        model: the model.
        names: names of the k predicted values.
        side: "b", "h", "lb" or "ub", the field of the limit.
        row: position of the constraint in the field.
        too_little: whether the decision stays below the limit.

    Returns:
        The name, and "too little", "too much" or "violated".
    """
    assert model.constraint_map is not None
    matrix = model.constraint_map.matrix(side)
    entries = None if matrix is None else to_csr_matrix(matrix)[[row], :]
    if entries is not None and entries.nnz == 1:
        turned = entries.data[0] < 0
        return names[int(entries.indices[0])], "too little" if too_little != turned else "too much"
    if side in ("lb", "ub"):
        return f"the {'lower' if side == 'lb' else 'upper'} bound of {model.variables[row]}", "violated"
    p = constraint_sides(model.problem)["b"].shape[-1]
    at = row if side == "b" else p + row
    plain = f"equality {row}" if side == "b" else f"row {row}"
    label = model.constraints[at] if at < len(model.constraints) else plain
    return label, "violated" if side == "h" else "too little" if too_little else "too much"

"""By how much decisions violate the priced rows of a model, by name, and what that costs."""

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
    """The violations, in one direction, of the r rows with right-hand sides b or h, or of the r bounds lb or ub.

    Attributes:
        too_little: True where decisions stay below their limits, False where they exceed them.
        amount: (B, r) the amount of each violation; 0 where a row is not violated.
        price: (r,) the price of a unit of violation; infinite for rows without a price.
    """

    too_little: bool
    amount: Tensor
    price: Tensor

    def charge(self) -> Tensor:
        """Return what the violations cost, (B, r); 0 for rows without a price."""
        return torch.where(self.price.isfinite(), self.amount * self.price, 0.0)


@dataclass(frozen=True)
class NamedViolations:
    """The violations of priced rows under the truth.

    Attributes:
        names: names of the v kinds of violation: of the predicted value that is the row's limit, or of the row.
        kinds: "too little", "too much" or "violated".
        amount: (B, v) by how much; 0 where a row is not violated beyond rounding.
        cost: (B, v) what it costs; NaN where the recourse has no prices.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    amount: Tensor
    cost: Tensor


def find_violations(model: Model, z: Tensor, values: Tensor) -> dict[str, list[Violation]]:
    """Find by how much decisions z (B, n) violate the rows under values (B, k), by side: b, h, lb and ub."""
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
    """Find the violations of priced rows by decisions z (B, n) under true values (B, k), by name.

    Args:
        model: a model with a constraint map and a recourse.
        names: names of the k predicted values.
        z: decisions.
        true: true values.
    """
    rounding = OPTIMAL * RecourseDecider(model).values(true, None).size()[:, None]
    rows = []
    for side, kinds in find_violations(model, z, true).items():
        for kind in kinds:
            for row in kind.price.isfinite().nonzero()[:, 0].tolist():
                amount = kind.amount[:, row, None]
                own = torch.where(amount > rounding, amount, 0.0)
                cost = own * kind.price[row] if isinstance(model.recourse, Penalty) else torch.full_like(own, torch.nan)
                rows.append((*_name_row(model, names, side, row, kind.too_little), own, cost))
    labels, words, amounts, costs = zip(*rows, strict=True)
    return NamedViolations(labels, words, torch.cat(amounts, 1), torch.cat(costs, 1))


def _name_row(model: Model, names: tuple[str, ...], side: str, row: int, too_little: bool) -> tuple[str, str]:
    """Name a row by the predicted value that is its limit, and its violation by what is wrong with that value.

    A file's ``≥`` is a row of G with the opposite sign: where it is exceeded, there is too little. A row that several
    values make, or none, has the name of the constraint.
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

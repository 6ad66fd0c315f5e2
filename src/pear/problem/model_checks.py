"""Checks that the costs and the maps of a model fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.constraint_map import ConstraintMap
from pear.problem.cost_map import CostMap
from pear.problem.penalty_and_projection import check_penalty_or_projection
from pear.problem.tensor_conversion import tensor_shape, to_float64_tensor

if TYPE_CHECKING:
    from pear.problem.model import Model


def read_model_costs(known: Any, n: int) -> Tensor:
    """Convert the known costs of a model to a float64 tensor.

    Args:
        known: (n,) or (N, n) numbers, or None.
        n: the number of variables of the model.

    Returns:
        (n,) or (N, n); empty if no costs were given.

    Raises:
        ProblemError: a map was given instead of costs, or the shape is wrong.
    """
    if isinstance(known, (CostMap, ConstraintMap)):
        name = "cost_map" if isinstance(known, CostMap) else "constraint_map"
        raise ProblemError(f"known must be numbers; a {type(known).__name__} came in their place; pass {name}=")
    found = to_float64_tensor("known", () if known is None else known)
    if found.numel() and (found.ndim not in (1, 2) or found.shape[-1] != n):
        raise ProblemError(
            f"known must have shape ({n},) or (N, {n}), a cost for each variable; got {tensor_shape(found)}"
        )
    return found


def check_model_maps(model: Model) -> None:
    """Check that the maps and the recourse of a model fit its problem."""
    problem, rows = model.problem, model.constraint_map
    if not problem.has_program and (rows is not None or model.known_map is not None):
        raise ProblemError("an Oracle has no right-hand sides that could be predicted or known; predict its costs")
    check_penalty_or_projection(problem, rows, model.recourse)
    if model.known_map is not None:
        model.known_map.check(problem)
    if model.curvature_map is not None and (rows is not None or problem.is_sparse):
        why = "the matrices of a sparse problem are fixed" if rows is None else "right-hand sides are predicted"
        raise ProblemError(f"the weight of a quadratic term cannot be predicted here: {why}; give it a value")


def check_model_costs(model: Model) -> None:
    """Check that the cost map of a model fits its problem, its constraint map and its known costs.

    A model that predicts right-hand sides but no costs also needs an objective: known costs, which may be zeros if the
    user passed them, or a Q, or known values that change the costs or Q.

    Args:
        model: a model, whose ``known`` is empty if the user gave no known costs.

    Raises:
        ProblemError: one of these conditions does not hold.
    """
    problem, own, rows, given = model.problem, model.cost_map, model.constraint_map, model.known.numel() > 0
    if own is None:
        return
    if rows is not None and rows.inputs != own.inputs:
        raise ProblemError(
            f"the cost map takes {own.inputs} predicted values and the constraint map {rows.inputs}; give both a "
            "column for each predicted value"
        )
    if own.n != problem.n:
        raise ProblemError(
            f"the cost map gives {own.n} costs, and the problem has {problem.n} variables; make them equal"
        )
    if given and not torch.equal(model.known, own.known.to(model.known)):
        raise ProblemError(
            "known costs came beside a cost map that has others; pass them to the map: pear.CostMap(M, known=…)"
        )
    silent = rows is not None and not given and not model.predicts_costs and problem.Q is None
    silent &= model.known_map is None or not {"cost", "Q"} & {*model.known_map.targets}
    if silent and not bool(own.known.any()):
        raise ProblemError(
            "all costs are zero: no cost is predicted, no known costs were given, and the objective has no Q; pass "
            "known=…, a cost for each variable (zeros, where violations alone are to count)"
        )

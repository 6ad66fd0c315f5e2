"""``choose_recourse_smoothing``: the smoothing λ for a model that predicts right-hand sides."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from pear.decisions.choose_smoothing import choose_given_or_auto, choose_smoothing_from_decisions, drop_idle_choice
from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.smoothing import Smoothing
from pear.optimality.status import Status
from pear.problem import Model
from pear.problem.derived_problems import minimised_problem_curvature
from pear.problem.sample_keys import select_by_keys

_TIES = 0.01  # share of the "auto" smoothing if no cost is predicted and smoothing only breaks ties


def choose_recourse_smoothing(
    model: Model, values: Tensor, smoothing: float | str, keys: list[Hashable] | None
) -> Smoothing:
    """Return the smoothing for a given λ, or for the λ that "auto" chooses from true values and the best decisions.

    If no cost is predicted, smoothing only has to choose between equally good decisions. The λ of "auto" is then a
    hundredth of its usual size.

    Args:
        model: a model with a constraint map.
        values: (B, k) true values.
        smoothing: λ or "auto".
        keys: sample ids, or None.
    """

    def choose() -> Smoothing:
        decider = RecourseDecider(model)
        truth = decider.values(values.detach(), keys)
        best, status = decider.best(truth, keys)
        x, n = best.x, model.problem.n
        costs, bounds = model.problem.sign * truth.cost, (truth.sides["lb"], truth.sides["ub"])
        own = select_by_keys(model.problem, keys)
        H = minimised_problem_curvature(own) if own.is_curved else None
        found = choose_smoothing_from_decisions(
            costs,
            x[:, :n],
            status == Status.SOLVED,
            bounds,
            lambda some: torch.full_like(x[0, some], torch.nan),
            H,
            floor=H is not None,
        )
        return drop_idle_choice(found if model.predicts_costs else found.times(_TIES), model.problem.relaxed())

    return choose_given_or_auto(smoothing, choose)

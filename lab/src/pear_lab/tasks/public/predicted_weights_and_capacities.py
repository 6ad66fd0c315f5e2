"""Two tasks with predicted constraints: a knapsack with predicted weights, and a plan with predicted capacities."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from torch import Tensor, nn

from pear.problem import Model, Penalty, Problem
from pear.tasks.synthetic_task import draw_synthetic_costs
from pear_lab.tasks.public.choice_forecasters import ChoiceForecaster, choice_indicator_rows, choice_problem
from pear_lab.tasks.public.drawn_samples import RECOURSE_SIZES, SIZES, cut_drawn_samples
from pear_lab.tasks.public.public_task import Drawing, PublicTask

ITEMS, DIMENSIONS = 6, 2
VALUES = (5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
CAPACITY, OVERLOAD, MEAN_WEIGHT = 10.0, 2.0, 4.0
ACTIVITIES, RESOURCES = 8, 2
_DEGREE, _NOISE = 4, 0.25
_SETS = choice_indicator_rows([some for size in range(ITEMS + 1) for some in combinations(range(ITEMS), size)], ITEMS)


def predicted_weight_values(weights: Tensor) -> Tensor:
    """Return the values (B, 64) of the 64 sets of six items, given the weights (B, 2 · 6) of the items.

    Each item has a weight in each of two dimensions; the six weights in the first dimension come first. The value of a
    set is the sum of its items' values, less 2 for every unit of total weight above 10 in each dimension.

    Example:
        >>> predicted_weight_values(torch.full((1, 12), 4.0))[0, [0, 1, -1]].tolist()
        [0.0, 5.0, -11.0]
    """
    sets = _SETS.to(weights)
    load = weights.reshape(-1, DIMENSIONS, ITEMS) @ sets.T  # (B, dimensions, sets)
    return sets @ weights.new_tensor(VALUES) - OVERLOAD * (load - CAPACITY).clamp(min=0).sum(1)


def _predicted_weight_values_of_shares(shares: Tensor) -> Tensor:
    """Return the values (B, 64) of the sets for weights ``MEAN_WEIGHT · (1 + shares)``.

    ``shares`` has the shape (B, 2 · 6).
    """
    return predicted_weight_values(MEAN_WEIGHT * (1 + shares))


def predicted_weights_forecaster(features: int, values: int) -> nn.Module:
    """Make a linear forecaster of all weights that returns the values of all sets.

    The untrained forecaster predicts weights near the mean. If it predicted weights near 0, no set would be too heavy,
    and the loss would have no gradient.

    Args:
        features: the number of features.
        values: ignored; the number of sets is fixed.
    """
    return ChoiceForecaster(features, DIMENSIONS * ITEMS, _predicted_weight_values_of_shares)


def draw_predicted_weights(seed: int) -> Drawing:
    """Draw weights that are polynomials of five features, and compute the values of all sets."""
    random = np.random.RandomState(seed)
    features, weights = draw_synthetic_costs(random, sum(SIZES), DIMENSIONS * ITEMS, _DEGREE, _NOISE)
    values = predicted_weight_values(torch.from_numpy(MEAN_WEIGHT * weights / weights.mean())).numpy()
    return Drawing(choice_problem(len(_SETS), "max"), cut_drawn_samples(features, values))


def predicted_capacity_model(random: np.random.RandomState) -> Model:
    """Draw the linear program of activities that share two resources with predicted capacities.

    Activities may be done in part. Using more than the capacity costs, per unit, 1.2 times the average value that the
    activities earn with a unit of the resource.
    """
    use = random.randint(1, 11, (RESOURCES, ACTIVITIES)).astype(float)
    value = random.uniform(0.5, 1.5, ACTIVITIES) * use.sum(0)
    problem = Problem(G=use, h=np.zeros(RESOURCES), lb=0.0, ub=1.0, sense="max")
    price = 1.2 * value.sum() / use.sum(1)
    return Model.predicting(problem, cost=False, h=True, recourse=Penalty(h=price), known=value)


def draw_predicted_capacities(seed: int) -> Drawing:
    """Draw activities, and capacities that are polynomials of five features.

    The mean capacity of a resource is half of what all activities together use.
    """
    random = np.random.RandomState(seed)
    model = predicted_capacity_model(random)
    features, capacities = draw_synthetic_costs(random, sum(RECOURSE_SIZES), RESOURCES, _DEGREE, _NOISE)
    assert model.problem.G is not None
    total = model.problem.G.sum(1).numpy()
    return Drawing(model, cut_drawn_samples(features, 0.5 * total * capacities / capacities.mean(0), RECOURSE_SIZES))


_ORIGIN = "Mandi, Defresne, Berden & Guns 2025 (ODECE), arXiv 2510.04951"

PREDICTED_WEIGHTS = PublicTask(
    name="predicted-weights",
    title="Predicted weights",
    origin=_ORIGIN,
    protocol=(
        "A knapsack of 6 items in two dimensions; the 12 weights are predicted, values and capacities are known. The "
        "origin measures regret and infeasibility side by side; here overload has a price, 2 a unit, so that a "
        "decision has one value. That value is not linear in the items, but it is in the 64 sets of items: the problem "
        "is a choice among the sets, a linear program, and all methods apply. The forecaster predicts weights by a "
        "linear model and computes what each set is worth; the squared error is that of the sets' values. Weights are "
        "polynomials of degree 4 of 5 features with 25 % noise. 200 samples train, 100 choose, 500 test. Published "
        "numbers measure something else and are not comparable."
    ),
    draw=draw_predicted_weights,
    forecaster=predicted_weights_forecaster,
)  # fmt: skip

PREDICTED_CAPACITIES = PublicTask(
    name="predicted-capacities",
    title="Predicted capacities",
    origin=_ORIGIN,
    protocol=(
        "8 activities with known values and uses share 2 resources whose capacities are predicted; they may be done in "
        "part, and a unit of overload costs 1.2 times what a unit of the resource earns on average. The origin "
        "predicts weights and capacities of integer knapsacks and measures infeasibility instead of pricing it. No "
        "cost is predicted, so that methods for predicted costs (SPO+, PFYL, DBB, LAVA and their kin) do not apply: "
        "they need a linear objective whose costs are what is predicted. Capacities are polynomials of degree 4 of 5 "
        "features with 25 % noise. 100 samples train, 60 choose, 300 test; a linear model. Published numbers are not "
        "comparable."
    ),
    draw=draw_predicted_capacities,
)  # fmt: skip

"""Two tasks with predicted demand: a newsvendor with several products, and an inventory over several periods."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.problem import ConstraintMap, CostMap, Model, Penalty, Problem
from pear_lab.tasks.public.drawn_samples import RECOURSE_SIZES, Array, cut_drawn_samples
from pear_lab.tasks.public.public_task import Drawing, PublicTask

FEATURES = 5
PRODUCTS, PERIODS = 8, 8


class DemandDays(NamedTuple):
    """A model with predicted demand, and N days with features (N, p) and demands (N, k) of k products or periods."""

    model: Model
    features: Array
    values: Array


def draw_product_demand(random: np.random.Generator, days: int, items: int, level: float) -> tuple[Array, Array]:
    """Draw features (days, p), and demand (days, items) from gamma distributions that depend on the features.

    The standard deviation of the demand, divided by its mean, rises with the first feature.

    Args:
        random: the generator.
        days: the number of days.
        items: the number of products or periods.
        level: the expected demand at features of zero.
    """
    features = random.normal(size=(days, FEATURES))
    expected = level * np.exp(features @ random.normal(size=(FEATURES, items)) / 8)
    shape = 8.0 / (1.0 + np.exp(1.5 * features[:, :1])) + 0.5
    return features, expected * random.gamma(shape, 1.0 / shape, (days, items))


def newsvendor(days: int, seed: int, products: int = PRODUCTS) -> DemandDays:
    """Draw a newsvendor problem: how much to order of several products that share a shelf.

    The constraint ``order = demand`` may be violated at a price: a high one for shortage, a low one for leftovers.

    Args:
        days: the number of days.
        seed: the seed of prices, features and demand.
        products: the number of products.
    """
    random = np.random.default_rng(seed)
    features, demand = draw_product_demand(random, days, products, level=20.0)
    cost = random.uniform(1.0, 2.0, products)
    shortage, leftover = cost * random.uniform(3.0, 10.0, products), random.uniform(0.1, 0.5, products)
    shelf = 1.5 * demand.mean(0).sum()
    orders = Problem(A=np.eye(products), b=np.zeros(products), G=np.ones((1, products)), h=[shelf], lb=0.0)
    model = Model(
        orders,
        cost_map=CostMap(np.zeros((products, products)), cost, [f"demand{i}" for i in range(products)]),
        constraint_map=ConstraintMap(b=np.eye(products)),
        recourse=Penalty(b=(shortage, leftover)),
    )
    return DemandDays(model, features, demand)


def inventory(days: int, seed: int, periods: int = PERIODS) -> DemandDays:
    """Draw an inventory problem: how much to order of one product in each of several periods ahead.

    The stock after a period is the sum of orders less the sum of demands so far. The constraints are
    ``Σ orders = Σ demand`` up to each period. Each may be violated at a price: 0.2 for a piece in stock, and 2 for a
    piece owed (10 in the last period). Orders are limited, and their prices differ by period, so that it may pay to
    order ahead.

    Args:
        days: the number of plans.
        seed: the seed of prices, features and demand.
        periods: the number of periods.
    """
    random = np.random.default_rng(seed)
    features, demand = draw_product_demand(random, days, periods, level=10.0)
    until = np.tril(np.ones((periods, periods)))
    owed = np.full(periods, 2.0)
    owed[-1] = 10.0
    model = Model(
        Problem(A=until, b=np.zeros(periods), lb=0.0, ub=1.8 * demand.mean()),
        cost_map=CostMap(np.zeros((periods, periods)), random.uniform(1.0, 2.0, periods)),
        constraint_map=ConstraintMap(b=until),
        recourse=Penalty(b=(owed, np.full(periods, 0.2))),
    )
    return DemandDays(model, features, demand)


def draw_newsvendor(seed: int) -> Drawing:
    """Draw the newsvendor's products and prices, and features and demand of every day."""
    model, features, demand = newsvendor(sum(RECOURSE_SIZES), seed)
    return Drawing(model, cut_drawn_samples(features, demand, RECOURSE_SIZES))


def draw_inventory(seed: int) -> Drawing:
    """Draw the inventory's prices, and features and demand of every plan."""
    model, features, demand = inventory(sum(RECOURSE_SIZES), seed)
    return Drawing(model, cut_drawn_samples(features, demand, RECOURSE_SIZES))


_DEMAND = (
    "Demand is skewed, and the less certain the larger one of 5 features is. Decided is the elastic program at the "
    "predicted demand; regret is what the orders cost at the true one, less what perfect knowledge would have cost. No "
    "cost is predicted, so that methods for predicted costs (SPO+, PFYL, DBB, LAVA and their kin) do not apply: they "
    "need a linear objective whose costs are what is predicted. 100 days train, 60 choose, 300 test; a linear model. "
    "There are no published numbers. "
)

NEWSVENDOR = PublicTask(
    name="newsvendor",
    title="Newsvendor",
    origin=(
        "Donti, Amos & Kolter 2017, arXiv 1703.04529 (inventory stock problem); Ban & Rudin 2019, doi "
        "10.1287/opre.2018.1757"
    ),
    protocol=(
        "Orders of 8 products with a shared shelf at predicted demand, a price for a piece missing (3 to 10 times its "
        "own) and for one left over. Donti et al. have one product, discrete demand and quadratic prices. "
        f"{_DEMAND}"
    ),
    draw=draw_newsvendor,
)  # fmt: skip

INVENTORY = PublicTask(
    name="inventory",
    title="Inventory",
    origin="Zipkin 2000, Foundations of Inventory Management (dynamic lot sizing with backlogs, without fixed costs)",
    protocol=(
        "Orders of one product for 8 periods ahead at predicted demand, with limits; stock held costs 0.2 a piece and "
        "period, pieces owed 2, at the end 10, and a piece itself 1 to 2. The plan is not changed as demand comes. "
        f"{_DEMAND}"
    ),
    draw=draw_inventory,
)  # fmt: skip

"""Facility location: opening sites and serving every customer from an open site, at predicted costs of serving."""

from __future__ import annotations

from itertools import product

import numpy as np

from pear.problem import CostMap, Model, Problem
from pear.problem.oracle import Oracle
from pear.tasks.synthetic_task import draw_synthetic_costs
from pear_lab.tasks.public.drawn_samples import DEGENERATE, SIZES, Array, cut_drawn_samples
from pear_lab.tasks.public.public_task import Drawing, PublicTask

SITES, CUSTOMERS = 5, 6
_DEGREE, _NOISE = 6, 0.25


class BestSites:
    """A function that solves facility location without capacities exactly, by comparing all sets of open sites.

    For a given set of open sites, the cheapest open site serves each customer.

    Args:
        sites: m, the number of sites.
        customers: k, the number of customers.

    Example:
        >>> BestSites(2, 2)(np.array([[3.0, 3.0, 1.0, 2.0, 9.0, 1.0]])).tolist()
        [[1.0, 0.0, 1.0, 1.0, 0.0, 0.0]]
    """

    def __init__(self, sites: int, customers: int) -> None:
        self.sites, self.customers = sites, customers
        self.open = np.array([some for some in product((0.0, 1.0), repeat=sites) if any(some)])

    def __call__(self, costs: Array) -> Array:
        """Return the optimal decisions (B, m + mk) for costs (B, m + mk).

        The first m entries say which sites are open. The others say, site by site, which customers a site serves.
        """
        m, rows = self.sites, np.arange(len(costs))
        serving = costs[:, None, m:].reshape(len(costs), 1, m, -1)
        offers = np.where(self.open[:, :, None] > 0, serving, np.inf)  # (B, sets, m, k)
        chosen = (costs[:, :m] @ self.open.T + offers.min(2).sum(2)).argmin(1)
        by = offers[rows, chosen].argmin(1)  # (B, k)
        served = np.arange(m)[None, :, None] == by[:, None, :]
        return np.hstack([self.open[chosen], served.reshape(len(costs), -1)])


def facility_program(sites: int, customers: int) -> Problem:
    """Return the mixed-integer program of facility location in its strong form.

    The first variables are yᵢ: 1 if site i is open, 0 otherwise. They are followed, site by site, by xᵢⱼ, the share of
    customer j that site i serves. The constraints are ``Σᵢ xᵢⱼ = 1`` for each customer j, and ``xᵢⱼ ≤ yᵢ``.

    Example:
        >>> facility_program(2, 3)
        Problem(min, n=8, 3 equalities, 6 inequalities, bounds, 2 integer)
    """
    routes = sites * customers
    served = np.hstack([np.zeros((customers, sites)), np.tile(np.eye(customers), sites)])
    from_open = np.hstack([-np.repeat(np.eye(sites), customers, axis=0), np.eye(routes)])
    integer = np.arange(sites + routes) < sites
    return Problem(A=served, b=np.ones(customers), G=from_open, h=np.zeros(routes), lb=0.0, ub=1.0, integer=integer)


def facility_model(opening: Array, customers: int) -> Model:
    """Return the model ``min opening·y + Σ cᵢⱼ xᵢⱼ`` of ``facility_program``, with predicted costs c of serving.

    ``BestSites`` computes the decisions, a thousand times as fast as a solver. PEAR trains on the linear relaxation.

    Args:
        opening: (m,) the known costs of opening the sites.
        customers: k, the number of customers.
    """
    sites = len(opening)
    program = facility_program(sites, customers)
    oracle = Oracle(BestSites(sites, customers), batched=True, relaxation=program.relaxed())
    M = np.eye(program.n)[:, sites:]
    return Model(oracle, cost_map=CostMap(M, np.append(opening, np.zeros(sites * customers))))


def draw_facilities(seed: int) -> Drawing:
    """Draw sites and customers in a square, the costs of opening the sites, and the costs of serving on every day.

    The cost of serving is ``(0.2 + distance) · jam``. The jam is a polynomial of degree 6 of five features, with
    multiplicative noise of up to 25 %.
    """
    random = np.random.RandomState(seed)
    sites, customers = random.uniform(size=(SITES, 2)), random.uniform(size=(CUSTOMERS, 2))
    distance = np.linalg.norm(sites[:, None] - customers[None], axis=-1).reshape(-1)
    features, jam = draw_synthetic_costs(random, sum(SIZES), SITES * CUSTOMERS, _DEGREE, _NOISE)
    costs = (0.2 + distance) * jam
    opening = random.uniform(0.5, 1.0, SITES) * costs.mean() * CUSTOMERS / SITES
    return Drawing(facility_model(opening, CUSTOMERS), cut_drawn_samples(features, costs))


FACILITY_LOCATION = PublicTask(
    name="facility-location",
    title="Facility location",
    origin=(
        "the uncapacitated problem of Balinski 1965; costs by the polynomial of Elmachtoub & Grigas 2022, arXiv "
        "1710.08005"
    ),
    protocol=(
        "5 sites and 6 customers in a square; 30 costs of serving are predicted, 5 of opening are known. A "
        "mixed-integer program of 35 variables in its strong form, whose relaxation is often integral. Costs are "
        "distances times a polynomial of degree 6 of 5 features, with 25 % noise. 200 samples train, 100 choose, 500 "
        "test; a linear model. Decided by comparing all sets of open sites. Decision-focused work has no agreed "
        "instances of it, and there are no published numbers."
    ),
    draw=draw_facilities,
    unsuited=DEGENERATE,
)  # fmt: skip

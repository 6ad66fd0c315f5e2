"""Routing of one vehicle (TSP) and of several with a capacity (CVRP), solved by comparing all possible routes.

A variable is an edge, a pair of places; n is the number of edges.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise, permutations

import numpy as np

from pear.problem import Problem
from pear.problem.oracle import Oracle
from pear_lab.tasks.public.drawn_samples import DEGENERATE, SIZES, Array, cut_drawn_samples
from pear_lab.tasks.public.public_task import Drawing, PublicTask

PLACES = 8
_DEGREE, _NOISE, _FEATURES = 4, 0.5, 5


def route_edges(places: int) -> list[tuple[int, int]]:
    """Return all pairs of places, in the order of the variables.

    Example:
        >>> route_edges(3)
        [(0, 1), (0, 2), (1, 2)]
    """
    return list(combinations(range(places), 2))


def route_uses(order: tuple[int, ...], places: int) -> Array:
    """Return how often the round trip from place 0 through the customers in ``order`` uses each of the n edges."""
    number = {edge: i for i, edge in enumerate(route_edges(places))}
    used = np.zeros(len(number))
    stops = (0, *order, 0)
    for here, there in pairwise(stops):
        used[number[min(here, there), max(here, there)]] += 1
    return used


def _routes_through(customers: tuple[int, ...], places: int) -> list[Array]:
    """Return, for each round trip from place 0 through all ``customers``, how often it uses each edge (n,).

    Each trip is listed in one direction only.
    """
    return [route_uses(order, places) for order in permutations(customers) if order[0] <= order[-1]]


@cache
def all_tour_routes(places: int) -> Array:
    """Return how often each round trip through all places uses each edge. Shape ((places − 1)!/2, n)."""
    return np.array(_routes_through(tuple(range(1, places)), places))


def all_fleet_routes(demand: Array, capacity: float, vehicles: int) -> Array:
    """Return all K plans that serve all customers by round trips from place 0.

    A plan is a row of the result (K, n), which says how often the plan uses each edge.

    Args:
        demand: (k,) the demands of customers 1 to k.
        capacity: the largest demand that one vehicle serves.
        vehicles: the largest number of trips.
    """
    places = len(demand) + 1

    @cache
    def routes_to(left: tuple[int, ...], vehicles: int) -> tuple[Array, ...]:
        if not left:
            return (np.zeros(len(route_edges(places))),)
        if not vehicles:
            return ()
        first, rest = left[0], left[1:]
        found = []
        for others in (some for size in range(len(rest) + 1) for some in combinations(rest, size)):
            load = (first, *others)
            if sum(demand[one - 1] for one in load) <= capacity:
                after = routes_to(tuple(one for one in rest if one not in others), vehicles - 1)
                found += [route + plan for route in _routes_through(load, places) for plan in after]
        return tuple(found)

    return np.array(routes_to(tuple(range(1, places)), vehicles))


def _route_degree_rows(places: int) -> Array:
    """Return a matrix (places, n) with 1 if the edge meets the place, and 0 otherwise."""
    return np.array([[float(place in edge) for edge in route_edges(places)] for place in range(places)])


class ListedRoutes:
    """A function that returns the cheapest of the listed routes for linear costs.

    Args:
        decisions: (K, n) how often each of K routes uses each edge.

    Example:
        >>> cheapest = ListedRoutes(np.eye(3))
        >>> cheapest(np.array([[3.0, 1.0, 2.0]])).tolist()
        [[0.0, 1.0, 0.0]]
    """

    def __init__(self, decisions: Array) -> None:
        self.decisions = decisions

    def __call__(self, costs: Array) -> Array:
        """Return the cheapest routes (B, n) for costs (B, n); among equally cheap routes, the first in the list."""
        best: Array = self.decisions[(costs @ self.decisions.T).argmin(1)]
        return best


def tour_route_oracle(places: int) -> Oracle:
    """Return the oracle for the cheapest round trip through all places.

    In its relaxation, each variable lies between 0 and 1, and the variables of the edges at each place sum to 2. There
    are no other constraints.

    Example:
        >>> import pear
        >>> pear.solve(tour_route_oracle(4), [[1.0, 9.0, 1.0, 1.0, 9.0, 1.0]]).x.tolist()
        [[1.0, 0.0, 1.0, 1.0, 0.0, 1.0]]
    """
    relaxation = Problem(A=_route_degree_rows(places), b=np.full(places, 2.0), lb=0.0, ub=1.0)
    return Oracle(ListedRoutes(all_tour_routes(places)), batched=True, relaxation=relaxation)


def fleet_route_oracle(demand: Array, capacity: float, vehicles: int) -> Oracle:
    """Return the oracle for the cheapest round trips that serve all customers.

    A trip to a single customer uses its edge to place 0 twice. In the relaxation every customer has two edges, and
    place 0 has at most two edges for each vehicle. A set S of customers has at most
    ``|S| − ⌈demand of S / capacity⌉`` edges between its members, because at least ``⌈demand of S / capacity⌉`` trips
    visit S. With the constraints on all sets S, the optimal value of the relaxation is 1 % below that of the best plan;
    without them, 13 %.

    Args:
        demand: (k,) the demands of customers 1 to k.
        capacity: the largest demand that one vehicle serves.
        vehicles: the largest number of trips.
    """
    places = len(demand) + 1
    edges, degrees = route_edges(places), _route_degree_rows(places)
    sets = [some for size in range(2, places) for some in combinations(range(1, places), size)]
    within = np.array([[float(set(edge) <= set(some)) for edge in edges] for some in sets])
    most = [len(some) - np.ceil(demand[np.array(some) - 1].sum() / capacity) for some in sets]
    relaxation = Problem(
        A=degrees[1:], b=np.full(places - 1, 2.0), G=np.vstack([degrees[:1], within]), h=[2.0 * vehicles, *most],
        lb=0.0, ub=[2.0 if 0 in edge else 1.0 for edge in edges],
    )  # fmt: skip
    return Oracle(ListedRoutes(all_fleet_routes(demand, capacity, vehicles)), batched=True, relaxation=relaxation)


def draw_route_costs(random: np.random.RandomState, count: int, places: int) -> tuple[Array, Array]:
    """Draw p = 5 features x (N, p) and costs (N, n): the distance plus ``(Bx/√p + 3)^4 / 3³ · ε`` for every edge.

    The positions of half of the places are standard normal, the others uniform in [−2, 2]². The entries
    of B are 0 or uniform in [−2, 2], with equal probability, and the noise ε is uniform in [0.5, 1.5].

    Args:
        random: the generator.
        count: N, the number of samples.
        places: the number of places.
    """
    uniform = np.arange(places) % 2 == 1
    where = np.where(uniform[:, None], random.uniform(-2, 2, (places, 2)), random.normal(size=(places, 2)))
    distance = np.array([np.linalg.norm(where[here] - where[there]) for here, there in route_edges(places)])
    n = len(distance)
    B = random.binomial(1, 0.5, (n, _FEATURES)) * random.uniform(-2, 2, (n, _FEATURES))
    features = random.normal(size=(count, _FEATURES))
    rise = (features @ B.T / np.sqrt(_FEATURES) + 3) ** _DEGREE / 3.0 ** (_DEGREE - 1)
    return features, distance + rise * random.uniform(1 - _NOISE, 1 + _NOISE, (count, n))


def draw_tour_routes(seed: int) -> Drawing:
    """Draw eight places, and features and travel costs of every day."""
    features, costs = draw_route_costs(np.random.RandomState(seed), sum(SIZES), PLACES)
    return Drawing(tour_route_oracle(PLACES), cut_drawn_samples(features, costs))


def draw_fleet_routes(seed: int) -> Drawing:
    """Draw a depot and seven customers with demands of 1 to 4, and features and travel costs of every day."""
    random = np.random.RandomState(seed)
    features, costs = draw_route_costs(random, sum(SIZES), PLACES)
    demand = random.randint(1, 5, PLACES - 1).astype(float)
    capacity = max(np.ceil(demand.sum() / 2.5), demand.max())
    return Drawing(fleet_route_oracle(demand, capacity, vehicles=3), cut_drawn_samples(features, costs))


_COSTS = (
    "Costs are distances plus a polynomial of degree 4 of 5 features with 50 % noise, as PyEPO describes its "
    "generator; the numbers are drawn in our own order. 200 samples train, 100 choose, 500 test; a linear model. "
)

TSP = PublicTask(
    name="tsp",
    title="TSP",
    origin="Tang & Khalil 2024, PyEPO, arXiv 2206.14234",
    protocol=(
        "A round trip through 8 places, 28 predicted costs, decided by comparing all 2,520 round trips; the relaxation "
        "for PEAR has two edges in every place. "
        f"{_COSTS}"
        "The origin has 20 places and a solver with subtour rows; its results are figures of other sizes, and are not "
        "comparable."
    ),
    draw=draw_tour_routes,
)  # fmt: skip

CVRP = PublicTask(
    name="cvrp",
    title="CVRP",
    origin="PyEPO's example of vehicle routing, github.com/khalil-research/PyEPO; costs of its TSP, arXiv 2206.14234",
    protocol=(
        "At most three vehicles serve 7 customers with demands of 1 to 4 from a depot; a vehicle carries two fifths of "
        "all, rounded up. 28 predicted costs, decided by comparing all plans; the relaxation for PEAR has the degrees "
        "of all places and the rounded capacity rows of all sets of customers. "
        f"{_COSTS}There are no published numbers."
    ),
    draw=draw_fleet_routes,
    unsuited=DEGENERATE,
)  # fmt: skip

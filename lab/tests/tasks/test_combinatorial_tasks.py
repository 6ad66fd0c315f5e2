"""Public tasks that a function decides: another algorithm finds the same best decisions."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import pear
from pear.errors import DataError, ProblemError
from pear.problem.model import problem_of_model, split_cost_model
from pear.problem.oracle import program_of_oracle
from pear_lab.tasks.public import Drawing, task_table_row
from pear_lab.tasks.public.drawn_samples import Array, cut_drawn_samples
from pear_lab.tasks.public.energy_scheduling import EnergyScheduleJobs, draw_energy_schedule_jobs, energy_schedule_model
from pear_lab.tasks.public.facility_location import BestSites, facility_program
from pear_lab.tasks.public.matching import load_matching
from pear_lab.tasks.public.routes import all_fleet_routes, all_tour_routes, fleet_route_oracle, route_edges

CHECKED = 4


def cost_matrix(costs: Array, places: int) -> Array:
    """Return symmetric costs (places, places) from the costs of the edges (n,)."""
    matrix = np.zeros((places, places))
    for (here, there), cost in zip(route_edges(places), costs, strict=True):
        matrix[here, there] = matrix[there, here] = cost
    return matrix


def shortest_trip(matrix: Array, customers: tuple[int, ...]) -> float:
    """Return the cost of the best round trip from place 0 through ``customers``, by Held & Karp's dynamic program."""

    @cache
    def reach(left: frozenset[int], last: int) -> float:
        if not left:
            return float(matrix[0, last])
        return min(reach(left - {before}, before) + float(matrix[before, last]) for before in left)

    return min(reach(frozenset(customers) - {last}, last) + float(matrix[last, 0]) for last in customers)


def test_tours_are_those_of_dynamic_programming() -> None:
    drawing = task_table_row("tsp").draw(3)
    assert all_tour_routes(8).shape == (2520, 28)
    costs = drawing.split.test.costs[:CHECKED].double()
    expected = [shortest_trip(cost_matrix(cost, 8), tuple(range(1, 8))) for cost in costs.numpy()]
    np.testing.assert_allclose(pear.solve(drawing.problem, costs).value.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 5])
def test_plans_of_a_fleet_are_those_of_dynamic_programming(seed: int) -> None:
    random = np.random.RandomState(seed)
    demand, capacity, vehicles = random.randint(1, 5, 5).astype(float), 6.0, 3
    costs = random.uniform(1, 2, (CHECKED, 15))

    def cheapest(matrix: Array, left: frozenset[int], vehicles: int) -> float:
        if not left or not vehicles:
            return np.inf if left else 0.0
        loads = (some for size in range(1, len(left) + 1) for some in combinations(sorted(left), size))
        return min(
            shortest_trip(matrix, load) + cheapest(matrix, left - set(load), vehicles - 1)
            for load in loads
            if demand[np.array(load) - 1].sum() <= capacity
        )

    expected = [cheapest(cost_matrix(cost, 6), frozenset(range(1, 6)), vehicles) for cost in costs]
    found = pear.solve(fleet_route_oracle(demand, capacity, vehicles), costs)
    np.testing.assert_allclose(found.value.numpy(), expected, rtol=1e-12)


def test_plans_are_counted_right() -> None:
    # Two customers: one trip through both, or two trips. Three of demand 1, two at a time: 3 pairs, or all alone.
    assert all_fleet_routes(np.ones(2), 2.0, 2).tolist() == [[2.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
    assert len(all_fleet_routes(np.ones(3), 2.0, 3)) == 4
    assert len(all_fleet_routes(np.ones(3), 2.0, 2)) == 3


def test_facilities_are_those_of_the_integer_program() -> None:
    drawing = task_table_row("facility-location").draw(2)
    problem, cost_map = split_cost_model(drawing.problem)
    assert cost_map is not None
    costs = cost_map(drawing.split.test.costs[:40].double())
    program = facility_program(5, 6)
    found, exact = pear.solve(problem, costs), pear.solve(program, costs)
    np.testing.assert_allclose(found.value.numpy(), exact.value.numpy(), rtol=1e-9)
    assert 1 < float(found.x[:, :5].sum(1).mean()) < 4
    negative = -costs  # forecasts may have any sign
    np.testing.assert_allclose(
        pear.solve(problem, negative).value.numpy(), pear.solve(program, negative).value.numpy(), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["tsp", "cvrp", "facility-location"])
def test_the_relaxation_contains_all_decisions(name: str) -> None:
    drawing: Drawing = task_table_row(name).draw(1)
    inner = problem_of_model(program_of_oracle(drawing.problem, "a test"))
    plain, cost_map = split_cost_model(drawing.problem)
    values = drawing.split.validation.costs.double()
    costs = values if cost_map is None else cost_map(values)
    z = pear.solve(plain, costs).x
    assert np.allclose(z @ inner.A.T, inner.b)
    if inner.G is not None:
        assert bool((z @ inner.G.T <= inner.h).all())
    assert bool((z >= inner.lb).all())
    assert bool((z <= inner.ub).all())
    share = pear.solve(inner, costs).value / pear.solve(plain, costs).value
    assert bool((share <= 1 + 1e-9).all())
    assert float(share.mean()) > 0.98  # without the rows of capacity, that of the fleet would be 0.87


def test_a_site_that_is_cheap_to_open_serves_all() -> None:
    costs = np.array([[5.0, 1.0, *[1.0] * 3, *[2.0] * 3]])
    assert BestSites(2, 3)(costs).tolist() == [[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]


def test_a_job_runs_in_the_cheapest_slots_that_are_free() -> None:
    jobs = EnergyScheduleJobs(*(np.array(row) for row in ([2, 1], [0, 0], [4, 4], [1.0, 3.0], [1.0, 1.0])))
    model = energy_schedule_model(jobs, capacity=1.0, slots=4)
    prices = np.array([[5.0, 1.0, 2.0, 9.0]])
    solution = pear.solve(model, prices)
    # Alone both would run in slot 1. The dearer job takes it, the longer one starts in slot 2.
    expected = min(
        prices[0, first] + prices[0, first + 1] + 3 * prices[0, second]
        for first in range(3)
        for second in range(4)
        if second not in (first, first + 1)
    )
    assert float(solution.value) == pytest.approx(expected, rel=1e-12)


def test_drawn_jobs_can_be_placed() -> None:
    for seed in range(8):
        jobs, capacity = draw_energy_schedule_jobs(np.random.RandomState(seed))
        assert bool((jobs.earliest + jobs.duration <= jobs.latest).all())
        assert int(pear.solve(energy_schedule_model(jobs, capacity), np.ones((1, 12))).status[0]) == pear.Status.SOLVED


def test_graphs_of_the_user_are_read(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    file = tmp_path / "graphs.npz"
    features, links = random.random((10, 3, 3, 4)), random.integers(0, 2, (10, 3, 3))
    np.savez(file, features=features, links=links)
    drawing = load_matching(file, seed=1)
    assert [len(part.costs) for part in drawing.split] == [6, 2, 2]
    assert drawing.split.train.features.shape == (6, 9, 4)
    assert float(sum(part.costs.sum() for part in drawing.split)) == links.sum()
    with pytest.raises(ProblemError, match="10 graphs are too few"):
        load_matching(file, shares=(0.99, 0.01))
    np.savez(file, features=features[..., 0], links=links)
    with pytest.raises(DataError, match=r"expected features \(N, k, k, p\)"):
        load_matching(file)
    np.savez(file, links=links)
    with pytest.raises(DataError, match="arrays 'features' and 'links'"):
        load_matching(file)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProblemError, match="number of samples as their sum; got 5"):
        cut_drawn_samples(np.zeros((5, 1)), np.zeros((5, 1)), (3, 1, 2))

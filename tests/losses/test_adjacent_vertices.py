"""Adjacent vertices of paths and of knapsack vertices, compared with brute force over all vertices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import pear
from pear.losses.adjacent_vertices import adjacent_vertices, extreme_rays_at_vertex
from pear.tasks import knapsack, random_knapsack, shortest_path


def all_vertices(G: np.ndarray, h: np.ndarray, n: int) -> np.ndarray:
    """Return every vertex of {Gz ≤ h, 0 ≤ z ≤ 1}, by solving every square subsystem of its constraints."""
    rows = np.vstack([G, -np.eye(n), np.eye(n)])
    limits = np.concatenate([h, np.zeros(n), np.ones(n)])
    found: list[np.ndarray] = []
    for chosen in itertools.combinations(range(len(rows)), n):
        square = rows[list(chosen)]
        if abs(np.linalg.det(square)) < 1e-9:
            continue
        z = np.linalg.solve(square, limits[list(chosen)])
        if (rows @ z <= limits + 1e-9).all() and not any(np.abs(z - v).max() < 1e-7 for v in found):
            found.append(z)
    return np.array(found)


def share_an_edge(a: np.ndarray, b: np.ndarray, G: np.ndarray, h: np.ndarray) -> bool:
    """Return whether a and b are adjacent: the constraints that are tight at both leave one dimension."""
    n = len(a)
    rows = np.vstack([G, -np.eye(n), np.eye(n)])
    limits = np.concatenate([h, np.zeros(n), np.ones(n)])
    both = (np.abs(rows @ a - limits) < 1e-8) & (np.abs(rows @ b - limits) < 1e-8)
    return int(np.linalg.matrix_rank(rows[both])) == n - 1 if both.any() else n == 1


def as_set(points: np.ndarray) -> set[tuple[float, ...]]:
    return {tuple(np.round(point, 6) + 0.0) for point in points}


CASES = {
    "one row": ([[3.0, 4.0, 2.0, 5.0]], [6.5]),
    "two rows": ([[3.0, 4.0, 2.0, 5.0], [1.0, 2.0, 6.0, 2.0]], [6.5, 5.3]),
    # Whole numbers: 0-1 points that fill a row are degenerate, and so are those that fill both.
    "degenerate": ([[1.0, 1.0, 1.0, 1.0]], [2.0]),
    "twice degenerate": ([[1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 1.0, 2.0]], [2.0, 3.0]),
    "three rows meet": ([[1.0, 1.0, 1.0, 2.0], [1.0, 2.0, 1.0, 1.0], [2.0, 1.0, 2.0, 1.0]], [2.0, 3.0, 3.0]),
    "same row twice": ([[2.0, 3.0, 1.0, 2.0], [2.0, 3.0, 1.0, 2.0], [4.0, 6.0, 2.0, 4.0]], [4.0, 4.0, 8.0]),
    "weights of zero": ([[0.0, 1.0, 2.0, 0.0], [1.0, 0.0, 0.0, 2.0]], [2.0, 2.0]),
    "no room": ([[1.0, 2.0, 3.0, 0.0]], [0.0]),
    "all fits": ([[1.0, 1.0, 1.0, 1.0]], [9.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_neighbours_of_every_vertex_are_those_that_share_an_edge(name: str) -> None:
    G, h = (np.array(part) for part in CASES[name])
    n = G.shape[1]
    vertices = all_vertices(G, h, n)
    assert len(vertices) > 1
    for z in vertices:
        expected = as_set(np.array([v for v in vertices if v is not z and share_an_edge(z, v, G, h)]))
        found = adjacent_vertices(z, G, h, np.zeros(n), np.ones(n))
        assert as_set(found) == expected
        assert len(found) == len(expected)


@pytest.mark.parametrize("seed", range(6))
def test_random_small_knapsacks_have_the_right_neighbours(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, m = 5, int(random.integers(1, 4))
    G = random.integers(0, 4, (m, n)).astype(float)
    h = np.floor(0.5 * G.sum(1))
    vertices = all_vertices(G, h, n)
    for z in vertices[:: max(1, len(vertices) // 12)]:
        expected = as_set(np.array([v for v in vertices if v is not z and share_an_edge(z, v, G, h)]))
        assert as_set(adjacent_vertices(z, G, h, np.zeros(n), np.ones(n))) == expected


def test_knapsack_of_the_paper_has_a_neighbour_for_each_item() -> None:
    task = random_knapsack(seed=0)
    _, values = task.samples(40, degree=8, noise=0.0)
    z = task.decide_relaxed(values.double())
    neighbours = task.adjacent(z)
    G, h = task.weights, task.capacity
    for point, around in zip(z, neighbours, strict=True):
        assert len(around) >= 100
        assert bool((around @ G.T <= h + 1e-8).all())
        assert float(around.min()) >= 0
        assert float(around.max()) <= 1
        assert float((around - point).abs().amax(1).min()) > 1e-7
    plain = [around for around in neighbours if len(around) == 100]
    assert len(plain) > 20
    # A neighbour is a vertex: as many tight constraints as items.
    tight = (plain[0] == 0).sum(1) + (plain[0] == 1).sum(1) + ((plain[0] @ G.T - h).abs() < 1e-7).sum(1)
    assert bool((tight >= 100).all())


def test_relaxed_decision_is_the_best_of_its_neighbourhood() -> None:
    task = random_knapsack(items=30, dimensions=3, seed=4)
    _, values = task.samples(30, degree=4, seed=4)
    values = values.double()
    z = task.decide_relaxed(values)
    for v, point, around in zip(values, z, task.adjacent(z), strict=True):
        assert float((around @ v).max()) <= float(point @ v) + 1e-9


def test_points_that_are_no_vertices_are_refused() -> None:
    task = knapsack([[3.0, 4.0, 2.0]], capacity=6.0)
    with pytest.raises(pear.ProblemError, match="not a vertex: 2 variables are between their bounds"):
        task.adjacent(torch.tensor([[0.5, 0.5, 0.0]]))
    with pytest.raises(pear.ProblemError, match="violates a constraint"):
        task.adjacent(torch.tensor([[1.0, 1.0, 1.0]]))


def test_extreme_rays_of_a_cone_known_by_heart() -> None:
    # y1 + y2 = y3 + y4: each of the left with each of the right.
    rays = extreme_rays_at_vertex(np.array([[1.0, 1.0, -1.0, -1.0]]))
    assert as_set(rays) == {(1, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 1, 0, 1)}
    assert len(extreme_rays_at_vertex(np.array([[1.0, 1.0]]))) == 0
    assert len(extreme_rays_at_vertex(np.zeros((0, 3)))) == 3


def test_rays_are_the_same_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of rays are examined in blocks; at this vertex, the pairs need several blocks."""
    M = np.random.RandomState(0).randint(-3, 4, (4, 14)).astype(float)
    together = extreme_rays_at_vertex(M)
    monkeypatch.setattr("pear.losses.adjacent_vertices._PAIRS", 7)
    assert len(together) > 50
    np.testing.assert_array_equal(extreme_rays_at_vertex(M), together)
    assert np.abs(M @ together.T).max() < 1e-9


# --- paths ----------------------------------------------------------------------------------------------------------


def all_paths(task: pear.tasks.ShortestPath) -> torch.Tensor:
    graph, found = task.graph, []

    def walk(node: int, arcs: list[int]) -> None:
        if node == graph.target:
            row = torch.zeros(len(graph.arcs), dtype=torch.float64)
            row[arcs] = 1.0
            found.append(row)
            return
        for k, (tail, head) in enumerate(graph.arcs):
            if tail == node:
                walk(head, [*arcs, k])

    walk(graph.source, [])
    return torch.stack(found)


GRAPHS = {
    "grid": shortest_path((3, 4)),
    "crossed grid": shortest_path((3, 3)).crossed(),
    "parallel arcs": shortest_path(arcs=[(0, 1), (0, 1), (1, 2), (0, 2), (1, 2), (2, 3), (1, 3)]),
    "blind alleys": shortest_path(arcs=[(0, 1), (2, 4), (0, 3), (1, 4), (3, 5), (4, 5), (1, 6), (0, 5)], target=5),
    "any numbers": shortest_path(arcs=[(4, 2), (2, 0), (4, 3), (3, 0), (2, 3), (0, 1), (4, 1), (5, 4)],
                                 source=4, target=1),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_paths_are_adjacent_where_the_tight_constraints_of_both_leave_one_dimension(name: str) -> None:
    task = GRAPHS[name]
    paths = all_paths(task)
    assert len(paths) > 2
    A = task.problem.A
    assert A is not None
    for z, around in zip(paths, task.adjacent(paths), strict=True):
        expected = set()
        for other in paths:
            used = (z + other) > 0
            # z ≥ 0 is tight for both off their arcs; what is left has dimension arcs − rank.
            if not torch.equal(z, other) and int(used.sum()) - int(torch.linalg.matrix_rank(A[:, used])) == 1:
                expected.add(tuple(other.tolist()))
        assert {tuple(row) for row in around.tolist()} == expected
        assert len(around) == len(expected)


def test_neighbours_of_a_path_come_in_its_kind_and_once_for_each_row() -> None:
    task = shortest_path((5, 5))
    z = task.decide(torch.rand(4, 40, generator=torch.Generator().manual_seed(0)))
    z = torch.cat([z, z[:1]])
    around = task.adjacent(z)
    assert len(around) == 5
    assert around[0].dtype == torch.float32
    assert around[0] is around[4]
    for bad in (torch.zeros(1, 40), 0.5 * z[:1], z[:1] + z[1:2]):
        with pytest.raises(pear.ProblemError, match="row 0 is no path from node 0 to node 24"):
            task.adjacent(bad)


def test_a_vertex_with_too_many_edges_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the apex of a pyramid over an octagon, eight constraints meet: five more than three dimensions need."""
    angle = np.arange(8) * np.pi / 4
    G = np.column_stack([np.cos(angle), np.sin(angle), np.ones(8)])
    apex = np.array([0.0, 0.0, 1.0])
    free = np.full(3, np.inf)
    below = np.array([-np.inf, -np.inf, 0.0])
    assert len(adjacent_vertices(apex, G, np.ones(8), below, free)) == 8
    monkeypatch.setattr("pear.losses.adjacent_vertices._MOST_PAIRS", 4)
    with pytest.raises(pear.ProblemError, match=r"too degenerate: 5 constraints more than it needs .* use PEAR"):
        adjacent_vertices(apex, G, np.ones(8), below, free)

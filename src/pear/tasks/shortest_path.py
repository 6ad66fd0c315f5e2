"""Shortest paths: the cheapest path through a grid or another directed acyclic graph, whose costs are forecast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Problem
from pear.problem.tensor_conversion import to_batch_tensor
from pear.tasks.path_graph import PathGraph
from pear.tasks.synthetic_task import SyntheticTask
from pear.tasks.task import check_finite_costs

Direction = Literal["forward", "cross"]


@dataclass(frozen=True)
class ShortestPath(SyntheticTask):
    """A shortest path problem. The cost of every arc is forecast.

    The decision z ≥ 0 is a flow of one unit from source to target.

    Attributes:
        graph: the graph, with an arc for each variable.
        grid: rows and columns of a grid, or None for a graph that is no grid.
        direction: "forward" for paths to the right and down, "cross" for paths to the right and up.
    """

    graph: PathGraph
    grid: tuple[int, int] | None = None
    direction: Direction = "forward"

    columns: ClassVar[str] = "arcs"

    def decide(self, cost: Any, Q: Any = None) -> Tensor:
        """Return each sample's cheapest path, (B, n): 1 for arcs on the path, 0 for others.

        The path is found by dynamic programming. With a curvature ``Q``, a solver finds the decision, which may be a
        mixture of paths.

        Args:
            cost: (B, n) or (n,) finite costs of the arcs.
            Q: (n, n) or (B, n, n) curvature of the objective, or None.
        """
        if Q is not None:
            return super().decide(cost, Q)
        costs = self._checked(cost)
        return self.graph.cheapest(costs.double()).to(costs.dtype)

    def decide_relaxed(self, cost: Any) -> Tensor:
        """Return the decisions of ``decide``, (B, n), because the vertices of the linear program are the paths."""
        return self.decide(cost)

    def adjacent(self, z: Tensor) -> list[Tensor]:
        """Return the adjacent paths of given paths: those that leave a path once and join it again once.

        Args:
            z: (B, n) paths, 1 for arcs on the path and 0 for others.

        Returns:
            For each row of ``z`` a tensor (k, n) of its k adjacent paths, in the dtype of ``z``.

        Example:
            >>> from pear.tasks import shortest_path
            >>> task = shortest_path((2, 2))
            >>> task.adjacent(task.decide([[1.0, 2.0, 1.0, 1.0]]))
            [tensor([[0., 1., 0., 1.]], dtype=torch.float64)]
        """
        rows = to_batch_tensor(z).detach()

        @cache
        def neighbours(*path: int) -> Tensor:
            arcs = self.graph.neighbours(path)
            found = rows.new_zeros(len(arcs), self.problem.n)
            for k, other in enumerate(arcs):
                found[k, other] = 1.0
            return found

        return [neighbours(*self._path(row, i)) for i, row in enumerate(rows.cpu())]

    def crossed(self) -> ShortestPath:
        """Return the task with reversed vertical arcs: paths then lead from the lower left to the upper right corner.

        Every arc keeps its index and its cost, so that a forecaster trained on one direction can be tested on the
        other. Crossing twice gives the first direction again. Only a grid can be crossed.

        Example:
            >>> from pear.tasks import shortest_path
            >>> shortest_path((2, 2)).crossed().graph.arcs
            ((0, 1), (2, 0), (3, 1), (2, 3))
        """
        if self.grid is None:
            raise ProblemError("only a grid can be crossed; give another graph's arcs to shortest_path(arcs=...)")
        return shortest_path(self.grid, direction="cross" if self.direction == "forward" else "forward")

    def _checked(self, cost: Any) -> Tensor:
        """Return costs as a tensor (B, n). Raise an error for a wrong number of columns, NaN and infinity."""
        costs = super()._checked(cost)
        check_finite_costs(costs, "their cheapest path")
        return costs

    def _path(self, row: Tensor, i: int) -> list[int]:
        """Return the arcs of a path in order.

        Args:
            row: (n,) 1 for arcs on the path, 0 for others.
            i: the number of the path, for error messages.
        """
        arcs = row.nonzero()[:, 0].tolist()
        after = {self.graph.arcs[k][0]: k for k in arcs}
        path: list[int] = []
        node = self.graph.source
        while node in after and len(path) < len(arcs):
            path.append(after[node])
            node = self.graph.arcs[after[node]][1]
        if len(path) != len(arcs) or node != self.graph.target or not bool((row[arcs] == 1).all()):
            raise ProblemError(
                f"row {i} is no path from node {self.graph.source} to node {self.graph.target} with 1 for each of its "
                "arcs; pass what decide() returns"
            )
        return path


def shortest_path(
    grid: tuple[int, int] = (5, 5),
    arcs: Iterable[tuple[int, int]] | None = None,
    direction: Direction = "forward",
    source: int | None = None,
    target: int | None = None,
) -> ShortestPath:
    """Return a shortest path problem through a grid, from corner to corner, or through another directed acyclic graph.

    The problem has a variable z ≥ 0 for each arc and a flow balance for each node. The arcs of a grid are ordered by
    rows of the grid: first the row's arcs to the right, then its arcs down.

    Args:
        grid: rows and columns of nodes.
        arcs: pairs (tail, head) of a graph without cycles, instead of a grid. Nodes are numbered from 0.
        direction: for a grid, "forward" for paths to the right and down from the upper left corner, or "cross" for
            paths to the right and up from the lower left corner. The arcs have the same order in both.
        source: with ``arcs``, the node where the path begins; if omitted, node 0.
        target: with ``arcs``, the node where the path ends; if omitted, the node with the highest number.

    Example:
        >>> from pear.tasks import shortest_path
        >>> task = shortest_path((5, 5))
        >>> task.name, task.problem
        ('shortest_path_5x5', Problem(min, n=40, 25 equalities, bounds))
        >>> shortest_path(arcs=[(0, 1), (0, 2), (1, 2)]).decide([[1.0, 5.0, 2.0]])
        tensor([[1., 0., 1.]], dtype=torch.float64)
    """
    if direction not in ("forward", "cross"):
        raise ProblemError(f"direction must be 'forward' or 'cross'; got {direction!r}")
    if arcs is None:
        if len(grid) != 2:
            raise ProblemError(f"grid must be (rows, columns); got {grid!r}. Pass a list of arcs as arcs=")
        if source is not None or target is not None:
            raise ProblemError("source and target belong to arcs=; a grid is walked from corner to corner")
        rows, columns = grid
        graph = PathGraph.grid(rows, columns) if direction == "forward" else PathGraph.crossed_grid(rows, columns)
        name = f"shortest_path_{rows}x{columns}" + ("_cross" if direction == "cross" else "")
    else:
        if direction != "forward":
            raise ProblemError("direction belongs to a grid; turn the arcs yourself and pass source= and target=")
        graph = PathGraph.from_arcs(arcs, source, target)
        name = f"shortest_path_{graph.nodes}_nodes"
    supply = torch.zeros(graph.nodes, dtype=torch.float64)
    supply[graph.source], supply[graph.target] = 1.0, -1.0
    problem = Problem(A=graph.incidence(), b=supply, lb=0.0, sense="min")
    return ShortestPath(name, problem, graph, (rows, columns) if arcs is None else None, direction)

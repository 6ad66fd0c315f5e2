"""``PathGraph``: a directed acyclic graph, and its cheapest paths by dynamic programming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.tasks.path_kernel import ArrivingArcs, mark_cheapest_path


@dataclass(frozen=True)
class PathGraph:
    """A directed acyclic graph, with a source and a target node of its paths.

    Attributes:
        arcs: the pair (tail, head) of each arc, in the order of the costs. Several arcs may connect the same nodes.
        nodes: the number of nodes.
        source, target: the nodes where paths begin and end.
    """

    arcs: tuple[tuple[int, int], ...]
    nodes: int
    source: int
    target: int

    @classmethod
    def from_arcs(
        cls, arcs: Iterable[tuple[int, int]], source: int | None = None, target: int | None = None
    ) -> PathGraph:
        """Return a graph of arcs between nodes that are numbered from 0.

        Args:
            arcs: pairs (tail, head).
            source: the node where paths begin; if omitted, node 0.
            target: the node where paths end; if omitted, the last node.

        Raises:
            ProblemError: a node number is negative, there is a cycle, or no path leads from source to target.
        """
        pairs = tuple((int(tail), int(head)) for tail, head in arcs)
        if any(min(pair) < 0 for pair in pairs):
            raise ProblemError(f"nodes must be numbered from 0; got the arc {min(pairs, key=min)}")
        nodes = max((max(pair) for pair in pairs), default=0) + 1
        graph = cls(pairs, nodes, 0 if source is None else int(source), nodes - 1 if target is None else int(target))
        if cycle := sorted(set(range(nodes)).difference(*graph._nodes_by_depth)):
            raise ProblemError(f"the arcs must not form a cycle; the nodes {cycle[:10]} are on or behind one")
        if graph.source == graph.target or graph.source not in graph._useful:
            end = f"the last node, {graph.target}" if target is None else f"node {graph.target}"
            raise ProblemError(f"no path leads from node {graph.source} to {end}; add what is missing")
        return graph

    @classmethod
    def grid(cls, rows: int, columns: int) -> PathGraph:
        """Return a grid with paths to the right and down, from the upper left to the lower right corner.

        The arcs are ordered by rows of the grid: first the row's arcs to the right, then its arcs down.
        """
        if rows != int(rows) or columns != int(columns) or min(rows, columns) < 1 or rows * columns < 2:
            raise ProblemError(f"a grid needs rows and columns, and at least two nodes; got ({rows}, {columns})")
        arcs = []
        for i in range(rows):
            arcs += [(i * columns + j, i * columns + j + 1) for j in range(columns - 1)]
            arcs += [(i * columns + j, (i + 1) * columns + j) for j in range(columns) if i + 1 < rows]
        return cls.from_arcs(arcs)

    @classmethod
    def crossed_grid(cls, rows: int, columns: int) -> PathGraph:
        """Return a grid with paths to the right and up, from the lower left to the upper right corner.

        The order of the arcs is that of ``grid``, so that arcs keep their costs. Vertical arcs are reversed.
        """
        forward = cls.grid(rows, columns).arcs
        arcs = [(tail, head) if head == tail + 1 and columns > 1 else (head, tail) for tail, head in forward]
        return cls.from_arcs(arcs, source=(rows - 1) * columns, target=columns - 1)

    def incidence(self) -> sparse.csr_array:
        """Return the incidence matrix (nodes, arcs): 1 if an arc leaves a node, −1 if the arc enters the node."""
        tails, heads = np.array(self.arcs).T
        arcs = np.arange(len(self.arcs))
        values = np.repeat([1.0, -1.0], len(arcs))
        places = np.concatenate([tails, heads]), np.concatenate([arcs, arcs])
        return sparse.csr_array((values, places), shape=(self.nodes, len(arcs)))

    def cheapest(self, cost: Tensor) -> Tensor:
        """Return each sample's cheapest path, (B, arcs): 1 for arcs on the path, 0 for others.

        Of several cheapest paths, the result is the one whose arc into the target leaves the lowest-numbered node.
        Further ties are resolved in the same way, node by node backwards from there.

        Args:
            cost: (B, arcs) finite costs of any sign.
        """
        if cost.device.type == "cpu" and cost.dtype == torch.float64:
            chosen = np.zeros(cost.shape)
            mark_cheapest_path(np.ascontiguousarray(cost.detach().numpy()), *self._arriving_arcs, chosen)
            return torch.from_numpy(chosen)
        return self._cheapest_by_depth(cost)

    def _cheapest_by_depth(self, cost: Tensor) -> Tensor:
        """Return the paths of ``cheapest`` by operations on whole batches, for costs on a GPU or not in float64."""
        distance = cost.new_full((len(cost), self.nodes), torch.inf)
        distance[:, self.source] = 0.0
        arriving = torch.full((len(cost), self.nodes), -1, dtype=torch.long, device=cost.device)
        for level in self._levels:
            nodes, arcs, tails = (part.to(cost.device) for part in level)
            # Rows are padded with a node's first arriving arc, which does not change the minimum.
            ways = distance[:, tails] + cost[:, arcs]
            distance[:, nodes], chosen = ways.min(2)
            arriving[:, nodes] = arcs.expand(len(cost), -1, -1).gather(2, chosen[:, :, None])[:, :, 0]
        return self._trace(arriving, cost)

    @cached_property
    def _nodes_by_depth(self) -> list[list[int]]:
        """The nodes in groups of equal depth, in the order of depth.

        The depth of a node is the number of arcs on the longest path to the node. Nodes on a cycle, and nodes that can
        be reached from a cycle, are left out.
        """
        sorter = TopologicalSorter[int](dict.fromkeys(range(self.nodes), ()))
        for tail, head in self.arcs:
            sorter.add(head, tail)
        with suppress(CycleError):
            sorter.prepare()
        groups = []
        while nodes := sorter.get_ready():
            groups.append(sorted(nodes))
            sorter.done(*nodes)
        return groups

    @cached_property
    def _leaving(self) -> list[list[int]]:
        """The numbers of the arcs that leave each node."""
        leaving: list[list[int]] = [[] for _ in range(self.nodes)]
        for k, (tail, _) in enumerate(self.arcs):
            leaving[tail].append(k)
        return leaving

    @cached_property
    def _arriving_arcs(self) -> ArrivingArcs:
        """The arcs into every node but the source, as arrays for compiled code."""
        nodes = np.concatenate([nodes.numpy() for nodes, _, _ in self._levels])
        own = [list(dict.fromkeys(row)) for _, arcs, _ in self._levels for row in arcs.tolist()]  # without the padding
        starts = np.cumsum([0, *map(len, own)])
        tails, ends = np.array([tail for tail, _ in self.arcs]), np.array([self.source, self.target, self.nodes])
        return ArrivingArcs(nodes, starts, np.concatenate(own).astype(np.int64), tails, ends)

    @cached_property
    def _levels(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For every depth from 1 on: its k nodes (k,), the arcs into each node (k, width), and their tails (k, width).

        The width is the largest number of arcs into a node of this depth. A node with fewer arcs has its first arc in
        the other places. Arcs into a node come from nodes of smaller depth, so that all nodes of a depth are one step
        of the dynamic program. The source is left out, because no path contains arcs into the source.
        """
        arriving: list[list[int]] = [[] for _ in range(self.nodes)]
        for k in sorted(range(len(self.arcs)), key=lambda k: self.arcs[k]):
            arriving[self.arcs[k][1]].append(k)
        levels = []
        for group in self._nodes_by_depth[1:]:
            nodes = [v for v in group if v != self.source]
            width = max((len(arriving[v]) for v in nodes), default=0)
            arcs = [arriving[v] + arriving[v][:1] * (width - len(arriving[v])) for v in nodes]
            tails = [[self.arcs[k][0] for k in row] for row in arcs]
            if nodes:
                levels.append((torch.tensor(nodes), torch.tensor(arcs), torch.tensor(tails)))
        return levels

    def _trace(self, arriving: Tensor, cost: Tensor) -> Tensor:
        """Return each sample's path, (B, arcs): 1 for arcs on the path, 0 for others.

        The path is followed backwards from the target.

        Args:
            arriving: (B, nodes) the best arc into each node.
            cost: (B, arcs) costs, which give the result its dtype and device.
        """
        tails = torch.tensor([tail for tail, _ in self.arcs], device=cost.device)
        rows = torch.arange(len(cost), device=cost.device)
        chosen = torch.zeros_like(cost)
        node = torch.full_like(rows, self.target)
        while len(rows):
            arc = arriving[rows, node]
            chosen[rows, arc] = 1.0
            node = tails[arc]
            rows, node = rows[node != self.source], node[node != self.source]
        return chosen

    def neighbours(self, path: Sequence[int]) -> list[list[int]]:
        """Return the paths that are adjacent vertices of ``path`` in the polytope of all paths.

        A path is adjacent if it leaves ``path`` once, passes only nodes off ``path``, and joins ``path`` again once.

        Args:
            path: the numbers of its arcs, from source to target.

        Returns:
            The arcs of each adjacent path, ordered by the node at which it leaves ``path``.
        """
        visited = [self.source] + [self.arcs[k][1] for k in path]
        place = {v: i for i, v in enumerate(visited)}
        found = []
        for start, node in enumerate(visited[:-1]):
            for detour in self._detours(node, place, path[start]):
                end = place[self.arcs[detour[-1]][1]]
                found.append([*path[:start], *detour, *path[end:]])
        return found

    def _detours(self, start: int, place: dict[int, int], avoid: int) -> Iterator[list[int]]:
        """Yield every detour from a path, as a list of arcs: from ``start``, through nodes off the path, back to it.

        Args:
            start: a node of the path.
            place: the position of each node of the path.
            avoid: the arc of the path that leaves ``start``.
        """
        stack = [[k] for k in reversed(self._leaving[start]) if k != avoid and self.arcs[k][1] in self._useful]
        while stack:
            way = stack.pop()
            head = self.arcs[way[-1]][1]
            if head in place:
                yield way
            else:
                stack += [[*way, k] for k in reversed(self._leaving[head]) if self.arcs[k][1] in self._useful]

    @cached_property
    def _useful(self) -> set[int]:
        """The nodes from which the target can be reached."""
        useful = {self.target}
        for nodes in reversed(self._nodes_by_depth):
            useful.update(v for v in nodes if any(self.arcs[k][1] in useful for k in self._leaving[v]))
        return useful

"""``PathGraph``: a directed acyclic graph and its cheapest paths for a batch of costs, without a solver."""

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
from pear.tasks.path_kernel import ArrivingArcs, mark_cheapest


@dataclass(frozen=True)
class PathGraph:
    """A directed acyclic graph and the two nodes that paths lead between.

    Attributes:
        arcs: (tail, head) of each arc, in the order of the costs; several arcs may join the same nodes.
        nodes: number of nodes.
        source, target: where paths begin and end.
    """

    arcs: tuple[tuple[int, int], ...]
    nodes: int
    source: int
    target: int

    @classmethod
    def from_arcs(
        cls, arcs: Iterable[tuple[int, int]], source: int | None = None, target: int | None = None
    ) -> PathGraph:
        """Check the arcs and count the nodes, which are numbered from 0 in any order.

        Args:
            arcs: (tail, head) pairs.
            source: where paths begin; node 0 if omitted.
            target: where they end; the last node if omitted.

        Raises:
            ProblemError: there is a cycle, or no path leads from source to target.
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
        """A grid with paths rightward and downward from corner to corner.

        Arcs come row by row: the row's rightward arcs, then its downward arcs.
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
        """The same grid with paths rightward and *upward*, from the lower left corner to the upper right.

        Every arc keeps its place in the order, and so its cost; only the vertical ones are turned round.
        """
        forward = cls.grid(rows, columns).arcs
        arcs = [(tail, head) if head == tail + 1 and columns > 1 else (head, tail) for tail, head in forward]
        return cls.from_arcs(arcs, source=(rows - 1) * columns, target=columns - 1)

    def incidence(self) -> sparse.csr_array:
        """(nodes, arcs) float64: +1 where an arc leaves a node, −1 where it enters."""
        tails, heads = np.array(self.arcs).T
        arcs = np.arange(len(self.arcs))
        values = np.repeat([1.0, -1.0], len(arcs))
        places = np.concatenate([tails, heads]), np.concatenate([arcs, arcs])
        return sparse.csr_array((values, places), shape=(self.nodes, len(arcs)))

    def cheapest(self, cost: Tensor) -> Tensor:
        """Find each sample's cheapest path by dynamic programming; returns (B, arcs), 1 for arcs on the path, else 0.

        Where several paths are cheapest, the tie goes to the first arc into each node, from the target backwards.

        Args:
            cost: (B, arcs), finite, of any sign.
        """
        if cost.device.type == "cpu" and cost.dtype == torch.float64:
            chosen = np.zeros(cost.shape)
            mark_cheapest(np.ascontiguousarray(cost.detach().numpy()), *self._arriving_arcs, chosen)
            return torch.from_numpy(chosen)
        return self._cheapest_by_depth(cost)

    def _cheapest_by_depth(self, cost: Tensor) -> Tensor:
        """Find the same paths by operations on whole batches, one step for each depth: for costs on a GPU."""
        distance = cost.new_full((len(cost), self.nodes), torch.inf)
        distance[:, self.source] = 0.0
        arriving = torch.full((len(cost), self.nodes), -1, dtype=torch.long, device=cost.device)
        for level in self._levels:
            nodes, arcs, tails = (part.to(cost.device) for part in level)
            # Rows are padded by repeating a node's first arriving arc, which does not change the minimum.
            ways = distance[:, tails] + cost[:, arcs]
            distance[:, nodes], chosen = ways.min(2)
            arriving[:, nodes] = arcs.expand(len(cost), -1, -1).gather(2, chosen[:, :, None])[:, :, 0]
        return self._trace(arriving, cost)

    @cached_property
    def _nodes_by_depth(self) -> list[list[int]]:
        """The nodes grouped by the length of the longest path to them; nodes on or behind a cycle are left out."""
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
        """The arcs that leave each node."""
        leaving: list[list[int]] = [[] for _ in range(self.nodes)]
        for k, (tail, _) in enumerate(self.arcs):
            leaving[tail].append(k)
        return leaving

    @cached_property
    def _arriving_arcs(self) -> ArrivingArcs:
        """The arcs into every node but the source, as compiled code takes them."""
        nodes = np.concatenate([nodes.numpy() for nodes, _, _ in self._levels])
        own = [list(dict.fromkeys(row)) for _, arcs, _ in self._levels for row in arcs.tolist()]  # without the padding
        starts = np.cumsum([0, *map(len, own)])
        tails, ends = np.array([tail for tail, _ in self.arcs]), np.array([self.source, self.target, self.nodes])
        return ArrivingArcs(nodes, starts, np.concatenate(own).astype(np.int64), tails, ends)

    @cached_property
    def _levels(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For every depth: its nodes (k,), the arcs that enter them (k, width), and the tails of these arcs.

        Arcs into a depth come from smaller depths, so that a whole depth is one step of the dynamic programming. The
        source is left out, because no path leads through arcs into it.
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
        """Go back from the target along the best arriving arcs (B, nodes), and mark them: (B, arcs) 0 or 1."""
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
        """The paths that are adjacent vertices of ``path`` in the polytope of all paths.

        An adjacent path leaves ``path`` once and joins it again once, through nodes off the path. Two paths that meet
        in between are not adjacent: exchanging one of their parts gives two other paths with the same sum.

        Args:
            path: its arcs, from source to target.

        Returns:
            The arcs of each neighbour, ordered by where it parts.
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
        """Yield the ways from ``start`` through nodes off the path back to it, other than by the path's own arc."""
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

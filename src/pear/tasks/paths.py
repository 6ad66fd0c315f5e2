"""Cheapest paths through a directed acyclic graph, for a whole batch of costs at once, without a solver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pear.errors import ProblemError


@dataclass(frozen=True)
class Graph:
    """A directed acyclic graph whose nodes are numbered in a topological order; paths lead from 0 to the last node.

    Attributes:
        arcs: (tail, head) of each arc, tail < head.
        nodes: number of nodes.
    """

    arcs: tuple[tuple[int, int], ...]
    nodes: int

    @classmethod
    def from_arcs(cls, arcs: Iterable[tuple[int, int]]) -> Graph:
        """Check the arcs and count the nodes.

        Raises:
            ProblemError: a number is out of order, or no path reaches the last node.
        """
        pairs = tuple((int(tail), int(head)) for tail, head in arcs)
        for tail, head in pairs:
            if not 0 <= tail < head:
                raise ProblemError(
                    "nodes must be numbered from 0 in a topological order, so that every arc leads from a lower to a "
                    f"higher number; got the arc ({tail}, {head})"
                )
        nodes = max((head for _, head in pairs), default=0) + 1
        reached = {0}
        for tail, head in sorted(pairs):
            if tail in reached:
                reached.add(head)
        if nodes == 1 or nodes - 1 not in reached:
            raise ProblemError(f"no path leads from node 0 to the last node, {nodes - 1}; add what is missing")
        return cls(pairs, nodes)

    @classmethod
    def grid(cls, rows: int, columns: int) -> Graph:
        """A grid walked rightward and downward from corner to corner.

        Arcs come row by row: the row's rightward arcs, then its downward arcs.
        """
        if rows != int(rows) or columns != int(columns) or min(rows, columns) < 1 or rows * columns < 2:
            raise ProblemError(f"a grid needs rows and columns, and at least two nodes; got ({rows}, {columns})")
        arcs = []
        for i in range(rows):
            arcs += [(i * columns + j, i * columns + j + 1) for j in range(columns - 1)]
            arcs += [(i * columns + j, (i + 1) * columns + j) for j in range(columns) if i + 1 < rows]
        return cls.from_arcs(arcs)

    def incidence(self) -> Tensor:
        """(nodes, arcs) float64: +1 where an arc leaves a node, −1 where it enters."""
        A = torch.zeros(self.nodes, len(self.arcs), dtype=torch.float64)
        for k, (tail, head) in enumerate(self.arcs):
            A[tail, k], A[head, k] = 1.0, -1.0
        return A

    def cheapest(self, cost: Tensor) -> Tensor:
        """(B, arcs) 0 or 1: the arcs on each sample's cheapest path, by dynamic programming.

        Costs may be negative. Where paths are equally cheap, the arc that comes first wins, seen from the end.

        Args:
            cost: (B, arcs), finite.
        """
        distance = cost.new_full((len(cost), self.nodes), torch.inf)
        distance[:, 0] = 0.0
        arriving = torch.full((len(cost), self.nodes), -1, dtype=torch.long, device=cost.device)
        for level in self._levels:
            nodes, arcs, tails = (part.to(cost.device) for part in level)
            # A node with fewer arriving arcs than its level's richest repeats its first one: the minimum is the same.
            best = (distance[:, tails] + cost[:, arcs]).min(2)
            distance[:, nodes] = best.values
            arriving[:, nodes] = arcs.expand(len(cost), -1, -1).gather(2, best.indices[:, :, None])[:, :, 0]
        return self._trace(arriving, cost)

    @cached_property
    def _levels(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Nodes grouped by the most arcs on the way to them, with their arriving arcs (k, width) and those arcs' tails.

        All arcs that arrive at a level come from earlier ones, so that a level is one step for the whole batch.
        """
        arriving: list[list[int]] = [[] for _ in range(self.nodes)]
        depth = [0] * self.nodes
        for k in sorted(range(len(self.arcs)), key=lambda k: self.arcs[k]):
            tail, head = self.arcs[k]
            arriving[head].append(k)
            depth[head] = max(depth[head], depth[tail] + 1)
        levels = []
        for d in range(1, max(depth) + 1):
            nodes = [v for v in range(self.nodes) if depth[v] == d]
            width = max(len(arriving[v]) for v in nodes)
            arcs = [arriving[v] + arriving[v][:1] * (width - len(arriving[v])) for v in nodes]
            tails = [[self.arcs[k][0] for k in row] for row in arcs]
            levels.append((torch.tensor(nodes), torch.tensor(arcs), torch.tensor(tails)))
        return levels

    def _trace(self, arriving: Tensor, cost: Tensor) -> Tensor:
        """Walk back from the last node, all samples in step; those that are at node 0 wait."""
        tails = torch.tensor([tail for tail, _ in self.arcs], device=cost.device)
        rows = torch.arange(len(cost), device=cost.device)
        chosen = torch.zeros_like(cost)
        node = torch.full_like(rows, self.nodes - 1)
        while len(rows):
            arc = arriving[rows, node]
            chosen[rows, arc] = 1.0
            node = tails[arc]
            rows, node = rows[node > 0], node[node > 0]
        return chosen

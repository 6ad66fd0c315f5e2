"""The compiled dynamic program of ``PathGraph.cheapest``: the cheapest path of each sample through a graph."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.compile.jit import entry, span

Ints = NDArray[np.int64]
Array = NDArray[np.float64]


class ArrivingArcs(NamedTuple):
    """The arcs of an acyclic graph, grouped by the node that they enter.

    Attributes:
        nodes: (k,) the nodes that arcs enter, without the source, because no path contains arcs into the source. A
            node comes after all nodes of the list from which an arc leads to it.
        starts: (k + 1,) the position in ``arcs`` at which the arcs of each node begin; the last entry is the length of
            ``arcs``.
        arcs: the numbers of the arcs, node after node. If two arcs into a node are equally good, the first one wins.
        tails: (n,) the node that each arc of the graph leaves.
        ends: (3,) the source, the target, and the number of nodes.
    """

    nodes: Ints
    starts: Ints
    arcs: Ints
    tails: Ints
    ends: Ints


@partial(entry, any_order=False)
def mark_cheapest_path(
    cost: Array, nodes: Ints, starts: Ints, arcs: Ints, tails: Ints, ends: Ints, chosen: Array
) -> None:
    """Mark the arcs of each sample's cheapest path.

    Args:
        cost: (B, n) finite costs.
        nodes, starts, arcs, tails, ends: the fields of ``ArrivingArcs``.
        chosen: (B, n) zeros, which become 1 for arcs on the path.
    """
    source, target = ends[0], ends[1]
    distance = np.empty(ends[2])
    arriving = np.empty(ends[2], np.int64)
    for i in span(cost.shape[0]):
        distance[:] = np.inf
        distance[source] = 0.0
        for k in span(nodes.shape[0]):
            best = arcs[starts[k]]
            least = distance[tails[best]] + cost[i, best]
            for place in range(starts[k] + 1, starts[k + 1]):
                arc = arcs[place]
                length = distance[tails[arc]] + cost[i, arc]
                if length < least:
                    least, best = length, arc
            distance[nodes[k]] = least
            arriving[nodes[k]] = best
        node = target
        while node != source:
            chosen[i, arriving[node]] = 1.0
            node = tails[arriving[node]]

"""Elimination orders of sparse symmetric matrices, by minimum degree, and their elimination trees. Compiled.

Patterns of matrices are in CSC form: the row indices of column j are ``indices[indptr[j] : indptr[j + 1]]``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pear.compile.jit import allocating
from pear.solvers.linalg import Array

index = np.uint64  # the type of indices that are not negative: numba then omits the check for negative indices

_CROWDED = 10.0  # a node with more than this times √n neighbours is eliminated last


@allocating
def elimination_graph(n: int, indptr: Array, indices: Array) -> tuple[Array, Array]:
    """Build the graph of a symmetric matrix: nodes are rows, and neighbours are linked by a non-zero.

    Args:
        n: the number of rows.
        indptr, indices: the pattern of the upper triangle.

    Returns:
        Where the neighbours of each node begin (n + 1,), and the neighbours of all nodes one after another.
    """
    count = np.zeros(n + 1, np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            i = indices[k]
            if i != j:
                count[i + 1] += 1
                count[j + 1] += 1
    for j in range(n):
        count[j + 1] += count[j]
    ptr = count.copy()
    neighbours = np.empty(count[n], np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            i = indices[k]
            if i != j:
                neighbours[count[i]] = j
                count[i] += 1
                neighbours[count[j]] = i
                count[j] += 1
    return ptr, neighbours


@njit(nogil=True)
def _unlink_from_elimination(i: int, head: Array, after: Array, before: Array, degree: Array) -> None:
    """Remove node i from the linked list of all nodes with the degree of node i.

    Args:
        i: the node.
        head: the first node of the list of each degree, −1 for an empty list.
        after, before: the next and the previous node in the list of each node, −1 if there is none.
        degree: the degrees of all nodes.
    """
    if before[i] >= 0:
        after[before[i]] = after[i]
    else:
        head[degree[i]] = after[i]
    if after[i] >= 0:
        before[after[i]] = before[i]


@njit(nogil=True)
def _link_for_elimination(i: int, head: Array, after: Array, before: Array, degree: Array) -> None:
    """Put node i at the front of the linked list of all nodes with the degree of node i.

    The arguments are those of ``_unlink_from_elimination``.
    """
    first = head[degree[i]]
    after[i], before[i] = first, -1
    if first >= 0:
        before[first] = i
    head[degree[i]] = i


@allocating
def minimum_degree_order(n: int, ptr: Array, neighbours: Array, max_work: float) -> tuple[Array, bool]:
    """Find an elimination order by approximate minimum degree on the quotient graph.

    When a node is eliminated, its neighbours become neighbours of each other: a clique, which gets the number of the
    node. The list of a remaining node has the numbers of the cliques that the node belongs to, and after them its
    neighbours outside of these cliques. A clique is dropped when a newer clique contains all of its nodes. Nodes with
    very many neighbours come last in the order.

    Args:
        n: the number of nodes.
        ptr, neighbours: the graph, as ``elimination_graph`` returns it.
        max_work: the largest number of multiplications that a factorisation may take.

    Returns:
        The order (n,), and whether it is complete: False if a factorisation would take more than ``max_work``.
    """
    order = np.empty(n, np.int64)
    start, cliques, length = ptr[:n].copy(), np.zeros(n, np.int64), np.empty(n, np.int64)
    limit = max(16.0, _CROWDED * np.sqrt(n))
    state = np.zeros(n, np.int8)  # 0 alive, 1 a clique, 2 dropped, 3 crowded: to be ordered last
    waiting = 0
    for i in range(n):
        if ptr[i + 1] - ptr[i] > limit:
            state[i] = 3
            waiting += 1
    lists = np.empty(max(2 * len(neighbours), 16) + n, np.int64)
    end = 0
    for i in range(n):
        start[i] = end
        for k in range(ptr[i], ptr[i + 1]):
            if state[i] != 3 and state[neighbours[k]] != 3:
                lists[end] = neighbours[k]
                end += 1
        length[i] = end - start[i]
    head, after, before = np.full(n + 1, -1), np.full(n, -1), np.full(n, -1)
    degree = length.copy()
    for i in range(n):
        if state[i] == 0:
            _link_for_elimination(i, head, after, before, degree)
    seen, outside = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    scratch = np.empty(n + 1, np.int64)
    stamp, least, work = 1, 0, 0.0
    for step in range(n - waiting):
        while head[least] < 0:
            least += 1
        pivot = head[least]
        _unlink_from_elimination(pivot, head, after, before, degree)
        order[step] = pivot
        seen[pivot] = step
        # the new clique: the neighbours of the pivot, directly or through the pivot's cliques, which are dropped
        room = 0
        for k in range(start[pivot], start[pivot] + length[pivot]):
            other = lists[k]
            room += length[other] if k < start[pivot] + cliques[pivot] else 1
        if end + room > len(lists):
            grown = np.empty(2 * len(lists) + room, np.int64)
            for k in range(end):  # a loop, because a slice assignment takes seconds to compile
                grown[k] = lists[k]
            lists = grown
        begin = end
        for k in range(start[pivot], start[pivot] + length[pivot]):
            other = lists[k]
            if k < start[pivot] + cliques[pivot]:
                if state[other] != 1:
                    continue
                for q in range(start[other], start[other] + length[other]):
                    i = lists[q]
                    if seen[i] != step:
                        seen[i] = step
                        lists[end] = i
                        end += 1
                state[other] = 2
            elif seen[other] != step:
                seen[other] = step
                lists[end] = other
                end += 1
        size = end - begin
        start[pivot], length[pivot], state[pivot] = begin, size, 1
        work += float(size) * (size + 1)
        if work > max_work:
            return order, False
        # how many nodes of every adjacent clique are outside of the new clique
        for k in range(begin, end):
            i = lists[k]
            for q in range(start[i], start[i] + cliques[i]):
                e = lists[q]
                if state[e] == 1:
                    if outside[e] < stamp:
                        outside[e] = stamp + length[e]
                    outside[e] -= 1
        for k in range(begin, end):
            i = lists[k]
            total = length[i]
            for q in range(total):
                scratch[q] = lists[start[i] + q]
            put = start[i]
            bound = size - 1
            for q in range(cliques[i]):
                e = scratch[q]
                if state[e] != 1:
                    continue
                if outside[e] == stamp:  # the new clique contains this clique
                    state[e] = 2
                    continue
                lists[put] = e
                put += 1
                bound += outside[e] - stamp
            lists[put] = pivot
            put += 1
            held = put - start[i]
            for q in range(cliques[i], total):
                j = scratch[q]
                if seen[j] != step:
                    lists[put] = j
                    put += 1
                    bound += 1
            cliques[i], length[i] = held, put - start[i]
            _unlink_from_elimination(i, head, after, before, degree)
            degree[i] = min(bound, degree[i] + size - 1, n - step - 1)
            _link_for_elimination(i, head, after, before, degree)
            least = min(least, degree[i])
        stamp += n + 1
    place = n - waiting
    for i in range(n):
        if state[i] == 3:
            order[place] = i
            place += 1
    return order, True


@allocating
def permute_to_elimination_order(n: int, indptr: Array, indices: Array, order: Array) -> tuple[Array, Array, Array]:
    """Permute the pattern of the upper triangle of a symmetric matrix.

    Args:
        n: the number of rows.
        indptr, indices: the pattern of the upper triangle.
        order: (n,) the rows in their new order.

    Returns:
        The column pointers and the row indices of the permuted upper triangle, and the old position of each entry.
    """
    rank = np.empty(n, np.int64)
    for k in range(n):
        rank[order[k]] = k
    ptr = np.zeros(n + 1, np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            ptr[max(rank[indices[k]], rank[j]) + 1] += 1
    for j in range(n):
        ptr[j + 1] += ptr[j]
    free = ptr[:n].copy()
    rows, found = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            a, b = rank[indices[k]], rank[j]
            column = max(a, b)
            rows[free[column]] = min(a, b)
            found[free[column]] = k
            free[column] += 1
    return ptr, rows, found


@allocating
def elimination_tree(n: int, ptr: Array, rows: Array) -> tuple[Array, Array, float]:
    """Find the elimination tree of a symmetric matrix whose rows are in the order of elimination.

    The parent of a column is the row of the first entry below the diagonal in this column of the factor L.

    Args:
        n: the number of rows.
        ptr, rows: the column pointers and row indices of the upper triangle.

    Returns:
        The parent of every column (n,), −1 for roots; the number of entries below the diagonal in every column of L
        (n,); and the number of multiplications of a factorisation.
    """
    parent, counts, seen = np.full(n, -1, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64)
    for j in range(n):
        seen[j] = j
        for k in range(ptr[j], ptr[j + 1]):
            i = rows[k]
            while seen[i] != j:
                if parent[i] < 0:
                    parent[i] = j
                counts[i] += 1
                seen[i] = j
                i = parent[i]
    work = 0.0
    for j in range(n):
        work += float(counts[j]) * (counts[j] + 1)
    return parent, counts, work


@allocating
def elimination_postorder(parent: Array) -> Array:
    """Order the nodes of a tree so that every node comes after all of its descendants.

    Args:
        parent: (n,) the parent of every node, −1 for roots.

    Returns:
        (n,) the nodes in this order.
    """
    n = len(parent)
    first, following = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        if parent[j] >= 0:
            following[j] = first[parent[j]]
            first[parent[j]] = j
    order, stack = np.empty(n, np.int64), np.empty(n, np.int64)
    place = 0
    for root in range(n):
        if parent[root] >= 0:
            continue
        stack[0] = root
        depth = 1
        while depth > 0:
            node = stack[depth - 1]
            if first[node] >= 0:
                stack[depth] = first[node]
                first[node] = following[first[node]]
                depth += 1
            else:
                order[place] = node
                place += 1
                depth -= 1
    return order

"""The worst case of a forecast with several optimal decisions: the one that is worst under the true costs."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions import solve
from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.optimality.rule import OPTIMAL
from pear.problem import Problem
from pear.problem.tensor_conversion import to_batch_tensor
from pear.solvers.binary.selection_search import SelectionSearch
from pear.solvers.binary.tightened_rows import TightenedRows
from pear.tasks import ShortestPath, Task
from pear.tasks.path_graph import PathGraph
from pear.tasks.task import check_finite_costs
from pear_lab.tasks.metrics import published_regret_metric

Array = NDArray[np.float64]

TIE = 1e-10
"""The largest difference of tied predicted objectives, relative to the largest cost of a sample (paths) or to
1 + |objective| (0-1 programs)."""


def decide_worst(task: Task, predicted: Any, true: Any) -> Tensor:
    """Return, among the decisions that are optimal under ``predicted``, the worst one under ``true``.

    Decisions count as optimal if their objective differs from the best one by at most the relative tolerance ``TIE``.
    If the search for 0-1 programs cannot prove its decision, another solver decides with the wider tolerance
    ``OPTIMAL``.

    Args:
        task: a shortest path, or a problem with 0-1 variables and only inequalities, such as a knapsack.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.

    Returns:
        Decisions (B, n) in the dtype of ``predicted``.

    Raises:
        ProblemError: the task is of another kind, or the shapes of the costs do not fit.
        SolveError: a cost is not finite, or no decision was proven optimal; the message names the samples.

    Example:
        >>> from pear.tasks import shortest_path
        >>> decide_worst(shortest_path((2, 2)), [[1.0, 1.0, 1.0, 1.0]], [[1.0, 2.0, 1.0, 2.0]])
        tensor([[0., 1., 0., 1.]], dtype=torch.float64)
    """
    forecast, paid = to_batch_tensor(predicted).detach(), to_batch_tensor(true).detach()
    check_cost_pair(forecast, paid)
    check_finite_costs(forecast, "the worst decision")
    check_finite_costs(paid, "the worst decision")
    if forecast.shape[1] != task.problem.n:
        raise ProblemError(f"costs must have {task.problem.n} columns, one a variable; got {forecast.shape[1]}")
    if isinstance(task, ShortestPath):
        return _find_worst_paths(task.graph, forecast.double().cpu(), paid.double().cpu()).to(forecast)
    if not _is_worst_case_selection(task.problem):
        raise ProblemError(
            f"{task.name} cannot list its equally good decisions: that needs a shortest path, or whole decisions of 0 "
            "or 1 under inequalities alone"
        )
    return _find_worst_selections(task, forecast.double().cpu(), paid.double().cpu()).to(forecast)


def worst_case_regret(task: Task, predicted: Any, true: Any) -> float:
    """Return the normalised regret with ties broken against the forecast.

    The decision is the worst one under c among those that are optimal under ĉ. The usual regret of a forecast with
    ties, such as a constant forecast, depends on which of the optimal decisions the solver returns.

    Args:
        task: a task that ``decide_worst`` supports.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.

    Example:
        >>> from pear.tasks import shortest_path
        >>> round(worst_case_regret(shortest_path((2, 2)), [[1.0, 1.0, 1.0, 1.0]], [[1.0, 2.0, 1.0, 2.0]]), 6)
        1.0
    """
    costs = to_batch_tensor(true).detach()
    return published_regret_metric(task.outcome_of(decide_worst(task, predicted, costs), costs))


def _is_worst_case_selection(problem: Problem) -> bool:
    """Return whether all variables are 0 or 1 and all constraints are inequalities ``Gz ≤ h``."""
    if problem.A is not None or problem.G is None or problem.integer is None or not bool(problem.integer.all()):
        return False
    return all(bound is not None and bool((bound == end).all()) for end, bound in ((0, problem.lb), (1, problem.ub)))


def _find_worst_paths(graph: PathGraph, cost: Tensor, true: Tensor) -> Tensor:
    """Return, for each sample, the path of highest true cost among the cheapest predicted paths.

    Dynamic programming visits the nodes in topological order. An arc into a node counts as part of a cheapest path to
    the node if the cheapest path that ends with this arc costs hardly more: at most ``TIE`` times the largest cost of
    the sample.

    Args:
        graph: an acyclic graph.
        cost: (B, arcs) predicted costs, finite.
        true: (B, arcs) true costs, finite.

    Returns:
        (B, arcs), 1 for the arcs of the path and 0 elsewhere.
    """
    arriving: dict[int, list[int]] = {node: [] for node in range(graph.nodes)}
    for k in sorted(range(len(graph.arcs)), key=lambda k: graph.arcs[k]):
        arriving[graph.arcs[k][1]].append(k)
    tails = torch.tensor([tail for tail, _ in graph.arcs])
    distance = cost.new_full((len(cost), graph.nodes), torch.inf)
    distance[:, graph.source] = 0.0
    realised, last = torch.zeros_like(distance), torch.zeros(distance.shape, dtype=torch.long)
    slack = TIE * cost.abs().amax(1, keepdim=True)
    for node in TopologicalSorter({v: [graph.arcs[k][0] for k in own] for v, own in arriving.items()}).static_order():
        arcs = arriving[node]
        if node == graph.source or not arcs:
            continue
        ways = distance[:, tails[arcs]] + cost[:, arcs]
        distance[:, node] = ways.amin(1)
        totals = realised[:, tails[arcs]] + true[:, arcs]
        tied = (ways <= distance[:, [node]] + slack) & ways.isfinite()
        realised[:, node], chosen = totals.masked_fill(~tied, -torch.inf).max(1)
        last[:, node] = torch.tensor(arcs)[chosen]
    path = torch.zeros_like(cost)
    rows, node_of = torch.arange(len(cost)), torch.full((len(cost),), graph.target)
    while len(rows):
        arc = last[rows, node_of]
        path[rows, arc] = 1.0
        going = tails[arc] != graph.source
        rows, node_of = rows[going], tails[arc][going]
    return path


def _find_worst_selections(task: Task, forecast: Tensor, paid: Tensor) -> Tensor:
    """Return the worst 0-1 decisions (B, n) for the costs ``paid`` among those that are optimal for ``forecast``.

    PEAR's search for 0-1 programs finds the worst decision among those whose predicted objective ties with the best
    one. If its result is not proven, a solver of mixed-integer programs decides, with a wider tolerance for ties.

    Args:
        task: a task with 0-1 variables and only inequalities.
        forecast: (B, n) predicted costs, finite.
        paid: (B, n) true costs, finite.
    """
    problem = task.problem
    assert problem.G is not None
    assert problem.h is not None
    value, charge = (-problem.sign * forecast).numpy(), problem.sign * paid
    best = task.decide(forecast)
    worst = torch.empty_like(best)
    for i in range(len(best)):
        G, h = (part if part.ndim == dim else part[i] for part, dim in ((problem.G, 2), (problem.h, 1)))
        rows, limits = worst_case_rows(G.numpy(), h.numpy(), value[i], best[i].numpy(), TIE)
        slack = np.append(np.full(len(h), OPTIMAL), 0.0)
        search = SelectionSearch(
            charge[i : i + 1].numpy(), TightenedRows.of(rows, limits, slack=slack), best[i : i + 1].numpy()
        )
        worst[i] = torch.from_numpy(search.run().z[0])
        if worst[i].isnan().any():
            rows, limits = worst_case_rows(G.numpy(), h.numpy(), value[i], best[i].numpy(), OPTIMAL)
            equal = Problem(G=rows, h=limits, lb=0.0, ub=1.0, integer=True)
            worst[i] = solve(equal, -charge[i : i + 1]).x[0]
    return worst


def worst_case_rows(G: Array, h: Array, value: Array, best: Array, room: float) -> tuple[Array, Array]:
    """Return the rows ``Gz ≤ h`` followed by the row ``value·z ≥ value·best − room·(1 + |value·best|)``.

    Args:
        G: (k, n) the coefficients of k rows.
        h: (k,) their right-hand sides.
        value: (n,) the coefficients of the maximised objective.
        best: (n,) an optimal decision.
        room: the relative amount by which the value of a decision may be lower.

    Returns:
        Coefficients (k + 1, n) and right-hand sides (k + 1,) of the form ``Gz ≤ h``.

    Example:
        >>> G, h, value, best = np.ones((1, 2)), np.ones(1), np.array([1.0, 1.0]), np.array([1.0, 0.0])
        >>> worst_case_rows(G, h, value, best, room=0.1)[1].tolist()
        [1.0, -0.8]
    """
    most = float(value @ best)
    return np.concatenate([G, -value[None]]), np.append(h, -(most - room * (1 + abs(most))))

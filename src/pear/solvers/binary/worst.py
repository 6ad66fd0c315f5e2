"""Among the selections that are optimal under one cost, the one that costs most under another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pear.compile import threads
from pear.optimality.rule import OPTIMAL, TIE
from pear.problem.canonical import QuadraticProgram
from pear.solvers.adapters.batch_arrays import ProgramArrays
from pear.solvers.binary.binary_plan import BinaryPlan, by_constraints
from pear.solvers.binary.binary_solver import supports
from pear.solvers.binary.selection_search import Search, nodes_for
from pear.solvers.binary.tightened_rows import Array, TightenedRows


def worst_of_best(qp: QuadraticProgram, true: Array, best: Array) -> Array:
    """Among the points as good as ``best`` (ties up to a relative TIE), the one that costs most under ``true``; (B, n).

    Args:
        qp: B programs.
        true: (B, n) costs, minimised like those of ``qp``.
        best: (B, n) solutions of ``qp``.

    Returns:
        NaN where the programs are not for the engine, or there is no proof.
    """
    found = np.full(best.shape, np.nan)
    if not qp.batch or not supports(qp):
        return found
    batch = ProgramArrays.of(qp)
    for plan, members in by_constraints(batch, np.arange(qp.batch)):
        values, start = -batch.c[members][:, plan.free], (best[members] - plan.low)[:, plan.free]
        alone = _unique(plan, values, start)
        found[members[alone]] = best[members[alone]]
        shared = members[~alone]
        if len(shared):
            found[np.ix_(shared, np.arange(qp.n))] = plan.low
            found[np.ix_(shared, plan.free)] += _worst(plan, values[~alone], true[shared][:, plan.free], start[~alone])
    return found


def _unique(plan: BinaryPlan, values: Array, best: Array) -> NDArray[np.bool_]:
    """(B,) True where the best selection is proven to be the only one."""
    budget = nodes_for(plan.rows)
    searches = [Search(values[part], plan.rows, best[part], budget) for part in threads.parts(len(values))]
    alone = threads.run(lambda search: search.unique(TIE), searches, lambda: budget.fill(0))
    return np.concatenate([np.zeros(0, bool), *alone])


def _worst(plan: BinaryPlan, values: Array, true: Array, best: Array) -> Array:
    """(B, k) selections that earn as much as ``best`` and cost most; NaN without a proof."""
    budget = nodes_for(plan.rows)

    def search(i: int) -> Array:
        most = float(values[i] @ best[i])
        J, lower = np.concatenate([plan.J, -values[i][None]]), np.append(plan.lower, -np.inf)
        upper = np.append(plan.upper, -(most - TIE * (1 + abs(most))))
        slack = np.append(np.full(len(plan.J), OPTIMAL), 0.0)
        return Search(true[i][None], TightenedRows.of(J, upper, lower, slack), best[i][None], budget).run().z[0]

    return np.stack(threads.run(search, range(len(values)), lambda: budget.fill(0)))

"""Batches for the compiled method: tensors become its arrays, and samples are shared out to threads."""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.compile import thread_pools
from pear.solvers.active_set import layout
from pear.solvers.active_set.layout import Memory, Outcome, Pair, Programs, Results, Samples, States, Table, Team

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MOST_ROWS = 300
MOST_VARIABLES = 2_000
_MOST_SUPERBASICS = 512
_TABLE_BYTES = 1 << 29
_SPARSE = 0.3  # share of non-zeros up to which rows are worth being kept by columns
_WORTH_THREADS = 4_000  # variables and rows, over all samples, below which threads cost more than they save
_PARTS = 8  # parts of a batch for each thread: samples take different times, and no thread should wait long

_MOST_WORK = 8  # sizes of programs that a thread keeps room for

NO_Q = np.zeros((0, 0, 0))
_NO_ROWS, _NO_NUMBERS = np.zeros((0, 0)), np.zeros(0)
_own = local()


def supports(n: int, rows: int) -> bool:
    """True where a program is small enough: the inverse of its basis is dense."""
    return rows <= MOST_ROWS and n <= MOST_VARIABLES


def most_superbasics(n: int) -> int:
    """How many superbasic variables a program of n variables has room for."""
    return min(n, _MOST_SUPERBASICS)


def programs(
    fields: dict[str, Tensor], n: int, sign: float = 1.0, smoothing: float = 0.0, Q: Array | None = None
) -> Programs:
    """Bring fields into the compiled form.

    Args:
        fields: any of A, b, G, h, lb, ub, float64 on the CPU; those with a leading dimension are given per sample.
        n: number of variables.
        sign: of the objective.
        smoothing: λ.
        Q: (1 or K, n, n), or None.
    """
    J = _stack([_batched(fields, name, 3) for name in ("A", "G")], (1, 0, n))
    rhs = _stack([_batched(fields, name, 2) for name in ("b", "h")], (1, 0))
    lb, ub = (_batched(fields, name, 2) for name in ("lb", "ub"))
    start, row, value = _by_columns(J)
    return Programs(
        Q=NO_Q if Q is None else np.ascontiguousarray(Q),
        sign=float(sign),
        smoothing=float(smoothing),
        J=J,
        norm=np.square(J).sum(2),
        start=start,
        row=row,
        value=value,
        rhs=rhs,
        equalities=fields["b"].shape[-1] if "b" in fields else 0,
        lb=np.full((1, n), -np.inf) if lb is None else lb,
        ub=np.full((1, n), np.inf) if ub is None else ub,
    )


def fits(size: int, n: int, rows: int) -> bool:
    """True where a table of that many rows is worth its memory."""
    return 8 * size * (rows**2 + n + rows) <= _TABLE_BYTES


def default_start(P: Programs) -> States:
    """One feasible working set for all samples that have no start of their own.

    It depends on the constraints alone, so that no result depends on the other samples of a batch. The states have no
    row where samples have constraints of their own: each sample then finds such a start by itself.
    """
    n, rows = P.lb.shape[1], P.J.shape[1]
    if max(len(field) for field in (P.J, P.rhs, P.lb, P.ub)) > 1:
        return layout.new_states(0, n, rows)
    states, outcome = layout.new_states(1, n, rows), layout.new_outcome(1, n, P.equalities, rows - P.equalities)
    samples = Samples(np.zeros((1, n)), _NO_ROWS, *(np.zeros(1, np.int64) for _ in range(2)))
    _run(layout.START, pair_of(P, P), samples, _table(states, outcome), states, 0.0, _results(outcome))
    return states


def solve(P: Programs, cost: Array, at: Index, states: States, slots: Index, default: States) -> Outcome:
    """Solve a batch, (B, n) costs; sample i starts from ``states[slots[i]]`` and is written back there."""
    B, n = cost.shape
    rows = P.J.shape[1]
    outcome = layout.new_outcome(B, n, P.equalities, rows - P.equalities)
    samples = Samples(cost, _NO_ROWS, at, slots)
    _run(layout.SOLVE, pair_of(P, P), samples, _table(states, outcome), default, 0.0, _results(outcome))
    return outcome


def project(P: Programs, error: Array, at: Index, states: States, slots: Index) -> tuple[Array, NDArray[np.bool_]]:
    """(B, n) projected errors at the solutions in ``states``, and (B,) where they have converged.

    Where one has not, the objective is flat along a tangent direction, or rounding prevents refinement: a
    rank-revealing factorisation tells.
    """
    B, n = error.shape
    outcome, g = layout.new_outcome(B, 0, 0, 0), np.empty((B, n))
    samples, results = Samples(error, _NO_ROWS, at, slots), Results(outcome, _NO_NUMBERS, g, _NO_ROWS)
    _run(layout.PROJECT, pair_of(P, P), samples, _table(states, outcome), states, 0.0, results)
    return g, outcome.code == layout.SOLVED


def regret(pair: Pair, samples: Samples, table: Table, default: States, strength: float) -> Results:
    """Regrets and gradients of a batch; see ``kernels.run``. Without slots, ``table`` needs no states."""
    B, n = samples.predicted.shape
    rows, p = pair.decision.J.shape[1], pair.decision.equalities
    results = layout.new_results(B, n, p, rows - p)
    _run(layout.REGRET, pair, samples, table, default, strength, results)
    return results


def no_table(size: int, n: int, p: int, m: int) -> Table:
    """A table for ``size`` regrets of which nothing is kept, for samples without slots."""
    states = layout.new_states(0, n, p + m)
    return Table(states, states, layout.new_outcome(size, n, p, m), _NO_ROWS)


def pair_of(decision: Programs, true: Programs) -> Pair:
    """The problems of a regret; curved where their Q are different arrays."""
    return Pair(decision, true, decision.Q is not true.Q)


def _table(states: States, best: Outcome) -> Table:
    """A table for tasks that have one problem only."""
    return Table(states, states, best, _NO_ROWS)


def _results(outcome: Outcome) -> Results:
    """Results of tasks that write an outcome only."""
    return Results(outcome, _NO_NUMBERS, _NO_ROWS, _NO_ROWS)


def _run(
    task: int, pair: Pair, samples: Samples, table: Table, default: States, strength: float, results: Results
) -> None:
    """Do a task for all samples, in torch's threads where the work is worth it.

    All of them or one: OpenMP ends those that it is not asked for, and starts them again for the next who asks.
    """
    from pear.solvers.active_set import kernels  # imports numba, which takes a moment

    (B, n), rows = samples.predicted.shape, pair.decision.J.shape[1]
    count = torch.get_num_threads() if B * (n + rows) >= _WORTH_THREADS else 1
    team = team_for(n, rows, count)._replace(step=max(1, B // (count * _PARTS)))
    if not len(samples.slots):
        table = table._replace(predicted=layout.new_states(count, n, rows), true=layout.new_states(count, n, rows))
    if team.threads == count:
        kernels.run(task, pair, samples, table, default, strength, results, team, B)
        return
    parts = iter(range(0, B, team.step))

    def run_parts(worker: int) -> None:
        for first in parts:
            own = team._replace(turn=np.array([first, worker]))
            kernels.run(task, pair, samples, table, default, strength, results, own, min(first + team.step, B))

    for future in [thread_pools.shared_pool(count, "active-set").submit(run_parts, worker) for worker in range(count)]:
        future.result()


def team_for(n: int, rows: int, count: int = 1) -> Team:
    """A team of ``count`` threads at the beginning of a batch.

    Its memory is kept for the next batch. Every calling thread has memory of its own, because kernels run without
    Python's lock. Where OpenMP is not available, ``Team.threads`` is 1, and each thread of a pool runs the kernel on
    some of the samples.
    """
    kept: dict[tuple[int, int, int], Memory] = _own.__dict__.setdefault("kept", {})
    if (n, rows, count) not in kept:
        if len(kept) >= _MOST_WORK:
            kept.clear()
        kept[n, rows, count] = layout.new_memory(n, rows, most_superbasics(n), count)
    address = thread_pools.openmp_address() if count > 1 and _uses_openmp() else 0
    return Team(address, count if address else 1, 1, np.zeros(2, np.int64), kept[n, rows, count])


def _uses_openmp() -> bool:
    from pear.compile.jit import PRIVATE  # imports numba

    return PRIVATE


def _batched(fields: dict[str, Tensor], name: str, dimensions: int) -> Array | None:
    if name not in fields:
        return None
    value: Array = np.ascontiguousarray(fields[name].numpy())
    return value if value.ndim == dimensions else value[None]


def _stack(parts: list[Array | None], empty: tuple[int, ...]) -> Array:
    """Equality above inequality rows; where only one of them is shared, it is repeated for every sample."""
    there = [part for part in parts if part is not None]
    if not there:
        return np.zeros(empty)
    size = max(len(part) for part in there)
    spread = [np.broadcast_to(part, (size, *part.shape[1:])) for part in there]
    return np.ascontiguousarray(np.concatenate(spread, 1))


def _by_columns(J: Array) -> tuple[Any, Any, Array]:
    """The non-zeros of all samples by columns; empty arrays where J is too dense for that to pay."""
    some = (J != 0).any(0)
    if some.size == 0 or some.mean() > _SPARSE:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((1, 0))
    column, row = np.nonzero(some.T)
    start = np.searchsorted(column, np.arange(J.shape[2] + 1)).astype(np.int32)
    return start, row.astype(np.int32), np.ascontiguousarray(J[:, row, column])

"""Calls of the batch kernel from Python: tensors become arrays, and threads share the samples of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.compile import openmp, thread_pools
from pear.solvers.active_set.dual_plan import no_dual_plan
from pear.solvers.active_set.kernel_arrays import (
    DECIDE,
    PROJECT,
    REGRET,
    SOLVE,
    SOLVED,
    START,
    CompiledRegrets,
    CompiledSolutions,
    ProgramPair,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
    ThreadTeam,
    WorkMemory,
    new_memory,
    new_regrets,
    new_solutions,
    new_states,
)

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MOST_ROWS = 300
MOST_VARIABLES = 2_000
_MOST_SUPERBASICS = 512
_TABLE_BYTES = 1 << 29
_SPARSE = 0.3  # share of non-zeros up to which rows are worth being kept by columns
_WORTH_THREADS = 4_000  # variables and rows, over all samples, below which threads cost more than they save
_PARTS = 8  # parts of a batch for each thread: several, because samples take different times
_MOST_SIZES = 8  # sizes of programs that a thread keeps memory for


_NO_ROWS, _NO_VALUES, _NO_FACTOR = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0, 0))


class _ThreadMemory(local):
    """The memory that a thread keeps for its next call.

    Every calling thread has memory of its own, because kernels run without Python's lock.

    Attributes:
        kept: by numbers of variables, rows and workers: the memory of the workers, and a row of states for each worker
            under predicted and under true costs.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int, int], tuple[WorkMemory, States, States]] = {}

    def of_size(self, n: int, rows: int, count: int) -> tuple[WorkMemory, States, States]:
        """Return the memory for ``count`` workers; it is made where there is none of this size."""
        size = n, rows, count
        if size not in self.kept:
            if len(self.kept) >= _MOST_SIZES:
                self.kept.clear()
            states = new_states(count, n, rows), new_states(count, n, rows)
            self.kept[size] = new_memory(n, rows, most_superbasics(n), count), *states
        return self.kept[size]


_own = _ThreadMemory()


def fits_dense_inverse(n: int, rows: int) -> bool:
    """True where a program is small enough for a dense inverse of its basis."""
    return rows <= MOST_ROWS and n <= MOST_VARIABLES


def most_superbasics(n: int) -> int:
    """Return the number of superbasic variables that a program of n variables has room for."""
    return min(n, _MOST_SUPERBASICS)


def pack_programs(fields: dict[str, Tensor], n: int, sign: float = 1.0, smoothing: float = 0.0) -> Programs:
    """Convert the fields of a problem to the arrays of the compiled method.

    Args:
        fields: any of Q, A, b, G, h, lb, ub, float64 on the CPU. A field with a leading dimension differs by sample.
        n: the number of variables.
        sign: 1 where the objective is minimised, −1 where it is maximised.
        smoothing: λ.
    """
    J = _stack_rows([_batched_array(fields, name, 3) for name in ("A", "G")], (1, 0, n))
    rhs = _stack_rows([_batched_array(fields, name, 2) for name in ("b", "h")], (1, 0))
    Q, lb, ub = (_batched_array(fields, name, 3 if name == "Q" else 2) for name in ("Q", "lb", "ub"))
    start, row, value = _nonzeros_by_column(J)
    return Programs(
        Q=np.zeros((0, 0, 0)) if Q is None else Q,
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
        dual=no_dual_plan(),
    )


def table_fits(size: int, n: int, rows: int) -> bool:
    """True where a table of ``size`` samples is worth its memory."""
    return 8 * size * (rows**2 + n + rows) <= _TABLE_BYTES


def default_start(P: Programs) -> States:
    """Find one feasible working set for all samples that have no start of their own.

    It depends on the constraints alone, so that no result depends on the other samples of a batch. Where samples have
    constraints of their own, the result has no rows, and each sample finds its own start.
    """
    n, rows = P.lb.shape[1], P.J.shape[1]
    if max(len(field) for field in (P.J, P.rhs, P.lb, P.ub)) > 1:
        return new_states(0, n, rows)
    states, first = new_states(1, n, rows), np.zeros(1, np.int64)
    outcome = new_solutions(1, n, P.equalities, rows - P.equalities)
    _run_decisions(START, P, SampleCosts(np.zeros((1, n)), _NO_ROWS, first, first), states, states, outcome)
    return states


def solve_batch(
    P: Programs, cost: Array, at: Index, states: States, slots: Index, default: States, centred: bool = True
) -> CompiledSolutions:
    """Solve a batch.

    Args:
        P: the programs.
        cost: (B, n) costs.
        at: (B,) each sample's row in fields that are not shared.
        states: warm starts. Sample i starts from row ``slots[i]``, and its solution is written back there.
        slots: (B,) row numbers in ``states``.
        default: the start of samples that have none; see ``default_start``.
        centred: whether few multipliers are to be zero where they are not unique. The decisions do not depend on it.
    """
    outcome = new_solutions(len(cost), cost.shape[1], P.equalities, P.J.shape[1] - P.equalities)
    _run_decisions(SOLVE if centred else DECIDE, P, SampleCosts(cost, _NO_ROWS, at, slots), states, default, outcome)
    return outcome


def project_batch(
    P: Programs, error: Array, at: Index, states: States, slots: Index
) -> tuple[Array, NDArray[np.bool_]]:
    """Project errors (B, n) at the solutions in ``states``.

    A projection does not converge where the objective is flat along a tangent direction, or where rounding prevents
    refinement. A rank-revealing factorisation then has to distinguish the two.

    Returns:
        (B, n) projections, and (B,) bool, True where they converged.
    """
    outcome, g = new_solutions(len(error), 0, 0, 0), np.empty(error.shape)
    _run_decisions(PROJECT, P, SampleCosts(error, _NO_ROWS, at, slots), states, states, outcome, g)
    return g, outcome.code == SOLVED


def regret_batch(
    pair: ProgramPair, samples: SampleCosts, table: SolutionTable, default: States, strength: float
) -> CompiledRegrets:
    """Compute regrets and gradients of a batch; see ``batch_kernel.run_batch``.

    Without slots, ``table`` is a ``temporary_table``.
    """
    (B, n), p = samples.predicted.shape, pair.decision.equalities
    results = new_regrets(B, n, p, pair.decision.J.shape[1] - p)
    _run_kernel(REGRET, pair, samples, table, default, strength, results)
    return results


def temporary_table(size: int, n: int, p: int, m: int) -> SolutionTable:
    """Make a table for ``size`` regrets that is not kept, for samples without slots; its states serve the workers."""
    _, predicted, true = _own.of_size(n, p + m, _threads_worth(size, n, p + m))
    return SolutionTable(predicted, true, new_solutions(size, n, p, m), _NO_ROWS)


def program_pair(decision: Programs, true_Q: Array, factor: Array = _NO_FACTOR) -> ProgramPair:
    """Make the pair of problems of a regret; ``curved`` is True where their Q are different arrays."""
    return ProgramPair(decision, true_Q, decision.Q is not true_Q, factor)


def _run_decisions(
    task: int,
    P: Programs,
    samples: SampleCosts,
    states: States,
    default: States,
    outcome: CompiledSolutions,
    g: Array = _NO_ROWS,
) -> None:
    """Run a task that needs no true costs. It reads and writes ``states``, and writes ``outcome`` and projections."""
    table, results = SolutionTable(states, states, outcome, _NO_ROWS), CompiledRegrets(outcome, _NO_VALUES, g, _NO_ROWS)
    _run_kernel(task, program_pair(P, P.Q), samples, table, default, 0.0, results)


def _run_kernel(
    task: int,
    pair: ProgramPair,
    samples: SampleCosts,
    table: SolutionTable,
    default: States,
    strength: float,
    results: CompiledRegrets,
) -> None:
    """Run a task for all samples, in torch's threads where the work is worth it.

    The number of threads is either one or all of them. OpenMP ends threads that a call does not use, and would have to
    start them again for the next call.
    """
    run_batch = _compiled_method()
    (B, n), rows = samples.predicted.shape, pair.decision.J.shape[1]
    count = _threads_worth(B, n, rows)
    team = team_for_batch(B, n, rows)
    call = task, pair, samples, table, default, strength, results
    if team.threads == count:
        run_batch(*call, team, B)
        return
    parts = iter(range(0, B, team.step))

    def run_parts(worker: int) -> None:
        for first in parts:
            own = team._replace(turn=np.array([first, worker]))
            run_batch(*call, own, min(first + team.step, B))

    for future in [
        thread_pools.shared_thread_pool(count, "active-set").submit(run_parts, worker) for worker in range(count)
    ]:
        future.result()


@cache
def _compiled_method() -> Callable[..., None]:
    """Return ``run_batch``; its module imports numba, which takes a moment."""
    from pear.solvers.active_set.batch_kernel import run_batch

    method: Callable[..., None] = run_batch
    return method


def _threads_worth(B: int, n: int, rows: int) -> int:
    """The number of threads for a batch of B samples with n variables: one, or all of torch's."""
    return torch.get_num_threads() if B * (n + rows) >= _WORTH_THREADS else 1


def team_for_batch(B: int, n: int, rows: int) -> ThreadTeam:
    """Return the team of threads for a batch of B samples with n variables, at the beginning of the batch."""
    count = _threads_worth(B, n, rows)
    return thread_team(n, rows, count, max(1, B // (count * _PARTS)))


def thread_team(n: int, rows: int, count: int = 1, step: int = 1) -> ThreadTeam:
    """Return a team of ``count`` threads that take ``step`` samples at a time, at the beginning of a batch.

    Its memory is kept for the next batch. Where OpenMP is not available, ``ThreadTeam.threads`` is 1, and each thread
    of a pool runs the kernel on some of the samples.
    """
    address = _openmp_address() if count > 1 else 0
    work, _, _ = _own.of_size(n, rows, count)
    return ThreadTeam(address, count if address else 1, step, np.zeros(2, np.int64), work)


def _openmp_address() -> int:
    """Return the address of ``GOMP_parallel``; 0 where it is not to be used."""
    from pear.compile.jit import PRIVATE  # imports numba

    return openmp.openmp_address() if PRIVATE else 0


def _batched_array(fields: dict[str, Tensor], name: str, dimensions: int) -> Array | None:
    if name not in fields:
        return None
    value: Array = np.ascontiguousarray(fields[name].numpy())
    return value if value.ndim == dimensions else value[None]


def _stack_rows(parts: list[Array | None], empty: tuple[int, ...]) -> Array:
    """Stack equality rows above inequality rows. If only one part differs by sample, the other is repeated for each."""
    there = [part for part in parts if part is not None]
    if not there:
        return np.zeros(empty)
    size = max(len(part) for part in there)
    spread = [np.broadcast_to(part, (size, *part.shape[1:])) for part in there]
    return np.ascontiguousarray(np.concatenate(spread, 1))


def _nonzeros_by_column(J: Array) -> tuple[Any, Any, Array]:
    """Return the non-zeros of all samples by columns; empty arrays where J is too dense for that to pay."""
    some = (J != 0).any(0)
    if some.size == 0 or some.mean() > _SPARSE:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((1, 0))
    column, row = np.nonzero(some.T)
    start = np.searchsorted(column, np.arange(J.shape[2] + 1)).astype(np.int32)
    return start, row.astype(np.int32), np.ascontiguousarray(J[:, row, column])

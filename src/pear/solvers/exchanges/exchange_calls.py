"""Calls of the compiled exchanges from Python: tensors become arrays in equilibrated units, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, local

import numpy as np
import torch
from torch import Tensor

from pear.compile import thread_pools
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.tensor_record import TensorRecord
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Start
from pear.solvers.exchanges.exchange_arrays import (
    FREE,
    LOWER,
    UPPER,
    ExchangeMemory,
    ExchangeSamples,
    MaskedSystems,
    new_exchange_memory,
)
from pear.solvers.exchanges.exchange_plan import ExchangePlan
from pear.solvers.exchanges.exchange_search import search_exchanges
from pear.solvers.exchanges.masked_system import solve_masked_systems

_WORTH_THREADS = 8  # samples from which threads save more than they cost
_thread = local()


@dataclass(frozen=True)
class ExchangedPoints(TensorRecord):
    """The points after exchanges, which the caller has to verify.

    Attributes:
        x: (B, n) decisions.
        duals: their multipliers.
        working: the constraints that are held as equalities at the points.
        exchanges: (B,) how often the working set was changed, by exchanges and by proximal steps.
        done: (B,) bool, whether no constraint is wrong and the residual is small, so that the point is worth a
            verification.
    """

    x: Tensor
    duals: Duals
    working: ActiveSet
    exchanges: Tensor
    done: Tensor


def call_exchange_search(
    qp: QuadraticProgram, plan: ExchangePlan, start: Start, most: int, proximal: int
) -> ExchangedPoints:
    """Return the points after exchanges of constraints, which begin with the working sets of warm starts.

    The exchanges of a sample succeed when no constraint is wrong. If they fail, a proximal search follows.

    Args:
        qp: sparse programs.
        plan: the plan of their matrices.
        start: the warm starts, one for each sample.
        most: the largest number of exchanges of a sample.
        proximal: the largest number of factorisations of a proximal search; 0 for none.
    """
    samples = _pack_exchange_call(qp, plan, start)
    _run_exchange_calls(
        qp.batch,
        lambda first, last: search_exchanges(plan, samples, first, last, most, proximal, _exchange_call_memory(plan)),
    )
    return _unpack_exchange_call(plan, samples)


def call_exchange_systems(plan: ExchangePlan, active: ActiveSet, f: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solve ``[H Jᵀ; J 0][x; v] = [f; r]`` with J = [A; G] on sets of active constraints.

    Every set has the same number K of right-hand sides.

    Args:
        plan: the plan of the matrices.
        active: B sets of active constraints.
        f: (K, B, n) right-hand sides; entries of variables at bounds are ignored.
        r: (K, B, p + m) right-hand sides; entries of rows that are not active are ignored.

    Returns:
        x (K, B, n), zero at bounds; v (K, B, p + m), zero on rows that are not active; (K, B) bool, whether the
        relative residual is at most ``PROJECTED``.
    """
    count, batch, n = f.shape
    place = np.where(active.fixed.numpy(), LOWER, FREE).astype(np.int8)
    rows = active.rows.numpy()
    systems = MaskedSystems(
        place=place,
        held=np.concatenate([np.ones((batch, plan.equalities), bool), rows], 1),
        f=f.numpy() * plan.columns,
        r=r.numpy() * plan.rows,
        x=np.zeros((count, batch, n)),
        v=np.zeros((count, batch, len(plan.rows))),
        good=np.zeros((count, batch), bool),
    )
    _run_exchange_calls(
        batch, lambda first, last: solve_masked_systems(plan, systems, first, last, _exchange_call_memory(plan))
    )
    x, v = systems.x * plan.columns, systems.v * plan.rows
    return torch.from_numpy(x), torch.from_numpy(v), torch.from_numpy(systems.good)


def _run_exchange_calls(batch: int, run: Callable[[int, int], None]) -> None:
    """Call a function for all samples of a batch, in threads if the batch has enough samples.

    Args:
        batch: the number of samples.
        run: a function of ``first`` and ``last`` that handles the samples ``first`` to ``last − 1``.
    """
    stop = Event()

    def run_exchange_part(part: slice) -> None:
        if not stop.is_set():
            run(part.start, min(part.stop, batch))

    if batch < _WORTH_THREADS or thread_pools.thread_count() == 1:
        run(0, batch)
    else:
        thread_pools.run_in_threads(run_exchange_part, thread_pools.split_for_threads(batch), stop.set)


def _exchange_call_memory(plan: ExchangePlan) -> ExchangeMemory:
    """Return the memory that this thread keeps for a plan."""
    kept: tuple[ExchangePlan, ExchangeMemory] | None = getattr(_thread, "kept", None)
    if kept is None or kept[0] is not plan:
        kept = _thread.kept = plan, new_exchange_memory(plan)
    return kept[1]


def _pack_exchange_call(qp: QuadraticProgram, plan: ExchangePlan, start: Start) -> ExchangeSamples:
    """Convert the samples and their starts to arrays in equilibrated units.

    Bounds and rows that are infinite in the data are not held, even if the start holds them. A variable with equal
    bounds is always held.
    """
    B, p = qp.batch, qp.p
    sides = torch.cat([qp.b.expand(B, -1), qp.h.expand(B, -1)], 1).numpy()
    lb, ub = (bound.expand(B, -1).numpy() / plan.columns for bound in (qp.lb, qp.ub))
    lower, upper, rows = (part.numpy() for part in (start.working.lower, start.working.upper, start.working.rows))
    place = np.where(upper & np.isfinite(ub), UPPER, FREE).astype(np.int8)
    place[(lower & np.isfinite(lb)) | (lb == ub)] = LOWER
    v = torch.cat([start.duals.equality, start.duals.inequality], 1).nan_to_num().numpy() / plan.rows
    return ExchangeSamples(
        c=qp.c.numpy() * plan.columns,
        rhs=sides * plan.rows,
        lb=lb,
        ub=ub,
        x=start.x.nan_to_num().numpy() / plan.columns,
        v=v,
        bound=start.duals.bound.nan_to_num().numpy() * plan.columns,
        place=place,
        held=np.concatenate([np.ones((B, p), bool), rows & np.isfinite(sides[:, p:])], 1),
        exchanges=np.zeros(B, np.int64),
        done=np.zeros(B, bool),
    )


def _unpack_exchange_call(plan: ExchangePlan, samples: ExchangeSamples) -> ExchangedPoints:
    """Convert the results to tensors in the units of the data."""
    p, place = plan.equalities, samples.place
    x, v, bound = samples.x * plan.columns, samples.v * plan.rows, samples.bound / plan.columns
    multipliers = v[:, :p], np.where(samples.held[:, p:], v[:, p:], 0.0), bound
    working = samples.held[:, p:].copy(), place == LOWER, place == UPPER
    return ExchangedPoints(
        torch.from_numpy(x),
        Duals(*map(torch.from_numpy, multipliers)),
        ActiveSet(*map(torch.from_numpy, working)),
        torch.from_numpy(samples.exchanges),
        torch.from_numpy(samples.done),
    )

"""Integer decisions for many costs: each distinct one solved once, several at a time, every one proven optimal."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from multiprocessing import parent_process
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.solve import fail, solve
from pear.errors import SolveError
from pear.optimality.point import Status
from pear.problem import Problem
from pear.tasks.binary import FITS, Rows, Search

Array = NDArray[np.float64]
Item = TypeVar("Item")
Result = TypeVar("Result")

_SMALL = 50_000  # coefficients up to which the compiled search is tried before branch and cut
_FITS = 1e-6  # largest violation of a row by whole numbers that a solver took for feasible
_TIE = 1e-10  # relative: values that differ by less count as equal
_MARGIN = 1e-9  # the same for a solver, which needs some room
_RECENT = 1000  # decisions among which searches look for a start
_PARTS = 8  # parts for each thread


def default_jobs() -> int:
    """Threads to solve with: one for each core, and one in a worker process, whose siblings have the others."""
    if parent_process() is not None:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class IntegerOracle:
    """The best 0-1 decisions of ``max v·z, Gz ≤ h``, remembered for every v that was asked for.

    Compiled searches prove decisions optimal, several programs at a time; where one takes too long, HiGHS does (SciPy's
    where highspy is not installed), to a gap of zero. Decisions of the last calls are where a search starts: they
    change how long it takes, never what comes out. Threads are started at the first call and stay.

    Args:
        problem: 0-1 variables to maximise, inequality rows only, shared by all samples.
        memory: number of decisions to remember; the oldest go first.
        jobs: threads; None is one for each core, or one in a worker process.
    """

    def __init__(self, problem: Problem, memory: int = 50_000, jobs: int | None = None) -> None:
        assert problem.G is not None
        assert problem.h is not None
        self.problem, self.memory, self.jobs = problem, memory, jobs
        self.G, self.h = problem.G.numpy(), problem.h.numpy()
        self.known: dict[bytes, bytes] = {}
        self.recent: dict[bytes, None] = {}
        self.solved = 0

    def __call__(self, values: Tensor) -> Tensor:
        """(B, n) 0 or 1 in float64 for ``values`` (B, n).

        Raises:
            SolveError: a value is not finite, or no decision could be proven optimal.
        """
        rows = np.ascontiguousarray(values.detach().cpu().double().numpy()) + 0.0  # −0.0 is 0.0
        check_finite(values)
        keys = [row.tobytes() for row in rows]
        first: dict[bytes, int] = {}
        for i, key in enumerate(keys):
            if key not in self.known:
                first.setdefault(key, i)
        new = dict(zip(first, self._solve(rows, list(first.values())), strict=True)) if first else {}
        bits = [new[key] if key in new else self.known[key] for key in keys]
        self._remember(new)
        return torch.from_numpy(_unpacked(bits, rows.shape[1]).astype(np.float64)).to(values.device)

    def worst(self, predicted: Tensor, true: Tensor) -> Tensor:
        """(B, n) of all decisions that are best under ``predicted`` the one that earns least under ``true``."""
        check_finite(true)
        best = self(predicted).cpu().numpy()
        rows, bills = (x.detach().cpu().double().numpy() for x in (predicted, true))

        slack = np.append(np.full(len(self.h), FITS), 0.0)

        def search(i: int) -> Array | None:
            G, h = self._among_best(rows[i], float(rows[i] @ best[i]), _TIE)
            return Search(-bills[i], G, h, start=best[i], slack=slack).run()

        shared = np.flatnonzero(~self._alone(rows, best)).tolist()
        found = dict(zip(shared, self._map(search, shared), strict=True))
        left = [i for i, z in found.items() if z is None]
        outcomes = self._map(lambda i: self._worst_by_solver(rows[i], bills[i], best[i]), left)
        for i, z in (found | dict(zip(left, outcomes, strict=True))).items():
            best[i] = z
        return torch.from_numpy(best).to(predicted.device)

    def _alone(self, rows: Array, best: Array) -> NDArray[np.bool_]:
        """(B,) True where the ``best`` decisions are proven to have no equal."""
        if self.G.size > _SMALL:
            return np.zeros(len(rows), bool)
        parts = self._parts(len(rows))
        alone = self._map(lambda part: Search(rows[part], self.G, self.h, best[part]).alone(_TIE), parts)
        return np.concatenate([np.zeros(0, bool), *alone])

    def _solve(self, rows: Array, wanted: Sequence[int]) -> list[bytes]:
        """The decisions for the rows ``wanted``, as bits."""
        values = rows[wanted]
        found = np.full(values.shape, np.nan)
        if self.G.size <= _SMALL:
            found = self._search(values)
        left = np.flatnonzero(np.isnan(found).any(1)).tolist()
        outcomes = self._map(lambda i: self._by_solver(values[i]), left)
        status = torch.zeros(len(rows), dtype=torch.int8)
        for i, (z, fate) in zip(left, outcomes, strict=True):
            found[i], status[wanted[i]] = z, fate
        fail(status, "raise", "the integer problem")
        self.solved += len(wanted)
        return [bits.tobytes() for bits in np.packbits(found > 0.5, axis=1)]

    def _search(self, values: Array) -> Array:
        """(B, n) decisions, NaN where a search gave up."""
        starts = self._starts(values)
        parts = self._parts(len(values))

        def search(part: slice) -> Array | None:
            return Search(values[part], self.G, self.h, None if starts is None else starts[part]).run()

        found = self._map(search, parts)
        missing = (np.full(values[part].shape, np.nan) for part in parts)
        return np.concatenate([m if z is None else z for z, m in zip(found, missing, strict=True)])

    def _starts(self, values: Array) -> Array | None:
        """(B, n) for each row of ``values`` the best of the decisions found last."""
        if not self.recent or Rows.of(self.G, self.h).weights is not None:
            return None
        decisions = _unpacked(list(self.recent), values.shape[1])
        worth = values.astype(np.float32) @ decisions.T.astype(np.float32)
        return decisions[worth.argmax(1)].astype(np.float64)

    def _among_best(self, value: Array, best: float, tie: float) -> tuple[Array, Array]:
        """Rows and limits of the decisions that earn as much as the ``best``."""
        return np.concatenate([self.G, -value[None]]), np.append(self.h, -(best - tie * (1 + abs(best))))

    def _by_solver(self, value: Array) -> tuple[Array, int]:
        """Branch and cut to a gap of zero; a point that does not fit after rounding is not taken."""
        try:
            solution = solve(self.problem, torch.from_numpy(value)[None])
        except SolveError as error:
            return np.full_like(value, np.nan), error.statuses[0]
        fits = float(solution.kkt_residual[0]) <= _FITS
        return solution.x[0].numpy(), int(Status.SOLVED if fits else Status.INACCURATE)

    def _worst_by_solver(self, value: Array, bill: Array, best: Array) -> Array:
        """The least under ``bill`` among what earns as much as ``best``, as a second integer program."""
        G, h = self._among_best(value, float(value @ best), _MARGIN)
        second = Problem(G=G, h=h, lb=0.0, ub=1.0, sense="min", integer=True)
        return solve(second, torch.from_numpy(bill)[None]).x[0].numpy()

    def _parts(self, count: int) -> list[slice]:
        """Small parts, so that no thread is left with a hard one while the others have nothing to do."""
        size = max(1, count // (_PARTS * self._threads()))
        return [slice(k, k + size) for k in range(0, count, size)]

    def _threads(self) -> int:
        return self.jobs or default_jobs()

    def _map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        jobs = self._threads()
        if jobs == 1 or len(items) < 2:
            return [function(item) for item in items]
        return list(_pool(jobs).map(function, items))

    def _remember(self, new: dict[bytes, bytes]) -> None:
        self.known.update(new)
        _forget(self.known, self.memory)
        for bits in new.values():
            self.recent.pop(bits, None)
            self.recent[bits] = None
        _forget(self.recent, _RECENT)


def _forget(memory: dict[bytes, Any], size: int) -> None:
    """Drop the oldest entries."""
    for key in list(islice(memory, max(0, len(memory) - size))):
        del memory[key]


def _unpacked(bits: Sequence[bytes], n: int) -> NDArray[np.uint8]:
    """(B, n) from B rows of bits."""
    packed = np.frombuffer(b"".join(bits), np.uint8).reshape(len(bits), -(-n // 8))
    return np.unpackbits(packed, axis=1, count=n)


def check_finite(values: Tensor) -> None:
    """Raise SolveError for rows with NaN or infinity."""
    unusable = ~values.isfinite().all(1)
    fail(torch.where(unusable, int(Status.NOT_FINITE), int(Status.SOLVED)), "raise", "the integer problem")


@cache
def _pool(jobs: int) -> ThreadPoolExecutor:
    """One pool for all tasks; Python ends its threads at exit."""
    return ThreadPoolExecutor(jobs, thread_name_prefix="pear-integer")

"""Integer decisions for many costs: each distinct one solved once, several at a time, every one proven optimal."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import parent_process
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import SolveError
from pear.geometry.solve import fail, solve
from pear.problem import Problem
from pear.solvers.solution import Status
from pear.tasks.binary import Search

Array = NDArray[np.float64]
Item = TypeVar("Item")
Result = TypeVar("Result")

_SMALL = 1000  # items up to which the search close to the relaxation is tried before branch and cut
_FITS = 1e-6  # largest violation of a row by whole numbers that a solver took for feasible
_MARGIN = 1e-9  # relative: values that differ by less count as equal


def default_jobs() -> int:
    """Threads to solve with: one for each core, and one in a worker process, whose siblings have the others."""
    if parent_process() is not None:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class IntegerOracle:
    """The best 0-1 decisions of ``max v·z, Gz ≤ h``, remembered for every v that was asked for.

    A search close to the relaxation proves most decisions optimal; where it takes too long, HiGHS does (SciPy's where
    highspy is not installed), to a gap of zero. Threads are started at the first call and stay.

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
        self.known: dict[bytes, NDArray[np.uint8]] = {}
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
        chosen = np.zeros(rows.shape)
        for i, key in enumerate(keys):
            chosen[i] = np.unpackbits(new[key] if key in new else self.known[key], count=rows.shape[1])
        self._remember(new)
        return torch.from_numpy(chosen).to(values.device)

    def worst(self, predicted: Tensor, true: Tensor) -> Tensor:
        """(B, n) of all decisions that are best under ``predicted`` the one that earns least under ``true``."""
        check_finite(predicted)
        check_finite(true)
        rows, bills = (x.detach().cpu().double().numpy() for x in (predicted, true))
        multipliers = self._multipliers(rows)
        pairs = list(zip(rows, bills, multipliers, strict=True))
        found = self._map(lambda one: Search(one[0], self.G, self.h, one[2], against=one[1]).run(), pairs)
        left = [i for i, z in enumerate(found) if z is None]
        for i, z in zip(left, self._map(lambda i: self._worst_by_solver(rows[i], bills[i]), left), strict=True):
            found[i] = z
        return torch.from_numpy(np.stack([z for z in found if z is not None])).to(predicted.device)

    def _solve(self, rows: Array, wanted: Sequence[int]) -> list[NDArray[np.uint8]]:
        """The decisions for the rows ``wanted``, as bits."""
        small = rows.shape[1] <= _SMALL
        multipliers = self._multipliers(rows[wanted]) if small else None

        def search(position: int) -> Array | None:
            if multipliers is None:
                return None
            return Search(rows[wanted[position]], self.G, self.h, multipliers[position]).run()

        found = self._map(search, range(len(wanted)))
        left = [position for position, z in enumerate(found) if z is None]
        outcomes = self._map(lambda position: self._by_solver(rows[wanted[position]]), left)
        status = torch.zeros(len(rows), dtype=torch.int8)
        for position, (z, fate) in zip(left, outcomes, strict=True):
            found[position], status[wanted[position]] = z, fate
        fail(status, "raise", "the integer problem")
        self.solved += len(wanted)
        return [np.packbits(z > 0.5) for z in found if z is not None]

    def _by_solver(self, value: Array) -> tuple[Array, int]:
        """Branch and cut to a gap of zero; a point that does not fit after rounding is not taken."""
        try:
            solution = solve(self.problem, torch.from_numpy(value)[None])
        except SolveError as error:
            return np.full_like(value, np.nan), error.statuses[0]
        fits = float(solution.kkt_residual[0]) <= _FITS
        return solution.x[0].numpy(), int(Status.SOLVED if fits else Status.INACCURATE)

    def _worst_by_solver(self, value: Array, bill: Array) -> Array:
        """The least under ``bill`` among what reaches the best value, as a second integer program."""
        best, status = self._by_solver(value)
        fail(torch.tensor([status]), "raise", "the integer problem")
        least = float(value @ best)
        row = np.concatenate([self.G, -value[None]])
        limits = np.append(self.h, -(least - _MARGIN * (1 + abs(least))))
        second = Problem(G=row, h=limits, lb=0.0, ub=1.0, sense="min", integer=True)
        return solve(second, torch.from_numpy(bill)[None]).x[0].numpy()

    def _multipliers(self, rows: Array) -> Array:
        """(B, m) multipliers of the relaxation's rows."""
        duals = solve(self.problem.relaxed(), torch.from_numpy(rows)).duals
        assert duals is not None
        return duals.inequality.clamp(min=0).numpy()

    def _map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        jobs = self.jobs or default_jobs()
        if jobs == 1 or len(items) < 2:
            return [function(item) for item in items]
        return list(_threads(jobs).map(function, items))

    def _remember(self, new: dict[bytes, NDArray[np.uint8]]) -> None:
        self.known.update(new)
        for key in list(self.known)[: max(0, len(self.known) - self.memory)]:
            del self.known[key]


def check_finite(values: Tensor) -> None:
    """Raise SolveError for rows with NaN or infinity."""
    unusable = ~values.isfinite().all(1)
    fail(torch.where(unusable, int(Status.NOT_FINITE), int(Status.SOLVED)), "raise", "the integer problem")


@cache
def _threads(jobs: int) -> ThreadPoolExecutor:
    """One pool for all tasks; Python ends its threads at exit."""
    return ThreadPoolExecutor(jobs, thread_name_prefix="pear-integer")

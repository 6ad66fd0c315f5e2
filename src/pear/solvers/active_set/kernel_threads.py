"""The threads that share a call of the batch kernel, and the memory that a calling thread keeps for its next call."""

from __future__ import annotations

from threading import local

import numpy as np
import torch

from pear.compile import openmp
from pear.solvers.active_set.kernel_arrays import (
    SolutionTable,
    States,
    ThreadTeam,
    WorkMemory,
    new_kernel_memory,
    new_kernel_solutions,
    new_kernel_states,
)

_WORTH_THREADS = 4_000  # variables and rows, over all samples, below which threads cost more than they save
_PARTS = 8  # parts of a batch for each thread: several, because samples take different times
_MOST_SIZES = 8  # sizes of programs for which a thread keeps memory
_NO_FINGERPRINTS = np.zeros((0, 0))


class KernelThreadMemory(local):
    """The memory that a calling thread keeps for its next call. Every calling thread has an instance with its own data.

    Kernels run without Python's lock, so that two calling threads must not share memory.

    Attributes:
        kept: for every (number of variables, number of rows, number of workers): the memory of the workers, and two
            ``States`` with one row for each worker, for predicted and for true costs.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int, int], tuple[WorkMemory, States, States]] = {}

    def of_size(self, n: int, rows: int, count: int) -> tuple[WorkMemory, States, States]:
        """Return the memory of ``count`` workers for programs of this size; allocate it when it is first needed."""
        size = n, rows, count
        if size not in self.kept:
            if len(self.kept) >= _MOST_SIZES:
                self.kept.clear()
            states = new_kernel_states(count, n, rows), new_kernel_states(count, n, rows)
            self.kept[size] = new_kernel_memory(n, rows, count), *states
        return self.kept[size]


_memory = KernelThreadMemory()


def count_kernel_threads(B: int, n: int, rows: int) -> int:
    """Return how many threads should solve a batch of B programs of this size: one, or all of torch's threads.

    The result is never a number in between, because OpenMP ends the threads that a call does not use, and would have to
    start them again for the next call.
    """
    return torch.get_num_threads() if B * (n + rows) >= _WORTH_THREADS else 1


def kernel_threads_for_batch(B: int, n: int, rows: int) -> ThreadTeam:
    """Return the threads for a batch of B programs of this size, ready to begin with the first sample."""
    count = count_kernel_threads(B, n, rows)
    return kernel_thread_team(n, rows, count, max(1, B // (count * _PARTS)))


def kernel_thread_team(n: int, rows: int, count: int = 1, step: int = 1) -> ThreadTeam:
    """Return a team of ``count`` threads that take ``step`` samples at a time, ready to begin with the first sample.

    The calling thread keeps the memory of the team for its next call. If OpenMP is not available, the team is the
    calling thread alone.
    """
    address = 0
    if count > 1:
        from pear.compile.jit import PRIVATE  # imports numba

        address = openmp.openmp_address() if PRIVATE else 0
    work, _, _ = _memory.of_size(n, rows, count)
    return ThreadTeam(address, count if address else 1, step, np.zeros(2, np.int64), work)


def kernel_thread_table(size: int, n: int, p: int, m: int) -> SolutionTable:
    """Return a table for the regrets of ``size`` samples whose solutions are not kept after the call.

    The warm starts have one row for each worker, in the memory of the calling thread. The arrays of solutions are
    allocated by this function. The programs have n variables, p equalities and m inequalities.
    """
    _, predicted, true = _memory.of_size(n, p + m, count_kernel_threads(size, n, p + m))
    return SolutionTable(predicted, true, new_kernel_solutions(size, n, p, m), _NO_FINGERPRINTS)

"""A pool of worker processes with one thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def map_in_worker_pool(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    """Yield the result of each job as soon as it is known. With one worker, this process does the jobs in order."""
    if workers == 1:
        _use_one_thread_per_worker()
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers, _use_one_thread_per_worker) as pool:
        yield from pool.imap_unordered(work, jobs)


def _use_one_thread_per_worker() -> None:
    """Set the number of threads of this process to one."""
    import numba
    import torch

    torch.set_num_threads(1)
    numba.set_num_threads(1)

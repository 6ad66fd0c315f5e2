"""How many programs are solved at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from multiprocessing import parent_process
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_PARTS = 8  # parts for each thread
_JOBS: ContextVar[int | None] = ContextVar("jobs", default=None)


@contextmanager
def using(jobs: int | None) -> Iterator[None]:
    """Solve with this many threads inside; None is one for each core, and one in a worker process."""
    token = _JOBS.set(jobs)
    try:
        yield
    finally:
        _JOBS.reset(token)


def count() -> int:
    """Threads to solve with."""
    if (jobs := _JOBS.get()) is not None:
        return jobs
    if parent_process() is not None:  # whose other workers have the other cores
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parts(size: int) -> list[slice]:
    """Small parts, so that no thread is left with a hard one while the others have nothing to do."""
    step = max(1, size // (_PARTS * count()))
    return [slice(k, k + step) for k in range(0, size, step)]


def run(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results for all items, in their order."""
    jobs = count()
    if jobs == 1 or len(items) < 2:
        return [function(item) for item in items]
    return list(_pool(jobs).map(function, items))


@cache
def _pool(jobs: int) -> ThreadPoolExecutor:
    """One pool for all; Python ends its threads at exit."""
    return ThreadPoolExecutor(jobs, thread_name_prefix="pear-binary")

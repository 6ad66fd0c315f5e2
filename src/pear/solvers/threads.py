"""How many programs are solved at a time, in threads that can be stopped."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from multiprocessing import parent_process
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_PARTS = 8  # parts for each thread
_TICK = 0.1  # seconds between two looks at the clock: the caller's thread waits, and hears Ctrl-C meanwhile
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


def run(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    stop: Callable[[], None],
    seconds: float = math.inf,
) -> list[Result]:
    """The results for all items, in their order.

    Args:
        function: called in a thread for each item; compiled code in it has to release Python's lock.
        items: what is to be done.
        stop: makes every call of ``function``, begun or not, return soon. Called when time is up, and on Ctrl-C, which
            is raised here once the calls that have begun are back.
        seconds: until then.
    """
    end = time.monotonic() + seconds
    futures = [_pool(count()).submit(function, item) for item in items]
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, min(_TICK, max(0.0, end - time.monotonic())), FIRST_EXCEPTION)
            for future in done:
                future.result()
            if pending and time.monotonic() >= end:
                stop()
                end = math.inf
        return [future.result() for future in futures]
    finally:  # after Ctrl-C, or the error of one item, nobody goes on working for a call that is over
        if begun := [future for future in futures if not future.cancel() and not future.done()]:
            stop()
            wait(begun)


@cache
def _pool(jobs: int) -> ThreadPoolExecutor:
    """One pool for all; Python ends its threads at exit."""
    return ThreadPoolExecutor(jobs, thread_name_prefix="pear-integer")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads

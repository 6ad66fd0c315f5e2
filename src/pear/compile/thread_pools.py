"""Thread pools: how many threads a solve uses, and calls in threads that can be stopped."""

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

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_PARTS = 8  # parts of a batch for each thread
_TICK = 0.1  # seconds between two checks of the clock, at which Ctrl-C is noticed too
_JOBS: ContextVar[int | None] = ContextVar("jobs", default=None)


@contextmanager
def limit_threads(jobs: int | None) -> Iterator[None]:
    """Make a context within which solves use ``jobs`` threads.

    Args:
        jobs: the number of threads. None for the default: one thread per core, but a single thread in a process that
            ``multiprocessing`` has started.
    """
    token = _JOBS.set(jobs)
    try:
        yield
    finally:
        _JOBS.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """Make a context within which torch computes on one thread, which is faster for small batches."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_count() -> int:
    """Return the number of threads that a solve uses."""
    if (jobs := _JOBS.get()) is not None:
        return jobs
    if parent_process() is not None:  # other worker processes use the other cores
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_for_threads(size: int) -> list[slice]:
    """Divide ``size`` samples into slices, which are so small that all threads end at about the same time."""
    step = max(1, size // (_PARTS * thread_count()))
    return [slice(k, k + step) for k in range(0, size, step)]


def run_in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    stop: Callable[[], None],
    seconds: float = math.inf,
) -> list[Result]:
    """Call ``function`` for every item, in threads, and return the results in the order of the items.

    After Ctrl-C or an error in a call, all calls that have begun are stopped before the exception is raised.

    Args:
        function: the function to call. Calls run in parallel only if they release Python's global lock.
        items: the arguments, one for each call.
        stop: makes every call of ``function`` return soon, including calls that have not begun. ``stop`` is called when
            the time is up, after an error, and on Ctrl-C.
        seconds: the time after which ``stop`` is called.
    """
    end = time.monotonic() + seconds
    futures = [shared_thread_pool(thread_count(), "integer").submit(function, item) for item in items]
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
    finally:  # after Ctrl-C or an error, calls that have begun are stopped
        if begun := [future for future in futures if not future.cancel() and not future.done()]:
            stop()
            wait(begun)


def map_in_threads(function: Callable[[int], None], count: int) -> None:
    """Call ``function(i)`` for i = 0, …, count − 1 in threads. There are at most as many threads as torch uses."""
    threads = min(torch.get_num_threads(), count)
    if threads < 2:
        for i in range(count):
            function(i)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="pear-sparse") as pool:
        list(pool.map(function, range(count)))


def shared_thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return this process's thread pool of this name and size. Python ends its threads at exit."""
    return _thread_pool(threads, name, os.getpid())  # a forked process does not inherit threads


@cache
def _thread_pool(threads: int, name: str, process: int) -> ThreadPoolExecutor:
    """Make the pool that ``shared_thread_pool`` returns in the process with this id."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"pear-{name}")

"""Thread pools: how many threads to use, work that can be stopped, and the address of torch's own threads."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_PARTS = 8  # for each thread
_TICK = 0.1  # seconds between two looks at the clock; Ctrl-C is noticed in between
_PROCESS = os.getpid()  # as long as it is the same, nobody has forked since this module was imported
_JOBS: ContextVar[int | None] = ContextVar("jobs", default=None)


@contextmanager
def limit_threads(jobs: int | None) -> Iterator[None]:
    """Set how many threads the calls inside use; None is one for each core, and one in a worker process."""
    token = _JOBS.set(jobs)
    try:
        yield
    finally:
        _JOBS.reset(token)


def thread_count() -> int:
    """How many threads to solve with."""
    if (jobs := _JOBS.get()) is not None:
        return jobs
    if parent_process() is not None:  # its other workers use the other cores
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_samples(size: int) -> list[slice]:
    """Split ``size`` samples into small parts, so that no thread works alone on a large one at the end."""
    step = max(1, size // (_PARTS * thread_count()))
    return [slice(k, k + step) for k in range(0, size, step)]


def run_in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    stop: Callable[[], None],
    seconds: float = math.inf,
) -> list[Result]:
    """Call ``function`` for every item, in threads, and return the results in the order of the items.

    Args:
        function: called in a thread; compiled code in it has to release Python's lock.
        items: its arguments, one for each call.
        stop: makes every call of ``function``, begun or not, return soon. It is called when time is up, and on Ctrl-C,
            which is raised here once the calls that have begun are back.
        seconds: time after which ``stop`` is called.
    """
    end = time.monotonic() + seconds
    futures = [shared_pool(thread_count(), "integer").submit(function, item) for item in items]
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


def shared_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """The pool of that name, one for the whole process; Python ends its threads at exit."""
    return _pool(threads, name, os.getpid())  # a forked child has none of its parent's threads


@cache
def _pool(threads: int, name: str, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=f"pear-{name}")


def openmp_address() -> int:
    """The address of ``GOMP_parallel`` in the OpenMP library that torch uses; 0 where there is none.

    A forked child gets 0: the library would wait for its parent's threads, which the child does not have.
    """
    return _find_openmp() if os.getpid() == _PROCESS else 0


@cache
def _find_openmp() -> int:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists():
        return 0
    function = getattr(ctypes.CDLL(str(library)), "GOMP_parallel", None)  # found in what torch is linked with, too
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0

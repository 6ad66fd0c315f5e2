"""One way to measure for all sides: the same loop, the same number of threads, the same waiting for the device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pear.bench.peers.workers.worker import Step, measure, synchronize
from pear.errors import ProblemError

__all__ = ["Step", "check_device", "measure", "synchronize", "threads"]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads, in torch and in compiled loops."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= count <= cores:
        raise ProblemError(f"--threads must be from 1 to {cores}, the cores there are; got {count}")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    compiled = _compiled_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if compiled is not None:
            _compiled_threads(compiled)


def check_device(device: str) -> str:
    """The device, if it can be used here.

    Raises:
        ProblemError: it is none, or not here.
    """
    if device not in ("cpu", "cuda"):
        raise ProblemError(f"--device must be cpu or cuda; got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ProblemError("--device cuda: torch sees no CUDA device here; use --device cpu")
    return device


def _compiled_threads(count: int) -> int | None:
    """Set the threads of compiled loops; how many there were before, None where nothing is compiled."""
    try:
        import numba
    except ImportError:
        return None
    before: int = numba.get_num_threads()
    numba.set_num_threads(min(count, vars(numba.config)["NUMBA_NUM_THREADS"]))
    return before

"""The conditions of timing: the device, the number of threads, and the forward and backward pass that is timed.

The loop and the clocks are in ``pear_lab.peers.workers.worker``, so that they are the same for all libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numba
import torch
from torch import Tensor

from pear.compile.thread_pools import thread_count as core_count
from pear.errors import ProblemError


@contextmanager
def use_timing_threads(count: int | None) -> Iterator[None]:
    """Make a context within which torch and compiled loops use ``count`` threads; None changes nothing.

    Raises:
        ProblemError: the count is below 1, or above the number of cores of this machine.
    """
    if count is None:
        yield
        return
    cores = core_count()
    if not 1 <= count <= cores:
        raise ProblemError(f"--threads must be from 1 to {cores}, the cores there are; got {count}")
    before, compiled = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, vars(numba.config)["NUMBA_NUM_THREADS"]))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        numba.set_num_threads(compiled)


def timed_gradient(cost: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the gradient of the scalar function ``value`` at ``cost``, by a forward and a backward pass."""
    moving = cost.clone().requires_grad_()
    value(moving).backward()
    assert moving.grad is not None
    return moving.grad


def check_timing_device(device: str) -> None:
    """Check that a device can be used here.

    Raises:
        ProblemError: the name is not a device, or the machine has no such device.
    """
    if device not in ("cpu", "cuda"):
        raise ProblemError(f"--device must be cpu or cuda; got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ProblemError("--device cuda: torch sees no CUDA device here; use --device cpu")

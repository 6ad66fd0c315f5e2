"""The iteration as a CUDA graph: one launch for what would be a hundred.

Where the matrices of a batch are small, a GPU works less long on an iteration than Python takes to ask for it. The
iteration is then captured, and replayed for every batch of the same shapes. The rule: capturing takes as long as some
solves, so that the first batch of its shapes is asked for step by step, and the second one is captured; batches whose
matrices are large keep the GPU busy by themselves, and are never captured. Where a library refuses to be captured, a
warning says so, and everything is asked for step by step: the arithmetic is the same.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from pear.solvers.interior_point.newton import Newton, Scaled

logger = logging.getLogger("pear")

_LARGE = 2**26  # numbers in the largest matrices of a batch, from which on nothing is captured
_KEPT = 2**27  # and of all that is kept
_REMEMBERED = 64  # shapes

_Key = tuple[Any, ...]


class _Kept(threading.local):
    """Of one thread: the shapes that were seen, in the order of their last use; None where not captured."""

    def __init__(self) -> None:
        self.shapes: OrderedDict[_Key, Captured | None] = OrderedDict()
        self.refused = False


_kept = _Kept()


class Captured(Newton):
    """The iterates of a batch on a GPU, with both of their parts captured.

    Args:
        data: the first batch; of others of the same shapes, ``load`` takes over the numbers.
    """

    def __init__(self, data: Scaled) -> None:
        super().__init__(data.clone())
        self.numbers = _numbers(data)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries make their handles and workspaces before anything is captured
            super().begin()
            super().advance()
        torch.cuda.current_stream().wait_stream(side)
        self._begin = _capture(super().begin)
        self._advance = _capture(super().advance)

    def load(self, data: Scaled) -> None:
        """Take over the numbers of another batch."""
        for mine, theirs in zip(self.data.tensors, data.tensors, strict=True):
            mine.copy_(theirs)

    def begin(self) -> None:
        """As ``Newton.begin``."""
        self._begin.replay()

    def advance(self) -> None:
        """As ``Newton.advance``."""
        self._advance.replay()


def iterates(data: Scaled) -> Newton:
    """The iterates of a batch; on a GPU captured where that is worth it, on a CPU never."""
    numbers = _numbers(data)
    if not data.c.is_cuda or numbers > _LARGE or _kept.refused:
        return Newton(data)
    shapes = _kept.shapes
    key = (data.c.device, *(tensor.shape for tensor in data.tensors))
    if key not in shapes:
        shapes[key] = None
        if len(shapes) > _REMEMBERED:
            shapes.popitem(last=False)
        return Newton(data)
    shapes.move_to_end(key)
    found = shapes[key]
    if found is None:
        for other, captured in shapes.items():  # oldest first
            if captured is not None and numbers + sum(c.numbers for c in shapes.values() if c is not None) > _KEPT:
                shapes[other] = None
        try:
            with torch.cuda.device(data.c.device):
                found = shapes[key] = Captured(data)
        except RuntimeError as error:
            logger.warning("the interior point runs without CUDA graphs, which this installation refuses: %s", error)
            _kept.refused = True
            return Newton(data)
    found.load(data)
    return found


def _numbers(data: Scaled) -> int:
    """How many numbers the largest matrices of an iteration hold."""
    (B, n), k = data.c.shape, data.R.shape[1]
    return B * n * (k if data.H.dim() == 2 and k < n else max(k, n))


def _capture(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function()
    return graph

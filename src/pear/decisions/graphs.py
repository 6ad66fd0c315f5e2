"""A function of tensors as a CUDA graph: one launch for what would be hundreds.

Where tensors are small, a GPU works less long on a function than Python takes to ask for it step by step. The first
call under a key runs step by step, the second captures, and every further one replays what was captured.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor

logger = logging.getLogger("pear")

_KEPT = 8  # graphs, each with memory of its own
_SEEN = 64  # keys

Result = TypeVar("Result")


class Graphs:
    """What has been captured of the functions of one object; dropped when that is copied.

    A function that is captured reads no value back from the device, and depends on its tensors and its key alone.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._found: OrderedDict[Hashable, _Graph | None] = OrderedDict()
        self._refused = False

    def run(
        self,
        key: Hashable,
        function: Callable[..., Result],
        tensors: tuple[Tensor, ...],
        copied: Callable[[Result], Result],
    ) -> Result:
        """``function(*tensors)``.

        Args:
            key: of the function, with all that it depends on beside the tensors.
            function: what is captured.
            tensors: of any values; those of a key are alike in shape and type.
            copied: copies what has to outlive the call of a result whose tensors the next call writes to.
        """
        device = tensors[0].device
        if not captures(device) or self._refused:
            return function(*tensors)
        alike = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        with self._lock:  # whose threads share the tensors of a graph
            graph = self._graph((key, alike, stream_of(device)), function, tensors)
            return function(*tensors) if graph is None else copied(graph(tensors))

    def _graph(self, key: Hashable, function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> _Graph | None:
        found = self._found
        if key not in found:
            found[key] = None
            if len(found) > _SEEN:
                found.popitem(last=False)
            return None
        found.move_to_end(key)
        if found[key] is None:
            captured = [one for one, graph in found.items() if graph is not None]
            for oldest in captured[: len(captured) - _KEPT + 1]:
                found[oldest] = None
            try:
                found[key] = _Graph(function, tensors)
            except RuntimeError as error:
                logger.warning("no CUDA graphs, because this installation refuses to capture: %s", error)
                self._refused = True
        return found[key]


class _Graph:
    """A captured function with tensors of its own, which those of a call are copied to."""

    def __init__(self, function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> None:
        self._function = function  # and all that it refers to, whose memory the graph reads
        self._given = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
        self._result, self._replay = capture(lambda: function(*self._given), tensors[0].device)

    def __call__(self, tensors: tuple[Tensor, ...]) -> Any:
        for mine, given in zip(self._given, tensors, strict=True):
            mine.copy_(given)
        self._replay()
        return self._result


def captures(device: torch.device) -> bool:
    """Whether functions are captured there."""
    return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()


def stream_of(device: torch.device) -> int:
    """The queue that a graph belongs to."""
    return torch.cuda.current_stream(device).cuda_stream


def capture(function: Callable[[], Result], device: torch.device) -> tuple[Result, Callable[[], None]]:
    """Run a function, so that libraries make their handles and workspaces, and capture it.

    Returns:
        Its result, and what computes it again in place.
    """
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = function()
    return result, graph.replay

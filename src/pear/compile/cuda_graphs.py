"""Functions of tensors as CUDA graphs: one launch in place of hundreds.

If tensors are small, a GPU needs less time to run a function than Python needs to launch the kernels of the function
one by one. The function is then captured once as a CUDA graph, and replayed for all tensors of the same shapes. The
rules are:

- On a CPU nothing is captured.
- The first call with given shapes runs step by step, and the second call captures the function, because a capture takes
  as long as several calls.
- A function that works on many numbers is never captured, because its kernels keep the GPU busy.
- If the captured functions work on too many numbers together, the least recently used ones are dropped.
- After three failed captures in one ``CudaGraphStore``, a warning is logged, and all functions of this store run step
  by step.

The arithmetic is the same in all cases. A function can be captured if it never reads a number of a tensor on the host
(no ``bool``, ``int`` or ``tolist`` of a tensor, no mask as an index) and its result depends only on its name and its
arguments. Arguments and results are tensors, constants, sequences of tensors and constants, or objects of this package
whose attributes are such values.
"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram

logger = logging.getLogger("pear")

_LARGE = 1 / 64  # share of the GPU's memory; a function that works on more numbers is not captured
_KEPT = 1 / 32  # share of the GPU's memory that all captured functions together may work on
_MOST_KEYS = 256  # largest number of combinations of a name and shapes in a store
_TRIES = 3  # failed captures after which no more are tried

Captured = TypeVar("Captured")


class CudaGraphStore(threading.local):
    """The captured functions of one thread.

    Functions that depend only on their arguments share one store. If captured functions also read the tensors of an
    object, this object has a separate store, which it drops together with its tensors.

    Attributes:
        found: maps a name with shapes to the captured function and the number of numbers that the function works on, or
            to None if the function is not captured yet, or has been dropped. The most recently used come last.
        refusals: the number of failed captures.
    """

    def __init__(self) -> None:
        self.found: OrderedDict[Hashable, tuple[Any, int] | None] = OrderedDict()
        self.refusals = 0

    @property
    def refused(self) -> bool:
        """True if captures have failed so often that no more are tried."""
        return self.refusals >= _TRIES


_store = CudaGraphStore()


def run_as_graph(name: Hashable, function: Callable[..., Any], arguments: Sequence[Any], numbers: int) -> Any:
    """Call ``function(*arguments)``, by a CUDA graph if this saves time.

    Args:
        name: identifies the function and everything that its result depends on besides the arguments.
        function: the function to call.
        arguments: the arguments, with all tensors on one device. If they contain dictionaries, a captured function gets
            empty ones instead.
        numbers: about how many numbers the function works on.
    """
    tensors: list[Tensor] = []
    form = _split_graph_value(list(arguments), tensors)

    def flat(given: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
        results: list[Tensor] = []
        return _split_graph_value(function(*_join_graph_value(form, given)), results), results

    found = captured_graph((name, form), tensors, numbers, lambda: CapturedGraph(flat, tensors))
    return function(*arguments) if found is None else _replay_graph_and_copy(found, tensors)


def run_programs_as_graph(name: str, function: Callable[..., Any], qp: QuadraticProgram, *given: Any) -> Any:
    """Call ``function(qp, *given)``, by a CUDA graph if the programs are on a GPU and this saves time."""
    if not qp.c.is_cuda:
        return function(qp, *given)
    return run_as_graph(name, function, (qp, *given), sum(matrix.numel() for matrix in (qp.H, qp.A, qp.G)))


def captured_graph(
    name: Hashable,
    tensors: Sequence[Tensor],
    numbers: int,
    make: Callable[[], Captured],
    store: CudaGraphStore = _store,
) -> Captured | None:
    """Return the captured function for tensors of these shapes; None if the caller has to run it step by step.

    Args:
        name: identifies the function.
        tensors: the tensors of this call, all on one device.
        numbers: about how many numbers the function works on.
        make: makes the captured function. It is called only if the function is to be captured in this call.
        store: the store of captured functions.
    """
    device = tensors[0].device
    if device.type != "cuda" or store.refused or torch.cuda.is_current_stream_capturing():
        return None
    room = torch.cuda.get_device_properties(device).total_memory / 8
    if numbers > _LARGE * room:
        return None
    queue = torch.cuda.current_stream(device).cuda_stream  # calls in one stream follow each other
    found, key = store.found, (name, device, queue, *((tensor.shape, tensor.dtype) for tensor in tensors))
    if key not in found:
        found[key] = None
        if len(found) > _MOST_KEYS:
            found.popitem(last=False)
        return None
    found.move_to_end(key)
    entry = found[key]
    if entry is None:
        _drop_old_graphs(store, numbers, int(_KEPT * room))
        try:
            with torch.cuda.device(device):
                entry = found[key] = make(), numbers
        except RuntimeError as error:
            store.refusals += 1
            if store.refusals == _TRIES:
                logger.warning("no CUDA graphs, because this installation refuses to capture %s: %s", name, error)
            return None
    made: Captured = entry[0]
    return made


def capture_graph(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Return the CUDA graph of a function without arguments and without a result.

    The function runs once before the capture, so that libraries create their handles and workspaces.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # a collection may free memory of the device, which would abort the capture
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            function()
    finally:
        if collects:
            gc.enable()
    return graph


def copy_graph_tensors(into: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copy ``tensors`` into the tensors ``into`` of the same shapes, with one operation for each type."""
    for dtype in {tensor.dtype for tensor in into}:
        pairs = [(a, b) for a, b in zip(into, tensors, strict=True) if a.dtype == dtype and a.numel()]
        if pairs:
            torch._foreach_copy_([a for a, _ in pairs], [b for _, b in pairs])


class GraphBorrower(Protocol):
    """An object that holds results of a captured graph. The next replay of the graph overwrites their memory."""

    def keep(self) -> None:
        """Copy the results to other memory."""


class CapturedGraph:
    """A function captured as a CUDA graph, with the input tensors into which every call copies its tensors.

    A call overwrites the result of the last call. The caller can copy the result, or lend it to an object: if this
    borrower still exists at the next call, its method ``keep`` is called first, which makes the copy. This saves the
    copy of a large result that is seldom needed for long.

    Args:
        function: takes a sequence of tensors. All other tensors that it reads must keep their addresses.
        tensors: example tensors, with the shapes and types of the tensors of all calls.

    Attributes:
        given: the input tensors.
        result: the result of the last call.
    """

    def __init__(self, function: Callable[[Sequence[Tensor]], Any], tensors: Sequence[Tensor]) -> None:
        self.given = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
        self.result: Any = None
        self._function = function
        self._borrower: weakref.ref[GraphBorrower] | None = None
        self._graph = capture_graph(self._run)

    def _run(self) -> None:
        self.result = self._function(self.given)

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """Replay the function on these tensors and return its result, which the next call overwrites."""
        borrower = None if self._borrower is None else self._borrower()
        if borrower is not None:
            borrower.keep()
        self._borrower = None
        copy_graph_tensors(self.given, tensors)
        self._graph.replay()
        return self.result

    def lend(self, borrower: GraphBorrower) -> None:
        """Lend the last result to ``borrower``, whose method ``keep`` is called before the result is overwritten."""
        self._borrower = weakref.ref(borrower)


def _replay_graph_and_copy(found: CapturedGraph, tensors: Sequence[Tensor]) -> Any:
    """Replay a function on these tensors and copy its result to new memory.

    Input tensors that the function returns are replaced by the tensors of the caller.
    """
    form, results = found(tensors)
    same = {id(mine): given for mine, given in zip(found.given, tensors, strict=True)}
    own = [same.get(id(tensor), torch.empty_like(tensor)) for tensor in results]
    new = [(a, b) for a, b in zip(own, results, strict=True) if id(b) not in same]
    copy_graph_tensors([a for a, _ in new], [b for _, b in new])
    return _join_graph_value(form, own)


def _split_graph_value(value: Any, tensors: list[Tensor]) -> Hashable:
    """Append the tensors of a value to the list ``tensors``, and return the structure of the value without tensors."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor, len(tensors) - 1
    if isinstance(value, dict):
        return dict, ()
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_split_graph_value(one, tensors) for one in value)
    if type(value).__module__.startswith("pear."):
        return type(value), tuple((name, _split_graph_value(one, tensors)) for name, one in vars(value).items())
    if value is None or isinstance(value, (bool, int, float, str)):
        return None, value
    raise TypeError(
        f"a captured function came with {type(value).__name__}; expected tensors, constants, sequences of them, or "
        "objects of this package that hold nothing else"
    )


def _join_graph_value(form: Any, tensors: Sequence[Tensor]) -> Any:
    """Build the value with the structure ``form`` and these tensors; the inverse of ``_split_graph_value``.

    Dictionaries are empty in the result.
    """
    kind, parts = form
    if kind is None:
        return parts
    if kind is Tensor:
        return tensors[parts]
    if kind is dict:
        return {}
    if issubclass(kind, (list, tuple)):
        values = [_join_graph_value(part, tensors) for part in parts]
        return kind(*values) if hasattr(kind, "_fields") else kind(values)
    made = object.__new__(kind)
    vars(made).update((name, _join_graph_value(part, tensors)) for name, part in parts)
    return made


def _drop_old_graphs(store: CudaGraphStore, numbers: int, most: int) -> None:
    """Drop the least recently used functions until a new function fits.

    Args:
        store: the store of captured functions.
        numbers: the number of numbers that the new function works on.
        most: the number of numbers that all captured functions together may work on.
    """
    kept = {key: entry[1] for key, entry in store.found.items() if entry is not None}
    total = sum(kept.values()) + numbers
    for key, size in kept.items():
        if total <= most:
            return
        store.found[key] = None
        total -= size

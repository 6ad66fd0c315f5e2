"""Functions of tensors as CUDA graphs: one launch for what would be hundreds.

Where tensors are small, a GPU works less long on a function than Python takes to ask for it step by step. The function
is then captured once, and replayed for all tensors of the same shapes. The rules:

- On a CPU nothing is captured.
- Capturing takes as long as some calls, so that the first call with its shapes runs step by step; the second captures.
- What is large keeps a GPU busy by itself and is never captured; of what is captured, the oldest makes room.
- Where the installation refuses to capture three times, a warning says so, and everything runs step by step.

The arithmetic is the same in every case. A function may be captured if it looks at no number on the way (no ``bool``,
``int`` or ``tolist`` of a tensor, no mask as an index) and what it gives depends on its name and its arguments alone.
Arguments and results are tensors, constants, sequences of these, or objects of this package that are made of them.
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

_LARGE = 1 / 64  # of the GPU's memory: a function that works on more may hold some times that, and is not captured
_KEPT = 1 / 32  # and of all that is kept
_REMEMBERED = 256  # names with shapes
_TRIES = 3

Made = TypeVar("Made")


class Store(threading.local):
    """Of one thread, in the order of their last use: what was captured and how large it is, or None if seen once.

    Functions of the arguments alone share one. Whoever captures functions that refer to tensors of its own, which stay
    where they are and are not copied, has a store of its own, and drops it with these tensors.
    """

    def __init__(self) -> None:
        self.found: OrderedDict[Hashable, tuple[Any, int] | None] = OrderedDict()
        self.refusals = 0

    @property
    def refused(self) -> bool:
        """True where capturing has failed too often for it to be chance."""
        return self.refusals >= _TRIES


_store = Store()


def replay(name: Hashable, function: Callable[..., Any], arguments: Sequence[Any], numbers: int) -> Any:
    """``function(*arguments)``, captured where that is worth it.

    Args:
        name: of the function, with all that it depends on beside its arguments.
        function: what to call.
        arguments: with all tensors on one device. Dictionaries in them are taken for empty.
        numbers: about how many numbers the function works on.
    """
    tensors: list[Tensor] = []
    form = _taken_apart(list(arguments), tensors)

    def flat(given: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
        results: list[Tensor] = []
        return _taken_apart(function(*_put_together(form, given)), results), results

    found = captured((name, form), tensors, numbers, lambda: CapturedFunction(flat, tensors))
    return function(*arguments) if found is None else _copied(found, tensors)


def replay_programs(name: str, function: Callable[..., Any], qp: QuadraticProgram, *given: Any) -> Any:
    """``function(qp, *given)``; dense programs on a GPU are replayed."""
    if not qp.c.is_cuda:
        return function(qp, *given)
    return replay(name, function, (qp, *given), sum(matrix.numel() for matrix in (qp.H, qp.A, qp.G)))


def captured(
    name: Hashable, tensors: Sequence[Tensor], numbers: int, make: Callable[[], Made], store: Store = _store
) -> Made | None:
    """What ``make`` captures for tensors of these shapes; None where, by the rules, nothing is captured."""
    device = tensors[0].device
    if device.type != "cuda" or store.refused or torch.cuda.is_current_stream_capturing():
        return None
    room = torch.cuda.get_device_properties(device).total_memory / 8
    if numbers > _LARGE * room:
        return None
    queue = torch.cuda.current_stream(device).cuda_stream  # in which one call follows the other
    found, key = store.found, (name, device, queue, *((tensor.shape, tensor.dtype) for tensor in tensors))
    if key not in found:
        found[key] = None
        if len(found) > _REMEMBERED:
            found.popitem(last=False)
        return None
    found.move_to_end(key)
    entry = found[key]
    if entry is None:
        _make_room(store, numbers, int(_KEPT * room))
        try:
            with torch.cuda.device(device):
                entry = found[key] = make(), numbers
        except RuntimeError as error:
            store.refusals += 1
            if store.refusals == _TRIES:
                logger.warning("no CUDA graphs, because this installation refuses to capture %s: %s", name, error)
            return None
    made: Made = entry[0]
    return made


def capture(function: Callable[[], None], times: int = 1) -> torch.cuda.CUDAGraph:
    """Run a function, so that libraries make their handles and workspaces, and capture it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # what a collection frees may belong to the device, and to free that breaks the capture off
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            function()
    finally:
        if collects:
            gc.enable()
    return graph


def copy_all(into: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copy tensors onto others of the same shapes, those of one type together."""
    for dtype in {tensor.dtype for tensor in into}:
        pairs = [(a, b) for a, b in zip(into, tensors, strict=True) if a.dtype == dtype and a.numel()]
        if pairs:
            torch._foreach_copy_([a for a, _ in pairs], [b for _, b in pairs])


class Borrower(Protocol):
    """Whoever holds results where the next replay writes."""

    def keep(self) -> None:
        """Copy what it holds."""


class CapturedFunction:
    """A captured function with tensors of its own, which those of a call are copied to.

    Results that are large, and mostly done with before the next call, can be lent: only if the borrower is still there
    when the next call comes it is told to keep them.

    Args:
        function: of a sequence of tensors; what it refers to beside them has to stay where it is.
        tensors: as the function will be given them.
    """

    def __init__(self, function: Callable[[Sequence[Tensor]], Any], tensors: Sequence[Tensor]) -> None:
        self.given = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
        self.result: Any = None
        self._function = function
        self._borrower: weakref.ref[Borrower] | None = None
        self._graph = capture(self._run)

    def _run(self) -> None:
        self.result = self._function(self.given)

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """The function's result, which the next call writes over."""
        borrower = None if self._borrower is None else self._borrower()
        if borrower is not None:
            borrower.keep()
        self._borrower = None
        copy_all(self.given, tensors)
        self._graph.replay()
        return self.result

    def lend(self, borrower: Borrower) -> None:
        """The last result is held by ``borrower``."""
        self._borrower = weakref.ref(borrower)


def _copied(found: CapturedFunction, tensors: Sequence[Tensor]) -> Any:
    """The result of a replay in memory of its own; what was given comes back as it is."""
    form, results = found(tensors)
    same = {id(mine): given for mine, given in zip(found.given, tensors, strict=True)}
    own = [same.get(id(tensor), torch.empty_like(tensor)) for tensor in results]
    new = [(a, b) for a, b in zip(own, results, strict=True) if id(b) not in same]
    copy_all([a for a, _ in new], [b for _, b in new])
    return _put_together(form, own)


def _taken_apart(value: Any, tensors: list[Tensor]) -> Hashable:
    """The form of a value, without its tensors, which are put into the list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor, len(tensors) - 1
    if isinstance(value, dict):
        return dict, ()
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_taken_apart(one, tensors) for one in value)
    if type(value).__module__.startswith("pear."):
        return type(value), tuple((name, _taken_apart(one, tensors)) for name, one in vars(value).items())
    if value is None or isinstance(value, (bool, int, float, str)):
        return None, value
    raise TypeError(
        f"a captured function came with {type(value).__name__}; expected tensors, constants, sequences of them, or "
        "objects of this package that hold nothing else"
    )


def _put_together(form: Any, tensors: Sequence[Tensor]) -> Any:
    """The value of this form with these tensors."""
    kind, parts = form
    if kind is None:
        return parts
    if kind is Tensor:
        return tensors[parts]
    if kind is dict:
        return {}
    if issubclass(kind, (list, tuple)):
        values = [_put_together(part, tensors) for part in parts]
        return kind(*values) if hasattr(kind, "_fields") else kind(values)
    made = object.__new__(kind)
    vars(made).update((name, _put_together(part, tensors)) for name, part in parts)
    return made


def _make_room(store: Store, numbers: int, most: int) -> None:
    """Forget the oldest of what is captured until there is room for more, with ``most`` numbers in all."""
    kept = {key: entry[1] for key, entry in store.found.items() if entry is not None}
    total = sum(kept.values()) + numbers
    for key, size in kept.items():
        if total <= most:
            return
        store.found[key] = None
        total -= size

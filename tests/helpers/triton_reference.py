"""The part of Triton's language that our kernel uses, in NumPy: it runs the kernel's own source without a GPU.

Programs run one after another, each on the values of its thread block. Values never change in place, as in Triton. A
pointer is an array with offsets into it, and an access outside the array is an error.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

KERNEL_FILES = ("primal_kernels", "dual_kernels", "inverse_kernel", "primal_working_set", "kernel_products")
"""The files of the GPU's active-set method that import Triton."""

_program = 0


class Block(np.ndarray):  # type: ignore[type-arg]
    """The values of a thread block: an array whose ``+=`` returns a new array."""

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __isub__(self, other: Any) -> Any:
        return self - other

    def to(self, kind: Any) -> Any:
        return block(self.astype(kind))


def block(value: Any) -> Any:
    return np.asarray(value).view(Block)


@dataclass(frozen=True)
class Pointer:
    """Addresses of entries of a flat array."""

    memory: Any
    offset: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more)

    def addresses(self, mask: Any) -> tuple[Any, Any]:
        """Return the offsets, 0 where the mask is False, and the mask in the shape of the offsets."""
        offset, where = np.broadcast_arrays(np.asarray(self.offset), True if mask is None else mask)
        chosen = offset[where]
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self.memory)):
            raise IndexError(f"the kernel uses entry {chosen.min()} or {chosen.max()} of {len(self.memory)}")
        return np.where(where, offset, 0), where


def load(pointer: Pointer, mask: Any = None, other: Any = 0.0) -> Any:
    offset, where = pointer.addresses(mask)
    if not where.any():
        return block(np.full(where.shape, other, pointer.memory.dtype))
    return block(np.where(where, pointer.memory[offset], np.asarray(other, pointer.memory.dtype)))


def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    offset, where = pointer.addresses(mask)
    pointer.memory[offset[where]] = np.broadcast_to(value, where.shape)[where]


def arange(begin: int, end: int) -> Any:
    assert (end - begin) & (end - begin - 1) == 0, "Triton's ranges have a power of two of entries"
    return block(np.arange(begin, end))


def reduction(function: Callable[..., Any], where: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a reduction along an axis; with ``where``, the reduction can return the indices of an extremum, too."""

    def reduce_one(value: Any, axis: int | None = None, return_indices: bool = False) -> Any:
        found = block(function(np.asarray(value), axis=axis))
        return (found, block(where(np.asarray(value), axis=axis))) if return_indices and where else found

    return reduce_one


def reduce_several(values: tuple[Any, ...], axis: int, combine: Callable[..., Any]) -> tuple[Any, ...]:
    """Reduce several vectors at once; ``combine`` takes an entry of each vector twice."""
    assert axis == 0
    found = tuple(value[0] for value in values)
    for i in range(1, len(values[0])):
        found = combine(*found, *(value[i] for value in values))
    return tuple(block(value) for value in found)


def gather(source: Any, index: Any, axis: int) -> Any:
    index = np.asarray(index)
    if index.size and not (index.min() >= 0 and index.max() < source.shape[axis]):
        raise IndexError(f"the kernel gathers entry {index.min()} or {index.max()} of {source.shape[axis]}")
    return block(np.take_along_axis(np.asarray(source), index, axis))


class Constant(int):
    """An integer that is known when the kernel is compiled."""

    @property
    def value(self) -> int:
        return int(self)


class Kernel:
    """A function under ``triton.jit``: it is launched over a grid, and gets tensors as pointers to their entries."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from another kernel."""
        return self.function(*arguments)

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def launch(*arguments: Any, num_warps: int, maxnreg: int, **constants: Any) -> None:
            global _program
            given = [self._argument(value) for value in arguments]
            with np.errstate(all="ignore"):
                for _program in range(grid[0]):
                    self.function(*given, **constants)

        return launch

    @staticmethod
    def _argument(value: Any) -> Any:
        if isinstance(value, int):
            return value
        assert value.is_contiguous()
        return Pointer(value.view(-1).numpy())


def modules() -> dict[str, types.ModuleType]:
    """Return stand-ins for ``triton`` and ``triton.language``."""
    language = types.ModuleType("triton.language")
    names: dict[str, Any] = {
        "constexpr": lambda value: Constant(value) if isinstance(value, int) else value,
        "program_id": lambda axis: block(_program),
        **{name: getattr(np, name) for name in ("int8", "int32", "int64", "float64")},
        "zeros": lambda shape, kind: block(np.zeros(shape, kind)),
        "zeros_like": lambda value: block(np.zeros_like(value)),
        "full": lambda shape, value, kind: block(np.full(shape, value, kind)),
        "gather": gather,
        "reduce": reduce_several,
        "sqrt": lambda value: block(np.sqrt(value)),
        "arange": arange,
        "debug_barrier": lambda: None,
        "load": load,
        "store": store,
        "where": lambda condition, a, b: block(np.where(condition, a, b)),
        "maximum": lambda a, b: block(np.maximum(a, b)),
        "minimum": lambda a, b: block(np.minimum(a, b)),
        "abs": lambda value: block(np.abs(value)),
        "sum": reduction(np.sum),
        "cumsum": lambda value, axis: block(np.cumsum(value, axis=axis)),
        "max": reduction(np.max, np.argmax),
        "min": reduction(np.min, np.argmin),
    }
    vars(language).update(names)
    triton = types.ModuleType("triton")
    vars(triton).update(jit=Kernel, language=language)
    return {"triton": triton, "triton.language": language}


@contextmanager
def in_place(monkeypatch: Any) -> Iterator[None]:
    """Within this context, our kernels run on this reference."""
    ours = [f"pear.solvers.active_set.gpu.{name}" for name in KERNEL_FILES]
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ours:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ours:
        sys.modules.pop(name, None)

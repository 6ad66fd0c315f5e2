"""The part of Triton's language that our kernel is written in, in NumPy: it runs the kernel's own source without a GPU.

One program after another, each with the values that its thread block would hold. Values never change in place, as in
Triton; a pointer is an array and offsets into it, and reading outside of it is an error.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_program = 0


class Block(np.ndarray):  # type: ignore[type-arg]
    """Values of a thread block: an array whose ``+=`` makes another one."""

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
        """Offsets that may be used, 0 where masked, and the mask in their shape."""
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


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, axis=None: block(function(np.asarray(value), axis=axis))


class Kernel:
    """What ``triton.jit`` makes of a function: launched over a grid, tensors given as pointers to their entries."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def launch(*arguments: Any, num_warps: int, **constants: Any) -> None:
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
    """``triton`` and ``triton.language``, to be put in the place of the real ones."""
    language = types.ModuleType("triton.language")
    names: dict[str, Any] = {
        "constexpr": lambda value: value,
        "program_id": lambda axis: block(_program),
        "int64": np.int64,
        "arange": arange,
        "load": load,
        "store": store,
        "where": lambda condition, a, b: block(np.where(condition, a, b)),
        "maximum": lambda a, b: block(np.maximum(a, b)),
        "minimum": lambda a, b: block(np.minimum(a, b)),
        "abs": lambda value: block(np.abs(value)),
        "sum": reduction(np.sum),
        "max": reduction(np.max),
        "min": reduction(np.min),
        "argmax": reduction(np.argmax),
        "argmin": reduction(np.argmin),
    }
    vars(language).update(names)
    triton = types.ModuleType("triton")
    vars(triton).update(jit=Kernel, language=language)
    return {"triton": triton, "triton.language": language}

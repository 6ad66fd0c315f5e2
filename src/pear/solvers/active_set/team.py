"""Compiled code in threads: those that torch computes with, where they can be had, so that nobody else needs a core.

After every operation in threads, torch's OpenMP threads spin for some milliseconds, to be quick when the next one
comes. Threads of our own would share the cores with them, and take longer to wake. ``GOMP_parallel``, which GNU's,
LLVM's and Intel's libraries have, runs a function in just these threads.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import torch
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import alloca_once_value, unpack_tuple
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from pear.solvers.active_set.compact import Block

_ADDRESS, _INTEGER = ir.IntType(8).as_pointer(), ir.IntType(32)

_in_child = Event()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child.set)


def fork_address() -> int:
    """The address of ``GOMP_parallel`` in the library that torch uses; 0 where there is none.

    A child process has none of its parent's threads, and the library waits for them in vain.
    """
    return 0 if _in_child.is_set() else _address()


@cache
def _address() -> int:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists():
        return 0
    function = getattr(ctypes.CDLL(str(library)), "GOMP_parallel", None)  # looked up in what torch is linked with, too
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def _in_threads(typing: Any, fork: Any, threads: Any, function: Any, arguments: Any) -> Any:
    """Call a compiled function that returns nothing in all threads of a team at once; in this one alone where it is 1.

    Called in compiled code with the address of ``GOMP_parallel``, the number of threads, the function, and its
    arguments, the same for all. OpenMP may take fewer threads.
    """
    kinds = tuple(arguments)
    function.get_call_type(typing, kinds, {})
    compiled = function.dispatcher.overloads[kinds]

    def generate(context: Any, builder: Any, call: Any, values: Any) -> Any:
        module = builder.module
        plain = ir.FunctionType(ir.VoidType(), [_ADDRESS])
        one = ir.Function(module, plain, module.get_unique_name("pear_one_thread"))
        one.linkage = "internal"
        place = builder.bitcast(alloca_once_value(builder, values[3]), _ADDRESS)
        inside = ir.IRBuilder(one.append_basic_block())
        here = inside.load(inside.bitcast(one.args[0], values[3].type.as_pointer()))
        context.add_linking_libs([compiled.library])
        target = context.declare_function(module, compiled.fndesc)
        context.call_conv.call_function(inside, target, types.none, kinds, unpack_tuple(inside, here))
        inside.ret_void()
        several = builder.icmp_signed(">", values[1], values[1].type(1))
        with builder.if_else(several) as (team, alone):
            with team:
                parallel = ir.FunctionType(ir.VoidType(), [plain.as_pointer(), _ADDRESS, _INTEGER, _INTEGER])
                start = builder.inttoptr(values[0], parallel.as_pointer())
                builder.call(start, [one, place, builder.trunc(values[1], _INTEGER), _INTEGER(0)])
            with alone:
                builder.call(one, [place])
        return context.get_dummy_value()

    return signature(types.none, types.intp, types.intp, function, arguments), generate


in_threads: Any = intrinsic(_in_threads)


def _take(typing: Any, turn: Any, place: Any, count: Any) -> Any:
    """The number at a place, to which ``count`` is added in the same moment: no two threads get the same."""
    if not isinstance(turn, Block):
        return None

    def generate(context: Any, builder: Any, call: Any, values: Any) -> Any:
        address = builder.gep(builder.extract_value(values[0], 0), [values[1]], inbounds=True)
        return builder.atomic_rmw("add", address, values[2], "monotonic")

    return signature(types.intp, turn, types.intp, types.intp), generate


take: Any = intrinsic(_take)

"""Functions that run compiled code in the threads of torch's OpenMP library.

After every parallel operation, torch's OpenMP threads spin for some milliseconds, so that the next operation starts at
once. Other threads would compete with them for the cores and take longer to wake. The function ``GOMP_parallel``, which
the OpenMP libraries of GNU, LLVM and Intel all have, runs a function in exactly these threads.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import types
from numba.core.cgutils import alloca_once_value, unpack_tuple
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from pear.compile.compact_arrays import Block

_ADDRESS, _INTEGER = ir.IntType(8).as_pointer(), ir.IntType(32)


def _in_threads(typing: Any, address: Any, threads: Any, function: Any, arguments: Any) -> Any:
    """Call a compiled function in several threads at once, with the same arguments in each. It returns nothing.

    Compiled code calls ``in_threads`` with the address of ``GOMP_parallel``, the number of threads, the function and
    its arguments. The calling thread is one of the threads. OpenMP may start fewer threads than requested.
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


def _fetch_add(typing: Any, array: Any, place: Any, count: Any) -> Any:
    """Return ``array[place]`` and add ``count`` to it in one atomic step: no two threads get the same number."""
    if not isinstance(array, Block):
        return None

    def generate(context: Any, builder: Any, call: Any, values: Any) -> Any:
        address = builder.gep(builder.extract_value(values[0], 0), [values[1]], inbounds=True)
        return builder.atomic_rmw("add", address, values[2], "monotonic")

    return signature(types.intp, array, types.intp, types.intp), generate


fetch_add: Any = intrinsic(_fetch_add)


def _floor(typing: Any, x: Any) -> Any:
    """The greatest integer not above x, as a float64, in one machine instruction."""

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.floor", [arguments[0].type]), arguments)

    return signature(types.float64, types.float64), generate


floor: Any = intrinsic(_floor)


def _call_address(typing: Any, address: Any, arguments: Any) -> Any:
    """Call the compiled function at an address. It returns nothing and takes arguments of exactly these types.

    A function that is called by its name would be compiled again as part of the caller.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [types.unliteral(kind) for kind in signature.args[1]]
        convention = context.call_conv.get_function_type(types.none, kinds)
        function = builder.inttoptr(values[0], convention.as_pointer())
        context.call_conv.call_function(builder, function, types.none, kinds, unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return signature(types.none, types.intp, arguments), generate


call_address: Any = intrinsic(_call_address)  # compiled code calls call_address(address, arguments)


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """The address of the machine code of a function for arguments of these types.

    The function is compiled, or loaded from the cache, where that has not been done yet.

    Args:
        function: a function that numba compiles.
        arguments: example arguments, of which only the types matter.
    """
    kinds = tuple(map(typeof, arguments))
    function.compile(kinds)
    code = function.overloads[kinds]
    return int(code.library.get_pointer_to_function(code.fndesc.llvm_func_name))

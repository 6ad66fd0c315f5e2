"""Functions that generate machine code themselves, for calls from compiled functions.

Each of them is a numba *intrinsic*: a Python function, here with the suffix ``_intrinsic``, that numba calls when it
compiles a caller. The Python function receives the types of the arguments, after one argument that numba adds, and
returns the signature and a function that generates the code.

``in_threads`` uses the OpenMP threads of torch. After every parallel operation, these threads spin for some
milliseconds, so that the next operation starts at once. Other threads would compete with them for the cores and take
longer to wake. The function ``GOMP_parallel``, which the OpenMP libraries of GNU, LLVM and Intel all have, runs a
function in exactly these threads.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import types
from numba.core.cgutils import alloca_once_value, unpack_tuple
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from pear.compile.compact_arrays import CompactArray

_ADDRESS, _INTEGER = ir.IntType(8).as_pointer(), ir.IntType(32)


def _in_threads_intrinsic(typing: Any, address: Any, threads: Any, function: Any, arguments: Any) -> Any:
    """Generate the code of ``in_threads(address, threads, function, arguments)``.

    It calls the compiled function ``function`` in several threads at once, with the same arguments in each thread.
    ``address`` is that of ``GOMP_parallel``, ``threads`` the number of threads, and ``arguments`` a tuple. ``function``
    must return nothing. The calling thread is one of the threads. OpenMP may start fewer threads than requested.
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


in_threads: Any = intrinsic(_in_threads_intrinsic)


def _fetch_add_intrinsic(typing: Any, array: Any, place: Any, count: Any) -> Any:
    """Generate the code of ``fetch_add(array, place, count)``.

    It returns ``array[place]`` and adds ``count`` to this entry, in one atomic step. If ``count`` is positive, no two
    threads get the same number.
    """
    if not isinstance(array, CompactArray):
        return None

    def generate(context: Any, builder: Any, call: Any, values: Any) -> Any:
        address = builder.gep(builder.extract_value(values[0], 0), [values[1]], inbounds=True)
        return builder.atomic_rmw("add", address, values[2], "monotonic")

    return signature(types.intp, array, types.intp, types.intp), generate


fetch_add: Any = intrinsic(_fetch_add_intrinsic)


def _floor_intrinsic(typing: Any, x: Any) -> Any:
    """Generate the code of ``floor(x)``: one machine instruction that rounds x down to an integer, as a float64."""

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.floor", [arguments[0].type]), arguments)

    return signature(types.float64, types.float64), generate


floor: Any = intrinsic(_floor_intrinsic)


def _call_address_intrinsic(typing: Any, address: Any, arguments: Any) -> Any:
    """Generate the code of ``call_address(address, arguments)``.

    It calls the compiled function at an address with a tuple of arguments. The function must take arguments of exactly
    these types and return nothing. A function that is called by its name would be compiled again as part of the caller.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [types.unliteral(kind) for kind in signature.args[1]]
        convention = context.call_conv.get_function_type(types.none, kinds)
        function = builder.inttoptr(values[0], convention.as_pointer())
        context.call_conv.call_function(builder, function, types.none, kinds, unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return signature(types.none, types.intp, arguments), generate


call_address: Any = intrinsic(_call_address_intrinsic)


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Return the address of the machine code of a function for arguments of these types.

    The function is first compiled or loaded from the cache, if necessary.

    Args:
        function: a function that numba compiles.
        arguments: example arguments, of which only the types matter.
    """
    kinds = tuple(map(typeof, arguments))
    function.compile(kinds)
    code = function.overloads[kinds]
    return int(code.library.get_pointer_to_function(code.fndesc.llvm_func_name))

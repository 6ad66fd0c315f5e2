"""Arrays and tuples of arrays in a form that compiles quickly and runs fast.

numba passes an array as nine machine words, and checks at every access whether the index counts from the end. A tuple
of thirty arrays takes hundreds of instructions to pass on, which LLVM has to optimise away for every call.

``refer`` stores a named tuple of arrays in memory and returns its address, a ``Ref``; functions pass the address on. A
``Ref`` has the attributes of the tuple. Its arrays are ``Block`` values: the address of the first element and the
shape of a C-contiguous array. An index into a block is never negative. It has one integer for each dimension, or is a
single integer, which gives a row.

LLVM is told that a ``Ref``, and elements of different types, never share memory (type-based alias analysis). After a
write to an array it then does not load the addresses of all others again, which takes a third of the run time off.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import types
from numba.core.cgutils import alloca_once, pack_array, unpack_tuple
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_getattr, lower_getattr_generic, models, register_model


class Block(types.Type):
    """The type of a compact array."""

    def __init__(self, dtype: Any, ndim: int) -> None:
        self.dtype, self.ndim = dtype, ndim
        super().__init__(name=f"Block({dtype}, {ndim})")


class Ref(types.Type):
    """The type of the address of a named tuple, ``kind``; its name is short, because symbols are made of it."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        digest = hashlib.sha256(str(kind).encode()).hexdigest()[:12]
        super().__init__(name=f"Ref({kind.instance_class.__name__}, {digest})")


@register_model(Block)
class _BlockModel(models.StructModel):
    def __init__(self, manager: Any, kind: Block) -> None:
        members = [("data", types.CPointer(kind.dtype)), ("shape", types.UniTuple(types.intp, kind.ndim))]
        super().__init__(manager, kind, members)


@register_model(Ref)
class _RefModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Ref) -> None:
        super().__init__(manager, kind, manager.lookup(kind.kind).get_value_type().as_pointer())


def _is_tuple(kind: Any) -> bool:
    return isinstance(kind, types.BaseTuple)


def _compact(kind: Any) -> Any:
    """The compact form of a type: arrays become blocks, also within tuples; everything else stays."""
    if isinstance(kind, types.Array):
        if kind.layout != "C":
            raise TypeError(f"got an array of layout {kind.layout!r}, expected 'C'; copy it with np.ascontiguousarray")
        return Block(kind.dtype, kind.ndim)
    if _is_tuple(kind):
        return types.BaseTuple.from_types([_compact(part) for part in kind], getattr(kind, "instance_class", None))
    return kind


def _tagged(instruction: Any, module: Any, memory: str) -> Any:
    """An instruction that reads or writes this kind of memory, and no other."""
    root = module.add_metadata(["pear"])
    kind = module.add_metadata([memory, root, ir.IntType(64)(0)])
    instruction.set_metadata("tbaa", module.add_metadata([kind, kind, ir.IntType(64)(0)]))
    return instruction


def _block(context: Any, builder: Any, kind: Block, data: Any, shape: list[Any]) -> Any:
    return _pair(context, builder, kind, data, pack_array(builder, shape))


def _converted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A value in its compact form."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        return _block(context, builder, _compact(kind), array.data, unpack_tuple(builder, array.shape))
    if _is_tuple(kind):
        parts = [_converted(context, builder, part, builder.extract_value(value, k)) for k, part in enumerate(kind)]
        return context.make_tuple(builder, _compact(kind), parts)
    return value


def _refer(typing: Any, value: Any) -> Any:
    """Put a named tuple into the memory of the function that calls this, its arrays as blocks; returns its address."""

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        held = _converted(context, builder, call.args[0], arguments[0])
        address = alloca_once(builder, held.type)
        _tagged(builder.store(held, address), builder.module, "Ref")
        return address

    return signature(Ref(_compact(value)), value), generate


refer: Any = intrinsic(_refer)  # called in compiled code with the value alone


@infer_getattr
class _RefAttributes(AttributeTemplate):
    key = Ref

    def generic_resolve(self, ref: Ref, name: str) -> Any:  # type: ignore[override]
        """A tuple within the tuple has an address of its own."""
        if name not in ref.kind.fields:
            return None
        kind = ref.kind[ref.kind.fields.index(name)]
        return Ref(kind) if _is_tuple(kind) else kind


@lower_getattr_generic(Ref)
def _ref_attribute(context: Any, builder: Any, ref: Ref, address: Any, name: str) -> Any:
    k = ref.kind.fields.index(name)
    field = builder.gep(address, [ir.IntType(32)(0), ir.IntType(32)(k)], inbounds=True)
    return field if _is_tuple(ref.kind[k]) else _tagged(builder.load(field), builder.module, "Ref")


@infer_getattr
class _BlockAttributes(AttributeTemplate):
    key = Block

    def resolve_shape(self, block: Block) -> Any:
        return types.UniTuple(types.intp, block.ndim)


@lower_getattr(Block, "shape")
def _shape(context: Any, builder: Any, kind: Block, block: Any) -> Any:
    return builder.extract_value(block, 1)


@infer_global(len)
class _Len(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        return signature(types.intp, *arguments) if isinstance(arguments[0], Block) else None


@lower_builtin(len, Block)
def _len(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    return builder.extract_value(arguments[0], [1, 0])


def _whole(block: Any, index: Any) -> Any:
    """The type of an index that gives an element, or None."""
    if isinstance(index, types.Integer) and block.ndim == 1:
        return types.intp
    integers = _is_tuple(index) and all(isinstance(part, types.Integer) for part in index)
    return types.UniTuple(types.intp, block.ndim) if integers and len(index) == block.ndim else None


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        block, index = arguments
        if not isinstance(block, Block):
            return None
        if whole := _whole(block, index):
            return signature(block.dtype, block, whole)
        return signature(Block(block.dtype, block.ndim - 1), block, types.intp)


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        block, index, _value = arguments
        whole = _whole(block, index) if isinstance(block, Block) else None
        return signature(types.none, block, whole, block.dtype) if whole else None


def _address(builder: Any, call: Any, arguments: Any) -> Any:
    """Of the element at an index, or of the row that it begins."""
    block, index = arguments[:2]
    indices = [index] if isinstance(call.args[1], types.Integer) else unpack_tuple(builder, index)
    shape, position = unpack_tuple(builder, builder.extract_value(block, 1)), indices[0]
    for k in range(1, len(shape)):
        position = builder.mul(position, shape[k], flags=["nsw"])
        position = builder.add(position, indices[k], flags=["nsw"]) if k < len(indices) else position
    return builder.gep(builder.extract_value(block, 0), [position], inbounds=True)


@lower_builtin(operator.getitem, Block, types.Any)
def _get(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, kind = _address(builder, call, arguments), call.return_type
    if isinstance(kind, Block):
        shape = unpack_tuple(builder, builder.extract_value(arguments[0], 1))
        return _block(context, builder, kind, address, shape[1:])
    loaded = _tagged(builder.load(address), builder.module, str(kind))
    return context.data_model_manager[kind].from_data(builder, loaded)


@lower_builtin(operator.setitem, Block, types.Any, types.Any)
def _set(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, kind = _address(builder, call, arguments), call.args[0].dtype
    stored = builder.store(context.data_model_manager[kind].as_data(builder, arguments[2]), address)
    _tagged(stored, builder.module, str(kind))
    return context.get_dummy_value()


class Span(types.IterableType):
    """The type of ``span``."""

    def __init__(self) -> None:
        super().__init__(name="Span")
        self._iterator = SpanIterator()

    @property
    def iterator_type(self) -> Any:
        """Of its iterator."""
        return self._iterator


class SpanIterator(types.SimpleIteratorType):  # type: ignore[name-defined]
    """The type of the iterator: the address of the next integer, and where it ends."""

    def __init__(self) -> None:
        super().__init__(name="SpanIterator", yield_type=types.intp)


@register_model(Span)
class _SpanModel(models.StructModel):
    def __init__(self, manager: Any, kind: Span) -> None:
        super().__init__(manager, kind, [("first", types.intp), ("last", types.intp)])


@register_model(SpanIterator)
class _SpanIteratorModel(models.StructModel):
    def __init__(self, manager: Any, kind: SpanIterator) -> None:
        super().__init__(manager, kind, [("next", types.CPointer(types.intp)), ("last", types.intp)])


def span(*bounds: int) -> range:
    """``range`` with a step of 1, in a tenth of the instructions."""
    return range(*bounds)


@infer_global(span)
class _SpanTemplate(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        return signature(Span(), *(types.intp for _ in arguments))


@lower_builtin(span, types.VarArg(types.intp))
def _span(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    first = arguments[0] if len(arguments) == 2 else context.get_constant(types.intp, 0)
    return _pair(context, builder, call.return_type, first, arguments[-1])


@lower_builtin("getiter", Span)
def _iterator(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    first, last = unpack_tuple(builder, arguments[0])
    address = alloca_once(builder, first.type)
    builder.store(first, address)
    return _pair(context, builder, call.return_type, address, last)


@lower_builtin("iternext", SpanIterator)
def _next(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, last = unpack_tuple(builder, arguments[0])
    here = builder.load(address)
    builder.store(builder.add(here, here.type(1), flags=["nsw"]), address)
    return _pair(context, builder, call.return_type, here, builder.icmp_signed("<", here, last))


def _pair(context: Any, builder: Any, kind: Any, first: Any, second: Any) -> Any:
    value = builder.insert_value(ir.Constant(context.get_value_type(kind), ir.Undefined), first, 0)
    return builder.insert_value(value, second, 1)


def _floor(typing: Any, x: Any) -> Any:
    """The greatest whole number up to x, as a floating-point number, in one instruction."""

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.floor", [arguments[0].type]), arguments)

    return signature(types.float64, types.float64), generate


floor: Any = intrinsic(_floor)


def _call_address(typing: Any, address: Any, arguments: Any) -> Any:
    """Call the compiled function at an address, which returns nothing and takes just these types.

    A function that is called by its name would be compiled again as a part of the caller.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [types.unliteral(kind) for kind in signature.args[1]]
        convention = context.call_conv.get_function_type(types.none, kinds)
        function = builder.inttoptr(values[0], convention.as_pointer())
        context.call_conv.call_function(builder, function, types.none, kinds, unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return signature(types.none, types.intp, arguments), generate


call_address: Any = intrinsic(_call_address)  # called in compiled code with address and arguments


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """The address of a compiled function for arguments like these; compiles it, or loads it, where that is needed."""
    kinds = tuple(map(typeof, arguments))
    function.compile(kinds)
    code = function.overloads[kinds]
    return int(code.library.get_pointer_to_function(code.fndesc.llvm_func_name))

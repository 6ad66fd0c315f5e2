"""Arrays and tuples of arrays in a form that compiles quickly and runs fast.

numba passes a vector as seven machine words and a matrix as nine, and checks at every access whether the index is
negative. Passing a tuple of thirty arrays therefore takes hundreds of instructions, which LLVM has to optimise away in
every call.

``refer`` stores a named tuple of arrays in memory and returns the address of the tuple, a ``CompactRef``. Functions
pass this address on. A ``CompactRef`` has the attributes of the tuple. The arrays of the tuple become ``CompactArray``
values, each of which holds the shape of a C-contiguous array and the address of the first element. An index into a
``CompactArray`` must not be negative. It has one integer for each dimension and gives an element, or is a single
integer and gives a row.

Metadata tells LLVM that a ``CompactRef`` and array elements of different types never share memory (type-based alias
analysis). LLVM then need not reload the addresses of all arrays after a write to one of them, which saves a third of
the run time.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import alloca_once, pack_array, unpack_tuple
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_getattr, lower_getattr_generic, models, register_model


class CompactArray(types.Type):
    """The numba type of a compact array with elements of type ``dtype`` and ``ndim`` dimensions."""

    def __init__(self, dtype: Any, ndim: int) -> None:
        self.dtype, self.ndim = dtype, ndim
        super().__init__(name=f"Compact({dtype}, {ndim})")


class CompactRef(types.Type):
    """The numba type of the address of a named tuple whose numba type is ``kind``.

    numba puts the names of types into the names of symbols. The name of this type is short, because it contains a
    digest of ``kind`` instead of the names of all fields.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        digest = hashlib.sha256(str(kind).encode()).hexdigest()[:12]
        super().__init__(name=f"Ref({kind.instance_class.__name__}, {digest})")


@register_model(CompactArray)
class _CompactArrayModel(models.StructModel):
    def __init__(self, manager: Any, kind: CompactArray) -> None:
        members = [("data", types.CPointer(kind.dtype)), ("shape", types.UniTuple(types.intp, kind.ndim))]
        super().__init__(manager, kind, members)


@register_model(CompactRef)
class _CompactRefModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: CompactRef) -> None:
        super().__init__(manager, kind, manager.lookup(kind.kind).get_value_type().as_pointer())


def _is_tuple_type(kind: Any) -> bool:
    return isinstance(kind, types.BaseTuple)


def _compact_type(kind: Any) -> Any:
    """Return the compact form of a numba type: arrays, also within tuples, become ``CompactArray`` types."""
    if isinstance(kind, types.Array):
        if kind.layout != "C":
            raise TypeError(f"got an array of layout {kind.layout!r}, expected 'C'; copy it with np.ascontiguousarray")
        return CompactArray(kind.dtype, kind.ndim)
    if _is_tuple_type(kind):
        return types.BaseTuple.from_types([_compact_type(part) for part in kind], getattr(kind, "instance_class", None))
    return kind


def _mark_compact_memory(instruction: Any, module: Any, memory: str) -> Any:
    """Tell LLVM that an instruction reads or writes only memory of the kind ``memory``; return the instruction."""
    root = module.add_metadata(["pear"])
    kind = module.add_metadata([memory, root, ir.IntType(64)(0)])
    instruction.set_metadata("tbaa", module.add_metadata([kind, kind, ir.IntType(64)(0)]))
    return instruction


def _compact_array(context: Any, builder: Any, kind: CompactArray, data: Any, shape: list[Any]) -> Any:
    """Generate code that builds a compact array from the address ``data`` and the shape."""
    return build_compact_pair(context, builder, kind, data, pack_array(builder, shape))


def _compact_value(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Generate code that converts a value of the numba type ``kind`` to the compact form."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        return _compact_array(context, builder, _compact_type(kind), array.data, unpack_tuple(builder, array.shape))
    if _is_tuple_type(kind):
        parts = [_compact_value(context, builder, part, builder.extract_value(value, k)) for k, part in enumerate(kind)]
        return context.make_tuple(builder, _compact_type(kind), parts)
    return value


def _refer_compactly(typing: Any, value: Any) -> Any:
    """Generate the code of ``refer(value)``, which returns the address of a named tuple with compact arrays.

    The tuple is stored on the stack of the function that calls ``refer``. numba adds the argument ``typing``.
    """

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        held = _compact_value(context, builder, call.args[0], arguments[0])
        address = alloca_once(builder, held.type)
        _mark_compact_memory(builder.store(held, address), builder.module, "Ref")
        return address

    return signature(CompactRef(_compact_type(value)), value), generate


refer: Any = intrinsic(_refer_compactly)


@infer_getattr
class _CompactRefAttributes(AttributeTemplate):
    key = CompactRef

    def generic_resolve(self, ref: CompactRef, name: str) -> Any:  # type: ignore[override]
        """Return the type of an attribute: a ``CompactRef`` for a field that is a tuple, else the type of the field."""
        if name not in ref.kind.fields:
            return None
        kind = ref.kind[ref.kind.fields.index(name)]
        return CompactRef(kind) if _is_tuple_type(kind) else kind


@lower_getattr_generic(CompactRef)
def _compact_ref_attribute(context: Any, builder: Any, ref: CompactRef, address: Any, name: str) -> Any:
    k = ref.kind.fields.index(name)
    field = builder.gep(address, [ir.IntType(32)(0), ir.IntType(32)(k)], inbounds=True)
    return field if _is_tuple_type(ref.kind[k]) else _mark_compact_memory(builder.load(field), builder.module, "Ref")


@infer_getattr
class _CompactArrayAttributes(AttributeTemplate):
    key = CompactArray

    def resolve_shape(self, array: CompactArray) -> Any:
        return types.UniTuple(types.intp, array.ndim)


@lower_getattr(CompactArray, "shape")
def _compact_shape(context: Any, builder: Any, kind: CompactArray, array: Any) -> Any:
    return builder.extract_value(array, 1)


@infer_global(len)
class _CompactArrayLen(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        return signature(types.intp, *arguments) if isinstance(arguments[0], CompactArray) else None


@lower_builtin(len, CompactArray)
def _compact_len(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    return builder.extract_value(arguments[0], [1, 0])


def _compact_element_index(array: Any, index: Any) -> Any:
    """Return the numba type to which the index of a single element is converted; None if the index selects a row."""
    if isinstance(index, types.Integer) and array.ndim == 1:
        return types.intp
    integers = _is_tuple_type(index) and all(isinstance(part, types.Integer) for part in index)
    return types.UniTuple(types.intp, array.ndim) if integers and len(index) == array.ndim else None


@infer_global(operator.getitem)
class _CompactArrayGet(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        array, index = arguments
        if not isinstance(array, CompactArray):
            return None
        if whole := _compact_element_index(array, index):
            return signature(array.dtype, array, whole)
        return signature(CompactArray(array.dtype, array.ndim - 1), array, types.intp)


@infer_global(operator.setitem)
class _CompactArraySet(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        array, index, _value = arguments
        whole = _compact_element_index(array, index) if isinstance(array, CompactArray) else None
        return signature(types.none, array, whole, array.dtype) if whole else None


def _compact_element_address(builder: Any, call: Any, arguments: Any) -> Any:
    """Generate code that computes the address of the element or of the row at an index."""
    array, index = arguments[:2]
    indices = [index] if isinstance(call.args[1], types.Integer) else unpack_tuple(builder, index)
    shape, position = unpack_tuple(builder, builder.extract_value(array, 1)), indices[0]
    for k in range(1, len(shape)):
        position = builder.mul(position, shape[k], flags=["nsw"])
        position = builder.add(position, indices[k], flags=["nsw"]) if k < len(indices) else position
    return builder.gep(builder.extract_value(array, 0), [position], inbounds=True)


@lower_builtin(operator.getitem, CompactArray, types.Any)
def _compact_get(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, kind = _compact_element_address(builder, call, arguments), call.return_type
    if isinstance(kind, CompactArray):
        shape = unpack_tuple(builder, builder.extract_value(arguments[0], 1))
        return _compact_array(context, builder, kind, address, shape[1:])
    loaded = _mark_compact_memory(builder.load(address), builder.module, str(kind))
    return context.data_model_manager[kind].from_data(builder, loaded)


@lower_builtin(operator.setitem, CompactArray, types.Any, types.Any)
def _compact_set(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, kind = _compact_element_address(builder, call, arguments), call.args[0].dtype
    stored = builder.store(context.data_model_manager[kind].as_data(builder, arguments[2]), address)
    _mark_compact_memory(stored, builder.module, str(kind))
    return context.get_dummy_value()


def build_compact_pair(context: Any, builder: Any, kind: Any, first: Any, second: Any) -> Any:
    """Generate code that builds a value of the numba type ``kind`` from its two members."""
    value = builder.insert_value(ir.Constant(context.get_value_type(kind), ir.Undefined), first, 0)
    return builder.insert_value(value, second, 1)

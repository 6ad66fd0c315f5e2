"""Arrays and tuples of arrays in a form that compiles quickly and runs fast.

numba passes an array as nine machine words, and checks at every access whether the index is negative. Passing a tuple
of thirty arrays therefore takes hundreds of instructions, which LLVM has to optimise away for every call.

``refer`` stores a named tuple of arrays in memory and returns its address, a ``Ref``. Functions pass this address on. A
``Ref`` has the attributes of the tuple. Its arrays are ``Block`` values, each of which holds the shape of a
C-contiguous array and the address of its first element. An index into a block must not be negative. It has one integer
for each dimension and gives an element, or is a single integer and gives a row.

Metadata tells LLVM that a ``Ref`` and array elements of different types never share memory (type-based alias analysis).
LLVM then need not reload the addresses of all arrays after a write to one of them, which saves a third of the run time.
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


class Block(types.Type):
    """The numba type of a compact array with elements of type ``dtype`` and ``ndim`` dimensions."""

    def __init__(self, dtype: Any, ndim: int) -> None:
        self.dtype, self.ndim = dtype, ndim
        super().__init__(name=f"Block({dtype}, {ndim})")


class Ref(types.Type):
    """The numba type of the address of a named tuple whose numba type is ``kind``.

    Numba puts the name of a type into the names of symbols. The name of this one is short: it has a digest of ``kind``
    in place of its description.
    """

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
    """The compact form of a numba type: arrays become blocks, also within tuples. Other types stay as they are."""
    if isinstance(kind, types.Array):
        if kind.layout != "C":
            raise TypeError(f"got an array of layout {kind.layout!r}, expected 'C'; copy it with np.ascontiguousarray")
        return Block(kind.dtype, kind.ndim)
    if _is_tuple(kind):
        return types.BaseTuple.from_types([_compact(part) for part in kind], getattr(kind, "instance_class", None))
    return kind


def _mark_memory(instruction: Any, module: Any, memory: str) -> Any:
    """Mark an instruction as one that reads or writes only memory of the given kind, and return it."""
    root = module.add_metadata(["pear"])
    kind = module.add_metadata([memory, root, ir.IntType(64)(0)])
    instruction.set_metadata("tbaa", module.add_metadata([kind, kind, ir.IntType(64)(0)]))
    return instruction


def _block(context: Any, builder: Any, kind: Block, data: Any, shape: list[Any]) -> Any:
    return build_pair(context, builder, kind, data, pack_array(builder, shape))


def _convert(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Generate code that converts a value of type ``kind`` to its compact form."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        return _block(context, builder, _compact(kind), array.data, unpack_tuple(builder, array.shape))
    if _is_tuple(kind):
        parts = [_convert(context, builder, part, builder.extract_value(value, k)) for k, part in enumerate(kind)]
        return context.make_tuple(builder, _compact(kind), parts)
    return value


def _refer(typing: Any, value: Any) -> Any:
    """Store a named tuple, with its arrays as blocks, on the stack of the calling function and return its address."""

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        held = _convert(context, builder, call.args[0], arguments[0])
        address = alloca_once(builder, held.type)
        _mark_memory(builder.store(held, address), builder.module, "Ref")
        return address

    return signature(Ref(_compact(value)), value), generate


refer: Any = intrinsic(_refer)  # compiled code calls refer(value); numba adds the first argument


@infer_getattr
class _RefAttributes(AttributeTemplate):
    key = Ref

    def generic_resolve(self, ref: Ref, name: str) -> Any:  # type: ignore[override]
        """The type of an attribute: a ``Ref`` for a tuple within the tuple, or the type of the field itself."""
        if name not in ref.kind.fields:
            return None
        kind = ref.kind[ref.kind.fields.index(name)]
        return Ref(kind) if _is_tuple(kind) else kind


@lower_getattr_generic(Ref)
def _ref_attribute(context: Any, builder: Any, ref: Ref, address: Any, name: str) -> Any:
    k = ref.kind.fields.index(name)
    field = builder.gep(address, [ir.IntType(32)(0), ir.IntType(32)(k)], inbounds=True)
    return field if _is_tuple(ref.kind[k]) else _mark_memory(builder.load(field), builder.module, "Ref")


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


def _element_index(block: Any, index: Any) -> Any:
    """The type that an index is cast to where it gives one element of a block; None where it gives a row."""
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
        if whole := _element_index(block, index):
            return signature(block.dtype, block, whole)
        return signature(Block(block.dtype, block.ndim - 1), block, types.intp)


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, arguments: Any, _: Any) -> Any:
        block, index, _value = arguments
        whole = _element_index(block, index) if isinstance(block, Block) else None
        return signature(types.none, block, whole, block.dtype) if whole else None


def _element_address(builder: Any, call: Any, arguments: Any) -> Any:
    """The address of the element at an index, or of the first element of the row at an index."""
    block, index = arguments[:2]
    indices = [index] if isinstance(call.args[1], types.Integer) else unpack_tuple(builder, index)
    shape, position = unpack_tuple(builder, builder.extract_value(block, 1)), indices[0]
    for k in range(1, len(shape)):
        position = builder.mul(position, shape[k], flags=["nsw"])
        position = builder.add(position, indices[k], flags=["nsw"]) if k < len(indices) else position
    return builder.gep(builder.extract_value(block, 0), [position], inbounds=True)


@lower_builtin(operator.getitem, Block, types.Any)
def _get(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, kind = _element_address(builder, call, arguments), call.return_type
    if isinstance(kind, Block):
        shape = unpack_tuple(builder, builder.extract_value(arguments[0], 1))
        return _block(context, builder, kind, address, shape[1:])
    loaded = _mark_memory(builder.load(address), builder.module, str(kind))
    return context.data_model_manager[kind].from_data(builder, loaded)


@lower_builtin(operator.setitem, Block, types.Any, types.Any)
def _set(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    address, kind = _element_address(builder, call, arguments), call.args[0].dtype
    stored = builder.store(context.data_model_manager[kind].as_data(builder, arguments[2]), address)
    _mark_memory(stored, builder.module, str(kind))
    return context.get_dummy_value()


def build_pair(context: Any, builder: Any, kind: Any, first: Any, second: Any) -> Any:
    """Generate code that builds a struct value of type ``kind`` from its two members."""
    value = builder.insert_value(ir.Constant(context.get_value_type(kind), ir.Undefined), first, 0)
    return builder.insert_value(value, second, 1)

"""How numba is driven so that the method compiles quickly: every function is optimised once, and none for nothing.

By default numba links each function with all that it calls, optimises the whole and makes machine code of it, and does
so again for the functions that call it; here that would be eight times over. Functions that only compiled ones call,
those of the ``Inner`` compiler, are left as they come, and linked; the function that Python calls, of the ``Entry``
compiler, is then optimised together with all of them. Both leave out the passes that this code has no use for:
closures, array expressions, rewriting of constants.
"""

from __future__ import annotations

from typing import Any

from numba.core import ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference, PreLowerStripPhis
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode


@register_pass(mutates_CFG=False, analysis_only=False)
class _Conditions(FunctionPass):
    """Leaves out the call of ``bool`` that numba puts around every condition, which a branch converts by itself."""

    _name = "pear_conditions"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            kept, bools = [], set()
            for statement in block.body:
                value = getattr(statement, "value", None)
                if isinstance(value, ir.Global) and value.value is bool:
                    bools.add(statement.target.name)
                    continue
                if isinstance(value, ir.Expr) and value.op == "call" and value.func.name in bools:
                    statement.value = value.args[0]
                kept.append(statement)
            block.body = kept
        return True


_BEFORE = (
    *(TranslateByteCode, FixupArgs, IRProcessing, _Conditions, ReconstructSSA),
    *(NopythonTypeInference, PreLowerStripPhis),
)


class _Plain(JITCodeLibrary):
    """Whose functions are not optimised one by one, before they are linked."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


class _Part(_Plain):
    """Code that is linked, and never run by itself."""

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """Who is told about the function's globals, of which there are none."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing to do."""


class _Whole(_Plain):
    """Code that is linked with all its parts, optimised, and run."""

    def finalize(self) -> None:
        waiting, parts = list(self._linking_libraries), dict.fromkeys(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            fresh = [part for part in library._linking_libraries if part not in parts]
            parts.update(dict.fromkeys(fresh))
            waiting.extend(fresh if isinstance(library, _Part) else [])
        self._linking_libraries = list(parts)
        super().finalize()


class _Lowering(NativeLowering):
    library: type[JITCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.type_annotation = None
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(_Lowering):
    _name = "pear_part"  # type: ignore[assignment]
    library = _Part


@register_pass(mutates_CFG=True, analysis_only=False)
class _WholeLowering(_Lowering):
    _name = "pear_whole"  # type: ignore[assignment]
    library = _Whole


class Inner(CompilerBase):
    """Compiles a function that only compiled ones call."""

    lowering: type[_Lowering] = _PartLowering

    def define_pipelines(self) -> list[PassManager]:
        """The passes."""
        passes = PassManager("pear")
        for one in (*_BEFORE, self.lowering, NoPythonBackend):
            passes.add_pass(one, one.__name__)
        passes.finalize()
        return [passes]


class Entry(Inner):
    """Compiles a function that Python calls, and all that it calls."""

    lowering = _WholeLowering

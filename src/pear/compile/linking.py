"""Compiler classes for numba that optimise a kernel once, together with everything that it calls.

By default numba links each function with all functions that it calls, optimises the whole and generates machine code,
and does so again for every caller. ``InnerCompiler`` leaves a function unoptimised, ready to be linked.
``EntryCompiler`` links a function with all of its direct and indirect callees and optimises them together. Both use
numba's own list of passes and replace the last one. They build on ``JITCodeLibrary``, which is private to numba.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class _InnerLibrary(JITCodeLibrary):
    """A code library that is linked into others and never run by itself."""

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, because there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """The object on which numba calls ``set_env``; here the library itself, which ignores the call."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing, because the function has no environment of its own."""


class _EntryLibrary(JITCodeLibrary):
    """A code library that is linked with all of its direct and indirect callees and optimised as a whole."""

    def finalize(self) -> None:
        waiting, found = list(self._linking_libraries), dict.fromkeys(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            new = [callee for callee in library._linking_libraries if callee not in found]
            found.update(dict.fromkeys(new))
            waiting.extend(new if isinstance(library, _InnerLibrary) else [])
        self._linking_libraries = list(found)
        super().finalize()


class _Lowering(NativeLowering):
    library: type[JITCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(_Lowering):
    _name = "pear_inner"  # type: ignore[assignment]
    library = _InnerLibrary


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(_Lowering):
    _name = "pear_entry"  # type: ignore[assignment]
    library = _EntryLibrary


class InnerCompiler(CompilerBase):
    """The compiler of functions that only compiled functions call."""

    lowering: type[_Lowering] = _InnerLowering

    def define_pipelines(self) -> list[PassManager]:
        """The list of numba's own passes, with the lowering pass replaced."""
        passes = PassManager("pear")
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            passes.add_pass(self.lowering if step is NativeLowering else step, description)
        passes.finalize()
        return [passes]


class EntryCompiler(InnerCompiler):
    """The compiler of functions that Python calls; it compiles them together with their callees."""

    lowering = _EntryLowering

"""Compiler classes for numba that optimise a kernel once, together with everything that it calls.

By default numba links each function with all functions that it calls, optimises the result and generates machine code.
It does this again for every caller. ``UnlinkedCompiler`` leaves a function unoptimised, ready to be linked.
``LinkingCompiler`` links a function with all of its direct and indirect callees and optimises them together. Both
classes use numba's list of passes with another lowering pass. They build on ``JITCodeLibrary``, which is private to
numba.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class _UnlinkedLibrary(JITCodeLibrary):
    """A code library that is linked into other libraries and never run alone."""

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, because there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """The object on which numba calls ``set_env``: the library itself, which ignores the call."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing, because the function has no environment."""


class _LinkedLibrary(JITCodeLibrary):
    """A code library that is linked with all of its direct and indirect callees and optimised as a whole."""

    def finalize(self) -> None:
        waiting, found = list(self._linking_libraries), dict.fromkeys(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            new = [callee for callee in library._linking_libraries if callee not in found]
            found.update(dict.fromkeys(new))
            waiting.extend(new if isinstance(library, _UnlinkedLibrary) else [])
        self._linking_libraries = list(found)
        super().finalize()


class _LinkingPass(NativeLowering):
    """numba's lowering pass, with another class of code library."""

    library: type[JITCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _UnlinkedPass(_LinkingPass):
    _name = "pear_inner"  # type: ignore[assignment]
    library = _UnlinkedLibrary


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedPass(_LinkingPass):
    _name = "pear_entry"  # type: ignore[assignment]
    library = _LinkedLibrary


class UnlinkedCompiler(CompilerBase):
    """The compiler of functions that only compiled functions call."""

    lowering: type[_LinkingPass] = _UnlinkedPass

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's list of passes, with the lowering pass replaced."""
        passes = PassManager("pear")
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            passes.add_pass(self.lowering if step is NativeLowering else step, description)
        passes.finalize()
        return [passes]


class LinkingCompiler(UnlinkedCompiler):
    """The compiler of functions that Python calls. It optimises each function together with all callees."""

    lowering = _LinkedPass

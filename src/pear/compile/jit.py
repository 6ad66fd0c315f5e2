"""The decorators of all compiled functions.

``entry`` decorates a function that Python calls, ``inner`` one that only compiled functions call. The other names are
for the bodies of compiled functions: ``refer`` (the address of a tuple of arrays), ``span`` (a fast ``range``),
``floor``, ``call_address``, ``in_threads`` and ``fetch_add``. Their definitions are in the modules that use private
parts of numba, and once more in ``pear.compile.plain_numba``; see ``pear.compile``.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

import numba

from pear.compile.compilation_notice import notice
from pear.compile.kernel_cache import discard_stale_kernel_cache, kernel_cache_sources

logger = logging.getLogger("pear")

TRIED = ((0, 68), (0, 68))
"""The oldest and the newest version of numba whose private parts this package uses."""


def _jit_uses_private_parts() -> bool:
    """Return True if the environment and the version of numba allow its private parts, and they can be imported."""
    if os.environ.get("PEAR_PLAIN_NUMBA") == "1" or not TRIED[0] <= numba.version_info.short <= TRIED[1]:
        return False
    try:
        from pear.compile import intrinsics, linking, span  # noqa: F401
    except (ImportError, AttributeError) as error:
        logger.warning("numba %s lacks a part that pear uses (%s): compiling takes longer", numba.__version__, error)
        return False
    return True


PRIVATE = _jit_uses_private_parts()
"""Whether kernels are compiled with private parts of numba."""

# Terms of a sum may be added in any order, so that sums use vector instructions; NaN and infinity keep their meaning.
_ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})
# Division by zero gives NaN or infinity instead of an exception.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_ENTRY, _INNER = dict(_OPTIONS), dict(_OPTIONS)

if PRIVATE:
    from pear.compile.compact_arrays import refer
    from pear.compile.intrinsics import address_of, call_address, fetch_add, floor, in_threads
    from pear.compile.linking import LinkingCompiler, UnlinkedCompiler
    from pear.compile.span import span

    _ENTRY |= {"pipeline_class": LinkingCompiler, "no_cfunc_wrapper": True}
    _INNER |= {"pipeline_class": UnlinkedCompiler, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}
else:
    from pear.compile.plain_numba import floor, span  # type: ignore[assignment]
    from pear.compile.plain_numba import plain_address_of as address_of
    from pear.compile.plain_numba import plain_call_address as call_address
    from pear.compile.plain_numba import plain_fetch_add as fetch_add
    from pear.compile.plain_numba import plain_in_threads as in_threads
    from pear.compile.plain_numba import plain_refer as refer

__all__ = [
    "PRIVATE",
    "address_of",
    "allocating",
    "cache_jit",
    "call_address",
    "entry",
    "fetch_add",
    "floor",
    "in_threads",
    "inner",
    "refer",
    "span",
]


def inner(function: Any, any_order: bool = True) -> Any:
    """Compile a function that only compiled functions call. The cached code of each caller contains the function.

    Args:
        function: the function to compile.
        any_order: whether the terms of a sum may be added in any order.
    """
    return numba.njit(fastmath=_jit_fastmath(any_order), **_INNER)(function)


def entry(function: Any, any_order: bool = True) -> Any:
    """Compile a function that Python calls, and cache the machine code on disk until its sources change.

    Args:
        function: the function to compile.
        any_order: whether the terms of a sum may be added in any order.
    """
    return cache_jit(numba.njit(fastmath=_jit_fastmath(any_order), **_ENTRY)(function))


def allocating(function: Any) -> Any:
    """Compile a function that Python calls and that returns new arrays, and cache the machine code on disk.

    Unlike ``entry``, this always uses numba's own compiler, and adds the terms of a sum in their order.
    """
    return cache_jit(numba.njit(**_OPTIONS)(function))


def _jit_fastmath(any_order: bool) -> Any:
    """Return numba's option ``fastmath``. If ``any_order`` is True, the terms of a sum may be added in any order."""
    return set(_ANY_ORDER) if any_order else False


def cache_jit(dispatcher: Any) -> Any:
    """Return a compiled function whose machine code is cached on disk until one of its sources changes.

    The first compilation in a process logs a message.

    Args:
        dispatcher: the function that ``numba.njit`` returned.
    """
    notice.watch(dispatcher)
    try:
        dispatcher.enable_caching()
    except RuntimeError as error:  # no directory can be written to; the message at the next compilation says so
        logger.debug("%s", error)
    else:
        _discard_once(kernel_cache_sources(dispatcher.py_func), Path(dispatcher.stats.cache_path))
    return dispatcher


_discard_once = cache(discard_stale_kernel_cache)

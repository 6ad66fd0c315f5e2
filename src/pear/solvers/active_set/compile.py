"""How the compiled solvers are compiled: the decorators of all functions that are, and the sentence that says so.

The cache on disk of a function that Python calls is emptied when any source has changed whose text ends up in its
machine code: the function's own package, this package, which it calls into, and the constants of the rule.
"""

from __future__ import annotations

import inspect
import logging
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from pear.solvers.active_set.cache import tend
from pear.solvers.active_set.pipeline import Entry, Inner

njit: Any = numba.njit  # whose type stubs know only some of its options
logger = logging.getLogger("pear")

_HERE = Path(__file__).resolve().parent
_RULE = _HERE.parents[1] / "optimality" / "rule.py"
# Sums may be taken in any order, so that they run in parallel lanes; NaN and infinity keep their meaning.
_ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})
# Division by zero gives NaN or infinity instead of an exception. Nothing is allocated and nothing is counted by
# reference, which takes a third less time; functions compiled in this way may be called by each other and by Python,
# not by other compiled ones.
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy", "no_cfunc_wrapper": True}


def inner(function: Any, any_order: bool = True) -> Any:
    """Compile a function that is called by compiled ones only; its code is cached as part of theirs.

    Args:
        function: to compile.
        any_order: whether sums may be taken in any order.
    """
    return njit(no_cpython_wrapper=True, pipeline_class=Inner, fastmath=_fastmath(any_order), **_OPTIONS)(function)


def entry(function: Any, any_order: bool = True) -> Any:
    """Compile a function that Python calls, and keep the result on disk, for as long as the sources are the same."""
    return guarded(njit(pipeline_class=Entry, fastmath=_fastmath(any_order), **_OPTIONS)(function))


def _fastmath(any_order: bool) -> Any:
    return set(_ANY_ORDER) if any_order else False


def guarded(dispatcher: Any) -> Any:
    """Keep a compiled function on disk, until the sources of its package change; and say so when it is compiled."""
    news.add(dispatcher)
    try:
        dispatcher.enable_caching()
    except RuntimeError as error:  # there is no directory that can be written to; said when something is compiled
        logger.debug("%s", error)
    else:
        _tend_once(sources_of(dispatcher.py_func), Path(dispatcher.stats.cache_path))
    return dispatcher


def sources_of(function: Any) -> tuple[Path, ...]:
    """The packages and files whose text ends up in the machine code of an entry point."""
    return (*dict.fromkeys((_HERE, Path(inspect.getfile(function)).resolve().parent)), _RULE)


_tend_once = cache(tend)


class News(event.Listener):
    """Hears when a function of ours is compiled because the cache has none, and says so, once in a process.

    Attributes:
        heard: names of the functions that were compiled.
        quiet: whether to say nothing.
    """

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.quiet = False
        self._ours: set[Any] = set()

    def add(self, dispatcher: Any) -> None:
        """Listen for this function."""
        self._ours.add(dispatcher.py_func)

    def on_start(self, happening: event.Event) -> None:
        """Say what is compiled, how long it takes, where it is kept, and how to do it ahead."""
        dispatcher = happening.data["dispatcher"]
        if dispatcher.py_func not in self._ours:
            return
        self.heard.append(dispatcher.py_func.__name__)
        if not self.quiet:
            self.quiet = True
            logger.warning("%s", sentence(dispatcher.stats.cache_path))

    def on_end(self, happening: event.Event) -> None:
        """Nothing to do."""


def sentence(kept: str | None) -> str:
    """What a user is told who has to wait.

    Args:
        kept: directory of the cache, or None where there is none.
    """
    if kept is None:
        return (
            "pear compiles its solvers, which takes 10 to 20 s, and will do so again in every process: no directory "
            "for the result can be written to; set the environment variable NUMBA_CACHE_DIR to one that can"
        )
    return (
        f"pear compiles its solvers, once, which takes 10 to 20 s; the result is kept in {kept} "
        "(the command 'pear compile' does this ahead)"
    )


news = News()
event.register("numba:compile", news)

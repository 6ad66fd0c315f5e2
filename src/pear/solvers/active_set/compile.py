"""How the method is compiled, and a cache that never runs old code.

numba keeps compiled code on disk beside the source, and compiles again when the file of the function that is called has
changed. A change in a file that it calls into goes unnoticed. ``entry`` closes that gap: it keeps a digest of all
sources that end up in the machine code beside the cache, and empties the cache when they have changed. These are the
function's own package, this package, which it calls into, and the constants of the rule.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

import numba

njit: Any = numba.njit  # whose type stubs know only some of its options
logger = logging.getLogger("pear")

_DIGEST = "sources.sha256"
_HERE = Path(__file__).resolve().parent
_RULE = _HERE.parents[1] / "optimality" / "rule.py"
# Sums may be taken in any order, so that they run in parallel lanes; NaN and infinity keep their meaning. Division by
# zero gives them instead of an exception. Nothing is allocated and nothing is counted by reference, which takes a third
# less time; functions compiled in this way may be called by each other and by Python, not by other compiled ones.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "_nrt": False,
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}


def inner(function: Any) -> Any:
    """Compile a function that is called by compiled ones only; its code is cached as part of theirs."""
    return njit(no_cpython_wrapper=True, **_OPTIONS)(function)


def entry(function: Any) -> Any:
    """Compile a function that Python calls, and keep the result on disk, for as long as the sources are the same."""
    return guarded(njit(cache=True, **_OPTIONS)(function))


def guarded(dispatcher: Any) -> Any:
    """A compiled function whose cache on disk is emptied where the sources of its package have changed."""
    _tend_once(sources_of(dispatcher.py_func), Path(dispatcher.stats.cache_path))
    return dispatcher


def sources_of(function: Any) -> tuple[Path, ...]:
    """The packages and files whose text ends up in the machine code of an entry point."""
    return (*dict.fromkeys((_HERE, Path(inspect.getfile(function)).resolve().parent)), _RULE)


def tend(sources: tuple[Path, ...], cached: Path) -> None:
    """Empty a numba cache whose sources have changed since it was filled.

    Done before anything is loaded from the cache. One that cannot be written to is left alone. Several processes may do
    this at once: a file that is gone already is no error, and the digest is replaced in one step, at the end.

    Args:
        sources: packages (their Python files) and single files.
        cached: directory of the compiled code.
    """
    digest, note = _digest(sources), cached / _DIGEST
    try:
        if note.is_file() and note.read_text() == digest:
            return
        for path in [*cached.glob("*.nbi"), *cached.glob("*.nbc")]:
            path.unlink(missing_ok=True)
        cached.mkdir(parents=True, exist_ok=True)
        draft = cached / f"{_DIGEST}.{os.getpid()}"
        draft.write_text(digest)
        draft.replace(note)
    except OSError as error:
        logger.debug("the cache of compiled code in %s cannot be tended: %s", cached, error)


_tend_once = cache(tend)


def _digest(sources: tuple[Path, ...]) -> str:
    """Of all sources, by name and content."""
    total = hashlib.sha256()
    for source in sources:
        for path in sorted(source.glob("*.py")) if source.is_dir() else [source]:
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()

"""A cache on disk that never runs outdated machine code.

numba keeps compiled code on disk and compiles a function again when the file that defines it has changed. numba does
not notice changes in other files whose functions are compiled into the same machine code.
``discard_stale_kernel_cache`` therefore stores a digest of all these source files beside the cache, and empties the
cache when the digest changes.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
from pathlib import Path
from typing import Any

logger = logging.getLogger("pear")

_DIGEST = "sources.sha256"
_PACKAGE = Path(__file__).resolve().parents[1]


def kernel_cache_sources(function: Any) -> tuple[Path, ...]:
    """Return the folders and files whose code may be part of the machine code of a function that Python calls."""
    own = Path(inspect.getfile(function)).resolve().parent
    shared = (_PACKAGE / "compile", _PACKAGE / "solvers", _PACKAGE / "optimality" / "rule.py")
    return shared if own.is_relative_to(_PACKAGE / "solvers") else (*shared, own)


def discard_stale_kernel_cache(sources: tuple[Path, ...], cached: Path) -> None:
    """Empty a numba cache if its sources have changed since it was filled.

    Callers do this before they load anything from the cache. A cache that cannot be written to stays unchanged. Several
    processes may call this function at the same time: a file that is already gone is no error, and the digest is
    replaced atomically at the end.

    Args:
        sources: single Python files, and folders, which stand for all Python files in them.
        cached: the folder of the compiled code.
    """
    digest, note = _kernel_cache_digest(sources), cached / _DIGEST
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
        logger.debug("the cache of compiled code in %s cannot be looked after: %s", cached, error)


def _kernel_cache_digest(sources: tuple[Path, ...]) -> str:
    """Compute the SHA-256 digest of the names and contents of all source files."""
    total = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()

"""A cache on disk that never runs outdated machine code.

numba keeps compiled code on disk beside the source, and compiles again when the file of the function that is called has
changed. A change in a file that it calls into goes unnoticed. ``discard_if_stale`` closes that gap: it
keeps a digest of all sources that end up in the machine code beside the cache, and empties the cache when they change.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

logger = logging.getLogger("pear")

_DIGEST = "sources.sha256"


def discard_if_stale(sources: tuple[Path, ...], cached: Path) -> None:
    """Empty a numba cache whose sources have changed since it was filled.

    Done before anything is loaded from the cache. One that cannot be written to is left alone. Several processes may do
    this at once: a file that is gone already is no error, and the digest is replaced in one step, at the end.

    Args:
        sources: packages (all Python files below them) and single files.
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
        logger.debug("the cache of compiled code in %s cannot be looked after: %s", cached, error)


def _digest(sources: tuple[Path, ...]) -> str:
    """Of all sources, by name and content."""
    total = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()

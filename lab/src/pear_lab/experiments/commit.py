"""Which commit of PEAR this is, where that can be known."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

_ARCHIVED = "$Format:%h$"
"""Written by ``git archive``, which ``.gitattributes`` asks for it; left as it is everywhere else."""

_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def current_commit() -> str | None:
    """The commit of a clone or of an archive made from one; ``+`` follows where the package was changed since.

    None for a package that was installed, which its version names.
    """
    if not _ARCHIVED.startswith("$"):
        return _ARCHIVED
    # a package installed within somebody's own repository is not of its commits
    if _run_git("ls-files", "--error-unmatch", __file__) is None:
        return None
    head, changes = _run_git("rev-parse", "--short", "HEAD"), _run_git("status", "--porcelain", "--", str(_PACKAGE))
    return head and head + ("+" if changes else "")


def _run_git(*words: str) -> str | None:
    """What git says; None where it cannot."""
    try:
        told = subprocess.run(["git", "-C", str(_PACKAGE), *words], capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return None
    return told.stdout.strip() if told.returncode == 0 else None

"""The git commit of the running code of PEAR, if it can be found."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

_ARCHIVED = "$Format:%h$"
"""Replaced by the commit in archives of ``git archive`` (see ``.gitattributes``); unchanged everywhere else."""

_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def current_commit() -> str | None:
    """Return the git commit of the running code; None if it is unknown, as for an installed package.

    The commit is known if the code is in a clone, or in an archive that was made from a commit. A ``+`` after it says
    that files of the clone have changed since.
    """
    if not _ARCHIVED.startswith("$"):
        return _ARCHIVED
    # A package installed inside another repository does not belong to that repository's commits.
    if _run_git("ls-files", "--error-unmatch", __file__) is None:
        return None
    head, changes = _run_git("rev-parse", "--short", "HEAD"), _run_git("status", "--porcelain", "--", str(_PACKAGE))
    return head and head + ("+" if changes else "")


def _run_git(*words: str) -> str | None:
    """Return the output of a git command; None if the command fails.

    Git is told to take no locks, because a killed run would leave them behind.
    """
    try:
        told = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(_PACKAGE), *words], capture_output=True, text=True, check=False
        )
    except OSError:  # there is no git
        return None
    return told.stdout.strip() if told.returncode == 0 else None

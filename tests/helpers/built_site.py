"""The site, for tests that read or open it: the one that ``make docs`` has built, if its sources are unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "site"


def sources() -> Iterator[Path]:
    """Yield every file that the site is made from."""
    yield ROOT / "mkdocs.yml"
    yield from (path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    yield from (ROOT / "src" / "pear").rglob("*.py")


def is_current(index: Path = BUILT / "index.html") -> bool:
    """Return whether the site was built after the last change of its sources."""
    return index.is_file() and index.stat().st_mtime > max(path.stat().st_mtime for path in sources())


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site; if it is out of date, build it as ``make docs`` does, with warnings as errors."""
    if is_current():
        return BUILT
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; pip install 'pear-dfl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder

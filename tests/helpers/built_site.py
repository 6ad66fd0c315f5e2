"""The site, for tests that read or open it: the one that ``make docs`` has built, where nothing has changed since."""

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
    """Every file that the site is made of."""
    yield ROOT / "mkdocs.yml"
    yield from (path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    yield from (ROOT / "src" / "pear").rglob("*.py")


def is_current(index: Path = BUILT / "index.html") -> bool:
    """True where the site was built after its last change."""
    return index.is_file() and index.stat().st_mtime > max(path.stat().st_mtime for path in sources())


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as ``make docs`` builds it: a warning is an error."""
    if is_current():
        return BUILT
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; pip install 'pear-dfl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder

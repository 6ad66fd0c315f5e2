"""A package of another author: installed with pip, it adds to PEAR and passes the conformance suites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import pear

PACKAGE = Path(__file__).resolve().parents[1] / "third_party" / "pear-toy"


def run(command: list[object], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a network."""
    given = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=given, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(find_spec, ("pip", "setuptools"))), reason="needs pip and setuptools")
def test_an_installed_package_passes_the_conformance_suites(tmp_path: Path) -> None:
    """The package is installed from a copy into an empty folder, where its own tests run."""
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(PACKAGE, source)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile"]
    done = run([*install, "--target", site, source], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site / "pear_toy-0.3.dist-info" / "entry_points.txt").is_file()
    shutil.move(source / "tests", tmp_path / "tests")
    shutil.rmtree(source)
    path = os.pathsep.join([str(site), str(Path(pear.__file__).parents[1])])
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = run(tests, tmp_path, PYTHONPATH=path, NO_COLOR="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout

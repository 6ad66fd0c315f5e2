"""The two distributions: each wheel holds one package and works by itself, and each sdist builds the same wheel."""

from __future__ import annotations

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path

import pytest
import torch

import pear

ROOT = Path(__file__).resolve().parents[2]
TREE = (
    *("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "MANIFEST.in"),
    *("src", "lab", "tests", "tools", "docs"),
)
pytestmark = [
    pytest.mark.slow,  # the wheel: made once, by the first test that asks
    pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="needs the source tree"),
]


def run(command: Iterable[object], cwd: Path, timeout: float = 120) -> str:
    """Return what a command prints, without this process's paths and without a network."""
    return finished(command, cwd, timeout).stdout


def finished(command: Iterable[object], cwd: Path, timeout: float, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command without this process's paths and without a network; check its exit status."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA"))}
    environment = {**kept, "NO_NETWORK": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist of a copy of the tree, and the wheel built from this sdist."""
    for package in ("build", "setuptools"):
        if importlib.util.find_spec(package) is None:  # setuptools, once imported, replaces parts of this process
            pytest.skip(f"{package} is not installed")
    tree, to = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in TREE:
        if (ROOT / name).is_dir():
            litter = shutil.ignore_patterns("__pycache__", "*.egg-info", "results", "counterexamples")
            shutil.copytree(ROOT / name, tree / name, ignore=litter)
        else:
            shutil.copy(ROOT / name, tree / name)
    for folder in (".", "lab"):
        run([sys.executable, "-m", "build", "--no-isolation", "--outdir", to / folder, folder], cwd=tree)
    return to


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> Message:
    (text,) = (text for name, text in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(text)


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    about = holds_alone(wheel_of(built), "pear_dfl", ROOT / "src/pear")
    assert {"LICENSE", "CITATION.cff"} <= {name.rpartition("/")[2] for name in about}
    assert {"pear/py.typed", "pear/pages/templates/page.html.j2"} <= set(contents(wheel_of(built)))
    holds_alone(wheel_of(built / "lab"), "pear_lab", ROOT / "lab/src/pear_lab")
    files = {"py.typed", "report/published.csv", "report/templates/report.html.j2"}
    assert {f"pear_lab/{name}" for name in files} <= set(contents(wheel_of(built / "lab")))


def holds_alone(wheel: Path, distribution: str, package: Path) -> set[str]:
    """Check that a wheel holds exactly the files of one package; return its metadata files."""
    names = set(contents(wheel))
    paths = (path for path in package.rglob("*") if path.suffix not in (".pyc", "") and "__pycache__" not in str(path))
    about = {name for name in names if name.startswith(f"{distribution}-{pear.__version__}.dist-info/")}
    assert names - about == {str(path.relative_to(package.parent)) for path in paths}
    return about


def test_the_sdist_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """The sdist has no tests, and building it again gives the wheel in ``built``."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CITATION.cff", "CHANGELOG.md", "README.md", "pyproject.toml"} <= names
    assert not any(name.startswith(("tests", "tools", "docs", "lab")) for name in names)
    (tree,) = tmp_path.iterdir()
    run([sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "again", "."], cwd=tree)
    assert contents(wheel_of(tmp_path / "again")) == contents(wheel_of(built))


def test_what_a_package_index_shows(built: Path) -> None:
    shown = metadata(wheel_of(built))
    assert (shown["Name"], shown["Version"]) == ("pear-dfl", pear.__version__)
    assert shown["License-Expression"] == "MIT"
    assert shown["Description-Content-Type"] == "text/markdown"
    assert str(shown.get_payload()).lstrip().startswith("# PEAR")
    supported = [line for line in shown.get_all("Classifier", []) if re.search(r":: 3\.\d+$", line)]
    assert [line.rpartition(" ")[2] for line in supported] == ["3.11", "3.12", "3.13"]
    needed = [line for line in shown.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [re.split(r"[<>=]", line)[0] for line in needed] == ["torch", "numpy", "scipy", "numba", "safetensors"]


def test_the_version_is_written_once() -> None:
    written = [
        name
        for name in ("pyproject.toml", "CITATION.cff", "src/pear/version.py", "mkdocs.yml")
        if re.search(rf"\b{re.escape(pear.__version__)}\b", (ROOT / name).read_text("utf-8"))
    ]
    assert written == ["src/pear/version.py"]


def test_the_laboratory_is_of_the_version_of_the_library(built: Path) -> None:
    shown = metadata(wheel_of(built / "lab"))
    assert (shown["Name"], shown["Version"]) == ("pear-lab", pear.__version__)
    needed = [line for line in shown.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert needed == [f"pear-dfl[cli]=={pear.__version__}"]


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the scripts folder of a new environment with only the wheel; a path lends it the dependencies."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    # pip of this environment works for the other: an empty one needs no copy of it
    pip = [sys.executable, "-m", "pip", "--python", scripts / "python"]
    run([*pip, "install", "-q", "--no-deps", "--no-compile", wheel_of(built)], home)
    place = run([scripts / "python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], home).strip()
    # a path in a .pth file is searched, and its own .pth files, such as that of an editable install, are not read
    Path(place, "lent.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return scripts


def test_the_command_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    assert run([installed / "pear", "--version"], tmp_path).strip() == f"pear {pear.__version__}"
    find = "from importlib.util import find_spec; print(find_spec('pear').origin)"
    where = run([installed / "python", "-c", find], tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)


def test_commands_of_the_laboratory_come_with_its_wheel(built: Path, installed: Path, tmp_path: Path) -> None:
    """Without the laboratory's wheel its commands say how to install it; with the wheel they run."""
    pytest.importorskip("typer")
    said = finished([installed / "pear-dfl", "bench", "--help"], tmp_path, timeout=120, status=2).stderr
    assert said.startswith("Error: pear bench is a command of the laboratory")
    assert "pip install pear-lab" in said
    pip = [sys.executable, "-m", "pip", "--python", installed / "python"]
    run([*pip, "install", "-q", "--no-deps", "--no-compile", wheel_of(built / "lab")], tmp_path)
    try:
        assert "exactness" in run([installed / "pear", "bench", "--help"], tmp_path)
        assert "seeds" in run([installed / "pear", "reproduce", "--help"], tmp_path)
        assert "--db" in run([installed / "pear", "report", "--help"], tmp_path)
        assert "fuzz" in run([installed / "pear", "stress", "--help"], tmp_path)
    finally:
        run([*pip, "uninstall", "-q", "-y", "pear-lab"], tmp_path)


def test_the_ten_lines_of_the_readme_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """The example compiles the solvers first, as it does for a user who has just installed the package."""
    (lines,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[:1]
    done = finished([installed / "python", "-c", lines], tmp_path, timeout=600)
    assert 0 <= float(done.stdout) < 0.2
    assert done.stderr.count("pear compiles its solvers, once") == 1

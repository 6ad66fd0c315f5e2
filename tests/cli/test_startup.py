"""What a fresh process imports: help, version and shell completion must not wait for torch or numba."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pear

COMMAND = """
import sys
from pear.cli import main
sys.argv = ["pear", *sys.argv[1:]]
try:
    main()
finally:
    print("\\nimported:", *sys.modules, file=sys.stderr)
"""
HEAVY = {"torch", "numba", "numpy", "scipy", "pandas", "matplotlib", "pear_lab"}


def run(code: str, *arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Run code in a fresh process; return what it prints, and the modules that the last line of its stderr names."""
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-c", code]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--help",), "Train forecasters on the regret"),
        (("--version",), f"pear {pear.__version__}"),
        (("train", "--help"), "--max-epochs"),
        (("--show-completion", "bash"), "complete -o default -F _pear_completion pear"),
    ],
)
def test_help_and_version_import_no_heavy_package(arguments: tuple[str, ...], said: str) -> None:
    printed, modules = run(COMMAND, *arguments, COLUMNS="200", NO_COLOR="1")
    assert said in printed
    assert "pear.cli.app" in modules
    assert not HEAVY & modules


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("pear ", "1", {"train", "decide", "bench", "reproduce"}),
        ("pear be", "1", {"bench"}),
        ("pear train --", "2", {"--features", "--max-epochs"}),
        ("pear train --model ", "3", {"linear", "mlp"}),
    ],
)
def test_completion_imports_no_heavy_package(words: str, position: str, expected: set[str]) -> None:
    printed, modules = run(COMMAND, _PEAR_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=position)
    assert expected <= set(printed.split())
    assert "pear.cli.app" in modules
    assert not HEAVY & modules


def test_importing_pear_imports_nothing_else() -> None:
    """``import pear`` takes almost no time, registers nothing and touches no file."""
    _, modules = run("import sys, pear; dir(pear); print(*sys.modules, file=sys.stderr)")
    assert {name for name in modules if name.partition(".")[0] == "pear"} == {"pear", "pear.version"}
    assert not HEAVY & modules


def test_public_names_are_completed_and_found() -> None:
    assert set(dir(pear)) == set(pear.__all__)
    for name in pear.__all__:
        assert getattr(pear, name) is not None

"""The virtual environment of each peer. The requirements of the peers contradict each other."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pear_lab.peers.peer_table import Peer, PeerError

READY = "pear-peer.json"
"""The file that is written last, so that an environment without it is not complete."""

Say = Callable[[str], None]


def peer_cache_folder() -> Path:
    """Return the folder of all environments: ``$PEAR_CACHE``, or ``pear`` in the user's cache folder."""
    given = os.environ.get("PEAR_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pear"


def peer_interpreter(peer: Peer, here: bool = False, rebuild: bool = False, say: Say = lambda line: None) -> Path:
    """Return the path of a Python interpreter that can import a peer. The environment is made if it is missing.

    Args:
        peer: the peer.
        here: whether to use the current environment, which must have the peer.
        rebuild: whether to make the environment anew.
        say: called with one line on what is being done.

    Raises:
        PeerError: the peer cannot be installed, or is not in the current environment.
    """
    if here:
        if importlib.util.find_spec(peer.module) is None:
            raise PeerError(
                f"{peer.name} cannot be imported in this environment ({sys.prefix}); install "
                f"{' '.join(peer.requirements)} here, or leave --peers-here out, so that it gets one of its own"
            )
        return Path(sys.executable)
    folder = peer_cache_folder() / "peers" / peer.name
    if rebuild or not _is_environment_ready(folder, peer):
        _build_environment(folder, peer, say)
    return _environment_python(folder)


def peer_environment_variables(python: str, threads: int) -> dict[str, str]:
    """Return the environment variables of a peer's process.

    They are those of this process, with a limit of ``threads`` threads. If ``python`` is not the current interpreter,
    ``PYTHONPATH`` and ``PYTHONHOME`` are left out.
    """
    count = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # paths of the current environment must not reach another one
    hidden = () if python == sys.executable else ("PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in hidden} | count


def _is_environment_ready(folder: Path, peer: Peer) -> bool:
    """Return whether a folder has the complete environment of a peer, with the present requirements."""
    try:
        there = json.loads((folder / READY).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(there.get("requirements") == list(peer.requirements)) and _environment_python(folder).exists()


def _build_environment(folder: Path, peer: Peer, say: Say) -> None:
    """Make a virtual environment with the packages of a peer, and mark it as complete at the end."""
    say(f"{peer.name}: making an environment in {folder}")
    log = folder.with_suffix(".log")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
    except OSError as error:
        raise PeerError(
            f"cannot write to {folder}: {error.strerror or error}; name another place with PEAR_CACHE"
        ) from error
    _run_environment_command([sys.executable, "-m", "venv", str(folder)], log, peer, say)
    python = str(_environment_python(folder))
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    _run_environment_command([*pip, *peer.requirements], log, peer, say)
    (folder / READY).write_text(json.dumps({"requirements": list(peer.requirements)}) + "\n", encoding="utf-8")


def _run_environment_command(command: list[str], log: Path, peer: Peer, say: Say) -> None:
    """Run a command, write its output to the log, and pass lines that show progress to ``say``.

    Raises:
        PeerError: the command failed.
    """
    lines: list[str] = []
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                file.write(line)
                lines.append(line.strip())
                if line.startswith(("Collecting", "Downloading", "Building", "Installing")):
                    say(f"{peer.name}: {line.strip()}")
    if process.returncode:
        raise PeerError(_explain_environment_error(peer, lines, log))


def _explain_environment_error(peer: Peer, lines: list[str], log: Path) -> str:
    """Return the message of a failed installation: the last error of the installer, the log and remedies."""
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    said = errors[-1] if errors else (lines[-1] if lines else "nothing")
    return (
        f"cannot install {peer.name} ({', '.join(peer.requirements)}); the installer said: {said}. The whole log is "
        f"{log}. Without a network, copy {log.with_suffix('')} from a machine that has one, made there at the same "
        "path, or leave the peer out; pear bench also takes one that is installed in this environment (--peers-here)"
    )


def _environment_python(folder: Path) -> Path:
    """Return the path of the Python interpreter of an environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

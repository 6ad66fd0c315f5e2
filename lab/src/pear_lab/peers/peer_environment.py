"""A virtual environment for every peer, because their requirements contradict each other."""

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
"""Written last, so that an environment without it is not whole."""

Say = Callable[[str], None]


def peer_cache_folder() -> Path:
    """Where environments are kept: ``$PEAR_CACHE``, or ``pear`` in the user's cache folder."""
    given = os.environ.get("PEAR_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pear"


def peer_interpreter(peer: Peer, here: bool = False, rebuild: bool = False, say: Say = lambda line: None) -> Path:
    """The Python that can import a peer; its environment is made on the first call and reused by later ones.

    Args:
        peer: which one.
        here: use this very environment, which must have the peer.
        rebuild: make the environment anew.
        say: called with one line on what is being done.

    Raises:
        PeerError: it cannot be installed, or is not here.
    """
    if here:
        if importlib.util.find_spec(peer.module) is None:
            raise PeerError(
                f"{peer.name} cannot be imported in this environment ({sys.prefix}); install "
                f"{' '.join(peer.requirements)} here, or leave --peers-here out, so that it gets one of its own"
            )
        return Path(sys.executable)
    folder = peer_cache_folder() / "peers" / peer.name
    if rebuild or not _is_ready(folder, peer):
        _build_environment(folder, peer, say)
    return _environment_python(folder)


def _is_ready(folder: Path, peer: Peer) -> bool:
    try:
        there = json.loads((folder / READY).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(there.get("requirements") == list(peer.requirements)) and _environment_python(folder).exists()


def _build_environment(folder: Path, peer: Peer, say: Say) -> None:
    """Make a virtual environment with the peer's packages, and mark it as ready at the end."""
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
    _run_logged([sys.executable, "-m", "venv", str(folder)], log, peer, say)
    python = str(_environment_python(folder))
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    _run_logged([*pip, *peer.requirements], log, peer, say)
    (folder / READY).write_text(json.dumps({"requirements": list(peer.requirements)}) + "\n", encoding="utf-8")


def _run_logged(command: list[str], log: Path, peer: Peer, say: Say) -> None:
    """Run a command; write its output to the log, and pass lines that show progress to ``say``."""
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
        raise PeerError(_installation_error(peer, lines, log))


def _installation_error(peer: Peer, lines: list[str], log: Path) -> str:
    """Return the message for a failed installation: the installer's last error, the log and remedies."""
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    said = errors[-1] if errors else (lines[-1] if lines else "nothing")
    return (
        f"cannot install {peer.name} ({', '.join(peer.requirements)}); the installer said: {said}. The whole log is "
        f"{log}. Without a network, copy {log.with_suffix('')} from a machine that has one, made there at the same "
        "path, or leave the peer out; pear bench also takes one that is installed in this environment (--peers-here)"
    )


def _environment_python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

"""Measurements of a peer, by a worker process in the environment of the peer."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pear_lab.peers.peer_environment import peer_environment_variables
from pear_lab.peers.peer_table import WORKERS, Peer, PeerError, PeerTimeoutError

_START = 120.0  # the seconds that a worker may take to import packages, read its data and get ready


@dataclass(frozen=True)
class PeerMeasurement:
    """The measurements of a peer.

    Attributes:
        arrays: the results of the last measurement, by name.
        seconds: the seconds of each measurement.
        versions: the versions of the packages of the peer.
    """

    arrays: dict[str, Any]
    seconds: list[float]
    versions: dict[str, str]


def measure_peer(
    peer: Peer,
    python: Path,
    data: dict[str, Any],
    device: str = "cpu",
    threads: int = 1,
    repeats: int = 5,
    limit: float = 60.0,
    warm_up: bool = True,
    clock: str = "wall",
) -> PeerMeasurement:
    """Run the worker of a peer on given data, and return its results and times.

    Args:
        peer: the peer to measure.
        python: the path of a Python interpreter that can import the peer.
        data: the arrays that the worker reads.
        device: "cpu" or "cuda".
        threads: the number of threads of the peer.
        repeats: the largest number of measurements.
        limit: the seconds that all measurements together may take. A worker that takes much longer is killed.
        warm_up: whether a first measurement does not count.
        clock: "wall", or "processor" for the processor time of the worker.

    Raises:
        PeerTimeoutError: the worker took too long.
        PeerError: the worker failed. The message ends with the last line of its errors.
    """
    with tempfile.TemporaryDirectory(prefix="pear-bench-") as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, **{**data, **dict(peer.options)})
        command = [str(python), str(WORKERS / "worker.py"), str(peer.worker), str(given), str(found)]
        command += ["--device", device, "--threads", str(threads), "--repeats", str(repeats), "--limit", str(limit)]
        command += ["--clock", clock]
        _run_measurement(peer, command if warm_up else [*command, "--no-warm-up"], threads, _START + 3 * limit)
        with np.load(found) as stored:
            arrays = {name: stored[name] for name in stored.files}
    seconds, versions = arrays.pop("seconds").tolist(), json.loads(str(arrays.pop("versions")))
    return PeerMeasurement(arrays, seconds, versions)


def _run_measurement(peer: Peer, command: list[str], threads: int, timeout: float) -> None:
    """Run a worker to its end; raise ``PeerError`` if it fails or takes too long."""
    variables = peer_environment_variables(command[0], threads)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=variables)
    except subprocess.TimeoutExpired as error:
        raise PeerTimeoutError(f"{peer.name} was ended after {timeout:.0f} s") from error
    if done.returncode:
        raise PeerError(f"{peer.name} failed: {last_peer_error_line(done.stderr) or f'exit code {done.returncode}'}")


def last_peer_error_line(text: str) -> str:
    """Return the last line of a worker's errors; empty without errors."""
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return words[-1] if words else ""

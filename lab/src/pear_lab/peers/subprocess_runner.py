"""Run a peer's worker on data, and read what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pear_lab.peers.peer_table import WORKERS, Peer, PeerError, PeerTimeoutError

_START = 120.0  # seconds a worker may take to import, to read its data and to set itself up


@dataclass(frozen=True)
class PeerMeasurement:
    """What a worker measured.

    Attributes:
        arrays: result of the last measurement, by name.
        seconds: seconds of each measurement.
        versions: versions of the packages it used.
    """

    arrays: dict[str, Any]
    seconds: list[float]
    versions: dict[str, str]


def measure(
    peer: Peer,
    python: Path,
    data: dict[str, Any],
    device: str = "cpu",
    threads: int = 1,
    repeats: int = 5,
    limit: float = 60.0,
    warm_up: bool = True,
) -> PeerMeasurement:
    """Run a peer's worker on ``data``.

    Args:
        peer: the peer to measure.
        python: Python interpreter that can import the peer.
        data: arrays that the worker reads.
        device: "cpu" or "cuda".
        threads: number of threads of the peer.
        repeats: largest number of measurements.
        limit: seconds that all measurements together may take; a worker that takes much longer is killed.
        warm_up: whether to run one measurement first that does not count.

    Raises:
        PeerTimeoutError: it took too long.
        PeerError: it failed; the message ends with its last error line.
    """
    with tempfile.TemporaryDirectory(prefix="pear-bench-") as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, **{**data, **dict(peer.options)})
        command = [str(python), str(WORKERS / "worker.py"), str(peer.worker), str(given), str(found)]
        command += ["--device", device, "--threads", str(threads), "--repeats", str(repeats), "--limit", str(limit)]
        _run(peer, command if warm_up else [*command, "--no-warm-up"], threads, _START + 3 * limit)
        with np.load(found) as stored:
            arrays = {name: stored[name] for name in stored.files}
    seconds, versions = arrays.pop("seconds").tolist(), json.loads(str(arrays.pop("versions")))
    return PeerMeasurement(arrays, seconds, versions)


def _run(peer: Peer, command: list[str], threads: int, timeout: float) -> None:
    variables = environment(command[0], threads)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=variables)
    except subprocess.TimeoutExpired as error:
        raise PeerTimeoutError(f"{peer.name} was ended after {timeout:.0f} s") from error
    if done.returncode:
        raise PeerError(f"{peer.name} failed: {last_words(done.stderr) or f'exit code {done.returncode}'}")


def environment(python: str, threads: int) -> dict[str, str]:
    """The environment variables of a worker."""
    count = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # nothing of this environment may leak into the peer's own
    hidden = () if python == sys.executable else ("PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in hidden} | count


def last_words(text: str) -> str:
    """The last line of a worker's errors; empty where there is none."""
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return words[-1] if words else ""

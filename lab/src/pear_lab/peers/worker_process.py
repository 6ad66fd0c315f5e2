"""Run a peer's worker in a process of its own: once for a measurement, or as a layer that answers many calls."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
        clock: "wall", or "processor" for the time that the worker computes.

    Raises:
        PeerTimeoutError: it took too long.
        PeerError: it failed; the message ends with its last error line.
    """
    with tempfile.TemporaryDirectory(prefix="pear-bench-") as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, **{**data, **dict(peer.options)})
        command = [str(python), str(WORKERS / "worker.py"), str(peer.worker), str(given), str(found)]
        command += ["--device", device, "--threads", str(threads), "--repeats", str(repeats), "--limit", str(limit)]
        command += ["--clock", clock]
        _run_worker(peer, command if warm_up else [*command, "--no-warm-up"], threads, _START + 3 * limit)
        with np.load(found) as stored:
            arrays = {name: stored[name] for name in stored.files}
    seconds, versions = arrays.pop("seconds").tolist(), json.loads(str(arrays.pop("versions")))
    return PeerMeasurement(arrays, seconds, versions)


def _run_worker(peer: Peer, command: list[str], threads: int, timeout: float) -> None:
    """Run a worker to its end; raise ``PeerError`` if it fails or takes too long."""
    variables = worker_environment(command[0], threads)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=variables)
    except subprocess.TimeoutExpired as error:
        raise PeerTimeoutError(f"{peer.name} was ended after {timeout:.0f} s") from error
    if done.returncode:
        raise PeerError(f"{peer.name} failed: {last_error_line(done.stderr) or f'exit code {done.returncode}'}")


def worker_environment(python: str, threads: int) -> dict[str, str]:
    """The environment variables of a worker."""
    count = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # nothing of this environment may leak into the peer's own
    hidden = () if python == sys.executable else ("PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in hidden} | count


def last_error_line(text: str) -> str:
    """The last line of a worker's errors; empty where there is none."""
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return words[-1] if words else ""


class PeerLayer:
    """Long-only portfolios ``min ½ wᵀQw + cᵀw``, Σᵢ wᵢ = 1, w ≥ 0, decided and differentiated by a peer.

    The worker computes, and raw float64 numbers go to and fro; it is loaded and has made one decision when the
    constructor returns. It keeps the last batch alone, so that ``backward`` must come before the next call.

    Args:
        peer: the peer, whose worker must offer ``layer``.
        python: Python interpreter that can import the peer.
        n: number of assets.
        threads: number of threads of the peer.

    Attributes:
        seconds: seconds of the peer's forward pass ("solve") and backward pass ("gradient"), and of the data transfer
            ("transport").

    Raises:
        PeerError: the worker failed at the start or at a call; the message ends with its last error line.
    """

    def __init__(self, peer: Peer, python: Path, n: int, threads: int = 1) -> None:
        self.peer, self.n = peer, n
        self.seconds = {"solve": 0.0, "gradient": 0.0, "transport": 0.0}
        self.calls = 0
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in close)
        command = [str(python), str(WORKERS / "worker.py"), str(peer.worker), "--serve", str(n)]
        self._worker = subprocess.Popen(
            [*command, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=worker_environment(str(python), threads),
        )
        try:
            self._read(1)
        except PeerError:
            self.close()
            raise

    def __enter__(self) -> PeerLayer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._worker.kill()
        self._worker.communicate()
        self._errors.close()

    def __call__(self, cost: Tensor, Q: Tensor) -> Tensor:
        """(B, n) costs and (B, n, n) curvatures → (B, n) portfolios, differentiable by both."""
        weights: Tensor = _Decide.apply(cost, Q, self)
        return weights

    def ask(self, what: str, size: int, given: tuple[Tensor, ...], shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
        """Send one call to the worker and return its answer.

        Args:
            what: name under which the time is counted, "solve" or "gradient".
            size: size of the batch; 0 requests the gradients of the last batch.
            given: tensors to send.
            shapes: shapes of the tensors to receive.
        """
        began = time.perf_counter()
        try:
            for part in (struct.pack("<q", size), *(tensor.contiguous().numpy().tobytes() for tensor in given)):
                self._stream("stdin").write(part)
            self._stream("stdin").flush()
        except OSError:  # it has ended; reading says why
            pass
        counts = [torch.Size(shape).numel() for shape in shapes]
        seconds, *values = self._read(1 + sum(counts)).split([1, *counts])
        self.seconds[what] += float(seconds)
        self.seconds["transport"] += time.perf_counter() - began - float(seconds)
        return [value.reshape(shape) for value, shape in zip(values, shapes, strict=True)]

    def _read(self, count: int) -> Tensor:
        data = bytearray(self._stream("stdout").read(8 * count))
        if len(data) < 8 * count:
            code = self._worker.wait()
            self._errors.seek(0)
            raise PeerError(f"{self.peer.name} failed: {last_error_line(self._errors.read()) or f'exit code {code}'}")
        return torch.frombuffer(data, dtype=torch.float64)

    def _stream(self, name: str) -> Any:
        return getattr(self._worker, name)


class _Decide(torch.autograd.Function):
    """The autograd function that sends both passes to the worker."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, Q: Tensor, layer: PeerLayer) -> Tensor:
        B, n = cost.shape
        layer.calls += 1
        ctx.layer, ctx.call, ctx.shapes = layer, layer.calls, (Q.shape, cost.shape)
        (weights,) = layer.ask("solve", B, (Q.detach().double(), cost.detach().double()), ((B, n),))
        return weights.to(cost)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the peer's gradients with respect to cost and Q; ``slopes`` holds ∂L/∂z (B, n)."""
        layer: PeerLayer = ctx.layer
        if ctx.call != layer.calls:
            raise PeerError(
                f"{layer.peer.name} keeps the last batch alone, and another came after this one; call backward before "
                "the next batch"
            )
        (slope,) = slopes
        by_Q, by_cost = layer.ask("gradient", 0, (slope.double(),), ctx.shapes)
        return by_cost.to(slope), by_Q.to(slope), None

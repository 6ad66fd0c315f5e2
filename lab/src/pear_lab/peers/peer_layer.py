"""``PeerLayer``: a peer's layer for portfolios, in a worker process that answers many calls."""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pear_lab.peers.peer_environment import peer_environment_variables
from pear_lab.peers.peer_measurement import last_peer_error_line
from pear_lab.peers.peer_table import WORKERS, Peer, PeerError


class PeerLayer:
    """A layer for long-only portfolios ``min ½ wᵀQw + cᵀw``, Σᵢ wᵢ = 1, w ≥ 0, computed by a peer in its own process.

    The process is ready and has made one decision when the constructor returns. It keeps only the last batch, so that
    ``backward`` must come before the next call. Numbers are sent in float64.

    Args:
        peer: the peer, whose worker must have a ``LAYER``.
        python: the path of a Python interpreter that can import the peer.
        n: the number of assets.
        threads: the number of threads of the peer.

    Attributes:
        seconds: the seconds of the peer's forward passes ("solve"), of its backward passes ("gradient"), and of the
            data transfer ("transport").
        calls: the number of forward passes.

    Raises:
        PeerError: the process failed at the start or at a call. The message ends with the last line of its errors.
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
            env=peer_environment_variables(str(python), threads),
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
        """End the process."""
        self._worker.kill()
        self._worker.communicate()
        self._errors.close()

    def __call__(self, cost: Tensor, Q: Tensor) -> Tensor:
        """Decide portfolios (B, n) for costs (B, n) and curvatures (B, n, n), differentiable with respect to both."""
        weights: Tensor = _PeerLayerFunction.apply(cost, Q, self)
        return weights

    def ask(self, what: str, size: int, given: tuple[Tensor, ...], shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
        """Send one call to the process, and return the answer.

        Args:
            what: the name under which the time is counted, "solve" or "gradient".
            size: the size of the batch, or 0 to request the gradients of the last batch.
            given: the tensors to send.
            shapes: the shapes of the tensors to receive.
        """
        began = time.perf_counter()
        try:
            for part in (struct.pack("<q", size), *(tensor.contiguous().numpy().tobytes() for tensor in given)):
                self._stream("stdin").write(part)
            self._stream("stdin").flush()
        except OSError:  # the process has ended, and reading says why
            pass
        counts = [torch.Size(shape).numel() for shape in shapes]
        seconds, *values = self._read(1 + sum(counts)).split([1, *counts])
        self.seconds[what] += float(seconds)
        self.seconds["transport"] += time.perf_counter() - began - float(seconds)
        return [value.reshape(shape) for value, shape in zip(values, shapes, strict=True)]

    def _read(self, count: int) -> Tensor:
        """Read ``count`` numbers from the process.

        Raises:
            PeerError: the process has ended.
        """
        data = bytearray(self._stream("stdout").read(8 * count))
        if len(data) < 8 * count:
            code = self._worker.wait()
            self._errors.seek(0)
            raise PeerError(
                f"{self.peer.name} failed: {last_peer_error_line(self._errors.read()) or f'exit code {code}'}"
            )
        return torch.frombuffer(data, dtype=torch.float64)

    def _stream(self, name: str) -> Any:
        """Return the stream "stdin" or "stdout" of the process. Both always exist."""
        return getattr(self._worker, name)


class _PeerLayerFunction(torch.autograd.Function):
    """The autograd function of ``PeerLayer``, which lets the process compute both passes."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, Q: Tensor, layer: PeerLayer) -> Tensor:
        B, n = cost.shape
        layer.calls += 1
        ctx.layer, ctx.call, ctx.shapes = layer, layer.calls, (Q.shape, cost.shape)
        (weights,) = layer.ask("solve", B, (Q.detach().double(), cost.detach().double()), ((B, n),))
        return weights.to(cost)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients with respect to costs (B, n) and curvatures (B, n, n).

        The only entry of ``slopes`` is the gradient (B, n) with respect to the decisions.
        """
        layer: PeerLayer = ctx.layer
        if ctx.call != layer.calls:
            raise PeerError(
                f"{layer.peer.name} keeps the last batch alone, and another came after this one; call backward before "
                "the next batch"
            )
        (slope,) = slopes
        by_Q, by_cost = layer.ask("gradient", 0, (slope.double(),), ctx.shapes)
        return by_cost.to(slope), by_Q.to(slope), None

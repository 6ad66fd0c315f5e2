"""The process that runs one peer in its own environment. It measures the peer, or serves the peer's layer.

``python worker.py PEER.py IN.npz OUT.npz`` reads data, measures, and writes the arrays of the last measurement and the
seconds of all measurements. ``python worker.py PEER.py --serve N`` answers calls for N assets over stdin and
stdout, as ``serve_worker_layer`` describes.

The file ``PEER.py`` has ``PACKAGES``, whose versions are reported, and one of three functions:

- ``LAYER(Q)`` takes curvatures Q (B, n, n), and returns a function from costs (B, n) to long-only portfolios (B, n).
- ``PROGRAM(data)`` returns a function from costs to solutions of ``min ½ zᵀQz + cᵀz`` subject to ``Az = b, Cz ≤ d``.
  The data has Q, A, b, C and d, each shared by all samples or with a first dimension for the samples.
- ``PREPARE(data, device)`` returns a function without arguments that does one measurement and returns named arrays.

The data of the gradient benchmark has Q, A, b, G, h, lb, ub, ``cost`` (B, n), ``true`` (B, n) and the options of the
peer. C and d are then G, h and the finite bounds as rows.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Step = Callable[[], dict[str, Any]]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


def run_worker() -> None:
    """Load the peer that the command line names, and measure it or serve its layer."""
    options = _parse_worker_options()
    sys.path.pop(0)  # the folder of this file, whose modules must not hide packages of the same name
    peer = _load_worker_peer(options.peer)
    if options.serve:
        serve_worker_layer(peer.LAYER, options.serve, options.threads)
        return
    with np.load(options.input) as stored:
        data = {name: stored[name] for name in stored.files}
    step: Step = _prepare_worker_step(peer, add_worker_bound_rows(data) if "lb" in data else data, options.device)
    _limit_worker_threads(options.threads)
    # without torch, a step returns arrays of numpy, and there is nothing to wait for
    wait = wait_for_worker_device(options.device if "torch" in sys.modules else "cpu")
    arrays, seconds = measure_worker_steps(
        lambda: step, options.repeats, options.limit, options.warm_up, wait, options.clock
    )
    np.savez(options.output, seconds=seconds, versions=json.dumps(_list_package_versions(peer.PACKAGES)), **arrays)


def _prepare_worker_step(peer: Any, data: dict[str, Any], device: str) -> Step:
    """Return the step of a peer, a function without arguments that is to be measured."""
    if "jax" in peer.PACKAGES:
        _configure_worker_jax(device)
    if hasattr(peer, "PREPARE"):
        prepared: Step = peer.PREPARE(data, device)
        return prepared
    return make_worker_regret_step(
        peer.PROGRAM if hasattr(peer, "PROGRAM") else lambda data: peer.LAYER(data["Q"]), data, device
    )


def _configure_worker_jax(device: str) -> None:
    """Set JAX to float64 and to a device, and to a single thread if the process has a single one."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the GPU has data of another process
    os.environ["JAX_TRACEBACK_FILTERING"] = "off"  # so that the last line of an error is the error
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", device)


def add_worker_bound_rows(data: dict[str, Any]) -> dict[str, Any]:
    """Add ``Cz ≤ d`` to the data: the rows of G, then the finite lower and upper bounds (n,), shared by all samples.

    Example:
        >>> data = {"G": np.ones((1, 2)), "h": np.ones(1), "lb": np.zeros(2), "ub": np.array([np.inf, 3.0])}
        >>> add_worker_bound_rows(data)["d"].tolist()
        [1.0, -0.0, -0.0, 3.0]
    """
    G, h, lb, ub = (data[name] for name in ("G", "h", "lb", "ub"))
    lower, upper = np.isfinite(lb), np.isfinite(ub)
    one = np.eye(len(lb))
    rows, limits = np.vstack([-one[lower], one[upper]]), np.concatenate([-lb[lower], ub[upper]])
    C = np.concatenate([G, np.broadcast_to(rows, (*G.shape[:-2], *rows.shape))], -2)
    d = np.concatenate([h, np.broadcast_to(limits, (*h.shape[:-1], *limits.shape))], -1)
    return {**data, "C": C, "d": d}


def make_worker_regret_step(
    program: Callable[[dict[str, Any]], Callable[[Any], Any]], data: dict[str, Any], device: str
) -> Step:
    """Return a step that decides, and computes the gradient of the true objective with respect to the predicted costs.

    Args:
        program: the ``PROGRAM`` of a peer.
        data: the arrays of the gradient benchmark.
        device: "cpu" or "cuda".
    """
    import torch

    tensors = {name: torch.from_numpy(value).to(device) for name, value in data.items() if value.ndim}
    Q, cost, true = (tensors[name] for name in ("Q", "cost", "true"))
    decide = program(tensors)

    def step() -> dict[str, Any]:
        moving = cost.clone().requires_grad_()
        z = decide(moving)
        (0.5 * (z * times_curvature(Q, z)).sum() + (true * z).sum()).backward()
        assert moving.grad is not None
        return {"gradient": moving.grad.cpu().numpy()}

    return step


def times_curvature(Q: Any, z: Any) -> Any:
    """Return the products (B, n) of decisions z (B, n) and Q, which is (n, n) or (B, n, n)."""
    return z @ Q if Q.ndim == z.ndim else (Q @ z[:, :, None])[:, :, 0]


def serve_worker_layer(layer: Callable[[Any], Callable[[Any], Any]], n: int, threads: int) -> None:
    """Answer calls of a layer until stdin ends. All numbers are sent as raw bytes, in float64.

    A call begins with a batch size B (int64). If B > 0, curvatures (B, n, n) and costs (B, n) follow, and decisions
    (B, n) are returned. If B = 0, the gradient with respect to the last decisions follows, in their shape, and the
    gradients with respect to curvatures and costs are returned. Every answer begins with the seconds that the layer
    took. A first answer without a call says that the peer is loaded and has made one decision.

    Args:
        layer: the ``LAYER`` of a peer.
        n: the number of assets.
        threads: the number of threads.
    """
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # texts that the peer prints must not mix with the answers
    import torch

    def read(*shape: int) -> Any:
        data = bytearray(calls.read(8 * int(np.prod(shape))))
        return torch.frombuffer(data, dtype=torch.float64).reshape(shape)

    def answer(began: float, *found: Any) -> None:
        seconds = time.perf_counter() - began
        answers.write(struct.pack("<d", seconds))
        for tensor in found:
            answers.write(tensor.detach().contiguous().numpy().tobytes())
        answers.flush()

    layer(torch.eye(n, dtype=torch.float64)[None])(torch.zeros(1, n, dtype=torch.float64))
    _limit_worker_threads(threads)
    answer(time.perf_counter())
    while header := calls.read(8):
        (B,) = struct.unpack("<q", header)
        if B:
            Q, cost = read(B, n, n).requires_grad_(), read(B, n).requires_grad_()
            began = time.perf_counter()
            z = layer(Q)(cost)
            answer(began, z)
        else:
            slope = read(*z.shape)
            began = time.perf_counter()
            answer(began, *torch.autograd.grad(z, (Q, cost), slope))


def measure_worker_steps(
    fresh: Callable[[], Step],
    repeats: int,
    limit: float,
    warm_up: bool,
    wait: Callable[[], None],
    clock: str = "wall",
) -> tuple[dict[str, Any], list[float]]:
    """Measure a step several times.

    Args:
        fresh: makes the step anew for each measurement, before the clock starts.
        repeats: the largest number of measurements.
        limit: the seconds that warm-up and measurements together may take. One measurement is always made.
        warm_up: whether a first measurement does not count.
        wait: waits until the device is idle.
        clock: "wall", or "processor" for the processor time of all threads of this process.

    Returns:
        The arrays of the last measurement, and the seconds of each.
    """
    now = CLOCKS[clock]
    began = time.perf_counter()
    if warm_up:
        fresh()()
    seconds: list[float] = []
    arrays: dict[str, Any] = {}
    while not seconds or (len(seconds) < repeats and time.perf_counter() - began + min(seconds) < limit):
        step = fresh()
        wait()
        start = now()
        arrays = step()
        wait()
        seconds.append(now() - start)
    return arrays, seconds


def wait_for_worker_device(device: str) -> Callable[[], None]:
    """Return a function that waits until a device is idle. For the CPU it does nothing."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def _parse_worker_options() -> argparse.Namespace:
    """Return the options of the command line, and set the number of threads before any library is loaded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", type=Path)
    for name in ("input", "output"):
        parser.add_argument(name, type=Path, nargs="?")
    parser.add_argument("--serve", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--no-warm-up", dest="warm_up", action="store_false")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # libraries read it when they are loaded
    return options


def _load_worker_peer(path: Path) -> Any:
    """Import the file of a peer as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _limit_worker_threads(count: int) -> None:
    """Set the number of threads of torch, if the peer has loaded it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)


def _list_package_versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed, by name."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


if __name__ == "__main__":
    run_worker()

"""Runs one peer in its own environment: measures it on data that come as a ``.npz`` file, or serves its layer.

Run as ``python worker.py PEER.py IN.npz OUT.npz``, or as ``python worker.py PEER.py --serve N``, which answers over
stdin and stdout, see ``serve``. ``PEER.py`` has ``PACKAGES``, whose versions are reported, and one of three functions.
``layer(Q)`` returns its layer for long-only portfolios, from costs (B, n) to decisions, given the curvatures Q (B, n,
n). ``program(data)`` does the same for any ``min ½ zᵀQz + cᵀz`` subject to ``Az = b, Cz ≤ d``, given Q, A, b, C and d,
each shared by all samples or with a first dimension for them. ``prepare(data, device)`` returns a function without
arguments: one measurement, forward and backward, that returns named arrays. The arrays of the last measurement and the
seconds of all are written.

The file has Q, A, b, G, h, lb and ub, ``cost`` (B, n) and ``true`` (B, n), and the peer's options; C and d are G, h and
the finite bounds as rows.
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


def main() -> None:
    """Load, warm up, measure, write."""
    options = _parse_options()
    sys.path.pop(0)  # the folder of this file: a peer's file must not shadow the package of the same name
    peer = _load_peer(options.peer)
    if options.serve:
        serve(peer.layer, options.serve, options.threads)
        return
    with np.load(options.input) as stored:
        data = {name: stored[name] for name in stored.files}
    step: Step = _prepare_step(peer, with_bounds_as_rows(data) if "lb" in data else data, options.device)
    _limit_threads(options.threads)
    # a step without torch returns arrays of numpy, so that there is nothing to wait for
    wait = synchronize(options.device if "torch" in sys.modules else "cpu")
    arrays, seconds = measure_steps(lambda: step, options.repeats, options.limit, options.warm_up, wait, options.clock)
    np.savez(options.output, seconds=seconds, versions=json.dumps(_package_versions(peer.PACKAGES)), **arrays)


def _prepare_step(peer: Any, data: dict[str, Any], device: str) -> Step:
    if "jax" in peer.PACKAGES:
        _set_up_jax(device)
    if hasattr(peer, "prepare"):
        prepared: Step = peer.prepare(data, device)
        return prepared
    return make_regret_step(
        peer.program if hasattr(peer, "program") else lambda data: peer.layer(data["Q"]), data, device
    )


def _set_up_jax(device: str) -> None:
    """Set JAX to float64, to this device, and to the number of threads that was asked for."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # another process has data on the same GPU
    os.environ["JAX_TRACEBACK_FILTERING"] = "off"  # so that the last line of an error is the error
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", device)


def with_bounds_as_rows(data: dict[str, Any]) -> dict[str, Any]:
    """The data with ``Cz ≤ d``: the rows of G, then the finite lower and upper bounds (n,), which all samples share.

    Example:
        >>> data = {"G": np.ones((1, 2)), "h": np.ones(1), "lb": np.zeros(2), "ub": np.array([np.inf, 3.0])}
        >>> with_bounds_as_rows(data)["d"].tolist()
        [1.0, -0.0, -0.0, 3.0]
    """
    G, h, lb, ub = (data[name] for name in ("G", "h", "lb", "ub"))
    lower, upper = np.isfinite(lb), np.isfinite(ub)
    one = np.eye(len(lb))
    rows, limits = np.vstack([-one[lower], one[upper]]), np.concatenate([-lb[lower], ub[upper]])
    C = np.concatenate([G, np.broadcast_to(rows, (*G.shape[:-2], *rows.shape))], -2)
    d = np.concatenate([h, np.broadcast_to(limits, (*h.shape[:-1], *limits.shape))], -1)
    return {**data, "C": C, "d": d}


def make_regret_step(
    program: Callable[[dict[str, Any]], Callable[[Any], Any]], data: dict[str, Any], device: str
) -> Step:
    """The regret and its gradient, the same for every peer but for its layer."""
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
    """Multiply decisions z (B, n) by Q, which is (n, n) for all samples or (B, n, n)."""
    return z @ Q if Q.ndim == z.ndim else (Q @ z[:, :, None])[:, :, 0]


def serve(layer: Callable[[Any], Callable[[Any], Any]], n: int, threads: int) -> None:
    """Answer calls of a layer for n assets until stdin ends; the numbers are raw float64.

    A batch size B > 0 (int64) asks for the decisions: Q (B, n, n) and costs (B, n) follow, decisions (B, n) come back.
    B = 0 asks for the gradients of that batch: those by the decisions (B, n) follow, those by Q and by the costs come
    back. Before every answer come the seconds that the layer took. A first answer without a call, of zero seconds, says
    that the peer is loaded and has made one decision.
    """
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the peer prints must not mix with the answers
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
    _limit_threads(threads)
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


def measure_steps(
    fresh: Callable[[], Step],
    repeats: int,
    limit: float,
    warm_up: bool,
    wait: Callable[[], None],
    clock: str = "wall",
) -> tuple[dict[str, Any], list[float]]:
    """Measure several times. Return the arrays of the last measurement and the seconds of each.

    Args:
        fresh: called before each measurement, outside of the time that counts; returns what is measured.
        repeats: the largest number of repeats; fewer where they would take more than ``limit`` seconds together.
        limit: seconds that all measurements together may take, the warm-up included.
        warm_up: whether there is one measurement before, which does not count.
        wait: returns when the device has nothing left to do.
        clock: "wall", or "processor" for the time that all threads of this process compute.
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


def synchronize(device: str) -> Callable[[], None]:
    """Return a function that waits until a CUDA device is idle; on the CPU it does nothing."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def _parse_options() -> argparse.Namespace:
    """Read the worker's command line, and set the number of threads before any library is loaded."""
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
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read when a library is loaded, so before the peer is
    return options


def _load_peer(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _limit_threads(count: int) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)


def _package_versions(packages: tuple[str, ...]) -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


if __name__ == "__main__":
    main()

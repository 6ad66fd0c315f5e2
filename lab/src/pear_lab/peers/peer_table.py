"""The table of peers. A new peer needs a worker file and a row of this table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pear.errors import PearError

WORKERS = Path(__file__).parent / "workers"


class PeerError(PearError, RuntimeError):
    """The error of a peer that is not known, cannot be installed, or failed while it was measured."""


class PeerTimeoutError(PeerError):
    """The error of a peer that took too long."""


@dataclass(frozen=True)
class Peer:
    """Another library, as a row of ``PEERS``.

    A library that takes part in two benchmarks, or with two settings, has two rows and one environment.

    Attributes:
        name: the name on the command line and of the environment.
        title: the name in tables of results.
        module: the module to import.
        worker: the file that runs the library.
        requirements: the packages that pip installs.
        command: the benchmark that the row takes part in.
        devices: the supported devices.
        note: a remark of one line.
        structures: the supported structures of ``pear bench gradient``; None for all.
        options: further numbers or words for the worker, by name.
        measures: "gradient", or "decision" if there is only a forward pass.
        loose: whether the options trade accuracy for time.
    """

    name: str
    title: str
    module: str
    worker: Path
    requirements: tuple[str, ...]
    command: str = "gradient"
    devices: tuple[str, ...] = ("cpu",)
    note: str = ""
    structures: tuple[str, ...] | None = None
    options: tuple[tuple[str, float | str], ...] = ()
    measures: str = "gradient"
    loose: bool = False

    def takes(self, structure: str) -> bool:
        """Return whether the peer supports programs of a structure."""
        return self.structures is None or structure in self.structures


# A plain `torch` may bring several GB of CUDA; a pin of this release is met by its CPU build where one is offered.
_TORCH = "torch==2.13.0"
_PORTFOLIO = ("portfolio",)
_LINEAR = ("knapsack", "path-5", "path-12")
_QPAX = ("qpax==0.1.4", "jax>=0.10,<0.12")
_QPSOLVERS = ("qpsolvers==4.13.0", "daqp==0.10.3", "piqp==0.6.4", "osqp==1.1.3", "scipy")
_PYEPO = (_TORCH, "pyepo[ortools,pyomo]==2.2.7", "highspy==1.15.1")

PEERS: tuple[Peer, ...] = (
    Peer(
        "dqp", "dQP (DAQP)", "dqp", WORKERS / "run_dqp.py", (_TORCH, "libdqp==0.1.2", "daqp"),
        note="any QP solver, derivative from the active rows; installs many solvers, some of them commercial",
        structures=_PORTFOLIO,
    ),
    Peer(
        "moreau", "Moreau", "moreau", WORKERS / "run_moreau.py", (_TORCH, "moreau==0.4.1", "scipy"),
        note="batched conic solver, through its own torch interface", structures=_PORTFOLIO,
    ),
    Peer(
        "qpth", "qpth", "qpth", WORKERS / "run_qpth.py", (_TORCH, "qpth==0.0.18", "numpy<2"),
        devices=("cpu", "cuda"), note="batched interior point; needs numpy below 2",
    ),
    Peer(
        "qpth", "qpth", "qpth", WORKERS / "run_qpth_epoch.py", (_TORCH, "qpth==0.0.18", "numpy<2"), "epoch",
        note="batched interior point; needs numpy below 2",
    ),
    Peer(
        "cvxpylayers", "cvxpylayers", "cvxpylayers", WORKERS / "run_cvxpylayers.py",
        (_TORCH, "cvxpylayers==1.2.0", "diffcp"), note="any convex program; diffcp, its default",
        structures=_PORTFOLIO,
    ),
    Peer(
        "cvxpylayers", "cvxpylayers", "cvxpylayers", WORKERS / "run_cvxpylayers_rolling.py",
        (_TORCH, "cvxpylayers==1.2.0", "diffcp"), "rolling", note="any convex program; diffcp, its default",
    ),
    Peer(
        "qpax", "qpax", "qpax", WORKERS / "run_qpax.py", _QPAX, devices=("cpu", "cuda"),
        options=(("solver_tol", 1e-10), ("target_kappa", 1e-10)), note="batched interior point in JAX, float64",
    ),
    Peer(
        "qpax", "qpax, loose", "qpax", WORKERS / "run_qpax.py", _QPAX, devices=("cpu", "cuda"), loose=True,
        options=(("solver_tol", 1e-5), ("target_kappa", 1e-6)), note="the same with its default tolerance",
    ),
    Peer(
        "mpax", "MPAX, forward", "mpax", WORKERS / "run_mpax.py", ("mpax==0.2.4", "jax>=0.10,<0.12"),
        devices=("cpu", "cuda"), structures=_LINEAR, measures="decision",
        note="first-order LP and QP solver in JAX; the forward pass alone, it has no layer for this derivative",
    ),
    *(
        Peer(
            "qpsolvers", f"{solver.upper()}, forward", solver, WORKERS / "run_qpsolvers.py", _QPSOLVERS,
            measures="decision", options=(("solver", solver),), note="the forward pass alone, in a loop over qpsolvers",
        )
        for solver in ("daqp", "piqp", "osqp")
    ),
    Peer(
        "pyepo", "PyEPO SPO+", "pyepo", WORKERS / "run_pyepo.py", _PYEPO, "training",
        note="no portfolio as a layer; SPO+ with OR-Tools, the fastest of its open back ends",
    ),
    Peer(
        "pyepo", "PyEPO (OR-Tools)", "pyepo", WORKERS / "run_pyepo_methods.py", _PYEPO, "methods",
        options=(("backend", "ortools"), ("solvers", "glop,clp,cbc"), ("integer_solvers", "scip,cbc,sat")),
        note="its losses with the fastest of these solvers",
    ),
    Peer(
        "pyepo", "PyEPO (Pyomo)", "pyepo", WORKERS / "run_pyepo_methods.py", _PYEPO, "methods",
        options=(("backend", "pyomo"), ("solvers", "appsi_highs"), ("integer_solvers", "appsi_highs")),
        note="its losses with HiGHS",
    ),
)  # fmt: skip


def choose_peers(names: Sequence[str], command: str, device: str = "cpu") -> list[Peer]:
    """Return the rows of the named peers for a benchmark.

    Args:
        names: names of peers, or "all" for every row that takes part in the benchmark and supports the device.
        command: the name of the benchmark.
        device: "cpu" or "cuda".

    Raises:
        PeerError: a name is not in the table, or the peer does not take part or does not support the device.

    Example:
        >>> [peer.name for peer in choose_peers(["qpth"], "gradient", "cuda")]
        ['qpth']
    """
    if "all" in names:
        return [peer for peer in PEERS if peer.command == command and device in peer.devices]
    return [peer for name in dict.fromkeys(names) for peer in _find_peer_rows(name, command, device)]


def _find_peer_rows(name: str, command: str, device: str) -> list[Peer]:
    """Return the rows of one peer for a benchmark.

    Raises:
        PeerError: as for ``choose_peers``.
    """
    known = [peer for peer in PEERS if peer.name == name]
    if not known:
        names = list(dict.fromkeys(peer.name for peer in PEERS))
        close = difflib.get_close_matches(name, names, n=1)
        guess = f"; did you mean {close[0]}?" if close else ""
        raise PeerError(f"there is no peer {name!r}; there is {', '.join(names)}, or all of them: all{guess}")
    found = [peer for peer in known if peer.command == command]
    if not found:
        there = f"({known[0].note}); see `pear bench {known[0].command}`"
        raise PeerError(f"{name} takes no part in `pear bench {command}` {there}")
    for peer in found:
        if device not in peer.devices:
            raise PeerError(f"{peer.name} does not compute on {device}; leave it out of --peers")
    return found

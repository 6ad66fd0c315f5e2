"""The table of solvers: one row each. A new backend is one file with a ``solve`` function and one row here."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from pear.errors import MissingExtraError, UnknownSolverError
from pear.problem.canonical import QuadraticProgram
from pear.solvers.base import Candidate

SolveFunction = Callable[..., Candidate]


@dataclass(frozen=True)
class Backend:
    """One row of the registry.

    Attributes:
        name: what users write in ``solver=``.
        module: where its ``solve(qp, tol, **options) -> Candidate`` lives; imported on first use.
        packages: import names that must be present.
        extra: the extra of ``pear-dfl`` that installs them; empty where nothing is needed.
        kinds: of "lp", "qp", "milp".
        gpu: True where tensors stay on the device.
        options: passed on to ``solve`` (the name of a qpsolvers solver, say).
        note: one line for ``pear solvers``.
    """

    name: str
    module: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    kinds: tuple[str, ...] = ("lp", "qp")
    gpu: bool = False
    options: dict[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of its packages that cannot be imported."""
        return tuple(package for package in self.packages if importlib.util.find_spec(package) is None)

    @property
    def installed(self) -> bool:
        """True where every package it needs can be imported."""
        return not self.missing

    @property
    def how_to_install(self) -> str:
        """The command that makes it available."""
        return f"pip install 'pear-dfl[{self.extra}]'" if self.extra else "always there"

    def solve(self, qp: QuadraticProgram, tol: float) -> Candidate:
        """Solve the batch to about ``tol``.

        Raises:
            MissingExtraError: a package it needs is absent.
            UnknownSolverError: it cannot solve this kind of problem.
        """
        if missing := self.missing:
            packages = ("packages " if len(missing) > 1 else "package ") + " and ".join(missing)
            raise MissingExtraError(
                f"solver '{self.name}' needs the {packages}, not installed here; run {self.how_to_install}"
            )
        check(self, kind_of(qp))
        solve: SolveFunction = importlib.import_module(self.module).solve
        return solve(qp, tol, **self.options)


_PREFIX = "qpsolvers:"


def _bridge(name: str, package: str, kinds: tuple[str, ...], note: str) -> Backend:
    return Backend(
        name,
        "pear.solvers.adapters.qpsolvers",
        packages=("qpsolvers", package),
        extra="qpsolvers",
        kinds=kinds,
        options={"name": name},
        note=note,
    )


COMPILED, ON_GPU = "active-set", "pear"
"""The built-in solvers: compiled on the CPU, and batched, with an active-set kernel of its own on a GPU."""

BACKENDS: tuple[Backend, ...] = (
    Backend(
        "pear",
        "pear.solvers.interior_point.dense",
        gpu=True,
        note="built in: batched interior point in torch, the whole batch at once, on CPU and GPU",
    ),
    Backend(
        COMPILED,
        "pear.solvers.active_set.solve",
        note="built in: compiled, sample by sample on all cores; exact, and starts from the last solution",
    ),
    Backend(
        "binary",
        "pear.solvers.binary.solve",
        kinds=("milp",),
        note="built in: compiled branch and bound and dynamic programming for 0-1 programs with few rows",
    ),
    Backend(
        "osqp",
        "pear.solvers.adapters.osqp",
        ("osqp",),
        "osqp",
        note="operator splitting; set up once where H is shared",
    ),
    Backend(
        "highs",
        "pear.solvers.adapters.highs",
        ("highspy",),
        "highs",
        kinds=("lp", "milp"),
        note="simplex and branch and cut; exact vertices, proven integer optima",
    ),
    Backend(
        "scipy",
        "pear.solvers.adapters.scipy",
        kinds=("lp", "milp"),
        note="linprog and milp: always there, slower than highs on small problems",
    ),
    _bridge("daqp", "daqp", ("lp", "qp"), "dual active set; very fast on small dense problems"),
    _bridge("piqp", "piqp", ("lp", "qp"), "proximal interior point; robust on degenerate problems"),
    _bridge("clarabel", "clarabel", ("lp", "qp"), "interior point; tells infeasible from unbounded reliably"),
    _bridge("proxqp", "proxsuite", ("qp",), "augmented Lagrangian; needs curvature, so smooth an LP first"),
)


def available() -> list[Backend]:
    """The backends that can be used in this installation."""
    return [backend for backend in BACKENDS if backend.installed]


def get(name: str) -> Backend:
    """The backend of that name, installed or not.

    ``"qpsolvers:NAME"`` reaches any solver of the qpsolvers package, listed here or not.

    Raises:
        UnknownSolverError: there is none; the message lists what there is and the closest match.
    """
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    if name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        options = {"name": name.removeprefix(_PREFIX)}
        return Backend(name, "pear.solvers.adapters.qpsolvers", ("qpsolvers",), "qpsolvers", options=options)
    names = [backend.name for backend in BACKENDS]
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UnknownSolverError(
        f"unknown solver '{name}': {hint}There are auto, {', '.join(names)}, "
        f"and {_PREFIX}NAME for any other solver of the qpsolvers package"
    )


def kind_of(qp: QuadraticProgram) -> str:
    """What a batch is: "lp", "qp", "milp" or "miqp" (which no backend solves)."""
    integer = qp.integer is not None and bool(qp.integer.any())
    return ("mi" if integer else "") + ("lp" if qp.is_linear else "qp")


def check(backend: Backend, kind: str) -> None:
    """Raise UnknownSolverError, naming the backends that can, where ``backend`` cannot solve problems of ``kind``."""
    if kind in backend.kinds:
        return
    able = [other.name for other in BACKENDS if kind in other.kinds]
    remedy = f"use one of {', '.join(able)}" if able else "no solver here can"
    raise UnknownSolverError(
        f"solver '{backend.name}' solves problems of kind {' and '.join(backend.kinds)}, not {kind}: {remedy}"
    )


def choose(kind: str, device: torch.device | str, sparse: bool = False) -> Backend:
    """What ``solver="auto"`` stands for.

    Continuous problems go to the built-in solvers: on the CPU to the compiled active-set method, on a GPU and where
    they are large and sparse to the interior point. Dense integer ones go to the built-in search, which leaves what is
    not a 0-1 program to the others. The vertices of sparse linear ones, and sparse integer ones, are HiGHS's where it
    is installed and SciPy's where it is not.
    """
    if kind == "qp" or (kind == "lp" and not sparse):
        chosen = get(COMPILED if torch.device(device).type == "cpu" and not sparse else "pear")
    elif kind == "milp" and not sparse:
        chosen = get("binary")
    else:
        highs = get("highs")
        chosen = highs if highs.installed else get("scipy")
    check(chosen, kind)
    return chosen


def resolve(name: str, kind: str, device: torch.device | str, sparse: bool = False) -> Backend:
    """The backend for ``solver=name``: "auto" is chosen, any other name is looked up and checked against the kind."""
    if name == "auto":
        return choose(kind, device, sparse)
    backend = get(name)
    check(backend, kind)
    return backend

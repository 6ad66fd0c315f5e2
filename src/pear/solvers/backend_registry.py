"""The registry of solvers: a table of backends, which the pipeline tries from top to bottom.

A new solver is one file with a ``solve`` function and one row of this table. Only users choose a solver by its name.
The pipeline starts with the first backend whose capabilities fit, and continues down the table if this solver fails.
For some linear programs, ``order_backends_by_cost`` changes the order first. Solvers of other packages
(``pear.plugins``) are backends too, but they run only if a user names them.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pear.errors import MissingExtraError, PluginError, UnknownSolverError
from pear.plugins import find_plugin, plugin_names
from pear.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, Start
from pear.solvers.fused_pass import FusedPass
from pear.solvers.linear_cost import LinearCost
from pear.solvers.warm_starts import WarmStarts

SolveFunction = Callable[..., Candidate]
Rounds = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Backend:
    """A solver and its capabilities: one row of the registry.

    Attributes:
        name: the name that users write in ``solver=``.
        module: the name of a module, imported on first use, or an object. Its function ``solve(qp, tol, **options)``
            returns a ``Candidate``. Three more functions are optional: ``prepare(qp)`` computes what depends on the
            constraints only, ``supports(qp)`` returns whether the solver takes these programs, and
            ``fits_gpu(n, rows)`` returns whether one kernel on a GPU solves programs of this size with curvature.
        packages: import names of the packages that the solver needs.
        extra: the extra of ``pear-dfl`` that installs these packages; empty if no extra does.
        kinds: the kinds of programs that the solver solves: "lp", "qp", "milp".
        gpu: True if the solver works on a GPU without copies to the host.
        sparse: True if the solver takes sparse matrices.
        vertex: True if the solver ends at a vertex when a linear program has several solutions.
        starts_afresh: True if a solve takes less time than the verification of a warm start.
        own_proofs: True if code of this package proves the bounds and statuses of integer programs, so that they need
            no further check.
        fused: the name of a module, imported on first use. Its function ``fused_pass(problem, starts, name)`` returns a
            ``FusedPass``, or None for a problem that the pass does not take. Empty if the solver has no fused pass.
        warm_sparse: True if ``solve`` takes an argument ``start`` for sparse programs.
        rounds: pairs (accuracy, exchanges) for dense programs. The solver is called for one pair after another, until
            all points pass. After each call, the repair exchanges active constraints at most ``exchanges`` times.
        sparse_rounds: the pairs (accuracy, exchanges) for sparse programs.
        lp_seconds: the seconds that the solver needs for a dense linear program on the CPU; see ``LinearCost``. None if
            the solver always keeps its place in the table.
        options: keyword arguments that are passed to ``solve``, such as the name of a solver of qpsolvers.
        note: one line for the command ``pear solvers``.
    """

    name: str
    module: Any
    packages: tuple[str, ...] = ()
    extra: str = ""
    kinds: tuple[str, ...] = ("lp", "qp")
    gpu: bool = False
    sparse: bool = True
    vertex: bool = False
    starts_afresh: bool = False
    own_proofs: bool = False
    fused: str = ""
    warm_sparse: bool = False
    rounds: Rounds = ((1e-6, 8), (1e-10, 60))
    sparse_rounds: Rounds = ((1e-6, 40), (1e-9, 40))
    lp_seconds: LinearCost | None = None
    options: dict[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The required packages that cannot be imported."""
        return tuple(package for package in self.packages if importlib.util.find_spec(package) is None)

    @property
    def installed(self) -> bool:
        """True if every required package can be imported."""
        return not self.missing

    @property
    def how_to_install(self) -> str:
        """The command that installs the required packages; "always there" if none is required."""
        if self.extra:
            return f"pip install 'pear-dfl[{self.extra}]'"
        return f"pip install {' '.join(self.packages)}" if self.packages else "always there"

    def supports(self, qp: QuadraticProgram) -> bool:
        """Return whether the solver takes programs like these, as far as this is known before a solve."""
        if qp.is_sparse and not self.sparse:
            return False
        supports: Callable[[QuadraticProgram], bool] = getattr(self._load(), "supports", lambda qp: True)
        return backend_kind(qp) in self.kinds and supports(qp)

    def fits_gpu(self, n: int, rows: int) -> bool:
        """Return whether one kernel on a GPU solves programs with curvature, n variables and this number of rows."""
        fits: Callable[[int, int], bool] = getattr(self._load(), "fits_gpu", lambda n, rows: False)
        return fits(n, rows)

    def takes_start(self, qp: QuadraticProgram) -> bool:
        """Return whether the solver can start these programs from a given point."""
        return self.warm_sparse and qp.is_sparse

    def rounds_for(self, qp: QuadraticProgram) -> Rounds:
        """Return the pairs (accuracy, exchanges) for these programs; see the attribute ``rounds``."""
        return self.sparse_rounds if qp.is_sparse else self.rounds

    def solve(self, qp: QuadraticProgram, tol: float, start: Start | Candidate | None = None) -> Candidate:
        """Propose a point of relative accuracy ``tol`` for every sample.

        Args:
            qp: the programs.
            tol: relative accuracy.
            start: a warm start, or an earlier candidate to continue from. Solvers that take no start ignore it.

        Raises:
            MissingExtraError: a required package is not installed.
            UnknownSolverError: the solver cannot solve this kind of problem.
        """
        check_backend_kind(self, backend_kind(qp))
        module = self._load()
        given: dict[str, Any] = dict(self.options)
        if hasattr(module, "prepare"):
            given["plan"] = qp.prepare_once(self.name, module.prepare)
        if self.takes_start(qp):
            given["start"] = start
        solve: SolveFunction = module.solve
        return solve(qp, tol, **given)

    def fused_pass(self, problem: Problem, starts: WarmStarts) -> FusedPass | None:
        """Return the fused pass of the solver for a problem; None if the solver has none for this problem.

        Args:
            problem: the decision problem, without integers.
            starts: the store in which the pass keeps the warm starts of the samples.
        """
        if not self.fused:
            return None
        made: FusedPass | None = importlib.import_module(self.fused).fused_pass(problem, starts, self.name)
        return made

    def _load(self) -> Any:
        """Import the module of the solver, or raise MissingExtraError if a required package is not installed."""
        if missing := self.missing:
            packages = ("packages " if len(missing) > 1 else "package ") + " and ".join(missing)
            raise MissingExtraError(
                f"solver '{self.name}' needs the {packages}, not installed here; run {self.how_to_install}"
            )
        return importlib.import_module(self.module) if isinstance(self.module, str) else self.module


_PREFIX = "qpsolvers:"
_RENAMED = {"pear": "interior-point"}  # names of the last release, which say what to write instead


def _qpsolvers_backend(name: str, package: str, kinds: tuple[str, ...], note: str, sparse: bool = True) -> Backend:
    """Return the backend of a solver that is called through the package qpsolvers."""
    return Backend(
        name,
        "pear.solvers.adapters.qpsolvers",
        packages=("qpsolvers", package),
        extra="qpsolvers",
        kinds=kinds,
        sparse=sparse,
        options={"name": name},
        note=note,
    )


BACKENDS: tuple[Backend, ...] = (
    Backend(
        "active-set",
        "pear.solvers.active_set.active_set_solver",
        gpu=True,
        sparse=False,
        vertex=True,
        starts_afresh=True,
        fused="pear.solvers.active_set.compiled_pass",
        rounds=((1e-10, 8),),
        note="built in: compiled, sample by sample on all cores, or one kernel for the batch on a GPU; exact",
    ),
    Backend(
        "interior-point",
        "pear.solvers.interior_point.interior_point_solver",
        gpu=True,
        warm_sparse=True,
        sparse_rounds=((1e-8, 20), (1e-12, 40)),
        lp_seconds=LinearCost(1.8e-2, 1e-8, 1e-8),
        note="built in: interior point, batched in torch on CPU and GPU, or on the non-zeros of large sparse problems",
    ),
    Backend(
        "binary",
        "pear.solvers.binary.binary_solver",
        kinds=("milp",),
        sparse=False,
        own_proofs=True,
        note="built in: compiled branch and bound and dynamic programming for 0-1 programs with few rows",
    ),
    Backend(
        "highs",
        "pear.solvers.adapters.highs",
        ("highspy",),
        "highs",
        kinds=("lp", "milp"),
        vertex=True,
        lp_seconds=LinearCost(3e-3, 4.5e-8, 2e-9),
        note="simplex and branch and cut; exact vertices, proven integer optima",
    ),
    Backend(
        "scipy",
        "pear.solvers.adapters.scipy",
        kinds=("lp", "milp"),
        vertex=True,
        note="linprog and milp: always there, slower than highs on small problems",
    ),
    # the last resort: ordered by how often each of these solvers found a solution when all others failed
    _qpsolvers_backend(
        "clarabel", "clarabel", ("lp", "qp"), "interior point; tells infeasible from unbounded reliably"
    ),
    _qpsolvers_backend(
        "daqp", "daqp", ("lp", "qp"), "dual active set; very fast on small dense problems", sparse=False
    ),
    _qpsolvers_backend("piqp", "piqp", ("lp", "qp"), "proximal interior point; robust on degenerate problems"),
    Backend(
        "osqp",
        "pear.solvers.adapters.osqp",
        ("osqp",),
        "osqp",
        note="operator splitting; set up once where H is shared",
    ),
    # not for sparse programs: its sparse method (proxsuite 0.8.0) corrupts memory on some, and ends the whole process
    _qpsolvers_backend(
        "proxqp", "proxsuite", ("qp",), "augmented Lagrangian; needs curvature, so smooth an LP first", sparse=False
    ),
)


def available_backends() -> list[Backend]:
    """Return the backends whose packages are installed."""
    return [backend for backend in BACKENDS if backend.installed]


def get_backend(name: str) -> Backend:
    """Return the backend of this name, installed or not.

    The name ``"qpsolvers:NAME"`` stands for any solver of the package qpsolvers, even without a row in the table.

    Raises:
        UnknownSolverError: no backend has this name. The message gives a renamed solver's new name, or all names.
    """
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    if name.startswith(_PREFIX) and len(name) > len(_PREFIX):
        options = {"name": name.removeprefix(_PREFIX)}
        return Backend(name, "pear.solvers.adapters.qpsolvers", ("qpsolvers",), "qpsolvers", options=options)
    if (plugin := find_plugin("solver", name)) is not None:
        added: Backend = plugin
        return added
    names = [backend.name for backend in BACKENDS] + plugin_names("solver")
    if name in _RENAMED:
        raise UnknownSolverError(f"the solver '{name}' is now called '{_RENAMED[name]}': use solver='{_RENAMED[name]}'")
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UnknownSolverError(
        f"unknown solver '{name}': {hint}There are auto, {', '.join(names)}, "
        f"and {_PREFIX}NAME for any other solver of the qpsolvers package"
    )


def check_solver_name(name: str) -> None:
    """Raise UnknownSolverError unless ``name`` is "auto" or the name of a backend, installed or not."""
    if name != "auto":
        get_backend(name)


def own_solver_names() -> tuple[str, ...]:
    """Return "auto" and the present and former names of the backends, which no solver of another package may have."""
    return ("auto", *_RENAMED, *(backend.name for backend in BACKENDS))


def check_solver_plugin(name: str, value: Any) -> Backend:
    """Check what another package registers as a solver, and return it as a backend.

    Raises:
        PluginError: ``value`` is not a ``Backend`` with a ``solve``, or its name is not ``name``, or the name begins
            with "qpsolvers:".
    """
    if not isinstance(value, Backend):
        raise PluginError(f"expected a pear.solvers.Backend, got {value!r}")
    if value.name != name:
        raise PluginError(f"its row is called {value.name!r}; the name must be the same in both places")
    if not isinstance(value.module, str) and not callable(getattr(value.module, "solve", None)):
        raise PluginError(f"{value.module!r} has no method solve(qp, tol); name a module, or give an object with one")
    if name.startswith(_PREFIX):
        raise PluginError(f"names that begin with {_PREFIX} belong to the solvers of the qpsolvers package")
    return value


def backend_kind(qp: QuadraticProgram) -> str:
    """Return the kind of backend that programs need: "lp", "qp", "milp" or "miqp". No backend solves "miqp"."""
    integer = qp.integer is not None and bool(qp.integer.any())
    return ("mi" if integer else "") + ("lp" if qp.is_linear else "qp")


def check_backend_kind(backend: Backend, kind: str) -> None:
    """Raise UnknownSolverError, which names the backends of this ``kind``, if ``backend`` cannot solve it."""
    if kind in backend.kinds:
        return
    able = [other.name for other in BACKENDS if kind in other.kinds]
    remedy = f"use one of {', '.join(able)}" if able else "no solver here can"
    raise UnknownSolverError(
        f"solver '{backend.name}' solves problems of kind {' and '.join(backend.kinds)}, not {kind}: {remedy}"
    )


def choose_backend(kind: str, sparse: bool = False) -> Backend:
    """Return the backend of ``solver="auto"``: the first installed backend that solves programs of this kind.

    Args:
        kind: "lp", "qp" or "milp".
        sparse: True if the backend must also take sparse matrices.
    """
    return next(row for row in resolve_backends("auto", kind, sparse) if row.installed)


def resolve_backends(name: str, kind: str, sparse: bool = False) -> list[Backend]:
    """Return the backends to try for ``solver=name``: the named backend, then all others that solve this kind.

    If a solver fails, any other solver may propose a point, because every candidate is verified. The list includes
    backends that are not installed, because a search for packages takes longer than a small solve.

    Args:
        name: the name of a backend, or "auto".
        kind: "lp", "qp" or "milp".
        sparse: True if the backends must also take sparse matrices.

    Raises:
        UnknownSolverError: the named backend does not exist or does not take these programs, or no backend does.
    """
    able = [row for row in BACKENDS if kind in row.kinds and (row.sparse or not sparse)]
    if not able:
        raise UnknownSolverError(f"no solver here takes problems of kind {kind}; relax the integers, or leave Q out")
    if name == "auto":
        return able
    named = get_backend(name)
    check_backend_kind(named, kind)
    if sparse and not named.sparse:
        raise UnknownSolverError(
            f"solver '{name}' takes dense matrices only, and this problem is sparse; leave it to solver='auto', or "
            "pass dense matrices"
        )
    return [named, *(other for other in able if other.name != name)]


def order_backends_by_cost(rows: list[Backend], qp: QuadraticProgram) -> list[Backend]:
    """Return the backends in the order in which to try them.

    For dense linear programs on the CPU, the installed backends with ``lp_seconds`` exchange places, so that those with
    less expected time come first. All other backends keep their places. For other programs, the order is ``rows``.
    """
    if qp.is_sparse or qp.c.is_cuda or backend_kind(qp) != "lp":
        return rows
    seconds = {k: row.lp_seconds.of(qp) for k, row in enumerate(rows) if row.lp_seconds is not None and row.installed}
    ordered = list(rows)
    for place, k in zip(seconds, sorted(seconds, key=seconds.__getitem__), strict=True):
        ordered[place] = rows[k]
    return ordered


def usable_backends(solvers: Iterable[Backend], qp: QuadraticProgram, named: bool = False) -> Iterator[Backend]:
    """Iterate over the backends that take these programs. Those after the first are skipped if they are not installed.

    Args:
        solvers: backends in the order in which to try them.
        qp: the programs.
        named: True if the user named the first backend, which then must take the programs.

    Raises:
        MissingExtraError: the first backend is not installed.
        UnknownSolverError: the named backend does not take the programs.
    """
    for k, row in enumerate(solvers):
        if (k == 0 or row.installed) and row.supports(qp):
            yield row
        elif k == 0 and named:
            raise UnknownSolverError(
                f"solver '{row.name}' does not take {qp.n} variables with {qp.p + qp.m} rows on {qp.c.device.type}; "
                "leave it to solver='auto', or name another"
            )

"""The solvers of the files benchmark, and the process that runs them.

``pear.solve`` reads the file itself, and the other solvers get the judge's arrays. A separate process runs them,
so that a solver may crash or be killed at its time limit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch

from pear.decisions import solve
from pear.errors import FailedSamplesWarning, MissingExtraError, PearError, UnknownSolverError
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.importers import Model, from_file
from pear.solvers.backend_registry import get_backend
from pear_lab.benchmarks.files_benchmark.file_arrays import read_model_file
from pear_lab.judge.answer_accuracy import SolverAnswer
from pear_lab.judge.judged_program import JudgedProgram
from pear_lab.judge.linear_programs import solve_linear_program
from pear_lab.judge.reference_solution import TOLERANCES, make_qpsolvers_problem

OURS = "pear"

_MORE: dict[str, dict[str, Any]] = {"clarabel": {"max_threads": 1}, "osqp": {"max_iter": 1_000_000}}


def is_ours(name: str) -> bool:
    """Whether a name means this library: ``pear``, or ``pear:NAME`` for ``pear.solve`` with that solver."""
    return name.partition(":")[0] == OURS


def check_file_solver(name: str) -> None:
    """Raise an error for a solver that is unknown or not installed.

    Raises:
        UnknownSolverError: there is no such solver.
        MissingExtraError: the package that runs it is not installed.
    """
    if is_ours(name):
        _, colon, ours = name.partition(":")
        if colon:
            get_backend(ours)
        return
    package = {"highs": "highspy", "scipy": "scipy"}.get(name, "qpsolvers")
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(f"solver '{name}' needs the package {package}; run pip install 'pear-dfl[solvers]'")
    if package == "qpsolvers":
        from qpsolvers import available_solvers

        if name not in available_solvers:
            raise UnknownSolverError(
                f"unknown solver '{name}'; expected pear, pear:NAME with a name that `pear solvers` lists, highs, "
                f"scipy, or one that qpsolvers finds here: {', '.join(available_solvers)}"
            )


def prepare_file_solver(path: Path, name: str, tol: float) -> Callable[[], SolverAnswer]:
    """Read the file, load or compile the solver, and return a function that solves the file and times the solve.

    Raises:
        PearError: the file cannot be read.
    """
    if is_ours(name):
        model = from_file(path)
        _warm_up(model.problem, name)
        return lambda: _solve_ours(model, name)
    program = read_model_file(path).program
    function = {"highs": _solve_highs, "scipy": _solve_scipy}.get(name)
    if function is not None:
        return lambda: function(program, tol)
    import qpsolvers  # noqa: F401  loaded before the clock starts

    return lambda: _solve_qpsolvers(program, tol, name)


def _warm_up(like: Problem, name: str) -> None:
    """Solve a tiny problem of the same kind, so that everything is compiled before the clock starts."""
    n = 600 if like.is_sparse else 2
    one = sp.eye_array(n).tocsr()
    integer = None if like.integer is None else True
    problem = Problem(Q=None if like.Q is None else one, G=one, h=np.ones(n), lb=0.0, ub=1.0, integer=integer)
    with contextlib.suppress(PearError):  # the solve of the file raises the same error
        solve(problem, torch.zeros(1, n, dtype=torch.float64), 0.0, _solver_of(name), "mask")


def _solver_of(name: str) -> str:
    """Return the argument ``solver`` of ``pear.solve``: the name after the colon, or "auto"."""
    return name.partition(":")[2] or "auto"


def _solve_ours(model: Model, name: str) -> SolverAnswer:
    """Solve the model with PEAR."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)  # the status says it
            found = solve(model.problem, model.known[None], 0.0, _solver_of(name), "mask")
    except PearError as error:
        return SolverAnswer("refused", seconds=time.perf_counter() - begin, note=str(error))
    seconds, status = time.perf_counter() - begin, Status(int(found.status[0]))
    words = status.name.lower().replace("_", " ")
    if status is not Status.SOLVED:
        return SolverAnswer(words, seconds=seconds, note=status.sentence)
    solved = SolverAnswer(words, found.x[0].numpy(), seconds=seconds)
    if found.duals is None:
        return solved
    return replace(solved, equality=found.duals.equality[0].numpy(), inequality=found.duals.inequality[0].numpy())


def highs_model(P: Any, q: Any, A: Any, l: Any, u: Any, lb: Any, ub: Any, integer: Any) -> Any:  # noqa: E741
    """Make a HiGHS model of ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u, lb ≤ x ≤ ub``."""
    import highspy

    model = highspy.HighsModel()
    lp, columns = model.lp_, sp.csc_array(A)
    lp.num_row_, lp.num_col_ = A.shape
    lp.col_cost_, lp.col_lower_, lp.col_upper_, lp.row_lower_, lp.row_upper_ = q, lb, ub, l, u
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = columns.indptr, columns.indices, columns.data
    if integer.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(one)] for one in integer]
    if P.nnz:
        half = sp.csc_array(sp.tril(P))
        half.sort_indices()
        model.hessian_.dim_, model.hessian_.format_ = len(q), highspy.HessianFormat.kTriangular
        model.hessian_.start_, model.hessian_.index_, model.hessian_.value_ = half.indptr, half.indices, half.data
    return model


def _solve_highs(p: JudgedProgram, tol: float) -> SolverAnswer:
    """Solve the program with HiGHS, at gap 0 where it has integers."""
    import highspy

    begin = time.perf_counter()
    if p.integer.any() and p.H.nnz:
        return SolverAnswer("refused", note="HiGHS takes no integers with a quadratic objective")
    highs = highspy.Highs()
    options: dict[str, bool | int | float] = {"output_flag": False, "threads": 1, "small_matrix_value": 1e-12}
    options |= dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), max(tol, 1e-10))
    options |= {"mip_feasibility_tolerance": max(tol, 1e-10), "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}
    for name, value in options.items():
        highs.setOptionValue(name, value)
    rows, low = sp.vstack([p.A, p.G]), np.concatenate([p.b, np.full(len(p.h), -np.inf)])
    model = highs_model(p.H, p.c, rows, low, np.concatenate([p.b, p.h]), p.lb, p.ub, p.integer)
    if highs.passModel(model) == highspy.HighsStatus.kError:
        return SolverAnswer("refused", note="HiGHS does not take the model")
    highs.run()
    seconds, outcome = time.perf_counter() - begin, highs.modelStatusToString(highs.getModelStatus()).lower()
    if outcome != "optimal":
        return SolverAnswer(outcome, seconds=seconds)
    solution = highs.getSolution()
    equality, inequality = np.split(-np.asarray(solution.row_dual), [len(p.b)])
    return SolverAnswer("solved", np.asarray(solution.col_value), equality, inequality, seconds)


def _solve_scipy(p: JudgedProgram, tol: float) -> SolverAnswer:
    """Solve the program with SciPy: ``milp`` where it has integers, else ``linprog``."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    begin = time.perf_counter()
    if p.H.nnz:
        return SolverAnswer("refused", note="SciPy has no solver for a quadratic objective")
    words = {0: "solved", 2: "infeasible", 3: "unbounded"}
    if p.integer.any():
        rows = [LinearConstraint(p.A, p.b, p.b)] if len(p.b) else []
        rows += [LinearConstraint(p.G, -np.inf, p.h)] if len(p.h) else []
        whole = {"integrality": p.integer, "bounds": Bounds(p.lb, p.ub), "options": {"mip_rel_gap": 0}}
        found = milp(p.c, constraints=rows, **whole)
        status, seconds = words.get(found.status, "inaccurate"), time.perf_counter() - begin
        return SolverAnswer(status, found.x, seconds=seconds, note=found.message)
    options = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), max(tol, 1e-10))
    found = solve_linear_program(p.c, p.lb, p.ub, p.G, p.h, p.A, p.b, **options)
    seconds, status = time.perf_counter() - begin, words.get(found.status, "inaccurate")
    if status != "solved":
        return SolverAnswer(status, seconds=seconds, note=found.message)
    return SolverAnswer(status, found.x, -found.eqlin.marginals, -found.ineqlin.marginals, seconds)


def _solve_qpsolvers(p: JudgedProgram, tol: float, name: str) -> SolverAnswer:
    """Solve the program with the solver ``name`` of qpsolvers."""
    import qpsolvers

    if p.integer.any():
        return SolverAnswer("refused", note=f"{name} takes no integers")
    begin = time.perf_counter()
    options = dict.fromkeys(TOLERANCES.get(name, ()), tol) | _MORE.get(name, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what it falls short of is measured
        try:
            found = qpsolvers.solve_problem(make_qpsolvers_problem(p, name), name, **options)
        except (qpsolvers.exceptions.QPError, ValueError) as error:
            return SolverAnswer("refused", seconds=time.perf_counter() - begin, note=str(error))
    seconds = time.perf_counter() - begin
    if not found.found:
        said = str(found.extras.get("status") or getattr(found.extras.get("info"), "status", ""))
        return SolverAnswer(_status_from_words(said), seconds=seconds, note=said)
    y, z = (np.zeros(k) if v is None else np.asarray(v) for v, k in ((found.y, len(p.b)), (found.z, len(p.h))))
    return SolverAnswer("solved", np.asarray(found.x), y, z, seconds)


def _status_from_words(said: str) -> str:
    """Translate a solver's own message for a failed solve into a status.

    Example:
        >>> [_status_from_words(said) for said in ("PrimalInfeasible", "PROXQP_DUAL_INFEASIBLE", "MaxIterations")]
        ['infeasible', 'unbounded', 'inaccurate']
    """
    plain = said.lower().replace("_", "")
    return "infeasible" if "primalinf" in plain else "unbounded" if "dualinf" in plain else "inaccurate"


STARTING = 900.0
"""Time limit in seconds for reading a file. The library compiles for some minutes on its first use."""


class SolverProcess:
    """A process that runs solvers one after the other under a time limit, and is restarted after a kill.

    Example:
        >>> from pathlib import Path
        >>> with SolverProcess() as solvers:  # doctest: +SKIP
        ...     solvers.ask(Path("plan.mps"), "pear", 1e-8, time_limit=60.0).status
        'solved'
    """

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None
        self._log = tempfile.NamedTemporaryFile("w+", suffix=".log", encoding="utf-8", errors="replace")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        self._log.close()

    def ask(self, path: Path, solver: str, tol: float, time_limit: float) -> SolverAnswer:
        """Return the answer of a solver to a file. Without an answer, its status is "time limit" or "crashed"."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((path, solver, tol))
            ready = self._receive(STARTING)  # the clock of the limit starts once the file is read
            if isinstance(ready, SolverAnswer):
                return ready
            return self._receive(time_limit)
        except TimeoutError:
            self._end()
            return SolverAnswer("time limit", seconds=time_limit, note=f"ended after {time_limit:g} s")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._end()
            return SolverAnswer("crashed", note=self._last_words())

    def _receive(self, seconds: float) -> Any:
        assert self._pipe is not None
        if not self._pipe.poll(seconds):
            raise TimeoutError
        return self._pipe.recv()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with _one_thread_environment():
            self._process = context.Process(target=_serve, args=(theirs, self._log.name), daemon=True)
            self._process.start()
        theirs.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _last_words(self) -> str:
        text = Path(self._log.name).read_text("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "the process ended without a word"


@contextlib.contextmanager
def _one_thread_environment() -> Iterator[None]:
    """Set environment variables that give every library one thread, within the block."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _serve(pipe: Connection, log: str) -> None:
    """Answer requests until the pipe is closed. The output of the solvers goes to the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(to, stream.fileno())
    while True:
        try:
            path, solver, tol = pipe.recv()
        except EOFError:
            return
        try:
            solve = prepare_file_solver(path, solver, tol)
        except PearError as error:
            pipe.send(SolverAnswer("refused", note=str(error)))
            continue
        pipe.send("ready")
        pipe.send(solve())

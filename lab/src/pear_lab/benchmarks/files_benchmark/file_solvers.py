"""The solvers of the files benchmark: PEAR, HiGHS, SciPy, and those of the qpsolvers package.

PEAR imports the file itself. The other solvers get the arrays that ``file_arrays`` reads from it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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


def is_own_file_solver(name: str) -> bool:
    """Return whether a name means PEAR: ``pear``, or ``pear:NAME`` for ``pear.solve`` with one of its solvers."""
    return name.partition(":")[0] == OURS


def check_file_solver(name: str) -> None:
    """Check that a solver is known and installed.

    Raises:
        UnknownSolverError: the solver is unknown.
        MissingExtraError: the package of the solver is not installed.
    """
    if is_own_file_solver(name):
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
    """Read a file and load or compile a solver. Return a function that solves the file's model and times the solve.

    Args:
        path: the file.
        name: the name of the solver.
        tol: the accuracy that solvers other than PEAR aim at.

    Raises:
        PearError: the file cannot be read.
    """
    if is_own_file_solver(name):
        model = from_file(path)
        _warm_up_file_solver(model.problem, name)
        return lambda: _solve_file_by_pear(model, name)
    program = read_model_file(path).program
    function = {"highs": _solve_file_by_highs, "scipy": _solve_file_by_scipy}.get(name)
    if function is not None:
        return lambda: function(program, tol)
    import qpsolvers  # noqa: F401  loaded before the clock starts

    return lambda: _solve_file_by_qpsolvers(program, tol, name)


def _warm_up_file_solver(like: Problem, name: str) -> None:
    """Solve a tiny problem of the same kind, so that PEAR is compiled before the clock starts."""
    n = 600 if like.is_sparse else 2
    one = sp.eye_array(n).tocsr()
    integer = None if like.integer is None else True
    problem = Problem(Q=None if like.Q is None else one, G=one, h=np.ones(n), lb=0.0, ub=1.0, integer=integer)
    with contextlib.suppress(PearError):  # the solve of the file raises the same error
        solve(problem, torch.zeros(1, n, dtype=torch.float64), 0.0, _own_file_solver(name), "mask")


def _own_file_solver(name: str) -> str:
    """Return the argument ``solver`` of ``pear.solve``: NAME for "pear:NAME", and "auto" for "pear"."""
    return name.partition(":")[2] or "auto"


def _solve_file_by_pear(model: Model, name: str) -> SolverAnswer:
    """Return PEAR's answer to a model, with the seconds of the solve. ``name`` is "pear" or "pear:NAME"."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedSamplesWarning)  # the status says it
            found = solve(model.problem, model.known[None], 0.0, _own_file_solver(name), "mask")
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


def highs_model_of_file(P: Any, q: Any, A: Any, l: Any, u: Any, lb: Any, ub: Any, integer: Any) -> Any:  # noqa: E741
    """Make the HiGHS model ``min ½ xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u, lb ≤ x ≤ ub``, with P and A sparse."""
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


def _solve_file_by_highs(p: JudgedProgram, tol: float) -> SolverAnswer:
    """Return the answer of HiGHS to a program, with the seconds of the solve. Integer programs have a gap of 0."""
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
    model = highs_model_of_file(p.H, p.c, rows, low, np.concatenate([p.b, p.h]), p.lb, p.ub, p.integer)
    if highs.passModel(model) == highspy.HighsStatus.kError:
        return SolverAnswer("refused", note="HiGHS does not take the model")
    highs.run()
    seconds, outcome = time.perf_counter() - begin, highs.modelStatusToString(highs.getModelStatus()).lower()
    if outcome != "optimal":
        return SolverAnswer(outcome, seconds=seconds)
    solution = highs.getSolution()
    equality, inequality = np.split(-np.asarray(solution.row_dual), [len(p.b)])
    return SolverAnswer("solved", np.asarray(solution.col_value), equality, inequality, seconds)


def _solve_file_by_scipy(p: JudgedProgram, tol: float) -> SolverAnswer:
    """Return SciPy's answer, with the seconds of the solve. ``milp`` solves integer programs, ``linprog`` the rest."""
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


def _solve_file_by_qpsolvers(p: JudgedProgram, tol: float, name: str) -> SolverAnswer:
    """Return the answer of the solver ``name`` of qpsolvers to a program, with the seconds of the solve."""
    import qpsolvers

    if p.integer.any():
        return SolverAnswer("refused", note=f"{name} takes no integers")
    begin = time.perf_counter()
    options = dict.fromkeys(TOLERANCES.get(name, ()), tol) | _MORE.get(name, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the accuracy is measured afterwards
        try:
            found = qpsolvers.solve_problem(make_qpsolvers_problem(p, name), name, **options)
        except (qpsolvers.exceptions.QPError, ValueError) as error:
            return SolverAnswer("refused", seconds=time.perf_counter() - begin, note=str(error))
    seconds = time.perf_counter() - begin
    if not found.found:
        said = str(found.extras.get("status") or getattr(found.extras.get("info"), "status", ""))
        return SolverAnswer(_file_status_from_words(said), seconds=seconds, note=said)
    y, z = (np.zeros(k) if v is None else np.asarray(v) for v, k in ((found.y, len(p.b)), (found.z, len(p.h))))
    return SolverAnswer("solved", np.asarray(found.x), y, z, seconds)


def _file_status_from_words(said: str) -> str:
    """Translate the message of a solver that failed into "infeasible", "unbounded" or "inaccurate".

    Example:
        >>> said = ("PrimalInfeasible", "primal infeasible", "PROXQP_DUAL_INFEASIBLE", "MaxIterations")
        >>> [_file_status_from_words(words) for words in said]
        ['infeasible', 'infeasible', 'unbounded', 'inaccurate']
    """
    plain = said.lower().replace("_", "").replace(" ", "")
    return "infeasible" if "primalinf" in plain else "unbounded" if "dualinf" in plain else "inaccurate"

"""Every backend on a zoo of small problems, judged by the optimality conditions and not by known solutions."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy_residual import batch_residual

from pear.errors import MissingExtraError, UnknownSolverError
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import (
    BACKENDS,
    Backend,
    Candidate,
    Status,
    available_backends,
    backend_kind,
    check_backend_kind,
    choose_backend,
    get_backend,
    resolve_backends,
)
from pear.solvers.backend_registry import usable_backends
from pear.testing import check_solver
from pear.testing.program_zoo import (
    BOUNDED,
    FLAT_DIRECTION,
    HOPELESS,
    HOPELESS_INTEGERS,
    INF,
    bounded_zoo_program,
    zoo_program,
)
from pear_lab.judge.judged_program import judged_programs

TOL = 1e-7


INSTALLED = [backend.name for backend in available_backends()]
COMPILED = [name for name in INSTALLED if name not in ("interior-point", "active-set", "binary")]
CASES = [(backend, kind, name) for backend in INSTALLED for kind in ("lp", "qp") for name in BOUNDED]
CASES = [case for case in CASES if case[1] in get_backend(case[0]).kinds]


def able(kind: str) -> list[str]:
    return [name for name in INSTALLED if kind in get_backend(name).kinds]


BRANCH_AND_CUT = [name for name in able("milp") if name != "binary"]  # which takes 0-1 programs only


def residual(qp: QuadraticProgram, candidate: Candidate) -> float:
    """Return the largest KKT residual of a candidate, in numpy."""
    fields = {"Q": qp.H, "A": qp.A, "b": qp.b, "G": qp.G, "h": qp.h, "lb": qp.lb, "ub": qp.ub}
    own = {name: value.expand(qp.batch, *value.shape[1:]).numpy() for name, value in fields.items()}
    return batch_residual(judged_programs(own, qp.c.numpy()), candidate.x, candidate.duals)


def same(a: Candidate, b: Candidate, rounding: float = 0.0) -> bool:
    pairs = [(a.x, b.x), (a.status, b.status)]
    pairs += [(getattr(a.duals, f), getattr(b.duals, f)) for f in ("equality", "inequality", "bound")]
    return all(torch.allclose(u.double(), v.double(), rtol=0.0, atol=rounding, equal_nan=True) for u, v in pairs)


@pytest.mark.parametrize("backend", INSTALLED)
def test_every_solver_conforms(backend: str) -> None:
    check_solver(backend)


@pytest.mark.parametrize(("backend", "kind", "name"), [case for case in CASES if case[0] in COMPILED])
def test_batch_equals_singles_in_any_order(backend: str, kind: str, name: str) -> None:
    qp, solver = bounded_zoo_program(kind, name), get_backend(backend)
    # ProxQP differs in the last digit when it is asked the same thing twice (up to 6e-16 in 90 calls); no other does
    rounding = 1e-13 if backend == "proxqp" else 0.0
    together = solver.solve(qp, TOL)
    for i in range(qp.batch):
        assert same(solver.solve(qp[i : i + 1], TOL), together[i : i + 1], rounding)
    order = torch.arange(qp.batch).flip(0)
    assert same(solver.solve(qp[order], TOL), together[order], rounding)


# Who may answer INACCURATE where a sample is hopeless: the built-in solver leaves infeasibility to others, the reason
# of DAQP does not come through qpsolvers, ProxQP's word is not trusted, PIQP can run out of iterations first.
CANNOT_TELL = {"interior-point", "active-set", "daqp", "proxqp", "piqp"}
# Clarabel says "almost infeasible" to this one, and almost is not enough.
CANNOT_TELL_CASE = {("clarabel", "qp", "contradicting equalities")}


@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize(("backend", "kind"), [(b, k) for k in ("lp", "qp") for b in able(k)])
def test_hopeless_samples_have_a_fate_and_no_answer(backend: str, kind: str, name: str) -> None:
    c, fields, expected = HOPELESS[name]
    candidate = get_backend(backend).solve(zoo_program(c, **fields, **(FLAT_DIRECTION if kind == "qp" else {})), TOL)
    lenient = backend in CANNOT_TELL or (backend, kind, name) in CANNOT_TELL_CASE
    assert candidate.status.tolist() in ([[expected], [Status.INACCURATE]] if lenient else [[expected]])
    if candidate.status.tolist() == [expected]:
        assert bool(candidate.x.isnan().all())
        assert bool(candidate.duals.bound.isnan().all())


@pytest.mark.parametrize("backend", COMPILED)
def test_data_alone_can_settle_the_status(backend: str) -> None:
    nan = float("nan")
    qp = zoo_program(
        np.ones((6, 1)),
        H=[[1.0]] if "qp" in get_backend(backend).kinds else None,
        A=[[0.0]],
        b=[[0], [0], [0], [INF], [0], [0]],
        G=[[1.0]],
        h=[[9], [-INF], [9], [9], [nan], [9]],
        lb=[[0], [0], [2], [0], [0], [0]],
        ub=[1.0],
    )
    statuses = [
        Status.SOLVED,
        Status.INFEASIBLE,
        Status.INFEASIBLE,
        Status.NOT_FINITE,
        Status.NOT_FINITE,
        Status.SOLVED,
    ]
    assert get_backend(backend).solve(qp, TOL).status.tolist() == statuses


@pytest.mark.parametrize("name", HOPELESS_INTEGERS)
@pytest.mark.parametrize("backend", BRANCH_AND_CUT)
def test_hopeless_integer_programs(backend: str, name: str) -> None:
    fields, expected = HOPELESS_INTEGERS[name]
    candidate = get_backend(backend).solve(zoo_program([-1.0, -2.0], **fields, integer=[True, True]), TOL)
    assert candidate.status.tolist() == [expected]
    assert bool(candidate.x.isnan().all())


def test_osqp_out_of_iterations_keeps_its_best_point() -> None:
    pytest.importorskip("osqp")
    qp = bounded_zoo_program("lp", "knapsack")
    candidate = get_backend("osqp").solve(qp, 1e-30)
    assert Status.INACCURATE in candidate.status.tolist()
    assert residual(qp, candidate) < 1e-6


def test_highs_runs_beside_models_with_more_threads() -> None:
    highspy = pytest.importorskip("highspy")
    highspy.Highs.resetGlobalScheduler(True)
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)
    other.setOptionValue("threads", 2)
    other.addVar(0.0, 1.0)
    assert other.run() == highspy.HighsStatus.kOk
    qp = bounded_zoo_program("lp", "box")
    candidate = get_backend("highs").solve(qp, TOL)
    assert candidate.status.tolist() == [Status.SOLVED] * qp.batch


@pytest.mark.parametrize("error", ["ProblemError", "SolverError"])
def test_an_error_inside_qpsolvers_costs_one_sample(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    qpsolvers = pytest.importorskip("qpsolvers")
    pytest.importorskip("daqp")
    qp, real = bounded_zoo_program("qp", "box"), qpsolvers.solve_problem

    def fails_on_second(problem: Any, *args: Any, **kwargs: Any) -> Any:
        if np.array_equal(problem.q, qp.c[1].numpy()):
            raise getattr(qpsolvers.exceptions, error)("no")
        return real(problem, *args, **kwargs)

    monkeypatch.setattr(qpsolvers, "solve_problem", fails_on_second)
    candidate = get_backend("daqp").solve(qp, TOL)
    assert candidate.status.tolist() == [0, Status.INACCURATE, 0, 0, 0]
    assert candidate.x.isnan().all(1).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("backend", ["qpsolvers:osqp", "qpsolvers:highs", "qpsolvers:daqp"])
def test_any_solver_of_qpsolvers_can_be_named(backend: str) -> None:
    qpsolvers = pytest.importorskip("qpsolvers")
    if get_backend(backend).options["name"] not in qpsolvers.available_solvers:
        pytest.skip("not installed")
    for qp in (bounded_zoo_program("qp", "own right-hand sides"), zoo_program([[1.0, 2.0], [0.0, 1.0]], H=np.eye(2))):
        candidate = get_backend(backend).solve(qp, TOL)
        assert candidate.status.tolist() == [Status.SOLVED] * qp.batch
        assert residual(qp, candidate) < 10 * TOL


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("backend", able("lp"))
def test_answers_return_to_the_device_of_the_costs(backend: str) -> None:
    qp = bounded_zoo_program("qp" if "qp" in get_backend(backend).kinds else "lp", "box")
    names = ("H", "c", "A", "b", "G", "h", "lb", "ub")
    there = QuadraticProgram(**{name: getattr(qp, name).cuda() for name in names})
    candidate = get_backend(backend).solve(there, TOL)
    assert candidate.x.device == candidate.duals.bound.device == candidate.status.device == there.c.device
    assert residual(qp, candidate.to("cpu")) < 10 * TOL


def test_costs_that_carry_gradients_are_welcome() -> None:
    qp = zoo_program([1.0, -1.0], lb=[0, 0], ub=[1, 1])
    candidate = get_backend("scipy").solve(replace(qp, c=qp.c.clone().requires_grad_()), TOL)
    assert candidate.x.tolist() == [[0.0, 1.0]]


# ------------------------------------------------------------------------------------------------------- registry


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in missing else real(name, *a))


def test_names_are_unique_and_the_built_in_solver_comes_first() -> None:
    names = [backend.name for backend in BACKENDS]
    assert names[:2] == ["active-set", "interior-point"]
    assert len(set(names)) == len(names)
    assert {"interior-point", "scipy"} <= set(INSTALLED)


def test_the_old_name_of_the_interior_point_says_the_new_one() -> None:
    with pytest.raises(UnknownSolverError, match="'pear' is now called 'interior-point'"):
        get_backend("pear")


def test_unknown_name() -> None:
    listing = (
        "There are auto, active-set, interior-point, binary, highs, scipy, clarabel, daqp, piqp, osqp, proxqp, "
        "and qpsolvers:NAME for any other solver of the qpsolvers package"
    )
    with pytest.raises(UnknownSolverError, match=re.escape(f"unknown solver 'OSPQ': did you mean 'osqp'? {listing}")):
        get_backend("OSPQ")
    with pytest.raises(UnknownSolverError, match=re.escape(f"unknown solver 'gurobi': {listing}")):
        get_backend("gurobi")
    with pytest.raises(UnknownSolverError, match="unknown solver 'qpsolvers:'"):
        get_backend("qpsolvers:")


def test_unknown_name_within_qpsolvers() -> None:
    pytest.importorskip("qpsolvers")
    with pytest.raises(UnknownSolverError, match=r"qpsolvers has no solver 'nosuch' here; it has .*daqp"):
        get_backend("qpsolvers:nosuch").solve(bounded_zoo_program("qp", "box"), TOL)


def test_wrong_kind() -> None:
    able = "active-set, interior-point, clarabel, daqp, piqp, osqp"
    message = f"solver 'highs' solves problems of kind lp and milp, not qp: use one of {able}"
    with pytest.raises(UnknownSolverError, match=message):
        check_backend_kind(get_backend("highs"), "qp")
    with pytest.raises(
        UnknownSolverError, match=r"solver 'interior-point' solves .* not milp: use one of binary, highs, scipy"
    ):
        get_backend("interior-point").solve(zoo_program([1.0], lb=[0], ub=[1], integer=[True]), TOL)
    with pytest.raises(UnknownSolverError, match=r"solver 'scipy' solves .* not miqp: no solver here can"):
        get_backend("scipy").solve(zoo_program([1.0], H=[[1.0]], integer=[True]), TOL)


def test_kinds() -> None:
    assert backend_kind(zoo_program([1.0])) == "lp"
    assert backend_kind(zoo_program([1.0], integer=[False])) == "lp"
    assert backend_kind(zoo_program([1.0], H=[[1.0]])) == "qp"
    assert backend_kind(zoo_program([1.0], integer=[True])) == "milp"
    assert backend_kind(zoo_program([1.0], H=[[1.0]], integer=[True])) == "miqp"


def test_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice "auto" is the first installed solver of the table that supports the problem."""
    integers = zoo_program([1.0], lb=[0], ub=[3], integer=[True])
    assert choose_backend("qp").name == choose_backend("lp").name == "active-set"
    assert choose_backend("qp", sparse=True).name == choose_backend("lp", sparse=True).name == "interior-point"
    assert choose_backend("milp").name == "binary"
    without(monkeypatch, "highspy")
    assert choose_backend("milp", sparse=True).name == "scipy"
    assert "highs" not in [row.name for row in usable_backends(resolve_backends("auto", "milp"), integers)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert choose_backend("milp", sparse=True).name == "highs"
    with pytest.raises(UnknownSolverError, match="miqp"):
        choose_backend("miqp")


def test_resolve() -> None:
    """The list begins with the chosen solver, followed by all others that support the kind, each once."""
    assert resolve_backends("auto", "qp")[0].name == "active-set"
    names = [row.name for row in resolve_backends("osqp", "qp")]
    assert names[:3] == ["osqp", "active-set", "interior-point"]
    assert len(set(names)) == len(names)
    with pytest.raises(UnknownSolverError, match="'proxqp' solves problems of kind qp, not lp"):
        resolve_backends("proxqp", "lp")
    with pytest.raises(UnknownSolverError, match=r"'daqp' takes dense matrices only.*leave it to solver='auto'"):
        resolve_backends("daqp", "qp", sparse=True)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "osqp", "daqp", "qpsolvers")
    assert not {"osqp", "daqp", "piqp"} & {backend.name for backend in available_backends()}
    message = "solver 'osqp' needs the package osqp, not installed here; run pip install 'pear-dfl[osqp]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        get_backend("osqp").solve(bounded_zoo_program("qp", "box"), TOL)
    message = "needs the packages qpsolvers and daqp, not installed here; run pip install 'pear-dfl[qpsolvers]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        get_backend("daqp").solve(bounded_zoo_program("qp", "box"), TOL)


def test_a_row_without_packages_is_always_there() -> None:
    backend = Backend("mine", "pear.solvers.adapters.scipy")
    assert backend.installed
    assert backend.how_to_install == "always there"

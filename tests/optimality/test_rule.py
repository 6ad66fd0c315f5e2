"""Every constant of the optimality rule is tested: for each, a check fails if it is loosened a thousandfold.

The checks use numbers, not the constants themselves. Each number is within a factor of a thousand of its constant, so
that edits of ``pear/optimality/rule.py`` make checks fail. A constant that torch and compiled code both use has a check
in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton_reference
from scipy import sparse
from verdicts import INF, Array, Point, Verdict, compiled, dense, point

import pear
from pear.decisions.integer_checks import check_integers
from pear.optimality import rule
from pear.optimality.active_set_rule import guess_active_set
from pear.optimality.certificate import is_infeasibility_certificate, is_unboundedness_certificate
from pear.optimality.definiteness import is_semidefinite
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.program_screen import screen_programs
from pear.problem.matrix import SparseMatrix
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced_systems import DenseReducedSystems
from pear.sensitivity.sparse_reduced_systems import SparseReducedSystem
from pear.solvers.active_set import kernel_arrays as layout
from pear.solvers.active_set import kernel_calls as batch
from pear.solvers.active_set.gpu import gpu_plan as gpu
from pear.solvers.active_set.program_packing import pack_programs
from pear.solvers.candidate import empty_candidate

CHECKS: dict[tuple[str, str], Callable[[], None]] = {}
JUDGES = {"torch": dense, "compiled": compiled}


def holds(constant: str, where: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Enter the check of ``constant`` in the code ``where`` into the table."""

    def enter(check: Callable[[], None]) -> Callable[[], None]:
        assert (constant, where) not in CHECKS
        CHECKS[constant, where] = check
        return check

    return enter


def judged(constant: str) -> Callable[[Callable[[Callable[[Point], Verdict]], None]], None]:
    """Enter one check of a verdict twice: for torch and for compiled code."""

    def enter(check: Callable[[Callable[[Point], Verdict]], None]) -> None:
        for where, judge in JUDGES.items():
            CHECKS[constant, where] = lambda judge=judge: check(judge)

    return enter


# ---------------------------------------------------------------------------------------------------------- the verdict


@judged("OPTIMAL")
def _(judge: Callable[[Point], Verdict]) -> None:
    """Multipliers of ±1e5 that cancel hide a slope of 1e-7 from every tolerance that is relative to them."""
    p = point(2, H=np.eye(2), A=np.ones((2, 2)), b=[1.0, 1.0], x=[0.5, 0.5], equality=[1e5, -1e5])
    assert judge(replace(p, c=np.array([-0.5, -0.5]))).solved
    assert not judge(replace(p, c=np.array([-0.5 + 1e-7, -0.5]))).solved


@judged("EPSILON")
def _(judge: Callable[[Point], Verdict]) -> None:
    """Multipliers of ±1e14 that cancel leave a residual of zero that may be off by a tenth of the cost."""
    p = point(2, H=np.eye(2), A=np.ones((2, 2)), b=[1.0, 1.0], x=[0.5, 0.5], equality=[1e11, -1e11])
    assert judge(p).solved
    assert not judge(replace(p, equality=np.array([1e14, -1e14]))).solved


@judged("LOST")
def _(judge: Callable[[Point], Verdict]) -> None:
    """Multipliers of ±1e14 prove nothing, except where the multiplier of a bound absorbs what is lost."""
    bound = {"lb": [-INF, 1.0], "x": [1e14, 1.0], "bound": [0.0, -1e14]}
    assert judge(point(2, G=[[-1.0, 1e14]], h=[0.0], inequality=[1.0], rows=[True], **bound)).solved
    assert judge(point(2, A=[[-1.0, 1e14]], b=[0.0], equality=[1.0], **bound)).solved
    rows = {"A": [[0.0, 1.0], [0.0, 1.0]], "b": [1.0, 1.0], "equality": [1e14, -1e14]}
    pinned = point(2, H=np.eye(2), x=[0.5, 1.0], lb=[-INF, 1.0], ub=[INF, 1.0], **rows)
    assert judge(pinned).solved
    assert not judge(replace(pinned, lb=np.array([-INF, 0.0]))).solved
    assert judge(replace(pinned, lb=np.array([-INF, 0.0]), equality=np.array([1e10, -1e10]))).solved


@judged("FEASIBLE")
def _(judge: Callable[[Point], Verdict]) -> None:
    p = point(2, H=np.eye(2), x=[1.0, 1e-3])
    assert judge(replace(p, lb=np.array([-INF, 1e-3]))).solved
    assert not judge(replace(p, lb=np.array([-INF, 1e-3 + 5e-13]))).solved  # a violation by 2e-10 of its size, 2e-3
    assert not judge(replace(p, c=p.c + np.array([0.0, 5e-13]))).solved  # a slope of 2e-10 of 2e-3


@judged("SIGN")
def _(judge: Callable[[Point], Verdict]) -> None:
    for multiplier, solved in ((0.0, True), (-1e-11, False)):
        p = point(1, H=np.eye(1), G=[[1.0]], h=[1.0], x=[1.0], inequality=[multiplier], rows=[True])
        assert judge(p).solved == solved


@judged("TIGHT")
def _(judge: Callable[[Point], Verdict]) -> None:
    for slack, active in ((0.0, True), (5e-9, False)):
        p = point(2, H=np.eye(2), x=[1.0, 0.5], ub=[INF, 0.5 + slack])
        assert any(judge(p).active) == active


@judged("WEAK")
def _(judge: Callable[[Point], Verdict]) -> None:
    for multiplier, weak in ((0.0, True), (1e-7, False)):
        p = point(1, H=np.eye(1), G=[[1.0]], h=[1.0], x=[1.0], inequality=[multiplier], rows=[True])
        assert any(judge(p).weak) == weak


@judged("SHARE_OF_SIZE")
def _(judge: Callable[[Point], Verdict]) -> None:
    """Beside a decision of 1, a slack of 5e-11 of a variable of 1e-3 is over 2e-8 of its natural size: not tight."""
    assert not any(judge(point(2, H=np.eye(2), x=[1.0, 1e-3], ub=[INF, 1e-3 + 5e-11])).active)


@judged("SHARE_OF_FORCE")
def _(judge: Callable[[Point], Verdict]) -> None:
    """Beside a slope of 2, a multiplier of 1e-10 of another variable is 5e-8 of its natural size: not weak."""
    assert not any(judge(point(2, H=np.eye(2), lb=[-INF, 0.0], x=[1.0, 0.0], bound=[0.0, -1e-10])).weak)


@judged("FLOOR")
def _(judge: Callable[[Point], Verdict]) -> None:
    """A decision of zero in a box of size 1 has a size of 1e-12: an equality that is off by 1e-23 does not hold."""
    assert not judge(point(1, H=np.eye(1), A=[[1.0]], b=[1e-23], x=[0.0], lb=[-1.0], ub=[1.0])).solved


@judged("SHARE_OF_TERMS")
def _(judge: Callable[[Point], Verdict]) -> None:
    """Terms of 1 that cancel to 1e-13 make a residual of 1e-7, without a cost to compare it with."""
    p = point(2, H=np.array([[1.0, 1.0], [1.0, 1.0 + 1e-13]]), x=[1.0, -1.0])
    assert 1e-8 < judge(replace(p, c=np.zeros(2))).kkt_residual < 1e-6


# ------------------------------------------------------------------------------------------------ the compiled method


def programs(n: int, Q: Any, lb: float = 0.0, **fields: Any) -> layout.Programs:
    given = {"Q": Q, "lb": np.full(n, lb)} | fields
    tensors = {name: torch.tensor(np.asarray(value)).double() for name, value in given.items()}
    return pack_programs(tensors, n)


def solve(P: layout.Programs, cost: list[float], states: layout.States | None = None) -> tuple[Any, layout.States]:
    at = np.zeros(1, np.int64)
    states = layout.new_kernel_states(1, len(cost), P.J.shape[1]) if states is None else states
    return batch.call_kernel_to_solve(P, np.array([cost]), at, states, at, batch.call_kernel_for_start(P)), states


@holds("SHARP", "compiled")
def _() -> None:
    """A starting inverse with an error of 2e-11 leaves a slope of this size after a step; refinement removes it."""
    P = programs(3, np.diag([1.0, 2.0, 3.0]), A=np.ones((1, 3)), b=[3.0])
    _, states = solve(P, [0.0, 0.0, 0.0])
    states.inverse[:] *= 1.0 + 2e-11
    found, _ = solve(P, [1.0, -1.0, 0.5], states)
    assert found.code[0] == layout.SOLVED
    assert found.kkt_residual[0] < 1e-13


SLANTED: dict[str, Any] = {"A": [[1e-10, -1.0]], "b": [0.0], "ub": [1.0, 0.3e-10]}
"""The second variable is 1e-10 times the first, and stops it at 0.3."""


@holds("ROUNDOFF", "compiled")
def _() -> None:
    found, _ = solve(programs(2, 0.1 * np.eye(2), **SLANTED), [-1.0, 0.0])
    assert found.code[0] == layout.SOLVED
    assert found.x[0, 0] == pytest.approx(0.3, rel=1e-9)


@holds("FLAT", "compiled")
def _() -> None:
    """A curvature of 2e-10 along the second direction does not count as zero."""
    found, _ = solve(programs(2, [[1.0, 1.0 - 1e-10], [1.0 - 1e-10, 1.0]], lb=-INF), [-1.0, -1.0 + 1e-10])
    assert found.code[0] == layout.SOLVED


@holds("RANK", "compiled")
def _() -> None:
    """Rows that differ by 1e-9 are independent: the inverse of an old start is computed afresh."""
    P = programs(2, np.eye(2), A=[[1.0, 0.0], [1.0, 1e-9]], b=[1.0, 1.0 + 1e-9])
    _, states = solve(P, [1.0, 1.0])
    states.age[:] = 1_000
    found, _ = solve(P, [1.0, 1.0], states)
    assert (found.code[0], found.changes[0]) == (layout.SOLVED, 0)


def project(error: list[float], spoil: float, unit: float = 1.0) -> tuple[Array, bool]:
    """Project an error on the row x₁ + x₂ + unit·x₃ = 3, with an inverse that is wrong by ``spoil``.

    Return the projection, and whether it converged.
    """
    P = programs(3, np.diag([1.0, 2.0, 3.0]), A=np.array([[1.0, 1.0, unit]]), b=[3.0])
    _, states = solve(P, [0.0, 0.0, 0.0])
    states.inverse[:] *= 1.0 + spoil
    at = np.zeros(1, np.int64)
    g, converged = batch.call_kernel_to_project(P, np.array([error]), at, states, at)
    return g[0], bool(converged[0])


@holds("PROJECTED", "compiled")
def _() -> None:
    """Three rounds with an inverse that is wrong by 1e-4 leave a correction of about 1e-8."""
    assert project([1.0, 2.0, -1.0], 0.0)[1]
    assert not project([1.0, 2.0, -1.0], 1e-4)[1]


@holds("NEGLIGIBLE", "compiled")
def _() -> None:
    g, converged = project([1.0 + 1e-10, 1.0, 1.0], 0.0)
    assert converged
    assert np.abs(g).max() == pytest.approx(5 / 11 * 1e-10, rel=1e-4)


@holds("MIXED", "compiled")
def _() -> None:
    """A projection of 1e-13 of the error is rounding and becomes zero, unless the variables' units are far apart."""
    g, converged = project([1.0 + 1e-13, 1.0, 1e-3], 0.0, 1e-3)
    assert converged
    assert not g.any()
    assert not project([1.0 + 1e-13, 1.0, 1e-6], 0.0, 1e-6)[1]


# ----------------------------------------------------------------------------------------------------- the GPU's kernel


def kernel_solves(H: Any, cost: list[float], **fields: Any) -> gpu.GPUSolution:
    """Solve a program with the kernel's own source, on the reference of Triton's language."""
    qp = program(H, cost, **fields)
    plan = gpu.make_gpu_plan(qp)
    assert plan is not None
    return plan.solve(qp)


def with_inverse(found: gpu.GPUSolution, change: Any) -> gpu.GPUSolution:
    """Return the same result with another inverse of its reduced systems."""
    *others, M = found.kept
    return replace(found, kept=(*others, change(M)))


def program(H: Any, cost: list[float], **fields: Any) -> QuadraticProgram:
    n = len(cost)
    empty: dict[str, Any] = {"A": np.zeros((0, n)), "b": np.zeros(0), "G": np.zeros((0, n)), "h": np.zeros(0)}
    empty |= {"lb": np.zeros(n), "ub": np.full(n, INF), "H": H, "c": cost}
    return QuadraticProgram(**{k: torch.tensor(np.asarray(v)).double()[None] for k, v in (empty | fields).items()})


@holds("ROUNDOFF", "kernel")
def _() -> None:
    """A variable that moves 1e-10 times as far as another still stops at its bound."""
    with pytest.MonkeyPatch.context() as patch, triton_reference.in_place(patch):
        found = kernel_solves([[1.0, -10.0], [-10.0, 1e11]], [-1.0, -10.0], ub=[INF, 1.3e-10])
    assert bool(found.optimal.all())
    assert float(found.x[0, 1]) == 1.3e-10


@holds("PROJECTED", "kernel")
def _() -> None:
    """Two refinements with an inverse that is wrong by 1e-4 leave a correction of 1e-8."""
    e = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch, triton_reference.in_place(patch):
        found = kernel_solves(np.diag([1.0, 2.0, 3.0]), [0.0] * 3, A=np.ones((1, 3)), b=[3.0])
        assert bool(found.project(e)[1])
        assert not bool(with_inverse(found, lambda M: M * (1.0 + 1e-4)).project(e)[1])


@holds("NEGLIGIBLE", "kernel")
def _() -> None:
    """A multiple of the row has projection zero. A last correction of 1e-10 of the error has not converged."""
    e = torch.ones(1, 2, dtype=torch.float64)

    def tilted(M: torch.Tensor) -> torch.Tensor:
        return M.index_put((torch.tensor(0),) * 3, M[0, 0, 0] + 1e-5)

    with pytest.MonkeyPatch.context() as patch, triton_reference.in_place(patch):
        found = kernel_solves(np.eye(2), [0.0] * 2, A=np.ones((1, 2)), b=[1.0])
        assert bool(found.project(e)[1])
        assert not bool(with_inverse(found, tilted).project(e)[1])


# --------------------------------------------------------------------------------------------------------------- torch


@holds("ROUNDOFF", "torch")
def _() -> None:
    """A constraint with a slack of 1e-10 and no multiplier is not guessed to be active."""
    qp = program(np.eye(2), [-1.0, -1.0], ub=[1.0 + 1e-10, 2.0])
    none = torch.zeros(1, 0, dtype=torch.float64)
    x = torch.ones(1, 2, dtype=torch.float64)
    assert not bool(guess_active_set(qp, x, Duals(none, none, torch.zeros_like(x))).fixed.any())


def reduced(H: Any, **fields: Any) -> DenseReducedSystems:
    n = len(H)
    qp = program(H, [0.0] * n, lb=np.full(n, -INF), **fields)
    return DenseReducedSystems(qp, ActiveSet(*(torch.zeros(1, k, dtype=torch.bool) for k in (0, n, n))))


@holds("SHARP", "torch")
def _() -> None:
    """A residual of 1e-11 does not count as zero."""
    exact = reduced(np.eye(2))
    step, count = exact._step, iter([1.0 + 1e-11, 0.0, 0.0, 0.0])
    f, none = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)
    assert bool(exact.solve(f, none, none)[3])
    exact._step = lambda rest_f, rest_r: tuple(share * part for share in [next(count)] for part in step(rest_f, rest_r))  # type: ignore[assignment]
    assert not bool(exact.solve(f, none, none)[3])


@holds("FLAT", "torch")
def _() -> None:
    none = torch.zeros(1, 0, dtype=torch.float64)
    f = torch.ones(1, 2, dtype=torch.float64)
    for curvature, unique in ((1e-10, True), (0.0, False)):
        assert bool(reduced(np.diag([1.0, curvature])).solve_carefully(f, none, none)[3]) == unique


@holds("RANK", "torch")
def _() -> None:
    for difference, dimension in ((1e-9, 0), (0.0, 1)):
        rows = reduced(np.eye(2), A=[[1.0, 0.0], [1.0, difference]], b=[0.0, 0.0])
        assert rows.tangent_dim().tolist() == [dimension]


@holds("PROJECTED", "torch")
def _() -> None:
    """Refinement that stalls at a residual of 1e-8 has not converged."""
    matrix = {"H": sparse.eye_array(2), "A": sparse.csr_array((0, 2)), "G": sparse.csr_array((0, 2))}
    dense_form = program(np.eye(2), [0.0, 0.0], lb=np.full(2, -INF))
    vectors = {name: getattr(dense_form, name) for name in ("c", "b", "h", "lb", "ub")}
    qp = QuadraticProgram(
        **{name: SparseMatrix(sparse.csr_array(value), shared=True) for name, value in matrix.items()}, **vectors
    )
    system = SparseReducedSystem(qp, np.zeros(2, bool), np.zeros(0, bool))
    assert system.solve(np.ones(2), np.zeros(0))[2]
    count = iter([1.0 + 1e-8, 0.0, 0.0])
    fake = SimpleNamespace(succeeded=True, solve=lambda f, r, refinements: (next(count) * f, r))
    system._system = fake  # type: ignore[assignment]
    assert not system.solve(np.ones(2), np.zeros(0))[2]


@holds("NEGLIGIBLE", "torch")
def _() -> None:
    """A gradient of 1e-10 times the error is kept."""
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], n=2)
    true = torch.zeros(1, 2, dtype=torch.float64)
    error = torch.tensor([[1.0 + 1e-10, 1.0 - 1e-10]], dtype=torch.float64)
    g = pear.regret_gradient(problem, error, true, smoothing=1.0, solver="interior-point")
    torch.testing.assert_close(g, 1e-10 * torch.tensor([[1.0, -1.0]], dtype=torch.float64), rtol=1e-4, atol=0.0)


@holds("MIXED", "torch")
def _() -> None:
    """Curvatures of 1 and 1e10 belong to variables whose units are far apart."""
    for curvature, mixed in ((1e7, False), (1e10, True)):
        qp = program(np.diag([1.0, curvature]), [0.0, 0.0], lb=np.full(2, -INF))
        nothing = torch.zeros(1, 2, dtype=torch.bool)
        assert bool(DenseReducedSystems(qp, ActiveSet(nothing[:, :0], nothing, nothing))._mixes_units()) == mixed


@holds("INDEFINITE", "torch")
def _() -> None:
    """An eigenvalue of −1e-8 is not rounding: the matrix is not semidefinite."""
    assert is_semidefinite(torch.diag(torch.tensor([1.0, -1e-13], dtype=torch.float64))[None]).tolist() == [True]
    assert is_semidefinite(torch.diag(torch.tensor([1.0, -1e-8], dtype=torch.float64))[None]).tolist() == [False]


@holds("DESCENT", "torch")
def _() -> None:
    """A descent of 5e-8 of the cost's terms along a free direction proves unboundedness; rounding does not."""
    along = torch.ones(1, 2, dtype=torch.float64)
    for less, falls in ((1e-7, True), (1e-15, False)):
        qp = program(np.zeros((2, 2)), [1.0, -1.0 - less], lb=[0.0, 0.0])
        assert is_unboundedness_certificate(qp, along).tolist() == [falls]


@holds("PROVEN", "torch")
def _() -> None:
    """Rows that contradict each other by 1.2 FEASIBLE of their terms are infeasible; by FEASIBLE, nothing is proven."""
    duals = Duals(torch.zeros(1, 0), torch.ones(1, 2), torch.zeros(1, 1))
    for apart, proven in ((2.4 * rule.FEASIBLE, True), (2.0 * rule.FEASIBLE, False)):
        qp = program(np.eye(1), [1.0], G=[[1.0], [-1.0]], h=[1.0, -1.0 - apart])
        assert is_infeasibility_certificate(qp, duals.to(torch.float64)).tolist() == [proven]


@holds("LARGEST", "torch")
def _() -> None:
    for size, status in ((1e149, pear.Status.SOLVED), (1e152, pear.Status.NOT_FINITE)):
        assert screen_programs(program(np.eye(1), [size])).tolist() == [status]


def integer_status(x: float, bound: float) -> int:
    """Return the status of a candidate for: minimise z for an integer z between 1 and 2."""
    qp = replace(program(np.zeros((1, 1)), [1.0], lb=[1.0], ub=[2.0]), integer=torch.tensor([True]))
    point, bounds, fine = torch.tensor([[x]]).double(), torch.tensor([bound]).double(), torch.zeros(1, dtype=torch.int8)
    candidate = replace(empty_candidate(1, 1, 0, 0, qp.c), x=point, status=fine, bound=bounds)
    return int(check_integers(qp, candidate).status)


@holds("INTEGRAL", "torch")
def _() -> None:
    assert integer_status(1.0 + 1e-8, 1.0) == pear.Status.SOLVED
    assert integer_status(1.0 + 1e-4, 1.0) == pear.Status.INACCURATE


@holds("GAP", "torch")
def _() -> None:
    assert integer_status(1.0, 1.0 - 1e-11) == pear.Status.SOLVED
    assert integer_status(1.0, 1.0 - 1e-7) == pear.Status.INACCURATE


# ----------------------------------------------------------------------------------------------------------- the tables


@pytest.mark.parametrize(("constant", "where"), CHECKS)
def test_the_constant_is_held(constant: str, where: str) -> None:
    CHECKS[constant, where]()


def test_every_constant_has_a_row() -> None:
    constants = {name for name in vars(rule) if not name.startswith("_") and name != "annotations"}
    assert constants == {constant for constant, _ in CHECKS}
    both = {"torch", "compiled"}
    alone = {"INDEFINITE", "DESCENT", "PROVEN", "LARGEST", "INTEGRAL", "GAP"}  # of torch code and adapters
    shared = constants - alone
    assert all({where for c, where in CHECKS if c == name} >= both for name in shared)

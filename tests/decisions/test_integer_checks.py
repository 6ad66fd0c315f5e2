"""Checks of an integer solver's answer: violations in natural sizes, objective bounds, and claims without a point."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch

import pear
from pear.decisions.integer_checks import check_integers
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, empty_candidate

INACCURATE, SOLVED = int(pear.Status.INACCURATE), int(pear.Status.SOLVED)
SOLVERS = ("auto", "highs", "scipy")
Array = np.ndarray


def claimed(qp: QuadraticProgram, x: list[float], bound: float) -> Candidate:
    """Return a candidate with this point and objective bound, which its solver calls optimal."""
    empty = empty_candidate(1, qp.n, qp.p, qp.m, qp.c)
    point, status = torch.tensor([x], dtype=torch.float64), torch.zeros(1, dtype=torch.int8)
    return replace(empty, x=point, status=status, bound=torch.tensor([bound], dtype=torch.float64))


def test_rounding_of_a_variable_near_zero_violates_nothing() -> None:
    """min q + u with e = 2 − q: here q is 0 up to rounding, e is 2, and u is the switch that allows q > 0."""
    problem = pear.Problem(
        A=[[1.0, 1.0, 0.0]], b=[2.0], G=[[1.0, 0.0, -4.0]], h=[0.0], lb=0.0, ub=[9, 2, 1], integer=[2]
    )
    qp = problem.canonical(torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64))
    for off, fine in ((-1.4e-115, True), (-1e-13, True), (-1e-11, False)):
        found = check_integers(qp, claimed(qp, [off, 2.0, 0.0], 0.0))
        assert found.status.tolist() == [SOLVED if fine else INACCURATE]


def test_a_switch_that_is_off_lets_rounding_through_and_no_more() -> None:
    """min 10 y − x, x ≤ 1e9 y, 0 ≤ x ≤ 0.9, y in {0, 1}: if y = 0, an x of 1e-12 is rounding, but 1e-8 is not."""
    problem = pear.Problem(G=[[1.0, -1e9]], h=[0.0], lb=0.0, ub=[0.9, 1.0], integer=[1])
    qp = problem.canonical(torch.tensor([[-1.0, 10.0]], dtype=torch.float64))
    assert check_integers(qp, claimed(qp, [1e-12, 0.0], 0.0)).status.tolist() == [SOLVED]
    assert not bool(check_integers(qp, claimed(qp, [1e-8, 0.0], 0.0)).feasible)


def test_a_large_integer_is_no_measure_of_continuous_variables() -> None:
    problem = pear.Problem(G=[[1.0, 0.0]], h=[5.0], lb=0.0, ub=[np.inf, 1e9], integer=[1])
    qp = problem.canonical(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert check_integers(qp, claimed(qp, [-1e-7, 1e9], 0.0)).status.tolist() == [INACCURATE]


def battery(power: float, capacity: float, efficiency: float) -> tuple[pear.Problem, Array]:
    """Return a battery that may not charge and discharge in the same hour, and its cost map (97, 24) from prices.

    The variables are charge, discharge, level and the switch in {0, 1} between charge and discharge, for 24 hours.
    """
    T, n = 24, 97
    charge, discharge, level, on = (np.arange(T) + k for k in (0, T, 2 * T, 3 * T + 1))
    A, G, h, cost = np.zeros((T + 1, n)), np.zeros((2 * T, n)), np.zeros(2 * T), np.zeros((n, T))
    A[0, level[0]] = 1.0
    for t in range(T):
        A[t + 1, [level[t] + 1, level[t], charge[t], discharge[t]]] = 1.0, -1.0, -efficiency, 1 / efficiency
        G[t, [charge[t], on[t]]], G[T + t, [discharge[t], on[t]]] = (1.0, -power), (1.0, power)
        h[T + t] = power
        cost[[charge[t], discharge[t]], t] = 1.0, -1.0
    ub = np.full(n, np.inf)
    ub[2 * T : 3 * T + 1], ub[3 * T + 1 :] = capacity, 1.0
    return pear.Problem(A=A, b=np.zeros(T + 1), G=G, h=h, lb=0.0, ub=ub, integer=on.tolist()), cost


# three summer days of PJM, in $/MWh from midnight on
PRICES = np.loadtxt(
    io.StringIO("""
    58.35 39.93 31.97 28.80 26.61 25.59 24.59 23.78 24.69 26.76 38.38 42.73
    44.46 47.11 50.79 50.89 49.32 54.15 55.47 55.06 56.30 57.69 50.78 57.48
    62.49 48.33 37.61 33.79 31.19 29.66 28.52 28.00 29.57 31.84 39.34 45.26
    47.08 47.97 50.07 51.08 49.64 50.20 49.04 47.66 47.38 49.11 43.60 49.58
    60.10 48.59 37.05 32.81 31.29 30.30 28.81 28.47 28.77 30.94 39.13 45.76
    48.60 50.73 53.63 58.16 57.44 60.46 62.42 63.68 63.15 62.38 53.92 55.60
    """)
).reshape(3, 24)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_battery_that_never_does_both_is_solved_every_day(solver: str) -> None:
    """The values are those of SciPy, on days whose decisions have entries that are zero up to rounding."""
    problem, cost_map = battery(1.0, 2.0, 0.9)
    prices = np.vstack([PRICES, PRICES - 40.0])
    found = pear.solve(problem, prices @ cost_map.T, solver=solver)
    assert bool((found.x >= 0).all())
    for value, price in zip(found.value.tolist(), prices, strict=True):
        best = scipy.optimize.milp(
            cost_map @ price,
            integrality=problem.integer,
            bounds=scipy.optimize.Bounds(problem.lb, problem.ub),
            constraints=[
                scipy.optimize.LinearConstraint(problem.A, problem.b, problem.b),
                scipy.optimize.LinearConstraint(problem.G, -np.inf, problem.h),
            ],
            options={"mip_rel_gap": 0.0},
        )
        assert value == pytest.approx(best.fun, rel=1e-9)


def test_a_gap_within_a_narrow_range_is_no_rounding() -> None:
    """min −x + y with x up to 1e-8: half of the range of x is a relative gap of one half."""
    problem = pear.Problem(lb=0.0, ub=[1e-8, 1.0], integer=[1])
    qp = problem.canonical(torch.tensor([[-1.0, 1.0]], dtype=torch.float64))
    half = check_integers(qp, claimed(qp, [0.5e-8, 0.0], -1e-8))
    assert half.status.tolist() == [INACCURATE]
    assert float(half.gap) == pytest.approx(0.5)
    assert check_integers(qp, claimed(qp, [1e-8, 0.0], -1e-8)).status.tolist() == [SOLVED]

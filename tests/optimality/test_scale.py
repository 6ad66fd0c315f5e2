"""Slacks, multipliers and residuals do not depend on the units of costs, variables and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.optimality.active_set_rule import guess_active_set
from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.kkt_residual import kkt_residual, optimality_residuals
from pear.optimality.natural_sizes import PointSizes, Sizes, divide_by_natural_sizes, is_naturally_zero, least_size
from pear.optimality.program_screen import screen_programs
from pear.optimality.rule import LARGEST

n, p, m = 4, 2, 3


def point(force: float = 1.0, size: float = 1.0, rows: float = 1.0) -> tuple[Any, Any, Duals]:
    """Return a random program, a point and multipliers, in units ``force`` of the cost, ``size`` and ``rows``."""
    rng = np.random.default_rng(0)
    L, A, G = rng.standard_normal((n, n)), rng.standard_normal((p, n)), rng.standard_normal((m, n))
    c, x, b, h = (rng.standard_normal(k) for k in (n, n, p, m))
    y, v, w = (rng.standard_normal(k) for k in (p, m, n))
    problem = pear.Problem(
        Q=force / size**2 * (L @ L.T), A=rows / size * A, b=rows * b, G=rows / size * G, h=rows * h,
        lb=-3.0 * size, ub=[2.0 * size, 3.0 * size, np.inf, 1.0 * size],
    )  # fmt: skip
    qp = problem.canonical(torch.from_numpy(force / size * c)[None])
    duals = (
        torch.from_numpy(scale * d)[None] for scale, d in ((force / rows, y), (force / rows, v), (force / size, w))
    )
    return qp, torch.from_numpy(size * x)[None], Duals(*duals)


def measured(qp: Any, x: Any, duals: Duals) -> Any:
    left, sizes = optimality_residuals(qp, x, duals), Sizes.of(qp)
    return divide_by_natural_sizes(qp, duals, left, sizes, PointSizes.at(qp, x, duals, left, sizes))


@pytest.mark.parametrize(
    "units", [{"force": 1e5}, {"force": 1e-5}, {"size": 1e4}, {"size": 1e-4}, {"rows": 1e3}, {"rows": 1e-3}]
)
def test_nothing_depends_on_units(units: dict[str, float]) -> None:
    expected, found = measured(*point()), measured(*point(**units))
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(kkt_residual(*point(**units)), kkt_residual(*point()), rtol=1e-10, atol=0.0)


def test_rounding_of_a_large_cost_is_no_multiplier_of_another_variable() -> None:
    """A multiplier of 1e-7 is rounding beside a cost of 1e6, but not beside a cost of 1."""
    x = torch.zeros(1, 2, dtype=torch.float64)
    none = torch.zeros(1, 0, dtype=torch.float64)
    for large, counts in ((1e6, False), (1.0, True)):
        qp = pear.Problem(lb=0.0, n=2).canonical(torch.tensor([[large, 0.0]]))
        duals = Duals(none, none, torch.tensor([[-large, -1e-7]], dtype=torch.float64))
        assert (float(-measured(qp, x, duals).multiplier_bound[0, 1]) > 1e-9) == counts


def test_no_samples() -> None:
    box = pear.Problem(lb=0.0, ub=1.0, n=2)
    found = pear.solve(box, torch.zeros(0, 2))
    assert [len(v) for v in (found.x, found.value, found.status, found.kkt_residual)] == [0] * 4
    assert kkt_residual(*(part[:0] for part in point())).shape == (0,)


@pytest.mark.parametrize("field", ["lb", "ub", "h"])
def test_one_constraint_that_nothing_satisfies_is_enough(field: str) -> None:
    inf = np.inf
    sample = {"lb": [[inf, -inf], [-inf, -inf]], "ub": [[inf, -inf], [inf, inf]], "h": [[-inf, 1.0], [1.0, 1.0]]}
    problem = pear.Problem(G=np.eye(2), h=np.ones(2))
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(problem, -torch.ones(2, 2), on_failure="mask", **{field: torch.tensor(sample[field])})
    assert found.status.tolist() == [pear.Status.INFEASIBLE, pear.Status.SOLVED]
    # and nothing has to be solved to see it
    qp = problem.canonical(-torch.ones(2, 2), **{field: torch.tensor(sample[field])})
    assert screen_programs(qp).tolist() == found.status.tolist()


def test_an_equality_is_measured_by_its_own_terms() -> None:
    """A violation of 1e-7 is rounding if both sides of the equality are 1e6."""
    qp = pear.Problem(A=[[1.0]], b=[1e6]).canonical(torch.ones(1, 1))
    none, zero = torch.zeros(1, 0, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    x = torch.full((1, 1), 1e6 + 1e-7, dtype=torch.float64)
    assert float(measured(qp, x, Duals(zero, none, zero)).equality.abs()) == pytest.approx(5e-14, rel=0.1)


def test_the_least_size_is_that_of_the_smallest_limit() -> None:
    for bounds, expected in (([1e6, 1e15], 1e6), ([np.inf, np.inf], 1.0), ([0.0, 3.0], 3.0)):
        qp = pear.Problem(ub=bounds, n=2).canonical(torch.ones(1, 2))
        assert float(least_size(qp.c.abs().amax(1, keepdim=True), Sizes.of(qp))) == expected


def test_noise_is_small_beside_the_largest_error() -> None:
    qp = pear.Problem(Q=np.eye(2)).canonical(torch.ones(1, 2))
    e = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert is_naturally_zero(qp, 1e-14 * e, e).tolist() == [True]
    assert is_naturally_zero(qp, 1e-10 * e, e).tolist() == [False]


def test_a_point_that_runs_away_does_not_outweigh_the_cost() -> None:
    """Along (1, 1) there is no curvature: the gradient of 1 remains a violation, however large x is."""
    qp = pear.Problem(Q=[[1.0, -1.0], [-1.0, 1.0]]).canonical(torch.tensor([[1.0, 0.0]]))
    none = torch.zeros(1, 0, dtype=torch.float64)
    x = torch.full((1, 2), -1e20, dtype=torch.float64)
    assert float(kkt_residual(qp, x, Duals(none, none, torch.zeros_like(x)))) >= 1e-3


def guessed(c: float, slack: float, multiplier: float, x: float = 1.0, unit: float = 1.0) -> bool:
    """Return whether the upper bound of min c·x, x ≤ ub is guessed to be active, with x in units of ``unit``."""
    qp = pear.Problem(ub=[unit * (x + slack)], n=1).canonical(torch.tensor([[c / unit]], dtype=torch.float64))
    none = torch.zeros(1, 0, dtype=torch.float64)
    point, bound = (torch.tensor([[value]], dtype=torch.float64) for value in (unit * x, multiplier / unit))
    scale = none[0], torch.full((1,), unit, dtype=torch.float64)
    return bool(guess_active_set(qp, point, Duals(none, none, bound), scale).upper)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("size", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("cost", [1e-2, 1.0, 1e2])
def test_a_guess_compares_slack_and_multiplier_without_units(cost: float, size: float, unit: float) -> None:
    for multiplier, active in ((0.2, True), (0.05, False)):
        assert guessed(cost, 0.1 * size, multiplier * cost, size, unit) == active


def test_the_largest_number_is_finite() -> None:
    for size, status in ((LARGEST, pear.Status.SOLVED), (1.1 * LARGEST, pear.Status.NOT_FINITE)):
        qp = pear.Problem(lb=0.0, n=1).canonical(torch.tensor([[size]], dtype=torch.float64))
        assert screen_programs(qp).tolist() == [status]


def test_statuses_keep_their_numbers() -> None:
    """The numbers of statuses must not change, because saved tensors hold them."""
    assert [int(status) for status in pear.Status] == list(range(9))

"""Slacks, multipliers and residuals have no units: what money, amounts and rows are counted in changes none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.optimality.point import Duals
from pear.optimality.residual import kkt_residual, residuals
from pear.optimality.scale import measure
from pear.optimality.screen import screen

n, p, m = 4, 2, 3


def point(force: float = 1.0, size: float = 1.0, rows: float = 1.0) -> tuple[Any, Any, Duals]:
    """The same random program, point and multipliers, in units of cost, of amounts and of the rows."""
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
    return measure(qp, x, duals, residuals(qp, x, duals))


@pytest.mark.parametrize(
    "units", [{"force": 1e5}, {"force": 1e-5}, {"size": 1e4}, {"size": 1e-4}, {"rows": 1e3}, {"rows": 1e-3}]
)
def test_nothing_depends_on_units(units: dict[str, float]) -> None:
    expected, found = measured(*point()), measured(*point(**units))
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(kkt_residual(*point(**units)), kkt_residual(*point()), rtol=1e-10, atol=0.0)


def test_rounding_of_a_large_cost_is_no_multiplier_of_another_variable() -> None:
    """A multiplier of 1e-7 beside a cost of 1e6 is rounding; beside a cost of 1 it is one."""
    x = torch.zeros(1, 2, dtype=torch.float64)
    none = torch.zeros(1, 0, dtype=torch.float64)
    for large, counts in ((1e6, False), (1.0, True)):
        qp = pear.Problem(lb=0.0, n=2).canonical(torch.tensor([[large, 0.0]]))
        duals = Duals(none, none, torch.tensor([[-large, -1e-7]], dtype=torch.float64))
        assert (float(measured(qp, x, duals).multiplier_lower[0, 1]) > 1e-9) == counts


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
    assert screen(qp).tolist() == found.status.tolist()

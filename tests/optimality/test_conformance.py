"""Every verifier gives the same verdict on the same points, right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from verdicts import INF, VERIFIERS, Array, Point, dense, point, tensors

from pear.optimality.rule import FEASIBLE, OPTIMAL, SIGN, TIGHT, WEAK
from pear.optimality.verification import verify

QP: dict[str, Any] = {
    "H": [[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]], "A": [[1.0, 1.0, 1.0]], "b": [1.0],
    "G": [[1.0, -1.0, 0.0], [0.0, 1.0, 2.0]], "h": [0.0, 5.0], "lb": [0.0, 0.0, 0.0], "ub": [2.0, 2.0, 2.0],
    "x": [0.5, 0.5, 0.0], "equality": [0.3], "inequality": [0.7, 0.0], "bound": [0.0, 0.0, -1.0],
    "rows": [True, False],
}  # fmt: skip
UNITS = np.array([2.0**20, 2.0**20, 2.0**-10])  # of the variables, and one bound that nobody meets
GOOD = {
    "dense": point(3, **QP),
    "vertex": point(
        2, G=[[1.0, 1.0]], h=[1.0], lb=[0.0, 0.0], x=[1.0, 0.0], inequality=[1.0], bound=[0.0, -0.5], rows=[True]
    ),
    "equality": point(2, H=[[2.0, 0.0], [0.0, 4.0]], A=[[1.0, 2.0]], b=[3.0], x=[1.0, 1.0], equality=[-1.5]),
    "bounds": point(3, H=np.eye(3), lb=[0.0] * 3, ub=[1.0] * 3, x=[0.0, 1.0, 0.4], bound=[-1.0, 2.0, 0.0]),
    "scaled": point(
        3,
        H=1e4 * np.array(QP["H"]) / UNITS / UNITS[:, None],
        A=np.array(QP["A"]) / UNITS,
        b=[1.0],
        G=np.array(QP["G"]) / UNITS * [[1.0], [1e3]],
        h=[0.0, 5e3],
        lb=np.zeros(3),
        ub=np.array([2.0, 2.0, 1e9]) * UNITS,
        x=np.array(QP["x"]) * UNITS,
        equality=[3e3],
        inequality=[7e3, 0.0],
        bound=1e4 * np.array(QP["bound"]) / UNITS,
        rows=[True, False],
    ),
    "pinned": point(2, H=np.eye(2), lb=[0.0, 1.0], ub=[2.0, 1.0], x=[0.5, 1.0], bound=[0.0, 0.4]),
    "absent row": point(2, H=np.eye(2), G=[[1.0, 1.0]], h=[INF], x=[0.5, -1.0]),
}


def free(p: Point) -> int:
    """Return the index of a variable away from its bounds."""
    return int(np.flatnonzero((p.bound == 0) & (p.x != 0))[0])


def at(values: Array, i: int, value: float) -> Array:
    changed = values.astype(float).copy()
    changed[i] = value
    return changed


def slack_row(p: Point, share: float) -> Point:
    """Give the second row, which is not in the working set, a slack of ``share`` of its natural size."""
    return replace(p, h=at(p.h, 1, float(p.G[1] @ p.x) + share * p.row_size(p.G, 1)))


def held_row(p: Point, share: float) -> Point:
    return replace(p, h=at(p.h, 0, float(p.G[0] @ p.x) + share * p.row_size(p.G, 0)))


def equality(p: Point, share: float) -> Point:
    return replace(p, b=at(p.b, 0, float(p.A[0] @ p.x) + share * p.row_size(p.A, 0)))


def free_bound(p: Point, share: float) -> Point:
    j = free(p)
    return replace(p, lb=at(p.lb, j, p.x[j] - share * 2.0 * abs(p.x[j])))


def held_bound(p: Point, share: float) -> Point:
    j = int(np.flatnonzero(p.bound)[0])
    name, sign = ("lb", -1.0) if p.bound[j] < 0 else ("ub", 1.0)
    natural = p.sizes()[0][j] + abs(p.x[j])
    moved = replace(p, **{name: at(getattr(p, name), j, p.x[j] + sign * share * natural)})
    return replace(moved, lb=at(p.lb, j, moved.ub[j])) if p.lb[j] == p.ub[j] else moved


def row_multiplier(p: Point, share: float) -> Point:
    return replace(p, inequality=at(p.inequality, 0, share * p.row_dual(0))).balanced()


def stationarity(p: Point, share: float) -> Point:
    j = free(p)
    return replace(p, c=at(p.c, j, p.c[j] + share * p.sizes()[1][j]))


def idle_multiplier(p: Point, share: float) -> Point:
    """Give the last row, which is neither tight nor in the working set, a multiplier of ``share`` of its size."""
    return replace(p, inequality=at(p.inequality, len(p.h) - 1, share * p.row_dual(len(p.h) - 1))).balanced()


def cancelling(p: Point, share: float) -> Point:
    """Repeat the first equality with huge multipliers that cancel; stationarity is off by ``share`` of the cost."""
    size = 1e6 * np.abs(p.c).max() / np.abs(p.A[0]).max()
    A, b = np.vstack([p.A[:1], p.A[:1]]), np.array([p.b[0], p.b[0]])
    q = replace(p, A=A, b=b, equality=np.array([p.equality[0] + size, -size]))
    return replace(q, c=p.c + share * np.abs(p.c).max())


def weak_bound(p: Point, share: float) -> Point:
    j = int(np.flatnonzero(p.bound)[0])
    return replace(p, bound=at(p.bound, j, np.sign(p.bound[j]) * share * p.sizes()[1][j])).balanced()


# What is done to a good point, by how much, whether it is still a solution, and which points it can be done to. Just
# inside and just outside of every tolerance of the rule.
CHANGES: list[tuple[str, Callable[[Point, float], Point], float, bool, list[str]]] = [
    ("row violated", slack_row, -10 * FEASIBLE, False, ["dense", "scaled"]),
    ("row violated a little", slack_row, -0.1 * FEASIBLE, True, ["dense", "scaled"]),
    ("row violated by far", slack_row, -1e-3, False, ["dense", "scaled"]),
    ("row tight", slack_row, 0.1 * TIGHT, True, ["dense", "scaled"]),
    ("row not tight", slack_row, 10 * TIGHT, True, ["dense", "scaled"]),
    ("held row slack", held_row, 10 * FEASIBLE, False, ["dense", "vertex", "scaled"]),
    ("held row violated", held_row, -10 * FEASIBLE, False, ["dense", "vertex", "scaled"]),
    ("held row a little off", held_row, 0.1 * FEASIBLE, True, ["dense", "vertex", "scaled"]),
    ("equality off", equality, 10 * FEASIBLE, False, ["dense", "equality", "scaled"]),
    ("equality a little off", equality, -0.1 * FEASIBLE, True, ["dense", "equality", "scaled"]),
    ("bound violated", free_bound, -10 * FEASIBLE, False, ["dense", "bounds", "scaled", "pinned", "equality"]),
    ("bound violated a little", free_bound, -0.1 * FEASIBLE, True, ["dense", "bounds", "scaled", "equality"]),
    ("bound tight", free_bound, 0.1 * TIGHT, True, ["dense", "bounds", "scaled", "equality"]),
    ("bound not tight", free_bound, 10 * TIGHT, True, ["dense", "bounds", "scaled", "equality"]),
    ("held bound violated", held_bound, -10 * FEASIBLE, False, ["dense", "bounds", "vertex", "scaled", "pinned"]),
    ("held bound slack", held_bound, 10 * FEASIBLE, False, ["dense", "bounds", "vertex", "scaled", "pinned"]),
    ("held bound a little off", held_bound, 0.1 * FEASIBLE, True, ["dense", "bounds", "vertex", "scaled", "pinned"]),
    ("row of the wrong sign", row_multiplier, -10 * SIGN, False, ["dense", "vertex", "scaled"]),
    ("row of the wrong sign by rounding", row_multiplier, -0.1 * SIGN, True, ["dense", "vertex", "scaled"]),
    ("row weakly active", row_multiplier, 0.1 * WEAK, True, ["dense", "vertex", "scaled"]),
    ("row not weakly active", row_multiplier, 10 * WEAK, True, ["dense", "vertex", "scaled"]),
    ("bound weakly active", weak_bound, 0.1 * WEAK, True, ["dense", "bounds", "vertex", "scaled", "pinned"]),
    ("bound not weakly active", weak_bound, 10 * WEAK, True, ["dense", "bounds", "vertex", "scaled", "pinned"]),
    ("not stationary", stationarity, 10 * FEASIBLE, False, ["dense", "bounds", "equality", "scaled", "absent row"]),
    ("stationary to rounding", stationarity, 0.1 * FEASIBLE, True, ["dense", "bounds", "equality", "scaled"]),
    ("not complementary", idle_multiplier, 1e-3, False, ["dense", "absent row"]),
    ("huge multipliers that cancel", cancelling, 1e-6, False, ["dense", "equality", "scaled"]),
    ("a little of them", cancelling, 1e-10, True, ["dense", "equality", "scaled"]),
    ("not a number", lambda p, share: replace(p, x=at(p.x, 0, share)), np.nan, False, ["dense", "vertex", "bounds"]),
]
POINTS = {f"{name}: good": p for name, p in GOOD.items()}
POINTS |= {
    f"{base}: {name}": replace(change(GOOD[base], share), solved=solved)
    for name, change, share, solved, bases in CHANGES
    for base in bases
}

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch.cuda.is_available() is False"),
]
every_verifier = pytest.mark.parametrize(
    "verifier", [pytest.param(name, marks=needs_gpu if name == "gpu" else []) for name in VERIFIERS]
)


@pytest.mark.parametrize("name", POINTS)
@every_verifier
def test_the_same_verdict(verifier: str, name: str) -> None:
    p = POINTS[name]
    mine, reference = VERIFIERS[verifier](p), dense(p)
    assert mine.solved == p.solved
    assert (mine.active, mine.weak) == (reference.active, reference.weak)
    if np.isfinite(p.x).all():
        rounding = 1e-15 * p.sizes()[1].max() / max(np.abs(p.c).max(), np.abs(p.H @ p.x).max())
        assert mine.kkt_residual == pytest.approx(reference.kkt_residual, rel=1e-12, abs=rounding)


@pytest.mark.parametrize("base", ["dense", "scaled"])
@every_verifier
def test_tight_and_weak(verifier: str, base: str) -> None:
    """The numbers of active and of weakly active constraints, compared with those counted by hand."""
    judge = VERIFIERS[verifier]
    expected = {
        "good": (2, 0),
        "row tight": (3, 1),
        "row not tight": (2, 0),
        "bound tight": (3, 1),
        "bound not tight": (2, 0),
        "row weakly active": (2, 1),
        "row not weakly active": (2, 0),
        "bound weakly active": (2, 1),
        "bound not weakly active": (2, 0),
    }
    for name, counts in expected.items():
        found = judge(POINTS[f"{base}: {name}"])
        assert (sum(found.active), sum(found.weak)) == counts, name


def test_the_gate_is_needed() -> None:
    """Huge multipliers that cancel pass every tolerance relative to them, but not the limit on the KKT residual."""
    qp, x, duals, working = tensors(POINTS["dense: huge multipliers that cancel"])
    verdict = verify(qp, x, duals, working)
    assert bool(verdict.wrong.count() == 0)
    assert float(verdict.unbalanced) < FEASIBLE
    assert float(verdict.kkt_residual) > 100 * OPTIMAL


def test_exact_residuals_prove_what_float64_cannot() -> None:
    """Multipliers of ±1e14 cancel: a residual of zero proves optimality only if it was computed exactly."""
    p = point(2, H=np.eye(2), A=np.ones((2, 2)), b=[1.0, 1.0], x=[0.5, 0.5], equality=[1e14, -1e14])
    assert verify(*tensors(p), exact=True).solved
    assert not verify(*tensors(p)).solved

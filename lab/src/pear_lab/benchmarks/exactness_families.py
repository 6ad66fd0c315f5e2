"""The families of problems of the exactness benchmark. All problems are feasible, bounded and strictly convex.

Most families draw a point first, and place right-hand sides and bounds around it, so that it is feasible. Paths,
knapsacks and portfolios are feasible by construction. The objective is strictly convex by its own curvature or by
smoothing. Costs come from continuous distributions, so that a tight constraint without a multiplier is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.problem import Problem
from pear_lab.benchmarks.hard_models import draw_small_hard_models
from pear_lab.benchmarks.random_programs import (
    Fields,
    Rng,
    append_random_rows,
    grid_flow_balance,
    random_curvature,
    random_markets,
    random_polytope,
)
from pear_lab.judge.judged_program import Array


class ExactnessCase(NamedTuple):
    """A batch of B problems of equal shape, with predicted and true costs.

    Attributes:
        problem: the constraints and the known curvature.
        predicted: (B, n) predicted costs.
        true: (B, n) true costs.
        smoothing: λ ≥ 0, which the solvers add to the diagonal of the curvature.
        Q: (B, n, n) predicted curvature, or None.
        true_Q: (B, n, n) true curvature, or None.
    """

    problem: Problem
    predicted: Tensor
    true: Tensor
    smoothing: float = 0.0
    Q: Tensor | None = None
    true_Q: Tensor | None = None


Family = Callable[[Rng, float], Iterator[ExactnessCase]]
"""A function of a random generator and of the share of the samples to draw, which yields batches of problems."""


def dense_qp_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield QPs with dense curvature, equalities, inequalities, and bounds, of which a third is absent."""
    for n, count in ((2, 120), (5, 120), (20, 80), (60, 40), (200, 12)):
        fields = _draw_family_polytope(rng, rng.normal(size=n))
        fields["lb"][rng.random(n) < 1 / 3] = -np.inf
        fields["ub"][rng.random(n) < 1 / 3] = np.inf
        yield _draw_family_case(rng, Problem(Q=random_curvature(rng, n), **fields), _family_size(count, share))


def box_qp_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield QPs with dense curvature and bounds, and no other constraints."""
    for n, count in ((2, 120), (10, 100), (50, 60), (200, 16)):
        yield _draw_family_case(
            rng, Problem(Q=random_curvature(rng, n), lb=-0.5, ub=rng.uniform(0.0, 1.0, n)), _family_size(count, share)
        )


def smoothed_lp_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield linear programs in general position, which smoothing alone makes strictly convex."""
    for n, count in ((2, 120), (5, 120), (20, 80), (60, 40), (200, 12)):
        for lam in (0.1, 2.0):
            yield _draw_family_case(
                rng, Problem(**_draw_family_polytope(rng, rng.normal(size=n))), _family_size(count // 2, share), lam
            )


def network_flow_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield cheapest paths through square grids. All flow balances are rows, so one row follows from the others."""
    for size, count in ((3, 120), (5, 120), (7, 60), (10, 24)):
        A, b = grid_flow_balance(size)
        for lam in (0.1, 1.0):
            true = rng.uniform(0.5, 1.5, (_family_size(count // 2, share), A.shape[1]))
            predicted = true * rng.uniform(0.7, 1.3, true.shape)
            yield _make_family_case(Problem(A=A, b=b, lb=0.0), predicted, true, lam)


def knapsack_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield relaxed knapsacks that maximise value. Weights are integers, and a capacity is half of the total weight."""
    for n, rows, count in ((10, 1, 120), (48, 3, 60), (100, 5, 40)):
        weights = rng.integers(1, 11, (rows, n)).astype(float)
        problem = Problem(G=weights, h=0.5 * weights.sum(1), lb=0.0, ub=1.0, sense="max")
        for lam in (0.1, 1.0):
            true = rng.uniform(1.0, 5.0, (_family_size(count // 2, share), n))
            yield _make_family_case(problem, true * rng.uniform(0.7, 1.3, true.shape), true, lam)


def portfolio_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield long-only portfolios. Returns and covariances are predicted, and both differ from the true ones."""
    for n, count in ((20, 100), (100, 64)):
        predicted, true, Q, true_Q = random_markets(rng, n, _family_size(count, share))
        yield _make_family_case(Problem(A=np.ones((1, n)), b=[1.0], lb=0.0), predicted, true, 0.0, Q, true_Q)


def anchor_portfolio_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield one batch of long-only portfolios of 100 assets, with predicted returns and a known covariance for each."""
    predicted, true, _, Q = random_markets(rng, 100, _family_size(64, share))
    yield _make_family_case(Problem(Q=Q, A=np.ones((1, 100)), b=[1.0], lb=0.0), predicted, true)


def duplicated_row_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield programs with repeated rows, some of them multiplied by 3, and with lower bounds repeated as rows."""

    def change(f: Fields, n: int) -> None:
        G, h, half = f["G"], f["h"], n // 2
        append_random_rows(f, "A", (f["A"], f["b"]))
        append_random_rows(f, "G", (G, h), (3.0 * G[:half], 3.0 * h[:half]), (-np.eye(n)[:half], -f["lb"][:half]))

    return _changed_polytope_family(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def opposed_row_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield programs that write each equality as two inequalities, so that the feasible set has no interior."""

    def change(f: Fields, n: int) -> None:
        A, b = f.pop("A"), f.pop("b")
        append_random_rows(f, "G", (A, b), (-A, -b))

    return _changed_polytope_family(rng, share, ((6, 120), (20, 60)), change)


def zero_row_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield programs with rows of zeros: 0 = 0, 0 ≤ 0 and 0 ≤ 1."""

    def change(f: Fields, n: int) -> None:
        f |= {"A": np.vstack([np.zeros((2, n)), f["A"]]), "b": np.hstack([np.zeros(2), f["b"]])}
        append_random_rows(f, "G", (np.zeros((3, n)), [0.0, 0.0, 1.0]))

    return _changed_polytope_family(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def redundant_equality_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield programs in which one half of the equalities are linear combinations of the other half."""

    def change(f: Fields, n: int) -> None:
        mix = rng.normal(size=(len(f["b"]), len(f["b"])))
        append_random_rows(f, "A", (mix @ f["A"], mix @ f["b"]))

    return _changed_polytope_family(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def per_sample_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield batches whose samples have their own curvature and limits. Some limits are absent, some variables fixed."""
    for n, count in ((5, 120), (20, 80), (60, 30)):
        B = _family_size(count, share)
        inside = rng.normal(size=(B, n))
        f = _draw_family_polytope(rng, inside)
        f["h"][rng.random(f["h"].shape) < 0.2] = np.inf
        f["lb"][rng.random((B, n)) < 0.2] = -np.inf
        pinned = (rng.random((B, n)) < 0.1) & np.isfinite(f["lb"])
        f["lb"][pinned] = f["ub"][pinned] = inside[pinned]
        yield _draw_family_case(rng, Problem(Q=random_curvature(rng, n, B), **f), B)


def maximisation_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield concave maximisation problems. Half have known curvature; half have predicted curvature and smoothing."""
    for n, count in ((3, 120), (20, 80), (60, 30)):
        for lam in (0.0, 0.2):
            B = _family_size(count // 2, share)
            case = _draw_family_case(
                rng,
                Problem(Q=-random_curvature(rng, n), **_draw_family_polytope(rng, rng.normal(size=n)), sense="max"),
                B,
                lam,
            )
            if lam:
                Q, true_Q = (torch.from_numpy(-random_curvature(rng, n, B)) for _ in range(2))
                case = case._replace(Q=Q, true_Q=true_Q)
            yield case


def badly_scaled_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield programs whose numbers differ by many orders of magnitude.

    Some have costs near 1e-4 or 1e5, and a smoothing λ that is a tenth of the costs or, for either size, 0.1. Some have
    decisions in thousands and rows in mixed units. Some have upper bounds of 1e8 and a variable that costs 1e6.
    """
    for cost, lam in ((1e-4, 1e-5), (1e-4, 0.1), (1e5, 1e4), (1e5, 0.1)):
        for n, count in ((6, 40), (30, 20)):
            yield _draw_family_case(
                rng, Problem(**_draw_family_polytope(rng, rng.normal(size=n))), _family_size(count, share), lam, cost
            )
    for n, count in ((6, 40), (30, 20)):
        f = _draw_family_polytope(rng, rng.normal(size=n))
        f = {name: value if name in "AG" else 1e3 * value for name, value in f.items()}
        units = 10.0 ** rng.uniform(-3, 3, len(f["h"]))
        f |= {"G": units[:, None] * f["G"], "h": units * f["h"]}
        yield _draw_family_case(rng, Problem(Q=random_curvature(rng, n), **f), _family_size(count, share), cost=1e3)
        f = _draw_family_polytope(rng, rng.normal(size=n)) | {"ub": np.full(n, 1e8)}
        case = _draw_family_case(rng, Problem(**f), _family_size(count, share), 0.5)
        case.predicted[:, 0] = case.true[:, 0] = 1e6
        yield case


def hard_model_family(rng: Rng, share: float) -> Iterator[ExactnessCase]:
    """Yield small degenerate planning models like those of netlib, with redundant rows and mixed units."""
    for instance in draw_small_hard_models(rng):
        problem, cost = instance.as_dense_problem()
        true = cost * rng.uniform(0.7, 1.3, (_family_size(30, share), len(cost)))
        yield _make_family_case(problem, true * rng.uniform(0.7, 1.3, true.shape), true, 0.5)


EXACTNESS_FAMILIES: dict[str, Family] = {
    "dense QPs": dense_qp_family,
    "box QPs": box_qp_family,
    "smoothed LPs": smoothed_lp_family,
    "network flows": network_flow_family,
    "knapsacks": knapsack_family,
    "portfolios": portfolio_family,
    "anchor portfolio": anchor_portfolio_family,
    "duplicated rows": duplicated_row_family,
    "opposed rows": opposed_row_family,
    "zero rows": zero_row_family,
    "redundant equalities": redundant_equality_family,
    "per-sample constraints": per_sample_family,
    "maximisation": maximisation_family,
    "badly scaled": badly_scaled_family,
    "hard models": hard_model_family,
}


def _family_size(count: int, share: float) -> int:
    """Return the number of samples to draw: ``share`` of ``count``, and at least one."""
    return max(1, round(count * share))


def _make_family_case(
    problem: Problem, predicted: Array, true: Array, smoothing: float = 0.0, *curvatures: Array
) -> ExactnessCase:
    """Make a case from arrays. ``curvatures`` holds the predicted and the true curvature, or nothing."""
    costs = torch.from_numpy(predicted), torch.from_numpy(true)
    return ExactnessCase(problem, *costs, smoothing, *map(torch.from_numpy, curvatures))


def _draw_family_case(rng: Rng, problem: Problem, B: int, smoothing: float = 0.0, cost: float = 1.0) -> ExactnessCase:
    """Draw B true costs of size ``cost`` for a problem, and predictions whose errors are half as large."""
    true = cost * rng.normal(size=(B, problem.n))
    return _make_family_case(problem, true + 0.5 * cost * rng.normal(size=true.shape), true, smoothing)


def _changed_polytope_family(
    rng: Rng, share: float, sizes: Sequence[tuple[int, int]], change: Callable[[Fields, int], None]
) -> Iterator[ExactnessCase]:
    """Yield batches of programs on polytopes that ``change`` has modified: half QPs, half smoothed LPs.

    Args:
        rng: random generator.
        share: share of the samples to draw.
        sizes: pairs of a number of variables and the number of samples in a full run.
        change: modifies the fields of a polytope of n variables in place.
    """
    for n, count in sizes:
        for curved in (True, False):
            fields, B = _draw_family_polytope(rng, rng.normal(size=n)), _family_size(count // 2, share)
            change(fields, n)
            curvature: Fields = {"Q": random_curvature(rng, n)} if curved else {}
            yield _draw_family_case(rng, Problem(**curvature, **fields), B, smoothing=0.0 if curved else 0.5)


def _draw_family_polytope(rng: Rng, inside: Array) -> Fields:
    """Draw polytopes with n/4 equalities, n inequalities and bounds, one around each of the points (n,) or (B, n)."""
    n = inside.shape[-1]
    return random_polytope(rng, inside, n // 4, n, room=0.5 * np.sqrt(n))

"""Random programs for benchmarks and stress tests, and the problem families of the exactness benchmark.

Every family is feasible and bounded by construction. A point is drawn first, and right-hand sides and bounds are placed
around it; a path on a grid, the empty knapsack and the uniform portfolio are such points, too. Every problem is
strictly convex, by its own curvature or by smoothing. Costs come from continuous distributions, so that weak
activity is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.problem import Problem
from pear_lab.benchmarks.hard_models import as_dense_problem, small_instances
from pear_lab.judge.judged_program import Array

Fields = dict[str, Any]
"""Arrays by the names that ``Problem`` has for them."""
Rng = np.random.Generator


def random_row_values(rows: Array, x: Array) -> Array:
    """Multiply rows (…, r, n) by points (…, n)."""
    return np.asarray(np.einsum("...rn,...n->...r", rows, x))


def random_curvature(rng: Rng, n: int, *lead: int) -> Array:
    """Draw symmetric matrices (…, n, n) with eigenvalues of at least 0.1."""
    M = rng.normal(size=(*lead, n, n))
    return np.asarray(M @ np.swapaxes(M, -1, -2) / n + 0.1 * np.eye(n))


def random_entries(rng: Rng, shape: tuple[int, ...], whole: bool = False) -> Array:
    """Normal numbers, or integers from −3 to 3."""
    return rng.integers(-3, 4, shape).astype(float) if whole else rng.normal(size=shape)


def random_polytope(rng: Rng, x: Array, equalities: int, rows: int, room: float = 1.0, whole: bool = False) -> Fields:
    """Draw rows and bounds that the point x, (n,) or (B, n), satisfies: one set for every point.

    Args:
        rng: draws them.
        x: the point.
        equalities, rows: numbers of rows of A and G.
        room: largest slack of a row of G at the point; that of a bound is 1.
        whole: all numbers are small integers, so that every product is exact.
    """
    *lead, n = x.shape

    def slack(shape: tuple[int, ...], most: float) -> Array:
        return rng.integers(0, 3, shape).astype(float) if whole else rng.uniform(0.0, most, shape)

    A, G = (random_entries(rng, (*lead, count, n), whole) for count in (equalities, rows))
    b, reached = random_row_values(A, x), random_row_values(G, x)
    limits = {"h": reached + slack(reached.shape, room), "lb": x - slack(x.shape, 1.0), "ub": x + slack(x.shape, 1.0)}
    return {"A": A, "b": b, "G": G, **limits}


def append_random_rows(fields: Fields, name: str, *more: tuple[Array, Any]) -> None:
    """Append rows (…, r, n) with right-hand sides (…, r) to A ("A") or G ("G")."""
    rhs = {"A": "b", "G": "h"}[name]
    fields[name] = np.concatenate([fields[name], *(rows for rows, _ in more)], -2)
    fields[rhs] = np.concatenate([fields[rhs], *(np.broadcast_to(side, rows.shape[:-1]) for rows, side in more)], -1)


def grid_flow_balance(size: int) -> tuple[Array, Array]:
    """Return the flow balance of a square grid, first to last corner: matrix (nodes, edges) and limits (nodes,)."""
    node = np.arange(size * size).reshape(size, size)
    right = np.column_stack([node[:, :-1].ravel(), node[:, 1:].ravel()])
    down = np.column_stack([node[:-1].ravel(), node[1:].ravel()])
    edges = np.vstack([right, down])
    A = np.zeros((size * size, len(edges)))
    A[edges[:, 0], np.arange(len(edges))] = 1.0
    A[edges[:, 1], np.arange(len(edges))] = -1.0
    b = np.zeros(size * size)
    b[0], b[-1] = 1.0, -1.0
    return A, b


def long_only_problem(Q: Any) -> Problem:
    """Make the problem of long-only portfolios, Σᵢ wᵢ = 1 and w ≥ 0, with a known curvature Q (B, n, n)."""
    ones = torch.ones(1, Q.shape[-1], dtype=torch.float64, device=Q.device if isinstance(Q, Tensor) else "cpu")
    return Problem(Q=Q, A=ones, b=ones[:, 0], lb=0.0)


def random_markets(rng: Rng, n: int, batch: int) -> tuple[Array, Array, Array, Array]:
    """Draw markets one after the other. Return −μ̂ and −μ (B, n), and 2Σ̂ and 2Σ (B, n, n).

    A smaller batch consists of the first programs of a larger one. Each market has n assets over 84 days: five factors
    and noise of 1 % a day each, and 1e-4 I on top of Σ. The last 21 days are a forecast: half of what will happen, and
    noise.
    """
    days, ahead = 84, 21
    predicted, true, Q_hat, Q = np.empty((batch, n)), np.empty((batch, n)), *np.empty((2, batch, n, n))
    for i in range(batch):
        factors, loadings = rng.normal(0.0, 0.01, (days, 5)), rng.normal(0.0, 1.0, (5, n))
        returns = 0.0005 + factors @ loadings + rng.normal(0.0, 0.01, (days, n))
        forecast = 0.5 * returns[-ahead:] + rng.normal(0.0, 0.01, (ahead, n))
        seen = np.vstack([returns[:-ahead], forecast])
        predicted[i], true[i] = -seen.mean(0), -returns.mean(0)
        Q_hat[i], Q[i] = (2.0 * (np.cov(r, rowvar=False) + 1e-4 * np.eye(n)) for r in (seen, returns))
    return predicted, true, Q_hat, Q


class GradientCase(NamedTuple):
    """One batch of problems of equal shape.

    Attributes:
        problem: constraints and known curvature.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        smoothing: λ.
        Q: (B, n, n) predicted curvature, or None.
        true_Q: (B, n, n) true curvature, or None.
    """

    problem: Problem
    predicted: Tensor
    true: Tensor
    smoothing: float = 0.0
    Q: Tensor | None = None
    true_Q: Tensor | None = None


Family = Callable[[Rng, float], Iterator[GradientCase]]
"""A generator of batches: takes the random generator and the share of the full number of samples to draw."""


def dense_qps(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Dense curvature, equalities, as many inequalities as variables, bounds on two thirds of the variables."""
    for n, count in ((2, 120), (5, 120), (20, 80), (60, 40), (200, 12)):
        fields = _polytope_fields(rng, rng.normal(size=n))
        fields["lb"][rng.random(n) < 1 / 3] = -np.inf
        fields["ub"][rng.random(n) < 1 / 3] = np.inf
        yield _random_case(rng, Problem(Q=random_curvature(rng, n), **fields), _scaled_count(count, share))


def box_qps(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Dense curvature and bounds, without rows."""
    for n, count in ((2, 120), (10, 100), (50, 60), (200, 16)):
        yield _random_case(
            rng, Problem(Q=random_curvature(rng, n), lb=-0.5, ub=rng.uniform(0.0, 1.0, n)), _scaled_count(count, share)
        )


def smoothed_lps(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Linear programs in general position, made curved by smoothing alone."""
    for n, count in ((2, 120), (5, 120), (20, 80), (60, 40), (200, 12)):
        for lam in (0.1, 2.0):
            yield _random_case(
                rng, Problem(**_polytope_fields(rng, rng.normal(size=n))), _scaled_count(count // 2, share), lam
            )


def network_flows(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Paths through square grids with every flow-balance row, so that the rows are rank deficient by one."""
    for size, count in ((3, 120), (5, 120), (7, 60), (10, 24)):
        A, b = grid_flow_balance(size)
        for lam in (0.1, 1.0):
            true = rng.uniform(0.5, 1.5, (_scaled_count(count // 2, share), A.shape[1]))
            predicted = true * rng.uniform(0.7, 1.3, true.shape)
            yield _case_of_arrays(Problem(A=A, b=b, lb=0.0), predicted, true, lam)


def knapsacks(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Relaxed knapsacks: maximise value, integer weights, capacity half of the total weight."""
    for n, rows, count in ((10, 1, 120), (48, 3, 60), (100, 5, 40)):
        weights = rng.integers(1, 11, (rows, n)).astype(float)
        problem = Problem(G=weights, h=0.5 * weights.sum(1), lb=0.0, ub=1.0, sense="max")
        for lam in (0.1, 1.0):
            true = rng.uniform(1.0, 5.0, (_scaled_count(count // 2, share), n))
            yield _case_of_arrays(problem, true * rng.uniform(0.7, 1.3, true.shape), true, lam)


def portfolios(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Long-only portfolios whose covariance is predicted as well: Σ̂ in the decision, Σ in the true objective."""
    for n, count in ((20, 100), (100, 64)):
        predicted, true, Q, true_Q = random_markets(rng, n, _scaled_count(count, share))
        yield _case_of_arrays(Problem(A=np.ones((1, n)), b=[1.0], lb=0.0), predicted, true, 0.0, Q, true_Q)


def anchor_portfolios(rng: Rng, share: float) -> Iterator[GradientCase]:
    """100 assets, a batch of 64, every sample with a known covariance of its own; the returns are predicted."""
    predicted, true, _, Q = random_markets(rng, 100, _scaled_count(64, share))
    yield _case_of_arrays(long_only_problem(Q), predicted, true)


def duplicated_rows(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Equalities and inequalities that occur twice, the second time in other units, and bounds repeated as rows."""

    def change(f: Fields, n: int) -> None:
        G, h, half = f["G"], f["h"], n // 2
        append_random_rows(f, "A", (f["A"], f["b"]))
        append_random_rows(f, "G", (G, h), (3.0 * G[:half], 3.0 * h[:half]), (-np.eye(n)[:half], -f["lb"][:half]))

    return _changed_polytopes(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def opposed_rows(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Equalities written as two inequalities: feasible sets without interior."""

    def change(f: Fields, n: int) -> None:
        A, b = f.pop("A"), f.pop("b")
        append_random_rows(f, "G", (A, b), (-A, -b))

    return _changed_polytopes(rng, share, ((6, 120), (20, 60)), change)


def zero_rows(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Rows without an entry: 0 = 0, 0 ≤ 0 and 0 ≤ 1."""

    def change(f: Fields, n: int) -> None:
        f |= {"A": np.vstack([np.zeros((2, n)), f["A"]]), "b": np.hstack([np.zeros(2), f["b"]])}
        append_random_rows(f, "G", (np.zeros((3, n)), [0.0, 0.0, 1.0]))

    return _changed_polytopes(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def redundant_equalities(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Equalities and, below them, as many linear combinations of them."""

    def change(f: Fields, n: int) -> None:
        mix = rng.normal(size=(len(f["b"]), len(f["b"])))
        append_random_rows(f, "A", (mix @ f["A"], mix @ f["b"]))

    return _changed_polytopes(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def per_sample_problems(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Every sample with rows, right-hand sides, bounds and curvature of its own; some absent, some variables pinned."""
    for n, count in ((5, 120), (20, 80), (60, 30)):
        B = _scaled_count(count, share)
        inside = rng.normal(size=(B, n))
        f = _polytope_fields(rng, inside)
        f["h"][rng.random(f["h"].shape) < 0.2] = np.inf
        f["lb"][rng.random((B, n)) < 0.2] = -np.inf
        pinned = (rng.random((B, n)) < 0.1) & np.isfinite(f["lb"])
        f["lb"][pinned] = f["ub"][pinned] = inside[pinned]
        yield _random_case(rng, Problem(Q=random_curvature(rng, n, B), **f), B)


def maximisation_problems(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Concave objectives to maximise, with and without smoothing, curvature known or predicted."""
    for n, count in ((3, 120), (20, 80), (60, 30)):
        for lam in (0.0, 0.2):
            B = _scaled_count(count // 2, share)
            case = _random_case(
                rng,
                Problem(Q=-random_curvature(rng, n), **_polytope_fields(rng, rng.normal(size=n)), sense="max"),
                B,
                lam,
            )
            if lam:
                Q, true_Q = (torch.from_numpy(-random_curvature(rng, n, B)) for _ in range(2))
                case = case._replace(Q=Q, true_Q=true_Q)
            yield case


def badly_scaled_problems(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Costs of 1e-4 and of 1e5, with λ in their units and far off; decisions in thousands with rows in mixed units.

    Some variables have a bound of 1e8 that no decision reaches, or a cost of 1e6 that keeps them at zero.
    """
    for cost, lam in ((1e-4, 1e-5), (1e-4, 0.1), (1e5, 1e4), (1e5, 0.1)):
        for n, count in ((6, 40), (30, 20)):
            yield _random_case(
                rng, Problem(**_polytope_fields(rng, rng.normal(size=n))), _scaled_count(count, share), lam, cost
            )
    for n, count in ((6, 40), (30, 20)):
        f = _polytope_fields(rng, rng.normal(size=n))
        f = {name: value if name in "AG" else 1e3 * value for name, value in f.items()}
        units = 10.0 ** rng.uniform(-3, 3, len(f["h"]))
        f |= {"G": units[:, None] * f["G"], "h": units * f["h"]}
        yield _random_case(rng, Problem(Q=random_curvature(rng, n), **f), _scaled_count(count, share), cost=1e3)
        f = _polytope_fields(rng, rng.normal(size=n)) | {"ub": np.full(n, 1e8)}
        case = _random_case(rng, Problem(**f), _scaled_count(count, share), 0.5)
        case.predicted[:, 0] = case.true[:, 0] = 1e6
        yield case


def hard_model_cases(rng: Rng, share: float) -> Iterator[GradientCase]:
    """Degenerate planning models in the manner of netlib's, with rows that follow from others, in mixed units."""
    for instance in small_instances(rng):
        problem, cost = as_dense_problem(instance)
        true = cost * rng.uniform(0.7, 1.3, (_scaled_count(30, share), len(cost)))
        yield _case_of_arrays(problem, true * rng.uniform(0.7, 1.3, true.shape), true, 0.5)


FAMILIES: dict[str, Family] = {
    "dense QPs": dense_qps,
    "box QPs": box_qps,
    "smoothed LPs": smoothed_lps,
    "network flows": network_flows,
    "knapsacks": knapsacks,
    "portfolios": portfolios,
    "anchor portfolio": anchor_portfolios,
    "duplicated rows": duplicated_rows,
    "opposed rows": opposed_rows,
    "zero rows": zero_rows,
    "redundant equalities": redundant_equalities,
    "per-sample constraints": per_sample_problems,
    "maximisation": maximisation_problems,
    "badly scaled": badly_scaled_problems,
    "hard models": hard_model_cases,
}


def _scaled_count(count: int, share: float) -> int:
    return max(1, round(count * share))


def _case_of_arrays(
    problem: Problem, predicted: Array, true: Array, smoothing: float = 0.0, *curvatures: Array
) -> GradientCase:
    costs = torch.from_numpy(predicted), torch.from_numpy(true)
    return GradientCase(problem, *costs, smoothing, *map(torch.from_numpy, curvatures))


def _random_case(rng: Rng, problem: Problem, B: int, smoothing: float = 0.0, cost: float = 1.0) -> GradientCase:
    """Make a case with costs of size ``cost``, predicted with an error of half their size."""
    true = cost * rng.normal(size=(B, problem.n))
    return _case_of_arrays(problem, true + 0.5 * cost * rng.normal(size=true.shape), true, smoothing)


def _changed_polytopes(
    rng: Rng, share: float, sizes: Sequence[tuple[int, int]], change: Callable[[Fields, int], None]
) -> Iterator[GradientCase]:
    """Yield polytopes of each size (n, count), modified by ``change``. Half have curvature, half are smoothed."""
    for n, count in sizes:
        for curved in (True, False):
            fields, B = _polytope_fields(rng, rng.normal(size=n)), _scaled_count(count // 2, share)
            change(fields, n)
            curvature: Fields = {"Q": random_curvature(rng, n)} if curved else {}
            yield _random_case(rng, Problem(**curvature, **fields), B, smoothing=0.0 if curved else 0.5)


def _polytope_fields(rng: Rng, inside: Array) -> Fields:
    """Draw n/4 equalities, n inequalities and bounds around the point ``inside``, (n,) or (B, n)."""
    n = inside.shape[-1]
    return random_polytope(rng, inside, n // 4, n, room=0.5 * np.sqrt(n))

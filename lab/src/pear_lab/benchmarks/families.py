"""Families of random problems for the exactness benchmark, each feasible and bounded by construction.

Feasible: a point is drawn first, and right-hand sides and bounds are placed around it (a path on a grid, the empty
knapsack and the uniform portfolio are such points too). Bounded: every problem is strictly convex, by its own curvature
or by smoothing. The costs are drawn from continuous distributions, so that weak activity is rare but not excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.problem import Problem
from pear_lab.benchmarks.hard import as_problem, small_instances

Array = NDArray[np.float64]
Fields = dict[str, Any]
"""Rows and bounds by the names ``Problem`` has for them."""


class Case(NamedTuple):
    """One batch of problems of equal shape.

    Attributes:
        problem: constraints and known curvature.
        predicted, true: (B, n) costs ĉ and c.
        smoothing: λ.
        Q, true_Q: (B, n, n) predicted and true curvature, or None.
    """

    problem: Problem
    predicted: Tensor
    true: Tensor
    smoothing: float = 0.0
    Q: Tensor | None = None
    true_Q: Tensor | None = None


Family = Callable[[np.random.Generator, float], Iterator[Case]]
"""A generator of batches: takes the random generator and the share of the full number of samples to draw."""


def dense_qps(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Dense curvature, equalities, as many inequalities as variables, bounds on two thirds of the variables."""
    for n, count in ((2, 120), (5, 120), (20, 80), (60, 40), (200, 12)):
        fields = _polytope(rng, n)
        fields["lb"][rng.random(n) < 1 / 3] = -np.inf
        fields["ub"][rng.random(n) < 1 / 3] = np.inf
        yield _case(rng, Problem(Q=random_curvature(rng, n), **fields), _some(count, share))


def box_qps(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Dense curvature and nothing but bounds."""
    for n, count in ((2, 120), (10, 100), (50, 60), (200, 16)):
        yield _case(rng, Problem(Q=random_curvature(rng, n), lb=-0.5, ub=rng.uniform(0.0, 1.0, n)), _some(count, share))


def smoothed_lps(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Linear programs in general position, made curved by smoothing alone."""
    for n, count in ((2, 120), (5, 120), (20, 80), (60, 40), (200, 12)):
        for lam in (0.1, 2.0):
            yield _case(rng, Problem(**_polytope(rng, n)), _some(count // 2, share), lam)


def network_flows(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Paths through square grids with every flow-balance row, so that the rows are rank deficient by one."""
    for size, count in ((3, 120), (5, 120), (7, 60), (10, 24)):
        A, b = flow_balance(size)
        for lam in (0.1, 1.0):
            true = rng.uniform(0.5, 1.5, (_some(count // 2, share), A.shape[1]))
            predicted = true * rng.uniform(0.7, 1.3, true.shape)
            yield _tensors(Problem(A=A, b=b, lb=0.0), predicted, true, lam)


def knapsacks(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Relaxed knapsacks: maximise value, integer weights, capacity half of the total weight."""
    for n, rows, count in ((10, 1, 120), (48, 3, 60), (100, 5, 40)):
        weights = rng.integers(1, 11, (rows, n)).astype(float)
        problem = Problem(G=weights, h=0.5 * weights.sum(1), lb=0.0, ub=1.0, sense="max")
        for lam in (0.1, 1.0):
            true = rng.uniform(1.0, 5.0, (_some(count // 2, share), n))
            yield _tensors(problem, true * rng.uniform(0.7, 1.3, true.shape), true, lam)


def portfolios(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Long-only portfolios whose covariance is predicted as well: Σ̂ in the decision, Σ in the true objective."""
    for n, count in ((20, 100), (100, 64)):
        draws = [_market(rng, n) for _ in range(_some(count, share))]
        predicted, true, Q, true_Q = (np.stack(part) for part in zip(*draws, strict=True))
        yield _tensors(Problem(A=np.ones((1, n)), b=[1.0], lb=0.0), predicted, true, 0.0, Q, true_Q)


def anchor_portfolios(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """100 assets, a batch of 64, every sample with a known covariance of its own; the returns are predicted."""
    predicted, true, Q = markets(rng, 100, _some(64, share))
    yield _tensors(long_only(Q), predicted, true)


def duplicated_rows(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Equalities and inequalities that are there twice, once more in other units, and bounds repeated as rows."""

    def change(f: Fields, n: int) -> None:
        G = [f["G"], f["G"], 3.0 * f["G"][: n // 2], -np.eye(n)[: n // 2]]
        h = [f["h"], f["h"], 3.0 * f["h"][: n // 2], -f["lb"][: n // 2]]
        f |= {"A": np.vstack([f["A"], f["A"]]), "b": np.hstack([f["b"], f["b"]])}
        f |= {"G": np.vstack(G), "h": np.hstack(h)}

    return _changed(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def opposed_rows(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Equalities written as two inequalities: feasible sets without interior."""

    def change(f: Fields, n: int) -> None:
        A, b = f.pop("A"), f.pop("b")
        f |= {"G": np.vstack([f["G"], A, -A]), "h": np.hstack([f["h"], b, -b])}

    return _changed(rng, share, ((6, 120), (20, 60)), change)


def zero_rows(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Rows without an entry: 0 = 0, 0 ≤ 0 and 0 ≤ 1."""

    def change(f: Fields, n: int) -> None:
        f |= {"A": np.vstack([np.zeros((2, n)), f["A"]]), "b": np.hstack([np.zeros(2), f["b"]])}
        f |= {"G": np.vstack([f["G"], np.zeros((3, n))]), "h": np.hstack([f["h"], [0.0, 0.0, 1.0]])}

    return _changed(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def redundant_equalities(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Equalities and, below them, as many linear combinations of them."""

    def change(f: Fields, n: int) -> None:
        mix = rng.normal(size=(len(f["b"]), len(f["b"])))
        f |= {"A": np.vstack([f["A"], mix @ f["A"]]), "b": np.hstack([f["b"], mix @ f["b"]])}

    return _changed(rng, share, ((6, 120), (20, 80), (60, 30)), change)


def per_sample(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Every sample with rows, right-hand sides, bounds and curvature of its own; some absent, some variables pinned."""
    for n, count in ((5, 120), (20, 80), (60, 30)):
        B = _some(count, share)
        inside = rng.normal(size=(B, n))
        f = _around(rng, inside)
        f["h"][rng.random(f["h"].shape) < 0.2] = np.inf
        f["lb"][rng.random((B, n)) < 0.2] = -np.inf
        pinned = (rng.random((B, n)) < 0.1) & np.isfinite(f["lb"])
        f["lb"][pinned] = f["ub"][pinned] = inside[pinned]
        yield _case(rng, Problem(Q=random_curvature(rng, n, B), **f), B)


def maximisation(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Concave objectives to maximise, with and without smoothing, curvature known or predicted."""
    for n, count in ((3, 120), (20, 80), (60, 30)):
        for lam in (0.0, 0.2):
            B = _some(count // 2, share)
            case = _case(rng, Problem(Q=-random_curvature(rng, n), **_polytope(rng, n), sense="max"), B, lam)
            if lam:
                Q, true_Q = (torch.from_numpy(-random_curvature(rng, n, B)) for _ in range(2))
                case = case._replace(Q=Q, true_Q=true_Q)
            yield case


def badly_scaled(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Costs of 1e-4 and of 1e5, with λ in their units and far off; decisions in thousands with rows in mixed units.

    And what people write for "never": a bound of 1e8 that nobody reaches and a cost of 1e6 that keeps a variable out.
    """
    for cost, lam in ((1e-4, 1e-5), (1e-4, 0.1), (1e5, 1e4), (1e5, 0.1)):
        for n, count in ((6, 40), (30, 20)):
            yield _case(rng, Problem(**_polytope(rng, n)), _some(count, share), lam, cost)
    for n, count in ((6, 40), (30, 20)):
        f = _polytope(rng, n)
        f = {name: value if name in "AG" else 1e3 * value for name, value in f.items()}
        units = 10.0 ** rng.uniform(-3, 3, len(f["h"]))
        f |= {"G": units[:, None] * f["G"], "h": units * f["h"]}
        yield _case(rng, Problem(Q=random_curvature(rng, n), **f), _some(count, share), cost=1e3)
        f = _polytope(rng, n) | {"ub": np.full(n, 1e8)}
        case = _case(rng, Problem(**f), _some(count, share), 0.5)
        case.predicted[:, 0] = case.true[:, 0] = 1e6
        yield case


def hard_models(rng: np.random.Generator, share: float) -> Iterator[Case]:
    """Degenerate planning models in the manner of netlib's, with rows that follow from others, in mixed units."""
    for instance in small_instances(rng):
        problem, cost = as_problem(instance, dense=True)
        true = cost * rng.uniform(0.7, 1.3, (_some(30, share), len(cost)))
        yield _tensors(problem, true * rng.uniform(0.7, 1.3, true.shape), true, 0.5)


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
    "per-sample constraints": per_sample,
    "maximisation": maximisation,
    "badly scaled": badly_scaled,
    "hard models": hard_models,
}


def _some(count: int, share: float) -> int:
    return max(1, round(count * share))


def _tensors(
    problem: Problem,
    predicted: Array,
    true: Array,
    smoothing: float = 0.0,
    Q: Array | None = None,
    true_Q: Array | None = None,
) -> Case:
    curvatures = (None if part is None else torch.from_numpy(part) for part in (Q, true_Q))
    return Case(problem, torch.from_numpy(predicted), torch.from_numpy(true), smoothing, *curvatures)


def _case(rng: np.random.Generator, problem: Problem, B: int, smoothing: float = 0.0, cost: float = 1.0) -> Case:
    """Costs of size ``cost``, predicted with an error of half their size."""
    true = cost * rng.normal(size=(B, problem.n))
    return _tensors(problem, true + 0.5 * cost * rng.normal(size=true.shape), true, smoothing)


def _changed(
    rng: np.random.Generator, share: float, sizes: Sequence[tuple[int, int]], change: Callable[[Fields, int], None]
) -> Iterator[Case]:
    """Polytopes of each size (n, count) that ``change`` rewrites: half with curvature, half smoothed."""
    for n, count in sizes:
        for curved in (True, False):
            fields, B = _polytope(rng, n), _some(count // 2, share)
            change(fields, n)
            curvature: Fields = {"Q": random_curvature(rng, n)} if curved else {}
            yield _case(rng, Problem(**curvature, **fields), B, smoothing=0.0 if curved else 0.5)


def random_curvature(rng: np.random.Generator, n: int, B: int | None = None) -> Array:
    """Symmetric with eigenvalues of at least 0.1, (n, n) or (B, n, n)."""
    M = rng.normal(size=(n, n) if B is None else (B, n, n))
    return np.asarray(M @ np.swapaxes(M, -1, -2) / n + 0.1 * np.eye(n))


def _polytope(rng: np.random.Generator, n: int) -> Fields:
    """n/4 equalities, n inequalities and bounds on both sides, shared by all samples."""
    return _around(rng, rng.normal(size=n))


def _around(rng: np.random.Generator, inside: Array) -> Fields:
    """Rows and bounds that the point ``inside``, (n,) or (B, n), satisfies; one set of them for every point."""
    *lead, n = inside.shape
    A, G = rng.normal(size=(*lead, n // 4, n)), rng.normal(size=(*lead, n, n))
    b, reached = (np.einsum("...rn,...n->...r", rows, inside) for rows in (A, G))
    return {
        "A": A,
        "b": b,
        "G": G,
        "h": reached + rng.uniform(0.0, 0.5 * np.sqrt(n), reached.shape),
        "lb": inside - rng.uniform(0.0, 1.0, inside.shape),
        "ub": inside + rng.uniform(0.0, 1.0, inside.shape),
    }


def flow_balance(size: int) -> tuple[Array, Array]:
    """Flow balance on a square grid from the first corner to the last: (nodes, edges) and (nodes,)."""
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


def long_only(Q: Any) -> Problem:
    """Long-only portfolios, Σᵢ wᵢ = 1 and w ≥ 0, with a known curvature Q (B, n, n), array or tensor."""
    ones = torch.ones(1, Q.shape[-1], dtype=torch.float64, device=Q.device if isinstance(Q, Tensor) else "cpu")
    return Problem(Q=Q, A=ones, b=ones[:, 0], lb=0.0)


def markets(rng: np.random.Generator, n: int, batch: int) -> tuple[Array, Array, Array]:
    """(B, n) −μ̂, (B, n) −μ and (B, n, n) 2Σ, one market after the other: a smaller batch is the start of a larger."""
    predicted, true, Q = np.empty((batch, n)), np.empty((batch, n)), np.empty((batch, n, n))
    for i in range(batch):
        predicted[i], true[i], _, Q[i] = _market(rng, n)
    return predicted, true, Q


def _market(rng: np.random.Generator, n: int, days: int = 84, ahead: int = 21) -> tuple[Array, Array, Array, Array]:
    """−μ̂, −μ, 2Σ̂ and 2Σ of n assets over 84 days: five factors and noise of 1 % a day each, and 1e-4 I on top of Σ.

    The last 21 days are a forecast: half of what will happen, and noise.
    """
    factors, loadings = rng.normal(0.0, 0.01, (days, 5)), rng.normal(0.0, 1.0, (5, n))
    returns = 0.0005 + factors @ loadings + rng.normal(0.0, 0.01, (days, n))
    forecast = 0.5 * returns[-ahead:] + rng.normal(0.0, 0.01, (ahead, n))
    seen = np.vstack([returns[:-ahead], forecast])
    Q_hat, Q = (2.0 * (np.cov(r, rowvar=False) + 1e-4 * np.eye(n)) for r in (seen, returns))
    return -seen.mean(0), -returns.mean(0), Q_hat, Q

"""A zoo of small problems whose solution is known, and their tangent spaces and projections in plain numpy.

A problem is *planted*: a feasible point is chosen first, then a multiplier of at least ``MARGIN`` for every constraint
that is tight at the point, and the cost follows from stationarity. The point is therefore the strictly complementary
solution. The slack of every other constraint is more than ``MARGIN``, so that derivatives exist and finite differences
are valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

import pear
from pear.testing.program_zoo import zoo_grid
from pear_lab.judge.judged_program import JudgedProgram, judged_fields, judged_programs

INF = float("inf")
MARGIN = 0.1
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Planted:
    """A batch with a known solution.

    Attributes:
        problem, smoothing: the problem, and the λ of its smoothing.
        cost: (B, n) costs under which ``x`` (B, n) is optimal.
        true: (B, n) other costs.
        force, size: the units of the cost and of x.
        independent: whether the tight constraints are linearly independent, so that right-hand sides have derivatives.
    """

    problem: pear.Problem
    smoothing: float
    cost: Tensor
    x: Tensor
    true: Tensor
    force: float = 1.0
    size: float = 1.0
    independent: bool = True

    @property
    def B(self) -> int:
        return len(self.cost)

    @property
    def n(self) -> int:
        return self.problem.n


def arrays(problem: pear.Problem, cost: Tensor, smoothing: float, i: int) -> JudgedProgram:
    """Return sample i in numpy, read from the problem's own fields."""
    costs = cost.detach().double().cpu().numpy()
    return judged_programs(judged_fields(problem), costs, smoothing, problem.sense)[i]


def tight(a: JudgedProgram, x: Array, size: float = 1.0) -> tuple[Array, Array, Array]:
    """Return which rows of G, lower bounds and upper bounds are tight at x; of two equal bounds, only the lower."""
    near = 1e-9 * size
    lower = x - a.lb < near
    return a.h - a.G @ x < near, lower, (a.ub - x < near) & ~lower


def jacobian(a: JudgedProgram, x: Array, size: float = 1.0) -> Array:
    """Return the equality rows, the tight rows and a unit row for each tight bound, scaled to length 1.

    Dependent rows are kept.
    """
    rows, lower, upper = tight(a, x, size)
    J = np.vstack([a.A, a.G[rows], np.eye(len(x))[lower | upper]])
    length = np.linalg.norm(J, axis=1, keepdims=True)
    return J / np.where(length > 0, length, 1.0)


def projection(H: Array, J: Array) -> Array:
    """Return P from the null space N of J: N (NᵀHN)⁻¹ Nᵀ."""
    N = scipy.linalg.null_space(J, rcond=1e-10) if len(J) else np.eye(len(H))
    return N @ np.linalg.solve(N.T @ H @ N, N.T) if N.shape[1] else np.zeros_like(H)


def plant(
    rng: np.random.Generator,
    problem: pear.Problem,
    x: Array,
    smoothing: float = 0.0,
    force: float = 1.0,
    size: float = 1.0,
    independent: bool = True,
) -> Planted:
    """Return a batch whose costs make the rows of x (B, n) optimal, with multipliers of at least ``MARGIN``."""
    x = np.asarray(x, dtype=float)
    cost = np.zeros_like(x)
    for i, z in enumerate(x):
        a = arrays(problem, torch.zeros(x.shape), smoothing, i)
        rows, lower, upper = tight(a, z, size)
        slack = np.concatenate([(a.h - a.G @ z)[~rows], (z - a.lb)[~lower], (a.ub - z)[~upper & (a.lb < a.ub)]])
        assert np.all(slack > MARGIN * size), f"sample {i} has a constraint that is nearly tight"
        assert np.all(np.abs(a.A @ z - a.b) < 1e-12 * size), f"sample {i} is infeasible"
        strength = force * rng.uniform(0.5, 1.5, len(a.h)) * rows
        bound = force * rng.uniform(0.5, 1.5, len(z)) * (1.0 * upper - lower)
        pull = a.H @ z + a.A.T @ (force * rng.normal(size=len(a.b))) + a.G.T @ strength + bound
        cost[i] = -pull * (1 if problem.sense == "min" else -1)
    true = cost + force * rng.normal(size=x.shape)
    costs = (torch.from_numpy(v) for v in (cost, x, true))
    return Planted(problem, smoothing, *costs, force=force, size=size, independent=independent)


# ------------------------------------------------------------------------------------------------------- ingredients


def paths(size: int) -> Array:
    """Return all monotone paths through the grid as 0/1 rows over its edges."""
    A, b = zoo_grid(size)
    edges = [(int(np.argmax(column)), int(np.argmin(column))) for column in A.T]
    found, stack = [], [(0, ())]
    while stack:
        node, used = stack.pop()
        if node == len(b) - 1:
            found.append(np.isin(np.arange(len(edges)), used).astype(float))
        stack += [(head, (*used, k)) for k, (tail, head) in enumerate(edges) if tail == node]
    return np.array(found)


def curvature(rng: np.random.Generator, *shape: int) -> Array:
    """Draw positive definite matrices with eigenvalues of at least 0.5, one for each index of ``shape[:-1]``.

    The last entry of ``shape`` is n.
    """
    L = rng.normal(size=(*shape, shape[-1]))
    return L @ np.swapaxes(L, -1, -2) / shape[-1] + 0.5 * np.eye(shape[-1])


def mixtures(rng: np.random.Generator, vertices: Array, count: int, of: int) -> Array:
    """Return ``count`` convex combinations of ``of`` distinct vertices each, with weights of at least 0.2."""
    rows = []
    for _ in range(count):
        weights = 0.2 + (1 - 0.2 * of) * rng.dirichlet(np.ones(of))
        rows.append(weights @ vertices[rng.choice(len(vertices), of, replace=False)])
    return np.array(rows)


# ------------------------------------------------------------------------------------------------------------- cases


def box(rng: np.random.Generator) -> Planted:
    upper = np.array([1.0, 2.0, 3.0, 4.0])
    x = rng.uniform(-0.5, 0.5, (3, 4))
    for row in x:
        low, high = rng.choice(4, 2, replace=False)
        row[low], row[high] = -1.0, upper[high]
    return plant(rng, pear.Problem(lb=-1.0, ub=upper), x, smoothing=0.5)


def box_by_degrees(rng: np.random.Generator) -> Planted:
    """Return a box with no variable, one variable, and all variables at a bound: reduced systems of three sizes."""
    x = np.array([[0.1, -0.2, 0.3, 0.4], [0.1, -1.0, 0.3, 0.4], [-1.0, 1.0, 1.0, -1.0]])
    return plant(rng, pear.Problem(Q=curvature(rng, 4), lb=-1.0, ub=1.0), x)


def uneven_rows(rng: np.random.Generator) -> Planted:
    """Return a problem with rows in units up to twelve orders of magnitude apart; a large and a small row are tight."""
    G, x = rng.normal(size=(4, 5)), rng.normal(size=(3, 5))
    units = np.array([1e6, 1e-6, 1e3, 1e-3])
    A = 1e5 * rng.normal(size=(1, 5))
    h = (x @ G.T + np.array([0.0, 0.0, 0.5, 0.5])) * units
    case = plant(rng, pear.Problem(Q=curvature(rng, 5), A=A / 1e5, b=x @ A.T / 1e5, G=G, h=h / units), x)
    return replace(case, problem=pear.Problem(Q=case.problem.Q, A=A, b=x @ A.T, G=G * units[:, None], h=h))


def simplex(rng: np.random.Generator, total: float = 1.0, force: float = 1.0, smoothing: float = 0.5) -> Planted:
    problem = pear.Problem(A=np.ones((1, 6)), b=[total], lb=0.0)
    return plant(rng, problem, total * mixtures(rng, np.eye(6), 3, 3), smoothing, force, size=total)


def flow(rng: np.random.Generator) -> Planted:
    A, b = zoo_grid(3)
    problem = pear.Problem(A=A, b=b, lb=0.0)
    return plant(rng, problem, mixtures(rng, paths(3), 3, 2), smoothing=0.1, independent=False)


def knapsack(rng: np.random.Generator) -> Planted:
    w = rng.integers(4, 7, 8).astype(float)
    x = np.zeros((3, 8))
    for row in x:
        order = rng.permutation(8)
        packed, split = order[:2], order[2:6]
        shift = rng.uniform(-1, 1, 4)
        shift -= w[split] * (w[split] @ shift) / (w[split] @ w[split])
        row[packed] = 1.0
        row[split] = (20 - w[packed].sum()) / w[split].sum() + 0.1 * shift / np.abs(shift).max()
    problem = pear.Problem(G=w[None], h=[20.0], lb=0.0, ub=1.0, sense="max")
    return plant(rng, problem, x, smoothing=0.1)


def portfolio(rng: np.random.Generator) -> Planted:
    problem = pear.Problem(Q=-curvature(rng, 6), A=np.ones((1, 6)), b=[1.0], lb=0.0, sense="max")
    return plant(rng, problem, mixtures(rng, np.eye(6), 3, 3))


def polyhedron(rng: np.random.Generator, own: bool = False, sense: str = "min") -> Planted:
    """Return a problem with one equality, one tight row of four, and one variable at each kind of bound.

    The tangent space has dimension 2.
    """
    B, n, lead = 3, 6, ((3,) if own else ())
    x, A, G = rng.normal(size=(B, n)), rng.normal(size=(*lead, 1, n)), rng.normal(size=(*lead, 4, n))
    slack, below, above = (rng.uniform(0.5, 1.5, (B, k)) for k in (4, n, n))
    for i in range(B):
        low, high = rng.choice(n, 2, replace=False)
        slack[i, rng.integers(4)] = below[i, low] = above[i, high] = 0.0
    values = {name: np.einsum("...rn,bn->br" if not own else "brn,bn->br", M, x) for name, M in (("A", A), ("G", G))}
    Q = curvature(rng, *lead, n) * (1 if sense == "min" else -1)
    sides = {"b": values["A"], "h": values["G"] + slack, "lb": x - below, "ub": x + above}
    return plant(rng, pear.Problem(Q=Q, A=A, G=G, sense=sense, **sides), x)


def equalities(rng: np.random.Generator, repeat: bool = False) -> Planted:
    A, start = rng.normal(size=(2, 5)), rng.normal(size=5)
    x = start + rng.normal(size=(3, 3)) @ scipy.linalg.null_space(A).T
    rows = np.vstack([A, 2 * A[:1], np.zeros((1, 5))]) if repeat else A
    return plant(rng, pear.Problem(Q=curvature(rng, 5), A=rows, b=rows @ start), x, independent=not repeat)


def redundant_rows(rng: np.random.Generator) -> Planted:
    base, start = rng.normal(size=(2, 4)), rng.normal(size=4)
    rows = rng.uniform(0.5, 1.5, (4, 2)) @ base
    x = start + rng.normal(size=(3, 2)) @ scipy.linalg.null_space(base).T
    return plant(rng, pear.Problem(Q=curvature(rng, 4), G=rows, h=rows @ start), x, independent=False)


def vertex(rng: np.random.Generator) -> Planted:
    G, start = rng.normal(size=(5, 3)), rng.normal(size=3)
    return plant(rng, pear.Problem(G=G, h=G @ start), np.tile(start, (3, 1)), smoothing=0.1, independent=False)


def transport(rng: np.random.Generator) -> Planted:
    A = np.vstack([np.kron(np.eye(2), np.ones((1, 3))), np.kron(np.ones((1, 2)), np.eye(3))])
    x = np.array([[2, 1, 0, 0, 1, 2], [1, 1, 1, 1, 1, 1], [2, 0.5, 0.5, 0, 1.5, 1.5]])
    return plant(rng, pear.Problem(A=A, b=[3, 3, 2, 2, 2], lb=0.0), x, smoothing=0.5, independent=False)


def absent_rows(rng: np.random.Generator) -> Planted:
    G, x = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    h = x @ G.T + np.array([[0, INF, 0.5], [INF, 0, INF], [INF, INF, INF]])
    return plant(rng, pear.Problem(Q=curvature(rng, 3), G=G, h=h), x)


def singular_curvature(rng: np.random.Generator) -> Planted:
    """Return a problem without curvature along two variables: a bound holds the first, the equality the second."""
    problem = pear.Problem(Q=np.diag([1.0, 2.0, 0.0, 0.0]), A=[[0, 0, 1, 1]], b=[1.0], lb=[-INF, -INF, 0, 0])
    return plant(rng, problem, np.column_stack([rng.normal(size=(3, 2)), np.zeros(3), np.ones(3)]))


def fixed(rng: np.random.Generator) -> Planted:
    point = [0.5, -1.0, 2.0]
    return plant(rng, pear.Problem(lb=point, ub=point), np.tile(point, (3, 1)), smoothing=0.1)


CASES: dict[str, Callable[[np.random.Generator], Planted]] = {
    "box": box,
    "box by degrees": box_by_degrees,
    "uneven rows": uneven_rows,
    "simplex": simplex,
    "flow": flow,
    "knapsack": knapsack,
    "portfolio": portfolio,
    "polyhedron": polyhedron,
    "own everything": lambda rng: polyhedron(rng, own=True),
    "own everything, max": lambda rng: polyhedron(rng, own=True, sense="max"),
    "equalities": equalities,
    "repeated equalities": lambda rng: equalities(rng, repeat=True),
    "redundant rows": redundant_rows,
    "vertex": vertex,
    "transport": transport,
    "absent rows": absent_rows,
    "singular curvature": singular_curvature,
    "linear vertex": lambda rng: plant(rng, pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0), np.eye(4)[:3]),
    "fixed": fixed,
    "one variable": lambda rng: plant(rng, pear.Problem(lb=[-1.0], ub=[2.0]), [[-1.0], [0.5], [2.0]], smoothing=1.0),
    "no constraints": lambda rng: plant(rng, pear.Problem(Q=curvature(rng, 3)), rng.normal(size=(3, 3))),
    "nothing but smoothing": lambda rng: plant(rng, pear.Problem(n=3), rng.normal(size=(3, 3)), smoothing=0.1),
    "large units": lambda rng: simplex(rng, total=5e4, force=1e6, smoothing=20.0),
    "small units": lambda rng: simplex(rng, total=1e-3, force=1e-4, smoothing=0.1),
}
# seeded by name, so that a new case changes no other
ZOO = {name: make(np.random.default_rng(list(name.encode()))) for name, make in CASES.items()}

LINEAR = (
    *("box", "simplex", "flow", "knapsack", "transport", "linear vertex", "fixed", "one variable"),
    *("large units", "small units"),
)
"""Cases without curvature of their own over a bounded set: linear programs once smoothing is 0."""

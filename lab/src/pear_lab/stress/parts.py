"""A recipe, a few small choices that a failing problem can be shrunk by, and the parts that families share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear_lab.judge.program import Array
from pear_lab.stress.case import Case

Fields = dict[str, Any]
Rng = np.random.Generator


@dataclass(frozen=True)
class Recipe:
    """The choices that make one batch of problems.

    Attributes:
        family: a name in ``FAMILIES``.
        n: variables.
        equalities, rows: numbers of rows of A and of G.
        batch: samples.
        exponent: how bad it is, 0 to 12; every family reads it in its own way.
        curved: the problem has a curvature of its own; else it is linear.
        smoothed: λ > 0.
        per_sample: every sample has rows and bounds of its own.
        maximise: the sense.
        seed: of what is drawn.
    """

    family: str
    n: int = 4
    equalities: int = 1
    rows: int = 3
    batch: int = 8
    exponent: int = 6
    curved: bool = False
    smoothed: bool = True
    per_sample: bool = False
    maximise: bool = False
    seed: int = 0


def leading(r: Recipe) -> tuple[int, ...]:
    """The leading dimension of constraints: B where every sample has its own, none where they are shared."""
    return (r.batch,) if r.per_sample else ()


def times(rows: Array, x: Array) -> Array:
    """Rows (…, r, n) times points (…, n)."""
    return np.asarray(np.einsum("...rn,...n->...r", rows, x))


def polytope(r: Recipe, rng: Rng, whole: bool = False) -> Fields:
    """Rows and bounds around a point; with ``whole`` all numbers are small integers, and every product is exact."""

    def draws(*shape: int) -> Array:
        return rng.integers(-3, 4, shape).astype(float) if whole else rng.normal(size=shape)

    def room(shape: tuple[int, ...]) -> Array:
        return rng.integers(0, 3, shape).astype(float) if whole else rng.uniform(0.0, 1.0, shape)

    lead = leading(r)
    x = draws(*lead, r.n)
    A, G = draws(*lead, r.equalities, r.n), draws(*lead, r.rows, r.n)
    b, reached = times(A, x), times(G, x)
    return {
        "A": A,
        "b": b,
        "G": G,
        "h": reached + room(reached.shape),
        "lb": x - room(x.shape),
        "ub": x + room(x.shape),
    }


def curvature(r: Recipe, rng: Rng, lead: tuple[int, ...] = ()) -> Array:
    """(…, n, n) symmetric with eigenvalues of at least 0.1."""
    M = rng.normal(size=(*lead, r.n, r.n))
    return np.asarray(M @ np.swapaxes(M, -1, -2) / r.n + 0.1 * np.eye(r.n))


def priced(r: Recipe, rng: Rng, fields: Fields, cost: Array | None = None, **more: Any) -> Case:
    """The case with costs of size 1, predicted with an error of half their size, in the recipe's sense."""
    true = rng.normal(size=(r.batch, r.n)) if cost is None else cost
    predicted = true + 0.5 * np.abs(true).max(initial=0.0) * rng.normal(size=true.shape) if cost is None else cost
    if r.curved and "Q" not in fields:
        fields = {**fields, "Q": curvature(r, rng, leading(r))}
    if r.maximise and "Q" in fields:
        fields = {**fields, "Q": -fields["Q"]}
    more.setdefault("smoothing", float(rng.choice([0.01, 0.1, 1.0])) if r.smoothed else 0.0)
    if cost is not None and r.smoothed:
        true = cost + rng.integers(-1, 2, cost.shape)
    return Case(r.family, predicted, true, fields, sense="max" if r.maximise else "min", **more)

"""Recipes of random problems, and the parts that families share. A failing recipe can be shrunk choice by choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear_lab.benchmarks.random_programs import (
    Fields,
    Rng,
    random_curvature,
    random_entries,
    random_polytope,
    rows_times_points,
)
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import Case


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


def around_a_point(r: Recipe, rng: Rng, whole: bool = False) -> Fields:
    """Rows and bounds around a random point; with ``whole`` all numbers are small integers."""
    x = random_entries(rng, (*leading(r), r.n), whole)
    return random_polytope(rng, x, r.equalities, r.rows, whole=whole)


def middle(fields: Fields) -> Array:
    """The middle between the bounds."""
    return np.asarray((fields["lb"] + fields["ub"]) / 2)


def move_through(fields: Fields, x: Array) -> None:
    """Change the right-hand sides so that the point x satisfies every row."""
    fields["b"], fields["h"] = (
        rows_times_points(fields["A"], x),
        np.maximum(fields["h"], rows_times_points(fields["G"], x)),
    )


def priced(r: Recipe, rng: Rng, fields: Fields, cost: Array | None = None, **more: Any) -> Case:
    """A case with the fields and with costs of size 1, predicted with an error of half their size."""
    true = rng.normal(size=(r.batch, r.n)) if cost is None else cost
    predicted = true + 0.5 * np.abs(true).max(initial=0.0) * rng.normal(size=true.shape) if cost is None else cost
    if r.curved and "Q" not in fields:
        fields = {**fields, "Q": random_curvature(rng, r.n, *leading(r))}
    if r.maximise and "Q" in fields:
        fields = {**fields, "Q": -fields["Q"]}
    more.setdefault("smoothing", float(rng.choice([0.01, 0.1, 1.0])) if r.smoothed else 0.0)
    if cost is not None and r.smoothed:
        true = cost + rng.integers(-1, 2, cost.shape)
    return Case(r.family, predicted, true, fields, sense="max" if r.maximise else "min", **more)

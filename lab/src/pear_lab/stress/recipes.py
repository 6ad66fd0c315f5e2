"""Recipes of random problems. A recipe is a few small numbers and flags, which the package hypothesis can simplify."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear_lab.benchmarks.random_programs import Fields, Rng, random_curvature, random_polytope, random_program_entries
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import StressCase


@dataclass(frozen=True)
class Recipe:
    """The choices that make one batch of problems.

    Attributes:
        family: a name in ``case_families.FAMILIES``.
        n: the number of variables.
        equalities, rows: the numbers of rows of A and of G.
        batch: the number of samples B.
        exponent: the difficulty from 0 to 12, which each family uses in its own way.
        curved: whether the problem has its own curvature Q; otherwise it is linear.
        smoothed: whether the smoothing strength λ is positive.
        per_sample: whether every sample has its own rows, bounds and curvature.
        maximise: whether the objective is maximised.
        seed: the seed of the random numbers.
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

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading dimensions of constraints: (B,) if every sample has its own constraints, otherwise ()."""
        return (self.batch,) if self.per_sample else ()

    def draw_polytope(self, rng: Rng, whole: bool = False) -> Fields:
        """Draw rows and bounds that a random point satisfies. If ``whole``, all numbers are small integers."""
        x = random_program_entries(rng, (*self.batch_shape, self.n), whole)
        return random_polytope(rng, x, self.equalities, self.rows, whole=whole)

    def make_case(self, rng: Rng, fields: Fields, cost: Array | None = None, **more: Any) -> StressCase:
        """Make a case from constraints, and draw what is missing: costs, curvature and smoothing strength.

        Args:
            rng: the generator.
            fields: arguments of ``pear.Problem``. Q, if given, is that of a minimisation; its sign is changed if
                ``maximise``.
            cost: (B, n) the predicted costs. The true costs are equal to them or, if ``smoothed``, differ from them by
                −1, 0 or 1. If ``cost`` is omitted, true costs are standard normal, and predicted costs have a normal
                error with a standard deviation of half the largest absolute true cost.
            more: further arguments of ``StressCase``.
        """
        true = rng.normal(size=(self.batch, self.n)) if cost is None else cost
        predicted = true + 0.5 * np.abs(true).max(initial=0.0) * rng.normal(size=true.shape) if cost is None else cost
        if self.curved and "Q" not in fields:
            fields = {**fields, "Q": random_curvature(rng, self.n, *self.batch_shape)}
        if self.maximise and "Q" in fields:
            fields = {**fields, "Q": -fields["Q"]}
        more.setdefault("smoothing", float(rng.choice([0.01, 0.1, 1.0])) if self.smoothed else 0.0)
        if cost is not None and self.smoothed:
            true = cost + rng.integers(-1, 2, cost.shape)
        return StressCase(self.family, predicted, true, fields, sense="max" if self.maximise else "min", **more)


def draw_recipe(rng: Rng, family: str, batch: int = 8) -> Recipe:
    """Draw a recipe of a family for ``batch`` samples, usually with at most 12 variables, and seldom with up to 40."""
    n = int(rng.integers(1, 13)) if rng.random() < 0.93 else int(rng.integers(13, 41))
    return Recipe(
        family=family,
        n=n,
        equalities=int(rng.integers(0, max(1, n // 2) + 1)) if rng.random() < 0.7 else 0,
        rows=int(rng.integers(0, n + 3)),
        batch=batch,
        exponent=int(rng.integers(0, 13)),
        curved=bool(rng.random() < 0.5),
        smoothed=bool(rng.random() < 0.6),
        per_sample=bool(rng.random() < 0.3),
        maximise=bool(rng.random() < 0.2),
        seed=int(rng.integers(2**31)),
    )

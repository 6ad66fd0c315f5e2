"""The curvature that a model predicts, beside the rest of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pear.problem.array_conversion import as_batch
from pear.problem.model import Model


def without_curvature(problem: Any, *values: Any) -> tuple[Any, ...]:
    """Return the model without its curvature map, and a Q for each of the given values (B, k); None without a map."""
    if not isinstance(problem, Model) or problem.curvature_map is None:
        return (problem, *(None for _ in values))
    plain = replace(problem, curvature_map=None)
    return (plain, *(problem.curvature(as_batch(one).detach().double()) for one in values))

"""Hypothesis strategies over recipes. Failing recipes shrink to few variables, few rows and a small exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pear.optional_packages import import_optional
from pear_lab.stress.case_families import FAMILIES
from pear_lab.stress.recipes import Recipe

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def recipes(families: list[str] | None = None, batch: int = 4, largest: int = 12) -> SearchStrategy[Recipe]:
    """Return a hypothesis strategy that draws recipes.

    Args:
        families: names in ``case_families.FAMILIES``; None for all.
        batch: the number of samples of each case.
        largest: the largest number of variables.

    Raises:
        MissingExtraError: hypothesis is not installed.
    """
    st = import_optional("hypothesis.strategies", "dev", "a strategy")
    return st.builds(
        Recipe,
        family=st.sampled_from(list(FAMILIES) if families is None else families),
        n=st.integers(1, largest),
        equalities=st.integers(0, max(1, largest // 2)),
        rows=st.integers(0, largest + 2),
        batch=st.just(batch),
        exponent=st.integers(0, 12),
        curved=st.booleans(),
        smoothed=st.booleans(),
        per_sample=st.booleans(),
        maximise=st.booleans(),
        seed=st.integers(0, 2**31 - 1),
    )

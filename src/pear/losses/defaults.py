"""The defaults of smoothing λ, injection β and guidance α: one row for everything that takes them.

Two sets of them have a name. ``GUIDED`` is what ``PEARLoss(problem)`` uses; the method "pear-guided", the estimator and
the command line take it from there. ``PUBLISHED`` is what the paper uses; the method "pear" takes it. Every other row
differs from ``GUIDED`` for the reason that it names.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Strengths(NamedTuple):
    """λ, β and α; 0 turns each of them off."""

    smoothing: float | Literal["auto"]
    injection: float
    guidance: float


GUIDED = Strengths("auto", 0.05, 10.0)
"""``PEARLoss``, ``DecisionRegressor``, ``pear train`` and the method "pear-guided": chosen on validation regret."""

PUBLISHED = Strengths(0.1, 0.1, 0.0)
"""The method "pear": the settings of the paper, which its tables are reproduced with."""

BOOSTING = GUIDED._replace(guidance=1.0)
"""``pear.boosting``: trees are never taken back and no schedule is known, so that α stays, at a smaller strength."""

GRADIENT = PUBLISHED._replace(injection=0.0)
"""``regret_gradient``: the closed form of the paper at its λ; β = 0, because it promises the exact gradient."""

DECISION = Strengths(0.0, 0.0, 0.0)
"""``solve`` and ``DecisionLayer``: the decision of the problem as it was given, to which nothing is added."""

DECAY = 0.995
"""The factor of α in every step: it halves in 138 steps, and in the end leaves the exact gradient of regret."""

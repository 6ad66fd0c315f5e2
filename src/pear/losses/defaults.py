"""The defaults of smoothing λ, injection β and guidance α.

``GUIDED`` holds the defaults of ``PEARLoss(problem)``, the method "pear-guided", the estimator and the command line.
``PUBLISHED`` holds the settings of the paper, which the method "pear" uses. ``BOOSTING``, ``GRADIENT`` and ``DECISION``
belong to functions with other defaults, for the reasons given below them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Strengths(NamedTuple):
    """The smoothing λ, injection β and guidance α of a loss; a value of 0 switches the respective term off."""

    smoothing: float | Literal["auto"]
    injection: float
    guidance: float


GUIDED = Strengths("auto", 0.05, 10.0)
"""Defaults of ``PEARLoss``, ``DecisionRegressor``, ``pear train`` and "pear-guided", chosen by validation regret."""

PUBLISHED = Strengths(0.1, 0.1, 0.0)
"""The settings of the paper, used by the method "pear" to reproduce its tables."""

BOOSTING = GUIDED._replace(guidance=1.0)
"""Defaults of ``pear.boosting``. α is smaller, because it does not fall during training: a tree never changes later."""

GRADIENT = PUBLISHED._replace(injection=0.0)
"""Defaults of ``regret_gradient``: the λ of the paper, and β = 0, which gives the exact gradient."""

DECISION = Strengths(0.0, 0.0, 0.0)
"""Defaults of ``solve`` and ``DecisionLayer``: nothing is added to the problem."""

DECAY = 0.995
"""The factor that multiplies α after every step, so that α halves in 138 steps and tends to zero."""

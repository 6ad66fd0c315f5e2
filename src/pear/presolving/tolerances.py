"""The tolerances of presolve. Each is relative to the size of the terms that a number is computed from."""

from __future__ import annotations

CANCELLED = 1e-14
"""A coefficient is a sum of terms. If it is at most this fraction of the sum of their absolute values, it is rounding,
and becomes zero."""

CONSISTENT = 1e-12
"""A redundant row is dropped if its limits contradict other limits by at most this."""

CONTRADICTED = 1e-9
"""Limits that contradict each other by more than this make the program infeasible. A contradiction between
``CONSISTENT`` and this is left to the solver."""

DEPENDENT = 1e-12
"""An equality follows from others if the part of it that is independent of them is smaller than this fraction of its
length."""

"""The tolerances of presolve. All are relative to the terms that a number is computed from."""

from __future__ import annotations

CANCELLED = 1e-14
"""A coefficient smaller than this fraction of the terms that it is summed from is rounding, and becomes zero."""

CONSISTENT = 1e-12
"""A redundant row whose limits disagree with the others by at most this is dropped."""

CONTRADICTED = 1e-9
"""Limits that disagree by more than this have no point between them. In between, a row stays as it is: the solver
decides."""

DEPENDENT = 1e-12
"""An equality whose part independent of the others is smaller than this fraction of its length follows from them."""

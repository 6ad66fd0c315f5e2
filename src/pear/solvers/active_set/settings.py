"""Settings of the search of the compiled method and of the GPU's kernels.

``pear.optimality.rule`` defines what counts as solved, tight, weak or flat. Tolerances here are relative, unless the
text says otherwise.
"""

from __future__ import annotations

START_SLOP = 1e-13
"""Largest violation of a bound or row at the start of a step, relative to the natural size of the bound or row.

The limit is smaller than ``FEASIBLE`` in ``pear.optimality.rule``.
"""

BASICS = 1e-15
"""Residual of the rows at which the refinement of a solution stops, because rounding allows no smaller one."""

PIVOT = 1e-9
"""Smallest entry of a column that may be a pivot, relative to the largest entry."""

FINE_PIVOT = 1e-13
"""``PIVOT`` of the third attempt to solve a sample. Refinement copes with a basis that is so badly conditioned."""

CLOSE_BY = 1e-6
"""Largest residual of stationarity of a point that the pipeline may still refine in extended precision."""

UNBALANCED = 1e3
"""Ratio of the movements of a basic and a superbasic variable above which the two change places."""

ROUNDING = 1e-15
"""Rounding error of a sum of two numbers, relative to their sizes, with a margin."""

STALLED = 30
"""Number of steps of length zero after which a search takes the first candidate instead of the best."""

FAR = 1e6
"""Largest size of a bound at which a variable may start, relative to right-hand sides and to costs over curvature.

At a larger bound, rows and gradients would lose their digits.
"""

REFRESH = 100
"""Number of pivots after which the inverse of the basis is computed anew."""

REFINEMENTS = 3
"""Largest number of rounds of refinement."""

VERDICTS = 8
"""Largest number of checks of a sample. After a check that fails, the search continues from the same point."""

STEEP = 1e6
"""Largest amplification of the rows by the inverse of the basis. Above it, rounding makes a projection inaccurate."""

NOISE = 1e-3
"""Size of a correction below which the refinement of a projection stops, relative to the rounding of a projection."""

KERNEL_SIGN = 1e-11
"""Size of a multiplier of the wrong sign, relative to the sample's largest slope, above which a GPU kernel
drops the constraint.

The limit is larger than ``SIGN`` in ``pear.optimality.rule``, because the kernel never recomputes its inverse. The
solutions of the kernel are refined and verified afterwards.
"""

KERNEL_DRIFT = 1e-14
"""Rounding error of a point of the GPU's dual method, relative to the first point of the search.

A bound that is exceeded by no more than this does not count as violated.
"""

KERNEL_REFINEMENTS = 2
"""Rounds of refinement of a solution or projection by a GPU kernel."""

KERNEL_PUSHES = 3
"""How often the GPU's primal kernel raises the cost of a violation that remains in a solution."""

KERNEL_PUSH = 1e3
"""Factor by which the primal kernel raises the cost of a remaining violation each time."""

DUAL_DRIFT = 1e-14
"""Rounding error of the values of the constraints in the dual search, relative to the largest of them at its start."""

DUAL_ATTEMPTS = 3
"""Largest number of runs of the dual search. Each run after the first goes on from a refined point that violates a
constraint.
"""

MOST_CONSTRAINTS = 1_000
"""Largest number of variables and inequalities for the CPU's dual method, whose Gram matrix has this size."""

MOST_SUPERBASICS = 512
"""Largest number of superbasic variables of the CPU's primal method, whose reduced Hessian has this size."""

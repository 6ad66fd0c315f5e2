"""The tolerances of the definition of "solved". Torch, numba and Triton code all read them here.

All are relative, to the natural size of what they are compared with (``pear.optimality.natural_sizes``), unless it says
otherwise. Settings of one method (how often it refines, when it refreshes a factor) are not part of the rule and live
beside that method.
"""

from __future__ import annotations

OPTIMAL = 1e-9
"""Largest KKT residual of anything that is called SOLVED: the one gate, for every solver, dense, sparse and GPU."""

FEASIBLE = 1e-12
"""Largest violation of a constraint, and largest residual of stationarity, of a point on its working set."""

SIGN = 1e-12
"""A multiplier more negative than this has the wrong sign; stricter than FEASIBLE, so that what left stays out."""

SHARP = 1e-13
"""What refinement aims at: rounding of the terms that a residual is made of."""

TIGHT = 1e-10
"""Slack up to which a constraint of an exact solution is active."""

WEAK = 1e-9
"""Multiplier up to which an active constraint is weakly active."""

ROUNDOFF = 1e-12
"""A rate, slack or multiplier below this is rounding, and counts as zero."""

INTEGRAL = 1e-6
"""Distance from an integer, in its own units, up to which a value that should be one is rounded to it."""

GAP = 1e-9
"""Largest gap between the objective of an integer solution and its proven bound, relative to the terms of both."""

FLAT = 1e-12
"""Curvature this much below the terms it is computed from is none."""

RANK = 1e-11
"""A pivot or singular value this much below the largest is zero."""

INDEFINITE = 1e-10
"""An eigenvalue more negative than this, relative to the curvature, is not rounding."""

DESCENT = 1e-9
"""An objective that falls by less than this along a unit direction does not fall."""

PROVEN = 1.1 * FEASIBLE
"""A sample is infeasible where its certificate says so by more than this share of its terms; just above FEASIBLE, so
that no point that counts as feasible is denied, and nothing lies between the two."""

LARGEST = 1e150
"""A larger number, in the units of the data, counts as infinity: its square overflows."""

PROJECTED = 1e-10
"""Last correction up to which a refined projection has converged; where it has not, the rank is decided by an SVD."""

NEGLIGIBLE = 1e-12
"""A projection this much below the rescaled error H⁻¹e is rounding, and is set to zero."""

SHARE_OF_SIZE = 1e-3
"""Share of the largest decision of a sample below which no slack's natural size falls, unless bounds are closer."""

SHARE_OF_FORCE = 1e-3
"""Share of the largest dual scale of a sample below which no multiplier's natural size falls."""

SHARE_OF_TERMS = 1e-6
"""Share of the terms that Hx is summed from below which the dual unit does not fall: 1e-15 of them is rounding."""

FLOOR = 1e-9
"""Share of the least size that the data suggests which is the least unit: it matters where the decision is zero."""

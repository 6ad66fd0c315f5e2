"""The tolerances that define when a sample is solved, for torch, numba and Triton code.

Unless stated otherwise, a tolerance is relative to the natural size (``pear.optimality.natural_sizes``) of the quantity
that is compared with it. Settings of a single method, such as a number of refinements, are defined beside that method.
"""

from __future__ import annotations

OPTIMAL = 1e-9
"""Largest KKT residual of a sample with the status SOLVED, for every solver, dense, sparse and on a GPU."""

EPSILON = 2.0**-52
"""Rounding error of a residual in float64, as a fraction of the terms that it is computed from."""

LOST = 1e-3
"""Largest rounding error of the residual of stationarity, in the dual unit of the KKT residual, at a point that float64
can verify. If more is lost, a residual of zero may be luck. Smaller errors rarely leave a residual below OPTIMAL."""

FEASIBLE = 1e-12
"""Largest violation of a constraint, and largest residual of stationarity, at a solved point."""

SIGN = 1e-12
"""Largest size of a multiplier of the wrong sign that is accepted."""

SHARP = 1e-13
"""Target of refinement: the rounding error of a residual, as a fraction of the terms that it is computed from."""

TIGHT = 1e-10
"""Slack up to which a constraint of an exact solution is active."""

WEAK = 1e-9
"""Multiplier up to which an active constraint is weakly active."""

ROUNDOFF = 1e-12
"""A rate, slack or multiplier below this value is rounding, and counts as zero."""

INTEGRAL = 1e-6
"""Absolute distance from an integer up to which the value of an integer variable is rounded to it."""

GAP = 1e-9
"""Largest gap between the objective of an integer solution and the proven bound on the best objective, relative to the
terms of both."""

FLAT = 1e-12
"""A curvature smaller than this fraction of the terms it is computed from counts as zero."""

RANK = 1e-11
"""A pivot or singular value smaller than this fraction of the largest one counts as zero."""

INDEFINITE = 1e-10
"""A curvature is not convex if it has an eigenvalue below minus this fraction of its largest absolute entry."""

DESCENT = 1e-9
"""A decrease of the objective along a direction is taken for 0 if it is at most this fraction of the terms that it is
summed from. In the test of uniqueness, so is a movement of at most this size along a direction with entries up to 1."""

PROVEN = 1.1 * FEASIBLE
"""A certificate of infeasibility must contradict an inequality by more than this fraction of the terms on both sides.
The value is just above FEASIBLE, so that a sample with a point that counts as feasible is never called infeasible."""

LARGEST = 1e150
"""Absolute value above which a number counts as infinite, because products of such numbers may overflow."""

PROJECTED = 1e-10
"""Largest relative residual, or last correction, of a refined projection that counts as converged."""

NEGLIGIBLE = 1e-12
"""The projection of a vector e counts as rounding if it is at most this fraction of the size of H⁻¹e."""

MIXED = 1e4
"""Ratio of the units of two variables, as their curvatures or entries of rows suggest them, above which sizes of
different variables are not compared."""

SHARE_OF_SIZE = 1e-3
"""Smallest natural size of an entry of a decision, as a fraction of the largest entry. If the bounds of the variable
are closer together, their distance is the smallest size."""

SHARE_OF_FORCE = 1e-3
"""Smallest natural size of a multiplier, as a fraction of the largest dual size of its sample."""

SHARE_OF_TERMS = 1e-6
"""Smallest dual unit, as a fraction of the terms that Hx is summed from."""

FLOOR = 1e-9
"""Smallest unit of a decision, as a fraction of the size that the data suggests; it matters for decisions near zero."""

"""What counts as zero, feasible, tight or flat, and when to stop trying; relative unless it says otherwise."""

from __future__ import annotations

FEASIBLE = 1e-11  # violation of a bound that the next steps may start from
SIGN = 1e-12  # a multiplier more negative than this lets go
TOLERANCE = 1e-10  # largest violation of anything that is called a solution
SHARP = 1e-13  # what refinement aims at
TIGHT = 1e-10  # slack up to which a constraint is active
WEAK = 1e-9  # multiplier up to which an active constraint is weakly so
FLAT = 1e-12  # curvature this much below the terms it is computed from is none
ROUNDOFF = 1e-12
PIVOT = 1e-9  # smallest entry, relative to the largest, that may be pivoted on
NEGLIGIBLE = 1e-12  # a projection this much below the rescaled error is rounding
SHARE_OF_SIZE = 0.1
SHARE_OF_FORCE = 1e-3
FLOOR = 1e-9
STALLED = 30  # steps of length zero after which the first candidate is taken instead of the best
REFRESH = 100  # pivots after which the inverse is computed afresh
REFINEMENTS = 3

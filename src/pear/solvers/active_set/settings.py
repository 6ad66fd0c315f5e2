"""Settings of the compiled method and of the GPU's kernel: how they search, not what they may call solved.

What counts as solved, tight, weak or flat is ``pear.optimality.rule``. All of these are relative unless it says so.
"""

from __future__ import annotations

START_SLOP = 1e-13
"""Violation of a bound or a row, by its natural size, that the next steps may start from; below the rule's FEASIBLE."""

BASICS = 1e-15
"""Residual of the rows that refinement of a solution aims at: no better one can be had."""

PIVOT = 1e-9
"""Smallest entry, relative to the largest, that may be pivoted on."""

FINE_PIVOT = 1e-13
"""The same for a sample that would be given up: a basis this ill-conditioned still refines, with all of float64."""

CLOSE_BY = 1e-6
"""Residual of stationarity of a point that is worth refining elsewhere, with more digits."""

UNBALANCED = 1e3
"""By how much a superbasic variable may move a basic one before the two trade places."""

ROUNDING = 1e-15
"""What a sum of two numbers may lose, relative to their sizes, with a margin."""

STALLED = 30
"""Steps of length zero after which the first candidate is taken instead of the best."""

FAR = 1e6
"""A bound so many times as large as right-hand sides and costs over curvature is no place to start from: rows and
gradients lose their digits there."""

REFRESH = 100
"""Pivots after which the inverse is computed afresh."""

REFINEMENTS = 3
"""Rounds of refinement, at most."""

VERDICTS = 8
"""Verdicts on a sample, at most: after one against it the search goes on from there."""

STEEP = 1e6
"""Where the inverse of the basis amplifies the rows by more, their rounding costs a projection the digits it needs."""

NOISE = 1e-3
"""Share of a negligible projection below which a correction to it is not worth another round."""

KERNEL_SIGN = 1e-11
"""A multiplier of the wrong sign that the GPU's kernel lets go of, relative to the largest slope of the sample.

Coarser than the rule's SIGN, because the kernel never refreshes its inverse; what it leaves is refined and verified.
"""

KERNEL_DRIFT = 1e-14
"""What a point of the GPU's dual method may have lost to rounding, relative to the point where it began: that much
beyond a bound is no violation."""

KERNEL_REFINEMENTS = 2
"""Rounds of refinement of what the kernel leaves."""

KERNEL_PUSHES = 3
"""How often the GPU's kernel raises the cost of a violation that a solution keeps."""

KERNEL_PUSH = 1e3
"""By how much it raises it, and how much larger than the costs of the sample it is at first."""

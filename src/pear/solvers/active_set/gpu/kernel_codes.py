"""Integer codes for the places of variables and the outcomes of searches, shared by kernels and Python code."""

PLACES = FREE, AT_LOWER, AT_UPPER, NOWHERE, UNBOUNDED = range(5)
"""Where a variable is.

FREE: it can move. AT_LOWER, AT_UPPER: it is held at a bound. NOWHERE: it is padding. UNBOUNDED: it has no bounds and
has not yet been made free.
"""

OUTCOMES = RUNNING, OPTIMAL, NO_ROOM, SINGULAR, INFEASIBLE = range(5)
"""How the search of a sample ended.

RUNNING: it did not end. OPTIMAL: at an optimum. NO_ROOM: the working set became larger than its room. SINGULAR: the
objective has no curvature along a direction that had to be followed. INFEASIBLE: a constraint cannot be satisfied
together with those that are held.
"""

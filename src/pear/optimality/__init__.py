"""The definition of "solved": constants, natural sizes, residuals, the active-set rule and the verification.

The module ``rule`` holds the constants. ``natural_sizes`` computes the numbers by which slacks and multipliers are
divided before they are compared with the constants. ``kkt_residual`` computes the KKT residual, and ``active_set_rule``
decides which constraints are active. ``verification`` is the check that the points of all solvers go through. Compiled
code and GPU code read the same constants.
"""

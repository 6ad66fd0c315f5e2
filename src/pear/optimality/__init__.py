"""The definition of "solved": constants, natural sizes, residuals, the active-set rule and the verification.

``rule`` holds the constants, ``natural_sizes`` the numbers that make slacks and multipliers comparable with them,
``kkt_residual`` the KKT residual, ``active_set_rule`` the active-set rule, and ``verification`` the check that the
points of all solvers go through. Compiled code and GPU code read the same constants.
"""

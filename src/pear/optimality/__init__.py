"""The definition of "solved": constants, natural sizes, residuals, the active-set rule and the verification.

``rule`` holds the constants, ``natural_sizes`` the natural sizes, ``kkt_residual`` the KKT residual,
``active_set_rule`` the active-set rule and ``verify`` the check that the points of every solver go through. Compiled
and GPU code read the same constants.
"""

"""What "solved" means, once: the constants, natural sizes, residuals, the active-set rule and the verdict.

``rule`` holds the constants, ``scale`` the natural sizes, ``residual`` the KKT residual, ``active`` the active-set rule
and ``verify`` the verdict that all solvers' points go through. The compiled and the GPU code read the same constants.
"""

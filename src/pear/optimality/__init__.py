"""What "solved" means, once: tolerances, scaling, residuals, the active-set rule."""

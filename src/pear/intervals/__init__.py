"""Bounds on what a decision may cost, calibrated on days whose costs are known, and a policy that uses them."""

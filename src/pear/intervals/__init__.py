"""Bounds on what a decision may cost, calibrated on past samples, and a policy that uses such bounds."""

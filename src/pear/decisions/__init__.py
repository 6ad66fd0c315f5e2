"""Decisions for batches of costs: the solving pipeline, warm starts, regrets and recourse."""

from pear.decisions.solve import solve

__all__ = ["solve"]

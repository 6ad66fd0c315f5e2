"""From costs to verified decisions: the one pipeline, and warm starts."""

from pear.decisions.solve import solve

__all__ = ["solve"]

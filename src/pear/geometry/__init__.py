"""Active sets, reduced KKT systems and the projection: tensor mathematics without autograd."""

from pear.geometry.solve import solve

__all__ = ["solve"]

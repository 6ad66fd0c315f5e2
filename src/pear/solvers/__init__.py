"""Solvers: a batch of programs in, one approximate primal-dual point and one fate per sample out.

Importing this package imports no solver; a backend's module is imported when it is first used.
"""

from pear.solvers.registry import BACKENDS, Backend, available, check, choose, get, kind_of, resolve
from pear.solvers.solution import ActiveSet, Duals, Hint, Solution, Status

__all__ = [
    "BACKENDS",
    "ActiveSet",
    "Backend",
    "Duals",
    "Hint",
    "Solution",
    "Status",
    "available",
    "check",
    "choose",
    "get",
    "kind_of",
    "resolve",
]

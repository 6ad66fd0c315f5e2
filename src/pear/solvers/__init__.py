"""Solvers: a batch of programs in, one approximate primal-dual point and one status per sample out.

Importing this package imports no solver; a backend's module is imported when it is first used.
"""

from pear.optimality.duals_and_active_sets import ActiveSet, Duals, Status
from pear.solvers.candidate import Candidate
from pear.solvers.registry import BACKENDS, Backend, available, check, choose, get, kind_of, resolve

__all__ = [
    "BACKENDS",
    "ActiveSet",
    "Backend",
    "Candidate",
    "Duals",
    "Status",
    "available",
    "check",
    "choose",
    "get",
    "kind_of",
    "resolve",
]

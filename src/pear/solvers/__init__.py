"""Solvers: they propose an approximate primal-dual point and a status for every sample of a batch of programs.

Importing this package imports no solver. The module of a solver is imported when the solver is first used.
"""

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.solvers.backend_registry import (
    BACKENDS,
    Backend,
    available_backends,
    backend_kind,
    check_backend_kind,
    choose_backend,
    get_backend,
    resolve_backends,
)
from pear.solvers.candidate import Candidate

__all__ = [
    "BACKENDS",
    "ActiveSet",
    "Backend",
    "Candidate",
    "Duals",
    "Status",
    "available_backends",
    "backend_kind",
    "check_backend_kind",
    "choose_backend",
    "get_backend",
    "resolve_backends",
]

"""The choice between dense and sparse reduced KKT systems for a batch."""

from __future__ import annotations

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced_systems import DenseReducedSystems
from pear.sensitivity.sparse_reduced_systems import SparseReducedSystems, SparseThenDenseReducedSystems

ReducedSystems = DenseReducedSystems | SparseReducedSystems
"""The factorised systems ``[H_FF J_Fᵀ; J_F 0]`` of a batch: F are the free variables, J the rows held with equality.

Both classes have the same methods and properties: ``usable`` (B,) is False for a system that could not be factored, and
``cheap`` is True if a factorisation is fast enough to exchange active constraints one at a time.
"""

_LARGE = 1_000  # number of variables from which sparse systems of dense programs are faster than dense ones


def reduced_systems(qp: QuadraticProgram, active: ActiveSet) -> ReducedSystems:
    """Build the reduced systems of programs, with the constraints ``active`` held with equality."""
    if qp.is_sparse:
        return SparseReducedSystems(qp, active)
    if qp.c.is_cuda:
        return DenseReducedSystems.replayed(qp, active)[0]
    sparse = qp.sparse_form() if qp.n >= _LARGE else None
    return DenseReducedSystems(qp, active) if sparse is None else SparseThenDenseReducedSystems(qp, sparse, active)

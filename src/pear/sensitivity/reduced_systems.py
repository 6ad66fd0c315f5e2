"""The choice between the dense and the sparse reduced KKT systems of a batch."""

from __future__ import annotations

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced import DenseReducedSystems
from pear.sensitivity.sparse_reduced import SparseReducedSystems, SparseThenDenseReducedSystems

ReducedSystems = DenseReducedSystems | SparseReducedSystems
"""The factorised system ``[H_FF J_Fᵀ; J_F 0]`` of every sample, with F its free variables and J its held rows.

Both classes have the same methods and the same two properties: ``usable`` (B,) is False where a system could not be
factored, and ``cheap`` is True where a factorisation is fast enough to exchange constraints one at a time.
"""

_LARGE = 1_000  # number of variables from which sparse systems of dense programs are faster than dense ones


def reduced_systems(qp: QuadraticProgram, active: ActiveSet) -> ReducedSystems:
    """The reduced systems of these programs with the constraints ``active`` held with equality."""
    if qp.is_sparse:
        return SparseReducedSystems(qp, active)
    if qp.c.is_cuda:
        return DenseReducedSystems.replayed(qp, active)[0]
    sparse = qp.sparse_form() if qp.n >= _LARGE else None
    return DenseReducedSystems(qp, active) if sparse is None else SparseThenDenseReducedSystems(qp, sparse, active)

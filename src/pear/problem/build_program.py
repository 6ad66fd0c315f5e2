"""The program built from the fields of a problem and a cost, and the choice between dense and sparse matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.problem.convert import MATRICES, is_per_sample
from pear.problem.matrix import Matrix, SparseMatrix, is_sparse
from pear.problem.quadratic_program import QuadraticProgram

MIN_VARIABLES = 500
"""Problems with fewer variables are always kept dense, because that is faster."""
MAX_SHARE = 0.05
"""Largest share of non-zeros among the entries of H, A and G together of a problem that is kept sparse."""
MAX_DENSE = 16_384
"""Largest number of variables of a dense problem, whose (n, n) curvature must fit in memory."""
_PLANS = 3  # number of smoothings that a sparse problem keeps a plan for: training, evaluation and one more


def keeps_sparse(given: Mapping[str, Any], n: int | None, smooth: bool) -> bool:
    """Whether a problem made of these fields is kept sparse.

    A problem is kept sparse where a matrix was given in sparse form, n is at least 500, and H, A and G together have at
    most 5 % non-zeros. A problem with bounds only is sparse where its dense curvature would not fit in memory. A
    problem with tensors on a GPU, or with a smooth term, is always dense.

    Args:
        given: the fields that were given, by name.
        n: the number of variables where it was given, else None.
        smooth: whether the problem has a smooth term.
    """
    matrices = {name: given[name] for name in MATRICES if name in given}
    if smooth or any(isinstance(value, Tensor) and value.device.type != "cpu" for value in given.values()):
        return False
    if not matrices:
        sizes = [n or 0, *(len(given[v]) for v in ("lb", "ub") if getattr(given.get(v), "ndim", 0) == 1)]
        return isinstance(n, int | None) and max(sizes) > MAX_DENSE
    if not any(is_sparse(value) for value in matrices.values()):
        return False
    if any(len(_shape(value)) != 2 for value in matrices.values()):
        return False
    columns = _shape(next(iter(matrices.values())))[1]
    if columns < MIN_VARIABLES:
        return False
    count = sum(_count(value) for value in matrices.values()) + (0 if "Q" in matrices else columns)
    rows = columns + sum(_shape(value)[0] for name, value in matrices.items() if name != "Q")
    return count <= MAX_SHARE * rows * columns


def build_program(
    fields: Mapping[str, Any],
    cost: Tensor,
    sign: int,
    smoothing: float,
    integer: Tensor | None,
    plans: dict[Any, Any],
    is_sparse: bool,
) -> QuadraticProgram:
    """Build the minimisation form of a problem from its checked fields. Absent fields become empty or infinite.

    Args:
        fields: the fields of the problem that are present, in the user's own sense.
        cost: (B, n) costs in the user's own sense.
        sign: 1 to minimise, −1 to maximise.
        smoothing: λ, which is added to the diagonal of H.
        integer: (n,) bool, or None for a continuous problem.
        plans: the plan of a dense problem, or a plan for each smoothing of a sparse problem.
        is_sparse: whether the matrices are sparse.
    """
    cost = sign * cost.detach().to(torch.float64)
    n = cost.shape[1]
    some = {name: v if is_per_sample(name, v) else v.unsqueeze(0) for name, v in fields.items()}
    empty: Matrix
    if is_sparse:
        plan = _plan_of_smoothing(plans, some, n, sign, smoothing)
        H, empty = plan["H"], SparseMatrix(sparse.csr_array((0, n)), shared=True)
    else:
        plan, empty = plans, cost.new_zeros(1, 0, n)
        H = smoothing * torch.eye(n, dtype=cost.dtype, device=cost.device).unsqueeze(0)
        H = sign * some["Q"] + H if "Q" in some else H
    return QuadraticProgram(
        H=H,
        c=cost,
        A=some.get("A", empty),
        b=some["b"] if "b" in some else cost.new_zeros(1, 0),
        G=some.get("G", empty),
        h=some["h"] if "h" in some else cost.new_zeros(1, 0),
        lb=some["lb"] if "lb" in some else cost.new_full((1, n), -math.inf),
        ub=some["ub"] if "ub" in some else cost.new_full((1, n), math.inf),
        integer=integer,
        diagonal="Q" not in some,
        plan=plan,
    )


def _plan_of_smoothing(
    plans: dict[Any, Any], some: Mapping[str, Any], n: int, sign: int, smoothing: float
) -> dict[str, Any]:
    """The plan of a sparse problem for one smoothing, with its H. The plans of the last few smoothings are kept."""
    plan: dict[str, Any] | None = plans.get(smoothing)
    if plan is None:
        H = sparse.csr_array(sparse.diags_array(np.full(n, smoothing)))
        if "Q" in some:
            H = sparse.csr_array(sign * some["Q"].csr + H)
        H.eliminate_zeros()
        plan = {"H": SparseMatrix(H, shared=True)}
        for old in list(plans)[: len(plans) - _PLANS + 1]:
            plans.pop(old, None)
        plans[smoothing] = plan
    return plan


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def _count(value: Any) -> int:
    if sparse.issparse(value):
        return int(value.nnz)
    if isinstance(value, Tensor):
        return int(value._nnz()) if is_sparse(value) else int(value.count_nonzero())
    return int(np.count_nonzero(value))

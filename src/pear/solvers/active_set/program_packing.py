"""Conversion of the fields of a problem, which are tensors, to the arrays of the compiled method."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from pear.solvers.active_set.dual_plan import no_dual_plan
from pear.solvers.active_set.kernel_arrays import Array, ProgramPair, Programs

_SPARSE = 0.3  # share of non-zeros up to which rows are worth being kept by columns
_NO_FACTOR = np.zeros((0, 0, 0))


def pack_programs(fields: dict[str, Tensor], n: int, sign: float = 1.0, smoothing: float = 0.0) -> Programs:
    """Convert the fields of a problem to ``Programs``, without a plan of the dual method.

    Args:
        fields: any of Q, A, b, G, h, lb, ub, float64 on the CPU. A field with a leading dimension differs by sample.
        n: the number of variables.
        sign: 1 if the objective is minimised, −1 if it is maximised.
        smoothing: λ, which is added to the diagonal of the Hessian.
    """
    J = _pack_rows([_pack_field(fields, name, 3) for name in ("A", "G")], (1, 0, n))
    Q = _pack_field(fields, "Q", 3)
    start, row, value = _pack_nonzeros(J)
    return Programs(
        **pack_curvature(np.zeros((0, 0, 0)) if Q is None else Q),
        sign=float(sign),
        smoothing=float(smoothing),
        J=J,
        norm=np.square(J).sum(2),
        start=start,
        row=row,
        value=value,
        equalities=fields["b"].shape[-1] if "b" in fields else 0,
        dual=no_dual_plan(),
        **pack_sides(fields, n),
    )


def pack_sides(fields: dict[str, Tensor], n: int) -> dict[str, Any]:
    """Return the fields ``rhs``, ``lb`` and ``ub`` of ``Programs``, by name; see ``pack_programs``."""
    rhs = _pack_rows([_pack_field(fields, name, 2) for name in ("b", "h")], (1, 0))
    lb, ub = (_pack_field(fields, name, 2) for name in ("lb", "ub"))
    lb, ub = np.full((1, n), -np.inf) if lb is None else lb, np.full((1, n), np.inf) if ub is None else ub
    return {"rhs": rhs, "lb": lb, "ub": ub}


def pack_curvature(Q: Array) -> dict[str, Any]:
    """Return the fields ``Q`` and ``band`` of ``Programs``, by name, for Q (K, n, n) or (0, 0, 0)."""
    some, n = (Q != 0).any(0), Q.shape[1]
    first, last = some.argmax(1) if n else [], n - some[:, ::-1].argmax(1) if n else []
    return {"Q": Q, "band": np.stack([first, last], 1).astype(np.int64) * some.any(1)[:, None]}


def pack_program_pair(decision: Programs, true_Q: Array, factor: Array = _NO_FACTOR) -> ProgramPair:
    """Make the pair of programs of a regret. ``curved`` becomes True if their Q are different arrays."""
    curved = decision.Q is not true_Q
    if curved:
        decision = decision._replace(band=pack_curvature(np.concatenate([decision.Q, true_Q]))["band"])
    return ProgramPair(decision, true_Q, curved, factor)


def pack_costs(cost: Tensor) -> Array:
    """Convert costs (B, n) on the CPU to a contiguous float64 array."""
    array: Array = (cost.detach() if cost.requires_grad else cost).numpy()
    return np.ascontiguousarray(array, np.float64)


def _pack_field(fields: dict[str, Tensor], name: str, dimensions: int) -> Array | None:
    """Return a field as a contiguous array with a leading dimension, which is 1 if all samples share the field.

    The result is None if the problem does not have the field.
    """
    if name not in fields:
        return None
    value: Array = np.ascontiguousarray(fields[name].numpy())
    return value if value.ndim == dimensions else value[None]


def _pack_rows(parts: list[Array | None], empty: tuple[int, ...]) -> Array:
    """Return the equality rows stacked above the inequality rows; zeros of shape ``empty`` if there are neither.

    If only one part differs by sample, the other part is repeated.
    """
    given = [part for part in parts if part is not None]
    if not given:
        return np.zeros(empty)
    size = max(len(part) for part in given)
    spread = [np.broadcast_to(part, (size, *part.shape[1:])) for part in given]
    return np.ascontiguousarray(np.concatenate(spread, 1))


def _pack_nonzeros(J: Array) -> tuple[Any, Any, Array]:
    """Return the non-zeros of the rows J, column by column: ``start``, ``row`` and ``value`` of ``Programs``.

    An entry counts if it is not zero for any sample. The arrays are empty if more than the share ``_SPARSE`` of the
    entries counts.
    """
    some = (J != 0).any(0)
    if some.size == 0 or some.mean() > _SPARSE:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((1, 0))
    column, row = np.nonzero(some.T)
    start = np.searchsorted(column, np.arange(J.shape[2] + 1)).astype(np.int32)
    return start, row.astype(np.int32), np.ascontiguousarray(J[:, row, column])

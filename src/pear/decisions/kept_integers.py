"""Integer programs that were solved before: a problem keeps their solutions, and equal programs are solved once.

Validation asks for the same decisions many times: under the true costs for every contender, under one constant forecast
for many samples, and under the same first weights for every loss that is trained. Keys are digests of all numbers of a
program, so that a stored solution is the one that a new search would find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from pear.decisions.integer_checks import CheckedIntegers
from pear.optimality.status import Status
from pear.optimality.tensor_record import TensorRecord
from pear.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.bounded_cache import BoundedCache

_ROOM = 2**26  # bytes that a problem keeps
_NAME = "integer solutions"
_VECTORS = ("c", "b", "h", "lb", "ub")


@dataclass(frozen=True)
class IntegerResults(TensorRecord):
    """The results of integer programs.

    Attributes:
        found: the checked points.
        unchecked: (B,) bool, whether the status of a sample rests on the claim of one solver.
    """

    found: CheckedIntegers
    unchecked: Tensor


def solve_distinct(
    problem: Problem, qp: QuadraticProgram, solver: str, solve: Callable[[QuadraticProgram], IntegerResults]
) -> IntegerResults:
    """Solve each distinct program once, and reuse the stored results of programs that were solved before.

    Args:
        problem: the problem that stores the results. Programs on a GPU, or with matrices per sample, are not stored.
        qp: B integer programs of this problem.
        solver: the name of the solver; among equally good points, different solvers may choose differently.
        solve: solves some of these programs.
    """
    if qp.c.is_cuda or not qp.shares_matrices or not qp.batch:
        return solve(qp)
    owner = qp if qp.is_sparse else problem  # the plan of a sparse program serves all right-hand sides
    cache: BoundedCache[_PackedResult] = owner.prepare_once(_NAME, lambda _: BoundedCache(_ROOM))
    keys = _digests(qp, solver)
    first: dict[bytes, int] = {}
    for k, key in enumerate(keys):
        first.setdefault(key, k)
    known: dict[bytes, _PackedResult | None] = dict(zip(first, cache.find([*first]), strict=True))
    new = [key for key, kept in known.items() if kept is None]
    if new:
        results = solve(qp if len(new) == qp.batch else qp[torch.tensor([first[key] for key in new])])
        packed = _pack(results)
        for key, result, status in zip(new, packed, results.found.status.tolist(), strict=True):
            known[key] = result
            if status == Status.SOLVED:
                cache.put(key, result, result.numbers.nbytes + len(key))
        if len(new) == qp.batch:
            return results
    return _unpack([one for key in keys if (one := known[key]) is not None])


@dataclass(frozen=True)
class _PackedResult:
    """The result of one program as one row of numbers: cheap to copy, and it keeps no other program's result alive.

    Attributes:
        numbers: (width,) float64, the entries of all tensors; flags and statuses are whole numbers, kept exactly.
        like: results of no programs, with the shapes and dtypes of the tensors.
    """

    numbers: np.ndarray
    like: IntegerResults


def _pack(results: IntegerResults) -> list[_PackedResult]:
    """Copy the results of a batch into one row for each program."""
    numbers = torch.cat([value.reshape(len(value), -1).double() for value in results.tensors()], 1)
    like = results.map(lambda value: value.new_empty(0, *value.shape[1:]))
    return [_PackedResult(row.copy(), like) for row in numbers.numpy()]


def _unpack(packed: list[_PackedResult]) -> IntegerResults:
    """Join rows into the results of a batch."""
    rows, at = torch.from_numpy(np.stack([one.numbers for one in packed])), 0

    def read(like: Tensor) -> Tensor:
        nonlocal at
        start, at = at, at + like.shape[1:].numel()
        return rows[:, start:at].to(like.dtype).reshape(len(rows), *like.shape[1:])

    joined: IntegerResults = packed[0].like.map(read)
    return joined


def _digests(qp: QuadraticProgram, solver: str) -> list[bytes]:
    """Return a digest of the numbers of each program; the matrices are left out, because all programs share them."""
    assert qp.integer is not None
    columns = [[_digest(row) for row in getattr(qp, name).contiguous().numpy()] for name in _VECTORS]
    wide = [column * qp.batch if len(column) == 1 else column for column in columns]
    head = solver.encode() + _digest(qp.integer.numpy())
    return [head + b"".join(parts) for parts in zip(*wide, strict=True)]


def _digest(values: np.ndarray) -> bytes:
    return blake2b(values.tobytes(), digest_size=16).digest()

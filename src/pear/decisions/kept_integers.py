"""Integer programs that were solved before: a problem keeps their solutions, and equal programs are solved once.

Validation asks for the same decisions many times: under the true costs for every contender, under one constant forecast
for many samples, and under the same first weights for every loss that is trained. Keys are digests of all numbers of a
program, so that a stored solution is the one that a new search would find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from pear.decisions.integer_checks import CheckedIntegers
from pear.optimality.duals_and_active_sets import Status, TensorRecord
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
        unchecked: (B,) bool, whether the status of a sample rests on the word of one solver.
    """

    found: CheckedIntegers
    unchecked: Tensor


def solve_distinct(
    problem: Problem, qp: QuadraticProgram, solver: str, solve: Callable[[QuadraticProgram], IntegerResults]
) -> IntegerResults:
    """Solve every program that is new, once, and take the others from those that were solved before.

    Args:
        problem: the problem that keeps solutions; programs on a GPU, or with matrices of their own, are not kept.
        qp: B integer programs of this problem.
        solver: the name of the solver, which may decide between equally good points.
        solve: solves some of these programs.
    """
    if qp.c.is_cuda or not qp.shares_matrices or not qp.batch:
        return solve(qp)
    owner = qp if qp.is_sparse else problem  # the plan of a sparse program serves all right-hand sides
    cache: BoundedCache[IntegerResults] = owner.prepare_once(_NAME, lambda _: BoundedCache(_ROOM))
    keys = _digests(qp, solver)
    known: dict[bytes, IntegerResults | None] = dict(zip(keys, cache.find(keys), strict=True))
    new = [key for key, result in known.items() if result is None]
    if new:
        index = torch.tensor([keys.index(key) for key in new])
        results = solve(qp if len(new) == qp.batch else qp[index])
        for k, key in enumerate(new):
            known[key] = one = results[k : k + 1].map(torch.clone)  # a view would keep the whole batch alive
            if int(one.found.status) == Status.SOLVED:
                cache.put(key, one, one.found.x.nbytes + 2 * qp.n + qp.m + len(key))
        if len(new) == qp.batch:
            return results
    return _join([one for key in keys if (one := known[key]) is not None])


def _join(singles: list[IntegerResults]) -> IntegerResults:
    """Join the results of single programs."""
    joined: IntegerResults = singles[0].map(lambda value: value.repeat(len(singles), *(1 for _ in value.shape[1:])))
    for i, one in enumerate(singles):
        joined.put(torch.tensor([i]), one)
    return joined


def _digests(qp: QuadraticProgram, solver: str) -> list[bytes]:
    """Return a digest of the numbers of each program; the matrices are left out, because all programs share them."""
    assert qp.integer is not None
    columns = [[_digest(row) for row in getattr(qp, name)] for name in _VECTORS]
    wide = [column * qp.batch if len(column) == 1 else column for column in columns]
    head = solver.encode() + _digest(qp.integer)
    return [head + b"".join(parts) for parts in zip(*wide, strict=True)]


def _digest(values: Tensor) -> bytes:
    return blake2b(values.contiguous().numpy().tobytes(), digest_size=16).digest()

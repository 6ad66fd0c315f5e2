"""Results of integer programs that are kept with the problem, so that equal programs are solved only once.

Validation needs the same decisions many times: under the true costs for every model that is compared, under a constant
forecast for many samples, and under the same first weights for every loss that is trained. The key of a result
consists of digests of all vectors of its program. The results belong to the problem, and all of its programs share the
matrices. Two programs with the same key are therefore equal.
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

_ROOM = 2**26  # the most bytes of results that a problem keeps
_NAME = "integer solutions"  # the name of the cache among the data that a problem prepares once
_VECTORS = ("c", "b", "h", "lb", "ub")


@dataclass(frozen=True)
class IntegerResults(TensorRecord):
    """The results of a batch of integer programs.

    Attributes:
        found: the checked points.
        unchecked: (B,) bool, whether the status of a sample rests on the claim of a single solver.
    """

    found: CheckedIntegers
    unchecked: Tensor


def solve_unless_kept(
    problem: Problem, qp: QuadraticProgram, solver: str, solve: Callable[[QuadraticProgram], IntegerResults]
) -> IntegerResults:
    """Return the results of all programs. Each distinct program is solved once, or has a result that was kept before.

    Only results with the status SOLVED are kept.

    Args:
        problem: the problem that keeps the results. Results of programs on a GPU, or with matrices per sample, are not
            kept.
        qp: B integer programs of this problem.
        solver: the name of the solver. Each solver has its own kept results, because solvers may choose different ones
            of equally good points.
        solve: a function that solves some of the programs.
    """
    if qp.c.is_cuda or not qp.shares_matrices or not qp.batch:
        return solve(qp)
    owner = qp if qp.is_sparse else problem  # sparse programs share a plan, whatever their right-hand sides
    cache: BoundedCache[_KeptResult] = owner.prepare_once(_NAME, lambda _: BoundedCache(_ROOM))
    keys = _keys_of_kept_results(qp, solver)
    first: dict[bytes, int] = {}
    for k, key in enumerate(keys):
        first.setdefault(key, k)
    known: dict[bytes, _KeptResult | None] = dict(zip(first, cache.find([*first]), strict=True))
    new = [key for key, result in known.items() if result is None]
    if new:
        results = solve(qp if len(new) == qp.batch else qp[torch.tensor([first[key] for key in new])])
        kept = _split_into_kept_results(results)
        for key, result, status in zip(new, kept, results.found.status.tolist(), strict=True):
            known[key] = result
            if status == Status.SOLVED:
                cache.put(key, result, result.numbers.nbytes + len(key))
        if len(new) == qp.batch:
            return results
    return _join_kept_integers([one for key in keys if (one := known[key]) is not None])


@dataclass(frozen=True)
class _KeptResult:
    """The result of one program as one row of numbers, which shares no memory with the results of other programs.

    Attributes:
        numbers: (width,) float64, the entries of all tensors. Flags and statuses become whole numbers.
        like: the results of an empty batch, from which the shapes and dtypes of the tensors are read.
    """

    numbers: np.ndarray
    like: IntegerResults


def _split_into_kept_results(results: IntegerResults) -> list[_KeptResult]:
    """Return the results of a batch as one row of numbers for each program."""
    numbers = torch.cat([value.reshape(len(value), -1).double() for value in results.tensors()], 1)
    like = results.map(lambda value: value.new_empty(0, *value.shape[1:]))
    return [_KeptResult(row.copy(), like) for row in numbers.numpy()]


def _join_kept_integers(kept: list[_KeptResult]) -> IntegerResults:
    """Join the results of single programs into the results of a batch."""
    rows, at = torch.from_numpy(np.stack([one.numbers for one in kept])), 0

    def read(like: Tensor) -> Tensor:
        nonlocal at
        start, at = at, at + like.shape[1:].numel()
        return rows[:, start:at].to(like.dtype).reshape(len(rows), *like.shape[1:])

    joined: IntegerResults = kept[0].like.map(read)
    return joined


def _keys_of_kept_results(qp: QuadraticProgram, solver: str) -> list[bytes]:
    """Return a key for each program, made of the solver's name and digests of the program's vectors.

    The matrices are left out, because all programs share them.
    """

    def digest(values: np.ndarray) -> bytes:
        return blake2b(values.tobytes(), digest_size=16).digest()

    assert qp.integer is not None
    columns = [[digest(row) for row in getattr(qp, name).contiguous().numpy()] for name in _VECTORS]
    wide = [column * qp.batch if len(column) == 1 else column for column in columns]
    head = solver.encode() + digest(qp.integer.numpy())
    return [head + b"".join(parts) for parts in zip(*wide, strict=True)]

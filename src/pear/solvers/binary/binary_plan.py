"""``BinaryPlan``: the constraints of 0-1 programs, prepared for searches, with the decisions found so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.optimality.rule import OPTIMAL
from pear.solvers.adapters.batch_arrays import ProgramArrays, row
from pear.solvers.binary.tightened_rows import Array, TightenedRows
from pear.solvers.bounded_cache import BoundedCache

_RECENT = 1000  # the number of recent decisions from which searches choose a start
_SPACE, _SHARE = 128 << 20, 32 << 20  # bytes for all plans with their decisions, and for the decisions of one
_ENTRY = 300  # bytes that a decision takes beside its key
_FIELDS = ("A", "b", "G", "h", "lb", "ub")


class BinaryResult(NamedTuple):
    """The result of the search for one program.

    Attributes:
        bits: the best selection as packed bits; empty without a proof.
        most: the proven upper bound of the value of any selection; NaN without a proof.
        outcome: PROVEN, SPENT (too many nodes) or NOTHING (no feasible selection), as in ``selection_search``.
    """

    bits: bytes
    most: float
    outcome: int


@dataclass(frozen=True)
class BinaryPlan:
    """The constraints that a group of programs shares. Their decisions are ``low + z`` with selections z.

    z_j is 0 or 1 for a *free* variable, and 0 for a *fixed* variable, which has one possible value. The *values* of a
    program are the negative costs of the free variables, because the search maximises.

    Attributes:
        key: the bytes of all constraints.
        low: (n,) the least value of each variable.
        free: (k,) the positions of the free variables.
        J: (r, k) the columns of the free variables in the r rows, equality rows first.
        upper, lower: (r,) the limits of Jz: those of the rows, less the products of the rows with ``low``.
        rows: the same rows in the form that the searches read.
        possible: False if the bounds leave no value for some variable.
        answers: the results of earlier searches. The key of a result is the bytes of the program's values (k,).
        recent: the packed bits of recent selections, the newest last.
    """

    key: bytes
    low: Array
    free: NDArray[np.intp]
    J: Array
    upper: Array
    lower: Array
    rows: TightenedRows
    possible: bool
    answers: BoundedCache[BinaryResult] = field(default_factory=lambda: BoundedCache(_SHARE))
    recent: dict[bytes, None] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: ProgramArrays, i: int) -> BinaryPlan:
        """Return the plan for the constraints of sample ``i``, which all samples with these constraints share."""
        fields = [np.ascontiguousarray(row(getattr(batch, name), i)) for name in _FIELDS]
        key = b"".join([np.array([x.shape[0] for x in fields]).tobytes(), *(x.tobytes() for x in fields)])
        kept = _plans.find([key])[0]
        if kept is None:
            kept = cls._new(key, *fields)
            kept.keep({})
        return kept

    @classmethod
    def _new(cls, key: bytes, A: Array, b: Array, G: Array, h: Array, lb: Array, ub: Array) -> BinaryPlan:
        """Make the plan: fixed variables are removed from the rows, and the rows are tightened."""
        low, high = cls.whole_bounds(lb, ub)
        free = np.flatnonzero(high > low)
        J = np.concatenate([A, G])
        fixed = J @ low
        upper, lower = np.concatenate([b, h]) - fixed, np.concatenate([b, np.full(len(h), -np.inf)]) - fixed
        J = J[:, free]
        return cls(key, low, free, J, upper, lower, TightenedRows.of(J, upper, lower), bool((high >= low).all()))

    def starts(self, values: Array) -> Array | None:
        """Return the recent selection of greatest value for each program, (B, k), as the start of a search.

        The result is None if there is no recent selection, or if dynamic programming solves the programs.

        Args:
            values: (B, k) the values of the k free variables in B programs.
        """
        recent = list(self.recent)
        if not recent or self.rows.weights is not None:
            return None
        decisions = self.unpack_bits(recent, values.shape[1])
        worth = values.astype(np.float32) @ decisions.T.astype(np.float32)
        return decisions[worth.argmax(1)].astype(np.float64)

    def keep(self, new: dict[bytes, BinaryResult]) -> None:
        """Keep results, each under the bytes of its program's values. Their selections become the most recent ones."""
        for values, answer in new.items():
            self.answers.put(values, answer, len(values) + len(answer.bits) + _ENTRY)
            if answer.bits:
                self.recent.pop(answer.bits, None)
                self.recent[answer.bits] = None
        for bits in list(islice(self.recent, max(0, len(self.recent) - _RECENT))):
            self.recent.pop(bits, None)
        _plans.put(self.key, self, 3 * len(self.key) + _ENTRY + self.answers.used)

    @staticmethod
    def whole_bounds(lb: Array, ub: Array) -> tuple[Array, Array]:
        """Return the least and the greatest integers within the bounds (n,), with a margin for rounding errors."""
        return np.ceil(lb - OPTIMAL * np.maximum(1.0, np.abs(lb))), np.floor(ub + OPTIMAL * np.maximum(1.0, np.abs(ub)))

    @staticmethod
    def pack_bits(z: Array) -> list[bytes]:
        """Pack (B, k) selections into B strings of bits."""
        return [bits.tobytes() for bits in np.packbits(z > 0.5, axis=1)]

    @staticmethod
    def unpack_bits(bits: Sequence[bytes], k: int) -> NDArray[np.uint8]:
        """Unpack B strings of bits into (B, k) selections."""
        rows = np.frombuffer(b"".join(bits), np.uint8).reshape(len(bits), -(-k // 8))
        return np.unpackbits(rows, axis=1, count=k)


def group_by_binary_plan(batch: ProgramArrays, todo: NDArray[np.intp]) -> list[tuple[BinaryPlan, NDArray[np.intp]]]:
    """Group the samples at the positions ``todo`` by their plans.

    Returns:
        For each plan: the plan, and the positions of its samples.
    """
    if not len(todo):
        return []
    if batch.shared_matrices and batch.shared_limits:
        return [(BinaryPlan.of(batch, int(todo[0])), todo)]
    plans: dict[bytes, BinaryPlan] = {}
    members: dict[bytes, list[int]] = defaultdict(list)
    for i in todo.tolist():
        plan = BinaryPlan.of(batch, i)
        plans.setdefault(plan.key, plan)
        members[plan.key].append(i)
    return [(plan, np.array(members[key])) for key, plan in plans.items()]


_plans: BoundedCache[BinaryPlan] = BoundedCache(_SPACE)


def forget_binary_plans() -> None:
    """Drop all plans with their decisions, so that the next call has no starts."""
    _plans.clear()

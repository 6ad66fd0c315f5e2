"""``SolutionPool`` and ``SolutionPools``: distinct solutions of earlier solves, to which losses compare the best ones.

A solution is in the pool of the constraints that it was found for, so that it is feasible for every sample that has
the same constraints. Each pool holds at most a given number of solutions; where it is full, the solution that came the
longest ago leaves. All pools together take at most ``MOST_BYTES``; where they would take more, all of them are emptied.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import DataError
from pear.optimality.rule import OPTIMAL
from pear.solvers.warm_starts import MOST_BYTES, is_plain_sample_key

_NAME_BYTES = 16
_ENTRY_BYTES = 250  # of a name and its place in a dict, about
_BITS = math.floor(-math.log2(OPTIMAL))  # of an entry, which tell two solutions apart


class SolutionPool:
    """The distinct solutions for one set of constraints.

    Args:
        rows: (P, n) the first solutions.
        size: the largest number of solutions.

    Attributes:
        rows: (P, n) the solutions. The tensor is replaced, never written to, so that autograd may keep it.
    """

    def __init__(self, rows: Tensor, size: int) -> None:
        self.rows, self._size = rows, size
        self._places: dict[bytes, int] = {}  # the row of each name; what came last stands last

    def __len__(self) -> int:
        return len(self._places)

    def add(self, names: Iterable[bytes], solutions: Tensor) -> None:
        """Add solutions (k, n) with these k names, except those that are there; the oldest leave where it is full."""
        new: dict[int, int] = {}
        for source, name in enumerate(names):
            place = self._places.pop(name, None)
            if place is None:
                full = len(self._places) >= self._size
                place = self._places.pop(next(iter(self._places))) if full else len(self._places)
                new[place] = source
            self._places[name] = place
        if new:
            rows = self.rows.new_empty(len(self._places), self.rows.shape[1])
            rows[: len(self.rows)] = self.rows
            rows[list(new)] = solutions[list(new.values())].to(rows)
            self.rows = rows

    def to(self, device: torch.device) -> SolutionPool:
        """Return the pool with its solutions on another device."""
        moved = SolutionPool(self.rows.to(device), self._size)
        moved._places = dict(self._places)
        return moved

    def state(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the solutions (P, n), their row numbers from the oldest to the newest, and their names as bytes."""
        names = np.frombuffer(b"".join(self._places), np.uint8).reshape(-1, _NAME_BYTES)
        return self.rows, torch.tensor(list(self._places.values())), torch.from_numpy(names.copy())

    def load_state(self, places: Tensor, names: Tensor) -> None:
        """Restore the order and the names of the rows."""
        self._places = {name.tobytes(): place for name, place in zip(names.numpy(), places.tolist(), strict=True)}
        if sorted(self._places.values()) != list(range(len(self.rows))):
            raise ValueError("the places of the solutions are not their row numbers")


class SolutionPools:
    """A pool for every set of constraints.

    Args:
        n: the number of variables.
        size: the largest number of solutions in a pool.
        device: the device of the solutions.

    Example:
        >>> import torch
        >>> pools = SolutionPools(n=2, size=10)
        >>> pools.add(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), [None] * 3)
        >>> pools.of([None]).products(torch.tensor([[3.0, 5.0]], dtype=torch.float64))
        tensor([[5., 3.]], dtype=torch.float64)
    """

    def __init__(self, n: int, size: int, device: torch.device | None = None) -> None:
        self._empty, self._size = torch.empty(0, n, dtype=torch.float64, device=device), size
        self._pools: dict[Hashable, SolutionPool] = {}

    def __len__(self) -> int:
        """The number of solutions in all pools."""
        return sum(map(len, self._pools.values()))

    def add(self, solutions: Tensor, sets: Sequence[Hashable], width: Tensor | None = None) -> None:
        """Add solutions (B, n) to the pools of these B sets of constraints.

        Args:
            solutions: (B, n) feasible for their sets of constraints.
            sets: for each sample, a name of its set of constraints.
            width: (n,) or (B, n) distances between the bounds of the variables, by which rounding is recognised.
        """
        if (len(self) + len(solutions)) * (8 * self._empty.shape[1] + _ENTRY_BYTES) > MOST_BYTES:
            self._pools.clear()
        names = name_solutions(solutions, width)
        members: dict[Hashable, list[int]] = {}
        for i, one in enumerate(sets):
            members.setdefault(one, []).append(i)
        for one, rows in members.items():
            if one not in self._pools:
                self._pools[one] = SolutionPool(self._empty, self._size)
            self._pools[one].add([names[i] for i in rows], solutions[rows])

    def of(self, sets: Sequence[Hashable]) -> PooledSolutions:
        """Return the solutions that are feasible for samples with these sets of constraints."""
        rows = [self._pools[one].rows if one in self._pools else self._empty for one in sets]
        if len(set(sets)) == 1:
            return PooledSolutions(rows[0])
        counts = torch.tensor([len(one) for one in rows], device=self._empty.device)
        filled = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
        return PooledSolutions(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), filled)

    def to(self, device: torch.device) -> SolutionPools:
        """Return the pools on another device; these pools themselves where they are there already."""
        if self._empty.device == device:
            return self
        moved = SolutionPools(self._empty.shape[1], self._size, device)
        moved._pools = {one: pool.to(device) for one, pool in self._pools.items()}
        return moved

    def state(self) -> dict[str, Any]:
        """Return all pools as tensors, numbers and strings.

        The result is empty where a set of constraints is named by a key that is neither a number nor a string nor a
        tuple of these.
        """
        if not self._pools or not all(one is None or is_plain_sample_key(one) for one in self._pools):
            return {}
        rows, places, names = (torch.cat(part) for part in zip(*(p.state() for p in self._pools.values()), strict=True))
        counts = [len(pool) for pool in self._pools.values()]
        return {"sets": list(self._pools), "counts": counts, "rows": rows, "places": places, "names": names}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n: int, size: int) -> SolutionPools:
        """Rebuild pools from their ``state``.

        Raises:
            DataError: the state is not that of pools with n variables.
        """
        pools = cls(n, size)
        try:
            pools._load(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                "the solutions of the saved run are not those of this problem, or were altered; delete the file, or "
                f"give another path ({error})"
            ) from error
        return pools

    def _load(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        counts = state["counts"]
        parts = (state[name].split(counts) for name in ("rows", "places", "names"))
        for one, rows, places, names in zip(state["sets"], *parts, strict=True):
            if rows.shape[1:] != self._empty.shape[1:]:
                raise ValueError(f"expected {self._empty.shape[1]} variables, got {rows.shape[1]}")
            self._pools[one] = SolutionPool(rows.to(self._empty), self._size)
            self._pools[one].load_state(places, names)


@dataclass(frozen=True)
class PooledSolutions:
    """The solutions that each sample of a batch is compared with.

    Attributes:
        rows: (P, n) where all samples share them; (B, P, n), filled with zeros at the end, where they differ.
        filled: (B, P) bool, False where a row holds no solution; None where all do.
    """

    rows: Tensor
    filled: Tensor | None = None

    def products(self, cost: Tensor) -> Tensor:
        """Compute cᵀv of all costs c (B, n) and solutions v in one matrix multiplication. Shape (B, P)."""
        if self.filled is None:
            return cost @ self.rows.T
        return torch.bmm(self.rows, cost[:, :, None])[:, :, 0]

    def lowest(self, values: Tensor) -> Tensor:
        """Return the place (B,) of the lowest of each sample's values (B, P)."""
        return self.where_filled(values, math.inf).argmin(1)

    def at(self, place: Tensor) -> Tensor:
        """Return the solution (B, n) of each sample at its place (B,)."""
        if self.filled is None:
            return self.rows[place]
        return self.rows[torch.arange(len(place), device=place.device), place]

    def mean(self) -> Tensor:
        """Return the mean solution: (1, n) where all samples share it, otherwise (B, n)."""
        if self.filled is None:
            return self.rows.mean(0, keepdim=True)
        return self.rows.sum(1) / self.filled.sum(1, keepdim=True)

    def where_filled(self, values: Tensor, other: float) -> Tensor:
        """Return values (B, P), with another number where there is no solution."""
        return values if self.filled is None else values.masked_fill(~self.filled, other)

    def count(self) -> Tensor:
        """Return how many solutions the samples have: (1,) where they share them, otherwise (B,)."""
        return self.rows.new_tensor([len(self.rows)]) if self.filled is None else self.filled.sum(1)


def name_solutions(solutions: Tensor, width: Tensor | None = None) -> list[bytes]:
    """Compute a name of each solution (B, n), which is equal for solutions that differ by rounding alone.

    An entry counts to the relative accuracy of a solution (``OPTIMAL``). It counts as zero where it is below that share
    of the largest entry, or of the distance between its bounds where that is smaller, whatever unit it is measured in.
    Two solutions on both sides of a rounding limit have two names.

    Args:
        solutions: (B, n).
        width: (n,) or (B, n) distances between the bounds of the variables; infinite if omitted.
    """
    z = solutions.detach().double().cpu().numpy()
    size = np.abs(z).max(1, keepdims=True, initial=0.0)
    if width is not None:
        size = np.minimum(size, width.detach().double().cpu().numpy())
    fraction, power = np.frexp(np.where(np.abs(z) <= OPTIMAL * size, 0.0, z))
    rounded = np.ldexp(np.rint(np.ldexp(fraction, _BITS)), power - _BITS)
    return [blake2b(row.tobytes(), digest_size=_NAME_BYTES).digest() for row in rounded]

"""``SolutionPool`` and ``SolutionPools``: distinct earlier solutions, with which losses compare the best decisions.

Each distinct set of constraints has a pool, so that the solutions of a pool are feasible for every sample with these
constraints. A pool holds at most a given number of solutions. In a full pool, a new solution replaces the one that has
not been added for the longest time. All pools together use at most ``MOST_BYTES``; all are emptied before they would
use more.
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
_ENTRY_BYTES = 250  # about the size of a name and its entry in a dict
_BITS = math.floor(-math.log2(OPTIMAL))  # the leading bits of an entry that distinguish solutions


class SolutionPool:
    """The P distinct solutions for one set of constraints.

    Args:
        rows: (k, n) the solutions with which the pool begins. If there are any, ``load_state`` must name them.
        size: the largest number of solutions.

    Attributes:
        rows: (P, n) the solutions. The tensor is replaced, never changed in place, so that autograd may keep it.
    """

    def __init__(self, rows: Tensor, size: int) -> None:
        self.rows, self._size = rows, size
        self._places: dict[bytes, int] = {}  # row numbers by name, from the oldest to the newest solution

    def __len__(self) -> int:
        return len(self._places)

    def add(self, names: Iterable[bytes], solutions: Tensor) -> None:
        """Add those solutions whose names are new; the others count as added again.

        In a full pool, a new solution replaces the one that has not been added for the longest time.

        Args:
            names: the names of the solutions, as ``name_pooled_solutions`` computes them.
            solutions: (k, n) the solutions.
        """
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
        """Return a copy of the pool with its solutions on another device."""
        moved = SolutionPool(self.rows.to(device), self._size)
        moved._places = dict(self._places)
        return moved

    def state(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the solutions (P, n), and their row numbers (P,) and names (P, 16) from the oldest to the newest."""
        names = np.frombuffer(b"".join(self._places), np.uint8).reshape(-1, _NAME_BYTES)
        return self.rows, torch.tensor(list(self._places.values())), torch.from_numpy(names.copy())

    def load_state(self, places: Tensor, names: Tensor) -> None:
        """Restore the row numbers (P,), from the oldest to the newest solution, and the names (P, 16) as bytes."""
        self._places = {name.tobytes(): place for name, place in zip(names.numpy(), places.tolist(), strict=True)}
        if sorted(self._places.values()) != list(range(len(self.rows))):
            raise ValueError("the places of the solutions are not their row numbers")


class SolutionPools:
    """The solution pools of all distinct sets of constraints.

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
        """Add the solutions of B samples to the pools of their sets of constraints.

        Args:
            solutions: (B, n) solutions, feasible for their sets of constraints.
            sets: a name of the set of constraints of each sample.
            width: (n,) or (B, n) distances between the bounds of the variables; see ``name_pooled_solutions``.
        """
        if (len(self) + len(solutions)) * (8 * self._empty.shape[1] + _ENTRY_BYTES) > MOST_BYTES:
            self._pools.clear()
        names = name_pooled_solutions(solutions, width)
        members: dict[Hashable, list[int]] = {}
        for i, one in enumerate(sets):
            members.setdefault(one, []).append(i)
        for one, rows in members.items():
            if one not in self._pools:
                self._pools[one] = SolutionPool(self._empty, self._size)
            self._pools[one].add([names[i] for i in rows], solutions[rows])

    def of(self, sets: Sequence[Hashable]) -> PooledSolutions:
        """Return the pooled solutions for B samples, given the names of their sets of constraints."""
        rows = [self._pools[one].rows if one in self._pools else self._empty for one in sets]
        if len(set(sets)) == 1:
            return PooledSolutions(rows[0])
        counts = torch.tensor([len(one) for one in rows], device=self._empty.device)
        filled = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
        return PooledSolutions(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), filled)

    def to(self, device: torch.device) -> SolutionPools:
        """Return the pools on a device: these pools if they are on it, otherwise a copy."""
        if self._empty.device == device:
            return self
        moved = SolutionPools(self._empty.shape[1], self._size, device)
        moved._pools = {one: pool.to(device) for one, pool in self._pools.items()}
        return moved

    def state(self) -> dict[str, Any]:
        """Return all pools as tensors, numbers and strings.

        The result is empty if the name of a set of constraints is neither None nor a number, a string or a tuple of
        these.
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
            DataError: the state does not belong to pools with n variables.
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
        """Add the solutions of a saved state; raise an error of any kind if the state is not valid."""
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
    """The pooled solutions with which each sample of a batch is compared.

    Attributes:
        rows: (P, n) if all samples have the same solutions; otherwise (B, P, n), padded with rows of zeros.
        filled: (B, P) bool, whether a row holds a solution; None if every row does.
    """

    rows: Tensor
    filled: Tensor | None = None

    def products(self, cost: Tensor) -> Tensor:
        """Compute cᵀv for all costs c (B, n) and solutions v in one matrix multiplication. Shape (B, P)."""
        if self.filled is None:
            return cost @ self.rows.T
        return torch.bmm(self.rows, cost[:, :, None])[:, :, 0]

    def lowest(self, values: Tensor) -> Tensor:
        """Return the row number (B,) of the lowest of each sample's values (B, P), padding excluded."""
        return self.where_filled(values, math.inf).argmin(1)

    def at(self, place: Tensor) -> Tensor:
        """Return each sample's solution at its row number ``place`` (B,). Shape (B, n)."""
        if self.filled is None:
            return self.rows[place]
        return self.rows[torch.arange(len(place), device=place.device), place]

    def mean(self) -> Tensor:
        """Return the mean solution: (1, n) if all samples have the same solutions, otherwise (B, n)."""
        if self.filled is None:
            return self.rows.mean(0, keepdim=True)
        return self.rows.sum(1) / self.filled.sum(1, keepdim=True)

    def where_filled(self, values: Tensor, other: float) -> Tensor:
        """Return values (B, P), with the number ``other`` for rows that hold no solution."""
        return values if self.filled is None else values.masked_fill(~self.filled, other)

    def count(self) -> Tensor:
        """Return the number of solutions: (1,) if all samples have the same solutions, otherwise (B,)."""
        return self.rows.new_tensor([len(self.rows)]) if self.filled is None else self.filled.sum(1)


def name_pooled_solutions(solutions: Tensor, width: Tensor | None = None) -> list[bytes]:
    """Compute a name of each solution, which is the same for solutions that differ only by rounding errors.

    The name is a digest of the entries, rounded to the relative accuracy ``OPTIMAL`` of a solution. An entry counts as
    zero if it is below ``OPTIMAL`` times the largest entry or times the distance between its bounds, whichever is
    smaller. In rare cases solutions that differ only by rounding errors still have two names, because an entry is
    rounded up in one and down in the other.

    Args:
        solutions: (B, n) solutions.
        width: (n,) or (B, n) distances between the bounds of the variables; infinite if omitted.
    """
    z = solutions.detach().double().cpu().numpy()
    size = np.abs(z).max(1, keepdims=True, initial=0.0)
    if width is not None:
        size = np.minimum(size, width.detach().double().cpu().numpy())
    fraction, power = np.frexp(np.where(np.abs(z) <= OPTIMAL * size, 0.0, z))
    rounded = np.ldexp(np.rint(np.ldexp(fraction, _BITS)), power - _BITS)
    return [blake2b(row.tobytes(), digest_size=_NAME_BYTES).digest() for row in rounded]

"""What a loss remembers of each sample between epochs: its last solution, and the solution under its true cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.geometry.exact import Start
from pear.problem import Problem


def as_keys(keys: Tensor | Iterable[Hashable], batch: int) -> list[Hashable]:
    """Sample ids as a list; one distinct id per row."""
    ids = keys.tolist() if isinstance(keys, Tensor) else list(keys)
    if len(ids) != batch:
        raise ProblemError(f"keys must name every sample: expected {batch}, got {len(ids)}")
    if len(set(ids)) != batch:
        raise ProblemError("keys must be distinct within a batch; a sample came twice")
    return ids


class Memory:
    """A table of solutions by sample id. Rows are overwritten, never trusted: every use verifies them first."""

    def __init__(self) -> None:
        self._slot: dict[Hashable, int] = {}
        self._rows: Start | None = None
        self._stamp: Tensor | None = None

    def __len__(self) -> int:
        return len(self._slot)

    def recall(self, keys: list[Hashable], stamp: Tensor | None = None) -> Start | None:
        """The remembered rows of these samples; ``known`` is False where there are none.

        Args:
            keys: sample ids.
            stamp: (B, k) what the solution depended on; rows stored under another stamp count as unknown.
        """
        if self._rows is None:
            return None
        slots = [self._slot.get(key, -1) for key in keys]
        index = torch.tensor(slots, device=self._rows.x.device)
        rows: Start = self._rows[index]
        known = rows.known & (index >= 0)
        if stamp is not None and self._stamp is not None:
            known = known & (self._stamp[index] == stamp).all(1)
        return Start(rows.x, rows.duals, rows.active, known)

    def store(self, keys: list[Hashable], rows: Start, stamp: Tensor | None = None) -> None:
        """Remember one row for each key."""
        for key in keys:
            self._slot.setdefault(key, len(self._slot))
        self._grow(len(self._slot), rows, stamp)
        assert self._rows is not None
        index = torch.tensor([self._slot[key] for key in keys], device=rows.x.device)
        self._rows.put(index, rows)
        if stamp is not None and self._stamp is not None:
            self._stamp[index] = stamp

    def _grow(self, size: int, like: Start, stamp: Tensor | None) -> None:
        """Make room for ``size`` rows, doubling, so that storing an epoch costs one copy in the end."""
        have = 0 if self._rows is None else len(self._rows.known)
        if have >= size:
            return
        room = max(size, 2 * have)

        def grown(template: Tensor, old: Tensor | None) -> Tensor:
            new = template.new_zeros(room, *template.shape[1:])
            if old is not None:
                new[: len(old)] = old
            return new

        fresh: Start = like.map(lambda value: grown(value, None))
        if self._rows is not None:
            fresh.put(torch.arange(have, device=like.x.device), self._rows)
        self._rows = fresh
        self._stamp = None if stamp is None else grown(stamp, self._stamp)


def rows_of(problem: Problem, ids: list[Hashable] | None) -> Problem:
    """The rows of a problem with fields per sample that the ids name; any other problem as it is."""
    if ids is None or problem.batch is None:
        return problem
    strangers = [i for i in ids if not isinstance(i, int) or not 0 <= i < problem.batch]
    if strangers:
        raise ProblemError(
            f"the problem has fields of its own for {problem.batch} samples, so that keys must be their row numbers, "
            f"0 to {problem.batch - 1}; got {strangers[0]!r}"
        )
    return problem[torch.tensor(ids, device=problem.device)]

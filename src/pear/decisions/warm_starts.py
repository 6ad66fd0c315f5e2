"""What a loss remembers of each sample between epochs: its last solution, and the solution under its true cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Problem
from pear.sensitivity.verified import Start


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

    def recall(self, keys: list[Hashable]) -> Start | None:
        """The remembered rows of these samples; ``known`` is False where there are none."""
        if self._rows is None:
            return None
        index = self._index(keys)
        rows: Start = self._rows[index]
        return Start(rows.x, rows.duals, rows.active, rows.known & (index >= 0))

    def stamped(self, keys: list[Hashable], stamp: Tensor) -> bool:
        """True where every sample is known under this very stamp (B, k), so that its row needs no check."""
        if self._rows is None or self._stamp is None:
            return False
        index = self._index(keys)
        known = self._rows.known[index] & (index >= 0)
        return bool((known & (self._stamp[index] == stamp).all(1)).all())

    def _index(self, keys: list[Hashable]) -> Tensor:
        assert self._rows is not None
        return torch.tensor([self._slot.get(key, -1) for key in keys], dtype=torch.long, device=self._rows.x.device)

    def store(self, keys: list[Hashable], rows: Start, stamp: Tensor | None = None) -> None:
        """Remember one row for each key, under a stamp (B, k) of what it depends on."""
        if not keys:
            return
        for key in keys:
            self._slot.setdefault(key, len(self._slot))
        self._grow(len(self._slot), rows, stamp)
        assert self._rows is not None
        index = self._index(keys)
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
    check_rows(problem, ids)
    return problem[torch.tensor(ids, device=problem.device)]


def check_rows(problem: Problem, ids: list[Hashable] | None) -> None:
    """Where samples have fields of their own, keys are row numbers."""
    if ids is None or problem.batch is None:
        return
    strangers = [i for i in ids if not isinstance(i, int) or not 0 <= i < problem.batch]
    if strangers:
        raise ProblemError(
            f"the problem has fields of its own for {problem.batch} samples, so that keys must be their row numbers, "
            f"0 to {problem.batch - 1}; got {strangers[0]!r}"
        )

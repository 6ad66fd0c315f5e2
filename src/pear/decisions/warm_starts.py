"""The one store of what is kept of each sample between calls.

A sample has a key, a key has a slot, and a slot is a row of every table. A *warm start* may be anything: it is verified
before it is used. An *answer* is used as it is, and only where the fingerprint of all the data that it was computed
from is the same; there is no way to read one without comparing. A *failure* is kept in the same way, so that nobody is
asked about a sample again whose data has not changed.

All of it can be saved, so that a training that is resumed starts every solve where the undisturbed one does: from
another start the same solution may round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from threading import RLock
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import DataError, ProblemError
from pear.optimality.point import Status, TensorRecord
from pear.problem import Problem
from pear.problem.convert import MATRICES
from pear.problem.problem import FIELDS
from pear.solvers.active_set import layout
from pear.solvers.active_set.saved_starts import are_starts, without_large_inverses

Index = NDArray[np.int64]
Rows = TypeVar("Rows")


class WarmStarts:
    """Tables of rows by sample key. ``lock`` is held by whoever reads and writes them in one go."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._slot: dict[Hashable, int] = {}
        self._tables: dict[str, Table[Any]] = {}
        self._saved: dict[str, dict[str, Any]] = {}  # tables of a saved state that nobody has asked for yet
        self.failures = Failures()

    def __len__(self) -> int:
        return len(self._slot)

    def slots(self, keys: Iterable[Hashable]) -> Index:
        """(B,) the rows of these samples; a key that is new gets a row of its own."""
        return np.array([self._slot.setdefault(key, len(self._slot)) for key in keys], np.int64)

    def table(self, name: str, make: Callable[[int], Rows]) -> Table[Rows]:
        """The table of that name, with a row for every key so far.

        Args:
            name: of what it holds.
            make: makes that many empty rows.
        """
        if name not in self._tables:
            table = Table(make)
            if name in self._saved:
                table.load(self._saved[name])
            self._tables[name] = table
            self._saved.pop(name, None)
        self._tables[name].grow(len(self._slot))
        return self._tables[name]

    def has_saved(self, name: str) -> bool:
        """Whether there is a table of that name in the saved state, which nobody has asked for yet."""
        return name in self._saved

    def state(self) -> dict[str, Any]:
        """All that is kept, as arrays, numbers and texts; nothing where an id is not one of these, or a tuple of them.

        Inverses of bases that are too large for a file are left out, and computed afresh here as there.
        """
        keys = list(self._slot)
        if not all(_is_plain(key) for key in keys):
            return {}
        whole = all(type(key) is int and abs(key) < 1 << 63 for key in keys)
        tables = {name: table.state(len(keys)) for name, table in self._tables.items()}
        return {
            "keys": np.array(keys, np.int64) if whole else keys,
            "tables": {**self._saved, **tables},
            "failures": self.failures.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> WarmStarts:
        """What ``state`` was of.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        starts = cls()
        if state:
            keys = state["keys"].tolist() if isinstance(state["keys"], np.ndarray) else state["keys"]
            starts._slot = {key: slot for slot, key in enumerate(keys)}
            if len(starts._slot) != len(keys):
                raise ValueError("a sample comes twice among those with warm starts")
            starts._saved = {str(name): {"rows": t["rows"], "of": t["of"]} for name, t in state["tables"].items()}
            starts.failures = Failures.from_state(state["failures"])
        return starts

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: a copy starts empty, which costs time and changes no result."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


class Table(Generic[Rows]):
    """Rows of one kind, each with the fingerprint of the data it was computed from.

    Attributes:
        rows: whatever ``make`` makes: a tensor, a ``TensorRecord`` of tensors, or a tuple of arrays.
        fingerprints: (K, f) float64; NaN, which equals nothing, where there is no answer.
    """

    def __init__(self, make: Callable[[int], Rows]) -> None:
        self._make, self._size = make, 0
        self.rows = make(0)
        self.fingerprints: Tensor | None = None

    def grow(self, size: int) -> None:
        """Make room for ``size`` rows, at least doubling, so that filling a table costs one copy in the end."""
        if self._size >= size:
            return
        self._size = max(size, 2 * self._size)
        bigger = self._make(self._size)
        for new, old in zip(_leaves(bigger), _leaves(self.rows), strict=True):
            new[: len(old)] = old
        self.rows = bigger
        if self.fingerprints is not None:
            self.fingerprints = _grown(self.fingerprints, self._size)

    def state(self, count: int) -> dict[str, Any]:
        """The first ``count`` rows and their fingerprints."""
        rows: Any = self.rows
        if isinstance(rows, layout.Table):
            rows = without_large_inverses(rows, count)
        marks = None if self.fingerprints is None else self.fingerprints[:count]
        return {"rows": [part[:count] for part in _leaves(rows)], "of": marks}

    def load(self, state: Mapping[str, Any]) -> None:
        """Fill a new table with the rows of a saved state.

        Raises:
            DataError: they are not what such a table holds. Compiled code follows them without a question.
        """
        saved, marks = list(state["rows"]), state["of"]
        self.grow(max((len(part) for part in saved), default=0))
        own = list(_leaves(self.rows))
        fits = len(own) == len(saved) and all(_fits(old, new) for old, new in zip(saved, own, strict=True))
        if fits and isinstance(marks, Tensor):
            fits = marks.dtype == torch.float64 and marks.dim() == 2 and len(marks) == self._size
        if fits:
            for new, old in zip(own, saved, strict=True):
                new[: len(old)] = old
            self.fingerprints = None if marks is None else marks.to(_device(own[0]))
        if not fits or (isinstance(self.rows, layout.Table) and not are_starts(self.rows)):
            raise DataError(
                "the warm starts of the saved run are not those of this problem, or were altered; delete the file, or "
                "give another path"
            )

    def known(self, slots: Index, fingerprint: Tensor) -> Tensor:
        """(B,) bool: the rows that hold an answer for data with this fingerprint (B, f)."""
        if self.fingerprints is None or self.fingerprints.shape[1] != fingerprint.shape[1]:
            return torch.zeros(len(slots), dtype=torch.bool, device=fingerprint.device)
        return (self.fingerprints[self._index(slots)] == fingerprint).all(1)

    def answer(self, slots: Index, fingerprint: Tensor) -> Any | None:
        """The rows of these samples where all of them are answers for this very data, else None."""
        index = self._index(slots)
        return self.rows[index] if bool(self.known(slots, fingerprint).all()) else None  # type: ignore[index]

    def put(self, slots: Index, rows: Any, fingerprint: Tensor | None = None, good: Tensor | None = None) -> None:
        """Keep one row for each slot.

        Args:
            slots: (B,).
            rows: B of them.
            fingerprint: (B, f) of the data that they answer; without one they are warm starts only.
            good: (B,) bool, the rows that are answers; all where left out.
        """
        index = self._index(slots)
        if isinstance(self.rows, TensorRecord):
            self.rows.put(index, rows)
        else:
            self.rows[index] = rows  # type: ignore[index]
        if fingerprint is None:
            return
        if self.fingerprints is None or self.fingerprints.shape[1] != fingerprint.shape[1]:
            self.fingerprints = _grown(fingerprint[:0], self._size)
        keep = fingerprint if good is None else torch.where(good[:, None], fingerprint, torch.nan)
        self.fingerprints[index] = keep

    def _index(self, slots: Index) -> Tensor:
        first = next(_leaves(self.rows))
        return torch.from_numpy(slots).to(first.device)


class Failures:
    """The statuses of the samples that failed, each under the question, the sample's key and the data's fingerprint.

    They are few, so that a batch without any is recognised by its keys alone, and no fingerprint is computed.
    """

    def __init__(self) -> None:
        self._kept: dict[str, dict[Hashable, tuple[int, bytes]]] = {}

    def status(self, question: str, keys: list[Hashable], mark: Callable[[], Tensor]) -> Tensor | None:
        """(B,) int8: what is known of these samples, SOLVED where nothing is; None where nothing is of any.

        Args:
            question: what was asked about them.
            keys: B of them.
            mark: gives the (B, f) fingerprint of the data of the question.
        """
        kept = self._kept.get(question)
        hits = [i for i, key in enumerate(keys) if key in kept] if kept else []
        if not kept or not hits:
            return None
        status = [0] * len(keys)
        for i, row in zip(hits, _bytes(mark()[hits]), strict=True):
            name, data = kept[keys[i]]
            status[i] = name if row == data else 0
        return torch.tensor(status, dtype=torch.int8) if any(status) else None

    def put(self, question: str, keys: list[Hashable], status: Tensor, mark: Callable[[], Tensor]) -> None:
        """Keep the statuses (B,) other than SOLVED, and forget what was known of the other samples."""
        kept = self._kept.setdefault(question, {})
        names = status.tolist()
        bad = [i for i, name in enumerate(names) if name != 0]
        if kept:
            for key in keys:
                kept.pop(key, None)
        for i, row in zip(bad, _bytes(mark()[bad]) if bad else (), strict=True):
            kept[keys[i]] = names[i], row

    def state(self) -> dict[str, Any]:
        """All statuses, with the data as a text of hexadecimal digits."""
        return {name: [[key, int(s), row.hex()] for key, (s, row) in kept.items()] for name, kept in self._kept.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Failures:
        """What ``state`` was of."""
        found = cls()
        for name, rows in state.items():
            found._kept[name] = {key: (int(Status(status)), bytes.fromhex(row)) for key, status, row in rows}
        return found


def _bytes(rows: Tensor) -> list[bytes]:
    """The rows bit by bit, so that NaN equals itself."""
    return [row.tobytes() for row in rows.cpu().numpy()]


def fingerprint(cost: Tensor, smoothing: float, fields: Mapping[str, Any] | None = None) -> Tensor:
    """(B, f) float64, equal exactly where cost, smoothing and fields of two calls are equal.

    Vectors stand for themselves, a matrix for its product with a fixed random vector.

    Args:
        cost: (B, n).
        smoothing: λ.
        fields: what replaces the problem's own fields in this call, shared or per sample.
    """
    B = len(cost)
    parts = [cost.double(), cost.new_full((B, 1), smoothing, dtype=torch.float64)]
    for name, value in sorted((fields or {}).items()):
        parts.append(cost.new_full((B, 1), FIELDS.index(name), dtype=torch.float64))
        own = torch.as_tensor(value, dtype=torch.float64, device=cost.device).detach()
        own = own @ _probe(own.shape[-1], cost.device) if name in MATRICES else own
        parts.append((own if own.dim() == 2 else own.reshape(1, -1)).expand(B, -1))
    return torch.cat(parts, 1)


def curvature_mark(Q: Tensor) -> Tensor:
    """(B, n) what a curvature (B, n, n) is recognised by: its product with a fixed random vector."""
    return Q.detach() @ _probe(Q.shape[-1], Q.device)


def as_keys(keys: Tensor | Iterable[Hashable], batch: int) -> list[Hashable]:
    """Sample keys as a list; one distinct key per row."""
    ids = keys.tolist() if isinstance(keys, (Tensor, np.ndarray)) else list(keys)
    if any(isinstance(key, list) for key in ids):
        raise ProblemError(f"keys must be one id a sample; got an array of shape {tuple(keys.shape)}")  # type: ignore[union-attr]
    if len(ids) != batch:
        raise ProblemError(f"keys must name every sample: expected {batch}, got {len(ids)}")
    if len(set(ids)) != batch:
        raise ProblemError("keys must be distinct within a batch; a sample came twice")
    return ids


def rows_of(problem: Problem, keys: list[Hashable] | None) -> Problem:
    """The rows of a problem with fields per sample that the keys name; any other problem as it is."""
    if keys is None or problem.batch is None:
        return problem
    check_rows(problem, keys)
    return problem[torch.tensor(keys, device=problem.device)]


def check_rows(problem: Problem, keys: list[Hashable] | None) -> None:
    """Where samples have fields of their own, keys are row numbers."""
    if keys is None or problem.batch is None:
        return
    unknown = [i for i in keys if not isinstance(i, int) or not 0 <= i < problem.batch]
    if unknown:
        raise ProblemError(
            f"the problem has fields of its own for {problem.batch} samples, so that keys must be their row numbers, "
            f"0 to {problem.batch - 1}; got {unknown[0]!r}"
        )


def _probe(n: int, device: torch.device) -> Tensor:
    return torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)


def _is_plain(key: Hashable) -> bool:
    """Whether a file of numbers and texts can hold a sample's id."""
    return all(map(_is_plain, key)) if isinstance(key, tuple) else isinstance(key, (int, str))


def _fits(saved: Any, own: Any) -> bool:
    """Whether saved rows go into a table's; a column may be left out."""
    same = type(saved) is type(own) and saved.dtype == own.dtype and saved.shape[1:] == own.shape[1:]
    return bool(same and len(saved) in (0, len(own)))


def _device(rows: Any) -> torch.device:
    return rows.device if isinstance(rows, Tensor) else torch.device("cpu")


def _grown(old: Tensor, size: int) -> Tensor:
    new = old.new_full((size, old.shape[1]), torch.nan)
    new[: len(old)] = old
    return new


def _leaves(rows: Any) -> Iterator[Any]:
    """The arrays or tensors that hold the rows."""
    if isinstance(rows, TensorRecord):
        rows = tuple(vars(rows).values())
    if isinstance(rows, tuple):
        for part in rows:
            yield from _leaves(part)
    else:
        yield rows

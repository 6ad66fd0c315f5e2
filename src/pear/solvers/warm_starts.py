"""The store of warm starts, exact solutions and failures that is kept between calls.

Each sample has a key, and each key has a slot: the number of its row in every table of the store. A row can be a *warm
start*, which may be any point, because it is verified before it is used. A row can also be an *exact solution*, which
is used without a check if the fingerprint of the data has not changed. A *failure* is kept with a fingerprint too, so
that no solver runs again on a sample whose data has not changed.

Memory is bounded: if new keys would take the store beyond ``MOST_BYTES``, the store forgets all samples. This costs
time and changes no result. Calls whose keys never come again should have no keys.

The store can be saved. A resumed training then starts every solve from the same point as a training without
interruption. From another start, the same solution may have other rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from threading import RLock
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import DataError
from pear.optimality.tensor_record import TensorRecord
from pear.solvers.known_failures import KnownFailures

MOST_BYTES = 2 * 2**30
"""The number of bytes that the rows of all keys may take together."""

_KEY_BYTES = 200  # about the bytes of a key and its slot

Index = NDArray[np.int64]
Rows = TypeVar("Rows")


class WarmStarts:
    """The store of warm starts: tables with one row per sample key, and the known failures.

    Attributes:
        generation: how often the store has forgotten all samples. Slots of earlier generations are invalid.
        lock: held by callers while they make several reads and writes that belong together.
        failures: the known failures.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.lock = RLock()
        self._slot: dict[Hashable, int] = {}
        self._tables: dict[str, WarmStartTable[Any]] = {}
        self._saved: dict[str, dict[str, Any]] = {}  # tables of a restored state that have not been loaded
        self.failures = KnownFailures()

    def __len__(self) -> int:
        return len(self._slot)

    def slots(self, keys: Iterable[Hashable]) -> Index:
        """Return the slots (B,) of the samples. A new key gets a new slot.

        If the rows of old and new keys together would take more than ``MOST_BYTES``, all old samples are forgotten
        first.
        """
        keys = list(keys)
        known = [self._slot.get(key) for key in keys]
        if None not in known:
            return np.array(known, np.int64)
        count = len(self._slot) + sum(key not in self._slot for key in keys)
        if count > max(len(self._slot), len(keys)) and count * self._bytes_per_key() > MOST_BYTES:
            self._forget()
        return np.array([self._slot.setdefault(key, len(self._slot)) for key in keys], np.int64)

    def _bytes_per_key(self) -> float:
        """Return the number of bytes of one key in all tables together."""
        return _KEY_BYTES + sum(table.bytes_per_row() for table in self._tables.values())

    def _forget(self) -> None:
        """Drop all keys, their rows, and the known failures. The rows of saved tables belong to these keys, too."""
        generation, lock = self.generation + 1, self.lock
        self.__init__()  # type: ignore[misc]
        self.generation, self.lock = generation, lock

    def table(
        self,
        name: str,
        make: Callable[[int], Rows],
        trim: Callable[[Rows, int], Rows] | None = None,
        is_valid: Callable[[Rows], bool] | None = None,
    ) -> WarmStartTable[Rows]:
        """Return the table of this name, which has a row for every key so far.

        Args:
            name: the name of the table.
            make: returns a given number of empty rows.
            trim: takes the rows and how many of them are in use, and returns what to save in a file; None to save all.
            is_valid: returns whether rows from a file are valid; None if all are.
        """
        if name not in self._tables:
            table = WarmStartTable(make, trim, is_valid)
            if name in self._saved:
                table.load(self._saved[name])
            self._tables[name] = table
            self._saved.pop(name, None)
        self._tables[name].grow(len(self._slot))
        return self._tables[name]

    def has_saved(self, name: str) -> bool:
        """Return whether a restored state contains a table of this name that has not been loaded."""
        return name in self._saved

    def state(self) -> dict[str, Any]:
        """Return the content of the store as arrays, numbers and strings.

        The result is empty if some key is not an integer, a string or a tuple of integers and strings. Tables may leave
        out arrays that are too large for a file; these arrays are computed again when they are used.
        """
        keys = list(self._slot)
        if not all(is_plain_sample_key(key) for key in keys):
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
        """Rebuild a store from the result of ``state``.

        Raises:
            KeyError, TypeError, ValueError: the argument is not the state of a store.
        """
        starts = cls()
        if state:
            keys = state["keys"].tolist() if isinstance(state["keys"], np.ndarray) else state["keys"]
            starts._slot = {key: slot for slot, key in enumerate(keys)}
            if len(starts._slot) != len(keys):
                raise ValueError("a sample comes twice among those with warm starts")
            starts._saved = {str(name): {"rows": t["rows"], "of": t["of"]} for name, t in state["tables"].items()}
            starts.failures = KnownFailures.from_state(state["failures"])
        return starts

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state. A copied or unpickled store has no rows, which costs time and changes no result."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


class WarmStartTable(Generic[Rows]):
    """A table of the store: one row per sample, with the fingerprint of the data that the row was computed from.

    Args:
        make, trim, is_valid: see ``WarmStarts.table``.

    Attributes:
        rows: the rows, of the type that ``make`` returns: a tensor, a ``TensorRecord`` of tensors, or a tuple of
            arrays.
        fingerprints: (rows, f) float64, the f numbers of the data that each row solves exactly. They are NaN for a row
            that is only a warm start, so that no data matches. None until a fingerprint is stored.
    """

    def __init__(
        self,
        make: Callable[[int], Rows],
        trim: Callable[[Rows, int], Rows] | None = None,
        is_valid: Callable[[Rows], bool] | None = None,
    ) -> None:
        self._make, self._trim, self._is_valid, self._size = make, trim, is_valid, 0
        self.rows = make(0)
        self._bytes_per_row = 0.0  # without fingerprints
        self.fingerprints: Tensor | None = None

    def grow(self, size: int) -> None:
        """Make room for ``size`` rows. The room at least doubles, so that a growing table is seldom copied."""
        if self._size >= size:
            return
        self._size = max(size, 2 * self._size)
        bigger = self._make(self._size)
        for new, old in zip(_warm_start_arrays(bigger), _warm_start_arrays(self.rows), strict=True):
            new[: len(old)] = old
        self.rows = bigger
        self._bytes_per_row = sum(part.nbytes for part in _warm_start_arrays(bigger)) / self._size
        if self.fingerprints is not None:
            self.fingerprints = _grow_warm_starts(self.fingerprints, self._size)

    def bytes_per_row(self) -> float:
        """Return the number of bytes of a row and its fingerprint."""
        marks = 0 if self.fingerprints is None else self.fingerprints.nbytes / max(self._size, 1)
        return self._bytes_per_row + marks

    def state(self, count: int) -> dict[str, Any]:
        """Return the first ``count`` rows and their fingerprints."""
        rows: Any = self.rows if self._trim is None else self._trim(self.rows, count)
        marks = None if self.fingerprints is None else self.fingerprints[:count]
        return {"rows": [part[:count] for part in _warm_start_arrays(rows)], "of": marks}

    def load(self, state: Mapping[str, Any]) -> None:
        """Fill a new table with the rows of a saved state.

        Raises:
            DataError: the rows are not valid for this table, so that compiled code could read outside of its arrays.
        """
        saved, marks = list(state["rows"]), state["of"]
        self.grow(max((len(part) for part in saved), default=0))
        own = list(_warm_start_arrays(self.rows))
        fits = len(own) == len(saved) and all(
            _fits_warm_start_table(old, new) for old, new in zip(saved, own, strict=True)
        )
        if fits and isinstance(marks, Tensor):
            fits = marks.dtype == torch.float64 and marks.dim() == 2 and len(marks) == self._size
        if fits:
            for new, old in zip(own, saved, strict=True):
                new[: len(old)] = old
            self.fingerprints = None if marks is None else marks.to(_warm_start_device(own[0]))
        if not fits or (self._is_valid is not None and not self._is_valid(self.rows)):
            raise DataError(
                "the warm starts of the saved run are not those of this problem, or were altered; delete the file, or "
                "give another path"
            )

    def holds_exact(self, slots: Index, fingerprint: Tensor) -> Tensor:
        """Return whether the row of each sample is the exact solution for the sample's data. Shape (B,), bool.

        Args:
            slots: (B,) the slots of the samples.
            fingerprint: (B, f) the fingerprints of the data, f numbers each.
        """
        if self.fingerprints is None or self.fingerprints.shape[1] != fingerprint.shape[1]:
            return torch.zeros(len(slots), dtype=torch.bool, device=fingerprint.device)
        return (self.fingerprints[self._index(slots)] == fingerprint).all(1)

    def exact_rows(self, slots: Index, fingerprint: Tensor) -> Any | None:
        """Return the rows of these samples if all of them are exact solutions for this data, else None."""
        kept, index = self.fingerprints, self._index(slots)
        # torch.equal is False for NaN, the fingerprint of a row that is only a warm start
        exact = kept is not None and torch.equal(kept[index], fingerprint)
        return self.rows[index] if exact else None  # type: ignore[index]

    def put(self, slots: Index, rows: Any, fingerprint: Tensor | None = None, good: Tensor | None = None) -> None:
        """Store one row for each slot.

        Args:
            slots: (B,) slots.
            rows: the B new rows.
            fingerprint: (B, f) fingerprints, f numbers each, of the data that the rows solve exactly; None in a table
                whose rows are only warm starts.
            good: (B,) bool, True if a row is an exact solution; None if all are. Ignored if ``fingerprint`` is None.
        """
        index = self._index(slots)
        if isinstance(self.rows, TensorRecord):
            self.rows.put(index, rows)
        else:
            self.rows[index] = rows  # type: ignore[index]
        if fingerprint is None:
            return
        if self.fingerprints is None or self.fingerprints.shape[1] != fingerprint.shape[1]:
            self.fingerprints = _grow_warm_starts(fingerprint[:0], self._size)
        keep = fingerprint if good is None else torch.where(good[:, None], fingerprint, torch.nan)
        self.fingerprints[index] = keep

    def _index(self, slots: Index) -> Tensor:
        """Return the slots as a tensor on the device of the rows."""
        return torch.from_numpy(slots).to(_warm_start_device(next(_warm_start_arrays(self.rows))))


def is_plain_sample_key(key: Hashable) -> bool:
    """Return whether a sample's key can be saved: an integer, a string or a tuple of such keys."""
    return all(map(is_plain_sample_key, key)) if isinstance(key, tuple) else isinstance(key, (int, str))


def _fits_warm_start_table(saved: Any, own: Any) -> bool:
    """Return whether a saved array can fill an array of a table.

    It can if the types and the shapes of rows are equal, and it has as many rows as the table's array, or none.
    """
    same = type(saved) is type(own) and saved.dtype == own.dtype and saved.shape[1:] == own.shape[1:]
    return bool(same and len(saved) in (0, len(own)))


def _warm_start_device(rows: Any) -> torch.device:
    """Return the device of a tensor or array."""
    return rows.device if isinstance(rows, Tensor) else torch.device("cpu")


def _grow_warm_starts(old: Tensor, size: int) -> Tensor:
    """Return a tensor of ``size`` rows: those of ``old``, then rows of NaN."""
    new = old.new_full((size, old.shape[1]), torch.nan)
    new[: len(old)] = old
    return new


def _warm_start_arrays(rows: Any) -> Iterator[Any]:
    """Iterate over the arrays or tensors that contain the rows of a table."""
    if isinstance(rows, TensorRecord):
        rows = tuple(vars(rows).values())
    if isinstance(rows, tuple):
        for part in rows:
            yield from _warm_start_arrays(part)
    else:
        yield rows

"""A cache of bounded size, for plans and results that are kept between calls.

Every validation of a training needs the optimal decisions under the same true costs. Without the cache, each validation
would search again for the decisions that the last validation has found. Callers use the exact bytes of all data as
keys, so that two different problems never share an entry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """A dictionary that drops its least recently used entries when it becomes too large.

    Several threads may use it at the same time.

    Args:
        limit: the largest total size of the entries in bytes. The caller of ``put`` states the size of each entry.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, keys: Sequence[Hashable]) -> list[Value | None]:
        """Return the values of several keys, with None for each key that has no value."""
        with self._lock:
            found = [self._entries.get(key, (None, 0))[0] for key in keys]
            for key, value in zip(keys, found, strict=True):
                if value is not None:
                    self._entries.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Store a value. The value and its key take ``size`` bytes together."""
        with self._lock:
            self.used += size - self._entries.pop(key, (value, 0))[1]
            self._entries[key] = (value, size)
            while self.used > self.limit:
                self.used -= self._entries.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()
            self.used = 0

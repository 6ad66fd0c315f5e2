"""``TensorRecord``: the base class of dataclasses whose tensors share their first dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor


class TensorRecord:
    """The base class of dataclasses whose tensors share their first dimension.

    A row of a record is a row of each of its tensors. The methods select, overwrite, join and move rows. Fields may be
    other records.
    """

    def __getitem__(self, index: Any) -> Any:
        return self.map(lambda value: value[index])

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Return a copy with every tensor moved or converted as ``torch.Tensor.to`` does."""
        return self.map(lambda value: value.to(*args, **kwargs))

    @classmethod
    def cat(cls, parts: Sequence[Any]) -> Any:
        """Join records of plain tensors into one record with the rows of all ``parts``, in their order."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: torch.cat(column) for name, column in columns.items()})

    def put(self, index: Tensor, rows: Any) -> None:
        """Overwrite the rows at ``index`` in place with the rows of another record, ``rows``."""
        for f in fields(self):  # type: ignore[arg-type]
            mine, theirs = getattr(self, f.name), getattr(rows, f.name)
            if isinstance(mine, TensorRecord):
                mine.put(index, theirs)
            elif isinstance(mine, Tensor):
                mine[index] = theirs

    def tensors(self) -> list[Tensor]:
        """Return all tensors, in the order of the fields."""
        values = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        nested = [one.tensors() if isinstance(one, TensorRecord) else [one] for one in values]
        return [one for part in nested for one in part if isinstance(one, Tensor)]

    def map(self, function: Callable[[Tensor], Tensor]) -> Any:
        """Return a copy with ``function`` applied to every tensor."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

        def one(value: Any) -> Any:
            if isinstance(value, TensorRecord):
                return value.map(function)
            return function(value) if isinstance(value, Tensor) else value

        return type(self)(**{name: one(value) for name, value in values.items()})

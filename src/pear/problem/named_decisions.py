"""``NamedDecisions``: the decisions of a model, by the names of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pear.problem.pandas_data import to_pandas


class NamedDecisions(dict[str, Any]):
    """A dictionary of decisions by name, which also accepts the name of a single variable, such as ``charge[3]``.

    Args:
        parts: the decisions of each variable or array, (…) or (B, …), by the names in ``Model.layout``.
        z: (n,) or (B, n) all decisions.
        variables: the names of the n single variables.
        index: the pandas index of the B samples. The values of the dictionary are then pandas tables; with None they
            are tensors.
    """

    def __init__(self, parts: Mapping[str, Tensor], z: Tensor, variables: tuple[str, ...], index: Any = None) -> None:
        self._z, self._variables, self._index = z, variables, index
        super().__init__({name: self._with_index(part, name) for name, part in parts.items()})

    def __missing__(self, name: str) -> Any:
        if name not in self._variables:
            raise KeyError(name)
        return self._with_index(self._z[..., self._variables.index(name)], name)

    def _with_index(self, part: Tensor, name: str) -> Any:
        """Return decisions as a pandas table if the samples have an index, else as the tensor itself."""
        return part if self._index is None else to_pandas(part.numpy(), self._index, name)

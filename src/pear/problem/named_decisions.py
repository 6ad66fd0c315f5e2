"""``NamedDecisions``: the decisions of a model by the names of its variables."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class NamedDecisions(dict[str, Tensor]):
    """Decisions by name. A single variable of an array is found, too: ``charge[3]`` beside ``charge``.

    Args:
        parts: the decisions by the names of a model's layout.
        z: (n,) or (B, n) all decisions.
        variables: the names of the n variables.
    """

    def __init__(self, parts: Mapping[str, Tensor], z: Tensor, variables: tuple[str, ...]) -> None:
        super().__init__(parts)
        self._z, self._variables = z, variables

    def __missing__(self, name: str) -> Tensor:
        if name not in self._variables:
            raise KeyError(name)
        return self._z[..., self._variables.index(name)]

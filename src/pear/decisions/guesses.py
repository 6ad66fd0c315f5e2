"""The working sets that were tried in vain, so that no two solvers have the same one tried."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import ActiveSet


class Guesses:
    """Guessed working sets of the samples of a batch, and the solver whose candidate led to each first.

    Where the repair fails from a guess, it nearly always fails from the same guess of another solver: the candidates
    are equal to some digits. A more accurate candidate of the same solver is let through.
    """

    def __init__(self) -> None:
        self._in_vain: dict[tuple[int, bytes], str] = {}

    def __bool__(self) -> bool:
        """Whether any guess was tried in vain."""
        return bool(self._in_vain)

    def keep(self, index: Tensor, guess: ActiveSet, solver: str) -> None:
        """Note that the repair of a candidate of ``solver`` failed from the guesses (k, …) of the samples ``index``."""
        for name in _names(index, guess):
            self._in_vain.setdefault(name, solver)

    def tried(self, index: Tensor, guess: ActiveSet, solver: str) -> Tensor:
        """(k,) bool: guesses (k, …) of the samples ``index`` that another solver's candidate led to in vain."""
        found = torch.zeros(len(index), dtype=torch.bool, device=index.device)
        if self._in_vain:
            for k, name in enumerate(_names(index, guess)):
                found[k] = self._in_vain.get(name, solver) != solver
        return found


def _names(index: Tensor, guess: ActiveSet) -> list[tuple[int, bytes]]:
    rows = torch.cat([guess.rows, guess.lower, guess.upper], 1).cpu().numpy()
    return [(i, row.tobytes()) for i, row in zip(index.tolist(), rows, strict=True)]

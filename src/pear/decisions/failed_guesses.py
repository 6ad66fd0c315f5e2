"""The guessed working sets from which the repair has failed, so that none is tried again for another solver."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import ActiveSet


class FailedGuesses:
    """Guessed working sets of a batch's samples from which the repair failed, and the solver that led to each first.

    Where the repair fails from a guess, it nearly always fails from the same guess of another solver, because the
    candidates are equal to some digits. A more accurate candidate of the same solver is tried again.
    """

    def __init__(self) -> None:
        self._failed: dict[tuple[int, bytes], str] = {}

    def __bool__(self) -> bool:
        """Whether any guess has failed."""
        return bool(self._failed)

    def keep(self, index: Tensor, guess: ActiveSet, solver: str) -> None:
        """Keep the guesses (k, …) of the samples ``index`` from which repairing a candidate of ``solver`` failed."""
        for name in _names(index, guess):
            self._failed.setdefault(name, solver)

    def tried(self, index: Tensor, guess: ActiveSet, solver: str) -> Tensor:
        """(k,) bool: guesses (k, …) of the samples ``index`` that have failed for another solver's candidate."""
        found = torch.zeros(len(index), dtype=torch.bool, device=index.device)
        if self._failed:
            for k, name in enumerate(_names(index, guess)):
                found[k] = self._failed.get(name, solver) != solver
        return found


def _names(index: Tensor, guess: ActiveSet) -> list[tuple[int, bytes]]:
    rows = torch.cat([guess.rows, guess.lower, guess.upper], 1).cpu().numpy()
    return [(i, row.tobytes()) for i, row in zip(index.tolist(), rows, strict=True)]

"""``FailedGuesses``: working sets from which the repair has failed, so that it does not try them again."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet


class FailedGuesses:
    """Guessed working sets from which the repair failed, each with the name of the first solver that led to it.

    Where the repair fails from a guess, it nearly always fails from the same guess of another solver too, because both
    candidates agree to several digits. A more accurate candidate of the same solver is tried again.
    """

    def __init__(self) -> None:
        self._failed: dict[tuple[int, bytes], str] = {}

    def __bool__(self) -> bool:
        """Whether any guess has failed."""
        return bool(self._failed)

    def keep(self, index: Tensor, guess: ActiveSet, solver: str) -> None:
        """Store guesses that failed.

        Args:
            index: (k,) numbers of the samples.
            guess: (k, …) their guessed working sets.
            solver: the name of the solver whose candidates led to the guesses.
        """
        for name in _names(index, guess):
            self._failed.setdefault(name, solver)

    def tried(self, index: Tensor, guess: ActiveSet, solver: str) -> Tensor:
        """Return which guesses have already failed for a candidate of another solver, (k,) bool.

        Args:
            index: (k,) numbers of the samples.
            guess: (k, …) their guessed working sets.
            solver: the name of the solver whose candidates led to the guesses.
        """
        found = torch.zeros(len(index), dtype=torch.bool, device=index.device)
        if self._failed:
            for k, name in enumerate(_names(index, guess)):
                found[k] = self._failed.get(name, solver) != solver
        return found


def _names(index: Tensor, guess: ActiveSet) -> list[tuple[int, bytes]]:
    rows = torch.cat([guess.rows, guess.lower, guess.upper], 1).cpu().numpy()
    return [(i, row.tobytes()) for i, row in zip(index.tolist(), rows, strict=True)]

"""``GradientBatch``: a batch of programs for the gradient benchmark, with the exact gradients of some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pear_lab.benchmarks.exact_gradients import ExactGradients
from pear_lab.benchmarks.program_structures import Structure
from pear_lab.judge.judged_program import DIMENSIONS, Array, judged_programs
from pear_lab.judge.reference_solution import solve_reference

MOVE = 0.01
"""The relative change of costs between two visits of a sample."""


class GradientBatch:
    """Programs of one structure with n variables each, and the exact gradients of the first of them.

    The first sample with an exact gradient that exists and is not zero, if there is one, trades places with sample 0.
    The errors of a batch of one sample can then be measured, too.

    Args:
        structure: the structure of the programs.
        n: the number of variables.
        largest: the size of the largest batch. Smaller batches are its first samples.
        references: the number of first samples whose exact gradient is computed.
        seed: the seed of the random programs.

    Attributes:
        cost, true: (B, n) predicted and true costs, with B the larger one of ``largest`` and ``references``.
        moved: (B, n) slightly different predicted costs, as after a step of training.
        fields: the curvature and the constraints by the names of ``Problem``, shared or (B, …).
        smoothing: λ, which is added to the diagonal of the curvature.
        answers: the exact gradients at ``cost``.
        moved_answers: the exact gradients at ``moved``; None if warm starts of the structure are not measured.
    """

    def __init__(self, structure: Structure, n: int, largest: int, references: int, seed: int = 0) -> None:
        draws, steps = np.random.default_rng([seed, n]).spawn(2)
        drawn = max(largest, references)
        draw = structure.draw(draws, n, drawn)
        self.structure, self.smoothing, self.redundant = structure, draw.smoothing, draw.redundant
        self.cost, self.true, self.fields = draw.cost, draw.true, draw.fields
        self.moved = self.cost * (1 + MOVE * steps.normal(size=(drawn, n)))
        self.answers = self._solve_exactly(self.cost[:references])
        self.moved_answers = self._solve_exactly(self.moved[:references]) if structure.warm else None
        asked = [answers.comparable for answers in (self.answers, self.moved_answers) if answers is not None]
        if len(comparable := np.flatnonzero(np.all(asked, axis=0))):
            self._swap_first_sample(int(comparable[0]))

    @property
    def n(self) -> int:
        """The number of variables."""
        return int(self.cost.shape[1])

    @property
    def is_shared(self) -> bool:
        """Whether all samples share one problem, and only their costs differ."""
        return not any(map(self._is_own, self.fields))

    def part(self, batch: int) -> dict[str, Any]:
        """Return the fields of the problem for the first ``batch`` samples."""
        return {name: value[:batch] if self._is_own(name) else value for name, value in self.fields.items()}

    def tensors(self, batch: int, device: str) -> dict[str, Any]:
        """Return the fields of the first ``batch`` samples as tensors on a device. Scalars stay numbers."""
        return {
            name: value if isinstance(value, float) else torch.from_numpy(value).to(device)
            for name, value in self.part(batch).items()
        }

    def curvature(self, batch: int) -> Array:
        """Return the curvatures Q + λI of the first ``batch`` samples, (n, n) or (batch, n, n)."""
        Q = self.part(batch).get("Q", np.zeros((self.n, self.n)))
        return np.asarray(Q + self.smoothing * np.eye(self.n) if self.smoothing else Q)

    def data(self, batch: int) -> dict[str, Array]:
        """Return the first ``batch`` programs as arrays for another library.

        Absent fields are empty or infinite. Rows of A that follow from the others are left out.
        """
        n, part = self.n, self.part(batch)
        A, b = part.get("A", np.zeros((0, n))), part.get("b", np.zeros(0))
        kept = b.shape[-1] - self.redundant
        bounds = {
            name: np.broadcast_to(part.get(name, absent), (n,)).copy() if not self._is_own(name) else part[name]
            for name, absent in (("lb", -np.inf), ("ub", np.inf))
        }
        rows = {"A": A[..., :kept, :], "b": b[..., :kept], "G": part.get("G", np.zeros((0, n)))}
        limits = {"h": part.get("h", np.zeros(0)), **bounds}
        costs = {"cost": self.cost[:batch], "true": self.true[:batch]}
        return {"Q": self.curvature(batch), **rows, **limits, **costs}

    def _is_own(self, name: str) -> bool:
        """Return whether each sample has its own value of a field."""
        return np.ndim(self.fields.get(name, 0.0)) > DIMENSIONS[name]

    def _solve_exactly(self, cost: Array) -> ExactGradients:
        """Compute the exact gradients of the first k samples at costs (k, n)."""
        found = [
            solve_reference(program, "auto") for program in judged_programs(self.part(len(cost)), cost, self.smoothing)
        ]
        return ExactGradients.of(found, cost - self.true[: len(cost)])

    def _swap_first_sample(self, i: int) -> None:
        """Exchange the first sample with sample ``i``."""
        own = [value for name, value in self.fields.items() if self._is_own(name)]
        for part in (self.cost, self.true, self.moved, *own):
            part[[0, i]] = part[[i, 0]]
        for answers in (self.answers, self.moved_answers):
            if answers is not None:
                answers.swap(i)

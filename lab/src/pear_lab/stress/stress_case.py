"""``StressCase``: a batch of problems, and the forms in which the library and the judge take it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import scipy.sparse as sp

from pear.decisions.solution import Solution
from pear.optimality.duals_and_active_sets import Status
from pear_lab.judge.judge_answer import Answer
from pear_lab.judge.judged_program import DIMENSIONS, Array, JudgedProgram, Mask, judged_programs


@dataclass(frozen=True)
class StressCase:
    """A batch of B programs with n variables each, in arrays that have the names of the arguments of ``pear.Problem``.

    Attributes:
        family: the name of the family of the programs.
        cost, true: (B, n) predicted and true costs.
        fields: arguments of ``pear.Problem``, shared by the samples or with a leading dimension B.
        overrides: further arguments of ``pear.solve``. Gradients of a case with overrides are not examined.
        smoothing: λ, the strength of the smoothing term.
        sense: "min" or "max".
        integer: (n,) whether a variable is an integer; None if none is.
        sparse: whether ``pear.Problem`` gets SciPy's sparse matrices.
    """

    family: str
    cost: Array
    true: Array
    fields: dict[str, Array]
    overrides: dict[str, Array] = field(default_factory=dict)
    smoothing: float = 0.0
    sense: str = "min"
    integer: Mask | None = None
    sparse: bool = False

    @property
    def batch(self) -> int:
        """The number of samples B."""
        return len(self.cost)

    @property
    def n(self) -> int:
        """The number of variables."""
        return int(self.cost.shape[1])

    def only(self, i: int) -> StressCase:
        """Return the case with sample i alone."""

        def select(fields: dict[str, Array]) -> dict[str, Array]:
            return {k: v[i : i + 1] if v.ndim > DIMENSIONS[k] else v for k, v in fields.items()}

        rows = slice(i, i + 1)
        return replace(
            self,
            cost=self.cost[rows],
            true=self.true[rows],
            fields=select(self.fields),
            overrides=select(self.overrides),
        )

    def programs(self, cost: Array | None = None) -> list[JudgedProgram]:
        """Return the samples as the judge's programs, which are minimised.

        Args:
            cost: (B, n) the costs; the predicted ones if omitted.
        """
        fields = {**self.fields, **self.overrides}
        return judged_programs(fields, self.cost if cost is None else cost, self.smoothing, self.sense, self.integer)

    def problem_fields(self) -> dict[str, Any]:
        """Return the arguments of ``pear.Problem``."""
        fields: dict[str, Any] = dict(self.fields)
        if self.sparse:
            fields = {k: sp.csr_array(v) if v.ndim == 2 and DIMENSIONS[k] == 2 else v for k, v in fields.items()}
        return {**fields, "sense": self.sense, "n": self.n, "integer": self.integer}

    def answers(self, solution: Solution) -> list[Answer]:
        """Return one answer for each sample, in the judge's form, from the library's solution of the case."""
        sign = 1.0 if self.sense == "min" else -1.0
        duals: list[Any] = [(None, None, None)] * self.batch
        if solution.duals is not None:
            parts = (solution.duals.equality, solution.duals.inequality, solution.duals.bound)
            duals = list(zip(*(part.double().numpy() for part in parts), strict=True))
        columns = zip(
            solution.status.tolist(), solution.x.double().numpy(), solution.value.tolist(), duals, strict=True
        )
        return [Answer(Status(int(k)).name, x, sign * value, *y) for k, x, value, y in columns]

"""A batch of problems as the library gets it, and as the judge sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import scipy.sparse as sp

from pear_lab.judge.judged_program import DIMENSIONS, Array, JudgedProgram, Mask, judged_programs


@dataclass(frozen=True)
class Case:
    """A batch of B programs of equal shape, by the names ``pear.Problem`` has for their parts.

    Attributes:
        family: name of its family.
        cost, true: (B, n) predicted and true costs.
        fields: what the problem is made of, shared or with a leading dimension B.
        overrides: fields that are passed to ``pear.solve``; a case with any has no gradient.
        smoothing: λ.
        sense: "min" or "max".
        integer: (n,) bool, or None.
        sparse: the matrices are handed over in SciPy's sparse form.
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
        """Number of samples B."""
        return len(self.cost)

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self.cost.shape[1])

    def only(self, i: int) -> Case:
        """The case with sample i alone."""

        def one(fields: dict[str, Array]) -> dict[str, Array]:
            return {k: v[i : i + 1] if v.ndim > DIMENSIONS[k] else v for k, v in fields.items()}

        rows = slice(i, i + 1)
        return replace(
            self, cost=self.cost[rows], true=self.true[rows], fields=one(self.fields), overrides=one(self.overrides)
        )

    def programs(self, cost: Array | None = None) -> list[JudgedProgram]:
        """The samples as programs that are minimised, under ``cost`` (B, n) or the predicted costs."""
        fields = {**self.fields, **self.overrides}
        return judged_programs(fields, self.cost if cost is None else cost, self.smoothing, self.sense, self.integer)

    def problem_fields(self) -> dict[str, Any]:
        """Arguments of ``pear.Problem``."""
        fields: dict[str, Any] = dict(self.fields)
        if self.sparse:
            fields = {k: sp.csr_array(v) if v.ndim == 2 and DIMENSIONS[k] == 2 else v for k, v in fields.items()}
        return {**fields, "sense": self.sense, "n": self.n, "integer": self.integer}

"""What decisions under a forecast of right-hand sides come to, recourse included, on the problem as it is."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.decisions.recourse import RecourseDecider, decided
from pear.decisions.solve import fail, solve
from pear.problem import Model
from pear.problem.canonical import matvec
from pear.problem.keys import rows_of


class RecourseOutcome:
    """Called with predicted values (B, k): what the decisions under them lose.

    Args:
        model: with a constraint map; integers are integers.
        true: (B, k) what came true; the best decisions are found here, once.
        keys: B ids, rows of a problem or cost map with fields per sample.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        best: (B,) the value of the best decision, in the problem's own sense.

    Raises:
        SolveError: a sample has no best decision.
    """

    def __init__(self, model: Model, true: Tensor, keys: list[Hashable] | None = None, solver: str = "auto") -> None:
        self.model, self.keys, self.solver = model, keys, solver
        self._decider = RecourseDecider(model, solver)
        self._truth = self._decider.values(true.detach(), keys)
        elastic = model.elastic
        if model.problem.is_integer:
            fields = elastic.fields(self._truth.sides)
            x = solve(rows_of(elastic.problem, keys), elastic.cost(self._truth.cost), solver=solver, **fields).x
        else:
            best, status = self._decider.best(self._truth, keys)
            fail(status, "raise", "the true values")
            x = best.x
        self.best = self.value(x[:, : elastic.n])

    def value(self, z: Tensor) -> Tensor:
        """(B,) what decisions z (B, n) come to under the truth, in the problem's own sense.

        Raises:
            SolveError: recourse leads nowhere.
        """
        realised = self._decider.realise(z, self._truth, self.keys, wanted=False)
        fail(realised.status, "raise", "the recourse")
        x, program = realised.x, realised.program
        return self.model.problem.sign * (x * (0.5 * matvec(program.H, x) + program.c)).sum(1)

    def __call__(self, predicted: Tensor) -> Tensor:
        """(B,) what each decision loses; what rounding leaves below 0 is 0."""
        paid = self.value(decided(self.model, predicted, self.keys, self.solver))
        return (self.model.problem.sign * (paid - self.best)).clamp(min=0)


def best_status(model: Model, true: Tensor, keys: list[Hashable] | None) -> Tensor:
    """(B,) int8 of ``Status``: whether true values (B, k) have a best decision, on the continuous relaxation."""
    decider = RecourseDecider(model)
    return decider.best(decider.values(true.detach(), keys), keys)[1]

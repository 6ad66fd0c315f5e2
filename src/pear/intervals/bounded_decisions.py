"""``BoundedDecisions``: decisions with bounds on what they cost. Functions that turn decisions into tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pear.intervals.cost_residuals import Array
from pear.problem import Model, Problem
from pear.problem.pandas_data import is_pandas_frame
from pear.wording import format_amount, format_percent

Quantity = Literal["cost", "regret"]


@dataclass(frozen=True, eq=False, repr=False)
class BoundedDecisions:
    """B decisions, and bounds on what they will have cost when the truth is known.

    All amounts are values of the objective in the problem's own sense. If the problem maximises, they are gains.

    Attributes:
        decisions: (B, n) an array, or a DataFrame if the forecasts or features are one.
        planned: (B,) what each decision costs if its forecast comes true.
        lower, upper: (B,) bounds on the realised cost, or on the regret, of each decision. The lower bound of a regret
            is 0.
        level: the probability with which a cost or regret lies within its bounds, for each decision separately.
        of: "cost" or "regret", the quantity that is bounded.
        variables: names of the n variables.
    """

    decisions: Any
    planned: Array
    lower: Array
    upper: Array
    level: float
    of: Quantity
    variables: Sequence[Any]

    def __len__(self) -> int:
        return len(self.planned)

    def to_frame(self) -> Any:
        """Return a DataFrame with a row for each decision: planned cost, bounds, and then the variables."""
        bounds = {"planned cost": self.planned, f"lower {self.of}": self.lower, f"upper {self.of}": self.upper}
        return tabulate_decisions(bounds, self.decisions, self.variables)

    def __repr__(self) -> str:
        n = len(self.variables)
        return (
            f"BoundedDecisions({len(self)} of {n} variables; {self.of} within bounds {format_amount(self._width())} "
            f"apart on average, with probability {format_percent(self.level)})"
        )

    def _width(self) -> float:
        """Return the mean distance between lower and upper bound; NaN without decisions."""
        return float(np.mean(self.upper - self.lower)) if len(self) else float("nan")


def label_decisions(problem: Problem | Model, z: Array, rows: Any) -> tuple[Any, Sequence[Any]]:
    """Return decisions with the names of the variables, and with the index of the user's rows if these are a DataFrame.

    Args:
        problem: the decision problem.
        z: (B, n) decisions.
        rows: the user's features or forecasts.

    Returns:
        The decisions, as a DataFrame if ``rows`` is one with a row for each decision, and the names of the variables.
    """
    names = problem.variables if isinstance(problem, Model) else tuple(f"x{i}" for i in range(z.shape[1]))
    if not is_pandas_frame(rows) or len(rows) != len(z):
        return z, names
    import pandas

    return pandas.DataFrame(z, rows.index, list(names)), names


def tabulate_decisions(columns: Mapping[str, Array], decisions: Any, variables: Sequence[Any]) -> Any:
    """Return a DataFrame with a row for each of B decisions: the given columns (B,), and then the n variables."""
    import pandas

    if not isinstance(decisions, pandas.DataFrame):
        decisions = pandas.DataFrame(decisions, columns=list(variables))
    return pandas.concat([pandas.DataFrame(columns, index=decisions.index), decisions], axis=1)

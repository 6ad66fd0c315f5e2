"""``Rollout``: the costs, decisions and states of a simulated rollout, as arrays, a table and a picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.optional_packages import import_pandas

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Rollout:
    """The result of ``Rolling.simulate``: S steps, each of which carries out ``step`` periods.

    Attributes:
        cost: (S,) the realised cost of each step, or the profit if the model maximises.
        decisions: for each array of the plan the rows that were carried out, (S · step, …).
        states: for each state its values (S + 1, …) before the first step and after each step.
        status: (S,) int8 values of ``pear.Status``.
        start: (S,) the period at which each plan begins.
        period: (S · step,) the periods that were carried out.
        label: (S · step,) the labels of these periods: the index of a DataFrame, or the numbers of the periods.
        step: the number of periods that a step carries out.
        sense: "min" or "max".
    """

    cost: Array
    decisions: dict[str, Array]
    states: dict[str, Array]
    status: Array
    start: Array
    period: Array
    label: Array
    step: int
    sense: str

    @property
    def total(self) -> float:
        """The cost of all steps together, or the profit if the model maximises."""
        return float(self.cost.sum())

    @property
    def mean(self) -> float:
        """The mean cost of a step, or the mean profit if the model maximises."""
        return float(self.cost.mean())

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row for each step: cost, status, the states before the step, and the decisions.

        A state or decision with several numbers in a step has several columns: ``charge[0]``, ``charge[1]``, ….

        Raises:
            MissingExtraError: pandas is not installed.
        """
        tables = import_pandas("a table")
        steps = len(self.cost)
        columns: dict[str, Array] = {"cost": self.cost, "status": self.status}
        for name, values in self.states.items():
            columns |= _rollout_columns(f"{name} before", values[:-1].reshape(steps, -1))
        for name, values in self.decisions.items():
            columns |= _rollout_columns(name, values.reshape(steps, -1))
        table: pandas.DataFrame = tables.DataFrame(columns, tables.Index(self.label[:: self.step], name="period"))
        return table

    def plot(self, path: str | os.PathLike[str] | None = None, most: int = 240) -> Figure:
        """Draw the states and decisions of the last steps, and the cumulative cost of all steps.

        Args:
            path: a file to save the picture to, in the format that its name ends with.
            most: the largest number of steps whose states and decisions are drawn.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from pear.rolling.rollout_figure import draw_rollout_figure

        return draw_rollout_figure(self, None if path is None else Path(path), most)

    def __repr__(self) -> str:
        word = "cost" if self.sense == "min" else "value"
        return f"Rollout({len(self.cost)} steps, {word} {self.total:.6g}, {self.mean:.6g} a step)"


def _rollout_columns(name: str, values: Array) -> dict[str, Array]:
    """Return the q columns of an array (S, q) by name: ``name[0]``, ``name[1]``, …, or ``name`` if q is 1."""
    if values.shape[1] == 1:
        return {name: values[:, 0]}
    return {f"{name}[{i}]": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])}

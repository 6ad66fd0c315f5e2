"""``Rollout``: what a simulation of many steps cost, decided and reached, as arrays, a table and a picture."""

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
    """What happened in S steps of ``Rolling.simulate``, in each of which ``step`` periods are done.

    Attributes:
        cost: (S,) what each step really cost, in the model's own sense.
        decisions: for each array of the plan what was done, (S · step, …).
        states: for each state what was reached, (S + 1, …): before the first step, and after each.
        status: (S,) int8 of ``pear.Status``.
        start: (S,) the period at which each plan begins.
        period: (S · step,) the periods that are done.
        label: (S · step,) their labels: the index of a DataFrame, or the numbers of the periods.
        step: the number of periods that are done in a step.
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
        """What all steps cost together, in the model's own sense."""
        return float(self.cost.sum())

    @property
    def mean(self) -> float:
        """What a step cost on average."""
        return float(self.cost.mean())

    def to_frame(self) -> pandas.DataFrame:
        """A table with a row for each step: its cost, its status, the states it began with and what was done.

        Columns of what was done in a step of several periods, or of arrays, are named ``charge[0]``, ``charge[1]``, ….

        Raises:
            MissingExtraError: pandas is not installed.
        """
        tables = import_pandas("a table")
        steps = len(self.cost)
        columns: dict[str, Array] = {"cost": self.cost, "status": self.status}
        for name, values in self.states.items():
            columns |= _columns(f"{name} before", values[:-1].reshape(steps, -1))
        for name, values in self.decisions.items():
            columns |= _columns(name, values.reshape(steps, -1))
        table: pandas.DataFrame = tables.DataFrame(columns, tables.Index(self.label[:: self.step], name="period"))
        return table

    def plot(self, path: str | os.PathLike[str] | None = None, most: int = 240) -> Figure:
        """Draw states, what was done in the last steps, and the cost summed up.

        Args:
            path: a file to save the picture to, in the format that its name ends with.
            most: the number of steps that are drawn one by one.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from pear.rolling.rollout_figure import draw_rollout

        return draw_rollout(self, None if path is None else Path(path), most)

    def __repr__(self) -> str:
        word = "cost" if self.sense == "min" else "value"
        return f"Rollout({len(self.cost)} steps, {word} {self.total:.6g}, {self.mean:.6g} a step)"


def _columns(name: str, values: Array) -> dict[str, Array]:
    """The columns of an array (S, q) by name; a single one has the plain name."""
    if values.shape[1] == 1:
        return {name: values[:, 0]}
    return {f"{name}[{i}]": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])}

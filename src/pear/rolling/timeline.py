"""``Timeline``: the period of every variable, row and predicted value of a model."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model
from pear.problem.indexed_names import group_indexed_names, indexed_layout
from pear.problem.matrix import to_csr_matrix
from pear.wording import list_names

BEFORE = -1
"""The period of a variable that is the state at the beginning of a plan."""

_UNKNOWN = -2


class Timeline:
    """The period of each variable, row and predicted value of a model, which their names determine.

    A predicted value ``price[3]`` belongs to period 3. An array of variables has a row for each of the T periods, or
    T + 1 rows. In the second case row 0 is the initial state, and row i belongs to period i − 1. A variable whose name
    has no period, such as those that CVXPY adds, belongs to the latest period of the variables that it shares rows
    with, if these variables belong to one period or to two consecutive periods.

    Args:
        model: the model of a plan.
        horizon: T; the length of the predicted series if omitted.

    Attributes:
        model: the model.
        horizon: T.
        series: for each predicted series the positions (T, …) of its values among the k predicted values.
        arrays: for each array of variables with periods its columns, (T, …) or (T + 1, …).

    Example:
        >>> import pear
        >>> names = ["charge[0]", "charge[1]", "level[0]", "level[1]", "level[2]"]
        >>> cost_map = pear.CostMap([[1.0, 0.0], [0.0, 1.0]] + [[0.0, 0.0]] * 3, names=["price[0]", "price[1]"])
        >>> timeline = Timeline(pear.Model(pear.Problem(lb=0, ub=1, n=5), variables=names, cost_map=cost_map))
        >>> timeline.horizon, timeline.periods.tolist()
        (2, [0, 1, -1, 0, 1])
    """

    def __init__(self, model: Model, horizon: int | None = None) -> None:
        self.model = model
        series = _group_timeline_columns(model.names)
        if not series and model.inputs == (horizon or model.inputs):
            series = {"value": torch.arange(model.inputs)}
        self.horizon = _read_timeline_horizon(series, horizon)
        self.series = {name: at for name, at in series.items() if len(at) == self.horizon}
        named = sum(at.numel() for at in self.series.values())
        if named != model.inputs:
            stray = [
                n for i, n in enumerate(model.names) if not any(bool((at == i).any()) for at in self.series.values())
            ]
            raise ProblemError(
                f"every predicted value must belong to one of the {self.horizon} periods; {list_names(stray)} does not"
                ". Name predicted values by period, price[0], price[1], …, or pass horizon="
            )
        found = dict(model.layout)
        if not any(at.ndim for at in found.values()):
            found = indexed_layout(model.variables)
        lengths = (self.horizon, self.horizon + 1)
        self.arrays = {name: at for name, at in found.items() if at.ndim and len(at) in lengths}

    @cached_property
    def periods(self) -> Tensor:
        """(n,) the period of each variable: −1 for the initial state, ``horizon`` if the period is not known."""
        periods = torch.full((self.model.problem.n,), _UNKNOWN)
        for at in self.arrays.values():
            first = self.horizon - len(at)  # −1 for arrays that hold the beginning as well
            when = torch.arange(first, self.horizon).reshape(-1, *[1] * (at.ndim - 1))
            periods[at] = when.expand(at.shape)
        return self._place_others(periods)

    @cached_property
    def row_periods(self) -> dict[str, Tensor]:
        """For "A" (p,) and "G" (m,), the latest of the ``periods`` of each row's variables; −1 for an empty row."""
        found = {}
        for name in ("A", "G"):
            matrix = getattr(self.model.problem, name)
            if matrix is None:
                found[name] = torch.zeros(0, dtype=torch.int64)
                continue
            pattern = to_csr_matrix(matrix if matrix.ndim == 2 else matrix.abs().sum(0)).tocoo()
            last = torch.full((pattern.shape[0],), BEFORE)
            rows, columns = (torch.from_numpy(part).long() for part in (pattern.row, pattern.col))
            found[name] = last.scatter_reduce(
                0, rows[pattern.data != 0], self.periods[columns[pattern.data != 0]], "amax"
            )
        return found

    def _place_others(self, periods: Tensor) -> Tensor:
        """Return the periods (n,) of all variables, given those that names determine.

        The period of any other variable is the latest period of the variables with known periods that it shares rows
        with, first rows of A, then rows of G. Rows do not count if these variables are more than one period apart. A
        variable for which neither kind of rows gives a period gets ``horizon``.
        """
        problem = self.model.problem
        for name in ("A", "G"):
            matrix = getattr(problem, name)
            if matrix is None or not bool((periods == _UNKNOWN).any()):
                continue
            csr = to_csr_matrix(matrix if matrix.ndim == 2 else matrix.abs().sum(0))
            for j in (periods == _UNKNOWN).nonzero()[:, 0].tolist():
                rows = csr[:, [j]].nonzero()[0]
                beside = periods[torch.from_numpy(csr[rows].nonzero()[1]).long()] if len(rows) else periods[:0]
                beside = beside[beside != _UNKNOWN]
                if len(beside) and int(beside.max() - beside.min()) <= 1:
                    periods[j] = beside.max()
        return torch.where(periods == _UNKNOWN, self.horizon, periods)


def _group_timeline_columns(names: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the positions of predicted values by the name of their series.

    A value may be called ``price[0]`` or ``price 0``.
    """
    square = [
        f"{head}[{tail}]" if head and tail.isdigit() else name
        for name in names
        for head, _, tail in [name.rpartition(" ")]
    ]
    return {
        name: torch.from_numpy(one.positions.reshape(one.shape)) for name, one in group_indexed_names(square).items()
    }


def _read_timeline_horizon(series: dict[str, Tensor], given: int | None) -> int:
    """Return the number of periods of a plan.

    Args:
        series: the positions of predicted values by the names of their series.
        given: the number that the user gave, or None.

    Raises:
        ProblemError: the given number is not the length of a series; or none is given, and no length is
            common to all series.
    """
    lengths = {name: len(at) for name, at in series.items()}
    if given is None and len(set(lengths.values())) == 1:
        return next(iter(lengths.values()))
    if given is None or given not in lengths.values():
        said = (
            ", ".join(f"{name} has {length}" for name, length in lengths.items()) or "no predicted value has an index"
        )
        raise ProblemError(
            f"the number of periods of a plan must be that of its predicted values; {said}; "
            + ("pass horizon=" if given is None else f"got horizon={given}")
        )
    return given

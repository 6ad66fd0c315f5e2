"""``StateEntry``: where a state enters a plan, and which variables of the plan have its next value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model
from pear.problem.matrix import to_csr_matrix
from pear.rolling.timeline import Timeline
from pear.wording import list_names

_ROW = re.compile(r"(?P<name>.+?)[\[(](?P<row>-?\d+)(?P<more>(?:, ?-?\d+)*)[\])]")
"""The name of a row of an array, such as ``level[0]`` or ``level(1)``, or of a variable, such as ``level[0,2]``."""

Field = Literal["known", "b", "h", "bounds"]


@dataclass(frozen=True)
class StateEntry:
    """The place at which a state, such as the level of a battery, enters a plan, and the place of its next value.

    Attributes:
        name: the user's name of the state.
        shape: the shape of the state, () for a number.
        field: what the state sets: "known" for known values, "b" or "h" for right-hand sides, "bounds" for lb and ub.
        at: (q,) the q positions that the state sets, among the known numbers, the rows or the variables.
        factor: (q,) the factors by which the entries of the state are multiplied before they are set at ``at``.
        fixed: the variables that are equal to the state at the beginning of a plan, (q,) or empty.
        after: (q,) the variables that have the value of the state when the next plan begins; None if a function of the
            user computes it.
        own: (q,) the value of the state in the model; None for a known value.
    """

    name: str
    shape: tuple[int, ...]
    field: Field
    at: Tensor
    factor: Tensor
    fixed: Tensor
    after: Tensor | None
    own: Tensor | None

    @property
    def size(self) -> int:
        """The number of entries of the state, q."""
        return len(self.at)

    def flatten(self, state: Mapping[str, Tensor] | None) -> Tensor:
        """Return the entries (B, q) of this state, given all states by name."""
        assert state is not None
        return state[self.name].reshape(-1, self.size)


def read_states(timeline: Timeline, state: Mapping[str, str], step: int, carried: bool) -> tuple[StateEntry, ...]:
    """Return where each state enters the next plan, and where the plan has its next value.

    Args:
        timeline: the periods of the model.
        state: for each planned array that is a state, where its value enters the next plan.
        step: the number of periods that are carried out in each step.
        carried: whether the plan determines the next states. Otherwise a function of the user does.

    Raises:
        ProblemError: a name is not in the model, or the model does not fix the variable at which a state enters.
    """
    if not isinstance(state, Mapping) or not state:
        raise ProblemError(
            'state must be a dictionary from what is planned to where it enters the next plan, such as {"level": '
            f'"level[0]"}}; got {state!r}'
        )
    return tuple(_read_state(timeline, name, entry, step, carried) for name, entry in state.items())


def _read_state(timeline: Timeline, name: str, entry: str, step: int, carried: bool) -> StateEntry:
    """Return where the state ``name`` enters the next plan. The other arguments are those of ``read_states``.

    ``entry`` is the user's name of the place: a known value, a variable, an array or a row.
    """
    model = timeline.model
    after, shape = _find_planned_state(timeline, name, entry, step) if carried else (None, None)
    known = [] if model.known_map is None else [one.name for one in model.known_map.values]
    columns = find_state_columns(timeline, entry)
    if entry in known:
        field, at, factor, fixed, own, enters = _known_state_entry(model, entry)
    elif columns is not None:
        field, at, factor, fixed, own, enters = _variable_state_entry(model, entry, columns)
    elif entry in model.constraints:
        field, at, factor, fixed, own, enters = _row_state_entry(model, entry)
    else:
        there = [*known, *timeline.arrays, *model.constraints]
        firsts = [model.variables[int(at.flatten()[0])] for at in timeline.arrays.values()]
        raise ProblemError(
            f"the state {name!r} enters at {entry!r}, which is no known value, variable or row of the model; expected "
            f"one of {list_names(there)}, or an entry such as {next(iter(firsts), 'level[0]')}"
        )
    if after is not None and (after.numel() != len(at) or shape != enters):
        raise ProblemError(
            f"the state {name!r} has shape {shape} in the plan and enters at {entry!r}, of shape {enters}; make them "
            "equal"
        )
    return StateEntry(name, enters, field, at, factor, fixed, None if after is None else after.flatten(), own)


_Entry = tuple[Field, Tensor, Tensor, Tensor, Tensor | None, tuple[int, ...]]


def find_state_columns(timeline: Timeline, name: str) -> Tensor | None:
    """Return the columns of a variable, of an array, or of a row of an array such as ``level[0]``; None if unknown."""
    if name in timeline.arrays:
        return timeline.arrays[name]
    if name in timeline.model.layout:
        return timeline.model.layout[name]
    if name in timeline.model.variables:
        return torch.tensor(timeline.model.variables.index(name))
    found = _find_array_row(timeline, name)
    return None if found is None else timeline.arrays[found[0]][found[1]]


def _find_array_row(timeline: Timeline, name: str) -> tuple[str, int] | None:
    """Return the array that contains the row ``name``, such as ``level[0]``, and the position of the row in the array.

    The index in the name is that of the variables' names, which may begin with 1. A negative index counts from the end.

    Returns:
        None if no array has such a row.
    """
    match = _ROW.fullmatch(name)
    if match is None or match["more"] or match["name"] not in timeline.arrays:
        return None
    at, row = timeline.arrays[match["name"]], int(match["row"])
    named = [_ROW.fullmatch(timeline.model.variables[int(line.flatten()[0])]) for line in at]
    labels = [int(one["row"]) for one in named if one is not None and one["name"] == match["name"]]
    if labels != sorted({*labels}) or len(labels) != len(at):
        labels = list(range(len(at)))
    if row in labels:
        return match["name"], labels.index(row)
    return (match["name"], len(at) + row) if -len(at) <= row < 0 else None


def _find_planned_state(timeline: Timeline, name: str, entry: str, step: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the columns that have the value of the state ``name`` after ``step`` periods, and the shape of the state.

    ``entry`` is the place where the state enters the next plan.
    """
    columns = find_state_columns(timeline, name)
    if columns is None:
        raise ProblemError(
            f"the state {name!r} is no array of the model, of {timeline.horizon} or {timeline.horizon + 1} rows; "
            f"expected one of {list_names(list(timeline.arrays))}, or pass transition=, a function that says what the "
            "next state is"
        )
    if name in timeline.arrays:
        enters = _find_array_row(timeline, entry)
        first = enters[1] if enters is not None and enters[0] == name else len(columns) - timeline.horizon - 1
        if not 0 <= first + step < len(columns):
            raise ProblemError(f"the plan has no row {first + step} of {name!r} to carry on; it has {len(columns)}")
        columns = columns[first + step]
    return columns, tuple(columns.shape)


def _known_state_entry(model: Model, entry: str) -> _Entry:
    """Return the place of a state that enters a plan as ``entry``, a known value of the model.

    Returns:
        The fields ``field``, ``at``, ``factor``, ``fixed``, ``own`` and ``shape`` of a ``StateEntry``.
    """
    assert model.known_map is not None
    first = 0
    for one in model.known_map.values:
        if one.name == entry:
            break
        first += one.size
    at = torch.arange(first, first + one.size)
    fixed = torch.zeros(0, dtype=torch.int64)
    matrix = model.known_map.matrix("b")
    if matrix is not None and model.problem.A is not None:
        touched = torch.from_numpy(abs(to_csr_matrix(matrix)[:, at.numpy()]).sum(1) > 0)
        singles = _find_state_rows(model)
        fixed = torch.tensor([column for row, (column, _) in singles.items() if touched[row]], dtype=torch.int64)
    return "known", at, torch.ones(one.size, dtype=torch.float64), fixed, None, one.shape


def _variable_state_entry(model: Model, entry: str, columns: Tensor) -> _Entry:
    """Return the place of a state that enters a plan as the value of the variables ``columns``.

    The model fixes these variables by rows or by bounds.

    Returns:
        The fields ``field``, ``at``, ``factor``, ``fixed``, ``own`` and ``shape`` of a ``StateEntry``.
    """
    problem, shape, columns = model.problem, tuple(columns.shape), columns.flatten()
    rows = {column: (row, factor) for row, (column, factor) in _find_state_rows(model).items()}
    if all(j in rows for j in columns.tolist()) and problem.b is not None:
        at = torch.tensor([rows[j][0] for j in columns.tolist()])
        factor = torch.tensor([rows[j][1] for j in columns.tolist()], dtype=torch.float64)
        return "b", at, factor, columns, problem.b[..., at] / factor, shape
    if problem.lb is not None and problem.ub is not None and bool((problem.lb == problem.ub)[..., columns].all()):
        return (
            "bounds",
            columns,
            torch.ones(len(columns), dtype=torch.float64),
            columns,
            problem.lb[..., columns],
            shape,
        )
    raise ProblemError(
        f"the state enters at {entry!r}, and the model does not fix this variable; add a row such as {entry} == start, "
        "or bounds that coincide"
    )


def _row_state_entry(model: Model, entry: str) -> _Entry:
    """Return the place of a state that enters a plan as the right-hand side of the row ``entry``.

    A row with a lower limit is stored with reversed signs, and so is the state.

    Returns:
        The fields ``field``, ``at``, ``factor``, ``fixed``, ``own`` and ``shape`` of a ``StateEntry``.
    """
    problem, number = model.problem, model.constraints.index(entry)
    p = 0 if problem.b is None else problem.b.shape[-1]
    field: Field = "b" if number < p else "h"
    at = torch.tensor([number if number < p else number - p])
    sign = model.constraint_signs[number] if model.constraint_signs else 1
    if not sign:
        raise ProblemError(
            f"the state enters at the row {entry!r} of a CVXPY model, where constants may be on either side of a "
            "constraint; write the state as a cp.Parameter, pass it to from_cvxpy in known=, and name it here"
        )
    own = sign * getattr(problem, field)[..., at]
    single = _find_state_rows(model).get(number) if field == "b" else None
    fixed = torch.tensor([] if single is None else [single[0]], dtype=torch.int64)
    return field, at, torch.tensor([sign], dtype=torch.float64), fixed, own, ()


def _find_state_rows(model: Model) -> dict[int, tuple[int, float]]:
    """Return the equalities with a single variable: from row numbers to the variable's column and coefficient."""
    if model.problem.A is None or model.problem.A.ndim == 3:
        return {}
    csr = to_csr_matrix(model.problem.A)
    csr.eliminate_zeros()
    starts, columns, entries = csr.indptr, csr.indices, csr.data
    single = [row for row in range(csr.shape[0]) if starts[row + 1] - starts[row] == 1]
    return {row: (int(columns[starts[row]]), float(entries[starts[row]])) for row in single}

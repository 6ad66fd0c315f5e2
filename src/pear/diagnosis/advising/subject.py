"""What advice is about: the first sample's problem in SciPy's and numpy's form, and the samples that can be used."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.diagnosis.advising.finding import Finding, counted
from pear.errors import ProblemError
from pear.problem import Model, Problem
from pear.problem.convert import as_batch, is_per_sample
from pear.problem.model import inputs_of, plain_of, recourse_model
from pear.problem.problem import FIELDS
from pear.problem.sparse import SparseMatrix
from pear.problem.tables import check_order_of_values, column_names
from pear.train.samples.features import read_rows
from pear.train.validation import own_rows

Array = NDArray[np.float64]


class Clock:
    """How much time is left of so many seconds."""

    def __init__(self, limit: float) -> None:
        self._end = time.perf_counter() + limit

    def left(self) -> float:
        """Seconds, never negative."""
        return max(0.0, self._end - time.perf_counter())


@dataclass(frozen=True)
class Subject:
    """A problem and its samples.

    Attributes:
        given: what the user passed, on its own device, with the rows of ``values``.
        problem: the plain problem, on the CPU.
        values: (N, k) predicted values of finite samples, or None where there are none.
        costs: (N, n) the costs that they make, or None.
        A, G: (p, n) and (m, n) CSR, of the first sample.
        Q: (n, n) CSR of the first sample, or None.
        b, h, lb, ub: (p,), (m,), (n,), (n,) of the first sample; absent bounds are infinite.
        rows: names of the rows of A and then of G.
        variables: n names; names: of the k predicted values.
        per_sample: fields that differ from sample to sample.
        recourse: the model where right-hand sides are predicted, or None; ``problem`` then has the true ones.
        notes: about samples that are left out.
    """

    given: Problem | Model
    problem: Problem
    values: Tensor | None
    costs: Tensor | None
    A: Any
    G: Any
    Q: Any
    b: Array
    h: Array
    lb: Array
    ub: Array
    rows: tuple[str, ...]
    variables: tuple[str, ...]
    names: tuple[str, ...]
    per_sample: tuple[str, ...]
    recourse: Model | None
    notes: tuple[Finding, ...]

    @property
    def n(self) -> int:
        """Number of variables."""
        return self.problem.n

    @property
    def samples(self) -> int:
        """Number of samples that can be used."""
        return 0 if self.values is None else len(self.values)

    @property
    def problem_device(self) -> torch.device:
        """Where the user's problem lives."""
        return plain_of(self.given).device

    @property
    def first(self) -> str:
        """What to add to a sentence about matrices that differ from sample to sample."""
        return ", in the first sample" if self.per_sample else ""


def read_subject(problem: Problem | Model, costs: Any) -> Subject:
    """Problem and costs as the parts of the advice take them.

    Args:
        problem: as of ``pear.advise``.
        costs: the same.

    Raises:
        ProblemError: it is no problem, or the costs do not fit it.
    """
    plain_of(problem)  # which refuses anything else
    columns = tuple(map(str, getattr(costs, "columns", ())))
    values, note = _values(problem, costs)
    problem, values, notes = _finite(problem, values)
    here, recourse = plain_of(problem).to("cpu"), recourse_model(problem)
    if recourse is not None and values is not None:
        here = here._with(**recourse.right_hand_sides(values), batch=len(values))
    mapped = problem.cost(values) if isinstance(problem, Model) and values is not None else values
    matrices = {name: _matrix(getattr(here, name), here.n) for name in ("A", "G", "Q")}
    vectors = {name: _vector(getattr(here, name)) for name in ("b", "h", "lb", "ub")}
    infinite = np.full(here.n, np.inf)
    named = problem if isinstance(problem, Model) else Model(here, variables=columns)
    rows = tuple(f"{name}[{i}]" for name in ("A", "G") for i in range(matrices[name].shape[0]))
    return Subject(
        given=problem,
        problem=here,
        values=values,
        costs=mapped,
        A=matrices["A"],
        G=matrices["G"],
        Q=None if here.Q is None else matrices["Q"],
        b=vectors["b"],
        h=vectors["h"],
        lb=-infinite if here.lb is None else vectors["lb"],
        ub=infinite if here.ub is None else vectors["ub"],
        rows=named.constraints if len(named.constraints) == len(rows) else rows,
        variables=named.variables,
        names=named.names,
        per_sample=tuple(f for f in FIELDS if (v := getattr(here, f)) is not None and is_per_sample(f, v)),
        recourse=recourse,
        notes=(*note, *notes),
    )


def _values(problem: Problem | Model, costs: Any) -> tuple[Tensor | None, tuple[Finding, ...]]:
    """(N, k) predicted values in float64 on the CPU; the model's own costs stand in where none are given."""
    if costs is None:
        own = problem.known if isinstance(problem, Model) and problem.cost_map is None else None
        if own is None or not bool(own.any()):
            said = "No costs were given: what depends on them is left out; pass a row for each sample as costs."
            return None, (Finding("samples", said, to_do=True),)
        said = "No costs were given: the model's own stand in, as one sample; pass a row for each sample as costs."
        return own.double().cpu().reshape(1, -1), (Finding("samples", said, to_do=True),)
    check_order_of_values(problem, column_names(costs), "costs")
    tensor = read_rows(costs, "costs").detach().cpu()
    values = as_batch(tensor, "costs").double()
    wanted, own_samples = inputs_of(problem), own_rows(problem)
    if values.shape[1] != wanted:
        raise ProblemError(
            f"costs must have shape (N, {wanted}), a column for each predicted value of the problem; got "
            f"{tuple(tensor.shape)}"
        )
    if own_samples is not None and own_samples != len(values):
        raise ProblemError(
            f"the problem has fields of its own for {own_samples} samples, and {len(values)} rows of costs came; pass "
            "a row for each of them"
        )
    return values, ()


def _finite(
    problem: Problem | Model, values: Tensor | None
) -> tuple[Problem | Model, Tensor | None, tuple[Finding, ...]]:
    """Problem and values without the samples that hold NaN or infinity."""
    if values is None:
        return problem, None, ()
    good = values.isfinite().all(1)
    bad = int((~good).sum())
    if not bad:
        return (problem, values, ()) if len(values) else (problem, None, ())
    said = (
        f"{counted(bad, 'sample')} of {len(values):,} hold NaN or infinity and are left out; drop these rows, or train "
        "with on_failure='mask'."
    )
    note = Finding("samples", said, {"samples_not_finite": bad}, to_do=True)
    if bad == len(values):
        return problem, None, (note,)
    return problem[good], values[good], (note,)


def _matrix(field: Any, n: int) -> Any:
    """(r, n) CSR of the first sample, without stored zeros; no rows where there is no field."""
    if field is None:
        return sparse.csr_array((0, n))
    if isinstance(field, SparseMatrix):
        return field.csr
    return sparse.csr_array((field[0] if field.ndim == 3 else field).numpy())


def _vector(field: Tensor | None) -> Array:
    if field is None:
        return np.zeros(0)
    array: Array = (field[0] if field.ndim == 2 else field).numpy()
    return array


def evenly(total: int, count: int) -> Tensor:
    """At most ``count`` row numbers, evenly spread over ``total`` rows.

    Example:
        >>> evenly(10, 3).tolist(), evenly(2, 3).tolist()
        ([0, 4, 9], [0, 1])
    """
    return torch.linspace(0, total - 1, min(total, count), dtype=torch.float64).round().long()

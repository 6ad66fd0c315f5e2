"""``AdviceSubject``: the problem and the samples that ``pear.advise`` examines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.diagnosis.advising.findings import Finding
from pear.errors import ProblemError
from pear.problem import Model, Problem
from pear.problem.matrix import to_csr_matrix
from pear.problem.model import model_input_count, model_with_predicted_rows, problem_of_model
from pear.problem.oracle import program_of_oracle
from pear.problem.pandas_data import check_pandas_columns, pandas_columns
from pear.problem.problem_fields import FIELDS, is_field_per_sample
from pear.problem.sample_keys import count_keyed_samples
from pear.problem.tensor_conversion import to_batch_tensor
from pear.train.samples.sample_rows import read_sample_rows
from pear.wording import count_noun

Array = NDArray[np.float64]


class AdviceSubject:
    """A problem and its N samples, in the form that all examinations of ``pear.advise`` use.

    Matrices, right-hand sides and bounds are those of the first sample.

    Args:
        problem: the argument ``problem`` of ``pear.advise``.
        costs: the argument ``costs`` of ``pear.advise``.

    Attributes:
        given: the user's problem on its own device, restricted to the samples of ``values``; for an ``Oracle``, its
            relaxation.
        problem: the problem without names and maps, on the CPU. Predicted right-hand sides, coefficients and curvature
            have their true values.
        n: number of variables.
        values: (N, k) the true values of the k numbers to predict; None if there are no samples. Samples with NaN or
            infinity are left out.
        costs: (N, n) the costs that follow from the values; None if there are no samples.
        samples: N, the number of samples.
        A: (p, n) CSR matrix of the equalities.
        G: (m, n) CSR matrix of the inequalities.
        Q: (n, n) CSR matrix of the quadratic objective, or None.
        b: (p,) right-hand sides of A.
        h: (m,) right-hand sides of G.
        lb, ub: (n,) bounds; infinite for variables without a bound.
        rows: names of the rows of A and then of G.
        variables: names of the n variables.
        names: names of the k values.
        per_sample: names of the fields that differ from sample to sample.
        first: the end of a sentence about the matrices: ", in the first sample" if samples differ, otherwise empty.
        recourse: the model if it predicts right-hand sides, otherwise None.
        notes: findings about samples that are missing or left out.

    Raises:
        ProblemError: ``problem`` is not a problem, or the costs do not fit it.
    """

    def __init__(self, problem: Problem | Model, costs: Any) -> None:
        problem = program_of_oracle(problem, "advise")  # raises for anything that is not a problem
        columns = tuple(map(str, getattr(costs, "columns", ())))
        values, self.notes = (
            _known_model_costs(problem) if costs is None else (_read_subject_values(problem, costs), [])
        )
        if values is not None:
            problem, values, dropped = _drop_unusable_samples(problem, values)
            self.notes += dropped
        here, self.recourse = problem_of_model(problem).to("cpu"), model_with_predicted_rows(problem)
        if self.recourse is not None and values is not None:
            here = here._with(
                **self.recourse.right_hand_sides(values), **self.recourse.coefficients(values), batch=len(values)
            )
        if isinstance(problem, Model) and problem.curvature_map is not None and values is not None:
            here = here._with(Q=problem.curvature(values), batch=len(values))
        self.given, self.problem, self.n = problem, here, here.n
        self.values, self.samples = values, 0 if values is None else len(values)
        self.costs = problem.cost(values) if isinstance(problem, Model) and values is not None else values
        self.A, self.G = (_first_sample_matrix(field, here.n) for field in (here.A, here.G))
        self.Q: Any = None if here.Q is None else _first_sample_matrix(here.Q, here.n)
        self.b, self.h = (_first_sample_vector(field, np.zeros(0)) for field in (here.b, here.h))
        self.lb = _first_sample_vector(here.lb, np.full(here.n, -np.inf))
        self.ub = _first_sample_vector(here.ub, np.full(here.n, np.inf))
        named = problem if isinstance(problem, Model) else Model(here, variables=columns)
        self.variables, self.names = named.variables, named.names
        rows = tuple(f"{name}[{i}]" for name, M in (("A", self.A), ("G", self.G)) for i in range(M.shape[0]))
        self.rows = named.constraints if len(named.constraints) == len(rows) else rows
        self.per_sample = [f for f in FIELDS if (v := getattr(here, f)) is not None and is_field_per_sample(f, v)]
        self.first = ", in the first sample" if self.per_sample else ""


def _known_model_costs(problem: Problem | Model) -> tuple[Tensor | None, list[Finding]]:
    """Return the known costs of a model, for calls of ``pear.advise`` without costs.

    Returns:
        The model's costs as one sample (1, n), or None if it has none or all are zero; and a list with one finding,
        which says that no costs were given.
    """
    own = problem.known if isinstance(problem, Model) and problem.cost_map is None else None
    there = own is not None and bool(own.any())
    then = "the model's own stand in, as one sample" if there else "what depends on them is left out"
    note = Finding("samples", f"No costs were given: {then}; pass a row for each sample as costs.", to_do=True)
    return own.double().cpu().reshape(1, -1) if own is not None and there else None, [note]


def _read_subject_values(problem: Problem | Model, costs: Any) -> Tensor:
    """Return ``costs`` as a tensor (N, k), float64 on the CPU: N samples of k values.

    Raise ``ProblemError`` for a wrong shape.
    """
    check_pandas_columns(problem, pandas_columns(costs), "costs")
    tensor = read_sample_rows(costs, "costs").detach().cpu()
    values = to_batch_tensor(tensor, "costs").double()
    wanted, own_samples = model_input_count(problem), count_keyed_samples(problem)
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
    return values


def _drop_unusable_samples(
    problem: Problem | Model, values: Tensor
) -> tuple[Problem | Model, Tensor | None, list[Finding]]:
    """Drop the samples whose values contain NaN or infinity.

    Args:
        problem: the problem or model.
        values: (N, k) the k values of each of N samples.

    Returns:
        The problem restricted to the remaining samples; the values of these samples, or None if none remain; and a list
        with a finding on the dropped samples, empty if none were dropped. If none remain, the problem is not
        restricted.
    """
    good = values.isfinite().all(1)
    bad = int((~good).sum())
    if not bad:
        return problem, values if len(values) else None, []
    said = (
        f"{count_noun(bad, 'sample')} of {len(values):,} hold NaN or infinity and are left out; drop these rows, or "
        "train with on_failure='mask'."
    )
    note = Finding("samples", said, {"samples_not_finite": bad}, to_do=True)
    if bad == len(values):
        return problem, None, [note]
    return problem[good], values[good], [note]


def _first_sample_matrix(field: Any, n: int) -> Any:
    """Return the first sample's matrix as a CSR matrix (r, n). If ``field`` is None, the matrix has 0 rows."""
    if field is None:
        return sparse.csr_array((0, n))
    return to_csr_matrix(field[0] if field.ndim == 3 else field)


def _first_sample_vector(field: Tensor | None, absent: Array) -> Array:
    """Return a vector field of the first sample.

    Args:
        field: r numbers, (r,), if all samples share the field, (N, r) with a row for each sample, or None.
        absent: the result if the field is None.

    Returns:
        (r,) an array.
    """
    if field is None:
        return absent
    array: Array = (field[0] if field.ndim == 2 else field).numpy()
    return array

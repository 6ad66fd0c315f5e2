"""``pear.diagnose``: read predicted and true values, and make a ``Diagnosis`` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.decisions.solution import Solution
from pear.decisions.solve import solve
from pear.diagnosis.constraint_prices import name_constraints, price_constraints
from pear.diagnosis.constraint_violations import name_violations
from pear.diagnosis.decision_path import ACCURACY, follow_decisions
from pear.diagnosis.diagnosis import Diagnosis, name_group_column
from pear.diagnosis.diagnosis_sentences import describe_diagnosis
from pear.diagnosis.error_split import split_error
from pear.diagnosis.recourse_attribution import RecourseAttribution
from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.losses.recourse_outcome import RecourseOutcome
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Oracle, Problem
from pear.problem.constraint_map import refuse_constraint_coefficients
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_with_predicted_rows, split_cost_model
from pear.problem.pandas_data import check_pandas_order, check_pandas_rows, named_pandas_index, pandas_columns
from pear.problem.tensor_conversion import to_batch_tensor
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.setting_checks import check_smoothing_setting
from pear.solvers.backend_registry import check_solver_name


def diagnose(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    groups: Any = None,
    names: Sequence[Any] | None = None,
    smoothing: float | Literal["auto"] = "auto",
    solver: str = "auto",
    known: Any = None,
) -> Diagnosis:
    """Measure what the errors of a forecast cost, and which errors cause the cost. No gradient is needed.

    The regret of every sample is attributed to the predicted values. With e = ĉ − c the parts are
    ``a = e ∘ (z̄ − z*(ĉ))``, where z̄ is the mean of the decisions under ``c + t e``, t from 0 to 1. They add up to the
    regret exactly. They are the gradient of regret, integrated from the true to the predicted cost: ½ eⱼ gⱼ where the
    active set stays the same. Of a model that predicts right-hand sides, too, the parts are followed in up to 16 steps
    from truth to forecast, and what violations cost under the truth is part of the regret.

    Args:
        problem: the decision problem. Integers stay integers. A ``Model`` maps predicted values (B, k) to costs and
            right-hand sides. Of an ``Oracle``, whose function decides, constraints are not known, and its relaxation
            splits the squared error.
        predicted: (B, n) predicted costs, or (B, k) predicted values: a tensor, array, DataFrame or list.
        true: the true costs or values, of the same shape.
        groups: (B,) a label for each sample, or dates, which are grouped by hour, month or weekday.
        names: names of the predicted values; left out, those of the columns or of the model.
        smoothing: λ of the smoothed problem at which the squared error is split; "auto" as ``PEARLoss`` picks it.
        solver: "auto" or a name that ``pear solvers`` lists.
        known: the known values of each sample, if the model has any; see ``Model.with_known``.

    Raises:
        SolveError: a sample has no decision under the forecast or under the truth; the message names it.
        ProblemError: shapes, names or groups do not fit.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> print(pear.diagnose(choose_one, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 3.0]]).sentences[0])
        The decisions lose 100 % of the best value (2 of 2); all of it in 1 of 2 samples.
    """
    check_smoothing_setting(smoothing)
    check_solver_name(solver)
    problem = fill_known_samples(problem, known, predicted)
    given = DiagnosisInputs(problem, predicted, true, names)
    check_pandas_rows({"true": true, "predicted": predicted, "groups": groups})
    labels, grouped_by = read_groups(groups, len(given.true))
    if given.recourse is None:
        arrays, about, outcome, notes = _diagnose_costs(problem, given, smoothing, solver)
    else:
        arrays, about, outcome, notes = _diagnose_recourse(given.recourse, given, solver)
    arrays |= {"regret": outcome.regret, "best": outcome.best, "predicted": given.predicted, "true": given.true}
    found = Diagnosis(
        **{name: value.cpu().numpy() for name, value in arrays.items()},  # type: ignore[arg-type]
        sentences=[],
        normalized_regret=outcome.normalized,
        **about,
        names=given.names,
        variables=given.variables,
        groups=labels,
        grouped_by=name_group_column(grouped_by),
        sense=given.problem.sense,
        integer=given.problem.is_integer,
        index=named_pandas_index(true, predicted, groups),
    )
    found.sentences.extend([*describe_diagnosis(found), *notes])
    return found


def _diagnose_costs(
    problem: Problem | Model, given: DiagnosisInputs, smoothing: float | Literal["auto"], solver: str
) -> tuple[dict[str, Tensor], dict[str, Any], RegretOutcome, list[str]]:
    """Diagnose predicted costs.

    Returns:
        Tensors and other attributes of a ``Diagnosis``, regrets and best values, and sentences on what is not known.
    """
    costs = given.predicted_cost, given.true_cost
    chosen, best = (_decide_as_judged(given.problem, cost, solver) for cost in costs)
    judged = RegretOutcome.of_decisions(given.problem, chosen.x, best.x, given.true_cost)
    attributed, notes = _attribute_regret(given, judged.regret, best.x, chosen.x, solver)
    parts_of_error, about, more = _diagnose_program(problem, given, chosen, best, smoothing, solver)
    arrays = {**attributed, **parts_of_error, "decision": chosen.x, "best_decision": best.x}
    return arrays, about, judged, [*notes, *more]


def _diagnose_recourse(
    model: Model, given: DiagnosisInputs, solver: str
) -> tuple[dict[str, Tensor], dict[str, Any], RegretOutcome, list[str]]:
    """Diagnose a model that predicts right-hand sides; returns the same as ``_diagnose_costs``."""
    score = RecourseOutcome(model, given.true, solver=solver)
    z = score.decide(given.predicted)
    judged = RegretOutcome(score.regret(z), score.best)
    ideal = model.problem.sign * judged.best
    attribution = RecourseAttribution(model, given.predicted, given.true, z, ideal, solver)
    attributed, notes = attribution.attribute(judged.regret)
    violated, best_violated = (name_violations(model, given.names, one, given.true) for one in (z, score.best_decision))
    arrays = {**attributed, **_unsplit_error(len(z)), "decision": z, "best_decision": score.best_decision}
    arrays |= {"violation": violated.amount, "violation_cost": violated.cost}
    arrays |= {"best_violation_cost": best_violated.cost}
    about = _no_constraints(len(z)) | {
        "violation_names": violated.names,
        "violation_kinds": violated.kinds,
        "linear": not model.problem.is_curved,
        "smoothing": "nothing is smoothed",
    }
    notes.append(
        "The model predicts right-hand sides: the parts of the squared error, margins and the prices of constraints "
        "are not found."
    )
    return arrays, about, judged, notes


def _diagnose_program(
    problem: Problem | Model,
    given: DiagnosisInputs,
    chosen: Solution | VerifiedSolutions,
    best: Solution | VerifiedSolutions,
    smoothing: float | Literal["auto"],
    solver: str,
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    """Find what the constraints tell: the parts of the squared error, which constraints bind, and their prices.

    Args:
        problem: the problem with its names.
        given: the predicted and true values.
        chosen, best: the decisions under the forecast and under the truth.
        smoothing, solver: arguments of ``diagnose``.

    Returns:
        Tensors and other attributes of a ``Diagnosis``, and sentences on what could not be found.
    """
    if not given.problem.has_program:
        return _diagnose_oracle(given, smoothing, solver)
    relaxed, costs = given.problem.relaxed(), (given.predicted_cost, given.true_cost)
    parts_of_error, note = split_error(relaxed, *costs, smoothing, solver)
    qp = relaxed.canonical(given.true_cost)
    constraints = name_constraints(problem, qp, given.variables)
    (binding, price), (best_binding, best_price) = (
        price_constraints(relaxed, cost, solver, constraints) for cost in costs
    )
    about = {
        "constraint_names": constraints.names,
        "constraint_kinds": constraints.kinds,
        "binding": binding,
        "shadow_price": price,
        "best_binding": best_binding,
        "best_shadow_price": best_price,
        "active": constraints.active(chosen.active, qp.p),
        "best_active": constraints.active(best.active, qp.p),
        "linear": given.problem.phi is None and qp.is_linear,
        "smoothing": note,
    }
    return parts_of_error, about, []


def _diagnose_oracle(
    given: DiagnosisInputs, smoothing: float | Literal["auto"], solver: str
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    """Examine forecasts under an oracle: its relaxation splits the squared error; constraints are not known."""
    oracle, count = given.problem, len(given.true)
    assert isinstance(oracle, Oracle)
    notes = ["An oracle decides: whether its decisions are optimal is not checked, and its constraints are not known."]
    if isinstance(oracle.relaxation, Problem):
        costs = given.predicted_cost, given.true_cost
        parts, note = split_error(oracle.relaxed(), *costs, smoothing, solver)
        notes.append("The squared error is split on its relaxation.")
    else:
        parts, note = _unsplit_error(count), "there is no program"
    return parts, {**_no_constraints(count), "linear": not oracle.is_curved, "smoothing": note}, notes


def _unsplit_error(count: int) -> dict[str, Tensor]:
    """Return the fields of a ``Diagnosis`` for a squared error that cannot be split: NaN and False, (count,) each."""
    unknown, no = torch.full((count,), torch.nan), torch.zeros(count, dtype=torch.bool)
    names = ("squared_error", "tangent", "normal", "tangent_at_forecast")
    return dict.fromkeys(names, unknown) | {"zero_gradient": no, "degenerate": no}


def _no_constraints(count: int) -> dict[str, Any]:
    """Return what a ``Diagnosis`` of ``count`` samples says of constraints where nothing is known about them."""
    nothing: dict[str, Any] = {name: np.zeros(0) for name in ("binding", "shadow_price", "best_binding")}
    nothing |= {"best_shadow_price": np.zeros(0), "constraint_names": (), "constraint_kinds": ()}
    return nothing | {name: np.zeros((count, 0), dtype=bool) for name in ("active", "best_active")}


def _decide_as_judged(problem: Problem, cost: Tensor, solver: str) -> Solution | VerifiedSolutions:
    """Compute the optimal decisions for costs (B, n), in the same way as ``pear.regret`` computes them."""
    if problem.is_integer or not problem.has_program:
        return solve(problem, cost, solver=solver)
    solved = solve_continuous_programs(problem, cost, 0.0, solver)
    report_failures(solved.status, "raise", "the problem")
    return solved


def _attribute_regret(
    given: DiagnosisInputs, regret: Tensor, best: Tensor, chosen: Tensor, solver: str
) -> tuple[dict[str, Tensor], list[str]]:
    """Attribute regret (B,) to the predicted values.

    Returns:
        The attributes ``attribution``, ``attributed``, ``margin`` and ``pieces`` of a ``Diagnosis``, and sentences on
        the samples whose regret is not attributed.
    """
    curved_oracle = not given.problem.has_program and given.problem.is_curved
    if given.problem.phi is not None or curved_oracle:
        nothing = torch.full_like(given.true, torch.nan)
        unknown = torch.zeros(len(regret), dtype=torch.bool)
        note = "The objective has a smooth term φ, under which decisions move along curves: regret is not attributed."
        if curved_oracle:
            note = (
                "The objective of the oracle is curved, and its decisions are not followed: regret is not attributed."
            )
        empty = {"attribution": nothing, "attributed": unknown, "margin": nothing[:, 0], "pieces": unknown.long()}
        return empty, [note]
    path = follow_decisions(given.problem, given.true_cost, given.predicted_cost, best, chosen, solver)
    gradient = given.problem.sign * (path.mean - chosen)
    if given.cost_map is not None:
        gradient = given.cost_map.pull_back(gradient)
    parts = (given.predicted - given.true) * gradient
    known = path.found & ((parts.sum(1) - regret).abs() <= ACCURACY * path.size)
    notes = []
    if not bool(known.all()):
        notes.append(
            f"The regret of {int((~known).sum())} samples is not attributed: their decisions between truth and "
            "forecast could not be followed to the end."
        )
    attributed = {
        "attribution": torch.where(known[:, None], parts, torch.nan),
        "attributed": known,
        "margin": torch.where(path.found, path.margin, torch.nan),
        "pieces": path.pieces,
    }
    return attributed, notes


class DiagnosisInputs:
    """Predicted and true values, and the costs that they make, in float64.

    Args:
        problem: the argument ``problem`` of ``pear.diagnose``.
        predicted: the argument ``predicted`` of ``pear.diagnose``.
        true: the argument ``true`` of ``pear.diagnose``.
        names: the argument ``names`` of ``pear.diagnose``.

    Attributes:
        problem: the plain problem.
        recourse: the model, where it predicts right-hand sides; else None.
        cost_map: map from values to costs, or None.
        predicted: (B, k) predicted values.
        true: (B, k) true values.
        predicted_cost: (B, n) costs of the predicted values.
        true_cost: (B, n) costs of the true values.
        names: names of the k values.
        variables: names of the n variables.

    Raises:
        ProblemError: shapes, columns or names do not fit.
    """

    def __init__(self, problem: Problem | Model, predicted: Any, true: Any, names: Sequence[Any] | None) -> None:
        self.recourse = model_with_predicted_rows(problem)
        if self.recourse is None:
            self.problem, self.cost_map = split_cost_model(problem)
        else:
            refuse_constraint_coefficients(self.recourse.constraint_map, "a diagnosis")
            self.problem, self.cost_map = self.recourse.problem, self.recourse.cost_map
        check_pandas_order(problem, predicted, true)
        columns = [pandas_columns(table) for table in (predicted, true)]
        device, n = self.problem.device, self.problem.n
        self.predicted, self.true = (to_batch_tensor(table).detach().double().to(device) for table in (predicted, true))
        check_cost_pair(self.predicted, self.true)
        if not len(self.true):
            raise ProblemError("there is no sample to diagnose; pass one row of predicted and true values at least")
        self.predicted_cost, self.true_cost = (
            values if self.cost_map is None else self.cost_map(values) for values in (self.predicted, self.true)
        )
        model = problem if isinstance(problem, Model) else None
        self.variables = tuple(f"x{i}" for i in range(n)) if model is None else model.variables
        inherited = tuple(f"c{i}" for i in range(n)) if model is None else model.names
        given = columns[0] or columns[1] or inherited if names is None else names
        self.names = tuple(str(name) for name in given)
        count = self.true.shape[1]
        if len(self.names) != count:
            raise ProblemError(f"names must name the {count} predicted values; got {len(self.names)} names")


def read_groups(groups: Any, count: int) -> tuple[NDArray[Any] | None, str]:
    """Read a label for each sample.

    Dates are grouped by the hour of day where it varies, else by month where they span more than one, else by weekday.

    Returns:
        (B,) the labels, or None, and what they are: "group", the name of the column, or "hour of day" and so on.

    Raises:
        ProblemError: there are not as many labels as samples, or one is missing.
    """
    if groups is None:
        return None, ""
    named = getattr(groups, "name", None)
    labels = groups.to_numpy() if hasattr(groups, "to_numpy") else np.asarray(groups)
    if labels.shape != (count,):
        raise ProblemError(f"groups must have one label for each of the {count} samples; got shape {labels.shape}")
    # Check a list before NumPy converts it: NumPy turns a NaN between texts into a text.
    _check_labels(groups if isinstance(groups, list | tuple) else labels)
    if not _are_dates(labels):
        return labels, "group" if named is None else str(named)
    if labels.dtype.kind != "M":  # the local time that a clock showed, whatever its zone
        labels = np.array([date.replace(tzinfo=None) if getattr(date, "tzinfo", None) else date for date in labels])
    dates = labels.astype("datetime64[s]")
    days = dates.astype("datetime64[D]")
    hours = (dates - days).astype("timedelta64[h]").astype(int)
    months = dates.astype("datetime64[M]")
    if len(np.unique(hours)) > 1:
        return hours, "hour of day"
    if len(np.unique(months)) > 1:
        return months.astype(str), "month"
    week = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])
    return week[(days.astype(int) + 3) % 7], "weekday"  # 1 January 1970 was a Thursday


def _check_labels(labels: Any) -> None:
    """Raise an error for None, NaN, NaT and pandas' NA; the message names the first such sample."""
    for i, label in enumerate(labels):
        if label is None or type(label).__name__ == "NAType" or bool(label != label):
            raise ProblemError(
                f"sample {i} has no group, but {label}; give every sample a label, or leave it out of predicted, true "
                "and groups"
            )


def _are_dates(labels: NDArray[Any]) -> bool:
    """Return whether the labels (B,) are dates: a datetime array, or objects that all have ``isoformat``."""
    objects = labels.dtype.kind == "O" and len(labels) > 0
    return labels.dtype.kind == "M" or (objects and all(hasattr(one, "isoformat") for one in labels))

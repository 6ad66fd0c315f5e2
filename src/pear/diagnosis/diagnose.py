"""``pear.diagnose``: measures what the errors of a forecast cost, and returns a ``Diagnosis``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.decisions.solution import Solution
from pear.decisions.solve import solve
from pear.diagnosis.constraint_prices import PricedConstraints, unknown_constraint_prices
from pear.diagnosis.constraint_violations import name_violations
from pear.diagnosis.cost_attribution import attribute_cost_errors
from pear.diagnosis.diagnosis import Diagnosis, name_diagnosis_groups
from pear.diagnosis.diagnosis_inputs import DiagnosisInputs, read_input_groups
from pear.diagnosis.diagnosis_sentences import describe_diagnosis
from pear.diagnosis.error_split import split_error, unsplit_error
from pear.diagnosis.recourse_attribution import RecourseAttribution
from pear.losses.recourse_judge import RecourseJudge
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Oracle, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.pandas_data import check_pandas_rows, named_pandas_index
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

    The regret of every sample is attributed to the predicted values. Let c be the true and ĉ the predicted cost, and
    e = ĉ − c the error. Let ẑ be the decision under ĉ, and z̄ the mean of the decisions under ``c + t e`` for t from 0
    to 1. The part of cost j is ``e_j (z̄_j − ẑ_j)``, with the opposite sign if the problem maximises. If a cost map M
    computes the costs, the part of value j is its error times entry j of ``Mᵀ(z̄ − ẑ)``. The parts are the gradient of
    regret, integrated from truth to forecast, and add up to the regret exactly. If the active set does not change
    between c and ĉ, each part is half the product of the error and the gradient at ĉ.

    The squared error of every sample is split into a part that moves the smoothed decision and a part that the
    constraints absorb (see ``Diagnosis``).

    For a model that also predicts right-hand sides, the regret includes the cost of violations under the truth. Its
    parts come from up to 16 steps between truth and forecast, and the squared error is not split.

    Args:
        problem: the decision problem. Integers stay integers. A ``Model`` maps predicted values (B, k) to costs and
            right-hand sides. The constraints of an ``Oracle`` are not known; the squared error is split on its
            relaxation.
        predicted: (B, n) predicted costs, or (B, k) predicted values: a tensor, array, DataFrame or list.
        true: the true costs or values, of the same shape as ``predicted``.
        groups: (B,) a label for each sample, or dates. Dates are grouped by the hour of the day if it varies, otherwise
            by the month if it varies, otherwise by the weekday.
        names: names of the predicted values; if omitted, those of the columns or of the model.
        smoothing: the smoothing λ of the problem by which the squared error is split; "auto" chooses λ as ``PEARLoss``
            does. The attribution of regret is not smoothed.
        solver: "auto" or a name that ``pear solvers`` lists.
        known: the known values of each sample, if the model has any; see ``Model.with_known``.

    Raises:
        SolveError: a sample has no decision under the forecast or under the truth; the message names the sample.
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
    labels, grouped_by = read_input_groups(groups, len(given.true))
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
        grouped_by=name_diagnosis_groups(grouped_by),
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

    Args:
        problem: the decision problem with its names.
        given: the predicted and true values.
        smoothing, solver: arguments of ``diagnose``.

    Returns:
        The fields of a ``Diagnosis`` that are tensors, its other fields, regrets and best values, and sentences on what
        is not known.
    """
    costs = given.predicted_cost, given.true_cost
    chosen, best = (_decide_for_diagnosis(given.problem, cost, solver) for cost in costs)
    judged = RegretOutcome.of_decisions(given.problem, chosen.x, best.x, given.true_cost)
    attributed, notes = attribute_cost_errors(given, judged.regret, best.x, chosen.x, solver)
    parts_of_error, about, more = _diagnose_program(problem, given, chosen, best, smoothing, solver)
    arrays = {**attributed, **parts_of_error, "decision": chosen.x, "best_decision": best.x}
    return arrays, about, judged, [*notes, *more]


def _diagnose_recourse(
    model: Model, given: DiagnosisInputs, solver: str
) -> tuple[dict[str, Tensor], dict[str, Any], RegretOutcome, list[str]]:
    """Diagnose a model that predicts right-hand sides. The result has the same form as that of ``_diagnose_costs``."""
    score = RecourseJudge(model, given.true, solver=solver)
    z = score.decide(given.predicted)
    judged = RegretOutcome(score.regret(z), score.best)
    ideal = model.problem.sign * judged.best
    attribution = RecourseAttribution(model, given.predicted, given.true, z, ideal, solver)
    attributed, notes = attribution.attribute(judged.regret)
    violated, best_violated = (name_violations(model, given.names, one, given.true) for one in (z, score.best_decision))
    arrays = {**attributed, **unsplit_error(len(z)), "decision": z, "best_decision": score.best_decision}
    arrays |= {"violation": violated.amount, "violation_cost": violated.cost}
    arrays |= {"best_violation_cost": best_violated.cost}
    about = unknown_constraint_prices(len(z)) | {
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
    """Return the parts of the squared error, which constraints bind, and their shadow prices.

    Args:
        problem: the problem with its names.
        given: the predicted and true values.
        chosen, best: the decisions under the forecast and under the truth.
        smoothing, solver: arguments of ``diagnose``.

    Returns:
        The fields of a ``Diagnosis`` that are tensors, its other fields, and sentences on what is not known.
    """
    if not given.problem.has_program:
        return _diagnose_oracle(given, smoothing, solver)
    relaxed, costs = given.problem.relaxed(), (given.predicted_cost, given.true_cost)
    parts_of_error, note = split_error(relaxed, *costs, smoothing, solver)
    qp = relaxed.canonical(given.true_cost)
    constraints = PricedConstraints.of_program(problem, qp, given.variables)
    (binding, price), (best_binding, best_price) = (
        constraints.shares_and_prices(relaxed, cost, solver) for cost in costs
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
    """Split the squared error on the relaxation of an oracle.

    The result has the same form as that of ``_diagnose_program``.
    """
    oracle, count = given.problem, len(given.true)
    assert isinstance(oracle, Oracle)
    notes = ["An oracle decides: whether its decisions are optimal is not checked, and its constraints are not known."]
    if isinstance(oracle.relaxation, Problem):
        costs = given.predicted_cost, given.true_cost
        parts, note = split_error(oracle.relaxed(), *costs, smoothing, solver)
        notes.append("The squared error is split on its relaxation.")
    else:
        parts, note = unsplit_error(count), "there is no program"
    return parts, {**unknown_constraint_prices(count), "linear": not oracle.is_curved, "smoothing": note}, notes


def _decide_for_diagnosis(problem: Problem, cost: Tensor, solver: str) -> Solution | VerifiedSolutions:
    """Return the optimal decisions under costs (B, n), which are those of ``pear.regret``."""
    if problem.is_integer or not problem.has_program:
        return solve(problem, cost, solver=solver)
    solved = solve_continuous_programs(problem, cost, 0.0, solver)
    report_failures(solved.status, "raise", "the problem")
    return solved

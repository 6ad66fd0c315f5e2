"""Examining problems of CVXPY: their optima, gradients, and a short training.

CVXPY solves each problem again, evaluates PEAR's decisions and measures their violations. Gradients are compared with
differences of the loss.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear import DecisionRegressor, Model, PEARLoss, from_cvxpy, solve
from pear.errors import PearError, SolveError
from pear_lab.judge.judged_program import Array
from pear_lab.stress.cvxpy_families import CVXPY_FAMILIES, CvxpyFamilyCase, cp, draw_cvxpy_family
from pear_lab.stress.examine_numbers import ExaminedNumbers, examine_numbers

OPTIMUM = 1e-7
"""The largest allowed violation, and the largest allowed difference from CVXPY's optimum.

The difference is relative to the optimum or, if that is larger, to the unit of the objective.
"""
SLOPE = 1e-5
"""The largest relative difference of a directional derivative from a difference quotient."""
STEPS = (1e-3, 1e-4, 1e-5, 1e-6)
"""The steps of difference quotients, relative to the sizes of the parameters."""
COMPARED, FIT_SAMPLES, FIT_EPOCHS = 2, 24, 3
"""The number of samples whose optimum is compared, and the numbers of samples and epochs of a training."""
_ACCURATE = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
_ROUNDING = 1e-12  # the rounding error of a loss, relative to the sizes of its terms
_CRASHES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class CvxpyVerdict:
    """The verdict on one problem.

    Attributes:
        number, family: the number and the family of the problem.
        refused: the message with which PEAR refused the problem; empty if PEAR accepted it.
        wrong: a sentence on a wrong result; empty if nothing is wrong.
        gradients: the number of samples whose gradient agrees with differences of the loss.
        edges: the number of samples at a kink of the loss, where the gradient is not unique.
        fitted: whether a regressor was trained.
    """

    number: int
    family: str
    refused: str = ""
    wrong: str = ""
    gradients: int = 0
    edges: int = 0
    fitted: bool = False

    @property
    def ran(self) -> bool:
        """Whether the problem was accepted and nothing is wrong."""
        return not self.refused and not self.wrong


def examine_cvxpy(seed: int, number: int, with_fit: bool) -> CvxpyVerdict:
    """Draw a problem, and return the verdict on its optimum and its gradients.

    Args:
        seed, number: the seed of the run and the number of the problem within the run.
        with_fit: whether to train a regressor, too.
    """
    case = draw_cvxpy_family(seed, number)
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warnings of CVXPY on accuracy and on the form of a problem
        try:
            model = from_cvxpy(case.problem, case.parameters, case.recourse)
            found["wrong"] = _examine_cvxpy_optimum(case, model)
            if not found["wrong"]:
                found |= _examine_cvxpy_gradients(model, case, np.random.default_rng([seed, number, 1]))
            if with_fit and not found["wrong"]:
                found["wrong"] = _examine_cvxpy_training(model, case, np.random.default_rng([seed, number, 2]))
                found["fitted"] = True
        except PearError as error:
            found["refused"] = f"{type(error).__name__}: {error}"
        except _CRASHES as error:
            found["wrong"] = f"raised {type(error).__name__}: {error}"
    return CvxpyVerdict(number, case.family, **found)


def _examine_cvxpy_optimum(case: CvxpyFamilyCase, model: Model) -> str:
    """Return a sentence if PEAR's optimum differs from CVXPY's, else an empty text."""
    values = case.true[:COMPARED]
    try:
        solution = solve(model, torch.from_numpy(values))
    except SolveError as error:
        return f"no optimum, where CVXPY finds one: {error}"
    decisions = model.decision(solution.x)
    for i, parameters in enumerate(values):
        case.set_parameters(parameters)
        best = _cvxpy_optimum(case.problem)
        for variable in case.problem.variables():
            variable.save_value(decisions[variable.name()][i].numpy())
        size = max(case.scale, abs(best))
        off = {
            "the objective of our decision": float(case.problem.objective.value) - best,
            "our value": float(solution.value[i] + model.offset) - best,
            "its violation": _examine_cvxpy_violation(case.problem) * size,
        }
        for what, difference in off.items():
            if not abs(difference) <= OPTIMUM * size:
                return f"sample {i}: {what} is off by {difference:.1e} from CVXPY's {best:.10g}"
    return ""


def _examine_cvxpy_violation(problem: Any) -> float:
    """Return the largest violation of the constraints and bounds at the present values of the variables."""
    rows = [float(np.max(row.violation())) for row in problem.constraints]
    bounds = [float(np.abs(v.project(v.value) - v.value).max()) for v in problem.variables()]
    return max(rows + bounds)


def _cvxpy_optimum(problem: Any) -> float:
    """Return CVXPY's optimum, from the first of several solvers and tolerances that succeeds."""
    for solver, options in (("CLARABEL", _ACCURATE), ("CLARABEL", {}), ("OSQP", {"eps_abs": 1e-10, "eps_rel": 1e-10})):
        try:
            value = problem.solve(solver=solver, **options)
        except cp.SolverError:
            continue
        if problem.status == cp.OPTIMAL:
            return float(value)
    raise AssertionError(f"CVXPY finds no optimum: {problem.status}")


def _examine_cvxpy_gradients(model: Model, case: CvxpyFamilyCase, rng: np.random.Generator) -> dict[str, Any]:
    """Compare the slope of each sample's loss along a random direction with difference quotients of the loss.

    The compared loss is ``PEARLoss`` with ``injection=0``, whose gradient is exact. The gradient of the default loss is
    only checked to be finite.

    Returns:
        Attributes of ``CvxpyVerdict``: "gradients" and "edges" and, if a gradient is wrong, "wrong".
    """
    predicted, true = torch.from_numpy(case.predicted), torch.from_numpy(case.true)
    if not torch.isfinite(_examined_cvxpy_gradient(PEARLoss(model), predicted, true)[1]).all():
        return {"wrong": "the gradient of the default loss is not finite"}
    loss = PEARLoss(model, injection=0.0, reduction="none")
    value, gradient = _examined_cvxpy_gradient(loss, predicted, true)
    sizes = np.maximum(np.abs(case.predicted).mean(axis=0), np.abs(case.predicted).mean() / 100)
    direction = torch.from_numpy(rng.normal(size=case.predicted.shape) * sizes)
    slopes = (gradient * direction).sum(1).numpy()

    def loss_at(step: float) -> Array:
        with torch.no_grad():
            return np.asarray(loss(predicted + step * direction, true))

    here, terms = value.numpy(), case.scale * float(1.0 + np.abs(case.true).sum(1).max())
    quotients = {step: ((loss_at(step) - here) / step, (here - loss_at(-step)) / step) for step in STEPS}
    agrees, kinked = np.zeros(len(slopes), bool), np.zeros(len(slopes), bool)
    for step, (ahead, behind) in quotients.items():
        size, rounding = np.maximum(np.abs(ahead), np.abs(behind)), _ROUNDING * terms / step
        agrees |= np.abs((ahead + behind) / 2 - slopes) <= SLOPE * np.maximum(size, np.abs(slopes)) + rounding
        kinked = np.abs(ahead - behind) > 100 * SLOPE * size + 4 * rounding  # the last and shortest step counts
    found = {"gradients": int(agrees.sum()), "edges": int((kinked & ~agrees).sum())}
    off = np.flatnonzero(~agrees & ~kinked)
    if len(off):
        ahead, behind = quotients[STEPS[1]]
        i = int(off[0])
        differences = f"{slopes[i]:.8g} instead of {(ahead[i] + behind[i]) / 2:.8g}"
        return {**found, "wrong": f"sample {i}: the slope of the loss is {differences}"}
    return found


def _examined_cvxpy_gradient(loss: PEARLoss, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of every sample (B,), and its gradient (B, k)."""
    moving = predicted.clone().requires_grad_()
    value = loss(moving, true)
    value.sum().backward()
    assert moving.grad is not None
    return value.detach(), moving.grad


def _examine_cvxpy_training(model: Model, case: CvxpyFamilyCase, rng: np.random.Generator) -> str:
    """Train a regressor for a few epochs. Return a sentence if its results are not all finite, else an empty text."""
    X, shares = rng.normal(size=(FIT_SAMPLES, 2)), rng.dirichlet(np.ones(len(case.true)), FIT_SAMPLES)
    regressor = DecisionRegressor(model, max_epochs=FIT_EPOCHS, check_every=1).fit(X, shares @ case.true)
    parts = {
        "forecast": regressor.predict(X),
        "decision": regressor.decide(X) if case.recourse is None else np.zeros(1),
        "score": regressor.score(X, shares @ case.true),
    }
    bad = [name for name, part in parts.items() if not np.isfinite(np.asarray(part, dtype=float)).all()]
    return f"after training, {', '.join(bad)} is not finite" if bad else ""


FIT_EVERY = 10
"""A regressor is trained on one problem in this many."""
_LONGEST = 110  # messages that agree in this many characters are counted together


class ExaminedCvxpy(ExaminedNumbers[CvxpyVerdict]):
    """The verdicts on problems of CVXPY so far."""

    @property
    def wrong(self) -> list[CvxpyVerdict]:
        """The verdicts on problems with a wrong optimum, loss, gradient or training."""
        return [one for one in self.verdicts if one.wrong]

    def reasons(self) -> Counter[str]:
        """Count the refused problems by message, in which ``#`` replaces each digit."""
        return Counter(
            "".join("#" if letter.isdigit() else letter for letter in one.refused)[:_LONGEST]
            for one in self.verdicts
            if one.refused
        )

    def counts(self) -> list[tuple[str, dict[str, int]]]:
        """Return the counts of each family, and of "all" families."""
        return [(name, _count_examined_cvxpy(verdicts)) for name, verdicts in self.by_family(CVXPY_FAMILIES)]


def _count_examined_cvxpy(verdicts: list[CvxpyVerdict]) -> dict[str, int]:
    """Return the numbers of problems and samples by their kind of verdict."""
    return {
        "drawn": len(verdicts),
        "ran": sum(one.ran for one in verdicts),
        "refused": sum(bool(one.refused) for one in verdicts),
        "wrong": sum(bool(one.wrong) for one in verdicts),
        "gradients": sum(one.gradients for one in verdicts),
        "kinks": sum(one.edges for one in verdicts),
        "fits": sum(one.fitted for one in verdicts),
    }


def examine_cvxpy_numbers(
    numbers: list[int], seed: int = 0, workers: int = 1, progress: Callable[[CvxpyVerdict], None] | None = None
) -> ExaminedCvxpy:
    """Examine problems of CVXPY.

    Args:
        numbers: the numbers of the problems.
        seed: the seed of the problems. A problem depends on the seed and its number only.
        workers: the number of processes.
        progress: function that is called with each verdict.

    Returns:
        The verdicts in the order of their numbers; after Ctrl-C, the verdicts so far.
    """
    return ExaminedCvxpy(*examine_numbers(_examine_cvxpy_job, seed, numbers, workers, progress))


def _examine_cvxpy_job(job: tuple[int, int]) -> CvxpyVerdict:
    """Examine, in a worker process, the problem with the seed and the number in ``job``."""
    seed, number = job
    return examine_cvxpy(seed, number, with_fit=number % FIT_EVERY == 0)

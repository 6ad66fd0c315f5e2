"""Examine problems of CVXPY: optimum, loss, gradients and a short training, each by something else.

CVXPY itself solves the problem again, evaluates our decisions and measures their violations. Gradients are compared
with differences of the loss.
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
from pear_lab.stress.cvxpy_problems import FAMILIES, CvxpyCase, cp, draw_case
from pear_lab.stress.worker_pool import ExaminedProblems, examine_numbers

OPTIMUM = 1e-7
"""Largest difference of an optimum from CVXPY's, and largest violation, relative to the optimum or 1."""
SLOPE = 1e-5
"""Largest relative difference of a directional derivative from a difference quotient."""
STEPS = (1e-3, 1e-4, 1e-5, 1e-6)
"""Lengths of the steps of a difference quotient, relative to the sizes of the parameters."""
COMPARED, FIT_SAMPLES, FIT_EPOCHS = 2, 24, 3
"""Samples whose optimum is compared, and samples and epochs of a training."""
_ACCURATE = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
_ROUNDING = 1e-12  # of a loss, relative to the sizes of its terms
_CRASHES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class CvxpyVerdict:
    """The outcome of one problem.

    Attributes:
        number, family: which problem it is.
        refused: the sentence with which import, loss or training refused it; empty if they ran.
        wrong: what is wrong, in words; empty if nothing is.
        gradients: number of samples whose gradient agrees with differences of the loss.
        edges: number of samples at a kink of the loss, where there is no gradient to compare.
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
        """Whether everything ran and nothing is wrong."""
        return not self.refused and not self.wrong


def examine(seed: int, number: int, with_fit: bool) -> CvxpyVerdict:
    """Draw a problem and examine it.

    Args:
        seed, number: of the problem.
        with_fit: whether a regressor is trained on it, too.
    """
    case = draw_case(seed, number)
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # CVXPY's, on accuracy and on how a problem is written
        try:
            model = from_cvxpy(case.problem, case.parameters, case.recourse)
            found["wrong"] = wrong_optimum(case, model)
            if not found["wrong"]:
                found |= _compare_gradients(model, case, np.random.default_rng([seed, number, 1]))
            if with_fit and not found["wrong"]:
                found["wrong"] = _wrong_training(model, case, np.random.default_rng([seed, number, 2]))
                found["fitted"] = True
        except PearError as error:
            found["refused"] = f"{type(error).__name__}: {error}"
        except _CRASHES as error:
            found["wrong"] = f"raised {type(error).__name__}: {error}"
    return CvxpyVerdict(number, case.family, **found)


def wrong_optimum(case: CvxpyCase, model: Model) -> str:
    """What differs between our optimum and CVXPY's, in words; empty if nothing does."""
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
            "its violation": _largest_violation(case.problem) * size,
        }
        for what, difference in off.items():
            if not abs(difference) <= OPTIMUM * size:
                return f"sample {i}: {what} is off by {difference:.1e} from CVXPY's {best:.10g}"
    return ""


def _largest_violation(problem: Any) -> float:
    """By how much the variables leave their constraints and bounds at most."""
    rows = [float(np.max(row.violation())) for row in problem.constraints]
    bounds = [float(np.abs(v.project(v.value) - v.value).max()) for v in problem.variables()]
    return max(rows + bounds)


def _cvxpy_optimum(problem: Any) -> float:
    """CVXPY's own optimum, as accurate as one of its solvers can have it."""
    for solver, options in (("CLARABEL", _ACCURATE), ("CLARABEL", {}), ("OSQP", {"eps_abs": 1e-10, "eps_rel": 1e-10})):
        try:
            value = problem.solve(solver=solver, **options)
        except cp.SolverError:
            continue
        if problem.status == cp.OPTIMAL:
            return float(value)
    raise AssertionError(f"CVXPY finds no optimum: {problem.status}")


def _compare_gradients(model: Model, case: CvxpyCase, rng: np.random.Generator) -> dict[str, Any]:
    """Run the default loss; compare the slope of each sample along a random direction with differences of the loss."""
    predicted, true = torch.from_numpy(case.predicted), torch.from_numpy(case.true)
    if not torch.isfinite(_loss_and_gradient(PEARLoss(model), predicted, true)[1]).all():
        return {"wrong": "the gradient of the default loss is not finite"}
    loss = PEARLoss(model, injection=0.0, reduction="none")
    value, gradient = _loss_and_gradient(loss, predicted, true)
    sizes = np.maximum(np.abs(case.predicted).mean(axis=0), np.abs(case.predicted).mean() / 100)
    direction = torch.from_numpy(rng.normal(size=case.predicted.shape) * sizes)
    slopes = (gradient * direction).sum(1).numpy()

    def at(step: float) -> Array:
        with torch.no_grad():
            return np.asarray(loss(predicted + step * direction, true))

    here, terms = value.numpy(), case.scale * float(1.0 + np.abs(case.true).sum(1).max())
    quotients = {step: ((at(step) - here) / step, (here - at(-step)) / step) for step in STEPS}
    agrees, kinked = np.zeros(len(slopes), bool), np.zeros(len(slopes), bool)
    for step, (ahead, behind) in quotients.items():
        size, rounding = np.maximum(np.abs(ahead), np.abs(behind)), _ROUNDING * terms / step
        agrees |= np.abs((ahead + behind) / 2 - slopes) <= SLOPE * np.maximum(size, np.abs(slopes)) + rounding
        kinked = np.abs(ahead - behind) > 100 * SLOPE * size + 4 * rounding  # at the shortest step in the end
    found = {"gradients": int(agrees.sum()), "edges": int((kinked & ~agrees).sum())}
    off = np.flatnonzero(~agrees & ~kinked)
    if len(off):
        ahead, behind = quotients[STEPS[1]]
        i = int(off[0])
        differences = f"{slopes[i]:.8g} instead of {(ahead[i] + behind[i]) / 2:.8g}"
        return {**found, "wrong": f"sample {i}: the slope of the loss is {differences}"}
    return found


def _loss_and_gradient(loss: PEARLoss, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of every sample, and its gradient (B, k)."""
    moving = predicted.clone().requires_grad_()
    value = loss(moving, true)
    value.sum().backward()
    assert moving.grad is not None
    return value.detach(), moving.grad


def _wrong_training(model: Model, case: CvxpyCase, rng: np.random.Generator) -> str:
    """Train a regressor for a few epochs, and say what is wrong with it, in words."""
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
"""One problem in this many is trained on, too."""
_LONGEST = 110  # characters of a reason by which refusals are counted together


class CvxpyResult(ExaminedProblems[CvxpyVerdict]):
    """The outcomes of the problems of CVXPY so far."""

    @property
    def wrong(self) -> list[CvxpyVerdict]:
        """The verdicts on problems with a wrong optimum, loss, gradient or training."""
        return [one for one in self.verdicts if one.wrong]

    def reasons(self) -> Counter[str]:
        """Count the refused problems by error message. Digits become ``#``, so that messages differ in words alone."""
        return Counter(
            "".join("#" if letter.isdigit() else letter for letter in one.refused)[:_LONGEST]
            for one in self.verdicts
            if one.refused
        )

    def counts(self) -> list[tuple[str, dict[str, int]]]:
        """The counts of each family, and of all."""
        return [(name, _count(verdicts)) for name, verdicts in self.by_family(FAMILIES)]


def _count(verdicts: list[CvxpyVerdict]) -> dict[str, int]:
    """Count the verdicts by what became of the problem."""
    return {
        "drawn": len(verdicts),
        "ran": sum(one.ran for one in verdicts),
        "refused": sum(bool(one.refused) for one in verdicts),
        "wrong": sum(bool(one.wrong) for one in verdicts),
        "gradients": sum(one.gradients for one in verdicts),
        "kinks": sum(one.edges for one in verdicts),
        "fits": sum(one.fitted for one in verdicts),
    }


def run(
    numbers: list[int], seed: int = 0, workers: int = 1, progress: Callable[[CvxpyVerdict], None] | None = None
) -> CvxpyResult:
    """Examine problems.

    Args:
        numbers: which problems of the seed.
        seed: the seed of the problems; a problem does not depend on what else is run.
        workers: processes.
        progress: called with each verdict.

    Returns:
        What was found, sorted by number; after Ctrl-C what was found until then.
    """
    return CvxpyResult(*examine_numbers(work, seed, numbers, workers, progress))


def work(job: tuple[int, int]) -> CvxpyVerdict:
    """Examine one problem, given its seed and number; runs in a worker process."""
    seed, number = job
    return examine(seed, number, with_fit=number % FIT_EVERY == 0)

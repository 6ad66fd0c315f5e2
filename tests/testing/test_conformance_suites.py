"""The conformance suites: our parts pass, and each kind of mistake is found and named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import modellers
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.errors import DataError
from pear.losses import MSELoss, SPOPlusLoss
from pear.problem.importers import Importer, from_mps
from pear.solvers import Backend, Candidate, Status, get_backend
from pear.solvers.adapters import scipy as linprog
from pear.tasks import Samples, Task
from pear.testing import (
    Check,
    ConformanceError,
    ModelCase,
    check_importer,
    check_loss,
    check_solver,
    check_task,
    engine_checks,
    importer_checks,
    loss_checks,
    solver_checks,
    task_checks,
)
from pear.testing.checks import check_raises


def check_of(checks: list[Check], name: str) -> Check:
    (found,) = (check for check in checks if check.name == name)
    return found


# --- solvers: SciPy's, with one mistake each -------------------------------------------------------------------------


class Mistaken:
    """SciPy's solver, with a function that changes its candidates."""

    def __init__(self, change: Callable[[Any, Candidate], Candidate]) -> None:
        self.change = change

    def solve(self, qp: Any, tol: float) -> Candidate:
        return self.change(qp, linprog.solve(qp, tol))


def with_duals(candidate: Candidate, **changes: Tensor) -> Candidate:
    return replace(candidate, duals=replace(candidate.duals, **changes))


def in_place(qp: Any, candidate: Candidate) -> Candidate:
    qp.c.mul_(2.0)
    return candidate


def all_solved(qp: Any, candidate: Candidate) -> Candidate:
    x = torch.nan_to_num(candidate.x)
    return replace(candidate, x=x, status=torch.zeros_like(candidate.status))


def raise_error(qp: Any, candidate: Candidate) -> Candidate:
    raise KeyError("licence")


MISTAKES: dict[str, tuple[Callable[[Any, Candidate], Candidate], str, str]] = {
    "far from optimal": (lambda qp, one: replace(one, x=one.x + 0.1), "lp: box", "a candidate has a KKT residual of"),
    "signs": (
        lambda qp, one: with_duals(one, bound=-one.duals.bound),
        "lp: signs of multipliers",
        r"the multipliers of duals.bound are .* expected \[0.0, -2.0, 3.0\]",
    ),
    "changes data": (in_place, "lp: simplex", "it changes the field c of the programs"),
    "single precision": (lambda qp, one: replace(one, x=one.x.float()), "lp: box", "x has dtype torch.float32"),
    "shape": (lambda qp, one: replace(one, x=one.x[:, :1]), "lp: simplex", r"x has shape \(5, 1\); expected \(5, 6\)"),
    "gives up": (
        lambda qp, one: replace(one, status=torch.full_like(one.status, int(Status.INACCURATE))),
        "lp: knapsack",
        "its statuses are INACCURATE, .*, not SOLVED",
    ),
    "claims too much": (all_solved, "lp: open below", "its status is SOLVED; expected UNBOUNDED or INACCURATE"),
    "keeps a point": (
        lambda qp, one: replace(one, x=torch.nan_to_num(one.x)),
        "lp: row against bounds",
        "a sample that is INFEASIBLE has a point",
    ),
    "negative multiplier": (
        lambda qp, one: with_duals(one, inequality=one.duals.inequality - 1e-9),
        "lp: zero rows",
        "a multiplier of a row is -1.0e-09, below 0",
    ),
    "loses integers": (
        lambda qp, one: replace(one, x=one.x + 0.001),
        "milp: optima are proven",
        ".*misses the best by",
    ),
    "no proof": (lambda qp, one: replace(one, bound=None), "milp: optima are proven", "its bounds are None"),
    "raises": (raise_error, "lp: an empty batch", "it raises KeyError: 'licence'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_a_solver_are_named(name: str) -> None:
    change, check, said = MISTAKES[name]
    checks = solver_checks(replace(get_backend("scipy"), name="mistaken", module=Mistaken(change)))
    with pytest.raises(ConformanceError, match=f"the solver 'mistaken' fails the check '{check}': {said}"):
        check_of(checks, check)()


def test_a_whole_suite_lists_every_failure() -> None:
    with pytest.raises(
        ConformanceError, match=r"^\d+ of \d+ checks failed:\n- the solver 'mistaken' fails the check"
    ) as e:
        check_solver(Backend("mistaken", Mistaken(raise_error), kinds=("lp",), sparse=False))
    assert str(e.value).count("\n- ") == int(str(e.value).split()[0])


# --- losses ----------------------------------------------------------------------------------------------------------


class WithoutIds(nn.Module):
    def __init__(self, problem: Any) -> None:
        super().__init__()
        self.problem = problem

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        return ((predicted - true) ** 2).mean()


class OnlySome(MSELoss):
    def forward(self, predicted: Tensor, true: Tensor, keys: Any = None) -> Tensor:
        return self.value(predicted, true, keys)

    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        raise NotImplementedError


class Vector(OnlySome):
    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        return ((predicted - true) ** 2).mean(1)


class Reversed(OnlySome):
    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        return -((predicted - true) ** 2).mean()


class Detached(OnlySome):
    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        return ((predicted.detach() - true) ** 2).mean() + 0 * predicted.sum() / 0.0


class Wide(OnlySome):
    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        return ((predicted.double() - true) ** 2).mean()


class Random(OnlySome):
    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self.draw = np.random.default_rng(0)

    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        return ((predicted - true) ** 2).mean() + self.draw.uniform()


class Forgetful(SPOPlusLoss):
    """A loss that ignores some ids, and so uses the wrong rows of the problem."""

    def forward(self, predicted: Any, true: Any, keys: Any = None) -> Tensor:
        return super().forward(predicted, true, keys if keys is None or list(keys) != [3, 1] else [0, 1])


class Locked(OnlySome):
    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self.lock = threading.Lock()

    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        with self.lock:
            return ((predicted - true) ** 2).mean()


class Blind(OnlySome):
    """A loss whose value is least at the truth, while its gradient leads away from it."""

    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        error = ((predicted - true) ** 2).mean()
        return 2 * error.detach() - error


class Broadcast(OnlySome):
    def value(self, predicted: Tensor, true: Tensor, keys: Any) -> Tensor:
        return (predicted.mean() - true.mean()) ** 2


LOSSES: dict[str, tuple[Any, str, str]] = {
    "vector": (Vector, "paths: a number", "expected a tensor with one number"),
    "not a number": (Detached, "paths: a number", "it returns nan"),
    "gradient": (Detached, "paths: a gradient", "its gradient is not finite"),
    "reversed": (Reversed, "a knapsack to maximise: the truth is best", "it must be lower"),
    "ids": (WithoutIds, "sample ids change nothing", "its forward has no argument keys"),
    "random": (Random, "a checkpoint", "get_extra_state must hold what changes"),
    "own rows": (Forgetful, "each sample has its own right-hand side", "keys must select the rows"),
    "wide": (Wide, "single precision", "it returns torch.float64 for costs in float32"),
    "shapes": (Broadcast, "costs of other shapes are refused", "expected a PearError, and nothing was raised"),
    "copy": (Locked, "a copy", "it raises TypeError"),
    "training": (Blind, "training lowers the regret", "expected below half"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_mistakes_of_a_loss_are_named(name: str) -> None:
    loss, check, said = LOSSES[name]
    with pytest.raises(ConformanceError, match=f"the loss '{loss.__name__}' fails the check '{check}': .*({said})"):
        check_of(loss_checks(loss), check)()


def test_a_loss_with_options_is_checked_with_them() -> None:
    with pytest.raises(ConformanceError, match="it raises ProblemError: method 'dbb' has no option 'strength'"):
        check_loss("dbb", strength=1.0)
    loss_checks("dbb", interpolation=1.0)[0]()


# --- importers -------------------------------------------------------------------------------------------------------


def write_mps(case: ModelCase, path: Path) -> None:
    modellers.solved_highs(case)[0].writeModel(str(path))


def test_our_importer_of_files_conforms() -> None:
    pytest.importorskip("highspy")
    assert "some costs are predicted" in check_importer(".mps", write_mps)


def careless(path: Any) -> pear.Model:
    return from_mps(path) if Path(path).exists() else pear.Model(pear.Problem(lb=0, ub=1, n=1))


def without_integers(path: Any) -> pear.Model:
    m = from_mps(path)
    return replace(m, problem=m.problem.relaxed())


def without_constant(path: Any) -> pear.Model:
    return replace(from_mps(path), offset=0.0)


def with_errors_of_its_own(path: Any) -> pear.Model:
    try:
        return from_mps(path)
    except DataError as error:
        raise OSError("cannot read") from error


def deaf(path: Any, predicted: Any = None) -> pear.Model:
    return from_mps(path)


READERS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "integers": (without_integers, "integers beside others", "its optimum is|0 variables are integers"),
    "constant": (without_constant, "a constant alone", "its optimum is 0; expected -7.25"),
    "missing file": (careless, "a missing file", "a file that is not there: expected a PearError"),
    "own errors": (with_errors_of_its_own, "a missing file", "it raises OSError: cannot read"),
    "broken file": (with_errors_of_its_own, "a file of nothing, of noise, and half a file", "it raises OSError"),
    "no model": (lambda path: from_mps(path).problem, "ranges", "it returns Problem; expected a pear.Model"),
    "predicted": (deaf, "some costs are predicted", "with two predicted costs it takes 3 values"),
}


@pytest.mark.parametrize("name", READERS)
def test_mistakes_of_an_importer_are_named(name: str) -> None:
    pytest.importorskip("highspy")
    read, check, said = READERS[name]
    checks = importer_checks(Importer("mistaken files", (".mps",), read), write_mps)
    with pytest.raises(ConformanceError, match=f"the importer of mistaken files fails the check '{check}': ({said})"):
        check_of(checks, check)()


def test_a_format_that_holds_nothing_does_not_conform() -> None:
    with pytest.raises(ConformanceError, match="its format holds 0 of 17 models; expected at least 3"):
        check_importer(".mps", lambda case, path: False)
    with pytest.raises(ConformanceError, match="there is no importer 'nothing'"):
        importer_checks("nothing", write_mps)
    with pytest.raises(ConformanceError, match="reads no files"):
        importer_checks(Importer("objects", (), from_mps), write_mps)


# --- tasks and engines -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Boxes(Task):
    """A task with a defect that ``spoil`` names."""

    spoil: str = ""

    def samples(self, count: int, seed: int = 0) -> Samples:
        draw = torch.Generator().manual_seed(0 if self.spoil == "seed" else seed)
        features = torch.randn(count, 2, generator=None if self.spoil == "generator" else draw)
        costs = torch.randn(count, 3, generator=draw)
        return Samples(features, costs.abs() if self.spoil == "dull" else costs)

    def decide(self, cost: Any, Q: Any = None) -> Tensor:
        best = super().decide(cost, Q)
        return {"decide": 1 - best, "dtype": best.double()}.get(self.spoil, best)


TASKS = {
    "generator": ("samples", "the same seed gives other samples"),
    "seed": ("samples", "another seed gives the same costs"),
    "decide": ("decisions", "decisions differ in value from those of pear.solve by"),
    "dtype": ("decisions", "decisions have dtype torch.float64 for costs in float32"),
    "dull": ("regret", "no forecast has a regret"),
}


@pytest.mark.parametrize("spoil", TASKS)
def test_mistakes_of_a_task_are_named(spoil: str) -> None:
    check, said = TASKS[spoil]
    task = Boxes("boxes", pear.Problem(lb=0.0, ub=1.0, n=3), spoil)
    with pytest.raises(ConformanceError, match=f"the task 'boxes' fails the check '{check}': {said}"):
        check_of(task_checks(task), check)()


@pytest.mark.parametrize(
    "task", [pear.tasks.random_knapsack(8), pear.tasks.shortest_path((3, 4))], ids=lambda t: t.name
)
def test_our_tasks_conform(task: Task) -> None:
    check_task(task)


def test_an_engine_that_does_not_exist_and_a_task_that_does_not() -> None:
    with pytest.raises(ConformanceError, match="it raises EngineError: there is no engine 'nowhere'"):
        engine_checks("nowhere")[0]()
    with pytest.raises(ConformanceError, match="there is no task 'nowhere' among the plug-ins"):
        task_checks("nowhere")


def test_an_error_without_words_is_no_error_message() -> None:
    def silent() -> None:
        raise DataError

    with pytest.raises(ConformanceError, match="half a file: its DataError has no message"):
        check_raises(DataError, silent, "half a file")

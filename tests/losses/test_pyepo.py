"""Our losses compared with PyEPO's on the same decisions, and PyEPO's losses on our problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pear
from pear.losses import (
    AIMLELoss,
    DBBLoss,
    DPOLoss,
    DPOMultiplicativeLoss,
    IMLELoss,
    NIDLoss,
    PFYLLoss,
    PGLoss,
    RandomDraws,
    SPOPlusLoss,
)
from pear.losses.pyepo import PyEPOLoss, pyepo_model
from pear.tasks import knapsack, shortest_path
from pear.train import FitConfig, fit

pyepo = pytest.importorskip("pyepo", reason="PyEPO is not installed; pip install 'pear-dfl[baselines]'")
func = pytest.importorskip("pyepo.func")

WEIGHTS = torch.randint(1, 9, (2, 12), generator=torch.Generator().manual_seed(0)).double()
PROBLEMS = {"paths": shortest_path((3, 3)).problem, "items": knapsack(WEIGHTS, [20.0, 20.0]).problem}
PROBLEM = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def costs(problem: pear.Problem, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predicted, true = 1 + 3 * torch.rand(2, 8, problem.n, generator=generator)
    return predicted.requires_grad_(), true


def gradient(loss: nn.Module, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    value = loss(predicted, true)
    return value.detach(), torch.autograd.grad(value, predicted)[0]


def agree(ours: nn.Module, theirs: nn.Module, problem: pear.Problem) -> None:
    predicted, true = costs(problem)
    value, grad = gradient(theirs, predicted, true)
    assert bool(grad.any())
    torch.testing.assert_close(gradient(ours, predicted, true), (value, grad))


def recorded(problem: pear.Problem) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """Return a list that receives all decided costs, and the function that decides them."""
    seen: list[Tensor] = []

    def decide(cost: Tensor) -> Tensor:
        seen.append(cost)
        return pear.solve(problem, cost).x

    return seen, decide


class ScriptedDraws(RandomDraws):
    """Draws that always return the given tensor, so that our loss uses the same random numbers as PyEPO."""

    def __init__(self, noise: Tensor) -> None:
        super().__init__(0)
        self.noise = noise.double()

    def normal(self, *shape: int) -> Tensor:
        assert tuple(self.noise.shape) == shape
        return self.noise

    def sum_of_gammas(self, kappa: float, terms: int, *shape: int) -> Tensor:
        return self.normal(*shape)


@PROBLEM
def test_spo_plus_is_that_of_pyepo(problem: pear.Problem) -> None:
    agree(SPOPlusLoss(problem), PyEPOLoss(problem, func.SPOPlus), problem)


@pytest.mark.parametrize("interpolation", [10.0, 20.0])
@PROBLEM
def test_dbb_is_that_of_pyepo(problem: pear.Problem, interpolation: float) -> None:
    theirs = PyEPOLoss(problem, func.blackboxOpt, lambd=interpolation)
    agree(DBBLoss(problem, interpolation=interpolation), theirs, problem)


@pytest.mark.parametrize("samples", [1, 3])
@PROBLEM
def test_pfyl_is_that_of_pyepo_on_the_same_perturbed_costs(problem: pear.Problem, samples: int) -> None:
    """PyEPO and we use different generators; our loss therefore gets the perturbed costs that PyEPO solved."""
    seen, decide = recorded(problem)
    predicted, true = costs(problem)
    theirs = PyEPOLoss(problem, func.perturbedFenchelYoung, decide, n_samples=samples, sigma=0.7)
    value, grad = gradient(theirs, predicted, true)
    assert bool(grad.any())
    assert len(seen) == 1 + 8 * samples  # the best decisions as a batch, then one perturbed cost after the other

    # PyEPO goes through the perturbations of a sample before the next sample's.
    perturbed = torch.cat(seen[1:]).view(8, samples, -1).transpose(0, 1)
    noise = problem.sign * (perturbed - predicted.detach()) / 0.7

    ours = PFYLLoss(problem, samples=samples, sigma=0.7, cost_unit=1.0)
    ours.draws = ScriptedDraws(noise)
    torch.testing.assert_close(gradient(ours, predicted, true), (value, grad))


@PROBLEM
def test_nid_is_that_of_pyepo(problem: pear.Problem) -> None:
    agree(NIDLoss(problem, cost_unit=1.0), PyEPOLoss(problem, func.NID), problem)


@pytest.mark.parametrize("two_sides", [False, True])
@PROBLEM
def test_pg_is_that_of_pyepo(problem: pear.Problem, two_sides: bool) -> None:
    difference = "central" if two_sides else "backward"
    theirs = PyEPOLoss(problem, func.PG, sigma=0.3, two_sides=two_sides)
    agree(PGLoss(problem, width=0.3, difference=difference), theirs, problem)


@pytest.mark.parametrize("name", ["DPO", "DPOMul"])
@PROBLEM
def test_dpo_is_that_of_pyepo_on_the_same_perturbed_costs(problem: pear.Problem, name: str) -> None:
    seen, decide = recorded(problem)
    predicted, true = costs(problem)
    theirs = PyEPOLoss(problem, getattr(func, name), decide, n_samples=4, sigma=0.7)
    value, grad = gradient(theirs, predicted, true)
    assert bool(grad.any())
    perturbed = torch.cat(seen[1:]).view(8, 4, -1).transpose(0, 1).double()
    if name == "DPO":
        ours: DPOLoss = DPOLoss(problem, samples=4, sigma=0.7, cost_unit=1.0)
        noise = problem.sign * (perturbed - predicted.detach()) / 0.7
    else:
        ours = DPOMultiplicativeLoss(problem, samples=4, sigma=0.7)
        noise = ((perturbed / predicted.detach()).log() + 0.7**2 / 2) / 0.7
    ours.draws = ScriptedDraws(noise)
    torch.testing.assert_close(gradient(ours, predicted, true), (value, grad), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("two_sides", [False, True])
@pytest.mark.parametrize("adaptive", [False, True])
@PROBLEM
def test_imle_is_that_of_pyepo_on_the_same_perturbed_costs(
    problem: pear.Problem, adaptive: bool, two_sides: bool
) -> None:
    """The losses agree over three steps, in which the adaptive step size changes."""
    seen, decide = recorded(problem)
    predicted, true = costs(problem)
    make = func.AIMLE if adaptive else func.IMLE
    theirs = PyEPOLoss(problem, make, decide, n_samples=3, sigma=0.7, two_sides=two_sides)
    options: dict[str, Any] = {"samples": 3, "sigma": 0.7, "two_sided": two_sides, "cost_unit": 1.0}
    # PyEPO counts the share of entries other than zero and wants 1, which is all n of them.
    ours = AIMLELoss(problem, target=problem.n, **options) if adaptive else IMLELoss(problem, **options)
    for _ in range(3):
        seen.clear()
        value, grad = gradient(theirs, predicted, true)
        assert bool(grad.any())
        perturbed = torch.cat(seen[1:25]).view(8, 3, -1).transpose(0, 1).double()
        ours.draws = ScriptedDraws(problem.sign * (predicted.detach() - perturbed) / 0.7)
        torch.testing.assert_close(gradient(ours, predicted, true), (value, grad), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        func.SPOPlus,
        func.PFY,
        func.DBB,
        func.NID,
        func.DPO,
        func.IMLE,
        func.PG,
        lambda model: func.NCE(model, solve_ratio=0.5, dataset=data_set(model)),
        lambda model: func.lsLTR(model, solve_ratio=0.5, dataset=data_set(model)),
    ],
    ids=["SPO+", "PFY", "DBB", "NID", "DPO", "I-MLE", "PG", "NCE", "listwise"],
)
@PROBLEM
def test_every_kind_of_pyepo_loss_runs_on_our_problems(problem: pear.Problem, make: Callable[..., nn.Module]) -> None:
    predicted, true = costs(problem)
    loss = PyEPOLoss(problem, make)
    value, grad = gradient(loss, predicted, true)
    assert value.ndim == 0
    assert bool(value.isfinite())
    assert grad.shape == predicted.shape
    assert bool(grad.any())
    assert loss.seconds["solve"] > 0


def data_set(model: Any) -> Any:
    from pyepo.data.dataset import optDataset

    _, true = costs(model.pear_problem, seed=1)
    return optDataset(model, torch.zeros(len(true), 1).numpy(), true.numpy())


def test_a_pyepo_loss_trains_with_fit() -> None:
    task = shortest_path((3, 3))
    train, validation, test = task.split(task.samples(120, degree=4, noise=0.1, seed=0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(5, 12)

    def regret() -> float:
        with torch.no_grad():
            return task.normalized_regret(model(test.features), test.costs)

    before = regret()
    loss = PyEPOLoss(task.problem, func.SPOPlus, task.decide, mse_weight=0.01)
    fit(model, loss, train, validation, task.normalized_regret, FitConfig(batch_size=16, max_epochs=11))
    assert regret() < 0.5 * before


@PROBLEM
def test_pyepo_data_sets_get_our_decisions(problem: pear.Problem) -> None:
    _, true = costs(problem, seed=1)
    data = data_set(pyepo_model(problem))
    best = pear.solve(problem, true).x.double()
    torch.testing.assert_close(torch.as_tensor(data.sols).double(), best)
    values = (true.double() * best).sum(1, keepdim=True)
    torch.testing.assert_close(torch.as_tensor(data.objs).double(), values, rtol=1e-6, atol=1e-6)


def test_the_model_knows_its_sense_its_size_and_its_relaxation() -> None:
    model = pyepo_model(PROBLEMS["items"])
    assert model.modelSense == pyepo.EPO.MAXIMIZE
    assert pyepo_model(PROBLEMS["paths"]).modelSense == pyepo.EPO.MINIMIZE
    assert model.num_cost == 12
    cost = torch.rand(12, generator=torch.Generator().manual_seed(0))
    values = []
    for each in (model, model.relax()):
        each.setObj(cost.numpy())
        z, value = each.solve()
        assert value == pytest.approx(float(cost.double() @ torch.as_tensor(z).double()), rel=1e-6)
        values.append(value)
    assert values[1] >= values[0]


def test_what_pyepo_cannot_do_is_said() -> None:
    with pytest.raises(pear.ProblemError, match="coneAlignedCosine asks for tight_ctrs, which costs and decisions"):
        PyEPOLoss(PROBLEMS["paths"], func.CaVE)
    with pytest.raises(pear.ProblemError, match="linear objectives only"):
        pyepo_model(pear.Problem(Q=torch.eye(2)))
    with pytest.raises(pear.ProblemError, match="one set of constraints for all samples"):
        pyepo_model(pear.Problem(A=torch.ones(3, 1, 2), b=[1.0], lb=0.0))
    model = pyepo_model(PROBLEMS["paths"])
    with pytest.raises(pear.ProblemError, match="set the costs with setObj"):
        model.solve()
    with pytest.raises(pear.ProblemError, match="expected 12 costs of one sample"):
        model.setObj([1.0, 2.0])

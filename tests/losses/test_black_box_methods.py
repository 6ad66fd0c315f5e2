"""Methods that need decisions alone: values and gradients compared with formulas and expectations."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from listed_tasks import GRID, Listed, costs, gradient, items, paths
from torch import Tensor

import pear
from pear.losses import AIMLELoss, DPOLoss, DPOMultiplicativeLoss, IMLELoss, NIDLoss, PGLoss, RandomDraws
from pear.losses.decision_loss import DecisionLoss

TASKS = pytest.mark.parametrize("task", [paths(), items()], ids=["paths", "items"])
UNIT = 0.7
CHOICE = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)  # one of two


def upstream(task: Listed, z: Tensor, true: Tensor) -> Tensor:
    """Return ∂ℓ/∂z for the mean ℓ of ``|cᵀz − cᵀz*(c)|``; zero for samples without regret."""
    return (true * (z - task.decide(true))).sum(1).sign()[:, None] * true / len(true)


def decide_all(task: Listed, rows: Tensor) -> Tensor:
    return torch.stack([task.decide(part) for part in rows])


# --- negative identity ----------------------------------------------------------------------------------------------


@TASKS
def test_nid_hands_the_gradient_on_with_its_sign_turned(task: Listed) -> None:
    predicted, true = costs(task)
    value, grad = gradient(NIDLoss(task.problem, task.decide, cost_unit=UNIT), predicted, true)
    z = task.decide(predicted.detach())
    torch.testing.assert_close(value, (true * (z - task.decide(true))).sum(1).abs().mean())
    torch.testing.assert_close(grad, -task.problem.sign * upstream(task, z, true) / UNIT)
    assert bool(grad.any())


# --- perturbation gradient ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", ["forward", "backward", "central"])
@TASKS
def test_pg_is_a_difference_of_optimal_values(task: Listed, difference: Any) -> None:
    predicted, true = costs(task)
    s, p, h = task.problem.sign, predicted.detach(), 0.3
    loss = PGLoss(task.problem, task.decide, h, difference)
    value, grad = gradient(loss, predicted, true)

    def least(cost: Tensor) -> Tensor:
        return (s * cost @ task.points.T).min(1).values

    ahead, here, back = least(p + h * true), least(p), least(p - h * true)
    expected = {"forward": (ahead - here) / h, "backward": (here - back) / h, "central": (ahead - back) / (2 * h)}
    torch.testing.assert_close(value, expected[difference].mean())
    assert torch.autograd.gradcheck(lambda p: loss(p, true), predicted, eps=1e-7)
    assert bool(grad.any())


@TASKS
def test_pg_bounds_the_cost_of_the_decision(task: Listed) -> None:
    for seed in range(10):
        predicted, true = costs(task, batch=1, seed=seed)
        paid = task.problem.sign * (true * task.decide(predicted.detach())).sum().item()
        low, mean, high = (
            PGLoss(task.problem, task.decide, 0.5, difference)(predicted, true).item()
            for difference in ("forward", "central", "backward")
        )
        assert low - 1e-12 <= paid <= high + 1e-12
        assert mean == pytest.approx((low + high) / 2)


# --- perturbed optimisers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 4])
@TASKS
def test_dpo_follows_its_formula(task: Listed, samples: int) -> None:
    predicted, true = costs(task)
    s, p, sigma = task.problem.sign, predicted.detach(), 0.5
    loss = DPOLoss(task.problem, task.decide, samples, sigma, seed=3, cost_unit=UNIT)
    value, grad = gradient(loss, predicted, true)
    noise = torch.from_numpy(np.random.RandomState(3).normal(0, 1, (samples, *p.shape)))
    z = decide_all(task, p + s * sigma * UNIT * noise)
    w = upstream(task, z.mean(0), true)
    torch.testing.assert_close(value, (true * (z.mean(0) - task.decide(true))).sum(1).abs().mean())
    expected = torch.zeros_like(p)
    for m in range(samples):
        others = [float("nan")] if samples == 1 else [k for k in range(samples) if k != m]
        baseline = 0.0 if samples == 1 else sum((w * z[int(k)]).sum(1) for k in others) / len(others)
        expected += s * ((w * z[m]).sum(1) - baseline)[:, None] * noise[m] / (sigma * UNIT * samples)
    torch.testing.assert_close(grad, expected)
    assert bool(grad.any())


def normal_density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("name", ["additive", "multiplicative"])
def test_dpo_estimates_the_derivative_of_the_expected_regret(name: str) -> None:
    """Of two options, the first is chosen if a normal variable is below a level that the costs determine."""
    sigma, c, count = 0.6, [1.0, 3.0], 400
    p1, p2 = 1.5, 1.0
    make = DPOLoss if name == "additive" else DPOMultiplicativeLoss
    level, slope = (
        ((p2 - p1) / (sigma * math.sqrt(2)), [1.0, 1.0])
        if name == "additive"
        else (math.log(p2 / p1) / (sigma * math.sqrt(2)), [1 / p1, 1 / p2])
    )
    chance = 0.5 * (1 + math.erf(level / math.sqrt(2)))  # that the first is chosen
    change = (c[0] - c[1]) * normal_density(level) / (sigma * math.sqrt(2))
    expected = [-change * slope[0], change * slope[1]]
    loss = make(CHOICE, lambda cost: (cost == cost.min(1, keepdim=True).values).to(cost), 50, sigma, cost_unit=1.0)
    predicted = torch.tensor([[p1, p2]]).double().repeat(count, 1).requires_grad_()
    value, grad = gradient(loss, predicted, torch.tensor([c]).double().repeat(count, 1))
    assert float(value) == pytest.approx(2 * (1 - chance), abs=0.02)
    each = grad * count
    error = each.std(0) / math.sqrt(count)
    assert bool((error < 0.1 * abs(expected[0])).all())
    assert bool(((each.mean(0) - torch.tensor(expected)).abs() < 4 * error).all())


@TASKS
def test_multiplied_noise_keeps_signs_and_leaves_zeros_alone(task: Listed) -> None:
    predicted, true = costs(task)
    with torch.no_grad():
        predicted[:, 0], predicted[:, 1] = 0.0, -predicted[:, 1]
    seen = []

    def decide(cost: Tensor) -> Tensor:
        seen.append(cost)
        return task.decide(cost)

    _, grad = gradient(DPOMultiplicativeLoss(task.problem, decide, 3), predicted, true)
    perturbed = next(rows for rows in seen if len(rows) == 15).view(3, 5, -1)
    assert torch.equal(perturbed.sign(), predicted.detach().sign().expand(3, -1, -1))
    assert bool(grad.isfinite().all())
    assert not bool(grad[:, 0].any())
    assert bool(grad[:, 1].any())


# --- implicit maximum likelihood ------------------------------------------------------------------------------------


def gamma_noise(random: np.random.RandomState, shape: tuple[int, ...], kappa: float, terms: int) -> Tensor:
    noise = np.zeros(shape)
    for i in range(1, terms + 1):
        noise += random.gamma(1 / kappa, kappa / i, shape)
    return torch.from_numpy((noise - math.log(terms)) / kappa)


def test_sums_of_gammas_have_their_mean_and_variance() -> None:
    kappa, terms = 3.0, 8
    noise = RandomDraws(1).sum_of_gammas(kappa, terms, 200_000)
    mean = (sum(1 / i for i in range(1, terms + 1)) - math.log(terms)) / kappa
    variance = sum(1 / i**2 for i in range(1, terms + 1)) / kappa
    assert noise.mean().item() == pytest.approx(mean, abs=4 * math.sqrt(variance / 200_000))
    assert noise.var().item() == pytest.approx(variance, rel=0.03)


@pytest.mark.parametrize("two_sided", [False, True])
@TASKS
def test_imle_follows_its_formula(task: Listed, two_sided: bool) -> None:
    predicted, true = costs(task)
    s, p, lam = task.problem.sign, predicted.detach(), 7.0
    loss = IMLELoss(task.problem, task.decide, 3, 0.5, lam, kappa=4.0, two_sided=two_sided, seed=5, cost_unit=UNIT)
    random = np.random.RandomState(5)
    for _ in range(2):  # the stream goes on from step to step
        value, grad = gradient(loss, predicted, true)
        moved = p - s * 0.5 * UNIT * gamma_noise(random, (3, *p.shape), 4.0, 10)
        z = decide_all(task, moved)
        w = upstream(task, z.mean(0), true)
        torch.testing.assert_close(value, (true * (z.mean(0) - task.decide(true))).sum(1).abs().mean())
        ahead, back = decide_all(task, moved + s * lam * w), decide_all(task, moved - s * lam * w)
        difference = (ahead - back) / (2 * lam) if two_sided else (ahead - z) / lam
        torch.testing.assert_close(grad, s * difference.mean(0))
        assert bool(grad.any())


@TASKS
def test_aimle_adapts_its_step(task: Listed) -> None:
    predicted, true = costs(task)
    s, p = task.problem.sign, predicted.detach()
    loss = AIMLELoss(task.problem, task.decide, 2, 0.5, target=1.5, seed=5, cost_unit=UNIT)
    random, alpha, entries, alphas = np.random.RandomState(5), 1.0, 1.5, []
    for _ in range(6):
        _, grad = gradient(loss, predicted, true)
        moved = p - s * 0.5 * UNIT * gamma_noise(random, (2, *p.shape), 5.0, 10)
        z = decide_all(task, moved)
        w = upstream(task, z.mean(0), true)
        lam = alpha * float(p.norm() / w.norm())
        expected = s * (decide_all(task, moved + s * lam * w) - z).mean(0) / lam
        torch.testing.assert_close(grad, expected)
        entries = 0.9 * entries + 0.1 * float((expected != 0).sum(1).double().mean())
        alpha += 1e-3 if entries < 1.5 else -1e-3
        assert (loss.alpha, loss.entries) == pytest.approx((alpha, entries))
        alphas.append(alpha)
    assert len(set(alphas)) > 1


def test_aimle_resumes_its_step_and_rests_at_the_truth() -> None:
    task = paths()
    predicted, true = costs(task)
    loss = AIMLELoss(task.problem, task.decide, 2)
    gradient(loss, predicted, true)
    assert loss.alpha != 1.0
    file, other = io.BytesIO(), AIMLELoss(task.problem, task.decide, 2)
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(gradient(copy.deepcopy(loss), predicted, true), gradient(other, predicted, true))
    still = AIMLELoss(task.problem, task.decide, 2, sigma=1e-9)
    _, grad = gradient(still, true.clone().requires_grad_(), true)
    assert not bool(grad.any())
    assert still.alpha == 1.0


def test_aimle_steps_one_way_where_a_gradient_has_fewer_entries_than_wanted() -> None:
    task = paths()
    predicted, true = costs(task)
    few, many = (AIMLELoss(task.problem, task.decide, 2, target=target) for target in (0.01, 1000.0))
    for loss in (few, many):
        gradient(loss, predicted, true)
    assert few.alpha == pytest.approx(0.999)
    few.alpha = 1e-3
    gradient(few, predicted, true)
    assert few.alpha == 1e-3
    assert many.alpha == pytest.approx(1.001)


# --- what all share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [DPOLoss, IMLELoss, lambda p: PGLoss(p, width=0.5)], ids=["dpo", "imle", "pg"])
def test_perturbed_samples_keep_constraints_of_their_own(make: Any) -> None:
    """Without keys, each perturbation of sample i uses row i of the problem."""
    sides = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    problem = pear.Problem(lb=0.0, ub=sides, sense="max")
    true, predicted = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with_keys, without = (make(problem)(predicted, true, keys=keys).item() for keys in ([0, 1], None))
    assert with_keys == without
    turned = make(problem)(predicted, true, keys=[1, 0]).item()
    assert turned != without


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: PGLoss(p, width=0.0), "width must be a finite number above 0; got 0.0"),
        (
            lambda p: PGLoss(p, difference="sideways"),
            "difference must be 'forward', 'backward' or 'central'; got 's",
        ),
        (lambda p: DPOLoss(p, samples=0), "samples must be a whole number of at least 1; got 0"),
        (lambda p: DPOLoss(p, samples=True), "samples must be a whole number of at least 1; got True"),
        (lambda p: DPOMultiplicativeLoss(p, sigma=-1.0), "sigma must be a finite number above 0; got -1.0"),
        (lambda p: IMLELoss(p, interpolation=0.0), "interpolation must be a finite number above 0; got 0.0"),
        (lambda p: IMLELoss(p, kappa=0.0), "kappa must be a finite number above 0; got 0.0"),
        (lambda p: IMLELoss(p, samples=1.5), "samples must be a whole number of at least 1; got 1.5"),
        (lambda p: AIMLELoss(p, target=0.0), "target must be a finite number above 0; got 0.0"),
    ],
)
def test_wrong_settings_are_named(make: Any, message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        make(GRID.problem)


@pytest.mark.parametrize("make", [NIDLoss, PGLoss, DPOLoss, DPOMultiplicativeLoss, IMLELoss, AIMLELoss])
def test_curved_objectives_are_refused(make: type[DecisionLoss]) -> None:
    with pytest.raises(pear.ProblemError, match=f"{make.__name__} is made for linear objectives"):
        make(pear.Problem(Q=torch.eye(2)))

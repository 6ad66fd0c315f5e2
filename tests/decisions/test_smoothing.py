"""``smoothing="auto"``: the λ and the units that it chooses, which do not depend on the units of costs or variables."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

import pear
from pear.decisions import choose_smoothing
from pear.problem.problem_units import problem_in_units
from pear.train.compiled import LinearEpochs
from pear.train.flat_regret import FlatRegret
from pear.train.parallel_ranks import ParallelRanks

RHO = choose_smoothing.STRENGTH
NAN, INF = float("nan"), float("inf")
SIMPLEX = pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0)
COST = torch.tensor([[0.1, 0.3, 0.2], [0.4, 0.2, 0.1]], dtype=torch.float64)
TRUE = torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 5.0]], dtype=torch.float64)
SCALES = [1e-6, 1e-3, 7.0, 1e3, 1e6]


def draw(count: int, n: int, seed: int) -> Tensor:
    return torch.randn(count, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def battery(hours: int = 6) -> pear.Problem:
    """Return a battery with variables for charge, discharge and energy; the energy has no cost."""
    one = np.eye(hours)
    before = np.eye(hours, k=-1)
    rows = np.hstack([-0.9 * one, one / 0.9, one - before])
    upper = np.concatenate([np.full(2 * hours, 2.0), np.full(hours, 5.0)])
    return pear.Problem(A=rows, b=np.zeros(hours), lb=0.0, ub=upper)


def flow(n: int = 520) -> pear.Problem:
    """Return a sparse problem with pairs of variables that sum to 1."""
    rows = sparse.csr_array(np.kron(np.eye(n // 2), np.ones(2)))
    return pear.Problem(A=rows, b=np.ones(n // 2), lb=0.0)


CASES: dict[str, Callable[[], pear.Problem]] = {
    "simplex": lambda: pear.Problem(A=np.ones((1, 8)), b=[1.0], lb=0.0),
    "path": lambda: pear.tasks.shortest_path((3, 3)).problem,
    "knapsack": lambda: pear.Problem(G=[[3.0, 4.0, 2.0, 5.0, 1.0]], h=[7.0], lb=0.0, ub=1.0, sense="max"),
    "battery": battery,
    "sparse": flow,
    "right-hand sides per sample": lambda: pear.Problem(A=np.ones((1, 4)), b=torch.linspace(1, 2, 12)[:, None], lb=0.0),
}


def samples(name: str) -> tuple[pear.Problem, Tensor, Tensor]:
    """Return a problem with predicted and true costs of a few samples."""
    problem = CASES[name]()
    count = 12 if problem.n < 100 else 4
    true = 1.0 + draw(count, problem.n, 0)
    if name == "battery":
        true[:, problem.n // 3 : 2 * problem.n // 3] = -true[:, : problem.n // 3]
        true[:, 2 * problem.n // 3 :] = 0.0
    return problem, true + 0.5 * draw(count, problem.n, 1) * (true != 0), true


def trained(problem: pear.Problem, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor, Tensor, pear.PEARLoss]:
    """Return values, decisions and gradients of one call after ``calibrate``, and the loss."""
    loss = pear.PEARLoss(problem, smoothing="auto", reduction="none")
    loss.calibrate(true)
    moving = predicted.clone().requires_grad_()
    value = loss(moving, true, keys=range(len(true)))
    value.sum().backward()
    assert loss.last is not None
    assert moving.grad is not None
    return value.detach(), loss.last.decision, moving.grad, loss


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9 * float(expected.abs().max()))


# ----------------------------------------------------------------------------------------------------------- invariance


@pytest.mark.parametrize(
    ("name", "factor"), [(name, f) for name in CASES for f in SCALES if name != "sparse" or f == 7]
)
def test_the_unit_of_costs_does_not_matter(name: str, factor: float) -> None:
    problem, predicted, true = samples(name)
    value, z, g, _ = trained(problem, predicted, true)
    scaled_value, scaled_z, scaled_g, _ = trained(problem, factor * predicted, factor * true)
    close(scaled_value, factor * value)
    close(scaled_z, z)
    close(scaled_g, g)  # of a regret that is factor times as large, by costs that are


@pytest.mark.parametrize("name", CASES)
def test_the_unit_of_a_variable_does_not_matter(name: str) -> None:
    problem, predicted, true = samples(name)
    value, z, g, _ = trained(problem, predicted, true)
    units = torch.tensor([1.0, 1e3, 1e-3, 60.0]).double().repeat(problem.n)[: problem.n]
    other_value, other_z, other_g, loss = trained(problem_in_units(problem, units), predicted * units, true * units)
    close(other_value, value)
    close(other_z * units, z)
    close(other_g * units, g)
    assert loss.units is not None


def test_a_layer_and_the_closed_form_follow_the_units_too() -> None:
    problem, predicted, true = samples("battery")
    units = torch.logspace(-2, 2, problem.n, dtype=torch.float64)
    other = problem_in_units(problem, units)
    up = draw(12, problem.n, 5)
    found = []
    for p, u in ((problem, torch.ones_like(units)), (other, units)):
        layer = pear.DecisionLayer(p, smoothing="auto")
        layer.calibrate(true * u)
        cost, ub = (predicted * u).requires_grad_(), (2.0 * problem.ub / u).requires_grad_()
        z = layer(cost, ub=ub)
        (z * u * up).sum().backward()
        found.append((z.detach() * u, cost.grad * u, ub.grad / u))
        found[-1] += (pear.regret_gradient(p, predicted * u, true * u, smoothing="auto") * u,)
        found[-1] += (pear.solve(p, true * u, "auto").x * u, pear.solve(p, true * u, "auto").duals.bound / u)
    for one, two in zip(*found, strict=True):
        close(two, one)


def test_predicted_curvature_is_measured_in_the_same_units() -> None:
    problem, predicted, true = samples("simplex")
    units = torch.logspace(-2, 2, problem.n, dtype=torch.float64)
    root = draw(problem.n, problem.n, 7)
    found = []
    for p, u in ((problem, torch.ones_like(units)), (problem_in_units(problem, units), units)):
        loss = pear.PEARLoss(p, smoothing="auto", injection=0.0)
        loss.calibrate(true * u)
        cost = (predicted * u).requires_grad_()
        Q = (u[:, None] * (root @ root.T) * u).requires_grad_()
        loss(cost, true * u, Q=Q, true_Q=u[:, None] * torch.eye(problem.n).double() * u).backward()
        found.append((cost.grad * u, u[:, None] * Q.grad * u))
    for one, two in zip(*found, strict=True):
        close(two, one)


def test_single_precision_stays_single_precision() -> None:
    problem, predicted, true = samples("battery")
    value, z, g, loss = trained(problem, predicted.float(), true.float())
    assert (value.dtype, z.dtype, g.dtype) == (torch.float32, torch.float64, torch.float32)
    assert loss.units is not None


# -------------------------------------------------------------------------------------------------- what it settles on


def test_another_sample_s_decision_is_the_measure() -> None:
    """λ is measured by the decisions of other samples.

    Under ``TRUE`` the decisions are the second and the first vertex. Exchanged, they cost 2 and 1 more, at a squared
    distance of 2.
    """
    loss = pear.PEARLoss(SIMPLEX, smoothing="auto", injection=0.0, guidance=0.0)
    first = loss(COST, TRUE)
    assert loss.chosen_smoothing == pytest.approx(RHO * 0.5)
    assert loss.units is None
    same = pear.PEARLoss(SIMPLEX, smoothing=loss.chosen_smoothing, injection=0.0, guidance=0.0)
    assert first.item() == same(COST, TRUE).item()
    loss(COST, 1000 * TRUE)
    assert loss.chosen_smoothing == pytest.approx(RHO * 0.5)


def test_it_is_said_once_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    loss = pear.PEARLoss(SIMPLEX, smoothing="auto")
    assert loss.smoothing_note == "smoothing='auto' has not settled yet"
    with caplog.at_level(logging.INFO, logger="pear"):
        loss.calibrate(TRUE)
        loss(COST, TRUE)
    assert caplog.messages == [loss.smoothing_note]
    assert loss.smoothing_note == (
        f"smoothing='auto' settled on λ = {RHO * 0.5:.3g}: {RHO:g} × what the decision of another sample typically "
        "costs a unit of squared distance"
    )
    assert pear.PEARLoss(SIMPLEX, smoothing=0.25).smoothing_note == "smoothing is 0.25, as it was given"
    loss = pear.PEARLoss(battery(), smoothing="auto")
    loss.calibrate(samples("battery")[2])
    assert "in variables measured in their ranges, 2 to 5: " in loss.smoothing_note


def test_units_are_ranges() -> None:
    """A variable's unit is a range.

    It is that of its bounds if decisions reach them, that of its decisions if the bounds are loose, and that of the
    constraints if the variable is the same in all decisions.
    """
    problem = pear.Problem(
        G=[[1.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]],
        h=[3.0, 4.0, 8.0],
        lb=[0.0, 0.0, 0.0, 0.0, 0.0],
        ub=[2.0, 1e6, INF, INF, INF],
    )
    costs = torch.tensor([[-9.0, -1.0, -1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 3.0]]).double()
    loss = pear.PEARLoss(problem, smoothing="auto")
    loss.calibrate(costs)
    assert loss.units is not None
    assert loss.units[:4].tolist() == pytest.approx([2.0, 4.0, 1.0, 8.0])
    spread = (
        (costs.std(0, correction=0) * loss.units)[:3].sort().values[1]
    )  # the fourth does not vary, the last is free
    assert float(loss.units[4] * costs[:, 4].std(correction=0)) == pytest.approx(float(spread))


AUTO: dict[str, tuple[pear.Problem, Any, float]] = {
    "one sample": (SIMPLEX, [[1.0, 2.0, -3.0]], 0.4 * np.std([1.0, 2.0, -3.0])),
    "one cost": (SIMPLEX, [[2.0, 2.0, 2.0]], 0.4 * 2.0),
    "zero costs": (SIMPLEX, [[0.0, 0.0, 0.0]], 0.4),
    "no limits": (pear.Problem(n=3), [[1.0, 2.0, 3.0]], 0.4 * np.std([1.0, 2.0, 3.0])),
    "quadratic": (pear.Problem(Q=np.eye(3), lb=0.0), [[1.0, 2.0, 3.0]], 0.0),
}


@pytest.mark.parametrize("name", AUTO)
def test_it_is_the_same_everywhere(name: str) -> None:
    problem, cost, expected = AUTO[name]
    layer = pear.DecisionLayer(problem, smoothing="auto")
    layer(torch.tensor(cost))
    lam = layer.chosen_smoothing
    assert lam == pytest.approx(RHO * expected)
    assert lam is not None
    assert torch.equal(pear.solve(problem, cost, "auto").x, pear.solve(problem, cost, lam).x)
    args = (problem, torch.tensor([[3.0, 1.0, 1.5]]), cost)
    assert torch.equal(pear.regret_gradient(*args, smoothing="auto"), pear.regret_gradient(*args, smoothing=lam))


def test_samples_without_a_decision_do_not_count() -> None:
    cost = torch.cat([TRUE, torch.tensor([[NAN, INF, 2.0]]).double()])
    with pytest.warns(pear.FailedSamplesWarning):
        auto = pear.solve(SIMPLEX, cost, "auto", on_failure="mask")
    assert torch.equal(auto.x[:2], pear.solve(SIMPLEX, TRUE, "auto").x)


def test_fields_of_the_call_count() -> None:
    """The fields of the call determine λ: the layer's problem has no bounds, and the call brings them."""
    given = {"A": torch.ones(1, 3).double(), "b": torch.full((2, 1), 5.0).double(), "lb": torch.zeros(3).double()}
    layer = pear.DecisionLayer(pear.Problem(n=3, A=np.ones((1, 3)), b=[1.0]), smoothing="auto")
    z = layer(TRUE, **given)
    assert layer.chosen_smoothing == pytest.approx(RHO * 0.5 / 5.0)  # costs and distances are 5 and 25 times as large
    close(z, pear.solve(SIMPLEX, TRUE, layer.chosen_smoothing, b=given["b"]).x)


def test_a_predicted_curvature_needs_no_smoothing() -> None:
    loss = pear.PEARLoss(SIMPLEX, smoothing="auto", injection=0.0)
    loss(COST, TRUE, Q=torch.eye(3).double(), true_Q=torch.eye(3).double())
    assert loss.chosen_smoothing == 0.0
    assert loss.smoothing_note == "smoothing='auto' settled on λ = 0: the objective is curved by itself"


# -------------------------------------------------------------------------------------------------------------- state


def test_units_are_state() -> None:
    problem, predicted, true = samples("battery")
    loss = pear.PEARLoss(problem, smoothing="auto")
    loss.calibrate(true)
    other = pear.PEARLoss(problem, smoothing="auto")
    other.load_state_dict(loss.state_dict())
    assert other.smoothing_note == loss.smoothing_note
    assert other(predicted, 100 * true).item() == loss(predicted, 100 * true).item()
    other.problem = SIMPLEX
    assert (other.chosen_smoothing, other.units, other.problem) == (None, None, SIMPLEX)
    fixed = pear.PEARLoss(problem, smoothing=0.5)
    fixed.load_state_dict(loss.state_dict())
    assert (fixed.chosen_smoothing, fixed.units) == (0.5, None)
    older = pear.PEARLoss(problem, smoothing="auto")
    older.set_extra_state({"smoothing": 0.3})
    assert (older.chosen_smoothing, older.units) == (0.3, None)


def test_the_problem_stays_the_user_s() -> None:
    problem, predicted, true = samples("battery")
    loss = pear.PEARLoss(problem, smoothing="auto")
    loss(predicted, true)
    assert loss.problem is problem
    assert loss.last is not None
    assert problem.A is not None
    torch.testing.assert_close(loss.last.decision @ problem.A.T, torch.zeros(12, 6).double(), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- training


def learn(
    problem: pear.Problem, units: Tensor, monkeypatch: pytest.MonkeyPatch, compiled: bool = True, **options: Any
) -> tuple[torch.nn.Linear, pear.PEARLoss]:
    """Train for twelve epochs with costs in these units; return the model and the loss."""
    features = draw(40, 3, 0)
    true = (1.0 + features @ draw(3, problem.n, 1) + 0.1 * draw(40, problem.n, 2)) * units
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setattr(LinearEpochs, "supports", staticmethod(lambda *args: False))
        torch.manual_seed(0)
        model = torch.nn.Linear(3, problem.n, dtype=torch.float64)
        loss = pear.PEARLoss(problem, **({"smoothing": "auto"} | options))
        config = pear.FitConfig(max_epochs=12, batch_size=7)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        data = features, true
        pear.fit(model, loss, data, data, lambda a, b: float((a - b).square().mean()), config, optimizer=optimizer)
    return model, loss


def test_compiled_epochs_know_units(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pear.Problem(A=np.ones((1, 5)), b=[1.0], lb=0.0)
    units = torch.tensor([1.0, 20.0, 0.1, 3.0, 0.5]).double()
    (mine, loss), (plain, other) = (
        learn(problem_in_units(problem, units), units, monkeypatch, way) for way in (True, False)
    )
    assert loss.units is not None
    torch.testing.assert_close(mine.weight, plain.weight, rtol=1e-9, atol=1e-11)
    assert loss.last is not None
    assert other.last is not None
    torch.testing.assert_close(loss.last.decision, other.last.decision, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_warning_where_most_gradients_are_zero(
    compiled: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With little smoothing nearly every decision is a vertex, so that a warning advises more smoothing."""
    problem, ones = pear.Problem(A=np.ones((1, 5)), b=[1.0], lb=0.0), torch.ones(5).double()
    caplog.set_level(logging.WARNING, logger="pear")
    _, loss = learn(problem, ones, monkeypatch, compiled, smoothing=1e-6, guidance=0.0)
    (text,) = caplog.messages
    for part in (
        "of the samples is exactly zero in epoch 10",
        "larger smoothing (λ is 1e-06; 'auto' picks one)",
        "guidance=1.0",
        "the mean of the training costs",
    ):
        assert part in text
    assert loss.warned_of_flat
    learn(problem, ones, monkeypatch, compiled, smoothing=1e-6, guidance=1.0)  # which pulls: no warning
    learn(problem, ones, monkeypatch, compiled, guidance=0.0)
    assert caplog.messages == [text]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, None),
        ({"smoothing": 1e-6}, "Pass a larger smoothing (λ is 1e-06; 'auto' picks one), or begin"),
        ({"guidance": 0.0}, "Pass a larger smoothing than 'auto' has picked (λ is 0.5), guidance=1.0, which"),
    ],
)
def test_no_advice_that_was_followed_already(
    options: dict[str, Any], advice: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """After ten epochs with zero gradients and faded guidance, the warning does not advise what is already set."""
    caplog.set_level(logging.WARNING, logger="pear")
    loss = pear.PEARLoss(pear.Problem(A=np.ones((1, 5)), b=[1.0], lb=0.0), **options)
    if loss.smoothing == "auto":
        loss._use_smoothing(choose_smoothing.Smoothing.given(0.5))
    loss.step(10_000)
    flat = FlatRegret(loss)
    with ParallelRanks() as alone:
        for epoch in range(1, 13):
            flat.end(epoch, compiled=4.0, seen=4, ranks=alone)
    assert len(caplog.messages) == (advice is not None)
    assert advice is None or advice in caplog.messages[0]


def test_a_range_is_the_distance_between_the_bounds() -> None:
    bounds = torch.tensor([2.0, -1.0], dtype=torch.float64), torch.tensor([5.0, 3.0], dtype=torch.float64)
    decisions = torch.tensor([[2.0, -1.0], [5.0, 3.0]], dtype=torch.float64)
    assert choose_smoothing._choose_units(decisions, bounds, lambda idle: idle.double()).tolist() == [3.0, 4.0]


@pytest.mark.parametrize(("costs", "size"), [([], 1.0), ([3.0, 3.0], 3.0), ([0.0, 0.0], 1.0)])
def test_costs_that_do_not_vary_have_a_size(costs: list[float], size: float) -> None:
    assert choose_smoothing._choose_size_from_costs(torch.tensor([costs], dtype=torch.float64)) == size

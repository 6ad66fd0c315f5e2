"""Costs on one device and a problem on another: the device of the decisions and that of the results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import pear
from pear.decisions import decision_device
from pear.decisions.decision_device import choose_device, estimate_device_times
from pear.losses import make_loss
from pear.problem import Model, Problem

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
TOL = 1e-9


def path(side: int = 5) -> Problem:
    return pear.tasks.shortest_path((side, side)).problem


def draws(problem: Problem, samples: int, width: int | None = None) -> tuple[Tensor, Tensor]:
    """Draw predicted and true costs, (samples, width), in float64."""
    generator = torch.Generator().manual_seed(0)
    shape = 2, samples, problem.n if width is None else width
    predicted, true = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
    return predicted, true


def battery() -> Model:
    """Return a model whose two predicted prices determine four costs, with variables of different ranges."""
    M = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-0.9, 0.0], [0.0, -0.9]], dtype=torch.float64)
    problem = Problem(A=[[1.0, 1.0, -1.0, -1.0]], b=[0.5], lb=0.0, ub=[1.0, 20.0, 1.0, 30.0])
    return Model(problem, cost_map=pear.CostMap(M, known=[0.1, 0.1, 0.0, 0.0]))


def demand() -> Model:
    problem = Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0, ub=2.0)
    return Model.predicting(problem, b=True, recourse=pear.Penalty(b=5.0))


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "microseconds"),
    [
        (path(5), 25.0),
        (Problem(A=torch.ones(1, 100), b=[1.0], lb=0.0), 37.0),
        (Problem(A=torch.ones(24, 144), b=torch.ones(24), lb=0.0), 100.0),
        (path(12), 1_200.0),
        (Problem(G=torch.ones(30, 100), h=torch.ones(30)), 250.0),
    ],
    ids=["path-5", "portfolio", "assignment", "path-12", "dense"],
)
def test_a_core_is_estimated_within_a_factor_of_three(problem: Problem, microseconds: float) -> None:
    core, _ = estimate_device_times(problem, 10, fused=True)
    assert microseconds / 3 < core / 10 < 3 * microseconds


@pytest.mark.parametrize(
    ("problem", "samples", "fused", "expected"),
    [
        (path(5), 32, True, CPU),
        (path(5), 512, True, GPU),
        (path(12), 1, True, CPU),
        (path(12), 32, True, GPU),
        (path(5), 100_000, False, CPU),  # a linear program
        (Problem(Q=torch.eye(40), A=torch.ones(1, 40), b=[1.0]), 500, False, CPU),
        (Problem(Q=torch.eye(40), A=torch.ones(1, 40), b=[1.0]), 10_000, False, GPU),
        (demand(), 10**6, True, CPU),
        (Problem(n=480, G=torch.ones(40, 480), h=torch.ones(40)), 32, True, CPU),  # too large for a kernel
        (Problem(lb=0.0, ub=1.0, n=5, integer=True), 10**6, False, CPU),
    ],
)
def test_the_faster_device_is_chosen(
    problem: Problem | Model, samples: int, fused: bool, expected: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_device.importlib.util, "find_spec", lambda name: True)  # as if Triton were there
    device, note = choose_device(problem, GPU, samples, fused)
    assert device == expected
    assert f"made on {expected if expected == GPU else 'the CPU'}" in note
    assert "cuda:0" in note


def test_without_triton_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_device.importlib.util, "find_spec", lambda name: None)
    assert choose_device(path(5), GPU, 512, fused=True)[0] == CPU


def test_a_sparse_problem_and_one_with_a_smooth_term_stay() -> None:
    sparse = torch.eye(600).to_sparse()
    phi = pear.Smooth(lambda z: z.logsumexp(1), lambda z: z.softmax(1), lambda z: torch.diag_embed(z))
    for problem in (Problem(A=sparse, b=torch.ones(600)), Problem(n=500, phi=phi)):
        assert choose_device(problem, GPU, 10**6, fused=True)[0] == CPU


def test_other_accelerators_decide_on_the_cpu() -> None:
    device, note = choose_device(path(12), torch.device("mps:0"), 10**6, fused=True)
    assert device == CPU
    assert note == "decisions for costs on mps:0 are made on the CPU, and results go back to mps:0"


# -- the boundary, with a device that this machine does not have -------------------------------------------------------


class FarTensor(Tensor):
    """A tensor on the CPU that claims to be on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return GPU

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


class FarDevice(TorchFunctionMode):
    """Simulate ``tensor.to("cuda:0")``, and count the copies from this device to the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.to and len(args) == 2 and isinstance(args[1], torch.device):
            tensor, device = args
            self.fetched += int(isinstance(tensor, FarTensor) and device == CPU)
            return tensor.as_subclass(FarTensor if device == GPU else Tensor)
        found = func(*args, **kwargs)
        return found.as_subclass(Tensor) if kwargs.get("device") == CPU and isinstance(found, Tensor) else found


@pytest.fixture
def far() -> Iterator[FarDevice]:
    with FarDevice() as device:
        yield device


def sent(value: Tensor) -> Tensor:
    return value.detach().clone().as_subclass(FarTensor)


def test_functions_answer_on_the_device_of_the_costs(far: FarDevice) -> None:
    problem = path(3)
    predicted, true = draws(problem, 4)
    functions: list[Callable[[Tensor, Tensor], Any]] = [
        lambda c, _: pear.solve(problem, c, 0.1).x,
        lambda c, _: pear.solve(problem, cost=c, smoothing=0.1).value,
        lambda c, _: pear.solve(problem, c[0], 0.1).kkt_residual,
        lambda p, t: pear.regret(problem, p, t),
        lambda p, t: pear.regret_gradient(problem, p, t, injection=0.1),
    ]
    for function in functions:
        here, there = function(predicted, true), function(sent(predicted), sent(true))
        assert there.device == GPU
        assert torch.equal(there.as_subclass(Tensor), here)
    assert pear.normalized_regret(problem, sent(predicted), sent(true)) == pear.normalized_regret(
        problem, predicted, true
    )
    assert far.fetched > 0


def test_a_loss_gives_value_and_gradient_where_the_costs_are(far: FarDevice, caplog: pytest.LogCaptureFixture) -> None:
    problem = path(3)
    predicted, true = draws(problem, 4)
    here, there = (pear.PEARLoss(problem, smoothing=0.1) for _ in range(2))
    for _ in range(2):  # the second time from warm starts
        near = predicted.clone().requires_grad_()
        here(near, true, keys=range(4)).backward()
    assert here.decision_device is None
    with caplog.at_level(logging.INFO, "pear"):
        for _ in range(2):
            leaf = predicted.clone().requires_grad_()
            value = there(leaf.as_subclass(FarTensor), sent(true), keys=range(4))
            value.backward()
    assert value.device == GPU
    assert leaf.grad is not None
    assert near.grad is not None
    assert torch.equal(leaf.grad.as_subclass(Tensor), near.grad)
    assert there.decision_device == CPU
    assert [record.getMessage()[:58] for record in caplog.records] == [
        "decisions for costs on cuda:0 are made on the CPU: one cor"
    ]
    assert there.last is not None
    assert there.last.decision.device == CPU


def test_one_curvature_for_both_objectives_stays_one(far: FarDevice) -> None:
    problem = Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    predicted, true = draws(problem, 4)
    Q = torch.eye(3, dtype=torch.float64)
    loss = pear.PEARLoss(problem, smoothing=0.0, guidance=0.0)
    expected, given = pear.PEARLoss(problem, smoothing=0.0, guidance=0.0)(predicted, true, Q=Q, true_Q=Q), sent(Q)
    assert torch.equal(loss(sent(predicted), sent(true), Q=given, true_Q=given).as_subclass(Tensor), expected)
    assert loss.last is not None
    assert loss.last._call.shares_curvature


@pytest.mark.parametrize("make", [battery, demand])
def test_models_and_units_follow(make: Callable[[], Model], far: FarDevice) -> None:
    model = make()
    predicted, true = draws(model.problem, 6, model.inputs)
    results = []
    for send in (Tensor.clone, sent):
        loss, layer = pear.PEARLoss(model), pear.DecisionLayer(model, smoothing="auto")
        loss.calibrate(send(true))
        layer.calibrate(send(true))
        leaves = [predicted.clone().requires_grad_() for _ in range(2)]
        inputs = [leaf if send is Tensor.clone else leaf.as_subclass(FarTensor) for leaf in leaves]
        value, z = loss(inputs[0], send(true)), layer(inputs[1])
        (value + z.square().sum()).backward()
        results.append(
            [one.as_subclass(Tensor) for one in (value.detach(), z.detach(), *(leaf.grad for leaf in leaves))]
        )
    assert z.device == value.device == GPU
    for here, there in zip(*results, strict=True):
        assert torch.equal(here, there)


@pytest.mark.parametrize("name", ["spo+", "pfyl", "dbb", "lava"])
def test_baselines_follow(name: str, far: FarDevice) -> None:
    problem = path(3)
    predicted, true = draws(problem, 4)
    near, leaf = (predicted.clone().requires_grad_() for _ in range(2))
    make_loss(name, problem)(near, true).backward()
    value = make_loss(name, problem)(leaf.as_subclass(FarTensor), sent(true))
    value.backward()
    assert near.grad is not None
    assert leaf.grad is not None
    assert torch.equal(leaf.grad.as_subclass(Tensor), near.grad)


def test_the_metric_of_a_training_decides_once_and_follows(far: FarDevice, caplog: pytest.LogCaptureFixture) -> None:
    from pear.train.validation_score import RegretMetric

    problem = path(3)
    predicted, true = draws(problem, 8)
    with caplog.at_level(logging.INFO, "pear"):
        metric = RegretMetric(problem, sent(true))
        values = [metric(sent(predicted), sent(true)) for _ in range(2)]
    assert values == [RegretMetric(problem, true)(predicted, true)] * 2
    assert len(caplog.records) == 1


# -- the copy of the problem -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.1, "auto"])
def test_a_moved_problem_keeps_smoothing_and_warm_starts(smoothing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = battery()
    predicted, true = draws(model.problem, 6, 2)
    loss = pear.PEARLoss(model, smoothing)
    expected, before = loss(predicted, true, keys=range(6)), loss.decider
    copy = battery()
    monkeypatch.setattr("pear.losses.decision_module.move_problem_to_device", lambda problem, device: copy)
    loss._move_problem(CPU)
    assert loss.problem is copy.problem
    assert loss.given is model
    assert loss.decider is not before
    assert torch.equal(loss(predicted, true, keys=range(6)), expected)
    assert loss.last is not None
    assert loss.last.reuse_rate == 1.0


def test_another_problem_asks_for_another_choice() -> None:
    loss = pear.PEARLoss(path(3), smoothing=0.1)
    loss.decision_device = "cpu"
    assert loss.decision_device == CPU
    loss.problem = path(4)
    assert loss.decision_device is None


def test_a_copy_is_made_once() -> None:
    problem, far_away = path(3), torch.device("meta")
    moved = decision_device.move_problem_to_device(problem, far_away)
    assert moved.device == far_away
    assert decision_device.move_problem_to_device(problem, far_away) is moved
    assert decision_device.move_problem_to_device(problem, CPU) is problem


# -- a GPU -------------------------------------------------------------------------------------------------------------


def training_step(
    model: Problem | Model, predicted: Tensor, true: Tensor, device: torch.device | None = None
) -> tuple[list[Tensor], pear.PEARLoss]:
    """Return values and gradients of loss and layer, with λ and units chosen by "auto", and the loss."""
    loss, layer = pear.PEARLoss(model), pear.DecisionLayer(model, smoothing="auto")
    loss.decision_device = layer.decision_device = device
    loss.calibrate(true)
    layer.calibrate(true)
    for _ in range(3):  # step by step, captured and replayed
        leaves = [predicted.clone().requires_grad_() for _ in range(2)]
        value, z = loss(leaves[0], true, keys=range(len(true))), layer(leaves[1])
        (value + z.square().sum()).backward()
    return [value.detach(), z.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)], loss


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch.cuda.is_available() is False")
class TestOnAGPU:
    @pytest.mark.parametrize(("samples", "decides"), [(8, CPU), (2048, GPU)])
    @pytest.mark.parametrize("make", [path, battery, demand])
    def test_loss_and_layer(self, make: Callable[[], Any], samples: int, decides: torch.device) -> None:
        model = make()
        own = model.problem if isinstance(model, Model) else model
        predicted, true = draws(own, samples, model.inputs if isinstance(model, Model) else None)
        here, _ = training_step(model, predicted, true)
        asked = None if make is path else decides
        there, loss = training_step(model, predicted.cuda(), true.cuda(), asked)
        assert loss.decision_device == loss.problem.device == decides
        assert len(there) == len(here) == 4
        for one, other in zip(here, there, strict=True):
            assert other.device == GPU
            torch.testing.assert_close(other.cpu(), one, rtol=TOL, atol=TOL * float(one.abs().max()))

    def test_the_choice_can_be_overridden(self) -> None:
        problem = path()
        predicted, true = (part.cuda() for part in draws(problem, 8))
        values = []
        for device in ("cpu", "cuda"):
            loss = pear.PEARLoss(problem, smoothing=0.1)
            loss.decision_device = device
            values.append(float(loss(predicted, true)))
            assert loss.last is not None
            assert loss.last.decision.device.type == loss.problem.device.type == device
        stays = pear.PEARLoss(problem.to("cuda"), smoothing=0.1)
        for costs in ((predicted, true), (predicted.cpu(), true.cpu())):
            value = stays(*costs)
            assert value.device == costs[0].device
            assert stays.problem.device == GPU
            values.append(float(value))
        assert values == pytest.approx([values[0]] * 4, rel=TOL)

    @pytest.mark.parametrize("samples", [4, 50_000])
    def test_functions(self, samples: int) -> None:
        problem = pear.Problem(A=torch.ones(1, 30), b=[1.0], lb=0.0, Q=torch.eye(30))
        predicted, true = draws(problem, samples)
        for function in (pear.regret, pear.regret_gradient, lambda p, t, _: pear.solve(p, t).x):
            here = function(problem, predicted, true)
            there = function(problem, predicted.cuda(), true.cuda())
            assert there.device == GPU
            torch.testing.assert_close(there.cpu(), here, rtol=TOL, atol=TOL * float(here.abs().max()))

    @pytest.mark.parametrize("name", ["pear", "spo+", "mse"])
    def test_fit_with_all_but_the_problem_on_the_gpu(self, name: str) -> None:
        task = pear.tasks.shortest_path((5, 5))
        X, C = (part.double() for part in task.samples(160, degree=4, seed=0))
        best = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(0)
            model = torch.nn.Linear(5, task.problem.n, dtype=torch.float64).to(device)
            loss = make_loss(name, task.problem)
            config = pear.FitConfig(max_epochs=4, check_every=2, seed=0)
            history = pear.fit(model, loss, (X.to(device), C.to(device)), config=config)
            assert next(model.parameters()).device.type == device
            assert history.best is not None
            best.append(history.best.metric)
        assert best[0] == pytest.approx(best[1], rel=1e-6)

"""Whole epochs in compiled code do what the usual loop does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pear
from pear.train import FitConfig, fit
from pear.train.linear import LinearEpochs

PATHS = pear.tasks.shortest_path((3, 3))


def samples(dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    train, validation, _ = PATHS.split(PATHS.samples(120, degree=4, dtype=dtype))
    return train, validation


def trained(dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, ...]:
    """Train three epochs with a batch size that does not divide the number of samples."""
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setattr(LinearEpochs, "open_to", staticmethod(lambda *args: False))
        torch.manual_seed(0)
        model = nn.Linear(5, PATHS.problem.n, bias=options.pop("bias", True), dtype=dtype)
        loss = pear.PEARLoss(options.pop("problem", PATHS.problem), options.pop("smoothing", 0.1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        config = FitConfig(max_epochs=options.pop("max_epochs", 3), check_every=1, batch_size=7)
        data = samples(dtype)
        history = fit(model, loss, *data, PATHS.normalized_regret, config, optimizer=optimizer, **options)
    return model, loss, optimizer, history


@pytest.mark.parametrize("bias", [True, False])
def test_same_weights_and_history(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    here, usual = (trained(torch.float64, way, monkeypatch, bias=bias) for way in (True, False))
    torch.testing.assert_close(here[0].weight, usual[0].weight, rtol=1e-9, atol=1e-11)
    for mine, theirs in zip(here[3].checks, usual[3].checks, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-9)
        assert mine.metric == pytest.approx(theirs.metric, rel=1e-9)
    assert (here[1].samples, here[1].reused) == (usual[1].samples, usual[1].reused) == (180, usual[1].reused)
    assert here[1].reused > 0


def test_the_optimisers_state_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    here, usual = (trained(torch.float64, way, monkeypatch) for way in (True, False))
    for mine, theirs in zip(*(list(run[2].state_dict()["state"].values()) for run in (here, usual)), strict=True):
        assert float(mine["step"]) == float(theirs["step"]) == 27
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-8, atol=1e-12)


def test_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    here, usual = (trained(torch.float32, way, monkeypatch, max_epochs=1) for way in (True, False))
    assert here[0].weight.dtype == torch.float32
    torch.testing.assert_close(here[0].weight, usual[0].weight, rtol=1e-4, atol=1e-5)


def test_compiled_code_is_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, predicted: Tensor, true: Tensor, keys: Any = None) -> None:
        raise AssertionError("a step was taken the usual way")

    monkeypatch.setattr(pear.PEARLoss, "forward", refuse)
    assert trained(torch.float64, True, monkeypatch)[3].epochs == 3


def test_a_batch_that_must_be_left_goes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from pear.train import linear

    original = linear.kernel.linear_epoch
    left = []

    def balks(*args: Any) -> int:
        """Ends before batches 2 and 5, as if a sample of theirs could not be solved."""
        *rest, first = args
        order, size = rest[3], len(rest[10].rows)
        left.extend(k for k in (2, 5) if k > first and k not in left)
        end = next((k for k in (2, 5) if k > first), None)
        return int(original(*rest[:3], order if end is None else order[: end * size], *rest[4:], first))

    usual = trained(torch.float64, False, monkeypatch, max_epochs=1)
    monkeypatch.setattr(linear.kernel, "linear_epoch", balks)
    mixed = trained(torch.float64, True, monkeypatch, max_epochs=1)
    assert left == [2, 5]
    torch.testing.assert_close(mixed[0].weight, usual[0].weight, rtol=1e-9, atol=1e-11)
    assert mixed[3].checks[-1].loss == pytest.approx(usual[3].checks[-1].loss, rel=1e-9)


def test_a_checkpoint_can_change_hands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = trained(torch.float64, False, monkeypatch, max_epochs=4)
    half = tmp_path / "run.pt"
    trained(torch.float64, True, monkeypatch, max_epochs=2, checkpoint=half)
    rest = trained(torch.float64, False, monkeypatch, max_epochs=4, checkpoint=half)
    torch.testing.assert_close(rest[0].weight, whole[0].weight, rtol=1e-8, atol=1e-10)


def test_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pear.Problem(A=PATHS.problem.A, b=PATHS.problem.b, lb=0.0, ub=1.0 + torch.rand(60, PATHS.problem.n))
    here, usual = (trained(torch.float64, way, monkeypatch, problem=problem) for way in (True, False))
    torch.testing.assert_close(here[0].weight, usual[0].weight, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "change",
    ["subclass", "sequential", "hook", "weight decay", "sgd", "sum", "no smoothing", "curvature", "another solver"],
)
def test_anything_unusual_goes_the_usual_way(change: str) -> None:
    class Mine(nn.Linear):
        pass

    (features, costs), _ = samples(torch.float32)
    n = PATHS.problem.n
    model: nn.Module = {"subclass": Mine(5, n), "sequential": nn.Sequential(nn.Linear(5, n))}.get(
        change, nn.Linear(5, n)
    )
    if change == "hook":
        model.register_forward_hook(lambda *args: None)
    curved = pear.Problem(Q=torch.eye(n), A=PATHS.problem.A, b=PATHS.problem.b, lb=0.0)
    options: dict[str, Any] = {
        "sum": {"reduction": "sum"},
        "no smoothing": {"smoothing": 0.0, "injection": 0.0},
        "another solver": {"solver": "pear"},
    }.get(change, {})
    loss = pear.PEARLoss(curved if change == "curvature" else PATHS.problem, **options)
    decay = 0.1 if change == "weight decay" else 0.0
    kind = torch.optim.SGD if change == "sgd" else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=0.01, weight_decay=decay)
    assert not LinearEpochs.open_to(model, loss, optimizer, features, costs)


def test_the_ordinary_run_is_open_to_it() -> None:
    (features, costs), _ = samples(torch.float32)
    model = nn.Linear(5, PATHS.problem.n)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    assert LinearEpochs.open_to(model, pear.PEARLoss(PATHS.problem), optimizer, features, costs)

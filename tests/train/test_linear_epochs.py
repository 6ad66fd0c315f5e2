"""Whole epochs in compiled code have the results of the plain loop."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

import pear
from pear.compile.kernel_cache import kernel_cache_sources
from pear.solvers.active_set import batch_kernel as kernels
from pear.train import FitConfig, Progress, fit
from pear.train.compiled import LinearEpochs
from pear.train.compiled import epoch_kernel as epoch
from pear.train.compiled.compile_all import PARTS

PATHS = pear.tasks.shortest_path((3, 3))
SIMPLEX = pear.Problem(A=torch.ones(1, PATHS.problem.n), b=[1.0], lb=0.0)


def samples(dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    train, validation, _ = PATHS.split(PATHS.samples(120, degree=4, dtype=dtype))
    return train, validation


def trained(dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, ...]:
    """Train three epochs with a batch size that does not divide the number of samples."""
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setattr(LinearEpochs, "supports", staticmethod(lambda *args: False))
        torch.manual_seed(0)
        model = nn.Linear(5, PATHS.problem.n, bias=options.pop("bias", True), dtype=dtype)
        loss = pear.PEARLoss(
            options.pop("problem", PATHS.problem), options.pop("smoothing", 0.1), guidance=0.0, injection=0.1
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05, fused=options.pop("fused", None))
        config = FitConfig(max_epochs=options.pop("max_epochs", 3), check_every=1, batch_size=7)
        data = samples(dtype)
        history = fit(model, loss, *data, PATHS.normalized_regret, config, optimizer=optimizer, **options)
    return model, loss, optimizer, history


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"fused": True}])
def test_same_weights_and_history(options: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    here, plain = (trained(torch.float64, way, monkeypatch, **options) for way in (True, False))
    torch.testing.assert_close(here[0].weight, plain[0].weight, rtol=1e-9, atol=1e-11)
    for mine, theirs in zip(here[3].checks, plain[3].checks, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-9)
        assert mine.metric == pytest.approx(theirs.metric, rel=1e-9)
    assert here[1].samples == plain[1].samples == 180
    assert here[1].reused > 0
    assert plain[1].reused > 0


def test_the_loss_counts_and_keeps_what_compiled_code_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simplex the decision determines the working set, so that both loops reuse the same ones.

    A path is a degenerate vertex with several bases. Rounding decides between them in a tie of the ratio test, and only
    some of them are still optimal under the next forecast.
    """
    here, plain = (trained(torch.float64, way, monkeypatch, problem=SIMPLEX)[1] for way in (True, False))
    assert (here.samples, here.reused) == (plain.samples, plain.reused)
    assert 0 < here.reused < here.samples == 180
    mine, theirs = here.last, plain.last
    assert len(mine.regret) == 4  # 60 samples in batches of 7
    for name in ("decision", "regret", "kkt_residual", "status", "tangent_dim", "weakly_active"):
        torch.testing.assert_close(getattr(mine, name), getattr(theirs, name), rtol=1e-9, atol=1e-11)
    for name in ("reuse_rate", "zero_gradient_rate", "repaired_rate"):
        assert getattr(mine, name) == getattr(theirs, name)


def test_the_last_call_of_an_epoch_outlives_the_next_one() -> None:
    """The compiled code reuses its arrays, but the results that the loss keeps are copies."""
    model, loss = (
        nn.Linear(5, PATHS.problem.n),
        pear.PEARLoss(PATHS.problem, guidance=0.0, smoothing=0.1, injection=0.1),
    )
    seen: list[tuple[Any, Tensor]] = []

    def keep(now: Progress) -> None:
        assert loss.last is not None
        seen.append((loss.last, loss.last.decision.clone()))

    config = FitConfig(max_epochs=3, start="standardised")
    fit(model, loss, *samples(torch.float32), PATHS.normalized_regret, config, progress=keep)
    assert len({id(last) for last, _ in seen}) == 3
    for last, decision in seen:
        assert len(last.regret) == 60 - 32
        assert torch.equal(last.decision, decision)


def test_the_optimisers_state_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    here, plain = (trained(torch.float64, way, monkeypatch) for way in (True, False))
    for mine, theirs in zip(*(list(run[2].state_dict()["state"].values()) for run in (here, plain)), strict=True):
        assert float(mine["step"]) == float(theirs["step"]) == 27
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-8, atol=1e-12)


def test_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    here, plain = (trained(torch.float32, way, monkeypatch, max_epochs=1) for way in (True, False))
    assert here[0].weight.dtype == torch.float32
    torch.testing.assert_close(here[0].weight, plain[0].weight, rtol=1e-4, atol=1e-5)


def test_compiled_code_is_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, predicted: Tensor, true: Tensor, keys: Any = None) -> None:
        raise AssertionError("a step was taken by the plain loop")

    monkeypatch.setattr(pear.PEARLoss, "forward", refuse)
    assert trained(torch.float64, True, monkeypatch)[3].epochs == 3


def test_a_batch_that_must_be_left_takes_the_fallback_path(monkeypatch: pytest.MonkeyPatch) -> None:
    original = epoch.run_epoch_kernel
    left = []

    def balks(regret: int, P: Any, data: epoch.TrainingSet, *rest: Any) -> int:
        """Stop before batches 2 and 5, as if one of their samples could not be solved."""
        *_, room, first = rest
        left.extend(k for k in (2, 5) if k > first and k not in left)
        end = next((k for k in (2, 5) if k > first), None)
        order = data.order if end is None else data.order[: end * len(room.samples.at)]
        return int(original(regret, P, data._replace(order=order), *rest))

    plain = trained(torch.float64, False, monkeypatch, max_epochs=1)
    monkeypatch.setattr(epoch, "run_epoch_kernel", balks)
    mixed = trained(torch.float64, True, monkeypatch, max_epochs=1)
    assert left == [2, 5]
    torch.testing.assert_close(mixed[0].weight, plain[0].weight, rtol=1e-9, atol=1e-11)
    assert mixed[1].samples == plain[1].samples == 60
    assert mixed[3].checks[-1].loss == pytest.approx(plain[3].checks[-1].loss, rel=1e-9)


def test_a_change_in_the_active_set_method_empties_the_cache_of_the_epoch() -> None:
    sources = kernel_cache_sources(epoch.run_epoch_kernel.py_func)
    for module in (kernels, epoch):
        assert any(Path(module.__file__).resolve().is_relative_to(source) for source in sources)


def test_compile_now() -> None:
    """The command prints a line for each part; the tests above have already put most parts into the cache."""
    command = [sys.executable, "-m", "pear.train.compiled"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == list(PARTS)


def test_a_checkpoint_can_change_hands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = trained(torch.float64, False, monkeypatch, max_epochs=4)
    half = tmp_path / "run.pt"
    trained(torch.float64, True, monkeypatch, max_epochs=2, checkpoint=half)
    rest = trained(torch.float64, False, monkeypatch, max_epochs=4, checkpoint=half)
    torch.testing.assert_close(rest[0].weight, whole[0].weight, rtol=1e-8, atol=1e-10)


def test_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pear.Problem(A=PATHS.problem.A, b=PATHS.problem.b, lb=0.0, ub=1.0 + torch.rand(60, PATHS.problem.n))
    here, plain = (trained(torch.float64, way, monkeypatch, problem=problem) for way in (True, False))
    torch.testing.assert_close(here[0].weight, plain[0].weight, rtol=1e-9, atol=1e-11)


def curved_problem(**fields: Any) -> pear.Problem:
    """Return a quadratic program of 12 bounded variables, with three rows."""
    random = torch.Generator().manual_seed(0)
    root, rows = (torch.randn(12, 12, generator=random, dtype=torch.float64) for _ in range(2))
    Q = root @ root.T / 12 + 0.1 * torch.eye(12)
    return pear.Problem(**{"Q": Q, "G": rows[:3], "h": [1.0] * 3, "lb": -1.0, "ub": 1.0, **fields})


SINGULAR = torch.diag(torch.tensor([1.0] * 6 + [0.0] * 6, dtype=torch.float64))
MAP = torch.randn(12, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
KNOWN = torch.randn(60, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def with_map(problem: pear.Problem, M: Any, known: Any = None) -> pear.Model:
    return pear.Model(problem, cost_map=pear.CostMap(M, known))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (curved_problem(), {}),
        (curved_problem(), {"smoothing": 0.3, "injection": 0.1}),
        (curved_problem(sense="max", Q=-torch.eye(12)), {"injection": 0.0, "guidance": 0.0}),
        (curved_problem(Q=SINGULAR), {}),
        (with_map(curved_problem(Q=None), MAP), {}),
        (with_map(curved_problem(Q=None, sense="max"), sparse.csr_array(MAP * (MAP > 0)), KNOWN[0]), {}),
        (with_map(curved_problem(), MAP, KNOWN), {}),
        (with_map(curved_problem(), None, KNOWN[0]), {}),
    ],
    ids=["Q", "Q and λ", "concave maximum", "singular Q", "map", "sparse map", "Q and own known costs", "known costs"],
)
def test_curvature_and_cost_maps(
    problem: Any, options: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled epoch injects H⁻¹e and applies cost maps as the plain loop does, and records the same."""
    random = torch.Generator().manual_seed(3)
    count = problem.inputs if isinstance(problem, pear.Model) else problem.n
    X = torch.randn(60, 5, generator=random, dtype=torch.float64)
    values = X @ torch.randn(5, count, generator=random, dtype=torch.float64)
    values = values + torch.randn(values.shape, generator=random, dtype=torch.float64)
    runs = []
    for compiled in (True, False):
        with monkeypatch.context() as patch:
            if compiled:
                patch.setattr(pear.PEARLoss, "forward", None)  # no step of the plain loop
            else:
                patch.setattr(LinearEpochs, "supports", staticmethod(lambda *args: False))
            torch.manual_seed(0)
            model, loss = nn.Linear(5, count, dtype=dtype), pear.PEARLoss(problem, **options)
            config = FitConfig(max_epochs=3, check_every=1, batch_size=7, start="standardised")
            data = X.to(dtype), values.to(dtype)
            history = fit(model, loss, data, data, lambda predicted, true: 0.0, config)
        runs.append((model, loss, history))
    (here, mine, checks), (plain, theirs, others) = runs
    close = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(here.weight, plain.weight, **close)
    assert [one.loss for one in checks.checks] == pytest.approx([one.loss for one in others.checks], rel=close["rtol"])
    torch.testing.assert_close(mine.last.regret, theirs.last.regret, **close)
    torch.testing.assert_close(mine.last.decision, theirs.last.decision, **close)
    assert (mine.samples, mine.current_guidance) == (theirs.samples, pytest.approx(theirs.current_guidance))


@pytest.mark.parametrize(
    "change",
    ["subclass", "sequential", "hook", "weight decay", "sgd", "sum", "no smoothing", "flat", "own Q", "another solver"],
)
def test_anything_else_is_not_supported(change: str) -> None:
    class Mine(nn.Linear):
        pass

    (features, costs), _ = samples(torch.float32)
    n = PATHS.problem.n
    model: nn.Module = {"subclass": Mine(5, n), "sequential": nn.Sequential(nn.Linear(5, n))}.get(
        change, nn.Linear(5, n)
    )
    if change == "hook":
        model.register_forward_hook(lambda *args: None)
    rows = {"A": PATHS.problem.A, "b": PATHS.problem.b, "lb": 0.0}
    problem = {
        "flat": pear.Problem(Q=torch.diag(torch.arange(n)), **rows),  # no curvature in the first direction
        "own Q": pear.Problem(Q=torch.eye(n).repeat(60, 1, 1), **rows),
    }.get(change, PATHS.problem)
    options: dict[str, Any] = {
        "sum": {"reduction": "sum"},
        "no smoothing": {"smoothing": 0.0, "injection": 0.0},
        "flat": {"smoothing": 0.0},
        "another solver": {"solver": "interior-point"},
    }.get(change, {})
    loss = pear.PEARLoss(problem, **{"smoothing": 0.1, **options})
    decay = 0.1 if change == "weight decay" else 0.0
    kind = torch.optim.SGD if change == "sgd" else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=0.01, weight_decay=decay)
    assert not LinearEpochs.supports(model, loss, optimizer, features, costs)


def test_the_default_run_is_supported() -> None:
    (features, costs), _ = samples(torch.float32)
    model = nn.Linear(5, PATHS.problem.n)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    assert LinearEpochs.supports(
        model, pear.PEARLoss(PATHS.problem, guidance=0.0, smoothing=0.1, injection=0.1), optimizer, features, costs
    )


def test_a_sample_without_a_row_is_refused() -> None:
    """A problem with fields for 30 samples cannot train on 40."""
    problem = pear.Problem(A=[[1.0] * 5], b=torch.ones(30, 1), lb=0.0)
    data = torch.randn(40, 3), torch.randn(40, 5)
    with pytest.raises(pear.ProblemError, match="row numbers, 0 to 29"):
        pear.fit(
            torch.nn.Linear(3, 5),
            pear.PEARLoss(problem, 1.0, guidance=0.0, injection=0.1),
            data,
            data,
            lambda *a: 0.5,
            pear.FitConfig(max_epochs=1),
        )


@pytest.mark.parametrize("bad", ["rows", "true cost"])
def test_failed_samples_are_left_out_as_in_the_plain_loop(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second epoch on, failed samples no longer send their batch to the fallback path."""
    n, failed = PATHS.problem.n, [3, 10, 11, 40]
    b = torch.ones(60, 1)
    if bad == "rows":
        b[failed] = -1.0
    problem = pear.Problem(A=torch.ones(1, n), b=b, lb=0.0)
    (features, costs), validation = samples(torch.float64)
    costs = costs.clone()
    if bad == "true cost":
        costs[failed, 0] = torch.nan
    runs = []
    for compiled in (True, False):
        steps: list[int] = []
        with monkeypatch.context() as patch:
            if not compiled:
                patch.setattr(LinearEpochs, "supports", staticmethod(lambda *args: False))
            torch.manual_seed(0)
            model, loss = (
                nn.Linear(5, n, dtype=torch.float64),
                pear.PEARLoss(problem, 0.1, on_failure="mask", guidance=0.0, injection=0.1),
            )
            detailed = loss.detailed
            patch.setattr(loss, "detailed", lambda *a, f=detailed, s=steps: s.append(1) or f(*a))
            config = FitConfig(max_epochs=3, check_every=1, batch_size=7, learning_rate=0.05, start="standardised")
            counts: list[int] = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pear.FailedSamplesWarning)
                history = fit(
                    model,
                    loss,
                    (features, costs),
                    validation,
                    PATHS.normalized_regret,
                    config,
                    progress=lambda now, c=counts, s=steps: c.append(len(s)),
                )
        runs.append((model, loss, history, counts))
    here, plain = runs
    assert 0 < here[3][0] == here[3][2] <= len(failed)  # the plain steps, all of the first epoch
    assert plain[3] == [9, 18, 27]
    torch.testing.assert_close(here[0].weight, plain[0].weight, rtol=1e-9, atol=1e-11)
    assert [c.loss for c in here[2].checks] == pytest.approx([c.loss for c in plain[2].checks], rel=1e-9)
    assert here[1].samples == plain[1].samples == 180
    assert here[1].last.status.tolist() == plain[1].last.status.tolist()
    torch.testing.assert_close(here[1].last.regret, plain[1].last.regret, rtol=1e-9, atol=1e-11)

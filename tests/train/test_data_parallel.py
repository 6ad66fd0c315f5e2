"""Data-parallel training: two ranks do what one process does with the same batches."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import logging.handlers
import multiprocessing
import os
import re
import runpy
import signal
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import pear
from pear.train import FitConfig, History, fit, in_order
from pear.train.parallel_ranks import ParallelRanks

pytestmark = pytest.mark.slow  # the ranks: made once, by the first test that asks

SIZE, LIMIT = 2, 300.0  # seconds after which ranks that hang are ended
Found = dict[str, Any]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "data_parallel.py"
TASK = pear.tasks.shortest_path((3, 3))
X, C = (part.double() for part in TASK.samples(41, degree=4, noise=0.25, seed=0))  # 33 to train on


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def model(kind: str = "linear") -> nn.Module:
    """Return a model with weights that differ between ranks; training starts from those of rank 0."""
    n = TASK.problem.n
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rank())
        last = nn.Linear(5, n) if kind == "linear" else nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, n))
        last.register_parameter("unused", nn.Parameter(torch.ones(2)) if kind == "mlp" else None)
        return last.double()


def outcome(net: nn.Module, history: History) -> Found:
    return {
        "weights": [value.tolist() for value in net.state_dict().values()],
        "metrics": [check.metric for check in history.checks],
        "losses": [check.loss for check in history.checks],
        "epochs": [history.epochs, len(history.checks), history.best.epoch if history.best else -1],
        "stopped": history.stopped,
    }


def trained(
    net: nn.Module, loss: Any, config: FitConfig, data: Any = (X, C), validation: Any = None, **more: Any
) -> Found:
    return outcome(net, fit(net, loss, data, validation, config=config, **more))


def error_of(act: Callable[[], Any]) -> str:
    """Return the error that ``act`` raises: its type, text and notes."""
    try:
        act()
    except pear.PearError as error:
        return f"{type(error).__name__}: {error} {' '.join(getattr(error, '__notes__', []))}"
    return "none"


# --- what one process and two do alike --------------------------------------------------------------------------------


def linear_on_regret(folder: Path) -> Found:
    """Train with a start on the squared error, automatic smoothing and guidance.

    The last batch has one sample in total, so that rank 1 gets none.
    """
    loss = pear.PEARLoss(TASK.problem)
    found = trained(model(), loss, FitConfig(batch_size=16, max_epochs=6, check_every=2))
    return found | {"state": [loss.chosen_smoothing, loss.current_guidance], "samples": [loss.samples]}


def mlp_with_sgd(folder: Path) -> Found:
    net = model("mlp")
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=0.01)
    config = FitConfig(batch_size=7, max_epochs=5, check_every=1, clip_norm=0.5, halve_after=1, seed=3)
    found = trained(net, pear.PEARLoss(TASK.problem, smoothing=0.3), config, optimizer=optimizer)
    return found | {"rates": [group["lr"] for group in optimizer.param_groups]}


def summed_error(folder: Path) -> Found:
    return trained(model("mlp"), nn.MSELoss(reduction="sum"), FitConfig(batch_size=10, max_epochs=3, start="given"))


def out_of_patience(folder: Path) -> Found:
    config = FitConfig(learning_rate=0.3, max_epochs=200, check_every=1, patience=2, min_improvement=0.2)
    return trained(model(), nn.MSELoss(), config)


def from_files(folder: Path) -> Found:
    from pyarrow import parquet, table

    (own := folder / f"files of {rank()}").mkdir()
    parquet.write_table(table({"x": list(X.numpy()), "c": list(C.numpy())}), own / "a.parquet", row_group_size=9)
    samples = pear.ParquetSamples(own, "x", "c", buffer=20)
    config = FitConfig(batch_size=8, max_epochs=2, start="standardised")
    return trained(model("mlp"), pear.PEARLoss(TASK.problem), config, samples, (X[33:], C[33:]))


def with_a_loader(folder: Path) -> Found:
    data, shuffler = TensorDataset(X[:33], C[:33], torch.arange(33)), torch.Generator().manual_seed(5)
    loader = DataLoader(data, 8, shuffle=True, generator=shuffler)
    return trained(model("mlp"), pear.PEARLoss(TASK.problem), FitConfig(max_epochs=2), loader, (X[33:], C[33:]))


def with_masked_samples(folder: Path) -> Found:
    """Train with infeasible samples 1 to 3 of every 8, so that the ranks have different numbers of feasible ones."""
    b = torch.ones(40, 1, dtype=torch.float64)
    b[[row for row in range(40) if row % 8 in (1, 2, 3)]] = -1.0
    problem = pear.Problem(A=torch.ones(1, 3), b=b, lb=0.0)
    loss, net = pear.PEARLoss(problem, smoothing=1.0, on_failure="mask"), nn.Linear(5, 3).double()
    config = FitConfig(batch_size=8, max_epochs=3, start="standardised")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pear.errors.FailedSamplesWarning)
        nn.init.constant_(net.weight, 0.1)
        nn.init.constant_(net.bias, 0.2)
        return trained(net, loss, config, (X[:40], C[:40, :3], torch.arange(40)), 0.2, order=in_order)


def on_flat_regret(folder: Path) -> Found:
    """Train where more than half of all samples have a zero gradient; only rank 0 warns."""
    loss, told = pear.PEARLoss(TASK.problem, smoothing=1e-6, guidance=0.0), logging.handlers.BufferingHandler(9)
    logging.getLogger("pear").addHandler(told)
    found = trained(model(), loss, FitConfig(learning_rate=1e-9, max_epochs=12, check_every=12, start="given"))
    logging.getLogger("pear").removeHandler(told)
    warned = sum("exactly zero" in record.getMessage() for record in told.buffer)
    return found | {"warned": [loss.warned_of_flat, warned == (rank() == 0)]}


def ended_by_a_callback(folder: Path) -> Found:
    calls = []

    def progress(now: pear.Progress) -> bool:
        calls.append(now.epoch)
        return now.epoch == 2

    found = trained(model(), nn.MSELoss(), FitConfig(max_epochs=9), progress=progress)
    return found | {"calls on rank 0": calls if rank() == 0 else [1, 2], "elsewhere": calls if rank() else []}


def ended_by_ctrl_c(folder: Path) -> Found:
    """Train until the last rank gets Ctrl-C in its seventh step."""
    steps, last = [0], rank() == (SIZE - 1 if dist.is_initialized() else 0)

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        steps[0] += predicted.requires_grad
        if last and steps[0] == 7 and predicted.requires_grad:
            signal.raise_signal(signal.SIGINT)
        return nn.functional.mse_loss(predicted, true)

    config = FitConfig(batch_size=8, max_epochs=5, check_every=1)  # five batches an epoch
    # a shell that runs the tests in the background has them ignore Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    found = trained(model("mlp"), loss, config)
    return found | {"restored": signal.signal(signal.SIGINT, before) is signal.default_int_handler}


def out_of_time(folder: Path) -> Found:
    return {"stopped": trained(model(), nn.MSELoss(), FitConfig(time_cap=1e-3, max_epochs=10**6))["stopped"]}


def resumed(folder: Path) -> Found:
    """Train three epochs, and three more from the checkpoint, whose path only rank 0 knows."""
    found = {}
    for epochs in (3, 6):
        path = folder / "run.pear" if rank() == 0 else None
        loss, config = pear.PEARLoss(TASK.problem), FitConfig(batch_size=9, max_epochs=epochs, check_every=1)
        found = trained(model("mlp"), loss, config, checkpoint=path)
    return found | {"state": [loss.chosen_smoothing, loss.current_guidance]}


def own_loop(folder: Path) -> Found:
    """Compute gradients of a model in ``DistributedDataParallel``, with equal shares of a batch for all ranks."""
    net, loss = model("mlp"), pear.PEARLoss(TASK.problem)
    loss.calibrate(C)
    if dist.is_initialized():
        net.load_state_dict({name: torch.full_like(value, 0.3) for name, value in net.state_dict().items()})
        wrapped, rows = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True), slice(rank(), 40, SIZE)
    else:
        net.load_state_dict({name: torch.full_like(value, 0.3) for name, value in net.state_dict().items()})
        wrapped, rows = net, slice(0, 40)  # type: ignore[assignment]
    for _ in range(3):
        net.zero_grad()
        loss(wrapped(X[rows]), C[rows], keys=range(40)[rows]).backward()
    return {"gradients": [one.grad.tolist() for one in net.parameters() if one.grad is not None and len(one) > 2]}


CASES: list[Callable[[Path], Found]] = [
    *(linear_on_regret, mlp_with_sgd, summed_error, out_of_patience, with_a_loader, with_masked_samples),
    *(on_flat_regret, ended_by_a_callback, ended_by_ctrl_c, out_of_time, resumed, own_loop),
    *([from_files] if find_spec("pyarrow") else []),
]


# --- what is refused --------------------------------------------------------------------------------------------------


def short(**more: Any) -> FitConfig:
    return FitConfig(batch_size=4, max_epochs=1, start="given", **more)


def an_infeasible_sample() -> None:
    """Train with the infeasible sample 3, which belongs to rank 1."""
    b = torch.ones(8, 1, dtype=torch.float64)
    b[3] = -1.0
    loss = pear.PEARLoss(pear.Problem(A=torch.ones(1, 3), b=b, lb=0.0), smoothing=1.0)
    net, data = nn.Linear(5, 3).double(), (X[:8], C[:8, :3])
    fit(net, loss, data, (X[:2], C[:2, :3]), lambda predicted, true: 0.0, short(), order=in_order)


def other_samples() -> None:
    fit(model(), nn.MSELoss(), (X + rank(), C), config=short())


def another_config() -> None:
    fit(model(), nn.MSELoss(), (X, C), config=short(patience=5 + rank()))


def another_order() -> None:
    fit(model(), nn.MSELoss(), (X, C), config=short(), order=lambda count, _: torch.arange(count).roll(rank()))


def loaders_that_differ() -> None:
    loader = DataLoader(TensorDataset(X, C), 8, shuffle=True, generator=torch.Generator().manual_seed(rank()))
    fit(model(), nn.MSELoss(), loader, (X, C), config=FitConfig(max_epochs=1))


def a_distributed_sampler() -> None:
    data = TensorDataset(X, C)
    fit(model(), nn.MSELoss(), DataLoader(data, 8, sampler=DistributedSampler(data)), (X, C), config=short())


def a_wrapped_model() -> None:
    fit(nn.parallel.DistributedDataParallel(model()), nn.MSELoss(), (X, C), config=short())


def a_callback_that_fails() -> None:
    def progress(now: pear.Progress) -> None:
        raise pear.errors.DataError("the disk is full")

    fit(model(), nn.MSELoss(), (X, C), config=short(), progress=progress)


def a_diverging_loss() -> None:
    fit(model(), lambda predicted, true: (predicted * torch.inf).sum(), (X, C), config=short())


def one_rank_alone() -> None:
    """Train on rank 0 alone, with ``data_parallel=False``."""
    if rank() == 0:
        fit(model(), nn.MSELoss(), (X, C), config=short(data_parallel=False))


def a_rank_that_dies() -> None:
    """End rank 1 without a message in its first step."""

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        if rank() == 1:
            os._exit(0)
        return nn.functional.mse_loss(predicted, true)

    fit(model(), loss, (X, C), config=short())


REFUSED: list[Callable[[], None]] = [
    *(an_infeasible_sample, other_samples, another_config, another_order, loaders_that_differ, a_distributed_sampler),
    *(a_wrapped_model, a_callback_that_fails, a_diverging_loss, one_rank_alone),
]


# --- two processes, started once --------------------------------------------------------------------------------------


def work(number: int, folder: Path) -> None:
    """Run all of these cases on one rank, and write the results to a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=SIZE)
    found = {case.__name__: case(folder) for case in CASES}
    refused = {case.__name__: error_of(case) for case in REFUSED}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(EXAMPLE))["main"](max_epochs=2)
    all_found = {"cases": found, "refused": refused, "example": printed.getvalue()}
    (folder / f"{number}.json").write_text(json.dumps(all_found))
    (folder / "lost.txt").write_text(error_of(a_rank_that_dies))  # by rank 0, which is left
    os._exit(0)  # torch's own end of a group that has lost a rank may abort the process


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Found], Path]:
    """Return the results of each rank, and the folder in which they worked."""
    folder, context = tmp_path_factory.mktemp("ranks"), multiprocessing.get_context("spawn")
    started = [context.Process(target=work, args=(number, folder)) for number in range(SIZE)]
    for process in started:
        process.start()
    for process in started:
        process.join(LIMIT)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in started] == [0] * SIZE
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(SIZE)], folder


def close(found: Any, expected: Any) -> bool:
    """Return whether two results are equal, with numbers up to 1e-10."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    return abs(found - expected) <= 1e-10 if isinstance(expected, float) else bool(found == expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_two_ranks_do_what_one_process_does(
    ranks: tuple[list[Found], Path], case: Callable[[Path], Found], tmp_path: Path
) -> None:
    expected, found = case(tmp_path), [one["cases"][case.__name__] for one in ranks[0]]
    assert found[0] == found[1]  # to the bit
    for name, value in expected.items():
        assert close(found[0][name], value), name


def test_a_run_of_two_ranks_is_resumed_by_one(ranks: tuple[list[Found], Path]) -> None:
    net, config = model("mlp"), FitConfig(batch_size=9, max_epochs=6, check_every=1)
    found = trained(net, pear.PEARLoss(TASK.problem), config, checkpoint=ranks[1] / "run.pear")
    assert found == {name: value for name, value in ranks[0][0]["cases"]["resumed"].items() if name != "state"}


MESSAGES = {
    "an_infeasible_sample": (
        r"TrainingError: rank 1 of 2 failed: SolveError: 1 of 2 samples could not be solved.*sample 1 \(INFEASIBLE\)",
        r"SolveError: 1 of 2 samples could not be solved.*on rank 1 of 2",
    ),
    "other_samples": (r"not at the same place: rank 0 is at 33 samples, of .*; rank 1 is at 33 samples, of",) * 2,
    "another_config": (r"rank 0 is at FitConfig\(.*patience=5.*rank 1 is at FitConfig\(.*patience=6",) * 2,
    "another_order": (r"rank 0 is at samples in the order \w+; rank 1 is at samples in the order",) * 2,
    "loaders_that_differ": (r"rank 0 is at epoch 1, batch 0 \(\w+\).*generator with the same seed",) * 2,
    "a_distributed_sampler": (r"ProblemError: the DataLoader has a DistributedSampler",) * 2,
    "a_wrapped_model": (r"ProblemError: fit averages the gradients .*model.module",) * 2,
    "a_callback_that_fails": (
        r"DataError: the disk is full on rank 0 of 2",
        r"TrainingError: rank 0 of 2 failed: DataError: the disk is full. All ranks stop",
    ),
    "a_diverging_loss": (r"TrainingError: the loss is (nan|inf|-inf) in epoch 1",) * 2,
    "one_rank_alone": ("none", "none"),
}


@pytest.mark.parametrize("name", [case.__name__ for case in REFUSED])
def test_an_error_of_one_rank_is_one_of_all(ranks: tuple[list[Found], Path], name: str) -> None:
    for found, expected in zip(ranks[0], MESSAGES[name], strict=True):
        assert re.search(expected, found["refused"][name]), found["refused"][name]


def test_a_rank_that_dies_is_missed(ranks: tuple[list[Found], Path]) -> None:
    assert (ranks[1] / "lost.txt").read_text().startswith("TrainingError: rank 0 of 2 has lost the others")


def test_the_example(ranks: tuple[list[Found], Path]) -> None:
    assert [one["example"][:11] for one in ranks[0]] == ["2 epochs in", ""]
    assert EXAMPLE.read_text("utf-8").rstrip() in (ROOT / "docs" / "training.md").read_text("utf-8")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gradients_are_added_on_a_gpu(tmp_path: Path) -> None:
    """NCCL needs a GPU for each rank; here there is a single rank."""
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        weight = nn.Parameter(torch.ones(3, device="cuda"))
        with ParallelRanks(0, 1, weight.device) as alone:
            value = (2.0 * weight).sum()
            value.backward()
            assert float(alone.mean("here", value.detach(), 4, [weight], summed=False)) == 6.0
            assert weight.grad is not None
            assert weight.grad.tolist() == [2.0, 2.0, 2.0]
            assert alone.content_of_rank_0("weights", lambda: {"w": weight.detach()})["w"].tolist() == [1.0, 1.0, 1.0]
    finally:
        dist.destroy_process_group()

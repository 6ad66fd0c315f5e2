"""A resumed training ends with the weights of an uninterrupted one, to the bit."""

from __future__ import annotations

import copy
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pear
from pear.errors import TrainingError
from pear.losses import make_loss
from pear.solvers.active_set import solution_store as saved
from pear.train import safetensors_file
from pear.train.checkpoint import CheckpointFile
from pear.train.history import Progress

GRID = pear.tasks.shortest_path((4, 4))
X, C = (part.double() for part in GRID.samples(60, degree=4))
LAST, BREAKS = 12, (1, 4, 9)
generator = torch.Generator().manual_seed(0)


def random(*size: int) -> torch.Tensor:
    return torch.rand(*size, generator=generator, dtype=torch.float64)


# general rows: inverses of bases are no whole numbers, so that how they were come by is in their last digits
ROWS = pear.Problem(G=random(9, 12), h=2.0 + random(9), lb=0.0, ub=1.0, sense="max")
FEATURES = random(60, 4) - 0.5
VALUES = 1.0 + (FEATURES @ random(4, 12)).abs() + 0.1 * random(60, 12)
H = 2.0 + random(60, 9)
H[7] = H[20] = -1.0  # which no decision satisfies
OWN_ROWS = pear.Problem(G=ROWS.G, h=H, lb=0.0, ub=1.0, sense="max")

OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer | None]] = {
    "fit's own": lambda model: None,
    "Adam": lambda model: torch.optim.Adam(model.parameters(), 0.05),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), 0.05),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), 0.5),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), 0.5, momentum=0.9, nesterov=True),
}


def linear(p: int, n: int) -> nn.Module:
    return nn.Linear(p, n).double()


def network(p: int, n: int, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(p, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, n)).double()


def interrupt_after(epochs: int, part: str = "loss") -> Callable[[Progress], None]:
    def told(now: Progress) -> None:
        if now.epoch == epochs and now.part == part:
            raise KeyboardInterrupt

    return told


def train(
    make_model: Callable[[int, int], nn.Module],
    make_loss: Callable[[], Any],
    data: tuple[torch.Tensor, torch.Tensor],
    optimizer: str,
    path: Path | None,
    breaks: tuple[int, ...] = (),
    last: int = LAST,
) -> nn.Module:
    """Train to the end; after every break, resume with new objects, as a new process would."""
    for stop in (*breaks, None):
        torch.manual_seed(0)
        model = make_model(data[0].shape[1], data[1].shape[1])
        config = pear.FitConfig(max_epochs=last, check_every=2, halve_after=0, batch_size=16, patience=50, start="mse")
        progress = None if stop is None else interrupt_after(stop)
        history = pear.fit(
            *(model, make_loss(), data),
            validation=0.2,
            config=config,
            optimizer=OPTIMIZERS[optimizer](model),
            progress=progress,
            checkpoint=path,
        )
        assert history.interrupted is (stop is not None)
    assert history.epochs == last
    return model


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("make_model", [linear, network])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimiser(make_model: Any, optimizer: str, tmp_path: Path) -> None:
    """Runs with every optimiser resume, in all parts of a training and of its schedules.

    The parts are compiled and plain epochs, and the start on the squared error. The schedules are those of automatic
    smoothing, guidance and the learning rate.
    """
    what = make_model, lambda: pear.PEARLoss(GRID.problem, guidance=5.0), (X, C), optimizer
    assert same(train(*what, None), train(*what, tmp_path / "run", BREAKS))


LOSSES: dict[str, Callable[[], Any]] = {
    "general rows": lambda: pear.PEARLoss(ROWS),
    "step by step": lambda: pear.PEARLoss(ROWS, solver="osqp"),
    "masked samples": lambda: pear.PEARLoss(OWN_ROWS, on_failure="mask"),
    "spo+": lambda: make_loss("spo+", ROWS),
    "pfyl": lambda: make_loss("pfyl", ROWS),
}


@pytest.mark.filterwarnings("ignore::pear.errors.FailedSamplesWarning")
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_and_path(loss: str, tmp_path: Path) -> None:
    what = linear, LOSSES[loss], (FEATURES, VALUES), "fit's own"
    breaks, last = ((4,), 6) if loss == "step by step" else (BREAKS, LAST)
    assert same(train(*what, None, last=last), train(*what, tmp_path / "run", breaks, last))


def test_right_hand_sides_with_recourse(tmp_path: Path) -> None:
    model = pear.Model.predicting(ROWS, b=False, h=[0, 2], recourse=pear.Projection())
    values = torch.cat([VALUES, 2.0 + FEATURES.abs()[:, :2]], 1)
    what = linear, lambda: pear.PEARLoss(model), (FEATURES[:20], values[:20]), "fit's own"
    assert same(train(*what, None, last=4), train(*what, tmp_path / "run", (2,), 4))


@pytest.mark.parametrize("make_model", [linear, network])
def test_inverses_that_are_too_large_to_be_saved(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inverses that are not saved are computed afresh after every checkpoint, also in the uninterrupted run."""
    what = make_model, lambda: pear.PEARLoss(ROWS), (FEATURES, VALUES), "fit's own"
    train(*what, tmp_path / "large")
    monkeypatch.setattr(saved, "MOST_BYTES", 0)
    assert same(train(*what, tmp_path / "a"), train(*what, tmp_path / "b", BREAKS))
    assert (tmp_path / "b").stat().st_size < (tmp_path / "large").stat().st_size - 60 * 9 * 9 * 8


def test_samples_by_name_and_by_what_no_file_holds(tmp_path: Path) -> None:
    """Samples whose ids are numbers and texts keep their warm starts; all others are solved without them."""
    for keys, kept in (([f"day {i}" for i in range(60)], 60), ([(i, "a") for i in range(60)], 60), ([object()] * 0, 0)):
        ids: list[Any] = keys or [object() for _ in range(60)]
        loss = pear.PEARLoss(ROWS)
        config = pear.FitConfig(max_epochs=1, start="standardised")
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        for _ in range(2):
            pear.fit(linear(4, 12), loss, (FEATURES, VALUES, ids), (FEATURES, VALUES), config=config, checkpoint=path)
            assert len(loss.decider.starts) == (60 if loss.samples else kept)
            loss = pear.PEARLoss(ROWS)


def fit_after_noise(path: Path | None, stop: Callable[[Progress], None] | None = None, **changed: Any) -> nn.Module:
    """Train a network with dropout, after ``draws`` extra draws from the global generator."""
    torch.manual_seed(0)
    model = network(X.shape[1], C.shape[1], dropout=0.3)
    torch.rand(changed.pop("draws", 0))
    config = pear.FitConfig(max_epochs=LAST, check_every=2, batch_size=16, patience=50, start="mse")
    said: dict[str, Any] = {"loss": pear.PEARLoss(GRID.problem), "train": (X, C), "validation": (X, C), **changed}
    pear.fit(model, **{"config": config, **said}, progress=stop, checkpoint=path)
    return model


def test_dropout_goes_on_with_the_numbers_that_it_would_have_drawn(tmp_path: Path) -> None:
    """Breaks in both stages resume with the saved random state, whatever has been drawn before."""
    path, whole = tmp_path / "run", fit_after_noise(None)
    assert not same(whole, fit_after_noise(None, draws=5))  # the numbers matter
    fit_after_noise(path, interrupt_after(4, "mse"))
    fit_after_noise(path, interrupt_after(4), draws=3)
    assert same(whole, fit_after_noise(path, draws=5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_dropout_on_a_gpu_goes_on_with_the_numbers_that_it_would_have_drawn(tmp_path: Path) -> None:
    data, config = (X.cuda(), C.cuda()), pear.FitConfig(max_epochs=9, check_every=2, batch_size=16, patience=50)

    def run(path: Path | None, draws: int, stop: Callable[[Progress], None] | None = None) -> nn.Module:
        torch.manual_seed(0)
        model = network(X.shape[1], C.shape[1], dropout=0.3).cuda()
        for _ in range(draws):  # each moves the generator on
            torch.rand(1, device="cuda")
        pear.fit(model, nn.MSELoss(), data, data, config=config, progress=stop, checkpoint=path)
        return model

    whole = run(None, 0)
    assert not same(whole, run(None, 5))
    run(tmp_path / "run", 0, interrupt_after(4))
    assert same(whole, run(tmp_path / "run", 7))


def test_a_shuffling_loader_goes_on_with_the_order_that_it_would_have_drawn(tmp_path: Path) -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(TensorDataset(X, C), batch_size=16, shuffle=True)

    whole = fit_after_noise(None, train=loader())
    fit_after_noise(tmp_path / "run", interrupt_after(4), train=loader())
    assert same(whole, fit_after_noise(tmp_path / "run", train=loader(), draws=5))
    with pytest.raises(TrainingError, match="this data: its train fingerprint"):
        fit_after_noise(tmp_path / "run", train=DataLoader(TensorDataset(X, 2 * C), batch_size=16, shuffle=True))


def test_a_model_that_draws_nothing_leaves_the_global_numbers_alone(tmp_path: Path) -> None:
    for stop in (4, None):
        torch.manual_seed(3)
        model, before = linear(X.shape[1], C.shape[1]), torch.get_rng_state()
        progress = None if stop is None else interrupt_after(stop)
        config = pear.FitConfig(max_epochs=6, check_every=2, start="mse")
        pear.fit(
            model, pear.PEARLoss(GRID.problem), (X, C), config=config, progress=progress, checkpoint=tmp_path / "r"
        )
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("part", ["mse", "loss"])
def test_a_run_has_one_file_and_without_it_begins_anew(part: str, tmp_path: Path) -> None:
    """An interrupted run leaves one file; if it is deleted, the next run starts afresh."""
    path = tmp_path / "run"
    fit_after_noise(path, interrupt_after(4, part))
    assert [one.name for one in tmp_path.iterdir()] == ["run"]
    assert CheckpointFile.open(path, dict).stage == part
    path.unlink()
    assert same(fit_after_noise(path, draws=5), fit_after_noise(None, draws=5))


def test_a_stage_of_the_squared_error_belongs_to_its_run(tmp_path: Path) -> None:
    """A checkpoint of the squared error is refused for other samples, settings or a following loss, as any other is."""
    fit_after_noise(tmp_path / "run", interrupt_after(4, "mse"))
    with pytest.raises(TrainingError, match="does not belong to this data"):
        fit_after_noise(tmp_path / "run", train=(X, 2 * C))
    with pytest.raises(TrainingError, match=r"does not belong to this loss: its settings guidance is 10.0"):
        fit_after_noise(tmp_path / "run", loss=pear.PEARLoss(GRID.problem, guidance=1.0))


def test_the_same_model_goes_on_where_its_squared_error_was_interrupted(tmp_path: Path) -> None:
    """A notebook's cell may be run again with a model that has the weights of the first attempt."""
    torch.manual_seed(0)
    model, config = (
        linear(X.shape[1], C.shape[1]),
        pear.FitConfig(max_epochs=LAST, check_every=2, patience=50, start="mse"),
    )
    whole = copy.deepcopy(model)
    pear.fit(whole, pear.PEARLoss(GRID.problem), (X, C), config=config)
    for stop in (interrupt_after(6, "mse"), None):
        loss = pear.PEARLoss(GRID.problem)
        history = pear.fit(model, loss, (X, C), config=config, progress=stop, checkpoint=tmp_path / "run")
    assert history.before is not None
    assert history.before.epochs == LAST
    assert same(whole, model)


def test_a_file_holds_the_last_stage_alone(tmp_path: Path) -> None:
    path, weights = tmp_path / "run", network(3, 2).state_dict()
    file = CheckpointFile.open(path, lambda: {"model": "a"})
    file.save("race", {"fold": 2, "weights": weights})
    file = CheckpointFile.open(path, lambda: {"model": "a"})
    content = file.content("race")
    assert (file.stage, content["fold"], file.content("refit")) == ("race", 2, {})
    assert all(torch.equal(content["weights"][name], value) for name, value in weights.items())
    file.save("refit", {})
    again = CheckpointFile.open(path, lambda: {"model": "a"})
    assert (again.stage, again.content("refit"), again.content("race")) == ("refit", {}, {})
    with pytest.raises(TrainingError, match=r"not resumed.*this model: its is a, and b was expected"):
        CheckpointFile.open(path, lambda: {"model": "b"})
    assert CheckpointFile.open(None, lambda: pytest.fail("nothing is saved, so that no samples are read")).stage == ""


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import test_resume
test_resume.interrupt_after = lambda epochs: lambda now: os.kill(os.getpid(), signal.SIGKILL)
test_resume.train_grid(test_resume.Path({path!r}), (4,))
"""


def train_grid(path: Path | None, breaks: tuple[int, ...] = ()) -> nn.Module:
    return train(linear, lambda: pear.PEARLoss(GRID.problem), (X, C), "Adam", path, breaks)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_a_training_that_is_killed(tmp_path: Path) -> None:
    """A killed training resumes from its last check."""
    code = KILLED.format(tests=str(Path(__file__).parent), path=str(tmp_path / "run"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert same(train_grid(None), train_grid(tmp_path / "run"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_is_full_or_read_only(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error says why the file cannot be written; once there is room, the run resumes from the last checkpoint."""

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(safetensors_file, "replace_safetensors_file", refuse)
        with pytest.raises(TrainingError, match=f"run cannot be written: {os.strerror(code)}.*make room or give"):
            train_grid(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    assert same(train_grid(None), train_grid(tmp_path / "run"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9 here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_file_that_is_written_when_the_process_is_killed_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path, replace = tmp_path / "run", os.replace

    def kill(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def replace_and_kill(*names: Any) -> None:
        replace(*names)
        kill()

    new = "new" * 100_000
    safetensors_file.write_safetensors(path, "test", 1, {"said": "old"})
    for name, dies, said in (("fsync", kill, "old"), ("replace", kill, "old"), ("replace", replace_and_kill, new)):
        child = os.fork()
        if child == 0:
            setattr(os, name, dies)
            safetensors_file.write_safetensors(path, "test", 1, {"said": new})
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert safetensors_file.read_safetensors(path, "test", 1, "")["said"] == said

"""Benchmark: memory and speed of training on samples from files, compared with samples in memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pear.errors import DataError
from pear.losses import PEARLoss, normalized_regret
from pear.tasks import shortest_path
from pear.train import FitConfig, fit, shuffled
from pear.train.samples import ParquetSamples
from pear.train.samples.stream_samples import StreamSamples
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.process_memory import resident_process_memory
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

MIB = 2**20
FEATURES, DEGREE, NOISE = 5, 4, 0.5
_PART, _GROUP = 250_000, 50_000  # samples of a file, and of a row group
_MARKS = 100  # looks at the clock and the memory in a run
_EARLY = 0.05  # the share of a run after which memory and speed count
_EPOCHS = 4  # over the samples in memory
_READ = 1_000_000  # samples that are only read, at most


LABELS = Labels("Resident memory of a training from files", "samples trained on", "MiB")


@dataclass(frozen=True)
class StreamSettings(Settings):
    """Train on paths from Parquet files that are written first, and on a part of them in memory."""

    samples: int = option(10_000_000, "The number of samples in the files.", least=1000, quick=20_000)
    in_memory: int = option(
        100_000, "The number of these that also train from memory, for comparison.", least=100, quick=5_000
    )
    batch_size: int = option(1024, "The number of samples of a step.", least=1, quick=100)
    buffer: int = option(65_536, "The number of samples of the files in memory at a time.", least=1, quick=2_000)
    grid: int = option(5, "The number of nodes on a side of the grid.", least=2)
    folder: str = option("pear-output/bench/streams", "The folder of the files, which are deleted in the end.")
    threads: int = option(1, "The number of threads that compute; another one reads.")
    seed: int = option(0, "Seed of the samples.")


SETTINGS = StreamSettings


@dataclass(frozen=True)
class StreamRow:
    """The speed and the memory of one training.

    Attributes:
        who: source of the samples.
        samples: number of samples in the measured time.
        distinct: number of different samples among them.
        seconds: length of the measured time.
        processor: processor seconds of the process in that time.
        trained: number of samples trained on at each mark.
        resident: resident memory in MiB at each mark.
    """

    who: str
    samples: int
    distinct: int
    seconds: float
    processor: float
    trained: list[int] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds

    @property
    def processor_rate(self) -> float:
        """Samples per processor second, which other jobs on the machine hardly change."""
        return self.samples / self.processor


def run(settings: StreamSettings, callbacks: Callbacks) -> None:
    """Write the files, train on them, then on tensors."""
    task = shortest_path((settings.grid, settings.grid))
    size = 4 * (FEATURES + task.problem.n) * settings.samples
    with _temporary_folder(settings, size) as folder:
        _write_all(settings, task.problem.n, folder, callbacks.say)
        written = sum(file.stat().st_size for file in folder.iterdir())
        callbacks.on_note(f"{settings.samples:,} samples of {task.name} in {written / 1e9:.3g} GB of Parquet files")
        stream = ParquetSamples(folder, "x", "cost", settings.buffer)
        callbacks.on_note(f"{stream!r}, {settings.batch_size:,} samples a step, 1 epoch")
        callbacks.say(f"training on {settings.samples:,} samples from files")
        callbacks.on_row(_train_small_network(settings, "Parquet files", stream, settings.samples, 1))
        callbacks.on_row(_read_batches(settings, stream, task.problem.n))
        count = min(settings.in_memory, settings.samples)
        first = ParquetSamples(stream.files[: -(-count // _PART)], "x", "cost")
        features, costs = (part[:count].clone() for part in first.read())
    for keys in (False, True):
        who = "memory, warm starts" if keys else "memory, no warm starts"
        callbacks.say(f"training on {count:,} samples in {who}")
        callbacks.on_row(_train_small_network(settings, who, (features, costs), count, _EPOCHS, keys))
    callbacks.on_note(
        f"in memory: {_EPOCHS} epochs of {count:,} samples; without warm starts: as from files, so that the "
        "difference is reading and shuffling; with them: as fit does by itself, and the epochs after the first count"
    )
    callbacks.on_note(
        "speed and memory count from 5 % of a run on; CPU s: of all threads, reading too; ratio: of these"
    )


def _train_small_network(
    settings: StreamSettings, who: str, train: Any, count: int, epochs: int, keys: bool = False
) -> StreamRow:
    """Train a small network; clock and memory are read after every per cent."""
    task = shortest_path((settings.grid, settings.grid))
    true = _draw_samples(settings.seed, -1, 200, task.problem.n)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, task.problem.n))
    marks = ProgressMarks(count * epochs)
    model.register_forward_hook(marks.hook)
    config = FitConfig(max_epochs=epochs, check_every=epochs, batch_size=settings.batch_size, start="standardised")
    loss = PEARLoss(task.problem)

    def metric(predicted: Tensor, costs: Tensor) -> float:
        return normalized_regret(task.problem, predicted, costs)

    validation = tuple(map(torch.from_numpy, true))
    fit(model, loss if keys else WithoutKeys(loss), train, validation, metric, config)
    return marks.row(who, count, _EARLY if not keys else 1 / epochs)


def _read_batches(settings: StreamSettings, stream: ParquetSamples, n: int) -> StreamRow:
    """Read the batches of an epoch, a million samples at most, without training on them."""
    batches = StreamSamples.read(stream, nn.Linear(FEATURES, n)).epoch(settings.batch_size, shuffled, torch.Generator())
    seen, began, computed = 0, time.perf_counter(), time.process_time()
    for batch in batches:
        seen += len(batch.costs)
        if seen >= _READ:
            break
    spent = time.perf_counter() - began, time.process_time() - computed
    return StreamRow("files, only read", seen, settings.samples, *spent, [seen], [resident_process_memory() / MIB])


class WithoutKeys(nn.Module):
    """A loss without sample ids, and so without warm starts."""

    def __init__(self, loss: PEARLoss) -> None:
        super().__init__()
        self.loss, self.calibrate = loss, loss.calibrate

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        """The loss of a batch."""
        value: Tensor = self.loss(predicted, true)
        return value


class ProgressMarks:
    """Reads the clock and the memory while a model is trained.

    Args:
        total: samples of the whole run.
        every: samples between two looks, where it is not a share of the run.
    """

    def __init__(self, total: int, every: int | None = None) -> None:
        self.step, self.seen, self.next = every or max(1, total // _MARKS), 0, 0
        self.found: list[tuple[int, float, float, float]] = []

    def hook(self, model: nn.Module, inputs: Any, output: Tensor) -> None:
        """Forward hook: takes a mark where one is due."""
        if not model.training:
            return
        if self.seen >= self.next:
            self.found.append((self.seen, time.perf_counter(), time.process_time(), resident_process_memory() / MIB))
            self.next += self.step
        self.seen += len(output)

    def row(self, who: str, distinct: int, since: float) -> StreamRow:
        """Make the row of the run, leaving out the share ``since`` of it at the beginning."""
        least = since * self.found[-1][0]
        counted = [mark for mark in self.found if mark[0] >= least]
        (first, began, computed, _), (last, ended, done, _) = counted[0], counted[-1]
        trained, memory = [mark[0] for mark in counted], [mark[3] for mark in counted]
        return StreamRow(who, last - first, distinct, ended - began, done - computed, trained, memory)


@contextmanager
def _temporary_folder(settings: StreamSettings, size: int) -> Iterator[Path]:
    """A temporary folder on a disk with room for ``size`` bytes.

    Raises:
        DataError: the disk has not enough free space.
    """
    folder = Path(settings.folder)
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if 1.1 * size > free:
        raise DataError(
            f"{settings.samples:,} samples take about {size / 1e9:.3g} GB, and the disk of {folder} has "
            f"{free / 1e9:.3g} GB left; pass fewer --samples, or another --folder"
        )
    with TemporaryDirectory(prefix="samples-", dir=folder) as made:
        yield Path(made)


def _write_all(settings: StreamSettings, n: int, folder: Path, say: Callable[[str], None]) -> None:
    """Write the files in a separate process, so that its memory does not count."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for part, first in enumerate(range(0, settings.samples, _PART)):
            say(f"writing samples: {first:,} of {settings.samples:,}")
            count = min(_PART, settings.samples - first)
            pool.submit(write_part, folder / f"part-{part:05}.parquet", settings.seed, part, count, n).result()


def write_part(path: Path, seed: int, part: int, count: int, n: int) -> None:
    """Write one file of the samples: lists of features and costs, in float32.

    Args:
        path: the file to write.
        seed: seed of all samples.
        part: number of the file.
        count: number of samples in the file.
        n: number of costs per sample.
    """
    import pyarrow
    from pyarrow import parquet

    drawn = dict(zip(("x", "cost"), _draw_samples(seed, part, count, n), strict=True))
    lists = {
        name: pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), values.shape[1])
        for name, values in drawn.items()
    }
    parquet.write_table(pyarrow.table(lists), path, row_group_size=_GROUP, compression="none", use_dictionary=False)


def _draw_samples(seed: int, part: int, count: int, n: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features (count, 5) and costs (count, n) by the paper's formula; all parts of a seed share its coefficients."""
    B = np.random.default_rng([seed, 0]).integers(0, 2, (n, FEATURES)).astype(np.float32)
    rng = np.random.default_rng([seed, part + 2])
    x = rng.standard_normal((count, FEATURES), np.float32)
    costs = ((x @ B.T / np.float32(FEATURES**0.5) + 3) ** DEGREE + 1) / np.float32(3.5**DEGREE)
    costs *= 1 + NOISE * (2 * rng.random(costs.shape, np.float32) - 1)
    return x, costs


def tables(rows: list[StreamRow]) -> list[TextTable]:
    """Speed and memory of every training."""
    columns = {
        "samples in": lambda row: row.who,
        "samples": lambda row: f"{row.distinct:,}",
        "samples/s": lambda row: f"{row.rate:,.0f}",
        "per CPU s": lambda row: f"{row.processor_rate:,.0f}",
        "ratio": lambda row: f"{row.processor_rate / rows[0].processor_rate:.2f}",
        "MiB at 5 %": lambda row: f"{row.resident[0]:,.0f}",
        "at end": lambda row: f"{row.resident[-1]:,.0f}",
    }
    return [TextTable.of("Training from files and from memory", rows, columns)]


def series(rows: list[StreamRow]) -> list[Series]:
    """Memory over the samples trained on."""
    return [Series(row.who, row.trained, row.resident, row is rows[0]) for row in rows]

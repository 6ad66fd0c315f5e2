"""Benchmark: memory and speed of a training on samples from files, compared with samples in memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
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
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.process_memory import resident_process_memory
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

MIB = 2**20
FEATURES, DEGREE, NOISE = 5, 4, 0.5
_PART, _GROUP = 250_000, 50_000  # samples of a file, and of a row group
_MARKS = 100  # marks in a run
_EARLY = 0.05  # the share at the beginning of a run that does not count
_EPOCHS = 4  # epochs over the samples in memory
_READ = 1_000_000  # the most samples to read without training


@dataclass(frozen=True)
class StreamSettings(BenchSettings):
    """Train on paths from Parquet files that are written first, and on a part of them in memory."""

    samples: int = setting(10_000_000, "The number of samples in the files.", least=1000, quick=20_000)
    in_memory: int = setting(
        100_000, "The number of these that also train from memory, for comparison.", least=100, quick=5_000
    )
    batch_size: int = setting(1024, "The number of samples of a step.", least=1, quick=100)
    buffer: int = setting(65_536, "The number of samples of the files in memory at a time.", least=1, quick=2_000)
    grid: int = setting(5, "The number of nodes on a side of the grid.", least=2)
    folder: str = setting("pear-output/bench/streams", "The folder of the files, which are deleted in the end.")
    threads: int = setting(1, "The number of threads that compute; another one reads.")
    seed: int = setting(0, "Seed of the samples.")


@dataclass(frozen=True)
class StreamRow:
    """The speed and the memory of one training, or of reading alone.

    Attributes:
        who: the source of the samples.
        samples: the number of samples that were trained on, or only read, in the measured time.
        distinct: the number of different samples in the source.
        seconds: the length of the measured time.
        processor: the processor seconds of this process in the measured time.
        trained: the number of samples trained on so far, at regular intervals of the training.
        resident: the resident memory in MiB at the same intervals.
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
        """The samples per second."""
        return self.samples / self.seconds

    @property
    def processor_rate(self) -> float:
        """The samples per processor second, which other jobs on the machine hardly change."""
        return self.samples / self.processor


class StreamsBenchmark(Benchmark[StreamSettings, StreamRow]):
    """The benchmark of training from files, compared with training from memory."""

    options = StreamSettings
    labels = Labels("Resident memory of a training from files", "samples trained on", "MiB")

    def run(self) -> None:
        """Write the files, train from them, read them without training, and train from memory."""
        settings, callbacks = self.settings, self.callbacks
        task = shortest_path((settings.grid, settings.grid))
        size = 4 * (FEATURES + task.problem.n) * settings.samples
        with _streams_benchmark_folder(settings, size) as folder:
            self._write_streams(task.problem.n, folder)
            written = sum(file.stat().st_size for file in folder.iterdir())
            callbacks.on_note(f"{settings.samples:,} samples of {task.name} in {written / 1e9:.3g} GB of Parquet files")
            stream = ParquetSamples(folder, "x", "cost", settings.buffer)
            callbacks.on_note(f"{stream!r}, {settings.batch_size:,} samples a step, 1 epoch")
            callbacks.say(f"training on {settings.samples:,} samples from files")
            self.add_row(self._train_network("Parquet files", stream, settings.samples, 1))
            self.add_row(self._read_batches(stream, task.problem.n))
            count = min(settings.in_memory, settings.samples)
            first = ParquetSamples(stream.files[: -(-count // _PART)], "x", "cost")
            features, costs = (part[:count].clone() for part in first.read())
        for keys in (False, True):
            who = "memory, warm starts" if keys else "memory, no warm starts"
            callbacks.say(f"training on {count:,} samples in {who}")
            self.add_row(self._train_network(who, (features, costs), count, _EPOCHS, keys))
        callbacks.on_note(
            f"in memory: {_EPOCHS} epochs of {count:,} samples; without warm starts: as from files, so that the "
            "difference is reading and shuffling; with them: as fit does by itself, and the epochs after the first "
            "count"
        )
        callbacks.on_note(
            "speed and memory count from 5 % of a run on; CPU s: of all threads, reading too; ratio: of these"
        )

    def _write_streams(self, n: int, folder: Path) -> None:
        """Write samples with n costs each into files. A separate process writes, so that its memory does not count."""
        samples = self.settings.samples
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            for part, first in enumerate(range(0, samples, _PART)):
                self.callbacks.say(f"writing samples: {first:,} of {samples:,}")
                path, count = folder / f"part-{part:05}.parquet", min(_PART, samples - first)
                pool.submit(write_streams_benchmark_part, path, self.settings.seed, part, count, n).result()

    def _train_network(self, who: str, train: Any, count: int, epochs: int, keys: bool = False) -> StreamRow:
        """Train a small network, and return its row.

        Args:
            who: the source of the samples.
            train: the training samples, as ``fit`` takes them.
            count: the number of training samples.
            epochs: the number of epochs.
            keys: whether samples have ids, which allow warm starts. If so, the first epoch does not count.
        """
        settings = self.settings
        task = shortest_path((settings.grid, settings.grid))
        true = _draw_streams_benchmark_samples(settings.seed, -1, 200, task.problem.n)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, task.problem.n))
        marks = StreamsBenchmarkMarks(count * epochs)
        model.register_forward_hook(marks.hook)
        config = FitConfig(max_epochs=epochs, check_every=epochs, batch_size=settings.batch_size, start="standardised")
        loss = PEARLoss(task.problem)

        def metric(predicted: Tensor, costs: Tensor) -> float:
            return normalized_regret(task.problem, predicted, costs)

        validation = tuple(map(torch.from_numpy, true))
        fit(model, loss if keys else StreamsBenchmarkLoss(loss), train, validation, metric, config)
        return marks.row(who, count, _EARLY if not keys else 1 / epochs)

    def _read_batches(self, stream: ParquetSamples, n: int) -> StreamRow:
        """Read at most a million samples in batches, without training on them, and return the row."""
        size = self.settings.batch_size
        batches = StreamSamples.read(stream, nn.Linear(FEATURES, n)).epoch(size, shuffled, torch.Generator())
        seen, began, computed = 0, time.perf_counter(), time.process_time()
        for batch in batches:
            seen += len(batch.costs)
            if seen >= _READ:
                break
        spent = time.perf_counter() - began, time.process_time() - computed
        memory = [resident_process_memory() / MIB]
        return StreamRow("files, only read", seen, self.settings.samples, *spent, [seen], memory)

    @classmethod
    def tables(cls, rows: list[StreamRow]) -> list[TextTable]:
        """Make a table of the speed and the memory of every training, and of reading alone."""
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

    @classmethod
    def series(cls, rows: list[StreamRow]) -> list[Series]:
        """Make a series for each training: its memory over the samples trained on."""
        return [Series(row.who, row.trained, row.resident, row is rows[0]) for row in rows]


BENCHMARK = StreamsBenchmark


class StreamsBenchmarkLoss(nn.Module):
    """``PEARLoss`` without sample ids, and so without warm starts, as in a training from files."""

    def __init__(self, loss: PEARLoss) -> None:
        super().__init__()
        self.loss, self.calibrate = loss, loss.calibrate

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        """Compute the loss of a batch."""
        value: Tensor = self.loss(predicted, true)
        return value


class StreamsBenchmarkMarks:
    """Measurements of time and memory, called marks, at regular intervals of a training.

    Args:
        total: the number of samples of the whole run, every epoch counted.
        every: the number of samples between two marks; by default a hundredth of the run.

    Attributes:
        found: for each mark the samples trained on so far, the wall time, the processor time, and the memory in MiB.
    """

    def __init__(self, total: int, every: int | None = None) -> None:
        self.step, self.seen, self.next = every or max(1, total // _MARKS), 0, 0
        self.found: list[tuple[int, float, float, float]] = []

    def hook(self, model: nn.Module, inputs: Any, output: Tensor) -> None:
        """Take a mark if one is due. Torch calls this method as a forward hook of the model."""
        if not model.training:
            return
        if self.seen >= self.next:
            self.found.append((self.seen, time.perf_counter(), time.process_time(), resident_process_memory() / MIB))
            self.next += self.step
        self.seen += len(output)

    def row(self, who: str, distinct: int, since: float) -> StreamRow:
        """Make the row of the run.

        Args:
            who: the source of the samples.
            distinct: the number of different samples.
            since: the share at the beginning of the run that does not count.
        """
        least = since * self.found[-1][0]
        counted = [mark for mark in self.found if mark[0] >= least]
        (first, began, computed, _), (last, ended, done, _) = counted[0], counted[-1]
        trained, memory = [mark[0] for mark in counted], [mark[3] for mark in counted]
        return StreamRow(who, last - first, distinct, ended - began, done - computed, trained, memory)


@contextmanager
def _streams_benchmark_folder(settings: StreamSettings, size: int) -> Iterator[Path]:
    """Make a context with a temporary folder on a disk with room for ``size`` bytes. The folder is deleted at the end.

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


def write_streams_benchmark_part(path: Path, seed: int, part: int, count: int, n: int) -> None:
    """Write one file of samples: lists of features and of costs, in float32.

    Args:
        path: the file to write.
        seed: the seed of all samples.
        part: the number of the file.
        count: the number of samples in the file.
        n: the number of costs of a sample.
    """
    import pyarrow
    from pyarrow import parquet

    drawn = dict(zip(("x", "cost"), _draw_streams_benchmark_samples(seed, part, count, n), strict=True))
    lists = {
        name: pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), values.shape[1])
        for name, values in drawn.items()
    }
    parquet.write_table(pyarrow.table(lists), path, row_group_size=_GROUP, compression="none", use_dictionary=False)


def _draw_streams_benchmark_samples(
    seed: int, part: int, count: int, n: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw features (count, 5) and costs (count, n) by the paper's formula. All parts of a seed share coefficients."""
    B = np.random.default_rng([seed, 0]).integers(0, 2, (n, FEATURES)).astype(np.float32)
    rng = np.random.default_rng([seed, part + 2])
    x = rng.standard_normal((count, FEATURES), np.float32)
    costs = ((x @ B.T / np.float32(FEATURES**0.5) + 3) ** DEGREE + 1) / np.float32(3.5**DEGREE)
    costs *= 1 + NOISE * (2 * rng.random(costs.shape, np.float32) - 1)
    return x, costs

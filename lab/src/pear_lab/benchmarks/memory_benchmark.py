"""Benchmark: the peak memory of several jobs, each in its own process, compared with the process of ``import pear``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pear.errors import PearError
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.number_formats import format_number
from pear_lab.benchmarks.process_memory import read_memory_entry
from pear_lab.benchmarks.series_plot import Series

MIB = 2**20
_ROOM = 0.8  # the share of the free memory that a job may take


@dataclass(frozen=True)
class MemorySettings(BenchSettings):
    """Measure the peak memory of a large grid, a large batch and a training, and of the import alone."""

    grid: int = setting(200, "The number of nodes on a side of the grid.", least=1, quick=5)
    grid_batch: int = setting(32, "The number of samples of the grid.", least=1, quick=4)
    assets: int = setting(100, "The number of assets of a portfolio.", least=1, quick=10)
    portfolio_batch: int = setting(4096, "The number of portfolios.", least=1, quick=16)
    epochs: int = setting(10_000, "The largest number of epochs of the training.", least=1, quick=1)
    limit: float = setting(600.0, "The time limit of a job, in seconds.", least=1)
    cap: float | None = setting(None, "The address space that a job may take, in MiB.", shown="80 % of what is free")
    seed: int = setting(0, "Seed of the data.")

    def jobs(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the name, the description and the options of every job. The job "import" comes first."""
        grid = {"side": self.grid, "batch": self.grid_batch, "seed": self.seed}
        portfolio = {"assets": self.assets, "batch": self.portfolio_batch, "seed": self.seed}
        return [
            ("import", "import pear", {}),
            ("grid", f"{self.grid}×{self.grid} grid, batch of {self.grid_batch:,}", grid),
            ("portfolio", f"{self.assets} assets, batch of {self.portfolio_batch:,}", portfolio),
            ("training", "training on paths, degree 8", {"epochs": self.epochs, "seed": self.seed}),
        ]


@dataclass(frozen=True)
class MemoryRow:
    """The memory and the time of one job.

    Attributes:
        job: the description of the job.
        peak_mib: the largest resident memory of the job's process.
        import_mib: the largest resident memory of a process that only imports pear.
        seconds: the duration of the job.
    """

    job: str
    peak_mib: float
    import_mib: float
    seconds: float

    @property
    def above_mib(self) -> float:
        """The peak memory of the job minus that of the import, in MiB."""
        return self.peak_mib - self.import_mib


class MemoryBenchmark(Benchmark[MemorySettings, MemoryRow]):
    """The benchmark of peak memory."""

    options = MemorySettings
    labels = Labels("Largest resident memory", "seconds", "MiB")
    table_title = "Largest resident memory, MiB"
    columns: ClassVar = {
        "job": lambda row: row.job,
        "peak": lambda row: f"{row.peak_mib:,.0f}",
        "import\npear": lambda row: f"{row.import_mib:,.0f}",
        "above\nit": lambda row: f"{row.above_mib:,.0f}",
        "s": lambda row: format_number(row.seconds),
    }

    def run(self) -> None:
        """Measure every job, one after the other. A job that fails is noted and left out."""
        for name, words, options in self.settings.jobs():
            self.callbacks.say(words)
            try:
                peak, seconds = measure_job_memory(name, options, self.settings.limit, self.settings.cap)
            except PearError as error:
                self.callbacks.on_note(f"{words}: not measured: {error}")
                continue
            self.add_row(MemoryRow(words, peak, self.rows[0].peak_mib if self.rows else peak, seconds))

    @classmethod
    def series(cls, rows: list[MemoryRow]) -> list[Series]:
        """Make a series for each job: a point with the memory over the seconds of the job."""
        return [Series(row.job, [row.seconds], [row.peak_mib], joined=False) for row in rows]


BENCHMARK = MemoryBenchmark


def measure_job_memory(
    name: str, options: dict[str, Any], limit: float, cap: float | None = None
) -> tuple[float, float]:
    """Run one job in a process, and return its peak resident memory in MiB and its seconds.

    Args:
        name: the name of the job, a key of ``memory_job.JOBS``.
        options: the arguments of the job.
        limit: the time limit in seconds.
        cap: the address space that the process may take, in MiB. None means 80 % of the free memory.

    Raises:
        PearError: the job failed, ran out of memory or took too long.
    """
    free = read_memory_entry("meminfo", "MemAvailable")
    allowed = cap if cap is not None or free is None else _ROOM * free / MIB
    given = json.dumps(options | ({} if allowed is None else {"cap": int(allowed * MIB)}))
    command = [sys.executable, "-m", "pear_lab.benchmarks.memory_job", name, given]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env=_memory_benchmark_environment()
        )
    except subprocess.TimeoutExpired as error:
        raise PearError(f"it took more than {limit:g} s (--limit)") from error
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = said[-1] if said else f"exit code {done.returncode}"
        raise PearError(f"{reason} (address space allowed: {format_number(allowed)} MiB)")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["peak"] / MIB, found["seconds"]


def _memory_benchmark_environment() -> dict[str, str]:
    """Return the environment variables of a job. They make it use one thread, and import this copy of the package."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}

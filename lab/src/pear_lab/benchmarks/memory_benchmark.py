"""Benchmark: the peak memory of several jobs, each in its own process, compared with ``import pear`` alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.errors import PearError
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.number_formats import format_number
from pear_lab.benchmarks.process_memory import read_memory_entry
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

MIB = 2**20
_ROOM = 0.8  # share of the memory that is free which a job may take


LABELS = Labels("Largest resident memory", "seconds", "MiB")


@dataclass(frozen=True)
class MemorySettings(Settings):
    """Measure the peak memory of a large grid, a large batch and a training, and of the import alone."""

    grid: int = option(200, "The number of nodes on a side of the grid.", least=1, quick=5)
    grid_batch: int = option(32, "The number of samples of the grid.", least=1, quick=4)
    assets: int = option(100, "The number of assets of a portfolio.", least=1, quick=10)
    portfolio_batch: int = option(4096, "The number of portfolios.", least=1, quick=16)
    epochs: int = option(10_000, "The largest number of epochs of the training.", least=1, quick=1)
    limit: float = option(600.0, "The time limit of a job, in seconds.", least=1)
    cap: float | None = option(None, "The address space that a job may take, in MiB.", shown="80 % of what is free")
    seed: int = option(0, "Seed of the data.")

    def jobs(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, description and options of every job; the import comes first."""
        grid = {"side": self.grid, "batch": self.grid_batch, "seed": self.seed}
        portfolio = {"assets": self.assets, "batch": self.portfolio_batch, "seed": self.seed}
        return [
            ("import", "import pear", {}),
            ("grid", f"{self.grid}×{self.grid} grid, batch of {self.grid_batch:,}", grid),
            ("portfolio", f"{self.assets} assets, batch of {self.portfolio_batch:,}", portfolio),
            ("training", "training on paths, degree 8", {"epochs": self.epochs, "seed": self.seed}),
        ]


SETTINGS = MemorySettings


@dataclass(frozen=True)
class MemoryRow:
    """The memory and the time of one job.

    Attributes:
        job: description of the job.
        peak_mib: largest resident memory of the job's process.
        import_mib: largest resident memory of a process that only imports pear.
        seconds: duration of the job.
    """

    job: str
    peak_mib: float
    import_mib: float
    seconds: float

    @property
    def above_mib(self) -> float:
        """Memory of the job on top of the import."""
        return self.peak_mib - self.import_mib


def run(settings: MemorySettings, callbacks: Callbacks) -> None:
    """Measure every job, one after the other."""
    alone: float | None = None
    for name, words, options in settings.jobs():
        callbacks.say(words)
        try:
            peak, seconds = measure_memory(name, options, settings.limit, settings.cap)
        except PearError as error:
            callbacks.on_note(f"{words}: not measured: {error}")
            continue
        alone = peak if alone is None else alone
        callbacks.on_row(MemoryRow(words, peak, alone, seconds))


def measure_memory(name: str, options: dict[str, Any], limit: float, cap: float | None = None) -> tuple[float, float]:
    """Measure the peak resident memory in MiB and the seconds of one job.

    Args:
        name: name of the job, a key of ``memory_job.JOBS``.
        options: arguments of the job.
        limit: time limit in seconds.
        cap: MiB of address space it may take; None for most of what is free.

    Raises:
        PearError: the job failed, ran out of memory or took too long.
    """
    free = read_memory_entry("meminfo", "MemAvailable")
    allowed = cap if cap is not None or free is None else _ROOM * free / MIB
    given = json.dumps(options | ({} if allowed is None else {"cap": int(allowed * MIB)}))
    command = [sys.executable, "-m", "pear_lab.benchmarks.memory_job", name, given]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env=_job_environment()
        )
    except subprocess.TimeoutExpired as error:
        raise PearError(f"it took more than {limit:g} s (--limit)") from error
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = said[-1] if said else f"exit code {done.returncode}"
        raise PearError(f"{reason} (address space allowed: {format_number(allowed)} MiB)")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["peak"] / MIB, found["seconds"]


def _job_environment() -> dict[str, str]:
    """Environment of the job: one thread, and this copy of the package."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def tables(rows: list[MemoryRow]) -> list[TextTable]:
    """One line for each job."""
    columns = {
        "job": lambda row: row.job,
        "peak": lambda row: f"{row.peak_mib:,.0f}",
        "import\npear": lambda row: f"{row.import_mib:,.0f}",
        "above\nit": lambda row: f"{row.above_mib:,.0f}",
        "s": lambda row: format_number(row.seconds),
    }
    return [TextTable.of("Largest resident memory, MiB", rows, columns)]


def series(rows: list[MemoryRow]) -> list[Series]:
    """Memory over time, one point for each job."""
    return [Series(row.job, [row.seconds], [row.peak_mib], joined=False) for row in rows]

"""How much memory does a job take? Each in a process of its own, beside what ``import pear`` takes alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.bench.plot import Series
from pear.bench.table import Table, number
from pear.errors import PearError, ProblemError

MIB = 2**20
_ROOM = 0.8  # share of the memory that is free which a job may take


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        grid, grid_batch: side of the grid, and samples.
        assets, portfolio_batch: of the portfolios.
        epochs: of the training on paths, at most.
        limit: seconds a job may take.
        cap: MiB of address space a job may take; None for most of what is free.
        seed: of the data.
    """

    grid: int = 200
    grid_batch: int = 32
    assets: int = 100
    portfolio_batch: int = 4096
    epochs: int = 10_000
    limit: float = 600.0
    cap: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("grid", "grid_batch", "assets", "portfolio_batch", "epochs", "limit"):
            if not getattr(self, name) >= 1:
                raise ProblemError(f"--{name.replace('_', '-')} must be at least 1; got {getattr(self, name)}")

    def jobs(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, words and options of every job; the import comes first."""
        grid = {"side": self.grid, "batch": self.grid_batch, "seed": self.seed}
        portfolio = {"assets": self.assets, "batch": self.portfolio_batch, "seed": self.seed}
        return [
            ("import", "import pear", {}),
            ("grid", f"{self.grid}×{self.grid} grid, batch of {self.grid_batch:,}", grid),
            ("portfolio", f"{self.assets} assets, batch of {self.portfolio_batch:,}", portfolio),
            ("training", "training on paths, degree 8", {"epochs": self.epochs, "seed": self.seed}),
        ]


@dataclass(frozen=True)
class Row:
    """One job.

    Attributes:
        job: in words.
        peak_mib: largest resident memory of its process.
        import_mib: of a process that only imports pear.
        seconds: the job took.
    """

    job: str
    peak_mib: float
    import_mib: float
    seconds: float

    @property
    def above_mib(self) -> float:
        """What the job takes on top of the import."""
        return self.peak_mib - self.import_mib


def run(
    settings: Settings,
    on_row: Callable[[Row], None],
    on_note: Callable[[str], None] = lambda text: None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Measure every job, one after the other.

    Args:
        settings: what to measure.
        on_row: called with every row as soon as it is measured.
        on_note: called with what failed, in words.
        say: called with what is being done.
    """
    alone: float | None = None
    for name, words, options in settings.jobs():
        say(words)
        try:
            peak, seconds = measure(name, options, settings.limit, settings.cap)
        except PearError as error:
            on_note(f"{words}: not measured: {error}")
            continue
        alone = peak if alone is None else alone
        on_row(Row(words, peak, alone, seconds))


def measure(name: str, options: dict[str, Any], limit: float, cap: float | None = None) -> tuple[float, float]:
    """Peak resident memory in MiB and seconds of one job.

    Args:
        name: of the job.
        options: of the job.
        limit: seconds it may take.
        cap: MiB of address space it may take; None for most of what is free.

    Raises:
        PearError: it failed, ran out of memory or took too long.
    """
    allowed = cap if cap is not None else _free_mib()
    given = json.dumps(options | ({} if allowed is None else {"cap": int(allowed * MIB)}))
    command = [sys.executable, "-m", "pear.bench.memory_job", name, given]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=_environment())
    except subprocess.TimeoutExpired as error:
        raise PearError(f"it took more than {limit:g} s (--limit)") from error
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = said[-1] if said else f"exit code {done.returncode}"
        raise PearError(f"{reason} (address space allowed: {number(allowed)} MiB)")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["peak"] / MIB, found["seconds"]


def _environment() -> dict[str, str]:
    """One thread, and this very copy of the package."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def _free_mib() -> float | None:
    """Most of the memory that is free now; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    free = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)
    return None if free is None else _ROOM * free / 1024


def tables(rows: list[Row]) -> list[Table]:
    """One line a job."""
    table = Table("Largest resident memory, MiB", ("job", "peak", "import\npear", "above\nit", "s"))
    for row in rows:
        sizes = (row.peak_mib, row.import_mib, row.above_mib)
        table.rows.append((row.job, *(f"{size:,.0f}" for size in sizes), number(row.seconds)))
    return [table]


def series(rows: list[Row]) -> list[Series]:
    """One point a job: its memory over its time."""
    return [Series(row.job, [row.seconds], [row.peak_mib], joined=False) for row in rows]

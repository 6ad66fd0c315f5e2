"""Benchmark: how the time of a regret and its gradient grows with the size of grids and of sparse programs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from pear.errors import ProblemError, SolveError
from pear.losses import PEARLoss
from pear.problem import Problem
from pear.tasks import shortest_path
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.random_programs import Rng
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.benchmarks.timing import timed_gradient
from pear_lab.peers.workers.worker import Step, measure_worker_steps, wait_for_worker_device

GRIDS = (20, 50, 100, 140, 200, 280, 400)
QPS = (1_000, 3_000, 10_000, 30_000, 100_000)
QUICK_GRIDS, QUICK_QPS = (5, 10), (100, 200)

GRID, QP = "grid", "sparse QP"
_PER_ROW = 5  # the number of entries in a row of the random programs


@dataclass(frozen=True)
class ScalingSettings(BenchSettings):
    """Time regret and gradient of ever larger grids and sparse programs, and fit the exponent of the growth."""

    grids: tuple[int, ...] = setting(GRIDS, "Sides of square grids, or none.", least=2, empty=True, quick=QUICK_GRIDS)
    qps: tuple[int, ...] = setting(
        QPS, "Variables of random sparse programs, or none.", least=10, empty=True, quick=QUICK_QPS
    )
    solvers: tuple[str, ...] = setting(("auto",), "Sources of candidates, as `pear solvers` lists them.")
    spread: int = setting(20, "The largest distance between variables of a row of random programs; 0 for any.")
    batch: int = setting(1, "The number of samples of a measurement.", least=1)
    repeats: int = setting(3, "The number of measurements of each point; the fastest counts.", least=1)
    limit: float = setting(60.0, "Skip larger points after one that takes more than this many seconds.", positive=True)
    threads: int = setting(1, "Threads for each library.")
    seed: int = setting(0, "Seed of costs and programs.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spread < 0 or 0 < self.spread < _PER_ROW:
            raise ProblemError(f"--spread must be 0 for anywhere, or at least {_PER_ROW}; got {self.spread}")


@dataclass(frozen=True)
class ScalingRow:
    """The time of a regret and its gradient at one problem size.

    Attributes:
        family: "grid" or "sparse QP".
        solver: the solver that proposes solutions.
        size: the nodes on a side of the grid, or the number of variables.
        n: the number of variables.
        rows: the number of equality and inequality rows together.
        batch: the number of samples in a measurement.
        seconds: the seconds per sample, forward and backward, of the fastest measurement.
        processor: the smallest processor seconds per sample, which other jobs on the machine hardly change.
        kkt_residual: the largest residual of the batch, as the loss reports it.
    """

    family: str
    solver: str
    size: int
    n: int
    rows: int
    batch: int
    seconds: float
    processor: float
    kkt_residual: float

    @property
    def line(self) -> str:
        """The name of the series that this point belongs to."""
        return self.family if self.solver == "auto" else f"{self.family}, {self.solver}"


class ScalingBenchmark(Benchmark[ScalingSettings, ScalingRow]):
    """The benchmark of the regret's gradient on grids and sparse programs of growing size."""

    options = ScalingSettings
    labels = Labels("PEARLoss, forward and backward", "variables", "processor seconds a sample")

    def run(self) -> None:
        """Measure every family with every solver, smallest size first. Sizes beyond the time limit are left out."""
        settings, callbacks = self.settings, self.callbacks
        sizes = {GRID: settings.grids, QP: settings.qps}
        for family, solver in itertools.product(sizes, settings.solvers):
            ordered = sorted(set(sizes[family]))
            for place, size in enumerate(ordered):
                what = f"{family} of {size:,}" + ("" if solver == "auto" else f" by {solver}")
                callbacks.say(what)
                larger = ", ".join(f"{other:,}" for other in ordered[place + 1 :])
                try:
                    row = _measure_scaling_point(settings, family, solver, size)
                except (MemoryError, SolveError, ProblemError, RuntimeError) as reason:
                    # torch raises a RuntimeError when memory is exhausted
                    callbacks.on_note(f"{what} failed: {reason}; it and larger ones ({larger or 'none'}) left out")
                    break
                self.add_row(row)
                if row.seconds * row.batch > settings.limit and larger:
                    taken = row.seconds * row.batch
                    callbacks.on_note(f"{what} took {taken:.0f} s, more than --limit: {larger} left out")
                    break

    @classmethod
    def tables(cls, rows: list[ScalingRow]) -> list[TextTable]:
        """Make a table of the points, and one of the exponents fitted to them."""
        what, times = ("family", "size", "variables", "rows", "batch"), ("s a sample", "processor\ns a sample")
        points = TextTable("PEARLoss, forward and backward", (*what, *times, "exponent\nsince last", "KKT\nresidual"))
        for before, row in zip([None, *rows], rows, strict=False):
            pair = [] if before is None or before.line != row.line else [before]
            since = fit_scaling_exponent(*_scaling_points([*pair, row])[row.line])
            size = f"{row.size}×{row.size}" if row.family == GRID else f"{row.size:,}"
            counts = (f"{row.n:,}", f"{row.rows:,}", str(row.batch))
            measured = format_number(row.seconds), format_number(row.processor), format_number(since)
            points.rows.append((row.line, size, *counts, *measured, format_error(row.kkt_residual)))
        fits = TextTable("Processor time ~ variables^exponent", ("family", "exponent"))
        fits.rows.extend((line, format_number(value)) for line, value in scaling_exponents(rows).items())
        return [points, fits]

    @classmethod
    def series(cls, rows: list[ScalingRow]) -> list[Series]:
        """Make the series of processor seconds over variables, with the exponent in each name."""
        fits = scaling_exponents(rows)
        return [
            Series(f"{line}: exponent {format_number(fits[line])}", *points)
            for line, points in _scaling_points(rows).items()
        ]


BENCHMARK = ScalingBenchmark


def _measure_scaling_point(settings: ScalingSettings, family: str, solver: str, size: int) -> ScalingRow:
    """Time the regret and its gradient at one size, and return the row."""
    problem, true, predicted = (_draw_scaling_grid_samples if family == GRID else _draw_scaling_qp_samples)(
        settings, size
    )
    smoothing, injection = (0.1, 0.1) if family == GRID else (0.0, 0.0)
    last: list[PEARLoss] = []
    processor: list[float] = []

    def fresh() -> Step:
        loss = PEARLoss(problem, smoothing=smoothing, injection=injection, guidance=0.0, solver=solver, reduction="sum")
        last[:] = [loss]

        def step() -> dict[str, Tensor]:
            began = time.process_time()
            gradient = timed_gradient(predicted, lambda cost: loss(cost, true))
            processor.append(time.process_time() - began)
            return {"gradient": gradient}

        return step

    # the first measurement is the warm-up; where it takes long, it is the only one
    _, seconds = measure_worker_steps(fresh, 1, settings.limit, False, wait_for_worker_device("cpu"))
    if seconds[0] * (settings.repeats + 1) < settings.limit:
        _, seconds = measure_worker_steps(fresh, settings.repeats, settings.limit, False, wait_for_worker_device("cpu"))
    (loss,) = last
    assert loss.last is not None
    rows = sum(0 if side is None else side.shape[-1] for side in (problem.b, problem.h))
    best, least = min(seconds) / settings.batch, min(processor) / settings.batch
    residual = float(loss.last.kkt_residual.max())
    return ScalingRow(family, solver, size, problem.n, rows, settings.batch, best, least, residual)


def _draw_scaling_grid_samples(settings: ScalingSettings, side: int) -> tuple[Problem, Tensor, Tensor]:
    """Return a shortest-path problem, true costs (B, n) as in the paper, and predictions with errors of up to 30 %."""
    task = shortest_path((side, side))
    true = task.samples(settings.batch, seed=settings.seed, dtype=torch.float64).costs
    factors = np.random.default_rng([settings.seed, side]).uniform(0.7, 1.3, tuple(true.shape))
    return task.problem, true, true * torch.from_numpy(factors)


def _draw_scaling_qp_samples(settings: ScalingSettings, n: int) -> tuple[Problem, Tensor, Tensor]:
    """Return a sparse program, and true and predicted costs (B, n) of both signs, so that some bounds are reached."""
    rng = np.random.default_rng([settings.seed, n])
    problem = draw_scaling_program(rng, n, settings.spread)
    true = rng.normal(size=(settings.batch, n))
    predicted = true + 0.3 * rng.normal(size=true.shape)
    return problem, torch.from_numpy(true), torch.from_numpy(predicted)


def draw_scaling_program(rng: Rng, n: int, spread: int) -> Problem:
    """Draw a sparse, strictly convex program with bounds, n/10 equalities and n/2 inequalities.

    The curvature couples each variable with its two neighbours. A row couples up to five variables that are close
    together, as in time or space. With ``spread=0`` they may be anywhere, and no factorisation stays sparse.

    Args:
        rng: random generator.
        n: the number of variables.
        spread: the variables of a row lie within this many neighbouring variables; 0 for all variables.
    """
    inside = rng.uniform(0.2, 0.8, n)
    A, G = _draw_scaling_rows(rng, n // 10, n, spread), _draw_scaling_rows(rng, n // 2, n, spread)
    coupling = sp.diags_array([-0.25 * np.ones(n - 1), -0.25 * np.ones(n - 1)], offsets=[-1, 1])
    Q = sp.csc_matrix(coupling + sp.diags_array(rng.uniform(1.0, 2.0, n)))
    room = rng.uniform(0.0, 1.0, n // 2)
    return Problem(Q=Q, A=A, b=A @ inside, G=G, h=G @ inside + room, lb=0.0, ub=1.0)


def _draw_scaling_rows(rng: Rng, m: int, n: int, spread: int) -> sp.csr_matrix:
    """Draw m sparse rows of n columns, five entries each, within ``spread`` neighbouring columns; 0 for any columns."""
    width = min(spread, n) or n
    first = rng.integers(0, n - width + 1, (m, 1))
    columns = first + rng.integers(0, width, (m, _PER_ROW))
    entries = rng.normal(size=(m, _PER_ROW))
    return sp.csr_matrix((entries.ravel(), (np.repeat(np.arange(m), _PER_ROW), columns.ravel())), shape=(m, n))


def scaling_exponents(rows: list[ScalingRow]) -> dict[str, float]:
    """Return the exponent of time ~ variables^exponent for each series; NaN if a series has fewer than two sizes."""
    return {line: fit_scaling_exponent(*points) for line, points in _scaling_points(rows).items()}


def _scaling_points(rows: list[ScalingRow]) -> dict[str, tuple[list[float], list[float]]]:
    """Return, for each series by name, the numbers of variables and the processor seconds of its points."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        n, seconds = found.setdefault(row.line, ([], []))
        n.append(row.n)
        seconds.append(row.processor)
    return found


def fit_scaling_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log time over log size, fitted by least squares; NaN for fewer than two sizes.

    Example:
        >>> round(fit_scaling_exponent([10, 100, 1000], [0.2, 2.0, 20.0]), 6)
        1.0
    """
    if len(set(sizes)) < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])

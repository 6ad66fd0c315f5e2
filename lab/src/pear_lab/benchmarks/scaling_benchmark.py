"""Benchmark: how the time of a regret and its gradient grows with the size of grids and sparse quadratic programs."""

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
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.random_programs import Rng
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.benchmarks.timing import Step, measure_steps, synchronize, timed_gradient

GRIDS = (20, 50, 100, 140, 200, 280, 400)
QPS = (1_000, 3_000, 10_000, 30_000, 100_000)
QUICK_GRIDS, QUICK_QPS = (5, 10), (100, 200)

GRID, QP = "grid", "sparse QP"
_PER_ROW = 5  # entries of a row of the random programs


LABELS = Labels("PEARLoss, forward and backward", "variables", "processor seconds a sample")


@dataclass(frozen=True)
class ScalingSettings(Settings):
    """Time regret and gradient of ever larger grids and sparse programs, and fit the exponent of the growth."""

    grids: tuple[int, ...] = option(GRIDS, "Sides of square grids, or none.", least=2, empty=True, quick=QUICK_GRIDS)
    qps: tuple[int, ...] = option(
        QPS, "Variables of random sparse programs, or none.", least=10, empty=True, quick=QUICK_QPS
    )
    solvers: tuple[str, ...] = option(("auto",), "Sources of candidates, as `pear solvers` lists them.")
    spread: int = option(20, "The largest distance between variables of a row of random programs; 0 for any.")
    batch: int = option(1, "The number of samples of a measurement.", least=1)
    repeats: int = option(3, "The number of measurements of each point; the fastest counts.", least=1)
    limit: float = option(60.0, "Skip larger points after one that takes more than this many seconds.", positive=True)
    threads: int = option(1, "Threads for each library.")
    seed: int = option(0, "Seed of costs and programs.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spread < 0 or 0 < self.spread < _PER_ROW:
            raise ProblemError(f"--spread must be 0 for anywhere, or at least {_PER_ROW}; got {self.spread}")


SETTINGS = ScalingSettings


@dataclass(frozen=True)
class ScalingRow:
    """The time of one problem size.

    Attributes:
        family: "grid" or "sparse QP".
        solver: the source of candidates.
        size: side of the grid, or number of variables.
        n, rows: variables, and equality and inequality rows.
        batch: number of samples in a measurement.
        seconds: seconds per sample, forward and backward, of the fastest measurement.
        processor: smallest processor seconds per sample; other jobs on the machine hardly change it.
        kkt_residual: largest of the batch, as the loss reports it.
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
        """The name of the line of the figure to which this point belongs."""
        return self.family if self.solver == "auto" else f"{self.family}, {self.solver}"


def run(settings: ScalingSettings, callbacks: Callbacks) -> None:
    """Measure every point, smallest first."""
    sizes = {GRID: settings.grids, QP: settings.qps}
    for family, solver in itertools.product(sizes, settings.solvers):
        ordered = sorted(set(sizes[family]))
        for place, size in enumerate(ordered):
            what = f"{family} of {size:,}" + ("" if solver == "auto" else f" by {solver}")
            callbacks.say(what)
            larger = ", ".join(f"{other:,}" for other in ordered[place + 1 :])
            try:
                row = _measure_point(settings, family, solver, size)
            except (MemoryError, SolveError, ProblemError, RuntimeError) as reason:
                # RuntimeError is what torch raises where memory is at its end
                callbacks.on_note(f"{what} failed: {reason}; it and larger ones ({larger or 'none'}) left out")
                break
            callbacks.on_row(row)
            if row.seconds * row.batch > settings.limit and larger:
                taken = row.seconds * row.batch
                callbacks.on_note(f"{what} took {taken:.0f} s, more than --limit: {larger} left out")
                break


def _measure_point(settings: ScalingSettings, family: str, solver: str, size: int) -> ScalingRow:
    """Time one gradient of the loss at one size; return wall and processor time with the KKT residual."""
    problem, true, predicted = (_grid_samples if family == GRID else _qp_samples)(settings, size)
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
    _, seconds = measure_steps(fresh, 1, settings.limit, False, synchronize("cpu"))
    if seconds[0] * (settings.repeats + 1) < settings.limit:
        _, seconds = measure_steps(fresh, settings.repeats, settings.limit, False, synchronize("cpu"))
    (loss,) = last
    assert loss.last is not None
    rows = sum(0 if side is None else side.shape[-1] for side in (problem.b, problem.h))
    best, least = min(seconds) / settings.batch, min(processor) / settings.batch
    residual = float(loss.last.kkt_residual.max())
    return ScalingRow(family, solver, size, problem.n, rows, settings.batch, best, least, residual)


def _grid_samples(settings: ScalingSettings, side: int) -> tuple[Problem, Tensor, Tensor]:
    """Paths with the costs of the paper's samples, forecast to 30 %."""
    task = shortest_path((side, side))
    true = task.samples(settings.batch, seed=settings.seed, dtype=torch.float64).costs
    factors = np.random.default_rng([settings.seed, side]).uniform(0.7, 1.3, tuple(true.shape))
    return task.problem, true, true * torch.from_numpy(factors)


def _qp_samples(settings: ScalingSettings, n: int) -> tuple[Problem, Tensor, Tensor]:
    """A random program with costs of both signs, so that some bounds are reached."""
    rng = np.random.default_rng([settings.seed, n])
    problem = random_qp(rng, n, settings.spread)
    true = rng.normal(size=(settings.batch, n))
    predicted = true + 0.3 * rng.normal(size=true.shape)
    return problem, torch.from_numpy(true), torch.from_numpy(predicted)


def random_qp(rng: Rng, n: int, spread: int) -> Problem:
    """A sparse, strictly convex program in a box, with n/10 equalities and n/2 inequalities around a point inside.

    Neighbours share curvature, and a row joins five variables within ``spread`` places, as constraints do that couple
    neighbours in time or space. Rows that join anything with anything (0) leave no factorisation sparse.

    Args:
        rng: random generator.
        n: number of variables.
        spread: largest distance between the variables of a row; 0 for any distance.
    """
    inside = rng.uniform(0.2, 0.8, n)
    A, G = _sparse_rows(rng, n // 10, n, spread), _sparse_rows(rng, n // 2, n, spread)
    coupling = sp.diags_array([-0.25 * np.ones(n - 1), -0.25 * np.ones(n - 1)], offsets=[-1, 1])
    Q = sp.csc_matrix(coupling + sp.diags_array(rng.uniform(1.0, 2.0, n)))
    room = rng.uniform(0.0, 1.0, n // 2)
    return Problem(Q=Q, A=A, b=A @ inside, G=G, h=G @ inside + room, lb=0.0, ub=1.0)


def _sparse_rows(rng: Rng, m: int, n: int, spread: int) -> sp.csr_matrix:
    width = min(spread, n) or n
    first = rng.integers(0, n - width + 1, (m, 1))
    columns = first + rng.integers(0, width, (m, _PER_ROW))
    entries = rng.normal(size=(m, _PER_ROW))
    return sp.csr_matrix((entries.ravel(), (np.repeat(np.arange(m), _PER_ROW), columns.ravel())), shape=(m, n))


def growth_exponents(rows: list[ScalingRow]) -> dict[str, float]:
    """The exponent of processor time in n for every family and solver; NaN for fewer than two points."""
    return {line: fitted_exponent(*points) for line, points in _points_by_line(rows).items()}


def _points_by_line(rows: list[ScalingRow]) -> dict[str, tuple[list[float], list[float]]]:
    """The points of every family and solver: n and processor time."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        n, seconds = found.setdefault(row.line, ([], []))
        n.append(row.n)
        seconds.append(row.processor)
    return found


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log time over log size, by least squares; NaN for fewer than two sizes.

    Example:
        >>> round(fitted_exponent([10, 100, 1000], [0.2, 2.0, 20.0]), 6)
        1.0
    """
    if len(set(sizes)) < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def tables(rows: list[ScalingRow]) -> list[TextTable]:
    """The points, and the exponents fitted to them."""
    what, times = ("family", "size", "variables", "rows", "batch"), ("s a sample", "processor\ns a sample")
    points = TextTable("PEARLoss, forward and backward", (*what, *times, "exponent\nsince last", "KKT\nresidual"))
    for before, row in zip([None, *rows], rows, strict=False):
        pair = [] if before is None or before.line != row.line else [before]
        since = fitted_exponent(*_points_by_line([*pair, row])[row.line])
        size = f"{row.size}×{row.size}" if row.family == GRID else f"{row.size:,}"
        counts = (f"{row.n:,}", f"{row.rows:,}", str(row.batch))
        measured = format_number(row.seconds), format_number(row.processor), format_number(since)
        points.rows.append((row.line, size, *counts, *measured, format_error(row.kkt_residual)))
    fits = TextTable("Processor time ~ variables^exponent", ("family", "exponent"))
    fits.rows.extend((line, format_number(value)) for line, value in growth_exponents(rows).items())
    return [points, fits]


def series(rows: list[ScalingRow]) -> list[Series]:
    """Processor time a sample over the number of variables, with the exponent in the name."""
    fits = growth_exponents(rows)
    return [
        Series(f"{line}: exponent {format_number(fits[line])}", *points)
        for line, points in _points_by_line(rows).items()
    ]

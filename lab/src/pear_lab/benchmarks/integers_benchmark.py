"""Benchmark: the time of proven integer decisions by PEAR's 0-1 solver on all cores, compared with a loop over HiGHS.

The programs are knapsacks of 100 items and five capacities, as they occur when a forecaster is validated. Their values
are true ones, forecasts of a linear model, or half of each. PEAR and HiGHS prove every optimum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pear.errors import MissingExtraError
from pear.solvers.backend_registry import get_backend
from pear.solvers.binary.binary_plan import forget_binary_plans
from pear.tasks import Knapsack, random_knapsack
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.number_formats import format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

GOALS = {"ratio": 5.0, "difference": 1e-9}
"""The smallest ``ratio`` and the largest ``difference`` of a row that meets its goals."""

KINDS = ("forecast", "true", "mixed")
"""The kinds of values: forecast ones, true ones, which are whole numbers, and half of each."""

_TRAIN = 1000
_NOISE = 0.01  # of forecasts, relative to their spread: about how far an epoch moves them
_DRIFT = 0.003  # about how far forecasts move between two validations

Array = NDArray[np.float64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class IntegerSettings(BenchSettings):
    """Time the integer programs of a validation, compared with a plain loop over HiGHS."""

    count: int = setting(500, "Programs to solve; HiGHS needs some minutes for 500.", least=1, quick=50)
    degrees: tuple[int, ...] = setting((8,), "Degrees of the polynomials behind the values, such as 8 or 2,8.", least=1)
    seed: int = setting(0, "Seed of weights and values.")
    threads: int | None = setting(None, "The number of threads of PEAR.", shown="one a core")


@dataclass(frozen=True)
class IntegerRow:
    """The times of PEAR and of HiGHS for the same programs.

    Attributes:
        degree: the degree of the polynomial that makes the values; 8 is the hardest in the paper.
        kind: the kind of values, an entry of ``KINDS``.
        programs: the number of programs.
        seconds: the seconds of PEAR for all programs, without a warm start.
        again_seconds: the seconds of PEAR for slightly different values, with warm starts from the first solve. NaN
            unless the values are forecasts.
        highs_seconds: the seconds of a loop over HiGHS.
        ratio: ``highs_seconds`` divided by ``seconds``.
        difference: the largest difference of objective values, relative to 1 + |value|.
    """

    degree: int
    kind: str
    programs: int
    seconds: float
    again_seconds: float
    highs_seconds: float
    ratio: float
    difference: float

    @property
    def meets_goals(self) -> bool:
        """Whether ``ratio`` and ``difference`` keep their limits in ``GOALS``."""
        return self.ratio >= GOALS["ratio"] and self.difference <= GOALS["difference"]


class IntegersBenchmark(Benchmark[IntegerSettings, IntegerRow]):
    """The benchmark of integer programs, solved by PEAR's 0-1 solver and by a loop over HiGHS."""

    options = IntegerSettings
    labels = Labels("Integer programs", "row", "seconds")

    def run(self) -> None:
        """Solve the same programs by PEAR and by HiGHS, for each degree and kind of values.

        Raises:
            MissingExtraError: highspy is not installed.
        """
        settings, highs = self.settings, get_backend("highs")
        if not highs.installed:
            raise MissingExtraError(f"this benchmark compares with HiGHS; run {highs.how_to_install}")
        task = random_knapsack(seed=settings.seed, jobs=settings.threads)
        warm_up = _draw_integers_benchmark_values(task, 8, 4, np.random.default_rng(settings.seed))["forecast"]
        task.decide(torch.from_numpy(warm_up))  # compiled, threads started
        for degree in settings.degrees:
            random = np.random.default_rng([settings.seed, degree])
            values = _draw_integers_benchmark_values(task, degree, settings.count, random)
            for kind in KINDS:
                self.callbacks.say(f"degree {degree}, {kind} values: {settings.count:,} integer programs")
                self.add_row(_measure_integers_benchmark_row(task, degree, kind, values[kind]))

    @classmethod
    def tables(cls, rows: list[IntegerRow]) -> list[TextTable]:
        """Make a table with all fields of all rows."""
        names = [field.name for field in fields(IntegerRow)]
        table = TextTable("Integer programs", tuple(name.replace("_", " ") for name in names))
        for row in rows:
            values = (getattr(row, name) for name in names)
            cells = (format_number(value) if isinstance(value, float) else str(value) for value in values)
            table.rows.append(tuple(cells))
        return [table]

    @classmethod
    def series(cls, rows: list[IntegerRow]) -> list[Series]:
        """Make a series over the rows for every field that holds seconds."""
        places = [float(place + 1) for place in range(len(rows))]
        names = [field.name for field in fields(IntegerRow) if "seconds" in field.name]
        return [Series(name, places, [getattr(row, name) for row in rows]) for name in names]


BENCHMARK = IntegersBenchmark


def _draw_integers_benchmark_values(
    task: Knapsack, degree: int, count: int, random: np.random.Generator
) -> dict[str, Array]:
    """Return values (count, n) of each of ``KINDS``. Forecasts are those of a linear model plus noise."""
    samples = task.samples(_TRAIN + count, degree, dtype=torch.float64)
    X, true = samples.features.numpy(), samples.costs.numpy()
    X = np.hstack([X, np.ones((len(X), 1))])
    model = np.linalg.lstsq(X[:_TRAIN], true[:_TRAIN], rcond=None)[0]
    forecast = _perturb_integers_benchmark_values(X[_TRAIN:] @ model, _NOISE, random)
    half = count // 2
    mixed = np.concatenate([forecast[:half], true[_TRAIN + half :]])
    return {"forecast": forecast, "true": true[_TRAIN:], "mixed": mixed}


def _perturb_integers_benchmark_values(values: Array, size: float, random: np.random.Generator) -> Array:
    """Return the values plus normal noise, whose standard deviation is ``size`` times that of the values."""
    return values + size * values.std() * random.standard_normal(values.shape)


def _measure_integers_benchmark_row(task: Knapsack, degree: int, kind: str, values: Array) -> IntegerRow:
    """Time PEAR and HiGHS on the same values (B, n), and return a row with the times and the difference of optima."""
    forget_binary_plans()
    chosen, seconds = _time_integers_benchmark(partial(task.decide, torch.from_numpy(values)))
    ours = (values * chosen.numpy()).sum(1)
    again = np.nan
    if kind == "forecast":
        moved = torch.from_numpy(_perturb_integers_benchmark_values(values, _DRIFT, np.random.default_rng(degree)))
        again = _time_integers_benchmark(partial(task.decide, moved))[1]
    theirs, highs_seconds = _time_integers_benchmark(partial(_solve_integers_benchmark_by_highs, task, values))
    times = (seconds, again, highs_seconds, highs_seconds / seconds)
    difference = float((np.abs(ours - theirs) / (1 + np.abs(theirs))).max())
    return IntegerRow(degree, kind, len(values), *times, difference)


def _time_integers_benchmark(function: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a function and the seconds that it took."""
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


def _solve_integers_benchmark_by_highs(task: Knapsack, values: Array) -> Array:
    """Return the optimal values (B,) by a plain loop over highspy; NaN if an optimum is not proven."""
    import highspy

    G, h = task.weights.numpy(), task.capacity.numpy()
    m, n = G.shape
    optima = np.empty(len(values))
    for i, value in enumerate(values):
        highs = highspy.Highs()
        for name, chosen_value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}.items():
            highs.setOptionValue(name, chosen_value)
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_, lp.sense_ = m, n, highspy.ObjSense.kMaximize
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = value, np.zeros(n), np.ones(n)
        lp.row_lower_, lp.row_upper_ = np.full(m, -np.inf), h
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.arange(0, m * n + 1, n)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = np.tile(np.arange(n), m), G.reshape(-1)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * n
        highs.passModel(lp)
        highs.run()
        chosen = np.round(np.asarray(highs.getSolution().col_value))
        proven = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        optima[i] = value @ chosen if proven else np.nan
    return optima

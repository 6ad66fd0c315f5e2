"""Benchmark: the time of proven integer decisions by our engine on all cores, compared with a loop over HiGHS.

The programs are those that the validation of a knapsack model decides: five capacities, 100 items, valued as a linear
model forecasts them, and as they are. Both sides prove every optimum, in one process, one right after the other.
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
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.number_formats import format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

GOALS = {"ratio": 5.0, "difference": 1e-9}
"""The least ratio and the largest difference that a row may show."""

KINDS = ("forecast", "true", "mixed")
"""Forecast values, true (whole) ones, and half of each."""

_TRAIN = 1000
_NOISE = 0.01  # of the forecasts, relative to their spread: as an epoch more or less moves them
_DRIFT = 0.003  # the same between two checks

Array = NDArray[np.float64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class IntegerSettings(Settings):
    """Time the integer programs of a validation, compared with a plain loop over HiGHS."""

    count: int = option(500, "Programs to solve; HiGHS needs some minutes for 500.", least=1, quick=50)
    degrees: tuple[int, ...] = option((8,), "Degrees of the polynomials behind the values, such as 8 or 2,8.", least=1)
    seed: int = option(0, "Seed of weights and values.")
    threads: int | None = option(None, "The number of threads of PEAR.", shown="one a core")


SETTINGS = IntegerSettings
LABELS = Labels("Integer programs", "row", "seconds")


@dataclass(frozen=True)
class IntegerRow:
    """The times of both sides for the same programs.

    Attributes:
        degree: degree of the polynomial that makes the values; 8 is the paper's hardest, at 2 most forecasts are alike.
        kind: one of ``KINDS``.
        programs: number of programs.
        seconds: our seconds for all programs, without a warm start.
        again_seconds: our seconds for slightly different values, as at the next check; NaN for whole values.
        highs_seconds: seconds of a loop over HiGHS.
        ratio: highs_seconds / seconds.
        difference: largest difference of objective values, relative to 1 + |value|.
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
        """True where our side is fast enough and the optimal values agree."""
        return self.ratio >= GOALS["ratio"] and self.difference <= GOALS["difference"]


def run(settings: IntegerSettings, callbacks: Callbacks) -> None:
    """Solve the same programs by ``pear.solve`` and by HiGHS, a row for each degree and kind of values.

    Raises:
        MissingExtraError: highspy is not installed.
    """
    highs = get_backend("highs")
    if not highs.installed:
        raise MissingExtraError(f"this benchmark compares with HiGHS; run {highs.how_to_install}")
    task = random_knapsack(seed=settings.seed, jobs=settings.threads)
    warm_up = torch.from_numpy(_draw_values(task, 8, 4, np.random.default_rng(settings.seed))["forecast"])
    task.decide(warm_up)  # compiled, threads started
    for degree in settings.degrees:
        values = _draw_values(task, degree, settings.count, np.random.default_rng([settings.seed, degree]))
        for kind in KINDS:
            callbacks.say(f"degree {degree}, {kind} values: {settings.count:,} integer programs")
            callbacks.on_row(_integer_row(task, degree, kind, values[kind]))


def _draw_values(task: Knapsack, degree: int, count: int, random: np.random.Generator) -> dict[str, Array]:
    """Draw values (count, n) of each kind; forecasts are those of a fitted linear model, with noise added."""
    samples = task.samples(_TRAIN + count, degree, dtype=torch.float64)
    X, true = samples.features.numpy(), samples.costs.numpy()
    X = np.hstack([X, np.ones((len(X), 1))])
    model = np.linalg.lstsq(X[:_TRAIN], true[:_TRAIN], rcond=None)[0]
    forecast = _perturb_values(X[_TRAIN:] @ model, _NOISE, random)
    half = count // 2
    mixed = np.concatenate([forecast[:half], true[_TRAIN + half :]])
    return {"forecast": forecast, "true": true[_TRAIN:], "mixed": mixed}


def _perturb_values(values: Array, size: float, random: np.random.Generator) -> Array:
    return values + size * values.std() * random.standard_normal(values.shape)


def _integer_row(task: Knapsack, degree: int, kind: str, values: Array) -> IntegerRow:
    """Time our 0-1 solver and HiGHS on the same values, and return what they took and where they differ."""
    forget_binary_plans()
    chosen, seconds = _time_call(partial(task.decide, torch.from_numpy(values)))
    ours = (values * chosen.numpy()).sum(1)
    again = np.nan
    if kind == "forecast":
        moved = torch.from_numpy(_perturb_values(values, _DRIFT, np.random.default_rng(degree)))
        again = _time_call(partial(task.decide, moved))[1]
    theirs, highs_seconds = _time_call(partial(_loop_over_highs, task, values))
    times = (seconds, again, highs_seconds, highs_seconds / seconds)
    difference = float((np.abs(ours - theirs) / (1 + np.abs(theirs))).max())
    return IntegerRow(degree, kind, len(values), *times, difference)


def _time_call(function: Callable[[], Result]) -> tuple[Result, float]:
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


def _loop_over_highs(task: Knapsack, values: Array) -> Array:
    """Return optimal values (B,) by the shortest loop that a user of highspy would write."""
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


def tables(rows: list[IntegerRow]) -> list[TextTable]:
    """All fields of all rows."""
    names = [field.name for field in fields(IntegerRow)]
    table = TextTable("Integer programs", tuple(name.replace("_", " ") for name in names))
    for row in rows:
        values = (getattr(row, name) for name in names)
        table.rows.append(tuple(format_number(value) if isinstance(value, float) else str(value) for value in values))
    return [table]


def series(rows: list[IntegerRow]) -> list[Series]:
    """Every field that holds seconds as a line over the rows."""
    places = [float(place + 1) for place in range(len(rows))]
    names = [field.name for field in fields(IntegerRow) if "seconds" in field.name]
    return [Series(name, places, [getattr(row, name) for row in rows]) for name in names]

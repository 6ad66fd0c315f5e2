"""How fast are proven integer decisions? Our engine on all cores beside HiGHS, one program after the other.

The programs are those that the validation of a knapsack model decides: five capacities, 100 items, valued as a linear
model forecasts them, and as they are. Both sides prove every optimum, in one process, one right after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pear.errors import MissingExtraError
from pear.solvers.binary.plan import forget
from pear.solvers.registry import get
from pear.tasks import Knapsack, random_knapsack

GOALS = {"ratio": 5.0, "difference": 1e-9}
"""The least ratio and the largest difference that a row may show."""

QUICK = 0.1
"""Share of the programs that a quick run decides."""

DEGREES = (8, 2)
"""How far the values are from linear: 8 is the paper's hardest, at 2 the forecasts are much alike."""

KINDS = ("forecast", "true", "mixed")
"""Forecast values, true (whole) ones, and half of each."""

_TRAIN = 1000
_NOISE = 0.01  # of the forecasts, relative to their spread: as an epoch more or less moves them
_DRIFT = 0.003  # the same between two checks

Array = NDArray[np.float64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """What both sides need for the same programs.

    Attributes:
        degree, kind: of the values; see DEGREES and KINDS.
        programs: how many were decided.
        seconds: ours, for all of them, with nothing remembered.
        again_seconds: ours, for slightly different values, as at the next check; NaN for whole values.
        highs_seconds: HiGHS in a loop.
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
        """True where it is fast enough and nothing differs."""
        return self.ratio >= GOALS["ratio"] and self.difference <= GOALS["difference"]


def run(
    programs: int = 500,
    quick: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    degrees: Sequence[int] = DEGREES,
    kinds: Sequence[str] = KINDS,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Solve the same programs by ``pear.solve`` and by HiGHS.

    Args:
        programs: of each kind; HiGHS needs some minutes for 500.
        quick: a tenth of the programs.
        seed: of weights, samples and noise.
        jobs: threads on our side; None is one for each core.
        degrees: of the values.
        kinds: of KINDS.
        progress: called with one line of text after each row.

    Returns:
        One row per degree and kind of values.

    Raises:
        MissingExtraError: highspy is not installed.
    """
    highs = get("highs")
    if not highs.installed:
        raise MissingExtraError(f"this benchmark compares with HiGHS; run {highs.how_to_install}")
    task = random_knapsack(seed=seed, jobs=jobs)
    warm_up = torch.from_numpy(_values(task, 8, 4, np.random.default_rng(seed))["forecast"])
    task.decide(warm_up)  # compiled, threads started
    count = max(1, round(programs * QUICK)) if quick else programs
    rows = []
    for degree in degrees:
        values = _values(task, degree, count, np.random.default_rng([seed, degree]))
        for kind in kinds:
            rows.append(_row(task, degree, kind, values[kind]))
            if progress is not None:
                progress(_line(rows[-1], len(rows), len(degrees) * len(kinds)))
    return rows


def _values(task: Knapsack, degree: int, count: int, random: np.random.Generator) -> dict[str, Array]:
    """(count, n) values of each kind; the forecasts are those of a linear model fitted by least squares, and noise."""
    samples = task.samples(_TRAIN + count, degree, dtype=torch.float64)
    X, true = samples.features.numpy(), samples.costs.numpy()
    X = np.hstack([X, np.ones((len(X), 1))])
    model = np.linalg.lstsq(X[:_TRAIN], true[:_TRAIN], rcond=None)[0]
    forecast = _moved(X[_TRAIN:] @ model, _NOISE, random)
    half = count // 2
    mixed = np.concatenate([forecast[:half], true[_TRAIN + half :]])
    return {"forecast": forecast, "true": true[_TRAIN:], "mixed": mixed}


def _moved(values: Array, size: float, random: np.random.Generator) -> Array:
    return values + size * values.std() * random.standard_normal(values.shape)


def _row(task: Knapsack, degree: int, kind: str, values: Array) -> Row:
    forget()
    chosen, seconds = _timed(partial(task.decide, torch.from_numpy(values)))
    ours = (values * chosen.numpy()).sum(1)
    again = np.nan
    if kind == "forecast":
        moved = torch.from_numpy(_moved(values, _DRIFT, np.random.default_rng(degree)))
        again = _timed(partial(task.decide, moved))[1]
    theirs, highs_seconds = _timed(partial(_by_highs, task, values))
    return Row(
        degree=degree,
        kind=kind,
        programs=len(values),
        seconds=seconds,
        again_seconds=again,
        highs_seconds=highs_seconds,
        ratio=highs_seconds / seconds,
        difference=float((np.abs(ours - theirs) / (1 + np.abs(theirs))).max()),
    )


def _timed(function: Callable[[], Result]) -> tuple[Result, float]:
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


def _by_highs(task: Knapsack, values: Array) -> Array:
    """(B,) optimal values, by the shortest loop that a user of highspy would write."""
    import highspy

    G, h = task.weights.numpy(), task.capacity.numpy()
    m, n = G.shape
    optima = np.empty(len(values))
    for i, value in enumerate(values):
        highs = highspy.Highs()
        for name, option in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}.items():
            highs.setOptionValue(name, option)
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


def _line(row: Row, done: int, total: int) -> str:
    return (
        f"{done}/{total} degree {row.degree}, {row.kind}: {row.programs} programs, {row.seconds:.2f} s, "
        f"HiGHS {row.highs_seconds:.2f} s, {row.ratio:.0f} times, difference {row.difference:.1e}"
    )

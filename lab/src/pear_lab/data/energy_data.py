"""Irish electricity by the half-hour, from the ICON challenge: prices, demand, and the weights of a knapsack."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import DataError
from pear_lab.data.data_files import find_data_file, fingerprint_data_files, parse_data_file_cell, read_data_file_table

logger = logging.getLogger(__name__)

PRICES = "prices2013.dat"
WEIGHTS = "Data_aaai_predopt_weighted_knapsack.npz"
FOLDER = "energy"
HALF_HOURS = 48
FEATURES = (
    "HolidayFlag", "DayOfWeek", "WeekOfYear", "Month", "PeriodOfDay", "ForecastWindProduction", "SystemLoadEA", "SMPEA",
)  # fmt: skip
"""Columns that are known the day before: the calendar, and forecasts of wind, load and price."""
TARGET = "SMPEP2"
DEMAND = ("SystemLoadEA", "ForecastWindProduction", "SystemLoadEP2", "ActualWindProduction")
"""Columns of load and wind: first the forecasts of the day before, then the true values."""
_DATE = ("Year", "Month", "Day")

_REMEDY = "it is part of the ICON energy-price challenge; put it into the folder 'energy' of $PEAR_DATA"


@dataclass(frozen=True)
class EnergyData:
    """D days of 48 half-hours, in order.

    Attributes:
        features: (D, 48, p) the columns ``FEATURES`` as in the file, not standardised.
        prices: (D, 48) the price SMPEP2 of every half-hour.
        weights: (48,) the units that can be sold in each half-hour. The knapsack has them as weights.
        dates: (D,) "2011-11-01" and so on.
        dropped: the dates of the days that are left out because of gaps.
        source: the file of prices.
        fingerprint: a hash of the contents of all files.
    """

    features: Tensor
    prices: Tensor
    weights: Tensor
    dates: tuple[str, ...]
    dropped: tuple[str, ...]
    source: Path
    fingerprint: str


def load_energy(
    path: str | Path | None = None, weights: Sequence[float] | None = None, gaps: Literal["drop", "raise"] = "drop"
) -> EnergyData:
    """Read the Irish half-hour prices of 2011 to 2013.

    Args:
        path: ``prices2013.dat`` or its folder; ``$PEAR_DATA`` if omitted.
        weights: 48 positive numbers. If omitted, the weights of the published knapsack are read from the ``.npz`` file
            beside the prices.
        gaps: what to do with days that lack a number or a half-hour: "drop" leaves them out and lists their dates in
            ``dropped``, "raise" raises an error.

    Raises:
        DataError: there is no file, the header lacks a column, a cell is no number, weights are not 48 positive
            numbers, a day has a gap although ``gaps`` is "raise", or every day has a gap.
    """
    if gaps not in ("drop", "raise"):
        raise DataError(f"gaps must be 'drop' or 'raise'; got {gaps!r}")
    file = find_data_file(FOLDER, (PRICES,), path, _REMEDY)
    files = [file]
    if weights is None:
        remedy = "it holds the 48 weights of the published knapsack; put it beside the prices, or pass weights="
        files.append(find_data_file(FOLDER, (WEIGHTS,), file.parent, remedy))
    items = _read_energy_data_weights(files[-1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if items.shape != (HALF_HOURS,) or not (items > 0).all():
        raise DataError(f"weights must be {HALF_HOURS} positive numbers; got shape {items.shape}")
    days = _read_energy_data_days(file, (*FEATURES, TARGET))
    whole = _drop_energy_data_gaps(days, file)
    dropped = tuple(date for date in days if date not in whole)
    if dropped and gaps == "raise":
        raise DataError(f"{file}: days with gaps: {', '.join(dropped)}; gaps='drop' leaves them out")
    if dropped:
        logger.info(
            "%s: %d of %d days have gaps and are left out: %s", file, len(dropped), len(days), ", ".join(dropped)
        )
    table = torch.from_numpy(np.stack(list(whole.values())))
    return EnergyData(
        table[..., :-1],
        table[..., -1],
        torch.from_numpy(items),
        tuple(whole),
        dropped,
        file,
        fingerprint_data_files(files),
    )


@dataclass(frozen=True)
class EnergyDemand:
    """Irish load and wind by the half-hour, on the D days without a gap.

    Attributes:
        values: (D, 48, 4) the columns ``DEMAND``, in MW.
        dates: (D,) "2011-11-01" and so on.
    """

    values: NDArray[np.float64]
    dates: tuple[str, ...]


def load_energy_demand(path: str | Path | None = None) -> EnergyDemand:
    """Read the forecast and the true load and wind of 2011 to 2013, from the file of ``load_energy``.

    Args:
        path: ``prices2013.dat`` or its folder; ``$PEAR_DATA`` if omitted.

    Raises:
        DataError: there is no file, the header lacks a column, a cell is no number, or every day has a gap.
    """
    file = find_data_file(FOLDER, (PRICES,), path, _REMEDY)
    whole = _drop_energy_data_gaps(_read_energy_data_days(file, DEMAND), file)
    return EnergyDemand(np.stack(list(whole.values())), tuple(whole))


def _read_energy_data_weights(file: Path) -> NDArray[np.float64]:
    """Read the 48 weights of the published knapsack from an ``.npz`` file."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays["weights"], dtype=np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file} holds no array 'weights': {error}; pass weights= instead") from error


def _read_energy_data_days(file: Path, columns: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return the numbers (half-hours, columns) of every date, in the order of the file. Missing numbers are NaN."""
    header, lines = read_data_file_table(file, " ")
    header = [name.lstrip("#") for name in header if name != "#"]
    needed = ("DateTime", "Day", "Month", "Year", *columns)
    missing = [name for name in needed if name not in header]
    if missing:
        raise DataError(f"{file}: the first line must name the columns {', '.join(needed)}; {missing[0]!r} is missing")
    days: dict[str, list[list[float]]] = {}
    for line, fields in lines.items():
        named = dict(zip(header, fields, strict=True))
        date = "-".join(
            f"{int(parse_data_file_cell(named[name], f'{file}, line {line} ({name})')):02d}" for name in _DATE
        )
        numbers = [parse_data_file_cell(named[name], f"{file}, line {line} ({name})", gaps=True) for name in columns]
        days.setdefault(date, []).append(numbers)
    return {date: np.array(rows) for date, rows in days.items()}


def _drop_energy_data_gaps(days: dict[str, NDArray[np.float64]], file: Path) -> dict[str, NDArray[np.float64]]:
    """Return only the days that have all 48 half-hours and no missing number.

    Raises:
        DataError: every day has a gap; the message names the ``file``.
    """
    whole = {date: rows for date, rows in days.items() if len(rows) == HALF_HOURS and not np.isnan(rows).any()}
    if not whole:
        raise DataError(f"{file} has no day of {HALF_HOURS} half-hours without a gap")
    return whole

"""The day-ahead electricity market of PJM: days with features and 24 prices, and hours with price, load and weather."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pear.errors import DataError
from pear_lab.data.data_files import find_data_file, fingerprint_data_files, read_data_file_table

PJM_DAYS = "pjm_days.npz"
PJM_HOURS = "pjm_hours.csv.gz"
FOLDER = "battery"
HOURS = 24

LICENCE = "Processed by C. Yeh et al. (e2e-conformal, MIT); prices of Donti et al. 2017 (e2e-model-learning, Apache-2)."
"""Origin and licence of both files. Every page that shows their numbers names them."""

_DAYS_REMEDY = (
    "it holds the arrays X (days, features), Y (days, 24) and dates of the battery task of Yeh et al., arXiv "
    "2409.20534; put it into the folder 'battery' of $PEAR_DATA"
)
_COLUMNS = ["datetime", "da_price", "load_forecast", "temp_dca"]
_HOURS_REMEDY = (
    "it holds the hours of Donti et al. 2017 (e2e-model-learning, storage_data.csv), with the columns "
    f"{', '.join(_COLUMNS)}; put it into the folder 'battery' of $PEAR_DATA"
)


@dataclass(frozen=True)
class PjmDays:
    """D days of the PJM day-ahead market, in order.

    Attributes:
        features: (D, p) yesterday's prices, load forecasts, weather and calendar, standardised by the file's authors.
        prices: (D, 24) the day-ahead price of every hour, in $/MWh.
        dates: (D,) "2011-01-04" and so on, increasing.
        source: the file.
        fingerprint: a hash of the contents of the file.
    """

    features: Tensor
    prices: Tensor
    dates: tuple[str, ...]
    source: Path
    fingerprint: str


@dataclass(frozen=True)
class PjmHours:
    """N hours of the PJM day-ahead market, in order and without a gap.

    Attributes:
        price: (N,) the day-ahead price in $/MWh.
        load: (N,) the load forecast.
        temperature: (N,) in degrees Fahrenheit; a missing measurement is interpolated between its neighbours.
        times: (N,) the hours, ``datetime64[h]``.
        fingerprint: a hash of the file.
    """

    price: Tensor
    load: Tensor
    temperature: Tensor
    times: np.ndarray
    fingerprint: str


def load_pjm_days(path: str | Path | None = None) -> PjmDays:
    """Read the days of the PJM market. ``LICENCE`` names their origin.

    Args:
        path: ``pjm_days.npz`` or its folder; ``$PEAR_DATA`` if omitted.

    Raises:
        DataError: there is no file, an array is missing or has another shape, a number is not finite, or dates do not
            increase.
    """
    file = find_data_file(FOLDER, (PJM_DAYS,), path, _DAYS_REMEDY)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            features, prices, days = (np.asarray(arrays[name]) for name in ("X", "Y", "dates"))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file} cannot be read as a file of PJM days: {error}; {_DAYS_REMEDY}") from error
    if features.ndim != 2 or prices.shape != (len(features), HOURS) or days.shape != (len(features),):
        shapes = ", ".join(f"{name} {part.shape}" for name, part in (("X", features), ("Y", prices), ("dates", days)))
        raise DataError(f"{file}: expected X (days, features), Y (days, {HOURS}) and dates (days,); got {shapes}")
    for name, part in (("X", features), ("Y", prices)):
        if part.dtype.kind != "f" or not np.isfinite(part).all():
            raise DataError(f"{file}: {name} must hold finite numbers alone; nothing is filled in for a gap")
    if days.dtype.kind != "M" or not (days[1:] > days[:-1]).all():
        raise DataError(f"{file}: dates must be days that increase; mend the file, or get the original")
    dates = tuple(str(day) for day in days.astype("datetime64[D]"))
    columns, hourly = (torch.from_numpy(part.astype(np.float64)) for part in (features, prices))
    return PjmDays(columns, hourly, dates, file, fingerprint_data_files([file]))


def load_pjm_hours(path: str | Path | None = None) -> PjmHours:
    """Read the hours of the PJM market. ``LICENCE`` names their origin.

    Args:
        path: ``pjm_hours.csv.gz`` or its folder; ``$PEAR_DATA`` if omitted.

    Raises:
        DataError: there is no file, columns are wrong, hours are missing or out of order, or a number is missing.
            Only some temperatures may be missing.
    """
    file = find_data_file(FOLDER, (PJM_HOURS,), path, _HOURS_REMEDY)
    header, lines = read_data_file_table(file)
    if header != _COLUMNS:
        raise DataError(f"{file} has the columns {', '.join(header)}; {_HOURS_REMEDY}")
    rows = list(lines.values())
    try:
        times = [datetime.fromisoformat(row[0]) for row in rows]
        numbers = np.array([[float(cell) if cell else np.nan for cell in row[1:]] for row in rows])
    except ValueError as error:
        raise DataError(f"{file} cannot be read as hours of the PJM market: {error}; {_HOURS_REMEDY}") from error
    steps = {later - earlier for earlier, later in itertools.pairwise(times)}
    if steps != {timedelta(hours=1)}:
        raise DataError(f"{file}: hours must follow each other without a gap; mend the file, or get the original")
    if not np.isfinite(numbers[:, :2]).all() or np.isnan(numbers[:, 2]).all():
        raise DataError(f"{file}: prices and load forecasts must be finite numbers; nothing is filled in for a gap")
    known = np.isfinite(numbers[:, 2])
    at = np.arange(len(numbers))
    numbers[:, 2] = np.interp(at, at[known], numbers[known, 2])
    price, load, temperature = (torch.from_numpy(column.copy()) for column in numbers.T)
    return PjmHours(price, load, temperature, np.array(times, dtype="datetime64[h]"), fingerprint_data_files([file]))

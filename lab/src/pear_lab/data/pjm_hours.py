"""Hours of the PJM day-ahead market: price, load forecast and temperature."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pear.errors import DataError
from pear_lab.data.battery_data import FOLDER
from pear_lab.data.data_files import find_file, fingerprint_files, read_text_table

PJM_HOURS = "pjm_hours.csv.gz"
_COLUMNS = ["datetime", "da_price", "load_forecast", "temp_dca"]
_REMEDY = (
    "it holds the hours of Donti et al. 2017 (e2e-model-learning, storage_data.csv), with the columns "
    f"{', '.join(_COLUMNS)}; put it into the folder 'battery' of $PEAR_DATA"
)


@dataclass(frozen=True)
class PjmHours:
    """Hours of the PJM day-ahead market, in order and without a gap.

    Attributes:
        price: (N,) the day-ahead price in $/MWh.
        load: (N,) the load forecast.
        temperature: (N,) in degrees Fahrenheit; hours without a measurement lie on a line between their neighbours.
        times: (N,) the hours, ``datetime64[h]``.
        fingerprint: a hash of the file.
    """

    price: Tensor
    load: Tensor
    temperature: Tensor
    times: np.ndarray
    fingerprint: str


def load_pjm_hours(path: str | Path | None = None) -> PjmHours:
    """Read the hours of the PJM market. ``battery_data.LICENCE`` names their origin.

    Args:
        path: ``pjm_hours.csv.gz`` or its folder; ``$PEAR_DATA`` if omitted.

    Raises:
        DataError: no file, other columns, hours that are missing or out of order, or a price that is not a number.
    """
    file = find_file(FOLDER, (PJM_HOURS,), path, _REMEDY)
    header, lines = read_text_table(file)
    if header != _COLUMNS:
        raise DataError(f"{file} has the columns {', '.join(header)}; {_REMEDY}")
    rows = list(lines.values())
    try:
        times = [datetime.fromisoformat(row[0]) for row in rows]
        numbers = np.array([[float(cell) if cell else np.nan for cell in row[1:]] for row in rows])
    except ValueError as error:
        raise DataError(f"{file} cannot be read as hours of the PJM market: {error}; {_REMEDY}") from error
    steps = {later - earlier for earlier, later in itertools.pairwise(times)}
    if steps != {timedelta(hours=1)}:
        raise DataError(f"{file}: hours must follow each other without a gap; mend the file, or get the original")
    if not np.isfinite(numbers[:, :2]).all() or np.isnan(numbers[:, 2]).all():
        raise DataError(f"{file}: prices and load forecasts must be finite numbers; nothing is filled in for a gap")
    known = np.isfinite(numbers[:, 2])
    at = np.arange(len(numbers))
    numbers[:, 2] = np.interp(at, at[known], numbers[known, 2])
    price, load, temperature = (torch.from_numpy(column.copy()) for column in numbers.T)
    return PjmHours(price, load, temperature, np.array(times, dtype="datetime64[h]"), fingerprint_files([file]))

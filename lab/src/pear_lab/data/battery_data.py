"""Days of the PJM day-ahead market: features of a day and its 24 hourly prices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pear.errors import DataError
from pear_lab.data.data_files import find_file, fingerprint_files

PJM_DAYS = "pjm_days.npz"
FOLDER = "battery"
HOURS = 24

LICENCE = "Processed by C. Yeh et al. (e2e-conformal, MIT); prices of Donti et al. 2017 (e2e-model-learning, Apache-2)."
"""Origin and licence of the file, to be named wherever its numbers are shown."""

_REMEDY = (
    "it holds the arrays X (days, features), Y (days, 24) and dates of the battery task of Yeh et al., arXiv "
    "2409.20534; put it into the folder 'battery' of $PEAR_DATA"
)


@dataclass(frozen=True)
class PjmDays:
    """Days of the PJM day-ahead market, in order.

    Attributes:
        features: (D, p) standardised by the file's authors: yesterday's prices, load forecasts, weather and calendar.
        prices: (D, 24) the day-ahead price of every hour, in $/MWh.
        dates: (D,) "2011-01-04" and so on, increasing.
        source: the file.
        fingerprint: a hash of its contents.
    """

    features: Tensor
    prices: Tensor
    dates: tuple[str, ...]
    source: Path
    fingerprint: str


def load_pjm_days(path: str | Path | None = None) -> PjmDays:
    """Read the days of the PJM market. ``LICENCE`` names their origin.

    Args:
        path: ``pjm_days.npz`` or its folder; ``$PEAR_DATA`` if omitted.

    Raises:
        DataError: no file, an array is missing or has another shape, a number is not finite, or dates do not increase.
    """
    file = find_file(FOLDER, (PJM_DAYS,), path, _REMEDY)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            features, prices, days = (np.asarray(arrays[name]) for name in ("X", "Y", "dates"))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file} cannot be read as a file of PJM days: {error}; {_REMEDY}") from error
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
    return PjmDays(columns, hourly, dates, file, fingerprint_files([file]))

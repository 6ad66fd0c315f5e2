"""Daily prices of assets from a CSV file, skfolio or Yahoo Finance. Gaps are never filled."""

from __future__ import annotations

import datetime
import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import DataError, MissingExtraError
from pear_lab.data.data_files import VARIABLE, parse_data_file_cell, read_data_file_table

logger = logging.getLogger(__name__)

Array = NDArray[np.float64]
Gaps = Literal["error", "drop-names", "drop-days"]

LONGEST_BREAK = 10
"""The most calendar days between two rows. New York's trading days around 11 September 2001 were seven days apart."""


@dataclass(frozen=True)
class Prices:
    """Prices without a gap.

    Attributes:
        values: (T, n) positive numbers, one row for each trading day.
        names: the names of the n assets.
        dates: the dates of the T days, increasing.
        source: the file or package of the prices.
        dropped: a sentence on the names or days that were left out because of gaps; empty if none were.

    Raises:
        DataError: shapes do not fit, a price is not positive and finite, dates do not increase, or two dates are more
            than ``LONGEST_BREAK`` days apart.
    """

    values: Array
    names: tuple[str, ...]
    dates: tuple[datetime.date, ...]
    source: str = "memory"
    dropped: str = ""

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.dates), len(self.names)):
            raise DataError(
                f"{self.source}: expected one row a date and one column a name, {len(self.dates)} × "
                f"{len(self.names)}; got values of shape {self.values.shape}"
            )
        if self.values.size == 0:
            raise DataError(f"{self.source}: no prices are left{f' ({self.dropped})' if self.dropped else ''}")
        _check_positive_prices(self)
        _check_price_dates(self)

    def returns(self) -> Tensor:
        """Return the simple returns ``p[t+1] / p[t] − 1``, (T − 1, n) in float64.

        Example:
            >>> import datetime as dt
            >>> days = (dt.date(2024, 1, 2), dt.date(2024, 1, 3))
            >>> Prices(np.array([[100.0, 50.0], [110.0, 45.0]]), ("A", "B"), days).returns()
            tensor([[ 0.1000, -0.1000]], dtype=torch.float64)
        """
        return torch.from_numpy(self.values[1:] / self.values[:-1] - 1.0)

    def last(self, days: int) -> Prices:
        """Return the prices of the last ``days`` days."""
        return Prices(self.values[-days:], self.names, self.dates[-days:], self.source, self.dropped)

    @property
    def fingerprint(self) -> str:
        """The first 16 hexadecimal digits of a hash of all prices, names and dates."""
        text = "\n".join([*self.names, *(day.isoformat() for day in self.dates)])
        return hashlib.sha256(text.encode() + np.ascontiguousarray(self.values).tobytes()).hexdigest()[:16]

    def __str__(self) -> str:
        cut = f"; {self.dropped}" if self.dropped else ""
        return f"{len(self.names)} names, {len(self.dates):,} days {self.dates[0]} to {self.dates[-1]}{cut}"


def read_prices(path: str | Path, gaps: Gaps = "error") -> Prices:
    r"""Read a table of prices with a header, dates (YYYY-MM-DD) in the first column, and a column for each asset.

    Args:
        path: a ``.csv`` or ``.csv.gz`` file.
        gaps: what to do if prices are missing: "error" raises an error, "drop-names" leaves out the assets with a gap,
            "drop-days" leaves out the days with a gap. ``Prices.dropped`` and the log say what was left out.

    Raises:
        DataError: there is no such file, it is no table of prices, or it has a gap that may not be dropped.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "prices.csv"
        ...     _ = file.write_text("Date,A,B\n2024-01-02,1.0,2.0\n2024-01-03,1.1,\n2024-01-04,1.2,2.2\n")
        ...     print(read_prices(file, gaps="drop-names"))
        1 names, 3 days 2024-01-02 to 2024-01-04; 1 of 2 names dropped because of gaps: B
    """
    if gaps not in get_args(Gaps):
        raise DataError(f"gaps must be one of {', '.join(get_args(Gaps))}; got {gaps!r}")
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file of prices at {file}; give the path of a .csv or .csv.gz file")
    header, lines = read_data_file_table(file)
    names = tuple(name.strip() for name in header[1:])
    if not names or not lines:
        raise DataError(f"{file}: expected a header with a date column and names, and rows of prices below it")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{file}: the name {twice!r} has two columns; leave one of them out")
    dates = [_parse_price_date(file, line, row[0]) for line, row in lines.items()]
    values = [
        [
            parse_data_file_cell(cell, f"{file}, line {line} ({name})", gaps=True)
            for name, cell in zip(names, row[1:], strict=True)
        ]
        for line, row in lines.items()
    ]
    return _cut_price_gaps(np.array(values), names, dates, str(file), gaps)


def _parse_price_date(file: Path, line: int, cell: str) -> datetime.date:
    """Convert the first cell of a line to a date."""
    try:
        return datetime.date.fromisoformat(cell.strip()[:10])
    except ValueError:
        raise DataError(
            f"{file}, line {line}: the first column must be a date such as 2024-01-31; got {cell!r}"
        ) from None


def _cut_price_gaps(
    values: Array, names: tuple[str, ...], dates: list[datetime.date], source: str, gaps: Gaps
) -> Prices:
    """Return the prices of a table in which NaN marks a gap. Gaps are handled as in ``read_prices``."""
    missing = np.isnan(values)
    if not missing.any():
        return Prices(values, names, tuple(dates), source)
    broken_names, broken_days = np.asarray(missing.any(0)), np.asarray(missing.any(1))
    if gaps == "error":
        day, asset = np.argwhere(missing)[0]
        raise DataError(
            f"{source}: {int(missing.sum())} prices are missing, in {broken_names.sum()} of {len(names)} names "
            f"and on {broken_days.sum()} of {len(dates)} days; the first is {names[asset]} on {dates[day]}. "
            "Nothing is filled in: pass gaps='drop-names' or gaps='drop-days', or mend the file"
        )
    if gaps == "drop-names":
        lost = ", ".join(compress(names, broken_names))
        dropped = f"{broken_names.sum()} of {len(names)} names dropped because of gaps: {lost}"
        values, names = values[:, ~broken_names], tuple(compress(names, ~broken_names))
    else:
        dropped = f"{broken_days.sum()} of {len(dates)} days dropped because of gaps"
        values, dates = values[~broken_days], list(compress(dates, ~broken_days))
    logger.warning("%s: %s", source, dropped)
    return Prices(values, names, tuple(dates), source, dropped)


def _check_positive_prices(prices: Prices) -> None:
    """Raise ``DataError`` at the first price that is not positive and finite."""
    bad = ~((prices.values > 0) & np.isfinite(prices.values))
    if bad.any():
        day, asset = np.argwhere(bad)[0]
        raise DataError(
            f"{prices.source}: prices must be positive and finite; {prices.names[asset]} on {prices.dates[day]} is "
            f"{prices.values[day, asset]:g}"
        )


def _check_price_dates(prices: Prices) -> None:
    """Raise ``DataError`` if dates do not increase, or if two are more than ``LONGEST_BREAK`` days apart."""
    for before, after in zip(prices.dates, prices.dates[1:], strict=False):
        apart = (after - before).days
        if apart <= 0:
            raise DataError(f"{prices.source}: dates must increase; {after} comes after {before}")
        if apart > LONGEST_BREAK:
            raise DataError(
                f"{prices.source}: no prices between {before} and {after}, {apart} days; returns over such a break are "
                "no daily returns. Use the part before or after it, or mend the file"
            )


def load_prices(source: str | Path = "skfolio", gaps: Gaps = "error") -> Prices:
    """Load prices by the name of their source.

    Args:
        source: "skfolio" for 20 assets of the S&P 500 from 1990 to 2022, which come with the package skfolio (BSD
            3-Clause; ``pip install 'pear-lab[portfolio]'``); "sp100" for the only table in ``$PEAR_DATA/sp100``;
            otherwise the path of a CSV file.
        gaps: what to do if prices are missing, as in ``read_prices``. The table of skfolio has no gaps.

    Raises:
        DataError: there is no such file, it is no table of prices, or it has a gap that may not be dropped.
        MissingExtraError: skfolio is not installed.
    """
    if source == "skfolio":
        return _load_skfolio_prices()
    if source == "sp100":
        return read_prices(_find_prices_file("sp100"), gaps)
    return read_prices(source, gaps)


def fetch_prices(
    names: Sequence[str], first: datetime.date | str, last: datetime.date | str, path: str | Path
) -> Prices:
    """Download adjusted closing prices from Yahoo Finance into a CSV file, and read that file.

    The download needs a network and the package yfinance. Yahoo's terms allow personal use, but no redistribution.

    Args:
        names: ticker symbols such as "AAPL".
        first: the first day.
        last: the last day, included.
        path: the file to write. If reading it fails because of gaps, call ``read_prices(path, gaps=…)``.

    Raises:
        MissingExtraError: yfinance is not installed.
        DataError: Yahoo did not answer, or sent no prices of some names, or prices with gaps.
    """
    try:
        import yfinance
    except ImportError as error:
        raise MissingExtraError(
            "fetching prices needs yfinance, not installed here; run pip install yfinance, or read a file of your own "
            "with read_prices"
        ) from error
    end = datetime.date.fromisoformat(str(last)) + datetime.timedelta(days=1)  # Yahoo leaves its last day out
    try:
        table = yfinance.download(list(names), start=str(first), end=str(end), auto_adjust=True, progress=False)
    except Exception as error:  # any error of the network or of Yahoo's answer is the same to the user
        raise DataError(f"Yahoo Finance did not answer ({error}); is there a network?") from error
    closes = None if table is None or not len(table) else table["Close"]
    lacking = [name for name in names if closes is None or name not in closes or closes[name].isna().all()]
    if closes is None or lacking:
        raise DataError(
            f"Yahoo Finance sent no prices for {', '.join(lacking)}, {first} to {last}; check the names, the dates and "
            "the network"
        )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    closes[list(names)].to_csv(path)
    return read_prices(path)


def _load_skfolio_prices() -> Prices:
    """Load the prices of 20 assets of the S&P 500 from the package skfolio."""
    try:
        from skfolio.datasets import load_sp500_dataset
    except ImportError as error:
        raise MissingExtraError(
            "the 20 names of the default data come with skfolio, not installed here; run "
            "pip install 'pear-lab[portfolio]', or give the path of a CSV file of prices"
        ) from error
    table: Any = load_sp500_dataset()
    dates = tuple(day.date() for day in table.index)
    return Prices(table.to_numpy(dtype=float), tuple(map(str, table.columns)), dates, "skfolio")


def _find_prices_file(folder_name: str) -> Path:
    """Return the path of the only ``.csv`` or ``.csv.gz`` file in a folder of ``$PEAR_DATA``."""
    root = os.environ.get(VARIABLE)
    if not root:
        raise DataError(
            f"{folder_name} is looked for in ${VARIABLE}/{folder_name}, and {VARIABLE} is not set; set it to "
            "the folder of your data, or give the path of a CSV file"
        )
    folder = Path(root) / folder_name
    found = sorted([*folder.glob("*.csv"), *folder.glob("*.csv.gz")])
    if len(found) != 1:
        what = "none" if not found else ", ".join(file.name for file in found)
        raise DataError(
            f"expected one .csv or .csv.gz file in {folder} and found {what}; give the path of the file instead"
        )
    return found[0]

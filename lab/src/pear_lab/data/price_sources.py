"""Where prices come from: a set that pip installs, the user's own files, or Yahoo Finance."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pear.errors import DataError, MissingExtraError
from pear_lab.data.data_files import VARIABLE
from pear_lab.data.prices import Gaps, Prices, read_prices


def load_prices(source: str | Path = "skfolio", gaps: Gaps = "error") -> Prices:
    """Load prices by the name of their source.

    Args:
        source: "skfolio": 20 names of the S&P 500, 1990 to 2022, that come with the package skfolio (BSD 3-Clause;
            ``pip install 'pear-lab[portfolio]'``); "sp100": the one table in ``$PEAR_DATA/sp100``; anything else is
            the path of a CSV file.
        gaps: see ``read_prices``.

    Raises:
        DataError: there is nothing there, or it cannot be used.
        MissingExtraError: skfolio is not installed.
    """
    if source == "skfolio":
        return _load_skfolio()
    if source == "sp100":
        return read_prices(_find_only_table("sp100"), gaps)
    return read_prices(source, gaps)


def fetch_prices(
    names: Sequence[str], first: datetime.date | str, last: datetime.date | str, path: str | Path
) -> Prices:
    """Download adjusted closing prices from Yahoo Finance into a CSV file, and read that file.

    Needs a network and the package yfinance. Yahoo's terms allow personal use; the file is not for redistribution.

    Args:
        names: ticker symbols such as "AAPL".
        first: the first day.
        last: the last one, included.
        path: of the file to write. Where names have gaps, read it with ``read_prices(path, gaps=…)``.

    Raises:
        MissingExtraError: yfinance is not installed.
        DataError: nothing came, or not for every name.
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


def _load_skfolio() -> Prices:
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


def _find_only_table(folder_name: str) -> Path:
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

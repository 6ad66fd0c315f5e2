"""The UCI Residential Building Data Set: 372 properties with construction costs and sales prices."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import DataError, MissingExtraError
from pear_lab.data.data_files import find_data_file, fingerprint_data_files, parse_data_file_cell, read_data_file_table

WORKBOOK = "Residential-Building-Data-Set.xlsx"
URL = f"https://archive.ics.uci.edu/ml/machine-learning-databases/00437/{WORKBOOK}"
PROPERTIES, ECONOMICS = "scaled_property_features.csv", "scaled_economic_features.csv"
FOLDER = "building"

Features = Literal["all", "project"]
Array = NDArray[np.float64]

_LAGS = 5
_SERIES = [f"V-{i}" for i in range(11, 30)]
_PROJECT = [f"V-{i}" for i in range(2, 9)]
_DATES = ["START YEAR", "START QUARTER", "COMPLETION YEAR", "COMPLETION QUARTER"]
HEADER = (*_DATES, "V-1", *_PROJECT, *_SERIES * _LAGS, "V-9", "V-10")
"""The names of the columns in the second row of the sheet ``Data``, in order."""

_NOT_FEATURES = ("ZIP Codes", "Actual sales prices", "Actual construction costs")

_REMEDY = (
    "pear_lab.data.fetch_building(folder) downloads the workbook from UCI, or take it from "
    "https://archive.ics.uci.edu/dataset/437 by hand"
)


@dataclass(frozen=True)
class BuildingData:
    """The N properties of the data set, one row each.

    Attributes:
        features: (N, p) the features, with the numbers of the file. Nothing is standardised here.
        names: the names of the p columns.
        prices: (N,) V-9, the sales prices.
        costs: (N,) V-10, the construction costs.
        source: the file, or the first of several files.
        fingerprint: a hash of the contents of all files.
    """

    features: Tensor
    names: tuple[str, ...]
    prices: Tensor
    costs: Tensor
    source: Path
    fingerprint: str


def load_building(path: str | Path | None = None, features: Features = "all") -> BuildingData:
    """Read the properties from UCI's workbook or, if the folder has no workbook, from two processed tables.

    The features are the locality V-1 as one indicator column for each locality, the project data V-2 to V-8, and the
    economic series V-11 to V-29 at five lags. Dates are no features, because the completion date of a property is
    unknown when the property is chosen. The processed tables are ``scaled_property_features.csv`` and
    ``scaled_economic_features.csv``. Their prices have a mean of zero, so that a property below the average price
    counts as a loss. Decisions on the processed tables therefore solve a different problem.

    Args:
        path: the workbook, the first of the two tables, or their folder; ``$PEAR_DATA`` if omitted.
        features: "all", or "project" for V-1 to V-8 alone.

    Raises:
        DataError: there is no file, or its sheets, columns or cells are not as expected; the message names the place.
        MissingExtraError: the workbook is read with openpyxl, which is not installed.
    """
    if features not in ("all", "project"):
        raise DataError(f"features must be 'all' or 'project'; got {features!r}")
    file = find_data_file(FOLDER, (WORKBOOK, PROPERTIES), path, _REMEDY)
    if file.suffix == ".csv":
        return _read_building_data_tables(file, features)
    table = _parse_building_data_cells(
        _read_building_data_workbook(file), lambda i, j: f"{file}, row {i + 3}, column {j + 1} ({HEADER[j]})"
    )
    series = [name for lag in range(1, _LAGS + 1) for name in (f"{one} lag {lag}" for one in _SERIES)]
    wide = 5 + len(_PROJECT) + (len(series) if features == "all" else 0)
    columns, names = _add_building_data_localities(table[:, 4], table[:, 5:wide], [*_PROJECT, *series][: wide - 5])
    prices, costs = table[:, -2], table[:, -1]
    return _make_building_data(file, [file], columns, names, prices, costs)


def fetch_building(folder: str | Path, url: str = URL, timeout: float = 60.0) -> Path:
    """Download UCI's workbook into ``folder/building``, unless it exists there.

    The licence of the workbook is stated on UCI's page.

    Args:
        folder: the folder that ``$PEAR_DATA`` names.
        url: the address of the workbook.
        timeout: seconds to wait for an answer.

    Returns:
        The path of the workbook.

    Raises:
        DataError: the download failed, or its content is no workbook; the message describes the download by hand.
    """
    target = Path(folder) / FOLDER / WORKBOOK
    if target.is_file():
        return target
    by_hand = f"download it by hand and put it at {target}"
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            content = answer.read()
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise DataError(f"cannot download {url}: {getattr(error, 'reason', error)}; {by_hand}") from error
    if not content.startswith(b"PK"):  # a workbook is a zip archive
        raise DataError(f"{url} sent {len(content):,} bytes that are no workbook; {by_hand}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_bytes(content)
    part.replace(target)
    return target


def _read_building_data_workbook(file: Path) -> list[tuple[Any, ...]]:
    """Check the header of the sheet ``Data``, and return the rows below it, padded to the length of the header."""
    try:
        import openpyxl  # an extra
    except ImportError as error:
        raise MissingExtraError(
            f"{file.name} is read with openpyxl, which is not installed; run pip install 'pear-lab[data]'"
        ) from error
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except Exception as error:  # a file of another kind makes openpyxl raise any of a dozen types
        raise DataError(f"{file} cannot be read as a workbook: {error}; {_REMEDY}") from error
    try:
        if "Data" not in book.sheetnames:
            raise DataError(f"{file} has no sheet 'Data'; its sheets: {', '.join(book.sheetnames)}; {_REMEDY}")
        rows = [row for row in book["Data"].iter_rows(values_only=True) if any(cell is not None for cell in row)]
    finally:
        book.close()
    if len(rows) < 3:
        raise DataError(f"{file}: the sheet 'Data' has {len(rows)} rows; expected two of header and one a property")
    header = tuple(str(cell).strip() for cell in rows[1] if cell is not None)
    if header != HEADER:
        at = next((i for i, (a, b) in enumerate(zip(header, HEADER, strict=False)) if a != b), len(header))
        found = header[at] if at < len(header) else "nothing"
        raise DataError(
            f"{file}: row 2 of the sheet 'Data' must name {len(HEADER)} columns, {HEADER[0]} to {HEADER[-1]}; it names "
            f"{len(header)}, and column {at + 1} is {found!r}"
        )
    absent = (None,) * len(HEADER)  # a row may end before the last column
    return [(*row, *absent)[: len(HEADER)] for row in rows[2:]]


def _parse_building_data_cells(rows: Sequence[Sequence[Any]], where: Callable[[int, int], str]) -> Array:
    """Return the numbers (rows, columns) in rows of cells. ``where(row, column)`` names a cell in error messages."""
    return np.array(
        [[parse_data_file_cell(cell, where(i, j)) for j, cell in enumerate(row)] for i, row in enumerate(rows)]
    )


def _read_building_data_tables(file: Path, features: Features) -> BuildingData:
    """Read the data set from its two processed tables.

    The table in ``file`` has a row for each property. The second table, which has a row for each property and lag, is
    read only if ``features`` is "all".
    """
    header, properties = _read_building_data_csv(file)
    _check_building_data_columns(file, header, ("Sl", *_NOT_FEATURES))
    own = [name for name in header if name not in {"Sl", *_DATES, *_NOT_FEATURES}]
    columns, names, files = properties[:, [header.index(name) for name in own]], list(own), [file]
    if features == "all":
        second = find_data_file(FOLDER, (ECONOMICS,), file.parent, "it belongs beside the table of properties")
        economic_header, economic = _read_building_data_csv(second)
        _check_building_data_columns(second, economic_header, ("Lag", "Sl"))
        wide, series = _join_building_data_lags(second, economic_header, economic, properties[:, header.index("Sl")])
        columns, names, files = np.hstack([columns, wide]), names + series, [file, second]
    columns, names = _add_building_data_localities(properties[:, header.index("ZIP Codes")], columns, names)
    prices, costs = (properties[:, header.index(f"Actual {what}")] for what in ("sales prices", "construction costs"))
    return _make_building_data(file, files, columns, names, prices, costs)


def _join_building_data_lags(file: Path, header: list[str], table: Array, wanted: Array) -> tuple[Array, list[str]]:
    """Join the rows of each property, one for each lag, into one row.

    Args:
        file: the file of the table, for error messages.
        header: the names of the columns of ``table``.
        table: (N × lags, columns) one row for each property and lag.
        wanted: (N,) the numbers of the properties, in the order of the result.

    Returns:
        The joined rows (N, lags × series), and the names of their columns.
    """
    lag_at, own_at = header.index("Lag"), header.index("Sl")
    others = [i for i in range(len(header)) if i not in (lag_at, own_at)]
    rows: dict[float, dict[float, Array]] = defaultdict(dict)
    for row in table:
        rows[row[own_at]][row[lag_at]] = row[others]
    lags = sorted({lag for one in rows.values() for lag in one})
    for name in wanted:
        if sorted(rows[name]) != lags:
            there, needed = (", ".join(f"{lag:g}" for lag in some) or "none" for some in (sorted(rows[name]), lags))
            raise DataError(f"{file}: property {name:g} has lags {there}; expected {needed}")
    wide = np.array([np.concatenate([rows[name][lag] for lag in lags]) for name in wanted])
    return wide, [f"{header[i]} lag {lag:g}" for lag in lags for i in others]


def _read_building_data_csv(file: Path) -> tuple[list[str], Array]:
    """Return the names of the columns of a processed table, and the numbers (rows, columns) below them."""
    header, lines = read_data_file_table(file)
    if not lines:
        raise DataError(f"{file} holds no rows; {_REMEDY}")
    return header, _parse_building_data_cells(
        list(lines.values()), lambda i, j: f"{file}, line {list(lines)[i]} ({header[j]})"
    )


def _check_building_data_columns(file: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raise ``DataError`` if the header lacks one of the columns ``names``."""
    missing = [name for name in names if name not in header]
    if missing:
        raise DataError(f"{file} has no column {missing[0]!r}; its columns: {', '.join(header)}")


def _add_building_data_localities(locality: Array, columns: Array, names: list[str]) -> tuple[Array, list[str]]:
    """Append a column for each locality to the columns, and its name to the names, and return both.

    The column of a locality is 1 for the properties in the locality, and 0 for all others.
    """
    places = np.unique(locality)
    return np.hstack([columns, locality[:, None] == places]), [*names, *(f"V-1 = {place:g}" for place in places)]


def _make_building_data(
    file: Path, files: list[Path], columns: Array, names: Sequence[str], prices: Array, costs: Array
) -> BuildingData:
    """Check that construction costs are positive, and make the ``BuildingData`` from arrays."""
    if not (costs > 0).all():
        raise DataError(f"{file}: construction costs must be positive; property {int(np.argmin(costs)) + 1} has none")
    features, sold, built = (torch.from_numpy(np.ascontiguousarray(part)) for part in (columns, prices, costs))
    return BuildingData(features, tuple(names), sold, built, file, fingerprint_data_files(files))

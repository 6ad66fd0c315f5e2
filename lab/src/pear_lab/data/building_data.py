"""The UCI Residential Building Data Set: 372 properties with what they cost to build and sold for."""

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
from pear_lab.data.data_files import find_data_file, fingerprint_data_files, parse_data_cell, read_data_table

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
"""Columns of the sheet ``Data``, as they stand in its second row."""

_NOT_FEATURES = ("ZIP Codes", "Actual sales prices", "Actual construction costs")

_REMEDY = (
    "pear_lab.data.fetch_building(folder) downloads the workbook from UCI, or take it from "
    "https://archive.ics.uci.edu/dataset/437 by hand"
)


@dataclass(frozen=True)
class BuildingData:
    """The properties of the data set, one row each.

    Attributes:
        features: (N, p) as in the file, not standardised.
        names: the names of the p columns.
        prices: (N,) V-9, what a property sold for.
        costs: (N,) V-10, what it cost to build.
        source: the file.
        fingerprint: a hash of its contents.
    """

    features: Tensor
    names: tuple[str, ...]
    prices: Tensor
    costs: Tensor
    source: Path
    fingerprint: str


def load_building(path: str | Path | None = None, features: Features = "all") -> BuildingData:
    """Read the workbook, or the processed tables where the path holds those alone.

    Features are the locality V-1 (one column for each), the project's V-2 to V-8 and the economic series V-11 to V-29
    at five lags. Dates are left out: when a property is completed is not known when it is chosen. The processed tables
    (``scaled_property_features.csv``, ``scaled_economic_features.csv``) hold prices from which their mean is taken, so
    that a property below the average counts as a loss: a different problem.

    Args:
        path: file or folder; ``$PEAR_DATA`` if omitted.
        features: "all", or "project" for V-1 to V-8 alone.

    Raises:
        DataError: no file, another sheet or shape, text or a gap; says where.
        MissingExtraError: the workbook needs openpyxl.
    """
    if features not in ("all", "project"):
        raise DataError(f"features must be 'all' or 'project'; got {features!r}")
    file = find_data_file(FOLDER, (WORKBOOK, PROPERTIES), path, _REMEDY)
    if file.suffix == ".csv":
        return _read_building_tables(file, features)
    table = _parse_building_cells(
        _read_building_workbook(file), lambda i, j: f"{file}, row {i + 3}, column {j + 1} ({HEADER[j]})"
    )
    series = [name for lag in range(1, _LAGS + 1) for name in (f"{one} lag {lag}" for one in _SERIES)]
    wide = 5 + len(_PROJECT) + (len(series) if features == "all" else 0)
    columns, names = _add_building_localities(table[:, 4], table[:, 5:wide], [*_PROJECT, *series][: wide - 5])
    prices, costs = table[:, -2], table[:, -1]
    return _make_building_data(file, [file], columns, names, prices, costs)


def fetch_building(folder: str | Path, url: str = URL, timeout: float = 60.0) -> Path:
    """Download the workbook from UCI, which states its licence, into ``folder/building``, unless it is there.

    Args:
        folder: what ``$PEAR_DATA`` names.
        url: the address to download it from.
        timeout: seconds to wait for an answer.

    Returns:
        The file.

    Raises:
        DataError: there is no network, or no such file; says how to get it by hand.
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


def _read_building_workbook(file: Path) -> list[tuple[Any, ...]]:
    """Read the rows of the sheet ``Data`` below its header, and check the header."""
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


def _parse_building_cells(rows: Sequence[Sequence[Any]], where: Callable[[int, int], str]) -> Array:
    """Convert cells to numbers (N, columns). ``where(row, column)`` names a cell in an error message."""
    return np.array([[parse_data_cell(cell, where(i, j)) for j, cell in enumerate(row)] for i, row in enumerate(rows)])


def _read_building_tables(file: Path, features: Features) -> BuildingData:
    """Read the two processed tables. One has a row for each property, the other for each property and lag."""
    header, properties = _read_building_csv(file)
    _check_building_columns(file, header, ("Sl", *_NOT_FEATURES))
    own = [name for name in header if name not in {"Sl", *_DATES, *_NOT_FEATURES}]
    columns, names, files = properties[:, [header.index(name) for name in own]], list(own), [file]
    if features == "all":
        second = find_data_file(FOLDER, (ECONOMICS,), file.parent, "it belongs beside the table of properties")
        economic_header, economic = _read_building_csv(second)
        _check_building_columns(second, economic_header, ("Lag", "Sl"))
        wide, series = _join_building_lags(second, economic_header, economic, properties[:, header.index("Sl")])
        columns, names, files = np.hstack([columns, wide]), names + series, [file, second]
    columns, names = _add_building_localities(properties[:, header.index("ZIP Codes")], columns, names)
    prices, costs = (properties[:, header.index(f"Actual {what}")] for what in ("sales prices", "construction costs"))
    return _make_building_data(file, files, columns, names, prices, costs)


def _join_building_lags(file: Path, header: list[str], table: Array, wanted: Array) -> tuple[Array, list[str]]:
    """Turn one row for each property and lag into one row for each property, of shape (N, lags × series)."""
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


def _read_building_csv(file: Path) -> tuple[list[str], Array]:
    """Read a processed table: the names of its columns, and its numbers (N, columns)."""
    header, lines = read_data_table(file)
    if not lines:
        raise DataError(f"{file} holds no rows; {_REMEDY}")
    return header, _parse_building_cells(
        list(lines.values()), lambda i, j: f"{file}, line {list(lines)[i]} ({header[j]})"
    )


def _check_building_columns(file: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raise ``DataError`` if a column is missing."""
    missing = [name for name in names if name not in header]
    if missing:
        raise DataError(f"{file} has no column {missing[0]!r}; its columns: {', '.join(header)}")


def _add_building_localities(locality: Array, columns: Array, names: list[str]) -> tuple[Array, list[str]]:
    """Append one indicator column for each locality: 1 for the properties there, 0 for the others."""
    places = np.unique(locality)
    return np.hstack([columns, locality[:, None] == places]), [*names, *(f"V-1 = {place:g}" for place in places)]


def _make_building_data(
    file: Path, files: list[Path], columns: Array, names: Sequence[str], prices: Array, costs: Array
) -> BuildingData:
    """Check the construction costs, and make the ``BuildingData`` of arrays."""
    if not (costs > 0).all():
        raise DataError(f"{file}: construction costs must be positive; property {int(np.argmin(costs)) + 1} has none")
    features, sold, built = (torch.from_numpy(np.ascontiguousarray(part)) for part in (columns, prices, costs))
    return BuildingData(features, tuple(names), sold, built, file, fingerprint_data_files(files))

"""The UCI workbook and the processed tables of buildings: how they are read, and errors."""

from __future__ import annotations

import builtins
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab_files import BUILDINGS, building_rows, write_building_workbook

from pear.errors import DataError, MissingExtraError
from pear_lab.data import BuildingData, fetch_building, load_building
from pear_lab.data.building_data import ECONOMICS, HEADER, PROPERTIES, WORKBOOK


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> BuildingData:
    return load_building(write_building_workbook(tmp_path_factory.mktemp("data") / WORKBOOK, building_rows()))


def test_the_workbook_is_read_column_by_column(data: BuildingData) -> None:
    table = np.array(building_rows())
    assert data.features.shape == (BUILDINGS, 7 + 19 * 5 + 3)
    assert data.names[:2] == ("V-2", "V-3")
    assert data.names[7] == "V-11 lag 1"
    assert data.names[-1] == "V-1 = 3"
    np.testing.assert_array_equal(data.features[:, :102], table[:, 5:107])
    np.testing.assert_array_equal(data.features[:, -3:].argmax(1) + 1, table[:, 4])
    np.testing.assert_allclose(data.prices, table[:, -2], rtol=1e-12)  # a workbook keeps 15 digits
    np.testing.assert_array_equal(data.costs, table[:, -1])


def test_neither_dates_nor_price_nor_cost_are_features(tmp_path: Path, data: BuildingData) -> None:
    table = building_rows()
    for row in table:
        row[:4] = [99.0] * 4
        row[-2:] = [row[-2] + 1, row[-1] + 5]
    other = load_building(write_building_workbook(tmp_path / WORKBOOK, table))
    assert torch.equal(other.features, data.features)


def test_the_project_alone_and_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_building_workbook(tmp_path / "building" / WORKBOOK, building_rows())
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    assert load_building(features="project").features.shape == (BUILDINGS, 7 + 3)


def write_tables(folder: Path, count: int = 4) -> None:
    dates = ["START YEAR", "START QUARTER", "COMPLETION YEAR", "COMPLETION QUARTER"]
    header = ["Sl", *dates, "ZIP Codes", "Floor area", "Actual sales prices", "Actual construction costs"]
    first = [header, *[[i, 81, 1, 85, 1, i % 2, 0.5 * i, 0.1 * i, 10 + i] for i in range(1, count + 1)]]
    second = [["Lag", "Sl", "CPI"], *[[lag, i, 10 * lag + i] for lag in (2, 1) for i in range(1, count + 1)]]
    for name, table in ((PROPERTIES, first), (ECONOMICS, second)):
        with (folder / name).open("w", newline="") as stream:
            csv.writer(stream).writerows(table)


def test_the_processed_tables_are_joined_by_property_and_lag(tmp_path: Path) -> None:
    write_tables(tmp_path)
    found = load_building(tmp_path)
    assert found.names == ("Floor area", "CPI lag 1", "CPI lag 2", "V-1 = 0", "V-1 = 1")
    assert found.features[1].tolist() == [1.0, 12.0, 22.0, 1.0, 0.0]
    assert found.costs.tolist() == [11.0, 12.0, 13.0, 14.0]


def without_a_lag(folder: Path) -> Path:
    write_tables(folder)
    lines = (folder / ECONOMICS).read_text().splitlines()
    (folder / ECONOMICS).write_text("\n".join(line for line in lines if not line.startswith("2,3,")))
    return folder


def changed(at: tuple[int, int], value: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        table = building_rows(6)
        table[at[0]][at[1]] = value
        return write_building_workbook(folder / WORKBOOK, table)

    return make


def text_file(folder: Path) -> Path:
    (folder / WORKBOOK).write_text("no workbook")
    return folder


def empty_table(folder: Path) -> Path:
    (folder / PROPERTIES).write_text("")
    return folder


def written(table: list[list[Any]], **other: Any) -> Callable[[Path], Path]:
    return lambda folder: write_building_workbook(folder / WORKBOOK, table, **other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (changed((1, 6), None), r"row 4, column 7 \(V-3\) is empty; nothing is filled in"),
        (written([building_rows(1)[0][:-1]]), r"row 3, column 109 \(V-10\) is empty"),
        (changed((0, 5), "large"), r"row 3, column 6 \(V-2\) must be a number; got 'large'"),
        (changed((2, -1), 0.0), "construction costs must be positive; property 3"),
        (written(building_rows(3), sheet="A"), "no sheet 'Data'; its sheets: A"),
        (written(building_rows(3), header=HEADER[:-1]), "names 108, and column 109"),
        (written(building_rows(3), header=("A", *HEADER[1:])), "column 1 is 'A'"),
        (written([]), "has 2 rows; expected two of header"),
        (text_file, "cannot be read as a workbook"),
        (empty_table, "holds no rows"),
        (without_a_lag, "property 3 has lags 1; expected 1, 2"),
        (lambda folder: folder, "found none of .*building.*fetch_building"),
    ],
)
def test_a_file_that_is_not_right_is_refused(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_building(make(tmp_path))


def test_no_place_to_look_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEAR_DATA", raising=False)
    with pytest.raises(DataError, match=r"set \$PEAR_DATA, or name a file"):
        load_building()


def test_the_extra_is_named_where_openpyxl_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_building_workbook(tmp_path / WORKBOOK, building_rows(3))
    found = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "openpyxl":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pear-lab\[data\]"):
        load_building(file)


def test_the_workbook_is_fetched_once(tmp_path: Path) -> None:
    source = write_building_workbook(tmp_path / "there.xlsx", building_rows(3))
    got = fetch_building(tmp_path / "here", source.as_uri())
    assert got == tmp_path / "here" / "building" / WORKBOOK
    assert len(load_building(tmp_path / "here").prices) == 3
    assert fetch_building(tmp_path / "here", "file:///nowhere") == got


def test_fetching_says_what_went_wrong_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>")
    for url, message in (((tmp_path / "page.html").as_uri(), "no workbook"), ("file:///nowhere", "cannot download")):
        with pytest.raises(DataError, match=f"{message}.*by hand"):
            fetch_building(tmp_path, url)
    assert not (tmp_path / "building").exists()

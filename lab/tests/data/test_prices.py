"""Tables of prices: how they are read, selected and downloaded, and errors."""

from __future__ import annotations

import datetime
import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from lab_files import working_days, write_prices

from pear.errors import DataError, MissingExtraError
from pear_lab.data import Prices, fetch_prices, load_prices, read_prices

needs_skfolio = pytest.mark.skipif(
    importlib.util.find_spec("skfolio") is None, reason="skfolio is not installed (pip install 'pear-lab[portfolio]')"
)
GOOD = ["2024-01-02,1.0,2.0", "2024-01-03,1.1,2.1", "2024-01-04,1.2,2.4"]


def test_prices_are_read_from_plain_and_packed_files(tmp_path: Path) -> None:
    plain = read_prices(write_prices(tmp_path / "p.csv", GOOD))
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress((tmp_path / "p.csv").read_bytes()))
    packed = read_prices(tmp_path / "p.csv.gz")
    assert plain.names == packed.names == ("A", "B")
    assert np.array_equal(plain.values, packed.values)
    assert plain.fingerprint == packed.fingerprint
    assert torch.allclose(plain.returns()[1], torch.tensor([1.2 / 1.1 - 1, 2.4 / 2.1 - 1], dtype=torch.float64))
    assert str(plain.last(2)) == "2 names, 2 days 2024-01-03 to 2024-01-04"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*GOOD, "2024-01-05,1.2,cheap"], "line 5 \\(B\\) must be a number; got 'cheap'"),
        ([*GOOD, "2024-01-05,1.2"], "line 5 has 2 fields; the first line names 3"),
        ([*GOOD, "5 January,1.2,1.0"], "line 5: the first column must be a date such as 2024-01-31; got '5 January'"),
        ([*GOOD, "2024-01-05,1.2,-1"], "must be positive and finite; B on 2024-01-05 is -1"),
        ([*GOOD, "2024-01-05,1.2,inf"], "line 5 \\(B\\) must be a finite number; got 'inf'"),
        ([*GOOD, "2024-01-04,1.2,1"], "dates must increase; 2024-01-04 comes after 2024-01-04"),
        ([*GOOD, "2024-02-01,1.2,1"], "no prices between 2024-01-04 and 2024-02-01, 28 days"),
        ([*GOOD, "2024-01-05,,NaN"], "2 prices are missing, in 2 of 2 names and on 1 of 4 days; the first is A on"),
        ([], "expected a header with a date column and names, and rows of prices"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_prices(write_prices(tmp_path / "p.csv", rows))


def test_gaps_are_cut_out_on_request_and_never_filled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write_prices(tmp_path / "p.csv", [*GOOD, "2024-01-05,1.3,", "2024-01-08,1.4,2.6"])
    names = read_prices(file, gaps="drop-names")
    assert (names.names, names.values.shape) == (("A",), (5, 1))
    assert names.dropped == "1 of 2 names dropped because of gaps: B"
    assert "1 of 2 names dropped" in caplog.text
    days = read_prices(file, gaps="drop-days")
    assert (days.names, len(days.dates), days.dropped) == (("A", "B"), 4, "1 of 5 days dropped because of gaps")
    assert days.values[3].tolist() == [1.4, 2.6]
    with pytest.raises(DataError, match="gaps must be one of error, drop-names, drop-days; got 'fill'"):
        read_prices(file, gaps="fill")  # type: ignore[arg-type]


def test_dropped_days_that_leave_weeks_open_are_an_error(tmp_path: Path) -> None:
    days = working_days("2024-01-01", 30)
    rows = [f"{day},1.0,{'' if 5 <= place < 20 else 2.0}" for place, day in enumerate(days)]
    with pytest.raises(DataError, match="no prices between 2024-01-05 and 2024-01-29, 24 days"):
        read_prices(write_prices(tmp_path / "p.csv", rows), gaps="drop-days")


def test_all_names_with_gaps_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no prices are left \\(2 of 2 names dropped"):
        read_prices(write_prices(tmp_path / "p.csv", [*GOOD, "2024-01-05,,"]), gaps="drop-names")


def test_missing_files_folders_and_extras_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"no file of prices at .*nowhere\.csv"):
        load_prices(tmp_path / "nowhere.csv")
    monkeypatch.delenv("PEAR_DATA", raising=False)
    with pytest.raises(DataError, match="PEAR_DATA is not set"):
        load_prices("sp100")
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"expected one .csv or .csv.gz file in .*sp100 and found none"):
        load_prices("sp100")
    (tmp_path / "sp100").mkdir()
    write_prices(tmp_path / "sp100" / "prices.csv", GOOD)
    assert load_prices("sp100").names == ("A", "B")
    monkeypatch.setitem(sys.modules, "skfolio.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pear-lab\[portfolio\]'"):
        load_prices("skfolio")
    monkeypatch.setitem(sys.modules, "yfinance", None)
    with pytest.raises(MissingExtraError, match="pip install yfinance"):
        fetch_prices(["A"], "2024-01-01", "2024-02-01", tmp_path / "fetched.csv")


@needs_skfolio
def test_the_embedded_default_is_whole() -> None:
    prices = load_prices()
    assert str(prices) == "20 names, 8,313 days 1990-01-02 to 2022-12-28"


@needs_skfolio  # pandas comes with it
def test_fetched_prices_are_written_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    asked: dict[str, Any] = {}
    index = pd.DatetimeIndex(["2024-01-02", "2024-01-03"], name="Date")
    closes = pd.DataFrame({"B": [1.0, 2.0], "A": [3.0, 4.0]}, index=index)

    def download(names: list[str], **options: Any) -> Any:
        asked.update(options)
        return pd.concat({"Close": closes[[n for n in names if n in closes]]}, axis=1) if "X" not in names else None

    fake = ModuleType("yfinance")
    fake.download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "yfinance", fake)
    prices = fetch_prices(["A", "B"], "2024-01-02", "2024-01-03", tmp_path / "new" / "p.csv")
    assert (prices.names, prices.values.tolist()) == (("A", "B"), [[3.0, 1.0], [4.0, 2.0]])
    assert asked["end"] == "2024-01-04"
    with pytest.raises(DataError, match="sent no prices for X"):
        fetch_prices(["X"], "2024-01-02", "2024-01-03", tmp_path / "p.csv")


def test_prices_check_themselves() -> None:
    with pytest.raises(DataError, match="got values of shape"):
        Prices(np.ones((2, 2)), ("A",), (datetime.date(2024, 1, 2), datetime.date(2024, 1, 3)))

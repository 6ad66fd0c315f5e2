"""CSV tables as spreadsheets and other programs write them: headings, row numbers, and forms of dates."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pear.cli.csv_table import (
    check_csv_samples_match,
    csv_line_numbers,
    read_csv_dates,
    read_csv_table,
    select_csv_columns,
)
from pear.cli.long_csv_table import LongColumns, order_long_csv_table
from pear.cli.model_columns import read_model_columns
from pear.errors import DataError

pandas = pytest.importorskip("pandas")
pytest.importorskip("highspy")

MODEL = "max\n value: tent + stove\nst\n weight: 5 tent + 4 stove <= 8\nbinary\n tent stove\nend\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path for a table, in a folder with the model ``bag.lp``."""
    (tmp_path / "bag.lp").write_text(MODEL)
    return tmp_path / "data.csv"


def features(file: Path, named: str | None = None) -> list[str]:
    """Return the columns that ``pear train bag.lp data.csv`` takes as features."""
    return read_model_columns(file.with_name("bag.lp"), file, named, None, None, None, None, None, None).features


@pytest.mark.parametrize("heading", ["tent", " tent", "tent "])
def test_the_second_column_of_a_cost_is_no_feature(file: Path, heading: str) -> None:
    """Pandas would rename the second column to tent.1, and the true cost would become a feature."""
    file.write_text(f"sun,tent,stove,{heading}\n1,2,3,2\n")
    with pytest.raises(DataError, match=r"data.csv has two columns with the heading 'tent'; rename one of them"):
        read_csv_table(file)


def test_a_heading_with_a_number_is_kept(file: Path) -> None:
    file.write_text("lag,lag.1,tent,stove\n1,2,3,4\n")
    assert features(file) == ["lag", "lag.1"]


def test_row_numbers_without_a_heading_are_no_feature(file: Path) -> None:
    pandas.DataFrame({"sun": [1.0, 2.0], "tent": [3.0, 4.0], "stove": [5.0, 6.0]}).to_csv(file)
    with pytest.raises(DataError, match="column 1 of the table has no heading, and may only count the rows"):
        features(file)
    assert features(file, "sun") == ["sun"]


def test_empty_columns_at_the_right_are_left_out(file: Path) -> None:
    file.write_text("sun,tent,stove,,\n1,2,3,,\n4,5,6,,\n")
    assert list(read_csv_table(file).columns) == ["sun", "tent", "stove"]
    assert features(file) == ["sun"]


def test_rows_that_are_longer_than_the_headings_do_not_move(file: Path) -> None:
    """Pandas would read the first cells as row names, and the value of ``sun`` as that of ``tent``."""
    file.write_text("sun,tent,stove\n1,2,3,\n4,5,6,\n")
    with pytest.raises(DataError, match="have more cells than its first line has headings"):
        read_csv_table(file)


def dates(file: Path, *entries: str) -> list[str]:
    file.write_text("\n".join(["day,sun", *(f"{entry},1" for entry in entries)]) + "\n")
    found = read_csv_dates(read_csv_table(file), "day", file)
    return [str(one) for one in found.strftime("%Y-%m-%d")]


def test_dates_with_the_day_first_are_read_if_only_that_is_possible(file: Path) -> None:
    assert dates(file, "01/02/2025", "13/02/2025") == ["2025-02-01", "2025-02-13"]
    assert dates(file, "01/02/2025", "02/13/2025") == ["2025-01-02", "2025-02-13"]
    assert dates(file, "01/01/2025", "02/02/2025") == ["2025-01-01", "2025-02-02"]


@pytest.mark.parametrize("entry", ["02/01/2025", "02.01.2025", "2-1-25"])
def test_dates_that_may_begin_with_the_month_or_the_day_are_refused(file: Path, entry: str) -> None:
    with pytest.raises(DataError, match=f"with the month first or with the day first, such as '{entry}'; write them"):
        dates(file, entry)


def test_dates_in_summer_and_winter_time_are_sorted_together(file: Path) -> None:
    assert dates(file, "2025-03-29T12:00:00+01:00", "2025-03-31T12:00:00+02:00") == ["2025-03-29", "2025-03-31"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [("2025-02-30", "holds no date in line 3: '2025-02-30'"), ("", "is empty in line 3")],
)
def test_an_entry_that_is_no_date_gets_its_line_and_the_form(file: Path, entry: str, said: str) -> None:
    with pytest.raises(DataError, match=f"column 'day' of .*data.csv {said}; expected the same form in every row"):
        dates(file, "2025-02-01", entry)


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_messages_name_the_lines_of_the_file_after_blank_lines_and_line_breaks(tmp_path: Path, name: str) -> None:
    """pandas skips blank lines, so that the place of a row in the table does not tell its line."""
    text = '\nday,sun\n2025-02-01,1\n\n  \n"2025-02-02\n",x\n2025-02-03,\n2025-02-30,1\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    table = read_csv_table(path)
    assert csv_line_numbers(path, table.index) == [3, 6, 8, 9]
    assert csv_line_numbers(tmp_path / "pipe", [0, 1]) == [2, 3]
    with pytest.raises(DataError, match="holds text, such as 'x', in line 6;"):
        select_csv_columns(table, ["sun"], "features", path)
    with pytest.raises(DataError, match="infinite in line 8;"):
        select_csv_columns(table.drop(index=1), ["sun"], "features", path)
    with pytest.raises(DataError, match="holds no date in line 9: '2025-02-30'"):
        read_csv_dates(table.iloc[[3, 0, 1]], "day", path)
    (other := tmp_path / "other.csv").write_text("day,sun\n2025-02-01,1\n2025-02-04,1\n2025-02-03,\n2025-02-30,1\n")
    with pytest.raises(DataError, match=r"in line 6 of .* and '2025-02-04' in line 3 of .*other\.csv"):
        check_csv_samples_match(table, read_csv_table(other), ["sun"], path, other)
    with pytest.raises(DataError, match=r"--groups: column 'sun' of .* is empty in line 8"):
        order_long_csv_table(table, LongColumns("sun", None), ["a"], path)


def test_a_text_with_the_day_first_is_told_from_other_texts(file: Path) -> None:
    file.write_text("day,sun\n13/02/2025,1\n14/02/2025,2\n")
    with pytest.raises(DataError, match="these are dates; --dates day puts the rows in their order"):
        select_csv_columns(read_csv_table(file), ["day"], "features", file)

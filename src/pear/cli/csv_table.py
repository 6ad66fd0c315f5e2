"""CSV tables of commands: their columns of numbers and dates, and lists of column names."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pear.errors import DataError
from pear.optional_packages import import_pandas
from pear.wording import list_positions, suggest_name

if TYPE_CHECKING:
    import pandas

_NO_HEADING = re.compile(r"Unnamed: \d+")  # the name that pandas gives to a column without a heading
_RENAMED = re.compile(r"(.*)\.\d+")  # the name that pandas gives to a second column with the same heading
_NUMERIC_DATE = re.compile(r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b")


def read_csv_table(path: Path) -> pandas.DataFrame:
    """Return the table of a CSV file, which may be compressed.

    Columns without a heading and without an entry, which spreadsheets write at the right, are left out. Other columns
    without a heading keep the name that pandas gives them (see ``has_no_csv_heading``).

    Raises:
        DataError: the file is missing, is empty, is not a table, or has two columns with the same heading.
        MissingExtraError: pandas is not installed.
    """
    reader = import_pandas("a table")
    try:
        table: pandas.DataFrame = reader.read_csv(path, skipinitialspace=True)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; expected a CSV file with a heading for every column") from error
    except (reader.errors.EmptyDataError, reader.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a table ({str(error).strip()}); expected a CSV file in UTF-8, with commas "
            "between columns and a heading for each"
        ) from error
    if table.empty:
        raise DataError(f"{path} has no rows below its headings; expected one for every sample")
    table.columns = [str(name).strip() for name in table.columns]
    if not table.index.equals(reader.RangeIndex(len(table))):  # pandas took the first cells for names of the rows
        raise DataError(
            f"the rows of {path} have more cells than its first line has headings; give every column a heading, and "
            "end no row with a comma"
        )
    _check_csv_headings(table, path)
    empty = [name for name in table.columns if has_no_csv_heading(name) and table[name].isna().all()]
    table = table.drop(columns=empty)
    if len(table.columns) == 1 and (other := [mark for mark in ";\t|" if mark in table.columns[0]]):
        raise DataError(
            f"{path} has a single column, {table.columns[0]!r}; expected commas between columns, and found "
            f"{'tabs' if other[0] == chr(9) else repr(other[0])}: save it with commas, and with 1.5 in place of 1,5"
        )
    return table


def _check_csv_headings(table: pandas.DataFrame, path: Path) -> None:
    """Raise ``DataError`` if two columns have the same heading.

    pandas renames the second of two columns "tent" to "tent.1". Without this check, a second column of true costs
    would count as a feature.
    """
    there = list(table.columns)
    renamed = [found[1] for name in there if (found := _RENAMED.fullmatch(name)) and found[1].strip() in there]
    headings = there
    if renamed and path.is_file():  # the file may really have the headings "tent" and "tent.1"
        first = import_pandas("a table").read_csv(path, header=None, nrows=1, dtype=str, skipinitialspace=True)
        headings = [str(name).strip() for name in first.iloc[0].dropna()]
    elif renamed:
        headings = [*there, renamed[0].strip()]
    if twice := [name for name, count in Counter(headings).items() if count > 1]:
        raise DataError(f"{path} has two columns with the heading {twice[0]!r}; rename one of them, or drop it")


def has_no_csv_heading(name: str) -> bool:
    """Return whether ``name`` is the name that pandas gives to a column without a heading."""
    return _NO_HEADING.fullmatch(name) is not None


def csv_line_numbers(path: Path, rows: Sequence[Any]) -> list[int]:
    """Return the numbers of the lines of a CSV file in which rows of its table begin, counted from 1.

    A blank line is no row of the table, and a row takes several lines if a cell contains line breaks.

    Args:
        path: the file. If it cannot be read again, such as a pipe, each row counts as one line below the headings.
        rows: numbers of rows in the result of ``read_csv_table``, counted from 0.
    """
    if not path.is_file():
        return [int(row) + 2 for row in rows]
    reader = import_pandas("a table")
    whole = reader.read_csv(  # one column with each line as it stands; pandas opens compressed files
        path,
        sep="\x1f",
        names=["line"],
        dtype=str,
        quoting=csv.QUOTE_NONE,
        skip_blank_lines=False,
        keep_default_na=False,
    )
    lines = whole["line"].tolist()
    cells, starts, before = csv.reader((f"{line}\n" for line in lines), skipinitialspace=True), list[int](), 0
    for _ in cells:
        if lines[before].strip():
            starts.append(before + 1)
        before = cells.line_num
    return [starts[int(row) + 1] for row in rows]


def select_csv_columns(table: pandas.DataFrame, names: Sequence[str], what: str, path: Path) -> pandas.DataFrame:
    """Return columns of a table as floats, after a check that they contain numbers.

    Args:
        table: the result of ``read_csv_table``.
        names: names of the columns, in the order of the result.
        what: a plural noun for the content of the columns, for error messages.
        path: the file of the table, for error messages.

    Raises:
        DataError: a column is missing, is named twice, or contains text, NaN or infinity. The message names lines of
            the file.
    """
    there = list(table.columns)
    for name in names:
        if name not in there:
            raise DataError(
                f"{path} has no column {name!r}{suggest_name(name, there)}; {what} are looked up by these names"
            )
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise DataError(f"column {twice[0]!r} of {path} is named twice among the {what}; name it once")
    chosen = table[list(names)]
    for name in names:
        _check_csv_numbers(chosen[name], name, what, path)
    return chosen.astype(float)


def _check_csv_numbers(column: Any, name: str, what: str, path: Path) -> None:
    """Raise ``DataError`` if a column contains text, NaN or infinity; ``what`` and ``path`` are for the message."""
    import pandas

    values = pandas.to_numeric(column, errors="coerce")
    texts = column[values.isna() & column.notna()]
    if len(texts):
        lines = list_positions("line", csv_line_numbers(path, texts.index))
        remedy = "turn categories into numbers, one column for each, and write 1.5, not 1,5"
        if what == "features" and _are_csv_dates(texts):
            remedy = f"these are dates; --dates {name} puts the rows in their order, and takes them for no feature"
        raise DataError(
            f"column {name!r} of {path} holds text, such as {str(texts.iloc[0])!r}, in {lines}; {what} must be "
            f"numbers: {remedy}"
        )
    missing = values.isna() | values.isin([float("inf"), -float("inf")])
    if missing.any():
        lines = list_positions("line", csv_line_numbers(path, missing[missing].index))
        raise DataError(
            f"column {name!r} of {path} is empty, NaN or infinite in {lines}; fill these cells or drop the rows"
        )


def _are_csv_dates(texts: Any) -> bool:
    """Return whether every text can be read as a date."""
    return any(found.notna().all() for found in _parse_csv_dates(texts))


def _parse_csv_dates(texts: Any) -> list[Any]:
    """Return texts as dates in every possible reading: one or two Series. Texts that are no dates become NaT.

    Dates such as 01/02/2025 may begin with the month or with the day.
    """
    import pandas

    numeric = texts.astype(str).str.match(_NUMERIC_DATE).any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns if it finds no common format
        try:
            ways = [
                pandas.to_datetime(texts, errors="coerce", dayfirst=day)
                for day in ((False, True) if numeric else (False,))
            ]
        except ValueError:  # offsets of summer and of winter
            ways = [pandas.to_datetime(texts, errors="coerce", utc=True)]
    return ways


def check_csv_samples_match(
    truth: pandas.DataFrame, forecast: pandas.DataFrame, paid: list[str], costs: Path, predictions: Path
) -> None:
    """Raise ``DataError`` if the rows of two tables belong to different samples.

    The tables must have equally many rows. A column that both tables have must be the same in both, unless it contains
    costs.

    Args:
        truth: the table of true costs.
        forecast: the table of forecasts.
        paid: the columns of costs.
        costs, predictions: the files of both tables, for error messages.
    """
    if len(truth) != len(forecast):
        raise DataError(
            f"{costs} has {len(truth)} rows and {predictions} {len(forecast)}; expected a row of each for every "
            "sample, in the same order"
        )
    for name in truth.columns:
        if name in paid or name not in forecast.columns:
            continue
        one, other = ([_csv_entry_as_text(value) for value in table[name]] for table in (truth, forecast))
        if one == other:
            continue
        at = next(i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        line = csv_line_numbers(costs, [at])[0]
        if sorted(one) == sorted(other):
            raise DataError(
                f"column {name!r} has the same entries in {costs} and {predictions} in different orders, first in line "
                f"{line}; rows are paired by their place: sort both files by {name!r}"
            )
        there = csv_line_numbers(predictions, [at])[0]
        raise DataError(
            f"column {name!r} is {one[at]!r} in line {line} of {costs} and {other[at]!r} in "
            f"{'that' if there == line else f'line {there}'} of {predictions}; rows are paired by their place: bring "
            "both files to the same samples, or drop the column from one of them"
        )


def _csv_entry_as_text(value: Any) -> str:
    """Return a table entry as text. 1 and 1.0 give the same text, and NaN gives an empty text."""
    if value != value:
        return ""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def split_at_commas(text: str | None) -> list[str]:
    """Return the words between the commas of a text.

    Example:
        >>> split_at_commas("a, b,"), split_at_commas(None)
        (['a', 'b'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def read_csv_dates(table: pandas.DataFrame, name: str, path: Path) -> pandas.DatetimeIndex:
    """Return a column of a table as dates.

    Raises:
        DataError: the column is missing, an entry is not a date, or the month and the day cannot be told apart.
    """
    import pandas

    if name not in table.columns:
        raise DataError(f"{path} has no column {name!r}{suggest_name(name, list(table.columns))}")
    ways = _parse_csv_dates(table[name])
    whole = [found for found in ways if found.notna().all()]
    if not whole:
        place = int(ways[0].isna().to_numpy().argmax())
        entry = table[name].iloc[place]
        line = f"in line {csv_line_numbers(path, [table.index[place]])[0]}"
        what = f"is empty {line}" if entry != entry else f"holds no date {line}: {str(entry)!r}"
        raise DataError(
            f"column {name!r} of {path} {what}; expected the same form in every row, such as "
            "2026-02-05 or 2026-02-05T18:00"
        )
    if len(whole) > 1 and (unclear := (whole[0] != whole[1]).to_numpy()).any():
        entry = table[name].iloc[int(unclear.argmax())]
        raise DataError(
            f"column {name!r} of {path} may hold dates with the month first or with the day first, such as "
            f"{str(entry)!r}; write them as 2026-02-05"
        )
    return pandas.DatetimeIndex(whole[0], name=name)

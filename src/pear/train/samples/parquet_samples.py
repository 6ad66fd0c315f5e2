"""``ParquetSamples``: samples in Parquet files, which are read piece by piece through ``pyarrow.dataset``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.errors import DataError, ProblemError
from pear.optional_packages import import_optional
from pear.setting_checks import check_count_setting
from pear.train.samples.arrow_columns import ArrowColumns, arrow_list_width, check_arrow_type, join_arrow_columns

BUFFER = 65_536
"""The default number of samples in memory at a time."""
_READ_AHEAD = 2**20  # the bytes of a column that are read at once: a row group may be larger than memory
_LOOKS = 64  # the largest number of row groups from which ``ParquetSamples.sample`` reads

Piece = list[NDArray[Any]]
"""The arrays of B rows: the costs (B, n), then each input of the model (B, …)."""
Names = str | Sequence[str]


class RowGroup(NamedTuple):
    """A row group: a part of a Parquet file that can be read without the rest of the file.

    Attributes:
        fragment: a fragment of ``pyarrow.dataset`` that holds only this row group.
        rows: the number of rows.
        place: the number of the row group and the path of the file, in words.
    """

    fragment: Any
    rows: int
    place: str


class ParquetSamples:
    """Samples in Parquet files, for ``pear.fit``: as many as the disk holds, in constant memory.

    The files of a folder are read in the order of their names, and rows in their order in the file. Columns are found
    by their names; other columns are not read. The constructor opens every file once, and checks that the columns have
    the same types in all files.

    Args:
        path: a file, a folder that contains files ``*.parquet`` at any depth, or a list of files and folders.
        features: the names of the columns with the features. A column holds numbers, or lists of numbers that all have
            the same length. Several columns are joined to an array (B, p) of p features. For a model with several
            inputs, a dict from the names of the inputs to names of columns; a single column of numbers is then an
            input (B,).
        costs: the names of the columns with the true costs, which are joined to an array (B, n).
        buffer: the number of samples in memory at a time. ``fit`` shuffles the row groups, and then the samples in each
            buffer. Before the first step, ``fit`` reads up to this number of samples, spread evenly over the files.

    Raises:
        MissingExtraError: pyarrow is not installed.
        DataError: a file cannot be read, or a column is missing or does not hold numbers.

    Example:
        >>> import pyarrow, pyarrow.parquet, tempfile
        >>> table = pyarrow.table({"wind": [1.0, 2.0], "sun": [3, 4], "cost": [[5.0, 6.0], [7.0, 8.0]]})
        >>> folder = tempfile.TemporaryDirectory()
        >>> pyarrow.parquet.write_table(table, f"{folder.name}/part-0.parquet")
        >>> samples = ParquetSamples(folder.name, features=["wind", "sun"], costs="cost")
        >>> samples
        ParquetSamples(2 samples in 1 row group of 1 file)
        >>> samples.read()[0].tolist()
        [[1.0, 3.0], [2.0, 4.0]]
        >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | Path | Iterable[str | Path],
        features: Names | Mapping[str, Names],
        costs: Names,
        buffer: int = BUFFER,
    ) -> None:
        self.buffer = check_count_setting("buffer", buffer)
        self.several = isinstance(features, Mapping)
        named = features if isinstance(features, Mapping) else {"features": features}
        if not named:
            raise ProblemError("features must name one input at least; got an empty dict")
        self.inputs = [ArrowColumns.of("costs", costs, False)]
        self.inputs += [ArrowColumns.of(str(name), columns, self.several) for name, columns in named.items()]
        self.files = _find_parquet_files([path] if isinstance(path, (str, Path)) else list(path))
        self.columns = list(dict.fromkeys(name for one in self.inputs for name in one.columns))
        self.groups: list[RowGroup] = []
        self.missing = ""
        """The place of a missing value in words, from the statistics in the files; "" if no value is missing."""
        self._open_files()
        self.widths = self._widths()

    def __len__(self) -> int:
        return sum(group.rows for group in self.groups)

    def __repr__(self) -> str:
        groups, files = len(self.groups), len(self.files)
        where = f"{groups:,} row group{'s' * (groups > 1)} of {files:,} file{'s' * (files > 1)}"
        return f"ParquetSamples({len(self):,} samples in {where})"

    def read(self) -> tuple[Any, Any]:
        """Read all samples into memory, and return a pair: the features, a tensor or a dict of tensors, and the costs.

        Raises:
            DataError: a value is missing, NaN or infinite. The message says where.
        """
        import torch

        (rows,) = regroup_parquet_rows(self.pieces(self.groups, self.buffer), len(self))
        costs, *features = map(torch.from_numpy, rows)
        return self.named(features), costs

    def named(self, features: list[Any]) -> Any:
        """Return the features as a model gets them: the array of a single input, or a dict from names to arrays."""
        names = [one.name for one in self.inputs[1:]]
        return dict(zip(names, features, strict=True)) if self.several else features[0]

    def pieces(self, groups: Iterable[RowGroup], most: int, drop: bool = False) -> Iterator[Piece]:
        """Yield the rows of these row groups in pieces.

        Args:
            groups: the row groups, in the order in which they are read.
            most: the largest number of rows in a piece.
            drop: whether rows with a value that is missing, NaN or infinite are left out.

        Raises:
            DataError: a row has such a value, and ``drop`` is False. The message names file, row group, row and column.
        """
        for group in groups:
            row = 0
            for batch in _read_parquet_batches(group, self.columns, most):
                piece = self._piece(batch, group, row, drop)
                row += batch.num_rows
                if len(piece[0]):
                    yield piece

    def sample(self, drop: bool = False) -> Piece:
        """Return all rows, or at most ``buffer`` of them, as arrays.

        If there are more than ``buffer`` rows, the first rows of up to ``_LOOKS`` row groups are returned. These row
        groups are spread evenly over the files. ``drop`` says whether rows with a value that is missing, NaN or
        infinite are left out.
        """
        if len(self) <= self.buffer:
            pieces = self.pieces(self.groups, self.buffer, drop)
        else:
            count = min(len(self.groups), self.buffer, _LOOKS)
            chosen = [self.groups[i * len(self.groups) // count] for i in range(count)]
            most = -(-self.buffer // count)
            pieces = (piece for group in chosen for piece in islice(self.pieces([group], most, drop), 1))
        found = next(regroup_parquet_rows(pieces, self.buffer), None)
        if found is None:
            raise DataError(f"every row of {self!r} that was looked at holds a missing value, NaN or infinity")
        return found

    def _open_files(self) -> None:
        """Check the columns of every file, and add the row groups that are not empty to ``groups``."""
        types: dict[str, tuple[Path, Any]] = {}
        for path in self.files:
            fragment = _open_parquet_file(path)
            for name in self.columns:
                found = check_arrow_type(fragment.physical_schema, name, path)
                first, expected = types.setdefault(name, (path, found))
                if found != expected:
                    raise DataError(
                        f"column {name!r} of {path} holds {found}, and that of {first} {expected}; write all files "
                        "with one schema"
                    )
            for number in range(fragment.metadata.num_row_groups):
                about = fragment.metadata.row_group(number)
                own = fragment.subset(row_group_ids=[number])
                group = RowGroup(own, about.num_rows, f"row group {number} of {path}")
                self.groups += [group] if group.rows else []
                self.missing = self.missing or _describe_missing_parquet_values(about, self.columns, group.place)
        if not self.groups:
            raise DataError(f"there must be one sample at least; {len(self.files)} files hold none: {self.files[0]}, …")

    def _widths(self) -> dict[str, int | None]:
        """Return the length of the lists in each column; None for a column of numbers."""
        first = self.groups[0]
        batch = next(_read_parquet_batches(first, self.columns, 1))
        return {name: arrow_list_width(batch.column(name), name, first.place) for name in self.columns}

    def _piece(self, batch: Any, group: RowGroup, row: int, drop: bool) -> Piece:
        """Return the rows of an Arrow record batch as arrays.

        Args:
            batch: the record batch.
            group: the row group that the batch belongs to.
            row: the number of the batch's first row in the row group.
            drop: whether rows with a value that is missing, NaN or infinite are left out.
        """
        place = f"{group.place}, counted from row {row}"
        arrays = [join_arrow_columns(one, batch, self.widths, None if drop else place) for one in self.inputs]
        if not drop:
            return arrays
        keep = np.logical_and.reduce([np.isfinite(array.reshape(len(array), -1)).all(1) for array in arrays])
        return arrays if keep.all() else [array[keep] for array in arrays]


def regroup_parquet_rows(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """Yield the rows of these pieces again, in pieces of ``size`` rows; the last piece may be smaller.

    Example:
        >>> pieces = [[np.arange(2)], [np.arange(2, 5)]]
        >>> [piece[0].tolist() for piece in regroup_parquet_rows(pieces, 4)]
        [[0, 1, 2, 3], [4]]
    """
    held: list[Piece] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece[0])
        while count >= size:
            whole = [np.concatenate(parts) for parts in zip(*held, strict=True)]
            yield [array[:size] for array in whole]
            held, count = [[array[size:] for array in whole]], count - size
    if count:
        yield [np.concatenate(parts) for parts in zip(*held, strict=True)]


def _find_parquet_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files at these paths, in the order of the paths; those of a folder are sorted by name.

    Files and folders whose names begin with a dot or an underscore are left out of the contents of a folder.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.rglob("*.parquet"), key=lambda file: file.relative_to(path).as_posix())
            found += [file for file in inside if not any(p[0] in "._" for p in file.relative_to(path).parts)]
        elif path.is_file():
            found.append(path)
        else:
            raise DataError(f"{path} is no file and no folder; give the Parquet files' path, or that of their folder")
    if not found:
        raise DataError(f"there are no files *.parquet in {', '.join(map(str, paths)) or 'an empty list'}")
    return found


def _open_parquet_file(path: Path) -> Any:
    """Return a file as a fragment of ``pyarrow.dataset``. Only the footer of the file is read."""
    pyarrow, dataset, fs = (
        import_optional(name, "arrow", "ParquetSamples") for name in ("pyarrow", "pyarrow.dataset", "pyarrow.fs")
    )
    try:
        options = dataset.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=_READ_AHEAD, pre_buffer=False
        )
        files = dataset.ParquetFileFormat(default_fragment_scan_options=options)
        fragment = files.make_fragment(str(path), fs.LocalFileSystem())
        fragment.ensure_complete_metadata()
        return fragment
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as a Parquet file: {error}; write it again, or leave it out") from error


def _read_parquet_batches(group: RowGroup, columns: list[str], most: int) -> Iterator[Any]:
    """Yield the rows of a row group in Arrow record batches of at most ``most`` rows, read by one thread."""
    import pyarrow

    try:
        yield from group.fragment.to_batches(
            columns=columns, batch_size=most, use_threads=False, batch_readahead=1, fragment_readahead=1
        )
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{group.place} cannot be read: {error}; write the file again, or leave it out") from error


def _describe_missing_parquet_values(about: Any, columns: list[str], place: str) -> str:
    """Return a sentence about a column whose statistics count missing values; "" if there is no such column.

    Args:
        about: the metadata of a row group.
        columns: the names of the columns that are read.
        place: the number of the row group and the path of the file, in words.
    """
    for number in range(about.num_columns):
        column = about.column(number)
        name = column.path_in_schema if column.path_in_schema in columns else column.path_in_schema.split(".")[0]
        known = column.statistics is not None and column.statistics.has_null_count
        if name in columns and known and column.statistics.null_count:
            return f"column {name!r} of {place} has {column.statistics.null_count} missing values"
    return ""

"""Samples in Parquet files: which files and columns, and how to read them piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.errors import DataError, MissingExtraError, ProblemError
from pear.train.samples.columns import Input, check_type, joined_columns, width_of

BUFFER = 65_536
"""Samples that are in memory at a time, where nothing else is said."""
_READ_AHEAD = 2**20  # bytes of a column that are fetched at once: a row group may be larger than memory

Piece = list[NDArray[Any]]
"""Some rows: their costs (B, n), then the inputs of the model (B, …)."""
Names = str | Sequence[str]


class RowGroup(NamedTuple):
    """A part of a file that can be read by itself.

    Attributes:
        file: it is in; number: there; rows: it has.
    """

    file: Path
    number: int
    rows: int


class ParquetSamples:
    """Samples in Parquet files, for ``pear.fit``: as many as the disk holds, in constant memory.

    Files are taken in the order of their names, rows in the order they have. Columns are matched by name; others are
    not read. All files are looked at when this is made: their columns must have the same types.

    Args:
        path: a file, a folder with files ``*.parquet`` in it or below, or several of these.
        features: columns of numbers, or of lists of numbers, all of one length. Several are put beside one another,
            (B, p). A dict of such, for a model with several inputs; there a single column of numbers is (B,).
        costs: columns of the true costs, (B, n), in the same way.
        buffer: samples that are in memory at a time. Their order is shuffled, after that of the row groups; and from so
            many, spread evenly over the files, ``fit`` settles what it has to know before the first step.

    Raises:
        MissingExtraError: pyarrow is not installed.
        DataError: a file cannot be read, or has not these columns, of numbers.

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
        if isinstance(buffer, bool) or not isinstance(buffer, int) or buffer < 1:
            raise ProblemError(f"buffer must be a number of samples, at least 1; got {buffer!r}")
        self.buffer = buffer
        self.several = isinstance(features, Mapping)
        named = features if isinstance(features, Mapping) else {"features": features}
        if not named:
            raise ProblemError("features must name one input at least; got an empty dict")
        self.inputs = [Input.of("costs", costs, False)]
        self.inputs += [Input.of(str(name), columns, self.several) for name, columns in named.items()]
        self.files = _files([path] if isinstance(path, (str, Path)) else list(path))
        self.columns = list(dict.fromkeys(name for one in self.inputs for name in one.columns))
        self.groups: list[RowGroup] = []
        self.missing = ""
        """Where a value is missing, as far as the files themselves say; "" where they do not."""
        self._look_at_files()
        self.widths = self._widths()

    def __len__(self) -> int:
        return sum(group.rows for group in self.groups)

    def __repr__(self) -> str:
        parts = (f"{len(many):,} {word}{'s' if len(many) > 1 else ''}" for many, word in self._counted())
        return f"ParquetSamples({len(self):,} samples in {' of '.join(parts)})"

    def read(self) -> tuple[Any, Any]:
        """All features and costs as tensors, in memory, as a pair that ``fit`` takes, too.

        Raises:
            DataError: a value is missing, NaN or infinite; says where.
        """
        import torch

        (rows,) = regrouped(self.pieces(self.groups, self.buffer), len(self))
        costs, *features = map(torch.from_numpy, rows)
        return self.named(features), costs

    def named(self, features: list[Any]) -> Any:
        """The inputs of a model, as it takes them: one, or a dict."""
        names = [one.name for one in self.inputs[1:]]
        return dict(zip(names, features, strict=True)) if self.several else features[0]

    def pieces(self, groups: Iterable[RowGroup], most: int, drop: bool = False) -> Iterator[Piece]:
        """The rows of these row groups, at most so many at a time.

        Args:
            groups: in the order in which they are read.
            most: rows.
            drop: leave rows out in which a value is missing, NaN or infinite.

        Raises:
            DataError: there are such rows, and they are not left out; names file, row group, row and column.
        """
        opened: tuple[Path, Any] | None = None
        for group in groups:
            if opened is None or opened[0] != group.file:  # neighbours are often in one file
                opened = group.file, _open(group.file)
            row = 0
            for batch in _batches(opened[1], group, self.columns, most):
                piece = self._piece(batch, group, row, drop)
                row += batch.num_rows
                if len(piece[0]):
                    yield piece
            if row != group.rows:
                raise DataError(
                    f"{_place(group)} had {group.rows} rows, and has {row} now; write to a folder of its own"
                )

    def sample(self, drop: bool = False) -> Piece:
        """All rows where they are ``buffer`` at most; else so many, from the beginnings of row groups spread evenly."""
        if len(self) <= self.buffer:
            pieces = self.pieces(self.groups, self.buffer, drop)
        else:
            count = min(len(self.groups), self.buffer, _LOOKS)
            chosen = [self.groups[i * len(self.groups) // count] for i in range(count)]
            most = -(-self.buffer // count)
            pieces = (piece for group in chosen for piece in _first(self.pieces([group], most, drop)))
        found = next(regrouped(pieces, self.buffer), None)
        if found is None:
            raise DataError(f"every row of {self!r} that was looked at holds a missing value, NaN or infinity")
        return found

    def _counted(self) -> list[tuple[Sequence[Any], str]]:
        return [(self.groups, "row group"), (self.files, "file")]

    def _look_at_files(self) -> None:
        """Check the columns of every file, and list the row groups that are not empty."""
        types: dict[str, tuple[Path, Any]] = {}
        for path in self.files:
            file = _open(path)
            schema, about = file.schema_arrow, file.metadata
            for name in self.columns:
                found = check_type(schema, name, path)
                first, expected = types.setdefault(name, (path, found))
                if found != expected:
                    raise DataError(
                        f"column {name!r} of {path} holds {found}, and that of {first} {expected}; write all files "
                        "with one schema"
                    )
            for number in range(about.num_row_groups):
                part = about.row_group(number)
                group = RowGroup(path, number, part.num_rows)
                self.groups += [group] if part.num_rows else []
                self.missing = self.missing or _missing(part, self.columns, group)
        if not self.groups:
            raise DataError(f"there must be one sample at least; {len(self.files)} files hold none: {self.files[0]}, …")

    def _widths(self) -> dict[str, int | None]:
        """The length of the lists in each column; None for plain numbers."""
        batch = next(_batches(_open(self.groups[0].file), self.groups[0], self.columns, 1))
        return {name: width_of(batch.column(name), name, _place(self.groups[0])) for name in self.columns}

    def _piece(self, batch: Any, group: RowGroup, row: int, drop: bool) -> Piece:
        """The arrays of a record batch that begins at this row of the group."""
        place = f"{_place(group)}, counted from row {row}"
        arrays = [joined_columns(one, batch, self.widths, None if drop else place) for one in self.inputs]
        if not drop:
            return arrays
        keep = np.logical_and.reduce([np.isfinite(array.reshape(len(array), -1)).all(1) for array in arrays])
        return arrays if keep.all() else [array[keep] for array in arrays]


_LOOKS = 64  # row groups that are looked at before the first step


def regrouped(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """The same rows, ``size`` at a time and fewer at the end, in arrays of their own.

    Example:
        >>> pieces = [[np.arange(2)], [np.arange(2, 5)]]
        >>> [piece[0].tolist() for piece in regrouped(pieces, 4)]
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


def _first(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The first of them, where there is one."""
    yield from (piece for piece in [next(pieces, None)] if piece is not None)


def _files(paths: Sequence[str | Path]) -> list[Path]:
    """The files, in the order of their names; hidden ones, with a dot or a bar in front, are no data."""
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


def _place(group: RowGroup) -> str:
    return f"row group {group.number} of {group.file}"


def _open(path: Path) -> Any:
    """The file, so far only its footer."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "ParquetSamples needs pyarrow, not installed here; run pip install 'pear-dfl[arrow]'"
        ) from error
    try:
        return parquet.ParquetFile(path, buffer_size=_READ_AHEAD)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as a Parquet file: {error}; write it again, or leave it out") from error


def _batches(file: Any, group: RowGroup, columns: list[str], most: int) -> Iterator[Any]:
    """The record batches of a row group, of at most so many rows; one thread reads them."""
    import pyarrow

    try:
        yield from file.iter_batches(most, row_groups=[group.number], columns=columns, use_threads=False)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{_place(group)} cannot be read: {error}; write the file again, or leave it out") from error


def _missing(part: Any, columns: list[str], group: RowGroup) -> str:
    """Where the statistics of a row group count a value that is missing, in words; "" where they count none."""
    for number in range(part.num_columns):
        about = part.column(number)
        name = about.path_in_schema if about.path_in_schema in columns else about.path_in_schema.split(".")[0]
        known = about.statistics is not None and about.statistics.has_null_count
        if name in columns and known and about.statistics.null_count:
            return f"column {name!r} of {_place(group)} has {about.statistics.null_count} missing values"
    return ""

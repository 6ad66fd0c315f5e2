"""``Benchmark``: the base class of the commands of ``pear bench``, and the callbacks that receive its results.

A module of a benchmark defines a subclass and names it ``BENCHMARK``. The command line makes a command of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pear_lab.benchmarks.bench_settings import BenchSettings
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.peers import Peer

Settings = TypeVar("Settings", bound=BenchSettings)
Row = TypeVar("Row")


@dataclass(frozen=True)
class Callbacks:
    """The functions that receive the results of a benchmark.

    Attributes:
        on_row: called with every row as soon as it is measured.
        on_note: called with a sentence on what was left out, on what failed, or on what the rows mean.
        say: called with a line on what is being measured now.
    """

    on_row: Callable[[Any], None]
    on_note: Callable[[str], None] = lambda text: None
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Labels:
    """The title and the axis labels of a benchmark's figure."""

    title: str
    x: str
    y: str


class Benchmark(ABC, Generic[Settings, Row]):
    """The base class of a benchmark, which measures rows and shows them in tables and a figure.

    Args:
        settings: what to measure.
        callbacks: receive rows, notes and progress.
        peers: the other libraries to measure, each with the path of a Python interpreter that can import it.

    Attributes:
        options: the class of the settings.
        labels: the labels of the figure.
        columns: for each heading of the table, the function that makes the cell below it from a row.
        table_title: the title of the table. If it is empty, the table has the title of the figure.
        peer_command: the name under which other libraries take part in this benchmark; None if none takes part.
        rows: the rows that were added so far.
    """

    options: ClassVar[type[BenchSettings]]
    labels: ClassVar[Labels]
    columns: ClassVar[Mapping[str, Callable[[Any], str]]] = {}
    table_title: ClassVar[str] = ""
    peer_command: ClassVar[str | None] = None

    def __init__(self, settings: Settings, callbacks: Callbacks, peers: Sequence[tuple[Peer, Path]] = ()) -> None:
        self.settings, self.callbacks, self.peers = settings, callbacks, peers
        self.rows: list[Row] = []

    def add_row(self, row: Row) -> None:
        """Add a row to ``rows``, and call ``callbacks.on_row`` with it."""
        self.rows.append(row)
        self.callbacks.on_row(row)

    @abstractmethod
    def run(self) -> None:
        """Measure everything that the settings ask for, and add a row for each measurement."""

    @classmethod
    def tables(cls, rows: list[Row]) -> list[TextTable]:
        """Make the tables of the rows. By default there is one table, with a line for each row."""
        return [TextTable.of(cls.table_title or cls.labels.title, rows, cls.columns)]

    @classmethod
    @abstractmethod
    def series(cls, rows: list[Row]) -> list[Series]:
        """Make the series that the figure shows, from the rows."""

    @classmethod
    def failed(cls, rows: list[Row]) -> str:
        """Return the reason why these rows make the command fail, or an empty text if they do not."""
        return ""

"""``BenchmarkRecord``: the results of one run of a benchmark, written to a JSON and a Markdown file after every row."""

from __future__ import annotations

import datetime
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pear_lab.benchmarks.text_table import TextTable
from pear_lab.experiments.execute_run import machine_in_words, package_versions

_PACKAGES = ("torch", "numpy", "scipy", "numba", "osqp", "highspy", "qpsolvers", "piqp", "clarabel", "daqp")


@dataclass
class BenchmarkRecord:
    """The rows and notes of one run of a benchmark, and the folder of its two files.

    Attributes:
        name: the name of the benchmark.
        folder: the existing folder for ``results.json`` and ``table.md``.
        settings: the settings of the run, by name.
        tables: a function that makes tables from the rows.
        device: "cpu" or "cuda".
        rows: the measurements so far, each a dataclass object, in the order of measurement.
        notes: sentences that are written below the tables.
        interrupted: whether the user stopped the run.
        date: when the run began, in UTC.
    """

    name: str
    folder: Path
    settings: dict[str, Any]
    tables: Callable[[list[Any]], list[TextTable]]
    device: str = "cpu"
    rows: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))

    def add(self, row: Any) -> None:
        """Add a row, and write both files again."""
        self.rows.append(row)
        self.save()

    def note(self, text: str) -> None:
        """Add a note. The files contain it once the next row is added."""
        self.notes.append(text)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain data for JSON. A number that is not finite becomes None."""
        return {
            "benchmark": self.name,
            "date": self.date,
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "machine": _describe_recorded_machine(self.device),
            "versions": package_versions(_PACKAGES),
            "settings": _record_as_json(self.settings),
            "interrupted": self.interrupted,
            "notes": self.notes,
            "rows": [_record_as_json(asdict(row)) for row in self.rows],
        }

    def save(self) -> list[Path]:
        """Write ``results.json`` and ``table.md``, and return their paths."""
        about = self.as_dict()
        numbers = _write_record_file(self.folder / "results.json", json.dumps(about, indent=2, allow_nan=False) + "\n")
        text = "\n".join(table.markdown() for table in self.tables(self.rows))
        used = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        lines = [*(f"- {note}" for note in self.notes), f"- {self.date}, {about['machine']}; {used}"]
        return [numbers, _write_record_file(self.folder / "table.md", text + "\n" + "\n".join(lines) + "\n")]


def _describe_recorded_machine(device: str) -> str:
    """Return a description of this machine in words, with its GPU if ``device`` is "cuda"."""
    if device == "cpu":
        return machine_in_words()
    import torch

    return f"{machine_in_words()}, {torch.cuda.get_device_name()}"


def _record_as_json(value: Any) -> Any:
    """Return a value as JSON can hold it. NaN and infinity become None, and objects of unknown types become text."""
    if isinstance(value, dict):
        return {str(key): _record_as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_record_as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _write_record_file(path: Path, text: str) -> Path:
    """Replace a file in one step, so that a reader never sees half of the text. Return the path."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return path

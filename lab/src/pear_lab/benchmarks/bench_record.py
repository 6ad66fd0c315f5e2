"""The files of a speed benchmark: numbers and tables, rewritten after every row."""

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
    """The rows of one benchmark run and the folder they are written to.

    Attributes:
        name: name of the benchmark.
        folder: existing folder for ``results.json`` and ``table.md``.
        settings: options of the run, the seed included.
        tables: function that makes tables of the rows measured so far.
        device: "cpu" or "cuda".
        rows: dataclass objects, in the order of measurement.
        notes: sentences on measurements that were left out.
        interrupted: whether the user stopped the run.
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
        """Add a row, and write all rows so far."""
        self.rows.append(row)
        self.save()

    def note(self, text: str) -> None:
        """Add a note to the output."""
        self.notes.append(text)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain data for JSON. Numbers that are not finite become None."""
        return {
            "benchmark": self.name,
            "date": self.date,
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "machine": describe_machine(self.device),
            "versions": package_versions(_PACKAGES),
            "settings": _json_value(self.settings),
            "interrupted": self.interrupted,
            "notes": self.notes,
            "rows": [_json_value(asdict(row)) for row in self.rows],
        }

    def save(self) -> list[Path]:
        """Write the numbers and the tables, and return the paths."""
        about = self.as_dict()
        numbers = _replace_file(self.folder / "results.json", json.dumps(about, indent=2, allow_nan=False) + "\n")
        text = "\n".join(table.markdown() for table in self.tables(self.rows))
        used = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        lines = [*(f"- {note}" for note in self.notes), f"- {self.date}, {about['machine']}; {used}"]
        return [numbers, _replace_file(self.folder / "table.md", text + "\n" + "\n".join(lines) + "\n")]


def describe_machine(device: str) -> str:
    """Describe the machine in words, with its GPU if ``device`` is one."""
    if device == "cpu":
        return machine_in_words()
    import torch

    return f"{machine_in_words()}, {torch.cuda.get_device_name()}"


def _json_value(value: Any) -> Any:
    """Convert a value for JSON: NaN and infinity become None, other objects become text."""
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _replace_file(path: Path, text: str) -> Path:
    """Replace a file in one step, so that a reader never sees half of it."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return path

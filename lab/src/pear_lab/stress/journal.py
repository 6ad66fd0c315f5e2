"""A file of results, one line of JSON each, so that a run can go on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pear.errors import ProblemError

Result = TypeVar("Result")


class Journal(Generic[Result]):
    """The results of a run so far.

    Args:
        folder: where the file is; None writes nothing.
        settings: the settings of the run, written to the first line; a run with other settings does not go on from
            here.
        encode: makes a dictionary of a result.
        decode: makes a result of such a dictionary.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, Any],
        encode: Callable[[Result], dict[str, Any]],
        decode: Callable[[dict[str, Any]], Result],
    ) -> None:
        self._path = None if folder is None else folder / "verdicts.jsonl"
        self._settings, self._encode, self._decode = json.dumps(settings), encode, decode

    def begin(self, resume: bool) -> list[Result]:
        """Start an empty file, or return the results that a run with the same settings has written to it."""
        if self._path is None:
            return []
        if not resume or not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(self._settings + "\n", encoding="utf-8")
            return []
        first, *lines = self._path.read_text(encoding="utf-8").splitlines()
        if first != self._settings:
            raise ProblemError(
                f"{self._path} is of a run with other settings ({first}); run it with these, or without --resume"
            )
        return [self._decode(json.loads(line)) for line in lines]

    def append(self, result: Result) -> None:
        """Write one result."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._encode(result)) + "\n")

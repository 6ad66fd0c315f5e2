"""A journal of results: a file with one line of JSON for each result, from which a stopped run continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pear.errors import ProblemError

Result = TypeVar("Result")


class Journal(Generic[Result]):
    """A file with the settings of a run in its first line, and a result in each further line.

    Args:
        folder: the folder of the file; None writes nothing.
        settings: the settings of the run. A run continues only from a journal with equal settings.
        encode: function from a result to a dictionary that JSON can hold.
        decode: function from such a dictionary to the result.
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
        """Return the results of the existing file if ``resume``. Otherwise, start a new file and return an empty list.

        An incomplete last line, which a killed run leaves behind, is removed from the file.

        Raises:
            ProblemError: the existing file is of a run with other settings.
        """
        if self._path is None:
            return []
        if not resume or not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(self._settings + "\n", encoding="utf-8")
            return []
        first, *lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        if first.rstrip() != self._settings:
            raise ProblemError(
                f"{self._path} is of a run with other settings ({first.rstrip()}); run it with these, or without "
                "--resume"
            )
        if lines and not lines[-1].endswith("\n"):
            del lines[-1]
            self._path.write_text("".join((first, *lines)), encoding="utf-8")
        return [self._decode(json.loads(line)) for line in lines]

    def append(self, result: Result) -> None:
        """Write one result to the end of the file."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._encode(result)) + "\n")

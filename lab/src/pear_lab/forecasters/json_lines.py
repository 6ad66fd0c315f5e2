"""Files of JSON lines for the results of long runs. Each result is appended as a line as soon as it is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pear.errors import DataError

Result = TypeVar("Result")


def read_json_lines(file: Path, decode: Callable[[dict[str, Any]], Result], what: str) -> list[Result]:
    """Return the results in a file. If the file is missing, there are none. An incomplete last line is ignored.

    Args:
        file: the file.
        decode: function from the content of a line to the result.
        what: the kind of result, for the error message.

    Raises:
        DataError: a complete line cannot be decoded.
    """
    found = []
    lines = file.read_text("utf-8").split("\n")[:-1] if file.is_file() else []  # complete lines end with a line break
    for number, line in enumerate(lines, start=1):
        try:
            found.append(decode(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{file}, line {number} is no {what}: {error}; delete the line") from error
    return found


def append_json_line(file: Path, content: dict[str, Any]) -> None:
    """Append the content of a result to a file, as one line."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content, allow_nan=False) + "\n")


def drop_partial_json_line(file: Path) -> None:
    """Remove the last line of a file if it is incomplete, so that lines can be appended."""
    if file.is_file():
        whole = file.read_bytes()
        if not whole.endswith(b"\n"):
            file.write_bytes(whole[: whole.rfind(b"\n") + 1])

"""Files of problems that were answered wrongly. A file rebuilds its case to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pear.errors import DataError
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import Case

_FORMAT = 1


def write(path: Path, case: Case, reason: str, **more: Any) -> Path:
    """Write a case with what was wrong about it; numbers keep every digit, and NaN and infinity are words."""
    text = {
        "format": _FORMAT,
        "reason": reason,
        **more,
        "family": case.family,
        "sense": case.sense,
        "smoothing": case.smoothing,
        "sparse": case.sparse,
        "integer": None if case.integer is None else case.integer.tolist(),
        "cost": _words(case.cost),
        "true": _words(case.true),
        "fields": {name: _words(value) for name, value in case.fields.items()},
        "overrides": {name: _words(value) for name, value in case.overrides.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(text, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Case:
    """The case of a file.

    Raises:
        DataError: it is not such a file.
    """
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        if text["format"] != _FORMAT:
            raise DataError(
                f"{path} has format {text['format']}; expected {_FORMAT}: write it again with pear stress fuzz"
            )
        return Case(
            family=text["family"],
            cost=_numbers(text["cost"]),
            true=_numbers(text["true"]),
            fields={name: _numbers(value) for name, value in text["fields"].items()},
            overrides={name: _numbers(value) for name, value in text["overrides"].items()},
            smoothing=float(text["smoothing"]),
            sense=text["sense"],
            integer=None if text["integer"] is None else np.asarray(text["integer"], bool),
            sparse=bool(text["sparse"]),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(
            f"{path} is no counterexample ({error!r}); expected a file that pear stress fuzz wrote"
        ) from error


def _words(array: Array) -> dict[str, Any]:
    """The shape and the entries of an array, row by row. JSON keeps every digit of a float."""
    entries = [float(v) if np.isfinite(v) else str(float(v)) for v in array.ravel()]
    return {"shape": list(array.shape), "entries": entries}


def _numbers(words: dict[str, Any]) -> Array:
    return np.array([float(v) for v in words["entries"]]).reshape(words["shape"])

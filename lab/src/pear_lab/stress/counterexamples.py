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
    plain = {name: getattr(case, name) for name in ("family", "sense", "smoothing", "sparse")}
    plain["integer"] = None if case.integer is None else case.integer.tolist()
    costs = {name: _array_to_json(getattr(case, name)) for name in ("cost", "true")}
    groups = {name: {k: _array_to_json(v) for k, v in getattr(case, name).items()} for name in ("fields", "overrides")}
    text = {"format": _FORMAT, "reason": reason, **more, **plain, **costs, **groups}
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
        cost, true = (_array_from_json(text[name]) for name in ("cost", "true"))
        fields, overrides = (
            {k: _array_from_json(v) for k, v in text[name].items()} for name in ("fields", "overrides")
        )
        integer = None if text["integer"] is None else np.asarray(text["integer"], bool)
        plain = (float(text["smoothing"]), text["sense"], integer, bool(text["sparse"]))
        return Case(text["family"], cost, true, fields, overrides, *plain)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(
            f"{path} is no counterexample ({error!r}); expected a file that pear stress fuzz wrote"
        ) from error


def _array_to_json(array: Array) -> dict[str, Any]:
    """The shape and the entries of an array, row by row. JSON keeps every digit of a float."""
    entries = [float(v) if np.isfinite(v) else str(float(v)) for v in array.ravel()]
    return {"shape": list(array.shape), "entries": entries}


def _array_from_json(text: dict[str, Any]) -> Array:
    return np.array([float(v) for v in text["entries"]]).reshape(text["shape"])

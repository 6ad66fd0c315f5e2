"""Counterexamples: files of cases with a wrong or inaccurate answer. A file holds every digit of its case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pear.errors import DataError
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import StressCase

_FORMAT = 1


def write_counterexample(path: Path, case: StressCase, reason: str, **more: Any) -> Path:
    """Write a case as JSON. Numbers keep every digit; NaN and infinity are written as words.

    Args:
        path: the file.
        case: the case.
        reason: the judge's reason for the verdict.
        more: further entries of the file.

    Returns:
        The path of the file.
    """
    plain = {name: getattr(case, name) for name in ("family", "sense", "smoothing", "sparse")}
    plain["integer"] = None if case.integer is None else case.integer.tolist()
    costs = {name: _encode_counterexample_array(getattr(case, name)) for name in ("cost", "true")}
    groups = {
        name: {k: _encode_counterexample_array(v) for k, v in getattr(case, name).items()}
        for name in ("fields", "overrides")
    }
    text = {"format": _FORMAT, "reason": reason, **more, **plain, **costs, **groups}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(text, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> StressCase:
    """Read the case of a counterexample.

    Raises:
        DataError: the file is not a counterexample, or is of another version of the format.
    """
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        if text["format"] != _FORMAT:
            raise DataError(
                f"{path} has format {text['format']}; expected {_FORMAT}: write it again with pear stress fuzz"
            )
        cost, true = (_decode_counterexample_array(text[name]) for name in ("cost", "true"))
        fields, overrides = (
            {k: _decode_counterexample_array(v) for k, v in text[name].items()} for name in ("fields", "overrides")
        )
        integer = None if text["integer"] is None else np.asarray(text["integer"], bool)
        plain = (float(text["smoothing"]), text["sense"], integer, bool(text["sparse"]))
        return StressCase(text["family"], cost, true, fields, overrides, *plain)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(
            f"{path} is no counterexample ({error!r}); expected a file that pear stress fuzz wrote"
        ) from error


def _encode_counterexample_array(array: Array) -> dict[str, Any]:
    """Return the shape and the entries of an array, row by row, as JSON can hold them."""
    entries = [float(v) if np.isfinite(v) else str(float(v)) for v in array.ravel()]
    return {"shape": list(array.shape), "entries": entries}


def _decode_counterexample_array(text: dict[str, Any]) -> Array:
    """Return the array with the shape and the entries of ``text``."""
    return np.array([float(v) for v in text["entries"]]).reshape(text["shape"])

"""The record of a run that has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from pear_lab.experiments.experiment_errors import DatabaseError


@dataclass(frozen=True)
class RunRecord:
    """One finished or failed run, as the database holds it and the report reads it.

    Ratios in ``metrics`` (regrets, gaps, returns, the active-set change rate) are shares, not per cent: 0.0038 is
    0.38 %. Code that prints per cent multiplies by 100.

    Attributes:
        key: hash of task, method, seed and settings; see ``pear_lab.experiments.run_spec.RunSpec``.
        experiment: name of the first experiment that needed the run.
        task: a name in ``pear_lab.experiments.catalogue.TASKS``.
        method: a name among the ``methods`` of the task.
        seed: seed of data, first weights and batches.
        settings: everything else that determines the outcome. In a measurement ``variant`` names what is measured.
        status: "done" or "failed".
        reason: why the run failed; empty if it did not.
        metrics: results on the test samples, by name.
        timings: seconds by what they were spent on, and the number of epochs.
        history: [epoch, seconds, loss, validation regret] of every check.
        weights: key of the weights in the database that the run trained or measured; empty if the run failed.
        versions: versions of Python and the packages.
        machine: description of the machine.
        created: time of the record in ISO format.
    """

    key: str
    experiment: str
    task: str
    method: str
    seed: int
    settings: dict[str, Any]
    status: str
    reason: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    history: list[list[float]] = field(default_factory=list)
    weights: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    created: str = ""

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> RunRecord:
        """Read a record from a row of a database, which may have been altered.

        Raises:
            DatabaseError: a field has a wrong type, or the status is unknown; the message names row and field.
        """
        found = {}
        for name, said in row.items():
            expected, value = _KINDS.get(name, str), said
            if name in JSON_FIELDS:
                try:
                    value = json.loads(said)
                except (TypeError, ValueError, RecursionError):
                    value = _NO_JSON
            if not _has_expected_type(name, value):
                words = f"a JSON {expected.__name__}" if name in JSON_FIELDS else f"a value of type {expected.__name__}"
                raise DatabaseError(
                    f"the row with the key {str(row.get('key'))[:80]!r} is damaged or was altered: its {name} is "
                    f"{str(said)[:80]!r}, and {words} was expected; restore the database, or delete the row and run "
                    "pear reproduce again"
                )
            found[name] = value
        return cls(**found)


JSON_FIELDS = ("settings", "metrics", "timings", "history", "versions")
"""Fields that a database keeps as JSON."""

_KINDS: dict[str, type] = {"seed": int, "history": list} | dict.fromkeys(
    ("settings", "metrics", "timings", "versions"), dict
)
_MAY_BE_MISSING = ("reason", "weights", "machine", "created")
_NO_JSON = object()


def _has_expected_type(name: str, value: Any) -> bool:
    """Return whether a value that was read has the type of this field of ``RunRecord``."""
    if value is None:
        return name in _MAY_BE_MISSING
    kind: Any = _KINDS.get(name, str)
    if not isinstance(value, kind):
        return False
    if name == "timings":
        return all(isinstance(seconds, (int, float)) for seconds in value.values())
    if name == "history":
        return all(
            isinstance(check, list) and all(isinstance(x, (int, float, NoneType)) for x in check) for check in value
        )
    return name != "status" or value in ("done", "failed")

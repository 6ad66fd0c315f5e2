"""The rows of the comparison: every method of the library with the five settings that it may try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pear.losses.methods import METHODS
from pear_lab.experiments.experiment_errors import ExperimentError
from pear_lab.experiments.run_spec import check_known

Setting = Mapping[str, Any]
"""Options of the loss, and ``learning_rate`` where that is tried; other trainings have that of the budget."""

LEARNING_RATES: tuple[Setting, ...] = tuple({"learning_rate": rate} for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1))
"""What methods without a strength try."""


def _values(name: str, *values: float) -> tuple[Setting, ...]:
    return tuple({name: value} for value in values)


_MSE_WEIGHTS = _values("mse_weight", 0.0, 0.01, 0.1, 1.0, 10.0)
_SIGMAS = _values("sigma", 0.03, 0.1, 0.3, 1.0, 3.0)
_INTERPOLATIONS = _values("interpolation", 1.0, 10.0, 100.0, 1000.0, 10000.0)

TRIES: Mapping[str, tuple[Setting, ...]] = {
    "spo+": _MSE_WEIGHTS,
    "spo+relaxed": _MSE_WEIGHTS,
    "pfyl": _SIGMAS,
    "dbb": _INTERPOLATIONS,
    "nid": _MSE_WEIGHTS,
    "pg": _values("width", 0.03, 0.1, 0.3, 1.0, 3.0),
    "dpo": _SIGMAS,
    "dpo-multiplicative": _values("sigma", 0.03, 0.1, 0.3, 0.6, 1.0),
    "imle": _INTERPOLATIONS,
    "aimle": _SIGMAS,
    "sfge": _SIGMAS,
    "lava": _values("threshold", -0.001, -0.01, -0.1, -1.0, -10.0),
    "ltr-pairwise": _values("margin", 0.01, 0.1, 1.0, 10.0, 100.0),
    "ltr-listwise": _values("temperature", 0.01, 0.1, 1.0, 10.0, 100.0),
    "rfwo": _values("strength", 0.1, 0.3, 1.0, 3.0, 10.0),
    "rfyl": _values("strength", 0.1, 0.3, 1.0, 3.0, 10.0),
    "ssvm": _values("margin", 0.01, 0.1, 1.0, 10.0, 100.0),
    "cave": _values("inner_ratio", 0.0, 0.05, 0.1, 0.2, 0.4),
    "pear": _values("smoothing", 0.01, 0.1, 1.0, 10.0, 100.0),
    "pear-guided": _values("guidance", 0.0, 1.0, 10.0, 30.0, 100.0),
}
"""Five settings for each method that has a strength; a method without a row here tries ``LEARNING_RATES``."""

OURS, DEFAULT, FIT = "pear-guided", "pear-default", "pear-fit"
"""PEAR with five tries, with its untouched defaults, and as ``pear.fit`` trains it."""

RIVALS_BY_FIT = ("spo+", "pfyl")
"""Methods that ``pear.fit`` trains, too: they show what it brings whatever the loss."""


@dataclass(frozen=True)
class FieldMethod:
    """One row of the comparison.

    Attributes:
        name: as on the command line and in the database.
        title: as in tables.
        loss: the name of the method in ``pear.losses.METHODS``.
        tries: the settings that are tried; the best of them by validation is trained to the end.
        way: "tries" for the common protocol; "fit" for ``pear.fit`` as a user calls it, with the same samples and in
            the time that the others have for all their tries.
    """

    name: str
    title: str
    loss: str
    tries: tuple[Setting, ...]
    way: Literal["tries", "fit"] = "tries"


def field_methods() -> dict[str, FieldMethod]:
    """Return the rows of the comparison by name: all methods of the library, PEAR's defaults, and ``pear.fit``."""
    rows = [FieldMethod(one.name, one.title, one.name, TRIES.get(one.name, LEARNING_RATES)) for one in METHODS]
    rows = [row if row.name != OURS else _renamed(row, "PEAR, five tries") for row in rows]
    rows = [row if row.name != "pear" else _renamed(row, "PEAR as published") for row in rows]
    rows.append(FieldMethod(DEFAULT, "PEAR, untouched defaults", OURS, ({},)))
    rows.append(FieldMethod(FIT, "PEAR by pear.fit", OURS, ({},), "fit"))
    by_fit = [row for row in rows if row.name in RIVALS_BY_FIT]
    rows += [FieldMethod(f"{row.name}-fit", f"{row.title} by pear.fit", row.loss, ({},), "fit") for row in by_fit]
    return {row.name: row for row in rows}


def chosen_methods(names: Sequence[str] | None) -> list[FieldMethod]:
    """Return the rows of these names, all of them for None.

    Raises:
        ExperimentError: there is no row of a name; the message lists all.
    """
    rows = field_methods()
    if names is None:
        return list(rows.values())
    for name in names:
        check_known("method", name, rows)
    if not names:
        raise ExperimentError(f"name a method; there is {', '.join(rows)}")
    return [rows[name] for name in dict.fromkeys(names)]


def setting_in_words(setting: Setting) -> str:
    """Describe one setting.

    Example:
        >>> setting_in_words({"sigma": 0.3}), setting_in_words({})
        ('sigma 0.3', 'defaults')
    """
    words = [f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
             for name, value in setting.items()]  # fmt: skip
    return ", ".join(words) or "defaults"


def _renamed(row: FieldMethod, title: str) -> FieldMethod:
    return FieldMethod(row.name, title, row.loss, row.tries, row.way)

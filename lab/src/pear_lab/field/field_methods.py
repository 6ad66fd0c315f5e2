"""The methods of the comparison on public tasks: every method of the library, with up to five settings to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pear.losses.methods import METHODS
from pear_lab.experiments.experiment_errors import ExperimentError
from pear_lab.experiments.run_spec import check_known

Setting = Mapping[str, Any]
"""Options of the loss. A setting may also have a ``learning_rate``, which replaces that of the budget."""

LEARNING_RATES: tuple[Setting, ...] = tuple({"learning_rate": rate} for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1))
"""The settings of methods that have no strength to try."""


def _method_tries(name: str, *values: float) -> tuple[Setting, ...]:
    """Return one setting for each value. A setting is a dictionary that gives the option ``name`` its value."""
    return tuple({name: value} for value in values)


_MSE_WEIGHTS = _method_tries("mse_weight", 0.0, 0.01, 0.1, 1.0, 10.0)
_SIGMAS = _method_tries("sigma", 0.03, 0.1, 0.3, 1.0, 3.0)
_INTERPOLATIONS = _method_tries("interpolation", 1.0, 10.0, 100.0, 1000.0, 10000.0)

TRIES: Mapping[str, tuple[Setting, ...]] = {
    "spo+": _MSE_WEIGHTS,
    "spo+relaxed": _MSE_WEIGHTS,
    "pfyl": _SIGMAS,
    "dbb": _INTERPOLATIONS,
    "nid": _MSE_WEIGHTS,
    "pg": _method_tries("width", 0.03, 0.1, 0.3, 1.0, 3.0),
    "dpo": _SIGMAS,
    "dpo-multiplicative": _method_tries("sigma", 0.03, 0.1, 0.3, 0.6, 1.0),
    "imle": _INTERPOLATIONS,
    "aimle": _SIGMAS,
    "sfge": _SIGMAS,
    "lava": _method_tries("threshold", -0.001, -0.01, -0.1, -1.0, -10.0),
    "ltr-pairwise": _method_tries("margin", 0.01, 0.1, 1.0, 10.0, 100.0),
    "ltr-listwise": _method_tries("temperature", 0.01, 0.1, 1.0, 10.0, 100.0),
    "rfwo": _method_tries("strength", 0.1, 0.3, 1.0, 3.0, 10.0),
    "rfyl": _method_tries("strength", 0.1, 0.3, 1.0, 3.0, 10.0),
    "ssvm": _method_tries("margin", 0.01, 0.1, 1.0, 10.0, 100.0),
    "cave": _method_tries("inner_ratio", 0.0, 0.05, 0.1, 0.2, 0.4),
    "pear": _method_tries("smoothing", 0.01, 0.1, 1.0, 10.0, 100.0),
    "pear-guided": _method_tries("guidance", 0.0, 1.0, 10.0, 30.0, 100.0),
}
"""Five settings of each method that has a strength. All other methods of the library try ``LEARNING_RATES``."""

OURS, DEFAULT, FIT = "pear-guided", "pear-default", "pear-fit"
"""PEAR with five tries, PEAR with its defaults, and PEAR trained by ``pear.fit``."""

RIVALS_BY_FIT = ("spo+", "pfyl")
"""Further methods that are also trained by ``pear.fit``, to show the effect of ``pear.fit`` with other losses."""


MOST_TRIES = max(map(len, [LEARNING_RATES, *TRIES.values()]))
"""The number of tries of a method that has the most."""


@dataclass(frozen=True)
class FieldMethod:
    """One method of the comparison, which is a row of its tables.

    Attributes:
        name: the name on the command line and in the database.
        title: the name in tables.
        loss: the name of the method in ``pear.losses.METHODS``.
        tries: the settings to try. The best setting by validation regret is trained to the end.
        way: "tries" for the common protocol; "fit" for a call of ``pear.fit`` with the same samples. Its time cap is
            the total that methods with the most tries have for the start, all tries and the final training.
    """

    name: str
    title: str
    loss: str
    tries: tuple[Setting, ...]
    way: Literal["tries", "fit"] = "tries"


def field_methods() -> dict[str, FieldMethod]:
    """Return all methods of the comparison by name.

    They are the methods of the library, PEAR with its defaults, and some methods that ``pear.fit`` trains: PEAR and
    those in ``RIVALS_BY_FIT``.
    """
    rows = [FieldMethod(one.name, one.title, one.name, TRIES.get(one.name, LEARNING_RATES)) for one in METHODS]
    titles = {OURS: "PEAR, five tries", "pear": "PEAR as published"}
    rows = [replace(row, title=titles.get(row.name, row.title)) for row in rows]
    rows.append(FieldMethod(DEFAULT, "PEAR, untouched defaults", OURS, ({},)))
    rows.append(FieldMethod(FIT, "PEAR by pear.fit", OURS, ({},), "fit"))
    by_fit = [row for row in rows if row.name in RIVALS_BY_FIT]
    rows += [FieldMethod(f"{row.name}-fit", f"{row.title} by pear.fit", row.loss, ({},), "fit") for row in by_fit]
    return {row.name: row for row in rows}


def chosen_field_methods(names: Sequence[str] | None) -> list[FieldMethod]:
    """Return the methods with these names, or all methods for None.

    Raises:
        ExperimentError: a name is unknown, or the sequence is empty; the message lists all names.
    """
    rows = field_methods()
    if names is None:
        return list(rows.values())
    for name in names:
        check_known("method", name, rows)
    if not names:
        raise ExperimentError(f"name a method; there is {', '.join(rows)}")
    return [rows[name] for name in dict.fromkeys(names)]


def describe_method_setting(setting: Setting) -> str:
    """Return a setting of a method in words.

    Example:
        >>> describe_method_setting({"sigma": 0.3}), describe_method_setting({})
        ('sigma 0.3', 'defaults')
    """
    words = [f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
             for name, value in setting.items()]  # fmt: skip
    return ", ".join(words) or "defaults"

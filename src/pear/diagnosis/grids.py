"""The tables of a diagnosis as people read them, on the page and in the terminal: few rows, rounded numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pear.diagnosis.figures import amount, dearest_constraints
from pear.diagnosis.reasons import percent
from pear.pages.section import Grid

if TYPE_CHECKING:
    from pear.diagnosis.diagnosis import Diagnosis


def grids(found: Diagnosis, rows: int) -> dict[str, Grid]:
    """The tables that there is something to say in, of so many rows at most, by the name of their section.

    Raises:
        MissingExtraError: pandas, which tabulates, is not installed.
    """
    made = {
        "values": _values(found, rows),
        "groups": _groups(found, rows),
        "samples": _worst(found, rows),
        "constraints": _constraints(found, rows),
    }
    return {name: grid for name, grid in made.items() if grid.rows}


def _values(found: Diagnosis, rows: int) -> Grid:
    if not found.attributed.any():
        return Grid("")
    frame = found.values()
    lines = [
        (one["value"], amount(one["cost"]), _part(one["share"]), amount(one["bias"]), amount(one["mean_squared_error"]))
        for one in _records(frame[:rows])
    ]
    header = ("Predicted value", "money lost", "share", "bias", "mean squared error")
    caption = "Bias: the mean of what was predicted less what came true."
    return Grid(_title("Predicted values", rows, len(frame)), header, tuple(lines), caption)


def _groups(found: Diagnosis, rows: int) -> Grid:
    if found.groups is None:
        return Grid("")
    frame = found.by_group()
    lines = [
        (
            *(str(one[found.grouped_by]), f"{one['samples']:,}", amount(one["regret"]), _part(one["share"])),
            *(amount(one["mean_regret"]), _part(one["normalized_regret"]), _part(one["tangent_share"])),
            one["dearest_value"],
        )
        for one in _records(frame[:rows])
    ]
    first = f"{found.grouped_by[:1].upper()}{found.grouped_by[1:]}"
    header = (
        *(first, "samples", "money lost", "share", "lost a sample", "of the best value", "tangent share"),
        "dearest predicted value",
    )
    return Grid(_title(f"By {found.grouped_by}", rows, len(frame)), header, tuple(lines))


def _worst(found: Diagnosis, rows: int) -> Grid:
    frame = found.worst(rows).reset_index()
    group = [] if found.groups is None else [found.grouped_by]
    lines = [
        (
            *(str(one["sample"]), *(str(one[name]) for name in group), amount(one["regret"]), _part(one["share"])),
            *(_part(one["margin"]), one["why"]),
        )
        for one in _records(frame)
    ]
    header = ("Sample", *group, "money lost", "share", "margin", "why")
    caption = (
        "Samples are counted from 0. Margin: the share of its error that the forecast could have made before the "
        "decision changed."
    )
    return Grid(_title("Samples", rows, len(found.regret)), header, tuple(lines), caption)


def _constraints(found: Diagnosis, rows: int) -> Grid:
    order = dearest_constraints(found)
    lines = [
        (
            *(one["constraint"], one["kind"], _part(one["binding"]), _part(one["best_binding"])),
            *(amount(one["shadow_price"]), amount(one["best_shadow_price"])),
        )
        for one in _records(found.constraints().loc[order[:rows]])
    ]
    header = ("Constraint", "kind", "binds", "binds under the truth", "a unit more is worth", "under the truth")
    caption = "Of those that bind in some sample, by what a unit more is worth on average. Equalities always bind."
    return Grid(_title("Constraints", rows, len(order)), header, tuple(lines), caption)


def _title(what: str, rows: int, there: int) -> str:
    return what if there <= rows else f"{what}: {rows} of {there:,}, the dearest first"


def _records(frame: Any) -> list[dict[str, Any]]:
    return frame.to_dict("records")  # rows by the names of columns, whatever these hold


def _part(share: float) -> str:
    return percent(share) if np.isfinite(share) else "–"

"""The rows of the gradient benchmark, its tables and its figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pear_lab.benchmarks.exact_gradients import EXACT
from pear_lab.benchmarks.number_formats import format_error, format_number, format_share
from pear_lab.benchmarks.our_steps import LAYER, ONE_CORE
from pear_lab.benchmarks.program_structures import STRUCTURES
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

PORTFOLIO = STRUCTURES[0].name
_ORDER = {structure.name: place for place, structure in enumerate(STRUCTURES)}
_LABELS = {structure.name: structure.label for structure in STRUCTURES}


@dataclass(frozen=True)
class GradientRow:
    """The time and the errors of one side at one point.

    Attributes:
        who: one of ``OurSteps.steps``, or a peer's title.
        ours: whether it is this package.
        n, batch: the point.
        seconds: the fastest measurement.
        median_seconds: the median measurement. Both times are for the whole batch.
        error_median, error_q90, error_largest: relative errors of the gradients against the reference.
        compared: number of samples whose gradient was compared.
        reuse_rate: share of samples for which no solver was called; None without warm starts.
        versions: versions of a peer's packages, by name.
        profile: the seconds of each phase, from a measurement of its own.
        structure: name of the structure of the problems.
        measured: "gradient", or "decision" where the errors are those of the decisions and there is no backward pass.
        loose: whether it is a peer at a setting that gives up accuracy for time.
    """

    who: str
    ours: bool
    n: int
    batch: int
    seconds: float
    median_seconds: float
    error_median: float
    error_q90: float
    error_largest: float
    compared: int
    reuse_rate: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)
    structure: str = PORTFOLIO
    measured: str = "gradient"
    loose: bool = False

    @property
    def exact(self) -> bool:
        """True where there is a gradient and even its largest error is small."""
        return self.measured == "gradient" and self.error_largest <= EXACT

    @property
    def point(self) -> tuple[str, int, int]:
        """The point of the row: structure, variables and batch."""
        return self.structure, self.n, self.batch


def structure_label(structure: str, n: int) -> str:
    """A structure and its size in words.

    Example:
        >>> structure_label("portfolio", 100), structure_label("path-5", 40)
        ('100 assets', '5×5 grid of 40 edges')
    """
    return _LABELS[structure].format(n=n)


def time_ratio(theirs: float | None, ours: float | None) -> float:
    """Return their time relative to ours; NaN if one of the two is not known.

    Example:
        >>> time_ratio(0.1, 0.02), time_ratio(None, 0.02)
        (5.0, nan)
    """
    return theirs / ours if theirs is not None and ours else math.nan


def lead_over_peers(rows: list[GradientRow], row: GradientRow) -> float:
    """Return the time of the fastest exact peer relative to this row of ours; NaN if there is nothing to compare.

    A peer is exact where its largest error at this point is small.
    """
    there = [one for one in rows if one.point == row.point and one.exact and one.compared]
    fastest = min((one.seconds for one in there if not one.ours), default=None)
    return time_ratio(fastest, row.seconds) if row.ours and row.exact else math.nan


def ratio_to_pear(rows: list[GradientRow], row: GradientRow) -> float:
    """Return the time of a row relative to ``pear`` at the same point."""
    base = next((r for r in rows if r.who == "pear" and r.point == row.point), None)
    return time_ratio(row.seconds, base.seconds if base else None)


def tables(rows: list[GradientRow]) -> list[TextTable]:
    """The comparison, the profiles where there are any, and a summary where there are several structures."""
    several = any(row.structure != PORTFOLIO for row in rows)
    what = "problems with n variables" if several else "portfolios of n assets"
    errors, ratios = ("median\nerror", "90 %\nerror", "largest\nerror"), ("time /\npear", "peer /\nours")
    headings = ("who", "n", "batch", "ms", *errors, "compared", "reuse", *ratios)
    title = f"Gradient of the regret of {what}, forward and backward\n"
    title += f"peer / ours: the fastest peer whose largest error is at most {EXACT:.0e}"
    cells = [(*([row.structure] if several else []), *_gradient_cells(rows, row)) for row in _sort_rows(rows)]
    left = 2 if several else 1
    tables = [TextTable(title, ("structure", *headings) if several else headings, cells, left)]
    if spent := [row for row in _sort_rows(rows) if row.profile]:
        in_ms = [(_name_cells(row, several), {k: 1e3 * v for k, v in row.profile.items()}) for row in spent]
        who = ("structure", "who", "n", "batch") if several else ("who", "assets", "batch")
        tables.append(TextTable.of_profiles("Where the time goes, ms a batch", who, in_ms, left))
    if any(row.measured == "decision" for row in rows):
        tables.append(forward_table(rows))
    return [*tables, summary_of_structures(rows)] if several else tables


def forward_table(rows: list[GradientRow]) -> TextTable:
    """Make a table of our layer and loss, forward and backward, beside solvers that have a forward pass alone.

    Errors are the largest ones: of our gradients, and of their decisions.
    """
    solvers = list(dict.fromkeys(row.who for row in rows if row.measured == "decision"))
    ours = (LAYER, "pear")
    headings = [heading for who in (*ours, *solvers) for heading in (who, "largest\nerror")]
    title = "Forward and backward of ours beside the forward pass alone of other solvers, µs a sample\n"
    title += f"ahead: the fastest forward whose largest error is at most {EXACT:.0e}, relative to {LAYER}"
    table = TextTable(title, ("structure", "n", "batch", *headings, "ahead"))
    for point in dict.fromkeys(row.point for row in _sort_rows(rows)):
        here = {row.who: row for row in rows if row.point == point and row.compared}
        cells = [cell for who in (*ours, *solvers) for cell in _forward_cells(here.get(who))]
        lead = lead_over_forwards(list(here.values()))
        table.rows.append((point[0], f"{point[1]:,}", f"{point[2]:,}", *cells, format_number(lead, 2)))
    return table


def lead_over_forwards(here: list[GradientRow]) -> float:
    """Return the time of the fastest accurate forward pass at one point relative to our layer; NaN without one."""
    layer = next((row.seconds for row in here if row.who == LAYER and row.exact), None)
    forwards = (row.seconds for row in here if row.measured == "decision" and row.error_largest <= EXACT)
    return time_ratio(min(forwards, default=None), layer)


def _forward_cells(row: GradientRow | None) -> tuple[str, str]:
    """Cells of one side: microseconds a sample, and the largest error."""
    if row is None:
        return "–", "–"
    return format_number(1e6 * row.seconds / row.batch), format_error(row.error_largest)


def summary_of_structures(rows: list[GradientRow]) -> TextTable:
    """Make a table of our layer at every point, compared with the fastest peer, a loose peer, and one CPU core.

    Kinds of rows that were not measured at any point have no column.
    """
    known = [row for row in rows if row.compared and row.measured == "gradient"]
    kinds: dict[str, Callable[[GradientRow], bool]] = {
        "fastest peer": lambda row: not row.ours and not row.loose,
        "loose peer": lambda row: row.loose,
        "one core": lambda row: row.who == ONE_CORE,
    }
    kinds = {name: fits for name, fits in kinds.items() if any(map(fits, known))}
    beside = (heading for name in kinds for heading in (f"{name},\nms", "median\nerror", "÷ ours"))
    title = f"{LAYER} (ours) beside the peers that differentiate, and beside one CPU core"
    table = TextTable(title, ("structure", "n", "batch", "ours,\nms", *beside))
    for point in dict.fromkeys(row.point for row in _sort_rows(rows)):
        here = [row for row in known if row.point == point]
        ours = next((row for row in here if row.who == LAYER), None)
        fastest = (min(filter(fits, here), key=lambda row: row.seconds, default=None) for fits in kinds.values())
        cells = [cell for row in fastest for cell in _peer_cells(row, ours)]
        table.rows.append((point[0], f"{point[1]:,}", f"{point[2]:,}", _milliseconds(ours), *cells))
    return table


def _peer_cells(row: GradientRow | None, ours: GradientRow | None) -> tuple[str, str, str]:
    """Cells of a row beside ours: milliseconds with the peer's name, median error, and time relative to ours."""
    if row is None:
        return "–", "–", "–"
    who = "" if row.ours else f" ({row.who})"
    return (
        _milliseconds(row) + who,
        format_error(row.error_median),
        format_number(time_ratio(row.seconds, ours.seconds if ours else None)),
    )


def _milliseconds(row: GradientRow | None) -> str:
    # a gradient that could not be compared with the reference is shown without its time
    return format_number(1e3 * row.seconds) if row is not None and row.compared else "–"


def _sort_rows(rows: list[GradientRow]) -> list[GradientRow]:
    return sorted(rows, key=lambda row: (_ORDER[row.structure], row.n, row.batch))


def _gradient_cells(rows: list[GradientRow], row: GradientRow) -> tuple[str, ...]:
    errors = [format_error(value) for value in (row.error_median, row.error_q90, row.error_largest)]
    ratios = [
        format_number(value) if row.compared else "–"
        for value in (ratio_to_pear(rows, row), lead_over_peers(rows, row))
    ]
    return (*_name_cells(row), _milliseconds(row), *errors, str(row.compared), format_share(row.reuse_rate), *ratios)


def _name_cells(row: GradientRow, with_structure: bool = False) -> tuple[str, ...]:
    return (*([row.structure] if with_structure else []), row.who, f"{row.n:,}", f"{row.batch:,}")


def series(rows: list[GradientRow]) -> list[Series]:
    """Seconds per batch over its size, a panel for every structure and size; inexact peers are marked."""
    lines = []
    for structure, n in dict.fromkeys((row.structure, row.n) for row in _sort_rows(rows)):
        here = [row for row in _sort_rows(rows) if (row.structure, row.n) == (structure, n) and row.compared]
        for who in dict.fromkeys(row.who for row in here):
            own = [row for row in here if row.who == who]
            worst = max(row.error_largest for row in own)
            remark = "" if all(row.exact for row in own) else f" (off by up to {format_error(worst)})"
            points = [row.batch for row in own], [row.seconds for row in own]
            lines.append(Series(who, *points, own[0].ours, structure_label(structure, n), remark=remark))
    return lines

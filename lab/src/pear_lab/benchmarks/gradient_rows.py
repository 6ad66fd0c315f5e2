"""The rows of the gradient benchmark, their tables and their series."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pear_lab.benchmarks.gradient_errors import EXACT
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
    """The time and the errors of PEAR or of a peer, which is another library, on one batch.

    Attributes:
        who: the name of a step of PEAR, such as "pear layer", or the title of a peer.
        ours: whether the row measures PEAR.
        n, batch: the numbers of variables and of samples.
        seconds: the time of the whole batch in the fastest measurement.
        median_seconds: the time of the whole batch in the median measurement.
        error_median, error_q90, error_largest: relative errors against the exact gradients or decisions.
        compared: the number of compared samples.
        reuse_rate: the share of the samples for which no solver was called; None without warm starts.
        versions: the versions of a peer's packages, by name.
        profile: the seconds of each phase, from a separate measurement.
        structure: the name of the structure of the programs.
        measured: "gradient", or "decision" if there is no backward pass and the errors are those of the decisions.
        loose: whether the row measures a peer with settings that trade accuracy for time.
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
        """Whether the row measures gradients and all of them count as exact, with errors of at most ``EXACT``."""
        return self.measured == "gradient" and self.error_largest <= EXACT

    @property
    def point(self) -> tuple[str, int, int]:
        """The name of the structure, the number of variables and the number of samples."""
        return self.structure, self.n, self.batch

    def lead_over_peers(self, rows: list[GradientRow]) -> float:
        """Return the time of the fastest exact peer on the same batch relative to this row.

        The result is NaN if this row is not exact or not one of PEAR, or if no peer is exact on this batch.

        Args:
            rows: all rows.
        """
        there = [one for one in rows if one.point == self.point and one.exact and one.compared]
        fastest = min((one.seconds for one in there if not one.ours), default=None)
        return time_ratio_of_gradient_rows(fastest, self.seconds) if self.ours and self.exact else math.nan

    def ratio_to_pear(self, rows: list[GradientRow]) -> float:
        """Return the time of this row relative to the row "pear" on the same batch; NaN without such a row."""
        base = next((r for r in rows if r.who == "pear" and r.point == self.point), None)
        return time_ratio_of_gradient_rows(self.seconds, base.seconds if base else None)


def label_of_gradient_rows(structure: str, n: int) -> str:
    """Return a structure and its number of variables in words.

    Example:
        >>> label_of_gradient_rows("portfolio", 100), label_of_gradient_rows("path-5", 40)
        ('100 assets', '5×5 grid of 40 edges')
    """
    return _LABELS[structure].format(n=n)


def time_ratio_of_gradient_rows(theirs: float | None, ours: float | None) -> float:
    """Return the time of another library relative to that of PEAR; NaN if one of the two is not known.

    Example:
        >>> time_ratio_of_gradient_rows(0.1, 0.02), time_ratio_of_gradient_rows(None, 0.02)
        (5.0, nan)
    """
    return theirs / ours if theirs is not None and ours else math.nan


def tables_of_gradient_rows(rows: list[GradientRow]) -> list[TextTable]:
    """Make a table with a line for each row, and up to three further tables.

    If rows have profiles, a table shows where the time goes. If rows measure decisions, which need a forward pass only,
    a table compares them with PEAR. If a row has another structure than portfolios, a summary comes last.
    """
    several = any(row.structure != PORTFOLIO for row in rows)
    what = "problems with n variables" if several else "portfolios of n assets"
    errors, ratios = ("median\nerror", "90 %\nerror", "largest\nerror"), ("time /\npear", "peer /\nours")
    headings = ("who", "n", "batch", "ms", *errors, "compared", "reuse", *ratios)
    title = f"Gradient of the regret of {what}, forward and backward\n"
    title += f"peer / ours: the fastest peer whose largest error is at most {EXACT:.0e}"
    cells = [
        (*([row.structure] if several else []), *_cells_of_gradient_row(rows, row)) for row in _sort_gradient_rows(rows)
    ]
    left = 2 if several else 1
    tables = [TextTable(title, ("structure", *headings) if several else headings, cells, left)]
    if spent := [row for row in _sort_gradient_rows(rows) if row.profile]:
        in_ms = [(_cells_of_row_name(row, several), {k: 1e3 * v for k, v in row.profile.items()}) for row in spent]
        who = ("structure", "who", "n", "batch") if several else ("who", "assets", "batch")
        tables.append(TextTable.of_profiles("Where the time goes, ms a batch", who, in_ms, left))
    if any(row.measured == "decision" for row in rows):
        tables.append(table_of_forward_rows(rows))
    return [*tables, summary_of_gradient_rows(rows)] if several else tables


def table_of_forward_rows(rows: list[GradientRow]) -> TextTable:
    """Make a table of PEAR's layer and loss, forward and backward, beside solvers that only have a forward pass.

    Errors are the largest ones, of gradients for PEAR and of decisions for the solvers.
    """
    solvers = list(dict.fromkeys(row.who for row in rows if row.measured == "decision"))
    ours = (LAYER, "pear")
    headings = [heading for who in (*ours, *solvers) for heading in (who, "largest\nerror")]
    title = "Forward and backward of ours beside the forward pass alone of other solvers, µs a sample\n"
    title += f"ahead: the fastest forward whose largest error is at most {EXACT:.0e}, relative to {LAYER}"
    table = TextTable(title, ("structure", "n", "batch", *headings, "ahead"))
    for point in dict.fromkeys(row.point for row in _sort_gradient_rows(rows)):
        here = {row.who: row for row in rows if row.point == point and row.compared}
        cells = [cell for who in (*ours, *solvers) for cell in _cells_of_forward_row(here.get(who))]
        lead = _lead_of_forward_rows(list(here.values()))
        table.rows.append((point[0], f"{point[1]:,}", f"{point[2]:,}", *cells, format_number(lead, 2)))
    return table


def _lead_of_forward_rows(here: list[GradientRow]) -> float:
    """Return the time of the fastest forward pass relative to that of PEAR's layer.

    Only rows with errors of at most ``EXACT`` count. The result is NaN if there is no such forward pass or layer.

    Args:
        here: the rows of one batch.
    """
    layer = next((row.seconds for row in here if row.who == LAYER and row.exact), None)
    forwards = (row.seconds for row in here if row.measured == "decision" and row.error_largest <= EXACT)
    return time_ratio_of_gradient_rows(min(forwards, default=None), layer)


def _cells_of_forward_row(row: GradientRow | None) -> tuple[str, str]:
    """Make the cells of a row: microseconds per sample, and the largest error. Without a row, both cells are dashes."""
    if row is None:
        return "–", "–"
    return format_number(1e6 * row.seconds / row.batch), format_error(row.error_largest)


def summary_of_gradient_rows(rows: list[GradientRow]) -> TextTable:
    """Make a table of PEAR's layer beside the fastest peers, and beside the layer on one CPU core.

    Peers with settings that trade accuracy for time ("loose") have columns of their own. Columns without a measurement
    are left out.
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
    for point in dict.fromkeys(row.point for row in _sort_gradient_rows(rows)):
        here = [row for row in known if row.point == point]
        ours = next((row for row in here if row.who == LAYER), None)
        fastest = (min(filter(fits, here), key=lambda row: row.seconds, default=None) for fits in kinds.values())
        cells = [cell for row in fastest for cell in _cells_beside_ours(row, ours)]
        table.rows.append((point[0], f"{point[1]:,}", f"{point[2]:,}", _format_row_time(ours), *cells))
    return table


def _cells_beside_ours(row: GradientRow | None, ours: GradientRow | None) -> tuple[str, str, str]:
    """Make three cells: milliseconds (with the name of a peer), median error, and time relative to PEAR's layer."""
    if row is None:
        return "–", "–", "–"
    who = "" if row.ours else f" ({row.who})"
    return (
        _format_row_time(row) + who,
        format_error(row.error_median),
        format_number(time_ratio_of_gradient_rows(row.seconds, ours.seconds if ours else None)),
    )


def _format_row_time(row: GradientRow | None) -> str:
    """Format the milliseconds of a row; a dash without a row, or if its gradients could not be compared."""
    return format_number(1e3 * row.seconds) if row is not None and row.compared else "–"


def _sort_gradient_rows(rows: list[GradientRow]) -> list[GradientRow]:
    """Sort rows by structure, variables and samples."""
    return sorted(rows, key=lambda row: (_ORDER[row.structure], row.n, row.batch))


def _cells_of_gradient_row(rows: list[GradientRow], row: GradientRow) -> tuple[str, ...]:
    """Make the cells of a row: name, time, errors, number of compared samples, reuse rate, and ratios to other rows."""
    errors = [format_error(value) for value in (row.error_median, row.error_q90, row.error_largest)]
    ratios = [
        format_number(value) if row.compared else "–" for value in (row.ratio_to_pear(rows), row.lead_over_peers(rows))
    ]
    return (
        *_cells_of_row_name(row),
        _format_row_time(row),
        *errors,
        str(row.compared),
        format_share(row.reuse_rate),
        *ratios,
    )


def _cells_of_row_name(row: GradientRow, with_structure: bool = False) -> tuple[str, ...]:
    """Make the cells that name a row: library, variables and samples, after the structure if ``with_structure``."""
    return (*([row.structure] if with_structure else []), row.who, f"{row.n:,}", f"{row.batch:,}")


def series_of_gradient_rows(rows: list[GradientRow]) -> list[Series]:
    """Make a series for each library: the seconds per batch over the number of samples.

    Each pair of a structure and a number of variables has a panel. The legend shows the largest error of every library
    that is not exact.
    """
    lines = []
    for structure, n in dict.fromkeys((row.structure, row.n) for row in _sort_gradient_rows(rows)):
        here = [row for row in _sort_gradient_rows(rows) if (row.structure, row.n) == (structure, n) and row.compared]
        for who in dict.fromkeys(row.who for row in here):
            own = [row for row in here if row.who == who]
            worst = max(row.error_largest for row in own)
            remark = "" if all(row.exact for row in own) else f" (off by up to {format_error(worst)})"
            points = [row.batch for row in own], [row.seconds for row in own]
            lines.append(Series(who, *points, own[0].ours, label_of_gradient_rows(structure, n), remark=remark))
    return lines

"""The rows of the gradient benchmark side by side. A time is never shown without the error of what it bought."""

from __future__ import annotations

import math

from pear.bench.gradient import Row
from pear.bench.plot import Series
from pear.bench.statistics import EXACT, ratio
from pear.bench.table import Table, error, number, share


def fastest_exact_peer(rows: list[Row], n: int, batch: int) -> Row | None:
    """Of the peers whose largest error at this point is small the fastest; None where there is none."""
    there = [row for row in rows if not row.ours and (row.n, row.batch) == (n, batch) and row.exact and row.judged]
    return min(there, key=lambda row: row.seconds, default=None)


def ahead(rows: list[Row], row: Row) -> float:
    """How many times longer the fastest exact peer takes than this row of ours; NaN where that means nothing."""
    peer = fastest_exact_peer(rows, row.n, row.batch)
    return ratio(peer.seconds if peer else None, row.seconds) if row.ours and row.exact else math.nan


def to_pear(rows: list[Row], row: Row) -> float:
    """How many times longer a row takes than ``pear`` at the same point."""
    base = next((r for r in rows if r.who == "pear" and (r.n, r.batch) == (row.n, row.batch)), None)
    return ratio(row.seconds, base.seconds if base else None)


def tables(rows: list[Row]) -> list[Table]:
    """The comparison and, where there are profiles, where our time goes."""
    errors, ratios = ("median\nerror", "90 %\nerror", "largest\nerror"), ("time /\npear", "peer /\nours")
    headings = ("who", "n", "batch", "ms", *errors, "judged", "reuse", *ratios)
    title = "Gradient of the regret of portfolios of n assets, forward and backward\n"
    title += f"peer / ours: the fastest peer whose largest error is at most {EXACT:.0e}"
    comparison = Table(title, headings)
    for row in _sorted(rows):
        comparison.rows.append(_cells(rows, row))
    profiles = [row for row in _sorted(rows) if row.profile]
    return [comparison, *([_profiles(profiles)] if profiles else [])]


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.n, row.batch))


def _cells(rows: list[Row], row: Row) -> tuple[str, ...]:
    # nothing could be judged: what a gradient costs that may be anything is nobody's business
    milliseconds = number(1e3 * row.seconds) if row.judged else "–"
    errors = [error(value) for value in (row.error_median, row.error_q90, row.error_largest)]
    ratios = [number(value) if row.judged else "–" for value in (to_pear(rows, row), ahead(rows, row))]
    point = (f"{row.n:,}", f"{row.batch:,}")
    return (row.who, *point, milliseconds, *errors, str(row.judged), share(row.reuse_rate), *ratios)


def _profiles(rows: list[Row]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row.profile))
    table = Table("Where the time goes, ms a batch", ("who", "assets", "batch", *names))
    for row in rows:
        cells = [number(1e3 * row.profile[name]) if name in row.profile else "–" for name in names]
        table.rows.append((row.who, f"{row.n:,}", f"{row.batch:,}", *cells))
    return table


def series(rows: list[Row]) -> list[Series]:
    """Seconds a batch over its size, a panel for every number of assets; peers that are not exact say so."""
    lines = []
    for n in sorted({row.n for row in rows}):
        here = [row for row in _sorted(rows) if row.n == n and row.judged]
        for who in dict.fromkeys(row.who for row in here):
            own = [row for row in here if row.who == who]
            worst = max(row.error_largest for row in own)
            remark = "" if all(row.exact for row in own) else f" (off by up to {error(worst)})"
            points = [row.batch for row in own], [row.seconds for row in own]
            lines.append(Series(who, *points, own[0].ours, f"{n:,} assets", remark=remark))
    return lines

"""Words and numbers that the page and the Markdown share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pear.report.compare import Verdict
from pear.report.database import Run, Runs
from pear.report.paired import Difference
from pear.report.tables import METHODS, TASKS, Table

CITATION = (
    "Junhyeong Lee, Sangjin Jin, Yongjae Lee: Decision-Focused Learning via Tangent-Space Projection of Prediction "
    "Error, ICML 2026."
)


def number(mean: float, std: float | None, decimals: int) -> str:
    """Mean and deviation with the digits of the paper.

    Example:
        >>> number(4.2461, 1.1, 3), number(0.3, None, 2)
        ('4.246 ± 1.100', '0.30')
    """
    text = f"{mean:.{decimals}f}"
    return text if std is None else f"{text} ± {std:.{decimals}f}"


def difference_words(difference: Difference) -> tuple[str, str, str]:
    """Difference, interval and what they rest on.

    Example:
        >>> from pear.report.bootstrap import Interval
        >>> difference_words(Difference("MSE", "budget 0.4", Interval(0.5, -0.1, 1.0), seeds=5, instances=185))
        ('+0.50', '−0.10 to +1.00', '5 seeds, 185 instances')
    """
    estimate, low, high = (
        f"{value:+.2f}".replace("-", "−")
        for value in (difference.points.estimate, difference.points.low, difference.points.high)
    )
    seeds = "1 seed" if difference.seeds == 1 else f"{difference.seeds} seeds"
    return estimate, f"{low} to {high}", f"{seeds}, {difference.instances:,} instances"


def deviation_words(ddof: int, as_published: bool = True) -> str:
    """Which standard deviation stands behind ±, and whether the paper's numbers are known to have the same."""
    kind = "of the sample (ddof 1)" if ddof else "of the population (ddof 0)"
    return f"± is the standard deviation {kind}" + (", as the paper's numbers of this table." if as_published else ".")


def counts(tables: Sequence[Table]) -> Counter[Verdict]:
    """How many cells came out how.

    Cells that the paper does not have are not counted; neither are times, which are of different machines.
    """
    cells = (cell for table in tables for cell in table.cells)
    return Counter(
        cell.verdict for cell in cells if cell.published.mean is not None and cell.published.metric != "train_seconds"
    )


def summary(runs: Runs, tables: Sequence[Table]) -> str:
    """The state of the database in two sentences."""
    found = counts(tables)
    total = sum(found.values())
    words = ", ".join(f"{found[v]} {v.value}" for v in Verdict if found[v] or v in list(Verdict)[:4])
    return (
        f"{len(runs.done):,} finished and {len(runs.failed):,} failed runs in {runs.path.name}. "
        f"Of the {total} published cells, times not counted: {words}."
    )


def failures(runs: Runs) -> list[tuple[str, str, str]]:
    """Failed runs of the same settings and reason together: what was run, the seeds, why they failed."""
    found: dict[tuple[str, str], list[int]] = {}
    for run in runs.failed:
        found.setdefault((_what(run), run.reason or "no reason was given"), []).append(run.seed)
    return [(what, ", ".join(map(str, sorted(seeds))), reason) for (what, reason), seeds in found.items()]


def _what(run: Run) -> str:
    names = {"degree": "degree", "noise": "noise", "smoothing": "λ", "injection": "β", "variant": "variant"}
    names |= {"version": "budget by", "capacity": "capacity", "fold": "fold"}
    settings = [f"{word} {run.settings[name]}" for name, word in names.items() if run.settings.get(name) is not None]
    return ", ".join([TASKS.get(run.task, run.task), METHODS.get(run.method, run.method), *settings])

"""The rows of the training benchmark, summed up over seeds."""

from __future__ import annotations

import numpy as np

from pear.bench.plot import Series
from pear.bench.table import Table, number, share
from pear.bench.training import PEAR, Row, Summary, summarize


def tables(rows: list[Row], full: bool = False, profile: bool = False) -> list[Table]:
    """The comparison and, if asked for, where the time goes.

    Args:
        rows: measured so far.
        full: they are whole runs, whose time counts too.
        profile: whether to show where the time goes.
    """
    runs = ("s a run", "time /\npear") if full else ()
    headings = ("task", "who", "seeds", "epochs", "ms an\nepoch", "time /\npear", *runs, "test regret\n%", "reuse")
    table = Table("Training under the paper's protocol, means over seeds", headings, left=2)
    table.rows.extend(_cells(one, full) for one in summarize(rows))
    return [table, _profiles(rows)] if profile and rows else [table]


def _cells(one: Summary, full: bool) -> tuple[str, ...]:
    spread = "" if np.isnan(one.regret_std) else f" ± {100 * one.regret_std:.2f}"
    epoch = (number(1e3 * one.epoch_seconds), number(one.ratio))
    run = (number(one.seconds), number(one.run_ratio)) if full else ()
    counts = (str(one.seeds), number(one.epochs))
    return (one.task, one.who, *counts, *epoch, *run, f"{100 * one.regret:.2f}{spread}", share(one.reuse_rate))


def _profiles(rows: list[Row]) -> Table:
    """Seconds of a run by what they were spent on, means over seeds."""
    names = list(dict.fromkeys(name for row in rows for name in row.profile))
    table = Table("Where the time goes, seconds a run", ("task", "who", *names), left=2)
    for key in dict.fromkeys((row.task, row.who) for row in rows if row.profile):
        own = [row.profile for row in rows if (row.task, row.who) == key]
        means = (np.mean([one[name] for one in own]) if name in own[0] else None for name in names)
        table.rows.append((*key, *(number(None if mean is None else float(mean)) for mean in means)))
    return table


def series(rows: list[Row]) -> list[Series]:
    """Test regret over seconds an epoch, a point for every seed and a panel for every task: low and left is best."""
    lines = []
    for task, who in dict.fromkeys((row.task, row.who) for row in rows):
        own = [row for row in rows if (row.task, row.who) == (task, who)]
        times, regrets = [row.epoch_seconds for row in own], [row.regret for row in own]
        lines.append(Series(who, times, regrets, who == PEAR, task, joined=False))
    return lines

"""The tables of the study, in Markdown, from its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pear.errors import DataError
from pear.evaluation.comparison_text import format_difference
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear_lab.benchmarks.number_formats import format_number
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.data.path_regrets import METHODS, load_path_regrets
from pear_lab.forecasters.case_table import CASES, CaseRow
from pear_lab.forecasters.forecaster_table import FORECASTERS
from pear_lab.forecasters.study_case import Array
from pear_lab.forecasters.study_runs import RunKey, RunResult
from pear_lab.report import bootstrap

DEFINITION = (
    "Lost: what the decisions under the forecast cost more than the best decisions, the mean over test periods and "
    "seeds (± the standard deviation of the seeds' means). Less the best rival: the difference to the forecaster with "
    "squared error that lost least, chosen on these very test rows, which favours the rival; below zero the "
    "forecaster is better. In parentheses its 95 % interval, bold where that leaves zero out: by a bootstrap of blocks "
    "of neighbouring periods, paired by period, over the mean of the seeds; where every seed draws samples of its own, "
    "by a bootstrap of seeds and of samples within them. Fit: seconds to train and to forecast once, on one core."
)
"""What the columns of the tables say."""

Results = Mapping[RunKey, RunResult]


@dataclass(frozen=True)
class Losses:
    """What one forecaster lost in one case.

    Attributes:
        regret: an array for each seed, over all splits, in their order.
        best: the same of the best values.
        sign: 1 where values are minimised, −1 where they are maximised.
        seconds: mean seconds of a training.
    """

    regret: list[Array]
    best: list[Array]
    sign: float
    seconds: float

    @property
    def mean(self) -> float:
        """Mean loss of a period."""
        return float(np.concatenate(self.regret).mean())

    @property
    def lost(self) -> str:
        """The mean loss as text, with the deviation of the seeds' means where there are several."""
        means = [float(one.mean()) for one in self.regret]
        spread = f" ± {format_number(float(np.std(means, ddof=1)), 2)}" if len(set(means)) > 1 else ""
        return format_number(self.mean, 4) + spread

    @property
    def value(self) -> float:
        """Mean value of a period."""
        return float(np.concatenate(self.best).mean()) + self.sign * self.mean

    @property
    def percent(self) -> float:
        """The loss in percent of the best values."""
        return 100 * float(np.concatenate(self.regret).sum() / np.abs(np.concatenate(self.best)).sum())


def collect_losses(results: Results, case: str, quick: bool) -> dict[str, Losses]:
    """The losses of all forecasters that have a result for every split, by name, in the order of the table.

    Seeds that only some forecasters have are left out, so that all are judged on the same rows; a forecaster that does
    not depend on the seed has the same losses for all of them.
    """
    row, folds = CASES[case], range(1 if quick else CASES[case].folds)
    seeds: dict[str, set[int]] = {}
    for name in FORECASTERS:
        keys = {key for key, one in results.items() if key.case == case and key.forecaster == name and not one.failed}
        own = {key.seed for key in keys}
        seeds[name] = {seed for seed in own if all(RunKey(case, fold, name, seed, quick) in keys for fold in folds)}
    changing = [own for name, own in seeds.items() if own and (row.drawn or FORECASTERS[name].seeded)]
    common = sorted(set.intersection(*changing)) if changing else [0]
    found = {}
    for name, own in seeds.items():
        fixed = not row.drawn and not FORECASTERS[name].seeded
        wanted = [0 if fixed else seed for seed in common]
        if own.issuperset(wanted) and own and wanted:
            found[name] = _losses(results, [[RunKey(case, fold, name, s, quick) for fold in folds] for s in wanted])
    return found


def _losses(results: Results, keys: Sequence[Sequence[RunKey]]) -> Losses:
    """The losses of runs, given by seed and split."""
    runs = [[results[key] for key in own] for own in keys]
    regret, best = (
        [np.concatenate([getattr(run, part) for run in own]) for own in runs] for part in ("regret", "best")
    )
    seconds = float(np.mean([run.seconds for own in runs for run in own]))
    return Losses(regret, best, runs[0][0].sign, seconds)


def best_rival(losses: Mapping[str, Losses]) -> str | None:
    """The forecaster with squared error that lost least; None where there is none."""
    rivals = [name for name in losses if FORECASTERS[name].rival]
    return min(rivals, key=lambda name: losses[name].mean, default=None)


def difference(row: CaseRow, first: Losses, second: Losses) -> PairedDifference:
    """What the first lost less the second, with its interval: money a period, or percentage points."""
    if not row.drawn:
        a, b = (np.mean(losses.regret, axis=0) for losses in (first, second))
        return paired_difference(a, b, min(row.block, max(1, len(a) // 2)))
    best = [np.abs(one) / 100 if row.relative else np.ones_like(one) for one in first.best]
    found = bootstrap.normalized_difference(first.regret, second.regret, best, block=row.block)
    error = (found.high - found.low) / (2 * _NORMAL_95)
    return PairedDifference(found.estimate, error, (found.low, found.high), row.block)


_NORMAL_95 = 1.96
"""Standard errors from the mean to an end of a 95 % interval of a normal distribution."""


def case_table(results: Results, name: str, quick: bool) -> TextTable | None:
    """A line for each forecaster of a case; None where nothing is complete."""
    losses, row = collect_losses(results, name, quick), CASES[name]
    if not losses:
        return None
    rival = best_rival(losses)
    lines: list[tuple[str, ...]] = []
    for key, own in losses.items():
        less = "the best rival" if key == rival else _less(row, losses, key, rival)
        cells = (own.lost, format_number(own.value, 5), less, format_number(own.seconds))
        lines.append((FORECASTERS[key].title, *cells))
    first = next(iter(losses.values()))
    count, seeds = len(first.regret[0]), len(first.regret)
    best = format_number(float(np.concatenate(first.best).mean()), 5)
    title = f"{row.title}: {count:,} test {row.period}s, {seeds} seed{'s' * (seeds > 1)}; the best value is {best}"
    return TextTable(title, ("", f"lost a {row.period}, {row.unit}", "value", "less the best rival", "fit, s"), lines)


def _less(row: CaseRow, losses: Mapping[str, Losses], name: str, rival: str | None) -> str:
    """The difference of a forecaster to the best rival, as text."""
    if rival is None or name not in losses:
        return "–"
    found = difference(row, losses[name], losses[rival])
    return f"**{format_difference(found)}**" if found.is_significant else format_difference(found)


def grid_table(results: Results, family: str, quick: bool) -> TextTable | None:
    """A line for each case of a family: losses in percent of the best values."""
    cells = {name: collect_losses(results, name, quick) for name, row in CASES.items() if row.family == family}
    cells = {name: losses for name, losses in cells.items() if losses}
    if not cells:
        return None
    shown = [key for key in FORECASTERS if any(key in losses for losses in cells.values())]
    ours = [key for key in shown if not FORECASTERS[key].rival]
    lines, published = [], _published_regrets(list(cells))
    for name, losses in cells.items():
        parts = [f"{losses[key].percent:.2f}" if key in losses else "–" for key in shown]
        theirs = [f"{own[name]:.2f}" for own in published.values()]
        less = [_less(CASES[name], losses, key, best_rival(losses)) for key in ours]
        lines.append((CASES[name].title, *parts, *theirs, *less))
    less_headings = [f"{FORECASTERS[key].title} less the best rival" for key in ours]
    headings = (
        "",
        *(FORECASTERS[key].title for key in shown),
        *(f"published: {name}" for name in published),
        *less_headings,
    )
    seeds = sorted({len(own.regret) for losses in cells.values() for own in losses.values()})
    title = f"{family}: lost, % of the best value; {' or '.join(map(str, seeds))} seeds"
    return TextTable(title, tuple(headings), lines)


def _published_regrets(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """What was published for these cases, by method and case; {} where they repeat nothing, or the file is missing."""
    cells = {name: CASES[name].published for name in names}
    try:
        known = load_path_regrets() if all(cells.values()) else {}
    except DataError:  # the table goes without these columns
        return {}
    return {method: {name: known[cell][method] for name, cell in cells.items() if cell} for method in METHODS if known}


def summary_table(results: Results, quick: bool) -> TextTable | None:
    """A line for each case that is in a table of its own: the best rival, and ours less that."""
    cells = {name: collect_losses(results, name, quick) for name, row in CASES.items() if not row.relative}
    ours = [key for key, one in FORECASTERS.items() if not one.rival and any(key in own for own in cells.values())]
    lines = []
    for name, losses in cells.items():
        rival, row = best_rival(losses), CASES[name]
        if rival is not None:
            least = f"{FORECASTERS[rival].title}: {format_number(losses[rival].mean, 4)}"
            lines.append((row.title, row.unit, least, *(_less(row, losses, key, rival) for key in ours)))
    headings = ("", "unit", "best rival, lost", *(FORECASTERS[key].title for key in ours))
    return TextTable("All cases: lost less the best rival", headings, lines, left=3) if lines else None


def verdicts(results: Results, quick: bool) -> list[str]:
    """A sentence for each of our forecasters: in how many cases it is better or worse than the best rival."""
    counts: dict[str, list[PairedDifference]] = {}
    for name, row in CASES.items():
        losses = collect_losses(results, name, quick)
        rival = best_rival(losses)
        for key in losses:
            if rival is not None and not FORECASTERS[key].rival:
                counts.setdefault(key, []).append(difference(row, losses[key], losses[rival]))
    sentences = []
    for key, found in counts.items():
        clear = [one.mean < 0 for one in found if one.is_significant]
        better, worse = sum(clear), len(clear) - sum(clear)
        sentences.append(
            f"{FORECASTERS[key].title}: better than the best rival in {better} of {len(found)} cases and worse in "
            f"{worse}, by intervals that leave zero out."
        )
    return sentences


def study_markdown(results: Results, quick: bool) -> str:
    """All tables, with what they show and what failed, in Markdown."""
    kept = {key: one for key, one in results.items() if key.quick == quick}
    families = dict.fromkeys(row.family for row in CASES.values())
    tables = [summary_table(kept, quick)]
    for family in families:
        names = [name for name, row in CASES.items() if row.family == family]
        grid = CASES[names[0]].relative  # many small cases share a table
        tables += [grid_table(kept, family, quick)] if grid else [case_table(kept, name, quick) for name in names]
    failures = [
        f"- {key.case}, {key.forecaster}, seed {key.seed}: {one.failed}" for key, one in kept.items() if one.failed
    ]
    commits = ", ".join(sorted({one.commit or "unknown" for one in kept.values()}))
    parts = [DEFINITION, *verdicts(kept, quick), *(table.markdown().rstrip() for table in tables if table is not None)]
    parts += ["Failed:\n\n" + "\n".join(failures)] if failures else []
    return "\n\n".join([*parts, f"Commit of the code: {commits}."]) + "\n"

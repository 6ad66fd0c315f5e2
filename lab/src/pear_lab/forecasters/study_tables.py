"""The tables of the study in Markdown, made from its results."""

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
from pear_lab.forecasters.case_table import CASES, CaseTableRow
from pear_lab.forecasters.forecaster_table import FORECASTERS
from pear_lab.forecasters.study_case import Array
from pear_lab.forecasters.study_runs import StudyRunKey, StudyRunResult
from pear_lab.report import bootstrap

DEFINITION = (
    "Lost: what the decisions under the forecast cost more than the best decisions, the mean over test periods and "
    "seeds (± the standard deviation of the seeds' means). Less the best rival: the difference to the forecaster with "
    "squared error that lost least, chosen on these very test rows, which favours the rival; below zero the "
    "forecaster is better. In parentheses its 95 % interval, bold where that leaves zero out: by a bootstrap of blocks "
    "of neighbouring periods, paired by period, over the mean of the seeds; where every seed draws samples of its own, "
    "by a bootstrap of seeds and of samples within them. Fit: seconds to train and to forecast once, on one core."
)
"""The explanation of the columns of the tables."""

Results = Mapping[StudyRunKey, StudyRunResult]


@dataclass(frozen=True)
class StudyTableLosses:
    """The losses of one forecaster in one case.

    Attributes:
        regret: for each seed, the regrets of all test samples, in the order of the splits.
        best: for each seed, the best values of all test samples.
        sign: 1 if values are minimised, −1 if they are maximised.
        seconds: the mean seconds of a run.
    """

    regret: list[Array]
    best: list[Array]
    sign: float
    seconds: float

    @property
    def mean(self) -> float:
        """The mean loss of a sample."""
        return float(np.concatenate(self.regret).mean())

    @property
    def lost(self) -> str:
        """The mean loss as text, with the standard deviation of the means of the seeds if they differ."""
        means = [float(one.mean()) for one in self.regret]
        spread = f" ± {format_number(float(np.std(means, ddof=1)), 2)}" if len(set(means)) > 1 else ""
        return format_number(self.mean, 4) + spread

    @property
    def value(self) -> float:
        """The mean value of the decisions."""
        return float(np.concatenate(self.best).mean()) + self.sign * self.mean

    @property
    def percent(self) -> float:
        """The sum of the losses in percent of the sum of |best value|."""
        return 100 * float(np.concatenate(self.regret).sum() / np.abs(np.concatenate(self.best)).sum())


def collect_study_losses(results: Results, case: str, quick: bool) -> dict[str, StudyTableLosses]:
    """Return the losses of forecasters by name, in the order of ``FORECASTERS``.

    A seed of a forecaster is complete if the forecaster has a result for every split. Only seeds that are complete for
    all forecasters with a complete seed are used, so that all are compared on the same samples. A forecaster that does
    not depend on the seed needs only seed 0, unless the seed draws the samples.
    """
    row, folds = CASES[case], range(1 if quick else CASES[case].folds)
    seeds: dict[str, set[int]] = {}
    for name in FORECASTERS:
        keys = {key for key, one in results.items() if key.case == case and key.forecaster == name and not one.failed}
        own = {key.seed for key in keys}
        seeds[name] = {
            seed for seed in own if all(StudyRunKey(case, fold, name, seed, quick) in keys for fold in folds)
        }
    changing = [own for name, own in seeds.items() if own and (row.drawn or FORECASTERS[name].seeded)]
    common = sorted(set.intersection(*changing)) if changing else [0]
    found = {}
    for name, own in seeds.items():
        fixed = not row.drawn and not FORECASTERS[name].seeded
        wanted = [0 if fixed else seed for seed in common]
        if own.issuperset(wanted) and own and wanted:
            found[name] = _study_losses_of_runs(
                results, [[StudyRunKey(case, fold, name, s, quick) for fold in folds] for s in wanted]
            )
    return found


def _study_losses_of_runs(results: Results, keys: Sequence[Sequence[StudyRunKey]]) -> StudyTableLosses:
    """Return the losses of a forecaster. For each seed, ``keys`` lists its runs, one for each split."""
    runs = [[results[key] for key in own] for own in keys]
    regret, best = (
        [np.concatenate([getattr(run, part) for run in own]) for own in runs] for part in ("regret", "best")
    )
    seconds = float(np.mean([run.seconds for own in runs for run in own]))
    return StudyTableLosses(regret, best, runs[0][0].sign, seconds)


def best_study_rival(losses: Mapping[str, StudyTableLosses]) -> str | None:
    """Return the name of PEAR's rival with the lowest mean loss; None if there is no rival."""
    rivals = [name for name in losses if FORECASTERS[name].rival]
    return min(rivals, key=lambda name: losses[name].mean, default=None)


def study_difference(row: CaseTableRow, first: StudyTableLosses, second: StudyTableLosses) -> PairedDifference:
    """Return the mean loss of ``first`` less that of ``second``, with its interval, in the unit of the case."""
    if not row.drawn:
        a, b = (np.mean(losses.regret, axis=0) for losses in (first, second))
        return paired_difference(a, b, min(row.block, max(1, len(a) // 2)))
    best = [np.abs(one) / 100 if row.relative else np.ones_like(one) for one in first.best]
    found = bootstrap.normalized_difference(first.regret, second.regret, best, block=row.block)
    error = (found.high - found.low) / (2 * _NORMAL_95)
    return PairedDifference(found.estimate, error, (found.low, found.high), row.block)


_NORMAL_95 = 1.96
"""The half-width of a 95 % interval of the normal distribution, in standard deviations."""


def study_table_of_case(results: Results, name: str, quick: bool) -> TextTable | None:
    """Return a table with a line for each forecaster of a case; None if no forecaster has all results."""
    losses, row = collect_study_losses(results, name, quick), CASES[name]
    if not losses:
        return None
    rival = best_study_rival(losses)
    lines: list[tuple[str, ...]] = []
    for key, own in losses.items():
        less = "the best rival" if key == rival else _study_difference_text(row, losses, key, rival)
        cells = (own.lost, format_number(own.value, 5), less, format_number(own.seconds))
        lines.append((FORECASTERS[key].title, *cells))
    first = next(iter(losses.values()))
    count, seeds = len(first.regret[0]), len(first.regret)
    best = format_number(float(np.concatenate(first.best).mean()), 5)
    title = f"{row.title}: {count:,} test {row.period}s, {seeds} seed{'s' * (seeds > 1)}; the best value is {best}"
    return TextTable(title, ("", f"lost a {row.period}, {row.unit}", "value", "less the best rival", "fit, s"), lines)


def _study_difference_text(
    row: CaseTableRow, losses: Mapping[str, StudyTableLosses], name: str, rival: str | None
) -> str:
    """Return a forecaster's difference from the best rival as text, bold if it is significant.

    The text is a dash if the forecaster has no results, or if there is no rival.
    """
    if rival is None or name not in losses:
        return "–"
    found = study_difference(row, losses[name], losses[rival])
    return f"**{format_difference(found)}**" if found.is_significant else format_difference(found)


def study_table_of_family(results: Results, family: str, quick: bool) -> TextTable | None:
    """Return a table with a line for each case of a family, and losses in percent; None if no case has results."""
    cells = {name: collect_study_losses(results, name, quick) for name, row in CASES.items() if row.family == family}
    cells = {name: losses for name, losses in cells.items() if losses}
    if not cells:
        return None
    shown = [key for key in FORECASTERS if any(key in losses for losses in cells.values())]
    ours = [key for key in shown if not FORECASTERS[key].rival]
    lines, published = [], _published_study_regrets(list(cells))
    for name, losses in cells.items():
        parts = [f"{losses[key].percent:.2f}" if key in losses else "–" for key in shown]
        theirs = [f"{own[name]:.2f}" for own in published.values()]
        less = [_study_difference_text(CASES[name], losses, key, best_study_rival(losses)) for key in ours]
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


def _published_study_regrets(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the published regrets of the cases ``names``, by method and case.

    The dictionary is empty if a case has no published numbers, or if their file is missing.
    """
    cells = {name: CASES[name].published for name in names}
    try:
        known = load_path_regrets() if all(cells.values()) else {}
    except DataError:  # the table has no such columns then
        return {}
    return {method: {name: known[cell][method] for name, cell in cells.items() if cell} for method in METHODS if known}


def study_table_of_all_cases(results: Results, quick: bool) -> TextTable | None:
    """Return a table of the cases whose losses are not in percent of the best value; None if no case has a rival.

    A line of the table names the best rival in a case, and the differences of PEAR's forecasters from this rival.
    """
    cells = {name: collect_study_losses(results, name, quick) for name, row in CASES.items() if not row.relative}
    ours = [key for key, one in FORECASTERS.items() if not one.rival and any(key in own for own in cells.values())]
    lines = []
    for name, losses in cells.items():
        rival, row = best_study_rival(losses), CASES[name]
        if rival is not None:
            least = f"{FORECASTERS[rival].title}: {format_number(losses[rival].mean, 4)}"
            lines.append(
                (row.title, row.unit, least, *(_study_difference_text(row, losses, key, rival) for key in ours))
            )
    headings = ("", "unit", "best rival, lost", *(FORECASTERS[key].title for key in ours))
    return TextTable("All cases: lost less the best rival", headings, lines, left=3) if lines else None


def study_verdicts(results: Results, quick: bool) -> list[str]:
    """Return, for each of PEAR's forecasters, a sentence with its wins and losses by case against the best rival."""
    counts: dict[str, list[PairedDifference]] = {}
    for name, row in CASES.items():
        losses = collect_study_losses(results, name, quick)
        rival = best_study_rival(losses)
        for key in losses:
            if rival is not None and not FORECASTERS[key].rival:
                counts.setdefault(key, []).append(study_difference(row, losses[key], losses[rival]))
    sentences = []
    for key, found in counts.items():
        clear = [one.mean < 0 for one in found if one.is_significant]
        better, worse = sum(clear), len(clear) - sum(clear)
        sentences.append(
            f"{FORECASTERS[key].title}: better than the best rival in {better} of {len(found)} cases and worse in "
            f"{worse}, by intervals that leave zero out."
        )
    return sentences


def study_tables_markdown(results: Results, quick: bool) -> str:
    """Return all tables in Markdown, with the explanation of the columns and a list of failed runs."""
    kept = {key: one for key, one in results.items() if key.quick == quick}
    families = dict.fromkeys(row.family for row in CASES.values())
    tables = [study_table_of_all_cases(kept, quick)]
    for family in families:
        names = [name for name, row in CASES.items() if row.family == family]
        grid = CASES[names[0]].relative  # many small cases share a table
        tables += (
            [study_table_of_family(kept, family, quick)]
            if grid
            else [study_table_of_case(kept, name, quick) for name in names]
        )
    failures = [
        f"- {key.case}, {key.forecaster}, split {key.split}, seed {key.seed}: {one.failed}"
        for key, one in kept.items()
        if one.failed
    ]
    commits = ", ".join(sorted({one.commit or "unknown" for one in kept.values()}))
    parts = [
        DEFINITION,
        *study_verdicts(kept, quick),
        *(table.markdown().rstrip() for table in tables if table is not None),
    ]
    parts += ["Failed:\n\n" + "\n".join(failures)] if failures else []
    return "\n\n".join([*parts, f"Commit of the code: {commits}."]) + "\n"

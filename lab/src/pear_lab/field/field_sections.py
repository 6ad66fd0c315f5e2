"""The sections of the comparison's page: protocol, ranks, a table for each task, speed, settings, failures."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np

from pear.pages.page import PageGrid, PageSection, RankedText
from pear_lab.experiments.run_record import RunRecord
from pear_lab.field.field_methods import DEFAULT, describe_method_setting, field_methods
from pear_lab.field.field_ranks import FieldRanks
from pear_lab.field.field_words import field_title
from pear_lab.field.task_results import NEAR, TaskResults, describe_task_failure
from pear_lab.report.bootstrap import LEVEL, RESAMPLES
from pear_lab.report.paired_comparison import format_signed_interval

INTRODUCTION = (
    "Decision-focused methods, ours among them, on tasks of the literature: the same start, samples, batches, "
    "patience, number of tries and time for each. Nothing is chosen by test regret, all settings are listed, and every "
    "number on this page comes from the database in `docs/results/field`. Budgets are small here, so that all methods "
    "fit; [two published protocols](protocols.md) are repeated in full. The page is written by these commands:"
)

_ADDED = (
    " SPO+ by pear.fit was added when PEAR by pear.fit led after the first seeds, to see whether pear.fit alone does "
    "it."
)

_DECIMALS = 2


def field_protocol_section(found: Sequence[TaskResults]) -> PageSection:
    """Return the section that describes the protocol. Its numbers come from the recorded settings."""
    settings = next(run for runs in found[0].done.values() for run in runs.values()).settings
    train, validation, test = settings["most"]
    sentences = (
        f"Every seed draws its own samples, of which at most {train:,} train, {validation:,} validate and {test:,} "
        "test. All methods of a task and a seed begin with the same weights: those of the squared error as pear.fit "
        "finds it, a ridge regression whose strength is chosen by cross-validation for a linear forecaster, a training "
        "with weight decay for a network.",
        f"From there each of a method's five settings is trained by Adam (rate {settings['learning_rate']:g} times the "
        f"deviation of the costs, unless rates are what it tries; batches of {settings['batch_size']}) for "
        f"{settings['try_epochs']} epochs, at most {settings['try_cap']:g} s. The setting with the lowest regret on "
        f"the validation samples goes on to {settings['max_epochs']} epochs, at most {settings['time_cap']:g} s with "
        f"its try; it stops after {settings['patience']} checks in a row, one every {settings['check_every']} epochs, "
        f"without an improvement of {settings['min_improvement']:.0%}. The weights of the best check are kept, those "
        "of the start among them. The test samples are used once, afterwards.",
        "Untouched defaults means PEARLoss(problem) as it is, in one training under the same rules. By pear.fit means "
        "pear.fit(model, loss, train, validation) with its defaults and those of the loss, in the time that the others "
        "have for the start and all their tries; its seconds include a start of its own. Neither chooses a setting. "
        "pear.fit judges several trainings and averages of weights on the validation samples, whatever the loss; what "
        "that brings is seen where another method is trained by it, too."
        + (_ADDED if any("spo+-fit" in one.done for one in found) else ""),
        f"A difference is the mean regret less that of the method with the lowest mean on the task, paired by seed, "
        f"with a percentile interval of {LEVEL:.0%} from {RESAMPLES:,} bootstrap resamples of the seeds. The best "
        "method is the one with the lowest test regret, so that differences to it lean upwards; intervals of few seeds "
        "are rather too narrow, and they are not adjusted for their number. Where a task has one set of real data, "
        "seeds differ in first weights and batches alone, or in the shuffling, as its protocol says.",
        "Seconds and caps count the processor time of a run, which computes on one thread: what else the machine does "
        "ends no training. They include all tries but not the common start, and depend on the machine; on tasks where "
        "the time cap ends trainings they decide what a method can do.",
        _field_budget_sentence(found),
    )
    return PageSection("protocol", "How it was done", sentences)


def _field_budget_sentence(found: Sequence[TaskResults]) -> str:
    """Return sentences on the time that the comparison took, and on how the time limits and epochs were chosen."""
    runs = [run for one in found for seeds in one.done.values() for run in seeds.values()]
    spent = sum(run.timings["total"] for run in runs)
    return (
        f"Training took {spent:,.0f} s of processor time in {len(runs):,} runs, {spent / len(runs):.2f} s a run. The "
        "numbers of samples, the epochs, the rate and the caps were chosen before, by what a run costs and by the "
        "validation regret of five methods on paths (n = 1,000, noise 0.5) with a seed that is not on this page: ten "
        "seeds had to fit into less than two hours of two cores that others shared."
    )


def field_ranks_section(ranks: FieldRanks) -> PageSection:
    """Return the section of mean ranks."""
    if ranks.found is None:
        words = "Ranks need at least three methods that have results on the same two tasks; there are not as many."
        return PageSection("ranks", "Mean ranks", (words,))
    good = ranks.found.as_good_as_best()
    rows = tuple(
        (field_title(name), RankedText(f"{rank:.2f}", int(name in good)), *_field_sign_test_cells(ranks, name))
        for name, rank in ranks.found.ranks.items()
    )
    sentences = [
        f"Rank 1 is the lowest mean test regret of a task; equal ones share their ranks. Over {ranks.found.tasks} "
        f"tasks Friedman's statistic is {ranks.found.chi_square:.1f} (p = {ranks.found.p_value:.2g}), and Nemenyi's "
        f"critical difference at {LEVEL:.0%} is {ranks.found.critical_difference:.2f} (Demšar, JMLR 2006). Ranks that "
        "are bold cannot be told from the best; in the diagram, a bar joins methods that cannot be told apart.",
        f"Ranked on: {'; '.join(ranks.tasks)}.",
    ]
    if ranks.tasks_left_out or ranks.methods_left_out:
        sentences.append(
            "The test needs a result of every method on every task. Left out, by what is missing alone: of tasks "
            f"{'; '.join(ranks.tasks_left_out) or 'none'}; of methods "
            f"{'; '.join(map(field_title, ranks.methods_left_out)) or 'none'}. Their results are in the tables below."
        )
    header = ["Method", "Mean rank"]
    if ranks.against_default:
        header += ["Tasks with less regret", "with more", "p"]
        sentences.append(
            f"The last columns compare each method with {field_title(DEFAULT)}, task by task: on how many its mean "
            "regret is lower and higher, and the p of the sign test, adjusted by Holm for the number of methods."
        )
    return PageSection("ranks", "Mean ranks", tuple(sentences), (PageGrid("Methods", tuple(header), rows),))


def _field_sign_test_cells(ranks: FieldRanks, name: str) -> tuple[str, ...]:
    """Return the table cells of a method's sign test against PEAR's defaults; empty if there are no such tests."""
    if not ranks.against_default:
        return ()
    test = ranks.against_default.get(name)
    return ("–", "–", "–") if test is None else (str(test.lower), str(test.higher), f"{test.p_value:.2g}")


def field_task_section(one: TaskResults) -> PageSection:
    """Return the section of one task, with its description and a table of all methods."""
    unit = "%" if one.factor != 1 else "mean"
    header = ["Method", f"Test regret, {unit}", "Less the best", "Seconds", "To near the best, s", "Chosen most often"]
    near, printed = one.seconds_to_near_best(), _field_section_published(one)
    if printed:
        header.append("Published")
    rows = []
    for name in sorted(one.methods, key=one.mean):
        numbers = one.regrets(name)
        place = 1 if name == one.best else 2 * one.is_shared_best(name)
        row = [field_title(name), RankedText(field_section_mean(numbers), place), _field_section_difference(one, name)]
        row += [
            f"{one.seconds(name):.2f}",
            _field_section_seconds(near[name]),
            _field_section_setting(list(one.done[name].values())),
        ]
        rows.append(tuple(row + ([printed.get(name, "")] if printed else [])))
    rows.append(("the common start", field_section_mean(one.start_regrets()), *[""] * (len(header) - 2)))
    for name, reasons in one.failed.items():
        if reasons:
            rows.append((field_title(name), describe_task_failure(reasons, len(one.seeds)), *[""] * (len(header) - 2)))
    count = len(one.seeds)
    caption = (
        f"{count} seed{'s' * (count != 1)}. Test regret is the mean ± its standard error over the seeds; the lowest is "
        "bold, those whose difference has an interval that reaches zero are underlined."
    )
    sentences = [f"{one.task.origin}.", one.task.protocol, *_field_section_origins(one)]
    if one.incomplete:
        sentences.append(f"{one.incomplete} runs of seeds that many methods have not ended are not shown.")
    grid = PageGrid("All methods", tuple(header), tuple(rows), caption)
    return PageSection(one.task.name, one.task.title, tuple(filter(None, sentences)), (grid,))


def field_section_mean(numbers: np.ndarray) -> str:
    """Return the mean of numbers and its standard error as text; a single number without an error.

    Example:
        >>> field_section_mean(np.array([1.0, 2.0, 3.0])), field_section_mean(np.array([0.001234]))
        ('2.00 ± 0.58', '0.0012')
    """
    mean = float(numbers.mean())
    decimals = _DECIMALS if abs(mean) >= 0.1 else _DECIMALS + 2
    if len(numbers) < 2:
        return f"{mean:.{decimals}f}"
    error = float(numbers.std(ddof=1)) / len(numbers) ** 0.5
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


def field_speed_section(found: Sequence[TaskResults]) -> PageSection:
    """Return the section with a table of how often and how soon each method comes near the best regret."""
    spent: dict[str, list[float]] = {}
    near: dict[str, list[float | None]] = {}
    kept: Counter[str] = Counter()
    capped: Counter[str] = Counter()
    for one in found:
        for name, times in one.seconds_to_near_best().items():
            near.setdefault(name, []).extend(times)
            spent.setdefault(name, []).append(one.seconds(name))
            kept[name] += one.start_kept(name)
            capped[name] += sum(run.metrics.get("stopped") == "time_cap" for run in one.done[name].values())
    rows = []
    for name, times in sorted(near.items(), key=lambda pair: -_field_section_share(pair[1])):
        reached = [time for time in times if time is not None]
        median = f"{statistics.median(reached):.2f}" if reached else "–"
        share = f"{len(reached)} of {len(times)}"
        counts = str(kept[name]), str(capped[name])
        rows.append((field_title(name), share, median, f"{statistics.fmean(spent[name]):.2f}", *counts))
    header = ("Method", "Runs that come near", "Median seconds of these", "Mean seconds, all tries", "Start kept",
              "Ended by the time cap")  # fmt: skip
    words = (
        f"Near the best is a validation regret of at most {1 + NEAR:.1f} times the lowest that any method of the task "
        "ends with in the seed. Seconds are those of the chosen setting alone, from the common start on; a start that "
        "is near already takes none. The start is kept where no check validates better. "
        "Where the time cap ends a training, a faster computer might let the method come further."
    )
    return PageSection(
        "speed", "Time to come near the best", (words,), (PageGrid("Over all tasks", header, tuple(rows)),)
    )


def field_settings_section(found: Sequence[TaskResults]) -> PageSection:
    """Return the section with a table of all settings, and of how often each was chosen."""
    rows = []
    for name in dict.fromkeys(name for one in found for name in one.done):
        runs = [run for one in found for run in one.done.get(name, {}).values()]
        if not runs:
            continue
        chosen = Counter(describe_method_setting(run.metrics["chosen"]) for run in runs)
        tries = [describe_method_setting(setting) for setting in runs[-1].settings["tries"]]
        words = "; ".join(f"{words} ({chosen[words]})" for words in tries)
        way = "pear.fit, its defaults" if runs[-1].settings["way"] == "fit" else words
        rows.append((field_title(name), runs[-1].settings["loss"], way))
    words = (
        "In brackets, how often validation chose the setting. Other options are those of the row of the method in "
        "pear.losses.METHODS. Strengths that measure costs do so in the unit of the training costs, their typical "
        "deviation, but for the smoothing of PEAR as published, which is absolute as in its paper."
    )
    header = ("Method", "pear.losses.make_loss", "Settings tried")
    return PageSection("settings", "All settings", (words,), (PageGrid("By method", header, tuple(rows)),))


def field_failures_section(found: Sequence[TaskResults]) -> PageSection:
    """Return the section on methods that failed or do not apply, and on failed tries, with reasons."""
    rows = [
        (one.task.title, field_title(name), describe_task_failure(reasons, len(one.seeds)))
        for one in found
        for name, reasons in one.failed.items()
        if reasons
    ]
    broken = [
        (
            one.task.title,
            field_title(name),
            f"{sum(bool(t.get('failure')) for t in tries)} of {len(tries)} tries",
            reason,
        )
        for one in found
        for name, runs in one.done.items()
        if (tries := [t for run in runs.values() for t in run.metrics.get("tries", [])])
        and (reason := next((t["failure"] for t in tries if t.get("failure")), ""))
    ]
    grids = []
    if rows:
        grids.append(PageGrid("Methods without a result", ("Task", "Method", "Reason"), tuple(rows)))
    if broken:
        words = "The other settings of these runs went on."
        grids.append(PageGrid("Single tries", ("Task", "Method", "Failed", "Reason"), tuple(broken), words))
    return PageSection("failures", "What failed, and what does not apply", () if grids else ("Nothing.",), tuple(grids))


def _field_section_share(times: Sequence[float | None]) -> float:
    """Return the share of runs that come near the best regret. ``times`` has None for a run that does not."""
    return sum(time is not None for time in times) / len(times)


def _field_section_difference(one: TaskResults, name: str) -> str:
    """Return a method's difference from the best method, with its interval, as text; a dash for the best method."""
    if name == one.best:
        return "–"
    interval = one.differences[name]
    size = max(abs(value) for value in interval)
    estimate, low, high = format_signed_interval(interval, _DECIMALS if size >= 0.1 else _DECIMALS + 2)
    return f"{estimate} ({low} to {high})"


def _field_section_seconds(times: Sequence[float | None]) -> str:
    """Return the median time until runs come near the best regret, and the number of such runs, as text.

    ``times`` has None for a run that does not come near it. If no run does, the text is "never".
    """
    reached = [time for time in times if time is not None]
    if not reached:
        return "never"
    return f"{statistics.median(reached):.2f} ({len(reached)} of {len(times)})"


def _field_section_setting(runs: Sequence[RunRecord]) -> str:
    """Return the setting that most runs chose, and the number of these runs, as text; empty for defaults."""
    (words, count), *_ = Counter(describe_method_setting(run.metrics["chosen"]) for run in runs).most_common(1)
    return "" if words == "defaults" else f"{words} ({count} of {len(runs)})"


def _field_section_published(one: TaskResults) -> dict[str, str]:
    """Return the published numbers as text, by method, of those methods that are part of the comparison."""
    rows = field_methods()
    return {
        item.method: _field_section_number(one, item.value, item.error)
        for item in one.task.published
        if item.method in rows
    }


def _field_section_number(one: TaskResults, value: float, error: float | None) -> str:
    """Return a published number and its error, in the unit of the task's table, as text."""
    spread = "" if error is None else f" ± {one.factor * error:.{_DECIMALS}f}"
    return f"{one.factor * value:.{_DECIMALS}f}{spread}"


def _field_section_origins(one: TaskResults) -> list[str]:
    """Return sentences on where published numbers come from, and on published methods that the comparison lacks."""
    if not one.task.published:
        return []
    rows = field_methods()
    others = [f"{item.method} {_field_section_number(one, item.value, item.error)}" for item in one.task.published
              if item.method not in rows]  # fmt: skip
    origins = "; ".join(dict.fromkeys(item.where for item in one.task.published))
    listed = f" Published without a row here: {', '.join(others)}." if others else ""
    return [f"Published numbers: {origins}. They were trained and chosen otherwise than ours.{listed}"]

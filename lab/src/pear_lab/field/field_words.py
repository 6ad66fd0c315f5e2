"""The words of the comparison: the titles of its methods, and sentences that are made from its results."""

from __future__ import annotations

from collections.abc import Sequence

from pear_lab.field.field_methods import DEFAULT, FIT, OURS, field_methods
from pear_lab.field.field_ranks import FieldRanks
from pear_lab.field.task_results import TaskResults

_OF_PEAR = (DEFAULT, OURS, FIT)


def field_title(method: str) -> str:
    """Return the title of a method; an unknown name is returned unchanged."""
    rows = field_methods()
    return rows[method].title if method in rows else method


def field_summary_words(found: Sequence[TaskResults], ranks: FieldRanks) -> list[str]:
    """Return sentences on the runs, on the best methods, and on the results of PEAR's methods."""
    methods = list(dict.fromkeys(name for one in found for name in one.done))
    runs = sum(len(seeds) for one in found for seeds in one.done.values())
    counts = sorted({len(one.seeds) for one in found})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    unit = "seed" if seeds == "1" else "seeds"
    sentences = [
        f"{len(found)} tasks, {len(methods)} rows of methods, {seeds} {unit} a task: {runs:,} finished runs. Of each "
        "method, one setting of five is chosen by validation; untouched defaults and rows by pear.fit choose nothing."
    ]
    if ranks.found is not None:
        sentences += _field_rank_words(ranks)
    sentences += [_field_method_words(found, name) for name in _OF_PEAR if any(name in one.methods for one in found)]
    return sentences + _field_tries_words(found)


def _field_rank_words(ranks: FieldRanks) -> list[str]:
    """Return sentences on the best mean ranks, and on the rank of PEAR's defaults."""
    assert ranks.found is not None
    by_rank, limit = ranks.found.ranks, ranks.found.critical_difference
    best, good = next(iter(by_rank)), ranks.found.as_good_as_best()
    differ = "differ" if ranks.found.p_value < 0.05 else "cannot be shown to differ"
    said = [
        f"The best mean rank over {ranks.found.tasks} tasks has {field_title(best)}, {by_rank[best]:.2f} of "
        f"{len(by_rank)}. By Friedman's test the methods {differ} (p = {ranks.found.p_value:.2g}); within the critical "
        f"difference of {limit:.2f} of the best are {len(good)} of {len(by_rank)}: {'; '.join(map(field_title, good))}."
    ]
    if DEFAULT not in by_rank:
        return [*said, f"{field_title(DEFAULT)} is not ranked, because it has no result on all of these tasks."]
    place, rank = list(by_rank).index(DEFAULT) + 1, by_rank[DEFAULT]
    if DEFAULT in good:
        among = "It is the best" if place == 1 else "It is among the best"
        return [
            *said,
            f"{field_title(DEFAULT)} has a mean rank of {rank:.2f}, place {place}. {among}, by that difference.",
        ]
    return [
        *said,
        f"{field_title(DEFAULT)} has a mean rank of {rank:.2f}, place {place}. It is **not** among the best: "
        f"{rank - by_rank[best]:.2f} behind {field_title(best)}, more than the critical difference.",
    ]


def _field_method_words(found: Sequence[TaskResults], method: str) -> str:
    """Return a sentence on the tasks where a method is the best, cannot be told from the best, or is worse."""
    there = [one for one in found if method in one.methods]
    first = [one.task.title for one in there if one.best == method]
    level = [one.task.title for one in there if one.best != method and one.is_shared_best(method)]
    worse = [f"{one.task.title} ({field_title(one.best)})" for one in there if not one.is_shared_best(method)]
    said = f"{field_title(method)}: the lowest mean regret on {len(first)} of {len(there)} tasks"
    said += f" ({'; '.join(first)})" if first else ""
    said += f", an interval that reaches zero on {len(level)} more"
    said += f", and clearly more regret than the best on {len(worse)}"
    return f"{said}: {'; '.join(worse)}." if worse else f"{said}."


def _field_tries_words(found: Sequence[TaskResults]) -> list[str]:
    """Return a paragraph that compares PEAR after up to five tries with PEAR's defaults; empty if no task has both."""
    both = [one for one in found if DEFAULT in one.methods and OURS in one.methods]
    if not both:
        return []
    better = [one for one in both if one.mean(OURS) < one.mean(DEFAULT)]
    helped = [one for one in both if one.best != DEFAULT and not one.is_shared_best(DEFAULT)]
    saved = [one for one in helped if one.is_shared_best(OURS)]
    said = f"Five tries give PEAR a lower mean regret than its defaults on {len(better)} of {len(both)} tasks."
    if helped:
        said += (
            f" Of the {len(helped)} where the defaults are clearly behind the best, five tries close the gap on "
            f"{len(saved)}{': ' + '; '.join(one.task.title for one in saved) if saved else ''}."
        )
    return [said]

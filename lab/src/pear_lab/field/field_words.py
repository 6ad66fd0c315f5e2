"""Sentences about the comparison, made from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pear_lab.field.field_methods import DEFAULT, FIT, OURS, field_methods
from pear_lab.field.field_ranks import FieldRanks
from pear_lab.field.task_results import TaskResults

_OF_PEAR = (DEFAULT, OURS, FIT)


def title(method: str) -> str:
    """Return the name of a method in tables and sentences."""
    rows = field_methods()
    return rows[method].title if method in rows else method


def summary_sentences(found: Sequence[TaskResults], ranks: FieldRanks) -> list[str]:
    """Say in a few sentences what was run, which methods are best, and where PEAR's default stands."""
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
        sentences += _rank_sentences(ranks)
    sentences += [_sentence_of_row(found, name) for name in _OF_PEAR if any(name in one.methods for one in found)]
    return sentences + _sentences_on_tries(found)


def _rank_sentences(ranks: FieldRanks) -> list[str]:
    assert ranks.found is not None
    by_rank, limit = ranks.found.ranks, ranks.found.critical_difference
    best, good = next(iter(by_rank)), ranks.found.as_good_as_best()
    differ = "differ" if ranks.found.p_value < 0.05 else "cannot be shown to differ"
    said = [
        f"The best mean rank over {ranks.found.tasks} tasks has {title(best)}, {by_rank[best]:.2f} of {len(by_rank)}. "
        f"By Friedman's test the methods {differ} (p = {ranks.found.p_value:.2g}); within the critical difference of "
        f"{limit:.2f} of the best are {len(good)} of {len(by_rank)}: {'; '.join(map(title, good))}."
    ]
    if DEFAULT not in by_rank:
        return [*said, f"{title(DEFAULT)} is not ranked, because it has no result on all of these tasks."]
    place, rank = list(by_rank).index(DEFAULT) + 1, by_rank[DEFAULT]
    if DEFAULT in good:
        among = "It is the best" if place == 1 else "It is among the best"
        return [*said, f"{title(DEFAULT)} has a mean rank of {rank:.2f}, place {place}. {among}, by that difference."]
    return [
        *said,
        f"{title(DEFAULT)} has a mean rank of {rank:.2f}, place {place}. It is **not** among the best: "
        f"{rank - by_rank[best]:.2f} behind {title(best)}, more than the critical difference.",
    ]


def _sentence_of_row(found: Sequence[TaskResults], method: str) -> str:
    """Say on which tasks a row has the lowest regret, cannot be told from it, or is clearly worse."""
    there = [one for one in found if method in one.methods]
    first = [one.task.title for one in there if one.best == method]
    level = [one.task.title for one in there if one.best != method and one.is_shared_best(method)]
    worse = [f"{one.task.title} ({title(one.best)})" for one in there if not one.is_shared_best(method)]
    said = f"{title(method)}: the lowest mean regret on {len(first)} of {len(there)} tasks"
    said += f" ({'; '.join(first)})" if first else ""
    said += f", an interval that reaches zero on {len(level)} more"
    said += f", and clearly more regret than the best on {len(worse)}"
    return f"{said}: {'; '.join(worse)}." if worse else f"{said}."


def _sentences_on_tries(found: Sequence[TaskResults]) -> list[str]:
    """Say what five tries would have brought PEAR's default."""
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

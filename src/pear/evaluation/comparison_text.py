"""A comparison of forecasters in words: the printed table, and the sentences below it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pear.evaluation.walk_forward_result import MEAN
from pear.wording import count_noun, format_amount, format_percent

if TYPE_CHECKING:
    from pear.evaluation.walk_forward_result import WalkForward
    from pear.losses.paired_difference import PairedDifference

_MOST_DECIMALS = 6  # numbers that need more decimals get an exponent


def format_comparison(found: WalkForward) -> str:
    """Return a comparison as a table of plain text. The line above the table counts rows and folds."""
    lines = comparison_lines(found)
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    texts = [
        "  ".join([line[0].ljust(widths[0]), *(text.rjust(widths[j]) for j, text in enumerate(line) if j)]).rstrip()
        for line in lines
    ]
    rows, folds = count_noun(len(found.sample), "tested row"), count_noun(int(found.fold.max()), "fold")
    return "\n".join([f"{rows} in {folds}", *texts])


def comparison_lines(found: WalkForward) -> list[tuple[str, ...]]:
    """Return the cells of a table: first the headings, then a line for each forecaster, the smallest loss first."""
    unit = "cost" if found.sense == "min" else "gain"
    headings = ("", "lost a row", "of the best", f"{unit} a row", f"minus {found.reference} (95 %)", "squared error")
    lines: list[tuple[str, ...]] = [headings]
    for row in sorted(found.rows, key=lambda one: one["regret"]):
        lines.append(
            (
                row["forecaster"],
                format_amount(row["regret"]),
                format_percent(row["normalized_regret"]),
                format_amount(row["cost"]).replace("-", "−"),
                format_difference(found.differences.get(row["forecaster"])),
                format_amount(row["squared_error"]),
            )
        )
    return lines


def format_difference(difference: PairedDifference | None) -> str:
    """Return a difference and its interval as text. None, the difference of the reference from itself, becomes a dash.

    Example:
        >>> from pear.losses.paired_difference import PairedDifference
        >>> format_difference(PairedDifference(-2.16, 0.64, (-3.5, -0.9), 7)), format_difference(None)
        ('−2.16 (−3.50 to −0.90)', '–')
    """
    if difference is None:
        return "–"
    mean, low, high = _round_alike(difference.mean, *difference.interval, error=difference.standard_error)
    return f"{mean} ({low} to {high})"


def describe_comparison(found: WalkForward) -> list[str]:
    """Return sentences that say which forecaster loses least, and which forecasters are worse than a constant forecast.

    The notes of the comparison follow.
    """
    return [*_describe_best_forecaster(found), *_describe_forecasters_worse_than_mean(found), *found.notes]


def _describe_best_forecaster(found: WalkForward) -> list[str]:
    """Return a sentence that compares the best forecaster with the reference.

    If they are the same, the sentence compares it with the second best forecaster.
    """
    order = sorted(found.names, key=lambda name: found.regret[found.names.index(name)].mean())
    best, lost = order[0], found.regret.mean(axis=1)[found.names.index(order[0])]
    text = f"{best} loses least, {format_amount(float(lost))} a row"
    if best == found.reference:
        other, difference = order[1], found.differences[order[1]]
        gap, interval = _describe_difference(difference, 1)
        return [f"{text}; {other} loses {gap} more ({interval})."]
    gap, interval = _describe_difference(found.differences[best], -1)
    return [f"{text}; {gap} less than {found.reference} ({interval})."]


def _describe_forecasters_worse_than_mean(found: WalkForward) -> list[str]:
    """Return a sentence for each forecaster that loses more than the constant forecast: how much more it loses."""
    sentences = []
    for name, difference in found.differences_to_mean.items():
        if difference.mean > 0:
            gap, interval = _describe_difference(difference, 1)
            verdict = ": a constant forecast decides better" if difference.is_significant else ""
            sentences.append(f"{name} loses {gap} a row more than the {MEAN} ({interval}){verdict}.")
    return sentences


def _describe_difference(difference: PairedDifference, sign: int) -> tuple[str, str]:
    """Return two texts: the difference times ``sign``, and its interval."""
    ends = sorted(sign * end for end in difference.interval)
    mean, low, high = _round_alike(sign * difference.mean, *ends, error=difference.standard_error)
    return mean, f"95 % interval {low} to {high}{'' if difference.is_significant else ', which could be chance'}"


def _round_alike(*numbers: float, error: float) -> list[str]:
    """Return numbers as texts, rounded to two significant digits of their standard error ``error``."""
    known = 0 < error < math.inf
    decimals = max(0, 1 - math.floor(math.log10(error))) if known else _MOST_DECIMALS + 1
    texts = [format_amount(one) if decimals > _MOST_DECIMALS else f"{one:,.{decimals}f}" for one in numbers]
    return [text.replace("-", "−") for text in texts]

"""Statistics of ranks: mean ranks of methods over tasks, the tests of Friedman and Nemenyi, and sign tests.

After J. Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006), section 3.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pear.errors import ProblemError

LEVEL = 0.95


@dataclass(frozen=True)
class MeanRankStatistics:
    """The mean ranks of methods over several tasks, with Friedman's test. Rank 1 is the lowest regret.

    Attributes:
        ranks: the mean rank by method, in increasing order.
        tasks: the number of tasks.
        chi_square: the statistic of Friedman's test, corrected for ties.
        p_value: the p value of Friedman's test.
        critical_difference: Nemenyi's critical difference at 95 %. Methods whose mean ranks differ by at most this
            number cannot be told apart.
    """

    ranks: Mapping[str, float]
    tasks: int
    chi_square: float
    p_value: float
    critical_difference: float

    def groups(self) -> list[tuple[str, ...]]:
        """Return the maximal groups of two or more methods whose mean ranks differ by at most the critical difference.

        Example:
            >>> MeanRankStatistics({"a": 1.0, "b": 1.5, "c": 2.4}, 9, 0.0, 1.0, 1.0).groups()
            [('a', 'b'), ('b', 'c')]
        """
        names = list(self.ranks)
        found: list[tuple[int, int]] = []
        for first, name in enumerate(names):
            within = [one for one in names[first:] if self.ranks[one] - self.ranks[name] <= self.critical_difference]
            last = first + len(within) - 1
            if not found or last > found[-1][1]:
                found.append((first, last))
        return [tuple(names[first : last + 1]) for first, last in found if last > first]

    def as_good_as_best(self) -> tuple[str, ...]:
        """Return the method with the best mean rank, and all methods within the critical difference of it."""
        best = min(self.ranks.values())
        return tuple(name for name, rank in self.ranks.items() if rank - best <= self.critical_difference)


def critical_rank_difference(methods: int, tasks: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of mean ranks.

    Args:
        methods: the number of methods, k.
        tasks: the number of tasks, N.
        level: the probability that no two methods are found to differ, if all methods are equally good.

    Returns:
        ``q √(k (k + 1) / (6 N))``, where q is the studentised range's quantile at ``level``, divided by √2.

    Example:
        >>> round(critical_rank_difference(4, 14), 2)  # the example of Demšar, table 6
        1.25
    """
    q = float(stats.studentized_range.ppf(level, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * tasks))


def mean_rank_statistics(values: Mapping[str, Sequence[float]]) -> MeanRankStatistics:
    """Rank methods on every task, and test whether their mean ranks differ.

    Args:
        values: by method, a value for each task. Lower is better, and equal values share the mean of their ranks.

    Raises:
        ProblemError: there are fewer than three methods or two tasks, or a method lacks a task.

    Example:
        >>> found = mean_rank_statistics({"a": [1.0, 1.0, 2.0], "b": [2.0, 3.0, 3.0], "c": [3.0, 2.0, 1.0]})
        >>> {name: round(rank, 2) for name, rank in found.ranks.items()}
        {'a': 1.33, 'c': 2.0, 'b': 2.67}
    """
    lengths = {len(row) for row in values.values()}
    if len(values) < 3 or len(lengths) != 1 or min(lengths) < 2:
        raise ProblemError(
            f"ranks need at least three methods with a value for each of at least two tasks; got {len(values)} methods "
            f"with {sorted(lengths)} values"
        )
    table = np.array([list(row) for row in values.values()], dtype=float)
    ranks = stats.rankdata(table, axis=0).mean(axis=1)
    if np.ptp(table, axis=0).max() > 0:
        chi_square, p_value = (float(x) for x in stats.friedmanchisquare(*table))
    else:
        chi_square, p_value = 0.0, 1.0
    by_name = dict(sorted(zip(values, map(float, ranks), strict=True), key=lambda one: one[1]))
    limit = critical_rank_difference(len(values), table.shape[1])
    return MeanRankStatistics(by_name, table.shape[1], chi_square, p_value, limit)


@dataclass(frozen=True)
class SignTest:
    """A sign test of a method against a control method, over several tasks.

    Attributes:
        lower: the number of tasks on which the method has the lower value.
        higher: the number of tasks on which the method has the higher value.
        p_value: the p value of the two-sided test, adjusted by Holm's method for the number of tests.
    """

    lower: int
    higher: int
    p_value: float


def sign_test_statistics(values: Mapping[str, Sequence[float]], control: str) -> dict[str, SignTest]:
    """Compare every method with a control method by sign tests (Demšar 2006, sections 3.1.4 and 3.2.2).

    A sign test counts only wins and losses, so that the scales of the tasks do not matter. Ties do not count.

    Args:
        values: by method, a value for each task. Lower is better.
        control: the name of the control method.

    Example:
        >>> found = sign_test_statistics({"a": [1.0] * 8, "b": [2.0] * 8, "c": [1.0] * 7 + [0.5]}, "a")
        >>> found["b"], round(found["c"].p_value, 2)
        (SignTest(lower=0, higher=8, p_value=0.015625), 1.0)
    """
    own, counts, raw = np.asarray(values[control]), {}, {}
    for name, row in values.items():
        if name != control:
            lower, higher = int((np.asarray(row) < own).sum()), int((np.asarray(row) > own).sum())
            counts[name] = lower, higher
            raw[name] = float(stats.binomtest(lower, lower + higher).pvalue) if lower + higher else 1.0
    adjusted, largest = {}, 0.0
    for place, name in enumerate(sorted(raw, key=lambda one: raw[one])):
        largest = max(largest, min(1.0, (len(raw) - place) * raw[name]))
        adjusted[name] = largest
    return {name: SignTest(*counts[name], adjusted[name]) for name in counts}


def complete_rank_block(has: Mapping[str, frozenset[str]], tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return some methods and some tasks such that each of these methods has a result on each of these tasks.

    As long as a result is missing, the method or the task with the largest share of missing results is removed. If a
    method and a task have the same share, the method is removed. Of several methods, or several tasks, with the same
    share, the one that comes last in ``has`` or ``tasks`` is removed. The values of the results have no effect.

    Args:
        has: by method, the tasks with a result.
        tasks: the names of all tasks.

    Returns:
        The remaining methods, and the remaining tasks.

    Example:
        >>> complete_rank_block({"a": frozenset("xy"), "b": frozenset("xy"), "c": frozenset("x")}, "xy")
        (['a', 'b'], ['x', 'y'])
    """
    methods, left = list(has), list(tasks)
    while methods and left:
        missing = {name: sum(task not in has[name] for task in left) / len(left) for name in methods}
        lacking = {task: sum(task not in has[name] for name in methods) / len(methods) for task in left}
        worst_method = max(reversed(methods), key=lambda name: missing[name])
        worst_task = max(reversed(left), key=lambda task: lacking[task])
        if not missing[worst_method]:
            break
        if missing[worst_method] >= lacking[worst_task]:
            methods.remove(worst_method)
        else:
            left.remove(worst_task)
    return methods, left

"""Mean ranks of methods over tasks, with the tests of Friedman and Nemenyi.

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
class MeanRanks:
    """The mean rank of each method over several tasks; rank 1 is the lowest regret.

    Attributes:
        ranks: the mean rank by method, the best first.
        tasks: the number of tasks.
        chi_square: the statistic of Friedman's test, corrected for ties.
        p_value: its probability where all methods are equal.
        critical_difference: two methods whose mean ranks differ by less cannot be told apart (Nemenyi, 95 %).
    """

    ranks: Mapping[str, float]
    tasks: int
    chi_square: float
    p_value: float
    critical_difference: float

    def groups(self) -> list[tuple[str, ...]]:
        """Return the largest groups of methods whose mean ranks lie within the critical difference.

        Example:
            >>> MeanRanks({"a": 1.0, "b": 1.5, "c": 2.4}, 9, 0.0, 1.0, 1.0).groups()
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
        """Return the methods that cannot be told from the one with the best mean rank, that one included."""
        best = min(self.ranks.values())
        return tuple(name for name, rank in self.ranks.items() if rank - best <= self.critical_difference)


def critical_difference(methods: int, tasks: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of mean ranks.

    Args:
        methods: the number of methods, k.
        tasks: the number of tasks, N.
        level: one less the probability of any false difference.

    Returns:
        ``q √(k (k + 1) / 6 N)``, with q the quantile of the studentised range over √2.

    Example:
        >>> round(critical_difference(4, 14), 2)  # the example of Demšar, table 6
        1.25
    """
    q = float(stats.studentized_range.ppf(level, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * tasks))


def mean_ranks(values: Mapping[str, Sequence[float]]) -> MeanRanks:
    """Rank methods on every task, and test whether their mean ranks differ.

    Args:
        values: by method, one value for each task, lower is better; equal values share the mean of their ranks.

    Raises:
        ProblemError: there are fewer than three methods or two tasks, or a method lacks a task.

    Example:
        >>> found = mean_ranks({"a": [1.0, 1.0, 2.0], "b": [2.0, 3.0, 3.0], "c": [3.0, 2.0, 1.0]})
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
    limit = critical_difference(len(values), table.shape[1])
    return MeanRanks(by_name, table.shape[1], chi_square, p_value, limit)


@dataclass(frozen=True)
class SignTest:
    """One method against another over several tasks.

    Attributes:
        lower: the number of tasks on which its value is lower.
        higher: the number of tasks on which it is higher; the others are equal.
        p_value: the p value of the two-sided sign test, adjusted by Holm for the number of methods.
    """

    lower: int
    higher: int
    p_value: float


def sign_tests(values: Mapping[str, Sequence[float]], control: str) -> dict[str, SignTest]:
    """Compare every method with one of them, task by task (Demšar 2006, sections 3.1.4 and 3.2.2).

    The test counts wins and losses alone, so that the scales of the tasks do not matter; ties are left out.

    Args:
        values: by method, one value for each task, lower is better.
        control: the method that the others are compared with.

    Example:
        >>> found = sign_tests({"a": [1.0] * 8, "b": [2.0] * 8, "c": [1.0] * 7 + [0.5]}, "a")
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


def complete_block(has: Mapping[str, frozenset[str]], tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """Find methods and tasks such that every method has a result on every task.

    The method or the task with the largest share of missing results is left out, again and again until nothing is
    missing; of equals a method goes first, the last in the table. No result is looked at, only whether there is one.

    Args:
        has: by method, the tasks that it has a result for.
        tasks: the names of all tasks.

    Returns:
        The methods, and the tasks.

    Example:
        >>> complete_block({"a": frozenset("xy"), "b": frozenset("xy"), "c": frozenset("x")}, "xy")
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

"""The table of the cases of the study. Each case has a function that makes it, and a row of the table."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pear.errors import ProblemError
from pear_lab.data.path_regrets import PathCell
from pear_lab.forecasters import battery_cases, polynomial_cases, selection_cases
from pear_lab.forecasters.study_case import StudyCase
from pear_lab.tasks.building_task import FOLDS


@dataclass(frozen=True)
class CaseTableRow:
    """The description of one case, whose data is loaded later.

    Attributes:
        family: the name of the family of the case. A family is a group of one or more cases.
        title: the heading of the table of results.
        make: function that loads the case, from the seed and the flag ``quick``.
        folds: the number of splits; ``quick`` uses only the first one.
        seeds: the default number of seeds.
        drawn: whether the seed draws the samples; otherwise all seeds have the same test rows.
        period: the word for a sample, such as "day" or "week".
        unit: the unit of losses; "%" for a share of the best value.
        block: the number of neighbouring samples in a block of the bootstrap; 1 if samples are independent.
        published: the published experiment of Elmachtoub & Grigas with the same setting; None if there is none.
    """

    family: str
    title: str
    make: Callable[[int, bool], StudyCase]
    folds: int = 1
    seeds: int = 1
    drawn: bool = False
    period: str = "day"
    unit: str = "€"
    block: int = 7
    published: PathCell | None = None

    @property
    def relative(self) -> bool:
        """Whether losses are a share of the best value, in percent."""
        return self.unit == "%"


def _battery_case_table() -> dict[str, CaseTableRow]:
    """Return the rows of the cases with batteries."""
    b = battery_cases
    pjm: Any = {"family": "pjm", "unit": "$"}
    irish: Any = {"family": "irish-battery", "folds": b.IRISH_FOLDS}
    return {
        "pjm-time": CaseTableRow(
            title="Battery on PJM days, the last fifth", make=partial(b.pjm_battery_case, "time"), seeds=5, **pjm
        ),
        "pjm-shuffled": CaseTableRow(
            title="Battery on PJM days, shuffled", make=partial(b.pjm_battery_case, "shuffled"), seeds=5, block=1, **pjm
        ),
        "pjm-folds": CaseTableRow(
            title="Battery on PJM days, walk-forward",
            make=partial(b.pjm_battery_case, "folds"),
            folds=b.PJM_FOLDS,
            seeds=3,
            **pjm,
        ),
        "irish-battery": CaseTableRow(
            title="Battery on Irish days, a row for each day", make=partial(b.irish_battery_case, "wide"), **irish
        ),
        "irish-battery-long": CaseTableRow(
            title="Battery on Irish days, a row for each hour", make=partial(b.irish_battery_case, "long"), **irish
        ),
        "synthetic-battery": CaseTableRow(
            "synthetic-battery",
            "Battery on three years that are made up",
            b.synthetic_battery_case,
            folds=b.SYNTHETIC_FOLDS,
            seeds=3,
            drawn=True,
        ),
    }


def _selection_case_table() -> dict[str, CaseTableRow]:
    """Return the rows of the cases that select items."""
    s = selection_cases
    weeks: Any = {"family": "portfolio", "folds": s.WEEK_FOLDS, "period": "week", "unit": "% of wealth", "block": 4}
    return {
        "irish-knapsack": CaseTableRow(
            "irish-knapsack", "Knapsack of Irish half-hours", s.knapsack_selection_case, folds=battery_cases.IRISH_FOLDS
        ),
        "portfolio": CaseTableRow(
            title="Portfolios of sp100, a row for each week", make=partial(s.portfolio_selection_case, "wide"), **weeks
        ),
        "portfolio-long": CaseTableRow(
            title="Portfolios of sp100, a row for each stock", make=partial(s.portfolio_selection_case, "long"), **weeks
        ),
        "energy": CaseTableRow(
            "energy", "Energy: the lab's knapsack, a row for each half-hour", s.energy_selection_case, seeds=5
        ),
        "building": CaseTableRow(
            "building",
            "Building: properties within a budget",
            s.building_selection_case,
            folds=FOLDS,
            seeds=5,
            drawn=True,
            period="choice",
            unit="price units",
            block=1,
        ),
    }


def _polynomial_case_table() -> dict[str, CaseTableRow]:
    """Return the rows of the cases with polynomial costs."""
    p, rows = polynomial_cases, {}
    shared: Any = {"seeds": 3, "drawn": True, "unit": "%", "block": 1}
    for size in p.SPO_SIZES:
        for noise in p.SPO_NOISES:
            for degree in p.SPO_DEGREES:
                name, make = f"spo-{size}-{degree}-{noise:g}", partial(p.polynomial_spo_case, size, degree, noise)
                title = f"n = {size:,}, degree {degree}, noise {noise:g}"
                cell = PathCell(size, degree, noise)
                rows[name] = CaseTableRow("spo-paths", title, make, period="path", published=cell, **shared)
    for task, period in (("paths", "path"), ("knapsack", "knapsack")):
        for degree, noise in p.PAPER_CELLS:
            name, make = f"paper-{task}-{degree}-{noise:g}", partial(p.polynomial_paper_case, task, degree, noise)
            rows[name] = CaseTableRow(
                "paper", f"{task}, degree {degree}, noise {noise:g}", make, period=period, **shared
            )
    return rows


CASES = {**_battery_case_table(), **_selection_case_table(), **_polynomial_case_table()}
"""All rows by the name of the case, in the order of the tables of results."""

FAMILIES = tuple(dict.fromkeys(row.family for row in CASES.values()))


def find_table_cases(words: Sequence[str], quick: bool = False) -> list[str]:
    """Return the names of the given cases, and of all cases of the given families, each once.

    Args:
        words: names of cases and of families.
        quick: whether to keep only the first and the last case of a family with more than two.

    Raises:
        ProblemError: a name is unknown.

    Example:
        >>> find_table_cases(["pjm", "energy"])
        ['pjm-time', 'pjm-shuffled', 'pjm-folds', 'energy']
        >>> find_table_cases(["spo-paths"], quick=True)
        ['spo-100-1-0', 'spo-5000-8-0.5']
    """
    found: list[str] = []
    for word in words:
        family = [name for name, row in CASES.items() if word == row.family]
        if not family and word not in CASES:
            close = difflib.get_close_matches(word, (*FAMILIES, *CASES), n=1) or FAMILIES
            raise ProblemError(f"there is no task {word!r}; did you mean {' or '.join(close)}?")
        found += ([family[0], family[-1]] if quick and len(family) > 2 else family) or [word]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=4)
def make_table_case(name: str, seed: int, quick: bool) -> StudyCase:
    """Return a case with its data. The last four are cached, because several forecasters are run on a case in turn.

    Raises:
        DataError: the file of the case is missing, or has other contents than expected.
        MissingExtraError: the package that reads the file is not installed.
    """
    return CASES[name].make(seed, quick)

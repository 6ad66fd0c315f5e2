"""The cases of the study, by family. A new case is a function that makes it and a row here."""

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
class CaseRow:
    """One case, before its data is read.

    Attributes:
        family: the name by which the command asks for it; a family has one case or several.
        title: heading of its table.
        make: called with the seed and with whether few rows will do.
        folds: number of its splits; one under ``--quick``.
        seeds: number of seeds where the user names none.
        drawn: whether the seed draws the samples; otherwise all seeds are tested on the same rows.
        period: what a row is: "day", "week".
        unit: the unit of the money that is lost in a period; "%" for a share of the best value.
        block: neighbouring periods that the bootstrap draws together; 1 where periods are independent.
        published: the cell of Elmachtoub & Grigas that it repeats; None where it repeats none.
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
        """Whether losses are shown in percent of the best value."""
        return self.unit == "%"


def _battery_rows() -> dict[str, CaseRow]:
    b = battery_cases
    pjm: Any = {"family": "pjm", "unit": "$"}
    irish: Any = {"family": "irish-battery", "folds": b.IRISH_FOLDS}
    return {
        "pjm-time": CaseRow(title="Battery on PJM days, the last fifth", make=partial(b.pjm, "time"), seeds=5, **pjm),
        "pjm-shuffled": CaseRow(
            title="Battery on PJM days, shuffled", make=partial(b.pjm, "shuffled"), seeds=5, block=1, **pjm
        ),
        "pjm-folds": CaseRow(
            title="Battery on PJM days, walk-forward", make=partial(b.pjm, "folds"), folds=b.PJM_FOLDS, seeds=3, **pjm
        ),
        "irish-battery": CaseRow(
            title="Battery on Irish days, a row for each day", make=partial(b.irish_battery, "wide"), **irish
        ),
        "irish-battery-long": CaseRow(
            title="Battery on Irish days, a row for each hour", make=partial(b.irish_battery, "long"), **irish
        ),
        "synthetic-battery": CaseRow(
            "synthetic-battery",
            "Battery on three years that are made up",
            b.synthetic_battery,
            folds=b.SYNTHETIC_FOLDS,
            seeds=3,
            drawn=True,
        ),
    }


def _selection_rows() -> dict[str, CaseRow]:
    s = selection_cases
    weeks: Any = {"family": "portfolio", "folds": s.WEEK_FOLDS, "period": "week", "unit": "% of wealth", "block": 4}
    return {
        "irish-knapsack": CaseRow(
            "irish-knapsack", "Knapsack of Irish half-hours", s.irish_knapsack, folds=battery_cases.IRISH_FOLDS
        ),
        "portfolio": CaseRow(
            title="Portfolios of sp100, a row for each week", make=partial(s.portfolio_of_stocks, "wide"), **weeks
        ),
        "portfolio-long": CaseRow(
            title="Portfolios of sp100, a row for each stock", make=partial(s.portfolio_of_stocks, "long"), **weeks
        ),
        "energy": CaseRow("energy", "Energy: the lab's knapsack, a row for each half-hour", s.energy, seeds=5),
        "building": CaseRow(
            "building",
            "Building: properties within a budget",
            s.building_investment,
            folds=FOLDS,
            seeds=5,
            drawn=True,
            period="choice",
            unit="price units",
            block=1,
        ),
    }


def _polynomial_rows() -> dict[str, CaseRow]:
    p, rows = polynomial_cases, {}
    shared: Any = {"seeds": 3, "drawn": True, "unit": "%", "block": 1}
    for size in p.SPO_SIZES:
        for noise in p.SPO_NOISES:
            for degree in p.SPO_DEGREES:
                name, make = f"spo-{size}-{degree}-{noise:g}", partial(p.spo_paths, size, degree, noise)
                title = f"n = {size:,}, degree {degree}, noise {noise:g}"
                cell = PathCell(size, degree, noise)
                rows[name] = CaseRow("spo-paths", title, make, period="path", published=cell, **shared)
    for task, period in (("paths", "path"), ("knapsack", "knapsack")):
        for degree, noise in p.PAPER_CELLS:
            name, make = f"paper-{task}-{degree}-{noise:g}", partial(p.paper_cell, task, degree, noise)
            rows[name] = CaseRow("paper", f"{task}, degree {degree}, noise {noise:g}", make, period=period, **shared)
    return rows


CASES = {**_battery_rows(), **_selection_rows(), **_polynomial_rows()}
"""Name → case, in the order of the tables."""

FAMILIES = tuple(dict.fromkeys(row.family for row in CASES.values()))


def cases_of(words: Sequence[str], quick: bool = False) -> list[str]:
    """The names of the cases that these names of cases and families stand for, each once.

    Args:
        words: names of cases and of families.
        quick: keep the first and the last case of a family that has more than two.

    Example:
        >>> cases_of(["pjm", "energy"])
        ['pjm-time', 'pjm-shuffled', 'pjm-folds', 'energy']
        >>> cases_of(["spo-paths"], quick=True)
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
def make_case(name: str, seed: int, quick: bool) -> StudyCase:
    """Make a case. The last ones made are kept, because several forecasters are run on a case in turn.

    Raises:
        DataError: its file is missing or cannot be used.
        MissingExtraError: a package to read it with is not installed.
    """
    return CASES[name].make(seed, quick)

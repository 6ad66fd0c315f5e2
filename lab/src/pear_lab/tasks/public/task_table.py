"""The table of all public tasks."""

from __future__ import annotations

from pear.errors import ProblemError
from pear_lab.tasks.public.budget_allocation import BUDGET_ALLOCATION
from pear_lab.tasks.public.cubic_top_k import TOP_K_ROW
from pear_lab.tasks.public.energy_knapsack import ENERGY_KNAPSACK
from pear_lab.tasks.public.energy_scheduling import ENERGY_SCHEDULING
from pear_lab.tasks.public.facility_location import FACILITY_LOCATION
from pear_lab.tasks.public.matching import MATCHING
from pear_lab.tasks.public.newsvendor_inventory import INVENTORY, NEWSVENDOR
from pear_lab.tasks.public.pjm_battery import BATTERY_ROWS
from pear_lab.tasks.public.planted_paths import PLANTED_ROWS
from pear_lab.tasks.public.predicted_weights_and_capacities import PREDICTED_CAPACITIES, PREDICTED_WEIGHTS
from pear_lab.tasks.public.public_task import PublicTask
from pear_lab.tasks.public.pyepo_knapsack import KNAPSACK_ROW
from pear_lab.tasks.public.random_lps import RANDOM_LP_ROW
from pear_lab.tasks.public.routes import CVRP, TSP
from pear_lab.tasks.public.spo_paths import PATH_ROWS
from pear_lab.tasks.public.spo_portfolio import PORTFOLIO_ROW

PUBLIC_TASKS: tuple[PublicTask, ...] = (
    *PATH_ROWS,
    *PLANTED_ROWS,
    RANDOM_LP_ROW,
    TOP_K_ROW,
    KNAPSACK_ROW,
    PORTFOLIO_ROW,
    *BATTERY_ROWS,
    MATCHING,
    FACILITY_LOCATION,
    TSP,
    CVRP,
    ENERGY_SCHEDULING,
    ENERGY_KNAPSACK,
    BUDGET_ALLOCATION,
    PREDICTED_WEIGHTS,
    PREDICTED_CAPACITIES,
    NEWSVENDOR,
    INVENTORY,
)


def task_table_row(name: str) -> PublicTask:
    """Return the public task with this name.

    Raises:
        ProblemError: no task has this name; the message lists all names.
    """
    rows = {row.name: row for row in PUBLIC_TASKS}
    if name not in rows:
        raise ProblemError(f"there is no public task {name!r}; there is {', '.join(rows)}")
    return rows[name]

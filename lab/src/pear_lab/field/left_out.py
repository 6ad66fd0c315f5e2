"""The tasks and methods that the published comparison leaves out, each with the reason.

A task or method is left out because its runs take too long, because few methods apply to the task, or because a similar
task or method is run. Regrets are never a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pear.pages.page import PageGrid, PageSection
from pear_lab.field.field_methods import field_methods
from pear_lab.field.task_results import TaskResults
from pear_lab.tasks.public import PUBLIC_TASKS

_MORE_SAMPLES = "it is a task above with more samples to train on, of which the budget would take no more"
_FEW_APPLY = "most methods need a linear objective and predicted costs alone, so that it could not be ranked on"
_DEAR = "five epochs of SPO+, a try, take longer than the time of a try, so that the cap would choose"

TASKS: Mapping[str, str] = {
    "spo-paths-1000-noise-0": _MORE_SAMPLES,
    "spo-paths-1000-noise-0.5": _MORE_SAMPLES,
    "planted-paths-400": _MORE_SAMPLES,
    "pjm-battery": _FEW_APPLY,
    "pjm-battery-shuffled": _FEW_APPLY,
    "predicted-capacities": _FEW_APPLY,
    "newsvendor": _FEW_APPLY,
    "inventory": _FEW_APPLY,
    "energy-scheduling": _DEAR,
    "energy-knapsack": _DEAR,
}
"""The public tasks that the published comparison does not run, each with the reason."""

METHODS: Mapping[str, str] = {
    "spo+relaxed": "it is SPO+ on the relaxation",
    "dpo-multiplicative": "it is DPO with another noise",
    "aimle": "it is I-MLE with a step that adapts",
    "cmap": "it is NCE with the minimum of the pool in the place of its mean",
    "ltr-pointwise": "it is the listwise LTR with another loss on the same pool",
    "ltr-pairwise": "it is the listwise LTR with another loss on the same pool",
    "rfwo": "it has the decisions of RFYL and another loss",
    "pfyl-fit": "its runs did not end in the time that there was; SPO+ by pear.fit shows what pear.fit brings",
    "lava": "it does not apply to three of the tasks, and the neighbours of its vertices take seconds on others",
}
"""The methods that the published comparison does not run, each with the reason."""


def left_out_section(found: Sequence[TaskResults]) -> PageSection | None:
    """Return the section that lists the tasks and methods without runs, with reasons; None if all have runs."""
    there = {one.task.name for one in found}, {name for one in found for name in one.done}
    tasks = [(one.title, TASKS.get(one.name, "not run")) for one in PUBLIC_TASKS if one.name not in there[0]]
    methods = [
        (row.title, METHODS.get(row.name, "not run")) for row in field_methods().values() if row.name not in there[1]
    ]
    if not tasks and not methods:
        return None
    words = (
        "The comparison covers what fits into its time. What is left out was decided before the runs, by what it costs "
        "and by what applies, and by no result, unless its runs did not end. The command above runs what is "
        "named in --tasks and --methods."
    )
    grids = [
        PageGrid(name, (name[:-1], "Reason"), tuple(rows)) for name, rows in (("Tasks", tasks), ("Methods", methods))
    ]
    return PageSection("left-out", "What is left out", (words,), tuple(grid for grid in grids if grid.rows))

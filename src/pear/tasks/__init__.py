"""Example tasks: shortest paths and knapsacks, which draw synthetic samples, and portfolios."""

from typing import Any

from pear.plugins import find_plugin
from pear.tasks.knapsack import Knapsack, knapsack, random_knapsack
from pear.tasks.portfolio import Portfolio, portfolio
from pear.tasks.shortest_path import ShortestPath, shortest_path
from pear.tasks.task import Samples, Split, Task

__all__ = [
    "Knapsack",
    "Portfolio",
    "Samples",
    "ShortestPath",
    "Split",
    "Task",
    "knapsack",
    "portfolio",
    "random_knapsack",
    "shortest_path",
]

_MOVED = (
    *("Building", "building", "building_split", "energy_split", "market", "metrics"),
    *("SharedLinear", "splits", "Subset", "TaskSplit"),
)


def __getattr__(name: str) -> Any:
    """Return the function ``name`` of a plug-in, which makes a task.

    If the task has moved to pear-lab, raise an ``ImportError`` that names its new place.
    """
    if name in _MOVED:
        raise ImportError(f"pear.tasks.{name} is now pear_lab.tasks.{name}; run pip install pear-lab")
    if not name.startswith("_") and (made := find_plugin("task", name)) is not None:
        return made
    raise AttributeError(f"module 'pear.tasks' has no attribute {name!r}")

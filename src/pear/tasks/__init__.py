"""Ready-made decision problems with data: what is decided, samples to learn from, and the score of a forecast."""

from pear.tasks import metrics
from pear.tasks.building import Building, building, building_split
from pear.tasks.energy import energy_split
from pear.tasks.knapsack import Knapsack, knapsack, random_knapsack
from pear.tasks.portfolio import Portfolio, portfolio
from pear.tasks.shortest_path import ShortestPath, shortest_path
from pear.tasks.splits import SharedLinear, Subset, TaskSplit
from pear.tasks.task import Samples, Split, Task

__all__ = [
    "Building",
    "Knapsack",
    "Portfolio",
    "Samples",
    "SharedLinear",
    "ShortestPath",
    "Split",
    "Subset",
    "Task",
    "TaskSplit",
    "building",
    "building_split",
    "energy_split",
    "knapsack",
    "metrics",
    "portfolio",
    "random_knapsack",
    "shortest_path",
]

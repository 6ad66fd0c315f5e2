"""Ready-made decision problems with data: what is decided, samples to learn from, and the score of a forecast."""

from pear.tasks import metrics
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
    "metrics",
    "portfolio",
    "random_knapsack",
    "shortest_path",
]

"""Ready-made decision problems with data: what is decided, samples to learn from, and the score of a forecast."""

from pear.tasks import metrics
from pear.tasks.building import Building, building, building_parts
from pear.tasks.building_data import BuildingData, fetch_building, load_building
from pear.tasks.energy import EnergyData, energy_parts, load_energy
from pear.tasks.knapsack import Knapsack, knapsack, random_knapsack
from pear.tasks.parts import Part, Parts, SharedLinear
from pear.tasks.portfolio import Portfolio, portfolio
from pear.tasks.shortest_path import ShortestPath, shortest_path
from pear.tasks.task import Samples, Split, Task

__all__ = [
    "Building",
    "BuildingData",
    "EnergyData",
    "Knapsack",
    "Part",
    "Parts",
    "Portfolio",
    "Samples",
    "SharedLinear",
    "ShortestPath",
    "Split",
    "Task",
    "building",
    "building_parts",
    "energy_parts",
    "fetch_building",
    "knapsack",
    "load_building",
    "load_energy",
    "metrics",
    "portfolio",
    "random_knapsack",
    "shortest_path",
]

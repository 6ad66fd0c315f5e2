"""Loaders of real data sets. Each loader checks what it reads; only ``load_pjm_hours`` fills in missing values."""

from pear_lab.data.building_data import BuildingData, fetch_building, load_building
from pear_lab.data.energy_data import EnergyData, load_energy
from pear_lab.data.path_regrets import PathCell, load_path_regrets
from pear_lab.data.pjm_data import PjmDays, load_pjm_days
from pear_lab.data.prices import Prices, fetch_prices, load_prices, read_prices

__all__ = [
    "BuildingData",
    "EnergyData",
    "PathCell",
    "PjmDays",
    "Prices",
    "fetch_building",
    "fetch_prices",
    "load_building",
    "load_energy",
    "load_path_regrets",
    "load_pjm_days",
    "load_prices",
    "read_prices",
]

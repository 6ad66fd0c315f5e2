"""Small files of the laboratory's data sets: buildings, Irish half-hours and prices."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl

from pear_lab.data.building_data import HEADER
from pear_lab.data.energy_data import PRICES, WEIGHTS

BUILDINGS = 60
ENERGY_HEADER = (
    "#DateTime Holiday HolidayFlag DayOfWeek WeekOfYear Day Month Year PeriodOfDay ForecastWindProduction SystemLoadEA "
    "SMPEA ORKTemperature ORKWindspeed CO2Intensity ActualWindProduction SystemLoadEP2 SMPEP2"
)
ENERGY_DAYS = 40
ENERGY_WEIGHTS = np.tile([3, 5, 7, 5], 12)


def building_rows(count: int = BUILDINGS, seed: int = 0) -> list[list[Any]]:
    """Return rows of properties with prices linear in their features, and with costs in steps of five."""
    random = np.random.default_rng(seed)
    table = random.normal(size=(count, len(HEADER))).round(4)
    table[:, 4] = random.integers(1, 4, count)
    table[:, -2] = 1000 + 300 * table[:, 5] + 200 * table[:, 11]
    table[:, -1] = 5 * random.integers(4, 100, count)
    return table.tolist()


def write_building_workbook(
    path: Path, table: list[list[Any]], sheet: str = "Data", header: tuple[str, ...] = HEADER
) -> Path:
    book = openpyxl.Workbook()
    page = book.active
    page.title = sheet
    for line in (["PROJECT DATES"], list(header), *table):
        page.append(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)
    return path


def energy_lines(days: int = ENERGY_DAYS) -> list[str]:
    """Return lines in which prices follow the forecast wind and load; columns of actual values are noise or NaN."""
    random = np.random.default_rng(0)
    found = [ENERGY_HEADER]
    for day in range(days):
        for period in range(48):
            wind, load, noise = random.normal(size=3).round(3)
            price = round(60 + 20 * load - 10 * wind + noise, 3)
            name = '"Bank Holiday, New" 1' if day == 2 else '"" 0'
            found.append(
                f'"x {day} 00:00" {name} {day % 7} 44 {1 + day % 28} {1 + day // 28} 2012 {period}  {wind}  {load} '
                f"{round(price + 5 * noise, 3)}  NaN 1.0  2.0 {noise} {noise} {price}"
            )
    return found


def write_energy_files(folder: Path, text: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PRICES).write_text("\n".join(text) + "\n")
    np.savez(folder / WEIGHTS, weights=ENERGY_WEIGHTS)
    return folder


def working_days(first: str, count: int) -> list[str]:
    start = datetime.date.fromisoformat(first)
    every = (start + datetime.timedelta(days=d) for d in range(2 * count))
    return [day.isoformat() for day in every if day.weekday() < 5][:count]


def write_prices(path: Path, rows: list[str], header: str = "Date,A,B") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path

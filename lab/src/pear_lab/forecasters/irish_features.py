"""Features of Irish days that are known the day before, a row for each day or for each hour.

Days whose lagged days are missing are left out, so that all functions return the same D days.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear_lab.data.energy_data import FEATURES, EnergyData

Array = NDArray[np.float64]

LAGS = (1, 7)
"""Days before, whose prices are features: yesterday and the same day of last week."""

FORECASTS = ("SMPEA", "SystemLoadEA", "ForecastWindProduction")
"""The forecasts of price, load and wind that are published the day before."""

_HOURS = 24


class LaggedDays(NamedTuple):
    """The days all of whose lagged days are there.

    Attributes:
        dates: D dates.
        rows: (D,) their rows in the data.
        lagged: for each of ``LAGS``, the rows (D,) of the days this long before.
    """

    dates: list[datetime.date]
    rows: NDArray[np.intp]
    lagged: list[NDArray[np.intp]]


def days_with_lags(data: EnergyData) -> LaggedDays:
    """Find the days all of whose lagged days are there."""
    dates = [datetime.date.fromisoformat(day) for day in data.dates]
    at = {day: row for row, day in enumerate(dates)}
    days = [day for day in dates if all(day - datetime.timedelta(lag) in at for lag in LAGS)]
    lagged = [np.array([at[day - datetime.timedelta(lag)] for day in days]) for lag in LAGS]
    return LaggedDays(days, np.array([at[day] for day in days]), lagged)


def hourly_prices(data: EnergyData) -> Array:
    """The prices (D, 24) of the days that have features."""
    return _hourly_means(data.prices.numpy())[days_with_lags(data).rows]


def wide_features(data: EnergyData) -> Array:
    """Features of each day, (D, 130).

    Twenty-four of each of ``FORECASTS``, and of the prices of yesterday and of a week ago. Then the weekday (7 columns
    of 0 and 1), the holiday, and sine and cosine of the season.
    """
    days, prices = days_with_lags(data), _hourly_means(data.prices.numpy())
    forecasts = [_hourly_forecast(data, name)[days.rows] for name in FORECASTS]
    return np.hstack([*forecasts, *(prices[rows] for rows in days.lagged), _calendar(data, days)])


def long_features(data: EnergyData) -> Array:
    """Features of each hour, (D, 24, 49).

    The hour (24 columns of 0 and 1); each of ``FORECASTS`` at this hour, the hour before and the hour after; the price
    of this hour on the lagged days; mean, least, greatest and range of the day's forecast prices; and the calendar.
    """
    days, prices = days_with_lags(data), _hourly_means(data.prices.numpy())
    shape = (len(days.rows), _HOURS)
    columns = [np.broadcast_to(np.eye(_HOURS), (*shape, _HOURS))]
    for name in FORECASTS:
        day = _hourly_forecast(data, name)[days.rows]
        around = np.pad(day, ((0, 0), (1, 1)), mode="edge")
        columns.append(np.stack([day, around[:, :-2], around[:, 2:]], axis=2))
    columns.append(np.stack([prices[rows] for rows in days.lagged], axis=2))
    price = _hourly_forecast(data, FORECASTS[0])[days.rows]
    day_summary = np.column_stack([price.mean(1), price.min(1), price.max(1), np.ptp(price, axis=1)])
    of_day = np.hstack([day_summary, _calendar(data, days)])
    columns.append(np.broadcast_to(of_day[:, None], (*shape, of_day.shape[1])))
    return np.concatenate(columns, axis=2)


def _hourly_forecast(data: EnergyData, name: str) -> Array:
    return _hourly_means(data.features[..., FEATURES.index(name)].numpy())


def _hourly_means(half_hours: Array) -> Array:
    """Means (D, 24) of half-hours (D, 48), two at a time."""
    return half_hours.reshape(len(half_hours), _HOURS, 2).mean(2)


def _calendar(data: EnergyData, days: LaggedDays) -> Array:
    """Weekday (7 columns), holiday, and sine and cosine of the day of the year: (D, 10)."""
    weekday = np.eye(7)[[day.weekday() for day in days.dates]]
    holiday = data.features[days.rows, 0, FEATURES.index("HolidayFlag")].numpy()
    angle = 2 * np.pi * np.array([day.timetuple().tm_yday for day in days.dates]) / 365.25
    return np.column_stack([weekday, holiday, np.sin(angle), np.cos(angle)])

"""Features of Irish days that are known the day before, with a row for each day or for each hour.

Only days for which the prices of one day before and of seven days before are known have features. Their number is D.
The public functions return the features and the prices of these D days.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear_lab.data.energy_data import FEATURES, EnergyData

Array = NDArray[np.float64]

LAGS = (1, 7)
"""The ages, in days, of the prices that are features: yesterday and the same day of last week."""

FORECASTS = ("SMPEA", "SystemLoadEA", "ForecastWindProduction")
"""The forecasts of price, load and wind that are published the day before."""

_HOURS = 24


class IrishFeatureDays(NamedTuple):
    """The days that have features.

    Attributes:
        dates: the D dates.
        rows: (D,) the rows of these days in the data.
        lagged: for each number of days in ``LAGS``, the rows (D,) of the days that lie so many days earlier.
    """

    dates: list[datetime.date]
    rows: NDArray[np.intp]
    lagged: list[NDArray[np.intp]]


def find_irish_feature_days(data: EnergyData) -> IrishFeatureDays:
    """Return the days for which the data also has the day before and the day seven days before."""
    dates = [datetime.date.fromisoformat(day) for day in data.dates]
    at = {day: row for row, day in enumerate(dates)}
    days = [day for day in dates if all(day - datetime.timedelta(lag) in at for lag in LAGS)]
    lagged = [np.array([at[day - datetime.timedelta(lag)] for day in days]) for lag in LAGS]
    return IrishFeatureDays(days, np.array([at[day] for day in days]), lagged)


def irish_feature_prices(data: EnergyData) -> Array:
    """Return the hourly prices (D, 24) of the days that have features."""
    return _irish_feature_means(data.prices.numpy())[find_irish_feature_days(data).rows]


def wide_irish_features(data: EnergyData) -> Array:
    """Return the features (D, 130) of each day.

    They are the 24 hourly values of each forecast of ``FORECASTS``; the 24 prices of the day before, and of the day
    seven days before; and the calendar: indicators of the weekday (7) and of a holiday, and sine and cosine of the
    season.
    """
    days, prices = find_irish_feature_days(data), _irish_feature_means(data.prices.numpy())
    forecasts = [_irish_feature_forecast(data, name)[days.rows] for name in FORECASTS]
    return np.hstack([*forecasts, *(prices[rows] for rows in days.lagged), _irish_calendar_features(data, days)])


def long_irish_features(data: EnergyData) -> Array:
    """Return the features (D, 24, 49) of each hour.

    They are indicators of the hour (24); each forecast of ``FORECASTS`` at the hour, the hour before and the hour after
    (9); the prices of the same hour on the day before and on the day seven days before (2); mean, minimum, maximum and
    range of the day's forecast prices (4); and the calendar (10).
    """
    days, prices = find_irish_feature_days(data), _irish_feature_means(data.prices.numpy())
    shape = (len(days.rows), _HOURS)
    columns = [np.broadcast_to(np.eye(_HOURS), (*shape, _HOURS))]
    for name in FORECASTS:
        day = _irish_feature_forecast(data, name)[days.rows]
        around = np.pad(day, ((0, 0), (1, 1)), mode="edge")
        columns.append(np.stack([day, around[:, :-2], around[:, 2:]], axis=2))
    columns.append(np.stack([prices[rows] for rows in days.lagged], axis=2))
    price = _irish_feature_forecast(data, FORECASTS[0])[days.rows]
    day_summary = np.column_stack([price.mean(1), price.min(1), price.max(1), np.ptp(price, axis=1)])
    of_day = np.hstack([day_summary, _irish_calendar_features(data, days)])
    columns.append(np.broadcast_to(of_day[:, None], (*shape, of_day.shape[1])))
    return np.concatenate(columns, axis=2)


def _irish_feature_forecast(data: EnergyData, name: str) -> Array:
    """Return the hourly means (days, 24) of the forecast ``name`` on all days of the data."""
    return _irish_feature_means(data.features[..., FEATURES.index(name)].numpy())


def _irish_feature_means(half_hours: Array) -> Array:
    """Return hourly means (days, 24) of half-hourly values (days, 48)."""
    return half_hours.reshape(len(half_hours), _HOURS, 2).mean(2)


def _irish_calendar_features(data: EnergyData, days: IrishFeatureDays) -> Array:
    """Return the calendar (D, 10): indicators of weekday (7) and holiday, sine and cosine of the day of the year."""
    weekday = np.eye(7)[[day.weekday() for day in days.dates]]
    holiday = data.features[days.rows, 0, FEATURES.index("HolidayFlag")].numpy()
    angle = 2 * np.pi * np.array([day.timetuple().tm_yday for day in days.dates]) / 365.25
    return np.column_stack([weekday, holiday, np.sin(angle), np.cos(angle)])

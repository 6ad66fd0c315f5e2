"""The rolling battery: its data, features and the objective of a rollout, on hours that the test makes up."""

import gzip

import numpy as np
import pytest
import torch

from pear.errors import DataError
from pear_lab.benchmarks import rolling_benchmark
from pear_lab.benchmarks.benchmark import Callbacks
from pear_lab.data.pjm_data import load_pjm_hours
from pear_lab.tasks.rolling_battery import HOURS, INPUTS, RollingBatteryNetwork, rolling_battery

COUNT = 700


def write_hours(folder, change=lambda row, i: row):
    times = np.datetime64("2011-01-03T00", "h") + np.arange(COUNT)
    random = np.random.default_rng(0)
    lines = ["datetime,da_price,load_forecast,temp_dca"]
    for i, when in enumerate(times):
        price, load, warm = 40 + 10 * np.sin(i / 24 * 2 * np.pi) + random.normal(), 9e4 + i, 50.0 + i % 7
        row = [str(when).replace("T", " ") + ":00:00", f"{price:.2f}", f"{load}", "" if i == 3 else f"{warm}"]
        lines.append(",".join(change(row, i)))
    file = folder / "pjm_hours.csv.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    return file


def test_hours_are_read_and_gaps_of_temperature_filled(tmp_path):
    hours = load_pjm_hours(write_hours(tmp_path))
    assert len(hours.price) == COUNT
    assert float(hours.temperature[3]) == pytest.approx((52.0 + 54.0) / 2)
    assert str(hours.times[25]) == "2011-01-04T01"
    with pytest.raises(DataError, match="without a gap"):
        load_pjm_hours(write_hours(tmp_path, lambda row, i: ["2011-01-03 00:00:00", *row[1:]] if i == 5 else row))
    with pytest.raises(DataError, match="finite numbers"):
        load_pjm_hours(write_hours(tmp_path, lambda row, i: [row[0], "", *row[2:]] if i == 5 else row))


def test_features_know_the_past_and_forecasts_alone(tmp_path):
    task = rolling_battery(load_pjm_hours(write_hours(tmp_path)))
    assert task.features.shape == (COUNT, INPUTS)
    later = rolling_battery(
        load_pjm_hours(write_hours(tmp_path, lambda row, i: [row[0], "99", *row[2:]] if i == 620 else row))
    )
    changed = (task.features != later.features).any(1).nonzero()[:, 0]
    assert int(changed.min()) == 621  # the price of an hour is no feature before the hour is over
    assert bool(task.features.isfinite().all())


def test_the_objective_is_that_of_a_simulation(tmp_path):
    task = rolling_battery(load_pjm_hours(write_hours(tmp_path)))
    hours = task.test_hours(30)
    network = RollingBatteryNetwork(torch.zeros(HOURS), torch.ones(HOURS)).eval()
    with torch.no_grad():
        forecasts = torch.stack([task.windows(hours), network(task.features[hours].float()).double()])
    perfect, fresh = task.evaluate(forecasts).tolist()
    found = task.rolling.simulate("perfect", task.prices, start=task.test, steps=30)
    assert perfect == pytest.approx(100 * (found.mean + 0.1 * 0.25), abs=1e-9)
    assert perfect < fresh


def test_bench_rolling_measures_a_step():
    rows = []
    settings = rolling_benchmark.RollingSettings(hours=6, steps=2, rollouts=2, repeats=1)
    rolling_benchmark.RollingBenchmark(settings, Callbacks(rows.append, lambda note: None, lambda line: None)).run()
    assert [row.who for row in rows] == ["pear"]
    assert rows[0].plan_seconds == pytest.approx(rows[0].step_seconds / 4)
    assert rows[0].gradient_error == 0.0
    assert [one.name for one in rolling_benchmark.RollingBenchmark.series(rows)] == ["pear"]

"""The Irish half-hours: how they are read, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lab_files import ENERGY_DAYS, ENERGY_HEADER, ENERGY_WEIGHTS, energy_lines, write_energy_files

from pear.errors import DataError
from pear_lab.data import EnergyData, load_energy
from pear_lab.data.energy_data import FEATURES, PRICES, WEIGHTS, load_energy_demand


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> EnergyData:
    return load_energy(write_energy_files(tmp_path_factory.mktemp("energy"), energy_lines()))


def test_days_features_and_prices_are_read(data: EnergyData) -> None:
    assert data.features.shape == (ENERGY_DAYS, 48, len(FEATURES))
    assert (data.dates[0], data.dates[28], data.dropped) == ("2012-01-01", "2012-02-01", ())
    fields = energy_lines()[1 + 3 * 48 + 5].split()
    assert data.prices[3, 5] == float(fields[-1])
    assert data.features[3, 5].tolist() == [0, 3, 44, 1, 5, *map(float, fields[-9:-6])]
    assert data.features[2, 0, 0] == 1  # a name of several words is one field
    assert data.weights.tolist() == ENERGY_WEIGHTS.tolist()


def test_no_feature_is_known_only_afterwards(tmp_path: Path, data: EnergyData) -> None:
    changed = [energy_lines()[0]]
    for line in energy_lines()[1:]:
        fields = line.rsplit(" ", 3)
        changed.append(" ".join([fields[0], "9", "9", str(float(fields[3]) + 1)]))
    assert torch.equal(load_energy(write_energy_files(tmp_path, changed)).features, data.features)


def without(at: int, text: str = "NaN") -> list[str]:
    """Return the lines of six days with ``text`` in place of the price of line ``at``."""
    found = energy_lines(6)
    found[at] = found[at].rsplit(" ", 1)[0] + f" {text}"
    return found


def test_days_with_gaps_are_dropped_by_name_or_refused(tmp_path: Path) -> None:
    gaps = without(1 + 2 * 48 + 7)
    del gaps[1 + 4 * 48]  # a day of 47 half-hours
    folder = write_energy_files(tmp_path, gaps)
    found = load_energy(folder)
    assert found.dropped == ("2012-01-03", "2012-01-05")
    assert found.dates == ("2012-01-01", "2012-01-02", "2012-01-04", "2012-01-06")
    assert not found.features.isnan().any()
    with pytest.raises(DataError, match="days with gaps: 2012-01-03, 2012-01-05"):
        load_energy(folder, gaps="raise")


def test_demand_without_a_whole_day_is_refused(tmp_path: Path) -> None:
    assert load_energy_demand(write_energy_files(tmp_path, energy_lines(2))).values.shape == (2, 48, 4)
    with pytest.raises(DataError, match="no day of 48 half-hours"):
        load_energy_demand(write_energy_files(tmp_path, energy_lines(2)[:48]))


def test_a_gap_in_a_column_that_is_not_used_is_none(data: EnergyData) -> None:
    assert "NaN" in energy_lines()[1]
    assert len(data.dates) == ENERGY_DAYS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (without(3, "dear"), r"line 4 \(SMPEP2\) must be a number; got 'dear'"),
        ([ENERGY_HEADER.replace("SMPEA", "SMP"), *energy_lines(1)[1:]], "'SMPEA' is missing"),
        ([energy_lines(1)[0], "1 2 3"], "line 2 has 3 fields; the first line names 18"),
        ([ENERGY_HEADER], "no day of 48 half-hours"),
        ([], "first line must name the columns"),
    ],
)
def test_a_file_that_is_not_right_is_refused(tmp_path: Path, text: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_energy(write_energy_files(tmp_path, text))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (write_energy_files(tmp_path, energy_lines(1)) / PRICES).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="no text in UTF-8"):
        load_energy(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found none of .*energy/prices2013.dat.*ICON"):
        load_energy(tmp_path)
    write_energy_files(tmp_path, energy_lines(1))
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(DataError, match="pass weights="):
        load_energy(tmp_path)
    assert load_energy(tmp_path, weights=[1.0] * 48).weights.sum() == 48
    with pytest.raises(DataError, match=r"48 positive numbers; got shape \(3,\)"):
        load_energy(tmp_path, weights=[1.0] * 3)

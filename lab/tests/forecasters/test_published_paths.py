"""The published replications of paths: their means by cell, and errors for other files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from real_data import real_data

from pear.errors import DataError
from pear_lab.data.path_regrets import METHODS, REPLICATIONS, PathCell, load_path_regrets
from pear_lab.forecasters.study_runs import StudyRunKey, StudyRunResult
from pear_lab.forecasters.study_tables import study_tables_markdown

HEADER = (
    "grid_dim,n_train,polykernel_degree,polykernel_noise_half_width,"
    + ",".join(f"{begin}_spoloss_test" for begin in METHODS.values())
    + ",zstar_avg_test"
)


def write(folder: Path, *lines: str, header: str = HEADER) -> Path:
    (folder / "spo").mkdir(parents=True)
    with gzip.open(folder / "spo" / REPLICATIONS, "wt", encoding="utf-8") as stream:
        stream.write("\n".join([header, *lines]) + "\n")
    return folder


def test_replications_are_averaged_by_cell(tmp_path: Path) -> None:
    folder = write(tmp_path, "5,100,8,0.5,1,2,3,4,10", "5,100,8,0.5,1,2,3,4,20", "2,100,8,0.5,9,9,9,9,9")
    found = load_path_regrets(folder)
    assert found == {
        PathCell(100, 8, 0.5): pytest.approx(
            {"SPO+": 7.5, "least squares": 15.0, "absolute error": 22.5, "random forest": 30.0}
        )
    }


def test_other_contents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'zstar_avg_test'"):
        load_path_regrets(write(tmp_path / "a", header=HEADER.removesuffix(",zstar_avg_test")))
    with pytest.raises(DataError, match="no replications on a grid of 5"):
        load_path_regrets(write(tmp_path / "b", "2,100,8,0.5,1,2,3,4,10"))


def test_the_published_numbers_of_the_hardest_cells() -> None:
    found = load_path_regrets(real_data("spo"))
    assert len(found) == 30
    assert round(found[PathCell(100, 8, 0.0)]["SPO+"], 2) == 10.00
    assert round(found[PathCell(5000, 8, 0.5)]["random forest"], 2) == 9.72


def test_published_numbers_stand_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = StudyRunKey("spo-100-8-0.5", 0, "ridge", 0, False)
    results = {key: StudyRunResult(key, [1.0, 2.0], [10.0, 10.0], 1.0, 1.0)}
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    assert "published" not in study_tables_markdown(results, quick=False)
    write(tmp_path, "5,100,8,0.5,1,2,3,4,10")
    text = study_tables_markdown(results, quick=False)
    assert "published: SPO+ | published: least squares" in text
    assert "| n = 100, degree 8, noise 0.5 | 15.00 | 10.00 | 20.00 | 30.00 | 40.00 |" in text

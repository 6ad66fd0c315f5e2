"""Published regrets of shortest paths: the single replications behind a figure of Elmachtoub & Grigas 2022."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pear.errors import DataError
from pear_lab.data.data_files import find_data_file, parse_data_file_cell, read_data_file_table

REPLICATIONS = "shortest_path_replications.csv.gz"
FOLDER = "spo"
METHODS = {"SPO+": "SPOplus", "least squares": "LS", "absolute error": "Absolute", "random forest": "RF"}
"""The names of the methods, each with the first word of its columns in the file."""

_CELL = ("n_train", "polykernel_degree", "polykernel_noise_half_width")
_BEST = "zstar_avg_test"
_REMEDY = "it comes with the repository of Elmachtoub & Grigas (MIT); put it into the folder 'spo' of $PEAR_DATA"


class PathCell(NamedTuple):
    """A setting of the published experiment.

    Attributes:
        size: the number of training samples.
        degree: the degree of the polynomial that makes the costs.
        noise: the half-width of the noise.
    """

    size: int
    degree: int
    noise: float


def load_path_regrets(path: str | Path | None = None, grid: int = 5) -> dict[PathCell, dict[str, float]]:
    """Return the mean published regret in percent, by cell and by method.

    The mean is that of the replications. The arguments are those of ``load_path_replications``.
    """
    cells = load_path_replications(path, grid)
    return {cell: {name: float(np.mean(own)) for name, own in rows.items()} for cell, rows in cells.items()}


def load_path_replications(path: str | Path | None = None, grid: int = 5) -> dict[PathCell, dict[str, list[float]]]:
    """Return the published regrets of all replications in percent, by cell and by method.

    The methods are those in ``METHODS``. The regret of a replication is 100 · (mean regret) / (mean best cost) on its
    test samples.

    Args:
        path: the file or its folder; ``$PEAR_DATA`` if omitted.
        grid: the number of nodes along a side of the grid, 2 to 5.

    Raises:
        DataError: there is no file, a column is missing, a cell is no number, or no replication has such a grid.
    """
    file = find_data_file(FOLDER, (REPLICATIONS, REPLICATIONS.removesuffix(".gz")), path, _REMEDY)
    header, lines = read_data_file_table(file)
    columns = {name: f"{begin}_spoloss_test" for name, begin in METHODS.items()}
    needed = ("grid_dim", *_CELL, *columns.values(), _BEST)
    missing = [name for name in needed if name not in header]
    if missing:
        raise DataError(f"{file} has no column {missing[0]!r}; its columns: {', '.join(header)}")
    shares: dict[PathCell, dict[str, list[float]]] = {}
    for line, fields in lines.items():
        named = dict(zip(header, fields, strict=True))
        read = [parse_data_file_cell(named[name], f"{file}, line {line} ({name})") for name in needed]
        side, size, degree, noise, *numbers = read
        if side == grid:
            own = shares.setdefault(PathCell(int(size), int(degree), noise), {name: [] for name in columns})
            for name, number in zip(columns, numbers, strict=False):
                own[name].append(100 * number / numbers[-1])
    if not shares:
        raise DataError(f"{file} has no replications on a grid of {grid} × {grid}")
    return shares

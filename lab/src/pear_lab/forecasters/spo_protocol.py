"""The experiment of Elmachtoub & Grigas 2022 on paths: one replication under their protocol, and a table of many.

The forecast is linear with an intercept. SPO+ and least squares are minimised with a lasso penalty on the other
coefficients; of ten weights, the one with the least regret on a quarter more samples is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pear.errors import DataError
from pear.tasks import shortest_path
from pear.tasks.path_graph import PathGraph
from pear_lab.data.path_regrets import PathCell
from pear_lab.experiments.commit import current_commit
from pear_lab.forecasters.spo_plus_program import SPOPlusProgram

Array = NDArray[np.float64]

TEST_SAMPLES = 10_000
PENALTIES = 100 * np.logspace(-8, 0, 10)
"""Weights of the lasso penalty, from the smallest on."""

NEAR = 0.02
"""The smoothing from which SPO+ goes on with the next weight."""

METHODS = ("SPO+", "least squares")
_STILL = 1e-10
"""The largest change of coefficients, as a share of the largest, at which a sweep is the last one."""


class Replication(NamedTuple):
    """What is run: a cell of their figure, and the seed of its data."""

    cell: PathCell
    seed: int


@dataclass(frozen=True)
class ReplicationResult:
    """The results of a replication, by the names of ``METHODS``.

    Attributes:
        size, degree, noise, seed: what was run.
        regret: test regret over the best costs, in percent.
        penalty: the weight of the lasso penalty that was kept.
        seconds: the time of all fits.
        commit: the commit of the code; None where it is not known.
    """

    size: int
    degree: int
    noise: float
    seed: int
    regret: dict[str, float]
    penalty: dict[str, float]
    seconds: float
    commit: str | None = None

    @property
    def key(self) -> Replication:
        """What was run."""
        return Replication(PathCell(self.size, self.degree, self.noise), self.seed)


def list_paths(graph: PathGraph) -> Array:
    """All paths from source to target, (K, arcs), 1 for arcs on the path.

    Example:
        >>> list_paths(shortest_path((5, 5)).graph).shape
        (70, 40)
    """
    found, stack = [], [(graph.source, tuple[int, ...]())]
    while stack:
        node, path = stack.pop()
        if node == graph.target:
            found.append(np.bincount(path, minlength=len(graph.arcs)).astype(np.float64))
        stack += [(head, (*path, arc)) for arc, (tail, head) in enumerate(graph.arcs) if tail == node]
    return np.stack(found)


def run_replication(key: Replication, test_samples: int = TEST_SAMPLES) -> ReplicationResult:
    """Draw the data of a replication, fit both methods and test them.

    As in the original experiment, costs are not divided by 3.5 to the power of the degree. A division would change the
    effect of the lasso penalty, which depends on the unit of the costs.
    """
    (size, degree, noise), seed = key
    task, held_out = shortest_path((5, 5)), size // 4
    samples = task.samples(size + held_out + test_samples, degree, noise, seed, dtype=torch.float64)
    X = np.column_stack([np.ones(len(samples.features)), samples.features.numpy()])
    C, paths = samples.costs.numpy() * 3.5**degree, list_paths(task.graph)
    train, hold, test = slice(0, size), slice(size, size + held_out), slice(size + held_out, None)
    began = time.perf_counter()
    regret, penalty = {}, {}
    for name, fit in zip(METHODS, (fit_spo_plus, fit_least_squares), strict=True):
        fits = fit(X[train], C[train], paths)
        scores = [regret_percent(B, X[hold], C[hold], paths) for B in fits]
        best = int(np.argmin(scores))
        regret[name], penalty[name] = regret_percent(fits[best], X[test], C[test], paths), float(PENALTIES[best])
    seconds = round(time.perf_counter() - began, 2)
    return ReplicationResult(size, degree, noise, seed, regret, penalty, seconds, current_commit())


def fit_spo_plus(X: Array, C: Array, decisions: Array) -> list[Array]:
    """Minimise SPO+ for each weight of ``PENALTIES``; returns coefficients (m, q) for each.

    Args:
        X: (n, q) features; the first column is one, and is not penalised.
        C: (n, m) costs.
        decisions: (K, m) all decisions.
    """
    program, fits = SPOPlusProgram.from_samples(X, C, decisions), list[Array]()
    for weight in PENALTIES:
        columns = weight * (np.arange(X.shape[1]) > 0)
        if fits:
            fits.append(program.minimise(columns, fits[-1], NEAR).coefficients)
        else:
            fits.append(program.minimise(columns, np.zeros((C.shape[1], X.shape[1]))).coefficients)
    return fits


def fit_least_squares(X: Array, C: Array, decisions: Array | None = None, sweeps: int = 1000) -> list[Array]:
    """Minimise ``1/(2n) ‖XBᵀ − C‖² + weight Σⱼ |Bⱼ|`` for each weight of ``PENALTIES``, as ``fit_spo_plus`` does SPO+.

    Coordinates are minimised in turn until the coefficients do not change by a share of 10⁻¹⁰.
    """
    n = len(X)
    gram, right = X.T @ X / n, X.T @ C / n
    B = np.asarray(np.linalg.solve(gram, right), dtype=np.float64)
    fits = list[Array]()
    for weight in PENALTIES:
        for _ in range(sweeps):
            before = B.copy()
            for j in range(len(gram)):
                free = right[j] - gram[j] @ B + gram[j, j] * B[j]
                B[j] = np.sign(free) * np.maximum(np.abs(free) - weight * (j > 0), 0) / gram[j, j]
            if np.abs(B - before).max() <= _STILL * np.abs(B).max():
                break
        fits.append(B.T.copy())
    return fits


def regret_percent(B: Array, X: Array, C: Array, decisions: Array) -> float:
    """The regret of the forecasts XBᵀ over the best costs, in percent."""
    values = C @ decisions.T
    chosen = (X @ B.T @ decisions.T).argmin(1)
    best = values.min(1).sum()
    return float(100 * (values[np.arange(len(values)), chosen].sum() - best) / best)


def read_replications(file: Path) -> dict[Replication, ReplicationResult]:
    """The results in a file of JSON lines; a last line that is cut off is left out.

    Raises:
        DataError: a line is not a result.
    """
    lines = file.read_text("utf-8").split("\n")[:-1] if file.is_file() else []
    found = {}
    for number, line in enumerate(lines, start=1):
        try:
            result = ReplicationResult(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise DataError(f"{file}, line {number} is no replication: {error}; delete the line") from error
        found[result.key] = result
    return found


def append_replication(file: Path, result: ReplicationResult) -> None:
    """Add a line to a file of results."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(result), allow_nan=False) + "\n")


def run_missing(
    keys: Sequence[Replication], file: Path, jobs: Callable[..., Iterable[ReplicationResult]] = map
) -> Iterable[ReplicationResult]:
    """Run what the file has no result of, and yield each result after it is written.

    Args:
        keys: what is wanted.
        file: the file of the results, one line of JSON each.
        jobs: ``map``, or one that runs calls side by side.
    """
    done = read_replications(file)
    for result in jobs(run_replication, [key for key in keys if key not in done]):
        append_replication(file, result)
        yield result


def protocol_table(
    results: Iterable[ReplicationResult], published: Mapping[PathCell, Mapping[str, Sequence[float]]]
) -> str:
    """A table in Markdown: for every cell and method the published mean, ours, and the difference in standard errors.

    Args:
        results: the results of any cells.
        published: the replications of each cell and method, in percent; a cell that is missing has no difference.
    """
    ours: dict[PathCell, list[ReplicationResult]] = {}
    for result in results:
        ours.setdefault(result.key.cell, []).append(result)
    lines = ["| n | noise | degree | runs | method | published | here | difference in standard errors |"]
    lines.append("|---:|---:|---:|---:|---|---:|---:|---:|")
    for cell in sorted(ours, key=lambda one: (one.size, one.noise, one.degree)):
        for name in METHODS:
            own = [result.regret[name] for result in ours[cell]]
            theirs = published.get(cell, {}).get(name, [])
            words = [_with_error(theirs), _with_error(own), _difference(theirs, own)]
            lines.append(
                f"| {cell.size:,} | {cell.noise:g} | {cell.degree} | {len(own)} | {name} | {' | '.join(words)} |"
            )
    return "\n".join(lines) + "\n"


def _with_error(values: Sequence[float]) -> str:
    """The mean and its standard error."""
    if len(values) < 2:
        return "".join(f"{value:.4f}" for value in values)
    return f"{np.mean(values):.4f} ± {_error(values):.4f}"


def _difference(theirs: Sequence[float], ours: Sequence[float]) -> str:
    """The difference of the means, over the standard error of that difference."""
    if min(len(theirs), len(ours)) < 2:
        return ""
    error = float(np.hypot(_error(theirs), _error(ours)))
    gap = float(np.mean(ours) - np.mean(theirs))
    return "0" if gap == 0 else f"{gap / error:+.2f}"


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))

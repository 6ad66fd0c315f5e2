"""The experiment of Elmachtoub & Grigas 2022 on shortest paths: single replications, and a table of their results.

Forecasts are linear with an intercept. SPO+ and least squares are minimised with a lasso penalty on all other
coefficients. Of ten weights of the penalty, the one with the least regret on validation samples is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pear.tasks import shortest_path
from pear.tasks.path_graph import PathGraph
from pear_lab.data.path_regrets import PathCell
from pear_lab.experiments.commit import current_commit
from pear_lab.forecasters.json_lines import append_json_line, read_json_lines
from pear_lab.forecasters.spo_plus_program import SPOPlusProgram

Array = NDArray[np.float64]

TEST_SAMPLES = 10_000
PENALTIES = 100 * np.logspace(-8, 0, 10)
"""The weights of the lasso penalty, in increasing order."""

NEAR = 0.02
"""The first smoothing τ of SPO+ for all weights but the first. They start from the previous weight's minimum."""

METHODS = ("SPO+", "least squares")
_STILL = 1e-10
"""Coordinate descent ends if no coefficient changes by more than this, relative to the largest coefficient."""


class SpoProtocolKey(NamedTuple):
    """The identity of a replication: a setting of the published experiment, and the seed of the data."""

    cell: PathCell
    seed: int


@dataclass(frozen=True)
class SpoProtocolResult:
    """The result of a replication.

    Attributes:
        size, degree, noise, seed: the setting and the seed of the replication.
        regret: for each of ``METHODS``, the total test regret in percent of the total best cost.
        penalty: for each of ``METHODS``, the chosen weight of the lasso penalty.
        seconds: the time of all fits, with their validation and test.
        commit: the commit of the code; None if it is unknown.
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
    def key(self) -> SpoProtocolKey:
        """The replication that gave this result: its setting and its seed."""
        return SpoProtocolKey(PathCell(self.size, self.degree, self.noise), self.seed)


def list_spo_protocol_paths(graph: PathGraph) -> Array:
    """Return all K paths from source to target as rows of a matrix (K, arcs): 1 for arcs on the path, 0 otherwise.

    Example:
        >>> list_spo_protocol_paths(shortest_path((5, 5)).graph).shape
        (70, 40)
    """
    found, stack = [], [(graph.source, tuple[int, ...]())]
    while stack:
        node, path = stack.pop()
        if node == graph.target:
            found.append(np.bincount(path, minlength=len(graph.arcs)).astype(np.float64))
        stack += [(head, (*path, arc)) for arc, (tail, head) in enumerate(graph.arcs) if tail == node]
    return np.stack(found)


def run_spo_protocol(key: SpoProtocolKey, test_samples: int = TEST_SAMPLES) -> SpoProtocolResult:
    """Draw the data of a replication, fit SPO+ and least squares, and return their test results.

    As in the original experiment, costs are not divided by 3.5 to the power of the degree, unlike those of
    ``pear.tasks``. The lasso penalty depends on the unit of the costs.
    """
    (size, degree, noise), seed = key
    task, held_out = shortest_path((5, 5)), size // 4
    samples = task.samples(size + held_out + test_samples, degree, noise, seed, dtype=torch.float64)
    X = np.column_stack([np.ones(len(samples.features)), samples.features.numpy()])
    C, paths = samples.costs.numpy() * 3.5**degree, list_spo_protocol_paths(task.graph)
    train, hold, test = slice(0, size), slice(size, size + held_out), slice(size + held_out, None)
    began = time.perf_counter()
    regret, penalty = {}, {}
    for name, fit in zip(METHODS, (fit_spo_protocol_by_spo_plus, fit_spo_protocol_by_least_squares), strict=True):
        fits = fit(X[train], C[train], paths)
        scores = [spo_protocol_regret(B, X[hold], C[hold], paths) for B in fits]
        best = int(np.argmin(scores))
        regret[name], penalty[name] = spo_protocol_regret(fits[best], X[test], C[test], paths), float(PENALTIES[best])
    seconds = round(time.perf_counter() - began, 2)
    return SpoProtocolResult(size, degree, noise, seed, regret, penalty, seconds, current_commit())


def fit_spo_protocol_by_spo_plus(X: Array, C: Array, decisions: Array) -> list[Array]:
    """Minimise SPO+ for each weight of ``PENALTIES``, and return the coefficients (m, q) for each.

    Args:
        X: (n, q) the q features of n samples. The first column holds ones, and its coefficients are not penalised.
        C: (n, m) the m costs of each sample.
        decisions: (K, m) all K decisions.
    """
    program, fits = SPOPlusProgram.from_samples(X, C, decisions), list[Array]()
    for weight in PENALTIES:
        columns = weight * (np.arange(X.shape[1]) > 0)
        if fits:
            fits.append(program.minimise(columns, fits[-1], NEAR).coefficients)
        else:
            fits.append(program.minimise(columns, np.zeros((C.shape[1], X.shape[1]))).coefficients)
    return fits


def fit_spo_protocol_by_least_squares(
    X: Array, C: Array, decisions: Array | None = None, sweeps: int = 1000
) -> list[Array]:
    """Minimise ``1/(2n) ‖XBᵀ − C‖² + weight Σ |Bᵢⱼ|`` over B (m, q) for each weight of ``PENALTIES``.

    The sum Σ leaves out the first column of B. Coordinate descent ends if a sweep changes no coefficient by more than
    10⁻¹⁰ times the largest coefficient.

    Args:
        X, C, decisions: as in ``fit_spo_protocol_by_spo_plus``; the decisions are ignored.
        sweeps: the largest number of sweeps for each weight.

    Returns:
        The coefficients (m, q) for each weight.
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


def spo_protocol_regret(B: Array, X: Array, C: Array, decisions: Array) -> float:
    """Return the total regret of the forecasts XBᵀ in percent of the total best cost.

    Args:
        B: (m, q) the coefficients.
        X, C, decisions: as in ``fit_spo_protocol_by_spo_plus``.
    """
    values = C @ decisions.T
    chosen = (X @ B.T @ decisions.T).argmin(1)
    best = values.min(1).sum()
    return float(100 * (values[np.arange(len(values)), chosen].sum() - best) / best)


def read_spo_protocol_results(file: Path) -> dict[SpoProtocolKey, SpoProtocolResult]:
    """Read the results in a file of JSON lines. An incomplete last line is ignored.

    Raises:
        DataError: a line cannot be decoded.
    """
    return {one.key: one for one in read_json_lines(file, lambda line: SpoProtocolResult(**line), "replication")}


def run_missing_spo_protocol(
    keys: Sequence[SpoProtocolKey], file: Path, jobs: Callable[..., Iterable[SpoProtocolResult]] = map
) -> Iterable[SpoProtocolResult]:
    """Run the replications that have no result in the file, and yield each result after it is written.

    Args:
        keys: the replications.
        file: the file of the results, with a line of JSON for each.
        jobs: ``map``, or a function with its interface that makes the calls in parallel.
    """
    done = read_spo_protocol_results(file)
    for result in jobs(run_spo_protocol, [key for key in keys if key not in done]):
        append_json_line(file, asdict(result))
        yield result


def spo_protocol_table(
    results: Iterable[SpoProtocolResult], published: Mapping[PathCell, Mapping[str, Sequence[float]]]
) -> str:
    """Return a Markdown table of the published means, our means, and their differences in standard errors.

    Args:
        results: the results of replications of any settings.
        published: the published regrets, in percent, by setting and method. Without them the cell of a difference is
            empty.
    """
    ours: dict[PathCell, list[SpoProtocolResult]] = {}
    for result in results:
        ours.setdefault(result.key.cell, []).append(result)
    lines = ["| n | noise | degree | runs | method | published | here | difference in standard errors |"]
    lines.append("|---:|---:|---:|---:|---|---:|---:|---:|")
    for cell in sorted(ours, key=lambda one: (one.size, one.noise, one.degree)):
        for name in METHODS:
            own = [result.regret[name] for result in ours[cell]]
            theirs = published.get(cell, {}).get(name, [])
            words = [_spo_protocol_mean(theirs), _spo_protocol_mean(own), _spo_protocol_difference(theirs, own)]
            lines.append(
                f"| {cell.size:,} | {cell.noise:g} | {cell.degree} | {len(own)} | {name} | {' | '.join(words)} |"
            )
    return "\n".join(lines) + "\n"


def _spo_protocol_mean(values: Sequence[float]) -> str:
    """Return the mean and its standard error as text. A single value has no error, and no values give ""."""
    if len(values) < 2:
        return "".join(f"{value:.4f}" for value in values)
    return f"{np.mean(values):.4f} ± {_spo_protocol_error(values):.4f}"


def _spo_protocol_difference(theirs: Sequence[float], ours: Sequence[float]) -> str:
    """Return the difference of the means divided by its standard error, as text.

    The text is empty if ``theirs`` or ``ours`` has fewer than two values.
    """
    if min(len(theirs), len(ours)) < 2:
        return ""
    error = float(np.hypot(_spo_protocol_error(theirs), _spo_protocol_error(ours)))
    gap = float(np.mean(ours) - np.mean(theirs))
    return "0" if gap == 0 else f"{gap / error:+.2f}"


def _spo_protocol_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))

"""Benchmark: PEAR's sparse interior-point method compared with packaged solvers on large sparse programs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from pear.compile.thread_pools import one_thread
from pear.decisions import solve
from pear.errors import SolveError
from pear.problem import Problem
from pear.tasks import shortest_path
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series

Program = tuple[Problem, np.ndarray, float]
"""A problem, costs (B, n) and the smoothing λ."""


@dataclass(frozen=True)
class SparseSolverSettings(BenchSettings):
    """Time the solution of large sparse programs by several solvers, each to a verified solution."""

    structures: tuple[str, ...] = setting(
        ("paths", "batteries", "transport", "coupling"), "Structures, of paths, batteries, transport, coupling."
    )
    scale: float = setting(1.0, "Factor for the sizes of all structures.", positive=True)
    solvers: tuple[str, ...] = setting(("interior-point", "piqp", "clarabel"), "Sources of candidates.")
    batch: int = setting(2, "The number of samples of a measurement.", least=1)
    repeats: int = setting(3, "The number of measurements of each point; the fastest counts.", least=1)
    seed: int = setting(0, "Seed of costs and programs.")


@dataclass(frozen=True)
class SparseSolverRow:
    """The time and the accuracy of one solver on one structure.

    Attributes:
        structure, solver: the names of the structure and of the solver.
        n: the number of variables.
        processor: the smallest processor seconds per sample.
        kkt_residual: the largest residual of the batch.
    """

    structure: str
    solver: str
    n: int
    processor: float
    kkt_residual: float


class SparseSolversBenchmark(Benchmark[SparseSolverSettings, SparseSolverRow]):
    """The benchmark of solvers on large sparse programs."""

    options = SparseSolverSettings
    labels = Labels("pear.solve", "variables", "processor seconds a sample")
    columns: ClassVar = {
        "structure": lambda row: row.structure,
        "solver": lambda row: row.solver,
        "variables": lambda row: f"{row.n:,}",
        "processor\ns a sample": lambda row: format_number(row.processor),
        "KKT\nresidual": lambda row: format_error(row.kkt_residual),
    }

    def run(self) -> None:
        """Measure every structure with every solver, on one thread."""
        settings = self.settings
        with one_thread():
            for structure, solver in itertools.product(settings.structures, settings.solvers):
                self.callbacks.say(f"{structure} by {solver}")
                rng = np.random.default_rng(settings.seed)
                problem, costs, smoothing = SPARSE_STRUCTURES[structure](rng, settings.scale, settings.batch)
                try:
                    seconds, residual = _measure_sparse_solver(settings, problem, costs, smoothing, solver)
                except SolveError as reason:
                    self.callbacks.on_note(f"{structure} by {solver} failed: {reason}")
                    continue
                self.add_row(SparseSolverRow(structure, solver, problem.n, seconds / settings.batch, residual))

    @classmethod
    def series(cls, rows: list[SparseSolverRow]) -> list[Series]:
        """Make a series for each solver: processor seconds over variables."""
        solvers = dict.fromkeys(row.solver for row in rows)
        mine = {name: [row for row in rows if row.solver == name] for name in solvers}
        return [Series(name, [r.n for r in points], [r.processor for r in points]) for name, points in mine.items()]


BENCHMARK = SparseSolversBenchmark


def _measure_sparse_solver(
    settings: SparseSolverSettings, problem: Problem, costs: np.ndarray, smoothing: float, solver: str
) -> tuple[float, float]:
    """Solve a program several times. Return the least processor seconds of a solve, and the largest KKT residual."""
    seconds, residual = [], 0.0
    for k in range(settings.repeats + 1):  # the first is the warm-up
        began = time.process_time()
        solution = solve(problem, costs * (1 + 1e-3 * k), smoothing=smoothing, solver=solver)
        seconds.append(time.process_time() - began)
        residual = max(residual, float(solution.kkt_residual.max()))
    return min(seconds[1:]), residual


def draw_paths_for_sparse_solvers(rng: np.random.Generator, scale: float, batch: int) -> Program:
    """Draw shortest paths on a square grid with 100 · ``scale`` nodes on a side."""
    side = max(2, round(100 * scale))
    problem = shortest_path((side, side)).problem
    return problem, rng.uniform(0.5, 2.0, (batch, problem.n)), 0.1


def draw_batteries_for_sparse_solvers(rng: np.random.Generator, scale: float, batch: int, hours: int = 168) -> Program:
    """Draw 20 · ``scale`` batteries behind one connection, with charge, discharge and level in every hour."""
    units = max(1, round(20 * scale))
    eye, before = sp.eye_array(hours), sp.diags_array(np.ones(hours - 1), offsets=-1, shape=(hours, hours))
    A = sp.kron(sp.eye_array(units), sp.hstack([-0.95 * eye, eye / 0.95, eye - before]))
    G = sp.kron(np.ones((1, units)), sp.hstack([eye, -eye, 0 * eye]))
    first = np.tile(np.r_[0.5, np.zeros(hours - 1)], units)
    most = np.tile(np.repeat([0.25, 0.25, 1.0], hours), units)
    price = rng.normal(1.0, 0.4, (batch, hours))
    costs = np.tile(np.hstack([price, -0.98 * price, 0 * price]), units)
    limit = np.full(hours, 0.15 * units)
    problem = Problem(A=sp.csr_array(A), b=first, G=sp.csr_array(G), h=limit, lb=0.0, ub=most)
    return problem, costs, 0.01


def draw_transport_for_sparse_solvers(rng: np.random.Generator, scale: float, batch: int) -> Program:
    """Draw a transport problem from 50 · ``scale`` sources to 100 · ``scale`` destinations."""
    sources, targets = max(2, round(50 * scale)), max(2, round(100 * scale))
    out, into = (
        sp.kron(sp.eye_array(sources), np.ones((1, targets))),
        sp.kron(np.ones((1, sources)), sp.eye_array(targets)),
    )
    supply, demand = rng.uniform(1.0, 2.0, sources), rng.uniform(0.2, 1.0, targets)
    demand *= 0.9 * supply.sum() / demand.sum()
    problem = Problem(A=sp.csr_array(into), b=demand, G=sp.csr_array(out), h=supply, lb=0.0)
    return problem, rng.uniform(1.0, 3.0, (batch, problem.n)), 0.1


def draw_coupling_for_sparse_solvers(rng: np.random.Generator, scale: float, batch: int) -> Program:
    """Draw a QP whose curvature couples 4,000 · ``scale`` variables at random. Its Cholesky factors are dense."""
    n = max(20, round(4_000 * scale))
    factor = sp.random_array((n, n), density=2 / n, rng=rng)
    A = sp.csr_array(sp.random_array((n // 10, n), density=5 / n, rng=rng))
    Q = sp.csr_array(factor @ factor.T + 0.1 * sp.eye_array(n))
    problem = Problem(Q=Q, A=A, b=A @ rng.uniform(0.0, 1.0, n), lb=0.0, ub=1.0)
    return problem, rng.normal(size=(batch, n)), 0.0


SPARSE_STRUCTURES: dict[str, Callable[[np.random.Generator, float, int], Program]] = {
    "paths": draw_paths_for_sparse_solvers,
    "batteries": draw_batteries_for_sparse_solvers,
    "transport": draw_transport_for_sparse_solvers,
    "coupling": draw_coupling_for_sparse_solvers,
}

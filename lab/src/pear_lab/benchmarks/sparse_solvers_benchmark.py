"""Benchmark: our sparse interior-point method compared with packaged solvers on large programs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from pear.decisions import solve
from pear.errors import SolveError
from pear.problem import Problem
from pear.tasks import shortest_path
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable

Program = tuple[Problem, np.ndarray, float]
"""A problem, costs (B, n) and the smoothing λ."""

LABELS = Labels("pear.solve", "variables", "processor seconds a sample")


@dataclass(frozen=True)
class SparseSolverSettings(Settings):
    """Time the solution of large sparse programs by several solvers, each to a verified solution."""

    structures: tuple[str, ...] = option(
        ("paths", "batteries", "transport", "coupling"), "Structures, of paths, batteries, transport, coupling."
    )
    scale: float = option(1.0, "Factor for the sizes of all structures.", positive=True)
    solvers: tuple[str, ...] = option(("interior-point", "piqp", "clarabel"), "Sources of candidates.")
    batch: int = option(2, "The number of samples of a measurement.", least=1)
    repeats: int = option(3, "The number of measurements of each point; the fastest counts.", least=1)
    seed: int = option(0, "Seed of costs and programs.")


SETTINGS = SparseSolverSettings


@dataclass(frozen=True)
class SparseSolverRow:
    """One structure and one solver.

    Attributes:
        structure, solver: their names.
        n: number of variables.
        processor: the least processor seconds a sample.
        kkt_residual: the largest of the batch.
    """

    structure: str
    solver: str
    n: int
    processor: float
    kkt_residual: float


def run(settings: SparseSolverSettings, callbacks: Callbacks) -> None:
    """Measure every structure with every solver, one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for structure, solver in itertools.product(settings.structures, settings.solvers):
            callbacks.say(f"{structure} by {solver}")
            rng = np.random.default_rng(settings.seed)
            problem, costs, smoothing = STRUCTURES[structure](rng, settings.scale, settings.batch)
            try:
                seconds, residual = _measure_sparse_solver(settings, problem, costs, smoothing, solver)
            except SolveError as reason:
                callbacks.on_note(f"{structure} by {solver} failed: {reason}")
                continue
            callbacks.on_row(SparseSolverRow(structure, solver, problem.n, seconds / settings.batch, residual))
    finally:
        torch.set_num_threads(before)


def _measure_sparse_solver(
    settings: SparseSolverSettings, problem: Problem, costs: np.ndarray, smoothing: float, solver: str
) -> tuple[float, float]:
    """The least processor seconds of several solves, and the largest KKT residual."""
    seconds, residual = [], 0.0
    for k in range(settings.repeats + 1):  # the first is the warm-up
        began = time.process_time()
        solution = solve(problem, costs * (1 + 1e-3 * k), smoothing=smoothing, solver=solver)
        seconds.append(time.process_time() - began)
        residual = max(residual, float(solution.kkt_residual.max()))
    return min(seconds[1:]), residual


def path_programs(rng: np.random.Generator, scale: float, batch: int) -> Program:
    """Shortest paths on a grid of 100×100."""
    side = max(2, round(100 * scale))
    problem = shortest_path((side, side)).problem
    return problem, rng.uniform(0.5, 2.0, (batch, problem.n)), 0.1


def battery_programs(rng: np.random.Generator, scale: float, batch: int, hours: int = 168) -> Program:
    """Batteries over 168 hours behind one connection: charge, discharge and level of each."""
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


def transport_programs(rng: np.random.Generator, scale: float, batch: int) -> Program:
    """Transport from 50 sources to 100 destinations."""
    sources, targets = max(2, round(50 * scale)), max(2, round(100 * scale))
    out, into = (
        sp.kron(sp.eye_array(sources), np.ones((1, targets))),
        sp.kron(np.ones((1, sources)), sp.eye_array(targets)),
    )
    supply, demand = rng.uniform(1.0, 2.0, sources), rng.uniform(0.2, 1.0, targets)
    demand *= 0.9 * supply.sum() / demand.sum()
    problem = Problem(A=sp.csr_array(into), b=demand, G=sp.csr_array(out), h=supply, lb=0.0)
    return problem, rng.uniform(1.0, 3.0, (batch, problem.n)), 0.1


def coupled_programs(rng: np.random.Generator, scale: float, batch: int) -> Program:
    """Curvature that couples 4,000 variables at random, so that factors fill up."""
    n = max(20, round(4_000 * scale))
    factor = sp.random_array((n, n), density=2 / n, rng=rng)
    A = sp.csr_array(sp.random_array((n // 10, n), density=5 / n, rng=rng))
    Q = sp.csr_array(factor @ factor.T + 0.1 * sp.eye_array(n))
    problem = Problem(Q=Q, A=A, b=A @ rng.uniform(0.0, 1.0, n), lb=0.0, ub=1.0)
    return problem, rng.normal(size=(batch, n)), 0.0


STRUCTURES: dict[str, Callable[[np.random.Generator, float, int], Program]] = {
    "paths": path_programs,
    "batteries": battery_programs,
    "transport": transport_programs,
    "coupling": coupled_programs,
}


def tables(rows: list[SparseSolverRow]) -> list[TextTable]:
    """One line for each structure and solver."""
    table = TextTable("pear.solve", ("structure", "solver", "variables", "processor\ns a sample", "KKT\nresidual"))
    for row in rows:
        table.rows.append(
            (row.structure, row.solver, f"{row.n:,}", format_number(row.processor), format_error(row.kkt_residual))
        )
    return [table]


def series(rows: list[SparseSolverRow]) -> list[Series]:
    """Processor time over the number of variables, one series for each solver."""
    solvers = dict.fromkeys(row.solver for row in rows)
    mine = {name: [row for row in rows if row.solver == name] for name in solvers}
    return [Series(name, [r.n for r in points], [r.processor for r in points]) for name, points in mine.items()]

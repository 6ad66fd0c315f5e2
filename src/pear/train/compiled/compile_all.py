"""``compile_all``: compiles the solvers and the training of linear models before their first use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from pear.compile.compilation_notice import notice
from pear.decisions import solve
from pear.decisions.repair import repair_sparse
from pear.losses import PEARLoss
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem import Problem
from pear.problem.matrix import SparseMatrix
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.sparse_reduced_systems import SparseReducedSystems
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.kernel_arrays import new_kernel_states
from pear.solvers.active_set.program_packing import pack_programs
from pear.solvers.candidate import Start
from pear.solvers.interior_point.sparse_iterates import SparseIterates
from pear.solvers.linalg.saddle import SaddlePattern
from pear.tasks import shortest_path
from pear.train.fit import fit
from pear.train.fit_config import FitConfig


class CompiledPart(NamedTuple):
    """A part of the compiled code, after it was compiled.

    Attributes:
        part: the name of the part.
        seconds: how long it took to compile the part, or to load it from the cache, and to run it once.
        was_cached: whether the cache contained the part already.
    """

    part: str
    seconds: float
    was_cached: bool


def compile_all() -> Iterator[CompiledPart]:
    """Compile every compiled function by calls on tiny problems, and yield a ``CompiledPart`` after each part."""
    silent, notice.silent = notice.silent, True
    try:
        for part, run in PARTS.items():
            before, began = len(notice.compiled), time.perf_counter()
            run()
            yield CompiledPart(part, time.perf_counter() - began, len(notice.compiled) == before)
    finally:
        notice.silent = silent


def _compile_active_set() -> None:
    """Compile the active-set method by solving a program of two variables."""
    n, fields = 2, {"A": torch.ones(1, 2), "b": torch.ones(1), "lb": torch.zeros(2)}
    P = pack_programs({name: value.double() for name, value in fields.items()}, n, smoothing=1.0)
    rows = np.arange(1)
    states, default = new_kernel_states(1, n, 1), kernel_calls.call_kernel_for_start(P)
    kernel_calls.call_kernel_to_solve(P, np.zeros((1, n)), rows, states, rows, default)


def _compile_epoch(kind: torch.dtype) -> None:
    """Compile the epoch of a linear model of the dtype ``kind``, by training for one epoch on one sample."""
    loss = PEARLoss(Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0)
    data = torch.zeros(1, 1, dtype=kind), torch.zeros(1, 2, dtype=kind)
    model = torch.nn.Linear(1, 2, dtype=kind)
    fit(model, loss, data, data, lambda predicted, true: 0.0, FitConfig(max_epochs=1, start="given"))


def _compile_branch_and_bound() -> None:
    """Compile branch and bound by solving a knapsack of two rows."""
    rows, limits = [[0.5, 0.7, 0.3], [0.3, 0.1, 0.9]], [0.8, 0.95]
    solve(Problem(G=rows, h=limits, lb=0.0, ub=1.0, integer=True, sense="max"), [[3.0, 4.0, 2.0]])


def _compile_dynamic_programming() -> None:
    """Compile dynamic programming by solving a knapsack of one row with whole weights."""
    solve(Problem(G=[[2.0, 3.0, 1.0]], h=[4.0], lb=0.0, ub=1.0, integer=True, sense="max"), [[3.0, 4.0, 2.0]])


def _compile_sparse_iterates() -> None:
    """Compile the interior-point method for sparse programs by running one iteration on a program of two variables."""
    pattern = SaddlePattern(sparse.csr_array(np.eye(2)), sparse.csr_array(np.ones((1, 2))))
    SparseIterates(pattern, 1, np.arange(2.0), np.ones(1), np.zeros(2), np.ones(2)).run(0.1)


def _compile_exchanges() -> None:
    """Compile the exchanges of active constraints in sparse programs.

    One warm start is repaired, and one vector is projected onto the tangent space.
    """
    H, J, none = (
        SparseMatrix(sparse.csr_array(rows), shared=True) for rows in (np.eye(2), np.ones((1, 2)), np.empty((0, 2)))
    )
    c, side = torch.zeros(1, 2).double(), torch.ones(1, 1).double()
    qp = QuadraticProgram(H, c, J, side, none, side[:, :0], c, c + 1, diagonal=True)
    working, zero = ActiveSet.none(1, 2, 0, c.device), c[:, :0]
    repair_sparse(qp, Start(c, Duals(c[:, :1], zero, c), working, side[:, 0] > 0), 1)
    SparseReducedSystems(qp, working).project(c + 1)


def _compile_paths() -> None:
    """Compile the search for cheapest paths by finding one through a grid of four nodes."""
    shortest_path((2, 2)).decide([[1.0, 2.0, 1.0, 1.0]])


PARTS: dict[str, Callable[[], None]] = {
    "the active-set method": _compile_active_set,
    "the epoch of a linear model in float32": lambda: _compile_epoch(torch.float32),
    "the epoch of a linear model in float64": lambda: _compile_epoch(torch.float64),
    "branch and bound for 0-1 programs": _compile_branch_and_bound,
    "dynamic programming for 0-1 programs": _compile_dynamic_programming,
    "the interior point for sparse programs": _compile_sparse_iterates,
    "exchanges of constraints in sparse programs": _compile_exchanges,
    "cheapest paths": _compile_paths,
}

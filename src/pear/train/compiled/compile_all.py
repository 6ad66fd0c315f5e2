"""``compile_all``: compiles all compiled functions ahead of their first use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from pear.compile.jit import notice
from pear.decisions import solve
from pear.losses import PEARLoss
from pear.problem import Problem
from pear.solvers.active_set import kernel_calls as batch
from pear.solvers.active_set.kernel_arrays import new_states
from pear.solvers.interior_point.sparse_iterates import SparseIterates
from pear.solvers.linalg.saddle import SaddlePattern
from pear.train.fit import fit
from pear.train.fit_config import FitConfig


class CompiledPart(NamedTuple):
    """A part of the compiled code.

    Attributes:
        part: its name.
        seconds: the time that compiling took.
        was_cached: whether the cache had it already.
    """

    part: str
    seconds: float
    was_cached: bool


def compile_all() -> Iterator[CompiledPart]:
    """Call every compiled function once on a tiny problem, and yield each part as soon as it is compiled."""
    silent, notice.silent = notice.silent, True
    try:
        for part, run in PARTS.items():
            before, began = len(notice.compiled), time.perf_counter()
            run()
            yield CompiledPart(part, time.perf_counter() - began, len(notice.compiled) == before)
    finally:
        notice.silent = silent


def _active_set() -> None:
    n, fields = 2, {"A": torch.ones(1, 2), "b": torch.ones(1), "lb": torch.zeros(2)}
    P = batch.pack_programs({name: value.double() for name, value in fields.items()}, n, smoothing=1.0)
    rows = np.arange(1)
    batch.solve_batch(P, np.zeros((1, n)), rows, new_states(1, n, 1), rows, batch.default_start(P))


def _epoch(kind: torch.dtype) -> None:
    loss = PEARLoss(Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0)
    data = torch.zeros(1, 1, dtype=kind), torch.zeros(1, 2, dtype=kind)
    model = torch.nn.Linear(1, 2, dtype=kind)
    fit(model, loss, data, data, lambda predicted, true: 0.0, FitConfig(max_epochs=1, start="given"))


def _branch_and_bound() -> None:
    rows, limits = [[0.5, 0.7, 0.3], [0.3, 0.1, 0.9]], [0.8, 0.95]
    solve(Problem(G=rows, h=limits, lb=0.0, ub=1.0, integer=True, sense="max"), [[3.0, 4.0, 2.0]])


def _dynamic_programming() -> None:
    solve(Problem(G=[[2.0, 3.0, 1.0]], h=[4.0], lb=0.0, ub=1.0, integer=True, sense="max"), [[3.0, 4.0, 2.0]])


def _sparse() -> None:
    pattern = SaddlePattern(sparse.csr_array(np.eye(2)), sparse.csr_array(np.ones((1, 2))))
    SparseIterates(pattern, 1, np.arange(2.0), np.ones(1), np.zeros(2), np.ones(2)).run(0.1)


PARTS: dict[str, Callable[[], None]] = {
    "the active-set method": _active_set,
    "the epoch of a linear model in float32": lambda: _epoch(torch.float32),
    "the epoch of a linear model in float64": lambda: _epoch(torch.float64),
    "branch and bound for 0-1 programs": _branch_and_bound,
    "dynamic programming for 0-1 programs": _dynamic_programming,
    "the interior point for sparse programs": _sparse,
}

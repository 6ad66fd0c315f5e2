"""Batches of sparse programs: warm starts are checked together, and the remaining samples are solved in threads.

Samples that need a solver are solved one by one, because the factors of a whole batch would not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pear.compile.thread_pools import map_in_threads
from pear.optimality.program_screen import screen_out_nonfinite
from pear.optimality.status import Status
from pear.optimality.tensor_record import TensorRecord
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.sparse_reduced_systems import SparseReducedSystems
from pear.sensitivity.verified_solutions import VerifiedSolutions

_TOGETHER = 64  # samples whose warm starts are checked together
_KEPT = 2**26  # the most numbers in the factors that a batch keeps for its gradient
_COLUMNS = ("x", "duals", "active", "weak", "status", "kkt_residual", "repaired", "reused", "working", "projects")


def solve_sparse_batch(
    qp: QuadraticProgram,
    check_starts: Callable[[Tensor], VerifiedSolutions] | None,
    solve_one: Callable[[Tensor], VerifiedSolutions],
) -> VerifiedSolutions:
    """Solve a batch of sparse programs.

    Args:
        qp: B > 0 sparse programs.
        check_starts: a function that checks the warm starts of the samples at positions (k,). A sample gets the status
            INACCURATE if its warm start fails the check. None if no warm starts are to be checked together.
        solve_one: a function that solves the sample at a position (1,).
    """
    everything = torch.arange(qp.batch)
    checked = [] if check_starts is None else [check_starts(at) for at in everything.split(_TOGETHER)]
    todo = everything[torch.cat([one.status for one in checked]) == Status.INACCURATE] if checked else everything
    singles: list[VerifiedSolutions | None] = [None] * len(todo)

    def solve_in_turn(k: int) -> None:
        singles[k] = solve_one(todo[k : k + 1])

    map_in_threads(solve_in_turn, len(todo))
    solved = [one for one in singles if one is not None]
    joined = _join_sparse_batch(solved if len(todo) == qp.batch else checked)
    kept: list[Any] = [None] * qp.batch
    for i, one in zip(todo.tolist(), solved, strict=True):
        kept[i] = one.kept
    if 0 < len(todo) < qp.batch:
        for name, rows in _join_sparse_batch(solved).items():
            if isinstance(rows, TensorRecord):
                joined[name].put(todo, rows)
            else:
                joined[name][todo] = rows
    failed = joined["status"] != Status.SOLVED
    qp = screen_out_nonfinite(qp, failed) if bool(failed.any()) else qp
    return VerifiedSolutions(
        qp=qp, **joined, projector=None, kept=SparseReducedSystems.joined(qp, joined["active"], kept, _KEPT)
    )


def _join_sparse_batch(parts: list[VerifiedSolutions]) -> dict[str, Any]:
    """Join the solutions of parts of a batch; return the fields in ``_COLUMNS`` by name."""
    columns = {name: [getattr(part, name) for part in parts] for name in _COLUMNS}
    return {
        name: torch.cat(column) if isinstance(column[0], Tensor) else type(column[0]).cat(column)
        for name, column in columns.items()
    }

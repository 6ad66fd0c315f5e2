"""Points with multipliers and a working set, and the verifiers that judge them, as two tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from compiled_verdict import judge
from pear.optimality.active_set_rule import exact_active_set
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SHARE_OF_SIZE
from pear.optimality.verification import verify
from pear.problem.matrix import SparseMatrix
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set import kernel_arrays as layout
from pear.solvers.active_set.program_packing import pack_programs

Array = np.ndarray[Any, Any]
INF = np.inf


@dataclass(frozen=True)
class Point:
    """A program, a point with multipliers and a working set, and the correct verdict."""

    H: Array
    A: Array
    b: Array
    G: Array
    h: Array
    lb: Array
    ub: Array
    x: Array
    equality: Array
    inequality: Array
    bound: Array
    rows: Array
    c: Array = field(default_factory=lambda: np.zeros(0))
    solved: bool = True

    @property
    def lower(self) -> Array:
        """The lower bounds in the working set: those with a negative multiplier."""
        return self.bound < 0

    @property
    def upper(self) -> Array:
        return self.bound > 0

    def balanced(self) -> Point:
        """Return the same point, with the cost under which it is stationary."""
        duals = self.A.T @ self.equality + self.G.T @ self.inequality + self.bound
        return replace(self, c=-(self.H @ self.x + duals))

    def sizes(self) -> tuple[Array, Array]:
        """Return the natural sizes of decisions and of bounds' multipliers, by a second implementation."""
        might_be = np.abs(self.c).max() / (np.diag(self.H).max() or 1.0)
        data = np.concatenate([self.b, self.h, self.lb, self.ub])
        might_be = max(might_be, np.abs(data[np.isfinite(data)]).max(initial=0.0)) or 1.0
        size = np.maximum(np.abs(self.x), SHARE_OF_SIZE * max(np.abs(self.x).max(), FLOOR * might_be))
        dual = np.abs(self.H @ self.x) + np.abs(self.c)
        dual = dual + np.abs(self.A).T @ np.abs(self.equality) + np.abs(self.G).T @ np.abs(self.inequality)
        return size, np.maximum(dual, SHARE_OF_FORCE * dual.max())

    def row_size(self, matrix: Array, i: int) -> float:
        """Return the natural size of the slack of row i at a point at which the row is tight."""
        return float(np.abs(matrix[i]) @ self.sizes()[0] + np.abs(matrix[i] @ self.x))

    def row_dual(self, i: int) -> float:
        return float(np.abs(self.G[i]) @ self.sizes()[1] / (self.G[i] @ self.G[i]))


def point(n: int, **given: Any) -> Point:
    p, m = len(given.get("b", ())), len(given.get("h", ()))
    empty: dict[str, Any] = {"H": np.zeros((n, n)), "A": np.zeros((0, n)), "b": np.zeros(0), "G": np.zeros((0, n))}
    empty |= {"h": np.zeros(0), "lb": np.full(n, -INF), "ub": np.full(n, INF), "bound": np.zeros(n)}
    empty |= {"equality": np.zeros(p), "inequality": np.zeros(m), "rows": np.zeros(m, bool)}
    fields = {name: np.asarray(value) for name, value in (empty | given).items()}
    return Point(**fields).balanced()


@dataclass(frozen=True)
class Verdict:
    """What a verifier says about one point."""

    solved: bool
    kkt_residual: float
    active: list[bool]
    weak: list[bool]


def tensors(p: Point) -> tuple[QuadraticProgram, Tensor, Duals, ActiveSet]:
    names = ("H", "c", "A", "b", "G", "h", "lb", "ub")
    qp = QuadraticProgram(**{name: torch.from_numpy(getattr(p, name))[None] for name in names})
    x, *duals = (torch.from_numpy(v)[None] for v in (p.x, p.equality, p.inequality, p.bound))
    working = ActiveSet(*(torch.from_numpy(v)[None] for v in (p.rows, p.lower, p.upper)))
    return qp, x, Duals(*duals), working


def flat(active: ActiveSet) -> list[bool]:
    listed: list[bool] = torch.cat([active.rows, active.lower, active.upper], 1)[0].tolist()
    return listed


def by_torch(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> Verdict:
    verdict = verify(qp, x, duals, working)
    active, weak = exact_active_set(qp, verdict.relative, working)
    return Verdict(bool(verdict.solved), float(verdict.kkt_residual), flat(active), flat(weak))


def dense(p: Point) -> Verdict:
    return by_torch(*tensors(p))


def sparse_form(p: Point) -> Verdict:
    qp, *rest = tensors(p)
    matrices = {name: SparseMatrix(sparse.csr_array(getattr(p, name)), shared=True) for name in ("H", "A", "G")}
    vectors = {name: getattr(qp, name) for name in ("c", "b", "h", "lb", "ub")}
    return by_torch(QuadraticProgram(**matrices, **vectors), *rest)


def on_gpu(p: Point) -> Verdict:
    qp, *rest = tensors(p)
    moved = {name: getattr(qp, name).cuda() for name in ("H", "c", "A", "b", "G", "h", "lb", "ub")}
    return by_torch(replace(qp, **moved), *(part.to("cuda") for part in rest))


def compiled(p: Point) -> Verdict:
    qp, x, duals, working = tensors(p)
    given = layout.new_kernel_solutions(1, len(p.x), len(p.b), len(p.h))
    given = given._replace(
        x=x.numpy(), equality=duals.equality.numpy(), inequality=duals.inequality.numpy(), bound=duals.bound.numpy(),
        rows=working.rows.numpy(), lower=working.lower.numpy(), upper=working.upper.numpy(),
    )  # fmt: skip
    fields = {name: getattr(qp, name) for name in ("A", "b", "G", "h", "lb", "ub")}
    programs = pack_programs(fields | {"Q": torch.from_numpy(p.H)}, qp.n)
    found = judge(programs, p.c, given)
    active, weak = (
        [bool(v) for part in parts for v in part[0]]
        for parts in ((found.rows, found.lower, found.upper), (found.weak_rows, found.weak_lower, found.weak_upper))
    )
    return Verdict(bool(found.code[0] == layout.SOLVED), float(found.kkt_residual[0]), active, weak)


VERIFIERS: dict[str, Callable[[Point], Verdict]] = {
    "dense": dense,
    "sparse": sparse_form,
    "compiled": compiled,
    "gpu": on_gpu,
}

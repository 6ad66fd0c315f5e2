"""The compiled way through a loss: working sets remembered by key, decisions and gradients in one pass over the batch.

Everything here gives exactly what ``solve_verified`` and ``project`` give, or nothing: where a single sample cannot be
had, the caller goes the general way, which knows every fate by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.optimality.point import Batched
from pear.optimality.rule import OPTIMAL
from pear.problem import Problem
from pear.sensitivity.curvature import is_convex, is_definite
from pear.sensitivity.projection import add_normal
from pear.sensitivity.verified import Verified
from pear.solvers.active_set import batch as compiled
from pear.solvers.active_set.layout import SOLVED, Memory, Outcome, Programs, States
from pear.solvers.registry import COMPILED

_NO_STAMPS = np.zeros((0, 0))


@dataclass(frozen=True)
class Decided:
    """A batch that was solved.

    Attributes:
        outcome: the solutions.
        verify: solves the same batch again in the general way, for whoever needs more than a decision.
    """

    outcome: Outcome
    verify: Callable[[], Verified]
    _programs: Programs
    _states: States
    _at: compiled.Index
    _definite: Callable[[], bool]

    @cached_property
    def verified(self) -> Verified:
        """The solutions with everything that is known about them."""
        return self.verify()

    @property
    def x(self) -> Tensor:
        """(B, n) decisions."""
        return torch.from_numpy(self.outcome.x)

    def project(self, error: Tensor) -> Tensor | None:
        """(B, n) P·error at the decisions; None where some decision may not be unique."""
        if _weak(self.outcome).any() and not self._definite():
            return None  # a weakly active constraint may hide it
        rows = np.arange(len(self._at))
        g, unique = compiled.project(self._programs, _array(error), self._at, self._states, rows)
        return torch.from_numpy(g) if unique.all() else None


@dataclass(frozen=True)
class Regrets(Batched):
    """Regrets of a batch and their gradients.

    Attributes:
        value: (B,) regrets.
        exact, injected: (B, n) gradients by the predicted cost, without and with the normal component.
        x, best: (B, n) decisions under the predicted and under the true costs.
        status, true_status: (B,) int8 of ``Status``, of the two problems.
        kkt_residual: (B,) of the predicted problem.
        reused: (B,) bool, where a remembered working set was still optimal.
        repaired: (B,) bool, where a solver's active set was wrong.
    """

    value: Tensor
    exact: Tensor
    injected: Tensor
    x: Tensor
    best: Tensor
    status: Tensor
    true_status: Tensor
    kkt_residual: Tensor
    reused: Tensor
    repaired: Tensor


class Remembered:
    """Solves one problem for batch after batch, and starts every sample from where it was left.

    Args:
        problem: what is decided, continuous.
        solver: as the user named it.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        rows = sum(0 if v is None else v.shape[-1] for v in (problem.b, problem.h))
        self.problem = problem
        self.usable = solver in ("auto", COMPILED) and problem.phi is None and problem.device.type == "cpu"
        self.usable = self.usable and not problem.is_sparse and compiled.supports(problem.n, rows)
        self.rows, self.equalities = rows, 0 if problem.b is None else problem.b.shape[-1]
        self._slot: dict[Hashable, int] = {}
        self._tables = [compiled.Table(problem.n, rows) for _ in range(2)]
        self._ideal = self._new_ideal(0)
        self._stamps: compiled.Array = np.zeros((0, problem.n))
        self._marks: compiled.Array = np.zeros((0, problem.n))
        self._probe = torch.rand(problem.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        self._smoothing: float | None = None
        self._known: tuple[Programs, States] | None = None
        self._own_definite: bool | None = None
        self._everyone: compiled.Index | None = None

    def decide(
        self, cost: Tensor, smoothing: float, ids: list[Hashable] | None, fields: dict[str, Any], verify: Any
    ) -> Decided | None:
        """Decide for a batch; None where the general way must be gone.

        Args:
            cost: (B, n).
            smoothing: λ.
            ids: distinct keys of the samples, or None.
            fields: what replaces the problem's fields in this call.
            verify: solves the same batch in the general way.
        """
        known = self._prepare(cost, smoothing, ids, fields)
        if known is None:
            return None
        P, home, at = known
        states, slots, kept = self._places(ids, len(cost), self._tables[0])
        outcome = compiled.solve(P, _array(cost), at, states, slots, home)
        if not _all_solved(outcome):
            return None
        # the table goes on changing, and the backward pass comes later
        mine = States._make(part[slots] for part in states) if kept else states
        return Decided(outcome, verify, P, mine, at, lambda: self._definite(P))

    def time_passes(
        self, cost: Tensor, smoothing: float, ids: list[Hashable] | None, fields: dict[str, Any]
    ) -> tuple[float, float] | None:
        """Seconds that it takes to verify a batch at its solution, and to project at it; what is remembered stays."""
        known = self._prepare(cost, smoothing, ids, fields)
        if known is None:
            return None
        P, home, at = known
        table, slots, _ = self._places(ids, len(cost), self._tables[0])
        states, rows, array = States._make(part[slots] for part in table), np.arange(len(cost)), _array(cost)
        compiled.solve(P, array, at, states, rows, home)  # to where it was solved, if it is not remembered
        began = time.perf_counter()
        compiled.solve(P, array, at, states, rows, home)
        verified = time.perf_counter()
        compiled.project(P, array, at, states, rows)
        return verified - began, time.perf_counter() - verified

    def regret(
        self,
        predicted: Tensor,
        true: Tensor,
        smoothing: float,
        injection: float,
        ids: list[Hashable] | None,
        Q: Any = None,
        true_Q: Any = None,
    ) -> tuple[Regrets, Tensor] | None:
        """Regrets and gradients of a batch, and the (k,) samples that are left; None where this way is not open.

        Args:
            predicted, true: (B, n) costs.
            smoothing: λ; injection: β.
            ids: distinct keys of the samples, or None.
            Q: predicted curvature, or None; true_Q: the curvature of the bill, where Q is given.
        """
        known = self._prepare(predicted, smoothing, ids, {} if Q is None else {"Q": Q})
        if known is None:
            return None
        P, home, at = known
        # what is predicted is new every time, so that a bill under it cannot be remembered
        shared = Q is not None and true_Q is Q
        states, ideals, slots, ideal, stamps = self._remember(ids, len(predicted), not shared)
        bill = P if Q is None or shared else self._with_curvature(P, true, true_Q, slots, stamps)
        if bill is None or not (injection == 0 or self._definite(P)):
            return None
        if Q is None and len(stamps):
            self._void(slots, np.full((len(slots), self.problem.n), np.nan))
        if shared and ideal is self._ideal:
            self._stamps[slots], self._marks[slots] = np.nan, np.inf
        curved = len(P.Q) > 0
        strength = injection if not curved or injection == 0 else -1.0
        outcome, value, exact, injected = compiled.regret(
            P, bill, (_array(predicted), _array(true)), at, (states, ideals), slots, home, ideal, stamps, strength
        )
        left = (outcome.code != SOLVED) | ~(np.maximum(outcome.kkt_residual, ideal.kkt_residual[slots]) <= OPTIMAL)
        weak = _weak(outcome)
        if weak.any() and not self._definite(P):  # a weakly active constraint may hide that the decision is not unique
            left |= weak
        arrays = (value, exact, injected, outcome.x, ideal.x[slots], outcome.kkt_residual, outcome.changes == 0)
        tensors = [torch.from_numpy(array) for array in arrays]
        if strength < 0:
            tensors[2] = add_normal(_inverse_times(P, at, tensors[2]), tensors[1], injection)
        fine = torch.zeros(len(predicted), dtype=torch.int8)
        never = torch.zeros(len(predicted), dtype=torch.bool)
        regrets, gradient, shown, x, best, residual, reused = tensors
        parts = Regrets(regrets, gradient, shown, x, best, fine, fine.clone(), residual, reused, never)
        return parts, torch.from_numpy(np.flatnonzero(left))

    def all_samples(self, count: int, smoothing: float) -> tuple[Programs, compiled.Index, Memory] | None:
        """The programs of samples 0 to ``count``, under which row each is remembered, and where.

        None where they would take too much memory.
        """
        P, home = self._own_programs(smoothing)
        if self._everyone is None or len(self._everyone) != count:
            for key in range(count):
                self._slot.setdefault(key, len(self._slot))
            self._everyone = np.array([self._slot[key] for key in range(count)], np.int64)
        if not self._tables[0].fits(len(self._slot)):
            return None
        states, ideals, _, ideal, stamps = self._remember([0], 1, True)
        self._void(self._everyone, np.full((count, self.problem.n), np.nan))
        return P, self._everyone, Memory(states, ideals, home, ideal, stamps, OPTIMAL)

    def _remember(
        self, ids: list[Hashable] | None, B: int, stamped: bool
    ) -> tuple[States, States, compiled.Index, Outcome, compiled.Array]:
        """Where the two problems of each sample are remembered, and the solutions of the true ones."""
        states, slots, kept = self._places(ids, B, self._tables[0])
        if not kept:
            return states, compiled.new_states(B, self.problem.n, self.rows), slots, self._new_ideal(B), _NO_STAMPS
        size = len(states.known)
        if len(self._ideal.code) < size:
            self._grow_ideal(size)
        return states, self._tables[1].grow(size), slots, self._ideal, self._stamps if stamped else _NO_STAMPS

    def _prepare(
        self, cost: Tensor, smoothing: float, ids: list[Hashable] | None, fields: dict[str, Any]
    ) -> tuple[Programs, States, compiled.Index] | None:
        """The programs of a call, where to start from, and each sample's row in fields of its own."""
        if not self.usable or cost.device.type != "cpu" or not len(cost):
            return None
        by_row = ids is not None and self.problem.batch is not None
        if by_row and fields:
            return None
        at = np.array(ids, np.int64) if by_row else np.arange(len(cost))
        if not fields:
            plain = cost.dim() == 2 and cost.shape[1] == self.problem.n
            if by_row and not plain:
                return None
            if not by_row and not (plain and self.problem.batch in (None, len(cost))):
                self.problem.checked(cost)  # which says what is wrong
            return *self._own_programs(smoothing), at
        checked = self.problem.checked(cost, **fields)
        if sum(checked[name].shape[-1] for name in ("b", "h") if name in checked) != self.rows:
            return None
        P = self._build(checked, smoothing)
        if "Q" in fields and not self._is_convex(P):
            return None
        return P, self._own_programs(smoothing)[1] if set(fields) <= {"Q"} else compiled.home_of(P), at

    def _own_programs(self, smoothing: float) -> tuple[Programs, States]:
        """The problem's own fields, brought into form once."""
        if self._known is None or self._smoothing != smoothing:
            own = {
                name: v
                for name in ("Q", "A", "b", "G", "h", "lb", "ub")
                if (v := getattr(self.problem, name)) is not None
            }
            P = self._build(own, smoothing)
            self._known, self._smoothing = (P, compiled.home_of(P)), smoothing
            self._stamps[:], self._own_definite = np.nan, None
        return self._known

    def _build(self, fields: dict[str, Tensor], smoothing: float) -> Programs:
        Q = fields.get("Q")
        curvature = None if Q is None else (Q if Q.dim() == 3 else Q[None]).numpy()
        rest = {name: value for name, value in fields.items() if name != "Q"}
        return compiled.programs(rest, self.problem.n, self.problem.sign, smoothing, curvature)

    def _with_curvature(
        self, P: Programs, cost: Tensor, Q: Any, slots: compiled.Index, stamps: compiled.Array
    ) -> Programs | None:
        """The same programs with the curvature of the bill; None where it is not convex.

        A sample's own curvature is recognised by its product with a fixed vector, and checked at its first visit only.
        """
        plain = isinstance(Q, Tensor) and Q.shape == (len(cost), P.lb.shape[1], P.lb.shape[1])
        if not (plain and Q.dtype == torch.float64 and Q.device.type == "cpu" and len(stamps)):
            if len(stamps):
                self._stamps[slots], self._marks[slots] = np.nan, np.inf  # which no curvature has
            return self._checked_bill(P, cost, Q)
        mark = (Q.detach() @ self._probe).numpy()
        if not (self._marks[slots] == mark).all():
            bill = self._checked_bill(P, cost, Q)
            if bill is None:
                return None
        self._void(slots, mark)
        return P._replace(Q=np.ascontiguousarray(Q.detach().numpy()))

    def _checked_bill(self, P: Programs, cost: Tensor, Q: Any) -> Programs | None:
        curvature = self.problem.checked(cost, Q=Q)["Q"]
        bill = P._replace(Q=np.ascontiguousarray((curvature if curvature.dim() == 3 else curvature[None]).numpy()))
        return bill if self._is_convex(bill) else None

    def _void(self, slots: compiled.Index, mark: compiled.Array) -> None:
        """Have the true problems of these samples solved again where their curvature is another than the last time."""
        other = ~((self._marks[slots] == mark) | (np.isnan(self._marks[slots]) & np.isnan(mark))).all(1)
        self._stamps[slots[other]] = np.nan
        self._marks[slots] = mark

    def _is_convex(self, P: Programs) -> bool:
        return bool(is_convex(torch.from_numpy(P.Q), P.sign, P.smoothing).all())

    def _definite(self, P: Programs) -> bool:
        """True where the objective is certainly curved in every direction."""
        if P.smoothing > 0:
            return True
        if self._known is not None and P is self._known[0]:
            if self._own_definite is None:
                self._own_definite = len(P.Q) > 0 and bool(is_definite(torch.from_numpy(P.Q), P.sign).all())
            return self._own_definite
        return len(P.Q) > 0 and bool(is_definite(torch.from_numpy(P.Q), P.sign).all())

    def _places(
        self, ids: Sequence[Hashable] | None, B: int, table: compiled.Table
    ) -> tuple[States, compiled.Index, bool]:
        """Where the samples are remembered: rows of the table, or of a new one where they have no keys."""
        if ids is not None:
            for key in ids:
                self._slot.setdefault(key, len(self._slot))
            if table.fits(len(self._slot)):
                slots = np.array([self._slot[key] for key in ids], np.int64)
                return table.grow(len(self._slot)), slots, True
        return compiled.new_states(B, self.problem.n, self.rows), np.arange(B), False

    def _new_ideal(self, size: int) -> Outcome:
        return compiled.new_outcome(size, self.problem.n, self.equalities, self.rows - self.equalities)

    def _grow_ideal(self, size: int) -> None:
        bigger, stamps, marks = self._new_ideal(size), *(np.full((size, self.problem.n), np.nan) for _ in range(2))
        compiled.copy_rows((*bigger, stamps, marks), (*self._ideal, self._stamps, self._marks))
        self._ideal, self._stamps, self._marks = bigger, stamps, marks


def _array(value: Tensor) -> compiled.Array:
    array: compiled.Array = value.detach().to(torch.float64).contiguous().numpy()
    return array


def _all_solved(outcome: Outcome) -> bool:
    return bool((outcome.code == SOLVED).all() and (outcome.kkt_residual <= OPTIMAL).all())


def _weak(outcome: Outcome) -> NDArray[np.bool_]:
    """(B,) bool: some active constraint has no multiplier."""
    sets = (outcome.weak_rows, outcome.weak_lower, outcome.weak_upper)
    return np.logical_or.reduce([weak.any(1) for weak in sets])


def _inverse_times(P: Programs, at: compiled.Index, e: Tensor) -> Tensor:
    """(B, n) H⁻¹e for programs with a positive definite H."""
    H = P.sign * torch.from_numpy(P.Q if len(P.Q) == 1 else P.Q[at])
    H.diagonal(dim1=1, dim2=2).add_(P.smoothing)
    return torch.cholesky_solve(e.unsqueeze(-1), torch.linalg.cholesky(H)).squeeze(-1)

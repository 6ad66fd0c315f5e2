"""``CompiledPrograms``: the programs of one problem in the arrays of the compiled method."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.optimality.definiteness import is_definite, is_semidefinite, is_singular
from pear.optimality.dense_inverse import apply_dense_inverse
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.problem import Problem
from pear.problem.problem_fields import FIELDS
from pear.problem.quadratic_program import MIN_VARIABLES
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.active_set_solver import supports
from pear.solvers.active_set.dual_plan import make_dual_plan, replace_dual_plan_rows
from pear.solvers.active_set.kernel_arrays import Array, Index, Programs, States
from pear.solvers.active_set.program_packing import pack_programs, pack_sides
from pear.solvers.regret_call import RegretCall

_MOST_FACTORS = 1 << 28  # bytes of the factors of a problem's own Hessians that are kept


class CompiledPrograms:
    """The programs of one problem in compiled form, for its own fields and for calls that replace some of the fields.

    What depends on the problem's own fields alone is computed once.

    Args:
        problem: the decision problem: continuous, dense, on the CPU, without a smooth term φ.

    Attributes:
        equalities: the number of equality rows.
        rows: the number of all rows.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.equalities = 0 if problem.b is None else problem.b.shape[-1]
        self.rows = self.equalities + (0 if problem.h is None else problem.h.shape[-1])
        self._own: tuple[Programs, States] | None = None
        self._own_definite: bool | None = None
        self._own_unique: bool | None = None
        self._own_factor: Tensor | None = None
        self._supported: dict[bool, bool] = {}

    def own(self, smoothing: float) -> tuple[Programs, States]:
        """Return the programs of the problem's own fields, and the start of samples that have no warm start."""
        if self._own is None:
            fields = {name: v for name in FIELDS if (v := getattr(self.problem, name)) is not None}
            P = pack_programs(fields, self.problem.n, self.problem.sign, smoothing)
            default = kernel_calls.call_kernel_for_start(P)
        elif self._own[0].smoothing != smoothing:
            P, default = self._own[0]._replace(smoothing=float(smoothing)), self._own[1]
        else:
            return self._own
        self._own = P._replace(dual=make_dual_plan(P)), default
        self._own_definite = self._own_unique = self._own_factor = None
        return self._own

    def has_own_matrices(self, P: Programs) -> bool:
        """Return True if P has the Hessian and the rows of the last result of ``own``.

        Right-hand sides and bounds may differ.
        """
        own = None if self._own is None else self._own[0]
        return own is not None and P.Q is own.Q and P.J is own.J and P.smoothing == own.smoothing

    def prepare(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> tuple[Programs, States, Index] | None:
        """Prepare the programs of a call.

        Args:
            cost: (B, n) costs.
            smoothing: the coefficient λ of the quadratic smoothing term.
            keys: keys of the samples, or None.
            fields: values that replace fields of the problem in this call.

        Returns:
            The programs; the start of samples that have no warm start; (B,) the row of each sample in fields that
            differ by sample. None if the compiled method does not support the call.
        """
        count = cost.shape[0]
        if not (cost.is_cpu and count):
            return None
        by_row = keys is not None and self.problem.batch is not None
        plain = cost.dim() == 2 and cost.shape[1] == self.problem.n
        if by_row and (fields or not plain):
            return None
        at = np.array(keys, np.int64) if by_row else np.arange(count)
        if not fields:
            if not by_row and not (plain and self.problem.batch in (None, count)):
                self.problem.checked(cost)  # raises an error that says what is wrong
            return (*self.own(smoothing), at) if self.supports_call(smoothing) else None
        checked = self.problem.checked(cost, **fields)
        same_rows = sum(checked[name].shape[-1] for name in ("b", "h") if name in checked) == self.rows
        if not same_rows or not self.supports_call(smoothing, cost, fields):
            return None
        P = self._replace_fields(checked, smoothing, set(fields))
        if "Q" in fields and not bool(is_semidefinite(torch.from_numpy(P.Q), P.sign, P.smoothing).all()):
            return None
        default = self.own(smoothing)[1] if set(fields) <= {"Q"} else kernel_calls.call_kernel_for_start(P)
        return P, default, at

    def _replace_fields(self, checked: dict[str, Tensor], smoothing: float, changed: set[str]) -> Programs:
        """Return the programs of a call that replaces fields.

        What does not depend on the replaced fields is taken from the problem's own programs.

        Args:
            checked: all fields of the call.
            smoothing: the coefficient λ of the quadratic smoothing term.
            changed: the names of the fields that the call replaces.
        """
        n = self.problem.n
        if not changed & {"Q", "A", "G"}:
            return self.own(smoothing)[0]._replace(**pack_sides(checked, n))
        P = pack_programs(checked, n, self.problem.sign, smoothing)
        if changed & {"Q", "A"}:
            return P
        return P._replace(dual=replace_dual_plan_rows(self.own(smoothing)[0].dual, n))

    def supports_call(self, smoothing: float, cost: Tensor | None = None, fields: dict[str, Any] | None = None) -> bool:
        """Return True if the compiled method takes the programs of a call.

        It takes all programs of fewer than ``MIN_VARIABLES`` variables. The solver's function ``supports`` decides
        about larger programs only, because its answer needs a copy of Q.

        Args:
            smoothing: the coefficient λ of the quadratic smoothing term.
            cost: (B, n) costs, needed if ``fields`` is not empty.
            fields: values that replace fields of the problem in this call.
        """
        if self.problem.n < MIN_VARIABLES:
            return True
        if cost is not None and fields:
            return supports(self.problem.canonical(cost, smoothing, **fields))
        return self.supports_own(smoothing)

    def supports_own(self, smoothing: float) -> bool:
        """Return True if the active-set solver supports the programs of the problem's own fields."""
        curved = smoothing > 0
        if curved not in self._supported:
            any_cost = torch.zeros(self.problem.batch or 1, self.problem.n, dtype=torch.float64)
            self._supported[curved] = supports(self.problem.canonical(any_cost, smoothing))
        return self._supported[curved]

    def true_curvature(self, P: Programs, call: RegretCall) -> Array | None:
        """Return Q of a call's true objective, in the form of ``Programs.Q``; None if the objective is not convex."""
        Q = self.problem.checked(call.true, Q=call.true_Q)["Q"]
        Q = Q if Q.dim() == 3 else Q[None]
        return np.ascontiguousarray(Q.numpy()) if bool(is_semidefinite(Q, P.sign, P.smoothing).all()) else None

    def is_definite(self, P: Programs) -> bool:
        """Return True if every Hessian of P is certainly positive definite."""
        if not self.has_own_matrices(P):
            return self._are_all_definite(P)
        if self._own_definite is None:  # the problem's own Q is semidefinite, which was checked when it was made
            self._own_definite = P.smoothing > 0 or self._are_all_definite(P)
        return self._own_definite

    def has_unique_decisions(self, P: Programs) -> bool:
        """Return True if the decisions of P are certainly unique for every cost.

        They are if every Hessian of P is positive definite on the null space of the equality rows. Only this is tested.
        """
        if not self.has_own_matrices(P):
            return self._are_all_curved(P)
        if self._own_unique is None:
            self._own_unique = self._are_all_curved(P)
        return self._own_unique

    def _are_all_curved(self, P: Programs) -> bool:
        """Return True if every Hessian of P is positive definite on the null space of the equality rows A.

        The test is whether the Hessian plus a multiple of AᵀA is positive definite.
        """
        if self.is_definite(P):
            return True
        if not (len(P.Q) and P.equalities):
            return False
        A, H = torch.from_numpy(P.J[:, : P.equalities]), self._hessians(P, np.arange(len(P.Q)))
        A = A / torch.linalg.vector_norm(A, dim=2, keepdim=True).clamp(min=np.finfo(np.float64).tiny)
        return not bool(is_singular(H + H.abs().amax((1, 2), keepdim=True) * (A.mT @ A)).any())

    @staticmethod
    def _are_all_definite(P: Programs) -> bool:
        """Return True if every Hessian of P is positive definite, as a factorisation shows."""
        if len(P.Q) == 0:
            return P.smoothing > 0
        return bool(is_definite(torch.from_numpy(P.Q), P.sign, P.smoothing).all())

    def factor(self, P: Programs, at: Index) -> Tensor:
        """Return the lower Cholesky factors (1 or B, n, n) of the Hessians of the samples in rows ``at`` (B,).

        The factors of the problem's own Hessians are kept.
        """
        if not self.has_own_matrices(P) or P.Q.nbytes > _MOST_FACTORS:
            return torch.linalg.cholesky(self._hessians(P, at)).contiguous()  # LAPACK gives its columns
        if self._own_factor is None:
            self._own_factor = torch.linalg.cholesky(self._hessians(P, np.arange(len(P.Q)))).contiguous()
        return self._own_factor if len(P.Q) == 1 else self._own_factor[torch.from_numpy(at)]

    def apply_inverse(self, P: Programs, at: Index, active: ActiveSet, e: Tensor) -> Tensor:
        """Return H⁻¹e (B, n) for errors e (B, n) at solutions.

        ``apply_dense_inverse`` says what takes the place of H⁻¹ if H is singular.
        """
        A, G = (torch.from_numpy(J if len(J) == 1 else J[at]) for J in (P.J[:, : P.equalities], P.J[:, P.equalities :]))
        return apply_dense_inverse(self._hessians(P, at), A, G, active, e)

    @staticmethod
    def _hessians(P: Programs, at: Index) -> Tensor:
        """Return the Hessians (1 or B, n, n) of the samples in rows ``at`` (B,)."""
        n = P.lb.shape[1]
        Q = np.zeros((1, n, n)) if len(P.Q) == 0 else P.Q if len(P.Q) == 1 else P.Q[at]
        H = P.sign * torch.from_numpy(Q)
        H.diagonal(dim1=1, dim2=2).add_(P.smoothing)
        return H

    @staticmethod
    def objective_values(P: Programs, cost: Array, x: Array) -> Array:
        """Return the values (B,) of the objective with costs (B, n) at x (B, n), in the problem's own sense."""
        slope = 0.5 * P.sign * P.smoothing * x + cost
        if len(P.Q) == 1:
            slope += 0.5 * (x @ P.Q[0])
        elif len(P.Q) > 1:
            slope += 0.5 * np.matmul(P.Q, x[..., None])[..., 0]
        values: Array = np.einsum("ij,ij->i", x, slope)
        return values

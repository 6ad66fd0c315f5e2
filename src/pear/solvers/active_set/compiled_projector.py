"""``CompiledProjector``: projections and backward passes from the working sets that the compiled method leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.rule import FEASIBLE, PROJECTED
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.kernel_arrays import BASIC, BASIS_START, SUPER, Index, Programs, States
from pear.solvers.active_set.program_packing import pack_costs
from pear.solvers.fused_pass import FusedRowResponse


class CompiledProjector(NamedTuple):
    """The ``CandidateProjector`` at solutions of the compiled method.

    Attributes:
        programs: the programs.
        states: the working sets and points, one row for each sample.
        at: (B,) the row of each sample in the fields of ``programs`` that differ by sample.
    """

    programs: Programs
    states: States
    at: Index

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors e (B, n), as ``CandidateProjector.project`` does."""
        rows = np.arange(len(e))
        g, good = kernel_calls.call_kernel_to_project(self.programs, pack_costs(e), self.at, self.states, rows)
        return torch.from_numpy(g), torch.from_numpy(good)

    def respond(self, w: Tensor, active: ActiveSet) -> FusedRowResponse | None:
        """Solve the reduced systems of the backward pass for the samples that have a basis.

        Other samples get zeros and are marked as not accurate. If no sample has a basis, the result is None.

        Args:
            w: (B, n) upstream gradients.
            active: the tight constraints.
        """
        based = np.flatnonzero(self.states.has_start == BASIS_START)
        if not len(based):
            return None
        p, good = self.project(w)
        some, (R, equalities) = torch.from_numpy(based), (self.programs.J.shape[1], self.programs.equalities)
        multipliers, accurate = p.new_zeros(len(w), R), torch.zeros_like(good)
        multipliers[some], accurate[some] = self._row_multipliers(based, active[some], w[some], p[some])
        return FusedRowResponse(p, multipliers[:, :equalities], multipliers[:, equalities:], good & accurate)

    def _row_multipliers(self, based: Index, active: ActiveSet, w: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the multipliers q of the R rows J that satisfy Jᵀq = w − Hp at the free variables.

        H is the Hessian. Rows that are not tight have multipliers of zero. The basis determines q, unless a basic
        variable is at a bound or the slack of a tight row is basic. Each such variable or slack leaves a direction in
        which q is not determined. The result is then the solution of least norm, with rows scaled to length one on the
        free variables.

        Args:
            based: (k,) positions of samples with a basis; the other arguments are about these samples alone.
            active: the tight constraints.
            w: (k, n) right-hand sides of the reduced systems.
            p: (k, n) the projections of w.

        Returns:
            (k, R) multipliers of all rows, and (k,) bool, True if they are accurate.
        """
        P, at, n = self.programs, self.at[based], p.shape[1]
        J = torch.from_numpy(P.J if len(P.J) == 1 else P.J[at])
        basis, inverse = torch.from_numpy(self.states.basis[based]).long(), torch.from_numpy(self.states.inverse[based])
        place = torch.from_numpy(self.states.place[based])
        rest = w - self._hessian_times(at, p)
        slack = torch.isin(place[:, n:], torch.tensor([BASIC, SUPER], dtype=torch.int8))

        def multiply_by_inverse(values: Tensor) -> Tensor:
            chosen = torch.where(basis < n, values.gather(1, basis.clamp(max=n - 1)), 0.0)
            return (chosen[:, None] @ inverse)[:, 0]

        q = multiply_by_inverse(rest)
        q = torch.where(slack, 0.0, q + multiply_by_inverse(rest - self._transpose_times(J, q)))
        held, free = torch.ones_like(q[:, : P.equalities], dtype=torch.bool), ~active.fixed
        tight = torch.cat([active.fixed, held, active.rows], 1)
        length = free.double() @ J[0].square().T if len(J) == 1 else (J.square() @ free.double()[:, :, None])[:, :, 0]
        directions = inverse * tight.gather(1, basis)[:, :, None]
        q = self._least_norm(q, directions, torch.where(length > 0, length, 1.0))
        left = torch.where(~free, 0.0, rest - self._transpose_times(J, q)).abs().amax(1)
        top = torch.maximum(w.abs().amax(1), self._transpose_times(J.abs(), q.abs()).amax(1))
        return torch.where(tight[:, n:], q, 0.0), left <= PROJECTED * top

    def _hessian_times(self, at: Index, p: Tensor) -> Tensor:
        """Return the products (k, n) of the Hessians of the k programs in rows ``at`` and the vectors p (k, n)."""
        P = self.programs
        product = P.smoothing * p
        if not len(P.Q):
            return product
        if len(P.Q) == 1:
            return product + P.sign * (p @ torch.from_numpy(P.Q[0]))
        return product + P.sign * (torch.from_numpy(P.Q[at]) @ p[:, :, None])[:, :, 0]

    @staticmethod
    def _transpose_times(J: Tensor, q: Tensor) -> Tensor:
        """Return Jᵀq (k, n) for R rows J (1 or k, R, n) and multipliers q (k, R)."""
        return q @ J[0] if len(J) == 1 else (q[:, None] @ J)[:, 0]

    @staticmethod
    def _least_norm(q: Tensor, directions: Tensor, norm: Tensor) -> Tensor:
        """Return the multipliers q without their part along the directions in which they are not determined.

        The result is NaN if these directions depend linearly on each other.

        Args:
            q: (k, R) multipliers of the R rows.
            directions: (k, R, R) matrices whose non-zero rows are these directions.
            norm: (k, R) squared lengths of the rows, on the free variables.
        """
        if not q.shape[1]:
            return q
        along = (directions @ (norm * q)[:, :, None])[:, :, 0]
        some = (along.abs().amax(1) > FEASIBLE * (norm * q.abs()).amax(1)).nonzero()[:, 0]
        if not len(some):
            return q
        N, scale = directions[some], norm[some]
        gram = (N * scale[:, None]) @ N.mT
        gram.diagonal(dim1=1, dim2=2).add_((N.abs().amax(2) == 0).double())
        factors, failed = torch.linalg.cholesky_ex(gram)
        change = (torch.cholesky_solve(along[some][:, :, None], factors).mT @ N)[:, 0]
        q = q.clone()
        q[some] -= torch.where((failed == 0)[:, None], change, torch.nan)
        return q

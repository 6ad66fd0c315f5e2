"""``DecidedBatch``: the decisions of a batch, from a fused pass or from the pipeline, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from pear.optimality.status import solved_status
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.derivatives import DecisionPoint, Derivative, all_derivatives, derivatives_at
from pear.sensitivity.projection import project
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.fused_pass import FusedPassDecisions


class DecidedBatch:
    """The decisions of a batch, with methods that compute their derivatives.

    The decisions come from the pipeline or from a fused pass, which is one call of a solver that solves and verifies
    the whole batch.

    Args:
        found: the result of the fused pass or of the pipeline.
        solve: a function that solves samples in the pipeline: those at given positions (k,), or all samples for None.
            It is called if a fused pass cannot give a derivative.
        rest: the pipeline's solutions of the samples that the fused pass did not solve; None if no sample was left.
        program: a function that returns the programs of the batch. Derivatives with respect to constraints need them.

    Attributes:
        x: (B, n) decisions; zero for failed samples.
        status: (B,) int8 of ``Status``.
    """

    def __init__(
        self,
        found: FusedPassDecisions | VerifiedSolutions,
        solve: Callable[[Tensor | None], VerifiedSolutions] | None = None,
        rest: VerifiedSolutions | None = None,
        program: Callable[[], QuadraticProgram] | None = None,
    ) -> None:
        self._fused = found if isinstance(found, FusedPassDecisions) else None
        self._solve, self._rest, self._program = solve, rest, program
        if isinstance(found, VerifiedSolutions):
            self.verified = found
            self.x, self.status = torch.where(found.solved[:, None], found.x, 0.0), found.status
        else:
            self.x, self.status = found.x, solved_status(found.x)
            if rest is not None and found.left is not None:
                self.x[found.left] = torch.where(rest.solved[:, None], rest.x, 0.0)
                self.status[found.left] = rest.status

    @property
    def all_solved(self) -> bool:
        """Whether all samples are certainly solved. If False, ``status`` says which samples are solved."""
        return self._fused is not None and self._rest is None

    @cached_property
    def verified(self) -> VerifiedSolutions:
        """The verified solutions; after a fused pass, the pipeline computes them on first use."""
        assert self._solve is not None
        return self._solve(None)

    def derivatives(self, w: Tensor, sign: int) -> list[Derivative]:
        """Return eight functions, which compute the derivatives of a loss with respect to the data of the problem.

        The data are, in this order, the cost, Q, A, b, G, h, lb and ub. Each derivative has one row per sample.

        Args:
            w: (B, n) upstream gradient, the derivative of the loss with respect to the decisions.
            sign: 1 for minimisation, −1 for maximisation.

        Raises:
            NotUniqueError: a decision is not unique.
        """
        fused = self._fused
        found = None if fused is None else fused.respond(w)
        if found is None or fused is None or self._program is None or self._solve is None:
            return all_derivatives(self.verified, w, sign)
        assert fused.duals is not None
        assert fused.active is not None
        point = DecisionPoint(self._program(), self.x, fused.duals, fused.active)
        by_pass = derivatives_at(point, w, found.p, found.equality, found.inequality, sign)
        good = found.good.clone()
        if fused.left is not None:
            good[fused.left] = False
        bad = (~good).nonzero()[:, 0]
        if not len(bad):
            return by_pass
        by_pipeline = all_derivatives(self._solve(bad), w[bad], sign)
        return [self._replace_rows(*pair, bad) for pair in zip(by_pass, by_pipeline, strict=True)]

    @staticmethod
    def _replace_rows(whole: Derivative, part: Derivative, rows: Tensor) -> Derivative:
        """Return a function that computes the derivative ``whole``, with its rows ``rows`` (k,) taken from ``part``."""

        def derivative() -> Tensor:
            found = whole().clone()
            found[rows] = part()
            return found

        return derivative

    def project(self, w: Tensor) -> Tensor:
        """Project vectors w (B, n) onto the tangent spaces of the constraints that are active at the decisions.

        The result is (B, n); the rows of failed samples are zero.

        Raises:
            NotUniqueError: a decision is not unique.
        """
        p = None if self._fused is None else self._fused.project(w)
        if p is None:
            return project(self.verified, w)
        if self._rest is not None and self._fused is not None and self._fused.left is not None:
            p[self._fused.left] = project(self._rest, w[self._fused.left])
        return p

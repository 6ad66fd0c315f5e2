"""``GPUPrograms``: the programs of a batch on a GPU, without their costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.optimality.natural_sizes import Sizes
from pear.optimality.rule import LARGEST
from pear.problem.curvature_checks import SYMMETRY
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.problem.tensor_conversion import float_dtype

_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")
_CURVATURE = ("top", "root", "root_top")


@dataclass(frozen=True)
class GPUPrograms:
    """The programs of a batch without their costs.

    Attributes:
        qp: the programs; their cost is not used. H has shape (B or 1, n, n).
        sizes: the natural sizes of the programs, as far as they follow from the data alone.
        definite: True if every H is positive definite. Samples that ``usable`` marks as False do not count.
        usable: (B or 1,) bool, True if H is symmetric, definite and of moderate size; None if every H is.
        factor: (B or 1, n, n) Cholesky factors of H, if they have been computed.
    """

    qp: QuadraticProgram
    sizes: Sizes
    definite: bool
    usable: Tensor | None = None
    factor: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> GPUPrograms:
        """Return the programs of the samples ``rows``, for a batch in which every sample has an H of its own."""
        sizes = self.sizes
        some = replace(sizes, top=sizes.top[rows], root=sizes.root[rows], root_top=sizes.root_top[rows])
        return replace(self, qp=replace(self.qp, H=self.qp.H[rows]), sizes=some)

    @cached_property
    def inverse(self) -> Tensor:
        """H⁻¹, (B or 1, n, n), computed by operations that a CUDA graph can capture."""
        one = torch.eye(self.qp.n, dtype=self.qp.H.dtype, device=self.qp.H.device)
        half = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(self.qp.H).L, one, upper=False)
        return half.mT @ half

    def inverse_times(self, e: Tensor) -> Tensor:
        """Return H⁻¹e (B, n) for e (B, n).

        The Cholesky factor is used if it is known, otherwise the inverse with one round of refinement.
        """
        if self.qp.diagonal:
            return e / self.sizes.top
        if self.factor is not None:
            half = torch.linalg.solve_triangular(self.factor, e[:, :, None], upper=False)
            return torch.linalg.solve_triangular(self.factor.mT, half, upper=True)[:, :, 0]
        first = matvec(self.inverse, e)
        return first + matvec(self.inverse, e - matvec(self.qp.H, first))

    @cached_property
    def twice(self) -> GPUPrograms:
        """The programs for the verification of 2B points: the constraints and sizes appear twice, H only once."""
        sizes = Sizes(**self._repeated(self.sizes, (one.name for one in fields(self.sizes))))
        return replace(self, qp=replace(self.qp, **self._repeated(self.qp, _CONSTRAINTS)), sizes=sizes)

    def joined(self, other: GPUPrograms, B: int) -> GPUPrograms:
        """Return the programs for the verification of B points of these programs, then B points of ``other``.

        The result is ``twice`` with the curvature sizes of ``other`` in its second half.

        Args:
            other: B programs with the same constraints.
            B: the number of samples.
        """

        def join(name: str) -> Tensor:
            rows = (getattr(one.sizes, name) for one in (self, other))
            return torch.cat([row.expand(B, -1) for row in rows])

        twice = self.twice
        return replace(twice, sizes=replace(twice.sizes, **{name: join(name) for name in _CURVATURE}))

    def with_curvature(self, Q: Tensor, sign: float, smoothing: float) -> GPUPrograms:
        """Return the programs with the curvature Q of a call in place of their own.

        ``usable`` of the result is True where Q is symmetric, and H is definite and of moderate size.

        Args:
            Q: (n, n) or (B, n, n), not yet checked.
            sign: 1 if the objective is minimised, −1 if it is maximised.
            smoothing: the coefficient λ of the quadratic smoothing term.
        """
        wide = Q.detach().double()
        wide = wide if wide.dim() == 3 else wide[None]
        H = torch.add(wide, wide.mT).mul_(0.5 * sign)
        asymmetry = torch.linalg.vector_norm(wide - wide.mT, torch.inf, dim=(1, 2))
        if smoothing:
            H.diagonal(dim1=1, dim2=2).add_(smoothing)
        sizes = self.sizes.with_curvature(H)
        largest = sizes.top[:, 0] - smoothing  # no entry of a definite matrix exceeds its diagonal
        factor, info = torch.linalg.cholesky_ex(H)
        usable = (info == 0) & (sizes.top[:, 0] <= LARGEST)
        usable = usable & (asymmetry <= SYMMETRY[float_dtype(Q) or torch.float64] * largest)
        return GPUPrograms(replace(self.qp, H=H, diagonal=False), sizes, definite=True, usable=usable, factor=factor)

    @staticmethod
    def _repeated(record: Any, names: Iterable[str]) -> dict[str, Any]:
        """Return the named fields of ``record`` for 2B samples. Fields that differ by sample appear twice."""
        values = ((name, getattr(record, name)) for name in names)
        return {name: v if v is None or len(v) == 1 else torch.cat([v, v]) for name, v in values}

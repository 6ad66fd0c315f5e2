"""``Smooth``: a smooth term φ(z) of the objective, in addition to the linear and quadratic terms."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.tensor_conversion import ArrayLike, tensor_shape, to_float64_tensor


@dataclass(frozen=True, eq=False)
class Smooth:
    """A twice differentiable term φ of the objective, given by three functions of a batch z (B, n) in float64.

    φ must be convex in a problem that minimises, and concave in a problem that maximises.

    Attributes:
        value: a function from z (B, n) to φ(z) (B,).
        gradient: a function from z (B, n) to ∇φ(z) (B, n).
        hessian: a function from z (B, n) to ∇²φ(z) (B, n, n).
        start: (n,) a point inside the domain of φ, for a function such as the logarithm; None if φ is defined
            everywhere.

    Example:
        The sum of the logarithms of all holdings, Σ log zᵢ, which is concave on z > 0:

        >>> import torch
        >>> from pear.problem import Smooth
        >>> phi = Smooth(
        ...     value=lambda z: z.log().sum(1),
        ...     gradient=lambda z: 1 / z,
        ...     hessian=lambda z: torch.diag_embed(-1 / z**2),
        ...     start=[1.0, 1.0],
        ... )
        >>> phi.value(phi.start[None])
        tensor([0.], dtype=torch.float64)
    """

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor], Tensor]
    start: ArrayLike | None = None

    def __post_init__(self) -> None:
        for name in ("value", "gradient", "hessian"):
            if not callable(getattr(self, name)):
                raise ProblemError(
                    f"Smooth.{name} must be a function of a batch z (B, n), got {type(getattr(self, name)).__name__}"
                )
        if self.start is None:
            return
        start = to_float64_tensor("Smooth.start", self.start)
        if start.ndim != 1 or not bool(torch.isfinite(start).all()):
            raise ProblemError(
                f"Smooth.start must be one finite point of shape (n,), got shape {tensor_shape(start)}"
                + (" with NaN or infinity" if start.ndim == 1 else "")
            )
        object.__setattr__(self, "start", start)

    def to(self, device: torch.device) -> Smooth:
        """Return the same term with ``start`` on ``device``. The functions are expected to work on any device."""
        if self.start is None or self.start.device == device:
            return self
        other = copy.copy(self)
        object.__setattr__(other, "start", self.start.to(device))
        return other

    def checked_value(self, z: Tensor) -> Tensor:
        """Compute φ(z) for z (B, n), and check that the result has the shape (B,)."""
        value = self.value(z)
        if not isinstance(value, Tensor) or value.shape != z.shape[:1]:
            came = f"shape {tensor_shape(value)}" if isinstance(value, Tensor) else type(value).__name__
            raise ProblemError(f"Smooth.value must turn z {tensor_shape(z)} into shape ({len(z)},); it gave {came}")
        return value


def check_smooth_term(phi: Any, n: int) -> Smooth:
    """Return ``phi`` after a check that it is a ``Smooth``, and that its start has n entries or is None."""
    if not isinstance(phi, Smooth):
        raise ProblemError(f"phi must be a pear.Smooth(value, gradient, hessian), got {type(phi).__name__}")
    if phi.start is not None and len(phi.start) != n:
        raise ProblemError(f"Smooth.start of shape {tensor_shape(phi.start)} has {len(phi.start)} entries but n is {n}")
    return phi

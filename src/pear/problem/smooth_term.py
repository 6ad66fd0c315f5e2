"""``Smooth``: a smooth convex or concave term of the objective, in addition to the quadratic one."""

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
    """A twice differentiable φ given by three batched functions of z (B, n), float64 in and out.

    φ is convex where the problem minimises and concave where it maximises. It is added to the objective as it is.

    Attributes:
        value: a function from z (B, n) to φ(z) (B,).
        gradient: a function from z (B, n) to ∇φ(z) (B, n).
        hessian: a function from z (B, n) to ∇²φ(z) (B, n, n).
        start: (n,) a point inside the domain of φ, for functions such as a logarithm; None where φ is defined
            everywhere.

    Example:
        The logarithm of each holding, Σ log zᵢ, concave on z > 0:

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
        """The same term with its start on ``device``; the functions work wherever their input is."""
        if self.start is None or self.start.device == device:
            return self
        other = copy.copy(self)
        object.__setattr__(other, "start", self.start.to(device))
        return other

    def checked_value(self, z: Tensor) -> Tensor:
        """φ(z), (B,), checked to have this shape."""
        value = self.value(z)
        if not isinstance(value, Tensor) or value.shape != z.shape[:1]:
            came = f"shape {tensor_shape(value)}" if isinstance(value, Tensor) else type(value).__name__
            raise ProblemError(f"Smooth.value must turn z {tensor_shape(z)} into shape ({len(z)},); it gave {came}")
        return value


def check_phi(phi: Any, n: int) -> Smooth:
    """Check that ``phi`` is a ``Smooth`` whose start has n entries, and return it."""
    if not isinstance(phi, Smooth):
        raise ProblemError(f"phi must be a pear.Smooth(value, gradient, hessian), got {type(phi).__name__}")
    if phi.start is not None and len(phi.start) != n:
        raise ProblemError(f"Smooth.start of shape {tensor_shape(phi.start)} has {len(phi.start)} entries but n is {n}")
    return phi

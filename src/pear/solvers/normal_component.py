"""The normal component of a projected error."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.rule import NEGLIGIBLE


def add_normal_component(rescaled: Tensor, g: Tensor, strength: float) -> Tensor:
    """Return g + β (‖g‖/‖v‖) v, where g is a projection and v = H⁻¹e − g the normal component.

    If v is negligible, the result is g.

    Args:
        rescaled: (B, n) the products H⁻¹e of the inverse curvature and the errors e of the objective's gradient.
        g: (B, n) the projections of the errors.
        strength: β ≥ 0.

    Returns:
        (B, n) the sums.
    """
    n = rescaled - g
    size_n, size_g = (torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (n, g))
    real = size_n > NEGLIGIBLE * torch.linalg.vector_norm(rescaled, dim=1, keepdim=True)
    return torch.addcmul(g, torch.where(real, strength * size_g / size_n, 0.0), n)

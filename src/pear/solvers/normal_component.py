"""The normal component of a projected error."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.rule import NEGLIGIBLE


def add_normal_component(rescaled: Tensor, g: Tensor, strength: float) -> Tensor:
    """Add the normal component n = H⁻¹e − g to a projection: g + β (‖g‖/‖n‖) n, or g if n = 0.

    Args:
        rescaled: (B, n) the products H⁻¹e, where e are errors of the gradient of the objective.
        g: (B, n) the projections of e.
        strength: β ≥ 0.

    Returns:
        (B, n).
    """
    n = rescaled - g
    size_n, size_g = (torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (n, g))
    real = size_n > NEGLIGIBLE * torch.linalg.vector_norm(rescaled, dim=1, keepdim=True)
    return torch.addcmul(g, torch.where(real, strength * size_g / size_n, 0.0), n)

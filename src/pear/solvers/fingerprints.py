"""Fingerprints of the data of samples, by which two calls are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.problem.matrix import MATRICES
from pear.problem.problem_fields import FIELDS


def fingerprint(cost: Tensor, smoothing: float, fields: Mapping[str, Any] | None = None) -> Tensor:
    """Return numbers that tell whether the cost, smoothing and fields of a sample are the same in two calls.

    The numbers of a sample contain all vectors in full, and the product of each matrix with a fixed random vector.
    Equal data has equal numbers. Different matrices have the same product only by a rare accident.

    Args:
        cost: (B, n) costs.
        smoothing: the coefficient λ of the quadratic smoothing term.
        fields: values that replace fields of the problem in this call, shared or per sample.

    Returns:
        (B, f) float64, f numbers per sample.
    """
    B = len(cost)
    parts = [cost.double(), cost.new_full((B, 1), smoothing, dtype=torch.float64)]
    for name, value in sorted((fields or {}).items()):
        parts.append(cost.new_full((B, 1), FIELDS.index(name), dtype=torch.float64))
        own = torch.as_tensor(value, dtype=torch.float64, device=cost.device).detach()
        own = own @ _fingerprint_weights(own.shape[-1], cost.device) if name in MATRICES else own
        parts.append((own if own.dim() == 2 else own.reshape(1, -1)).expand(B, -1))
    return torch.cat(parts, 1)


def curvature_fingerprint(Q: Tensor) -> Tensor:
    """Return fingerprints (B, n) of curvatures (B, n, n): their products with a fixed random vector."""
    return Q.detach() @ _fingerprint_weights(Q.shape[-1], Q.device)


def _fingerprint_weights(n: int, device: torch.device) -> Tensor:
    """Return the fixed random vector (n,)."""
    return torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)

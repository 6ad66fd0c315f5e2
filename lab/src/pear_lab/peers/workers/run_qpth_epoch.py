"""qpth on portfolios from windows of daily returns: the gradients of an epoch of training on the lost utility."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("qpth", "torch", "numpy")


def prepare_qpth_epoch(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that computes, for each batch, the gradient of the loss with respect to the predicted returns.

    A window of daily returns gives the mean return of each asset, and the covariance matrix of the assets. A portfolio
    maximises its utility under the predicted window: the mean return, less half the risk aversion times the variance.
    Its loss is the utility of the best portfolio less its own utility, both under the true window. The loss of a batch
    is the mean over its windows. The utilities of the best portfolios are computed before the clock starts.

    Args:
        data: arrays by name. ``predicted`` and ``true`` (R, B, n, days) are R batches of windows of daily returns of n
            assets. Mean returns are those of the last ``ahead`` days of a window. ``floor`` is the eigenvalue to which
            the least eigenvalue of a covariance matrix is raised. ``risk_aversion`` is the risk aversion.
        device: "cpu".
    """
    import torch

    predicted, true = (torch.from_numpy(data[name]).to(device) for name in ("predicted", "true"))
    ahead, floor, risk = int(data["ahead"]), float(data["floor"]), float(data["risk_aversion"])
    n = predicted.shape[2]
    A, b = predicted.new_ones(1, n), predicted.new_ones(1)
    eye = torch.eye(n, dtype=predicted.dtype, device=device)
    layer = import_module("qpth.qp").QPFunction(verbose=-1, check_Q_spd=False)

    def moments(days: Any) -> tuple[Any, Any]:
        centred = days - days.mean(2, keepdim=True)
        covariance = centred @ centred.transpose(1, 2) / (days.shape[2] - 1)
        singular = n >= days.shape[2]  # then the least eigenvalue is zero, and constant
        least = covariance.new_zeros(len(days)) if singular else torch.linalg.eigvalsh(covariance)[:, 0]
        return days[:, :, -ahead:].mean(2), covariance + (floor - least).clamp(min=0)[:, None, None] * eye

    def weights(mu: Any, sigma: Any) -> Any:
        return layer(risk * sigma, -mu, -eye, predicted.new_zeros(n), A, b)

    def utility(w: Any, mu: Any, sigma: Any) -> Any:
        return (mu * w).sum(1) - 0.5 * risk * (w * (sigma @ w[:, :, None])[:, :, 0]).sum(1)

    with torch.no_grad():
        best = [utility(weights(*moments(days)), *moments(days)) for days in true]

    def step() -> dict[str, Any]:
        found = []
        for days, came, most in zip(predicted, true, best, strict=True):
            moving = days.clone().requires_grad_()
            loss = (most - utility(weights(*moments(moving)), *moments(came))).abs().mean()
            loss.backward()
            assert moving.grad is not None
            found.append(moving.grad.cpu().numpy())
        return {"gradient": found}

    return step


PREPARE = prepare_qpth_epoch

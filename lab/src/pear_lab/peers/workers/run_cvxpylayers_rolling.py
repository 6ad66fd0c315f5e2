"""cvxpylayers on rollouts of a battery. Each plan begins at the level that the last plan reaches after an hour."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("cvxpylayers", "cvxpy", "diffcp", "torch", "numpy")


def prepare_cvxpylayers_rollouts(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that computes the realised costs (B,) of all rollouts, and the gradient of their mean.

    The gradient (B, S, T) is that with respect to the forecasts.

    Args:
        data: ``forecasts`` and ``truth`` (B, S, T), the prices of B rollouts of S steps with plans of T hours; and
            numbers of the battery: ``start`` (its first level), ``half`` (the preferred level), ``capacity``,
            ``charge``, ``discharge``, ``efficiency``, ``level_penalty`` and ``flow_penalty``.
        device: "cpu".
    """
    import torch

    forecasts, truth = (torch.from_numpy(data[name]).to(device) for name in ("forecasts", "truth"))
    level_weight, flow_weight, half = (float(data[name]) for name in ("level_penalty", "flow_penalty", "half"))
    layer = _cvxpylayers_battery({name: float(data[name]) for name in data if data[name].ndim == 0}, forecasts.shape[2])

    def step() -> dict[str, Any]:
        moving = forecasts.clone().requires_grad_()
        level = torch.full_like(truth[:, 0, 0], float(data["start"]))
        total = torch.zeros_like(level)
        for s in range(moving.shape[1]):
            inflow, outflow, levels = layer(moving[:, s], level[:, None])
            came, went, level = inflow[:, 0], outflow[:, 0], levels[:, 1]
            total = total + truth[:, s, 0] * (came - went) + flow_weight * (came**2 + went**2)
            total = total + level_weight * (level - half) ** 2
        total.mean().backward()
        assert moving.grad is not None
        return {"gradient": moving.grad.numpy(), "cost": total.detach().numpy()}

    return step


def _cvxpylayers_battery(spec: dict[str, float], hours: int) -> Any:
    """Make the layer that plans a battery. Its parameters are the prices and the level at the start."""
    cp, layers = import_module("cvxpy"), import_module("cvxpylayers.torch")
    price, start = cp.Parameter(hours), cp.Parameter(1)
    inflow, outflow, level = cp.Variable(hours), cp.Variable(hours), cp.Variable(hours + 1)
    cost = price @ (inflow - outflow) - price[hours - 1] * level[hours]
    cost += spec["level_penalty"] * cp.sum_squares(level[1:] - spec["half"])
    cost += spec["flow_penalty"] * (cp.sum_squares(inflow) + cp.sum_squares(outflow))
    rows = [level[0] == start[0], level[1:] == level[:-1] + spec["efficiency"] * inflow - outflow]
    rows += [inflow >= 0, inflow <= spec["charge"], outflow >= 0, outflow <= spec["discharge"]]
    rows += [level[1:] >= 0, level[1:] <= spec["capacity"]]
    problem = cp.Problem(cp.Minimize(cost), rows)
    return layers.CvxpyLayer(problem, parameters=[price, start], variables=[inflow, outflow, level])


PREPARE = prepare_cvxpylayers_rollouts

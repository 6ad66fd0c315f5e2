"""A forecaster of returns: the model DLinear, whose weights all assets share, with the normalisation RevIN."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pear.errors import ProblemError
from pear_lab.tasks.market.windows import AHEAD, WINDOW

_EPS = 1e-5


class Forecaster(nn.Module):
    """A model that returns known daily returns followed by predicted ones.

    RevIN standardises every window, with a learned scale and offset for each asset, and transforms the forecast back.
    DLinear splits the standardised window into its moving average (the trend) and the rest (the season). Trend and
    season each have a linear map from ``window`` to ``ahead`` days, which all assets share.

    Args:
        assets: n, the number of assets.
        window: the number of known days.
        ahead: the number of predicted days.
        average: the length of the moving average, an odd number of days.
        generator: the generator of the first weights, which are uniform within ±1/√window as in ``torch.nn.Linear``.
        dtype: the type of the weights.

    Example:
        >>> model = Forecaster(assets=3)
        >>> model(torch.zeros(2, 3, 63, dtype=torch.float64)).shape
        torch.Size([2, 3, 84])
    """

    _average: Tensor

    def __init__(
        self,
        assets: int,
        window: int = WINDOW,
        ahead: int = AHEAD,
        average: int = 25,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        if average < 1 or average % 2 == 0:
            raise ProblemError(f"average must be an odd number of days; got {average!r}")
        self.window, self.ahead = window, ahead
        self.trend = _seeded_forecaster_layer(window, ahead, generator, dtype)
        self.season = _seeded_forecaster_layer(window, ahead, generator, dtype)
        self.scale = nn.Parameter(torch.ones(assets, dtype=dtype))
        self.offset = nn.Parameter(torch.zeros(assets, dtype=dtype))
        self.register_buffer("_average", _forecaster_average_matrix(window, average, dtype), persistent=False)

    def forward(self, known: Tensor) -> Tensor:
        """Return the known returns (B, n, window) and their forecast as one tensor (B, n, window + ahead)."""
        if known.shape[1:] != (len(self.scale), self.window):
            raise ProblemError(
                f"expected (B, {len(self.scale)}, {self.window}) returns of {len(self.scale)} assets over "
                f"{self.window} days; got shape {tuple(known.shape)}"
            )
        known = known.contiguous()
        mean = known.mean(2, keepdim=True)
        deviation = (known.var(2, keepdim=True, correction=0) + _EPS).sqrt()
        scale, offset = self.scale[:, None], self.offset[:, None]
        x = (known - mean) / deviation * scale + offset
        # Trend and season are linear in the window, so that both maps are one product of small matrices.
        weight = (self.trend.weight - self.season.weight) @ self._average + self.season.weight
        y = F.linear(x, weight, self.trend.bias + self.season.bias)
        forecast = (y - offset) / (scale + _EPS**2) * deviation + mean
        return torch.cat([known, forecast], 2)


def _forecaster_average_matrix(window: int, average: int, dtype: torch.dtype) -> Tensor:
    """Return the moving average as a matrix (window, window). Outside the window, its end days are repeated."""
    half = (average - 1) // 2
    days = torch.arange(window)
    matrix = torch.zeros(window, window, dtype=dtype)
    for step in range(-half, half + 1):
        matrix[days, (days + step).clamp(0, window - 1)] += 1.0 / average
    return matrix


def _seeded_forecaster_layer(
    window: int, ahead: int, generator: torch.Generator | None, dtype: torch.dtype
) -> nn.Linear:
    """Make a linear layer with weights and biases drawn from ``generator``, not from torch's global generator."""
    layer = nn.utils.skip_init(nn.Linear, window, ahead, dtype=dtype)
    bound = window**-0.5
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-bound, bound, generator=generator)
    return layer

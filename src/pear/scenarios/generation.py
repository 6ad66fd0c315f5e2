"""Scenarios from a forecaster's forecasts and past errors: by random draws, by quantiles, or by training."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.problem.tensor_conversion import to_float64_tensor
from pear.scenarios.error_spread import ErrorSpread
from pear.setting_checks import check_count_setting


def residual_scenarios(
    forecasts: Any,
    residuals: Any,
    count: int,
    draw: Literal["random", "even"] = "random",
    seed: int = 0,
    spread: ErrorSpread | tuple[Any, Any] | None = None,
) -> Tensor:
    """Return scenarios that are forecasts plus past errors.

    A scenario is a forecast plus all errors of one past day, so that errors that occur together stay together. Use
    errors of days that the forecaster was not fitted on, such as those of a cross-validation or of the last weeks.
    Errors on training days are too small.

    Args:
        forecasts: (B, k) forecasts of k values.
        residuals: (N, k) true values minus forecasts on N past days.
        count: S, the number of scenarios.
        draw: how past days are chosen. "random" draws them; a day is drawn again only after all others. "even" sorts
            them by their mean error, in units of each value's standard deviation, and chooses them at even steps, so
            that even a few scenarios cover high and low values.
        seed: the seed of the random draw. All B samples get the same days.
        spread: the predicted sizes of the errors on past days (N, k) and of the samples (B, k), from ``predict_spread``
            or any other regression. Each past error is divided by the size predicted for its day and multiplied by that
            of the sample. If omitted, past errors are not rescaled.

    Returns:
        (B, S, k) float64.

    Example:
        >>> residual_scenarios([[10.0, 20.0]], [[1.0, 2.0], [-1.0, -2.0]], 2, seed=0).tolist()
        [[[11.0, 22.0], [9.0, 18.0]]]
    """
    centre, errors, scale = _read_forecasts_and_residuals(forecasts, residuals, spread)
    count = check_count_setting("count", count)
    if draw not in ("random", "even"):
        raise ProblemError(f"draw must be 'random' or 'even'; got {draw!r}")
    if draw == "even":
        deviation = errors.std(0, correction=0)
        level = (errors / torch.where(deviation > 0, deviation, 1.0)).mean(1)
        steps = (torch.arange(count) + 0.5) * len(errors) / count
        return centre[:, None] + scale[:, None] * errors[level.argsort(stable=True)[steps.long()]]
    generator = torch.Generator().manual_seed(seed)
    rounds = -(-count // len(errors))
    drawn = torch.cat([torch.randperm(len(errors), generator=generator) for _ in range(rounds)])[:count]
    return centre[:, None] + scale[:, None] * errors[drawn]


def quantile_scenarios(
    forecasts: Any, residuals: Any, count: int, spread: ErrorSpread | tuple[Any, Any] | None = None
) -> Tensor:
    """Return scenarios that are forecasts plus a quantile of past errors.

    Scenario s = 1, …, S adds to each value the (s − ½)/S quantile of its past errors, so that all values are high
    together or low together. The errors within a scenario are more alike than in ``residual_scenarios``.

    Args:
        forecasts: (B, k) forecasts of k values.
        residuals: (N, k) true values minus forecasts on N past days.
        count: S, the number of scenarios.
        spread: as for ``residual_scenarios``. The quantiles are those of the errors in units of their predicted size.

    Returns:
        (B, S, k) float64, from low to high values.

    Example:
        >>> quantile_scenarios([[10.0]], [[-1.0], [0.0], [1.0]], 2).tolist()
        [[[9.5], [10.5]]]
    """
    centre, errors, scale = _read_forecasts_and_residuals(forecasts, residuals, spread)
    count = check_count_setting("count", count)
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return centre[:, None] + scale[:, None] * errors.quantile(levels, dim=0)


class ResidualScenarios(nn.Module):
    """A trainable generator of scenarios ``forecast(x) + exp(scale(x)) · errors`` from features x.

    Before training, its scenarios are forecasts plus the given past errors. Training changes the forecaster, the S rows
    of errors, and a linear map that makes the scenarios wider or narrower depending on the features.

    Args:
        forecaster: a trained module from features (B, p) to forecasts (B, k) of k values.
        residuals: (S, k) past errors of the forecaster, a row for each of S scenarios.
        features: p, the number of features.

    Example:
        >>> import torch
        >>> net = ResidualScenarios(torch.nn.Linear(3, 2), [[1.0, 2.0], [-1.0, -2.0]], features=3)
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, forecaster: nn.Module, residuals: Any, features: int) -> None:
        super().__init__()
        errors = to_float64_tensor("residuals", residuals)
        if errors.ndim != 2:
            raise ProblemError(f"residuals must have shape (S, k), a row for each scenario; got {tuple(errors.shape)}")
        self.forecaster = forecaster
        kind = next((one.dtype for one in forecaster.parameters()), torch.float64)
        # errors are kept in units of their deviation, so that one learning rate fits all parameters
        self.register_buffer("unit", errors.std(0, correction=0).clamp(min=torch.finfo(kind).tiny).to(kind))
        self.errors = nn.Parameter((errors / self.get_buffer("unit").double()).to(kind))
        self.scale = nn.Linear(features, errors.shape[1], dtype=kind)
        nn.init.zeros_(self.scale.weight)
        nn.init.zeros_(self.scale.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return S scenarios of k values, one after the other, (B, S·k), for p features (B, p)."""
        spread = self.get_buffer("unit") * self.scale(x).exp()
        scenarios: Tensor = self.forecaster(x)[:, None] + spread[:, None] * self.errors
        return scenarios.flatten(1)


def _read_forecasts_and_residuals(
    forecasts: Any, residuals: Any, spread: ErrorSpread | tuple[Any, Any] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return forecasts (B, k), residuals (N, k) in units of their size, and the sizes for the samples, in float64.

    The sizes (B, k) are those of ``spread``. Without one they are 1, (1, k), and residuals keep their unit.

    Raises:
        ProblemError: the shapes do not fit, a residual is not finite, or a size is not finite and positive.
    """
    centre, errors = to_float64_tensor("forecasts", forecasts), to_float64_tensor("residuals", residuals)
    if centre.ndim != 2 or errors.ndim != 2 or centre.shape[1] != errors.shape[1] or not len(errors):
        raise ProblemError(
            "forecasts must have shape (B, k) and residuals (N, k), with the same k; got "
            f"{tuple(centre.shape)} and {tuple(errors.shape)}"
        )
    if not bool(errors.isfinite().all()):
        raise ProblemError("residuals must be finite; leave out the days without a true value")
    if spread is None:
        return centre, errors, errors.new_ones(1, errors.shape[1])
    if not isinstance(spread, tuple) or len(spread) != 2:
        raise ProblemError(f"spread must be a pair: sizes on past days and of the samples; got {type(spread).__name__}")
    past, now = (to_float64_tensor("spread", sizes) for sizes in spread)
    if past.shape != errors.shape or now.shape != centre.shape:
        raise ProblemError(
            f"spread must hold the sizes of the errors on past days, {tuple(errors.shape)}, and of the samples, "
            f"{tuple(centre.shape)}; got {tuple(past.shape)} and {tuple(now.shape)}"
        )
    if not all(bool((sizes.isfinite() & (sizes > 0)).all()) for sizes in (past, now)):
        raise ProblemError("the sizes in spread must be finite and positive; give a value that never errs the size 1")
    return centre, errors / past, now

"""``predict_spread``: predicts from features how large the errors of a forecaster will be."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.errors import ProblemError, SolveError
from pear.problem.tensor_conversion import to_float64_tensor
from pear.setting_checks import check_positive_setting

_STEPS = 100  # the largest number of Newton's steps; about ten are needed
_HALVINGS = 60
_GRADIENT = 1e-9  # of a mean of terms of size 1


class ErrorSpread(NamedTuple):
    """The predicted size of the errors of a forecaster, as ``residual_scenarios`` and ``quantile_scenarios`` take it.

    Attributes:
        past: (N, k) the predicted absolute errors of k values on N past days.
        now: (B, k) the predicted absolute errors of B samples.
    """

    past: Tensor
    now: Tensor


def predict_spread(past_features: Any, residuals: Any, features: Any, penalty: float = 0.1) -> ErrorSpread:
    """Predict the mean absolute error of a forecaster from features, by a regression of its past absolute errors.

    Forecasts are not equally uncertain on all days: errors of wind forecasts, for example, grow with the wind. The
    predicted size of the error of observation i is ``exp(ηᵢ)`` with ``ηᵢ = c + w·zᵢ``. Here zᵢ are the standardised
    features, c is a constant, and w are weights. The regression chooses c and w so that the mean of
    ``exp(ηᵢ) − |rᵢ|·ηᵢ`` plus ``½·penalty·‖w‖²`` is least. The past errors rᵢ are measured in units of their mean
    absolute value. Predictions for new samples are limited to the range of those for past days, so that unusual
    features do not make errors arbitrarily large.

    Args:
        past_features: features of N past days. With shape (N, p), each of the k values has a regression of its own.
            With shape (N, k, p), each value has its own features, such as the forecast wind of its hour, and all values
            share one regression. This needs fewer days, and all values must have the same unit.
        residuals: (N, k) true values minus forecasts on these days, which the forecaster was not fitted on.
        features: (B, p) or (B, k, p), the same features of B new samples.
        penalty: the strength of the ridge penalty, above 0. A large one makes the size the same on all days.

    Returns:
        The predicted sizes on the past days and for the new samples. A value whose errors are all zero has the size 1.

    Example:
        >>> import torch
        >>> wind = torch.tensor([[0.0], [1.0], [0.0], [1.0]])
        >>> errors = [[1.0], [3.0], [-1.0], [-3.0]]
        >>> predict_spread(wind, errors, [[0.0], [1.0]], penalty=1e-6).now.round(decimals=3).tolist()
        [[1.0], [3.0]]
    """
    penalty = check_positive_setting("penalty", penalty)
    past, errors, new = _read_spread_data(past_features, residuals, features)
    mean = past.flatten(0, -2).mean(0)
    spread = past.flatten(0, -2).std(0, correction=0)
    past, new = ((values - mean) / torch.where(spread > 0, spread, 1.0) for values in (past, new))
    pooled, sizes = past.ndim == 3, errors.abs()
    targets = sizes.reshape(1, -1) if pooled else sizes.T
    level = targets.mean(1, keepdim=True)
    level = torch.where(level > 0, level, 1.0)
    inputs = past.reshape(1, -1, past.shape[-1]) if pooled else past.expand(len(targets), -1, -1)
    coefficients = _fit_log_linear(inputs, targets / level, penalty)

    def predict(values: Tensor) -> Tensor:
        design = torch.nn.functional.pad(values, (1, 0), value=1.0)
        return design @ coefficients[0] if pooled else design @ coefficients.T

    known, found = predict(past), predict(new)
    axes = (0, 1) if pooled else (0,)
    found = torch.minimum(torch.maximum(found, known.amin(axes)), known.amax(axes))
    some = (targets > 0).any(1)
    return ErrorSpread(*(torch.where(some, values.exp() * level[:, 0], 1.0) for values in (known, found)))


def _fit_log_linear(inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """Fit R regressions as ``predict_spread`` describes them, by Newton's method with backtracking.

    Args:
        inputs: (R, M, p) standardised features of M observations.
        targets: (R, M) sizes of errors, not negative.
        penalty: the strength of the ridge penalty on the weights. The constant is not penalised.

    Returns:
        The constant and the p weights of each regression, (R, 1 + p).
    """
    design = torch.nn.functional.pad(inputs, (1, 0), value=1.0)
    ridge = torch.full(design.shape[-1:], penalty, dtype=torch.float64)
    ridge[0] = 0.0
    found = design.new_zeros(len(design), design.shape[-1])

    def loss(at: Tensor) -> Tensor:
        linear = (design @ at[..., None])[..., 0]
        return (linear.exp() - targets * linear).mean(1) + 0.5 * (ridge * at.square()).sum(1)

    active = targets.gt(0).any(1)  # without a positive observation the constant would be minus infinity
    for _ in range(_STEPS):
        fitted = (design @ found[..., None])[..., 0].exp()
        gradient = (design.mT @ (fitted - targets)[..., None])[..., 0] / targets.shape[1] + ridge * found
        gradient = torch.where(active[:, None], gradient, 0.0)
        if bool((gradient.abs() <= _GRADIENT).all()):
            return found
        curvature = design.mT @ (fitted[..., None] * design) / targets.shape[1] + torch.diag(ridge)
        step = torch.linalg.solve(curvature, gradient)
        before, slope = loss(found), (gradient * step).sum(1)
        share = torch.ones_like(before)
        for _ in range(_HALVINGS):
            # a decrease below the rounding error of the loss is no reason to halve
            rise = loss(found - share[:, None] * step) - before + 1e-4 * share * slope
            worse = ~(rise <= 1e-14 * before.abs().clamp(min=1.0))
            if not bool(worse.any()):
                break
            share = torch.where(worse, share / 2, share)
        found = found - share[:, None] * step
    raise SolveError("the regression of the sizes of errors did not converge; check the features for extreme values")


def _read_spread_data(past_features: Any, residuals: Any, features: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features of past days, their residuals (N, k), and the features of new samples, in float64.

    Raises:
        ProblemError: the shapes do not fit, or a number is not finite.
    """
    past, new = to_float64_tensor("past_features", past_features), to_float64_tensor("features", features)
    errors = to_float64_tensor("residuals", residuals)
    fits = errors.ndim == 2 and past.ndim in (2, 3) and len(past) == len(errors) > 0 and past.shape[1:] == new.shape[1:]
    if not fits or (past.ndim == 3 and past.shape[1] != errors.shape[1]):
        raise ProblemError(
            "past_features must have shape (N, p) or (N, k, p), residuals (N, k) and features (B, p) or (B, k, p); got "
            f"{tuple(past.shape)}, {tuple(errors.shape)} and {tuple(new.shape)}"
        )
    for name, values in (("past_features", past), ("residuals", errors), ("features", new)):
        if not bool(values.isfinite().all()):
            raise ProblemError(f"{name} must be finite; leave out the days with a missing number")
    return past, errors, new

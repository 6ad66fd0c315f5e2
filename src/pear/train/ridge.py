"""``fit_ridge``: fits a linear model to the squared error in closed form, with a penalty from a cross-validation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pear.train.blocked_folds import blocked_folds

STRENGTHS = torch.logspace(-3, 6, 19, dtype=torch.float64)
"""The strengths that are tried. A strength is the factor of the squared weights in the objective of the regression."""

FOLDS = 5
"""The number of folds of the cross-validation that chooses the strength."""


class RidgeWeights(NamedTuple):
    """The weights of a ridge regression, for features that are not standardised.

    Attributes:
        weight: (k, p) the weights of p features for k targets, in float64.
        bias: (k,) in float64; zero if the model has no intercept.
        strength: the chosen strength of the penalty.
    """

    weight: Tensor
    bias: Tensor
    strength: float


def fit_ridge(features: Tensor, targets: Tensor, intercept: bool = True, weight: Tensor | None = None) -> RidgeWeights:
    """Fit a ridge regression to all rows.

    The features are standardised first, so that their units do not matter; a constant feature gets a weight of zero.
    The targets are divided by their standard deviations, so that all targets count equally. The strength of the penalty
    is the one of ``STRENGTHS`` with the lowest squared error in a cross-validation. The folds of the cross-validation
    are blocks of consecutive rows, so that a row of a time series is not predicted from its neighbours.

    Args:
        features: (N, p), p features of each of N observations.
        targets: (N, k), k targets of each observation.
        intercept: whether the model has a bias. Without one, features and targets are scaled but not centred.
        weight: (N,) how much each row counts; None weighs all rows alike. A weight of 3 has the effect of three copies
            of the row.

    Example:
        >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
        >>> found = fit_ridge(x, 2 * x + 1)
        >>> [round(float(part), 2) for part in (found.weight, found.bias)]
        [2.0, 1.0]
    """
    rows, true = features.detach().double(), targets.detach().double()
    each = None if weight is None else weight.detach().double().to(rows.device)
    mean, factor = _ridge_mean_and_factor(rows, intercept, each)
    centre, unit = _ridge_mean_and_factor(true, intercept, each)
    rows, true = (rows - mean) * factor, (true - centre) * unit
    strength = _choose_ridge_strength(rows, true, intercept, each)
    found = _RidgePath(rows, true, intercept, each).weight(strength) * factor[:, None]
    found = (found / torch.where(unit > 0, unit, 1.0)).T
    return RidgeWeights(found, centre - found @ mean, strength)


def _ridge_mean(rows: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean of each of the p columns of ``rows`` (N, p), weighted by ``weight`` (N,) unless that is None."""
    return rows.mean(0) if weight is None else weight @ rows / weight.sum()


def _ridge_mean_and_factor(rows: Tensor, centred: bool, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean and the factor 1 / standard deviation of each of p columns, as two tensors (p,).

    The factor is 0 for a column that is constant up to rounding. If the columns are not centred, the mean is zero, and
    the root mean square takes the place of the standard deviation.
    """
    mean = _ridge_mean(rows, weight) if centred else torch.zeros_like(rows[0])
    spread = _ridge_mean((rows - mean).square(), weight).sqrt()
    rounding = 8 * torch.finfo(rows.dtype).eps * rows.abs().amax(0)
    return mean, torch.where(spread > rounding, 1 / spread, 0.0)


def _choose_ridge_strength(rows: Tensor, true: Tensor, intercept: bool, weight: Tensor | None) -> float:
    """Return the strength with the lowest squared error on held-out folds; the largest strength if there is one row."""
    errors = torch.zeros_like(STRENGTHS)
    for kept, held_out in blocked_folds(len(rows), FOLDS):
        part, judged = (None, None) if weight is None else (weight[kept], weight[held_out])
        path = _RidgePath(rows[kept], true[kept], intercept, part)
        errors += path.squared_errors(rows[held_out], true[held_out], judged)
    return float(STRENGTHS[int(errors.argmin())]) if len(rows) > 1 else float(STRENGTHS[-1])


class _RidgePath:
    """The ridge regressions with all strengths on the same rows, from one eigendecomposition of a Gram matrix.

    Args:
        rows: (N, p), N rows of p features.
        true: (N, k), k targets of each row.
        intercept: whether features and targets are centred first.
        weight: (N,) how much each row counts; None weighs all rows alike.
    """

    def __init__(self, rows: Tensor, true: Tensor, intercept: bool, weight: Tensor | None) -> None:
        self.mean = _ridge_mean(rows, weight) if intercept else torch.zeros_like(rows[0])
        self.centre = _ridge_mean(true, weight) if intercept else torch.zeros_like(true[0])
        rows, true = rows - self.mean, true - self.centre
        if weight is not None:
            rows, true = weight.sqrt()[:, None] * rows, weight.sqrt()[:, None] * true
        if rows.shape[0] >= rows.shape[1]:  # the smaller of the two Gram matrices
            squares, vectors = torch.linalg.eigh(rows.T @ rows)
            self.squares, self.directions = squares.clamp(min=0), vectors
            self.moments = vectors.T @ (rows.T @ true)
        else:
            squares, vectors = torch.linalg.eigh(rows @ rows.T)
            keep = squares > squares.max() * len(rows) * torch.finfo(rows.dtype).eps
            self.squares, vectors = squares[keep], vectors[:, keep]
            self.directions = rows.T @ vectors / self.squares.sqrt()
            self.moments = self.squares.sqrt()[:, None] * (vectors.T @ true)

    def weight(self, strength: float) -> Tensor:
        """Return the weights of the ridge regression with this strength, (p, k), for p features and k targets."""
        return self.directions @ (self.moments / (self.squares + strength)[:, None])

    def squared_errors(self, rows: Tensor, true: Tensor, weight: Tensor | None) -> Tensor:
        """Return the sum of weighted squared errors for each of the S entries of ``STRENGTHS``, (S,).

        Args:
            rows: (M, p), M rows of p features.
            true: (M, k), k targets of each row.
            weight: (M,) how much each row counts; None weighs all rows alike.
        """
        along, off = (rows - self.mean) @ self.directions, true - self.centre
        shrunk = (self.moments / (self.squares + strength)[:, None] for strength in STRENGTHS)
        counted = 1.0 if weight is None else weight[:, None]
        return torch.stack([(counted * (along @ one - off).square()).sum() for one in shrunk])

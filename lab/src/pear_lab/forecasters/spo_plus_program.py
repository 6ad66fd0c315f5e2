"""Newton's method for the linear forecast that minimises the SPO+ loss with a lasso penalty.

If all K decisions are listed, the SPO+ loss of a sample is the maximum of K linear functions rₖ of the coefficients B.
The absolute value of a coefficient is the maximum of two linear functions. Each maximum is replaced by the smooth
function ``τ log Σₖ exp(rₖ/τ)``, which exceeds the maximum by at most τ log K. The sum is minimised for a decreasing
sequence of smoothing parameters τ, and each search starts at the previous minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from pear.errors import SolveError

Array = NDArray[np.float64]

FIRST_SMOOTHING, LAST_SMOOTHING = 1.0, 1e-3
"""The first and the last τ, relative to the mean excess cost of a decision over the best one."""

SHRINK = 0.25
MAX_STEPS = 500
DECREMENT = 1e-2
"""The decrement of Newton's method, relative to τ times the number of samples, at which τ is reduced."""

_LEAST_BEND = 0.1
"""The least curvature of |b|, relative to 1/|b|, for a coefficient b. Without it, steps far from 0 are too long."""

_CERTAIN = 1e-12
"""The curvature leaves out samples for which the probability of one decision is at most this far below 1."""

_RIDGE = 1e-10
"""The multiple of the mean diagonal that is added to the curvature, for directions in which the objective is flat."""


@dataclass(frozen=True)
class SPOPlusFit:
    """The minimum of the mean SPO+ loss plus penalty.

    Attributes:
        coefficients: (m, q) the coefficients B of the forecast Bx of m costs from q features x.
        value: the objective without smoothing.
        steps: the number of steps of Newton's method.
    """

    coefficients: Array
    value: float
    steps: int


@dataclass(frozen=True)
class SPOPlusProgram:
    """The problem of minimising the SPO+ loss over n samples with q features x and m costs c, given all K decisions.

    Attributes:
        features: (n, q) x, including a column of ones for an intercept.
        decisions: (K, m) all decisions z.
        best: (n, m) the best decision of every sample.
        excess: (n, K) the cost of every decision less that of the best one, for each sample, in the program's unit.
        unit: the program's unit, a number by which costs and the coefficients B are divided inside the program.
    """

    features: Array
    decisions: Array
    best: Array
    excess: Array
    unit: float

    @classmethod
    def from_samples(cls, features: Array, costs: Array, decisions: Array) -> SPOPlusProgram:
        """Return the program for features (n, q), costs (n, m) and all decisions (K, m)."""
        values = costs @ decisions.T
        excess = values - values.min(1, keepdims=True)
        unit = float(excess.mean()) or 1.0
        return cls(features, decisions, decisions[values.argmin(1)], excess / unit, unit)

    def minimise(self, penalties: Array, start: Array, smoothing: float = FIRST_SMOOTHING) -> SPOPlusFit:
        """Minimise ``1/n Σᵢ ℓ(B xᵢ, cᵢ) + Σⱼₖ penaltyₖ |Bⱼₖ|`` over the coefficients B, with the SPO+ loss ℓ.

        Args:
            penalties: (q,) the weight of the penalty on each column of B; 0 for an intercept.
            start: (m, q) the first coefficients.
            smoothing: the first smoothing parameter τ. It may be small if ``start`` is near the optimum.

        Raises:
            SolveError: the method does not converge in ``MAX_STEPS`` steps.
        """
        L = np.broadcast_to(len(self.features) * penalties, start.shape)
        B, tau = start / self.unit, smoothing
        for count in range(MAX_STEPS):
            direction, decrement = self._newton_step(B, L, tau)
            if decrement <= DECREMENT * tau * len(self.features):
                if tau <= LAST_SMOOTHING:
                    value = self.objective(B, L, 0.0) * self.unit / len(self.features)
                    return SPOPlusFit(B * self.unit, value, count)
                tau = max(SHRINK * tau, LAST_SMOOTHING)
            else:
                B = B + self._length(B, L, tau, direction, decrement) * direction
        raise SolveError(f"SPO+ needs more than {MAX_STEPS} steps; are the features finite and not collinear?")

    def losses(self, B: Array) -> Array:
        """Return ``(c − 2Bx)ᵀ(zₖ − z*)`` for every sample and decision zₖ, where z* is the best decision. Shape (n, K).

        The maximum over k is the SPO+ loss of a sample. The coefficients B and the losses are in the program's unit.
        """
        forecast = self.features @ B.T
        found: Array = self.excess + 2 * ((forecast * self.best).sum(1)[:, None] - forecast @ self.decisions.T)
        return found

    def objective(self, B: Array, L: Array, tau: float) -> float:
        """Return the sum of the SPO+ losses plus the penalty ``Σⱼₖ Lⱼₖ |Bⱼₖ|``, smoothed unless ``tau`` is 0.

        Args:
            B: (m, q) the coefficients, in the program's unit.
            L: (m, q) the weights of the penalty, multiplied by the number of samples.
            tau: τ ≥ 0, the smoothing.
        """
        losses, size = self.losses(B), np.abs(B)
        if tau == 0:
            return float(losses.max(1).sum() + (L * size).sum())
        smooth_size = size + tau * np.log1p(np.exp(-2 * size / tau))
        return float(tau * logsumexp(losses / tau, axis=1).sum() + (L * smooth_size).sum())

    def _newton_step(self, B: Array, L: Array, tau: float) -> tuple[Array, float]:
        """Return Newton's direction (m, q), and the rate (≥ 0) at which the objective decreases along it.

        The arguments are those of ``objective``.
        """
        losses = self.losses(B)
        w = np.exp((losses - losses.max(1, keepdims=True)) / tau)
        w /= w.sum(1, keepdims=True)
        sign = np.tanh(B / tau)
        gradient = 2 * (self.best - w @ self.decisions).T @ self.features + L * sign
        H = self._curvature(w) / tau
        bend = np.maximum((1 - sign**2) / tau, _LEAST_BEND / np.maximum(np.abs(B), tau))
        H[np.diag_indices(len(H))] += (L * bend).ravel()
        H[np.diag_indices(len(H))] += _RIDGE * np.trace(H) / len(H)
        direction = -cho_solve(cho_factor(H, check_finite=False), gradient.ravel(), check_finite=False)
        return direction.reshape(B.shape), float(-gradient.ravel() @ direction)

    def _length(self, B: Array, L: Array, tau: float, direction: Array, decrement: float) -> float:
        """Return the first step length of 1, ½, ¼, … with at least a tenth of the decrease that the slope predicts.

        ``direction`` and ``decrement`` are the results of ``_newton_step``.
        """
        now, length = self.objective(B, L, tau), 1.0
        while self.objective(B + length * direction, L, tau) > now - 0.1 * length * decrement and length > 0:
            length *= 0.5
        return length

    def _curvature(self, w: Array) -> Array:
        """Return the second derivatives (mq, mq) of the smoothed losses with respect to B, multiplied by τ.

        Each sample i contributes the covariance of the random vector −2 zₖ ⊗ xᵢ, where ⊗ is the Kronecker product, xᵢ
        is fixed, and the decision zₖ is drawn with the probability wᵢₖ. Covariances are computed from deviations from
        the most probable decision, which avoids cancellation.

        Args:
            w: (n, K) the probabilities of the decisions for each sample.
        """
        rows, most = np.arange(len(w)), w.argmax(1)
        other = w.copy()
        other[rows, most] = 0.0
        split = other.sum(1) > _CERTAIN
        other, X, main, total = other[split], self.features[split], self.decisions[most[split]], other[split].sum(1)
        moved = other @ self.decisions - total[:, None] * main
        q, m = X.shape[1], main.shape[1]

        def with_features(rows: Array) -> Array:
            product: Array = (rows[:, :, None] * X[:, None]).reshape(len(X), m * q)
            return product

        cross = with_features(moved + 0.5 * total[:, None] * main).T @ with_features(main)
        mean = with_features(moved)
        found = -(cross + cross.T + mean.T @ mean).reshape(m, q, m, q)
        for a in range(q):
            for b in range(q):
                weights = (X[:, a] * X[:, b]) @ other
                found[:, a, :, b] += (self.decisions.T * weights) @ self.decisions
        return 4 * found.reshape(m * q, m * q)

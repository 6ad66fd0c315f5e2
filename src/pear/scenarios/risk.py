"""The risk measures ``Expectation``, ``CVaR`` and ``WorstCase``, which reduce the costs of scenarios to one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pear.errors import ProblemError


@dataclass(frozen=True)
class Expectation:
    """The weighted mean of the costs of scenarios, as a risk measure.

    Example:
        >>> Expectation().value([[1.0, 2.0, 6.0]])
        tensor([3.], dtype=torch.float64)
    """

    weight: ClassVar[float] = 0.0
    tail: ClassVar[float] = 1.0

    def value(self, costs: Any, weights: Any = None) -> Tensor:
        """Return the risk (B,) of costs (B, S) of S scenarios with weights (S,) or (B, S); equal if omitted."""
        return risk_of_costs(self, costs, weights)


@dataclass(frozen=True)
class CVaR:
    """The risk measure ``(1 − w) · mean + w · CVaR``.

    The conditional value at risk (CVaR) is the mean cost of the worst scenarios: the worst 10 % with a level of 0.9.
    For a problem that maximises, the worst scenarios have the least profit.

    Args:
        level: α, the share of the scenarios that are not among the worst, at least 0 and below 1.
        weight: w, between 0 and 1. With w = 0 the risk is the expectation.

    Attributes:
        tail: 1 − α, the share of the worst scenarios.

    Example:
        >>> CVaR(0.5).value([[1.0, 2.0, 3.0, 6.0]])
        tensor([4.5000], dtype=torch.float64)
    """

    level: float = 0.9
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_risk_share("CVaR(level=…)", self.level, below=True)
        _check_risk_share("CVaR(weight=…)", self.weight)

    @property
    def tail(self) -> float:
        """The share of the worst scenarios."""
        return 1.0 - float(self.level)

    def value(self, costs: Any, weights: Any = None) -> Tensor:
        """Return the risk (B,) of costs (B, S) of S scenarios with weights (S,) or (B, S); equal if omitted."""
        return risk_of_costs(self, costs, weights)


@dataclass(frozen=True)
class WorstCase:
    """The risk measure ``(1 − w) · mean + w · maximum``. The maximum is the cost of the worst scenario, however rare.

    Args:
        weight: w, between 0 and 1. With w = 0 the risk is the expectation.

    Example:
        >>> WorstCase().value([[1.0, 2.0, 6.0]])
        tensor([6.], dtype=torch.float64)
    """

    weight: float = 1.0
    tail: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _check_risk_share("WorstCase(weight=…)", self.weight)

    def value(self, costs: Any, weights: Any = None) -> Tensor:
        """Return the risk (B,) of costs (B, S) of S scenarios with weights (S,) or (B, S); equal if omitted."""
        return risk_of_costs(self, costs, weights)


Risk = Expectation | CVaR | WorstCase
_BY_NAME = {"expectation": Expectation, "cvar": CVaR, "worst case": WorstCase}


def read_risk(risk: Any) -> Risk:
    """Return a risk measure, which may be given by its name: "expectation", "cvar" or "worst case".

    Raises:
        ProblemError: the argument is neither a risk measure nor the name of one.

    Example:
        >>> read_risk("worst case")
        WorstCase(weight=1.0)
    """
    if isinstance(risk, (Expectation, CVaR, WorstCase)):
        return risk
    if isinstance(risk, str) and risk.lower() in _BY_NAME:
        return _BY_NAME[risk.lower()]()
    names = ", ".join(repr(name) for name in _BY_NAME)
    raise ProblemError(
        f"risk must be pear.Expectation(), pear.CVaR(level, weight) or pear.WorstCase(), or one of {names}; "
        f"got {risk!r}"
    )


def risk_of_costs(risk: Risk, costs: Any, weights: Any = None) -> Tensor:
    """Return the risk ``(1 − w) Σ pₛ fₛ + w CVaR(f)`` of scenarios s with costs fₛ and weights pₛ.

    w and tail are the attributes ``weight`` and ``tail`` of the risk measure. The CVaR is ``max Σ qₛ fₛ`` over all q
    with 0 ≤ qₛ ≤ pₛ / tail and Σ qₛ = 1, so that the worst scenarios count most. With a tail of 0, the worst case, the
    CVaR is the largest cost of a scenario with a positive weight.

    Args:
        risk: the risk measure.
        costs: (B, S) costs of S scenarios. Lower is better.
        weights: (S,) or (B, S) weights of the scenarios, which sum to one; equal if omitted.

    Returns:
        (B,) float64.
    """
    costs = torch.as_tensor(costs, dtype=torch.float64)
    scenarios = costs.shape[-1]
    p = costs.new_full((scenarios,), 1 / scenarios) if weights is None else torch.as_tensor(weights).to(costs)
    p = p.expand_as(costs)
    mean = (p * costs).sum(-1)
    if risk.weight == 0:
        return mean
    if risk.tail == 0:
        return (1 - risk.weight) * mean + risk.weight * torch.where(p > 0, costs, -torch.inf).amax(-1)
    ordered, at = costs.sort(-1, descending=True)
    before = p.gather(-1, at).cumsum(-1) - p.gather(-1, at)
    shares = torch.minimum(p.gather(-1, at), (risk.tail - before).clamp(min=0)) / risk.tail
    return (1 - risk.weight) * mean + risk.weight * (shares * ordered).sum(-1)


def _check_risk_share(name: str, share: Any, below: bool = False) -> None:
    """Raise ProblemError unless a number lies between 0 and 1, and, if ``below``, is less than 1."""
    number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not (number and share >= 0 and (share < 1 if below else share <= 1)):
        raise ProblemError(f"{name} must be a number between 0 and 1{', below 1' if below else ''}; got {share!r}")

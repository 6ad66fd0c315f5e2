"""``EarlyStopping``: the rule that ends a training that no longer improves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pear.errors import ProblemError


@dataclass
class EarlyStopping:
    """The rule of early stopping: training stops after several checks in a row without a sufficient improvement.

    Each check gives a value, and lower is better. An improvement is measured from the reference, the value at the last
    sufficient improvement. Several small improvements can therefore add up to a sufficient one.

    Attributes:
        patience: the number of checks in a row without a sufficient improvement after which training stops.
        min_improvement: the least sufficient improvement, as a share of the reference; 0.01 is 1 %.
        reference: the value at the last sufficient improvement; infinite before the first check.
        waited: the number of checks since the last sufficient improvement.

    Example:
        >>> stop = EarlyStopping(patience=2, min_improvement=0.01)
        >>> [stop.update(value) for value in (1.0, 0.995, 0.98, 0.975, 0.99)]
        [False, False, False, False, True]
    """

    patience: int = 10
    min_improvement: float = 0.01
    reference: float = field(default=math.inf, init=False)
    waited: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ProblemError(f"patience must be at least 1; got {self.patience!r}")
        if not 0 <= self.min_improvement < 1:
            raise ProblemError(f"min_improvement must be a share from 0 to below 1; got {self.min_improvement!r}")

    def update(self, value: float) -> bool:
        """Update the rule with the value of a check, and return whether training must stop."""
        needed = self.min_improvement * abs(self.reference) if math.isfinite(self.reference) else 0.0
        if self.reference - value > needed:
            self.reference = value
            self.waited = 0
        else:
            self.waited += 1
        return self.waited >= self.patience

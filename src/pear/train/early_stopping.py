"""When to stop: after several checks in a row without a real improvement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pear.errors import ProblemError


@dataclass
class EarlyStopping:
    """Counts the checks in a row that improve the reference by no more than a share of it.

    The reference is the value at the last real improvement, not the best one: many small steps in a row can add up to
    a real improvement.

    Attributes:
        patience: stop after so many of them.
        min_improvement: 0.01 asks for 1 % of the reference's size.
        reference: what a check is compared with; infinite before the first one.
        waited: how many there have been in a row.

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
        """Take the value of a check; True where it is time to stop."""
        needed = self.min_improvement * abs(self.reference) if math.isfinite(self.reference) else 0.0
        if self.reference - value > needed:
            self.reference = value
            self.waited = 0
        else:
            self.waited += 1
        return self.waited >= self.patience

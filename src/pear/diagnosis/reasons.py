"""Why a sample loses: the error that costs most, and what the decision does for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pear.diagnosis.diagnosis import Diagnosis

CHANGE = 1e-6
"""Of the largest entry of two decisions: what differs by less is the same."""
NOTHING = 1e-12
"""Of what it is compared with: an amount of money that is none."""


def reason(found: Diagnosis, i: int) -> str:
    """One or two sentences about sample i."""
    if found.regret[i] <= NOTHING * abs(found.best[i]):
        return "Nothing is lost."
    return " ".join(part for part in (_error(found, i), _decision(found, i)) if part)


def _error(found: Diagnosis, i: int) -> str:
    """The predicted value whose error costs most."""
    if not found.attributed[i]:
        return ""
    j = int(found.attribution[i].argmax())
    part = found.attribution[i, j] / found.regret[i]
    return (
        f"{found.names[j]} was predicted as {found.predicted[i, j]:.4g} and came to {found.true[i, j]:.4g}: "
        f"{percent(part)} of the loss."
    )


def _decision(found: Diagnosis, i: int) -> str:
    """The variable that differs most from the best decision, and a row that binds in one of the two only."""
    z, best = found.decision[i], found.best_decision[i]
    change = np.abs(z - best)
    if change.max() <= CHANGE * max(np.abs(z).max(), np.abs(best).max()):
        return ""
    # Of variables that change alike, as binary ones do, the one that is worth most.
    worth = np.abs(found.true[i]) if len(found.names) == len(z) else np.ones_like(z)
    j = int((change * worth).argmax())
    text = f"{found.variables[j]} is {z[j]:.4g} where {best[j]:.4g} was best"
    rows = np.array([kind == "row" for kind in found.constraint_kinds], dtype=bool)
    flipped = np.flatnonzero(rows & (found.active[i] != found.best_active[i]))
    if len(flipped):
        price = np.maximum(found.shadow_price[flipped], found.best_shadow_price[flipped])
        at = int(flipped[price.argmax()])
        does = "binds and should not" if found.active[i, at] else "does not bind and should"
        text += f"; {found.constraint_names[at]} {does}"
    return f"{text}."


def percent(value: float) -> str:
    """A share in words: as many digits as its distance from 0 and 100 % needs, and no more than two decimals.

    Example:
        >>> percent(0.0412), percent(1.0), percent(3e-4), percent(1e-9), percent(0.9967)
        ('4.1 %', '100 %', '0.03 %', '0 %', '99.7 %')
    """
    number = 100 * value
    near = abs(100 - number) if 99 < number < 100 else abs(number)
    digits = 0 if near >= 9.95 else 1 if near >= 0.995 or (number > 99 and near >= 0.095) else 2
    text = f"{number:.{digits}f} %"
    return {"-0.00 %": "0 %", "0.00 %": "0 %", "100.00 %": "100 %"}.get(text, text)

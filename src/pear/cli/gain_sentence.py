"""``gain_sentence``: how much regret a training saves compared with MSE."""

from __future__ import annotations

from pear.wording import format_two_decimal_percent


def gain_sentence(mse: float, regret: float, name: str = "PEAR") -> str:
    """Return a sentence on how much regret a method saves compared with MSE.

    Args:
        mse: the normalised regret after training with MSE.
        regret: the normalised regret after training with the method.
        name: the name of the method.

    Example:
        >>> gain_sentence(0.20, 0.05)
        'Decisions trained with PEAR lose 5.00 % instead of 20.00 %: 75 % of what MSE gives away is saved.'
        >>> gain_sentence(0.05, 0.05)
        'Nothing was gained here: decisions trained with PEAR lose 5.00 %, those trained with MSE 5.00 %.'
    """
    ours, theirs = format_two_decimal_percent(regret), format_two_decimal_percent(mse)
    if regret >= mse or ours == theirs:
        return f"Nothing was gained here: decisions trained with {name} lose {ours}, those trained with MSE {theirs}."
    saved = f"{100 * (1 - regret / mse):.0f} %"
    return f"Decisions trained with {name} lose {ours} instead of {theirs}: {saved} of what MSE gives away is saved."

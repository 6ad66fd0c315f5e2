"""``write_race_history``: the ``History`` of a race, with a description of its winner in sentences."""

from __future__ import annotations

import logging
import math
from typing import Any

from pear.train.base_forecast import OUT_OF_FOLD, OWN
from pear.train.history import Check, History, split_history_seconds
from pear.train.racing.race import Race
from pear.train.racing.race_samples import CORRECTIONS
from pear.train.racing.race_without_base import ALONE
from pear.train.training_loss import training_loss_seconds

logger = logging.getLogger("pear")

BEWARE = "Beware"
"""The first word of a warning that the model decides worse than a constant forecast."""


def write_race_history(race: Race, loss: Any, counted: dict[str, float]) -> History:
    """Return the history of a race.

    Args:
        race: the race, after its end.
        loss: the loss.
        counted: the seconds that the loss had spent before the race, from ``training_loss_seconds``.
    """
    progress, start = race.progress, race.start
    history = History(
        checks=race.checks,
        epochs=race.epochs,
        seconds=progress.seconds(),
        check_seconds=progress.judging_seconds,
        stopped=progress.stopped,
        start=start.sentence,
        race=tuple(race.rows),
        held_out=0 if race.whole is None else race.held_out_count,
        left_out=race.job.unsolved.count,
    )
    history.split = split_history_seconds(history, counted, training_loss_seconds(loss))
    if race.rows:
        winner, first = race.winner, race.rows[0]
        history.best = Check(winner.epochs, history.seconds, math.nan, winner.metric)
        history.before = History(epochs=start.epochs, stopped="patience", best=Check(0, 0.0, math.nan, first.metric))
        history.choice, history.note = describe_race(race), describe_corrected_forecasts(race)
        if race.job.ranks.first:
            logger.log(logging.WARNING if BEWARE in history.choice else logging.INFO, history.choice)
    return history


def describe_corrected_forecasts(race: Race) -> str:
    """Return a sentence on the forecasts of a base that the winner of a race corrects; "" if there was no choice."""
    if set(race.folds[0].corrections) != set(CORRECTIONS.values()):
        return ""
    said = {
        CORRECTIONS[OWN]: "the base's own forecasts of the training rows are corrected",
        CORRECTIONS[OUT_OF_FOLD]: "forecasts of the training rows by copies fitted without the row are corrected",
        ALONE: "the base is left out, and forecasts are those of a model without it",
    }.get(race.winner.contender, "the base is not corrected")
    if not race.nested:
        said += "; as the base is slow to fit, the copies that forecast the training rows of a fold saw held-out rows"
    return said


def describe_race(race: Race) -> str:
    """Return a few sentences on the winner of a race, its advantage, and the other contenders."""
    judged = [row for row in race.rows if not row.screened]
    winner, first, tried = race.winner, judged[0], judged[1:]
    where = f"on {race.held_out_count} held-out samples" + (
        f" in {len(race.folds)} folds" if len(race.folds) > 1 else ""
    )
    if winner.contender != "start":
        low, high = winner.interval
        said = (
            f"{winner} won a race of {len(judged)}: {winner.metric:.4g} {where}, against {first.metric:.4g} of the "
            f"start (difference {winner.difference:.3g}, 95 % interval {low:.3g} to {high:.3g})"
        )
    elif tried:
        best = min(tried, key=lambda row: row.bound)
        said = (
            f"the start won a race of {len(judged)}: {first.metric:.4g} {where}. Nothing was clearly better; next "
            f"was {best}, with a difference of {best.difference:.3g} ± {best.standard_error:.2g}"
        )
    else:
        said = f"the start has {first.metric:.4g} {where}"
    if len(judged) < len(race.rows):
        said += f". They were chosen among {len(race.rows) - len(judged)} trained models by their relaxed decisions"
    if race.constant < winner.metric:
        said += (
            f". {BEWARE}: a constant forecast, the mean of the training costs, decides better ({race.constant:.4g}); "
            "the model has learnt nothing that helps"
        )
    return said

"""``race_content`` and ``restore_race``: what a race writes to its checkpoint, and how it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pear.train.history import Check
from pear.train.racing.contender import Contender
from pear.train.racing.held_out_judge import HeldOutLosses
from pear.train.racing.race_row import RaceRow
from pear.train.racing.race_start import NetworkRaceStart
from pear.train.training_loss import load_training_loss_warm_starts, save_training_loss_warm_starts

if TYPE_CHECKING:
    from pear.train.racing.race import Race

STAGE = "race"
"""The name of a race in a checkpoint file."""


def race_content(race: Race, field: list[Contender]) -> dict[str, Any]:
    """Return the state of a race and of these contenders, by name."""
    content: dict[str, Any] = {
        "seconds": race.progress.seconds(),
        "judging": race.progress.judging_seconds,
        "left out": race.job.unsolved.count,
        "nested": race.nested,
        "contenders": {one.name: one.state() for one in field},
        "screen": None if race._screen is None else race._screen.state(),
        "random": race._random.drawn(),
        "samples": save_training_loss_warm_starts(race.loss),
    }
    if race.rows:
        content |= {
            "rows": [asdict(row) for row in race.rows],
            "checks": [asdict(check) for check in race.checks],
            "constant": race.constant,
            "starts": race.starts,
            "starting": asdict(race.starting),
            "epochs": race.start.epochs,
            "first fold": race._first_fold,
            "sentence": race.start.sentence,
        }
    return content


def restore_race(race: Race, said: Mapping[str, Any]) -> None:
    """Set a race to the state that ``race_content`` returned."""
    race._saved, race._content = dict(said["contenders"]), dict(said)
    if said.get("screen") is not None:
        race._saved["screen"] = said["screen"]
    load_training_loss_warm_starts(race.loss, said["samples"])
    race.job.unsolved.count = int(said["left out"])
    if "rows" in said:
        race.rows = [RaceRow.from_dict(row) for row in said["rows"]]
        race.checks = [Check.from_dict(check) for check in said["checks"]]
        race.constant, race.starts = float(said["constant"]), list(said["starts"])
        race.starting, race._first_fold = HeldOutLosses(**said["starting"]), said["first fold"]
        race.epochs, race.start.sentence = race.winner.epochs, str(said["sentence"])
        if isinstance(race.start, NetworkRaceStart):
            race.start.note_epochs(int(said["epochs"]))
    race.progress.resume(float(said["seconds"]), float(said["judging"]))
    race._random.restore(said["random"])

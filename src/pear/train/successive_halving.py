"""``SuccessiveHalving``: trains the candidates of ``tune`` in stages; the better half of each stage continues."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pear.clock import read_clock
from pear.engines import Engine, TaskFailure, TaskMessage, TaskResult, TaskUpdate
from pear.train.history import Progress
from pear.train.tune_candidate import LATE, Common, TimeLeft, TuneCandidate, describe_candidate, train_tune_candidate
from pear.train.validation_time import seconds_left_to_validate

LEAST_SHARE = 0.01
"""The least share of the time cap that a candidate gets in a stage, however many candidates there are."""


@dataclass(frozen=True)
class TuneProgress:
    """The progress of ``tune`` after an epoch, for its callback. ``str(progress)`` is one line.

    Attributes:
        stage: the number of the stage, from 1.
        stages: the number of stages.
        number: the number of the candidate in the stage, from 1.
        count: the number of candidates in the stage.
        candidate: the settings of the candidate in one line.
        run: the progress of the training of this candidate.
        best: the lowest validation regret of all candidates so far; NaN before the first check.
    """

    stage: int
    stages: int
    number: int
    count: int
    candidate: str
    run: Progress
    best: float

    def __str__(self) -> str:
        place = f"stage {self.stage}/{self.stages}, candidate {self.number}/{self.count}: {self.candidate}"
        return f"{place}, epoch {self.run.epoch}, validation regret {self.run.metric:.4g}, best {self.best:.4g}"


class SuccessiveHalving:
    """The training of candidates in stages; the better half of each stage continues.

    Args:
        field: the list of candidates. The engine may train a copy of a candidate in another process. The trained
            candidate that it returns takes the place of the earlier one in the list.
        engine: the engine that runs the trainings.
        common: the inputs that all candidates share. The ``FitConfig.time_cap`` in them is that of all candidates
            together.
        progress: a function that is called with a ``TuneProgress`` after every epoch, or None.
        began: the time at which ``tune`` began, from ``read_clock``. The time cap counts from here.
    """

    def __init__(
        self,
        field: list[TuneCandidate],
        engine: Engine,
        common: Common,
        progress: Callable[[TuneProgress], None] | None,
        began: float,
    ) -> None:
        self.field, self.engine, self.progress = field, engine, progress
        self._common, self._cap, self._began = engine.share(common), common[0].time_cap, began
        self._check_seconds = float(getattr(common[3], "check_seconds", 0.0))

    def run(self, stages: Sequence[tuple[int, int]]) -> bool:
        """Train in stages, and return whether the user has interrupted the training.

        Args:
            stages: a pair for each stage: the number of candidates that it trains, and the total number of epochs that
                each of them has done at the end of the stage.
        """
        left = list(range(len(self.field)))
        for stage, (count, epochs) in enumerate(stages, 1):
            left = sorted(left, key=lambda number: self.field[number].regret)[:count]
            if self._run_stage(left, epochs, (stage, len(stages))):
                return True
        return False

    def _leave_out(self, number: int) -> None:
        """Write in a candidate's note that the time was up, unless it was validated in an earlier stage."""
        if not self.field[number].history.checks:
            self.field[number].note = LATE

    def _time_for_next(self, shares: int) -> TimeLeft:
        """Return the time for the training of the next candidate in this stage.

        If a candidate has been validated already, and no more than the time of one check is left until the time cap,
        the training gets no time. Otherwise it gets an equal share of the time left, but at least the time of two
        checks if that much is left. In any case it then gets at least the time of one check, and at least the share
        ``LEAST_SHARE`` of the time cap.

        Args:
            shares: the number of shares into which the time left is divided: the number of rounds left in this stage,
                times the number of stages from this one to the last. The trainings of a round run at the same time.
        """
        if self._cap is None:
            return TimeLeft(None, None)
        check = max(self._check_seconds, *(one.check_seconds for one in self.field))
        spent, first = read_clock() - self._began, not any(one.history.checks for one in self.field)
        left = self._cap - spent
        if left <= check and not first:
            return TimeLeft(0.0, 0.0)
        stage = max(min(max(left / shares, 2 * check), left), check, LEAST_SHARE * self._cap)
        return TimeLeft(stage, None if first else seconds_left_to_validate(self._cap, spent))

    def _run_stage(self, left: list[int], epochs: int, stage: tuple[int, int]) -> bool:
        """Train candidates in one stage, and return whether the user has interrupted the training.

        Args:
            left: the numbers of the candidates of this stage in ``field``.
            epochs: the total number of epochs that each candidate has done at the end of this stage.
            stage: the number of this stage, from 1, and the number of stages.
        """
        waiting = [number for number in left if not self.field[number].note]
        under_way: dict[int, int] = {}

        def hear(update: TaskUpdate) -> None:
            """Store the result or the failure of a training, or pass its message to the user's progress function."""
            match update:
                case TaskResult(ticket, candidate):
                    self.field[under_way.pop(ticket)] = candidate
                case TaskFailure(ticket, how):
                    self.field[under_way.pop(ticket)].note = f"{how}; perhaps it ran out of memory"
                case TaskMessage(ticket, run) if self.progress is not None:
                    number = under_way[ticket]
                    where = (*stage, left.index(number) + 1, len(left), describe_candidate(self.field[number].settings))
                    ended = min(one.regret for one in self.field)
                    best = min(ended, math.inf if math.isnan(run.best) else run.best)
                    self.progress(TuneProgress(*where, run, math.nan if math.isinf(best) else best))

        try:
            while waiting or under_way:
                while waiting and self.engine.free > 0:
                    rounds = -(-len(waiting) // (self.engine.free + len(under_way)))
                    time_left = self._time_for_next(rounds * (stage[1] - stage[0] + 1))
                    number = waiting.pop(0)
                    if time_left.stage == 0.0:
                        self._leave_out(number)
                        continue
                    given = (self.field[number], epochs, self._common, self.progress is not None, time_left)
                    under_way[self.engine.submit(train_tune_candidate, *given)] = number
                if under_way:
                    self.engine.wait(hear)
                if any(self.field[number].history.interrupted for number in left):
                    return True
        except KeyboardInterrupt:
            self.engine.wait(hear, 0.0)
            return True
        return False

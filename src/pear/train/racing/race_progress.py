"""``RaceProgress``: the clock of a race, its reports to callbacks, and the reason of its end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from pear.clock import read_clock
from pear.train.fit_job import FitJob
from pear.train.history import Part, Progress, Reason


class RaceEndedError(Exception):
    """Ends a race early: a callback has asked for it, or the time is up.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class RaceProgress:
    """The clock of a race, and its reports to callbacks.

    Args:
        job: the settings and the callbacks.

    Attributes:
        part: what is trained at present.
        judging: the seconds spent on held-out samples.
        judgement: the seconds that one more judgement is expected to take.
        metric: the metric of the weights that were judged last; NaN before.
        best: the lowest metric so far; NaN before.
        stopped: why the race ended.
    """

    def __init__(self, job: FitJob) -> None:
        self.job, self.began = job, job.began
        self.part: Part = "mse"
        self.judging, self.judgement, self.metric, self.best = 0.0, 0.0, math.nan, math.nan
        self.stopped: Reason = "patience"

    def seconds(self) -> float:
        """The seconds since the race began."""
        return read_clock() - self.began

    def resume(self, seconds: float, judging: float) -> None:
        """Set the clock to the seconds that an interrupted race had taken, and to those of them spent on judging."""
        self.began, self.judging = self.began - seconds, judging

    def seconds_left(self, reserve: float = 0.0) -> float | None:
        """The seconds left before the cap, less a reserve; None without a cap.

        Raises:
            RaceEndedError: nothing is left.
        """
        cap = self.job.config.time_cap
        if cap is None:
            return None
        left = self.job.ranks.meet("the time left", cap - reserve - self.seconds())[0][0]
        if left <= 0:
            raise RaceEndedError("time_cap")
        return left

    def has_time(self, seconds: float) -> bool:
        """Whether this many seconds are left before the cap."""
        cap = self.job.config.time_cap
        return cap is None or self.job.ranks.meet("the time", cap - self.seconds() - seconds)[0][0] >= 0

    def after_epoch(self, epoch: int, loss: float) -> None:
        """Report an epoch to the callbacks.

        Raises:
            RaceEndedError: a callback returns True.
        """
        largest, part = self.job.config.max_epochs, self.part
        now = Progress(epoch, largest, self.seconds(), loss, self.metric, self.best, part)
        place = f"the callbacks of epoch {epoch}"
        answers = self.job.ranks.from_rank_0(place, lambda: [call(now) for call in self.job.callbacks])
        if any(answer is True for answer in answers):
            raise RaceEndedError("callback")

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Count the time of a judgement."""
        began = read_clock()
        try:
            yield
        finally:
            spent = read_clock() - began
            self.judging, self.judgement = self.judging + spent, max(self.judgement, spent)

    def note_metric(self, metric: float) -> None:
        """Note the metric of weights that were judged."""
        self.metric = metric
        self.best = metric if math.isnan(self.best) else min(self.best, metric)

"""``RaceProgress``: the clock of a race, its reports to callbacks, and the reason why it ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from pear.clock import read_clock
from pear.train.fit_job import FitJob
from pear.train.history import Part, Progress, Reason


class RaceEndedError(Exception):
    """An error that ends a race early, because a callback returns True, or the time cap is reached.

    Attributes:
        reason: the reason, as in ``History.stopped``.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class RaceProgress:
    """The clock of a race, and its reports to callbacks.

    Args:
        job: the settings and the callbacks.

    Attributes:
        part: the present part of the race, as in ``Progress.part``.
        judging_seconds: the seconds spent on judging so far.
        judgement_seconds: the seconds that the next judgement is expected to take.
        metric: the metric of the weights that were judged last; NaN before that.
        best: the lowest metric so far; NaN before the first one.
        stopped: the reason why the race ended, as in ``History.stopped``.
    """

    def __init__(self, job: FitJob) -> None:
        self.job, self.began = job, job.began
        self.part: Part = "mse"
        self.judging_seconds, self.judgement_seconds, self.metric, self.best = 0.0, 0.0, math.nan, math.nan
        self.stopped: Reason = "patience"

    def seconds(self) -> float:
        """Return the seconds since ``fit`` was called, plus those of the same race before an interruption."""
        return read_clock() - self.began

    def resume(self, seconds: float, judging: float) -> None:
        """Continue an interrupted race.

        Args:
            seconds: the seconds of the race before the interruption.
            judging: the part of these seconds that was spent on judging.
        """
        self.began, self.judging_seconds = self.began - seconds, judging

    def seconds_left(self, reserve: float = 0.0) -> float | None:
        """Return the seconds left until the time cap, minus the seconds ``reserve``; None without a cap.

        Raises:
            RaceEndedError: no time is left.
        """
        cap = self.job.config.time_cap
        if cap is None:
            return None
        left = self.job.ranks.meet("the time left", cap - reserve - self.seconds())[0][0]
        if left <= 0:
            raise RaceEndedError("time_cap")
        return left

    def has_time(self, seconds: float) -> bool:
        """Return whether this number of seconds is left until the time cap."""
        cap = self.job.config.time_cap
        return cap is None or self.job.ranks.meet("the time", cap - self.seconds() - seconds)[0][0] >= 0

    def after_epoch(self, epoch: int, loss: float) -> None:
        """Report an epoch with its number and its mean loss to the callbacks.

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
    def time_judgement(self) -> Iterator[None]:
        """Return a context manager that measures the seconds of a judgement inside it, and records them."""
        began = read_clock()
        try:
            yield
        finally:
            spent = read_clock() - began
            self.judging_seconds, self.judgement_seconds = (
                self.judging_seconds + spent,
                max(self.judgement_seconds, spent),
            )

    def note_metric(self, metric: float) -> None:
        """Record the metric of weights that were judged."""
        self.metric = metric
        self.best = metric if math.isnan(self.best) else min(self.best, metric)

"""``RaceSamples``: the samples that the contenders of a race are trained on.

Without a base, all contenders have the same samples. With a base, there may be two corrections. One is trained on the
base's own forecasts of the training samples. The other is trained on out-of-fold forecasts: copies of the base make
them, each for samples that it was not fitted to. Both corrections get the same forecasts of the held-out samples.

The race thus finds out which errors of the base are like its errors on new samples. If the base has learnt its training
samples by heart, those are the errors of the copies. If the samples change over time, they are often the base's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pear.train.base_forecast import OUT_OF_FOLD, OWN, base_forecast_tensor
from pear.train.fit_job import FitJob
from pear.train.long_table import Array
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource
from pear.train.training_labels import training_labels

CORRECTION = "correction"
"""The name of the training on the loss that begins with the weights of the start."""

CORRECTIONS = {kind: f"{CORRECTION} of {kind} forecasts" for kind in (OWN, OUT_OF_FOLD)}
"""The names of the corrections of a base, by the kind of forecasts that they are trained on."""

NESTED_FITS = 10
"""The number of copies of a base that nested out-of-fold forecasts take in a race of five folds, besides five others.

A copy is fitted to three of the five blocks, and there are ten choices of three blocks."""

NESTED_SECONDS = 300.0
"""The longest time that nested copies of a base may take."""


@dataclass(frozen=True)
class RaceSamples:
    """The samples that the contenders of a race are trained on, those of a fold or all.

    Attributes:
        train: the samples of the start and of the fresh model.
        corrections: the samples of the trainings that begin with the start, by the name of the contender.
    """

    train: SampleSource
    corrections: Mapping[str, SampleSource]

    @classmethod
    def of(cls, job: FitJob, train: SampleSource, offsets: Mapping[str, Tensor] | None = None) -> RaceSamples:
        """Return the samples of all contenders, with the costs that the settings ask for (``training_labels``).

        Args:
            job: the model and the settings.
            train: the training samples.
            offsets: (N, n) the forecasts of a base that corrections are trained on, by their kind, ``OWN`` or
                ``OUT_OF_FOLD``. None if there is only one correction, which is trained on ``train``.
        """
        own = training_labels(train, job.config, job.model)
        if offsets is None:
            return cls(own, {CORRECTION: own})
        assert isinstance(train, MemorySamples)
        ways = {CORRECTIONS[kind]: train.with_offset(values) for kind, values in offsets.items()}
        return cls(own, {name: training_labels(way, job.config, job.model) for name, way in ways.items()})

    def without_offset(self) -> RaceSamples:
        """Return the same samples, which must be in memory, for a model that corrects nothing."""
        assert isinstance(self.train, MemorySamples)
        plain = self.train.without_offset()
        return RaceSamples(plain, {CORRECTION: plain})

    def of_contender(self, name: str) -> SampleSource:
        """Return the samples of the contender with this name."""
        return self.corrections.get(name, self.train)


def offsets_of_race(train: SampleSource) -> dict[str, Tensor] | None:
    """Return the forecasts (N, n) of a base that corrections are trained on, by their kind.

    The result is None if the race does not choose between kinds of forecasts.

    Args:
        train: all training samples.
    """
    if not isinstance(train, MemorySamples) or train.offsets is None:
        return None
    return _offset_tensors(train, train.offsets.forecasts)


def offsets_in_fold(train: MemorySamples, kept: Tensor, nested: bool) -> dict[str, Tensor] | None:
    """Return the forecasts (N, n) that corrections are trained on in a fold, by their kind.

    In a fold, a copy that is fitted to the training samples of the fold takes the place of the base. The result is None
    if the race does not choose between kinds of forecasts.

    Args:
        train: all training samples.
        kept: the numbers of the training samples of the fold, in ascending order.
        nested: as in ``CorrectionOffsets.in_fold``.
    """
    if train.offsets is None:
        return None
    return _offset_tensors(train, train.offsets.in_fold(kept.cpu().numpy().astype(np.intp), nested))


def _offset_tensors(train: MemorySamples, forecasts: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return forecasts of a base as tensors (N, n), by their kind."""
    assert train.offsets is not None
    groups = train.offsets.copies.groups
    return {kind: base_forecast_tensor(values, train.costs, groups) for kind, values in forecasts.items()}


def has_time_for_nested_copies(job: FitJob, train: SampleSource, share: float) -> bool:
    """Return whether nested copies of a base are likely to take no longer than allowed.

    They may take ``NESTED_SECONDS``, but no more than a share of the time cap. The result is True if no copies are
    needed.

    Args:
        job: the settings.
        train: the training samples.
        share: the share of the time cap that the copies may take.
    """
    if not isinstance(train, MemorySamples) or train.offsets is None:
        return True
    cap = job.config.time_cap
    most = NESTED_SECONDS if cap is None else min(NESTED_SECONDS, share * cap)
    return NESTED_FITS * train.offsets.copies.seconds <= most

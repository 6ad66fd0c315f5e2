"""``PublicTask``: a decision task of the literature with its data, protocol and published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from pear.problem import Model, Problem
from pear.tasks.task import Split
from pear_lab.tasks.splits import SharedLinear


@dataclass(frozen=True)
class Drawing:
    """The data of one seed.

    Attributes:
        problem: a ``Problem``, a ``Model`` or a ``pear.Oracle``. If each sample has its own constraints, this is a
            batch of problems: those of the training samples, then of the validation samples, then of the test samples.
        split: samples for training, validation and the test. For a ``Model``, ``costs`` holds the true values of the
            quantities that the model predicts.
    """

    problem: Problem | Model
    split: Split


@dataclass(frozen=True)
class Published:
    """One published number.

    Attributes:
        method: the name of the method, taken from ``pear.losses.METHODS`` if PEAR has the method.
        value: the number, in the measure of the task. A normalised regret of 10 % is 0.1.
        where: the condition, such as "n = 100, degree 8", and the table or figure that shows the number.
        error: the published standard error or deviation; None if there is none.
    """

    method: str
    value: float
    where: str
    error: float | None = None


@dataclass(frozen=True)
class PublicTask:
    """A decision task of the literature, on which methods are compared.

    Attributes:
        name: the name on the command line, for example "planted-paths-200".
        title: the name in tables.
        origin: authors, year and address of the description of the task.
        protocol: a description of data, sample sizes and measures, and of differences from the origin.
        draw: function from a seed to the data; equal seeds give equal data.
        forecaster: function that makes an untrained forecaster from the number of features (the last dimension of the
            features) and the number of predicted values.
        measure: "normalized" for the sum of regrets over the sum of absolute best values; "mean" for the mean regret.
        published: the published numbers.
        needs_data: the file or folder under ``$PEAR_DATA`` that ``draw`` reads; None if all data is generated.
        unsuited: methods of ``pear.losses.METHODS`` that the comparison leaves out on this task, each with the reason.
    """

    name: str
    title: str
    origin: str
    protocol: str
    draw: Callable[[int], Drawing]
    forecaster: Callable[[int, int], nn.Module] = nn.Linear
    measure: Literal["normalized", "mean"] = "normalized"
    published: tuple[Published, ...] = ()
    needs_data: str | None = None
    unsuited: Mapping[str, str] = field(default_factory=dict)


def shared_task_forecaster(features: int, values: int) -> nn.Module:
    """Make a linear model in float32 that all predicted values share, from (B, k, p) to (B, k) for any k.

    Args:
        features: p, the number of features of a predicted value.
        values: ignored; the model fits any number of values.
    """
    return SharedLinear(features).float()

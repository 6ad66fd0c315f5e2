"""``PublicTask``: a decision problem of the literature with its data, protocol and published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from pear.problem import Model, Problem
from pear.tasks.task import Split


@dataclass(frozen=True)
class Drawing:
    """The data of one seed.

    Attributes:
        problem: the decision problem: a ``Problem``, a ``Model``, or a ``pear.Oracle``. Where it has fields per sample,
            its rows are those of all samples, in the order train, validation, test.
        split: samples to train on, to choose by and to test on. The costs are the predicted values of a ``Model``.
    """

    problem: Problem | Model
    split: Split


@dataclass(frozen=True)
class Published:
    """One published number.

    Attributes:
        method: the name of the method, as in ``pear.losses.METHODS`` where it is there.
        value: the number, in the measure of the task; a normalised regret is a share, so that 0.1 is 10 %.
        error: its standard error or deviation, as printed; None where none is printed.
        where: the condition, such as "n = 100, degree 8", and the table or figure that it is read from.
    """

    method: str
    value: float
    where: str
    error: float | None = None


@dataclass(frozen=True)
class PublicTask:
    """A task that others have published numbers for, or that a comparison of methods should include.

    Attributes:
        name: the name on the command line, for example "planted-paths".
        title: the name in tables.
        origin: who described it, with the year and an address.
        protocol: what is drawn, how large the sets are, what is measured; and where ours differs from the origin.
        draw: makes the data of a seed; equal seeds give equal data.
        forecaster: makes an untrained forecaster from the number of features, the last size of their tensor, and the
            number of predicted values.
        measure: "normalized" is the sum of regret over the sum of the best values' sizes; "mean" is the mean regret.
        published: the published numbers, none where there are none.
        needs_data: the file or folder under ``$PEAR_DATA`` that it reads; None where its data are drawn.
        unsuited: methods of ``pear.losses.METHODS`` that the comparison does not train on it, each with the reason.
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

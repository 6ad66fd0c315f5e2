"""``WalkForward``: the result of ``pear.walk_forward`` as arrays, tables, sentences and a figure."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pear.errors import ProblemError
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear.losses.regret_outcome import RegretOutcome
from pear.optional_packages import import_pandas

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Array = NDArray[Any]

MEAN = "mean of the training costs"
"""The name of the constant forecast that is part of every comparison."""


@dataclass(frozen=True, eq=False, repr=False)
class WalkForward:
    """The losses of F forecasters over T tested rows, with k forecast values each.

    Arrays of shape (F, …) have a row for each forecaster, in the order of ``names``. Tested rows are in the order of X.

    Attributes:
        forecasts: (T, k) forecasts by the name of the forecaster; "mean of the training costs" comes last.
        true: (T, k) the true values.
        regret: (F, T) what each decision loses compared with the best one, in the unit of the objective.
        best: (T,) the value of the best decision, in the problem's own sense.
        sample: (T,) the numbers of the tested samples, which are row numbers in X unless X is a long table.
        label: (T,) the ids of the groups, or the index of X or C, such as dates; row numbers if there is neither.
        fold: (T,) the number of the test fold, from 1.
        sense: "min" or "max".
        seconds: the time of training and forecasting over all folds, by the name of the forecaster.
        notes: sentences on how the comparison was made.
        reference: the name of the forecaster that the others are compared with.
        block: length in rows of the blocks of the bootstrap, which gives intervals; None for about the cube root of T.
        seed: the seed of the bootstrap.
    """

    forecasts: dict[str, Array]
    true: Array
    regret: Array
    best: Array
    sample: Array
    label: Array
    fold: Array
    sense: str
    seconds: dict[str, float]
    notes: list[str]
    reference: str
    block: int | None = None
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the forecasters, "mean of the training costs" last."""
        return tuple(self.forecasts)

    @property
    def cost(self) -> Array:
        """The objective of each decision at the true costs, (F, T), in the problem's own sense, without its constant.

        There are F forecasters and T tested rows.
        """
        return self.best + (-1 if self.sense == "max" else 1) * self.regret

    @property
    def squared_error(self) -> Array:
        """The squared error of each of F forecasters for each of T tested rows, (F, T), averaged over the k values."""
        return np.stack([((values - self.true) ** 2).mean(axis=1) for values in self.forecasts.values()])

    @property
    def fold_regret(self) -> Array:
        """The mean regret of each of F forecasters in each test fold, (F, folds)."""
        return np.stack([self.regret[:, self.fold == number].mean(axis=1) for number in np.unique(self.fold)], axis=1)

    @property
    def best_forecaster(self) -> str:
        """The name of the forecaster whose decisions lose least."""
        return self.names[int(self.regret.mean(axis=1).argmin())]

    @cached_property
    def differences(self) -> dict[str, PairedDifference]:
        """The mean regret of each forecaster minus that of the reference, by name. A negative difference is better."""
        return self._differences_to(self.reference)

    @cached_property
    def differences_to_mean(self) -> dict[str, PairedDifference]:
        """The mean regret of each forecaster minus that of the constant forecast, by name."""
        return self._differences_to(MEAN)

    def _differences_to(self, reference: str) -> dict[str, PairedDifference]:
        """Return the mean regret of each forecaster minus that of ``reference``, with its standard error, by name."""
        other = self.regret[self.names.index(reference)]
        return {
            name: paired_difference(own, other, self.block, seed=self.seed)
            for name, own in zip(self.names, self.regret, strict=True)
            if name != reference
        }

    def against(self, reference: str, block: int | None = None, seed: int = 0) -> WalkForward:
        """Return this comparison with another reference. Nothing is trained again.

        Args:
            reference: the name of the forecaster that the others are compared with.
            block: length of the blocks of the bootstrap; None for about the cube root of T.
            seed: the seed of the bootstrap.
        """
        if reference not in self.forecasts:
            raise ProblemError(f"there is no forecaster {reference!r} to compare with; only {', '.join(self.names)}")
        return replace(self, reference=reference, block=block, seed=seed)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The comparison as a list with a dict for each forecaster.

        The keys are ``forecaster``, the name; ``regret``, ``cost`` and ``squared_error``, means over the tested rows;
        ``normalized_regret``, as in ``pear.normalized_regret``; ``difference``, the mean regret minus that of the
        reference, with its ``standard_error`` and the ends ``low`` and ``high`` of its 95 % interval (None for the
        reference); ``seconds``; and ``fold_1``, ``fold_2`` and so on, the mean regret in each fold.
        """
        columns = zip(self.names, self.regret, self.cost, self.squared_error, self.fold_regret, strict=True)
        found = []
        for name, regret, cost, error, folds in columns:
            against = self.differences.get(name)
            found.append(
                {
                    "forecaster": name,
                    "regret": float(regret.mean()),
                    "cost": float(cost.mean()),
                    "normalized_regret": RegretOutcome(
                        torch.from_numpy(regret), torch.from_numpy(self.best)
                    ).normalized,
                    "squared_error": float(error.mean()),
                    "difference": None if against is None else against.mean,
                    "standard_error": None if against is None else against.standard_error,
                    "low": None if against is None else against.interval[0],
                    "high": None if against is None else against.interval[1],
                    "seconds": self.seconds[name],
                    **{f"fold_{i}": float(value) for i, value in enumerate(folds, 1)},
                }
            )
        return found

    @property
    def sentences(self) -> list[str]:
        """The comparison in words, the most important first."""
        from pear.evaluation.comparison_text import describe_comparison

        return describe_comparison(self)

    def to_frame(self, by: Literal["forecaster", "fold", "sample"] = "forecaster") -> pandas.DataFrame:
        """Return the comparison as a DataFrame.

        Args:
            by: "forecaster" for the attribute ``rows``, with a row for each forecaster; "fold" for mean regrets, with
                a row for each fold and a column for each forecaster; "sample" for a row for each pair of forecaster and
                tested row, with the columns ``forecaster``, ``sample``, ``label``, ``fold``, ``cost``, ``regret`` and
                ``squared_error``.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = import_pandas("to_frame", "or read rows")
        if by == "forecaster":
            return pandas.DataFrame(self.rows).set_index("forecaster").astype(float)
        if by == "fold":
            folds = pandas.Index(np.unique(self.fold), name="fold")
            return pandas.DataFrame(self.fold_regret.T, index=folds, columns=list(self.names))
        if by != "sample":
            raise ProblemError(f'by must be "forecaster", "fold" or "sample"; got {by!r}')
        count = len(self.names)
        shared = {name: np.tile(getattr(self, name), count) for name in ("sample", "label", "fold")}
        own = {name: getattr(self, name).reshape(-1) for name in ("cost", "regret", "squared_error")}
        return pandas.DataFrame({"forecaster": np.repeat(self.names, len(self.sample)), **shared, **own})

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the differences from the reference: cumulated over time, and their means with intervals.

        Args:
            path: a file to save the figure to, in the format of its ending; None to save nothing.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from pear.evaluation.comparison_figure import draw_comparison  # matplotlib is optional

        return draw_comparison(self, None if path is None else Path(path))

    def __str__(self) -> str:
        from pear.evaluation.comparison_text import format_comparison

        return "\n".join([format_comparison(self), "", *self.sentences])

    def _repr_html_(self) -> str:
        """Return the table and the sentences as HTML for a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return f"WalkForward({len(self.names)} forecasters, {len(self.sample)} tested rows, {self.fold.max()} folds)"

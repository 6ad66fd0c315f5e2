"""``Diagnosis``: the result of ``pear.diagnose`` as arrays, tables, sentences and pictures."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.diagnosis.diagnosis_sentences import compare_diagnoses, explain_diagnosed_sample
from pear.errors import ProblemError
from pear.losses.regret_outcome import RegretOutcome
from pear.optional_packages import import_pandas

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Array = NDArray[Any]

_SAMPLE_COLUMNS = (
    *("regret", "share", "best", "squared_error", "tangent", "normal", "margin", "pieces"),
    *("degenerate", "zero_gradient", "attributed"),
)
_GROUP_COLUMNS = ("samples", "mean_regret", "normalized_regret", "tangent_share", "dearest_value")


def name_diagnosis_groups(name: str) -> str:
    """Return ``name`` as a heading of the groups, or "group NAME" if a table has another column of this name."""
    return f"group {name}" if name in {"sample", "why", *_SAMPLE_COLUMNS, *_GROUP_COLUMNS} else name


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What the errors of a forecast cost, for B samples, k predicted values, n variables and m constraints.

    Bounds count as constraints. "Truth" means the true values. The best decision of a sample is the optimal decision
    under the truth.

    Attributes:
        sentences: the diagnosis in words, the most important first.
        regret: (B,) what each decision loses, as in ``pear.regret``.
        best: (B,) the value of the best decision.
        normalized_regret: normalised regret of all samples together, as in ``pear.normalized_regret``.
        attribution: (B, k) how much of each sample's regret the error of each predicted value causes. Each row adds up
            to the regret of its sample. A negative entry means that an error offsets another error. Rows of samples
            with ``attributed`` False are NaN.
        attributed: (B,) bool, False for samples whose decisions could not be followed from truth to forecast.
        squared_error: (B,) eᵀH⁻¹e of the cost error e, with the curvature H of the smoothed problem.
        tangent: (B,) the part of the squared error that moves the smoothed decision: the mean of eᵀPe between truth and
            forecast, where P e is the projection of H⁻¹e onto the directions that the active constraints allow. If the
            objective has a smooth term φ, it is eᵀPe at the forecast instead.
        normal: (B,) the part that constraints absorb. Tangent and normal part add up to the squared error.
        tangent_at_forecast: (B,) eᵀPe at the forecast: the part that the gradient of regret depends on.
        margin: (B,) the share of the error at which the decision first changes (for a quadratic program, its active
            set); 1 if it does not change, NaN if this is not known.
        pieces: (B,) int, the number of pieces of the path from truth to forecast. For a model that predicts right-hand
            sides, the number of steps.
        degenerate: (B,) bool, True if a constraint is tight at the smoothed decision and its multiplier is zero.
        zero_gradient: (B,) bool, True if the forecast is wrong and the gradient of the smoothed regret is zero.
        constraint_names: names of the m constraints.
        constraint_kinds: "equality", "row", "lower bound" or "upper bound" for each constraint.
        binding: (m,) share of samples in which a constraint binds under the forecast. For integer programs, this and
            ``shadow_price``, ``best_binding`` and ``best_shadow_price`` are those of the relaxation.
        shadow_price: (m,) gain if the limit is relaxed by one unit, averaged over all samples, under the forecast.
        best_binding: (m,) share of samples in which a constraint binds under the truth.
        best_shadow_price: (m,) mean shadow price under the truth.
        active: (B, m) bool, constraints that are tight at the decision (with integers) under the forecast.
        best_active: (B, m) bool, constraints that are tight at the best decision (with integers).
        decision: (B, n) decisions under the forecast.
        best_decision: (B, n) the best decisions.
        predicted: (B, k) predicted values.
        true: (B, k) true values.
        names: names of the k predicted values.
        variables: names of the n variables.
        groups: (B,) label of each sample, or None.
        grouped_by: heading of the labels: "group", the name of a column ("group regret" if a table has a column
            "regret"), "hour of day", "month" or "weekday".
        sense: "min" or "max".
        integer: whether the problem has integer variables.
        linear: whether the objective is linear.
        smoothing: a sentence about the smoothing λ.
        index: the index of the given tables, such as dates; None if they have no index or the default index.
        violation_names: names of the v ways to violate a predicted right-hand side; empty if no right-hand side is
            predicted.
        violation_kinds: "too little", "too much" or "violated" for each of the v ways.
        violation: (B, v) the amount by which the decision under the forecast violates the true right-hand sides.
        violation_cost: (B, v) what these violations cost; NaN if the recourse has no prices.
        best_violation_cost: (B, v) what violations by the best decision cost.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> found = pear.diagnose(choose_one, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 3.0]])
        >>> found.regret, found.attribution[0]
        (array([2., 0.]), array([0.66666667, 1.33333333]))
        >>> found.margin
        array([0.66666667, 1.        ])
    """

    sentences: list[str]
    regret: Array
    best: Array
    normalized_regret: float
    attribution: Array
    attributed: Array
    squared_error: Array
    tangent: Array
    normal: Array
    tangent_at_forecast: Array
    margin: Array
    pieces: Array
    degenerate: Array
    zero_gradient: Array
    constraint_names: tuple[str, ...]
    constraint_kinds: tuple[str, ...]
    binding: Array
    shadow_price: Array
    best_binding: Array
    best_shadow_price: Array
    active: Array
    best_active: Array
    decision: Array
    best_decision: Array
    predicted: Array
    true: Array
    names: tuple[str, ...]
    variables: tuple[str, ...]
    groups: Array | None
    grouped_by: str
    sense: str
    integer: bool
    linear: bool
    smoothing: str
    index: Any = None
    violation_names: tuple[str, ...] = ()
    violation_kinds: tuple[str, ...] = ()
    violation: Array = field(default_factory=lambda: np.zeros((0, 0)))
    violation_cost: Array = field(default_factory=lambda: np.zeros((0, 0)))
    best_violation_cost: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def tangent_share(self) -> float:
        """The share of the tangent part in the squared errors of all samples; NaN if there is no error."""
        return _ratio_of_sums(self.tangent, self.squared_error)

    def samples(self) -> pandas.DataFrame:
        """Return a table with a row for each sample: its regret, its share of all regret, and more of the attributes.

        If there are groups, the first column is the group. The index is that of the given tables, or else counts the
        samples from 0.
        """
        columns = {} if self.groups is None else {self.grouped_by: self.groups}
        for name in _SAMPLE_COLUMNS:
            columns[name] = _shares_of_sum(self.regret) if name == "share" else getattr(self, name)
        found = _diagnosis_frame(columns)
        return found.rename_axis(index="sample") if self.index is None else found.set_axis(self.index)

    def values(self) -> pandas.DataFrame:
        """Return a table with a row for each predicted value: cost, bias and mean square of its errors.

        The costliest value comes first. The column ``worst_sample`` names the sample in which its error costs most.
        """
        error = self.predicted - self.true
        squared = (error**2).mean(0)
        cost = np.nansum(self.attribution, axis=0)
        worst = np.nan_to_num(self.attribution, nan=-np.inf).argmax(0)
        columns = {
            "value": list(self.names),
            "cost": cost,
            "share": _shares_of_sum(cost),
            "bias": error.mean(0),
            "mean_squared_error": squared,
            "share_of_squared_error": _shares_of_sum(squared),
            "worst_sample": worst if self.index is None else self.index[worst],
        }
        return _diagnosis_frame(columns).sort_values("cost", ascending=False, kind="stable", ignore_index=True)

    def constraints(self) -> pandas.DataFrame:
        """Return a table of the constraints: how often each binds, and shadow prices, under forecast and truth."""
        numbers = ("binding", "best_binding", "shadow_price", "best_shadow_price")
        names = {"constraint": list(self.constraint_names), "kind": list(self.constraint_kinds)}
        return _diagnosis_frame({**names, **{name: getattr(self, name) for name in numbers}})

    def violations(self) -> pandas.DataFrame:
        """Return a table of the ways to violate the true right-hand sides, the costliest first.

        The column ``samples`` counts the samples with such a violation, and ``amount`` is the mean violation in these
        samples. The column ``cost`` is what the violations by the decisions under the forecast cost in all samples
        together; ``best_cost`` is the same for the best decisions. Both are NaN if the recourse has no prices.
        """
        count = (self.violation > 0).sum(0)
        columns = {
            "value": list(self.violation_names),
            "kind": list(self.violation_kinds),
            "samples": count,
            "amount": self.violation.sum(0) / np.maximum(count, 1),
            "cost": self.violation_cost.sum(0),
            "best_cost": self.best_violation_cost.sum(0),
        }
        return _diagnosis_frame(columns).sort_values("cost", ascending=False, kind="stable", ignore_index=True)

    def by_group(self) -> pandas.DataFrame:
        """Return a table of the groups, the costliest first.

        The columns are the number of samples, the regret and its share of the regret of all samples, the mean and the
        normalised regret, the tangent share of the squared error, and ``dearest_value``: the name of the predicted
        value whose errors cost most in the group.

        Raises:
            ProblemError: no groups were given.
        """
        if self.groups is None:
            raise ProblemError("no groups were given; pass pear.diagnose(…, groups=labels or dates)")
        labels, at = np.unique(self.groups, return_inverse=True)
        total = self.regret.sum()
        rows = []
        for i, label in enumerate(labels):
            own = at == i
            lost = self.regret[own].sum()
            row = {
                self.grouped_by: label,
                "samples": int(own.sum()),
                "regret": lost,
                "share": lost / total if total > 0 else 0.0,
                "mean_regret": lost / own.sum(),
                "normalized_regret": RegretOutcome.share_of_best(float(lost), float(np.abs(self.best[own]).sum())),
                "tangent_share": _ratio_of_sums(self.tangent[own], self.squared_error[own]),
                "dearest_value": self.names[int(np.nansum(self.attribution[own], axis=0).argmax())] if lost > 0 else "",
            }
            rows.append(row)
        return _diagnosis_frame(rows).sort_values("regret", ascending=False, kind="stable", ignore_index=True)

    def worst(self, count: int = 10) -> pandas.DataFrame:
        """Return a table of the ``count`` samples with the largest regrets, each with a reason.

        Raises:
            ProblemError: ``count`` is less than 1.
        """
        if not isinstance(count, int | np.integer) or count < 1:
            raise ProblemError(f"worst takes the number of samples to show, 1 or more; got {count!r}")
        order = np.argsort(-self.regret, kind="stable")[:count]
        return self.samples().iloc[order].assign(why=[explain_diagnosed_sample(self, int(i)) for i in order])

    def compare(self, other: Diagnosis, names: tuple[str, str] = ("the first", "the second")) -> list[str]:
        """Return sentences that compare this forecaster with another one on the same samples.

        Args:
            other: the diagnosis of the other forecaster.
            names: what the two forecasters are called in the sentences.

        Raises:
            ProblemError: ``other`` is not a diagnosis, or belongs to other samples.
        """
        if not isinstance(other, Diagnosis):
            raise ProblemError(
                f"compare takes a Diagnosis; got {type(other).__name__}: pass what pear.diagnose finds of another "
                "forecaster"
            )
        return compare_diagnoses(self, other, names)

    def plot(self) -> Figure:
        """Draw the losses by predicted value, group and sample, the binding constraints, and the parts of the error.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from pear.diagnosis.diagnosis_figures import plot_diagnosis  # matplotlib is optional

        return plot_diagnosis(self)

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the diagnosis as an HTML page that needs no other file. Return the path of the page.

        Raises:
            MissingExtraError: jinja2, matplotlib or pandas is not installed.
        """
        from pear.diagnosis.diagnosis_page import save_diagnosis_page

        return save_diagnosis_page(self, path)

    def _repr_html_(self) -> str:
        from pear.diagnosis.diagnosis_page import diagnosis_for_notebook

        return diagnosis_for_notebook(self)

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        lost = f"normalised regret {self.normalized_regret:.4g}"
        return f"Diagnosis({len(self.regret)} samples, {len(self.names)} predicted values, {lost})"


def _ratio_of_sums(part: Array, whole: Array) -> float:
    """Return the sum of ``part`` over that of ``whole``, of entries that are finite in both.

    NaN if ``whole`` sums to 0.
    """
    known = np.isfinite(part) & np.isfinite(whole)
    total = float(whole[known].sum())
    return float(part[known].sum()) / total if total > 0 else float("nan")


def _shares_of_sum(parts: Array) -> Array:
    """Return numbers divided by their sum, or zeros if the sum is not positive."""
    total = parts.sum()
    return parts / total if total > 0 else np.zeros_like(parts)


def _diagnosis_frame(columns: Any) -> pandas.DataFrame:
    """Return a DataFrame of the given columns. Raise ``MissingExtraError`` if pandas is not installed."""
    table: pandas.DataFrame = import_pandas("a table", "or read the arrays of the diagnosis").DataFrame(columns)
    return table

"""``pear.advise`` and its result ``Advice``: advice on a problem and its costs before a forecaster is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.coefficient_scaling import advise_on_scaling
from pear.diagnosis.advising.curvature_and_smoothing import advise_on_curvature, advise_on_smoothing
from pear.diagnosis.advising.epoch_times import advise_on_epoch_times
from pear.diagnosis.advising.findings import Finding, Findings
from pear.diagnosis.advising.integrality_gap import advise_on_integrality
from pear.diagnosis.advising.program_structure import advise_on_structure
from pear.diagnosis.advising.redundant_rows import advise_on_redundant_rows
from pear.diagnosis.advising.sampled_decisions import advise_on_decisions, decide_samples
from pear.diagnosis.advising.solver_and_loss import advise_on_loss, advise_on_solvers
from pear.optional_packages import import_pandas
from pear.problem import Model, Problem

if TYPE_CHECKING:
    import pandas

_TABLES = "a table of advice", "or read advice.numbers"
_SECONDS = {"decide": 1.5, "decisions": 1.0, "smoothing": 1.0, "integrality": 1.5, "epoch": 3.5}
"""Time limits of examinations in seconds. For a problem of 1,000 variables, all together take about 10 seconds."""


@dataclass(frozen=True, repr=False)
class Advice:
    """The result of ``pear.advise``: findings, each of them a sentence with its numbers.

    Attributes:
        problem: a description of the problem in one line.
        findings: the sentences, each with its topic, its numbers, and whether the sentence asks the user to do
            something.

    Example:
        >>> import pear
        >>> advice = pear.advise(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), [[1.0, 2.0], [3.0, 1.0]])
        >>> advice.numbers["different_decisions"], advice.solver
        (2, 'active-set')
    """

    problem: str
    findings: tuple[Finding, ...]
    _rows: Mapping[str, Any] = field(default_factory=dict)
    _variables: Mapping[str, Any] = field(default_factory=dict)
    _values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """The sentences of all findings, in order."""
        return [one.sentence for one in self.findings]

    @property
    def to_do(self) -> list[str]:
        """The sentences that ask the user to do something."""
        return [one.sentence for one in self.findings if one.to_do]

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of all findings, by name."""
        return {name: value for one in self.findings for name, value in one.numbers.items()}

    @property
    def solver(self) -> str:
        """The name of the solver that ``solver="auto"`` uses in training."""
        name: str = self.numbers["solver_training"]
        return name

    @property
    def epoch_seconds(self) -> float | None:
        """The estimated seconds of an epoch of a linear model over all samples, or None if no epoch was timed."""
        return self.numbers.get("epoch_seconds_linear")

    def about(self, topic: str) -> list[str]:
        """Return the sentences on a topic, such as "scaling" or "time"."""
        return [one.sentence for one in self.findings if one.topic == topic]

    def frame(self) -> pandas.DataFrame:
        """Return a table of all numbers: topic, name and value."""
        rows = [(one.topic, name, value) for one in self.findings for name, value in one.numbers.items()]
        return import_pandas(*_TABLES).DataFrame(rows, columns=["topic", "number", "value"])

    def rows(self) -> pandas.DataFrame:
        """Return a table of the rows of A and G, with a line for each row.

        The columns say whether the row is redundant, in which share of the decisions it binds, and by which factor to
        rescale it.
        """
        return import_pandas(*_TABLES).DataFrame(dict(self._rows)).set_index("row")

    def variables(self) -> pandas.DataFrame:
        """Return a table of the variables, with a line for each.

        The columns say in which share of the decisions the variable is at its bounds, and in which unit to measure it.
        """
        return import_pandas(*_TABLES).DataFrame(dict(self._variables)).set_index("variable")

    def values(self) -> pandas.DataFrame:
        """Return a table of the predicted values: mean size, standard deviation, and a factor to rescale each by."""
        return import_pandas(*_TABLES).DataFrame(dict(self._values)).set_index("value")

    def __str__(self) -> str:
        lines = [self.problem]
        for topic in dict.fromkeys(one.topic for one in self.findings):
            lines.append(f"{topic}:")
            lines += [f"  {'→' if one.to_do else '·'} {one.sentence}" for one in self.findings if one.topic == topic]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Advice({self.problem}: {len(self.findings)} findings, {len(self.to_do)} of them to do)"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook, with a list of sentences for each topic."""

        def list_item(one: Finding) -> str:
            return f"<li>{'<b>→</b> ' if one.to_do else ''}{escape(one.sentence)}</li>"

        parts = [f"<p><b>Advice</b> on {escape(self.problem)}</p>"]
        for topic in dict.fromkeys(one.topic for one in self.findings):
            items = "".join(list_item(one) for one in self.findings if one.topic == topic)
            parts.append(f"<p>{escape(topic)}</p><ul>{items}</ul>")
        return "".join(parts)


def advise(problem: Problem | Model, costs: Any = None) -> Advice:
    """Examine a problem and its costs before a forecaster is trained, and give advice with numbers.

    The advice covers size, sparsity, scaling, degeneracy, curvature, the integrality gap, constraints that never bind,
    the regret of deciding by mean values, the solver that "auto" chooses, a loss to try first, and the measured time of
    an epoch on this machine. Problems of up to 1,000 variables take about 10 seconds at most, without compilation.
    Examinations that would take longer are left out, and a sentence says so.

    Args:
        problem: the decision problem. A ``Model`` takes predicted values and maps them to costs.
        costs: (N, n) true costs of N samples, or (N, k) values if a model predicts k values: a tensor, an array, a list
            or a DataFrame. If omitted, the known costs of a model, such as those in its file, count as one sample.
            Without any costs, the examinations that need costs are left out.

    Raises:
        ProblemError: ``problem`` is not a problem, or the costs do not fit it.

    Example:
        >>> import pear
        >>> advice = pear.advise(pear.Problem(lb=0.0, ub=1.0, n=2), [[1.0, -1.0], [-1.0, 1.0], [2.0, -3.0]])
        >>> print(advice.about("sparsity")[0])
        There are no matrices: bounds alone limit the decision.
    """
    s, findings = AdviceSubject(problem, costs), Findings()
    advise_on_structure(s, findings)
    advise_on_scaling(s, findings)
    advise_on_redundant_rows(s, findings)
    sampled = decide_samples(s, _SECONDS["decide"])
    advise_on_curvature(s, sampled, findings)
    smoothing = advise_on_smoothing(s, sampled, _SECONDS["smoothing"], findings)
    if sampled is not None:
        advise_on_decisions(s, sampled, _SECONDS["decisions"], findings)
        advise_on_integrality(s, sampled, _SECONDS["integrality"], findings)
    advise_on_solvers(s, smoothing, findings)
    advise_on_loss(s, findings)
    if sampled is not None and smoothing is not None:
        advise_on_epoch_times(s, sampled, smoothing, _SECONDS["epoch"], findings)
    topics = list(dict.fromkeys(one.topic for one in findings.found))
    return Advice(
        repr(s.given),
        tuple(sorted(findings.found, key=lambda one: topics.index(one.topic))),
        {"row": s.rows, **findings.rows},
        {"variable": s.variables, **findings.variables},
        {"value": s.names, **findings.values},
    )

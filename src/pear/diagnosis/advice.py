"""``pear.advise``: advice on a problem and its costs before a forecaster is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from pear.diagnosis.advising.coefficient_scaling import check_scaling
from pear.diagnosis.advising.objective_curvature import describe_curvature, find_auto_smoothing
from pear.diagnosis.advising.program_structure import describe_structure, find_redundant_rows
from pear.diagnosis.advising.sampled_decisions import decide_samples, describe_decisions, measure_integrality
from pear.diagnosis.advising.subject_and_findings import Finding, Findings, Subject
from pear.diagnosis.advising.training_advice import name_solvers, suggest_loss, time_epochs
from pear.optional_packages import import_pandas
from pear.problem import Model, Problem

if TYPE_CHECKING:
    import pandas

_TABLES = "a table of advice", "or read advice.numbers"
_SECONDS = {"decide": 1.5, "decisions": 1.0, "smoothing": 1.0, "integrality": 1.5, "epoch": 3.5}
"""Time limit of each examination in seconds. All examinations together take about ten for 1,000 variables."""


@dataclass(frozen=True, repr=False)
class Advice:
    """The advice of ``pear.advise``: findings, each a sentence with its numbers.

    Attributes:
        problem: the problem, in one line.
        findings: the sentences, each with its topic, its numbers, and whether it asks the user to do something.

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
        """Every number behind the sentences, by name."""
        return {name: value for one in self.findings for name, value in one.numbers.items()}

    @property
    def solver(self) -> str:
        """Name of the solver that ``solver="auto"`` uses in training."""
        name: str = self.numbers["solver_training"]
        return name

    @property
    def epoch_seconds(self) -> float | None:
        """Estimated seconds of an epoch of a linear model on all samples; None where none was timed."""
        return self.numbers.get("epoch_seconds_linear")

    def about(self, topic: str) -> list[str]:
        """Return the sentences on one topic, such as "scaling" or "time"."""
        return [one.sentence for one in self.findings if one.topic == topic]

    def frame(self) -> pandas.DataFrame:
        """Return a table of all numbers: topic, name, value. Needs pandas."""
        rows = [(one.topic, name, value) for one in self.findings for name, value in one.numbers.items()]
        return import_pandas(*_TABLES).DataFrame(rows, columns=["topic", "number", "value"])

    def rows(self) -> pandas.DataFrame:
        """Return a table of the rows of A and G: redundancy, how often they bind, and a factor that rescales them."""
        return import_pandas(*_TABLES).DataFrame(dict(self._rows)).set_index("row")

    def variables(self) -> pandas.DataFrame:
        """Return a table of the variables: how often they are at their bounds, and their units."""
        return import_pandas(*_TABLES).DataFrame(dict(self._variables)).set_index("variable")

    def values(self) -> pandas.DataFrame:
        """Return a table of the predicted values: mean size, deviation, and a factor that rescales them."""
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
        """Show the findings in a notebook, as one list for each topic."""

        def item(one: Finding) -> str:
            return f"<li>{'<b>→</b> ' if one.to_do else ''}{escape(one.sentence)}</li>"

        parts = [f"<p><b>Advice</b> on {escape(self.problem)}</p>"]
        for topic in dict.fromkeys(one.topic for one in self.findings):
            items = "".join(item(one) for one in self.findings if one.topic == topic)
            parts.append(f"<p>{escape(topic)}</p><ul>{items}</ul>")
        return "".join(parts)


def advise(problem: Problem | Model, costs: Any = None) -> Advice:
    """Examine a problem and its costs before a forecaster is trained, and say what matters, with numbers.

    The advice covers size, sparsity, scaling, degeneracy, curvature and the integrality gap, constraints that never
    bind, what is at stake, the solver that "auto" takes, a loss to try, and the time of an epoch on this machine, which
    is measured. Any problem can be examined. Up to 1,000 variables this takes about 10 seconds at most, not counting
    compilation. What would take longer is left out, and a sentence says so.

    Args:
        problem: the decision problem. With a ``Model`` the costs are the values that its cost map takes.
        costs: (N, n) true costs of N samples, or (N, k) values: a tensor, an array, a list or a DataFrame. Left out,
            the costs of a model from a file stand in, as one sample; without any, what depends on costs is left out.

    Raises:
        ProblemError: ``problem`` is not a problem, or the costs do not fit it.

    Example:
        >>> import pear
        >>> advice = pear.advise(pear.Problem(lb=0.0, ub=1.0, n=2), [[1.0, -1.0], [-1.0, 1.0], [2.0, -3.0]])
        >>> print(advice.about("sparsity")[0])
        There are no matrices: bounds alone limit the decision.
    """
    s, findings = Subject(problem, costs), Findings()
    describe_structure(s, findings)
    check_scaling(s, findings)
    find_redundant_rows(s, findings)
    sampled = decide_samples(s, _SECONDS["decide"])
    describe_curvature(s, sampled, findings)
    smoothing = find_auto_smoothing(s, sampled, _SECONDS["smoothing"], findings)
    if sampled is not None:
        describe_decisions(s, sampled, _SECONDS["decisions"], findings)
        measure_integrality(s, sampled, _SECONDS["integrality"], findings)
    name_solvers(s, smoothing, findings)
    suggest_loss(s, findings)
    if sampled is not None and smoothing is not None:
        time_epochs(s, sampled, smoothing, _SECONDS["epoch"], findings)
    topics = list(dict.fromkeys(one.topic for one in findings.found))
    return Advice(
        repr(s.given),
        tuple(sorted(findings.found, key=lambda one: topics.index(one.topic))),
        {"row": s.rows, **findings.rows},
        {"variable": s.variables, **findings.variables},
        {"value": s.names, **findings.values},
    )

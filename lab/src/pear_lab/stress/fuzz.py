"""Run many random cases on several cores, and count the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear_lab.stress import counterexamples
from pear_lab.stress.journal import Journal
from pear_lab.stress.recipes import FAMILIES, Recipe, build_case, draw_recipe
from pear_lab.stress.worker_pool import map_in_pool

BATCH = 8
"""Samples of a case."""
KEPT = 25
"""Counterexamples that are written for a family, of each kind."""
GOALS = {"wrong": 0.0, "inaccurate": 1e-3, "inaccurate, nearly parallel": 1e-2, "slowest": 50.0}
"""The largest values a run may show: a number, two shares, and times the median of a batch."""
PARALLEL = ("nearly parallel", "Hilbert")
"""The families of rows that nearly depend on each other, which have a goal of their own."""


@dataclass(frozen=True)
class Failure:
    """A sample that was answered wrongly, or not at all.

    Attributes:
        recipe: the recipe of its case.
        sample: its position there.
        kind: "wrong" or "inaccurate".
        reason: what the judge says.
        alone: whether it fails in the same way as a case of its own.
    """

    recipe: Recipe
    sample: int
    kind: str
    reason: str
    alone: bool


@dataclass
class Tally:
    """The verdicts on a family.

    Attributes:
        family: its name.
        right, refused, inaccurate, wrong: how many samples.
        edge: how many of them are undecidable by a proven margin; they are among the others.
        gradients: how many gradients were compared.
        slowest: the largest time of a sample against the median of its batch.
    """

    family: str
    right: int = 0
    refused: int = 0
    inaccurate: int = 0
    wrong: int = 0
    edge: int = 0
    gradients: int = 0
    slowest: float = 0.0

    @property
    def tried(self) -> int:
        """Number of samples."""
        return self.right + self.refused + self.inaccurate + self.wrong

    def add(self, other: Tally) -> None:
        """Count the samples of another tally, too."""
        for name in ("right", "refused", "inaccurate", "wrong", "edge", "gradients"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)


@dataclass
class FuzzResult:
    """The verdicts of a run so far.

    Attributes:
        tallies: one for each family.
        failures: what was wrong or inaccurate, at most KEPT of each kind and family.
        files: counterexamples that were written.
        interrupted: whether the user stopped it.
    """

    tallies: dict[str, Tally]
    failures: list[Failure] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    interrupted: bool = False

    def total(self) -> Tally:
        """All families together."""
        total = Tally("all")
        for tally in self.tallies.values():
            total.add(tally)
        return total

    def missed(self) -> list[str]:
        """The goals that are missed, in words."""
        total, found = self.total(), []
        parallel = Tally("nearly parallel")
        for name in set(PARALLEL) & self.tallies.keys():
            parallel.add(self.tallies[name])
        shares = {
            "inaccurate": (total.inaccurate - parallel.inaccurate, total.tried - parallel.tried),
            "inaccurate, nearly parallel": (parallel.inaccurate, parallel.tried),
        }
        if total.wrong > GOALS["wrong"]:
            found.append(f"{total.wrong} wrong")
        for name, (count, of) in shares.items():
            if count > GOALS[name] * of:
                found.append(f"{name}: {count} of {of}, goal {GOALS[name]:.1%}")
        if total.slowest > GOALS["slowest"]:
            found.append(
                f"a sample took {total.slowest:.0f} times the median of its batch, goal {GOALS['slowest']:.0f}"
            )
        return found


def run(
    count: int,
    seed: int = 0,
    families: list[str] | None = None,
    workers: int = 1,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Tally], None] | None = None,
) -> FuzzResult:
    """Draw, solve and judge ``count`` problems.

    Args:
        count: problems, spread evenly over the families in cases of 8 samples each.
        seed: the seed of the recipes; a case does not depend on what else is run.
        families: names in ``recipes.FAMILIES``; None for all.
        workers: processes.
        folder: the folder for counterexamples and the verdicts so far; None writes nothing.
        resume: go on where the last run with these settings was stopped.
        progress: called with the verdicts on each case.

    Returns:
        What was found; after Ctrl-C what was found until then.
    """
    names = list(FAMILIES) if families is None else families
    for name in names:
        if name not in FAMILIES:
            raise ProblemError(f"there is no family {name!r}; choose from {', '.join(FAMILIES)}")
    if count < 1 or workers < 1:
        raise ProblemError(f"count and workers must be at least 1; got {count} and {workers}")
    found = FuzzResult({name: Tally(name) for name in names})
    journal = Journal(folder, {"seed": seed, "families": names}, _encode_result, _decode_result)
    done = journal.begin(resume)
    jobs = [(k, seed, names[k % len(names)]) for k in range(math.ceil(count / BATCH))]
    known = {k for k, _, _ in done}

    def count_in(result: Result) -> None:
        _, tally, failures = result
        found.tallies[tally.family].add(tally)
        _keep_failures(found, failures, folder)
        if progress is not None:
            progress(tally)

    for result in done:
        count_in(result)
    try:
        for result in map_in_pool(work, [job for job in jobs if job[0] not in known], workers):
            journal.append(result)
            count_in(result)
    except KeyboardInterrupt:
        found.interrupted = True
    return found


Job = tuple[int, int, str]
Result = tuple[int, Tally, list[Failure]]


def work(job: Job) -> Result:
    """Draw one case and judge it; runs in a worker process."""
    from pear_lab.stress.examine_case import examine

    k, seed, family = job
    recipe = draw_recipe(np.random.default_rng([seed, k]), family, BATCH)
    case = build_case(recipe)
    examined = examine(case)
    tally = Tally(family, slowest=examined.slowest, gradients=examined.gradients)
    failures: list[Failure] = []
    for i, verdict in enumerate(examined.verdicts):
        setattr(tally, verdict.kind, getattr(tally, verdict.kind) + 1)
        tally.edge += verdict.edge
        if verdict.kind in ("wrong", "inaccurate"):
            again = examine(case.only(i)).verdicts[0].kind == verdict.kind if len(failures) < 4 else False
            failures.append(Failure(recipe, i, verdict.kind, verdict.reason, again))
    return k, tally, failures


def _keep_failures(found: FuzzResult, failures: list[Failure], folder: Path | None) -> None:
    """Keep the first failures of each kind and family, as files where there is a folder."""
    for failure in failures:
        family, kind = failure.recipe.family, failure.kind
        same = sum(f.kind == kind and f.recipe.family == family for f in found.failures)
        if same >= KEPT:
            continue
        found.failures.append(failure)
        if folder is not None:
            case = build_case(failure.recipe)
            case = case.only(failure.sample) if failure.alone else case
            name = f"{kind}-{family.replace(' ', '-')}-{failure.recipe.seed}-{failure.sample}.json"
            more = {"kind": kind, "sample": 0 if failure.alone else failure.sample, "recipe": asdict(failure.recipe)}
            found.files.append(counterexamples.write(folder / name, case, failure.reason, **more))


def _encode_result(result: Result) -> dict[str, Any]:
    """The verdicts on one case as a line of the journal."""
    k, tally, failures = result
    return {"case": k, "tally": asdict(tally), "failures": [asdict(f) for f in failures]}


def _decode_result(line: dict[str, Any]) -> Result:
    """The verdicts of a line of the journal."""
    failures = [Failure(**{**f, "recipe": Recipe(**f["recipe"])}) for f in line["failures"]]
    return line["case"], Tally(**line["tally"]), failures

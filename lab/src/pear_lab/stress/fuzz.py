"""Fuzzing: random cases, which are batches of problems, are examined on several cores, and the verdicts are counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear_lab.stress.case_families import FAMILIES, build_family_case
from pear_lab.stress.counterexamples import write_counterexample
from pear_lab.stress.journal import Journal
from pear_lab.stress.recipes import Recipe, draw_recipe
from pear_lab.stress.worker_pool import map_in_worker_pool

BATCH = 8
"""The number of samples of a case."""
KEPT = 25
"""The largest number of counterexamples that are kept for each family and kind of verdict."""
GOALS = {"wrong": 0.0, "inaccurate": 1e-3, "inaccurate, nearly parallel": 1e-2, "slowest": 50.0}
"""The largest allowed number of wrong samples, shares of inaccurate samples, and time of a sample.

The time of a sample is relative to the median time of its batch.
"""
PARALLEL = ("nearly parallel", "Hilbert")
"""The families with nearly dependent rows, which have their own goal."""


@dataclass(frozen=True)
class FuzzFailure:
    """A sample with a wrong or inaccurate answer.

    Attributes:
        recipe: the recipe of the case.
        sample: the position of the sample in the case.
        kind: "wrong" or "inaccurate".
        reason: the judge's reason.
        alone: whether the sample was examined again as a case of its own, and got the same kind of verdict.
    """

    recipe: Recipe
    sample: int
    kind: str
    reason: str
    alone: bool


@dataclass
class FuzzTally:
    """Counts of the verdicts on a family.

    Attributes:
        family: the name of the family.
        right, refused, inaccurate, wrong: the numbers of samples with each kind of verdict.
        edge: the number of samples for which another status would be right as well, because a rounding of the data
            changes the status. They are also counted above, by their verdict.
        gradients: the number of gradients that were examined.
        slowest: the longest time of a sample, divided by the median time of its batch.
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
        """The number of samples."""
        return self.right + self.refused + self.inaccurate + self.wrong

    def add(self, other: FuzzTally) -> None:
        """Add the counts of another tally to this one."""
        for name in ("right", "refused", "inaccurate", "wrong", "edge", "gradients"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)


@dataclass
class FuzzResult:
    """The verdicts of a run so far.

    Attributes:
        tallies: the counts of each family.
        failures: wrong and inaccurate samples, up to a limit for each family and kind.
        files: the counterexamples that were written.
        interrupted: whether the user stopped the run.
    """

    tallies: dict[str, FuzzTally]
    failures: list[FuzzFailure] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    interrupted: bool = False

    def total(self) -> FuzzTally:
        """Return the sum of the counts of all families."""
        total = FuzzTally("all")
        for tally in self.tallies.values():
            total.add(tally)
        return total

    def missed(self) -> list[str]:
        """Return a phrase for each of ``GOALS`` that is missed."""
        total, found = self.total(), []
        parallel = FuzzTally("nearly parallel")
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


FuzzJob = tuple[int, int, str]
"""The number of a case, the seed of the run, and the family of the case."""
FuzzedCase = tuple[int, FuzzTally, list[FuzzFailure]]
"""The number of a case, and its verdicts."""


def run_fuzz(
    count: int,
    seed: int = 0,
    families: list[str] | None = None,
    workers: int = 1,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[FuzzTally], None] | None = None,
) -> FuzzResult:
    """Draw, solve and judge at least ``count`` problems.

    Args:
        count: the number of problems, in cases of 8 samples. The families take turns.
        seed: the seed of the recipes. A case depends on the seed, its number and its family only.
        families: names in ``case_families.FAMILIES``; None for all.
        workers: the number of processes.
        folder: the folder for counterexamples and for verdicts so far; None writes nothing.
        resume: whether to continue the last run in the folder, which must have had the same seed and families.
        progress: function that is called with the counts of each case.

    Returns:
        The verdicts; after Ctrl-C, the verdicts so far.
    """
    names = list(FAMILIES) if families is None else families
    for name in names:
        if name not in FAMILIES:
            raise ProblemError(f"there is no family {name!r}; choose from {', '.join(FAMILIES)}")
    if count < 1 or workers < 1:
        raise ProblemError(f"count and workers must be at least 1; got {count} and {workers}")
    found = FuzzResult({name: FuzzTally(name) for name in names})
    journal = Journal(folder, {"seed": seed, "families": names}, _encode_fuzzed_case, _decode_fuzzed_case)
    done = journal.begin(resume)
    jobs = [(k, seed, names[k % len(names)]) for k in range(math.ceil(count / BATCH))]
    known = {k for k, _, _ in done}

    def count_in(fuzzed: FuzzedCase) -> None:
        _, tally, failures = fuzzed
        found.tallies[tally.family].add(tally)
        _keep_fuzz_failures(found, failures, folder)
        if progress is not None:
            progress(tally)

    for fuzzed in done:
        count_in(fuzzed)
    try:
        for fuzzed in map_in_worker_pool(fuzz_case, [job for job in jobs if job[0] not in known], workers):
            journal.append(fuzzed)
            count_in(fuzzed)
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def fuzz_case(job: FuzzJob) -> FuzzedCase:
    """Draw and examine one case, in a worker process. Its first four failures are examined again, each as a case."""
    from pear_lab.stress.examine_case import examine

    k, seed, family = job
    recipe = draw_recipe(np.random.default_rng([seed, k]), family, BATCH)
    case = build_family_case(recipe)
    examined = examine(case)
    tally = FuzzTally(family, slowest=examined.slowest, gradients=examined.gradients)
    failures: list[FuzzFailure] = []
    for i, verdict in enumerate(examined.verdicts):
        setattr(tally, verdict.kind, getattr(tally, verdict.kind) + 1)
        tally.edge += verdict.edge
        if verdict.kind in ("wrong", "inaccurate"):
            again = len(failures) < 4 and examine(case.only(i)).verdicts[0].kind == verdict.kind
            failures.append(FuzzFailure(recipe, i, verdict.kind, verdict.reason, again))
    return k, tally, failures


def _keep_fuzz_failures(found: FuzzResult, failures: list[FuzzFailure], folder: Path | None) -> None:
    """Add failures to the result, up to a limit for each kind and family, and write them to ``folder`` if given."""
    for failure in failures:
        family, kind = failure.recipe.family, failure.kind
        same = sum(f.kind == kind and f.recipe.family == family for f in found.failures)
        if same >= KEPT:
            continue
        found.failures.append(failure)
        if folder is not None:
            case = build_family_case(failure.recipe)
            case = case.only(failure.sample) if failure.alone else case
            name = f"{kind}-{family.replace(' ', '-')}-{failure.recipe.seed}-{failure.sample}.json"
            more = {"kind": kind, "sample": 0 if failure.alone else failure.sample, "recipe": asdict(failure.recipe)}
            found.files.append(write_counterexample(folder / name, case, failure.reason, **more))


def _encode_fuzzed_case(fuzzed: FuzzedCase) -> dict[str, Any]:
    """Return the verdicts on a case as a line of the journal."""
    k, tally, failures = fuzzed
    return {"case": k, "tally": asdict(tally), "failures": [asdict(f) for f in failures]}


def _decode_fuzzed_case(line: dict[str, Any]) -> FuzzedCase:
    """Return the verdicts on a case from a line of the journal."""
    failures = [FuzzFailure(**{**f, "recipe": Recipe(**f["recipe"])}) for f in line["failures"]]
    return line["case"], FuzzTally(**line["tally"]), failures

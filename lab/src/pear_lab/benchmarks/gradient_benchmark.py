"""Benchmark: the time and the error of the gradient of a decision's regret, forward and backward.

A time is never shown without the error of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pear.errors import ProblemError
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.gradient_batch import GradientBatch
from pear_lab.benchmarks.gradient_errors import GradientErrors
from pear_lab.benchmarks.gradient_rows import (
    GradientRow,
    label_of_gradient_rows,
    series_of_gradient_rows,
    tables_of_gradient_rows,
)
from pear_lab.benchmarks.our_steps import LAYER, ONE_CORE, OurSteps
from pear_lab.benchmarks.program_structures import STRUCTURES, Structure, choose_structures
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.benchmarks.timing import check_timing_device, use_timing_threads
from pear_lab.peers import Peer, PeerError, PeerMeasurement, PeerTimeoutError, measure_peer
from pear_lab.peers.workers.worker import CLOCKS, measure_worker_steps, wait_for_worker_device

SIZES = (20, 100, 500)
BATCHES = {"cpu": (1, 64, 512), "cuda": (1, 16, 64, 512, 4096)}
"""The default batch sizes of portfolios on each device."""
MOST_NUMBERS = 2**26
"""The most numbers in the curvatures of a batch. On a CPU, larger batches need both ``--sizes`` and ``--batches``."""
LARGEST_ON_CPU = 512
"""The largest of a structure's default batches that is measured on a CPU."""
REFERENCES, FEW_REFERENCES, LARGE = 64, 16, 200
"""The numbers of compared samples of small and of large programs, and the most variables of a small program."""


class GradientPoint(NamedTuple):
    """A point of the benchmark: a structure of programs, a number of variables, and batch sizes, smallest first."""

    structure: Structure
    n: int
    batches: list[int]


@dataclass(frozen=True)
class GradientBenchmarkSettings(BenchSettings):
    """Time gradients of the regret, forward and backward, with their errors, also of other libraries."""

    structures: tuple[str, ...] | None = setting(
        None,
        f"{', '.join(one.name for one in STRUCTURES)}, or all; each at its own size and batches.",
        shown="portfolios of several sizes",
    )
    sizes: tuple[int, ...] | None = setting(
        None, "Numbers of assets or variables; paths have their own.", least=2, quick=(20,), shown="20,100,500"
    )
    batches: tuple[int, ...] | None = setting(
        None, "Numbers of samples.", least=1, quick=(1, 16), shown="1,64,512; cuda: 1,16,64,512,4096"
    )
    device: str = setting("cpu", "cpu or cuda.")
    threads: int = setting(1, "Threads for each library.")
    repeats: int = setting(7, "The number of measurements of each point; the fastest counts.", least=1, quick=3)
    rounds: int = setting(1, "The number of rounds in which all libraries are measured; the fastest counts.", least=1)
    clock: str = setting("wall", "wall, or processor for processor time, if other programs use the machine.")
    limit: float = setting(60.0, "The time limit of a library for one point, in seconds.", positive=True)
    profile: bool = setting(False, "Also show what PEAR's time is spent on.")
    seed: int = setting(0, "Seed of the problems.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structures is not None:
            choose_structures(self.structures)
        check_timing_device(self.device)
        if self.clock not in CLOCKS:
            raise ProblemError(f"--clock must be {' or '.join(CLOCKS)}; got {self.clock!r}")

    def grid(self) -> tuple[list[GradientPoint], list[str]]:
        """Return the points to measure, and notes on the batches that are left out."""
        points, left_out = [], []
        for structure, sizes, batches in self._chosen_structures():
            for n in sorted(set(sizes)):
                kept = sorted(set(batches))
                if self.device == "cpu" and (self.sizes is None or self.batches is None):
                    kept = [batch for batch in kept if n * n * batch <= MOST_NUMBERS]
                points.append(GradientPoint(structure, n, kept))
                why = "name --sizes and --batches to have it"
                left_out += [
                    _note_left_out_of_gradient_benchmark(label_of_gradient_rows(structure.name, n), b, why)
                    for b in batches
                    if b not in kept
                ]
        return points, left_out

    def _chosen_structures(self) -> Iterator[tuple[Structure, tuple[int, ...], tuple[int, ...]]]:
        """Yield the structures to measure, each with its numbers of variables and its batch sizes."""
        if self.structures is None:
            yield STRUCTURES[0], self.sizes or SIZES, self.batches or BATCHES[self.device]
            return
        for structure in choose_structures(self.structures):
            sizes = self.sizes if self.sizes and structure.any_size else (structure.size,)
            own = tuple(b for b in structure.batches if self.device == "cuda" or b <= LARGEST_ON_CPU)
            yield structure, sizes, self.batches or own


class GradientBenchmark(Benchmark[GradientBenchmarkSettings, GradientRow]):
    """The benchmark of the gradient of the regret, with PEAR and with other libraries."""

    options = GradientBenchmarkSettings
    labels = Labels("Gradient of the regret, forward and backward", "samples in a batch", "seconds a batch")
    peer_command = "gradient"

    def run(self) -> None:
        """Measure every library on every structure, number of variables and batch size."""
        settings, callbacks = self.settings, self.callbacks
        points, left_out = settings.grid()
        for text in left_out:
            callbacks.on_note(text)
        for structure, n, batches in points:
            if not batches:
                continue
            where = label_of_gradient_rows(structure.name, n)
            callbacks.say(f"{where}: exact gradients to compare with")
            references = REFERENCES if n <= LARGE else FEW_REFERENCES
            programs = GradientBatch(structure, n, max(batches), references, settings.seed)
            taking_part = [(peer, python) for peer, python in self.peers if peer.takes(structure.name)]
            limits = _GradientBenchmarkLimits(where, settings.limit, callbacks.on_note)
            for batch in batches:
                point = _GradientBenchmarkPoint(settings, programs, batch, limits, callbacks.say)
                for row in point.fastest_rows(taking_part):
                    self.add_row(row)

    @classmethod
    def tables(cls, rows: list[GradientRow]) -> list[TextTable]:
        """Make the tables of all rows by ``tables_of_gradient_rows``."""
        return tables_of_gradient_rows(rows)

    @classmethod
    def series(cls, rows: list[GradientRow]) -> list[Series]:
        """Make the series of all rows by ``series_of_gradient_rows``."""
        return series_of_gradient_rows(rows)


BENCHMARK = GradientBenchmark


class _GradientBenchmarkLimits:
    """The choice of the libraries that are measured, while the batches of one structure and size grow.

    The time of a library on a batch is predicted from its time on the last one, in proportion to the samples. A library
    that would exceed the time limit is dropped: it is measured on no larger batch either.

    Args:
        where: the structure and the size in words.
        limit: the time limit in seconds.
        on_note: called with a note when a library is dropped.

    Attributes:
        known: for each library the last batch size, and the seconds that a batch of this size took.
        gone: the dropped libraries.
    """

    def __init__(self, where: str, limit: float, on_note: Callable[[str], None]) -> None:
        self.where, self.limit, self.on_note = where, limit, on_note
        self.known: dict[str, tuple[int, float]] = {}
        self.gone: set[str] = set()

    def allows(self, who: str, batch: int) -> bool:
        """Return whether the library ``who`` is expected to keep the limit with a batch size. If not, drop it."""
        if who in self.gone:
            return False
        before, seconds = self.known.get(who, (batch, 0.0))
        if 2 * seconds * batch / before > self.limit:  # a warm-up and one measurement
            self.drop(who, batch, f"would take more than {self.limit:g} s (--limit)")
            return False
        return True

    def drop(self, who: str, batch: int, why: str) -> None:
        """Drop a library from this batch size on, and note the reason."""
        self.gone.add(who)
        self.on_note(f"{who}: {_note_left_out_of_gradient_benchmark(self.where, batch, why)}")


def _note_left_out_of_gradient_benchmark(where: str, batch: int, why: str) -> str:
    """Return words that say that batches of ``batch`` and more samples are left out, and why."""
    return f"{where} with a batch of {batch:,} and larger left out: {why}"


@dataclass(frozen=True)
class _GradientBenchmarkPoint:
    """The measurements of PEAR and of the peers, which are other libraries, on one batch.

    Attributes:
        settings: what to measure.
        programs: the programs.
        batch: the number of samples.
        limits: the choice of the libraries that are measured on the batch.
        say: called with a line on what is being measured now.
    """

    settings: GradientBenchmarkSettings
    programs: GradientBatch
    batch: int
    limits: _GradientBenchmarkLimits
    say: Callable[[str], None]

    def fastest_rows(self, peers: Sequence[tuple[Peer, Path]]) -> list[GradientRow]:
        """Measure PEAR and the peers in turns, ``--rounds`` times, and return the fastest row of each."""
        fastest: dict[str, GradientRow] = {}
        for _ in range(self.settings.rounds):
            for row in (*self.ours(), *self.peers(peers)):
                known = fastest.get(row.who)
                fastest[row.who] = row if known is None or row.seconds < known.seconds else known
        return list(fastest.values())

    def ours(self) -> Iterator[GradientRow]:
        """Measure and yield a row for each step of PEAR. On a GPU, a row of the layer on one CPU core may follow."""
        ours = OurSteps(self.programs, self.batch, self.settings.device)
        for who in ours.steps:
            if self._may_measure(who):
                yield self._our_row(ours, who, who)
        if self.settings.device == "cuda" and self.settings.structures is not None and self._may_measure(ONE_CORE):
            with use_timing_threads(1):
                yield self._our_row(OurSteps(self.programs, self.batch, "cpu"), LAYER, ONE_CORE)

    def peers(self, peers: Sequence[tuple[Peer, Path]]) -> Iterator[GradientRow]:
        """Measure each peer in its environment, and yield its row. Peers that fail or take too long are left out."""
        data, settings = self.programs.data(self.batch), self.settings
        for peer, python in peers:
            if not self._may_measure(peer.title):
                continue
            options = (settings.device, settings.threads, settings.repeats, settings.limit)
            try:
                found = measure_peer(peer, python, data, *options, clock=settings.clock)
                yield self._peer_row(peer, found)
            except PeerTimeoutError as error:
                self.limits.drop(peer.title, self.batch, str(error))
            except PeerError as error:
                where = f"{self.limits.where} with a batch of {self.batch:,}"
                self.limits.on_note(f"{peer.title}: {where} left out: {error}")

    def _may_measure(self, who: str) -> bool:
        """Return whether a library is measured on this batch. If so, show the name of the library as progress."""
        if not self.limits.allows(who, self.batch):
            return False
        self.say(f"{self.limits.where}, batch of {self.batch:,}: {who}")
        return True

    def _our_row(self, ours: OurSteps, step: str, who: str) -> GradientRow:
        """Measure a step of PEAR, and make its row under the name ``who``."""
        settings, wait = self.settings, wait_for_worker_device(ours.device)
        arrays, seconds = measure_worker_steps(
            ours.steps[step], settings.repeats, settings.limit, True, wait, settings.clock
        )
        errors = ours.answers(step).errors(arrays["gradient"])
        profile = ours.profile(step) if settings.profile else {}
        return self._row(who, True, seconds, errors, reuse_rate=ours.reuse_rate(step), profile=profile)

    def _peer_row(self, peer: Peer, found: PeerMeasurement) -> GradientRow:
        """Make the row of a measured peer.

        Raises:
            PeerError: the result of the peer is missing, or has another shape than expected.
        """
        answers = self.programs.answers
        errors = {"gradient": answers.errors, "decision": answers.decision_errors}[peer.measures]
        result, shape = found.arrays.get(peer.measures), self.programs.cost[: self.batch].shape
        if result is None or result.shape != shape:
            came = None if result is None else result.shape
            raise PeerError(f"{peer.name} returned a {peer.measures} of shape {came}; expected {shape}")
        more = {"versions": found.versions, "measured": peer.measures, "loose": peer.loose}
        return self._row(peer.title, False, found.seconds, errors(result), **more)

    def _row(self, who: str, ours: bool, seconds: list[float], e: GradientErrors, **more: Any) -> GradientRow:
        """Make the row of a library from times, errors ``e`` and ``more`` fields. Pass its time on to ``limits``."""
        self.limits.known[who] = self.batch, min(seconds)
        times = min(seconds), float(np.median(seconds))
        structure, n = self.programs.structure.name, self.programs.n
        errors = e.median, e.q90, e.largest
        return GradientRow(who, ours, n, self.batch, *times, *errors, e.compared, structure=structure, **more)

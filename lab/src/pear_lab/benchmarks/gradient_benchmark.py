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
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.exact_gradients import ErrorSummary, GradientBatch
from pear_lab.benchmarks.gradient_rows import GradientRow, series, structure_label, tables
from pear_lab.benchmarks.our_steps import LAYER, ONE_CORE, OurSteps
from pear_lab.benchmarks.program_structures import STRUCTURES, Structure, choose_structures
from pear_lab.benchmarks.timing import CLOCKS, check_timing_device, measure_steps, synchronize, use_timing_threads
from pear_lab.peers import Peer, PeerError, PeerMeasurement, PeerTimeoutError, measure_peer

__all__ = ["LABELS", "PEERS", "SETTINGS", "GradientPoint", "GradientSettings", "run", "series", "tables"]

SIZES = (20, 100, 500)
BATCHES = {"cpu": (1, 64, 512), "cuda": (1, 16, 64, 512, 4096)}
"""Default batch sizes of portfolios, by device."""
MOST_NUMBERS = 2**26
"""Numbers in the curvatures of a batch beyond which it is left out on a CPU unless it is asked for by name."""
LARGEST_ON_CPU = 512
"""Samples in a batch beyond which a structure's own batches are left out on a CPU."""
REFERENCES, FEW_REFERENCES, LARGE = 64, 16, 200
"""Number of compared samples, the same number for large programs, and the variables that make a program large."""

PEERS = "gradient"
LABELS = Labels("Gradient of the regret, forward and backward", "samples in a batch", "seconds a batch")


class GradientPoint(NamedTuple):
    """A structure, its number of variables, and the batches, smallest first."""

    structure: Structure
    n: int
    batches: list[int]


@dataclass(frozen=True)
class GradientSettings(Settings):
    """Time gradients of the regret, forward and backward, with their errors, also of other libraries."""

    structures: tuple[str, ...] | None = option(
        None,
        f"{', '.join(one.name for one in STRUCTURES)}, or all; each at its own size and batches.",
        shown="portfolios of several sizes",
    )
    sizes: tuple[int, ...] | None = option(
        None, "Numbers of assets or variables; paths have their own.", least=2, quick=(20,), shown="20,100,500"
    )
    batches: tuple[int, ...] | None = option(
        None, "Numbers of samples.", least=1, quick=(1, 16), shown="1,64,512; cuda: 1,16,64,512,4096"
    )
    device: str = option("cpu", "cpu or cuda.")
    threads: int = option(1, "Threads for each library.")
    repeats: int = option(7, "The number of measurements of each point; the fastest counts.", least=1, quick=3)
    rounds: int = option(1, "The number of rounds in which all libraries are measured; the fastest counts.", least=1)
    clock: str = option("wall", "wall, or processor for processor time, if other programs use the machine.")
    limit: float = option(60.0, "The time limit of a library for one point, in seconds.", positive=True)
    profile: bool = option(False, "Also show what PEAR's time is spent on.")
    seed: int = option(0, "Seed of the problems.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structures is not None:
            choose_structures(self.structures)
        check_timing_device(self.device)
        if self.clock not in CLOCKS:
            raise ProblemError(f"--clock must be {' or '.join(CLOCKS)}; got {self.clock!r}")

    def grid(self) -> tuple[list[GradientPoint], list[str]]:
        """The points to measure, and notes on those that are left out."""
        points, left_out = [], []
        for structure, sizes, batches in self._chosen_structures():
            for n in sorted(set(sizes)):
                kept = sorted(set(batches))
                if self.device == "cpu" and (self.sizes is None or self.batches is None):
                    kept = [batch for batch in kept if n * n * batch <= MOST_NUMBERS]
                points.append(GradientPoint(structure, n, kept))
                why = "name --sizes and --batches to have it"
                left_out += [
                    _left_out_note(structure_label(structure.name, n), b, why) for b in batches if b not in kept
                ]
        return points, left_out

    def _chosen_structures(self) -> Iterator[tuple[Structure, tuple[int, ...], tuple[int, ...]]]:
        """The structures to measure, each with its sizes and batches."""
        if self.structures is None:
            yield STRUCTURES[0], self.sizes or SIZES, self.batches or BATCHES[self.device]
            return
        for structure in choose_structures(self.structures):
            sizes = self.sizes if self.sizes and structure.any_size else (structure.size,)
            own = tuple(b for b in structure.batches if self.device == "cuda" or b <= LARGEST_ON_CPU)
            yield structure, sizes, self.batches or own


SETTINGS = GradientSettings


def run(settings: GradientSettings, callbacks: Callbacks, peers: Sequence[tuple[Peer, Path]] = ()) -> None:
    """Measure every library on every problem structure, size and batch size, one after the other.

    Args:
        settings: what to measure.
        callbacks: receive the results, the notes and the progress.
        peers: the other libraries to measure, each with the path of the Python interpreter that runs it.
    """
    points, left_out = settings.grid()
    for text in left_out:
        callbacks.on_note(text)
    for structure, n, batches in points:
        if not batches:
            continue
        callbacks.say(f"{structure_label(structure.name, n)}: exact gradients to compare with")
        references = REFERENCES if n <= LARGE else FEW_REFERENCES
        instances = GradientBatch(structure, n, max(batches), references, settings.seed)
        taking_part = [(peer, python) for peer, python in peers if peer.takes(structure.name)]
        forecasts = _TimeLimits(structure_label(structure.name, n), settings.limit, callbacks.on_note)
        for batch in batches:
            side = _GradientSides(settings, instances, batch, forecasts, callbacks.say)
            for row in side.fastest_rows(taking_part):
                callbacks.on_row(row)


class _TimeLimits:
    """Time limits at one size. They predict from the last smaller batch whether a library would take too long."""

    def __init__(self, where: str, limit: float, on_note: Callable[[str], None]) -> None:
        self.where, self.limit, self.on_note = where, limit, on_note
        self.known: dict[str, tuple[int, float]] = {}
        self.gone: set[str] = set()

    def allows(self, who: str, batch: int) -> bool:
        """Whether ``who`` is expected to stay within the time limit with this batch size; if not, it is dropped."""
        if who in self.gone:
            return False
        before, seconds = self.known.get(who, (batch, 0.0))
        if 2 * seconds * batch / before > self.limit:  # a warm-up and one measurement
            self.drop(who, batch, f"would take more than {self.limit:g} s (--limit)")
            return False
        return True

    def drop(self, who: str, batch: int, why: str) -> None:
        self.gone.add(who)
        self.on_note(f"{who}: {_left_out_note(self.where, batch, why)}")


def _left_out_note(where: str, batch: int, why: str) -> str:
    return f"{where} with a batch of {batch:,} and larger left out: {why}"


@dataclass(frozen=True)
class _GradientSides:
    """The measurements of every library at one point."""

    settings: GradientSettings
    instances: GradientBatch
    batch: int
    forecasts: _TimeLimits
    say: Callable[[str], None]

    def fastest_rows(self, peers: Sequence[tuple[Peer, Path]]) -> list[GradientRow]:
        """Measure every side in turn, ``--rounds`` times, and keep the fastest row of each."""
        fastest: dict[str, GradientRow] = {}
        for _ in range(self.settings.rounds):
            for row in (*self.ours(), *self.peers(peers)):
                known = fastest.get(row.who)
                fastest[row.who] = row if known is None or row.seconds < known.seconds else known
        return list(fastest.values())

    def ours(self) -> Iterator[GradientRow]:
        """Measure each step of ours; on a GPU also our layer on one CPU core."""
        ours = OurSteps(self.instances, self.batch, self.settings.device)
        for who in ours.steps:
            if self._may(who):
                yield self._our_row(ours, who, who)
        if self.settings.device == "cuda" and self.settings.structures is not None and self._may(ONE_CORE):
            with use_timing_threads(1):
                yield self._our_row(OurSteps(self.instances, self.batch, "cpu"), LAYER, ONE_CORE)

    def peers(self, peers: Sequence[tuple[Peer, Path]]) -> Iterator[GradientRow]:
        """Measure each peer in its environment; one that fails or takes too long is noted and left out."""
        data, settings = self.instances.data(self.batch), self.settings
        for peer, python in peers:
            if not self._may(peer.title):
                continue
            options = (settings.device, settings.threads, settings.repeats, settings.limit)
            try:
                found = measure_peer(peer, python, data, *options, clock=settings.clock)
                yield self._peer_row(peer, found)
            except PeerTimeoutError as error:
                self.forecasts.drop(peer.title, self.batch, str(error))
            except PeerError as error:
                where = f"{self.forecasts.where} with a batch of {self.batch:,}"
                self.forecasts.on_note(f"{peer.title}: {where} left out: {error}")

    def _may(self, who: str) -> bool:
        """Whether a library is measured at this point. If so, its name is shown as progress."""
        if not self.forecasts.allows(who, self.batch):
            return False
        self.say(f"{self.forecasts.where}, batch of {self.batch:,}: {who}")
        return True

    def _our_row(self, ours: OurSteps, step: str, who: str) -> GradientRow:
        settings, wait = self.settings, synchronize(ours.device)
        arrays, seconds = measure_steps(ours.steps[step], settings.repeats, settings.limit, True, wait, settings.clock)
        errors = ours.answers(step).errors(arrays["gradient"])
        profile = ours.profile(step) if settings.profile else {}
        return self._row(who, True, seconds, errors, reuse_rate=ours.reuse_rate(step), profile=profile)

    def _peer_row(self, peer: Peer, found: PeerMeasurement) -> GradientRow:
        answers = self.instances.answers
        errors = {"gradient": answers.errors, "decision": answers.decision_errors}[peer.measures]
        came = _check_peer_shape(found.arrays, self.instances.cost[: self.batch].shape, peer)
        more = {"versions": found.versions, "measured": peer.measures, "loose": peer.loose}
        return self._row(peer.title, False, found.seconds, errors(came), **more)

    def _row(self, who: str, ours: bool, seconds: list[float], e: ErrorSummary, **more: Any) -> GradientRow:
        self.forecasts.known[who] = self.batch, min(seconds)
        times = min(seconds), float(np.median(seconds))
        structure, n = self.instances.structure.name, self.instances.n
        errors = e.median, e.q90, e.largest
        return GradientRow(who, ours, n, self.batch, *times, *errors, e.compared, structure=structure, **more)


def _check_peer_shape(arrays: dict[str, Any], shape: tuple[int, ...], peer: Peer) -> Any:
    """Check the shape of a peer's result, and return it."""
    found = arrays.get(peer.measures)
    if found is None or found.shape != shape:
        came = None if found is None else found.shape
        raise PeerError(f"{peer.name} returned a {peer.measures} of shape {came}; expected {shape}")
    return found

"""How long does the gradient of a portfolio's regret take, forward and backward, and how wrong is it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pear.bench.clock import measure, synchronize
from pear.bench.judge import Answers, Markets
from pear.bench.ours import Ours
from pear.bench.peers import Peer, PeerError, PeerTimeoutError
from pear.bench.peers import measure as measure_peer
from pear.bench.statistics import Errors
from pear.errors import ProblemError

SIZES = (20, 100, 500)
BATCHES = {"cpu": (1, 64, 512), "cuda": (1, 16, 64, 512, 4096)}
QUICK_SIZES, QUICK_BATCHES = (20,), (1, 16)
MOST_NUMBERS = 2**26
"""Numbers in the covariances of a batch beyond which it is left out on a CPU unless it is asked for by name."""


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        sizes: numbers of assets; None for the usual ones.
        batches: numbers of samples; None for the usual ones.
        device: "cpu" or "cuda".
        threads: for every side.
        repeats: measurements of each point; the fastest counts.
        limit: seconds that the measurements of one point may take.
        seed: of the portfolios.
        profile: also say where our time goes.
        quick: a few small points.
    """

    sizes: tuple[int, ...] | None = None
    batches: tuple[int, ...] | None = None
    device: str = "cpu"
    threads: int = 1
    repeats: int = 7
    limit: float = 60.0
    seed: int = 0
    profile: bool = False
    quick: bool = False

    def __post_init__(self) -> None:
        for name, values, least in (("sizes", self.sizes, 2), ("batches", self.batches, 1)):
            if values is not None and (not values or min(values) < least):
                raise ProblemError(f"--{name} must be whole numbers of at least {least}; got {list(values)}")
        if self.repeats < 1:
            raise ProblemError(f"--repeats must be at least 1; got {self.repeats}")
        if not self.limit > 0:
            raise ProblemError(f"--limit must be a positive number of seconds; got {self.limit}")

    def grid(self) -> tuple[list[tuple[int, list[int]]], list[str]]:
        """For every size its batches, smallest first; and what is left out."""
        sizes = self.sizes or (QUICK_SIZES if self.quick else SIZES)
        batches = self.batches or (QUICK_BATCHES if self.quick else BATCHES[self.device])
        points, left_out = [], []
        for n in sorted(set(sizes)):
            kept = sorted(set(batches))
            if self.device == "cpu" and (self.sizes is None or self.batches is None):
                kept = [batch for batch in kept if n * n * batch <= MOST_NUMBERS]
            points.append((n, kept))
            left_out += [_left_out(n, b, "name --sizes and --batches to have it") for b in batches if b not in kept]
        return points, left_out


@dataclass(frozen=True)
class Row:
    """One side at one point.

    Attributes:
        who: one of ``Ours.steps``, or a peer's title.
        ours: whether it is this package.
        n, batch: the point.
        seconds: the fastest measurement; median_seconds: the median one. For the whole batch.
        error_median, error_q90, error_largest: relative errors of the gradients against the reference.
        judged: samples that they come from.
        reuse_rate: share of samples for which no solver was called; None where nothing is remembered.
        versions: of a peer's packages.
        profile: seconds by what they were spent on, of one more measurement.
    """

    who: str
    ours: bool
    n: int
    batch: int
    seconds: float
    median_seconds: float
    error_median: float
    error_q90: float
    error_largest: float
    judged: int
    reuse_rate: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """True where even the largest error is small."""
        return Errors(self.error_median, self.error_q90, self.error_largest, self.judged).exact


def run(
    settings: Settings,
    peers: list[tuple[Peer, Path]],
    on_row: Callable[[Row], None],
    on_note: Callable[[str], None] = lambda text: None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Measure every side at every point, one side after the other at each.

    Args:
        settings: what to measure.
        peers: with the Python that each runs in.
        on_row: called with every row as soon as it is measured.
        on_note: called with every point that was left out or failed, in words.
        say: called with what is being done.
    """
    points, left_out = settings.grid()
    for text in left_out:
        on_note(text)
    for n, batches in points:
        if not batches:
            continue
        say(f"{n} assets: exact gradients to compare with")
        markets = Markets(n, max(batches), judged=64 if n <= 200 else 16, seed=settings.seed)
        forecasts = _Forecasts(settings.limit, on_note)
        for batch in batches:
            for row in _point(settings, markets, n, batch, peers, forecasts, say):
                on_row(row)


class _Forecasts:
    """Leaves out what would take too long, judging by the smaller batch before, and says so."""

    def __init__(self, limit: float, on_note: Callable[[str], None]) -> None:
        self.limit, self.on_note = limit, on_note
        self.known: dict[str, tuple[int, float]] = {}
        self.gone: set[str] = set()

    def allows(self, who: str, n: int, batch: int) -> bool:
        if who in self.gone:
            return False
        before, seconds = self.known.get(who, (batch, 0.0))
        if 2 * seconds * batch / before > self.limit:  # a warm-up and one measurement
            self.drop(who, n, batch, f"would take more than {self.limit:g} s (--limit)")
            return False
        return True

    def drop(self, who: str, n: int, batch: int, why: str) -> None:
        self.gone.add(who)
        self.on_note(f"{who}: {_left_out(n, batch, why)}")


def _left_out(n: int, batch: int, why: str) -> str:
    return f"{n} assets with a batch of {batch:,} and larger left out: {why}"


def _point(
    settings: Settings,
    markets: Markets,
    n: int,
    batch: int,
    peers: list[tuple[Peer, Path]],
    forecasts: _Forecasts,
    say: Callable[[str], None],
) -> Iterator[Row]:
    ours = Ours(markets, batch, settings.device)
    for who in ours.steps:
        if forecasts.allows(who, n, batch):
            say(f"{n} assets, batch of {batch:,}: {who}")
            row = _our_row(settings, ours, who)
            forecasts.known[who] = batch, row.seconds
            yield row
    data = {"Q": markets.Q[:batch], "cost": markets.cost[:batch], "true": markets.true[:batch]}
    for peer, python in peers:
        if not forecasts.allows(peer.title, n, batch):
            continue
        say(f"{n} assets, batch of {batch:,}: {peer.title}")
        options = (settings.device, settings.threads, settings.repeats, settings.limit)
        try:
            found = measure_peer(peer, python, data, *options)
            gradient = _gradient_of(found.arrays, (batch, n), peer)
        except PeerTimeoutError as error:
            forecasts.drop(peer.title, n, batch, str(error))
            continue
        except PeerError as error:
            forecasts.on_note(f"{peer.title}: {n} assets with a batch of {batch:,} left out: {error}")
            continue
        forecasts.known[peer.title] = batch, min(found.seconds)
        yield _row(peer.title, False, found.seconds, gradient, markets.answers, versions=found.versions)


def _gradient_of(arrays: dict[str, Any], shape: tuple[int, int], peer: Peer) -> Any:
    gradient = arrays.get("gradient")
    if gradient is None or gradient.shape != shape:
        came = None if gradient is None else gradient.shape
        raise PeerError(f"{peer.name} returned a gradient of shape {came}; expected {shape}")
    return gradient


def _our_row(settings: Settings, ours: Ours, who: str) -> Row:
    fresh, wait = ours.steps[who], synchronize(settings.device)
    arrays, seconds = measure(fresh, settings.repeats, settings.limit, True, wait)
    answers, reuse = ours.answers(who), ours.reuse_rate(who)
    profile = ours.profile(who) if settings.profile else {}
    return _row(who, True, seconds, arrays["gradient"], answers, reuse, profile=profile)


def _row(
    who: str,
    ours: bool,
    seconds: list[float],
    gradient: Any,
    answers: Answers,
    reuse_rate: float | None = None,
    versions: dict[str, str] | None = None,
    profile: dict[str, float] | None = None,
) -> Row:
    errors = answers.errors(gradient)
    batch, n = gradient.shape
    return Row(
        who=who,
        ours=ours,
        n=n,
        batch=batch,
        seconds=min(seconds),
        median_seconds=float(np.median(seconds)),
        error_median=errors.median,
        error_q90=errors.q90,
        error_largest=errors.largest,
        judged=errors.judged,
        reuse_rate=reuse_rate,
        versions=versions or {},
        profile=profile or {},
    )

"""How long does the gradient of a portfolio's regret take, forward and backward, and how wrong is it?

A time is never shown without the error of what it bought.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pear.bench.clock import check_device, measure, synchronize
from pear.bench.evaluation import EXACT, Answers, Markets
from pear.bench.ours import Ours
from pear.bench.plot import Series
from pear.bench.settings import Callbacks, Labels, Settings, option
from pear.bench.table import Table, error, number, profiles, share
from pear.peers import Peer, PeerError, PeerTimeoutError
from pear.peers import measure as measure_peer

SIZES = (20, 100, 500)
BATCHES = {"cpu": (1, 64, 512), "cuda": (1, 16, 64, 512, 4096)}
MOST_NUMBERS = 2**26
"""Numbers in the covariances of a batch beyond which it is left out on a CPU unless it is asked for by name."""


PEERS = "gradient"
LABELS = Labels("Gradient of a portfolio's regret, forward and backward", "samples in a batch", "seconds a batch")


@dataclass(frozen=True)
class GradientSettings(Settings):
    """Time gradients of a portfolio's regret, forward and backward, beside their errors and beside other libraries."""

    sizes: tuple[int, ...] | None = option(None, "Numbers of assets.", least=2, quick=(20,), shown="20,100,500")
    batches: tuple[int, ...] | None = option(
        None, "Numbers of samples.", least=1, quick=(1, 16), shown="1,64,512; cuda: 1,16,64,512,4096"
    )
    device: str = option("cpu", "cpu or cuda.")
    threads: int = option(1, "For every side.")
    repeats: int = option(7, "Measurements of each point; the fastest counts.", least=1, quick=3)
    limit: float = option(60.0, "Seconds that one side may take for one point.", positive=True)
    profile: bool = option(False, "Also show where our time goes.")
    seed: int = option(0, "Of the portfolios.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)

    def grid(self) -> tuple[list[tuple[int, list[int]]], list[str]]:
        """For every size its batches, smallest first; and what is left out."""
        sizes, batches = self.sizes or SIZES, self.batches or BATCHES[self.device]
        points, left_out = [], []
        for n in sorted(set(sizes)):
            kept = sorted(set(batches))
            if self.device == "cpu" and (self.sizes is None or self.batches is None):
                kept = [batch for batch in kept if n * n * batch <= MOST_NUMBERS]
            points.append((n, kept))
            left_out += [_left_out(n, b, "name --sizes and --batches to have it") for b in batches if b not in kept]
        return points, left_out


SETTINGS = GradientSettings


@dataclass(frozen=True)
class GradientRow:
    """One side at one point.

    Attributes:
        who: one of ``Ours.steps``, or a peer's title.
        ours: whether it is this package.
        n, batch: the point.
        seconds: the fastest measurement; median_seconds: the median one. For the whole batch.
        error_median, error_q90, error_largest: relative errors of the gradients against the reference.
        compared: samples that they come from.
        reuse_rate: share of samples for which no solver was called; None without warm starts.
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
    compared: int
    reuse_rate: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """True where even the largest error is small."""
        return self.error_largest <= EXACT


def run(settings: GradientSettings, callbacks: Callbacks, peers: Sequence[tuple[Peer, Path]] = ()) -> None:
    """Measure every side at every point, one side after the other; each peer with the Python that it runs in."""
    points, left_out = settings.grid()
    for text in left_out:
        callbacks.on_note(text)
    for n, batches in points:
        if not batches:
            continue
        callbacks.say(f"{n} assets: exact gradients to compare with")
        markets = Markets(n, max(batches), references=64 if n <= 200 else 16, seed=settings.seed)
        forecasts = _Forecasts(settings.limit, callbacks.on_note)
        for batch in batches:
            for row in _point(settings, markets, batch, peers, forecasts, callbacks.say):
                callbacks.on_row(row)


class _Forecasts:
    """Leaves out what would take too long, going by the smaller batch before, and says so."""

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
    settings: GradientSettings,
    markets: Markets,
    batch: int,
    peers: Sequence[tuple[Peer, Path]],
    forecasts: _Forecasts,
    say: Callable[[str], None],
) -> Iterator[GradientRow]:
    n, ours = markets.cost.shape[1], Ours(markets, batch, settings.device)
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


def _our_row(settings: GradientSettings, ours: Ours, who: str) -> GradientRow:
    fresh, wait = ours.steps[who], synchronize(settings.device)
    arrays, seconds = measure(fresh, settings.repeats, settings.limit, True, wait)
    answers, reuse = ours.answers(who), ours.reuse_rate(who)
    profile = ours.profile(who) if settings.profile else {}
    return _row(who, True, seconds, arrays["gradient"], answers, reuse_rate=reuse, profile=profile)


def _row(who: str, ours: bool, seconds: list[float], gradient: Any, answers: Answers, **more: Any) -> GradientRow:
    batch, n = gradient.shape
    times, e = (min(seconds), float(np.median(seconds))), answers.errors(gradient)
    return GradientRow(who, ours, n, batch, *times, e.median, e.q90, e.largest, e.compared, **more)


def ratio(theirs: float | None, ours: float | None) -> float:
    """How many times longer theirs takes; NaN where one of them is not known.

    Example:
        >>> ratio(0.1, 0.02), ratio(None, 0.02)
        (5.0, nan)
    """
    return theirs / ours if theirs is not None and ours else math.nan


def ahead(rows: list[GradientRow], row: GradientRow) -> float:
    """How many times longer the fastest exact peer takes than this row of ours; NaN where that means nothing.

    A peer is exact where its largest error at this point is small.
    """
    there = [one for one in rows if (one.n, one.batch) == (row.n, row.batch) and one.exact and one.compared]
    fastest = min((one.seconds for one in there if not one.ours), default=None)
    return ratio(fastest, row.seconds) if row.ours and row.exact else math.nan


def to_pear(rows: list[GradientRow], row: GradientRow) -> float:
    """How many times longer a row takes than ``pear`` at the same point."""
    base = next((r for r in rows if r.who == "pear" and (r.n, r.batch) == (row.n, row.batch)), None)
    return ratio(row.seconds, base.seconds if base else None)


def tables(rows: list[GradientRow]) -> list[Table]:
    """The comparison and, where there are profiles, where our time goes."""
    errors, ratios = ("median\nerror", "90 %\nerror", "largest\nerror"), ("time /\npear", "peer /\nours")
    headings = ("who", "n", "batch", "ms", *errors, "compared", "reuse", *ratios)
    title = "Gradient of the regret of portfolios of n assets, forward and backward\n"
    title += f"peer / ours: the fastest peer whose largest error is at most {EXACT:.0e}"
    tables = [Table(title, headings, [_cells(rows, row) for row in _sorted(rows)])]
    if spent := [row for row in _sorted(rows) if row.profile]:
        in_ms = [((row.who, *_point_cells(row)), {k: 1e3 * v for k, v in row.profile.items()}) for row in spent]
        tables.append(profiles("Where the time goes, ms a batch", ("who", "assets", "batch"), in_ms))
    return tables


def _sorted(rows: list[GradientRow]) -> list[GradientRow]:
    return sorted(rows, key=lambda row: (row.n, row.batch))


def _cells(rows: list[GradientRow], row: GradientRow) -> tuple[str, ...]:
    # a gradient that could not be compared with the reference is shown without its time
    milliseconds = number(1e3 * row.seconds) if row.compared else "–"
    errors = [error(value) for value in (row.error_median, row.error_q90, row.error_largest)]
    ratios = [number(value) if row.compared else "–" for value in (to_pear(rows, row), ahead(rows, row))]
    return (row.who, *_point_cells(row), milliseconds, *errors, str(row.compared), share(row.reuse_rate), *ratios)


def _point_cells(row: GradientRow) -> tuple[str, str]:
    return f"{row.n:,}", f"{row.batch:,}"


def series(rows: list[GradientRow]) -> list[Series]:
    """Seconds a batch over its size, a panel for every number of assets; peers that are not exact say so."""
    lines = []
    for n in sorted({row.n for row in rows}):
        here = [row for row in _sorted(rows) if row.n == n and row.compared]
        for who in dict.fromkeys(row.who for row in here):
            own = [row for row in here if row.who == who]
            worst = max(row.error_largest for row in own)
            remark = "" if all(row.exact for row in own) else f" (off by up to {error(worst)})"
            points = [row.batch for row in own], [row.seconds for row in own]
            lines.append(Series(who, *points, own[0].ours, f"{n:,} assets", remark=remark))
    return lines

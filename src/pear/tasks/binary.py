"""Exact 0-1 selections by a search close to the relaxation.

For any multipliers u ≥ 0 of the rows, with r = v − Gᵀu and x = [r > 0], every 0-1 selection z earns

    v·z = bound − Σ over flips |r_j| − u·(h − Gz),    bound = u·h + Σ max(r, 0),

where the flips are the places in which z differs from x. Both losses are at least zero where z fits, so the best z is
the one with the least total loss, and one that is found with no other left to beat it is proven optimal, whatever u is.
With u from the relaxation most |r_j| exceed what the best selection loses, and those items need not be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_WORD = 62  # flips remembered in one int64
_FIRST = 12  # items near the edge that the first, cheapest search looks at
_GROWTH = 1.4
_ROUNDOFF = 1e-10


@dataclass
class _States:
    """Partial selections: what they lose, the room they leave (N, m), their flips as bits (N, words)."""

    loss: Array
    room: Array
    flips: NDArray[np.int64]

    def __getitem__(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> _States:
        return _States(self.loss[index], self.room[index], self.flips[index])

    def flipped(self, k: int, loss: float, change: Array) -> _States:
        """The same with item ``k`` flipped."""
        flips = self.flips.copy()
        flips[:, k // _WORD] |= 1 << (k % _WORD)
        return _States(self.loss + loss, self.room + change, flips)


class Search:
    """The selection of greatest value that fits.

    Args:
        value: (n,) v.
        G: (m, n) rows of ``Gz ≤ h``.
        h: (m,).
        u: (m,) multipliers of the rows, at least 0; the relaxation's make the search short.
        against: (n,) or None: among selections of equal value, the one that earns least under these values is taken.
        budget: partial selections to look at before giving up.
        width: of these, how many are carried along together; the most promising ones come first.
    """

    def __init__(
        self,
        value: Array,
        G: Array,
        h: Array,
        u: Array,
        against: Array | None = None,
        budget: int = 4_000_000,
        width: int = 3_000,
    ) -> None:
        r = value - u @ G
        self.start = r > 0
        self.bound = float(u @ h + r[self.start].sum())
        self.u, self.against, self.width, self.budget = u, against, width, budget
        self.loss = np.abs(r)
        self.room = h - G @ self.start
        self.change = np.where(self.start, G, -G).T
        self.fits = 1e-9 * np.maximum(1.0, np.abs(h))
        self.close = _ROUNDOFF * (1.0 + abs(self.bound))
        # Between whole-numbered values there is nothing to be won by less than 1.
        self.whole = bool((value == np.round(value)).all())
        self.step = 1.0 - 1e-6 if self.whole else self.close
        self.best: float = np.inf
        self.selection: NDArray[np.bool_] | None = None

    def run(self) -> Array | None:
        """(n,) 0 or 1, proven optimal; None where the budget is spent first, or nothing fits."""
        # The least total loss of any selection is sought below a limit that grows until there is one.
        limit = float(np.sort(self.loss)[min(_FIRST, len(self.loss) - 1)])
        if self.whole:
            limit = self.bound - np.floor(self.bound + 1e-6)
        most = float(self.loss.sum() + self.u @ np.maximum(self.room + np.maximum(self.change, 0).sum(0), 0))
        while self.selection is None and self.budget > 0 and limit <= _GROWTH * most + 1:
            self._explore(limit + self.close)
            limit = limit + 1 if self.whole else _GROWTH * (limit + self.close)
        return None if self.budget <= 0 or self.selection is None else self.selection.astype(np.float64)

    def _explore(self, limit: float) -> None:
        """Look at every selection that loses at most ``limit`` and could beat the best found on the way."""
        items = np.argsort(-self.loss, kind="stable")
        items = items[self.loss[items] <= limit]
        change = self.change[items]
        rise, fall = _sums_to_come(np.maximum(change, 0)), _sums_to_come(np.maximum(-change, 0))
        words = max(1, -(-len(items) // _WORD))
        stack = [(0, _States(np.zeros(1), self.room[None], np.zeros((1, words), np.int64)))]
        while stack and self.budget > 0:
            k, states = stack.pop()
            while len(states.loss):
                limit = min(limit, self._to_beat())
                lost = states.loss + np.maximum(states.room - fall[k], 0) @ self.u
                keep = ((lost <= limit) & (states.room + rise[k] >= -self.fits).all(1)).nonzero()[0]
                if len(keep) > self.width:
                    order = np.argpartition(lost[keep], self.width)
                    stack.append((k, states[keep[order[self.width :]]]))
                    keep = keep[order[: self.width]]
                states = states[keep]
                self.budget -= len(keep)
                if k == len(items):
                    self._finish(states, items)
                    break
                step = float(self.loss[items[k]])
                more = states[states.loss + step <= limit].flipped(k, step, change[k])
                states = _States(*(np.concatenate(both) for both in zip(_parts(states), _parts(more), strict=True)))
                k += 1

    def _to_beat(self) -> float:
        """The most that a selection of any further interest loses."""
        return self.best + self.close if self.against is not None else self.best - self.step

    def _finish(self, states: _States, items: NDArray[np.intp]) -> None:
        """Keep the best of these whole selections, all of which fit and are of interest."""
        if not len(states.loss):
            return
        total = states.loss + states.room @ self.u
        self.best = min(self.best, float(total.min()))
        if self.against is None:
            self.selection = self._selections(states[np.array([total.argmin()])], items)[0]
            return
        tied = self._selections(states[total <= self.best + self.close], items)
        if self.selection is not None and self._value(self.selection) <= self.best + self.close:
            tied = np.concatenate([self.selection[None], tied])
        self.selection = tied[(tied @ self.against).argmin()]

    def _value(self, selection: NDArray[np.bool_]) -> float:
        """The total loss of a whole selection."""
        flipped = selection != self.start
        return float(self.loss[flipped].sum() + self.u @ (self.room + self.change[flipped].sum(0)))

    def _selections(self, states: _States, items: NDArray[np.intp]) -> NDArray[np.bool_]:
        selections = np.repeat(self.start[None], len(states.loss), 0)
        for k, j in enumerate(items):
            selections[:, j] ^= (states.flips[:, k // _WORD] >> (k % _WORD) & 1).astype(bool)
        return selections


def _parts(states: _States) -> tuple[Array, Array, NDArray[np.int64]]:
    return states.loss, states.room, states.flips


def _sums_to_come(x: Array) -> Array:
    """(K + 1, m) sums over the rows k, k + 1, … of ``x`` (K, m)."""
    return np.concatenate([np.cumsum(x[::-1], 0)[::-1], np.zeros((1, x.shape[1]))])

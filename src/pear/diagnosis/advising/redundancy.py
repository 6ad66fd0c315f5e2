"""Rows that say nothing new: the rank of the equalities, parallel rows, and rows that bounds imply."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear.diagnosis.advising.finding import Finding, Part, counted, some
from pear.diagnosis.advising.subject import Array, Subject
from pear.solvers.linalg.rank import row_rank, row_sizes

_MOST_WORK = 4e9  # multiplications of a dense factorisation: a second or two
_SAME = 1e-9  # relative
_MOST_ENTRIES = 2_000_000


def redundancy(s: Subject) -> Part:
    """The rank of A, and rows of G that no decision can meet or violate."""
    equalities, dependent = _equalities(s)
    inequalities, idle = _inequalities(s)
    return Part([*equalities, *inequalities], {"redundant": np.concatenate([dependent, idle])})


def _equalities(s: Subject) -> tuple[list[Finding], Any]:
    p = s.A.shape[0]
    dependent = np.zeros(p, dtype=bool)
    if not p:
        return [], dependent
    if p * p * s.n > _MOST_WORK:
        said = f"The rank of the {p:,} equalities was not computed: {p:,} × {s.n:,} is too large to do so quickly."
        return [Finding("degeneracy", said, {"skipped_rank": True})], dependent
    rank, order, combination = row_rank(s.A.toarray())
    dependent[order[rank:]] = True
    numbers = {"equality_rank": rank, "redundant_equalities": p - rank}
    if rank == p:
        are = "The equality is" if p == 1 else f"The {p:,} equalities are"
        return [Finding("degeneracy", f"{are} independent{s.first}.", numbers)], dependent
    b = s.b / row_sizes(s.A.toarray())
    left = b[order[rank:]] - combination.T @ b[order[:rank]]
    scale = np.abs(b[order[rank:]]) + np.abs(combination).T @ np.abs(b[order[:rank]])
    names = [s.rows[k] for k in sorted(order[rank:])]
    which = f"Of the {counted(p, 'equality')} only {rank:,} are independent{s.first}"
    if (np.abs(left) > _SAME * scale).any():
        sentence = f"{which}, and {some(names)} contradict the others: no decision satisfies them all; check b."
        return [Finding("degeneracy", sentence, {**numbers, "contradiction": True}, to_do=True)], dependent
    sentence = (
        f"{which}: {some(names)} follow{'s' if len(names) == 1 else ''} from the others and can be left out. Gradients "
        "are exact either way; the multipliers of these rows are not unique."
    )
    return [Finding("degeneracy", sentence, numbers)], dependent


def _inequalities(s: Subject) -> tuple[list[Finding], Any]:
    m = s.G.shape[0]
    idle = np.zeros(m, dtype=bool)
    if not m:
        return [], idle
    found: list[Finding] = []
    names = s.rows[s.A.shape[0] :]
    low, high = _activity(s)
    scale = _SAME * (abs(s.G) @ np.ones(s.n) + np.where(np.isfinite(s.h), np.abs(s.h), 0.0))
    absent, implied, broken = np.isinf(s.h), high <= s.h + scale, low > s.h + scale
    parallel = _parallel(s) if s.G.nnz <= _MOST_ENTRIES else idle.copy()
    kinds = {
        "absent_rows": (absent, "have no finite right-hand side"),
        "implied_rows": (implied & ~absent, "can never be violated, whatever the bounds allow"),
        "parallel_rows": (parallel & ~implied & ~absent, "are multiples of another row with a tighter limit"),
    }
    for name, (marks, what) in kinds.items():
        if marks.any():
            which = some([names[k] for k in np.flatnonzero(marks)])
            sentence = f"{int(marks.sum()):,} of {counted(m, 'inequality')} {what}{s.first} ({which}); leave them out."
            found.append(Finding("degeneracy", sentence, {name: int(marks.sum())}, to_do=True))
    if broken.any():
        which = some([names[k] for k in np.flatnonzero(broken)])
        sentence = f"The bounds allow no decision that satisfies {which}{s.first}: the problem is infeasible; check h."
        found.append(Finding("degeneracy", sentence, {"impossible_rows": int(broken.sum())}, to_do=True))
    return found, absent | implied | parallel


def _activity(s: Subject) -> tuple[Array, Array]:
    """(m,) least and largest value that bounds allow for every row of G."""
    up, down = s.G.maximum(0), (-s.G).maximum(0)
    for part in (up, down):
        part.eliminate_zeros()
    return up @ s.lb - down @ s.ub, up @ s.ub - down @ s.lb


def _parallel(s: Subject) -> Any:
    """(m,) bool: rows of G that are positive multiples of another one with a tighter limit; one of equals stays."""
    G, marks = s.G, np.zeros(s.G.shape[0], dtype=bool)
    best: dict[tuple[bytes, bytes], tuple[float, int]] = {}
    for k in range(G.shape[0]):
        entries = G.data[G.indptr[k] : G.indptr[k + 1]]
        size = float(np.abs(entries).max(initial=0.0))
        if size == 0:
            continue
        key = G.indices[G.indptr[k] : G.indptr[k + 1]].tobytes(), np.round(entries / size, 12).tobytes()
        limit = float(s.h[k]) / size
        before = best.get(key)
        if before is None or limit < before[0]:
            best[key] = limit, k
        if before is not None:
            marks[k if limit >= before[0] else before[1]] = True
    return marks

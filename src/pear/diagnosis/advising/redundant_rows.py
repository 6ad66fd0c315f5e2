"""Advice on redundant rows: equalities that depend on others, and inequalities that cannot be violated."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear.diagnosis.advising.advice_subject import AdviceSubject, Array
from pear.diagnosis.advising.findings import Findings
from pear.optimality.rule import RANK
from pear.presolving.independent_rows import independent_rows, row_lengths
from pear.wording import count_noun, list_names

_MOST_WORK = 4e9  # multiplications of a dense factorisation, which take a second or two
_SAME = 1e-9  # relative difference of numbers that count as equal
_MOST_ENTRIES = 2_000_000  # of a matrix that is searched for parallel rows


def advise_on_redundant_rows(s: AdviceSubject, findings: Findings) -> None:
    """Add findings on linearly dependent rows of A, and on rows of G that the bounds or other rows imply."""
    findings.rows["redundant"] = np.concatenate(
        [_find_redundant_equalities(s, findings), _find_redundant_inequalities(s, findings)]
    )


def _find_redundant_equalities(s: AdviceSubject, findings: Findings) -> Any:
    """Return a mask (p,) of rows of A that are linear combinations of the unmarked rows, and add findings on them."""
    p = s.A.shape[0]
    dependent = np.zeros(p, dtype=bool)
    if not p:
        return dependent
    if p * p * s.n > _MOST_WORK:
        said = f"The rank of the {p:,} equalities was not computed: {p:,} × {s.n:,} is too large to do so quickly."
        findings.add("degeneracy", said, skipped_rank=True)
        return dependent
    rank, order, combination = independent_rows(s.A.toarray(), RANK)
    dependent[order[rank:]] = True
    numbers: dict[str, Any] = {"equality_rank": rank, "redundant_equalities": p - rank}
    if rank == p:
        are = "The equality is" if p == 1 else f"The {p:,} equalities are"
        findings.add("degeneracy", f"{are} independent{s.first}.", **numbers)
        return dependent
    b = s.b / row_lengths(s.A.toarray())
    left = b[order[rank:]] - combination.T @ b[order[:rank]]
    scale = np.abs(b[order[rank:]]) + np.abs(combination).T @ np.abs(b[order[:rank]])
    names = list_names([s.rows[k] for k in np.flatnonzero(dependent)])
    which = f"Of the {count_noun(p, 'equality')} only {rank:,} are independent{s.first}"
    if (np.abs(left) > _SAME * scale).any():
        sentence = f"{which}, and {names} contradict the others: no decision satisfies them all; check b."
        findings.add("degeneracy", sentence, to_do=True, **numbers, contradiction=True)
        return dependent
    sentence = (
        f"{which}: {names} follow{'s' if p - rank == 1 else ''} from the others and can be left out. Gradients "
        "are exact either way; the multipliers of these rows are not unique."
    )
    findings.add("degeneracy", sentence, **numbers)
    return dependent


def _find_redundant_inequalities(s: AdviceSubject, findings: Findings) -> Any:
    """Return a mask (m,) of the redundant inequalities, and add findings on them.

    An inequality is redundant if its right-hand side is infinite, or if the bounds or a parallel row imply it.
    """
    m = s.G.shape[0]
    low, high = _range_of_rows(s)
    scale = _SAME * (abs(s.G) @ np.ones(s.n) + np.where(np.isfinite(s.h), np.abs(s.h), 0.0))
    absent, implied, broken = np.isinf(s.h), high <= s.h + scale, low > s.h + scale
    parallel = _find_looser_parallel_rows(s) if s.G.nnz <= _MOST_ENTRIES else np.zeros(m, dtype=bool)
    kinds = {
        "absent_rows": (absent, "have no finite right-hand side"),
        "implied_rows": (implied & ~absent, "can never be violated, whatever the bounds allow"),
        "parallel_rows": (parallel & ~implied & ~absent, "are multiples of another row with a tighter limit"),
    }
    for name, (marks, what) in kinds.items():
        if marks.any():
            which = f"{int(marks.sum()):,} of {count_noun(m, 'inequality')}"
            sentence = f"{which} {what}{s.first} ({_name_redundant_rows(s, marks)}); leave them out."
            findings.add("degeneracy", sentence, to_do=True, **{name: int(marks.sum())})
    if broken.any():
        which = f"{_name_redundant_rows(s, broken)}{s.first}"
        sentence = f"The bounds allow no decision that satisfies {which}: the problem is infeasible; check h."
        findings.add("degeneracy", sentence, to_do=True, impossible_rows=int(broken.sum()))
    return absent | implied | parallel


def _name_redundant_rows(s: AdviceSubject, marks: Any) -> str:
    """Return the names of the marked rows of G, as a list for a sentence; ``marks`` is (m,) bool."""
    return list_names([s.rows[s.A.shape[0] + k] for k in np.flatnonzero(marks)])


def _range_of_rows(s: AdviceSubject) -> tuple[Array, Array]:
    """Return the smallest and the largest value of G z, (m,) each, over all z within the bounds."""
    up, down = s.G.maximum(0), (-s.G).maximum(0)
    for part in (up, down):
        part.eliminate_zeros()
    return up @ s.lb - down @ s.ub, up @ s.ub - down @ s.lb


def _find_looser_parallel_rows(s: AdviceSubject) -> Any:
    """Return a mask (m,) of the rows of G that a parallel row implies.

    A row implies each positive multiple of itself with a looser limit. Of rows with equal limits, the first implies the
    others.
    """
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

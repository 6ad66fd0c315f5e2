"""Size, sparsity, independent blocks and redundant rows of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from pear.diagnosis.advising.subject_and_findings import Array, Findings, Subject
from pear.presolving.independent_rows import row_lengths
from pear.problem.quadratic_program import MAX_SHARE, MIN_VARIABLES
from pear.solvers.linalg.cholesky_factor import row_rank
from pear.wording import count_noun, list_names


def describe_structure(s: Subject, findings: Findings) -> None:
    """Describe size, fields that differ from sample to sample, sparsity and independent blocks."""
    _describe_size(s, findings)
    findings.found += s.notes
    _describe_own_fields(s, findings)
    _describe_sparsity(s, findings)
    _find_blocks(s, findings)
    fixed = [name for name, low, high in zip(s.variables, s.lb, s.ub, strict=True) if low == high]
    if fixed:
        which = f"{count_noun(len(fixed), 'variable')} {'is' if len(fixed) == 1 else 'are'} fixed by equal bounds"
        sentence = f"{which} ({list_names(fixed)}){s.first}; leave them out."
        findings.add("structure", sentence, to_do=True, fixed_variables=len(fixed))


def _describe_size(s: Subject, findings: Findings) -> None:
    """Add a sentence with the kind of program and the numbers of variables, constraints, bounds and samples."""
    problem = s.problem
    integers = 0 if problem.integer is None else int(problem.integer.sum())
    binary = 0
    if problem.integer is not None:
        binary = int((problem.integer.numpy() & (s.lb == 0) & (s.ub == 1)).sum())
    kind = "smooth" if problem.phi is not None else "quadratic" if problem.Q is not None else "linear"
    mixed = "integer " if integers == s.n else "mixed-integer " if integers else ""
    numbers = {
        "variables": s.n,
        "integers": integers,
        "binaries": binary,
        "equalities": s.A.shape[0],
        "inequalities": s.G.shape[0],
        "lower_bounds": int(np.isfinite(s.lb).sum()),
        "upper_bounds": int(np.isfinite(s.ub).sum()),
        "predicted_values": len(s.names),
        "samples": s.samples,
    }
    said = f" ({integers:,} integer, {binary:,} of them binary)" if integers else ""
    sentence = (
        f"{'An' if mixed.startswith('i') else 'A'} {mixed}{kind} program to {problem.sense}imise: "
        f"{count_noun(s.n, 'variable')}{said}, {count_noun(s.A.shape[0], 'equality')}, "
        f"{count_noun(s.G.shape[0], 'inequality')}, {numbers['lower_bounds']:,} lower and {numbers['upper_bounds']:,} "
        f"upper bounds; {count_noun(len(s.names), 'value')} predicted, {count_noun(s.samples, 'sample')}."
    )
    findings.add("size", sentence, **numbers)


def _describe_own_fields(s: Subject, findings: Findings) -> None:
    """Name the fields that differ from sample to sample, and the limits among them."""
    if not s.per_sample:
        return
    fields = ", ".join(s.per_sample)
    sentence = (
        f"{fields} {'differs' if len(s.per_sample) == 1 else 'differ'} from sample to sample "
        f"({count_noun(s.problem.batch or 0, 'sample')}); what is said of matrices below is about the first one."
    )
    findings.add("size", sentence, fields_per_sample=fields)
    sides = () if s.recourse is None or s.recourse.constraint_map is None else s.recourse.constraint_map.sides
    limits = [name for name in s.per_sample if name in ("b", "h", "lb", "ub") and name not in sides]
    if limits:
        which = ", ".join(f"{name}=True" for name in limits)
        sentence = (
            f"{', '.join(limits)} must be known when the decision is taken; where they are forecasts themselves (a "
            f"demand, a capacity), let them be predicted with a recourse: pear.Model.predicting(problem, {which}, "
            "recourse=…)."
        )
        findings.add("loss", sentence, to_do=True)


def _describe_sparsity(s: Subject, findings: Findings) -> None:
    """Say how many entries of Q, A and G are not zero, and advise sparse matrices where they would pay off."""
    matrices = {name: M for name, M in (("Q", s.Q), ("A", s.A), ("G", s.G)) if M is not None and M.shape[0]}
    if not matrices:
        return findings.add("sparsity", "There are no matrices: bounds alone limit the decision.")
    shares = {name: M.nnz / (M.shape[0] * M.shape[1]) for name, M in matrices.items()}
    each = ", ".join(f"{share:.2g} of {name}" for name, share in shares.items())
    form = "kept sparse" if s.problem.is_sparse else "kept dense"
    sentence = f"Share of entries that are not zero: {each}{s.first}; the problem is {form}."
    densities = {f"density_{name}": share for name, share in shares.items()}
    findings.add("sparsity", sentence, **densities, kept_sparse=s.problem.is_sparse)
    entries = sum(M.nnz for M in matrices.values()) + (0 if "Q" in matrices else s.n)
    room = (s.n + sum(M.shape[0] for name, M in matrices.items() if name != "Q")) * s.n
    own = any(name in s.per_sample for name in ("Q", "A", "G"))
    takes = s.n >= MIN_VARIABLES and entries <= MAX_SHARE * room and s.problem.phi is None and not own
    if takes and not s.problem.is_sparse and s.problem.device.type == "cpu":
        sentence = (
            f"Pass {' and '.join(matrices)} as scipy.sparse arrays: with {s.n:,} variables and "
            f"{100 * entries / room:.2g} % non-zeros the problem then stays sparse, and time and memory follow the "
            "non-zeros."
        )
        findings.add("sparsity", sentence, to_do=True, nonzero_share=entries / room)


def _find_blocks(s: Subject, findings: Findings) -> None:
    """Find connected components of variables and rows. Skipped for a problem with φ, which may join any variables."""
    if s.problem.phi is not None or s.per_sample or (s.A.shape[0] + s.G.shape[0] == 0 and s.Q is None):
        return
    rows = sparse.vstack([s.A, s.G])
    corner = sparse.csr_array((s.n, s.n)) if s.Q is None else s.Q
    graph = sparse.block_array([[corner, rows.T], [rows, None]])
    _, label = sparse.csgraph.connected_components(graph, directed=False)
    sizes = np.unique(label[: s.n], return_counts=True)[1]
    if len(sizes) > 1:
        sentence = (
            f"The problem falls into {len(sizes):,} independent blocks of at most "
            f"{count_noun(int(sizes.max()), 'variable')}: each can be decided by a problem of its own, which is "
            "smaller and faster."
        )
        findings.add("structure", sentence, blocks=len(sizes), largest_block=int(sizes.max()))


_MOST_WORK = 4e9  # multiplications of a dense factorisation: a second or two
_SAME = 1e-9  # relative
_MOST_ENTRIES = 2_000_000


def find_redundant_rows(s: Subject, findings: Findings) -> None:
    """Find linearly dependent rows of A, and rows of G that the bounds or other rows imply."""
    findings.rows["redundant"] = np.concatenate([_dependent_equalities(s, findings), _idle_inequalities(s, findings)])


def _dependent_equalities(s: Subject, findings: Findings) -> Any:
    """Return a mask (p,) of the equalities that follow from the others."""
    p = s.A.shape[0]
    dependent = np.zeros(p, dtype=bool)
    if not p:
        return dependent
    if p * p * s.n > _MOST_WORK:
        said = f"The rank of the {p:,} equalities was not computed: {p:,} × {s.n:,} is too large to do so quickly."
        findings.add("degeneracy", said, skipped_rank=True)
        return dependent
    rank, order, combination = row_rank(s.A.toarray())
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


def _idle_inequalities(s: Subject, findings: Findings) -> Any:
    """Return a mask (m,) of the inequalities that can be left out."""
    m = s.G.shape[0]
    low, high = _row_activity_range(s)
    scale = _SAME * (abs(s.G) @ np.ones(s.n) + np.where(np.isfinite(s.h), np.abs(s.h), 0.0))
    absent, implied, broken = np.isinf(s.h), high <= s.h + scale, low > s.h + scale
    parallel = _parallel_inequalities(s) if s.G.nnz <= _MOST_ENTRIES else np.zeros(m, dtype=bool)
    kinds = {
        "absent_rows": (absent, "have no finite right-hand side"),
        "implied_rows": (implied & ~absent, "can never be violated, whatever the bounds allow"),
        "parallel_rows": (parallel & ~implied & ~absent, "are multiples of another row with a tighter limit"),
    }
    for name, (marks, what) in kinds.items():
        if marks.any():
            which = f"{int(marks.sum()):,} of {count_noun(m, 'inequality')}"
            sentence = f"{which} {what}{s.first} ({_marked_row_names(s, marks)}); leave them out."
            findings.add("degeneracy", sentence, to_do=True, **{name: int(marks.sum())})
    if broken.any():
        which = f"{_marked_row_names(s, broken)}{s.first}"
        sentence = f"The bounds allow no decision that satisfies {which}: the problem is infeasible; check h."
        findings.add("degeneracy", sentence, to_do=True, impossible_rows=int(broken.sum()))
    return absent | implied | parallel


def _marked_row_names(s: Subject, marks: Any) -> str:
    """The names of the marked rows of G."""
    return list_names([s.rows[s.A.shape[0] + k] for k in np.flatnonzero(marks)])


def _row_activity_range(s: Subject) -> tuple[Array, Array]:
    """Return the smallest and the largest value of every row of G within the bounds, (m,) each."""
    up, down = s.G.maximum(0), (-s.G).maximum(0)
    for part in (up, down):
        part.eliminate_zeros()
    return up @ s.lb - down @ s.ub, up @ s.ub - down @ s.lb


def _parallel_inequalities(s: Subject) -> Any:
    """Return a mask (m,) of rows of G that are multiples of a row with a tighter limit. One of equal rows stays."""
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

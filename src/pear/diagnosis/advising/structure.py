"""Size and structure: what kind of program it is, how many entries are not zero, and whether it falls apart."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pear.diagnosis.advising.finding import Finding, Part, counted, some
from pear.diagnosis.advising.subject import Subject
from pear.problem.form import MAX_SHARE, MIN_VARIABLES


def structure(s: Subject) -> Part:
    """Size, fields per sample, sparsity and independent blocks."""
    found = [_size(s), *s.notes, *_own_fields(s), *_sparsity(s), *_blocks(s), *_fixed(s)]
    return Part([one for one in found if one is not None])


def _size(s: Subject) -> Finding:
    problem, p, m = s.problem, s.A.shape[0], s.G.shape[0]
    integers = 0 if problem.integer is None else int(problem.integer.sum())
    whole = problem.integer is not None and problem.integer.numpy()
    binary = int((whole & (s.lb == 0) & (s.ub == 1)).sum()) if integers else 0
    kind = "smooth" if problem.phi is not None else "quadratic" if problem.Q is not None else "linear"
    mixed = "integer " if integers == s.n else "mixed-integer " if integers else ""
    bounds = int(np.isfinite(s.lb).sum()), int(np.isfinite(s.ub).sum())
    said = f" ({integers:,} integer, {binary:,} of them binary)" if integers else ""
    sentence = (
        f"{'An' if mixed.startswith('i') else 'A'} {mixed}{kind} program to {problem.sense}imise: "
        f"{counted(s.n, 'variable')}{said}, {counted(p, 'equality')}, {counted(m, 'inequality')}, {bounds[0]:,} lower "
        f"and {bounds[1]:,} upper bounds; {counted(len(s.names), 'value')} predicted, {counted(s.samples, 'sample')}."
    )
    numbers = {
        "variables": s.n,
        "integers": integers,
        "binaries": binary,
        "equalities": p,
        "inequalities": m,
        "lower_bounds": bounds[0],
        "upper_bounds": bounds[1],
        "predicted_values": len(s.names),
        "samples": s.samples,
    }
    return Finding("size", sentence, numbers)


def _own_fields(s: Subject) -> list[Finding]:
    if not s.per_sample:
        return []
    fields = ", ".join(s.per_sample)
    found = [
        Finding(
            "size",
            f"{fields} {'differs' if len(s.per_sample) == 1 else 'differ'} from sample to sample "
            f"({counted(s.problem.batch or 0, 'sample')}); what is said of matrices below is about the first one.",
            {"fields_per_sample": fields},
        )
    ]
    sides = () if s.recourse is None or s.recourse.constraint_map is None else s.recourse.constraint_map.sides
    limits = [name for name in s.per_sample if name in ("b", "h", "lb", "ub") and name not in sides]
    if limits:
        which = ", ".join(f"{name}=True" for name in limits)
        sentence = (
            f"{', '.join(limits)} must be known when the decision is taken; where they are forecasts themselves (a "
            f"demand, a capacity), let them be predicted with a recourse: pear.Model.predicting(problem, {which}, "
            "recourse=…)."
        )
        found.append(Finding("loss", sentence, to_do=True))
    return found


def _sparsity(s: Subject) -> list[Finding]:
    matrices = {name: M for name, M in (("Q", s.Q), ("A", s.A), ("G", s.G)) if M is not None and M.shape[0]}
    if not matrices:
        return [Finding("sparsity", "There are no matrices: bounds alone limit the decision.")]
    shares = {name: M.nnz / (M.shape[0] * M.shape[1]) for name, M in matrices.items()}
    each = ", ".join(f"{share:.2g} of {name}" for name, share in shares.items())
    form = "kept sparse" if s.problem.is_sparse else "kept dense"
    numbers = {f"density_{name}": share for name, share in shares.items()} | {"kept_sparse": s.problem.is_sparse}
    found = [
        Finding("sparsity", f"Share of entries that are not zero: {each}{s.first}; the problem is {form}.", numbers)
    ]
    entries = sum(M.nnz for M in matrices.values()) + (0 if "Q" in matrices else s.n)
    room = (s.n + sum(M.shape[0] for name, M in matrices.items() if name != "Q")) * s.n
    own = any(name in s.per_sample for name in ("Q", "A", "G"))
    takes = s.n >= MIN_VARIABLES and entries <= MAX_SHARE * room and s.problem.phi is None and not own
    if takes and not s.problem.is_sparse and s.problem.device.type == "cpu":
        found.append(
            Finding(
                "sparsity",
                f"Pass {' and '.join(matrices)} as scipy.sparse arrays: with {s.n:,} variables and "
                f"{100 * entries / room:.2g} % non-zeros the problem then stays sparse, and time and memory follow the "
                "non-zeros.",
                {"nonzero_share": entries / room},
                to_do=True,
            )
        )
    return found


def _blocks(s: Subject) -> list[Finding]:
    """Connected components of variables and rows; φ may join any variables, so that nothing is said of it."""
    if s.problem.phi is not None or s.per_sample or (s.A.shape[0] + s.G.shape[0] == 0 and s.Q is None):
        return []
    rows = sparse.vstack([s.A, s.G])
    corner = sparse.csr_array((s.n, s.n)) if s.Q is None else s.Q
    graph = sparse.block_array([[corner, rows.T], [rows, None]])
    _, label = sparse.csgraph.connected_components(graph, directed=False)
    sizes = np.bincount(label[: s.n])
    sizes = sizes[sizes > 0]
    numbers = {"blocks": len(sizes), "largest_block": int(sizes.max())}
    if len(sizes) == 1:
        return []
    return [
        Finding(
            "structure",
            f"The problem falls into {len(sizes):,} independent blocks of at most "
            f"{counted(int(sizes.max()), 'variable')}: each can be decided by a problem of its own, which is smaller "
            "and faster.",
            numbers,
        )
    ]


def _fixed(s: Subject) -> list[Finding]:
    fixed = [name for name, low, high in zip(s.variables, s.lb, s.ub, strict=True) if low == high]
    if not fixed:
        return []
    are = "is" if len(fixed) == 1 else "are"
    sentence = (
        f"{counted(len(fixed), 'variable')} {are} fixed by equal bounds ({some(fixed)}){s.first}; leave them out."
    )
    return [Finding("structure", sentence, {"fixed_variables": len(fixed)}, to_do=True)]

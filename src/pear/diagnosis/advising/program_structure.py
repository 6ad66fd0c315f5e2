"""Advice on the structure of a program: size, fields that differ between samples, sparsity and independent blocks."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.findings import Findings
from pear.problem.quadratic_program import MAX_SHARE, MIN_VARIABLES
from pear.wording import count_noun, list_names


def advise_on_structure(s: AdviceSubject, findings: Findings) -> None:
    """Add findings on size, fields that differ between samples, sparsity, independent blocks and fixed variables."""
    _describe_program_size(s, findings)
    findings.found += s.notes
    _describe_structure_per_sample(s, findings)
    _describe_program_sparsity(s, findings)
    _find_program_blocks(s, findings)
    fixed = [name for name, low, high in zip(s.variables, s.lb, s.ub, strict=True) if low == high]
    if fixed:
        which = f"{count_noun(len(fixed), 'variable')} {'is' if len(fixed) == 1 else 'are'} fixed by equal bounds"
        sentence = f"{which} ({list_names(fixed)}){s.first}; leave them out."
        findings.add("structure", sentence, to_do=True, fixed_variables=len(fixed))


def _describe_program_size(s: AdviceSubject, findings: Findings) -> None:
    """Add a finding on the kind of program and its numbers of variables, constraints, bounds, values and samples."""
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


def _describe_structure_per_sample(s: AdviceSubject, findings: Findings) -> None:
    """Add a finding that names the fields that differ between samples.

    If b, h, lb or ub differ and are not predicted, a second finding says how to predict them.
    """
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


def _describe_program_sparsity(s: AdviceSubject, findings: Findings) -> None:
    """Add a finding on the share of non-zeros in Q, A and G, and advise sparse matrices if they would pay off."""
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


def _find_program_blocks(s: AdviceSubject, findings: Findings) -> None:
    """Add a finding on independent blocks of variables, if there are several.

    Variables belong to the same block if a row, an entry of Q, or a chain of these connects them. Problems with a
    smooth term φ, which may connect any variables, and problems with fields per sample get no finding.
    """
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

"""Scaling: how much the sizes of rows, columns and costs differ, and factors that make them similar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.diagnosis.advising.subject_and_findings import Array, Findings, Subject
from pear.wording import count_noun, list_names

_APART = 3.0  # a difference of so many powers of ten is reported
_GAIN = 1.0  # rescaling is advised if it saves so many powers of ten
_BIG_M = 4.0  # a row whose coefficients differ by so many powers of ten may hold a big M
_SWEEPS = 12
_SHIFTS = 200
_CONSTANT = 1e-12  # relative deviation of a value that never changes


def check_scaling(s: Subject, findings: Findings) -> None:
    """Compare the largest coefficients of rows and of columns, and the sizes of the predicted values."""
    matrix = sparse.coo_array(sparse.vstack([s.A, s.G]))
    keep = matrix.data != 0
    entries = _NonzeroCoefficients(
        matrix.row[keep], matrix.col[keep], np.log10(np.abs(matrix.data[keep])), *matrix.shape
    )
    whole = np.zeros(s.n, dtype=bool) if s.problem.integer is None else s.problem.integer.numpy()
    if len(entries.logs):
        _suggest_rescaling(s, entries, whole, findings)
    if len(entries.logs) and whole.any():
        _find_big_m(s, entries, whole, findings)
    if s.values is not None and s.values.shape[1]:
        _compare_values(s, s.values.numpy(), findings)


def _suggest_rescaling(s: Subject, entries: _NonzeroCoefficients, whole: NDArray[np.bool_], findings: Findings) -> None:
    """Say which units would bring the coefficients closer together, if any."""
    rows, columns = entries.apart()
    numbers: dict[str, Any] = {"rows_apart": rows, "columns_apart": columns}
    between = (
        f"By their largest coefficients, rows are {rows:.1f} and columns {columns:.1f} powers of ten apart{s.first}"
    )
    if max(rows, columns) < _APART:
        return findings.add("scaling", f"{between}: nothing to rescale.", **numbers)
    row, column = _equilibrating_exponents(entries, whole)
    after = max(replace(entries, logs=entries.logs + row[entries.i] + column[entries.j]).apart())
    if max(rows, columns) - after < _GAIN:
        sentence = f"{between}, and no unit of a row or of a continuous variable changes that."
        return findings.add("scaling", sentence, **numbers)
    numbers |= {"apart_rescaled": after, "rows_to_rescale": int((row != 0).sum())}
    numbers["variables_to_rescale"] = int((column != 0).sum())
    steps = [
        _rescaling_steps("multiply the rows, right-hand sides included, by", s.rows, row),
        _rescaling_steps("measure the variables in units of", s.variables, column),
    ]
    said = "; ".join(step for step in steps if step)
    sentence = (
        f"{between}. {said[0].upper()}{said[1:]}: then they are {after:.1f} apart. Decisions are verified in natural "
        "sizes either way; solvers get there sooner."
    )
    findings.add("scaling", sentence, to_do=True, **numbers)
    findings.rows["multiply_by"], findings.variables["unit"] = 10.0**row, 10.0**column


@dataclass(frozen=True)
class _NonzeroCoefficients:
    """The coefficients that are not zero: their rows i, their columns j, and log10 of their sizes."""

    i: NDArray[Any]
    j: NDArray[Any]
    logs: Array
    rows: int
    columns: int

    def most(self, along: NDArray[Any], size: int, logs: Array) -> Array:
        """Return the largest logarithm in each row or column, (size,); 0 for an empty one."""
        found = np.full(size, -np.inf)
        np.maximum.at(found, along, logs)
        return np.where(np.isfinite(found), found, 0.0)

    def apart(self) -> tuple[float, float]:
        """Return the range of the rows' largest coefficients in powers of ten, and that of the columns'."""
        rows, columns = self.most(self.i, self.rows, self.logs), self.most(self.j, self.columns, self.logs)
        return float(np.ptp(rows[np.unique(self.i)])), float(np.ptp(columns[np.unique(self.j)]))


def _equilibrating_exponents(entries: _NonzeroCoefficients, whole: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Find whole powers of ten for rows (r,) and columns (n,) that bring every row's and column's largest entry near 1.

    The scaled entries are ``r_i a_ij s_j``. The method is Ruiz's equilibration in logarithms. Integer variables keep
    unit 1. Among equally good exponents, the result leaves most rows and variables unchanged.
    """
    i, j = entries.i, entries.j
    row, column = np.zeros(entries.rows), np.zeros(entries.columns)
    for _ in range(_SWEEPS):
        logs = entries.logs + row[i] + column[j]
        share = 1.0 if whole.all() else 0.5
        row, column = (
            row - share * entries.most(i, entries.rows, logs),
            np.where(whole, 0.0, column - 0.5 * entries.most(j, entries.columns, logs)),
        )
    if whole.any():
        return _round_exponents(row), _round_exponents(column)
    column = np.where(np.isin(np.arange(entries.columns), j), column, np.nan)  # empty columns: any unit will do
    row = np.where(np.isin(np.arange(entries.rows), i), row, np.nan)
    # Multiplying all rows by 10^k and dividing all columns by it changes no product.
    shifts = np.unique(np.concatenate([column, -row]).round(1))[:_SHIFTS]
    choices = [(_round_exponents(row + shift), _round_exponents(column - shift)) for shift in shifts]
    return min(choices, key=lambda pair: sum(int(np.count_nonzero(part)) for part in pair))


def _round_exponents(exponents: Array) -> Array:
    """Round the exponents to whole numbers. NaN and −0 become 0."""
    return np.asarray(np.round(np.nan_to_num(exponents)) + 0.0, dtype=np.float64)


def _find_big_m(s: Subject, entries: _NonzeroCoefficients, whole: NDArray[np.bool_], findings: Findings) -> None:
    """Find rows whose largest coefficient is far larger than the others and belongs to an integer variable."""
    largest = entries.most(entries.i, entries.rows, entries.logs)
    least = -entries.most(entries.i, entries.rows, -entries.logs)
    integer = np.where(whole[entries.j], entries.logs, -np.inf)
    switched = entries.most(entries.i, entries.rows, integer) == largest
    rows = np.flatnonzero((largest - least >= _BIG_M) & switched)
    if not len(rows):
        return
    worst = int(rows[(largest - least)[rows].argmax()])
    sentence = (
        f"{count_noun(len(rows), 'row')} hold a large coefficient beside an integer "
        f"({list_names([s.rows[k] for k in rows])}), "
        f"up to {10.0 ** largest[worst]:.3g} beside {10.0 ** least[worst]:.3g}: a big M makes the relaxation loose and "
        "rounding matter; take the smallest M that the model allows."
    )
    findings.add("scaling", sentence, to_do=True, big_m_rows=len(rows))


def _rescaling_steps(what: str, names: tuple[str, ...], exponents: Array) -> str:
    """List which rows or variables to multiply by which factor. The text is empty if all factors are 1."""
    powers = sorted({int(e) for e in exponents if e}, key=abs, reverse=True)
    each = [f"{10.0**e:g} ({list_names([names[k] for k in np.flatnonzero(exponents == e)], 3)})" for e in powers[:4]]
    more = f", and {count_noun(len(powers) - 4, 'more factor')}" if len(powers) > 4 else ""
    return f"{what} {', '.join(each)}{more}" if each else ""


def _compare_values(s: Subject, values: Array, findings: Findings) -> None:
    """Compare the predicted values (N, k) with each other by their mean sizes."""
    size, spread = np.abs(values).mean(0), values.std(0)
    findings.values |= {"mean_size": size, "deviation": spread}
    if s.samples > 1:
        _find_constants(s, size, spread, findings)
    used = size > 0
    if not used.any():
        said = "All costs are zero: every decision is as good as any other."
        return findings.add("costs", said, to_do=True, cost_size=0.0)
    logs = np.log10(size[used])
    apart, typical = float(np.ptp(logs)), float(10 ** np.median(logs))
    names = np.array(s.names, dtype=object)[used]
    low, high = names[int(logs.argmin())], names[int(logs.argmax())]
    sentence = (
        f"Costs have a typical size of {typical:.3g}; by their means they lie between {10 ** logs.min():.3g} ({low}) "
        f"and {10 ** logs.max():.3g} ({high}), {apart:.1f} powers of ten apart"
    )
    whole = round(float(np.log10(typical)))
    if apart >= _APART:
        exponents = np.zeros(len(used))
        exponents[used] = -np.round(logs)
        findings.values["multiply_by"] = 10.0**exponents
        steps = _rescaling_steps("Multiply the values to predict by", s.names, exponents)
        sentence += (
            f". One learning rate cannot serve them all. {steps}, and let a cost map undo it: "
            "pear.Model(problem, cost_map=pear.CostMap(M)) with M = diag(1 / factors)."
        )
    elif abs(whole) >= _APART:
        sentence += (
            ". pear.fit and DecisionRegressor adapt to that unit; in a training loop of your own multiply all costs "
            f"by {10.0**-whole:g}."
        )
    else:
        sentence += ": nothing to rescale."
    findings.add("costs", sentence, to_do=apart >= _APART, cost_size=typical, costs_apart=apart)


def _find_constants(s: Subject, size: Array, spread: Array, findings: Findings) -> None:
    """Find predicted values that are the same in all samples, given their mean sizes (k,) and deviations (k,)."""
    constant = [name for name, a, d in zip(s.names, size, spread, strict=True) if d <= _CONSTANT * a]
    if constant:
        sentence = (
            f"{count_noun(len(constant), 'predicted value')} of {len(size):,} never change on the {s.samples:,} "
            f"samples ({list_names(constant)}): there is nothing to learn about them; make them known with "
            "pear.CostMap(M, known)."
        )
        findings.add("costs", sentence, to_do=True, constant_values=len(constant))

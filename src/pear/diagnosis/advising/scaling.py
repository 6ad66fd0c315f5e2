"""Scaling: how many powers of ten lie between rows, columns and costs, and what to multiply them by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.diagnosis.advising.finding import Finding, Part, counted, some
from pear.diagnosis.advising.subject import Array, Subject

_APART = 3.0  # powers of ten that are worth a word
_GAIN = 1.0  # powers of ten that rescaling must save
_BIG_M = 4.0  # powers of ten within a row
_SWEEPS = 12
_SHIFTS = 200
_CONSTANT = 1e-12  # relative deviation of a value that never changes


def scaling(s: Subject) -> Part:
    """Coefficients of the rows, and the predicted values."""
    rows, costs = _coefficients(s), _values(s)
    return Part([*rows.findings, *costs.findings], rows.rows, rows.variables, costs.values)


def _coefficients(s: Subject) -> Part:
    """The largest coefficient of every row and of every column, beside each other."""
    matrix = sparse.coo_array(sparse.vstack([s.A, s.G]))
    keep = matrix.data != 0
    entries = _Entries(matrix.row[keep], matrix.col[keep], np.log10(np.abs(matrix.data[keep])), *matrix.shape)
    if not len(entries.logs):
        return Part()
    whole = np.zeros(s.n, dtype=bool) if s.problem.integer is None else s.problem.integer.numpy()
    rows, columns = entries.apart()
    numbers: dict[str, Any] = {"rows_apart": rows, "columns_apart": columns}
    between = (
        f"By their largest coefficients, rows are {rows:.1f} and columns {columns:.1f} powers of ten apart{s.first}"
    )
    if max(rows, columns) < _APART:
        found = Finding("scaling", f"{between}: nothing to rescale.", numbers)
        return Part([found, *_big_m(s, entries, whole)])
    row, column = _exponents(entries, whole)
    after = max(replace(entries, logs=entries.logs + row[entries.i] + column[entries.j]).apart())
    if max(rows, columns) - after < _GAIN:
        sentence = f"{between}, and no unit of a row or of a continuous variable changes that."
        return Part([Finding("scaling", sentence, numbers), *_big_m(s, entries, whole)])
    numbers |= {"apart_rescaled": after, "rows_to_rescale": int((row != 0).sum())}
    numbers["variables_to_rescale"] = int((column != 0).sum())
    steps = [
        _steps("multiply the rows, right-hand sides included, by", s.rows, row),
        _steps("measure the variables in units of", s.variables, column),
    ]
    said = "; ".join(step for step in steps if step)
    sentence = (
        f"{between}. {said[0].upper()}{said[1:]}: then they are {after:.1f} apart. Decisions are verified in natural "
        "sizes either way; solvers get there sooner."
    )
    found = Finding("scaling", sentence, numbers, to_do=True)
    return Part([found, *_big_m(s, entries, whole)], {"multiply_by": 10.0**row}, {"unit": 10.0**column})


@dataclass(frozen=True)
class _Entries:
    """The coefficients that are not zero: their rows i, their columns j, and the logarithms of their sizes."""

    i: NDArray[Any]
    j: NDArray[Any]
    logs: Array
    rows: int
    columns: int

    def most(self, along: NDArray[Any], size: int, logs: Array) -> Array:
        """(size,) the largest of each row or column; 0, as of a coefficient of 1, where there is none."""
        found = np.full(size, -np.inf)
        np.maximum.at(found, along, logs)
        return np.where(np.isfinite(found), found, 0.0)

    def apart(self) -> tuple[float, float]:
        """Powers of ten between the largest coefficients of rows, and of columns, that have some."""
        rows, columns = self.most(self.i, self.rows, self.logs), self.most(self.j, self.columns, self.logs)
        return float(np.ptp(rows[np.unique(self.i)])), float(np.ptp(columns[np.unique(self.j)]))


def _exponents(entries: _Entries, whole: NDArray[np.bool_]) -> tuple[Array, Array]:
    """(r,) and (n,) whole powers of ten that bring the largest ``|r_i a_ij s_j|`` of every row and column near 1.

    Ruiz's equilibration, in logarithms. Integers keep their unit. Of all that are as good, those are taken that leave
    most rows and variables as they are.
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
        return _whole(row), _whole(column)
    column = np.where(np.isin(np.arange(entries.columns), j), column, np.nan)  # whatever its unit
    row = np.where(np.isin(np.arange(entries.rows), i), row, np.nan)
    choices = [_shifted(row, column, shift) for shift in np.unique(np.concatenate([column, -row]).round(1))[:_SHIFTS]]
    return min(choices, key=lambda pair: sum(int(np.count_nonzero(part)) for part in pair))


def _shifted(row: Array, column: Array, shift: float) -> tuple[Array, Array]:
    """Exponents of rows and columns, shifted against each other, which changes no product, as whole numbers."""
    return _whole(row + shift), _whole(column - shift)


def _whole(exponents: Array) -> Array:
    """Rounded; 0 where nothing is known, and never −0."""
    return np.asarray(np.round(np.nan_to_num(exponents)) + 0.0, dtype=np.float64)


def _big_m(s: Subject, entries: _Entries, whole: NDArray[np.bool_]) -> list[Finding]:
    """Rows in which a large coefficient stands beside an integer."""
    if not whole.any():
        return []
    largest = entries.most(entries.i, entries.rows, entries.logs)
    least = -entries.most(entries.i, entries.rows, -entries.logs)
    integer = np.where(whole[entries.j], entries.logs, -np.inf)
    switched = entries.most(entries.i, entries.rows, integer) == largest
    rows = np.flatnonzero((largest - least >= _BIG_M) & switched)
    if not len(rows):
        return []
    worst = int(rows[(largest - least)[rows].argmax()])
    sentence = (
        f"{counted(len(rows), 'row')} hold a large coefficient beside an integer ({some([s.rows[k] for k in rows])}), "
        f"up to {10.0 ** largest[worst]:.3g} beside {10.0 ** least[worst]:.3g}: a big M makes the relaxation loose and "
        "rounding matter; take the smallest M that the model allows."
    )
    return [Finding("scaling", sentence, {"big_m_rows": len(rows)}, to_do=True)]


def _steps(what: str, names: tuple[str, ...], exponents: Array) -> str:
    """What to do with which names, those with the same factor together; empty where all factors are 1."""
    powers = sorted({int(e) for e in exponents if e}, key=abs, reverse=True)
    each = [f"{10.0**e:g} ({some([names[k] for k in np.flatnonzero(exponents == e)], 3)})" for e in powers[:4]]
    more = f", and {counted(len(powers) - 4, 'more factor')}" if len(powers) > 4 else ""
    return f"{what} {', '.join(each)}{more}" if each else ""


def _values(s: Subject) -> Part:
    """Sizes and deviations of the predicted values."""
    if s.values is None or not s.values.shape[1]:
        return Part()
    values: Array = s.values.numpy()
    size, spread = np.abs(values).mean(0), values.std(0)
    table = {"mean_size": size, "deviation": spread}
    found = _constants(s, size, spread) if s.samples > 1 else []
    used = size > 0
    if not used.any():
        said = "All costs are zero: every decision is as good as any other."
        return Part([*found, Finding("costs", said, {"cost_size": 0.0}, to_do=True)], values=table)
    logs = np.log10(size[used])
    apart, typical = float(np.ptp(logs)), float(10 ** np.median(logs))
    numbers = {"cost_size": typical, "costs_apart": apart}
    names = [name for name, use in zip(s.names, used, strict=True) if use]
    low, high = names[int(logs.argmin())], names[int(logs.argmax())]
    between = (
        f"Costs have a typical size of {typical:.3g}; by their means they lie between {10 ** logs.min():.3g} ({low}) "
        f"and {10 ** logs.max():.3g} ({high}), {apart:.1f} powers of ten apart"
    )
    if apart < _APART:
        whole = round(float(np.log10(typical)))
        sentence = f"{between}: nothing to rescale."
        if abs(whole) >= _APART:
            sentence = (
                f"{between}. pear.fit and DecisionRegressor adapt to that unit; in a training loop of your own "
                f"multiply all costs by {10.0**-whole:g}."
            )
        return Part([*found, Finding("costs", sentence, numbers)], values=table)
    exponents = np.zeros(len(used))
    exponents[used] = -np.round(logs)
    steps = _steps("Multiply the values to predict by", s.names, exponents)
    sentence = (
        f"{between}. One learning rate cannot serve them all. {steps}, and let a cost map undo it: "
        "pear.Model(problem, cost_map=pear.CostMap(M)) with M = diag(1 / factors)."
    )
    table["multiply_by"] = 10.0**exponents
    return Part([*found, Finding("costs", sentence, numbers, to_do=True)], values=table)


def _constants(s: Subject, size: Array, spread: Array) -> list[Finding]:
    constant = [name for name, a, d in zip(s.names, size, spread, strict=True) if d <= _CONSTANT * a]
    if not constant:
        return []
    sentence = (
        f"{counted(len(constant), 'predicted value')} of {len(size):,} never change on the {s.samples:,} samples "
        f"({some(constant)}): there is nothing to learn about them; make them known with pear.CostMap(M, known)."
    )
    return [Finding("costs", sentence, {"constant_values": len(constant)}, to_do=True)]

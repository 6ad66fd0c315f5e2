"""Advice on scaling: how much coefficients and costs differ in size, and factors that make them similar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.diagnosis.advising.advice_subject import AdviceSubject, Array
from pear.diagnosis.advising.findings import Findings
from pear.wording import count_noun, list_names

_APART = 3.0  # a difference of this many powers of ten is reported
_GAIN = 1.0  # rescaling is advised if it reduces the difference by this many powers of ten
_BIG_M = 4.0  # a row whose coefficients differ by this many powers of ten may contain a big M
_SWEEPS = 12  # of the equilibration
_SHIFTS = 200  # powers of ten that are tried as a common factor of all rows
_CONSTANT = 1e-12  # largest relative deviation of a value that counts as constant


def advise_on_scaling(s: AdviceSubject, findings: Findings) -> None:
    """Add findings on the sizes of rows, columns and predicted values, and on big coefficients of integer variables."""
    matrix = sparse.coo_array(sparse.vstack([s.A, s.G]))
    keep = matrix.data != 0
    entries = _NonzeroCoefficients(
        matrix.row[keep], matrix.col[keep], np.log10(np.abs(matrix.data[keep])), *matrix.shape
    )
    whole = np.zeros(s.n, dtype=bool) if s.problem.integer is None else s.problem.integer.numpy()
    if len(entries.logs):
        _suggest_scaling(s, entries, whole, findings)
    if len(entries.logs) and whole.any():
        _find_big_coefficients(s, entries, whole, findings)
    if s.values is not None and s.values.shape[1]:
        _compare_value_scales(s, s.values.numpy(), findings)


def _suggest_scaling(
    s: AdviceSubject, entries: _NonzeroCoefficients, whole: NDArray[np.bool_], findings: Findings
) -> None:
    """Add a finding on how much rows, and columns, differ in their largest coefficients, and on units that would help.

    Args:
        s: problem and samples.
        entries: the coefficients of A and G.
        whole: (n,) bool, the integer variables, whose units cannot change.
        findings: receives the finding, and factors for the tables of rows and variables.
    """
    rows, columns = entries.apart()
    numbers: dict[str, Any] = {"rows_apart": rows, "columns_apart": columns}
    between = (
        f"By their largest coefficients, rows are {rows:.1f} and columns {columns:.1f} powers of ten apart{s.first}"
    )
    if max(rows, columns) < _APART:
        return findings.add("scaling", f"{between}: nothing to rescale.", **numbers)
    row, column = _scaling_exponents(entries, whole)
    after = max(replace(entries, logs=entries.logs + row[entries.i] + column[entries.j]).apart())
    if max(rows, columns) - after < _GAIN:
        sentence = f"{between}, and no unit of a row or of a continuous variable changes that."
        return findings.add("scaling", sentence, **numbers)
    numbers |= {"apart_rescaled": after, "rows_to_rescale": int((row != 0).sum())}
    numbers["variables_to_rescale"] = int((column != 0).sum())
    steps = [
        _list_scaling_steps("multiply the rows, right-hand sides included, by", s.rows, row),
        _list_scaling_steps("measure the variables in units of", s.variables, column),
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
    """The e coefficients of A and G that are not zero.

    Attributes:
        i: (e,) the row of each coefficient.
        j: (e,) the column of each coefficient.
        logs: (e,) log10 of the absolute value of each coefficient.
        rows, columns: the numbers of rows and of columns.
    """

    i: NDArray[Any]
    j: NDArray[Any]
    logs: Array
    rows: int
    columns: int

    def most(self, along: NDArray[Any], size: int, logs: Array) -> Array:
        """Return the largest logarithm in each row or column, (size,); 0 for a row or column without entries.

        Args:
            along: ``i`` for rows, ``j`` for columns.
            size: the number of rows or columns.
            logs: a logarithm for each coefficient.
        """
        found = np.full(size, -np.inf)
        np.maximum.at(found, along, logs)
        return np.where(np.isfinite(found), found, 0.0)

    def apart(self) -> tuple[float, float]:
        """Return how far the rows' largest coefficients are apart, in powers of ten, and the same for the columns."""
        rows, columns = self.most(self.i, self.rows, self.logs), self.most(self.j, self.columns, self.logs)
        return float(np.ptp(rows[np.unique(self.i)])), float(np.ptp(columns[np.unique(self.j)]))


def _scaling_exponents(entries: _NonzeroCoefficients, whole: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return powers of ten for rows and columns that bring the largest entry of every row and column near 1.

    The method is Ruiz's equilibration in logarithms. Without integer variables, all rows may be multiplied by a power
    of ten by which all columns are divided. The power that leaves the most rows and columns unchanged is chosen.

    Args:
        entries: the coefficients.
        whole: (n,) bool, the integer variables, whose columns keep the exponent 0.

    Returns:
        The exponents of the rows, (rows,), and of the columns, (columns,). They are whole numbers.
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
        return _round_scaling_exponents(row), _round_scaling_exponents(column)
    column = np.where(
        np.isin(np.arange(entries.columns), j), column, np.nan
    )  # NaN: any exponent is good for an empty column
    row = np.where(np.isin(np.arange(entries.rows), i), row, np.nan)
    # Multiplying all rows by 10^k and dividing all columns by it changes no product.
    shifts = np.unique(np.concatenate([column, -row]).round(1))[:_SHIFTS]
    choices = [(_round_scaling_exponents(row + shift), _round_scaling_exponents(column - shift)) for shift in shifts]
    return min(choices, key=lambda pair: sum(int(np.count_nonzero(part)) for part in pair))


def _round_scaling_exponents(exponents: Array) -> Array:
    """Return exponents rounded to whole numbers. NaN and −0 become 0."""
    return np.asarray(np.round(np.nan_to_num(exponents)) + 0.0, dtype=np.float64)


def _find_big_coefficients(
    s: AdviceSubject, entries: _NonzeroCoefficients, whole: NDArray[np.bool_], findings: Findings
) -> None:
    """Add a finding on rows that may contain a big M, if there are any.

    In these rows, the largest coefficient belongs to an integer variable and is far larger than the smallest one.

    Args:
        s: problem and samples.
        entries: the coefficients of A and G.
        whole: (n,) bool, the integer variables.
        findings: receives the finding.
    """
    largest = entries.most(entries.i, entries.rows, entries.logs)
    least = -entries.most(entries.i, entries.rows, -entries.logs)
    switched = np.zeros(entries.rows, dtype=bool)
    switched[entries.i[whole[entries.j] & (entries.logs == largest[entries.i])]] = True
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


def _list_scaling_steps(what: str, names: tuple[str, ...], exponents: Array) -> str:
    """Return a text that lists up to four factors other than 1, and the rows or variables that get them.

    Args:
        what: beginning of the text.
        names: names of the rows or variables.
        exponents: the factors as powers of ten.

    Returns:
        The text, empty if all factors are 1.
    """
    powers = sorted({int(e) for e in exponents if e}, key=abs, reverse=True)
    each = [f"{10.0**e:g} ({list_names([names[k] for k in np.flatnonzero(exponents == e)], 3)})" for e in powers[:4]]
    more = f", and {count_noun(len(powers) - 4, 'more factor')}" if len(powers) > 4 else ""
    return f"{what} {', '.join(each)}{more}" if each else ""


def _compare_value_scales(s: AdviceSubject, values: Array, findings: Findings) -> None:
    """Add a finding on how far the mean sizes of the k values are apart; ``values`` (N, k) are those of N samples."""
    size, spread = np.abs(values).mean(0), values.std(0)
    findings.values |= {"mean_size": size, "deviation": spread}
    if s.samples > 1:
        _find_constant_values(s, size, spread, findings)
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
        steps = _list_scaling_steps("Multiply the values to predict by", s.names, exponents)
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


def _find_constant_values(s: AdviceSubject, size: Array, spread: Array, findings: Findings) -> None:
    """Add a finding that names the values that never change, if there are any.

    Args:
        s: problem and samples.
        size: (k,) mean absolute sizes of the k values.
        spread: (k,) standard deviations of the k values.
        findings: receives the finding.
    """
    constant = [name for name, a, d in zip(s.names, size, spread, strict=True) if d <= _CONSTANT * a]
    if constant:
        sentence = (
            f"{count_noun(len(constant), 'predicted value')} of {len(size):,} never change on the {s.samples:,} "
            f"samples ({list_names(constant)}): there is nothing to learn about them; make them known with "
            "pear.CostMap(M, known)."
        )
        findings.add("costs", sentence, to_do=True, constant_values=len(constant))

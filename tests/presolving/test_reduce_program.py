"""``reduce_program`` on arrays: rows that must stay, rows with two limits, and limits that nearly agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from pear.presolving import RowProgram, reduce_program

INF = np.inf


def program(rows: Any, low: Any, high: Any, lb: Any = -INF, ub: Any = INF) -> RowProgram:
    matrix = sparse.csr_array(np.array(rows, dtype=float))
    n = matrix.shape[1]
    bounds = (np.array(np.broadcast_to(side, n), dtype=float) for side in (lb, ub))
    return RowProgram(matrix, np.array(low, dtype=float), np.array(high, dtype=float), *bounds)


REMOVABLE: dict[str, tuple[Any, Any, Any]] = {
    "an empty row": ([[0, 0], [1, 1]], [-1, -INF], [1, 1]),
    "a singleton": ([[3, 0], [1, 1]], [-1, -INF], [1, 1]),
    "a duplicate": ([[1, 1], [1, 1]], [-INF, -INF], [2, 1]),
    "a definition": ([[1, 1], [1, -1]], [2, -INF], [2, 1]),
    "dependent equalities": ([[1, 1, 0], [0, 1, 1], [1, 2, 1]], [1, 2, 3], [1, 2, 3]),
}


@pytest.mark.parametrize("case", REMOVABLE)
def test_rows_that_must_stay_do(case: str) -> None:
    own = program(*REMOVABLE[case], lb=-INF if case == "a definition" else -9.0)
    found = reduce_program(own)
    assert found.removed
    kept = reduce_program(own, fixed_rows=np.ones(len(own.low), dtype=bool))
    assert kept.removed == {}
    np.testing.assert_array_equal(kept.program.rows.toarray(), own.rows.toarray())


def test_a_row_that_must_stay_is_rewritten_in_the_variables_that_are_left() -> None:
    """z0 = 0.5 + z1 is substituted: 2 ≤ 3 z0 + z1 ≤ 4 becomes 0.5 ≤ 4 z1 ≤ 2.5. Only removable variables go."""
    own = program([[1, -1], [3, 1]], [0.5, 2], [0.5, 4])
    removable, fixed = np.array([True, False]), np.array([False, True])
    found = reduce_program(own, fixed, removable)
    assert found.program.rows.toarray().tolist() == [[4.0]]
    assert (found.program.low.tolist(), found.program.high.tolist()) == ([0.5], [2.5])
    assert (found.columns.tolist(), found.rows.tolist()) == ([1], [1])
    assert reduce_program(own, fixed, np.zeros(2, dtype=bool)).removed == {}


def test_rows_with_two_limits_keep_the_tightest() -> None:
    """1 ≤ z0 + z1 ≤ 5 is redundant beside 2 z0 + 2 z1 ≤ 6 and −4 z0 − 4 z1 ≤ −6.

    A row can also be redundant with one of its two limits alone.
    """
    found = reduce_program(program([[1, 1], [2, 2], [-4, -4]], [1, -INF, -INF], [5, 6, -6], lb=0.0))
    assert found.program.rows.toarray().tolist() == [[2.0, 2.0], [-4.0, -4.0]]
    assert found.program.high.tolist() == [6.0, -6.0]
    own = program([[1, 1], [-2, -2]], [1, -8], [5, -4], lb=0.0)  # 1 to 5, and 2 to 4
    assert reduce_program(own).rows.tolist() == [1]
    own = program([[1, 1], [-2, -2]], [3, -8], [5, -4], lb=0.0)  # 3 to 5, and 2 to 4
    found = reduce_program(own)
    assert (found.program.low.tolist(), found.program.high.tolist()) == ([3.0, -8.0], [INF, INF])
    assert found.sentence() == "Presolve removed 2 duplicate limits."


@pytest.mark.parametrize(("multiplier", "expected"), [(2.0, [2.0, 0.0]), (-2.0, [0.0, 0.5])])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_multipliers_go_to_the_row_that_the_limit_comes_from(multiplier: float, expected: Any, order: Any) -> None:
    """z0 + z1 ≤ 3 and −4 z0 − 4 z1 ≤ −12 are one equality; the sign of its multiplier selects the row."""
    rows, high = np.array([[1.0, 1.0], [-4.0, -4.0]]), np.array([3.0, -12.0])
    found = reduce_program(program(rows[order], [-INF, -INF], high[order], lb=0.0))
    assert (found.program.low == found.program.high).all()
    at = float(found.program.rows.toarray()[0, 0])
    y, bound = found.multipliers(
        np.array([[-multiplier, 0.25 - multiplier]]), np.array([[multiplier / at]]), np.array([[0.0, -0.25]])
    )
    assert y[:, np.argsort(order)].tolist() == [expected]
    assert bound.tolist() == [[0.0, -0.25]]


@pytest.mark.parametrize(("multiplier", "expected"), [(2.0, [0.0, 0.5]), (-2.0, [-2.0, 0.0])])
def test_multipliers_of_two_ranges_that_meet(multiplier: float, expected: list[float]) -> None:
    """The ranges 3 to 5 of a row, and 4 to 12 of four times this row, meet in an equality.

    Its lower limit is that of the first row, and its upper limit that of the second.
    """
    found = reduce_program(program([[1, 1], [4, 4]], [3, 4], [5, 12], lb=0.0))
    y, _ = found.multipliers(np.full((1, 2), -multiplier), np.array([[multiplier]]), np.zeros((1, 2)))
    assert y.tolist() == [expected]


@pytest.mark.parametrize("disagreement", [1e-15, 1e-10])
def test_limits_that_nearly_agree_are_left_to_the_solver(disagreement: float) -> None:
    """Duplicates up to rounding are removed; if rows may contradict each other, all of them stay."""
    b = [1.0, 2.0 * (1 + disagreement)]
    kept = len(reduce_program(program([[1, 3, 1], [2, 6, 2]], b, b, lb=0.0)).rows)
    assert kept == (1 if disagreement < 1e-12 else 2)
    b = [1.0, 2.0, 3.0 + 3 * disagreement]
    kept = len(reduce_program(program([[1, 1, 0], [0, 1, 1], [1, 2, 1]], b, b, lb=0.0)).rows)
    assert kept == (2 if disagreement < 1e-12 else 3)
    b = [0.3, 0.3 * (1 + disagreement)]
    kept = len(reduce_program(program([[1, 0], [1, 0]], b, b)).rows)
    assert kept == (0 if disagreement < 1e-12 else 1)


def test_a_sum_that_cancels_leaves_no_coefficient() -> None:
    """A coefficient that cancels up to rounding becomes zero.

    With 3 z0 = z1 + 0.6 z2, the second variable cancels in z0 − z1/3 + z2.
    """
    third = 1.0 / 3.0
    own = program([[3, -1, -0.6, 0], [1, -third, 1, 1]], [0, -INF], [0, 1], lb=[-INF, 0, 0, 0])
    found = reduce_program(own)
    assert found.program.rows.nnz == 2
    np.testing.assert_allclose(found.program.rows.toarray(), [[0.0, 1.2, 1.0]])

"""Import of programs from the arguments of SciPy's ``linprog`` and ``milp``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import ProblemError
from pear.presolving.row_program import Array
from pear.problem.importers.model_arrays import ModelArrays, Names
from pear.problem.importers.row_limits import RowLimits
from pear.problem.model import Model

_WHERE = "from_scipy"


def from_scipy(
    c: Any = None,
    A_ub: Any = None,
    b_ub: Any = None,
    A_eq: Any = None,
    b_eq: Any = None,
    bounds: Any = (0, None),
    integrality: Any = None,
    constraints: Any = (),
    predicted: Names = None,
    known: Names = None,
) -> Model:
    """Import a linear or integer program from the arguments of ``scipy.optimize.linprog`` or ``milp``.

    By default all n costs are predicted, and the attribute ``known`` of the model has the costs ``c``. As in SciPy, the
    objective is minimised, and variables are at least 0 by default.

    Args:
        c: (n,) costs; may be omitted if another argument tells n.
        A_ub: (m, n) matrix of ``A_ub z ≤ b_ub``, dense or sparse.
        b_ub: (m,) right-hand sides.
        A_eq: (p, n) matrix of ``A_eq z = b_eq``, dense or sparse.
        b_eq: (p,) right-hand sides.
        bounds: one pair (low, high) for all variables, n pairs, or a ``scipy.optimize.Bounds``. None in a pair means no
            bound.
        integrality: a number or (n,): 0 for continuous variables, 1 for integers.
        constraints: a ``scipy.optimize.LinearConstraint``, a tuple (A, lb, ub), or a sequence of them, as for ``milp``.
        predicted: names of the costs that are predicted, among x0, x1, …; by default all that are not known.
        known: names of right-hand sides, costs and bounds that are known for every sample and passed with every call:
            ``A_ub`` or ``A_ub[0]`` for right-hand sides of these rows, ``x3`` for a cost, ``x3.ub`` for a bound.

    Raises:
        ProblemError: shapes do not fit together, a variable is semi-continuous, bounds cross, or a name is wrong.
        DataError: a number is NaN, or infinite but not an absent limit.

    Example:
        >>> import pear
        >>> m = pear.from_scipy([-1, 4], A_ub=[[-3, 1], [1, 2]], b_ub=[6, 4], bounds=[(None, None), (-3, None)])
        >>> pear.solve(m.problem, m.known).x.tolist()
        [[10.0, -3.0]]
    """
    blocks = [
        *_read_matrix_argument("A_ub", A_ub, "b_ub", b_ub, equal=False),
        *_read_matrix_argument("A_eq", A_eq, "b_eq", b_eq, equal=True),
        *_read_constraints_argument(constraints),
    ]
    n = _count_variables_of_arguments(c, blocks, bounds, integrality)
    costs = np.zeros(n) if c is None else np.asarray(c, dtype=float).reshape(-1)
    lb, ub = _read_bounds_argument(bounds, n)
    return ModelArrays(
        _WHERE, _stack_row_arguments(blocks, n), costs, lb, ub, integer=_read_integrality_argument(integrality, n)
    ).model(predicted, known=known)


_RowBlock = tuple[str, sparse.csr_array, Array, Array]  # name, matrix (k, n), lower limits (k,), upper limits (k,)


def _read_matrix_argument(left: str, A: Any, right: str, b: Any, equal: bool) -> list[_RowBlock]:
    """Return a list with one block, the rows of A_ub or A_eq with their limits; empty if they were not passed.

    Args:
        left: the name of the matrix, "A_ub" or "A_eq".
        A: the matrix.
        right: the name of the right-hand sides.
        b: the right-hand sides.
        equal: True for equalities.
    """
    if A is None and b is None:
        return []
    if A is None or b is None:
        raise ProblemError(f"{_WHERE}: {left} and {right} belong together; got only {right if A is None else left}")
    matrix, high = _matrix_argument_to_csr(A), np.asarray(b, dtype=float).reshape(-1)
    if matrix.shape[0] != len(high):
        raise ProblemError(
            f"{_WHERE}: {left} of shape {matrix.shape} has {matrix.shape[0]} rows and {right} {len(high)} entries; "
            "expected one for each row"
        )
    return [(left, matrix, high if equal else np.full(len(high), -np.inf), high)]


def _read_constraints_argument(constraints: Any) -> list[_RowBlock]:
    """Return one block of rows with limits for each constraint.

    Args:
        constraints: one constraint, or a sequence of them. A constraint is a ``LinearConstraint``, or a tuple of its
            arguments (A, lb, ub).

    Raises:
        ProblemError: a constraint has another form.
    """
    made: list[_RowBlock] = []
    for i, given in enumerate(_list_constraints(constraints)):
        one = _linear_constraint(given)
        if one is None:
            raise ProblemError(
                f"{_WHERE}: constraints[{i}] is a {type(given).__name__}; expected scipy.optimize.LinearConstraint(A, "
                "lb, ub), or the tuple (A, lb, ub): a nonlinear one cannot be taken"
            )
        matrix = _matrix_argument_to_csr(one.A)
        low, high = (np.array(np.broadcast_to(v, matrix.shape[0]), dtype=float) for v in (one.lb, one.ub))
        made.append((f"constraints[{i}]", matrix, low, high))
    return made


def _list_constraints(constraints: Any) -> Sequence[Any]:
    """Return ``constraints`` as a sequence. A single constraint, even as (A, lb, ub), becomes a list of one."""
    if not isinstance(constraints, Sequence):
        return [constraints]
    several = all(_linear_constraint(entry) is not None for entry in constraints)
    return constraints if several or _linear_constraint(constraints) is None else [constraints]


def _linear_constraint(given: Any) -> Any:
    """Return ``given``, a ``LinearConstraint`` or a sequence of its arguments (A, lb, ub), as a ``LinearConstraint``.

    Anything else gives None.
    """
    from scipy.optimize import LinearConstraint

    if all(hasattr(given, name) for name in ("A", "lb", "ub")):
        return given
    if not isinstance(given, Sequence) or len(given) != 3:
        return None
    try:
        return LinearConstraint(*given)
    except (TypeError, ValueError):
        return None


def _matrix_argument_to_csr(A: Any) -> sparse.csr_array:
    """Convert a matrix to CSR form; a vector becomes a single row."""
    return sparse.csr_array(A if sparse.issparse(A) else np.atleast_2d(np.asarray(A, dtype=float)), dtype=float)


def _count_variables_of_arguments(c: Any, blocks: list[_RowBlock], bounds: Any, integrality: Any) -> int:
    """Return the number of variables n, on which all arguments must agree."""
    found = [] if c is None else [("c", np.size(c))]
    found += [(name, matrix.shape[1]) for name, matrix, _, _ in blocks]
    if not found and not hasattr(bounds, "lb") and np.ndim(bounds) == 2:
        found.append(("bounds", len(bounds)))
    if not found and np.ndim(integrality) == 1:
        found.append(("integrality", len(integrality)))
    if not found:
        raise ProblemError(f"{_WHERE}: nothing tells the number of variables; pass c, a matrix, or a pair for each")
    for name, n in found[1:]:
        if n != found[0][1]:
            raise ProblemError(
                f"{_WHERE}: {name} has {n} variables but {found[0][0]} has {found[0][1]}; make them equal"
            )
    return found[0][1]


def _read_bounds_argument(bounds: Any, n: int) -> tuple[Array, Array]:
    """Convert pairs (low, high), or a ``scipy.optimize.Bounds``, to lower bounds (n,) and upper bounds (n,)."""
    if hasattr(bounds, "lb"):
        return tuple(np.array(np.broadcast_to(v, n), dtype=float) for v in (bounds.lb, bounds.ub))  # type: ignore
    pairs = np.array((0, None) if bounds is None else bounds, dtype=object)
    pairs = pairs.reshape(1, 2) if pairs.shape == (2,) else pairs
    if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) not in (1, n):
        raise ProblemError(
            f"{_WHERE}: bounds must be one pair (low, high) or {n} pairs, one a variable; got shape {pairs.shape}"
        )
    none = pairs == np.array(None)
    low, high = (np.where(none[:, i], absent, pairs[:, i]).astype(float) for i, absent in ((0, -np.inf), (1, np.inf)))
    return np.resize(low, n), np.resize(high, n)


def _read_integrality_argument(integrality: Any, n: int) -> Any:
    """Convert SciPy's ``integrality`` to a bool mask (n,), after a check that no variable is semi-continuous."""
    kinds = np.zeros(n) if integrality is None else np.asarray(integrality).reshape(-1)
    if len(kinds) not in (1, n):
        raise ProblemError(f"{_WHERE}: integrality must be a number or have {n} entries; got {len(kinds)}")
    kinds = np.resize(kinds, n)
    if not np.isin(kinds, (0, 1)).all():
        at = int(np.flatnonzero(~np.isin(kinds, (0, 1)))[0])
        raise ProblemError(
            f"{_WHERE}: integrality[{at}] is {kinds[at]:g}; expected 0 (continuous) or 1 (integer): semi-continuous "
            "and semi-integer variables (2, 3) cannot be taken; write them with an integer variable and rows"
        )
    return kinds == 1


def _stack_row_arguments(blocks: list[_RowBlock], n: int) -> RowLimits:
    """Return the rows of all blocks with their limits. Rows are named after their block: A_ub[0], A_ub[1], …."""
    if not blocks:
        return RowLimits(sparse.csr_array((0, n)), np.empty(0), np.empty(0), ())
    names = tuple(f"{name}[{i}]" for name, matrix, _, _ in blocks for i in range(matrix.shape[0]))
    return RowLimits(
        sparse.csr_array(sparse.vstack([matrix for _, matrix, _, _ in blocks])),
        np.concatenate([low for _, _, low, _ in blocks]),
        np.concatenate([high for _, _, _, high in blocks]),
        names,
    )

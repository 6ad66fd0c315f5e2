"""``KnownNames``: the names of the right-hand sides, bounds and costs that are known for every sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from pear.errors import ProblemError
from pear.presolving.row_program import Index
from pear.problem.indexed_names import group_indexed_names
from pear.problem.known_map import KnownMap, KnownValue

if TYPE_CHECKING:
    from pear.problem.importers.model_arrays import ModelArrays

_KINDS = ("rhs", "cost", "lb", "ub")
_EXPECTED = (
    "expected names of rows, whose right-hand sides are known, of variables, whose costs are (the value, where a "
    "variable is fixed), or a name with .rhs, .cost, .lb or .ub behind it"
)


class KnownNames:
    """The meaning of the names that a user passes to an importer as ``known=``.

    The name of a row stands for its right-hand side. The name of a variable stands for its cost. If the variable is
    fixed (equal bounds), the name stands for its value instead, because its cost changes no decision. ``demand.rhs``,
    ``x.cost``, ``x.lb`` and ``x.ub`` name the number explicitly. The name of an array (``demand`` of ``demand[0]``,
    ``demand[1]``, …) stands for all its entries.

    Args:
        arrays: the imported arrays.
        variables: the names of the n variables.
        known: the names that the user passed.

    Attributes:
        values: the known values of the model.
        rows: numbers of the rows with known right-hand sides.
        costs: numbers of the variables with known costs.

    Raises:
        ProblemError: a name stands for nothing or for two things, a number is named twice, or a named row has no
            limit or two different limits.
    """

    def __init__(self, arrays: ModelArrays, variables: Sequence[str], known: Sequence[str]) -> None:
        self._where, self._fixed = arrays.where, np.asarray(arrays.lb) == np.asarray(arrays.ub)
        self._named = {"rhs": list(arrays.rows.names), "cost": list(variables)}
        self._place = {kind: {name: i for i, name in enumerate(names)} for kind, names in self._named.items()}
        self._groups = {kind: group_indexed_names(names) for kind, names in self._named.items()}
        self._at: dict[str, list[tuple[int, int]]] = {kind: [] for kind in _KINDS}
        values, column = [], 0
        for name in known:
            kind, at, shape = self._find(name)
            suffix = name[-len(kind) - 1 :] if name.endswith(f".{kind}") else ""
            own = self._named["rhs" if kind == "rhs" else "cost"]
            labels = [f"{own[i]}{suffix}" if shape else name for i in at]
            values.append(KnownValue(name, shape, tuple(labels)))
            for target in ("lb", "ub") if kind == "value" else (kind,):
                self._at[target] += [(int(i), column + j) for j, i in enumerate(at)]
            column += len(at)
        self.values, self._count = tuple(values), column
        self._check_once()
        self.rows, self.costs = self._numbers("rhs"), self._numbers("cost")
        arrays.rows.numbers_of(arrays.where, [self._named["rhs"][i] for i in self.rows], "known")

    def fixed(self, arrays: ModelArrays) -> ModelArrays:
        """Return the arrays without the known numbers, which ``Model.with_known`` adds later.

        A known cost or right-hand side becomes 0, and a known bound becomes infinite.
        """
        costs, lb, ub = (np.array(part, dtype=float) for part in (arrays.costs, arrays.lb, arrays.ub))
        costs[self.costs] = 0.0
        lb[self._numbers("lb")] = -np.inf
        ub[self._numbers("ub")] = np.inf
        return replace(arrays, rows=arrays.rows.with_zero_limits(self.rows), costs=costs, lb=lb, ub=ub)

    def map(self, arrays: ModelArrays) -> KnownMap:
        """Return the known map of the model that is made from ``arrays``, the result of ``fixed``."""
        n, r = len(arrays.costs), len(arrays.rows.low)
        b, h = arrays.rows.split(self._matrix("rhs", r))
        given = {"b": b, "h": h, **{kind: self._matrix(kind, n) for kind in ("cost", "lb", "ub")}}
        return KnownMap(self.values, **{name: matrix for name, matrix in given.items() if matrix.nnz})

    def _find(self, name: str) -> tuple[str, Any, tuple[int, ...]]:
        """Return what a name that the user passed stands for.

        Returns:
            The kind of number, "rhs", "cost", "lb", "ub", or "value" for fixed variables; the positions of the named
            rows or variables; and their shape, () for a single one.
        """
        stem, dot, kind = name.rpartition(".")
        exact = [(kind, self._entries(kind, name)) for kind in ("rhs", "cost")]
        found = [(kind, entries) for kind, entries in exact if entries is not None]
        if not found and dot and kind in _KINDS:
            entries = self._entries("rhs" if kind == "rhs" else "cost", stem)
            found = [] if entries is None else [(kind, entries)]
        if len(found) != 1:
            came = f"{name!r}, which is a row and a variable: write {name}.rhs or {name}.cost" if found else repr(name)
            raise ProblemError(f"{self._where}: known holds {came}; {_EXPECTED}. {self._describe()}")
        kind, (at, shape) = found[0]
        if kind == "cost" and not name.endswith(".cost") and self._fixed[at].all():
            return "value", at, shape
        return kind, at, shape

    def _entries(self, kind: str, name: str) -> tuple[Index, tuple[int, ...]] | None:
        """Return the positions of the rows or variables with this name, and their shape; None if there are none.

        The name of an array of rows or variables stands for all its entries. One row or variable has the shape ().

        Args:
            kind: "rhs" to look among rows, "cost" to look among variables.
            name: the name.
        """
        if name in self._place[kind]:
            return np.array([self._place[kind][name]]), ()
        array = self._groups[kind].get(name)
        return None if array is None else (array.positions, array.shape)

    def _check_once(self) -> None:
        """Raise ProblemError if two of the user's names stand for the same right-hand side, cost or bound."""
        for kind, pairs in self._at.items():
            at = [i for i, _ in pairs]
            if twice := [i for i in at if at.count(i) > 1]:
                name = self._named["rhs" if kind == "rhs" else "cost"][twice[0]]
                raise ProblemError(f"{self._where}: known names the {kind} of {name} twice; name it once")

    def _numbers(self, kind: str) -> Index:
        """Return the positions of the rows or variables with a known "rhs", "cost", "lb" or "ub", as ``kind`` says."""
        return np.array([i for i, _ in self._at[kind]], dtype=int)

    def _matrix(self, kind: str, size: int) -> sparse.csr_array:
        """Return the matrix (size, k) that maps all k known numbers to the right-hand sides, costs or bounds.

        Entry (i, j) is 1 if known number j is the ``kind`` of row or variable i, and 0 otherwise.

        Args:
            kind: "rhs", "cost", "lb" or "ub".
            size: the number of rows for "rhs", else the number of variables.
        """
        columns = [column for _, column in self._at[kind]]
        entries = (np.ones(len(columns)), (self._numbers(kind), columns))
        return sparse.csr_array(entries, shape=(size, self._count))

    def _describe(self) -> str:
        """Return a sentence with the first names of rows and of variables, for error messages."""
        rows, variables = (", ".join(self._named[kind][:4]) for kind in ("rhs", "cost"))
        return f"Its rows are called {rows or 'nothing'}, …, its variables {variables}, …"

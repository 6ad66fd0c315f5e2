"""``ModelArrays``: the arrays of an imported model, which it checks and converts to a ``Model``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import DataError, ProblemError
from pear.presolving import ProgramReduction, RowProgram, reduce_program
from pear.presolving.row_program import Array, Index, Mask
from pear.problem.cost_map import CostMap
from pear.problem.importers.known_names import KnownNames
from pear.problem.importers.row_limits import RowLimits, read_row_limits
from pear.problem.indexed_names import expand_indexed_names, group_indexed_names, indexed_layout
from pear.problem.model import Model
from pear.problem.problem import Problem
from pear.wording import count_noun, join_names

Names = Sequence[Any] | None
"""Names of variables and rows, and pairs (row, variable), which stand for coefficients."""


@dataclass(frozen=True)
class ModelArrays:
    """The arrays of a program with the objective ``½ zᵀQz + costsᵀz + offset``, as an importer reads them.

    Attributes:
        where: the name of the imported model or file in messages and in the report.
        rows: the rows that are not bounds.
        costs: (n,) costs.
        lb: (n,) lower bounds; −∞ means no bound.
        ub: (n,) upper bounds; +∞ means no bound.
        Q: (n, n) with both triangles, or None.
        sense: "min" or "max".
        integer: (n,) bool, True for integer variables; None if all are continuous.
        offset: the constant of the objective.
        variables: the names of the n variables; by default x0, x1, ….
    """

    where: str
    rows: RowLimits
    costs: Array
    lb: Array
    ub: Array
    Q: Any = None
    sense: str = "min"
    integer: Mask | None = None
    offset: float = 0.0
    variables: tuple[str, ...] = ()

    def model(
        self,
        predicted: Names = None,
        cost_map: CostMap | None = None,
        layout: Mapping[str, Tensor] | None = None,
        notes: Sequence[str] = (),
        limits: Names = None,
        recourse: Any = None,
        known: Names = None,
    ) -> Model:
        """Return the model of these arrays, after a check of all numbers.

        The predicted values are the predicted costs, then the predicted right-hand sides, then the predicted
        coefficients.

        Args:
            predicted: names of variables, to predict their costs; names of rows, to predict their right-hand sides;
                and pairs (row, variable), to predict their coefficients. May be empty if ``limits`` is not. None
                predicts all costs that are not known, unless there is a cost map.
            cost_map: a map to the costs from predicted values that are not costs themselves, or None. With a cost map,
                ``predicted`` must be None and ``limits`` None or empty.
            layout: the columns of decisions that belong to each name, as in ``Model``. None joins variables whose names
                differ only in their index to arrays.
            notes: further sentences for the report.
            limits: further names of rows and further pairs, as in ``predicted``.
            recourse: a ``Penalty``, a ``Projection``, a dictionary from names of rows to prices, or None.
            known: names of the right-hand sides, bounds and costs that are known for every sample, or None.

        Raises:
            DataError: a number is NaN, or infinite but not an absent limit.
            ProblemError: bounds cross, the objective is not convex, a name is wrong, or predicted names come beside a
                cost map.
        """
        if cost_map is not None and (predicted is not None or limits):
            raise ProblemError(
                f"{self.where}: predicted names came beside a cost map, which has names of its own; pass one"
            )
        costs = read_model_array(self.where, "cost of variable", self.costs)
        names = self.variables or tuple(f"x{i}" for i in range(len(costs)))
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ProblemError(
                f"{self.where}: two variables are called {twice[0]}; decisions come back by name: give each its own"
            )
        costly, limits, pairs = self._split_predicted(names, predicted, limits)
        told = None if known is None else KnownNames(self, names, [known] if isinstance(known, str) else list(known))
        at = self.rows.numbers_of(self.where, limits)
        places = self._coefficient_places(names, pairs)
        behind = (*(self.rows.names[i] for i in at), *(f"{row}:{name}" for row, name in pairs))
        if told is not None:
            costly = self._check_known(told, names, costly, at, cost_map)
            notes = (f"Known for every sample: {join_names([one.name for one in told.values])}.", *notes)
        if behind:
            costly = names if costly is None else costly
            parts = [f"the right-hand sides of {join_names(behind[: len(at)])}"] if len(at) else []
            parts += [f"the coefficients {join_names(behind[len(at) :])}"] if pairs else []
            notes = (f"Predicted behind the costs: {', and '.join(parts)}.", *notes)
        fixed = self if told is None else told.fixed(self)
        costs = fixed.costs if told is not None else costs
        own = cost_map if costly is None else self._predicted_costs(names, costly, costs, behind)
        inputs = 0 if own is None else own.inputs
        columns = inputs - len(behind) + np.arange(len(behind))
        D = sparse.csr_array((np.ones(len(at)), (at, columns[: len(at)])), shape=(len(self.rows.low), inputs))
        rows = fixed.rows.with_zero_limits(at).with_zero_coefficients(places)
        fixed = replace(fixed, rows=rows)
        entries = places[:, 0] * len(names) + places[:, 1], columns[len(at) :]
        R = sparse.csr_array((np.ones(len(pairs)), entries), shape=(len(self.rows.low) * len(names), inputs))
        A, G = rows.split(R, len(names))
        coefficients = {name: matrix for name, matrix in (("A", A), ("G", G)) if matrix.nnz}
        made = Model(
            problem=fixed._problem(),
            known=torch.from_numpy(costs) if own is None else own.known,
            offset=float(read_model_array(self.where, "constant of the objective", self.offset)[0]),
            variables=names,
            rows=self.rows.names,
            constraints=fixed.rows.labels(),
            constraint_signs=fixed.rows.signs(),
            cost_map=own,
            layout=layout or indexed_layout(names),
            constraint_map=rows.constraint_map(D, coefficients),
            recourse=self.rows.recourse(self.where, recourse, np.unique([*at, *places[:, 0]]).astype(int)),
            known_map=None if told is None else told.map(fixed),
        )
        return replace(made, report=self._report(made, notes))

    def _split_predicted(
        self, names: tuple[str, ...], predicted: Names, limits: Names
    ) -> tuple[Sequence[str] | None, list[str], list[tuple[str, str]]]:
        """Sort the names and pairs that a user passed by what they predict: costs, right-hand sides or coefficients.

        Args:
            names: the names of the n variables.
            predicted: as for ``model``.
            limits: as for ``model``.

        Returns:
            The names of the variables with predicted costs, or None if ``predicted`` is None; the names of the rows
            with predicted right-hand sides; and the pairs (row, variable) of the predicted coefficients.
        """
        given = [[one] if isinstance(one, str) else list(one or ()) for one in (predicted, limits)]
        pairs = [name for part in given for name in part if isinstance(name, tuple)]
        chosen, more = ([name for name in part if isinstance(name, str)] for part in given)
        if predicted is None:
            return None, more, pairs
        chosen = expand_indexed_names(chosen, names)
        rows = {*self.rows.names, *group_indexed_names(self.rows.names)} - {*names}
        costs = [name for name in chosen if name not in rows]
        return costs, [*(name for name in chosen if name in rows), *more], pairs

    def _coefficient_places(self, names: tuple[str, ...], pairs: Sequence[tuple[str, str]]) -> Index:
        """Return the places (c, 2) of predicted coefficients: the number of the row and that of the variable.

        Args:
            names: the names of the n variables.
            pairs: the c pairs (row, variable).

        Raises:
            ProblemError: a pair does not name a row with one limit and a variable, or comes twice.
        """
        found = np.zeros((len(pairs), 2), dtype=int)
        for k, pair in enumerate(pairs):
            if len(pair) != 2 or pair[1] not in names or pair in pairs[:k]:
                came = "which came before" if pair in pairs[:k] else "which is no row and variable of it"
                raise ProblemError(
                    f"{self.where}: a predicted coefficient is a pair (row, variable), each once; got {pair!r}, {came}"
                )
            found[k] = self.rows.numbers_of(self.where, [pair[0]])[0], names.index(pair[1])
        return found

    def _check_known(
        self,
        told: KnownNames,
        names: tuple[str, ...],
        predicted: Sequence[str] | None,
        rows: Any,
        cost_map: CostMap | None,
    ) -> Sequence[str] | None:
        """Check that nothing is both predicted and known, and return the names of the predicted costs.

        Args:
            told: the names that the user passed as ``known``, with their meaning.
            names: the names of the n variables.
            predicted: the names of the predicted costs; None for the default.
            rows: the numbers of the rows with predicted right-hand sides.
            cost_map: a map from predicted values to the costs, or None.

        Returns:
            ``predicted``; but if it is None and some costs are known, the names of all other costs.

        Raises:
            ProblemError: a cost or a right-hand side is predicted and known.
        """
        known = {names[i] for i in told.costs}
        taken = [name for name in predicted or () if name in known]
        taken += [self.rows.names[i] for i in rows if i in told.rows]
        if cost_map is not None and known:
            taken += sorted(known)
        if taken:
            raise ProblemError(f"{self.where}: {taken[0]} is predicted and known; name it once")
        return predicted if predicted is not None or not known else [name for name in names if name not in known]

    def reduced(self, removable: Mask, fixed_rows: Mask | None = None) -> tuple[ModelArrays, ProgramReduction | None]:
        """Return the arrays after presolve has removed rows and variables.

        If constraints contradict each other, nothing is removed, so that a solve finds the problem infeasible.

        Args:
            removable: (n,) bool, True for variables that may be removed.
            fixed_rows: (rows,) bool, True for rows that must stay, because they are predicted or have a price; None for
                no row.

        Returns:
            The arrays after presolve, and the reduction. If nothing was removed, ``self`` and None.
        """
        whole = self._checked()
        absent = ~np.isfinite(whole.rows.low) & ~np.isfinite(whole.rows.high)  # the report counts them
        Q = None if self.Q is None else sparse.csr_array(self.Q)
        rows, stays = whole.rows, absent if fixed_rows is None else absent | fixed_rows
        program = RowProgram(rows.matrix, rows.low, rows.high, whole.lb, whole.ub, Q, self.integer)
        try:
            found = reduce_program(program, stays, removable)
        except ProblemError:
            return self, None
        if not found.removed:
            return self, None
        small, costs = found.program, np.asarray(self.costs, dtype=float)
        force = np.zeros(len(costs)) if Q is None else Q @ found.t
        made = replace(
            self,
            rows=RowLimits(small.rows, small.low, small.high, rows.names, rows.positions[found.rows], rows.canonical),
            costs=found.T.T @ (costs + force),
            lb=small.lb,
            ub=small.ub,
            Q=small.Q,
            integer=small.integer,
            offset=self.offset + float((costs + 0.5 * force) @ found.t),
            variables=tuple(self.variables[i] for i in found.columns) if self.variables else (),
        )
        return made, found

    def _checked(self) -> ModelArrays:
        """Check limits, bounds and coefficients, and return the arrays with infinity for limits of ±1e20 and beyond."""
        low = read_row_limits(self.where, "lower limit of row", self.rows.low, -np.inf)
        high = read_row_limits(self.where, "upper limit of row", self.rows.high, np.inf)
        matrix = self.rows.matrix.copy()
        matrix.eliminate_zeros()
        read_model_array(self.where, "entry of the rows", matrix.data)
        lb = read_row_limits(self.where, "lower bound of variable", self.lb, -np.inf)
        ub = read_row_limits(self.where, "upper bound of variable", self.ub, np.inf)
        return replace(self, rows=replace(self.rows, matrix=matrix, low=low, high=high), lb=lb, ub=ub)

    def _problem(self) -> Problem:
        """Return the problem with these arrays, after a check of every number."""
        checked = self._checked()
        marks = None if self.integer is None or not self.integer.any() else self.integer
        try:
            return Problem(
                Q=None if self.Q is None else sparse.csr_array(self.Q),
                **checked.rows.fields(),
                lb=checked.lb if np.isfinite(checked.lb).any() else None,
                ub=checked.ub if np.isfinite(checked.ub).any() else None,
                sense=self.sense,
                integer=marks,
                n=len(self.costs),
            )
        except ProblemError as error:
            raise ProblemError(f"{self.where}: {error}") from error

    def _predicted_costs(
        self, names: tuple[str, ...], predicted: Sequence[str] | None, costs: Array, behind: tuple[str, ...]
    ) -> CostMap:
        """Return the cost map of a model in which some costs are predicted, and the others are known.

        Args:
            names: the names of the n variables.
            predicted: the names of the variables with predicted costs.
            costs: (n,) costs.
            behind: the names of the predicted values that follow the costs. No cost depends on them.
        """
        chosen = [predicted] if isinstance(predicted, str) else list(predicted or ())
        place = {name: i for i, name in enumerate(names)}
        unknown = [name for name in chosen if name not in place]
        twice = [name for i, name in enumerate(chosen) if name in chosen[:i]]
        if unknown or twice or not (chosen or behind):
            came = f"{twice[0]!r} twice" if twice else "an empty list"
            came = f"{unknown[0]!r}, which is no variable" if unknown else came
            raise ProblemError(
                f"{self.where}: predicted must name variables, each once; got {came}. They are called "
                f"{join_names(names)}; leave predicted out where all costs are predicted"
            )
        at = np.array([place[name] for name in chosen], dtype=int)
        known = costs.copy()
        known[at] = 0.0
        shape = (len(costs), len(at) + len(behind))
        return CostMap(sparse.csr_array((np.ones(len(at)), (at, np.arange(len(at)))), shape), known, (*chosen, *behind))

    def _report(self, made: Model, notes: Sequence[str]) -> str:
        """Return sentences that describe the imported model, one per line."""
        kind = "quadratic" if self.Q is not None else "linear"
        integers = 0 if self.integer is None else int(self.integer.sum())
        program = f"{'mixed-integer ' if 0 < integers < made.problem.n else 'integer ' if integers else ''}{kind}"
        free = int((~np.isfinite(self.lb) & ~np.isfinite(self.ub)).sum())
        fixed = int((self.lb == self.ub).sum())
        binary = 0 if self.integer is None else int((self.integer & (self.lb == 0) & (self.ub == 1)).sum())
        kinds = [
            integers and f"{integers} integer" + (f" ({binary} of them binary)" if binary else ""),
            free and f"{free} free",
            fixed and f"{fixed} fixed",
        ]
        said = ", ".join(word for word in kinds if word)
        source = self.where.replace("the ", "The ", 1) if self.where.startswith("the ") else self.where
        sentences = [
            f"{source}: {'an' if program[0] == 'i' else 'a'} {program} program to {self.sense}imise.",
            f"{count_noun(made.problem.n, 'variable')}{f', {said}' if said else ''}: {join_names(tuple(made.layout))}.",
            self._describe_rows(),
            self._describe_costs(made),
            *([f"The objective has the constant {made.offset:g}."] if made.offset else []),
            *notes,
        ]
        return "\n".join(sentences)

    def _describe_rows(self) -> str:
        """Return a sentence about the number of rows of each kind."""
        low, high = np.isfinite(self.rows.low), np.isfinite(self.rows.high)
        equal = self.rows.low == self.rows.high
        kinds = {
            "equality": int(equal.sum()),
            "inequality": int((low ^ high).sum()),
            "row with two limits": int((low & high & ~equal).sum()),
            "row without limits, left out": int((~low & ~high).sum()),
        }
        return (", ".join(count_noun(number, kind) for kind, number in kinds.items() if number) or "No rows") + "."

    @staticmethod
    def _describe_costs(made: Model) -> str:
        """Return a sentence about which costs of a model are predicted."""
        n, own = made.problem.n, made.cost_map
        if own is None:
            return f"All {n} costs are predicted; the model's own are m.known." if n > 1 else "The cost is predicted."
        M: Any = own.M if sparse.issparse(own.M) else sparse.csr_array(np.asarray(own.M))
        moved = int((np.diff(M.indptr) > 0).sum())
        return (
            f"Predicted: {count_noun(own.inputs, 'value')}, {join_names(own.names)}; {moved} of {n} costs depend on "
            f"{'them' if own.inputs > 1 else 'it'}, the others are known."
        )


def read_model_array(where: str, name: str, values: Any) -> Array:
    """Convert numbers of an imported model to an array of one dimension, after a check that all are finite.

    Args:
        where: the name of the imported model or file in messages.
        name: the name of the numbers in messages.
        values: the numbers.
    """
    array = np.array(values, dtype=float).reshape(-1)
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{where}: {name}[{at}] is {array[at]:g}; expected a finite number: correct this entry")
    return array

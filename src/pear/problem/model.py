"""``Model``: a problem with the maps from predicted values to its numbers, and the names of its variables and rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import DataError, ProblemError
from pear.problem.constraint_map import ConstraintMap, constraint_sides
from pear.problem.cost_map import CostMap
from pear.problem.curvature_map import CurvatureMap
from pear.problem.elastic_problem import ElasticProblem
from pear.problem.html_tables import model_html_table
from pear.problem.known_map import KnownMap
from pear.problem.matrix import densify_small_matrix
from pear.problem.model_checks import check_model_costs, check_model_maps, read_model_costs
from pear.problem.named_decisions import NamedDecisions
from pear.problem.pandas_data import is_pandas_frame
from pear.problem.penalty_and_projection import Penalty, Projection
from pear.problem.predicted_entries import Entries, map_predicted_entries
from pear.problem.problem import Problem
from pear.problem.sample_index import sample_index
from pear.problem.tensor_conversion import to_batch_tensor


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A problem together with what is predicted about it and the names of its variables and rows.

    Losses, layers and ``pear.fit`` accept a model in place of a problem. The cost map turns predicted values ŷ (k,)
    into costs, and the constraint map turns them into right-hand sides, bounds and coefficients.

    Attributes:
        problem: the ``Problem``, with n variables.
        known: (n,) float64 costs that are not predicted, or (N, n) with a row for each sample; by default 0. A cost map
            adds them to ``M ŷ``. Without a cost map nothing is added to the predicted costs; ``known`` then holds the
            costs that the imported file or model has itself.
        offset: the constant of the objective, which solves leave out: the model's value is ``solution.value + offset``.
            A tensor (N,) if the constant depends on known values of samples.
        variables: n names.
        rows: names of the rows, in the order of the imported file or model.
        cost_map: the map from the predicted values to the n costs; None if the predicted values are the n costs. If a
            constraint map is passed without a cost map, no cost is predicted, and a map to ``known`` is stored here.
        layout: for every name in the result of ``decision``, the columns of the decisions (B, n) that belong to the
            name, in the shape of the original variable. By default each of ``variables`` has one column.
        report: sentences that describe the imported model.
        constraint_map: the map from the predicted values to right-hand sides, bounds and coefficients; None if only
            costs are predicted.
        recourse: the rule for decisions that violate the true constraints. A model with a constraint map needs a
            recourse to decide; ``with_recourse`` can add it later.
        constraints: names of the rows of A, then of the rows of G; empty if they have no names.
        known_map: the map from known values, such as a battery's level this morning, to costs, right-hand sides,
            bounds and matrices; None without known values. They are known before the decision and may differ between
            samples. To decide, the model needs them, through ``with_known`` or the argument ``known`` of a call.
        curvature_map: the map from predicted weights of quadratic terms to Q; None if no such weight is predicted.
        constraint_signs: for each of ``constraints``, 1 if the problem has the row as it was written, −1 if an importer
            has reversed it (a lower limit), 0 if that is not known (a row of CVXPY); empty if all are 1.

    Example:
        >>> import torch
        >>> from pear.problem import Problem
        >>> m = Model(Problem(lb=0, ub=1, n=2), cost_map=CostMap([[1.0], [-1.0]]), variables=("buy", "sell"))
        >>> m.cost(torch.tensor([3.0]))
        tensor([ 3., -3.])
        >>> m.decision(torch.tensor([[0.0, 1.0], [0.5, 0.0]]))["sell"]
        tensor([1., 0.])
    """

    problem: Problem
    known: Tensor = field(default_factory=lambda: torch.empty(0))  # which __post_init__ fills
    offset: float | Tensor = 0.0
    variables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    cost_map: CostMap | None = None
    layout: Mapping[str, Tensor] = field(default_factory=dict)
    report: str = ""
    constraint_map: ConstraintMap | None = None
    recourse: Penalty | Projection | None = None
    constraints: tuple[str, ...] = ()
    known_map: KnownMap | None = None
    curvature_map: CurvatureMap | None = None
    constraint_signs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n, rows = self.problem.n, self.constraint_map
        object.__setattr__(self, "known", read_model_costs(self.known, n))
        check_model_maps(self)
        if rows is not None and self.cost_map is None:
            M = densify_small_matrix(sparse.csr_array((n, rows.inputs)))
            object.__setattr__(self, "cost_map", CostMap(M, self.known if self.known.numel() else torch.zeros(n)))
        check_model_costs(self)
        if not self.known.numel():
            zero = torch.zeros(n, dtype=torch.float64)
            object.__setattr__(self, "known", zero if self.cost_map is None else self.cost_map.known)
        object.__setattr__(self, "variables", tuple(self.variables) or tuple(f"x{i}" for i in range(n)))
        if len(self.variables) != n:
            raise ProblemError(f"variables must name all {n} variables; got {len(self.variables)} names")
        if not self.layout:
            object.__setattr__(self, "layout", {name: torch.tensor(i) for i, name in enumerate(self.variables)})

    @property
    def inputs(self) -> int:
        """The number k of values that are predicted for a sample."""
        return self.problem.n if self.cost_map is None else self.cost_map.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the k predicted values."""
        if self.cost_map is None:
            return self.variables
        return self.cost_map.names or tuple(f"y{i}" for i in range(self.inputs))

    def cost(self, predicted: Any = None, keys: Sequence[Hashable] | None = None) -> Tensor:
        """Compute the costs ``M ŷ + known``, (n,) or (B, n), from predicted values ŷ, with the M of the cost map.

        The result is differentiable. Without a cost map it equals the predicted values; ``known`` is not added.

        Args:
            predicted: (k,) or (B, k), the values ŷ. If the model has no cost map, or predicts no values, ŷ may be
                omitted, and the result is ``known``.
            keys: the row numbers of the B samples in ``known``, if ``known`` has one row per sample.
        """
        if predicted is None:
            if self.cost_map is not None and self.inputs:
                raise ProblemError(f"the cost depends on {self.inputs} predicted values; pass them: m.cost(values)")
            return self.known
        return (self.cost_map or CostMap(known=torch.zeros(self.problem.n)))(predicted, keys)

    def curvature(self, predicted: Any, keys: Sequence[Hashable] | None = None) -> Tensor | None:
        """Compute Q (B, n, n) from predicted values; None if the model has no curvature map. Differentiable.

        Args:
            predicted: (k,) or (B, k).
            keys: the row numbers of the B samples, if the problem's fields differ between samples; by default 0, 1, ….
        """
        own = self.problem if keys is None else self.problem[list(keys)]
        return None if self.curvature_map is None else self.curvature_map(to_batch_tensor(predicted), own.Q)

    @classmethod
    def predicting(
        cls,
        problem: Problem,
        cost: Entries = True,
        b: Entries = False,
        h: Entries = False,
        lb: Entries = False,
        ub: Entries = False,
        recourse: Penalty | Projection | None = None,
        known: Any = None,
        A: Entries = False,
        G: Entries = False,
    ) -> Model:
        """Make a model in which each predicted value is one cost, one limit or one coefficient.

        The forecast ŷ (B, k) has the predicted costs first, then the predicted entries of b, h, lb, ub, A and G. The
        entries of a field are in the order of the argument for this field. A predicted entry replaces the number of the
        problem, and ``model.problem`` has 0 in its place.

        Args:
            problem: the problem to decide.
            cost: which costs are predicted: True for all, a list of indices, or False for none.
            b: which right-hand sides of equalities are predicted, in the form of ``cost``.
            h: which right-hand sides of inequalities are predicted, in the form of ``cost``.
            lb: which lower bounds are predicted, in the form of ``cost``.
            ub: which upper bounds are predicted, in the form of ``cost``.
            recourse: the rule for a decision under the forecast that violates the true constraints.
            known: (n,) or (N, n) costs that are not predicted, with 0 for every predicted cost. By default 0; must be
                passed if no cost is predicted and the problem has no Q.
            A: which coefficients of equalities are predicted: a list of pairs (row, column), True for all that are not
                0, or False for none. Needs a dense problem.
            G: which coefficients of inequalities are predicted, in the form of ``A``.

        Raises:
            ProblemError: an index is out of range, nothing is predicted, a predicted cost is also known, or the
                recourse does not fit.

        Example:
            >>> import pear
            >>> p = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
            >>> m = Model.predicting(p, b=True, recourse=pear.Penalty(b=5.0))
            >>> m.names, m.right_hand_sides([[1.0, 2.0, 3.0]])
            (('x0', 'x1', 'b[0]'), {'b': tensor([[3.]], dtype=torch.float64)})
        """
        if not getattr(problem, "has_program", True):
            raise ProblemError("an Oracle has no right-hand sides that could be predicted; pass the Oracle itself")
        entries = {"b": b, "h": h, "lb": lb, "ub": ub, "A": A, "G": G}
        plain, cost_map, rows = map_predicted_entries(problem, cost, entries, known)
        fixed = torch.empty(0) if known is None else cost_map.known
        return cls(plain, known=fixed, cost_map=cost_map, constraint_map=rows, recourse=recourse)

    def right_hand_sides(self, predicted: Any, keys: Sequence[Hashable] | None = None) -> dict[str, Tensor]:
        """Compute the predicted right-hand sides and bounds from predicted values. Differentiable.

        Args:
            predicted: (k,) or (B, k).
            keys: the row numbers of the B samples, if the problem's fields differ between samples; by default 0, 1, ….

        Returns:
            Those of b (B, p), h (B, m), lb (B, n) and ub (B, n) that are predicted, by name. They can be passed to
            ``pear.solve(model.problem, …)`` as keyword arguments.
        """
        if self.constraint_map is None:
            return {}
        own = constraint_sides(self.problem if keys is None else self.problem[list(keys)])
        return self.constraint_map(to_batch_tensor(predicted), {name: own[name] for name in self.constraint_map.sides})

    def coefficients(self, predicted: Any, keys: Sequence[Hashable] | None = None) -> dict[str, Tensor]:
        """Compute A (B, p, n) and G (B, m, n), by name, if some of their coefficients are predicted. Differentiable.

        Args:
            predicted: (k,) or (B, k).
            keys: the row numbers of the B samples, if the problem's fields differ between samples; by default 0, 1, ….
        """
        if self.constraint_map is None or not self.constraint_map.matrices:
            return {}
        own = self.problem if keys is None else self.problem[list(keys)]
        matrices = {name: getattr(own, name) for name in self.constraint_map.matrices}
        return self.constraint_map.coefficients(to_batch_tensor(predicted), matrices)

    @cached_property
    def predicts_costs(self) -> bool:
        """True if some cost depends on the predicted values, False if all costs are known."""
        M: Any = None if self.cost_map is None else self.cost_map.M
        return M is None or bool(abs(M).sum() > 0)

    @cached_property
    def elastic(self) -> ElasticProblem:
        """The problem with slack variables for the rows and bounds that have a price. Built at the first use."""
        if self.constraint_map is None or self.recourse is None:
            raise ProblemError("the model predicts no right-hand sides, so that it has no elastic problem")
        return ElasticProblem(self.problem, self.recourse.prices(self.problem, self.constraint_map))

    def decision(self, z: Any) -> dict[str, Any]:
        """Return decisions by the names in ``layout``. In a batch, a variable of shape (2, 3) has the shape (B, 2, 3).

        Variables with an index (``charge[0]``, ``charge[1]``, …) are joined to an array, ``charge``. The result also
        accepts the name of a single variable, such as ``charge[3]``.

        Args:
            z: (n,) or (B, n), a tensor, or any value that NumPy converts to an array, such as the result of
                ``DecisionRegressor.decide``. For a DataFrame the result holds Series and DataFrames with its index.

        Raises:
            DataError: z has another number of variables.
        """
        n, given = self.problem.n, z
        z = z if isinstance(z, Tensor) else torch.from_numpy(np.array(z))
        if z.ndim not in (1, 2) or z.shape[-1] != n:
            raise DataError(f"z must have shape ({n},) or (B, {n}), one entry for each variable; got {tuple(z.shape)}")
        parts = {name: z[..., at.to(z.device)] for name, at in self.layout.items()}
        return NamedDecisions(parts, z, self.variables, given.index if is_pandas_frame(given) else None)

    def with_recourse(self, recourse: Penalty | Projection) -> Model:
        """Return the model with a recourse, the rule for decisions that violate the true constraints."""
        return replace(self, recourse=recourse)

    def with_known(self, known: Any, count: int | None = None) -> Model:
        """Return the model of N samples with their known values filled in.

        Sample i of the result has row i of ``known``. Losses select samples by ``keys``, which are these row numbers,
        and ``model[rows]`` returns the model of the samples with these numbers.

        Args:
            known: a dictionary from the names of the known values to arrays, (N, …), or (…) for a value that all
                samples share; a DataFrame with a column for each entry (``level``, ``holding[3]``); or, if the model
                has one known value, an array. If all samples share all values, all samples share the result.
            count: the expected number N of samples; None accepts any number.

        Raises:
            ProblemError: the model has no known values, or ``known`` has other names or shapes than the model expects.

        Example:
            >>> import pear
            >>> p = pear.Problem(A=[[1.0, 1.0]], b=[0.0], lb=0.0)
            >>> m = pear.Model(p, known_map=pear.KnownMap({"demand": ()}, b=[[1.0]]))
            >>> pear.solve(m.with_known({"demand": [2.0, 3.0]}), [[1.0, 4.0], [3.0, 2.0]]).x.tolist()
            [[2.0, 0.0], [0.0, 3.0]]
        """
        rows = self.known_map
        if rows is None:
            raise ProblemError("the model has no known values; name them when it is imported: known=[…]")
        values = rows.read(known, count)
        fields = rows.fields(self.problem, values)
        batch = len(values) if values.ndim == 2 and fields else self.problem.batch
        changes: dict[str, Any] = {"problem": self.problem._with(**fields, batch=batch), "known_map": None}
        if "offset" in rows.targets:
            changes["offset"] = self.offset + rows.change("offset", values)[..., 0]
        if "cost" in rows.targets:
            changes["known"] = self.known + rows.change("cost", values)
            own = self.cost_map
            changes["cost_map"] = None if own is None else CostMap(own.M, changes["known"], own.names)
        return replace(self, **changes)

    def relaxed(self) -> Model:
        """Return the model with every variable continuous."""
        return replace(self, problem=self.problem.relaxed())

    def __getitem__(self, index: Any) -> Model:
        """Return the model of the samples at ``index``, which may be anything that indexes a ``Problem``."""

        def select(value: Any, shared_dimensions: int) -> Any:
            if not isinstance(value, Tensor) or value.ndim == shared_dimensions:
                return value
            return value[sample_index(index, len(value), value.device)]

        own = None if self.cost_map is None else self.cost_map[index]
        known = select(self.known, 1) if own is None else own.known
        return replace(self, problem=self.problem[index], cost_map=own, known=known, offset=select(self.offset, 0))

    def __repr__(self) -> str:
        rows = "" if self.constraint_map is None else f", {self.constraint_map}, {self.recourse}"
        rows += "" if self.known_map is None else f", {self.known_map}"
        costs = "" if self.cost_map else ", all costs predicted"
        return f"Model({describe_model(self.problem, self.cost_map)}{costs}{rows})"

    def _repr_html_(self) -> str:
        return model_html_table(self)

    def __str__(self) -> str:
        return self.report or repr(self)


def describe_model(problem: Problem, cost_map: CostMap | None) -> str:
    """Return a description of a problem, and of the cost map unless it is None, in one line."""
    return f"{problem}" if cost_map is None else f"{problem}, {cost_map}"


def split_cost_model(problem: Any) -> tuple[Problem, CostMap | None]:
    """Return the problem and the cost map of a model that predicts costs alone.

    A ``Problem`` is returned with None, and so is the problem of a model without a cost map.

    Raises:
        ProblemError: the argument is neither a ``Problem`` nor a ``Model``, or is a model that also predicts
            constraints or the weight of a quadratic term, or whose known values are missing.
    """
    if model_with_predicted_rows(problem) is not None:
        raise ProblemError(
            "this takes a model that predicts costs alone, and this one predicts right-hand sides as well; use "
            "PEARLoss, SFGELoss, DecisionLayer, MSELoss, regret, normalized_regret, solve, fit, tune or "
            "DecisionRegressor"
        )
    if isinstance(problem, Model) and problem.curvature_map is not None:
        raise ProblemError(
            "this takes a model that predicts costs alone, and this one predicts the weight of a quadratic term; use "
            "PEARLoss, regret, normalized_regret, solve, fit or DecisionRegressor"
        )
    return problem_of_model(problem), problem.cost_map if isinstance(problem, Model) else None


def model_variable_names(problem: Problem | Model) -> tuple[str, ...]:
    """Return the names of the variables of a ``Model``; () for a ``Problem``, whose variables have no names."""
    return problem.variables if isinstance(problem, Model) else ()


def problem_of_model(problem: Any) -> Problem:
    """Return the problem inside a ``Model``. A ``Problem`` is returned unchanged.

    Raises:
        ProblemError: the argument is neither a ``Problem`` nor a ``Model``.
    """
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, Model):
        return problem.problem
    came = type(problem).__name__
    inside = getattr(problem, "problem", None)
    advice = "pass its problem: task.problem" if isinstance(inside, Problem) else "make one: pear.Problem(Q, A, b, …)"
    raise ProblemError(f"expected a pear.Problem or a pear.Model, got {came}; {advice}")


def model_with_predicted_rows(problem: Any) -> Model | None:
    """Return the argument if it is a model with a constraint map, and None for anything else.

    Raises:
        ProblemError: the model has a constraint map and no recourse, or the known values of the model are missing.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        problem.known_map.read(None)  # raises the error about missing known values
    if not isinstance(problem, Model) or problem.constraint_map is None:
        return None
    if problem.recourse is None:
        raise ProblemError(
            "a model that predicts right-hand sides must say what happens where the decision violates the truth: pass "
            "recourse=…, or model.with_recourse(pear.Penalty(h=…)), a price per unit, or "
            "model.with_recourse(pear.Projection())"
        )
    return problem


def model_input_count(problem: Any) -> int:
    """Return the number of values that are predicted for a sample of a ``Problem`` or ``Model``."""
    return problem.inputs if isinstance(problem, Model) else problem_of_model(problem).n

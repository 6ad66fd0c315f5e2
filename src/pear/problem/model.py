"""``Model``: a problem with its cost map, its known costs and the names of its variables and rows."""

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
from pear.problem.array_conversion import as_batch, sample_index
from pear.problem.constraint_map import ConstraintMap, dense_if_small, own_sides, read_known_costs
from pear.problem.cost_map import CostMap
from pear.problem.curvature_map import CurvatureMap
from pear.problem.elastic_problem import ElasticProblem
from pear.problem.html_tables import model_table
from pear.problem.known_map import KnownMap
from pear.problem.named_decisions import NamedDecisions
from pear.problem.penalty_and_projection import Penalty, Projection, check_recourse
from pear.problem.predicted_entries import Entries, map_predicted_entries
from pear.problem.problem import Problem
from pear.problem.row_pairing import is_frame


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A problem together with what is predicted about it and the names of its variables and rows.

    Losses, layers and ``pear.fit`` take a model wherever they take a problem. The cost map turns predicted values ŷ
    into costs, and the constraint map turns them into right-hand sides and bounds.

    Attributes:
        problem: the plain problem, with n costs.
        known: (n,) float64, the model's own costs: those of the imported file, or the part that the cost map adds to
            predicted costs. Shape (N, n) where samples have known costs of their own. Zero where none are known.
        offset: the constant of the objective, which solves leave out: the model's value is ``solution.value + offset``.
            A tensor (N,) where it depends on known values of samples.
        variables: n names.
        rows: names of the rows, in the order of the source.
        cost_map: the map from the predicted values to the n costs; None where all costs are predicted as they are.
        layout: for every name in the result of ``decision``, the columns of z that belong to it, in the shape of the
            original variable. By default each of ``variables`` has one column.
        report: sentences that describe the imported model.
        constraint_map: the map from the predicted values to right-hand sides and bounds; None where only costs are
            predicted. A model with a constraint map and no cost map predicts no costs: they must be given as ``known``.
        recourse: the rule for decisions that violate the true constraints. A model with a constraint map needs one to
            decide; ``with_recourse`` can add it later.
        constraints: names of the rows of A, then of those of G; empty where they have no names.
        known_map: the map from values that are known for every sample, such as a battery's level this morning, to
            costs, right-hand sides, bounds and matrices; None where there are none. Such a model decides after
            ``with_known``, or where ``known=`` comes with a call.
        curvature_map: the map from predicted weights of quadratic terms to Q; None where no such weight is predicted.

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

    def __post_init__(self) -> None:
        n, rows = self.problem.n, self.constraint_map
        if not self.problem.has_program and (rows is not None or self.known_map is not None):
            raise ProblemError("an Oracle has no right-hand sides that could be predicted or known; predict its costs")
        object.__setattr__(self, "known", read_known_costs(self.known, n))
        given = self.known.numel() > 0
        check_recourse(self.problem, rows, self.recourse)
        if self.known_map is not None:
            self.known_map.check(self.problem)
        if self.curvature_map is not None and (rows is not None or self.problem.is_sparse):
            why = "the matrices of a sparse problem are fixed" if rows is None else "right-hand sides are predicted"
            raise ProblemError(f"the weight of a quadratic term cannot be predicted here: {why}; give it a value")
        if rows is not None and self.cost_map is None:
            known = self.known if given else torch.zeros(n, dtype=torch.float64)
            object.__setattr__(self, "cost_map", CostMap(dense_if_small(sparse.csr_array((n, rows.inputs))), known))
        own = self.cost_map
        if rows is not None and own is not None and rows.inputs != own.inputs:
            raise ProblemError(
                f"the cost map takes {own.inputs} predicted values and the constraint map {rows.inputs}; give both a "
                "column for each predicted value"
            )
        if own is not None and own.n != n:
            raise ProblemError(f"the cost map gives {own.n} costs, and the problem has {n} variables; make them equal")
        if given and own is not None and not torch.equal(self.known, own.known.to(self.known)):
            raise ProblemError(
                "known costs came beside a cost map that has others; pass them to the map: pear.CostMap(M, known=…)"
            )
        silent = rows is not None and not given and not self.predicts_costs and self.problem.Q is None
        silent &= self.known_map is None or not {"cost", "Q"} & {*self.known_map.targets}
        if silent and own is not None and not bool(own.known.any()):
            raise ProblemError(
                "all costs are zero: no cost is predicted, no known costs were given, and the objective has no Q; pass "
                "known=…, a cost for each variable (zeros, where violations alone are to count)"
            )
        if not given:
            object.__setattr__(self, "known", torch.zeros(n, dtype=torch.float64) if own is None else own.known)
        object.__setattr__(self, "variables", tuple(self.variables) or tuple(f"x{i}" for i in range(n)))
        if len(self.variables) != n:
            raise ProblemError(f"variables must name all {n} variables; got {len(self.variables)} names")
        if not self.layout:
            object.__setattr__(self, "layout", {name: torch.tensor(i) for i, name in enumerate(self.variables)})

    @property
    def inputs(self) -> int:
        """The number of values that are predicted for a sample."""
        return self.problem.n if self.cost_map is None else self.cost_map.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the predicted values."""
        if self.cost_map is None:
            return self.variables
        return self.cost_map.names or tuple(f"y{i}" for i in range(self.inputs))

    def cost(self, predicted: Any = None, keys: Sequence[Hashable] | None = None) -> Tensor:
        """Compute the n costs ``M ŷ + known`` from predicted values ŷ. The result is differentiable.

        Args:
            predicted: (k,) or (B, k), the values ŷ. If the model has no cost map, they are the costs themselves. If
                they are omitted, the result is ``known``, the part of the costs that is not predicted.
            keys: the row numbers of the B samples in ``known``, if ``known`` has one row per sample.
        """
        if predicted is None:
            if self.cost_map is not None and self.inputs:
                raise ProblemError(f"the cost depends on {self.inputs} predicted values; pass them: m.cost(values)")
            return self.known
        return (self.cost_map or CostMap(known=torch.zeros(self.problem.n)))(predicted, keys)

    def curvature(self, predicted: Any, keys: Sequence[Hashable] | None = None) -> Tensor | None:
        """Q (B, n, n) under predicted values (B, k), differentiable; None where no weight of a quadratic is predicted.

        ``keys`` are B row numbers, where samples have a Q of their own; if omitted, the batch is all of them.
        """
        own = self.problem if keys is None else self.problem[list(keys)]
        return None if self.curvature_map is None else self.curvature_map(as_batch(predicted), own.Q)

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
        """A model that predicts the chosen costs, limits and coefficients directly, without a map of their own.

        The forecast ŷ (B, k) has the predicted costs first, then the predicted entries of b, h, lb, ub, A and G, each
        in its own order. The problem's own value of a predicted entry is ignored; ``model.problem`` has 0 there.

        Args:
            problem: the problem to decide.
            cost: which costs are predicted: True for all, a list of indices, or False for none.
            b: which right-hand sides of equalities, in the same way.
            h: which right-hand sides of inequalities.
            lb: which lower bounds.
            ub: which upper bounds.
            recourse: what happens where the decision under the forecast violates the truth.
            known: (n,) or (N, n) costs that are not predicted, with 0 at those that are. May be left out where some
                cost is predicted or the problem has a Q; it is then 0.
            A: which coefficients of equalities: pairs (row, column), or True for all that are not 0. A dense problem.
            G: which coefficients of inequalities.

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
        """The predicted right-hand sides and bounds, by name, as differentiable functions of the predicted values.

        Args:
            predicted: (k,) or (B, k).
            keys: B row numbers, where samples have fields of their own; if omitted, the batch is all of them.

        Returns:
            (B, r) for each of b, h, lb and ub that is predicted, as overrides for ``pear.solve(model.problem, …)``.
        """
        if self.constraint_map is None:
            return {}
        own = own_sides(self.problem if keys is None else self.problem[list(keys)])
        return self.constraint_map(as_batch(predicted), {name: own[name] for name in self.constraint_map.sides})

    def coefficients(self, predicted: Any, keys: Sequence[Hashable] | None = None) -> dict[str, Tensor]:
        """A and G with their predicted coefficients, (B, r, n) by name; arguments as for ``right_hand_sides``."""
        if self.constraint_map is None or not self.constraint_map.matrices:
            return {}
        own = self.problem if keys is None else self.problem[list(keys)]
        matrices = {name: getattr(own, name) for name in self.constraint_map.matrices}
        return self.constraint_map.coefficients(as_batch(predicted), matrices)

    @cached_property
    def predicts_costs(self) -> bool:
        """Whether some cost depends on the predicted values; False where all costs are known."""
        M: Any = None if self.cost_map is None else self.cost_map.M
        return M is None or bool(abs(M).sum() > 0)

    @cached_property
    def elastic(self) -> ElasticProblem:
        """The problem with slacks on the rows that have a price, built once."""
        if self.constraint_map is None or self.recourse is None:
            raise ProblemError("the model predicts no right-hand sides, so that it has no elastic problem")
        return ElasticProblem(self.problem, self.recourse.prices(self.problem, self.constraint_map))

    def decision(self, z: Any) -> dict[str, Any]:
        """Split decisions z (n,) or (B, n) by the names of ``layout``. Each part has its own shape, behind B.

        Variables with an index (``charge[0]``, ``charge[1]``, …) make an array, ``charge``; a single one is found by
        its own name as well. Of a DataFrame (B, n) the parts are a Series or a DataFrame with its index.

        Args:
            z: a tensor, or any value that NumPy converts to an array, such as the result of
                ``DecisionRegressor.decide``.

        Raises:
            DataError: z has another number of variables.
        """
        n, given = self.problem.n, z
        z = z if isinstance(z, Tensor) else torch.from_numpy(np.array(z))
        if z.ndim not in (1, 2) or z.shape[-1] != n:
            raise DataError(f"z must have shape ({n},) or (B, {n}), one entry for each variable; got {tuple(z.shape)}")
        parts = {name: z[..., at.to(z.device)] for name, at in self.layout.items()}
        return NamedDecisions(parts, z, self.variables, given.index if is_frame(given) else None)

    def with_recourse(self, recourse: Penalty | Projection) -> Model:
        """Return the same model with a recourse, the rule for decisions that violate the true constraints."""
        return replace(self, recourse=recourse)

    def with_known(self, known: Any, count: int | None = None) -> Model:
        """The model of N samples with their known values in place; everything that takes a model takes it.

        Its rows are those of ``known``: ``keys`` of a loss are their numbers, and ``model[rows]`` is a part of them.

        Args:
            known: a dictionary from the names of the known values to arrays (N, …), or (…) where all samples share a
                value; a DataFrame with a column for each entry (``level``, ``holding[3]``); or an array, where there is
                one known value. Where all samples share all values, the result is a model that they share.
            count: the expected number N of samples; None for any.

        Raises:
            ProblemError: the model has no known values, or these are not what it expects.

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
        """The same model with every variable continuous."""
        return replace(self, problem=self.problem.relaxed())

    def __getitem__(self, index: Any) -> Model:
        """The model of the samples at ``index``, which may be anything that indexes a ``Problem``."""
        own = None if self.cost_map is None else self.cost_map[index]
        offset = self.offset
        if isinstance(offset, Tensor) and offset.ndim:
            offset = offset[sample_index(index, len(offset), offset.device)]
        known = self.known if own is None else own.known
        return replace(self, problem=self.problem[index], cost_map=own, known=known, offset=offset)

    def __repr__(self) -> str:
        rows = "" if self.constraint_map is None else f", {self.constraint_map}, {self.recourse}"
        rows += "" if self.known_map is None else f", {self.known_map}"
        costs = "" if self.cost_map else ", all costs predicted"
        return f"Model({describe_problem(self.problem, self.cost_map)}{costs}{rows})"

    def _repr_html_(self) -> str:
        """Show the model as a table in a notebook."""
        return model_table(self)

    def __str__(self) -> str:
        return self.report or repr(self)


def describe_problem(problem: Problem, cost_map: CostMap | None) -> str:
    """A description of the problem and its cost map, if any, in one line."""
    return f"{problem}" if cost_map is None else f"{problem}, {cost_map}"


def problem_and_cost_map(problem: Any) -> tuple[Problem, CostMap | None]:
    """The problem and the cost map of a ``Problem`` (which has none) or a ``Model``.

    Raises:
        ProblemError: it is neither a ``Problem`` nor a ``Model``, or a model that predicts right-hand sides, which the
            caller does not support.
    """
    if recourse_model(problem) is not None:
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
    return plain_problem(problem), problem.cost_map if isinstance(problem, Model) else None


def variable_names(problem: Problem | Model) -> tuple[str, ...]:
    """The names of the variables of a ``Model``; those of a ``Problem`` have none."""
    return problem.variables if isinstance(problem, Model) else ()


def plain_problem(problem: Any) -> Problem:
    """The ``Problem`` of a ``Model``; a ``Problem`` is returned as it is.

    Raises:
        ProblemError: it is neither a ``Problem`` nor a ``Model``.
    """
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, Model):
        return problem.problem
    came = type(problem).__name__
    inside = getattr(problem, "problem", None)
    advice = "pass its problem: task.problem" if isinstance(inside, Problem) else "make one: pear.Problem(Q, A, b, …)"
    raise ProblemError(f"expected a pear.Problem or a pear.Model, got {came}; {advice}")


def recourse_model(problem: Any) -> Model | None:
    """The argument where it is a model that predicts right-hand sides, else None.

    Raises:
        ProblemError: it predicts right-hand sides and has no recourse, or it needs known values and gets none.
    """
    if isinstance(problem, Model) and problem.known_map is not None:
        problem.known_map.read(None)  # which says what is missing
    if not isinstance(problem, Model) or problem.constraint_map is None:
        return None
    if problem.recourse is None:
        raise ProblemError(
            "a model that predicts right-hand sides must say what happens where the decision violates the truth: pass "
            "recourse=…, or model.with_recourse(pear.Penalty(h=…)), a price per unit, or "
            "model.with_recourse(pear.Projection())"
        )
    return problem


def input_count(problem: Any) -> int:
    """The number of values that are predicted for a sample of a ``Problem`` or ``Model``."""
    return problem.inputs if isinstance(problem, Model) else plain_problem(problem).n

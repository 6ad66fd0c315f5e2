"""``TwoStages``: a program whose variables and rows are split into two stages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model, Penalty, Problem
from pear.problem.constraint_map import constraint_sides, refuse_constraint_coefficients
from pear.problem.derived_problems import problem_with_curvature
from pear.problem.matrix import Matrix
from pear.problem.problem_fields import is_field_per_sample
from pear.problem.sample_keys import select_by_keys
from pear.scenarios.blocks import select_block


class TwoStages:
    """The minimised program of a model, with its variables and rows split into two stages.

    The first stage is decided now, and the second stage when it is known which scenario comes true. If the model has a
    ``Penalty``, the program has slacks, which belong to the second stage. A row is shared by all scenarios if it only
    contains first-stage variables and its right-hand side is not predicted.

    Args:
        model: the model. Its recourse must be a ``Penalty`` or None.
        first: the names of the first-stage variables: names of ``model.layout``, or single variables.
        curvature: (n,), (n, n) or (N, n, n) curvature to add for the variables of the model; None adds none.

    Attributes:
        model: the model.
        exact: the program with its integers and without added curvature, minimised, without costs.
        problem: the relaxed program with the added curvature, minimised, without costs.
        elastic: the model's problem with a slack for each constraint that may be violated at a price; None without a
            ``Penalty``.
        n: the number of variables of the model. The slacks follow them in the program.
        size: the number of columns of the program, slacks included.
        first, second: the columns of the two stages, in ascending order.
        shared, own: for "b" (rows of A) and "h" (rows of G), the rows that exist once for all scenarios, and the rows
            that exist once for each scenario.
        predicted: for "b", "h", "lb" and "ub" a mask of the predicted entries.
        varying_costs: (size,) mask of the columns whose costs depend on predicted values, and so on the scenario.
    """

    def __init__(self, model: Model, first: Sequence[str], curvature: Matrix | None = None) -> None:
        _check_two_stage_model(model)
        self.model, self.n = model, model.problem.n
        elastic = model.constraint_map is not None and model.recourse is not None
        self.elastic = model.elastic if elastic else None
        plain = model.problem if self.elastic is None else self.elastic.problem
        self.exact = _minimise_stages(plain)
        self.curvature = curvature
        if curvature is None:
            self.problem = self.exact.relaxed()
        elif self.elastic is not None:
            self.problem = _minimise_stages(self.elastic.smoothed(curvature))
        else:
            self.problem = problem_with_curvature(self.exact.relaxed(), curvature)
        chosen = find_first_stage_columns(model, first)
        is_first = torch.zeros(plain.n, dtype=torch.bool)
        is_first[chosen] = True
        self.first, self.second = is_first.nonzero()[:, 0], (~is_first).nonzero()[:, 0]
        self.predicted = self._predicted_sides()
        self.shared, self.own = {}, {}
        for side, name in (("b", "A"), ("h", "G")):
            reaches = _rows_touching_stage(getattr(self.problem, name), self.second, len(self.predicted[side]))
            own = reaches | self.predicted[side]
            self.shared[side], self.own[side] = (~own).nonzero()[:, 0], own.nonzero()[:, 0]
            if side == "b" and bool((self.predicted["b"] & ~reaches).any()):
                at = int((self.predicted["b"] & ~reaches).nonzero()[0])
                raise ProblemError(
                    f"b[{at}] is predicted and its row holds first-stage variables alone, so that no decision keeps it "
                    "in two scenarios; give its violation a price: model.with_recourse(pear.Penalty(b=…)), or leave a "
                    "variable of the row to the second stage"
                )
        bounds = (self.predicted["lb"] | self.predicted["ub"])[self.first]
        if bool(bounds.any()):
            at = int(self.first[bounds][0])
            raise ProblemError(
                f"a bound of the first-stage variable {model.variables[at]} is predicted; give its violation a price: "
                "model.with_recourse(pear.Penalty(lb=…, ub=…)), or decide the variable in the second stage"
            )
        self.varying_costs = self._varying_cost_columns()

    @cached_property
    def size(self) -> int:
        """The number of columns of the program, slacks included."""
        return self.problem.n

    @cached_property
    def curved_first_alone(self) -> bool:
        """Whether all quadratic terms of the program contain only first-stage variables."""
        Q = self.exact.Q
        if Q is None or not len(self.second):
            return True
        return bool(abs(select_block(Q, torch.arange(self.size), self.second)).sum() == 0)

    def costs(self, values: Tensor, keys: list[Hashable] | None) -> Tensor:
        """Return the costs (B, N) of all N columns, negated if the problem maximises, differentiably.

        Args:
            values: (B, k) predicted or true values of k predicted numbers.
            keys: B sample ids, or None.
        """
        cost = self.model.cost(values.double(), keys)
        cost = cost if self.elastic is None else self.elastic.cost(cost)
        return self.model.problem.sign * cost

    def sides(self, values: Tensor, keys: list[Hashable] | None) -> dict[str, Any]:
        """Return the right-hand sides and bounds that are predicted or differ by sample, by name, differentiably.

        The other right-hand sides and bounds are those of ``problem``.

        Args:
            values: (B, k) predicted or true values of k predicted numbers.
            keys: B sample ids, or None.
        """
        own = constraint_sides(select_by_keys(self.model.problem, keys))
        sides = own | self.model.right_hand_sides(values.double(), keys)
        if self.elastic is not None:
            bounds = constraint_sides(self.problem if keys is None else select_by_keys(self.problem, keys))
            sides = {"lb": bounds["lb"], "ub": bounds["ub"], **self.elastic.fields(sides)}
        return {name: side for name, side in sides.items() if side.ndim == 2}

    def _predicted_sides(self) -> dict[str, Tensor]:
        """Return a mask of the predicted entries for each of b, h, lb and ub of the program."""
        rows, model = self.model.constraint_map, self.model
        masks = {
            name: torch.zeros(side.shape[-1], dtype=torch.bool) for name, side in constraint_sides(self.problem).items()
        }
        if rows is None:
            return masks
        given = {name: rows.predicted(name, side.shape[-1]) for name, side in constraint_sides(model.problem).items()}
        if self.elastic is None:
            return masks | given
        marks = self.elastic.fields({name: mask.double() for name, mask in given.items()})
        return masks | {name: mark != 0 for name, mark in marks.items()}

    def _varying_cost_columns(self) -> Tensor:
        """Return a mask (size,) of the columns whose costs depend on predicted values."""
        varying = torch.zeros(self.size, dtype=torch.bool)
        M: Any = None if self.model.cost_map is None else self.model.cost_map.M
        if M is None:
            varying[: self.n] = True
        else:
            varying[: self.n] = torch.as_tensor(abs(M).sum(1) > 0)
        return varying


def find_first_stage_columns(model: Model, first: Sequence[str]) -> Tensor:
    """Return the columns of the first-stage variables.

    Args:
        model: the model.
        first: names of ``model.layout``, or of single variables.

    Raises:
        ProblemError: ``first`` is empty or a single text, or a name is unknown.

    Example:
        >>> import pear
        >>> find_first_stage_columns(Model(pear.Problem(lb=0.0, n=2), variables=("buy", "sell")), ["sell"])
        tensor([1])
    """
    if isinstance(first, str):
        raise ProblemError(f"first must be a list of names, as [{first!r}]; got a string")
    names, found = list(first), []
    if not names:
        raise ProblemError(
            "first names no variable; name those that are decided before a scenario comes true, such as "
            f"[{next(iter(model.layout))!r}]"
        )
    for name in names:
        if name in model.layout:
            found.append(model.layout[name].reshape(-1).cpu())
        elif name in model.variables:
            found.append(torch.tensor([model.variables.index(name)]))
        else:
            known = ", ".join(repr(one) for one in list(model.layout)[:6])
            raise ProblemError(f"first holds {name!r}, which is no variable of the model; expected some of {known}")
    return torch.cat(found)


def _check_two_stage_model(model: Any) -> None:
    """Raise ProblemError if a model cannot be decided in two stages."""
    if isinstance(model, Problem):
        raise ProblemError("Stochastic takes a pear.Model, which names its variables; pass pear.Model(problem)")
    if not isinstance(model, Model):
        raise ProblemError(f"Stochastic takes a pear.Model; got {type(model).__name__}")
    if not model.problem.has_program:
        raise ProblemError("an Oracle has no rows that scenarios could share; pass a model of a pear.Problem")
    if model.problem.phi is not None:
        raise ProblemError("a smooth term phi cannot be decided in two stages; leave it out")
    if model.curvature_map is not None:
        raise ProblemError("the weight of a quadratic term cannot differ between scenarios; give it a value")
    refuse_constraint_coefficients(model.constraint_map, "Stochastic")
    if model.known_map is not None:
        model.known_map.read(None)  # its error says which values are missing
    if model.recourse is not None and not isinstance(model.recourse, Penalty):
        raise ProblemError(
            f"Stochastic takes the recourse pear.Penalty(…), a price for each violated unit; got {model.recourse!r}"
        )


def _minimise_stages(problem: Problem) -> Problem:
    """Return a problem as a minimisation. If it maximises, the sign of Q is reversed."""
    if problem.sign == 1:
        return problem
    Q: Any = problem.Q
    return problem._with(sense="min", Q=None if Q is None else Q * -torch.ones(problem.n), _plans={})


def _rows_touching_stage(matrix: Any, columns: Tensor, rows: int) -> Tensor:
    """Return a mask (r,) of the rows of a matrix that have a non-zero in the given columns, in any sample.

    Args:
        matrix: (r, n) or (N, r, n), or None for a matrix of zeros.
        columns: the columns.
        rows: r.
    """
    if matrix is None or not len(columns):
        return torch.zeros(rows, dtype=torch.bool)
    if matrix.is_sparse:
        return torch.from_numpy(abs(matrix.csr[:, columns.numpy()]).sum(1) > 0)
    found = (matrix[..., columns] != 0).any(-1).cpu()
    return found.any(0) if is_field_per_sample("G", matrix) else found

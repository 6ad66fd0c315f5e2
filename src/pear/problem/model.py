"""``Model``: a problem with what its costs are made of, and with the names of whatever it came from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import DataError, ProblemError
from pear.problem.cost_map import CostMap
from pear.problem.html import facts, some, table
from pear.problem.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A problem with its cost map, its own costs and its names. Losses, layers and ``pear.fit`` take it as a problem.

    Attributes:
        problem: the plain problem, with n costs.
        known: (n,) float64, the model's own costs: those of a file, or what the cost map adds; (N, n) where samples
            have known costs of their own. Zero where nothing is known.
        offset: constant of the objective, which no solve sees: the model's value is ``solution.value + offset``.
        variables: n names.
        rows: names of the rows, in the order of the source.
        cost_map: from the predicted values to the n costs; None where all costs are predicted as they are.
        layout: for every name that ``decision`` gives, the columns of z that belong to it, in the shape of the
            original; left out, one number for each of ``variables``.
        report: what was understood, in sentences.

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
    offset: float = 0.0
    variables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    cost_map: CostMap | None = None
    layout: Mapping[str, Tensor] = field(default_factory=dict)
    report: str = ""

    def __post_init__(self) -> None:
        n, own = self.problem.n, self.cost_map
        if own is not None and own.n != n:
            raise ProblemError(f"the cost map gives {own.n} costs, and the problem has {n} variables; make them equal")
        if not self.known.numel():
            object.__setattr__(self, "known", torch.zeros(n, dtype=torch.float64) if own is None else own.known)
        object.__setattr__(self, "variables", tuple(self.variables) or tuple(f"x{i}" for i in range(n)))
        if len(self.variables) != n:
            raise ProblemError(f"variables must name all {n} variables; got {len(self.variables)} names")
        if not self.layout:
            object.__setattr__(self, "layout", {name: torch.tensor(i) for i, name in enumerate(self.variables)})

    @property
    def inputs(self) -> int:
        """How many values are predicted for a sample."""
        return self.problem.n if self.cost_map is None else self.cost_map.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """Of the predicted values."""
        if self.cost_map is None:
            return self.variables
        return self.cost_map.names or tuple(f"y{i}" for i in range(self.inputs))

    def cost(self, predicted: Any = None, keys: Sequence[Hashable] | None = None) -> Tensor:
        """The n costs of predicted values, ``M ŷ + known``, differentiable; without values the model's own.

        Args:
            predicted: (k,) or (B, k); the costs themselves where there is no cost map.
            keys: as of ``CostMap``.
        """
        if predicted is None:
            if self.cost_map is not None and self.inputs:
                raise ProblemError(f"the cost depends on {self.inputs} predicted values; pass them: m.cost(values)")
            return self.known
        return (self.cost_map or CostMap(known=torch.zeros(self.problem.n)))(predicted, keys)

    def decision(self, z: Any) -> dict[str, Tensor]:
        """Decisions (n,) or (B, n) by the original names: for each a tensor of its own shape, behind B in a batch.

        Args:
            z: a tensor, or whatever becomes an array, such as what ``DecisionRegressor.decide`` gives.

        Raises:
            DataError: z has another number of variables.
        """
        n = self.problem.n
        z = z if isinstance(z, Tensor) else torch.from_numpy(np.array(z))
        if z.ndim not in (1, 2) or z.shape[-1] != n:
            raise DataError(f"z must have shape ({n},) or (B, {n}), one entry for each variable; got {tuple(z.shape)}")
        return {name: z[..., at.to(z.device)] for name, at in self.layout.items()}

    def relaxed(self) -> Model:
        """The same model with every variable continuous."""
        return replace(self, problem=self.problem.relaxed())

    def __getitem__(self, index: Any) -> Model:
        """The samples at ``index``, as of a ``Problem``."""
        own = None if self.cost_map is None else self.cost_map[index]
        return replace(self, problem=self.problem[index], cost_map=own, known=self.known if own is None else own.known)

    def __repr__(self) -> str:
        return f"Model({shown(self.problem, self.cost_map)}{'' if self.cost_map else ', all costs predicted'})"

    def _repr_html_(self) -> str:
        own = {"names": some(self.variables), "predicted values": some(self.names), "costs": self.cost_map}
        return table("Model", {**facts(self.problem), **own, "constant": self.offset or None}, self.report)

    def __str__(self) -> str:
        return self.report or repr(self)


def shown(problem: Problem, cost_map: CostMap | None) -> str:
    """The problem and its cost map, if any, in one line."""
    return f"{problem}" if cost_map is None else f"{problem}, {cost_map}"


def unwrap(problem: Any) -> tuple[Problem, CostMap | None]:
    """The plain problem and the cost map of what was given as a problem.

    Raises:
        ProblemError: it is neither a ``Problem`` nor a ``Model``.
    """
    if isinstance(problem, Problem):
        return problem, None
    if isinstance(problem, Model):
        return problem.problem, problem.cost_map
    came = type(problem).__name__
    inside = getattr(problem, "problem", None)
    advice = "pass its problem: task.problem" if isinstance(inside, Problem) else "make one: pear.Problem(Q, A, b, …)"
    raise ProblemError(f"expected a pear.Problem or a pear.Model, got {came}; {advice}")


def inputs_of(problem: Any) -> int:
    """How many values are predicted for a sample."""
    plain, cost_map = unwrap(problem)
    return plain.n if cost_map is None else cost_map.inputs

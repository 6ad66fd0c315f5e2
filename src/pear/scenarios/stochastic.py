"""``Stochastic``: a model decided in two stages, under scenarios of what is predicted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.failures import OnFailure, check_on_failure, report_failures
from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.optimality.status import has_decision_status
from pear.problem import Model
from pear.problem.sample_keys import as_keys, select_by_keys
from pear.problem.tensor_conversion import to_batch_tensor, to_tensor
from pear.scenarios.extensive_form import ExtensiveForm
from pear.scenarios.risk import Risk, read_risk
from pear.scenarios.second_stage import SecondStage
from pear.scenarios.two_stages import TwoStages
from pear.setting_checks import check_count_setting
from pear.solvers.backend_registry import check_solver_name


@dataclass(frozen=True)
class ScenarioDecisions:
    """Decisions under scenarios.

    Attributes:
        x: (B, n₁) the first-stage decisions, which hold in every scenario; NaN where a sample has none.
        z: (B, S, n) the decisions of every scenario in the model's variables, the first stage among them.
        value: (B,) the risk of the costs, in the problem's own sense.
        costs: (B, S) what each scenario costs, recourse included, in the problem's own sense.
        status: (B,) int8 of ``pear.Status``.
        named: the first-stage decisions by name.
    """

    x: Tensor
    z: Tensor
    value: Tensor
    costs: Tensor
    status: Tensor
    named: dict[str, Any]

    @property
    def solved(self) -> Tensor:
        """Whether each sample has a decision, (B,) bool."""
        return has_decision_status(self.status)

    def __getitem__(self, name: str) -> Any:
        """Return a first-stage decision by its name, behind B in the shape of the variable."""
        return self.named[name]


class Stochastic:
    """A two-stage program: ``min over x of risk over s of min over y f(x, y; scenario s)``.

    Variables named in ``first`` are decided before it is known which scenario comes true; all others, and the slacks of
    a ``pear.Penalty``, are decided for each scenario. Scenario s has its own predicted values ŷₛ, costs and right-hand
    sides as the model maps them. All scenarios together are one program with shared columns for the first stage, kept
    sparse where it is large.

    Args:
        model: a ``pear.Model``. Where it predicts right-hand sides it may have a ``pear.Penalty``; without a recourse
            its rows hold in every scenario.
        first: names of the first-stage variables: those of ``model.layout``, or single ones as ``on[3]``.
        scenarios: S, the number of scenarios.
        risk: ``pear.Expectation()``, ``pear.CVaR(level, weight)`` or ``pear.WorstCase()``, or its name. The risk of a
            problem that maximises is that of too little.
        weights: (S,) positive weights of the scenarios; equal if omitted. Only ratios matter.
        solver: "auto" or a name that ``pear solvers`` lists.

    Example:
        A kiosk buys papers at 1 before it knows the demand; a missing one costs 4.

        >>> import pear
        >>> kiosk = pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0)
        >>> demand = pear.ConstraintMap(h=[[-1.0]])
        >>> m = pear.Model(kiosk, known=[1.0], variables=("buy",), constraint_map=demand, recourse=pear.Penalty(h=4.0))
        >>> plan = Stochastic(m, first=["buy"], scenarios=5)
        >>> found = plan.solve([[[1.0], [2.0], [3.0], [4.0], [9.0]]])
        >>> found["buy"].tolist(), round(float(found.value), 9)
        ([4.0], 8.0)
    """

    def __init__(
        self,
        model: Model,
        first: Sequence[str],
        scenarios: int,
        risk: Risk | str = "expectation",
        weights: Any = None,
        solver: str = "auto",
    ) -> None:
        check_solver_name(solver)
        scenarios = check_count_setting("scenarios", scenarios)
        self.model, self.first, self.scenarios, self.solver = model, tuple(first), scenarios, solver
        self.risk = read_risk(risk)
        self.weights = read_scenario_weights(weights, scenarios).detach()
        self.stages = TwoStages(model, first)
        self.extensive = ExtensiveForm(self.stages, self.weights, self.risk)

    @property
    def problem(self) -> Any:
        """The extensive program, minimised: its variables are x, then y₁, …, y_S, then η and the excesses of CVaR."""
        return self.extensive.integer_problem

    @property
    def inputs(self) -> int:
        """The number of values that a forecaster predicts: S times those of the model."""
        return self.scenarios * self.model.inputs

    @cached_property
    def _second(self) -> SecondStage:
        return SecondStage(self.stages, self.solver, exact=True)

    def solve(
        self,
        values: Any,
        keys: Tensor | Iterable[Hashable] | None = None,
        weights: Any = None,
        on_failure: OnFailure = "raise",
        time_limit: float | None = None,
    ) -> ScenarioDecisions:
        """Decide the first stage, and the second stage of every scenario.

        Args:
            values: (B, S, k) values of the scenarios, (B, S·k) in the same order, or (S, k) of one sample.
            keys: B sample ids; row numbers where samples have data of their own.
            weights: (B, S) weights of each sample's scenarios, such as those of ``pear.scenarios.reduce``; those of the
                program if omitted.
            on_failure: "raise" raises an error that names the samples without a decision; "mask" warns, and they hold
                NaN.
            time_limit: seconds for all integer programs together.
        """
        check_on_failure(on_failure)
        given = self.read_values(values).detach().double()
        ids = as_keys(keys, len(given), self.problem)
        own = None if weights is None else self.read_call_weights(weights, len(given)).detach()
        cost, fields = self.extensive.data(given, ids, own)
        solution = solve(
            select_by_keys(self.problem, ids),
            cost,
            solver=self.solver,
            on_failure=on_failure,
            time_limit=time_limit,
            **fields,
        )
        return self._decisions(solution.x, solution.status, given, ids, own)

    def cost(self, x: Any, true: Any, keys: Tensor | Iterable[Hashable] | None = None) -> Tensor:
        """Compute what first-stage decisions cost with their best recourse under true values, (B,).

        Integers of the second stage are kept. The cost is in the problem's own sense.

        Args:
            x: (B, n₁) first-stage decisions, as ``solve(…).x``.
            true: (B, k) true values.
            keys: B sample ids.

        Raises:
            SolveError: a sample has no recourse.
        """
        truth = to_batch_tensor(true, "true").detach().double()
        x = to_batch_tensor(x, "x").detach().double()
        if x.shape != (len(truth), len(self.stages.first)):
            raise ProblemError(
                f"x must have shape ({len(truth)}, {len(self.stages.first)}), a row for each sample and an entry for "
                f"each first-stage variable; got {tuple(x.shape)}"
            )
        found = self._second.realise(x, truth, as_keys(keys, len(truth), self.problem))
        report_failures(found.status, "raise", "the second stage")
        return self.model.problem.sign * found.cost

    def best(self, true: Any, keys: Tensor | Iterable[Hashable] | None = None) -> Tensor:
        """Compute the cost (B,) of the decisions that are best under true values (B, k), made with hindsight."""
        truth = to_batch_tensor(true, "true").detach().double()
        ids = as_keys(keys, len(truth), self.problem)
        cost, fields = self.stages.costs(truth, ids), self.stages.sides(truth, ids)
        exact = select_by_keys(self.stages.exact, ids)
        return self.model.problem.sign * solve(exact, cost, solver=self.solver, **fields).value

    def regret(
        self, values: Any, true: Any, keys: Tensor | Iterable[Hashable] | None = None, weights: Any = None
    ) -> Tensor:
        """Compute the regret (B,) of the decisions under scenarios: their cost with recourse, less that of the best.

        Args:
            values: (B, S, k) or (B, S·k) values of the scenarios.
            true: (B, k) true values.
            keys: B sample ids.
            weights: as for ``solve``.
        """
        ids = as_keys(keys, len(to_batch_tensor(true, "true")), self.problem)
        paid = self.cost(self.solve(values, ids, weights).x, true, ids)
        return (self.model.problem.sign * (paid - self.best(true, ids))).clamp(min=0)

    def read_values(self, values: Any) -> Tensor:
        """Return values as a tensor (B, S, k), differentiable.

        Raises:
            ProblemError: the shape is none of (B, S, k), (B, S·k) and (S, k).
        """
        given, S, k = to_tensor("values", values), self.scenarios, self.model.inputs
        given = given if given.is_floating_point() else given.double()
        if given.ndim == 3 and given.shape[1:] == (S, k):
            return given
        if given.ndim == 2 and given.shape[1] == S * k:
            return given.reshape(-1, S, k)
        if given.shape == (S, k):
            return given[None]
        raise ProblemError(
            f"values of {S} scenarios with {k} predicted values each must have shape (B, {S}, {k}) or (B, {S * k}); "
            f"got {tuple(given.shape)}"
        )

    def read_call_weights(self, weights: Any, count: int) -> Tensor:
        """Return the weights (B, S) of a call, which sum to one, differentiable.

        Raises:
            ProblemError: they have another shape or sign, or quadratic terms have the weights of the program.
        """
        if not self.stages.curved_first_alone:
            raise ProblemError(
                "weights came with a call, and second-stage variables have a quadratic term, whose weights are those "
                "of the program; pass weights= to pear.Stochastic"
            )
        return read_scenario_weights(weights, self.scenarios).expand(count, -1)

    def _decisions(
        self, x: Tensor, status: Tensor, values: Tensor, keys: list[Hashable] | None, weights: Tensor | None
    ) -> ScenarioDecisions:
        """Read the decisions of the scenarios and their costs from a solution (B, n) of the extensive program."""
        each = self.extensive.scenario_decisions(x)
        costs = self.extensive.scenario_costs(each, values, keys)
        value = self.risk.value(costs, self.weights if weights is None else weights)
        sign, n = self.model.problem.sign, self.stages.n
        names = self.model.decision(each[:, 0, :n])
        return ScenarioDecisions(
            x=x[:, : len(self.stages.first)],
            z=each[..., :n],
            value=sign * value,
            costs=sign * costs,
            status=status,
            named={name: names[name] for name in self.first},
        )

    def __repr__(self) -> str:
        one, two = len(self.stages.first), len(self.stages.second)
        return (
            f"Stochastic({self.scenarios} scenarios, {self.risk}, {one} variables in the first stage and {two} in the "
            f"second: {self.extensive.problem})"
        )


def read_scenario_weights(weights: Any, scenarios: int) -> Tensor:
    """Return weights (S,) or (B, S) that sum to one, from positive numbers; equal for None.

    Raises:
        ProblemError: they have another shape, or one is not positive.
    """
    if weights is None:
        return torch.full((scenarios,), 1.0 / scenarios, dtype=torch.float64)
    given = to_tensor("weights", weights).double()
    if given.ndim not in (1, 2) or given.shape[-1] != scenarios:
        raise ProblemError(f"weights must have an entry for each of {scenarios} scenarios; got {tuple(given.shape)}")
    if not bool((given.isfinite() & (given >= 0)).all()) or not bool((given.sum(-1) > 0).all()):
        raise ProblemError("weights of scenarios must be finite and not negative, and some must be positive")
    return given / given.sum(-1, keepdim=True)

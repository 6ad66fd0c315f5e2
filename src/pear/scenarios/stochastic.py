"""``Stochastic``: a model that is decided in two stages, under scenarios of its predicted values."""

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
    """The decisions of a two-stage program under scenarios.

    Attributes:
        x: (B, n₁) the n₁ first-stage decisions, which all scenarios share; NaN for a sample without a decision.
        z: (B, S, n) for each of S scenarios the decisions of both stages, in the variables of the model. The second
            stage is the best one, also in scenarios that do not affect the risk.
        value: (B,) the risk of the costs. If the problem maximises, costs are profits.
        costs: (B, S) the cost of each scenario, including the recourse.
        status: (B,) int8 values of ``pear.Status``.
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
        """(B,) mask of the samples that have a decision."""
        return has_decision_status(self.status)

    def __getitem__(self, name: str) -> Any:
        """Return a first-stage decision by its name, (B, …) in the shape of the variable."""
        return self.named[name]


class Stochastic:
    """A two-stage program, ``min over x of the risk over s of min over y of f(x, y; scenario s)``.

    f is the objective of the model. The variables x, named in ``first``, are decided before it is known which scenario
    comes true. All other variables y, and the slacks of a ``pear.Penalty``, are decided for each scenario. The model
    maps the predicted values of a scenario to its costs and right-hand sides. All scenarios form one program, which has
    the first stage once, and is sparse if it is large.

    Args:
        model: a ``pear.Model``. If it predicts right-hand sides, it may have a ``pear.Penalty``. Without one, the rows
            of the model hold in every scenario.
        first: the names of the first-stage variables: names of ``model.layout``, or single variables such as ``on[3]``.
        scenarios: S, the number of scenarios.
        risk: ``pear.Expectation()``, ``pear.CVaR(level, weight)`` or ``pear.WorstCase()``, or by name "expectation",
            "cvar" or "worst case". If the problem maximises, the worst scenarios have the least profit.
        weights: (S,) weights of the scenarios, not negative; equal if omitted. Only their ratios matter.
        solver: "auto" or a name that ``pear solvers`` lists.

    Example:
        A kiosk buys papers at a price of 1 before it knows the demand. A missing paper costs 4.

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
        self.weights = self._read_weights(weights, scenarios).detach()
        self.stages = TwoStages(model, first)
        self.extensive = ExtensiveForm(self.stages, self.weights, self.risk)

    @property
    def problem(self) -> Any:
        """The minimised program: the first stage, the second stage of each scenario, and the variables of the risk."""
        return self.extensive.integer_problem

    @property
    def inputs(self) -> int:
        """The number of values that a forecaster predicts: S times the number of the model's predicted values."""
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
        """Return the decisions of the first stage, and those of the second stage in every scenario.

        Args:
            values: (B, S, k) the k values of each of S scenarios. Also (B, S·k), in the same order, or (S, k) for one
                sample.
            keys: B sample ids. If samples have their own data, the ids must be row numbers.
            weights: (B, S) weights of each sample's scenarios, such as those of ``pear.scenarios.reduce``; those of the
                program if omitted.
            on_failure: "raise" raises an error that names the samples without a decision. "mask" warns, and returns NaN
                for these samples.
            time_limit: the seconds for all integer programs together.
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
        """Return the cost (B,) of first-stage decisions and of their best second stage under true values.

        Integers of the second stage are not relaxed. If the problem maximises, the cost is a profit.

        Args:
            x: (B, n₁) decisions of the n₁ first-stage variables, such as ``solve(…).x``.
            true: (B, k) true values of k predicted numbers.
            keys: B sample ids.

        Raises:
            SolveError: the second stage of a sample has no solution.
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
        """Return the cost (B,) of the best decisions of both stages when the true values are known.

        Args:
            true: (B, k) true values of k predicted numbers.
            keys: B sample ids.
        """
        truth = to_batch_tensor(true, "true").detach().double()
        ids = as_keys(keys, len(truth), self.problem)
        cost, fields = self.stages.costs(truth, ids), self.stages.sides(truth, ids)
        exact = select_by_keys(self.stages.exact, ids)
        return self.model.problem.sign * solve(exact, cost, solver=self.solver, **fields).value

    def regret(
        self, values: Any, true: Any, keys: Tensor | Iterable[Hashable] | None = None, weights: Any = None
    ) -> Tensor:
        """Return the regret (B,) of the first stage that is decided under scenarios.

        The regret is the cost of this first stage and of its best second stage under the true values, minus the cost of
        the best decisions of both stages. If the problem maximises, it is the best profit minus the profit.

        Args:
            values: (B, S, k) or (B, S·k) values of S scenarios, k values each.
            true: (B, k) true values.
            keys: B sample ids.
            weights: as for ``solve``.
        """
        ids = as_keys(keys, len(to_batch_tensor(true, "true")), self.problem)
        paid = self.cost(self.solve(values, ids, weights).x, true, ids)
        return (self.model.problem.sign * (paid - self.best(true, ids))).clamp(min=0)

    def read_values(self, values: Any) -> Tensor:
        """Return values of S scenarios, k values each, as a tensor (B, S, k), differentiably.

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
        """Return the weights (B, S) of the S scenarios of a call, scaled to sum to one, differentiably.

        Raises:
            ProblemError: the weights have a wrong shape or sign, or second-stage variables have quadratic terms, in
                which a call cannot change the weights.
        """
        if not self.stages.curved_first_alone:
            raise ProblemError(
                "weights came with a call, and second-stage variables have a quadratic term, whose weights are those "
                "of the program; pass weights= to pear.Stochastic"
            )
        return self._read_weights(weights, self.scenarios).expand(count, -1)

    @staticmethod
    def _read_weights(weights: Any, scenarios: int) -> Tensor:
        """Return weights (S,) or (B, S) of S scenarios, scaled to sum to one; equal weights (S,) for None.

        Raises:
            ProblemError: the shape is wrong, a weight is negative or not finite, or all weights are zero.
        """
        if weights is None:
            return torch.full((scenarios,), 1.0 / scenarios, dtype=torch.float64)
        given = to_tensor("weights", weights).double()
        if given.ndim not in (1, 2) or given.shape[-1] != scenarios:
            raise ProblemError(
                f"weights must have an entry for each of {scenarios} scenarios; got {tuple(given.shape)}"
            )
        if not bool((given.isfinite() & (given >= 0)).all()) or not bool((given.sum(-1) > 0).all()):
            raise ProblemError("weights of scenarios must be finite and not negative, and some must be positive")
        return given / given.sum(-1, keepdim=True)

    def _decisions(
        self, x: Tensor, status: Tensor, values: Tensor, keys: list[Hashable] | None, weights: Tensor | None
    ) -> ScenarioDecisions:
        """Return the decisions, with their costs and names, from a solution of the extensive program.

        Args:
            x: (B, n) the solution.
            status: (B,) the statuses.
            values: (B, S, k) values of S scenarios, k values each.
            keys: B sample ids, or None.
            weights: (B, S) weights of this call's scenarios, or None.
        """
        each = self.extensive.scenario_decisions(x)
        p = self.weights.expand(len(x), -1) if weights is None else weights
        if len(self.stages.second):
            free = ((1 - self.risk.weight) * p == 0) & has_decision_status(status)[:, None]
            each = self._with_best_second_stages(each, free, values, keys)
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

    def _with_best_second_stages(
        self, each: Tensor, free: Tensor, values: Tensor, keys: list[Hashable] | None
    ) -> Tensor:
        """Return decisions with the best second stage in each scenario whose cost has no weight of its own.

        The program leaves such a second stage open, for example in scenarios that are not among the worst.

        Args:
            each: (B, S, N) the decisions of the S scenarios, in N columns.
            free: (B, S) mask of these scenarios.
            values: (B, S, k) the k values of each scenario.
            keys: B sample ids, or None.
        """
        at = free.flatten().nonzero()[:, 0]
        if not len(at):
            return each
        ids = self.extensive.repeat_keys(keys, len(each))
        flat = each.flatten(0, 1)
        found = self._second.realise(
            flat[at][:, self.stages.first], values.flatten(0, 1)[at], None if ids is None else [ids[i] for i in at]
        )
        solved = has_decision_status(found.status)
        return flat.index_copy(0, at[solved], found.z[solved]).reshape(each.shape)

    def __repr__(self) -> str:
        one, two = len(self.stages.first), len(self.stages.second)
        return (
            f"Stochastic({self.scenarios} scenarios, {self.risk}, {one} variables in the first stage and {two} in the "
            f"second: {self.extensive.problem})"
        )

"""A batch gives the results of a loop over its samples: in any order, in either precision, with or without keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy_residual import solution_residual
from torch import Tensor
from zoo import ZOO, Planted

import pear

CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]
every_case = pytest.mark.parametrize("name", CURVED)


def solve(case: Planted, rows: Any, dtype: torch.dtype = torch.float64, **how: Any) -> Tensor:
    s = pear.solve(case.problem[rows], case.cost[rows].to(dtype), smoothing=case.smoothing, **how)
    assert s.duals is not None
    parts = (s.x, s.value[:, None], s.duals.bound, s.kkt_residual[:, None])
    assert {part.dtype for part in parts} == {dtype}
    return torch.cat(parts[:2], 1)


def gradient(case: Planted, rows: Any, dtype: torch.dtype = torch.float64, **how: Any) -> Tensor:
    costs = (c[rows].to(dtype) for c in (case.cost, case.true))
    return pear.regret_gradient(case.problem[rows], *costs, case.smoothing, **how)


def loss(case: Planted, rows: Any, dtype: torch.dtype = torch.float64, **how: Any) -> Tensor:
    predicted, true = (c[rows].to(dtype).requires_grad_() for c in (case.cost, case.true))
    value = pear.PEARLoss(case.problem[rows], case.smoothing, injection=0.0, reduction="none", guidance=0.0, **how)(
        predicted, true
    )
    value.sum().backward()
    assert predicted.grad is not None
    assert true.grad is not None
    assert predicted.grad.dtype == true.grad.dtype == dtype
    return torch.cat([value[:, None], predicted.grad, true.grad], 1).detach()


def layer(case: Planted, rows: Any, dtype: torch.dtype = torch.float64, **how: Any) -> Tensor:
    cost = case.cost[rows].to(dtype).requires_grad_()
    z = pear.DecisionLayer(case.problem[rows], case.smoothing, **how)(cost)
    (z * torch.arange(1.0, case.n + 1).to(dtype)).sum().backward()
    assert cost.grad is not None
    assert cost.grad.dtype == dtype
    return torch.cat([z, cost.grad], 1).detach()


CALLS: dict[str, Callable[..., Tensor]] = {"solve": solve, "gradient": gradient, "loss": loss, "layer": layer}
every_call = pytest.mark.parametrize("call", CALLS)


def scale(rows: Tensor) -> float:
    return max(1.0, float(rows.abs().max()))


@every_call
@every_case
def test_a_batch_equals_a_loop(name: str, call: str) -> None:
    case = ZOO[name]
    together = CALLS[call](case, slice(None))
    alone = torch.cat([CALLS[call](case, [i]) for i in range(case.B)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12 * scale(alone))


@pytest.mark.parametrize("call", ["loss", "layer"])
@every_case
def test_order_does_not_matter(name: str, call: str) -> None:
    case, order = ZOO[name], [2, 0, 1, 0]
    rows, shuffled = CALLS[call](case, slice(None)), CALLS[call](case, order)
    torch.testing.assert_close(shuffled, rows[order], rtol=1e-14, atol=1e-14 * scale(rows))


@pytest.mark.parametrize("call", ["solve", "loss", "layer"])
@every_case
def test_single_precision_comes_back_in_kind(name: str, call: str) -> None:
    """Results have the type of the input but are computed in float64: only the rounding of the costs is lost.

    The decision magnifies this rounding by at most 1/λ.
    """
    case = ZOO[name]
    single, double = (CALLS[call](case, slice(None), dtype) for dtype in (torch.float32, torch.float64))
    assert single.dtype == torch.float32
    top = float(double.abs().max())
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=3e-5 * max(top, case.size, case.force * 1e-2))


@pytest.mark.parametrize("call", ["loss", "layer", "gradient"])
@pytest.mark.parametrize("solver", ["osqp", "daqp", "piqp", "clarabel", "proxqp"])
@pytest.mark.parametrize("name", ["flow", "knapsack", "own everything, max", "redundant rows"])
def test_the_solver_does_not_matter(name: str, solver: str, call: str) -> None:
    """A solver only proposes points: decisions, regrets and gradients agree to rounding for all solvers."""
    case = ZOO[name]
    mine, theirs = (CALLS[call](case, slice(None), solver=s) for s in ("interior-point", solver))
    torch.testing.assert_close(theirs, mine, rtol=1e-10, atol=1e-11 * scale(mine))


def test_shared_fields_equal_their_copies() -> None:
    """A field that is shared gives the same decisions and derivatives as copies of it for every sample."""
    case = ZOO["knapsack"]
    p = case.problem
    assert p.G is not None
    assert p.h is not None
    copies = pear.Problem(G=p.G.expand(3, -1, -1), h=p.h.expand(3, -1), lb=p.lb.expand(3, -1), ub=p.ub, sense="max")
    arguments = (case.cost, case.true, case.smoothing)
    shared, own = (pear.regret_gradient(problem, *arguments) for problem in (p, copies))
    torch.testing.assert_close(own, shared, rtol=1e-13, atol=1e-13)


# ---------------------------------------------------------------------------------------------------------------- keys


def run(case: Planted, function: pear.PEARLoss, cost: Tensor, rows: list[int], keys: Any) -> tuple[Tensor, Tensor]:
    predicted = cost[rows].clone().requires_grad_()
    value = function(predicted, case.true[rows], keys=keys)
    value.sum().backward()
    assert predicted.grad is not None
    return value.detach(), predicted.grad


@every_case
def test_keys_change_nothing_but_the_work(name: str) -> None:
    """With keys, values and gradients are those without, over epochs in which costs drift and then jump."""
    case, rng = ZOO[name], np.random.default_rng(0)
    with_keys, without = (
        pear.PEARLoss(case.problem, case.smoothing, injection=0.0, reduction="none", guidance=0.0) for _ in range(2)
    )
    own = case.problem.batch is not None
    keys = list(range(case.B)) if own else ["a", "b", "c"]
    rows = list(range(case.B))
    cost = case.cost.clone()
    for size in (0.0, 1e-3, 1e-3, 3.0, 0.0):
        cost = cost + size * case.force * torch.from_numpy(rng.normal(size=cost.shape))
        order = rng.permutation(case.B).tolist()
        remembered = run(case, with_keys, cost, order, [keys[i] for i in order])
        inverse = torch.tensor(order).argsort()
        expected = run(case, without, cost, rows, None)
        for mine, theirs in zip(remembered, expected, strict=True):
            torch.testing.assert_close(mine[inverse], theirs, rtol=1e-11, atol=1e-11 * scale(theirs))


def test_reuse_is_counted() -> None:
    case = ZOO["knapsack"]
    function = pear.PEARLoss(case.problem, case.smoothing, guidance=0.0, injection=0.1)
    rates = []
    for cost in (case.cost, case.cost, case.cost + 1e-3, case.cost[:, torch.arange(7, -1, -1)]):
        function(cost, case.true, keys=[0, 1, 2])
        assert function.last is not None
        rates.append(function.last.reuse_rate)
    # nothing known; all known; a small change leaves the set as it is; turned round, no set survives
    assert rates == [0.0, 1.0, 1.0, 0.0]
    assert (function.samples, function.reused) == (12, 6)
    function(case.cost, case.true)
    assert function.last is not None
    assert function.last.reuse_rate == 0.0


def test_no_solver_is_called_where_the_remembered_set_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No solver is called for the predicted costs, nor for the true ones, which are solved once."""
    case = ZOO["simplex"]
    function = pear.PEARLoss(case.problem, case.smoothing, solver="interior-point", guidance=0.0, injection=0.1)
    decision = pear.DecisionLayer(case.problem, case.smoothing, solver="interior-point")
    first = function(case.cost, case.true, keys=[0, 1, 2]), decision(case.cost, keys=[0, 1, 2])

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a solver was called")

    monkeypatch.setattr("pear.solvers.interior_point.interior_point_solver.solve", refuse)
    second = function(case.cost, case.true, keys=[0, 1, 2]), decision(case.cost, keys=[0, 1, 2])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-14, atol=1e-15)
    with pytest.raises(AssertionError, match="a solver was called"):
        function(case.cost, case.true, keys=[0, 1, 3])
    with pytest.raises(AssertionError, match="a solver was called"):
        decision(case.cost)


@every_case
def test_a_stale_set_is_repaired(name: str) -> None:
    """The active set kept from one cost is wrong for another; the solutions are verified all the same."""
    case = ZOO[name]
    decision = pear.DecisionLayer(case.problem, case.smoothing)
    keys = [0, 1, 2]
    decision(case.cost, keys=keys)
    for cost in (-case.cost, case.cost.roll(1, dims=1) * 3, case.true):
        z = decision(cost, keys=keys)
        fresh = pear.solve(case.problem, cost, smoothing=case.smoothing)
        assert solution_residual(case.problem, cost, fresh.x, fresh.duals, case.smoothing) <= 1e-9
        torch.testing.assert_close(z, fresh.x, rtol=1e-11, atol=1e-11 * max(case.size, scale(fresh.x)))


def test_a_true_cost_that_changed_under_its_key_is_solved_again() -> None:
    case = ZOO["simplex"]
    function, fresh = (
        pear.PEARLoss(case.problem, case.smoothing, reduction="none", guidance=0.0, injection=0.1) for _ in range(2)
    )
    function(case.cost, case.true, keys=[0, 1, 2])
    other = case.true.flip(1)
    torch.testing.assert_close(function(case.cost, other, keys=[0, 1, 2]), fresh(case.cost, other), rtol=1e-12, atol=0)
    mixed = torch.cat([case.true[:1], case.true[1:] + 1e-9])
    expected = fresh(case.cost, mixed)
    torch.testing.assert_close(function(case.cost, mixed, keys=[0, 1, 2]), expected, rtol=1e-12, atol=1e-15)


def test_the_true_solution_is_kept_per_curvature() -> None:
    """With another true curvature, the same true cost defines another problem, which is solved afresh."""
    case = ZOO["portfolio"]
    function, fresh = (
        pear.PEARLoss(case.problem, 0.0, injection=0.0, reduction="none", guidance=0.0) for _ in range(2)
    )
    assert case.problem.Q is not None
    for factor in (1.0, 2.0, 0.5):
        given = {"Q": case.problem.Q, "true_Q": factor * case.problem.Q}
        value = function(case.cost, case.true, keys=[0, 1, 2], **given)
        torch.testing.assert_close(value, fresh(case.cost, case.true, **given), rtol=1e-11, atol=1e-13)
    back = function(case.cost, case.true, keys=[0, 1, 2])
    torch.testing.assert_close(back, fresh(case.cost, case.true), rtol=1e-11, atol=1e-13)


def test_a_remembered_curvature_is_never_mistaken_for_another() -> None:
    """Calls alternate between true curvatures: one for each sample, one for all, the predicted one, and none."""
    case = ZOO["portfolio"]
    assert case.problem.Q is not None
    function, fresh = (
        pear.PEARLoss(case.problem, 0.0, injection=0.0, reduction="none", guidance=0.0) for _ in range(2)
    )
    own = torch.stack([factor * case.problem.Q for factor in (1.0, 2.0, 3.0)])
    predicted = 1.5 * own
    calls = [
        {"Q": predicted, "true_Q": own},
        {"Q": predicted, "true_Q": predicted},
        {},
        {"Q": predicted, "true_Q": 2 * case.problem.Q},
    ]
    for first in calls:
        for second in calls:
            for given in (first, second, first):
                value = function(case.cost, case.true, keys=[0, 1, 2], **given)
                torch.testing.assert_close(value, fresh(case.cost, case.true, **given), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("call", ["loss", "layer"])
def test_keys_select_the_rows_of_a_problem_with_its_own_fields(call: str) -> None:
    case = ZOO["own everything"]
    for rows in ([2, 0], [1], [0, 1, 2], torch.tensor([1, 2])):
        index = torch.as_tensor(rows)
        if call == "loss":
            function = pear.PEARLoss(case.problem, 0.0, injection=0.0, reduction="none", guidance=0.0)
            chosen = function(case.cost[index], case.true[index], keys=rows)
            direct = pear.PEARLoss(case.problem[index], 0.0, injection=0.0, reduction="none", guidance=0.0)
            expected = direct(case.cost[index], case.true[index])
        else:
            chosen = pear.DecisionLayer(case.problem)(case.cost[index], keys=rows)
            expected = case.x[index]
        torch.testing.assert_close(chosen, expected, rtol=1e-12, atol=1e-12)


BAD_KEYS: dict[str, tuple[str, Any, str]] = {
    "twice": ("simplex", [1, 2, 1], r"keys must be distinct within a batch; a sample came twice"),
    "too few": ("simplex", [1, 2], r"keys must name every sample: expected 3, got 2"),
    "too many": ("simplex", torch.arange(4), r"keys must name every sample: expected 3, got 4"),
    "a number": ("simplex", 3, r"keys must be one id a sample, such as range\(3\); got 3$"),
    "a tensor of no dimension": (
        "simplex",
        torch.tensor(3),
        r"keys must be one id a sample; got an array",
    ),
    "a name": ("simplex", "abc", r"keys must be one id a sample, such as range\(3\); got 'abc'"),
    "beyond": (
        "own everything",
        [0, 1, 3],
        r"the problem has fields of its own for 3 samples, so that keys must be their row numbers, 0 to 2; got 3",
    ),
    "negative": ("own everything", [0, 1, -1], r"keys must be their row numbers, 0 to 2; got -1"),
    "names": ("own everything", ["a", "b", "c"], r"keys must be their row numbers, 0 to 2; got 'a'"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_bad_keys(name: str) -> None:
    which, keys, message = BAD_KEYS[name]
    case = ZOO[which]
    with pytest.raises(pear.PearError, match=message):
        pear.PEARLoss(case.problem, case.smoothing, guidance=0.0, injection=0.1)(case.cost, case.true, keys=keys)
    with pytest.raises(pear.PearError, match=message):
        pear.DecisionLayer(case.problem, case.smoothing)(case.cost, keys=keys)


def test_a_problem_with_its_own_fields_needs_all_rows_or_keys() -> None:
    case = ZOO["own everything"]
    with pytest.raises(pear.ProblemError, match=r"cost has 2 samples but the problem has 3; .*name them with keys="):
        pear.PEARLoss(case.problem, 0.0, guidance=0.0, injection=0.1)(case.cost[:2], case.true[:2])

"""``PEARLoss``, ``solve``, ``regret`` and ``DecisionLayer``: statistics, reductions, integers, and bad arguments."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from zoo import ZOO, arrays, jacobian

import pear
from pear import losses
from pear.losses.pyepo import PyEPOLoss
from pear.solvers import Candidate, Duals
from pear.solvers.regret_call import RegretCall

NAN, INF = float("nan"), float("inf")
CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]
SIMPLEX = pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0)
COST = torch.tensor([[0.1, 0.3, 0.2], [0.4, 0.2, 0.1]], dtype=torch.float64)
TRUE = torch.tensor([[0.3, 0.1, 0.2], [0.1, 0.2, 0.5]], dtype=torch.float64)


def last(function: pear.PEARLoss) -> Any:
    assert function.last is not None
    return function.last


# ---------------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("name", CURVED)
def test_last_call(name: str) -> None:
    case = ZOO[name]
    function = pear.PEARLoss(case.problem, case.smoothing, injection=0.0, reduction="none", guidance=0.0)
    assert function.last is None
    value = function(case.cost.clone().requires_grad_(), case.true)
    call = last(function)
    assert call.status.tolist() == [pear.Status.SOLVED] * case.B
    assert torch.equal(call.regret, value)
    torch.testing.assert_close(call.decision, case.x, rtol=1e-12, atol=1e-12 * case.size)
    assert call.weakly_active.tolist() == [0] * case.B
    assert float(call.kkt_residual.max()) <= 1e-10
    assert (call.reuse_rate, call.repaired_rate) == (0.0, 0.0)
    tangent = []
    for i in range(case.B):
        J = jacobian(arrays(case.problem, case.cost, case.smoothing, i), case.x[i].numpy(), case.size)
        tangent.append(case.n - (int(np.linalg.matrix_rank(J, tol=1e-9)) if len(J) else 0))
    assert call.tangent_dim.tolist() == tangent
    assert call.zero_gradient_rate == pytest.approx(tangent.count(0) / case.B)


def test_rates_without_gradient_and_weak_activity() -> None:
    problem = pear.Problem(Q=np.eye(2), ub=[1.0, INF])
    function = pear.PEARLoss(problem, smoothing=0.0, injection=0.0, guidance=0.0)
    function(torch.tensor([[-1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]), torch.ones(3, 2))
    call = last(function)
    assert math.isnan(call.zero_gradient_rate)
    assert call.weakly_active.tolist() == [1, 0, 0]
    assert call.tangent_dim.tolist() == [1, 1, 2]
    assert not call.decision.requires_grad


def useless(value: float) -> Callable[..., Candidate]:
    """Return a solver that sets all entries of every point and its multipliers to ``value``, with the status SOLVED."""

    def solve(qp: Any, tol: float) -> Candidate:
        x, y, v = (torch.full((qp.batch, k), value, dtype=torch.float64) for k in (qp.n, qp.p, qp.m))
        return Candidate(x, Duals(y, v, x.clone()), torch.zeros(qp.batch, dtype=torch.int8))

    return solve


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("junk", [0.0, NAN, 1e3])
def test_a_useless_solver_costs_exchanges_and_never_accuracy(
    name: str, junk: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchanges alone find the solution if there are only bounds; with rows they may fail, which is reported."""
    case = ZOO[name]
    monkeypatch.setattr("pear.solvers.interior_point.interior_point_solver.solve", useless(junk))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pear.FailedSamplesWarning)
        s = pear.solve(case.problem, case.cost, smoothing=case.smoothing, solver="interior-point", on_failure="mask")
    only_bounds = case.problem.A is None and case.problem.G is None
    assert not only_bounds or bool(s.solved.all())
    torch.testing.assert_close(s.x[s.solved], case.x[s.solved], rtol=1e-11, atol=1e-11 * case.size)
    assert bool(s.x[~s.solved].isnan().all())


def test_repairs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver's zero lies inside the box, so that no bound is guessed; at the solution two are active."""
    case = ZOO["box"]
    monkeypatch.setattr("pear.solvers.interior_point.interior_point_solver.solve", useless(0.0))
    solution = pear.solve(case.problem, case.cost, smoothing=case.smoothing, solver="interior-point")
    assert solution.repaired.tolist() == [True] * 3
    function = pear.PEARLoss(case.problem, case.smoothing, solver="interior-point", guidance=0.0, injection=0.1)
    function(case.cost, case.true)
    assert last(function).repaired_rate == 1.0


def test_statistics_are_of_the_samples_that_the_keys_name() -> None:
    """Only sample 1 of the problem is at a vertex; the statistics are those of the sample that the key names."""
    problem = pear.Problem(A=np.ones((1, 3)), b=[[3.0], [1.0]], lb=0.0, ub=[[3.0] * 3, [1.0, 0.0, 0.0]])
    function = pear.PEARLoss(problem, smoothing=1.0, injection=0.0, guidance=0.0)
    for key, dimension in ((0, 2), (1, 0), (0, 2)):
        function(COST[:1], TRUE[:1], keys=[key])
        assert last(function).tangent_dim.tolist() == [dimension]


@pytest.mark.parametrize("solver", ["auto", "osqp"])
def test_a_warm_start_that_still_holds_is_reused(solver: str) -> None:
    function = pear.PEARLoss(SIMPLEX, solver=solver, guidance=0.0, smoothing=0.1, injection=0.1)
    for rate in (0.0, 1.0):
        function(COST, TRUE, keys=[0, 1])
        assert last(function).reuse_rate == rate


@pytest.mark.parametrize("solver", ["auto", "osqp"])
def test_time_is_counted(solver: str) -> None:
    """In one pass and in the pipeline, the counted time grows with every call and is at most the elapsed time."""
    function = pear.PEARLoss(SIMPLEX, solver=solver, guidance=0.0, smoothing=0.1, injection=0.1)
    total = 0.0
    for _ in range(2):
        before, began = dict(function.seconds), time.perf_counter()
        function(COST.clone().requires_grad_(), TRUE)
        total += time.perf_counter() - began
        assert function.seconds["solve"] > before["solve"]
        assert (function.seconds["gradient"] > before["gradient"]) == (solver != "auto")
        assert sum(function.seconds.values()) <= total


DEFAULTS: list[tuple[Any, dict[str, Any]]] = [
    (pear.solve, {"smoothing": 0.0, "solver": "auto", "on_failure": "raise"}),
    (pear.regret_gradient, {"smoothing": 0.1, "injection": 0.0, "solver": "auto", "on_failure": "raise"}),
    (
        pear.PEARLoss,
        {
            "smoothing": "auto",
            "injection": 0.05,
            "guidance": 10.0,
            "solver": "auto",
            "on_failure": "raise",
            "reduction": "mean",
        },
    ),
    (pear.DecisionLayer, {"smoothing": 0.0, "solver": "auto", "on_failure": "raise"}),
    (losses.SPOPlusLoss, {"mse_weight": 0.0, "cost_unit": "auto"}),
    (losses.PFYLLoss, {"samples": 1, "sigma": 1.0, "seed": 135, "mse_weight": 0.0, "cost_unit": "auto"}),
    (losses.DBBLoss, {"interpolation": 10.0, "mse_weight": 0.0, "cost_unit": "auto"}),
    (losses.LAVALoss, {"threshold": -0.1, "cost_unit": "auto"}),
    (PyEPOLoss, {"mse_weight": 0.0, "cost_unit": "auto"}),
]


def test_default_settings() -> None:
    """The defaults are those in the documentation."""
    for call, expected in DEFAULTS:
        parameters = inspect.signature(call).parameters.values()
        told = {p.name: p.default for p in parameters if p.default is not p.empty and p.default is not None}
        assert told == expected, call


def test_reductions() -> None:
    each = pear.PEARLoss(SIMPLEX, 1.0, reduction="none", guidance=0.0, injection=0.1)(COST, TRUE)
    assert each.shape == (2,)
    assert pear.PEARLoss(SIMPLEX, 1.0, reduction="sum", guidance=0.0, injection=0.1)(
        COST, TRUE
    ).item() == pytest.approx(each.sum().item(), rel=1e-15)
    assert pear.PEARLoss(SIMPLEX, 1.0, guidance=0.0, injection=0.1)(COST, TRUE).item() == pytest.approx(
        each.mean().item(), rel=1e-15
    )
    assert pear.PEARLoss(SIMPLEX, 1.0, guidance=0.0, injection=0.1)(COST.float(), TRUE).dtype == torch.float32


def test_value_and_gradient_by_hand() -> None:
    """On the simplex with λ = 1, the decision is 1/n + mean(ĉ) − ĉ as long as it is positive."""
    predicted = COST.clone().requires_grad_()
    value = pear.PEARLoss(SIMPLEX, smoothing=1.0, injection=0.0, reduction="none", guidance=0.0)(predicted, TRUE)
    chosen, best = (1 / 3 + c.mean(1, keepdim=True) - c for c in (COST, TRUE))
    assert float(chosen.min()) > 0
    assert float(best.min()) > 0
    expected = ((0.5 * chosen**2 + TRUE * chosen) - (0.5 * best**2 + TRUE * best)).sum(1)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    value.sum().backward()
    error = COST - TRUE
    torch.testing.assert_close(predicted.grad, error - error.mean(1, keepdim=True), rtol=1e-12, atol=1e-14)


def test_one_sample_without_a_batch_dimension() -> None:
    flat, batched = COST[0].clone().requires_grad_(), COST[:1].clone().requires_grad_()
    function = pear.PEARLoss(SIMPLEX, 1.0, guidance=0.0, injection=0.1)
    function(flat, TRUE[0]).backward()
    function(batched, TRUE[:1]).backward()
    assert flat.grad is not None
    assert batched.grad is not None
    assert torch.equal(flat.grad, batched.grad[0])


def test_training_lowers_the_regret() -> None:
    """The regret falls in training, although no term of the loss fits the costs."""
    torch.manual_seed(0)
    X = torch.randn(64, 4, dtype=torch.float64)
    C = X @ torch.randn(4, 3, dtype=torch.float64)
    model = torch.nn.Linear(4, 3, dtype=torch.float64)
    function = pear.PEARLoss(SIMPLEX, smoothing=1.0, guidance=0.0, injection=0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    values = []
    for _ in range(60):
        optimiser.zero_grad()
        value = function(model(X), C, keys=range(64))
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert values[-1] < 0.05 * values[0]
    assert function.reused > 0.5 * function.samples


# ---------------------------------------------------------------------------------------------------------- integers


def knapsacks() -> tuple[pear.Problem, Tensor, Tensor]:
    """Return a knapsack of eight items with two capacities, and predicted and true values of five samples."""
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 11, (2, 8)).astype(float)
    problem = pear.Problem(G=weights, h=weights.sum(1) // 2, lb=0.0, ub=1.0, sense="max", integer=True)
    return problem, *(torch.from_numpy(rng.uniform(1, 9, (5, 8))) for _ in range(2))


def by_brute_force(problem: pear.Problem, cost: Tensor) -> Tensor:
    assert problem.G is not None
    points = torch.tensor(list(itertools.product((0.0, 1.0), repeat=problem.n)), dtype=torch.float64)
    feasible = points[(points @ problem.G.T <= problem.h).all(1)]
    return feasible[(feasible @ cost.T).argmax(0)]


@pytest.mark.parametrize("solver", ["auto", "highs", "scipy"])
def test_integer_solutions_are_those_of_brute_force(solver: str) -> None:
    problem, cost, _ = knapsacks()
    s = pear.solve(problem, cost, solver=solver)
    best = by_brute_force(problem, cost)
    assert s.x.tolist() == best.tolist()  # integers exactly, not nearly
    torch.testing.assert_close(s.value, (best * cost).sum(1), rtol=1e-14, atol=0)
    assert s.duals is None
    assert float(s.kkt_residual.max()) == 0.0


def test_only_marked_variables_are_integer() -> None:
    problem = pear.Problem(G=[[2.0, 2.0]], h=[3.0], lb=0.0, ub=1.0, sense="max", integer=[0])
    assert pear.solve(problem, [[1.0, 0.5]]).x.tolist() == [[1.0, 0.5]]
    assert pear.solve(problem.relaxed(), [[0.5, 1.0]]).x.tolist() == [[0.5, 1.0]]


def test_normalized_regret_of_integer_decisions() -> None:
    problem, predicted, true = knapsacks()
    chosen, best = (by_brute_force(problem, cost) for cost in (predicted, true))
    lost, ideal = ((best - chosen) * true).sum(), (best * true).sum()
    assert float(lost) > 0
    assert pear.normalized_regret(problem, predicted, true) == pytest.approx(float(lost / ideal), rel=1e-12)
    relaxed = pear.normalized_regret(problem.relaxed(), predicted, true)
    assert relaxed != pytest.approx(float(lost / ideal), rel=1e-6)


def test_training_uses_the_relaxation() -> None:
    problem, predicted, true = knapsacks()
    values, grads = [], []
    for version in (problem, problem.relaxed()):
        leaf = predicted.clone().requires_grad_()
        values.append(pear.PEARLoss(version, reduction="none", guidance=0.0, smoothing=0.1, injection=0.1)(leaf, true))
        values[-1].sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(*values)
    assert torch.equal(*grads)
    args = (predicted, true, 0.1, 0.1)
    assert torch.equal(pear.regret_gradient(problem, *args), pear.regret_gradient(problem.relaxed(), *args))
    z = pear.DecisionLayer(problem, smoothing=0.1)(predicted)
    assert torch.equal(z, pear.DecisionLayer(problem.relaxed(), smoothing=0.1)(predicted))
    solved = pear.solve(problem.relaxed(), predicted, smoothing=0.1).x  # by the primal method; the layer's is dual
    torch.testing.assert_close(z, solved, rtol=0, atol=1e-12)
    assert bool(((z > 0.01) & (z < 0.99)).any())


@pytest.mark.parametrize("how", ["smoothing", "Q", "own Q"])
def test_an_integer_problem_is_not_smoothed(how: str) -> None:
    problem, cost, _ = knapsacks()
    given: dict[str, Any] = {"smoothing": {"smoothing": 0.1}, "Q": {"Q": -np.eye(8)}, "own Q": {}}[how]
    if how == "own Q":
        problem = pear.Problem(Q=-np.eye(8), lb=0.0, ub=1.0, sense="max", integer=True)
    message = (
        r"^an integer problem must have a linear objective: expected smoothing=0, no Q and no phi; "
        r"solve problem\.relaxed\(\) to smooth the continuous relaxation$"
    )
    with pytest.raises(pear.ProblemError, match=message):
        pear.solve(problem, cost, **given)


# ------------------------------------------------------------------------------------------------- normalized regret


def test_normalized_regret_is_the_share_lost() -> None:
    choose = pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0)
    predicted, true = [[1, 2, 3], [3, 1, 2]], [[4.0, 2.0, 5.0], [1.0, -2.0, 3.0]]
    # the first sample pays 4 instead of 2, the second is right; |2| + |−2| would have been paid
    assert pear.normalized_regret(choose, predicted, true) == pytest.approx(2 / 4, rel=1e-14)
    assert pear.normalized_regret(choose, true, true) == 0.0
    most = pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0, sense="max")
    # the largest predicted earns 5 (the best) and 1 of the possible 3
    assert pear.normalized_regret(most, predicted, true) == pytest.approx(2 / 8, rel=1e-14)


def test_normalized_regret_with_a_predicted_curvature() -> None:
    case = ZOO["portfolio"]
    assert case.problem.Q is not None
    Q = 2 * case.problem.Q
    chosen = pear.solve(case.problem, case.cost, Q=Q).x
    best = pear.solve(case.problem, case.true).x
    paid, ideal = (case.problem.objective(z, case.true) for z in (chosen, best))
    expected = float((ideal - paid).sum() / ideal.abs().sum())
    assert expected > 0
    assert pear.normalized_regret(case.problem, case.cost, case.true, Q=Q) == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------- arguments


def entry_points(**how: Any) -> dict[str, Callable[[], Any]]:
    """Return a call of every function that takes these options, by name."""
    return {
        "solve": lambda: pear.solve(SIMPLEX, COST, **{"smoothing": 0.1, **how}),
        "regret_gradient": lambda: pear.regret_gradient(SIMPLEX, COST, TRUE, **how),
        "PEARLoss": lambda: pear.PEARLoss(SIMPLEX, **how)(COST, TRUE),
        "DecisionLayer": lambda: pear.DecisionLayer(SIMPLEX, **{"smoothing": 0.1, **how})(COST),
    }


ALL = ("solve", "regret_gradient", "PEARLoss", "DecisionLayer")
NUMBER = r"^smoothing must be a number of at least 0, or 'auto'; got "
STRENGTH = r"^injection must be a finite number of at least 0; got "
OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "on_failure": (ALL, {"on_failure": "ignore"}, r"^on_failure must be 'raise' or 'mask'; got 'ignore'$"),
    "smoothing negative": (ALL, {"smoothing": -0.1}, NUMBER + r"-0\.1$"),
    "smoothing NaN": (ALL, {"smoothing": NAN}, NUMBER + "nan$"),
    "smoothing infinite": (ALL, {"smoothing": INF}, NUMBER + "inf$"),
    "smoothing word": (ALL, {"smoothing": "much"}, NUMBER + "'much'$"),
    "smoothing None": (ALL, {"smoothing": None}, NUMBER + "None$"),
    "smoothing bool": (ALL, {"smoothing": True}, NUMBER + "True$"),
    "injection negative": (ALL[1:3], {"injection": -1.0}, STRENGTH + r"-1\.0$"),
    "injection NaN": (ALL[1:3], {"injection": NAN}, STRENGTH + "nan$"),
    "injection infinite": (ALL[1:3], {"injection": INF}, STRENGTH + "inf$"),
    "injection word": (ALL[1:3], {"injection": "auto"}, STRENGTH + "'auto'$"),
    "reduction": (("PEARLoss",), {"reduction": "max"}, r"^reduction must be 'mean', 'sum' or 'none'; got 'max'$"),
    "solver": (
        ALL,
        {"solver": "gurobi"},
        r"^unknown solver 'gurobi': There are auto, active-set, interior-point, binary, highs, scipy, clarabel, daqp,",
    ),
    "solver misspelt": (ALL, {"solver": "ospq"}, r"^unknown solver 'ospq': did you mean 'osqp'\? There are auto,"),
    "solver of another kind": (
        ALL,
        {"solver": "highs"},
        r"^solver 'highs' solves .* lp and milp, not qp: use one of active-set, interior-point",
    ),
}


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, row in OPTIONS.items() for call in row[0]])
def test_bad_options(name: str, call: str) -> None:
    _, how, message = OPTIONS[name]
    with pytest.raises(pear.PearError, match=message):
        entry_points(**how)[call]()


def test_options_are_refused_when_the_loss_is_made() -> None:
    """Bad options raise an error when the loss is made, and not in the first epoch."""
    for name in ("on_failure", "injection NaN", "reduction", "smoothing negative", "solver"):
        _, how, message = OPTIONS[name]
        with pytest.raises(pear.PearError, match=message):
            pear.PEARLoss(SIMPLEX, **how)
    for name in ("on_failure", "smoothing negative", "solver"):
        _, how, message = OPTIONS[name]
        with pytest.raises(pear.PearError, match=message):
            pear.DecisionLayer(SIMPLEX, **how)


@pytest.mark.parametrize("call", ALL)
def test_missing_extra(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "osqp" else real(name, *a))
    message = r"^solver 'osqp' needs the package osqp, not installed here; run pip install 'pear-dfl\[osqp\]'$"
    with pytest.raises(pear.MissingExtraError, match=message):
        entry_points(solver="osqp")[call]()


EYE = torch.eye(3, dtype=torch.float64)
SMALL = torch.eye(2, dtype=torch.float64)
UNLIKE = r"^predicted and true costs must have the same shape; got "
ALONE = r"^Q was given, but neither true_Q nor a Q in the problem to compare it with; pass true_Q$"
PAIRS: dict[str, tuple[Any, Any, dict[str, Tensor], str]] = {
    "one sample less": (COST, TRUE[:1], {}, UNLIKE + r"\(2, 3\) and \(1, 3\)$"),
    "one cost less": (COST, TRUE[:, :2], {}, UNLIKE + r"\(2, 3\) and \(2, 2\)$"),
    "both too narrow": (COST[:, :2], TRUE[:, :2], {}, r"^cost must have shape \(B, 3\), one row .*; got \(2, 2\)$"),
    "too deep": (COST[None], TRUE[None], {}, r"must have shape \(B, n\), or \(n,\) for .*; got \(1, 2, 3\)$"),
    "Q alone": (COST, TRUE, {"Q": EYE}, ALONE),
    "true_Q alone": (
        COST,
        TRUE,
        {"true_Q": EYE},
        r"^true_Q was given without Q; pass the predicted curvature as Q, or",
    ),
    "Q too small": (
        COST,
        TRUE,
        {"Q": SMALL, "true_Q": EYE},
        r"^Q of shape \(2, 2\) has 2 variables but the problem has 3",
    ),
    "true_Q too small": (
        COST,
        TRUE,
        {"Q": EYE, "true_Q": SMALL},
        r"^true_Q must have shape \(3, 3\) or \(2, 3, 3\); got \(2, 2\)",
    ),
    "Q for another batch": (
        *(COST, TRUE, {"Q": EYE.expand(3, 3, 3), "true_Q": EYE}),
        r"^Q of shape \(3, 3, 3\) has 3 samples but cost has 2;",
    ),
    "Q not symmetric": (COST, TRUE, {"Q": EYE + COST[0], "true_Q": EYE}, r"^Q must be symmetric: entries differ"),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("call", ["regret_gradient", "PEARLoss", "normalized_regret"])
def test_bad_pairs(name: str, call: str) -> None:
    predicted, true, given, message = PAIRS[name]
    calls: dict[str, Callable[[], Any]] = {
        "regret_gradient": lambda: pear.regret_gradient(SIMPLEX, predicted, true, **given),
        "PEARLoss": lambda: pear.PEARLoss(SIMPLEX, guidance=0.0, smoothing=0.1, injection=0.1)(
            predicted, true, **given
        ),
        "normalized_regret": lambda: pear.normalized_regret(SIMPLEX, predicted, true, **given),
    }
    with pytest.raises(pear.ProblemError, match=message):
        calls[call]()


def test_a_solver_that_cannot_do_it_is_helped_out_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the solver fails, another installed solver is asked, and the log names it."""
    pytest.importorskip("daqp")
    case = ZOO["transport"]
    monkeypatch.setattr("pear.solvers.interior_point.interior_point_solver.solve", useless(NAN))
    with caplog.at_level("DEBUG", logger="pear"):
        s = pear.solve(case.problem, case.cost, case.smoothing, solver="interior-point")
    assert bool(s.solved.all())
    assert "interior-point left" in caplog.text
    assert "samples unverified; asking" in caplog.text


def test_a_derivative_by_the_true_cost() -> None:
    """The derivative of the regret by the true cost is the decision minus the best decision."""
    true = TRUE.clone().requires_grad_()
    function = pear.PEARLoss(SIMPLEX, 0.5, reduction="none", guidance=0.0)
    function(COST.clone().requires_grad_(), true).sum().backward()
    z, best = (pear.solve(SIMPLEX, cost, smoothing=0.5).x for cost in (COST, TRUE))
    torch.testing.assert_close(true.grad, z - best)


def test_a_masked_sample_of_one_variable() -> None:
    """The failed sample is remembered from the first call, and the second call does not examine it again."""
    function = pear.PEARLoss(
        pear.Problem(A=[[1.0]], b=[[-1.0], [0.5]], lb=0.0), 0.5, on_failure="mask", reduction="none"
    )
    predicted, true = torch.tensor([[0.1], [0.2]]), torch.tensor([[0.1], [0.3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            assert function(predicted, true, keys=[0, 1])[0] == 0.0


@pytest.mark.parametrize("kind", ["singular", "singular for each", "linear", "definite for each"])
def test_injection_is_that_of_the_closed_form_whatever_the_curvature(kind):
    """Compiled pass and pipeline project and inject alike, also for some rows of a batch of curvatures."""
    r = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=r, dtype=torch.float64)  # noqa: E731
    W = draw(6, 8, 3)
    Q = {
        "singular": W[0] @ W[0].mT,
        "singular for each": W @ W.mT,
        "linear": None,
        "definite for each": W @ W.mT + 0.1 * torch.eye(8),
    }[kind]
    A = draw(3, 8)
    problem = pear.Problem(Q=Q, A=A, b=A @ torch.full((8,), 0.5, dtype=torch.float64), lb=0.0, ub=1.0)
    cost, true = draw(6, 8), draw(6, 8)
    loss = pear.PEARLoss(problem, smoothing=0.0, injection=0.3, guidance=0.0, reduction="sum")
    found = loss.decider.fused.regret(RegretCall(cost, true, 0.0, 0.3))
    assert found is not None
    assert len(found[1]) == 0
    expected = pear.regret_gradient(problem, cost, true, smoothing=0.0, injection=0.3)
    some = [4, 1, 2]
    for rows in (range(6), some):
        leaf = cost[list(rows)].clone().requires_grad_()
        loss(leaf, true[list(rows)], keys=rows).backward()
        torch.testing.assert_close(leaf.grad, expected[list(rows)], rtol=1e-9, atol=1e-10)

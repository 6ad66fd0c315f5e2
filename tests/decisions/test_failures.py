"""Failed samples: each is named or masked, and changes nothing for the other samples of the batch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pear
from pear import Status
from pear.decisions.decider import Decider
from pear.decisions.failure_proofs import prove_failures
from pear.optimality.certificate import is_infeasibility_certificate, is_unboundedness_certificate
from pear.optimality.duals_and_active_sets import Duals
from pear.solvers import available_backends

INF, NAN = float("inf"), float("nan")
BAD = 1  # the middle one of three samples
GOOD = (0, 2)
REASON = {
    Status.INFEASIBLE: "no point satisfies the constraints; check b, h and the bounds of this sample",
    Status.UNBOUNDED: "the objective improves without end; add bounds, curvature (Q) or smoothing",
    Status.NOT_FINITE: "the data of this sample holds NaN, infinity or a number beyond 1e150; check the predictor and "
    "its inputs",
}


@dataclass(frozen=True)
class Case:
    """Three samples, of which the middle one fails under ``cost`` and all are solved under the costs ``true``.

    ``always`` is True if the constraints cause the failure, so that the sample fails under every cost.
    """

    status: Status
    problem: pear.Problem
    cost: Tensor
    true: Tensor
    smoothing: float = 0.0
    always: bool = field(default=False)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def on_simplex(entry: float) -> Case:
    cost = tensor([[0.1, 0.3, 0.2], [0.4, entry, 0.1], [0.3, 0.1, 0.15]])
    true = tensor([[0.2, 0.1, 0.3], [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    return Case(Status.NOT_FINITE, pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0), cost, true, smoothing=1.0)


def cases() -> dict[str, Case]:
    cost, true = on_simplex(0.2).cost, on_simplex(0.2).true
    flat = tensor([[1.0, 2.0], [-1.0, 2.0], [2.0, 1.0]])
    up = flat.abs() + tensor([0.5, 0.1])
    slope = tensor([[2.0, 0.5], [0.5, 2.0], [3.0, 1.0]])
    falling = slope.sort(1, descending=True).values + tensor([0.3, 0.1])
    infeasible, unbounded = Status.INFEASIBLE, Status.UNBOUNDED
    by_rows = pear.Problem(G=[[1, 1, 1], [-1, -1, -1]], h=[[2, -1], [1, -2], [3, 1]], lb=-1.0)
    by_row_and_bound = pear.Problem(A=np.ones((1, 3)), b=[[1.0], [-1.0], [2.0]], lb=0.0)
    half_flat = pear.Problem(Q=np.diag([0.0, 1.0]), lb=[0.0, -INF])
    half_line = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=[0.0, -INF])
    tilted_flat = pear.Problem(Q=np.ones((2, 2)), G=[[-1.0, 1.0]], h=[0.0])
    return {
        "infeasible equality": Case(infeasible, by_row_and_bound, cost, true, 1.0, always=True),
        "infeasible rows": Case(infeasible, by_rows, cost, true, 1.0, always=True),
        "infeasible linear": Case(infeasible, by_row_and_bound, cost, true, 0.0, always=True),
        "unbounded linear": Case(unbounded, pear.Problem(lb=0.0, n=2), flat, up),
        "unbounded linear, free": Case(unbounded, half_line, slope, falling),
        "unbounded, flat along a variable": Case(unbounded, half_flat, flat, up),
        "unbounded, flat along a slope": Case(unbounded, tilted_flat, slope, falling),
        "NaN": on_simplex(NAN),
        "infinity": on_simplex(INF),
        "minus infinity": on_simplex(-INF),
    }


CASES = cases()
every_case = pytest.mark.parametrize("name", CASES)


def solve(case: Case, rows: Any, cost: Tensor, **how: Any) -> Tensor:
    return pear.solve(case.problem[rows], cost[rows], smoothing=case.smoothing, **how).x


def gradient(case: Case, rows: Any, cost: Tensor, **how: Any) -> Tensor:
    return pear.regret_gradient(case.problem[rows], cost[rows], case.true[rows], case.smoothing, **how)


def loss(case: Case, rows: Any, cost: Tensor, **how: Any) -> Tensor:
    """Return (B, 1 + n): the regret of each sample, followed by its gradient."""
    predicted = cost[rows].clone().requires_grad_()
    function = pear.PEARLoss(
        case.problem[rows], smoothing=case.smoothing, injection=0.0, reduction="none", guidance=0.0, **how
    )
    value = function(predicted, case.true[rows])
    value.sum().backward()
    assert predicted.grad is not None
    return torch.cat([value[:, None], predicted.grad], 1).detach()


def layer(case: Case, rows: Any, cost: Tensor, **how: Any) -> Tensor:
    """Return (B, 2n): the decision, followed by the derivative of a weighted sum of its entries."""
    predicted = cost[rows].clone().requires_grad_()
    z = pear.DecisionLayer(case.problem[rows], smoothing=case.smoothing, **how)(predicted)
    (z * torch.arange(1.0, z.shape[1] + 1)).sum().backward()
    assert predicted.grad is not None
    return torch.cat([z, predicted.grad], 1).detach()


CALLS: dict[str, tuple[Callable[..., Tensor], str, float]] = {
    "solve": (solve, "the problem", NAN),
    "regret_gradient": (gradient, "the predicted costs", 0.0),
    "PEARLoss": (loss, "the predicted costs", 0.0),
    "DecisionLayer": (layer, "the decision layer", 0.0),
}
every_call = pytest.mark.parametrize("call", CALLS)


SPREADS = (
    ". Behind a prediction that is not finite the gradient of the weights is NaN where a feature is, because 0 × NaN "
    "is NaN: leave these rows out before the model sees them, as pear.fit does"
)


def message(status: Status, what: str) -> str:
    return f"1 of 3 samples could not be solved for {what}: sample {BAD} ({status.name}): {REASON[status]}"


# ------------------------------------------------------------------------------------------------------ raise or mask


@every_call
@every_case
def test_default_raises_and_names_the_sample(name: str, call: str) -> None:
    case, (function, what, _) = CASES[name], CALLS[call]
    expected = (
        message(case.status, what) + ". To go on, leave them out, or pass on_failure='mask' where it is an argument"
    )
    with pytest.raises(pear.SolveError, match=f"^{re.escape(expected)}$") as caught:
        function(case, slice(None), case.cost)
    assert caught.value.samples == [BAD]
    assert caught.value.statuses == [case.status]


@every_call
@every_case
def test_mask_leaves_the_others_exactly_as_they_are(name: str, call: str) -> None:
    case, (function, what, nothing) = CASES[name], CALLS[call]
    trained = function in (loss, layer) and case.status == Status.NOT_FINITE
    said = message(case.status, what) + (SPREADS if trained else "")
    with pytest.warns(pear.FailedSamplesWarning, match=f"^{re.escape(said)}$") as caught:
        masked = function(case, slice(None), case.cost, on_failure="mask")
    assert len(caught) == 1
    expected = torch.full_like(masked[BAD], nothing)
    torch.testing.assert_close(masked[BAD], expected, rtol=0, atol=0, equal_nan=True)
    for i in GOOD:
        alone = function(case, [i], case.cost)
        assert bool(alone.isfinite().all())
        assert torch.equal(masked[i], alone[0])


def kind(case: Case) -> str:
    return "lp" if case.smoothing == 0 and case.problem.Q is None else "qp"


@pytest.mark.parametrize(
    ("name", "solver"), [(name, b.name) for name in CASES for b in available_backends() if kind(CASES[name]) in b.kinds]
)
def test_every_solver_gives_the_same_fates(name: str, solver: str) -> None:
    case = CASES[name]
    with pytest.warns(pear.FailedSamplesWarning):
        s = pear.solve(case.problem, case.cost, smoothing=case.smoothing, solver=solver, on_failure="mask")
    assert s.status.tolist() == [Status.SOLVED, case.status, Status.SOLVED]


@every_case
def test_solution_of_a_failed_sample_is_empty(name: str) -> None:
    case = CASES[name]
    with pytest.warns(pear.FailedSamplesWarning):
        s = pear.solve(case.problem, case.cost, smoothing=case.smoothing, on_failure="mask")
    assert s.solved.tolist() == [True, False, True]
    assert s.value.isnan().tolist() == s.kkt_residual.isnan().tolist() == [False, True, False]
    assert not bool(s.active.fixed[BAD].any() | s.active.rows[BAD].any() | s.repaired[BAD])
    assert s.weakly_active[BAD] == 0


@every_case
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions_run_over_the_solved_samples(name: str, reduction: str) -> None:
    case = CASES[name]
    each = [loss(case, [i], case.cost) for i in GOOD]
    predicted = case.cost.clone().requires_grad_()
    function = pear.PEARLoss(
        case.problem, case.smoothing, injection=0.0, on_failure="mask", reduction=reduction, guidance=0.0
    )
    with pytest.warns(pear.FailedSamplesWarning):
        total = function(predicted, case.true)
    total.backward()
    assert predicted.grad is not None
    share = 0.5 if reduction == "mean" else 1.0
    assert total.item() == pytest.approx(share * float(sum(row[0, 0] for row in each)), rel=1e-14)
    assert predicted.grad[BAD].tolist() == [0.0] * case.problem.n
    for i, row in zip(GOOD, each, strict=True):
        torch.testing.assert_close(predicted.grad[i], share * row[0, 1:], rtol=1e-14, atol=0)
    assert function.last is not None
    assert function.last.status.tolist() == [Status.SOLVED, case.status, Status.SOLVED]
    assert function.last.regret[BAD] == 0
    assert function.last.decision[BAD].tolist() == [0.0] * case.problem.n


# ------------------------------------------------------------------------------------------------------ the true cost


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].always])
def test_a_bad_true_cost(name: str) -> None:
    """Predicted and true costs are exchanged, so that the middle sample fails under its true cost."""
    case = CASES[name]
    expected = message(case.status, "the true costs")

    def regret(rows: Any, on_failure: str) -> tuple[Tensor, Tensor]:
        predicted = case.true[rows].clone().requires_grad_()
        function = pear.PEARLoss(
            case.problem[rows], case.smoothing, injection=0.0, reduction="none", on_failure=on_failure, guidance=0.0
        )
        value = function(predicted, case.cost[rows])
        value.sum().backward()
        assert predicted.grad is not None
        return value.detach(), predicted.grad

    with pytest.raises(pear.SolveError, match=f"^{re.escape(expected)}. To go on, leave them out") as caught:
        regret(slice(None), "raise")
    assert caught.value.samples == [BAD]
    with pytest.warns(pear.FailedSamplesWarning, match=f"^{re.escape(expected)}$"):
        value, g = regret(slice(None), "mask")
    assert value[BAD] == 0
    assert g[BAD].tolist() == [0.0] * case.problem.n
    for i in GOOD:
        alone = regret([i], "raise")
        assert torch.equal(value[i], alone[0][0])
        assert torch.equal(g[i], alone[1][0])


@pytest.mark.parametrize("entry", [NAN, INF, -INF])
def test_a_true_cost_that_is_not_finite_has_no_gradient(entry: float) -> None:
    """``regret_gradient`` does not solve the problem under the true cost, so that it has to check this cost itself."""
    case = on_simplex(entry)
    expected = message(Status.NOT_FINITE, "the true costs")
    with pytest.raises(pear.SolveError, match=f"^{re.escape(expected)}"):
        pear.regret_gradient(case.problem, case.true, case.cost, case.smoothing)
    with pytest.warns(pear.FailedSamplesWarning, match=f"^{re.escape(expected)}$"):
        g = pear.regret_gradient(case.problem, case.true, case.cost, case.smoothing, on_failure="mask")
    assert g[BAD].tolist() == [0.0] * 3
    for i in GOOD:
        alone = pear.regret_gradient(case.problem, case.true[[i]], case.cost[[i]], case.smoothing)
        assert torch.equal(g[i], alone[0])


def test_predicted_and_true_costs_fail_in_different_samples() -> None:
    case = CASES["unbounded linear"]
    predicted, true = case.true.clone().requires_grad_(), case.true.clone()
    with torch.no_grad():
        predicted[0, 0], true[2, 1] = -1.0, NAN
    function = pear.PEARLoss(
        case.problem, smoothing=0.0, injection=0.0, on_failure="mask", reduction="none", guidance=0.0
    )
    with pytest.warns(pear.FailedSamplesWarning) as caught:
        value = function(predicted, true)
    assert [str(w.message).split(" (")[0].split(" for ")[1] for w in caught] == [
        "the predicted costs: sample 0",
        "the true costs: sample 2",
    ]
    value.sum().backward()
    assert predicted.grad is not None
    assert bool(value.isfinite().all() & predicted.grad.isfinite().all())
    assert function.last is not None
    assert function.last.status.tolist() == [Status.UNBOUNDED, Status.SOLVED, Status.NOT_FINITE]


def test_many_failures_are_counted_and_the_first_five_named() -> None:
    costs = torch.full((8, 2), NAN)
    costs[3] = 1.0
    with pytest.raises(pear.SolveError, match=r"^7 of 8 samples .*: samples 0, 1, 2, 4, 5 and 2 more \(NOT_") as e:
        pear.solve(pear.Problem(lb=0.0, n=2), costs)
    assert str(e.value).count("NOT_FINITE") == 1
    assert e.value.samples == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_all_samples_masked(reduction: str) -> None:
    predicted = torch.full((2, 3), NAN, requires_grad=True)
    function = pear.PEARLoss(
        pear.Problem(lb=0.0, ub=1.0, n=3),
        on_failure="mask",
        reduction=reduction,
        guidance=0.0,
        smoothing=0.1,
        injection=0.1,
    )
    with pytest.warns(pear.FailedSamplesWarning, match="2 of 2 samples"):
        value = function(predicted, torch.ones(2, 3))
    value.sum().backward()
    assert predicted.grad is not None
    assert value.tolist() == ([0.0, 0.0] if reduction == "none" else 0.0)
    assert predicted.grad.tolist() == [[0.0] * 3] * 2


def test_a_failed_sample_is_forgotten_and_can_recover() -> None:
    """With keys, a failure in one epoch changes nothing in the next epoch."""
    case = CASES["NaN"]
    function = pear.PEARLoss(
        case.problem, case.smoothing, injection=0.0, on_failure="mask", reduction="none", guidance=0.0
    )
    with pytest.warns(pear.FailedSamplesWarning):
        function(case.cost, case.true, keys=[7, 8, 9])
    healthy = case.cost.nan_to_num(0.2)
    again = function(healthy, case.true, keys=[7, 8, 9])
    fresh = pear.PEARLoss(case.problem, case.smoothing, injection=0.0, reduction="none", guidance=0.0)(
        healthy, case.true
    )
    torch.testing.assert_close(again, fresh, rtol=1e-13, atol=1e-15)
    assert function.last is not None
    assert function.last.status.tolist() == [0, 0, 0]


def test_nothing_is_warned_of_where_all_is_well() -> None:
    case = CASES["NaN"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function, _, _ in CALLS.values():
            function(case, slice(None), case.true, on_failure="mask")


# ---------------------------------------------------------------------------------------- data that comes with the call


OVERRIDES: dict[str, tuple[Status, dict[str, Any]]] = {
    "b NaN": (Status.NOT_FINITE, {"b": tensor([[1.0], [NAN], [2.0]])}),
    "A infinite": (Status.NOT_FINITE, {"A": tensor([[[1.0, 1.0]], [[1.0, INF]], [[1.0, 2.0]]])}),
    "h NaN": (Status.NOT_FINITE, {"h": tensor([[4.0], [NAN], [5.0]])}),
    "h minus infinity": (Status.INFEASIBLE, {"h": tensor([[4.0], [-INF], [5.0]])}),
    "bounds NaN": (Status.NOT_FINITE, {"lb": tensor([[0.0, 0.0], [0.0, NAN], [0.1, 0.0]])}),
    "bounds crossed": (Status.INFEASIBLE, {"lb": tensor([[0.0, 0.0], [0.0, 11.0], [0.1, 0.0]])}),
    "Q NaN": (
        Status.NOT_FINITE,
        {"Q": torch.stack([torch.eye(2), torch.full((2, 2), NAN), 2 * torch.eye(2)]).double()},
    ),
    "b out of reach": (Status.INFEASIBLE, {"b": tensor([[1.0], [50.0], [2.0]])}),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_bad_field_reaches_nobody_else(name: str) -> None:
    """A field is given for each sample; its bad middle row changes no decision and no derivative of the others."""
    status, fields = OVERRIDES[name]
    problem = pear.Problem(Q=np.eye(2), A=[[1.0, 1.0]], b=[1.0], G=[[1.0, 0.0]], h=[5.0], lb=0.0, ub=10.0)
    cost = tensor([[0.1, 0.2], [0.2, 0.1], [0.3, 0.1]])

    def decide(rows: Any, on_failure: str) -> tuple[Tensor, list[Tensor]]:
        leaves = [value[rows].clone().requires_grad_() for value in (cost, *fields.values())]
        layer = pear.DecisionLayer(problem, on_failure=on_failure)
        z = layer(leaves[0], **dict(zip(fields, leaves[1:], strict=True)))
        (z * tensor([1.0, 3.0])).sum().backward()
        assert layer.status is not None
        if len(layer.status) == 3:
            assert layer.status.tolist() == [Status.SOLVED, status, Status.SOLVED]
        return z.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]

    with pytest.raises(pear.SolveError, match=re.escape(message(status, "the decision layer"))):
        decide(slice(None), "raise")
    with pytest.warns(pear.FailedSamplesWarning, match=re.escape(message(status, "the decision layer"))):
        z, grads = decide(slice(None), "mask")
    assert not bool(z[BAD].any())
    assert not any(bool(g[BAD].any()) for g in grads)
    for i in GOOD:
        alone, own = decide([i], "raise")
        assert torch.equal(z[i], alone[0])
        assert all(torch.equal(g[i], mine[0]) for g, mine in zip(grads, own, strict=True))


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("solver", ["auto", "osqp", "daqp", "clarabel"])
def test_a_curvature_of_the_wrong_sign_is_not_called_solved(bounded: bool, solver: str) -> None:
    """A predicted Q may have any sign. No point of a concave problem is verified, and none is returned."""
    problem = pear.Problem(lb=-1.0, ub=1.0, n=2) if bounded else pear.Problem(n=2)
    Q = torch.stack([torch.eye(2), -torch.eye(2), 2 * torch.eye(2)]).double()
    with pytest.warns(pear.FailedSamplesWarning):
        s = pear.solve(problem, tensor([[0.5, 0.2]] * 3), Q=Q, solver=solver, on_failure="mask")
    assert s.solved.tolist() == [True, False, True]
    assert bool(s.x[BAD].isnan().all())


# ------------------------------------------------------------------------------------------------------------ integers


def test_integer_problems_have_fates_too() -> None:
    problem = pear.Problem(G=[[2.0, 3.0]], h=[[4.0], [-1.0], [3.0]], lb=0.0, ub=1.0, sense="max", integer=True)
    cost = tensor([[1.0, 2.0], [1.0, 2.0], [NAN, 1.0]])
    with pytest.raises(pear.SolveError, match=r"^2 of 3 samples .*sample 1 \(INFEASIBLE\).*sample 2 \(NOT_FINITE\)"):
        pear.solve(problem, cost)
    with pytest.warns(pear.FailedSamplesWarning):
        s = pear.solve(problem, cost, on_failure="mask")
    assert s.status.tolist() == [Status.SOLVED, Status.INFEASIBLE, Status.NOT_FINITE]
    assert s.x[0].tolist() == [0.0, 1.0]
    assert bool(s.x[1:].isnan().all() & s.value[1:].isnan().all())
    unbounded = pear.Problem(lb=0.0, n=1, integer=True)
    with pytest.raises(pear.SolveError, match=r"sample 0 \(UNBOUNDED\)"):
        pear.solve(unbounded, [[-1.0]])


def test_normalized_regret_raises() -> None:
    with pytest.raises(pear.SolveError, match=r"sample 1 \(NOT_FINITE\)"):
        pear.normalized_regret(CASES["NaN"].problem, CASES["NaN"].cost, CASES["NaN"].true)
    with pytest.raises(pear.SolveError, match=r"sample 1 \(UNBOUNDED\)"):
        pear.normalized_regret(
            CASES["unbounded linear"].problem, CASES["NaN"].true[:, :2], CASES["unbounded linear"].cost
        )


# -------------------------------------------------------------------------------------------------------- certificates


def planted(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any], np.ndarray, np.ndarray]:
    """Draw badly scaled rows.

    Returns:
        The fields of a feasible set, those of the same set with one contradicting row more, a direction in which the
        feasible set is unbounded, and a random cost.
    """
    n, m = int(rng.integers(3, 12)), int(rng.integers(2, 9))
    unit, scale = 10.0 ** rng.uniform(-6, 6), 10.0 ** rng.uniform(-6, 6, m + 1)
    d, x, u = rng.normal(size=n) * (rng.random(n) < 0.7), unit * rng.normal(size=n), rng.uniform(0.1, 1.0, m)
    d[0] = 1.0
    G = rng.normal(size=(m, n))
    G -= np.outer(np.maximum(G @ d, 0.0) * 1.5, d) / (d @ d)
    h = G @ x + unit * rng.uniform(0.0, 1.0, m)
    bad = np.vstack([G, -u @ G]), np.append(h, -(u @ h) - unit * 10.0 ** rng.uniform(-4, 0))
    feasible = {"G": G * scale[:m, None], "h": h * scale[:m]}
    return feasible, {"G": bad[0] * scale[:, None], "h": bad[1] * scale}, d / np.linalg.norm(d), rng.normal(size=n)


def test_what_is_planted_is_named() -> None:
    rng = np.random.default_rng(0)
    for _ in range(25):
        feasible, contradictory, d, c = planted(rng)
        P = np.eye(len(d)) - np.outer(d, d)
        Q = P @ np.diag(10.0 ** rng.uniform(-3, 3, len(d))) @ P
        Q, falls = (Q + Q.T) / 2, (P @ c - 0.1 * d)[None]
        for fields, expected in ((contradictory, Status.INFEASIBLE), (feasible, Status.UNBOUNDED)):
            qp = pear.Problem(Q=Q, **fields).canonical(tensor(falls))
            assert prove_failures(qp).tolist() == [expected]
        definite = pear.Problem(Q=Q + 1e-11 * np.abs(Q).max() * np.eye(len(d)), **feasible).canonical(tensor(falls))
        assert prove_failures(definite).tolist() == [Status.INACCURATE]  # which is for solvers to say


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("apart", [1e-6, 1e-8, 1e-9, 3e-10])
def test_a_small_contradiction_is_named(apart: float, unit: float) -> None:
    """Two rows contradict each other by less than the absolute tolerance of a linear program, in several units."""
    rows = np.array([[1.0, 2.0, -1.0], [-1.0, -2.0, 1.0], [0.3, -0.2, 0.7]])
    fields = {"G": rows, "h": unit * np.array([1.0, -1.0 - 2 * apart, 1.0]), "lb": -3 * unit, "ub": 3 * unit}
    qp = pear.Problem(**fields).canonical(torch.ones(1, 3))
    assert prove_failures(qp).tolist() == [Status.INFEASIBLE]
    met = pear.Problem(**{**fields, "h": unit * np.array([1.0, -1.0 + 2 * apart, 1.0])}).canonical(torch.ones(1, 3))
    assert prove_failures(met).tolist() == [Status.INACCURATE]  # which is for solvers to say


def test_a_certificate_is_checked_and_not_believed() -> None:
    """Duals and directions that prove nothing are rejected: wrong signs, free variables, bounds in the way."""
    rows = pear.Problem(A=[[1.0, 1.0]], b=[-1.0], lb=0.0).canonical(torch.zeros(1, 2))
    nothing = torch.zeros(1, 0, dtype=torch.float64)
    for y, proven in ((1.0, True), (-1.0, False), (0.0, False), (1e-200, True)):
        assert is_infeasibility_certificate(rows, Duals(tensor([[y]]), nothing, tensor([[0.0, 0.0]]))).tolist() == [
            proven
        ]
    free = pear.Problem(A=[[1.0, 1.0]], b=[-1.0], lb=[0.0, -INF]).canonical(torch.zeros(1, 2))
    assert is_infeasibility_certificate(free, Duals(tensor([[1.0]]), nothing, tensor([[0.0, 0.0]]))).tolist() == [False]
    nearly_flat = pear.Problem(Q=np.diag([1.0, 1e-12]), ub=[INF, 5.0]).canonical(tensor([[0.0, -1.0]]))
    flat = pear.Problem(Q=np.diag([1.0, 0.0]), n=2).canonical(tensor([[0.0, -1.0]]))
    assert is_unboundedness_certificate(flat, tensor([[0.0, 2.0]])).tolist() == [True]
    assert is_unboundedness_certificate(flat, tensor([[0.0, -2.0]])).tolist() == [False]
    assert is_unboundedness_certificate(flat, tensor([[1e-9, 2.0]])).tolist() == [False]
    assert is_unboundedness_certificate(nearly_flat, tensor([[0.0, 2.0]])).tolist() == [False]


def test_a_curvature_of_1e_12_is_bounded() -> None:
    """A linear program with an absolute tolerance took this curvature for zero, and the sample for unbounded."""
    found = pear.solve(pear.Problem(Q=np.diag([1.0, 1e-12]), n=2), [[1.0, -1.0]])
    torch.testing.assert_close(found.x, tensor([[-1.0, 1e12]]), rtol=1e-9, atol=0)


@every_call
def test_a_cost_that_overflows_is_not_finite(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The square of the cost overflows, so that no solver and no linear program is asked."""
    monkeypatch.setattr("pear.decisions.pipeline.prove_failures", lambda qp: pytest.fail("a linear program was asked"))
    problem = pear.Problem(Q=np.eye(3), G=np.eye(3), h=np.ones(3))
    for size in (1e308, 1e200):
        case = Case(Status.NOT_FINITE, problem, on_simplex(size).cost, on_simplex(0.2).true)
        function, what, _ = CALLS[call]
        with pytest.raises(pear.SolveError, match=re.escape(message(Status.NOT_FINITE, what))):
            function(case, slice(None), case.cost)


# --------------------------------------------------------------------------------------------------------- no samples


EMPTY = {
    "linear": (pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0), 0.0),
    "smoothed": (pear.Problem(A=np.ones((1, 3)), b=[1.0], G=[[1.0, 0, 0]], h=[0.5], lb=0.0), 0.1),
    "no constraints": (pear.Problem(n=3), 0.1),
    "own fields": (pear.Problem(Q=np.eye(3), G=np.ones((2, 1, 3)), h=np.ones((2, 1)))[:0], 0.0),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("keys", [None, []])
def test_a_batch_of_no_samples(name: str, keys: Any) -> None:
    problem, smoothing = EMPTY[name]
    none = torch.zeros(0, 3)
    s = pear.solve(problem, none, smoothing=smoothing)
    assert s.x.shape == (0, 3)
    assert len(s.value) == len(s.status) == len(s.kkt_residual) == len(s.weakly_active) == 0
    assert pear.regret_gradient(problem, none, none, smoothing, injection=0.1 if smoothing else 0.0).shape == (0, 3)
    with pytest.raises(pear.ProblemError, match="have no rows"):
        pear.normalized_regret(problem, none, none)
    for reduction, shape in (("mean", ()), ("sum", ()), ("none", (0,))):
        predicted = none.clone().requires_grad_()
        value = pear.PEARLoss(problem, smoothing, 0.0, reduction=reduction, guidance=0.0)(predicted, none, keys=keys)
        value.sum().backward()
        assert value.shape == shape
        assert not bool(value.isnan().any() | value.any())
        assert predicted.grad is not None
        assert predicted.grad.shape == (0, 3)
    predicted = none.clone().requires_grad_()
    z = pear.DecisionLayer(problem, smoothing)(predicted, keys=keys)
    assert z.shape == (0, 3)
    z.sum().backward()


def test_a_batch_of_no_integer_samples() -> None:
    problem = pear.Problem(lb=0.0, ub=1.0, n=2, integer=True)
    assert pear.solve(problem, torch.zeros(0, 2)).x.shape == (0, 2)
    with pytest.raises(pear.ProblemError, match="have no rows"):
        pear.normalized_regret(problem, torch.zeros(0, 2), torch.zeros(0, 2))


def test_a_solution_says_what_it_holds_in_one_line() -> None:
    box = pear.Problem(lb=0.0, ub=1.0, n=2)
    with pytest.warns(pear.FailedSamplesWarning):
        mixed = pear.solve(box, [[1.0, -1.0], [NAN, 1.0], [2.0, 1.0]], on_failure="mask")
    with pytest.warns(pear.FailedSamplesWarning):
        failed = pear.solve(box, [[NAN, 1.0]], on_failure="mask")
    pattern = (
        r"Solution\(3 samples of 2 variables: 2 SOLVED, 1 NOT_FINITE; mean value -0\.5; kkt_residual ≤ \d\.\de[+-]\d+\)"
    )
    assert re.fullmatch(pattern, repr(mixed))
    assert repr(failed) == "Solution(1 sample of 2 variables: 1 NOT_FINITE)"


def test_a_bound_or_a_row_in_the_way_is_no_direction_without_end() -> None:
    bounded = pear.Problem(lb=[0.0, -INF], n=2).canonical(tensor([[1.0, 1.0]]))
    assert is_unboundedness_certificate(bounded, tensor([[-1.0, 0.0]])).tolist() == [False]
    assert is_unboundedness_certificate(bounded, tensor([[0.0, -1.0]])).tolist() == [True]
    row = pear.Problem(G=[[1e-9, 0.0]], h=[1.0]).canonical(tensor([[-1.0, -1.0]]))
    assert is_unboundedness_certificate(row, tensor([[1.0, 0.0]])).tolist() == [False]
    assert is_unboundedness_certificate(row, tensor([[0.0, 1.0]])).tolist() == [True]


def test_rows_that_differ_by_rounding_have_points_along_which_to_fall() -> None:
    rows = pear.Problem(A=[[0.1, 0.2, 0.0], [0.3, 0.6, 0.0]], b=[0.3, 0.9 * (1 + 1e-12)])
    assert prove_failures(rows.canonical(tensor([[0.0, 0.0, -1.0]]))).tolist() == [Status.UNBOUNDED]


def test_a_failure_is_kept_for_the_constraints_of_its_call() -> None:
    decider, cost = Decider(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), "auto"), tensor([[1.0, 2.0]])
    for b, status in ((-1.0, Status.INFEASIBLE), (1.0, Status.SOLVED), (-1.0, Status.INFEASIBLE)):
        assert decider.solve(cost, 0.0, ["a"], b=tensor([[b]])).status.tolist() == [status]


def test_the_warning_of_a_masked_sample_names_the_line_of_the_user() -> None:
    impossible = pear.Problem(A=[[1.0, 1.0]], b=[-1.0], lb=0.0)
    with pytest.warns(pear.FailedSamplesWarning) as caught:
        pear.solve(impossible, [[1.0, 2.0]], on_failure="mask")
    assert [one.filename for one in caught] == [__file__]

"""``DecisionLayer``: derivatives by every field of the problem against finite differences, at planted solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from zoo import ZOO, Planted, arrays, curvature, jacobian, projection

import pear
from pear.losses import make_loss

CHECK: dict[str, Any] = {"eps": 1e-6, "atol": 1e-7, "rtol": 1e-6}
UNIT = [name for name, case in ZOO.items() if case.force == 1.0]
# a step of one size suits neither bounds that coincide nor rows in units of a million and a millionth
INDEPENDENT = [name for name in UNIT if ZOO[name].independent and name not in ("fixed", "uneven rows")]
FIELDS = ("Q", "A", "b", "G", "h", "lb", "ub")


def leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def fields(case: Planted) -> dict[str, Tensor]:
    """Return the fields to differentiate by: those that the problem has and that have no infinite entries."""
    given = {name: getattr(case.problem, name) for name in FIELDS}
    return {name: value for name, value in given.items() if value is not None and bool(value.isfinite().all())}


def check(case: Planted, rows: Any, names: list[str], fast: bool) -> bool:
    """Check the derivatives of the decision by the cost and by the named fields at once with gradcheck."""
    layer = pear.DecisionLayer(case.problem[rows], case.smoothing)
    per_sample = {"Q": 3, "A": 3, "G": 3}
    values = [getattr(case.problem, name) for name in names]
    values = [v[rows] if v.ndim == per_sample.get(k, 2) else v for k, v in zip(names, values, strict=True)]

    def decide(cost: Tensor, *given: Tensor) -> Tensor:
        moved = {name: 0.5 * (v + v.mT) if name == "Q" else v for name, v in zip(names, given, strict=True)}
        return layer(cost, **moved)

    return torch.autograd.gradcheck(decide, (leaf(case.cost[rows]), *map(leaf, values)), **CHECK, fast_mode=fast)


# --------------------------------------------------------------------------------------------------------- gradcheck


@pytest.mark.parametrize("name", UNIT)
def test_by_cost_and_curvature(name: str) -> None:
    """The derivatives by cost and Q exist if the decision is unique, whatever the rank of the active rows."""
    case = ZOO[name]
    names = ["Q"] if case.problem.Q is not None and name != "singular curvature" else []
    assert check(case, slice(None), names, fast=True)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_by_every_field(name: str) -> None:
    case = ZOO[name]
    names = [k for k in fields(case) if name != "singular curvature" or k != "Q"]
    assert check(case, slice(None), names, fast=True)


@pytest.mark.parametrize("name", ["own everything", "own everything, max"])
@pytest.mark.parametrize("field", ["cost", *FIELDS])
def test_entry_by_entry(name: str, field: str) -> None:
    """Check the whole Jacobian by one field, for a sample with an active constraint of every kind."""
    assert check(ZOO[name], [0], [] if field == "cost" else [field], fast=False)


@pytest.mark.parametrize("sense", ["min", "max"])
def test_smoothing_stays_beside_a_predicted_curvature(sense: str) -> None:
    rng, sign = np.random.default_rng(0), 1 if sense == "min" else -1
    layer = pear.DecisionLayer(pear.Problem(n=3, sense=sense), smoothing=0.3)
    cost, Q = leaf(torch.from_numpy(rng.normal(size=(2, 3)))), leaf(sign * torch.from_numpy(curvature(rng, 3)))
    z = layer(cost, Q=Q)
    H = sign * Q + 0.3 * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(z, -sign * torch.linalg.solve(H, cost.T).T, rtol=1e-12, atol=1e-13)
    assert torch.autograd.gradcheck(lambda c, M: layer(c, Q=0.5 * (M + M.mT)), (cost, Q), **CHECK)


@pytest.mark.parametrize("name", ["repeated equalities", "flow", "transport"])
def test_dependent_equalities_move_together(name: str) -> None:
    """The decision has a derivative by x₀ in b = A x₀, because these right-hand sides stay consistent."""
    case = ZOO[name]
    assert case.problem.A is not None
    A, free = case.problem.A, case.x != 0
    layer = pear.DecisionLayer(case.problem, case.smoothing)

    def decide(x: Tensor) -> Tensor:
        return layer(case.cost, b=(x * free) @ A.T)

    assert torch.autograd.gradcheck(decide, (leaf(case.x),), **CHECK, fast_mode=True)


def test_dependent_rows_get_the_derivative_of_least_norm() -> None:
    """Dependent rows share their derivative in many ways; the result has the least norm for rows of length one."""
    case = ZOO["repeated equalities"]
    b, w = leaf(case.problem.b.expand(case.B, -1)), torch.arange(1.0, case.n + 1).double()
    (pear.DecisionLayer(case.problem)(case.cost, b=b) * w).sum().backward()
    for i in range(case.B):
        a = arrays(case.problem, case.cost, case.smoothing, i)
        J = jacobian(a, case.x[i].numpy())
        share = np.linalg.pinv(J.T, rcond=1e-10) @ (w.numpy() - a.H @ projection(a.H, J) @ w.numpy())
        length = np.linalg.norm(a.A, axis=1)
        expected = share / np.where(length > 0, length, 1.0)
        np.testing.assert_allclose(b.grad[i], expected, rtol=0, atol=1e-10)


def test_pinned_variables_follow_their_bounds() -> None:
    """With lb = ub = t, the derivatives by both bounds sum to that by t, for costs of both signs."""
    problem = pear.Problem(Q=[[2.0, 1.0], [1.0, 2.0]], lb=-5.0, ub=5.0)
    layer = pear.DecisionLayer(problem)
    cost = torch.tensor([[4.0, -1.0], [-4.0, 1.0]], dtype=torch.float64)

    def decide(t: Tensor) -> Tensor:
        lb, ub = (torch.cat([t, torch.full_like(t, side)], 1) for side in (-5.0, 5.0))
        return layer(cost, lb=lb, ub=ub)

    t = leaf(torch.tensor([[0.5], [0.25]], dtype=torch.float64))
    torch.testing.assert_close(decide(t), torch.cat([t, (-cost[:, 1:] - t) / 2], 1), rtol=1e-12, atol=1e-13)
    assert torch.autograd.gradcheck(decide, (t,), **CHECK)


def test_a_pinned_variable_follows_the_bound_that_holds_it() -> None:
    """If a variable cannot move, only the bound that the cost presses it against has a derivative."""
    layer = pear.DecisionLayer(pear.Problem(Q=np.eye(2), lb=-5.0, ub=5.0))
    lb, ub = (leaf(torch.tensor([[0.5, side]] * 3, dtype=torch.float64)) for side in (-5.0, 5.0))
    # up with a small force, down, and down with the free variable at its upper bound
    cost = torch.tensor([[-0.7, 1.0], [2.0, -1.0], [2.0, -9.0]], dtype=torch.float64)
    layer(cost, lb=lb, ub=ub).sum().backward()
    assert lb.grad is not None
    assert ub.grad is not None
    assert lb.grad.tolist() == [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert ub.grad.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    step = torch.tensor([0.01, 0.0], dtype=torch.float64)
    moved = layer(cost[:1], lb=lb[:1].detach(), ub=ub[:1].detach() + step) - layer(cost[:1], lb=lb[:1], ub=ub[:1])
    torch.testing.assert_close(moved[0].detach(), step, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", UNIT)
def test_through_the_layer_regret_has_the_closed_form_gradient(name: str) -> None:
    """Autograd through the layer gives the theorem's gradient ∇R = P(ĉ − c) of the cost of z*(ĉ) under the truth."""
    case, cost = ZOO[name], leaf(ZOO[name].cost)
    z = pear.DecisionLayer(case.problem, case.smoothing)(cost)
    paid = case.problem.sign * case.problem.objective(z, case.true, smoothing=case.smoothing)
    paid.sum().backward()
    g = pear.regret_gradient(case.problem, case.cost, case.true, case.smoothing)
    torch.testing.assert_close(cost.grad, g, rtol=1e-9, atol=1e-11 * max(1.0, float(g.abs().max())))


def test_weakly_active_constraints_count_as_active() -> None:
    """At z = (1, 2), z₀ ≤ 1 is tight with multiplier zero: z₀ does not react to costs, and follows its bound."""
    layer = pear.DecisionLayer(pear.Problem(Q=np.eye(2), ub=[1.0, 9.0]))
    cost, ub = leaf(torch.tensor([[-1.0, -2.0]]).double()), leaf(torch.tensor([[1.0, 9.0]]).double())
    layer(cost, ub=ub).sum().backward()
    assert cost.grad.tolist() == [[0.0, -1.0]]
    assert ub.grad.tolist() == [[1.0, 0.0]]


# ------------------------------------------------------------------------------------------------------------- shapes


def test_a_shared_field_gets_the_sum_over_the_batch() -> None:
    case = ZOO["polyhedron"]
    layer, w = pear.DecisionLayer(case.problem[[1] * 3]), torch.arange(1.0, case.n + 1).double()
    rows = [1] * 3
    cost = case.cost[rows] + torch.tensor([[0.0], [0.01], [-0.01]])
    grads: dict[str, list[Tensor]] = {}
    for shared in (True, False):
        given = {}
        for name in FIELDS:
            value = getattr(case.problem, name)
            one = value[1] if value.ndim == (3 if name in "QAG" else 2) else value
            given[name] = leaf(one if shared else one.expand(3, *one.shape))
        (layer(cost, **given) * w).sum().backward()
        for name, value in given.items():
            assert value.grad is not None
            assert value.grad.shape == value.shape
            grads.setdefault(name, []).append(value.grad if shared else value.grad.sum(0))
    for name, (shared_grad, summed) in grads.items():
        assert float(summed.abs().max()) > 0, name
        torch.testing.assert_close(shared_grad, summed, rtol=1e-11, atol=1e-11, msg=name)


def test_a_bound_that_is_one_number() -> None:
    layer = pear.DecisionLayer(pear.Problem(lb=0.0, n=3), smoothing=1.0)
    lb = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    z = layer(torch.tensor([[1.0, -2.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64), lb=lb)
    assert z.tolist() == [[0.5, 2.0, 0.5], [0.5, 0.5, 0.5]]
    z.sum().backward()
    assert lb.grad is not None
    assert lb.grad.item() == 5.0


@pytest.mark.parametrize("field", ["cost", "Q", "A", "b", "G", "h"])
def test_a_sample_that_is_not_finite_disturbs_no_other(field: str) -> None:
    """This includes derivatives by right-hand sides, for which the rank is computed for the whole batch at once."""
    problem = pear.Problem(Q=np.eye(2), A=[[1.0, 1.0]], b=[1.0], G=[[1.0, 0.0]], h=[0.25])
    layer = pear.DecisionLayer(problem, on_failure="mask")
    given = {name: getattr(problem, name).clone().double() for name in ("Q", "A", "b", "G", "h")}
    given = {"cost": torch.zeros(2, dtype=torch.float64)} | given
    given = {name: torch.stack([value, value]) for name, value in given.items()}
    given[field][0].view(-1)[0] = torch.nan
    b = given["b"].requires_grad_()
    with pytest.warns(pear.FailedSamplesWarning, match="NOT_FINITE"):
        z = layer(**given)
    z.sum().backward()
    expected = torch.tensor([[0.0, 0.0], [0.25, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(z.detach(), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(b.grad, torch.tensor([[0.0], [1.0]], dtype=torch.float64), rtol=0, atol=1e-12)


def test_types_come_back_in_kind() -> None:
    """The decision has the type of the cost, and each derivative the type of its own input."""
    layer = pear.DecisionLayer(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0)
    cost = torch.tensor([[0.2, 0.4]], requires_grad=True)
    b = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
    z = layer(cost, b=b)
    z[0, 0].backward()
    assert z.dtype == cost.grad.dtype == torch.float32
    assert b.grad.dtype == torch.float64
    assert b.grad.item() == pytest.approx(0.5, rel=1e-14)
    assert not layer(cost.detach()).requires_grad
    with torch.no_grad():
        assert not layer(cost, b=b).requires_grad


def test_calls_do_not_disturb_each_other() -> None:
    """Two forward passes are followed by their backward passes in the opposite order, one of them twice."""
    case = ZOO["knapsack"]
    layer, w = pear.DecisionLayer(case.problem, case.smoothing), torch.arange(8.0).double()
    first, second = leaf(case.cost), leaf(case.true)
    z, other = layer(first, keys=[0, 1, 2]), layer(second, keys=[0, 1, 2])
    (other * w).sum().backward()
    (z * w).sum().backward(retain_graph=True)
    alone = leaf(case.cost)
    (pear.DecisionLayer(case.problem, case.smoothing)(alone) * w).sum().backward()
    torch.testing.assert_close(first.grad, alone.grad, rtol=1e-12, atol=1e-13)
    (z * w).sum().backward()
    torch.testing.assert_close(first.grad, 2 * alone.grad, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["Q", "G"])
def test_a_matrix_changed_in_place_before_the_backward_pass_is_refused(name: str) -> None:
    """The layer does not copy matrices, so that the gradient would be that of the changed problem."""
    problem = pear.Problem(Q=np.eye(2), G=[[1.0, 1.0]], h=[1.0])
    matrix = {"Q": torch.eye(2).double(), "G": torch.ones(1, 2).double()}[name].repeat(2, 1, 1)
    cost, layer = leaf(-torch.ones(2, 2)), pear.DecisionLayer(problem)
    z = layer(cost, **{name: matrix})
    matrix *= torch.tensor([1.0, 3.0]).double()
    with pytest.raises(pear.ProblemError, match=rf"{name} was changed in place.*{name}\.clone\(\)"):
        z[:, 0].sum().backward()
    z = layer(cost, **{name: matrix.clone()})
    z[:, 0].sum().backward()
    assert cost.grad is not None


@pytest.mark.parametrize("name", ["layer", "loss"])
def test_data_made_in_inference_mode_is_data(name: str) -> None:
    """Torch cannot save tensors from inference mode for a backward pass; these need no derivative."""
    case = ZOO["simplex"]
    gradients = []
    for inference in (False, True):
        with torch.inference_mode(inference):
            true = case.true.double().clone()
            Q = torch.eye(true.shape[1]).double().repeat(len(true), 1, 1)
        cost = leaf(case.cost)
        if name == "layer":
            found = pear.DecisionLayer(case.problem, case.smoothing)(cost, Q=Q)[:, 0].sum()
        else:
            found = pear.PEARLoss(case.problem, case.smoothing)(cost, true, Q=Q, true_Q=Q)
        found.backward()
        gradients.append(cost.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("name", ["layer", "loss", "dbb", "rfwo"])
def test_second_derivatives_are_refused(name: str, power: int) -> None:
    """Second derivatives would silently be zero if the upstream gradient has no derivative (power 1)."""
    case = ZOO["simplex"]
    cost, w = leaf(case.cost), torch.arange(1.0, 1 + case.cost.shape[1], dtype=torch.float64)
    if name == "layer":
        found = (pear.DecisionLayer(case.problem, case.smoothing)(cost) @ w).sum()
    elif name == "loss":
        found = pear.PEARLoss(case.problem, case.smoothing)(cost, case.true)
    else:
        found = make_loss(name, case.problem)(cost, case.true)
    (grad,) = torch.autograd.grad(found**power, cost, create_graph=True)
    assert grad.shape == cost.shape
    with pytest.raises(pear.ProblemError, match=r"are differentiated once.*without create_graph=True"):
        grad.sum().backward()


def test_a_gradient_beside_another_term_may_be_differentiated_where_the_decision_has_no_part() -> None:
    case = ZOO["simplex"]
    cost, other = leaf(case.cost), leaf(torch.tensor([2.0]))
    total = pear.PEARLoss(case.problem, case.smoothing)(cost, case.true) + (other**3).sum()
    (grad,) = torch.autograd.grad(total, other, create_graph=True)
    grad.backward()
    assert other.grad is not None
    assert other.grad.item() == 12.0


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.jacrev, torch.func.jacfwd])
def test_transforms_of_torch_func_are_refused(transform: Any) -> None:
    case = ZOO["simplex"]
    with pytest.raises(pear.ProblemError, match=r"torch\.func \(vmap, grad, jacrev\) cannot trace a solver; pass all"):
        transform(pear.DecisionLayer(case.problem, case.smoothing))(case.cost)
    with pytest.raises(pear.ProblemError, match=r"torch\.func \(vmap, grad, jacrev\) cannot trace a solver; pass all"):
        torch.func.grad(lambda c: pear.PEARLoss(case.problem, case.smoothing)(c, case.true))(case.cost)


def test_a_field_that_does_not_fit() -> None:
    layer = pear.DecisionLayer(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0)
    cost = torch.zeros(2, 2)
    with pytest.raises(pear.ProblemError, match=r"b of shape \(3, 1\) has 3 samples but cost has 2;"):
        layer(cost, b=torch.ones(3, 1))
    with pytest.raises(pear.ProblemError, match=r"G of shape \(1, 2\) was given without h; the constraint is Gz ≤ h"):
        layer(cost, G=torch.ones(1, 2))
    with pytest.raises(
        pear.ProblemError, match=r"cost must have shape \(B, 2\), one row for each sample; got \(2, 3\)"
    ):
        layer(torch.zeros(2, 3))

"""``smoothing="auto"`` with a Q: each direction gets the curvature that Q lacks, and the loss trains, in any units."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

import pear
from pear.decisions import choose_smoothing
from pear.decisions.missing_curvature import missing_curvature
from pear.problem.matrix import SparseMatrix, to_csr_matrix
from pear.problem.problem_units import problem_in_units

INF = float("inf")
SIMPLEX = {"A": np.ones((1, 4)), "b": [1.0], "lb": 0.0}


def draw(count: int, n: int, seed: int) -> Tensor:
    return torch.randn(count, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def semidefinite(n: int, rank: int, seed: int) -> np.ndarray:
    root = draw(n, rank, seed).numpy()
    return root @ root.T / rank


def factor_model(assets: int = 5, factors: int = 2) -> pear.Problem:
    """Return a factor model with variables for weights, factor returns and turnover |w − w₀|.

    Only the factor returns have curvature.
    """
    n, w0 = 2 * assets + factors, np.full(assets, 1 / assets)
    exposure, one, none = draw(assets, factors, 3).numpy(), np.eye(assets), np.zeros((assets, factors))
    A = np.zeros((factors + 1, n))
    A[:factors, :assets], A[:factors, assets : assets + factors], A[factors, :assets] = exposure.T, -np.eye(factors), 1
    G = np.vstack([np.hstack([one, none, -one]), np.hstack([-one, none, -one])])
    Q = np.zeros((n, n))
    Q[assets : assets + factors, assets : assets + factors] = 0.5 * np.eye(factors)
    lb = np.concatenate([np.zeros(assets), np.full(factors + assets, -INF)])
    return pear.Problem(Q=Q, A=A, b=[*np.zeros(factors), 1.0], G=G, h=np.concatenate([w0, -w0]), lb=lb)


PROBLEMS: dict[str, Any] = {
    "zero rows": lambda: pear.Problem(Q=np.diag([2.0, 0.0, 0.0, 1.0]), **SIMPLEX),
    "one quadratic term": lambda: pear.Problem(Q=np.diag([0.0, 0.0, 3.0]), lb=-1.0, ub=1.0),
    "low rank": lambda: pear.Problem(Q=semidefinite(6, 2, 0), lb=0.0, ub=[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]),
    "factor model with turnover": factor_model,
    "maximised": lambda: pear.Problem(Q=-semidefinite(4, 1, 1), lb=0.0, ub=1.0, sense="max"),
    "weak": lambda: pear.Problem(Q=1e-3 * np.eye(4), **SIMPLEX),
    "per sample": lambda: pear.Problem(Q=np.stack([semidefinite(4, 1 + i % 3, i) for i in range(12)]), **SIMPLEX),
}


def samples(name: str) -> tuple[pear.Problem, Tensor, Tensor]:
    """Return a problem with predicted and true costs of twelve samples; the cost of turnover is known."""
    problem = PROBLEMS[name]()
    true = draw(12, problem.n, 0)
    if name == "factor model with turnover":
        true[:, 5:7], true[:, 7:] = 0.0, 0.1
    return problem, true + 0.5 * draw(12, problem.n, 1) * (true.std(0) > 1e-9), true


def settled(problem: pear.Problem, true: Tensor, **options: Any) -> pear.PEARLoss:
    loss = pear.PEARLoss(problem, **options)
    loss.calibrate(true)
    return loss


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9 * float(expected.abs().max()))


# ---------------------------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize("rank", [0, 3, 8])
def test_every_eigenvalue_is_raised_to_the_floor(rank: int) -> None:
    """Numpy computes the same: the eigenvectors stay, and eigenvalues are raised to at least the floor."""
    H = semidefinite(8, max(rank, 1), rank) * (rank > 0)
    w, V = np.linalg.eigh(H)
    floor = 0.7
    expected = (V * np.maximum(w, floor)) @ V.T
    S = missing_curvature(torch.from_numpy(H), floor)
    assert S is not None
    np.testing.assert_allclose(H + S.numpy(), expected, atol=1e-13)
    assert missing_curvature(torch.from_numpy(expected), 0.99 * floor) is None


def test_samples_are_raised_one_by_one() -> None:
    H = torch.stack([torch.from_numpy(semidefinite(5, k, k)) for k in (1, 3, 5)])
    H[2] += 2 * torch.eye(5).double()
    S = missing_curvature(H, 1.0)
    assert S is not None
    assert not S[2].abs().max() > 1e-12
    for one, more in zip(H[:2], S[:2], strict=True):
        alone = missing_curvature(one, 1.0)
        assert alone is not None
        torch.testing.assert_close(more, alone, rtol=0, atol=1e-13)


def test_sparse_is_dense() -> None:
    """The sparse result equals the dense one, for groups of coupled variables, single variables and empty rows."""
    blocks = [semidefinite(k, max(1, k - 1), k) for k in (3, 1, 3, 5, 2)] + [np.zeros((2, 2)), np.eye(2) * 9.0]
    shuffled = np.random.default_rng(0).permutation(sum(len(block) for block in blocks))
    H = sparse.block_diag(blocks).toarray()[np.ix_(shuffled, shuffled)]
    S = missing_curvature(SparseMatrix(sparse.csr_array(H)), 0.4)
    w, V = np.linalg.eigh(H)
    assert isinstance(S, SparseMatrix)
    np.testing.assert_allclose(S.csr.toarray(), (V * np.maximum(0.4 - w, 0)) @ V.T, atol=1e-13)
    assert S.nnz < H.size / 4
    dense = missing_curvature(torch.from_numpy(H), 0.4)
    assert dense is not None
    np.testing.assert_array_equal(dense.numpy(), S.csr.toarray())


def test_many_coupled_variables_get_the_floor_on_the_diagonal() -> None:
    """Large groups get the floor on the diagonal, without eigenvalues.

    A chain of 700 differences has the eigenvalue zero. With 1 added to its diagonal it has enough curvature.
    """
    chain = sparse.diags_array(
        [np.full(699, -1.0), np.r_[1.0, np.full(698, 2.0), 1.0], np.full(699, -1.0)], offsets=[-1, 0, 1]
    )
    S = missing_curvature(SparseMatrix(sparse.csr_array(chain)), 0.3)
    assert S is not None
    np.testing.assert_array_equal(S.csr.toarray(), 0.3 * np.eye(700))
    enough = sparse.csr_array(chain + sparse.diags_array(np.ones(700)))
    assert missing_curvature(SparseMatrix(enough), 0.3) is None
    twisted = sparse.csr_array(sparse.block_diag([enough, np.array([[2.0, -1.9], [-1.9, 2.0]])]))
    S = missing_curvature(SparseMatrix(twisted), 0.3)
    assert S is not None
    np.testing.assert_allclose(S.csr.toarray()[700:, 700:], 0.1 * np.ones((2, 2)), atol=1e-14)
    assert S.nnz == 4


# -------------------------------------------------------------------------------------------------- what it settles on


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_decider_has_the_raised_curvature(name: str) -> None:
    """As in numpy, eigenvalues in the variables' units are raised to the floor, and larger ones are unchanged."""
    problem, _, true = samples(name)
    loss = settled(problem, true)
    floor, units = loss.least_curvature, np.ones(problem.n) if loss.units is None else loss.units.numpy()
    assert floor > 0
    assert loss.chosen_smoothing == 0.0
    Q, raised = (problem.sign * p.Q.reshape(-1, p.n, p.n).numpy() for p in (problem, loss.decider.problem))
    for own, found in zip(Q, raised, strict=True):
        w, V = np.linalg.eigh(units[:, None] * own * units)
        np.testing.assert_allclose(found, (V * np.maximum(w, floor)) @ V.T, atol=1e-12 * max(w.max(), floor))


def test_the_floor_is_what_another_decision_costs() -> None:
    """A loop over pairs of samples gives the same floor.

    It is ρ times the median of (f(z_k; c_i) − f(z_i; c_i)) / ‖z_k − z_i‖², where f includes Q.
    """
    problem, true = (
        pear.Problem(Q=np.diag([2.0, 0.0, 0.0, 1.0]), lb=0.0, ub=1.0, **{"A": np.ones((1, 4)), "b": [1.0]}),
        draw(12, 4, 0),
    )
    x, Q, ratios = pear.solve(problem, true).x.numpy(), problem.Q.numpy(), []

    def value(z: np.ndarray, c: np.ndarray) -> float:
        return float(0.5 * z @ Q @ z + c @ z)

    for shift in range(1, 9):
        for i in range(12):
            z, other, c = x[i], x[(i - shift) % 12], true[i].numpy()
            if (apart := ((z - other) ** 2).sum()) > 1e-5:
                ratios.append((value(other, c) - value(z, c)) / apart)
    loss = settled(problem, true)
    assert loss.units is None
    expected = choose_smoothing.STRENGTH * np.sort(ratios)[(len(ratios) - 1) // 2]
    assert loss.least_curvature == pytest.approx(expected, rel=1e-9)


def test_it_is_said_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    problem, _, true = samples("zero rows")
    with caplog.at_level(logging.INFO, logger="pear"):
        loss = settled(problem, true)
    assert caplog.messages == [loss.smoothing_note]
    assert loss.smoothing_note.startswith(f"smoothing='auto' settled on λ = {loss.least_curvature:.3g}")
    assert " as the least curvature of every direction: 0.5 × what the decision of" in loss.smoothing_note


def test_enough_curvature_stays_as_it_is() -> None:
    strong = pear.Problem(Q=np.diag([50.0, 60.0, 70.0, 80.0]), **SIMPLEX)
    loss = settled(strong, draw(12, 4, 0))
    assert (loss.chosen_smoothing, loss.least_curvature, loss.units) == (0.0, 0.0, None)
    assert loss.decider.problem is strong
    assert loss.smoothing_note == "smoothing='auto' settled on λ = 0: the objective is curved by itself"


def test_a_zero_curvature_is_a_linear_program() -> None:
    problem, true = pear.Problem(**SIMPLEX), draw(12, 4, 0)
    zero = pear.Problem(Q=np.zeros((4, 4)), **SIMPLEX)
    assert not zero.is_curved
    plain, found = settled(problem, true), settled(zero, true)
    assert (found.chosen_smoothing, found.least_curvature) == (plain.chosen_smoothing, 0.0)
    predicted = draw(12, 4, 1)
    assert found(predicted, true).item() == pytest.approx(plain(predicted, true).item(), rel=1e-12)


def test_a_predicted_curvature_gets_smoothing_only_where_it_is_singular() -> None:
    problem, true = pear.Problem(**SIMPLEX), draw(6, 4, 0)
    flat, eye = torch.diag(torch.tensor([1.0, 0.0, 0.0, 1.0])).double(), torch.eye(4).double()
    loss = pear.PEARLoss(problem)
    loss(true + 0.1, true, Q=eye, true_Q=eye)
    assert (loss.chosen_smoothing, loss.least_curvature) == (0.0, 0.0)
    loss = pear.PEARLoss(problem)
    predicted = (true + draw(6, 4, 1)).requires_grad_()
    loss(predicted, true, Q=flat, true_Q=flat).backward()
    assert loss.chosen_smoothing is not None
    assert loss.chosen_smoothing > 0
    assert bool(predicted.grad.any())
    box = pear.Problem(lb=0.0, ub=1.0, n=4)
    loss = pear.PEARLoss(box, injection=0.0)
    loss(true, true, Q=flat, true_Q=flat)
    assert loss.units is None
    auto, given = (
        pear.regret_gradient(box, predicted, true, smoothing=lam, Q=flat, true_Q=flat)
        for lam in ("auto", loss.chosen_smoothing)
    )
    close(auto, given)


def test_a_predicted_curvature_is_raised_like_the_problem_s_own() -> None:
    """The added curvature cancels in the error of the objective's gradient, (ĉ − c) + (Q̂ − Q) z."""
    problem, predicted, true = samples("low rank")
    loss = settled(problem, true, injection=0.0, guidance=0.0)
    own = (predicted + 0).requires_grad_()
    loss(own, true).backward()
    same = (predicted + 0).requires_grad_()
    value = loss(same, true, Q=problem.Q)
    value.backward()
    close(same.grad, own.grad)
    close(value.detach(), loss(predicted, true))
    assert loss(predicted, true, Q=problem.Q, true_Q=problem.Q).item() == pytest.approx(value.item(), rel=1e-9)
    layer = pear.DecisionLayer(problem, smoothing="auto")
    layer.calibrate(true)
    close(layer(predicted, Q=problem.Q), layer(predicted))


# ---------------------------------------------------------------------------------------------------------- invariance


def results(problem: pear.Problem, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return values, decisions and gradients of the default loss."""
    loss = settled(problem, true, reduction="none")
    moving = predicted.clone().requires_grad_()
    value = loss(moving, true, keys=range(len(true)))
    value.sum().backward()
    assert loss.last is not None
    assert moving.grad is not None
    return value.detach(), loss.last.decision, moving.grad


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_unit_matters(name: str) -> None:
    problem, predicted, true = samples(name)
    value, z, g = results(problem, predicted, true)
    dearer = problem._with(Q=1e3 * problem.Q)
    scaled_value, scaled_z, scaled_g = results(dearer, 1e3 * predicted, 1e3 * true)
    close(scaled_value, 1e3 * value)
    close(scaled_z, z)
    close(scaled_g, g)
    units = torch.tensor([1.0, 1e3, 1e-2, 60.0]).double().repeat(problem.n)[: problem.n]
    other_value, other_z, other_g = results(problem_in_units(problem, units), predicted * units, true * units)
    close(other_value, value)
    close(other_z * units, z)
    close(other_g * units, g)


def test_sparse_and_dense_train_alike() -> None:
    n, rng = 520, np.random.default_rng(0)
    Q = np.kron(np.diag(rng.integers(0, 2, n // 2)), [[1.0, 1.0], [1.0, 1.0]])
    A = np.kron(np.eye(n // 4), np.ones(4))
    true = torch.from_numpy(rng.normal(size=(6, n)))
    predicted = true + draw(6, n, 3)
    kept = pear.Problem(Q=sparse.csr_array(Q), A=sparse.csr_array(A), b=np.ones(n // 4), lb=0.0, ub=1.0)
    dense = pear.Problem(Q=Q, A=A, b=np.ones(n // 4), lb=0.0, ub=1.0)
    assert kept.is_sparse
    for one, two in zip(results(kept, predicted, true), results(dense, predicted, true), strict=True):
        close(one, two)
    assert to_csr_matrix(settled(kept, true).decider.problem.Q).nnz <= 2 * n


# ------------------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("name", [*PROBLEMS, "zero"])
def test_the_default_loss_trains(name: str) -> None:
    """Training halves the regret if costs are linear in the features."""
    problem, _, true = samples("zero rows" if name == "zero" else name)
    if name == "zero":
        problem = pear.Problem(Q=np.zeros((4, 4)), **SIMPLEX)
    moves = true.std(0) > 1e-9
    features = draw(12, 4, 8)
    true = torch.where(moves, features @ draw(4, problem.n, 9), true)
    model = torch.nn.Linear(4, problem.n, dtype=torch.float64)
    loss, before = pear.PEARLoss(problem), None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(120):
        optimizer.zero_grad()
        value = loss(torch.where(moves, model(features), true), true, keys=range(12))
        value.backward()
        optimizer.step()
        loss.step()
        assert loss.last is not None
        before = float(loss.last.regret.mean()) if before is None else before
    assert before is not None
    assert before > 0
    assert float(loss.last.regret.mean()) < 0.5 * before


@pytest.mark.parametrize("name", ["zero rows", "low rank", "factor model with turnover", "maximised", "per sample"])
def test_the_gradient_of_the_default_loss_by_finite_differences(name: str) -> None:
    problem, predicted, true = samples(name)
    loss = settled(problem, true, injection=0.0, guidance=0.0)
    rows = range(12) if problem.batch else None
    assert torch.autograd.gradcheck(
        lambda c: loss(c, true, keys=rows), (predicted.clone().requires_grad_(),), atol=1e-7
    )


def test_recourse_has_the_raised_curvature_too() -> None:
    """A model that predicts a right-hand side and costs, with curvature on one of three variables."""
    problem = pear.Problem(Q=np.diag([1.0, 0.0, 0.0]), A=np.ones((1, 3)), b=[1.0], lb=0.0)
    rows = pear.ConstraintMap(b=[[0.0, 0.0, 0.0, 1.0]])
    costs = pear.CostMap(np.eye(3, 4))
    model = pear.Model(problem, cost_map=costs, constraint_map=rows, recourse=pear.Penalty(b=50.0))
    true = torch.cat([draw(8, 3, 0), 2 + 0.1 * draw(8, 1, 1)], 1)
    predicted = (true + 0.3 * draw(8, 4, 2)).requires_grad_()
    loss = pear.PEARLoss(model)
    loss(predicted, true).backward()
    assert loss.least_curvature > 0
    assert bool(predicted.grad.any())
    raised = loss.decider.problem.Q
    assert bool((torch.linalg.eigvalsh(raised[:3, :3]) > 0).all())
    assert not raised[3:].any()


# --------------------------------------------------------------------------------------------------------------- state


def test_the_raised_curvature_is_state() -> None:
    problem, predicted, true = samples("factor model with turnover")
    loss = settled(problem, true)
    other = pear.PEARLoss(problem)
    other.load_state_dict(loss.state_dict())
    assert (other.least_curvature, other.smoothing_note) == (loss.least_curvature, loss.smoothing_note)
    assert other.decider.problem.Q is not None
    assert torch.equal(other.decider.problem.Q, loss.decider.problem.Q)
    assert other(predicted, 100 * true).item() == loss(predicted, 100 * true).item()
    twice = pear.PEARLoss(problem)
    twice.calibrate(true, times=2.0)
    assert twice.least_curvature == pytest.approx(2 * loss.least_curvature)
    assert twice.smoothing_note.endswith("; 2 times it")


# --------------------------------------------------------------------------------------------------- units and messages


def test_rounding_is_no_range() -> None:
    """Rounding is not taken for the range of a variable.

    The last variable is at least 0.1 under the forecast, and 0 up to rounding under all true costs.
    """
    problem = pear.Problem(A=[[-0.1, -0.2, 0.3, 1.0]], b=[0.0], lb=[0.0, 0.0, 0.0, -INF], ub=[1.0, 1.0, 1.0, INF])
    costs = torch.tensor([1.0, 1.0, 1.0, 0.0]).double() * torch.tensor([1.0, -1.0]).double().repeat(10)[:, None]
    loss = settled(problem, costs, guidance=0.0, injection=0.0)
    loss(torch.tensor([[-1.0, 1.0, 1.0, 0.0]]).double(), costs[:1])
    assert loss.last is not None
    expected = pear.solve(problem, [[-1.0, 1.0, 1.0, 0.0]]).x.double()
    torch.testing.assert_close(loss.last.decision, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_free_variable_that_is_zero_up_to_rounding_gets_no_tiny_unit(seed: int, curved: bool) -> None:
    """The free variables are a sum that is zero at every vertex, and a multiple of it. Neither has a cost."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1.0, 5)
    weights[-1] = -weights[:-1].sum()
    A = np.zeros((2, 7))
    A[0, :5], A[0, 5], A[1, 5], A[1, 6] = weights, -1.0, 0.7, -1.0
    lb, ub = np.r_[np.zeros(5), -INF, -INF], np.r_[np.ones(5), INF, INF]
    Q = np.diag([*np.full(5, 0.01), 0.0, 0.0]) if curved else None
    problem = pear.Problem(Q=Q, A=A, b=np.zeros(2), lb=lb, ub=ub)
    side = torch.from_numpy(rng.choice([-1.0, 1.0], 20))
    costs = side[:, None] * torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]).double()
    loss = settled(problem, costs)
    assert loss.units is None or float(loss.units.min()) > 1e-3


def test_the_message_names_the_variables_that_are_free_to_move() -> None:
    problem = pear.Problem(Q=np.diag([1.0, 0.0, 0.0]), A=[[1.0, 1.0, 1.0]], b=[1.0], lb=-9.0, ub=9.0)
    cost = torch.zeros(3, 3, dtype=torch.float64)
    model = pear.Model(problem, cost_map=pear.CostMap(np.eye(3)), variables=("store", "buy", "sell"))
    text = "not unique, so that it has no derivative: variables buy, sell can move at no cost; a bound, a quadratic te"
    for call in (
        lambda c: pear.PEARLoss(model, smoothing=0.0)(c, cost + 1),
        lambda c: pear.DecisionLayer(model, smoothing=0.0)(c).sum().backward(),
        lambda c: pear.regret_gradient(model, c, cost + 1, smoothing=0.0),
    ):
        with pytest.raises(pear.NotUniqueError, match=text) as error:
            call(cost.clone().requires_grad_())
        assert error.value.variables == [1, 2]
        assert error.value.samples == [0, 1, 2]
    many = pear.Problem(A=np.ones((1, 9)), b=[1.0], lb=-1.0, ub=1.0)
    with pytest.raises(pear.NotUniqueError, match="variables 0, 1, 2, 3, 4 and 4 more can move"):
        pear.regret_gradient(many, torch.zeros(1, 9), torch.ones(1, 9), smoothing=0.0)


def test_injection_is_defined_where_the_decision_is_unique() -> None:
    """With λ = 0 and one quadratic term, injection adds a vector of the right length to the exact gradient.

    The constraints determine the directions that have no curvature.
    """
    problem, predicted, true = samples("zero rows")
    exact = pear.regret_gradient(problem, predicted, true, smoothing=0.0)
    found = pear.regret_gradient(problem, predicted, true, smoothing=0.0, injection=0.2)
    added, size = found - exact, exact.norm(dim=1)
    torch.testing.assert_close(added.norm(dim=1)[size > 0], 0.2 * size[size > 0], rtol=1e-9, atol=0)
    assert bool((size > 0).any())
    moving = predicted.clone().requires_grad_()
    pear.PEARLoss(problem, smoothing=0.0, injection=0.2, guidance=0.0, reduction="sum")(moving, true).backward()
    close(moving.grad, found)

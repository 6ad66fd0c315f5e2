"""Cost maps: every function that accepts costs computes ``M ŷ + known``, and gradients arrive at ŷ."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

import pear
from pear.errors import ProblemError
from pear.losses import METHODS, OwnProblem, make_loss
from pear.losses.regret_metrics import regret_gradient
from pear.problem import cost_map
from pear.problem.sample_keys import select_model_by_keys

HOURS = 4


def battery(kind: str = "dense", own: int | None = None) -> pear.Model:
    """Return a battery whose prices are predicted for charge and discharge, and whose wear is a known cost.

    Args:
        kind: the type of M: "dense", "scipy" or "torch".
        own: the number of samples with known costs of their own; None for shared ones.
    """
    T, one = HOURS, np.eye(HOURS)
    store = np.eye(T) - np.eye(T, k=-1)
    A = np.hstack([-0.9 * one, one, store])
    M = np.vstack([one, -one, np.zeros((T, T))])
    known = np.concatenate([np.full(T, 0.05), np.full(T, 0.05), np.full(T, 0.01)])
    if own is not None:
        known = known + 0.01 * np.arange(own)[:, None]
    kinds = {"dense": M, "scipy": sparse.csr_array(M), "torch": torch.from_numpy(M).to_sparse_csr()}
    problem = pear.Problem(A=A, b=np.zeros(T), lb=0.0, ub=np.repeat([1.0, 1.0, 2.0], T))
    return pear.Model(problem, cost_map=pear.CostMap(kinds[kind], known))


def prices(count: int = 5, seed: int = 0) -> torch.Tensor:
    return 1 + torch.rand(count, HOURS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


KINDS = ["dense", "scipy", pytest.param("torch", marks=pytest.mark.filterwarnings("ignore:Sparse CSR"))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_is_what_it_says(kind: str) -> None:
    m, y = battery(kind), prices()
    dense = battery().cost_map
    assert m.cost_map is not None
    assert dense is not None
    assert dense.M is not None
    torch.testing.assert_close(m.cost(y), y @ dense.M.T + m.known, rtol=0, atol=1e-15)
    torch.testing.assert_close(m.cost(y[0]), m.cost(y)[0], rtol=0, atol=0)
    assert m.cost(y.float()).dtype is torch.float32
    assert torch.autograd.gradcheck(m.cost, y.requires_grad_())


def test_a_large_sparse_map_sums_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    y, small = prices().requires_grad_(), battery("scipy")
    monkeypatch.setattr(cost_map, "_FEW_NUMBERS", 0)
    large = battery("scipy")
    assert large.cost_map is not None
    assert not isinstance(large.cost_map._factor, torch.Tensor)
    torch.testing.assert_close(large.cost(y), small.cost(y), rtol=0, atol=0)
    assert torch.autograd.gradcheck(large.cost, y)
    up = torch.randn(len(y), large.problem.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(large.cost_map.pull_back(up), battery().cost_map.pull_back(up), rtol=0, atol=1e-15)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_mapped_costs(kind: str) -> None:
    m, true = battery(kind), prices(seed=1)
    loss = pear.PEARLoss(m, smoothing=0.3, injection=0.0, guidance=0.0, reduction="none")
    plain = pear.PEARLoss(m.problem, smoothing=0.3, injection=0.0, guidance=0.0, reduction="none")
    y = prices().requires_grad_()
    torch.testing.assert_close(loss(y, true), plain(m.cost(y), m.cost(true)), rtol=0, atol=0)
    (g,) = torch.autograd.grad(loss(y, true).sum(), y)
    torch.testing.assert_close(g, regret_gradient(m, y, true, smoothing=0.3), rtol=1e-12, atol=1e-14)
    assert torch.autograd.gradcheck(lambda y: loss(y, true), y, eps=1e-7, atol=1e-5)


def test_known_costs_of_their_own_go_by_key() -> None:
    m, y, true = battery(own=5), prices(), prices(seed=1)
    loss = pear.PEARLoss(m, smoothing=0.3, guidance=0.0, reduction="none")
    assert m.cost_map is not None
    everything = loss(y, true)
    torch.testing.assert_close(loss(y[[3, 1]], true[[3, 1]], keys=[3, 1]), everything[[3, 1]], rtol=0, atol=0)
    torch.testing.assert_close(m[3:].cost(y[3:]), m.cost(y)[3:], rtol=0, atol=0)
    with pytest.raises(ProblemError, match="5 samples have known costs of their own, and 2 came; pass keys"):
        loss(y[:2], true[:2])
    with pytest.raises(ProblemError, match="keys must be their row numbers, 0 to 4; got 7"):
        loss(y[:1], true[:1], keys=[7])
    assert select_model_by_keys(m, [3, 1]).cost_map.batch == 2
    for key in (7, -1, "a"):
        with pytest.raises(ProblemError, match=f"cost map has known costs .* 5 samples, .* 0 to 4; got {key!r}"):
            select_model_by_keys(m, [0, key])


def test_the_layer_solve_and_regret_take_it() -> None:
    m, y, true = battery(), prices(), prices(seed=1)
    layer = pear.DecisionLayer(m, smoothing=0.3)
    z = pear.solve(m.problem, m.cost(y), smoothing=0.3).x
    torch.testing.assert_close(layer(y), z, rtol=0, atol=1e-12)
    torch.testing.assert_close(pear.solve(m, y, smoothing=0.3).x, z, rtol=0, atol=0)
    assert torch.autograd.gradcheck(layer, y.requires_grad_(), eps=1e-7, atol=1e-5)
    same = pear.normalized_regret(m.problem, m.cost(y), m.cost(true))
    assert pear.normalized_regret(m, y, true) == pytest.approx(same, abs=1e-15)
    assert same > 0


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.name)
def test_every_method_takes_a_problem_and_a_model(row) -> None:
    m, y, true = battery(), prices(), prices(seed=1)
    y.requires_grad_()
    loss = make_loss(row.name, m)
    loss(y, true, keys=range(5)).backward()
    assert y.grad is not None
    assert y.grad.shape == y.shape
    mapped = m.cost(y).detach().requires_grad_()
    own = make_loss(row.name, m.problem)
    value = own(mapped, m.cost(true), keys=range(5))
    if row.name != "mse":  # whose error is one of prices
        assert make_loss(row.name, m)(y, true).item() == pytest.approx(value.item(), rel=1e-12)


def test_lava_finds_the_neighbours_of_a_path_by_itself() -> None:
    task = pear.tasks.shortest_path((3, 3))
    cost = torch.rand(4, task.problem.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    own, z = OwnProblem(task.problem), task.decide(cost)
    for found, expected in zip(own.adjacent(z), task.adjacent(z), strict=True):
        assert {tuple(row) for row in found.round().tolist()} == {tuple(row) for row in expected.tolist()}


def test_training_lowers_regret_through_the_map() -> None:
    m, generator = battery(), torch.Generator().manual_seed(0)
    X = torch.rand(200, 2, generator=generator)
    Y = 1 + (X @ torch.rand(2, HOURS, generator=generator)) ** 4
    torch.manual_seed(0)
    model = torch.nn.Linear(2, HOURS)
    history = pear.fit(
        model, pear.PEARLoss(m), (X[:150], Y[:150]), (X[150:], Y[150:]),
        lambda predicted, true: pear.normalized_regret(m, predicted, true), pear.FitConfig(max_epochs=40),
    )  # fmt: skip
    assert history.best is not None
    assert history.before is not None
    assert history.before.best is not None
    assert history.before.best.metric > history.best.metric


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "needs M"),
        ({"M": [1.0, 2.0]}, r"M of a cost map must have shape \(n, k\); got \(2,\)"),
        ({"M": [[1.0], [float("nan")]]}, "must be finite"),
        ({"M": [[1.0], [2.0]], "known": [1.0, 2.0, 3.0]}, r"known must have shape \(2,\) or \(N, 2\)"),
        ({"M": [[1.0], [2.0]], "names": ["a", "b"]}, "names must name the 1 predicted values; got 2"),
    ],
)
def test_a_wrong_map_is_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(ProblemError, match=sentence):
        pear.CostMap(**arguments)


def test_wrong_values_and_sizes_are_refused() -> None:
    m = battery()
    with pytest.raises(ProblemError, match=r"takes 4 predicted values a sample, .*; got \(2, 3\)"):
        m.cost(torch.zeros(2, 3))
    with pytest.raises(ProblemError, match="the cost map gives 1 costs, and the problem has 2 variables"):
        pear.Model(pear.Problem(n=2), cost_map=pear.CostMap([[1.0]]))
    with pytest.raises(ProblemError, match="depends on 4 predicted values; pass them"):
        m.cost()


def test_a_task_and_swapped_arguments_get_a_sentence() -> None:
    task = pear.tasks.shortest_path((3, 3))
    with pytest.raises(ProblemError, match=r"got ShortestPath; pass its problem: task\.problem"):
        pear.PEARLoss(task)
    with pytest.raises(ProblemError, match=r"got dict; make one: pear\.Problem"):
        pear.losses.SPOPlusLoss({})
    y = torch.rand(2, 12, requires_grad=True)
    for loss in (pear.PEARLoss(task.problem, guidance=0.0), pear.losses.SPOPlusLoss(task.problem)):
        with pytest.raises(ProblemError, match=r"probably swapped; call loss\(predicted, true\)"):
            loss(torch.rand(2, 12), y)


@pytest.mark.parametrize("known", [[1, 2], (1.0, 2.0), np.array([1.0, 2.0]), torch.tensor([1.0, 2.0]), [[1.0, 2.0]]])
def test_known_costs_of_a_model_may_be_any_array(known) -> None:
    for rows in (None, pear.ConstraintMap(h=[[1.0]])):
        m = pear.Model(pear.Problem(G=[[1.0, 1.0]], h=[0.0]), known=known, constraint_map=rows)
        assert m.known.dtype == torch.float64
        assert m.known.reshape(-1).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (pear.CostMap([[1.0], [2.0]]), "a CostMap came in their place; pass cost_map="),
        (pear.ConstraintMap(h=[[1.0]]), "a ConstraintMap came in their place; pass constraint_map="),
        ([1.0, 2.0, 3.0], r"known must have shape \(2,\) or \(N, 2\), a cost for each variable; got \(3,\)"),
    ],
)
def test_what_known_costs_are_not(known, sentence: str) -> None:
    with pytest.raises(ProblemError, match=sentence):
        pear.Model(pear.Problem(n=2), known)


def test_known_costs_beside_a_map_that_has_others_are_refused():
    problem, own = pear.Problem(lb=0.0, ub=1.0, n=2), pear.CostMap([[1.0], [-1.0]])
    assert pear.Model(problem, known=[0.0, 0.0], cost_map=own).known.tolist() == [0.0, 0.0]
    with pytest.raises(pear.ProblemError, match="pass them to the map"):
        pear.Model(problem, known=[1.0, 2.0], cost_map=own)

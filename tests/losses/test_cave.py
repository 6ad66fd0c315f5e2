"""CaVE: the angle of predicted costs to the cone of the constraints that are active at the best decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from listed_tasks import check_gradient
from scipy import sparse
from scipy.optimize import nnls
from torch import Tensor

import pear
from pear.losses import CaVELoss
from pear.tasks import knapsack, shortest_path

WEIGHTS = torch.randint(1, 9, (2, 8), generator=torch.Generator().manual_seed(0)).double()
PATHS, ITEMS = shortest_path((3, 3)).problem, knapsack(WEIGHTS, [14.0, 16.0]).problem
PROBLEM = pytest.mark.parametrize("problem", [PATHS, ITEMS], ids=["paths", "items"])


def costs(problem: pear.Problem, count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    predicted, true = (1 + 3 * torch.rand(2, count, problem.n, generator=generator)).double()
    return predicted.requires_grad_(), true


def normals(problem: pear.Problem, z: Tensor) -> Tensor:
    """Return the outer normals (k, n) of all constraints that are tight at a decision (n,); an equality has two."""
    eye, rows = torch.eye(problem.n).double(), []
    if problem.A is not None:
        rows += [problem.A, -problem.A]
    if problem.G is not None and problem.h is not None:
        rows.append(problem.G[problem.G @ z >= problem.h - 1e-9])
    rows += [-eye[z <= 1e-9]]
    rows += [eye[z >= problem.ub - 1e-9]] if problem.ub is not None else []
    return torch.cat(rows)


def projected(rows: Tensor, point: Tensor) -> Tensor:
    """Return the projection of a point on the cone of ``rows``, by SciPy's non-negative least squares."""
    return torch.from_numpy(rows.T.numpy() @ nnls(rows.T.numpy(), point.numpy())[0])


@PROBLEM
def test_the_angle_is_that_to_the_projection_on_the_cone(problem: pear.Problem) -> None:
    predicted, true = costs(problem)
    found = CaVELoss(problem, cost_unit=1.0).values(predicted, true, None).detach()
    ascent = -problem.sign * predicted.detach()
    for value, point, z in zip(found, ascent, pear.solve(problem, true).x, strict=True):
        inside = projected(normals(problem, z), point)
        assert float(value) == pytest.approx(1 - float(torch.cosine_similarity(point, inside, dim=0)), abs=1e-9)
    assert float(found.max()) > 1e-3


@PROBLEM
def test_the_gradient_is_that_of_the_loss(problem: pear.Problem) -> None:
    predicted, true = costs(problem)
    check_gradient(CaVELoss(problem), predicted, true, 1e-9)


def test_the_loss_is_zero_where_the_best_path_is_the_same() -> None:
    predicted, true = costs(PATHS, 40)
    loss = CaVELoss(PATHS, cost_unit=1.0)
    same = (pear.solve(PATHS, predicted.detach()).x == pear.solve(PATHS, true).x).all(1)
    found = loss.values(predicted, true, None).detach()
    assert 0 < int(same.sum()) < 40
    torch.testing.assert_close(found[same], torch.zeros_like(found[same]), rtol=0, atol=1e-12)
    assert float(found[~same].min()) > 1e-9
    assert float(loss(3.0 * true, true)) == pytest.approx(0.0, abs=1e-12)


def pyepo_loss(problem: pear.Problem, predicted: Tensor, true: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    func = pytest.importorskip("pyepo.func", reason="PyEPO is not installed; pip install 'pear-dfl[baselines]'")
    pytest.importorskip("clarabel", reason="CaVE of PyEPO needs Clarabel")
    from pear.losses.pyepo import pyepo_model

    rows = [normals(problem, z) for z in pear.solve(problem, true).x]
    padded = torch.zeros(len(rows), max(map(len, rows)), problem.n, dtype=torch.float64)
    for i, some in enumerate(rows):
        padded[i, : len(some)] = some
    value = func.CaVE(pyepo_model(problem), **options)(predicted, padded)
    return value.detach(), torch.autograd.grad(value, predicted)[0]


@PROBLEM
@pytest.mark.parametrize("solve_ratio", [0.0, 1.0], ids=["heuristic", "projection"])
def test_the_loss_is_that_of_pyepo(problem: pear.Problem, solve_ratio: float) -> None:
    predicted, true = costs(problem)
    options = {"solve_ratio": solve_ratio, "inner_ratio": 0.2}
    theirs = pyepo_loss(problem, predicted, true, max_iter=100, **options)
    ours = CaVELoss(problem, solve_ratio=solve_ratio, inner_ratio=0.0 if solve_ratio else 0.2, cost_unit=1.0)
    value = ours(predicted, true)
    found = value.detach(), torch.autograd.grad(value, predicted)[0]
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-6)


def test_the_inner_ratio_moves_the_projection_towards_the_mean_normal() -> None:
    predicted, true = costs(ITEMS)
    found = CaVELoss(ITEMS, inner_ratio=0.3, cost_unit=1.0).values(predicted, true, None).detach()
    for value, point, z in zip(found, predicted.detach(), pear.solve(ITEMS, true).x, strict=True):
        rows = normals(ITEMS, z)
        inside = projected(rows, point)
        inside = 0.7 * inside / inside.norm() + 0.3 * (rows / rows.norm(dim=1, keepdim=True)).mean(0)
        assert float(value) == pytest.approx(1 - float(torch.cosine_similarity(point, inside, dim=0)), abs=1e-9)


def test_hybrid_projects_a_share_of_the_batches_and_resumes_its_draws() -> None:
    predicted, true = costs(PATHS)
    both = [float(CaVELoss(PATHS, inner_ratio=0.2, solve_ratio=share)(predicted, true)) for share in (0.0, 1.0)]
    loss = CaVELoss(PATHS, inner_ratio=0.2, solve_ratio=0.3)
    found = np.array([float(loss(predicted, true)) for _ in range(60)])
    assert set(found) == set(both)
    assert 8 <= int((found == both[1]).sum()) <= 28
    other = CaVELoss(PATHS, inner_ratio=0.2, solve_ratio=0.3)
    other.load_state_dict(loss.state_dict())
    assert [float(other(predicted, true)) for _ in range(9)] == [float(loss(predicted, true)) for _ in range(9)]


def test_an_oracle_has_the_cone_of_its_relaxation() -> None:
    relaxation = ITEMS.relaxed()
    oracle = pear.Oracle(
        lambda cost: pear.solve(ITEMS, cost).x.numpy(), sense="max", relaxation=relaxation, batched=True
    )
    predicted, true = costs(ITEMS)
    torch.testing.assert_close(CaVELoss(oracle)(predicted, true), CaVELoss(ITEMS)(predicted, true))
    with pytest.raises(pear.ProblemError, match="CaVE"):
        CaVELoss(pear.Oracle(lambda cost: cost, n=2))


def test_forecasts_that_are_all_wrong_or_zero_have_a_finite_gradient() -> None:
    box = pear.Problem(lb=0.0, ub=1.0, n=2)
    predicted = torch.tensor([[-1.0, -2.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = CaVELoss(box, cost_unit=1.0)(predicted, torch.ones(2, 2).double())
    value.backward()
    assert value.item() == 1.0
    assert predicted.grad is not None
    assert not bool(predicted.grad.any())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_ratio": 1.5}, "inner_ratio must be a number from 0 to 1; got 1.5"),
        ({"solve_ratio": -0.1}, "solve_ratio must be a number from 0 to 1; got -0.1"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        CaVELoss(PATHS, **options)


def test_sparse_problems_are_refused() -> None:
    count = 1000
    problem = pear.Problem(A=sparse.eye_array(count, format="csr"), b=np.ones(count), lb=0.0)
    assert problem.is_sparse
    with pytest.raises(pear.ProblemError, match="CaVE takes dense problems"):
        CaVELoss(problem)

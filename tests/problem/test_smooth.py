"""Problems with a smooth term: optimality of the whole problem, regret and derivatives against finite differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy_residual import kkt_residual
from torch import Tensor
from zoo import Planted, arrays, plant

import pear

INF = float("inf")
CHECK: dict[str, Any] = {"eps": 1e-5, "atol": 1e-6, "rtol": 1e-5}


def entropy(sign: float, n: int, strength: float = 1.0) -> pear.Smooth:
    """Return φ = ± strength · Σ zᵢ log zᵢ, which is convex with sign +1.

    Its slope at zero is infinite, so that no zᵢ reaches a bound of zero.
    """
    k = sign * strength
    return pear.Smooth(
        value=lambda z: k * torch.special.xlogy(z, z).sum(1),
        gradient=lambda z: k * (z.log() + 1),
        hessian=lambda z: torch.diag_embed(k / z),
        start=[1.0 / n] * n,
    )


def log_sum_exp(sign: float) -> pear.Smooth:
    """Return φ = ± log Σ exp zᵢ, which is convex with sign +1 and has no curvature along (1, …, 1)."""

    def hessian(z: Tensor) -> Tensor:
        p = z.softmax(1)
        return sign * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])

    return pear.Smooth(value=lambda z: sign * z.logsumexp(1), gradient=lambda z: sign * z.softmax(1), hessian=hessian)


def with_phi(rng: np.random.Generator, x: Any, smoothing: float = 0.0, **fields: Any) -> Planted:
    """Return a batch whose costs make x (3, n) optimal with φ: the costs without φ, minus the slope of φ at x."""
    problem = pear.Problem(**fields)
    case = plant(rng, problem, x, smoothing)
    assert problem.phi is not None
    cost = case.cost - problem.phi.gradient(case.x)
    return replace(case, cost=cost, true=cost + torch.from_numpy(rng.normal(size=cost.shape)))


def shares(rng: np.random.Generator, *held: float, least: float = 0.2) -> np.ndarray:
    """Draw three points of the simplex in four variables: the first entries are ``held``, the rest exceed ``least``."""
    rest = 4 - len(held)
    free = least + (1 - sum(held) - rest * least) * rng.dirichlet(np.ones(rest), size=3)
    return np.column_stack([np.tile(held, (3, 1)), free])


def zoo() -> dict[str, Planted]:
    rng = np.random.default_rng(0)
    one = {"A": np.ones((1, 4)), "b": [1.0]}
    pair = {"A": [[1.0, 1.0, 0.0, 0.0]], "b": [0.5], "lb": -1.0, "ub": 1.0}
    inside = rng.uniform(-0.2, 0.7, (3, 4))
    boxed, paired = (inside * [0, 0, 1, 1] + corner for corner in ([-0.5, 1, 0, 0], [0.2, 0.3, 0, 0]))
    paired[:, 2] = -1.0
    G, A = rng.normal(size=(2, 4)), rng.normal(size=(1, 4))
    rows = {"G": G, "h": inside @ G.T + [0.0, 0.5]}
    mid = shares(rng)
    return {
        "entropy on the simplex": with_phi(rng, mid, **one, lb=0.0, phi=entropy(1, 4)),
        "entropy, bounds implied": with_phi(rng, mid, **one, phi=entropy(1, 4)),
        "entropy, max": with_phi(rng, mid, **one, lb=0.0, sense="max", phi=entropy(-1, 4)),
        "entropy with lower bounds": with_phi(rng, shares(rng, 0.1, least=0.22), **one, lb=0.1, phi=entropy(1, 4, 0.2)),
        "entropy with quadratic": with_phi(
            *(rng, shares(rng, 0.05, 0.5)), Q=np.eye(4), **one, lb=0.05, ub=0.5, phi=entropy(1, 4, 0.3)
        ),
        "log-sum-exp with bounds": with_phi(rng, boxed, smoothing=0.5, n=4, lb=-0.5, ub=1.0, phi=log_sum_exp(1)),
        "log-sum-exp, max": with_phi(rng, paired, smoothing=0.5, **pair, sense="max", phi=log_sum_exp(-1)),
        "log-sum-exp with rows": with_phi(rng, inside, Q=np.eye(4), **rows, A=A, b=inside @ A.T, phi=log_sum_exp(1)),
        "log-sum-exp, max, quadratic": with_phi(rng, inside, Q=-np.eye(4), **rows, sense="max", phi=log_sum_exp(-1)),
        "no constraints": with_phi(rng, inside, smoothing=1.0, n=4, phi=log_sum_exp(1)),
    }


ZOO = zoo()
every_case = pytest.mark.parametrize("name", ZOO)


# ---------------------------------------------------------------------------------------------------------- solutions


@every_case
def test_optimality_of_the_whole_problem(name: str) -> None:
    """The optimality conditions hold with the gradient of φ itself, and not only with that of a local model."""
    c = ZOO[name]
    s = pear.solve(c.problem, c.cost, smoothing=c.smoothing)
    assert s.duals is not None
    assert c.problem.phi is not None
    torch.testing.assert_close(s.x, c.x, rtol=1e-9, atol=1e-10)
    slope = c.problem.sign * c.problem.phi.gradient(s.x)
    for i in range(3):
        a = arrays(c.problem, c.cost + slope * c.problem.sign, c.smoothing, i)
        duals = (s.duals.equality[i], s.duals.inequality[i], s.duals.bound[i])
        assert kkt_residual(a, s.x[i].numpy(), *(v.numpy() for v in duals)) <= 1e-9
    expected = c.problem.objective(s.x, c.cost, smoothing=c.smoothing)
    torch.testing.assert_close(s.value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 2.0])
@pytest.mark.parametrize(("name", "sign"), [("entropy on the simplex", -1), ("entropy, max", 1)])
def test_entropy_gives_the_softmax(name: str, sign: int, size: float) -> None:
    """On the simplex, min cᵀz + Σ z log z is softmax(−c) and max is softmax(c), near a vertex for large costs."""
    cost = size * torch.tensor([[3.0, 0.0, 0.0, -3.0], [0.0, 1.0, 2.0, 3.0]], dtype=torch.float64)
    z = pear.solve(ZOO[name].problem, cost).x
    torch.testing.assert_close(z, (sign * cost).softmax(1), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("solver", ["osqp", "daqp"])
@every_case
def test_the_solver_does_not_matter(name: str, solver: str) -> None:
    c = ZOO[name]
    mine, theirs = (pear.solve(c.problem, c.cost, c.smoothing, solver=s).x for s in ("interior-point", solver))
    torch.testing.assert_close(theirs, mine, rtol=1e-9, atol=1e-10)


@every_case
def test_a_batch_equals_a_loop(name: str) -> None:
    c = ZOO[name]
    together = pear.regret_gradient(c.problem, c.cost, c.true, c.smoothing)
    alone = [pear.regret_gradient(c.problem[[i]], c.cost[[i]], c.true[[i]], c.smoothing) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-10, atol=1e-11)


# ---------------------------------------------------------------------------------------------------------- gradients


@every_case
def test_regret(name: str) -> None:
    c = ZOO[name]
    loss = pear.PEARLoss(c.problem, c.smoothing, injection=0.0, reduction="none", guidance=0.0)
    value = loss(c.cost, c.true)
    chosen, best = (pear.solve(c.problem, v, smoothing=c.smoothing).x for v in (c.cost, c.true))
    paid, ideal = (c.problem.objective(z, c.true, smoothing=c.smoothing) for z in (chosen, best))
    torch.testing.assert_close(value, c.problem.sign * (paid - ideal), rtol=1e-10, atol=1e-12)
    assert bool((value > 0).all())
    perfect = loss(c.true, c.true)
    assert bool((perfect >= 0).all())
    torch.testing.assert_close(perfect, torch.zeros(3).double(), rtol=0, atol=1e-13)


@every_case
def test_gradcheck_of_the_loss(name: str) -> None:
    c = ZOO[name]
    loss = pear.PEARLoss(c.problem, c.smoothing, injection=0.0, reduction="none", guidance=0.0)
    leaves = (v.clone().requires_grad_() for v in (c.cost, c.true))
    assert torch.autograd.gradcheck(loss, tuple(leaves), **CHECK, fast_mode=True)


@every_case
def test_gradcheck_of_the_layer(name: str) -> None:
    c = ZOO[name]
    layer = pear.DecisionLayer(c.problem, c.smoothing)
    names = [k for k in ("A", "b", "G", "h", "lb", "ub") if getattr(c.problem, k) is not None]
    if name in ("entropy on the simplex", "entropy, max"):
        names.remove("lb")  # below zero there is no entropy to take differences of

    def decide(cost: Tensor, *given: Tensor) -> Tensor:
        return layer(cost, **dict(zip(names, given, strict=True)))

    leaves = [getattr(c.problem, k).clone().requires_grad_() for k in names]
    assert torch.autograd.gradcheck(decide, (c.cost.clone().requires_grad_(), *leaves), **CHECK, fast_mode=True)


def test_closed_form_of_the_gradient() -> None:
    """On the simplex with entropy H = diag(1/z), so that g = z ⊙ (e − zᵀe)."""
    c = ZOO["entropy on the simplex"]
    z, e = c.x, c.cost - c.true
    g = pear.regret_gradient(c.problem, c.cost, c.true, 0.0)
    torch.testing.assert_close(g, z * (e - (z * e).sum(1, keepdim=True)), rtol=1e-9, atol=1e-11)


# ------------------------------------------------------------------------------------------------------------- edges


def test_keys_do_not_change_the_result() -> None:
    c = ZOO["log-sum-exp with rows"]
    loss, fresh = (
        pear.PEARLoss(c.problem, c.smoothing, injection=0.0, reduction="none", guidance=0.0) for _ in range(2)
    )
    for cost in (c.cost, c.cost, c.cost.flip(0), -3 * c.cost):
        torch.testing.assert_close(loss(cost, c.true, keys=[0, 1, 2]), fresh(cost, c.true), rtol=1e-10, atol=1e-12)


def test_a_bad_sample_reaches_nobody_else() -> None:
    c = ZOO["log-sum-exp with bounds"]
    cost = c.cost.clone()
    cost[1, 0] = float("nan")
    with pytest.raises(pear.SolveError, match=r"1 of 3 samples .*sample 1 \(NOT_FINITE\)"):
        pear.solve(c.problem, cost, c.smoothing)
    with pytest.warns(pear.FailedSamplesWarning):
        s = pear.solve(c.problem, cost, c.smoothing, on_failure="mask")
    assert s.status.tolist() == [pear.Status.SOLVED, pear.Status.NOT_FINITE, pear.Status.SOLVED]
    torch.testing.assert_close(
        s.x[[0, 2]], pear.solve(c.problem, c.cost, c.smoothing).x[[0, 2]], rtol=1e-12, atol=1e-13
    )
    b = torch.tensor([[0.5], [9.0], [0.5]], dtype=torch.float64)
    rows = ZOO["log-sum-exp, max"]
    with pytest.warns(pear.FailedSamplesWarning):
        s = pear.solve(rows.problem, rows.cost, rows.smoothing, on_failure="mask", b=b)
    assert s.status.tolist() == [pear.Status.SOLVED, pear.Status.INFEASIBLE, pear.Status.SOLVED]


def test_an_unbounded_sample_is_named() -> None:
    """log Σ exp z + cᵀz is unbounded below unless −c is a probability vector."""
    problem = pear.Problem(n=2, phi=log_sum_exp(1))
    with pytest.raises(pear.SolveError, match=r"sample 0 \((UNBOUNDED|INACCURATE)\)"):
        pear.solve(problem, [[-1.0, -1.0]])


def test_start_outside_the_domain() -> None:
    phi = entropy(1, 2)
    problem = pear.Problem(lb=-1.0, ub=[-0.5, 1.0], phi=phi)
    with pytest.raises(pear.ProblemError, match=r"phi is not finite at the starting point of sample 0; .*start=z"):
        pear.solve(problem, [[1.0, 1.0]])


def test_an_empty_batch() -> None:
    c, none = ZOO["entropy on the simplex"], torch.zeros(0, 4)
    assert pear.solve(c.problem, none).x.shape == (0, 4)
    assert pear.PEARLoss(c.problem, 0.0, guidance=0.0, injection=0.1)(none, none).item() == 0.0
    assert pear.DecisionLayer(c.problem)(none).shape == (0, 4)

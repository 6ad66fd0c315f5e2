"""The proximal search on smoothed unit commitments, which have more tight constraints than variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

import pear
from pear.decisions import repair as rules
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.repair import RepairResult, repair_sparse
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem import quadratic_program as rule
from pear.solvers.candidate import Start

pytestmark = pytest.mark.usefixtures("keep_small_ones_sparse")

PLANTS, HOURS, BATCH = 4, 6, 24
N = HOURS * (3 * PLANTS + 3)


def commitment(seed: int) -> dict[str, Any]:
    """Return a smoothed unit commitment with outputs, switches, starts, imports, and penalties for imbalance.

    A plant that is off has six tight constraints for three variables. Penalties have no curvature.
    """
    rng = np.random.default_rng(seed)
    rows, limits, demand = [], [], np.zeros((HOURS, N))
    lb, ub, cost, curved = np.zeros(N), np.full(N, np.inf), np.zeros(N), np.zeros(N)
    at = np.arange(N).reshape(HOURS, -1)
    for k in range(PLANTS):
        most, least, ramp = rng.uniform(40, 120), rng.uniform(10, 20), rng.uniform(20, 40)
        for t in range(HOURS):
            out, on, start = at[t, 3 * k : 3 * k + 3]
            demand[t, out], ub[start], ub[on] = 1.0, 1.0, 1.0
            cost[out], cost[start] = rng.uniform(15, 60), rng.uniform(200, 900)
            curved[out], curved[[on, start]] = rng.uniform(0.05, 0.2), rng.uniform(200, 2000, 2)
            before = [] if t == 0 else [int(at[t - 1, 3 * k + 1])]
            found = [({out: 1.0, on: -most}, 0.0), ({out: -1.0, on: least}, 0.0)]
            found += [({start: -1.0, on: 1.0, **dict.fromkeys(before, -1.0)}, 0.0)]
            found += [] if t == 0 else [({out: 1.0, int(at[t - 1, 3 * k]): -1.0, start: -most}, ramp)]
            for row, limit in found:
                rows.append(np.bincount(list(row), list(row.values()), N))
                limits.append(limit)
    for t in range(HOURS):
        bought, short, over = at[t, -3:]
        demand[t, [bought, short]], demand[t, over], ub[bought] = 1.0, -1.0, 60.0
        cost[[bought, short, over]], curved[bought] = (50.0, 300.0, 5.0), 0.1
    Q, A, G = sparse.diags_array(curved).tocsr(), sparse.csr_array(demand), sparse.csr_array(np.stack(rows))
    return {"Q": Q, "A": A, "G": G, "h": np.array(limits), "lb": lb, "ub": ub, "cost": cost}


def draws(seed: int) -> tuple[dict[str, Any], Tensor, Tensor, Tensor]:
    """Draw a commitment, costs, and two demands, of which the second differs from the first by up to 30 %."""
    rng, given = np.random.default_rng([seed, 1]), commitment(seed)
    cost = torch.from_numpy(given.pop("cost") * rng.uniform(0.8, 1.2, (BATCH, N)))
    demand = torch.from_numpy(rng.uniform(60, 260, (BATCH, 1)) * rng.uniform(0.7, 1.3, (BATCH, HOURS)))
    return given, cost, demand, demand * torch.from_numpy(rng.uniform(0.7, 1.3, (BATCH, HOURS)))


def repaired(seed: int) -> tuple[RepairResult, Tensor]:
    """Repair the solutions under the first demands for the second ones.

    Return the result, and the solutions of the dense solver.
    """
    given, cost, first, second = draws(seed)
    thin = pear.Problem(**given, b=first)
    start = solve_continuous_programs(thin, cost, 0.0, "auto").as_start()
    found = repair_sparse(pear.Problem(**given, b=second).canonical(cost), start, 8)
    assert found is not None
    dense = {name: value.toarray() if name in "QAG" else value for name, value in given.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "MIN_VARIABLES", 10_000)
        return found, pear.solve(pear.Problem(**dense, b=second), cost).x


@pytest.mark.parametrize("seed", range(4))
def test_every_sample_is_solved_from_its_old_solution(seed: int) -> None:
    found, expected = repaired(seed)
    assert bool(found.solved.all())
    assert float((found.x - expected).abs().max()) < 1e-7


def test_exchanges_alone_leave_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the proximal search some samples are not repaired, so that the test above needs it."""
    monkeypatch.setattr(rules, "_PROXIMAL", 0)
    assert sum(int((~repaired(seed)[0].solved).sum()) for seed in range(4)) >= 8


def test_all_changes_of_a_working_set_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proximal search follows exchanges that failed; both change the working set."""
    both, _ = repaired(2)
    monkeypatch.setattr(rules, "_PROXIMAL", 0)
    alone, _ = repaired(2)
    assert bool((both.exchanges > alone.exchanges)[~alone.solved].all())
    assert torch.equal(both.exchanges[alone.solved], alone.exchanges[alone.solved])


def test_costs_that_have_changed_a_lot_do_not_exhaust_the_search() -> None:
    """If the first program had a small μ, it would need too many steps from far away, and most samples would fail."""
    rng, n, m, batch = np.random.default_rng(1), 300, 200, 24
    G = sparse.random_array((m, n), density=0.03, rng=rng).tocsr()
    curved = sparse.diags_array(rng.uniform(0, 1, n) * (rng.random(n) < 0.5)).tocsr()
    problem = pear.Problem(Q=curved, G=G, h=G @ rng.uniform(0, 1, n) + rng.uniform(0, 0.2, m), lb=0.0, ub=1.0)
    first = torch.from_numpy(rng.uniform(-0.5, 0.5, (batch, n)))
    second = first * torch.from_numpy(rng.uniform(0.0, 2.0, (batch, n)))
    found = repair_sparse(
        problem.canonical(second), solve_continuous_programs(problem, first, 0.0, "auto").as_start(), 8
    )
    assert found is not None
    assert bool(found.solved.all())


@pytest.mark.parametrize("seed", range(2))
def test_a_start_without_any_information_is_enough(seed: int) -> None:
    given, cost, _, demand = draws(seed)
    qp = pear.Problem(**given, b=demand).canonical(cost)
    zeros = [torch.zeros(BATCH, size, dtype=torch.float64) for size in (qp.p, qp.m, N)]
    none = ActiveSet.none(BATCH, N, qp.m, cost.device)
    found = repair_sparse(qp, Start(torch.zeros_like(zeros[2]), Duals(*zeros), none, none.lower[:, 0]), 8)
    assert found is not None
    assert bool(found.solved.all())


def test_an_infeasible_program_is_not_solved() -> None:
    given, cost, first, second = draws(0)
    start = solve_continuous_programs(pear.Problem(**given, b=first), cost, 0.0, "auto").as_start()
    given["ub"] = np.where(np.isfinite(given["ub"]), given["ub"], 1.0)  # there is no more than 1 MW too little
    second[::2] += 5000.0
    found = repair_sparse(pear.Problem(**given, b=second).canonical(cost), start, 8)
    assert found is not None
    assert not bool(found.solved[::2].any())

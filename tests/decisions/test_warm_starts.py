"""The store of warm starts: starts are verified, and an answer is reused only under the data that it belongs to."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from zoo import ZOO

import pear
from pear.losses import SPOPlusLoss
from pear.solvers.fingerprints import fingerprint
from pear.solvers.warm_starts import WarmStarts

GRID = pear.tasks.shortest_path((5, 5)).problem


def costs(batch: int, n: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.rand(batch, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5


def covariance(batch: int, n: int, seed: int) -> torch.Tensor:
    X = torch.randn(batch, n, 2 * n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return X @ X.mT / n + 0.1 * torch.eye(n, dtype=torch.float64)


def test_a_hit_compares_the_fingerprint() -> None:
    store = WarmStarts()
    slots = store.slots(["a", "b"])
    table = store.table("best", lambda size: torch.zeros(size, 3))
    mark = fingerprint(costs(2, 3), 0.1)
    assert table.exact_rows(slots, mark) is None
    table.put(slots, torch.ones(2, 3), mark)
    assert torch.equal(table.exact_rows(slots, mark), torch.ones(2, 3))
    assert table.exact_rows(slots, fingerprint(costs(2, 3), 0.2)) is None
    assert table.exact_rows(slots, fingerprint(costs(2, 3), 0.1, {"Q": torch.eye(3)})) is None
    assert table.exact_rows(store.slots(["b", "a"]), mark) is None
    table.put(slots, torch.zeros(2, 3), mark, good=torch.tensor([True, False]))
    assert table.holds_exact(slots, mark).tolist() == [True, False]


def test_an_answer_is_known_under_its_own_slot_only() -> None:
    starts = WarmStarts()
    slots = starts.slots(["a", "b", "c"])
    table = starts.table("x", lambda size: torch.zeros(size, 1))
    mark = fingerprint(torch.tensor([[1.0, 2.0]]), 0.5)
    table.put(slots[1:2], torch.ones(1, 1), mark)
    assert table.holds_exact(slots, mark.expand(3, -1)).tolist() == [False, True, False]
    assert table.exact_rows(slots[:1], mark) is None
    table.put(slots[:2], torch.ones(2, 1), mark.expand(2, -1), torch.tensor([False, True]))
    assert table.holds_exact(slots, mark.expand(3, -1)).tolist() == [False, True, False]


def test_a_table_grows_by_doubling_and_only_when_it_must() -> None:
    starts, sizes = WarmStarts(), []

    def make(size: int) -> torch.Tensor:
        sizes.append(size)
        return torch.zeros(size, 1)

    for keys in (range(3), range(3), range(4), range(6), range(20)):
        starts.slots(keys)
        starts.table("x", make)
    assert sizes == [0, 3, 6, 20]


def test_a_fingerprint_tells_fields_apart() -> None:
    """The fingerprints of b and h with the same numbers differ; those of a shared field and of its copies are equal."""
    cost, side = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0])
    marks = [fingerprint(cost, 0.5, {name: side}) for name in ("b", "h")]
    assert not torch.equal(*marks)
    assert torch.equal(marks[0], fingerprint(cost, 0.5, {"b": side.expand(2, 1)}))


def test_rows_survive_growth() -> None:
    store = WarmStarts()
    for first in range(0, 100, 7):
        keys = range(first, first + 7)
        slots = store.slots(keys)
        table = store.table("best", lambda size: torch.zeros(size, 1, dtype=torch.float64))
        table.put(
            slots, torch.tensor([[float(k)] for k in keys], dtype=torch.float64), fingerprint(costs(7, 2, first), 0.0)
        )
    slots = store.slots(range(98))
    assert table.rows[torch.from_numpy(slots)][:, 0].tolist() == list(range(98))


@pytest.mark.parametrize("field", ["true", "Q", "true_Q", "smoothing", "nothing"])
@pytest.mark.parametrize("solver", ["auto", "interior-point"])
def test_other_data_under_a_key_is_noticed(solver: str, field: str) -> None:
    n, batch = 6, 4
    problem = pear.Problem(A=[[1.0] * n], b=[1.0], lb=0.0)
    given = {"Q": covariance(batch, n, 1), "true_Q": covariance(batch, n, 2)}
    loss = pear.PEARLoss(problem, smoothing=0.1, injection=0.0, solver=solver, reduction="none", guidance=0.0)
    predicted, true = costs(batch, n), costs(batch, n, 1)
    for _ in range(2):
        loss(predicted, true, keys=range(batch), **given)
    if field == "true":
        true = costs(batch, n, 5)
    elif field == "smoothing":
        loss.smoothing = 0.7
    elif field != "nothing":
        given[field] = covariance(batch, n, 7)
    fresh = pear.PEARLoss(problem, loss.smoothing, injection=0.0, solver=solver, reduction="none", guidance=0.0)
    found = loss(predicted, true, keys=range(batch), **given)
    torch.testing.assert_close(found, fresh(predicted, true, **given), rtol=1e-11, atol=1e-14)


def test_other_data_under_a_key_of_a_baseline_is_noticed() -> None:
    loss, fresh = SPOPlusLoss(GRID), SPOPlusLoss(GRID)
    for seed in (0, 1):
        true = costs(4, seed=seed)
        assert float(loss(costs(4, seed=9), true, keys=range(4))) == float(fresh(costs(4, seed=9), true))


@pytest.mark.parametrize("solver", ["auto", "interior-point"])
def test_one_loss_in_several_threads(solver: str) -> None:
    """Several threads, with and without common keys, get the results of sequential calls."""
    batches = 120 if solver == "auto" else 16
    expected = pear.PEARLoss(GRID, smoothing=0.1, solver=solver, reduction="none", guidance=0.0, injection=0.1)
    shared = pear.PEARLoss(GRID, smoothing=0.1, solver=solver, reduction="none", guidance=0.0, injection=0.1)

    def run(loss: pear.PEARLoss, k: int) -> torch.Tensor:
        keys = range(8 * (k % 5), 8 * (k % 5) + 8)
        predicted = costs(8, seed=k).requires_grad_()
        value = loss(predicted, costs(8, seed=1000 + k % 7), keys=keys if k % 3 else None)
        value.sum().backward()
        return torch.cat([value.detach()[:, None], predicted.grad], 1)

    one_by_one = [run(expected, k) for k in range(batches)]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(lambda k: run(shared, k), range(batches)))
    for mine, theirs in zip(at_once, one_by_one, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["simplex", "knapsack"])
@pytest.mark.parametrize("make", [pear.PEARLoss, pear.DecisionLayer])
def test_a_used_module_can_be_saved_and_copied(name: str, make: type) -> None:
    case = ZOO[name]
    module = make(case.problem, smoothing=0.5)

    def call(module: torch.nn.Module) -> torch.Tensor:
        args = (case.cost, case.true) if make is pear.PEARLoss else (case.cost,)
        return module(*args, keys=range(len(case.cost)))

    expected = call(module).detach()
    if make is pear.PEARLoss:
        assert module.last.tangent_dim.shape == module.last.weakly_active.shape == (len(case.cost),)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    others = [torch.load(file, weights_only=False), pickle.loads(pickle.dumps(module)), copy.deepcopy(module)]
    for other in others:
        for _ in range(2):  # from the default start, then from its own warm starts
            torch.testing.assert_close(call(other), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("make", [pear.PEARLoss, pear.DecisionLayer])
def test_another_problem_is_another_problem(make: type) -> None:
    first, second = ZOO["simplex"].problem, pear.Problem(A=[[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]], b=[1.5], lb=0.0)
    case = ZOO["simplex"]
    assert second.n == first.n
    module, fresh = make(first, smoothing=0.5), make(second, smoothing=0.5)
    args = (case.cost, case.true) if make is pear.PEARLoss else (case.cost,)
    keys = range(len(case.cost))
    module(*args, keys=keys)
    module.problem = second
    assert module.problem is second
    assert torch.equal(module(*args, keys=keys), fresh(*args, keys=keys))


def test_another_problem_of_a_baseline_is_another_problem() -> None:
    other = pear.Problem(A=[[1.0] * 40], b=[2.0], lb=0.0, ub=1.0)
    loss = SPOPlusLoss(GRID)
    loss(costs(4), costs(4, seed=1), keys=range(4))
    loss.problem = other
    assert float(loss(costs(4), costs(4, seed=1), keys=range(4))) == float(
        SPOPlusLoss(other)(costs(4), costs(4, seed=1))
    )


def test_a_derivative_belongs_to_the_problem_of_its_call() -> None:
    flat = pear.Problem(Q=torch.diag(torch.tensor([1.0, 0.0])), lb=0.0, ub=1.0)
    layer = pear.DecisionLayer(flat)
    cost = torch.tensor([[-0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    z = layer(cost)
    layer.problem = pear.Problem(Q=4 * torch.eye(2), lb=0.0, ub=1.0)
    with pytest.raises(pear.NotUniqueError):
        z.sum().backward()


def test_a_curvature_is_checked_for_every_smoothing() -> None:
    """A curvature may be convex with λ = 1 and not without it."""
    problem = pear.Problem(lb=-1.0, ub=1.0, n=2)
    given = {"Q": torch.eye(2).double()[None], "true_Q": torch.diag(torch.tensor([-0.5, 1.0])).double()[None]}
    loss = pear.PEARLoss(problem, smoothing=1.0, injection=0.0, guidance=0.0)
    args = torch.tensor([[0.3, 0.2]]).double(), torch.tensor([[0.01, 0.02]]).double()
    loss(*args, keys=[0], **given)
    loss.smoothing = 0.0
    with pytest.raises(pear.SolveError, match="NOT_CONVEX"):
        loss(*args, keys=[0], **given)


def test_what_auto_settles_on_is_for_one_problem() -> None:
    loss = pear.PEARLoss(pear.Problem(Q=torch.eye(3), lb=0.0), smoothing="auto", guidance=0.0, injection=0.1)
    loss(costs(2, 3), costs(2, 3, 1))
    assert loss.chosen_smoothing == 0.0
    loss.problem = pear.Problem(A=[[1.0] * 3], b=[1.0], lb=0.0)
    loss(costs(2, 3), costs(2, 3, 1))
    assert loss.chosen_smoothing > 0


def test_a_call_keeps_no_graph_and_no_view() -> None:
    problem = pear.Problem(A=[[1.0] * 4], b=[1.0], lb=0.0)
    root = covariance(3, 4, 0).requires_grad_()
    loss = pear.PEARLoss(problem, smoothing=0.0, injection=0.0, guidance=0.0)
    predicted = costs(3, 4)
    loss(predicted, costs(3, 4, 1), Q=root @ root, true_Q=covariance(3, 4, 1))
    copy.deepcopy(loss)
    before = loss.last.tangent_dim
    loss(predicted, costs(3, 4, 1), Q=root @ root, true_Q=covariance(3, 4, 1))
    predicted.fill_(0.0)
    assert torch.equal(loss.last.tangent_dim, before)


def test_keys_of_every_kind() -> None:
    problem = pear.Problem(A=[[1.0] * 3], b=torch.ones(6, 1), lb=0.0)
    loss = pear.PEARLoss(problem, smoothing=0.5, reduction="none", guidance=0.0, injection=0.1)
    expected = loss(costs(2, 3), costs(2, 3, 1), keys=[3, 4])
    for keys in (np.array([3, 4]), torch.tensor([3, 4]), (3, 4)):
        torch.testing.assert_close(loss(costs(2, 3), costs(2, 3, 1), keys=keys), expected, rtol=1e-12, atol=0)
        assert loss.last.reuse_rate == 1.0
    with pytest.raises(pear.ProblemError, match=r"one id a sample; got an array of shape \(2, 1\)"):
        loss(costs(2, 3), costs(2, 3, 1), keys=torch.tensor([[3], [4]]))


def test_settings_are_shown() -> None:
    case = ZOO["simplex"]
    loss = pear.PEARLoss(case.problem, smoothing="auto", injection=0.2, guidance=0.0)
    assert str(loss) == (
        f"PEARLoss(\n  {case.problem}\n  smoothing='auto', solver='auto', on_failure='raise', injection=0.2, "
        "guidance=0, reduction='mean'\n)"
    )
    loss.calibrate(case.true)
    assert f"smoothing='auto' ({loss.chosen_smoothing:g})" in str(loss)
    assert "mse_weight=0.5" in str(SPOPlusLoss(GRID, mse_weight=0.5))
    solution = pear.solve(GRID, costs(64), 0.1)
    assert str(solution).startswith("Solution(64 samples of 40 variables: 64 SOLVED; mean value ")


def test_what_auto_settles_on_is_state() -> None:
    case = ZOO["simplex"]
    loss = pear.PEARLoss(case.problem, smoothing="auto", guidance=0.0, injection=0.1)
    assert loss.calibrate(case.true) == loss.chosen_smoothing
    other = pear.PEARLoss(case.problem, smoothing="auto", guidance=0.0, injection=0.1)
    other.load_state_dict(loss.state_dict())
    other(case.cost * 100, case.true * 100)
    assert other.chosen_smoothing == loss.chosen_smoothing
    fixed = pear.PEARLoss(case.problem, smoothing=0.25, guidance=0.0, injection=0.1)
    fixed.load_state_dict(loss.state_dict())
    assert fixed.chosen_smoothing == 0.25


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the name of every solver that is asked, and "lp" for every linear program."""
    from pear.decisions import failure_proofs
    from pear.solvers.backend_registry import Backend

    names: list[str] = []
    solve, program = Backend.solve, failure_proofs.solve_with_linprog
    monkeypatch.setattr(Backend, "solve", lambda self, *args, **o: names.append(self.name) or solve(self, *args, **o))
    monkeypatch.setattr(
        failure_proofs, "solve_with_linprog", lambda *args, **o: names.append("lp") or program(*args, **o)
    )
    return names


def test_a_failure_is_kept_while_its_constraints_stay(asked: list[str]) -> None:
    """The costs change in every epoch. A sample that fails under all costs is examined once.

    The other samples get the results that they get without it.
    """
    b = torch.tensor([[1.0], [9.0], [1.0], [8.0]], dtype=torch.float64)
    problem = pear.Problem(A=torch.ones(1, 5), b=b, lb=0.0, ub=1.0)
    loss = pear.PEARLoss(problem, 0.1, on_failure="mask", reduction="none", guidance=0.0, injection=0.1)
    alone = pear.PEARLoss(problem[[0, 2]], 0.1, reduction="none", guidance=0.0, injection=0.1)
    true = costs(4, 5, 99)
    for epoch in range(3):
        asked.clear()
        predicted = costs(4, 5, epoch).requires_grad_()
        if epoch:
            value = loss(predicted, true, keys=range(4))  # nothing new, so that nobody is warned either
            assert not asked
        else:
            with pytest.warns(pear.FailedSamplesWarning, match="2 of 4 samples"):
                value = loss(predicted, true, keys=range(4))
            assert asked.count("lp") == 2
        value.sum().backward()
        mine = predicted.detach()[[0, 2]].requires_grad_()
        expected = alone(mine, true[[0, 2]], keys=range(2))
        expected.sum().backward()
        assert loss.last is not None
        assert loss.last.status.tolist() == [0, 2, 0, 2]
        torch.testing.assert_close(value[[0, 2]], expected, rtol=1e-12, atol=1e-14)
        assert predicted.grad is not None
        torch.testing.assert_close(predicted.grad[[0, 2]], mine.grad, rtol=1e-12, atol=1e-14)
        assert not bool(value[[1, 3]].any() | predicted.grad[[1, 3]].any())


@pytest.mark.parametrize("solver", ["auto", "interior-point"])
def test_a_failure_under_the_cost_is_forgotten_with_it(solver: str, asked: list[str]) -> None:
    problem = pear.Problem(lb=0.0, n=2)
    loss = pear.PEARLoss(problem, 0.0, 0.0, solver=solver, on_failure="mask", reduction="none", guidance=0.0)
    good, bad = torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([[1.0, 2.0], [-2.0, 1.0]])
    for predicted, true, status in (
        (good, bad, 3),
        (good + 1, bad, 3),
        (good, good, 0),
        (bad, good, 3),
        (good, good, 0),
    ):
        asked.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pear.FailedSamplesWarning)
            loss(predicted, true, keys=["a", "b"])
        assert loss.last is not None
        assert loss.last.status.tolist() == [0, status]
        repeated = bool(torch.equal(predicted, good + 1))
        assert ("lp" in asked) == (status == 3 and not repeated)


def test_a_failure_is_asked_again_when_its_rows_change() -> None:
    layer = pear.DecisionLayer(pear.Problem(A=torch.ones(1, 3), b=[1.0], lb=0.0, ub=1.0), 0.1, on_failure="mask")
    for b, status in ((9.0, 2), (9.0, 2), (1.0, 0), (9.0, 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pear.FailedSamplesWarning)
            layer(costs(1, 3), b=torch.tensor([b]), keys=["only"])
        assert layer.status is not None
        assert layer.status.tolist() == [status]


def test_on_failure_raise_raises_every_time() -> None:
    problem = pear.Problem(A=torch.ones(1, 5), b=[[1.0], [9.0]], lb=0.0, ub=1.0)
    loss = pear.PEARLoss(problem, 0.1, guidance=0.0, injection=0.1)
    for _ in range(2):
        with pytest.raises(pear.SolveError, match=r"1 of 2 samples .* sample 1 \(INFEASIBLE\)"):
            loss(costs(2, 5), costs(2, 5, 1), keys=range(2))


def test_a_sparse_sample_is_asked_once(asked: list[str]) -> None:
    problem = pear.tasks.shortest_path((18, 18)).problem
    b = problem.b.reshape(1, -1).repeat(2, 1)
    b[1, 0] += 1.0
    problem = pear.Problem(A=problem.A.csr, b=b, lb=0.0)
    assert problem.is_sparse
    loss = pear.PEARLoss(problem, 0.1, on_failure="mask", reduction="none", guidance=0.0, injection=0.1)
    with pytest.warns(pear.FailedSamplesWarning):
        loss(costs(2, problem.n), costs(2, problem.n, 1), keys=range(2))
    asked.clear()
    loss(costs(2, problem.n), costs(2, problem.n, 1), keys=range(2))
    assert loss.last is not None
    assert loss.last.status.tolist() == [0, 2]
    assert not asked

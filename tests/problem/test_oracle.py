"""``Oracle``: the arguments of its function, checks and storage of its results, and errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from tours import Tours

import pear
from pear.errors import ProblemError
from pear.optimality.status import Status
from pear.problem import oracle_function

COSTS = np.random.default_rng(1).uniform(1, 5, (7, 10))


def cheapest(cost):
    return cost == cost.min()


def cheapest_of_batch(costs):
    return costs == costs.min(1, keepdims=True)


def cheapest_tensor(cost):
    return torch.from_numpy(cost) == torch.from_numpy(cost).min()


# a lambda travels by value, so that the processes need not import torch
@pytest.mark.parametrize(
    ("decide", "processes"),
    [(cheapest, 1), (cheapest_of_batch, 1), (cheapest_tensor, 1), (lambda cost: cost == cost.min(), 2)],
)
def test_one_sample_a_batch_and_tensors_decide_alike(decide, processes):
    oracle = pear.Oracle(decide, n=10, processes=processes)
    solution = pear.solve(oracle, COSTS)
    assert solution.x.tolist() == (COSTS.min(1, keepdims=True) == COSTS).astype(float).tolist()
    assert solution.value.tolist() == COSTS.min(1).tolist()
    single = pear.solve(oracle, torch.tensor(COSTS[0], dtype=torch.float32))
    assert single.x.dtype == torch.float32


def test_the_kind_of_the_function_is_found_by_the_first_call_or_said():
    shapes = []

    def decide(costs):
        shapes.append(costs.shape)
        return costs == costs.min(-1, keepdims=True)

    pear.solve(pear.Oracle(decide, n=10), COSTS)
    assert set(shapes) == {(10,)}
    shapes.clear()
    pear.solve(pear.Oracle(decide, n=10, batched=True), COSTS)
    assert shapes == [(7, 10)]


def test_optimality_is_the_oracles_word():
    solution = pear.solve(pear.Oracle(cheapest, n=10), COSTS)
    assert solution.status.tolist() == [Status.CLAIMED] * 7
    assert solution.solved.all()
    assert solution.kkt_residual.isnan().all()
    assert solution.gap.isinf().all()
    assert solution.duals is None
    assert "word" in Status.CLAIMED.sentence
    assert "7 CLAIMED" in repr(solution)


def test_maximisation():
    oracle = pear.Oracle(lambda cost: cost == cost.max(), n=3, sense="max")
    regret = pear.regret(oracle, [[1.0, 3.0, 2.0]], [[1.0, 2.0, 5.0]])
    assert regret.tolist() == [3.0]


def test_equal_costs_are_decided_once():
    tours = Tours()
    oracle = pear.Oracle(tours.decide, n=10)
    pear.solve(oracle, COSTS[[0, 1, 0, 0]])
    assert tours.asked == 2
    pear.regret(oracle, COSTS[1:4], COSTS[:3])
    assert tours.asked == 4
    again = pear.Oracle(tours.decide, n=10, cache=False)
    for _ in range(2):
        pear.solve(again, COSTS[:3])
    assert tours.asked == 10


def test_memory_is_bounded_and_keeps_what_comes_again(monkeypatch):
    monkeypatch.setattr(oracle_function, "_MEMORY_BYTES", 5 * (8 * 10 + 200))
    tours = Tours()
    oracle = pear.Oracle(tours.decide, n=10)
    pear.solve(oracle, COSTS[:1])
    for i in range(1, 7):
        pear.solve(oracle, COSTS[[i]])
        pear.solve(oracle, COSTS[:1])  # the truth, which comes again and again
    assert tours.asked == 7
    for i, asked in ((6, 7), (3, 7), (2, 8)):  # the last five are remembered, and the truth is one of them
        pear.solve(oracle, COSTS[[i]])
        assert tours.asked == asked


def test_ids_of_samples_reach_a_function_that_takes_them():
    seen = []

    def decide(costs, keys=None):
        seen.append(keys)
        return costs < 0

    oracle = pear.Oracle(decide, n=2)
    C = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    loss = pear.losses.SPOPlusLoss(oracle)
    loss(C.clone().requires_grad_(), C, keys=["monday", "tuesday"]).backward()
    assert seen[0] == ["monday", "tuesday"]
    pear.solve(oracle[[5, 3]], C)
    assert seen[-1] == [5, 3]
    pear.solve(oracle, C)
    assert seen[-1] is None
    one = pear.Oracle(lambda cost, key: cost < (0 if key is None else key), n=2)
    assert pear.solve(one[[2, 0]], C).x.tolist() == [[1.0, 1.0], [0.0, 1.0]]
    with pytest.raises(pear.ProblemError, match="ids of 2 samples, and 1 costs"):
        pear.solve(one[[2, 0]], C[:1])


def test_what_comes_back_is_checked():
    two = pear.Oracle(lambda cost: cost[:2], n=3)
    with pytest.raises(pear.ProblemError, match=r"\(3,\) numbers.*sample 0 it returned ndarray of shape \(2,\)"):
        pear.solve(two, [[1.0, 2.0, 3.0]])
    with pytest.raises(pear.ProblemError, match=r"\(3,\) numbers.*sample 0 it returned ndarray of shape \(1,\)"):
        pear.solve(pear.Oracle(lambda cost: cost[-1:], n=3), [[1.0, 2.0, 3.0]])
    with pytest.raises(pear.ProblemError, match="returned None"):
        pear.solve(pear.Oracle(lambda cost: None, n=3), [[1.0, 2.0, 3.0]])
    with pytest.raises(pear.ProblemError, match=r"batch of samples 0 to 1.*\(2, 2\)"):
        pear.solve(pear.Oracle(lambda c: c[:, :2], n=3, batched=True), [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])
    nan = pear.Oracle(lambda cost: np.where(cost == 1, np.nan, cost), n=3)
    with pytest.raises(pear.SolveError, match=r"sample 1: 1 of 3 numbers are not finite"):
        pear.solve(nan, [[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])


def test_a_check_of_ones_own_names_the_sample_and_what_is_wrong():
    def check(z):
        return z.sum() == 1 or f"{z.sum():g} are chosen, not one"

    oracle = pear.Oracle(cheapest, n=3, check=check)
    costs = [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]]
    with pytest.raises(
        pear.SolveError, match=r"oracle \(sample 1: 3 are chosen, not one\): sample 1 \(REJECTED\)"
    ) as e:
        pear.solve(oracle, costs)
    assert e.value.samples == [1]
    with pytest.warns(pear.FailedSamplesWarning, match="3 are chosen"):
        masked = pear.solve(oracle, costs, on_failure="mask")
    assert masked.status.tolist() == [Status.CLAIMED, Status.REJECTED]
    assert masked.x[1].isnan().all()
    with pytest.raises(pear.SolveError, match="the check refuses it"):
        pear.solve(pear.Oracle(cheapest, n=3, check=lambda z: z.sum() == 2), costs[:1])
    pear.solve(pear.Oracle(cheapest, n=3, check=lambda z: None), costs)
    with pytest.raises(pear.ProblemError, match=r"check must return True or None.*got np"):
        pear.solve(pear.Oracle(cheapest, n=3, check=lambda z: z.sum()), costs[:1])


def test_costs_that_are_not_finite_are_not_asked_about():
    tours = Tours()
    costs = COSTS.copy()
    costs[2, 3] = np.nan
    with pytest.warns(pear.FailedSamplesWarning, match=r"sample 2 \(NOT_FINITE\)"):
        solution = pear.solve(pear.Oracle(tours.decide, n=10), costs, on_failure="mask")
    assert tours.asked == 6
    assert solution.solved.tolist() == [i != 2 for i in range(7)]


def test_an_error_of_the_function_comes_through_with_the_sample():
    def fails(cost):
        if cost[0] > 4:
            raise KeyError("no route")
        return cost < 0

    costs = np.full((3, 2), 1.0)
    costs[2] = 5
    with pytest.raises(KeyError, match="no route") as caught:
        pear.solve(pear.Oracle(fails, n=2, batched=False), costs)
    assert "sample 2" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decide": 3, "n": 2}, "decide must be a function; got 3"),
        ({"decide": cheapest}, "n, the number of variables, is needed"),
        ({"decide": cheapest, "n": 0}, "n must be a whole number"),
        ({"decide": cheapest, "n": 2, "sense": "best"}, "sense"),
        ({"decide": cheapest, "n": 2, "processes": 0}, "processes must be"),
        ({"decide": cheapest, "n": 2, "check": 1}, "check must be a function; got 1"),
        ({"decide": cheapest, "n": 2, "relaxation": pear.Problem(n=3, lb=0)}, "takes 3 costs, and n is 2"),
        ({"decide": cheapest, "sense": "max", "relaxation": pear.Problem(n=3, lb=0)}, "has sense='min'"),
        ({"decide": cheapest, "relaxation": pear.Oracle(cheapest, n=3)}, "got an Oracle"),
        ({"decide": cheapest, "relaxation": 3}, "expected a pear.Problem"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(pear.ProblemError, match=message):
        pear.Oracle(**arguments)


def test_an_oracle_is_no_problem_without_constraints():
    """A function that needs a program raises an error, and does not take the oracle for a problem without rows."""
    oracle = pear.Oracle(cheapest, n=10)
    for call in (
        lambda: pear.PEARLoss(oracle),
        lambda: pear.DecisionLayer(oracle),
        lambda: pear.regret_gradient(oracle, COSTS, COSTS),
        lambda: pear.presolve(oracle),
        lambda: pear.advise(oracle, COSTS),
        lambda: pear.boosting.objective(oracle, COSTS),
        lambda: pear.losses.make_loss("spo+relaxed", oracle)(torch.tensor(COSTS), torch.tensor(COSTS)),
        lambda: pear.losses.make_loss("lava", oracle),
        lambda: pear.losses.make_loss("pear", oracle),
        lambda: pear.Model.predicting(oracle, b=True),
        lambda: oracle.relaxed(),
        lambda: oracle.canonical(torch.tensor(COSTS)),
        lambda: pear.solve(oracle, COSTS, smoothing=0.1),
        lambda: pear.solve(oracle, COSTS, solver="highs"),
        lambda: pear.solve(oracle, COSTS, lb=0.0),
    ):
        with pytest.raises(pear.ProblemError, match=r"Oracle|oracle"):
            call()


def test_a_refusal_names_the_methods_that_work():
    with pytest.raises(pear.ProblemError, match=r"PEARLoss needs a program.*relaxation=.*spo\+, pfyl, dbb, mse"):
        pear.PEARLoss(pear.Oracle(cheapest, n=10))


def test_decisions_outside_the_relaxation_are_warned_of_once(caplog):
    tours = Tours()
    right = pear.Oracle(tours.decide, relaxation=tours.degrees)
    pear.solve(right, COSTS)
    pear.solve(pear.Oracle(lambda cost: [1.0, -1e-115], relaxation=pear.Problem(lb=0.0, n=2)), [[1.0, 1.0]])
    assert not caplog.records
    turned = pear.Problem(A=tours.degrees.A.flip(1)[:, [1, 0, *range(2, 10)]], b=tours.degrees.b, lb=0.0, ub=1.0)
    wrong = pear.Oracle(tours.decide, relaxation=turned)
    for _ in range(2):
        pear.solve(wrong, COSTS)
    assert len(caplog.records) == 1
    assert "of the first 7 decisions of the oracle violate its relaxation" in caplog.text
    above = pear.Oracle(lambda cost: np.full(2, 1.5), relaxation=pear.Problem(G=[[1.0, 1.0]], h=[2.0], ub=1.0))
    pear.solve(above, [[1.0, 1.0]])
    assert "1 of the first 1 decisions" in caplog.text


def test_models_maps_and_copies():
    tours = Tours()
    oracle = pear.Oracle(tours.decide, relaxation=tours.degrees)
    assert repr(oracle) == f"Oracle(min, n=10, decide, relaxation={tours.degrees!r})"
    assert "Oracle" in oracle._repr_html_()
    model = pear.Model(oracle, cost_map=pear.CostMap(np.vstack([np.eye(5), 1.5 * np.eye(5)])))
    values = COSTS[:, :5]
    expected = tours.decide_all(np.hstack([values, 1.5 * values]))  # no two tours cost the same
    assert pear.solve(model, values).x.tolist() == expected.tolist()
    loss = pear.PEARLoss(model)
    assert loss.problem is tours.degrees
    assert loss.cost_map is model.cost_map
    copied = pickle.loads(pickle.dumps(pear.Oracle(cheapest, n=10)))
    assert pear.solve(copied, COSTS).x.sum() == 7
    assert oracle.to(dtype=torch.float32).dtype == torch.float32


def test_a_relaxation_with_variables_of_its_own_is_a_model():
    """The two costs are those of the oracle; the relaxation has a third variable without a cost."""
    oracle_costs = pear.CostMap([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    inner = pear.Model(pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.5], lb=0.0, ub=1.0), cost_map=oracle_costs)
    oracle = pear.Oracle(cheapest, relaxation=inner)
    assert oracle.n == 2
    loss = pear.PEARLoss(oracle, smoothing=0.5, injection=0.0, guidance=0.0)
    predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
    loss(predicted, torch.tensor([[1.0, 2.0]])).backward()
    assert predicted.grad.shape == (1, 2)
    with pytest.raises(pear.ProblemError, match="variables of its own"):
        oracle.relaxed()
    doubled = pear.Model(oracle, cost_map=pear.CostMap([[1.0], [2.0]]))
    with pytest.raises(pear.ProblemError, match="whose relaxation is a Model as well"):
        pear.PEARLoss(doubled)


@pytest.mark.parametrize(
    ("index", "rows"),
    [(1, [1]), ([0, 2], [0, 2]), (slice(1, 3), [1, 2]), ([True, False, True], [0, 2]), (torch.tensor([2, 0]), [2, 0])],
)
def test_selected_samples_give_the_function_their_row_numbers(index, rows):
    seen = []

    def decide(costs, keys=None):
        seen.extend(keys)
        return costs == costs.min(-1, keepdims=True)

    oracle = pear.Oracle(decide, n=10, batched=True)
    pear.solve(oracle[index], COSTS[: len(rows)])
    assert seen == rows


def test_a_slice_without_an_end_is_refused():
    with pytest.raises(ProblemError, match="pass row numbers"):
        pear.Oracle(lambda cost, key: cost == cost.min(), n=10)[2:]

"""The methods that PEAR is compared with: values and gradients against the formulas, and the table of methods."""

from __future__ import annotations

import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from listed_tasks import GRID, Listed, costs, gradient, items, paths
from torch import Tensor, nn

import pear
from pear.losses import (
    METHODS,
    AIMLELoss,
    DBBLoss,
    DPOLoss,
    DPOMultiplicativeLoss,
    IMLELoss,
    LAVALoss,
    Method,
    MSELoss,
    NIDLoss,
    PFYLLoss,
    PGLoss,
    SFGELoss,
    SPOPlusLoss,
    make_loss,
    method,
)
from pear.losses import pyepo as adapter
from pear.losses.decision_loss import DecisionLoss
from pear.losses.methods import own_loss_names
from pear.testing import check_loss

TASKS = pytest.mark.parametrize("task", [paths(), items()], ids=["paths", "items"])
LOSSES: dict[str, Callable[[Listed], DecisionLoss]] = {
    "spo+": lambda task: SPOPlusLoss(task.problem, task.decide),
    "pfyl": lambda task: PFYLLoss(task.problem, task.decide, samples=3, sigma=0.5, cost_unit=1.0),
    "dbb": lambda task: DBBLoss(task.problem, task.decide, interpolation=5.0),
    "nid": lambda task: NIDLoss(task.problem, task.decide),
    "pg": lambda task: PGLoss(task.problem, task.decide, width=0.5),
    "dpo": lambda task: DPOLoss(task.problem, task.decide, samples=3),
    "dpo-multiplicative": lambda task: DPOMultiplicativeLoss(task.problem, task.decide, samples=3),
    "imle": lambda task: IMLELoss(task.problem, task.decide, samples=3),
    "aimle": lambda task: AIMLELoss(task.problem, task.decide, samples=3),
    "sfge": lambda task: SFGELoss(task.problem, task.decide, samples=3),
    "lava": lambda task: LAVALoss(task.problem, task.decide, lambda z: [others(task, row) for row in z]),
}


def others(task: Listed, z: Tensor) -> Tensor:
    """Return every other point; they serve as neighbours in tests of the arithmetic alone."""
    return task.points[(task.points != z.double()).any(1)]


# --- values and gradients -------------------------------------------------------------------------------------------


@TASKS
def test_spo_plus_follows_its_formula(task: Listed) -> None:
    predicted, true = costs(task)
    s, p = task.problem.sign, predicted.detach()
    value, grad = gradient(SPOPlusLoss(task.problem, task.decide), predicted, true)
    best, beyond = task.decide(true), task.decide(2 * p - true)
    least = (s * (2 * p - true) @ task.points.T).min(1).values
    torch.testing.assert_close(value, (-least + s * (2 * p * best).sum(1) - s * (true * best).sum(1)).mean())
    torch.testing.assert_close(grad, s * 2 * (best - beyond) / len(p))
    assert bool(grad.any())


@TASKS
def test_spo_plus_bounds_the_regret_and_vanishes_at_the_truth(task: Listed) -> None:
    loss = SPOPlusLoss(task.problem, task.decide)
    for seed in range(20):
        predicted, true = costs(task, batch=1, seed=seed)
        regret = task.problem.sign * (true * (task.decide(predicted.detach()) - task.decide(true))).sum()
        assert float(loss(predicted, true).detach()) >= float(regret) - 1e-12
    assert float(loss(true, true)) == 0.0


@TASKS
def test_pfyl_follows_its_formula_with_the_published_random_numbers(task: Listed) -> None:
    predicted, true = costs(task)
    s, p = task.problem.sign, predicted.detach()
    loss = PFYLLoss(task.problem, task.decide, samples=3, sigma=0.5, cost_unit=1.0)
    random = np.random.RandomState(135)
    for _ in range(2):  # the stream goes on from step to step
        value, grad = gradient(loss, predicted, true)
        moved = s * p + 0.5 * torch.from_numpy(random.normal(0, 1, (3, *p.shape)))
        z = torch.stack([task.decide(s * part) for part in moved])
        best = task.decide(true)
        expected = (s * p * best).sum(1) - (moved @ task.points.T).min(2).values.mean(0)
        torch.testing.assert_close(value, expected.mean())
        torch.testing.assert_close(grad, s * (best - z.mean(0)) / len(p))
    assert bool(grad.any())


@TASKS
def test_dbb_follows_its_formula(task: Listed) -> None:
    predicted, true = costs(task)
    s, p = task.problem.sign, predicted.detach()
    value, grad = gradient(DBBLoss(task.problem, task.decide, interpolation=5.0), predicted, true)
    z, best = task.decide(p), task.decide(true)
    torch.testing.assert_close(value, (true * (z - best)).sum(1).abs().mean())
    # ∂ℓ/∂z: where the decision is the best one already, the sign is 0.
    w = (true * (z - best)).sum(1).sign()[:, None] * true / len(p)
    moved = task.decide(s * (s * p + 5.0 * w))
    torch.testing.assert_close(grad, s * (moved - z) / 5.0)
    assert bool(grad.any())


@pytest.mark.parametrize("name", ["spo+", "lava"])
@TASKS
def test_gradients_agree_with_finite_differences(task: Listed, name: str) -> None:
    predicted, true = costs(task, batch=3)
    loss = LOSSES[name](task)
    assert torch.autograd.gradcheck(lambda p: loss(p, true), predicted, eps=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_maximising_is_minimising_with_every_sign_turned(name: str) -> None:
    up, down = items("max"), items("min")
    predicted, true = costs(up)
    value, grad = gradient(LOSSES[name](up), predicted, true)
    turned, turned_grad = gradient(LOSSES[name](down), (-predicted).detach().requires_grad_(), -true)
    torch.testing.assert_close(value, turned)
    torch.testing.assert_close(grad, -turned_grad)
    assert bool(grad.any())


@pytest.mark.parametrize("name", ["spo+", "dbb", "nid", "pg"])
def test_a_batch_is_the_mean_of_its_samples(name: str) -> None:
    task = paths()
    predicted, true = costs(task)
    loss = LOSSES[name](task)
    singles = [float(loss(p[None], c[None]).detach()) for p, c in zip(predicted, true, strict=True)]
    assert float(loss(predicted, true).detach()) == pytest.approx(statistics.mean(singles))


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "lava"])
def test_the_squared_error_comes_on_top(name: str) -> None:
    task = paths()
    predicted, true = costs(task)
    plain = LOSSES[name](task)
    heavy = LOSSES[name](task)
    heavy.mse_weight = 0.01
    (value, grad), (more, more_grad) = gradient(plain, predicted, true), gradient(heavy, predicted, true)
    error, unit = predicted.detach() - true, heavy.chosen_unit
    assert unit is not None
    torch.testing.assert_close(more - value, 0.01 * 0.5 * (error**2).sum(1).mean() / unit)
    torch.testing.assert_close(more_grad - grad, 0.01 * error / len(error) / unit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_keep_the_type_of_the_prediction(name: str, dtype: torch.dtype) -> None:
    task = paths()
    predicted, true = costs(task, dtype=dtype)
    value, grad = gradient(LOSSES[name](task), predicted, true.double())
    assert (value.dtype, grad.dtype, value.ndim) == (dtype, dtype, 0)


def test_without_an_oracle_the_problem_itself_is_solved() -> None:
    task = items()
    predicted, true = costs(task)
    with_oracle = gradient(SPOPlusLoss(task.problem, task.decide), predicted, true)
    torch.testing.assert_close(gradient(SPOPlusLoss(task.problem), predicted, true), with_oracle)


def test_constraints_per_sample_are_found_by_key() -> None:
    # One of two items; the weight of a sample's first item decides whether it fits.
    problem = pear.Problem(
        G=torch.tensor([[[1.0, 1.0]], [[3.0, 1.0]]]), h=[1.0], lb=0.0, ub=1.0, sense="max", integer=True
    )
    true, predicted = torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 2.0]], requires_grad=True)
    loss = SPOPlusLoss(problem)
    loss(predicted, true, keys=[0]).backward()
    assert predicted.grad is not None
    assert predicted.grad.tolist() == [[-2.0, 2.0]]
    predicted.grad = None
    loss(predicted, true, keys=[1]).backward()  # only the second item fits, whatever is predicted
    assert predicted.grad.tolist() == [[0.0, 0.0]]


# --- LAVA -----------------------------------------------------------------------------------------------------------


def test_lava_is_the_mean_over_the_padded_array() -> None:
    """Two samples with two neighbours and one: the padded array has four entries, one of them empty."""
    corners = torch.eye(3)
    neighbours = {0: corners[[1, 2]], 1: corners[[0]]}
    loss = LAVALoss(
        pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0),
        adjacent=lambda z: [neighbours[int(row.argmax())] for row in z],
    )
    true = torch.tensor([[1.0, 3.0, 3.0], [3.0, 1.0, 3.0]])
    predicted = torch.tensor([[2.0, 1.0, 2.05], [1.0, 4.0, 0.0]], requires_grad=True)
    value, grad = gradient(loss, predicted, true)
    # Sample 0: 2 − 1 = 1, and 2 − 2.05 = −0.05, above τ = −0.1. Sample 1: 4 − 1 = 3, and an empty slot.
    assert float(value) == pytest.approx((1 - 0.05 + 3 + 0) / 4)
    torch.testing.assert_close(grad, torch.tensor([[2.0, -1.0, -1.0], [-1.0, 1.0, 0.0]]) / 4)
    loss.threshold = 0.0
    value, grad = gradient(loss, predicted, true)
    assert float(value) == pytest.approx((1 + 3) / 4)
    torch.testing.assert_close(grad, torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]) / 4)


def ragged(counts: list[int], n: int = 4) -> tuple[LAVALoss, dict[int, Tensor]]:
    """Return a loss on a box and its neighbours: ``counts[i]`` random points for key i."""
    generator = torch.Generator().manual_seed(0)
    points = {i: torch.rand(k, n, generator=generator).double() for i, k in enumerate(counts)}

    def adjacent(z: Tensor, keys: list[int]) -> list[Tensor]:
        return [points[key] for key in keys]

    sides = torch.linspace(1.0, 2.0, len(counts)).double()[:, None].expand(-1, n)  # neighbours of one's own
    return LAVALoss(pear.Problem(lb=0.0, ub=sides, sense="max"), adjacent=adjacent), points


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lava_equals_the_padded_formula(dtype: torch.dtype) -> None:
    counts = [3, 0, 50, 1, 7]
    loss, points = ragged(counts)
    generator = torch.Generator().manual_seed(1)
    true, predicted = torch.randn(2, len(counts), 4, generator=generator).to(dtype).unbind()
    predicted = predicted.clone().requires_grad_()
    value = loss(predicted, true, keys=range(len(counts)))
    value.backward()
    best = torch.linspace(1.0, 2.0, len(counts), dtype=dtype)[:, None] * (true > 0)
    away = [z - points[i].to(dtype) for i, z in enumerate(best)]
    expected = predicted.detach().requires_grad_()
    dearer = -torch.einsum("bkn,bn->bk", torch.nn.utils.rnn.pad_sequence(away, batch_first=True), expected)
    padded = torch.where(dearer >= loss.threshold, dearer, 0.0).mean()
    padded.backward()
    torch.testing.assert_close(value, padded)
    torch.testing.assert_close(predicted.grad, expected.grad)


def test_lava_takes_memory_for_the_neighbours_there_are() -> None:
    """One sample of 64 has many neighbours; no array is allocated in which every sample has as many."""
    counts, n = [6400, *[1] * 63], 4
    loss, _ = ragged(counts, n)
    true, predicted = torch.ones(64, n), torch.ones(64, n, requires_grad=True)
    loss(predicted, true, keys=range(64))  # what is kept is not counted
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss(predicted, true, keys=range(64)).backward()
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    padded = 4 * n * len(counts) * max(counts)  # of one array
    assert 4 * n * sum(counts) < allocated < padded / 2


def test_lava_asks_once_for_the_neighbours_of_a_vertex() -> None:
    task, asked = paths(), []

    def adjacent(z: Tensor) -> list[Tensor]:
        asked.extend(tuple(row.tolist()) for row in z)
        return task.adjacent(z)

    predicted, true = costs(task, batch=40)
    loss = LAVALoss(task.problem, task.decide, adjacent)
    for rows in torch.arange(40).split(8):
        loss(predicted[rows], true[rows], keys=rows)
    assert 1 < len(asked) == len(set(asked)) <= 6
    before = task.asked
    loss(predicted, true, keys=range(40))
    assert len(set(asked)) == len(asked)
    assert task.asked == before


def test_lava_is_at_rest_where_every_neighbour_is_dearer() -> None:
    task = paths()
    _, true = costs(task)
    loss = LAVALoss(task.problem, task.decide, task.adjacent)
    value, grad = gradient(loss, (100 * true).requires_grad_(), true)
    assert float(value) == 0.0
    assert not bool(grad.any())


def test_lava_tells_vertices_apart_that_are_close() -> None:
    """The close vertices (0, 0) and (0.001, 0) each have their own neighbours."""
    corners = torch.cartesian_prod(torch.tensor([0.0, 1e-3]), torch.tensor([0.0, 1.0])).double()

    def adjacent(z: Tensor) -> list[Tensor]:
        return [corners[((corners - row).abs() > 1e-9).sum(1) == 1] for row in z]

    loss = LAVALoss(pear.Problem(lb=0.0, ub=[1e-3, 1.0]), adjacent=adjacent, threshold=-10.0)
    true = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    predicted = torch.tensor([[3.0, 2.0], [5.0, 4.0]], dtype=torch.float64, requires_grad=True)
    # ĉᵀ(z − v): (0, 0) against (0.001, 0) and (0, 1), (0.001, 0) against (0, 0) and (0.001, 1)
    value = loss(predicted, true)
    assert value.item() == pytest.approx((-0.003 - 2 + 0.005 - 4) / 4)


def test_lava_keeps_the_neighbours_of_samples_with_constraints_of_their_own_apart() -> None:
    """The best vertex of both samples is zero, but its neighbours differ because the boxes do."""
    sides = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    asked = []

    def adjacent(z: Tensor, keys: list[int] | None) -> list[Tensor]:
        asked.append(keys)
        return [torch.diag(sides[0 if keys is None else key]) for key in keys or [0] * len(z)]

    true, predicted = torch.ones(2, 2, dtype=torch.float64), torch.tensor([[1.0, 1.0], [1.0, 2.0]]).double()
    loss = LAVALoss(pear.Problem(lb=0.0, ub=sides), adjacent=adjacent, threshold=-100.0)
    for keys in ([0, 1], None):
        assert loss(predicted, true, keys=keys).item() == pytest.approx(-(1 + 2 + 3 + 8) / 4)
    assert asked[0] == [0, 1]
    shared = LAVALoss(pear.Problem(lb=0.0, ub=sides[0]), adjacent=adjacent, threshold=-100.0)
    assert shared(predicted, true).item() == pytest.approx(-(1 + 2 + 1 + 4) / 4)
    assert asked[-1] is None


def test_lava_without_a_neighbour_has_no_gradient() -> None:
    problem = pear.Problem(A=[[1.0]], b=[1.0], lb=0.0)
    loss = LAVALoss(problem, adjacent=lambda z: [z.new_empty(0, 1) for _ in z])
    value, grad = gradient(loss, torch.ones(2, 1, requires_grad=True), torch.ones(2, 1))
    assert float(value) == 0.0
    assert not bool(grad.any())


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_the_best_decision_is_found_once_for_each_key() -> None:
    task = paths()
    predicted, true = costs(task, batch=6)
    loss = SPOPlusLoss(task.problem, task.decide)
    first = loss(predicted, true, keys=torch.arange(6))
    assert task.asked == 12
    again = loss(predicted[[4, 1]], true[[4, 1]], keys=["4", 1])  # "4" is a stranger: both are asked for
    assert task.asked == 12 + 4
    assert loss(predicted, true, keys=range(6)).item() == first.item()
    assert task.asked == 16 + 6
    fresh = SPOPlusLoss(task.problem, task.decide)
    assert again.item() == fresh(predicted[[4, 1]], true[[4, 1]]).item()


def test_another_cost_under_the_same_key_is_decided_anew() -> None:
    task = paths()
    loss = SPOPlusLoss(task.problem, task.decide)
    (predicted, true), (_, changed) = costs(task), costs(task, seed=1)
    loss(predicted, true, keys=range(5))
    fresh = SPOPlusLoss(task.problem, task.decide)
    assert loss(predicted, changed, keys=range(5)).item() == fresh(predicted, changed).item()
    single = predicted.detach().float()
    assert loss(single, changed.float(), keys=range(5)).dtype == torch.float32


def test_time_is_counted() -> None:
    task = paths()
    predicted, true = costs(task)
    for make in LOSSES.values():
        loss = make(task)
        assert loss.seconds == {"solve": 0.0, "gradient": 0.0}
        began = time.perf_counter()
        loss(predicted, true).backward()
        first = dict(loss.seconds)
        assert min(first.values()) > 0
        assert sum(first.values()) <= time.perf_counter() - began
        loss(predicted, true).backward()
        assert loss.seconds["gradient"] > first["gradient"]
    assert MSELoss().seconds == {"solve": 0.0, "gradient": 0.0}


@pytest.mark.parametrize("name", ["pfyl", "dpo", "dpo-multiplicative", "imle", "aimle", "sfge"])
def test_a_resumed_run_draws_the_same_random_numbers(name: str) -> None:
    task = paths()
    predicted, true = costs(task)
    loss, other = (LOSSES[name](task) for _ in range(2))
    loss(predicted, true)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert loss(predicted, true).item() == other(predicted, true).item()
    assert loss(predicted, true).item() != LOSSES[name](task)(predicted, true).item()


# --- training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [row.name for row in METHODS])
def test_every_method_conforms(name: str) -> None:
    """The method passes the conformance suite. DBB's interpolation is published for two tasks alone."""
    check_loss(name, **({"interpolation": 10.0} if name == "dbb" else {}))


# --- the table of methods -------------------------------------------------------------------------------------------


def test_the_table_holds_the_published_settings() -> None:
    """The settings of these methods are those of the paper's experiments; other tests check those of other methods."""
    published: dict[str, dict[str, Any]] = {
        "mse": {},
        "spo+": {"mse_weight": 0.01},
        "spo+relaxed": {"mse_weight": 0.01},
        "pfyl": {"mse_weight": 0.01, "samples": 1, "sigma": 1.0, "seed": 135},
        "dbb": {"mse_weight": 0.01, "interpolation": 20.0},
        "lava": {"threshold": -0.1},
        "pear": {"smoothing": 0.1, "injection": 0.1, "guidance": 0.0},
        "pear-guided": {},
    }
    assert {name: method(name).options_for(paths()) for name in published} == published
    assert [row.name for row in METHODS if not row.shuffled] == ["lava"]
    assert method("dbb").options_for(items()) == {"mse_weight": 0.01, "interpolation": 10.0}


def test_every_row_says_what_it_requires() -> None:
    assert {row.name for row in METHODS if not row.requires} == set()
    assert method("mse").requires == ("nothing",)
    assert method("lava").requires == ("relaxation", "vertices")
    for wrong in (("a crystal ball",), "decisions"):
        with pytest.raises(pear.ProblemError, match="requires must be a tuple of words among 'nothing', 'decisions'"):
            Method("own", "Own", SPOPlusLoss, requires=wrong)  # type: ignore[arg-type]


def test_the_page_of_methods_lists_every_row_and_what_it_requires() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8")
    table = page[: page.index("```python")]  # the first one of the page; others say more about some methods
    cells = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `"))
    said = {line[0].strip("`"): line[-1] for line in cells}
    assert {name: said.get(name) for name in own_loss_names()} == {row.name: ", ".join(row.requires) for row in METHODS}


def test_options_replace_the_published_settings() -> None:
    loss = make_loss("dbb", paths(), interpolation=3.0)
    assert isinstance(loss, DBBLoss)
    assert (loss.interpolation, loss.mse_weight) == (3.0, 0.01)
    loss = make_loss("pear", items(), smoothing=0.5)
    assert isinstance(loss, pear.PEARLoss)
    assert (loss.smoothing, loss.injection) == (0.5, 0.1)


def test_relaxed_and_exact_decisions_are_two_methods() -> None:
    class Both(Listed):
        def decide_relaxed(self, cost: Tensor) -> Tensor:
            raise RuntimeError("relaxed")

    task = Both("knapsack", items().problem, items().points)
    predicted, true = costs(task)
    make_loss("spo+", task)(predicted, true)
    with pytest.raises(RuntimeError, match="relaxed"):
        make_loss("spo+relaxed", task)(predicted, true)


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(
        pear.ProblemError, match=r"unknown method 'SPO'; there are mse, spo\+, .* Did you mean 'spo\+'\?"
    ):
        make_loss("SPO", paths())
    with pytest.raises(
        pear.ProblemError, match="method 'dbb' has no option 'lam'; its options: interpolation, mse_weight"
    ):
        make_loss("dbb", paths(), lam=3.0)
    with pytest.raises(pear.ProblemError, match="method 'mse' has no option 'lam'; its options: none"):
        make_loss("mse", paths(), lam=3.0)


def test_a_task_that_lacks_something_is_named() -> None:
    class Bare:
        name, problem = "bare", paths().problem
        decide = decide_relaxed = paths().decide

    with pytest.raises(pear.ProblemError, match=r"method 'lava' needs a task with adjacent\(\), and bare has none"):
        make_loss("lava", Bare())  # type: ignore[arg-type]


# --- wrong input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: SPOPlusLoss(p, mse_weight=-1.0), "mse_weight must be a finite number of at least 0; got -1.0"),
        (lambda p: SPOPlusLoss(p, mse_weight=True), "mse_weight must be a finite number of at least 0; got True"),
        (lambda p: SPOPlusLoss(p, mse_weight="1"), "mse_weight must be a finite number of at least 0; got '1'"),
        (lambda p: PFYLLoss(p, samples=0), "samples must be a whole number of at least 1; got 0"),
        (lambda p: PFYLLoss(p, sigma=0.0), "sigma must be a finite number above 0; got 0.0"),
        (lambda p: DBBLoss(p, interpolation=float("nan")), "interpolation must be a finite number above 0; got nan"),
        (lambda p: LAVALoss(p, adjacent=list, threshold=float("inf")), "threshold must be a finite number; got inf"),
        (lambda p: SPOPlusLoss(pear.Problem(Q=torch.eye(2))), "SPOPlusLoss is made for linear objectives"),
    ],
)
def test_wrong_settings_are_named(make: Callable[[pear.Problem], nn.Module], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        make(GRID.problem)


def test_wrong_shapes_are_named() -> None:
    task = paths()
    predicted, true = costs(task)
    with pytest.raises(pear.ProblemError, match="must have the same shape"):
        SPOPlusLoss(task.problem, task.decide)(predicted, true[:2])
    with pytest.raises(pear.ProblemError, match=r"decide must return one decision for each cost, of shape \(5, 12\)"):
        SPOPlusLoss(task.problem, lambda cost: cost[:, :3])(predicted, true)
    with pytest.raises(pear.ProblemError, match="keys must name every sample"):
        SPOPlusLoss(task.problem, task.decide)(predicted, true, keys=[1])


def test_a_forecast_that_is_not_finite_raises() -> None:
    _, true = costs(paths(), batch=2)
    with pytest.raises(pear.SolveError):
        SPOPlusLoss(GRID.problem, GRID.decide)(torch.full_like(true, torch.nan), true)


def test_the_extra_that_brings_pyepo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyepo", None)
    adapter._pyepo_model_class.cache_clear()
    with pytest.raises(pear.MissingExtraError, match=r"need the package pyepo.*pip install 'pear-dfl\[baselines\]'"):
        adapter.pyepo_model(GRID.problem)


def test_zero_with_a_sign_is_the_same_vertex(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def adjacent(z: Tensor) -> list[Tensor]:
        asked.extend(z.tolist())
        return [1 - row[None] for row in z]

    corners = torch.tensor([[[0.0, 1.0]], [[-0.0, 1.0]]], dtype=torch.float64)
    loss = LAVALoss(pear.Problem(lb=0.0, ub=1.0, n=2), adjacent=adjacent)
    for corner in corners:
        monkeypatch.setattr(loss, "best", lambda true, ids, corner=corner: corner)
        loss(torch.tensor([[1.0, -2.0]]), torch.tensor([[2.0, -1.0]]))
    assert len(asked) == 1

"""Pools of solutions: which solutions count as equal, how many are kept, and what is saved."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import Tensor

import pear
from pear.losses import SolutionPools, solution_pool
from pear.losses.solution_pool import name_pooled_solutions

NO_SETS = [None]


def corners(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def filled(n: int = 4, size: int = 10) -> SolutionPools:
    pools = SolutionPools(n, size)
    pools.add(corners(n), NO_SETS * n)
    return pools


def names_of(rows: list[list[float]], width: list[float] | None = None) -> list[bytes]:
    bounds = None if width is None else torch.tensor(width, dtype=torch.float64)
    return name_pooled_solutions(torch.tensor(rows, dtype=torch.float64), bounds)


# --- what counts as the same solution -------------------------------------------------------------------------------


def test_solutions_that_differ_by_rounding_have_one_name() -> None:
    third = 1 / 3
    rows = [[third, 0.0, 2.0], [third + 1e-16, -0.0, 2.0], [third, 1e-17, 2.0 - 4e-16], [third, -1e-12, 2.0]]
    assert len(set(names_of(rows))) == 1


def test_solutions_that_differ_by_more_have_two_names() -> None:
    assert len(set(names_of([[1.0, 2.0], [1.0, 2.0 + 1e-7], [1.0 - 1e-7, 2.0], [1e-7, 2.0], [0.0, 2.0]]))) == 5


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 1e6, 1e12])
def test_the_unit_of_all_variables_does_not_matter(unit: float) -> None:
    rows = np.array([[1.0, 0.0, 2.0], [1.0, 1e-14, 2.0], [1.0, 0.5, 2.0]])
    first, second, third = names_of((unit * rows).tolist())
    assert first == second != third


def test_a_small_variable_shows_its_unit_by_its_bounds() -> None:
    """A small variable is rounding beside a large one, unless its bounds show its unit."""
    rows = [[1e9, 0.2], [1e9, 0.7]]
    assert len(set(names_of(rows))) == 1
    assert len(set(names_of(rows, width=[1e10, 1.0]))) == 2


# --- how many are kept ----------------------------------------------------------------------------------------------


def test_a_solution_is_kept_once() -> None:
    pools = filled()
    pools.add(corners(4)[[2, 2, 0]], NO_SETS * 3)
    assert len(pools) == 4
    assert torch.equal(pools.of(NO_SETS).rows, corners(4))


def test_what_came_the_longest_ago_leaves_a_full_pool() -> None:
    pools = SolutionPools(4, 3)
    pools.add(corners(4)[:3], NO_SETS * 3)
    pools.add(corners(4)[:1], NO_SETS)  # the first one comes again: the second is the oldest now
    pools.add(corners(4)[3:], NO_SETS)
    assert sorted(pools.of(NO_SETS).rows.argmax(1).tolist()) == [0, 2, 3]


def test_more_solutions_at_once_than_there_is_room_for() -> None:
    pools = SolutionPools(6, 2)
    pools.add(corners(6), NO_SETS * 6)
    assert sorted(pools.of(NO_SETS).rows.argmax(1).tolist()) == [4, 5]


def test_all_pools_are_emptied_before_they_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solution_pool, "MOST_BYTES", 10 * (8 * 4 + solution_pool._ENTRY_BYTES))
    pools = SolutionPools(4, 10)
    for one in "ab":
        pools.add(corners(4), [one] * 4)
    assert len(pools) == 8
    pools.add(corners(4), ["c"] * 4)
    assert len(pools) == 4
    assert len(pools.of(["a"]).rows) == 0


def test_rows_that_autograd_holds_are_not_written_to() -> None:
    """Gradients are computed after the pool has changed, but are those of the pool at the call."""
    pools, cost = SolutionPools(3, 2), torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
    total = torch.zeros((), dtype=torch.float64)
    for one in corners(3):
        pools.add(one[None], NO_SETS)
        total = total + pools.of(NO_SETS).products(cost).square().sum()
    total.backward()
    assert cost.grad is not None
    assert cost.grad.tolist() == [[4.0, 4.0, 2.0]]  # the first solution was there twice, then it left


def test_pools_move_to_the_device_of_the_costs() -> None:
    """The device "meta" has no values, and refuses operations with tensors of another device, as a GPU does."""
    pools, meta = SolutionPools(4, 3), torch.device("meta")
    pools.add(corners(4)[[0, 1, 0]], ["a", "a", frozenset("b")])
    assert pools.to(torch.device("cpu")) is pools
    moved = pools.to(meta)
    moved.add(corners(4)[[1, 2, 3, 3]], ["a", "a", "a", "c"])  # the first was there, the third takes the oldest's place
    assert len(moved) == 5
    assert len(pools) == 3
    cost = torch.ones(2, 4, dtype=torch.float64, device=meta)
    assert moved.of(["a"]).products(cost).shape == (2, 3)
    assert moved.of(["a"]).rows.device == moved.of(["a"]).mean().device == meta


# --- samples with constraints of their own --------------------------------------------------------------------------


def test_samples_of_several_sets_are_compared_with_their_own_solutions() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = {"a": 3, "b": 1, "c": 5}
    own = {name: torch.rand(k, 4, generator=generator, dtype=torch.float64) for name, k in counts.items()}
    pools = SolutionPools(4, 10)
    for name, rows in own.items():
        pools.add(rows, [name] * len(rows))
    sets = ["c", "b", "a", "c"]
    cost = torch.rand(4, 4, generator=generator, dtype=torch.float64)
    pooled = pools.of(sets)
    lowest = pooled.at(pooled.lowest(pooled.products(cost)))
    assert pooled.count().tolist() == [5, 1, 3, 5]
    for i, name in enumerate(sets):
        products = own[name] @ cost[i]
        torch.testing.assert_close(pooled.products(cost)[i, : counts[name]], products)
        torch.testing.assert_close(pooled.mean()[i], own[name].mean(0))
        torch.testing.assert_close(lowest[i], own[name][products.argmin()])


def test_a_padded_row_is_never_the_lowest() -> None:
    """Padding rows are zeros, whose product with positive costs is less than that of every solution."""
    pools = SolutionPools(2, 10)
    pools.add(corners(2)[[0, 1, 0]], ["a", "a", "b"])
    pooled = pools.of(["a", "b"])
    assert pooled.count().tolist() == [2, 1]
    assert pooled.lowest(pooled.products(torch.ones(2, 2, dtype=torch.float64))).tolist() == [0, 0]


# --- what is saved --------------------------------------------------------------------------------------------------


def test_a_saved_pool_goes_on_as_if_nothing_had_happened() -> None:
    pools = SolutionPools(6, 3)
    pools.add(corners(6)[[0, 1, 2, 0, 4]], [None, None, None, "own", ("own", 2)])
    pools.add(corners(6)[:1], NO_SETS)
    file = io.BytesIO()
    torch.save(pools.state(), file)
    file.seek(0)
    other = SolutionPools.from_state(torch.load(file, weights_only=True), 6, 3)
    for one in (pools, other):
        one.add(corners(6)[[2, 5]], NO_SETS * 2)
    assert len(other) == len(pools) == 5
    for sets in ([None], ["own"], [("own", 2)], ["nobody"]):
        assert torch.equal(other.of(sets).rows, pools.of(sets).rows)


def test_keys_that_no_file_can_hold_are_left_out() -> None:
    pools = SolutionPools(2, 3)
    pools.add(corners(2), [frozenset("a"), "b"])
    assert pools.state() == {}
    assert len(SolutionPools.from_state({}, 2, 3)) == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": torch.zeros(4, 3)}, "expected 4 variables, got 3"),
        ({"places": torch.tensor([0, 1, 2, 9])}, "not their row numbers"),
        ({"counts": [3]}, "split"),
        ({"counts": None}, ""),
    ],
)
def test_a_state_of_something_else_is_refused(change: dict[str, object], reason: str) -> None:
    state = {**filled().state(), **change}
    with pytest.raises(pear.DataError, match=f"the solutions of the saved run are not those of this problem.*{reason}"):
        SolutionPools.from_state(state, 4, 10)

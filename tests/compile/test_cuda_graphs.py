"""Functions of tensors that a GPU replays as a graph; here, a stand-in on the CPU replaces the graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from zoo import ZOO

from pear.compile import cuda_graphs as replay
from pear.decisions import repair
from pear.optimality.active_set_rule import guess_active_set
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.program_screen import screen_programs
from pear.solvers.interior_point import dense_interior_point as dense
from pear.solvers.interior_point.dense_scaling import scale_programs, scaled_rows

CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]


class Graph:
    """A stand-in for a graph: it runs the function again, and writes into the tensors of the first run."""

    def __init__(self, function: Callable[[], None], made: Any) -> None:
        self.function, self.made = function, made

    def replay(self) -> None:
        before = self.made.result
        self.function()
        for old, new in zip(before[1], self.made.result[1], strict=True):
            old.copy_(new) if old is not new else None
        self.made.result = before


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """Capture every function at its first call; return the captured graphs by name and shapes."""
    kept: dict[Any, Any] = {}

    def captured(name: Any, tensors: list[Tensor], numbers: int, make: Callable[[], Any]) -> Any:
        key = (name, *((tensor.shape, tensor.dtype) for tensor in tensors))
        if key not in kept:
            kept[key] = make()
            kept[key]._graph = Graph(kept[key]._graph, kept[key])
        return kept[key]

    def capture(function: Callable[[], None], times: int = 1) -> Callable[[], None]:
        function()
        return function

    monkeypatch.setattr(replay, "captured_graph", captured)
    monkeypatch.setattr(replay, "capture_graph", capture)
    return kept


def scaled(duals: Duals, factor: float, rows: list[Tensor]) -> tuple[Duals, float, Tensor, list[Tensor]]:
    return duals.map(lambda value: factor * value), factor, rows[0], [row + 1 for row in rows]


def test_objects_sequences_and_constants_pass_through(made: dict[Any, Any]) -> None:
    results = []
    for start in (0.0, 10.0, 20.0):
        values = [torch.arange(start, start + 3) for _ in range(4)]
        results.append(replay.run_as_graph("scaled", scaled, (Duals(*values[:3]), 2.0, values[3:]), 12))
    assert len(made) == 1
    for start, (duals, factor, row, rows) in zip((0.0, 10.0, 20.0), results, strict=True):
        expected = torch.arange(start, start + 3)
        assert isinstance(duals, Duals)
        assert factor == 2.0
        torch.testing.assert_close(duals.bound, 2 * expected)  # no later call has written over it
        torch.testing.assert_close(row, expected)
        torch.testing.assert_close(rows[0], expected + 1)
    replay.run_as_graph("scaled", scaled, (Duals(*values[:3]), 3.0, values[3:]), 12)
    assert len(made) == 2  # a constant is part of the name


def test_what_is_no_tensor_is_refused(made: dict[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r"came with function; expected tensors, constants"):
        replay.run_as_graph("any", scaled, (torch.ones(1), lambda: None), 1)


def test_on_a_cpu_nothing_is_captured() -> None:
    for _ in range(3):
        assert replay.captured_graph("any", [torch.ones(1)], 1, lambda: pytest.fail("captured")) is None


@pytest.mark.parametrize("name", CURVED)
def test_the_first_pass_of_the_repair_is_the_same(name: str, made: dict[Any, Any]) -> None:
    case = ZOO[name]
    for cost in (case.cost, case.true):
        qp = case.problem.canonical(cost, case.smoothing)
        candidate = dense.solve_dense_interior_point(qp, 1e-8)
        working: ActiveSet = guess_active_set(qp, candidate.x, candidate.duals)
        systems, verdict = repair._repair_on_working_set(qp, candidate.x, candidate.duals, working)
        again, found = repair._repair_in_cuda_graph(qp, candidate.x, candidate.duals, working)
        assert found.qp is qp
        assert found.solved.tolist() == verdict.solved.tolist()
        torch.testing.assert_close(found.x, verdict.x, rtol=1e-12, atol=1e-12 * case.size)
        for here, there in zip(systems.project(case.true), again.project(case.true), strict=True):
            torch.testing.assert_close(there, here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CURVED)
def test_what_the_pipeline_replays_is_the_same(name: str, made: dict[Any, Any]) -> None:
    """The screen, the scaling and the guess of the active set are replayed for one batch after another."""
    case = ZOO[name]
    for cost in (case.cost, case.true, case.cost):
        qp = case.problem.canonical(cost, case.smoothing)
        rows = scaled_rows(qp)
        size = rows.size.expand(qp.batch, 1)
        candidate = dense.solve_dense_interior_point(qp, 1e-6)
        calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (screen_programs, (qp,)),
            (guess_active_set, (qp, candidate.x, candidate.duals)),
            (scale_programs, (qp, rows, size, 1e-6)),
        ]
        for function, arguments in calls:
            here: list[Tensor] = []
            there: list[Tensor] = []
            form = replay._split_graph_value(function(*arguments), here)
            assert (
                replay._split_graph_value(replay.run_as_graph(function.__name__, function, arguments, 1), there) == form
            )
            for a, b in zip(here, there, strict=True):
                assert bool((a == b).all())


class OnGPU(NamedTuple):
    """The attributes of a tensor that the rules for capturing read."""

    shape: tuple[int, ...]
    device: torch.device = torch.device("cuda", 0)
    dtype: torch.dtype = torch.float64


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> float:
    """Pretend that there is a GPU of 8 GB and no graph yet; return how many float64 numbers fit into its memory."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=8e9))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(replay, "_store", replay.CudaGraphStore())
    return 1e9


def ask(name: str, numbers: float, make: Callable[[], Any] = object, shape: tuple[int, ...] = (2, 3)) -> Any:
    return replay.captured_graph(name, [OnGPU(shape)], int(numbers), make, replay._store)  # type: ignore[list-item]


def test_calls_in_another_queue_have_a_graph_of_their_own(room: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("a", 1)
    first = ask("a", 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=1))
    assert ask("a", 1) is None
    assert ask("a", 1) not in (None, first)


def test_nothing_is_captured_within_another_graph(room: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert [ask("a", 1) for _ in range(3)] == [None] * 3


def test_the_second_call_with_its_shapes_captures(room: float) -> None:
    assert ask("a", 1) is None
    assert ask("a", 1, shape=(3, 3)) is None
    first = ask("a", 1)
    assert first is not None
    assert ask("a", 1) is first
    assert ask("a", 1, shape=(3, 3)) not in (None, first)
    assert [ask("large", room / 50) for _ in range(3)] == [None] * 3


class Holder:
    """A user of a result that copies it before the graph overwrites it."""

    def __init__(self, result: Tensor) -> None:
        self.result, self.copies = result, 0

    def keep(self) -> None:
        self.result, self.copies = self.result.clone(), self.copies + 1


def test_what_was_lent_is_kept_only_by_who_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(function: Callable[[], None]) -> Any:
        total = torch.zeros(2)

        class Graph:
            def replay(self) -> None:
                function()
                graph.result = total.copy_(graph.result)

        return Graph()

    monkeypatch.setattr(replay, "capture_graph", capture)
    graph = replay.CapturedGraph(lambda given: 2.0 * given[0], [torch.zeros(2)])
    first = Holder(graph([torch.ones(2)]))
    graph.lend(first)
    second = Holder(graph([torch.full((2,), 5.0)]))
    graph.lend(second)
    assert first.copies == 1
    assert first.result.tolist() == [2.0, 2.0]
    assert second.result.tolist() == [10.0, 10.0]
    del second
    graph([torch.zeros(2)])
    graph([torch.ones(2)])
    assert first.copies == 1  # it was told once


def test_the_oldest_makes_room(room: float) -> None:
    for name in "abcde":
        ask(name, room / 130)
        assert ask(name, room / 130) is not None
    kept = [key for key, entry in replay._store.found.items() if entry is not None]
    assert [key[0] for key in kept] == ["b", "c", "d", "e"]  # type: ignore[index]
    assert ask("a", room / 130) is not None  # it was seen before


def test_where_capturing_is_refused_a_warning_says_so_once(room: float, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    for _ in range(4):  # one that runs step by step, and three that are refused
        assert ask("a", 1, refuse) is None
    assert ask("b", 1) is None
    assert ask("b", 1) is None
    assert len(caplog.records) == 1
    assert "no CUDA graphs" in caplog.text
    assert "not permitted" in caplog.text

"""What a user sees by default: short texts, one sentence for each failure, and no assertion under ``torch.compile``."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.losses.methods import make_loss

GRID = pear.tasks.shortest_path((3, 3)).problem
BOX = pear.Problem(lb=0.0, ub=1.0, n=2)
NAN = float("nan")
SCREEN = 200  # characters that two lines of a terminal hold


def test_reprs_fit_a_screen() -> None:
    costs = torch.rand(500, GRID.n, dtype=torch.float64)
    loss = pear.PEARLoss(GRID)
    loss(costs, costs.flip(0))
    model = pear.Model(pear.Problem(lb=0, ub=1, n=50), variables=tuple(f"a long name {i}" for i in range(50)))
    shown = [GRID, pear.solve(GRID, costs), loss.last, model, pear.DecisionLayer(GRID), make_loss("spo+", GRID)]
    for one in (*shown, loss):
        lines = repr(one).splitlines()
        assert len(lines) <= 4
        assert max(map(len, lines)) <= SCREEN, lines
    assert repr(loss.last).startswith("LastCall(500 samples of 12 variables: 500 SOLVED; mean regret 0.")


def test_a_loss_shows_its_cost_map() -> None:
    model = pear.Model(BOX, cost_map=pear.CostMap([[1.0], [-1.0]]))
    for loss in (pear.PEARLoss(model), pear.losses.SPOPlusLoss(model)):
        assert "CostMap(1 predicted values → 2 costs, dense)" in repr(loss)


def test_an_empty_batch_has_a_repr() -> None:
    assert repr(pear.solve(BOX, torch.zeros(0, 2))) == "Solution(0 samples of 2 variables)"


class Cells(HTMLParser):
    """Parse a page, and keep its texts, its tags and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_notebooks_show_a_small_escaped_table() -> None:
    problem = pear.Problem(G=[[2.0, 3.0, 1.0]], h=[4.0], lb=0.0, ub=1.0, sense="max", integer=True)
    names = ("<b>first</b>", "second & last", "third")
    model = pear.Model(problem, variables=names, report="3 <columns>\n1 row")
    pages = [Cells(one._repr_html_()) for one in (problem, model, pear.solve(problem, [[3.0, 4.0, 2.0]]))]
    for page in pages:
        assert page.tags <= {"table", "caption", "tr", "th", "td", "p"}
        assert page.attributes == []
    assert pages[0].texts == [
        *("Problem", "sense", "max", "variables", "3, 3 of them integer", "objective", "linear"),
        *("inequalities", "1", "bounds", "lb, ub"),
    ]
    assert "3: <b>first</b>, second & last, third" in pages[1].texts
    assert pages[1].texts[-2:] == ["3 <columns>", "1 row"]
    assert pages[2].texts[:5] == ["Solution", "samples", "1 sample of 3 variables: 1 SOLVED", "mean value", "6"]


def test_arrays_that_may_not_be_written_to_are_read_in_silence() -> None:
    """Read-only arrays, such as those of pandas, are read without a warning."""
    values = np.ones((3, 1))
    values.flags.writeable = False
    model = pear.Model(BOX, cost_map=pear.CostMap([[1.0], [-1.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pear.solve(model, values).x.tolist() == [[0.0, 1.0]] * 3
        assert model.cost(values).tolist() == [[1.0, -1.0]] * 3


def test_a_reason_is_said_once_with_its_samples() -> None:
    costs = torch.ones(9, 2)
    costs[[0, 2, 3, 4, 6, 8]] = NAN
    costs[5] = -1.0
    half_open = pear.Problem(lb=0.0, n=2)
    with pytest.raises(pear.SolveError) as error:
        pear.solve(half_open, costs)
    text = str(error.value)
    assert text.startswith(
        "7 of 9 samples could not be solved for the problem: samples 0, 2, 3, 4, 6 and 1 more (NOT_F"
    )
    assert "; sample 5 (UNBOUNDED): " in text
    assert text.count(pear.Status.NOT_FINITE.sentence) == 1


def test_samples_without_a_derivative_are_counted() -> None:
    flat = torch.zeros(8, 2, requires_grad=True)
    with pytest.raises(pear.NotUniqueError, match="decision of samples 0, 1, 2, 3, 4 and 3 more is not unique"):
        pear.DecisionLayer(BOX)(flat).sum().backward()


def test_a_user_hears_nothing_of_a_solver_that_is_helped_out(caplog: pytest.LogCaptureFixture) -> None:
    """Another solver is asked, and only the level DEBUG reports it: the verified point is the same."""
    problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    caplog.set_level(logging.DEBUG, logger="pear")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr("pear.solvers.interior_point.interior_point_solver.solve", useless)
        assert bool(pear.solve(problem, torch.rand(4, 3), 0.1, solver="interior-point").solved.all())
    assert [record.levelname for record in caplog.records if "asking" in record.message] == ["DEBUG"]
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


def useless(qp, tol, **options):  # type: ignore[no-untyped-def]
    from pear.solvers.candidate import Candidate

    found = pear.solvers.backend_registry.get_backend("active-set").solve(qp, tol, None)
    return Candidate(torch.full_like(found.x, NAN), found.duals, torch.ones_like(found.status))


X, C = torch.rand(8, 3), torch.rand(8, GRID.n)
LOSSES: dict[str, Callable[[], Callable[..., Tensor]]] = {
    "pear": lambda: pear.PEARLoss(GRID),
    "spo+": lambda: pear.losses.SPOPlusLoss(GRID),
    "dbb": lambda: make_loss("dbb", GRID),
    "layer": lambda: on_decision(pear.DecisionLayer(GRID, smoothing=1.0)),
}


def on_decision(layer: nn.Module) -> Callable[..., Tensor]:
    return lambda predicted, true, keys: (layer(predicted, keys=keys) * true).sum()


def trained(compiled: Callable[..., Callable[..., Tensor]], name: str) -> list[Tensor]:
    """Return the values and gradients of three steps; the third has the same sample ids as the first."""
    torch.manual_seed(0)
    model, loss = nn.Linear(3, GRID.n), LOSSES[name]()
    step = compiled(lambda x, c, keys: loss(model(x) * 2, c, keys=keys) * 3)
    found = []
    for keys in ([0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]):
        model.zero_grad()
        value = step(X[keys], C[keys], keys)
        value.backward()
        assert model.weight.grad is not None
        found += [value.detach(), model.weight.grad.clone()]
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_a_compiled_step_with_a_loss_is_the_same_step(name: str) -> None:
    torch.compiler.reset()
    plain = trained(lambda step: step, name)
    for one, other in zip(plain, trained(lambda step: torch.compile(step, backend="eager"), name), strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)


def test_the_compiler_traces_none_of_a_loss() -> None:
    """The compiled graph ends before the loss, so that the first step does not wait for the loss to be traced."""
    seen: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        seen.append(graph)
        return graph.forward

    torch.compiler.reset()
    trained(lambda step: torch.compile(step, backend=keep), "pear")
    called = [[str(node.target) for node in graph.graph.nodes if node.op == "call_function"] for graph in seen]
    assert len(called[0]) == 2  # the linear layer and the product
    assert all(len(names) <= 2 for names in called), called


@pytest.mark.parametrize("compiled", ["model", "loss"])
def test_a_compiled_model_and_a_compiled_loss(compiled: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, loss = nn.Linear(3, GRID.n), pear.PEARLoss(GRID)
    parts: list[nn.Module] = [model, loss]
    parts[compiled == "loss"] = torch.compile(parts[compiled == "loss"], backend="eager")  # type: ignore[call-overload]
    parts[1](parts[0](X), C).backward()
    expected = nn.Linear(3, GRID.n)
    expected.load_state_dict(model.state_dict())
    pear.PEARLoss(GRID)(expected(X), C).backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, expected.weight.grad, rtol=0, atol=0)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++")
def test_inductor_too() -> None:
    torch.compiler.reset()
    plain = trained(lambda step: step, "pear")
    for one, other in zip(plain, trained(torch.compile, "pear"), strict=True):
        torch.testing.assert_close(other, one)

"""Plug-ins: what packages add by entry points and scripts by ``pear.register``, and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import pear
from pear import plugins
from pear.cli import console
from pear.cli.app import app
from pear.engines import EngineRow
from pear.errors import EngineError
from pear.losses import Method, make_loss
from pear.problem.importers import Importer
from pear.solvers import Backend, backend_registry, get_backend

SIMPLEX = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
COST = torch.tensor([[3.0, 1.0, 2.0]], dtype=torch.float64)
CODE = """
import pear
from pear.losses import MSELoss
from pear.problem.importers import Importer
from pear.engines import EngineRow
from pear.solvers.backend_registry import Backend, get_backend

SOLVER = Backend("mine", get_backend("scipy").module, kinds=("lp",), note="from elsewhere")
MISNAMED = Backend("other", "nowhere")
IMPORTER = Importer("lines", (".line",), lambda path: pear.Model(pear.Problem(lb=0, ub=1, n=1)))
TAKEN = Importer("more MPS", (".mps",), lambda path: None)
ENGINE = EngineRow("pear.engines.local_engine")


class Loss(MSELoss):
    pass


def task(n=2):
    return pear.tasks.Task("boxes", pear.Problem(lb=0, ub=1, n=n))
"""


def package(folder: Path, name: str, entries: str, code: str = CODE) -> None:
    """Write a distribution as an installer would: a module, and the files that record its entry points."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    about = folder / f"{module}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(entries.replace("MODULE", module))


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the import path, in which a test can install packages."""
    monkeypatch.syspath_prepend(tmp_path)
    plugins._search_plugin_entries.cache_clear()
    return tmp_path


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = dict(plugins._registered)
    yield
    plugins._registered.clear()
    plugins._registered.update(before)
    plugins._search_plugin_entries.cache_clear()


def test_an_installed_package_adds_one_of_each_kind(site_packages: Path) -> None:
    entries = "\n".join(
        [
            *("[pear.solvers]", "mine = MODULE:SOLVER", "[pear.losses]", "plain = MODULE:Loss"),
            *("[pear.importers]", "line = MODULE:IMPORTER", "[pear.tasks]", "boxes = MODULE:task"),
            *("[pear.engines]", "desk = MODULE:ENGINE"),
        ]
    )
    package(site_packages, "pear-one", entries)
    assert pear.solve(SIMPLEX, COST, solver="mine").x.tolist() == [[0.0, 1.0, 0.0]]
    assert type(make_loss("plain", SIMPLEX)).__name__ == "Loss"
    (site_packages / "a.line").write_text("")
    assert pear.from_file(site_packages / "a.line").problem.n == pear.from_line("a.line").problem.n == 1
    assert pear.tasks.boxes(n=4).problem.n == 4
    assert pear.engines.start("desk").slots == 1
    assert [(one.name, one.origin) for one in plugins.load_all_plugins("solver").plugins] == [("mine", "pear-one 1.2")]


def test_names_are_listed_where_one_is_unknown(site_packages: Path) -> None:
    package(site_packages, "pear-one", "[pear.solvers]\nmine = MODULE:SOLVER\n[pear.losses]\nplain = MODULE:Loss")
    with pytest.raises(pear.UnknownSolverError, match="unknown solver 'mime': did you mean 'mine'"):
        get_backend("mime")
    with pytest.raises(pear.ProblemError, match=r"unknown method 'plan'; there are .*, plain\. Did you mean 'plain'"):
        make_loss("plan", SIMPLEX)
    with pytest.raises(AttributeError, match=r"module 'pear\.tasks' has no attribute 'nowhere'"):
        _ = pear.tasks.nowhere
    with pytest.raises(AttributeError, match="module 'pear' has no attribute 'from_nowhere'"):
        _ = pear.from_nowhere
    with pytest.raises(EngineError, match="there is no engine 'desk'; there is local, ray"):
        pear.engines.check_engine_name("desk")


def test_auto_never_chooses_a_plugin(site_packages: Path) -> None:
    package(site_packages, "pear-one", "[pear.solvers]\nmine = MODULE:SOLVER")
    assert get_backend("mine").name not in [row.name for row in backend_registry.resolve_backends("auto", "lp")]
    assert [row.name for row in backend_registry.resolve_backends("mine", "lp")][:2] == ["mine", "active-set"]


def test_a_broken_package_is_named_and_leaves_the_others_alone(site_packages: Path) -> None:
    package(site_packages, "pear-one", "[pear.solvers]\nmine = MODULE:SOLVER\n[pear.importers]\nline = MODULE:IMPORTER")
    code = "raise RuntimeError('no licence')"
    package(site_packages, "pear-broken", "[pear.solvers]\nbad = MODULE:S\n[pear.importers]\nb = MODULE:I", code)
    package(site_packages, "pear-empty", "[pear.solvers]\ngone = MODULE:NO\nodd = MODULE:task\nthird = MODULE:MISNAMED")
    said = r"the solver 'bad' of pear-broken 1\.2 cannot be loaded from pear_broken:S: RuntimeError: no licence"
    with pytest.raises(pear.PluginError, match=said):
        pear.solve(SIMPLEX, COST, solver="bad")
    with pytest.raises(pear.PluginError, match=r"'gone' of pear-empty 1\.2 cannot be loaded .* no attribute 'NO'"):
        get_backend("gone")
    with pytest.raises(
        pear.PluginError, match=r"'odd' of pear-empty 1\.2 cannot be used: expected a pear.solvers.Back"
    ):
        get_backend("odd")
    with pytest.raises(pear.PluginError, match=r"'third' of pear-empty 1\.2 cannot be used: its row is called 'other'"):
        get_backend("third")
    assert pear.solve(SIMPLEX, COST, solver="mine").x.tolist() == [[0.0, 1.0, 0.0]]
    assert pear.from_file("a.line").problem.n == 1
    with pytest.raises(pear.DataError, match=r"\.mat, \.line, or one of these with \.gz; the importer 'b' of pear-"):
        pear.from_file("a.unknown")


def test_solvers_lists_origins_and_problems(
    site_packages: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "_width", 200)  # rich keeps the width that it found when it was imported
    package(site_packages, "pear-one", "[pear.solvers]\nmine = MODULE:SOLVER")
    package(site_packages, "pear-broken", "[pear.solvers]\nbad = MODULE:S", "1 / 0")
    pear.register("solver", "local", replace(get_backend("scipy"), name="local"))
    result = CliRunner().invoke(app, ["solvers"])
    lines = {words[0]: line for line in result.output.splitlines() if (words := line.split())}
    assert "pear-one 1.2" in lines["mine"]
    assert "from elsewhere" in lines["mine"]
    assert "registered in this process" in lines["local"]
    said = " ".join(result.output.split())
    assert "The solver 'bad' of pear-broken 1.2 cannot be loaded from pear_broken:S: ZeroDivisionError" in said


def test_two_packages_with_one_name_are_refused(site_packages: Path) -> None:
    package(site_packages, "pear-one", "[pear.losses]\nplain = MODULE:Loss\n[pear.importers]\nline = MODULE:IMPORTER")
    package(site_packages, "pear-two", "[pear.losses]\nplain = MODULE:Loss\n[pear.importers]\nl = MODULE:IMPORTER")
    said = r"the loss 'plain' comes from pear-\w+ 1\.2 and from pear-\w+ 1\.2, and a name belongs to one"
    with pytest.raises(pear.PluginError, match=said):
        make_loss("plain", SIMPLEX)
    assert len(plugins.load_all_plugins("loss").problems) == 1
    with pytest.raises(pear.PluginError, match=r"'\.line' are read by 'l' from pear-two 1\.2 and 'line' from pear-one"):
        pear.from_file("a.line")


def test_names_of_ours_cannot_be_taken(site_packages: Path) -> None:
    package(
        site_packages,
        "pear-thief",
        "[pear.solvers]\nhighs = MODULE:SOLVER\n[pear.importers]\nmine = MODULE:TAKEN\n"
        "[pear.losses]\nmse = MODULE:Loss",
    )
    assert get_backend("highs").module == "pear.solvers.adapters.highs"
    assert type(make_loss("mse", SIMPLEX)).__module__ == "pear.losses.mse"
    (problem,) = plugins.load_all_plugins("solver").problems
    assert problem.startswith("the solver 'highs' comes from pear itself and from pear-thief 1.2")
    (problem,) = plugins.load_all_plugins("importer").problems
    assert "files that end in '.mps' are read as MPS, QPS and LP files" in problem


ROW = replace(get_backend("scipy"), name="mine")
REFUSED: dict[str, tuple[tuple[str, str, Any], str]] = {
    "kind": (("solvers", "mine", ROW), "no kind of plug-in 'solvers'; there are solver, loss, importer, task, engine"),
    "name": (("loss", "", nn.Module), "must be a text without spaces at its ends; got ''"),
    "auto": (("solver", "auto", replace(ROW, name="auto")), "the solver 'auto' is there already, from pear itself"),
    "other name": (("solver", "other", ROW), "its row is called 'mine'"),
    "no row": (("solver", "mine", print), "expected a pear.solvers.Backend"),
    "no solve": (("solver", "mine", Backend("mine", object())), r"has no method solve\(qp, tol\)"),
    "prefix": (
        ("solver", "qpsolvers:x", Backend("qpsolvers:x", "x")),
        "belong to the solvers of the qpsolvers",
    ),
    "a loss": (("loss", "mine", nn.MSELoss()), "expected a class of losses, a function"),
    "a method": (("loss", "mine", Method("other", "Other", nn.MSELoss)), "its row is called 'other'"),
    "importer": (("importer", "mine", print), "expected a pear.problem.importers.Importer"),
    "identifier": (("importer", "my-files", Importer("", (), print)), "must be an identifier"),  # type: ignore[arg-type]
    "ending": (("importer", "mine", Importer("", ("abc",), print)), "must be as '.abc'"),  # type: ignore[arg-type]
    "task": (("task", "mine", 3), "expected a function that makes a pear.tasks.Task"),
    "task name": (("task", "a b", print), "its name must be an identifier"),
    "own task": (("task", "knapsack", print), "the task 'knapsack' is there already, from pear itself"),
    "engine": (("engine", "mine", "module"), "expected a pear.engines.EngineRow"),
    "address": (("engine", "a://b", EngineRow("module")), "is read as an address"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_registered(case: str) -> None:
    given, said = REFUSED[case]
    with pytest.raises(pear.PluginError, match=said):
        pear.register(*given)
    assert plugins.load_all_plugins("solver").plugins == ()


class NumpyBox:
    """A solver that is an object: it returns the best vertex of a box for linear costs."""

    def supports(self, qp: Any) -> bool:
        return bool(qp.p == qp.m == 0 and qp.lb.isfinite().all() and qp.ub.isfinite().all())

    def solve(self, qp: Any, tol: float) -> Any:
        from pear.solvers.adapters.batch_arrays import ProgramArrays, groups, row
        from pear.solvers.adapters.candidate_rows import CandidateRows

        batch, candidates = ProgramArrays.of(qp), CandidateRows(qp)
        for group in groups(batch, candidates.todo):
            for i in group.members.tolist():
                c = row(batch.c, i)
                x = np.where(c > 0, row(batch.lb, i), row(batch.ub, i))
                candidates.put(i, pear.Status.SOLVED, x, group, bound=-c)
        return candidates.candidate()


def test_a_script_registers_a_solver_once() -> None:
    box = Backend("corner", NumpyBox(), kinds=("lp",), sparse=False, vertex=True)
    pear.register("solver", "corner", box)
    problem = pear.Problem(lb=[-1.0, 0.0], ub=[1.0, 2.0])
    assert pear.solve(problem, [[1.0, -1.0]], solver="corner").x.tolist() == [[-1.0, 2.0]]
    with pytest.raises(pear.PluginError, match=r"'corner' is there already, from registered in .*replace=True"):
        pear.register("solver", "corner", box)
    pear.register("solver", "corner", replace(box, note="again"), replace=True)
    assert get_backend("corner").note == "again"
    with pytest.raises(pear.UnknownSolverError, match="solver 'corner' does not take 3 variables with 1 rows"):
        pear.solve(SIMPLEX, COST, solver="corner")
    plugins.unregister("solver", "corner")
    with pytest.raises(pear.UnknownSolverError, match="unknown solver 'corner'"):
        get_backend("corner")


def test_a_missing_package_of_a_plugin_is_named() -> None:
    pear.register("solver", "needy", Backend("needy", "nowhere", packages=("no_such_package",)))
    with pytest.raises(pear.MissingExtraError, match="run pip install no_such_package"):
        pear.solve(SIMPLEX, COST, solver="needy")


class Absolute(nn.Module):
    """A minimal loss: it receives the problem, and has one option."""

    def __init__(self, problem: Any, power: float = 1.0) -> None:
        super().__init__()
        self.given, self.power = problem, power

    def forward(self, predicted: torch.Tensor, true: torch.Tensor, keys: Any = None) -> torch.Tensor:
        return ((predicted - true).abs() ** self.power).mean()


def test_a_registered_loss_trains_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pear.register("loss", "absolute", Absolute)
    assert make_loss("absolute", SIMPLEX, power=2.0).power == 2.0
    with pytest.raises(pear.ProblemError, match="method 'absolute' has no option 'sigma'; its options: power"):
        make_loss("absolute", SIMPLEX, sigma=2.0)
    draw = np.random.default_rng(0)
    X = draw.normal(size=(40, 2))
    Y = X @ draw.normal(size=(2, 3))
    estimator = pear.DecisionRegressor(SIMPLEX, loss="absolute", max_epochs=2).fit(X, Y)
    assert type(estimator.loss_) is Absolute
    estimator.save(tmp_path / "model.pear")
    again = pear.DecisionRegressor.load(tmp_path / "model.pear")
    assert np.array_equal(again.predict(X), estimator.predict(X))
    assert type(again.loss_) is Absolute

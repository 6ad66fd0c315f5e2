"""The core needs torch, numpy, scipy, numba and safetensors, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pear
from pear.solvers.backend_registry import BACKENDS

OPTIONAL = (
    *("osqp", "highspy", "qpsolvers", "daqp", "piqp", "clarabel", "proxsuite"),
    *("typer", "rich", "matplotlib", "pandas", "sklearn", "cvxpy", "pyepo", "lightgbm", "openpyxl", "jinja2"),
    "pyarrow",
)
# Every finder is asked as before, and has never heard of these packages: what their absence looks like to Python.
BLOCK = f"""
import sys
MISSING = {OPTIONAL!r}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
try:
    import scipy, osqp
except ModuleNotFoundError as error:
    assert error.name == "osqp"
else:
    raise SystemExit("the block does not work")
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WORK = """
import torch, pear
torch.set_num_threads(1)

simplex = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
assert pear.solve(simplex, [[3.0, 1.0, 2.0]]).x.tolist() == [[0.0, 1.0, 0.0]]

knapsack = pear.Problem(G=[[2.0, 3.0, 1.0]], h=[4.0], lb=0.0, ub=1.0, sense="max", integer=True)
assert pear.solve(knapsack, [[3.0, 4.0, 2.0]]).x.tolist() == [[0.0, 1.0, 1.0]]
assert pear.normalized_regret(knapsack, [[9.0, 4.0, 2.0]], [[3.0, 4.0, 2.0]]) > 0

curved = pear.solve(simplex, [[0.3, 0.1, 0.2]], smoothing=1.0)
assert float(curved.kkt_residual.max()) < 1e-12

cost = torch.tensor([[0.3, 0.1, 0.2]], requires_grad=True)
pear.PEARLoss(simplex, smoothing=1.0)(cost, torch.tensor([[0.1, 0.2, 0.3]])).backward()
assert cost.grad.abs().sum() > 0
assert "torch._dynamo" not in sys.modules  # the compiler, which takes as long to import as torch itself

costs = [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [4.0, 1.0, 1.5]]
found = pear.walk_forward(simplex, [[0.0]] * 4, costs, {"last": lambda X, C, ahead: C[-1:]}, splits=2)
assert found.regret[0].tolist() == [1.0, 0.0] and "last" in str(found) and len(found.rows) == 2

try:
    pear.solve(simplex, [[3.0, 1.0, 2.0]], smoothing=1.0, solver="osqp")
except pear.MissingExtraError as error:
    print(error)
try:
    pear.solve(simplex, [[3.0, 1.0, 2.0]], solver="highs")
except pear.MissingExtraError as error:
    print(error)
try:
    pear.DecisionRegressor
except pear.MissingExtraError as error:
    print(error)
"""


def test_the_core_works_without_any_extra() -> None:
    """Without extras, LP, MILP, QP and a training step work, and errors name the extra that is missing."""
    out = run(BLOCK + WORK)
    assert out.splitlines() == [
        "solver 'osqp' needs the package osqp, not installed here; run pip install 'pear-dfl[osqp]'",
        "solver 'highs' needs the package highspy, not installed here; run pip install 'pear-dfl[highs]'",
        "DecisionRegressor needs scikit-learn, and sklearn is not installed; run pip install 'pear-dfl[sklearn]'",
    ]


DEMO = """
MISSING = tuple(name for name in MISSING if name not in ("typer", "rich", "matplotlib"))
from pear.cli.app import app
app(["demo", "--samples", "40", "--max-epochs", "2", "--grid", "3", "--out", sys.argv[1]])
"""


def test_the_demonstration_needs_the_command_line_alone(tmp_path: Path) -> None:
    """The demonstration runs with the extra that ``make demo`` installs."""
    assert "trained with PEAR" in run(BLOCK + DEMO, str(tmp_path))
    assert (tmp_path / "demo.png").exists()
    assert "-e '.[cli]'" in (Path(__file__).parents[2] / "Makefile").read_text("utf-8")


IMPORT = """
import json, random, sys
import numpy, torch

def state():
    settings = torch.get_num_threads(), str(torch.get_default_dtype()), torch.initial_seed(), torch.is_grad_enabled()
    return settings, torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist(), random.getstate()

before = state()
import pear, pear.solvers
found = {"same": before == state(), "modules": sorted(sys.modules)}

sys.argv = ["pear", "--version"]
from pear.cli import main
try:
    main()
except SystemExit as stop:
    found |= {"code": stop.code, "after the command": sorted(sys.modules)}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """Return what ``import pear`` and then ``pear --version`` change in a fresh process."""
    printed, found = run(IMPORT).splitlines()
    return {"printed": printed, **json.loads(found)}


def test_importing_brings_no_optional_module(imported: dict[str, Any]) -> None:
    solvers = {package for backend in BACKENDS for package in backend.packages}
    assert "pear.solvers" in imported["modules"]
    assert not {"pear.cli", *OPTIONAL, *solvers} & set(imported["modules"])


def test_importing_changes_no_global_state(imported: dict[str, Any]) -> None:
    """The import changes neither torch's settings nor the states of random generators."""
    assert imported["same"]


def test_the_command_imports_what_it_needs_only(imported: dict[str, Any]) -> None:
    assert (imported["printed"], imported["code"]) == (f"pear {pear.__version__}", 0)
    assert "matplotlib" not in imported["after the command"]

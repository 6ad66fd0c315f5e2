"""The package passes PEAR's conformance suites, and its parts are found by their names."""

import pytest
import torch
from typer.testing import CliRunner

import pear
import pear.testing
from pear.cli.app import app


@pytest.mark.parametrize("check", pear.testing.solver_checks("vertices"), ids=str)
def test_the_solver_conforms(check):
    check()


@pytest.mark.parametrize("check", pear.testing.loss_checks("perceptron"), ids=str)
def test_the_loss_conforms(check):
    check()


def write_tiny(case, path):
    """Write a model in the importer's format; return whether it can be written, which a model with curvature cannot."""
    if case.Q is not None:
        return False
    kinds = [" integer" if mark else "" for mark in case.marks]
    variables = zip(case.names, case.c, *case.bounds, kinds, strict=True)
    lines = [case.sense, *(f"variable {name} {c} {lb} {ub}{kind}" for name, c, lb, ub, kind in variables)]
    rows = zip(case.low, case.high, case.rows.tolist(), strict=True)
    lines += [f"row {low} {high} {' '.join(map(str, row))}" for low, high, row in rows]
    path.write_text("\n".join([*lines, f"constant {case.offset}", "end"]))
    return True


@pytest.mark.parametrize("check", pear.testing.importer_checks("tiny", write_tiny), ids=str)
def test_the_importer_conforms(check):
    check()


def test_the_task_and_the_engine_conform():
    assert pear.testing.check_task("shifts") == ("samples", "decisions", "regret")
    pear.testing.check_engine("desk")


def test_names_are_found(tmp_path, monkeypatch):
    (tmp_path / "plan.tiny").write_text("max\nvariable x 3 0 3\nvariable y 2 0 inf\nrow -inf 4 1 1\nend\n")
    model = pear.from_file(tmp_path / "plan.tiny", predicted=["y"])
    assert model.inputs == 1
    assert pear.from_tiny(tmp_path / "plan.tiny").variables == ("x", "y")
    found = pear.solve(model, torch.tensor([[2.0], [4.0]], dtype=torch.float64), solver="vertices")
    assert torch.allclose(found.x, torch.tensor([[3.0, 1.0], [0.0, 4.0]], dtype=torch.float64), atol=1e-12)
    monkeypatch.setenv("COLUMNS", "200")
    listed = CliRunner().invoke(app, ["solvers"]).output
    assert "pear-toy 0.3" in next(line for line in listed.splitlines() if line.split()[:1] == ["vertices"])


def test_the_loss_is_tuned_and_trained_by_its_name():
    task = pear.tasks.shifts()
    X, C = task.samples(30)
    config = pear.FitConfig(max_epochs=2, check_every=1)
    tuned = pear.tune(task.problem, X, C, candidates=["mse", "perceptron"], config=config, engine="desk")
    assert [row.candidate for row in tuned.rows] == ["MSE", "perceptron"]
    assert all(row.regret < 1 for row in tuned.rows)

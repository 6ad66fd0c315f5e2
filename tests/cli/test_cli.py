"""The command line: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import builtins
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from command_line import Run
from typer.testing import Result

import pear
from pear.cli import main
from pear.cli.gain_sentence import gain_sentence
from pear.cli.output_files import OutputError, writable_output_file, writable_output_folder, write_output_csv
from pear.solvers.backend_registry import BACKENDS, Backend
from pear.train.compiled import LinearEpochs
from pear_lab.benchmarks import exactness_benchmark

SMALL = ("--grid", "3", "--samples", "120", "--max-epochs", "4", "--degree", "4")


@pytest.fixture
def run(terminal: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command in an empty folder and a terminal without colours."""

    def invoke(*arguments: str, columns: int = 200) -> Result:
        monkeypatch.setenv("COLUMNS", str(columns))
        return command_line.run(*arguments)

    return invoke


# --- demo -----------------------------------------------------------------------------------------------------------


def test_demo_trains_compares_and_saves(run: Run, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    result = run("demo", *SMALL, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "out" / "demo.json").read_text("utf-8"))
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert numbers["settings"] == {"seed": 0, "degree": 4, "noise": 0.5, "grid": 3, "samples": 120}
    mse, ours = numbers["MSE"], numbers["PEAR"]
    assert mse["start"].startswith("the model was fitted to the squared error in closed form")
    assert {row["epochs"] for row in ours["race"]} == {0, 4}
    assert ours["choice"] in result.output.replace("\n", " ")
    for regret in (numbers["untrained"]["test_regret"], mse["test_regret"], ours["test_regret"]):
        assert f"{100 * regret:.2f} %" in result.output
    assert gain_sentence(mse["test_regret"], ours["test_regret"]) in result.output
    assert "demo.png" in result.output
    assert torch.get_num_threads() == threads


def test_demo_repeats_for_a_seed_and_leaves_the_global_state_alone(run: Run, tmp_path: Path) -> None:
    def regrets(*arguments: str) -> list[float]:
        assert run("demo", *SMALL, "--out", tmp_path, *arguments).exit_code == 0
        numbers = json.loads((tmp_path / "demo.json").read_text("utf-8"))
        return [numbers[name]["test_regret"] for name in ("untrained", "MSE", "PEAR")]

    state = torch.get_rng_state()
    first = regrets()
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(1)
    assert regrets() == first
    assert regrets("--seed", "1") != first


def test_demo_is_honest() -> None:
    assert gain_sentence(0.2103, 0.0805) == (
        "Decisions trained with PEAR lose 8.05 % instead of 21.03 %: 62 % of what MSE gives away is saved."
    )
    assert gain_sentence(0.05, 0.06).startswith("Nothing was gained here: decisions trained with PEAR lose 6.00 %")
    assert gain_sentence(0.050001, 0.05).startswith("Nothing was gained here")
    assert gain_sentence(0.0, 0.0).startswith("Nothing was gained here")


def test_demo_says_so_when_time_ran_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pear.cli.demo.TIME_CAP", 1e-9)
    result = run("demo", *SMALL)
    assert result.exit_code == 0
    assert "before it was done: PEAR." in result.output


def test_demo_stops_cleanly_when_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearEpochs, "run", interrupt)  # a linear model is trained in compiled epochs,
    monkeypatch.setattr(pear.PEARLoss, "forward", interrupt)  # or step by step where they cannot be used
    result = run("demo", *SMALL)
    assert result.exit_code == 130
    assert "nothing is saved" in result.output
    assert list(tmp_path.rglob("demo.*")) == []


# --- solvers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 200])
def test_solvers_lists_every_row_of_the_registry(run: Run, columns: int) -> None:
    result = run("solvers", columns=columns)
    assert result.exit_code == 0
    lines = {words[0]: line for line in result.output.splitlines() if (words := line.split())}
    for backend in BACKENDS:
        line = lines[backend.name]
        assert ", ".join(backend.kinds) in line
        assert backend.how_to_install.removeprefix("pip install ") in line  # whole, square brackets and all
        assert backend.note.split()[0] in line


def test_solvers_says_what_is_not_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Backend("absent", "pear.solvers.absent", ("no_such_package",), "absent", note="is not here")
    monkeypatch.setattr("pear.solvers.backend_registry.BACKENDS", (absent,))
    (line,) = (line for line in run("solvers").output.splitlines() if "is not here" in line)
    assert line.split() == ["absent", "lp,", "qp", "no", "no", "'pear-dfl[absent]'", "is", "not", "here"]


# --- bench ----------------------------------------------------------------------------------------------------------


def row(**changes: Any) -> exactness_benchmark.ExactnessRow:
    values = {
        "solver": "interior-point",
        "family": "boxes",
        "problems": 1200,
        "kkt_residual": 1e-12,
        "reference_error": 2e-11,
    }
    return exactness_benchmark.ExactnessRow(
        **(values | {"fd_error": 3e-8, "repaired_share": 0.5, "degenerate_share": 0.25} | changes)
    )


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the benchmark by a stand-in that returns ``rows`` and stores its arguments in ``asked``."""
    state: dict[str, Any] = {"rows": [row()]}

    def stand_in(
        solvers: list[str] | None, quick: bool, seed: int, progress: Callable[[str], None] | None
    ) -> list[exactness_benchmark.ExactnessRow]:
        state["asked"] = (solvers, quick, seed)
        assert progress is not None
        progress("row 1 [of 1]")
        return list(state["rows"])

    monkeypatch.setattr(exactness_benchmark, "measure_exactness", stand_in)
    return state


def test_bench_passes_where_every_goal_is_met(run: Run, benchmark: dict[str, Any], tmp_path: Path) -> None:
    result = run(
        "bench",
        "exactness",
        "--solvers",
        "interior-point, osqp",
        "--quick",
        "--seed",
        "3",
        "--out",
        tmp_path / "a" / "b.json",
    )
    assert result.exit_code == 0, result.output
    assert benchmark["asked"] == (["interior-point", "osqp"], True, 3)
    for text in ("boxes", "1,200", "1.0e-12", "2.0e-11", "3.0e-08", "50%", "25%", "good", "All 1 rows meet"):
        assert text in result.output
    saved = json.loads((tmp_path / "a" / "b.json").read_text("utf-8"))
    assert saved["rows"][0]["fd_error"] == 3e-8
    assert saved["goals"] == {"kkt_residual": 1e-9, "reference_error": 1e-8, "fd_error": 1e-5}
    assert run("bench", "exactness").exit_code == 0
    assert benchmark["asked"] == (None, False, 0)


@pytest.mark.parametrize("miss", [{"kkt_residual": 2e-9}, {"reference_error": 2e-8}, {"fd_error": float("inf")}])
def test_bench_fails_where_a_goal_is_missed(run: Run, benchmark: dict[str, Any], miss: dict[str, float]) -> None:
    benchmark["rows"] = [row(), row(family="worse", **miss)]
    result = run("bench", "exactness")
    assert result.exit_code == 1
    assert "1 of 2 rows miss a goal" in result.stderr
    assert [line.split()[-1] for line in result.stdout.splitlines() if "interior-point" in line] == ["good", "missed"]


def test_bench_fails_where_nothing_was_measured(run: Run, benchmark: dict[str, Any]) -> None:
    benchmark["rows"] = []
    assert run("bench", "exactness", "--solvers", "interior-point").exit_code == 1


# --- failing well ---------------------------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    result = run("--version")
    assert (result.exit_code, result.output.strip()) == (0, f"pear {pear.__version__}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("demo", "--degree", "0"), "Error: degree must be a whole number of at least 1; got 0"),
        (("demo", "--grid", "1"), "Error: a grid needs"),
        (("demo", "--samples", "2"), "Error: sizes must be three counts of at least 1"),
        (("demo", "--noise", "2"), "Error: noise must be a number from 0 to 1"),
        (("bench", "exactness", "--solvers", "gurobi"), "Error: unknown solver 'gurobi'"),
    ],
)
def test_errors_of_the_package_are_one_sentence(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(sentence)
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_square_brackets_of_an_error_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    result = run("demo", *SMALL)
    assert result.exit_code == 2
    assert "pip install 'pear-dfl[cli]'" in result.stderr


@pytest.mark.parametrize("command", [("demo", *SMALL), ("bench", "exactness")])
def test_a_bad_out_fails_before_the_work_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    def work(*args: Any, **kwargs: Any) -> None:
        pytest.fail("the work was started")

    monkeypatch.setattr("pear.fit", work)
    monkeypatch.setattr(exactness_benchmark, "measure_exactness", work)
    (tmp_path / "file").write_text("kept")
    result = run(*command, "--out", tmp_path / "file" / "below")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"Error: cannot write to {tmp_path / 'file'}")
    assert (tmp_path / "file").read_text() == "kept"


def test_outputs_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="it is a file, and a folder is needed"):
        writable_output_folder(tmp_path / "file")
    with pytest.raises(OutputError, match="it is a folder, and a file is needed"):
        writable_output_file(tmp_path)
    assert writable_output_file(tmp_path / "new" / "file.json").parent.is_dir()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_read_only_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))  # as for a folder without write permission

    monkeypatch.setattr("pear.cli.output_files.tempfile.TemporaryFile", denied)
    with pytest.raises(OutputError, match="Permission denied; name another folder with --out"):
        writable_output_folder(tmp_path)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_packages_are_named_with_the_remedy(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *args, **kwargs)

    for module in [name for name in sys.modules if name.startswith("pear.cli.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"The command line needs the package {missing}, not installed here; run pip install 'pear-dfl[cli]'.\n"
    )


def test_a_table_holds_nothing_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    days = pandas.Index(["=HYPERLINK(0)", "-3", "mon"], name="@day")
    table = pandas.DataFrame({"+x": [-1.5, 2.0, 3.0], "note": ["=1+1", "-7", "ok"]}, days)
    path = write_output_csv(table, tmp_path / "table.csv")
    assert path.read_text().splitlines() == ["'@day,'+x,note", "'=HYPERLINK(0),-1.5,'=1+1", "-3,2.0,-7", "mon,3.0,ok"]
    with pytest.raises(OutputError, match="there is no folder"):
        write_output_csv(table, tmp_path / "none" / "table.csv")

"""The speed benchmarks: their arithmetic, the plain loop for comparison, the peers' processes, and their output."""

from __future__ import annotations

import importlib
import json
import math
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from command_line import Run

import pear
from pear.errors import PearError, ProblemError
from pear_lab.benchmarks import (
    gradient_benchmark,
    gradient_rows,
    integers_benchmark,
    memory_benchmark,
    plain_loop,
    scaling_benchmark,
    sparse_solvers_benchmark,
    training_benchmark,
)
from pear_lab.benchmarks.bench_record import BenchmarkRecord
from pear_lab.benchmarks.benchmark import Callbacks
from pear_lab.benchmarks.gradient_batch import GradientBatch
from pear_lab.benchmarks.gradient_errors import GradientErrors
from pear_lab.benchmarks.gradient_rows import time_ratio_of_gradient_rows
from pear_lab.benchmarks.our_steps import OurSteps
from pear_lab.benchmarks.program_structures import STRUCTURES, Structure
from pear_lab.benchmarks.scaling_benchmark import fit_scaling_exponent
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.cli.bench import BENCHMARKS
from pear_lab.experiments.protocols.lp_protocol import make_split, make_task, paper_model, train_as_published
from pear_lab.peers import Peer, PeerError, PeerTimeoutError, choose_peers, measure_peer, peer_interpreter
from pear_lab.peers import peer_environment as environment
from pear_lab.peers import peer_table as registry
from pear_lab.peers.workers.worker import add_worker_bound_rows, make_worker_regret_step


@pytest.fixture
def run(terminal: None) -> Run:
    """Return a function that runs the command in an empty folder and a wide terminal without colours."""
    return partial(command_line.run, "bench")


# --- arithmetic -----------------------------------------------------------------------------------------------------


def test_quantiles_of_errors() -> None:
    found = GradientErrors.summarize(np.linspace(0.0, 1.0, 11))
    assert (found.median, found.q90, found.largest, found.compared) == (0.5, pytest.approx(0.9), 1.0, 11)


def test_an_error_that_is_no_number_is_infinite_not_dropped() -> None:
    found = GradientErrors.summarize(np.array([1e-9, np.nan, 1e-9]))
    assert (found.median, found.largest, found.compared) == (1e-9, math.inf, 3)
    everything = GradientErrors.summarize(np.array([np.nan, np.inf]))
    assert (everything.median, everything.q90) == (math.inf, math.inf)
    nothing = GradientErrors.summarize(np.array([]))
    assert math.isnan(nothing.largest)


def test_exponents_of_power_laws() -> None:
    sizes = [10.0, 30.0, 100.0, 1000.0]
    for power in (0.5, 1.0, 2.7):
        assert fit_scaling_exponent(sizes, [3e-4 * n**power for n in sizes]) == pytest.approx(power, abs=1e-12)
    assert math.isnan(fit_scaling_exponent([10.0, 10.0], [1.0, 2.0]))
    assert math.isnan(time_ratio_of_gradient_rows(1.0, 0.0))
    assert math.isnan(time_ratio_of_gradient_rows(None, 1.0))


def gradient_row(
    who: str, seconds: float, largest: float = 1e-12, compared: int = 5, **fields: Any
) -> gradient_rows.GradientRow:
    ours = who.startswith("pear")
    return gradient_rows.GradientRow(
        who, ours, 20, 64, seconds, seconds, largest / 10, largest / 2, largest, compared, **fields
    )


def test_the_fastest_exact_peer_is_what_we_compare_with() -> None:
    rows = [
        gradient_row("pear", 0.002),
        gradient_row("pear layer", 0.001),
        gradient_row("fast and wrong", 0.001, largest=0.5),
        gradient_row("exact", 0.1),
        gradient_row("exact and slow", 0.3),
        replace(gradient_row("exact elsewhere", 0.0001), n=21),
    ]
    assert rows[0].lead_over_peers(rows) == pytest.approx(50)
    assert rows[1].lead_over_peers(rows) == pytest.approx(100)
    assert math.isnan(rows[3].lead_over_peers(rows))
    assert rows[4].ratio_to_pear(rows) == pytest.approx(150)
    assert math.isnan(rows[5].ratio_to_pear(rows))
    wrong = replace(rows[0], error_largest=1e-3)
    assert math.isnan(wrong.lead_over_peers([wrong, *rows[1:]]))


def test_several_structures_are_summed_up_point_by_point() -> None:
    at_box = {"structure": "box"}
    rows = [
        gradient_row("pear layer", 0.001),
        gradient_row("quick", 0.006),
        gradient_row("pear layer", 0.002, **at_box),
        gradient_row("pear layer, one CPU core", 0.05, **at_box),
        gradient_row("slow", 0.3, largest=1e-4, **at_box),
        gradient_row("quick", 0.1, largest=1e-3, **at_box),
        gradient_row("quick, loose", 0.004, largest=0.5, loose=True, **at_box),
        gradient_row("forward pass", 0.001, measured="decision", **at_box),
        gradient_row("unjudged", 0.001, largest=math.nan, compared=0, **at_box),
    ]
    table = gradient_rows.summary_of_gradient_rows(rows)
    assert [heading.split(",")[0] for heading in table.headings[3::3]] == ["ours", "÷ ours", "÷ ours", "÷ ours"]
    core = ("–", "–", "–")
    assert table.rows == [
        ("portfolio", "20", "64", "1", "6 (quick)", "1e-13", "6", "–", "–", "–", *core),
        ("box", "20", "64", "2", "100 (quick)", "1e-04", "50", "4 (quick, loose)", "5e-02", "2", "50", "1e-13", "25"),
    ]
    assert len(table.headings) == len(table.rows[0])
    whole = gradient_benchmark.GradientBenchmark.tables(rows)
    assert whole[0].headings[0] == "structure"
    assert whole[-1] == table
    assert [table.headings[0] for table in gradient_benchmark.GradientBenchmark.tables(rows[:2])] == ["who"]
    without_core = gradient_rows.summary_of_gradient_rows([row for row in rows if "core" not in row.who])
    assert len(without_core.headings) == len(table.headings) - 3
    assert not rows[7].exact


def test_our_layer_stands_beside_accurate_forward_passes_alone() -> None:
    rows = [
        gradient_row("pear layer", 0.0064),
        gradient_row("pear", 0.0128),
        gradient_row("good", 0.0192, measured="decision"),
        gradient_row("better", 0.016, measured="decision", largest=1e-7),
        gradient_row("quick and wrong", 0.0032, measured="decision", largest=1e-3),
    ]
    table = gradient_rows.table_of_forward_rows(rows)
    cells = ("100", "1e-12", "200", "1e-12", "300", "1e-12", "250", "1e-07", "50", "1e-03", "2.5")
    assert table.rows == [("portfolio", "20", "64", *cells)]
    assert len(table.headings) == len(table.rows[0])
    assert table in gradient_benchmark.GradientBenchmark.tables(rows)
    behind = gradient_rows.table_of_forward_rows([replace(rows[0], seconds=0.032), *rows[1:]])
    assert behind.rows[0][-1] == "0.5"
    wrong = gradient_rows.table_of_forward_rows([replace(rows[0], error_largest=1e-3), *rows[1:]])
    assert wrong.rows[0][-1] == "–"


def test_no_time_is_shown_without_its_error() -> None:
    rows = [gradient_row("pear", 0.002), gradient_row("unjudged", 0.777, largest=math.nan, compared=0)]
    (table,) = gradient_benchmark.GradientBenchmark.tables(rows)
    (cells,) = [cells for cells in table.rows if cells[0] == "unjudged"]
    assert cells[3:7] == ("–", "–", "–", "–")
    assert "777" not in table.markdown()
    assert [line.name for line in gradient_benchmark.GradientBenchmark.series(rows)] == ["pear"]


def test_summaries_of_trainings_pair_seeds() -> None:
    def row(
        who: str, seed: int, seconds: float, regret: float, reuse: float | None = None
    ) -> training_benchmark.TrainingRow:
        return training_benchmark.TrainingRow("paths", seed, who, 5, seconds, 10 * seconds, regret, reuse)

    rows = [row("pear", 0, 0.1, 0.04, 0.5), row("plain loop", 0, 2.0, 0.05)]
    rows += [row("pear", 1, 0.2, 0.06, 0.7), row("plain loop", 1, 2.0, 0.05), row("plain loop", 2, 9.0, 0.05)]
    ours, plain = training_benchmark.summarize_training_benchmark(rows)
    assert (ours.ratio, ours.seeds, ours.reuse_rate) == (1.0, 2, pytest.approx(0.6))
    assert (ours.regret, ours.regret_std) == (pytest.approx(0.05), pytest.approx(0.01 * math.sqrt(2)))
    assert (plain.ratio, plain.run_ratio) == (pytest.approx(15), pytest.approx(15))  # of 20 and 10; seed 2 has no pair
    assert plain.reuse_rate is None


# --- the reference of the gradient benchmark ------------------------------------------------------------------------


SMALL = [one for one in STRUCTURES if one.any_size or one.size <= 200]  # the others have slow references


@pytest.mark.parametrize("structure", SMALL, ids=lambda one: one.name)
def test_instances_are_judged_from_the_first_sample_on_and_do_not_depend_on_the_batch(structure: Structure) -> None:
    n = 8 if structure.any_size else structure.size
    few, many = (
        GradientBatch(structure, n, 4, references=4, seed=3),
        GradientBatch(structure, n, 9, references=4, seed=3),
    )
    for name, value in few.data(4).items():
        assert np.array_equal(value, many.data(4)[name])
    assert np.array_equal(few.moved, many.moved[:4])
    assert few.answers.comparable[0]
    assert few.moved_answers is None or few.moved_answers.comparable[0]
    assert few.answers.errors(few.answers.gradient).largest == 0.0
    assert few.answers.decision_errors(few.answers.decision).largest == 0.0
    off = few.answers.gradient.copy()
    off[0] *= 1.25
    assert few.answers.errors(off[:1]).largest == pytest.approx(0.25)
    assert few.answers.decision_errors(1.25 * few.answers.decision).largest == pytest.approx(0.25)


# --- the plain loop -------------------------------------------------------------------------------------------------


def paths_case() -> tuple[pear.Problem, torch.Tensor, torch.Tensor]:
    task = pear.tasks.shortest_path((4, 4))
    true = task.samples(40, degree=4, seed=1, dtype=torch.float64).costs
    return task.problem, true * (0.7 + 0.6 * torch.rand(true.shape, generator=torch.Generator().manual_seed(0))), true


def knapsack_case() -> tuple[pear.Problem, torch.Tensor, torch.Tensor]:
    task = pear.tasks.random_knapsack(items=12, dimensions=2, seed=1)
    true = task.samples(40, degree=4, seed=1, dtype=torch.float64).costs
    return task.problem, true * (0.7 + 0.6 * torch.rand(true.shape, generator=torch.Generator().manual_seed(0))), true


@pytest.mark.parametrize("case", [paths_case, knapsack_case])
@pytest.mark.parametrize("injection", [0.0, 0.1])
def test_the_plain_gradient_is_exact_where_its_active_set_is_right(
    case: Callable[..., Any], injection: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, predicted, true = case()
    plain = plain_loop.PlainProgram(problem, 0.1)
    taken: list[Any] = []
    find = plain.active_set  # starts from the sample before, so that asking again might give another answer
    monkeypatch.setattr(plain, "active_set", lambda cost: taken.append(find(cost)) or taken[-1])
    found = plain.gradient(predicted.numpy(), true.numpy(), injection, dict.fromkeys(("solve", "project"), 0.0))
    exact = pear.regret_gradient(problem, predicted, true, smoothing=0.1, injection=injection).numpy()
    active = pear.solve(problem.relaxed(), predicted, smoothing=0.1).active
    sides = [active.rows, active.lower | active.upper]
    right = torch.cat(sides, 1).numpy()
    equalities = 0 if problem.b is None else len(problem.b)
    same = np.array([np.array_equal(a[equalities:], b) for a, b in zip(taken, right, strict=True)])
    assert same.mean() > 0.5
    error = np.linalg.norm(found - exact, axis=1)[same]
    assert error.max() < 1e-4 * np.linalg.norm(exact, axis=1).max()
    assert np.linalg.norm(exact, axis=1)[same].max() > 0


def test_the_plain_loop_follows_the_protocol_draw_by_draw() -> None:
    settings = training_benchmark.TrainingBenchmarkSettings(tasks=("paths",), seeds=(3,), epochs=2, quick=True)
    (one,) = settings.runs("paths")
    task = make_task(one)
    split = make_split(one, task)
    split = type(split)(*(type(part)(part.features[:64], part.costs[:64]) for part in split))
    state = torch.get_rng_state()
    model, history = plain_loop.train_plain_loop(task.problem, split, task.normalized_regret, 3, 2)
    assert torch.equal(state, torch.get_rng_state())
    ours, ours_history = train_as_published(one, task, split)
    first, _ = paper_model(task.problem.n, 3)
    moved = (ours.weight - first.weight).abs().max()
    assert (model.weight - ours.weight).abs().max() < 0.05 * moved
    assert [epoch for epoch, _ in history.checks] == [check.epoch for check in ours_history.checks] == [1, 2]
    assert history.epoch_seconds > 0
    assert sum(history.split.values()) == pytest.approx(history.seconds)


@pytest.mark.parametrize("task", ["paths", "knapsack"])
def test_training_with_infeasible_samples_is_measured_beside_the_clean_one(task: str) -> None:
    settings = training_benchmark.TrainingBenchmarkSettings(
        tasks=(task,), seeds=(0,), epochs=3, quick=True, infeasible=0.05
    )
    rows: list[training_benchmark.TrainingRow] = []
    said: list[str] = []
    training_benchmark.TrainingBenchmark(
        settings, Callbacks(on_row=rows.append, say=said.append, on_note=said.append)
    ).run()
    assert [row.who.split(",")[1] for row in rows[2:]] == [" 0 % infeasible", " 5 % infeasible"]
    assert rows[2].regret == pytest.approx(rows[0].regret, rel=0.2)
    assert all(row.epochs == 3 and row.epoch_seconds > 0 for row in rows)


# --- peers ----------------------------------------------------------------------------------------------------------

FAKE_WORKER = '''
"""Long-only portfolios of few assets: every set of assets is tried; numpy alone."""
from itertools import combinations

import numpy as np

PACKAGES = ("numpy",)


def solve(Q, c):
    n = len(c)
    for size in range(1, n + 1):
        for held in map(list, combinations(range(n), size)):
            K = np.zeros((size + 1, size + 1))
            K[:size, :size] = Q[np.ix_(held, held)]
            K[:size, size] = K[size, :size] = 1.0
            w = np.linalg.solve(K, np.append(-c[held], 1.0))
            x = np.zeros(n)
            x[held] = w[:size]
            if x.min() >= 0 and (Q @ x + c + w[size]).min() >= -1e-9:
                return x, held, K
    raise SystemExit("no set of assets is optimal")


def PREPARE(data, device):
    def step():
        gradient = np.zeros_like(data["cost"])
        for i, (Q, c, true) in enumerate(zip(data["Q"], data["cost"], data["true"])):
            x, held, K = solve(Q, c)
            up = (Q @ x + true)[held]
            gradient[i, held] = -np.linalg.solve(K, np.append(up, 0.0))[:-1]
        return {"gradient": gradient}

    return step
'''


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Peer]:
    """Return a function that adds a peer with this worker's code to the table."""

    def make(code: str) -> Peer:
        path = tmp_path / "fake_worker.py"
        path.write_text(textwrap.dedent(code), encoding="utf-8")
        peer = Peer("fake", "Fake", "numpy", path, ("numpy",))
        monkeypatch.setattr(registry, "PEERS", (*registry.PEERS, peer))
        return peer

    return make


def test_a_peer_may_be_a_layer_alone() -> None:
    Q, cost, true = np.array([[[2.0, 0.5], [0.5, 1.0]]]), np.array([[1.0, -1.0]]), np.array([[0.5, 2.0]])
    step = make_worker_regret_step(lambda data: lambda costs: -costs, {"Q": Q, "cost": cost, "true": true}, "cpu")
    np.testing.assert_allclose(step()["gradient"], (Q @ cost[:, :, None])[:, :, 0] - true)


OURS = ["pear", "pear layer", "pear warm"]
POINT = ("gradient", "--sizes", "4", "--batches", "6", "--repeats", "2", "--seed", "1")


def test_a_peer_goes_through_the_whole_path(run: Run, fake: Callable[[str], Peer], tmp_path: Path) -> None:
    fake(FAKE_WORKER)
    result = run(*POINT, "--peers", "fake", "--peers-here", "--profile", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    rows = {row["who"]: row for row in numbers["rows"]}
    assert list(rows) == ["pear", "pear layer", "pear warm", "Fake"]
    assert all(row["error_largest"] < 1e-9 and row["compared"] > 0 and row["seconds"] > 0 for row in rows.values())
    assert rows["Fake"]["versions"]["numpy"] == np.__version__
    assert rows["pear"]["reuse_rate"] is None
    assert 0 <= rows["pear warm"]["reuse_rate"] <= 1
    assert {"solve", "verify", "project", "gradient", "rest"} <= set(rows["pear"]["profile"])
    assert numbers["settings"]["seed"] == 1
    assert {"torch", "numpy", "pear"} <= set(numbers["versions"])
    assert numbers["interrupted"] is False
    table = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert "| Fake | 4 | 6 |" in table
    assert f"{rows['Fake']['seconds'] / rows['pear']['seconds']:.3g}"[:3] in table
    assert "Where the time goes" in table
    assert "<svg" in (tmp_path / "out" / "plot.svg").read_text("utf-8")
    assert str(tmp_path / "out" / "results.json") in result.output


def test_forward_passes_are_judged_by_their_decisions_and_the_fastest_round_counts(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("qpsolvers")
    point = ("gradient", "--structures", "turnover,path-5", "--batches", "3", "--repeats", "1", "--rounds", "2")
    result = run(*point, "--clock", "processor", "--peers", "qpsolvers", "--peers-here", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert [row["who"] for row in rows] == 2 * ["pear", "pear layer", "DAQP, forward", "PIQP, forward", "OSQP, forward"]
    assert {row["measured"] for row in rows if not row["ours"]} == {"decision"}
    assert all(row["error_largest"] < 1e-9 for row in rows if row["ours"] or row["who"].startswith("DAQP"))
    assert all(row["error_largest"] < 1e-3 for row in rows)
    assert "the forward pass alone of other solvers" in (tmp_path / "table.md").read_text("utf-8")
    refused = run(*point, "--clock", "sundial", "--out", tmp_path)
    assert refused.exit_code == 2
    assert "--clock must be wall or processor; got 'sundial'" in refused.stderr


def test_a_peer_that_fails_is_named_with_its_last_words(run: Run, fake: Callable[[str], Peer], tmp_path: Path) -> None:
    fake("PACKAGES = ()\ndef PREPARE(data, device):\n    raise ValueError('no such thing')\n")
    result = run(*POINT, "--peers", "fake", "--peers-here", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Fake: 4 assets with a batch of 6 left out: fake failed: ValueError: no such thing" in result.output
    assert [row["who"] for row in json.loads((tmp_path / "results.json").read_text())["rows"]] == OURS


def test_a_worker_that_hangs_is_ended_and_larger_batches_are_left_out(
    fake: Callable[[str], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = fake("import time\nPACKAGES = ()\ndef PREPARE(data, device):\n    time.sleep(60)\n")
    monkeypatch.setattr("pear_lab.peers.peer_measurement._START", 0.0)
    with pytest.raises(PeerTimeoutError, match="fake was ended after 3 s"):
        measure_peer(peer, Path(sys.executable), {"Q": np.ones(1)}, limit=1.0)
    notes: list[str] = []
    settings = gradient_benchmark.GradientBenchmarkSettings(sizes=(4,), batches=(2, 3), repeats=1, limit=0.4)
    gradient_benchmark.GradientBenchmark(
        settings, Callbacks(lambda row: None, notes.append), [(peer, Path(sys.executable))]
    ).run()
    assert [note for note in notes if note.startswith("Fake")] == [
        "Fake: 4 assets with a batch of 2 and larger left out: fake was ended after 1 s"
    ]


def test_a_gradient_of_the_wrong_shape_is_refused(fake: Callable[[str], Peer]) -> None:
    code = (
        "import numpy as np\nPACKAGES = ()\ndef PREPARE(data, device):\n    return lambda: {'gradient': np.ones(3)}\n"
    )
    notes: list[str] = []
    settings = gradient_benchmark.GradientBenchmarkSettings(sizes=(4,), batches=(2,), repeats=1)
    gradient_benchmark.GradientBenchmark(
        settings, Callbacks(lambda row: None, notes.append), [(fake(code), Path(sys.executable))]
    ).run()
    assert notes[-1].endswith("fake returned a gradient of shape (3,); expected (2, 4)")


def test_unknown_and_unsuitable_peers(run: Run) -> None:
    result = run("gradient", "--quick", "--peers", "qpht")
    assert result.exit_code == 2
    assert "there is no peer 'qpht'" in result.stderr
    assert "did you mean qpth?" in result.stderr
    result = run("gradient", "--quick", "--peers", "pyepo")
    assert result.exit_code == 2
    assert "takes no part in `pear bench gradient`" in result.stderr
    result = run("epoch", "--peers", "dqp")
    assert result.exit_code == 2
    assert "dqp takes no part in `pear bench epoch`" in result.stderr
    with pytest.raises(PeerError, match="does not compute on cuda"):
        choose_peers(["dqp"], "gradient", "cuda")
    assert [peer.name for peer in choose_peers(["all"], "gradient", "cuda")] == ["qpth", "qpax", "qpax", "mpax"]
    assert [peer.title.split(",")[0] for peer in choose_peers(["qpsolvers"], "gradient")] == ["DAQP", "PIQP", "OSQP"]
    assert [peer.name for peer in choose_peers(["all"], "training")] == ["pyepo"]
    assert [peer.worker.name for peer in choose_peers(["qpth"], "epoch")] == ["run_qpth_epoch.py"]


def test_of_all_peers_those_that_cannot_be_had_are_left_out(
    run: Run, fake: Callable[[str], Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = fake(FAKE_WORKER)
    monkeypatch.setattr(registry, "PEERS", (peer, replace(peer, name="gone", title="Gone", module="gone_for_good")))
    result = run(*POINT, "--peers", "all", "--peers-here", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [row["who"] for row in numbers["rows"]] == [*OURS, "Fake"]
    assert numbers["notes"][0].startswith("Gone left out: gone cannot be imported in this environment")
    assert run(*POINT, "--peers", "gone", "--peers-here", "--out", tmp_path).exit_code == 2


def test_a_peer_that_is_not_here(fake: Callable[[str], Peer]) -> None:
    peer = replace(fake(FAKE_WORKER), module="not_a_module_of_anybody")
    with pytest.raises(PeerError, match="cannot be imported in this environment"):
        peer_interpreter(peer, here=True)


FAKE_PYTHON = """\
#!/bin/sh
echo "$@" >> {log}
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit 0; fi
{pip}
"""


def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: str) -> Path:
    """Replace the Python that makes environments by a script; return the log of its calls."""
    script, log = tmp_path / "python", tmp_path / "calls.log"
    script.write_text(FAKE_PYTHON.format(log=log, pip=pip), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(environment.sys, "executable", str(script))
    monkeypatch.setenv("PEAR_CACHE", str(tmp_path / "cache"))
    return log


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for Python")
def test_without_a_network_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "ERROR: No matching distribution found for qpth==0.0.18"
    fake_python(tmp_path, monkeypatch, f"echo 'Collecting qpth'; echo '{said}'; exit 1")
    lines: list[str] = []
    (peer,) = choose_peers(["qpth"], "gradient")
    with pytest.raises(PeerError, match="No matching distribution found") as caught:
        peer_interpreter(peer, say=lines.append)
    log = tmp_path / "cache" / "peers" / "qpth.log"
    assert str(log) in str(caught.value)
    assert "--peers-here" in str(caught.value)
    assert said in log.read_text("utf-8")
    assert "qpth: Collecting qpth" in lines


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for Python")
def test_environments_are_reused_until_asked_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_python(tmp_path, monkeypatch, "exit 0")
    (peer,) = choose_peers(["qpth"], "gradient")
    python = peer_interpreter(peer)
    assert python == tmp_path / "cache" / "peers" / "qpth" / "bin" / "python"
    made = log.read_text().splitlines()
    assert len(made) == 2
    assert all(requirement in made[1] for requirement in peer.requirements)
    peer_interpreter(peer)
    assert len(log.read_text().splitlines()) == 2
    peer_interpreter(peer, rebuild=True)
    assert len(log.read_text().splitlines()) == 4
    peer_interpreter(replace(peer, requirements=("something==else",)))
    assert len(log.read_text().splitlines()) == 6


def test_every_peer_has_its_worker_and_no_open_torch() -> None:
    for peer in registry.PEERS:
        assert peer.worker.is_file()
        needs_torch = "torch" in peer.worker.read_text("utf-8")
        assert needs_torch == any(requirement.startswith("torch==") for requirement in peer.requirements)


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gradient", "--sizes", "1"), "--sizes must be whole numbers of at least 2; got [1]"),
        (
            ("gradient", "--structures", "boxes"),
            "--structures must be some of portfolio, box, rows, own-rows, knapsack",
        ),
        (("gradient", "--structures", "boxes"), "got 'boxes'; did you mean box?"),
        (("gradient", "--structures", ","), "--structures must have at least one entry; got none"),
        (("scaling", "--solvers", ","), "--solvers must have at least one entry; got none"),
        (("gradient", "--sizes", "many"), "--sizes must be whole numbers"),
        (("workers", "--samples", "1e6,many"), "--samples must be numbers, separated by commas"),
        (("workers", "--samples", "1e6,0.5"), "--samples must be"),
        (("gradient", "--batches", "0"), "--batches must be whole numbers of at least 1"),
        (("gradient", "--device", "tpu"), "--device must be cpu or cuda; got 'tpu'"),
        (("gradient", "--repeats", "0"), "--repeats must be at least 1"),
        (("gradient", "--quick", "--threads", "0"), "--threads must be from 1"),
        (("training", "--tasks", "tsp"), "--tasks must be some of paths, knapsack; got 'tsp'"),
        (("training", "--epochs", "0"), "--epochs must be at least 1; got 0"),
        (("scaling", "--grids", "1"), "--grids must be whole numbers of at least 2"),
        (("scaling", "--limit", "0"), "--limit must be a positive number; got 0.0"),
        (("training", "--cap", "-1"), "--cap must be a positive number; got -1.0"),
        (("gradient", "--sizes", "none"), "--sizes must have at least one entry; got none"),
        (("scaling", "--spread", "2"), "--spread must be 0 for anywhere, or at least 5; got 2"),
        (("memory", "--grid", "0"), "--grid must be at least 1; got 0"),
    ],
)
def test_bad_arguments_are_one_sentence(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr


def test_what_the_usual_grid_leaves_out_is_said() -> None:
    points, left_out = gradient_benchmark.GradientBenchmarkSettings().grid()
    assert [(point.structure.name, point.n, point.batches) for point in points] == [
        ("portfolio", 20, [1, 64, 512]),
        ("portfolio", 100, [1, 64, 512]),
        ("portfolio", 500, [1, 64]),
    ]
    assert left_out == [
        "500 assets with a batch of 512 and larger left out: name --sizes and --batches to have it",
    ]
    asked = gradient_benchmark.GradientBenchmarkSettings(sizes=(500,), batches=(512,)).grid()
    assert asked == ([gradient_benchmark.GradientPoint(STRUCTURES[0], 500, [512])], [])


def test_every_structure_has_its_own_size_and_batches() -> None:
    points, left_out = gradient_benchmark.GradientBenchmarkSettings(("all",)).grid()
    assert [(point.structure.name, point.n) for point in points][4:] == [
        ("knapsack", 100),
        ("path-5", 40),
        ("path-12", 264),
        ("sectors", 100),
        ("assignment", 144),
        ("transport", 200),
        ("dense-300", 300),
        ("dense-100", 100),
        ("battery", 73),
        ("turnover", 120),
        ("polytope", 40),
    ]
    assert [point.structure.name for point in points if point.batches != [64, 512]] == ["dense-300"]
    assert left_out == []
    points, _ = gradient_benchmark.GradientBenchmarkSettings(("path-5", "box"), sizes=(7,), batches=(3,)).grid()
    assert [(point.structure.name, point.n, point.batches) for point in points] == [
        ("path-5", 40, [3]),
        ("box", 7, [3]),
    ]
    for structure in STRUCTURES:
        assert structure.draw(np.random.default_rng(0), structure.size, 2).cost.shape == (2, structure.size)


def test_every_structure_is_measured_and_each_peer_where_it_takes_part(
    fake: Callable[[str], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = """
        import numpy as np
        PACKAGES = ()
        def PREPARE(data, device):
            assert data["C"].shape[-2] == data["d"].shape[-1] > 0 and data["accuracy"] == 0.5
            assert np.linalg.matrix_rank(data["A"]) == len(data["b"])
            return lambda: {"decision": np.zeros_like(data["cost"])}
    """
    peer = replace(fake(solver), measures="decision", structures=("knapsack", "path-5"), options=(("accuracy", 0.5),))
    rows: list[gradient_rows.GradientRow] = []
    notes: list[str] = []
    names = tuple(one.name for one in STRUCTURES if one.any_size or one.name in ("path-5", "turnover"))
    settings = gradient_benchmark.GradientBenchmarkSettings(names, sizes=(6,), batches=(3,), repeats=1)
    gradient_benchmark.GradientBenchmark(
        settings, Callbacks(rows.append, notes.append), [(peer, Path(sys.executable))]
    ).run()
    assert notes == []
    assert [row.structure for row in rows if row.who == "Fake"] == ["knapsack", "path-5"]
    assert all(row.error_median == 1.0 and not row.exact for row in rows if row.who == "Fake")
    assert {row.structure for row in rows if row.who == "pear warm"} == {"portfolio"}
    for who in ("pear", "pear layer"):
        assert [row.structure for row in rows if row.who == who] == list(names)
    assert all(row.error_largest < 1e-9 and row.compared for row in rows if row.ours)
    assert len(gradient_benchmark.GradientBenchmark.series(rows)) == len(rows)


def test_on_a_gpu_one_core_is_measured_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_benchmark, "check_timing_device", lambda device: device)
    monkeypatch.setattr(
        gradient_benchmark, "OurSteps", lambda instances, batch, device: OurSteps(instances, batch, "cpu")
    )

    def measured(*structures: str) -> list[str]:
        settings = gradient_benchmark.GradientBenchmarkSettings(
            structures or None, (4,), (2,), device="cuda", repeats=1
        )
        rows: list[gradient_rows.GradientRow] = []
        gradient_benchmark.GradientBenchmark(settings, Callbacks(rows.append)).run()
        assert all(row.error_largest < 1e-9 and row.compared for row in rows)
        return [row.who for row in rows]

    assert measured("box") == ["pear", "pear layer", "pear layer, one CPU core"]
    assert measured() == OURS


@pytest.mark.long
@pytest.mark.parametrize(("name", "structure"), [("qpth", "own-rows"), ("qpax", "box"), ("mpax", "path-5")])
def test_a_peer_solves_what_we_solve(name: str, structure: str) -> None:
    if not (environment.peer_cache_folder() / "peers" / name / environment.READY).is_file():
        pytest.skip(f"no environment of {name}; pear bench gradient --peers {name} makes one")
    rows: list[gradient_rows.GradientRow] = []
    notes: list[str] = []
    peers = [(peer, peer_interpreter(peer)) for peer in choose_peers([name], "gradient")]
    settings = gradient_benchmark.GradientBenchmarkSettings((structure,), sizes=(6,), batches=(3,), repeats=1)
    gradient_benchmark.GradientBenchmark(settings, Callbacks(rows.append, notes.append), peers).run()
    assert notes == []
    assert [row.who for row in rows if not row.ours] == [peer.title for peer, _ in peers]
    assert all(row.error_median < 0.05 and row.loose == ("loose" in row.who) for row in rows)


def test_bounds_become_rows_of_every_sample() -> None:
    data = {
        "G": np.arange(8.0).reshape(2, 2, 2),
        "h": np.ones((2, 2)),
        "lb": np.zeros(2),
        "ub": np.array([np.inf, 3.0]),
    }
    found = add_worker_bound_rows(data)
    assert found["C"].shape == (2, 5, 2)
    np.testing.assert_array_equal(found["C"][1, 2:], [[-1, 0], [0, -1], [0, 1]])
    np.testing.assert_array_equal(found["d"][1], [1, 1, 0, 0, 3])


def test_training_compares_both_sides(run: Run, tmp_path: Path) -> None:
    result = run("training", "--quick", "--tasks", "knapsack", "--epochs", "2", "--profile", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    ours, plain = rows
    assert (ours["who"], plain["who"]) == ("pear", "plain loop")
    assert {"solve", "gradient", "validation", "network", "rest"} <= set(ours["profile"])
    assert set(plain["profile"]) == {"solve", "project", "validation", "network", "rest"}
    assert sum(ours["profile"].values()) == pytest.approx(ours["seconds"], rel=0.05)
    assert 0 <= ours["reuse_rate"] <= 1
    assert ours["epochs"] == plain["epochs"] == 2
    assert ours["regret"] == pytest.approx(plain["regret"], abs=0.05)
    assert "Where the time goes" in (tmp_path / "table.md").read_text("utf-8")
    assert "<svg" in (tmp_path / "plot.svg").read_text("utf-8")


def test_the_full_table_adds_whole_runs() -> None:
    rows = [training_benchmark.TrainingRow("paths", 0, who, 5, 0.1, 2.0, 0.04) for who in ("pear", "plain loop")]
    (timed,) = training_benchmark.TrainingBenchmark.tables(rows)
    (full,) = training_benchmark.TrainingBenchmark.tables([replace(row, whole=True) for row in rows])
    assert "s a run" in full.headings
    assert "s a run" not in timed.headings
    assert all(len(cells) == len(full.headings) for cells in full.rows)
    assert (
        training_benchmark.TrainingBenchmarkSettings(full=True, seeds=(0,)).runs("paths")[0].settings["max_epochs"]
        == 10_000
    )


def test_scaling_stops_after_a_point_that_takes_too_long(run: Run, tmp_path: Path) -> None:
    result = run("scaling", "--grids", "2,3,4", "--qps", "20,40", "--limit", "1e-6", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [(row["family"], row["size"]) for row in numbers["rows"]] == [("grid", 2), ("sparse QP", 20)]
    assert any("grid of 2 took" in note and "3, 4 left out" in note for note in numbers["notes"])
    assert "more than --limit" in result.output


def test_scaling_measures_verified_solutions_and_fits_their_growth() -> None:
    rows: list[scaling_benchmark.ScalingRow] = []
    scaling_benchmark.ScalingBenchmark(
        scaling_benchmark.ScalingSettings(grids=(3, 5), qps=(20, 40), batch=2, repeats=1), Callbacks(rows.append)
    ).run()
    assert [(row.family, row.n) for row in rows] == [("grid", 12), ("grid", 40), ("sparse QP", 20), ("sparse QP", 40)]
    assert all(row.kkt_residual < 1e-9 for row in rows)
    assert all(row.processor > 0 for row in rows)
    known = [replace(row, processor=1e-6 * row.n**1.5) for row in rows]
    assert scaling_benchmark.scaling_exponents(known) == {"grid": pytest.approx(1.5), "sparse QP": pytest.approx(1.5)}
    assert [cells[-1] for cells in scaling_benchmark.ScalingBenchmark.tables(known)[1].rows] == ["1.5", "1.5"]
    assert [cells[-2] for cells in scaling_benchmark.ScalingBenchmark.tables(known)[0].rows] == ["–", "1.5", "–", "1.5"]


def test_scaling_compares_sources_of_candidates() -> None:
    rows: list[scaling_benchmark.ScalingRow] = []
    settings = scaling_benchmark.ScalingSettings(grids=(3,), qps=(20,), solvers=("interior-point", "piqp"), repeats=1)
    scaling_benchmark.ScalingBenchmark(settings, Callbacks(rows.append)).run()
    assert [row.line for row in rows] == [
        "grid, interior-point",
        "grid, piqp",
        "sparse QP, interior-point",
        "sparse QP, piqp",
    ]
    assert all(row.kkt_residual < 1e-9 for row in rows)
    assert [line.name.split(":")[0] for line in scaling_benchmark.ScalingBenchmark.series(rows)] == [
        row.line for row in rows
    ]


def test_memory_is_measured_in_processes_of_their_own() -> None:
    alone, _ = memory_benchmark.measure_job_memory("import", {}, limit=120)
    taken, seconds = memory_benchmark.measure_job_memory("portfolio", {"assets": 20, "batch": 2}, limit=120)
    assert 20 < alone < taken < 2000
    assert seconds > 0
    with pytest.raises(PearError, match="address space allowed: 100 MiB"):
        memory_benchmark.measure_job_memory("portfolio", {"assets": 2000, "batch": 2}, limit=120, cap=100)


def test_memory_rows_show_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(name: str, options: dict[str, Any], limit: float, cap: float | None) -> tuple[float, float]:
        if name == "grid":
            raise PearError("too large")
        return {"import": 100.0, "portfolio": 150.0, "training": 130.0}[name], 1.0

    monkeypatch.setattr(memory_benchmark, "measure_job_memory", measured)
    rows: list[memory_benchmark.MemoryRow] = []
    notes: list[str] = []
    memory_benchmark.MemoryBenchmark(memory_benchmark.MemorySettings(), Callbacks(rows.append, notes.append)).run()
    assert [(row.peak_mib, row.import_mib, row.above_mib) for row in rows] == [
        (100.0, 100.0, 0.0),
        (150.0, 100.0, 50.0),
        (130.0, 100.0, 30.0),
    ]
    assert notes == ["200×200 grid, batch of 32: not measured: too large"]


def test_integer_programs_are_measured(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(self: integers_benchmark.IntegersBenchmark) -> None:
        assert self.settings.count == 7
        self.callbacks.say("deciding")
        for degree in self.settings.degrees:
            self.add_row(integers_benchmark.IntegerRow(degree, "true", 7, 0.5, math.nan, 20.0, 40.0, 0.0))

    monkeypatch.setattr(integers_benchmark.IntegersBenchmark, "run", measured)
    result = run("integers", "--count", "7", "--degrees", "2,8", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "results.json").read_text("utf-8"))
    second = numbers["rows"][1]
    assert (second["degree"], second["seconds"], second["highs_seconds"]) == (8, 0.5, 20.0)
    assert "highs" in result.output
    assert (tmp_path / "plot.svg").exists()


def asked(run: Run, monkeypatch: pytest.MonkeyPatch, benchmark: Any, *arguments: object) -> Any:
    """Run a command without its benchmark; return the settings that the benchmark got."""
    found: list[Any] = []
    monkeypatch.setattr(benchmark.BENCHMARK, "run", lambda self: found.append(self.settings))
    result = run(*arguments)
    assert (result.exit_code, "Nothing was measured" in result.stderr) == (1, True), result.output
    return found[0]


def test_every_option_reaches_the_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(
        run, monkeypatch, gradient_benchmark, "gradient", "--sizes", "7,3-4", "--limit", "2", "--profile", "--seed", "5"
    )
    assert found == gradient_benchmark.GradientBenchmarkSettings(sizes=(7, 3, 4), limit=2.0, profile=True, seed=5)
    found = asked(run, monkeypatch, scaling_benchmark, "scaling", "--grids", "none", "--spread", "0")
    assert found == scaling_benchmark.ScalingSettings(grids=(), spread=0)
    found = asked(run, monkeypatch, training_benchmark, "training", "--tasks", "paths,", "--full", "--degree", "2")
    assert found == training_benchmark.TrainingBenchmarkSettings(("paths",), 2, full=True)
    assert asked(run, monkeypatch, memory_benchmark, "memory", "--cap", "512") == memory_benchmark.MemorySettings(
        cap=512.0
    )
    found = asked(run, monkeypatch, integers_benchmark, "integers", "--degrees", "2,8", "--threads", "1")
    assert found == integers_benchmark.IntegerSettings(degrees=(2, 8), threads=1)


def test_quick_leaves_what_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(run, monkeypatch, gradient_benchmark, "gradient", "--quick", "--batches", "4")
    assert found == gradient_benchmark.GradientBenchmarkSettings(sizes=(20,), batches=(4,), repeats=3)
    found = asked(run, monkeypatch, training_benchmark, "training", "--quick")
    assert found == training_benchmark.TrainingBenchmarkSettings(seeds=(0,), quick=True)
    assert asked(run, monkeypatch, scaling_benchmark, "scaling", "--quick").grids == scaling_benchmark.QUICK_GRIDS
    assert asked(run, monkeypatch, memory_benchmark, "memory", "--quick").portfolio_batch == 16


def test_the_help_shows_every_option_and_its_default(run: Run) -> None:
    shown = run("gradient", "--help").output
    for text in ("--sizes", "20,100,500", "--peers-here", "--quick", "--out", "--profile", "Time gradients"):
        assert text in shown
    assert "--peers" not in run("memory", "--help").output


def test_the_help_of_all_benchmarks_is_theirs_and_imports_no_torch(run: Run) -> None:
    for name, text in BENCHMARKS.items():
        assert " ".join(run(name, "--help").output.split()).count(text.split(" ", 3)[-1][:30]) == 1
        if name != "exactness":
            module = importlib.import_module(f"pear_lab.benchmarks.{name.replace('-', '_')}_benchmark")
            assert module.BENCHMARK.options.__doc__ == text
    code = "import sys, pear_lab.cli.bench, pear_lab.cli.stress; sys.exit('torch' in sys.modules)"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # this copy of the package
    subprocess.run([sys.executable, "-c", code], check=True, env=here)


def test_ctrl_c_keeps_what_was_measured(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: gradient_benchmark.GradientBenchmark) -> None:
        self.add_row(gradient_row("pear", 0.002))
        raise KeyboardInterrupt

    monkeypatch.setattr(gradient_benchmark.GradientBenchmark, "run", interrupted)
    result = run("gradient", "--quick", "--out", tmp_path)
    assert result.exit_code == 130, result.output
    numbers = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert numbers["interrupted"] is True
    assert [row["who"] for row in numbers["rows"]] == ["pear"]
    assert (tmp_path / "plot.svg").exists()
    assert "what was measured is kept" in result.stderr


def test_numbers_are_written_row_by_row_and_hold_no_nan(tmp_path: Path) -> None:
    record = BenchmarkRecord("gradient", tmp_path, {"seed": 0}, lambda rows: [TextTable("None", ("who",))])
    record.add(gradient_row("pear", 0.002, largest=math.nan))
    assert json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"][0]["error_largest"] is None
    record.add(gradient_row("pear layer", 0.001))
    assert len(json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]) == 2
    assert list(tmp_path.glob("*.tmp")) == []


def test_settings_are_checked_before_anything_is_measured() -> None:
    with pytest.raises(ProblemError, match="--limit must be a positive number"):
        gradient_benchmark.GradientBenchmarkSettings(limit=0.0)
    with pytest.raises(ProblemError, match="got 'tsp'"):
        training_benchmark.TrainingBenchmarkSettings(tasks=("tsp",))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch.cuda.is_available() is False")
def test_gradients_are_measured_on_a_gpu() -> None:
    pytest.importorskip("qpsolvers", reason="the reference is another solver's")
    rows: list[gradient_rows.GradientRow] = []
    gradient_benchmark.GradientBenchmark(
        gradient_benchmark.GradientBenchmarkSettings(sizes=(8,), batches=(4,), device="cuda", repeats=1, profile=True),
        Callbacks(rows.append),
    ).run()
    assert [row.who for row in rows] == OURS
    assert all(row.error_largest < 1e-8 and row.compared for row in rows)


def test_sparse_solvers_reach_the_same_accuracy_on_every_structure() -> None:
    rows: list[sparse_solvers_benchmark.SparseSolverRow] = []
    settings = sparse_solvers_benchmark.SparseSolverSettings(
        scale=0.1, solvers=("interior-point", "clarabel"), repeats=1
    )
    sparse_solvers_benchmark.SparseSolversBenchmark(settings, Callbacks(rows.append)).run()
    assert {(row.structure, row.solver) for row in rows} == {
        (structure, solver) for structure in sparse_solvers_benchmark.SPARSE_STRUCTURES for solver in settings.solvers
    }
    assert max(row.kkt_residual for row in rows) < 1e-9
    assert len(sparse_solvers_benchmark.SparseSolversBenchmark.tables(rows)[0].rows) == len(rows)
    assert [line.name for line in sparse_solvers_benchmark.SparseSolversBenchmark.series(rows)] == list(
        settings.solvers
    )

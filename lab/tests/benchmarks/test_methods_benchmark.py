"""``pear bench methods``: its tasks, its comparison with a peer, and its errors."""

from __future__ import annotations

import math
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from pear.errors import ProblemError
from pear.losses.methods import METHODS
from pear_lab.benchmarks import methods_benchmark as bench
from pear_lab.benchmarks.benchmark import Callbacks
from pear_lab.benchmarks.step_tasks import STEP_TASKS
from pear_lab.peers import Peer

# a peer whose gradients are those of a path-5 SPO+ step turned round, and whose steps take ten seconds
WORKER = """
    import json, numpy as np
    PACKAGES = ()
    def PREPARE(data, device):
        assert bool(data["integer"]) is False and data["grid"].tolist() == [5, 5]
        found = {"solver": "glop", "tried": json.dumps({"glop": 0.001, "clp": 0.002})}
        for name, (kind, options) in json.loads(str(data["losses"])).items():
            assert (kind, options) in [("SPOPlus", {}), ("PFY", {"n_samples": 1, "sigma": 1.0})]
            found["seconds " + name] = np.full(len(data["true"]), 10.0)
            found["gradient " + name] = np.zeros(data["true"].shape)
        return lambda: found
"""


def test_rows_put_our_median_beside_that_of_a_peer_and_show_gradients_that_differ(tmp_path: Path) -> None:
    worker = tmp_path / "fake_worker.py"
    worker.write_text(textwrap.dedent(WORKER), encoding="utf-8")
    peer = Peer("fake", "Fake", "numpy", worker, ("numpy",), "methods")
    rows: list[bench.MethodRow] = []
    notes: list[str] = []
    settings = bench.MethodsBenchmarkSettings(("path-5",), ("mse", "spo+", "pfyl"), batch=4, repeats=2, rounds=2)
    bench.MethodsBenchmark(settings, Callbacks(rows.append, notes.append), [(peer, Path(sys.executable))]).run()
    assert [(row.method, row.who) for row in rows] == [
        ("mse", "pear"), ("spo+", "pear"), ("spo+", "Fake"), ("pfyl", "pear"), ("pfyl", "Fake"),
    ]  # fmt: skip
    ours, theirs = rows[1], rows[2]
    assert (ours.steps, theirs.steps, theirs.seconds, theirs.solver) == (4, 4, 10.0, "glop")
    assert theirs.ratio == pytest.approx(10.0 / ours.seconds)
    assert theirs.difference == 1.0
    assert math.isnan(rows[4].difference)
    assert notes == ["path-5, Fake: ms a decision: glop 1.00, clp 2.00"]
    (table,) = bench.MethodsBenchmark.tables(rows)
    assert [line[:3] for line in table.rows] == [
        ("path-5", "mse", "–"), ("path-5", "spo+", "Fake: glop"), ("path-5", "pfyl", "Fake: glop"),
    ]  # fmt: skip
    assert {line.name for line in bench.MethodsBenchmark.series(rows)} == {"pear", "Fake"}


def test_the_fastest_peer_counts() -> None:
    rows = [bench.MethodRow("a", "spo+", who, "", s, 1) for who, s in (("pear", 1.0), ("B", 9.0), ("C", 4.0))]
    assert bench.pair_with_fastest_method(rows) == [(rows[0], rows[2])]


@pytest.mark.parametrize("name", ["path-5", "assignment", "portfolio"])
def test_the_arrays_of_a_task_are_the_program_that_it_decides(name: str) -> None:
    task = STEP_TASKS[name](np.random.default_rng(0))
    data = task.arrays()
    sign = -1.0 if data["sense"] == "max" else 1.0
    costs = task.draw_costs(np.random.default_rng(1), (3, task.decider.problem.n))
    decided = task.decider.decide(torch.from_numpy(costs)).numpy()
    bounds = np.stack([data["lb"], data["ub"]], 1)
    for cost, z in zip(costs, decided, strict=True):
        limits = {"A_eq": data["A"], "b_eq": data["b"], "A_ub": data["G"], "b_ub": data["h"]}
        best = linprog(sign * cost, **limits, bounds=bounds).fun
        assert sign * cost @ z == pytest.approx(best, rel=1e-9)


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(ProblemError, match="--tasks must be some of path-5, path-12, knapsack"):
        bench.MethodsBenchmarkSettings(tasks=("maze",))
    with pytest.raises(ProblemError, match="--clock must be one of wall, processor; got 'sun'"):
        bench.MethodsBenchmarkSettings(clock="sun")
    with pytest.raises(ProblemError, match="unknown method 'sp'"):
        bench.MethodsBenchmarkSettings(methods=("sp",))
    assert bench.MethodsBenchmarkSettings().method_names == tuple(row.name for row in METHODS)

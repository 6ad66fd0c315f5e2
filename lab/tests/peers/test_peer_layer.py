"""Peers as trainable layers: a worker process decides and differentiates, and our code does everything else."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from portfolio_runs import AHEAD, ASSETS, batch, prices, reproduce, small, tiny
from torch import Tensor

import pear
from pear_lab.experiments import FILE_NAME, Database, Selection, expand
from pear_lab.experiments.catalogue import EXPERIMENTS, PAPER_PORTFOLIO_METHODS, PEER_METHODS
from pear_lab.experiments.protocols import portfolio_protocol as protocol
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.table_spec import METRICS
from pear_lab.peers import Peer, PeerError, PeerLayer, peer_interpreter
from pear_lab.peers import peer_environment as environment
from pear_lab.peers import peer_table as registry
from pear_lab.report import read
from pear_lab.report.portfolio_section import portfolio_sections
from pear_lab.report.table_cells import StoredRuns
from pear_lab.tasks.market import DecisionUtilityLoss, market_loss

__all__ = ["prices", "tiny"]  # fixtures

EXACT = '''
"""Long-only portfolios of few assets: every set of assets is tried, and torch differentiates the right one."""
from itertools import combinations

import torch

PACKAGES = ("torch",)


def decide(Q, c):
    n = len(c)
    for size in range(1, n + 1):
        for held in map(list, combinations(range(n), size)):
            K = torch.zeros(size + 1, size + 1, dtype=Q.dtype)
            K[:size, :size] = Q[held][:, held]
            K[size, :size] = K[:size, size] = 1
            found = torch.linalg.solve(K, torch.cat([-c[held], c.new_ones(1)]))
            x = torch.zeros_like(c).index_put((torch.tensor(held),), found[:size])
            if x.min() >= 0 and (Q @ x + c + found[size]).min() > -1e-12:
                return x


def LAYER(Q):
    print("words of the peer's own")
    return lambda cost: torch.stack([decide(*pair) for pair in zip(Q, cost)])
'''


def peer_of(folder: Path, code: str, name: str = "qpth") -> Peer:
    worker = folder / "run_fake.py"
    worker.write_text(code, encoding="utf-8")
    return Peer(name, name, "torch", worker, (f"{name}==1.0",))


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerLayer]:
    with PeerLayer(peer_of(tmp_path_factory.mktemp("peer"), EXACT), Path(sys.executable), ASSETS) as layer:
        yield layer


def test_an_exact_peer_trains_as_our_layer_does(exact: PeerLayer) -> None:
    task = pear.tasks.portfolio(ASSETS, risk_aversion=30.0)
    known, days = batch()
    model = small()
    before = dict(exact.seconds)
    found: list[tuple[float, list[Tensor]]] = []
    for loss in (market_loss("layer", task, AHEAD), DecisionUtilityLoss(task, AHEAD, exact)):
        value = loss(model(known), days, keys=torch.arange(len(days)))
        found.append((value.item(), list(torch.autograd.grad(value, list(model.parameters())))))
    (ours, exactly), (theirs, gradients) = found
    assert theirs == pytest.approx(ours, rel=1e-9)
    for a, b in zip(gradients, exactly, strict=True):
        assert float(b.abs().max()) > 0
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-14)
    assert all(exact.seconds[name] > before[name] for name in ("solve", "gradient", "transport"))


def test_a_batch_whose_turn_is_over_has_no_gradient(exact: PeerLayer) -> None:
    cost, Q = (
        torch.ones(2, ASSETS, dtype=torch.float64, requires_grad=True),
        torch.eye(ASSETS).double().expand(2, -1, -1),
    )
    first, second = exact(cost, Q), exact(cost, Q)
    with pytest.raises(PeerError, match="call backward before the next batch"):
        first.sum().backward()
    second.sum().backward()
    assert cost.grad is not None


def test_a_peer_that_fails_says_its_last_words(tmp_path: Path) -> None:
    wrong = "PACKAGES = ()\ndef LAYER(Q):\n    raise ValueError('no such thing')\n"
    with pytest.raises(PeerError, match="qpth failed: ValueError: no such thing"):
        PeerLayer(peer_of(tmp_path, wrong), Path(sys.executable), 3)
    later = "PACKAGES = ()\ndef LAYER(Q):\n    assert len(Q) == 1, 'one at a time'\n    return lambda cost: -cost\n"
    with PeerLayer(peer_of(tmp_path, later), Path(sys.executable), 3) as layer:
        assert layer(torch.ones(1, 3), torch.eye(3)[None]).tolist() == [[-1.0, -1.0, -1.0]]
        with pytest.raises(PeerError, match="one at a time"):
            layer(torch.ones(2, 3), torch.eye(3).expand(2, -1, -1))


@pytest.mark.usefixtures("tiny")
def test_a_peer_is_trained_recorded_and_shown_beside_the_paper(
    prices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PEERS", (peer_of(tmp_path, EXACT),))
    monkeypatch.setattr(protocol, "peer_interpreter", lambda peer, say=None: Path(sys.executable))
    result = reproduce("mvo", "--methods", "layer,qpth", "--data", prices, "--quick", "--seeds", "0")
    assert result.exit_code == 0, result.output
    with Database(Path("out") / FILE_NAME) as database:
        ours, theirs = sorted(database.records(), key=lambda row: row.method)
    assert (theirs.method, theirs.settings) == ("qpth", {**ours.settings, "peer": "qpth==1.0"})
    assert theirs.metrics["regrets"] == pytest.approx(ours.metrics["regrets"], rel=1e-6, abs=1e-12)
    assert [check[3] for check in theirs.history] == pytest.approx([check[3] for check in ours.history], rel=1e-9)
    spent = theirs.timings
    assert spent["transport"] > 0
    parts = [spent[name] for name in ("solve", "gradient", "validation", "rest")]
    assert spent["total"] == pytest.approx(sum(parts), rel=1e-6)
    (section,) = portfolio_sections(read(Path("out") / FILE_NAME))
    lines = [row[:3] for row in section.grids[0].rows]
    assert [line[:2] for line in lines[:5]] == [
        ("Layer (ours)", "ours, n = 1"),
        ("qpth", "ours, n = 1"),
        ("", "paper: qpth"),
        ("CvxpyLayers", "ours, n = 0"),
        ("", "paper: CvxpyLayers"),
    ]
    assert [line[2] for line in lines[2:5]] == ["87.85 ± 7.31", "–", "87.36 ± 7.36"]


def test_a_peer_with_a_longer_time_cap_stands_in_the_same_table(prices: Path) -> None:
    """The row names the cap and the number of finished trainings; of two runs of a seed, the longer one counts."""
    (run,) = expand(["mvo"], Selection(methods=["mse"], seeds=[0], data=str(prices)))
    yardstick = {"regrets": [1.0], "value": [1.0], "normalized_regret": 0.5}
    shared = {"regrets": [1.0], "best": [2.0], "value": [1.0], "dates": ["2020-01-01", "2020-02-01"]}
    numbers = {METRICS[name].source: 0.5 for name in EXPERIMENTS["mvo"].table.metrics if name != "train_seconds"}
    metrics = {**numbers, **shared, "yardsticks": {"equal weight": yardstick}}

    def record(method: str, cap: float, seconds: float, seed: int = 0) -> RunRecord:
        timings, settings = {"total": seconds, "transport": 0.5}, {**run.settings, "time_cap": cap}
        key = f"{method}, {cap:g}, {seed}"
        return RunRecord(key, "mvo", "portfolio", method, seed, settings, "done", metrics=metrics, timings=timings)

    runs = [record("mse", 600.0, 20.0), record("qpth", 600.0, 599.8), record("qpth", 2400.0, 900.0)]
    (section,) = portfolio_sections(StoredRuns(Path(), (*runs, record("qpth", 2400.0, 2400.0, 1)), ()))
    rows = {row[0]: row for row in section.grids[0].rows if row[0]}
    assert rows["MSE"][1] == "ours, n = 1"
    assert rows["qpth"][1] == "ours, n = 2, time cap 2400 s, 1 ended by the time cap"
    place = section.grids[0].header.index("training time, s")
    assert rows["qpth"][place] == "1650.0 ± 1060.7"


def test_peers_are_trained_where_they_are_asked_for_by_name(prices: Path) -> None:
    selection = Selection(seeds=[0], data=str(prices))
    assert [run.method for run in expand(["mvo"], selection)] == list(PAPER_PORTFOLIO_METHODS)
    asked = expand(["mvo"], replace(selection, methods=list(PEER_METHODS)))
    assert [(run.method, run.settings["peer"]) for run in asked] == [
        ("qpth", "qpth==0.0.18"),
        ("cvxpylayers", "cvxpylayers==1.2.0"),
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for Python")
@pytest.mark.usefixtures("tiny")
def test_an_environment_that_cannot_be_made_ends_the_command_before_any_run(
    prices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'ERROR: there is no network'\nexit 1\n", encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(environment.sys, "executable", str(script))
    monkeypatch.setenv("PEAR_CACHE", str(tmp_path / "cache"))
    result = reproduce("mvo", "--methods", "qpth", "--data", prices, "--quick")
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "cannot install qpth" in words
    assert "there is no network" in words
    assert f"copy {tmp_path / 'cache' / 'peers' / 'qpth'} from a machine that has one" in words
    assert not Path("out").exists()


@pytest.mark.parametrize("name", PEER_METHODS)
def test_the_peers_agree_with_our_decisions(name: str) -> None:
    """The test needs the peers' environments, which ``pear bench`` and ``pear reproduce`` make."""
    peer = protocol._layer_peer(name)
    if not (environment.peer_cache_folder() / "peers" / name / environment.READY).is_file():
        pytest.skip(f"no environment of {name}; pear bench gradient --peers {name} makes one")
    random = torch.Generator().manual_seed(0)
    factor = torch.randn(4, 6, 9, generator=random, dtype=torch.float64)
    Q, cost = factor @ factor.mT, torch.randn(4, 6, generator=random, dtype=torch.float64)
    with PeerLayer(peer, peer_interpreter(peer), 6) as layer:
        found = layer(cost, Q)
    decided = pear.solve(pear.tasks.portfolio(6).problem, cost, Q=Q).x
    torch.testing.assert_close(found, decided, rtol=0, atol=1e-3)

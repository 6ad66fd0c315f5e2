"""Tasks in this process and on Ray give the same results, and none is lost with a process or a machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import task_results
import torch
from task_results import results, results_of_deaths

import pear
from pear.engines import (
    Engine,
    EngineError,
    TaskMessage,
    TaskResult,
    TaskStart,
    TaskUpdate,
    check_engine_name,
    ray_engine,
    start,
)
from pear.engines.engine_table import ENGINES
from pear.engines.process_deadline import process_deadline
from pear.train import FitConfig, TuneResult
from pear_lab.experiments import Event, RunSpec, open_folder, run_all
from pear_lab.stress.kill_sweep import SweepProcess, sweep_outcome

pytestmark = pytest.mark.slow  # the cluster: made once, by the first test that asks

PATHS = {"grid": [3, 3], "samples": 80, "time_cap": 60.0, "max_epochs": 2, "degree": 4, "noise": 0.0}
ITEMS = {"items": 5, "dimensions": 2, "capacity_ratio": 0.5, **{k: v for k, v in PATHS.items() if k != "grid"}}


def test_names_of_engines() -> None:
    assert check_engine_name("ray://10.0.0.1:10001") == (ENGINES["ray"], "10.0.0.1:10001")
    for wrong in ("steam", "ray://", "local://here", ""):
        with pytest.raises(EngineError, match=f"there is no engine {wrong!r}; there is local, ray or ray://HOST:PORT"):
            start(wrong)
    with pytest.raises(EngineError, match="jobs must be at least 1; got 0"):
        start("local", 0)
    with pytest.raises(EngineError, match="the engine 'local' does one task at a time; got jobs=2"):
        start("local", 2)


def test_an_engine_whose_package_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(pear.errors.MissingExtraError, match=r"pip install 'pear-dfl\[ray\]'"):
        start("ray")


def test_an_error_of_a_task_is_raised_where_it_came_from() -> None:
    def wrong(tell: Any) -> None:
        raise pear.SolveError("no solution", [3], [2])

    with start("local", 1) as engine, pytest.raises(pear.SolveError, match="no solution"):
        results(engine, (wrong,))


def test_a_call_that_does_not_end_ends_its_process_with_words() -> None:
    """The call into C holds Python's lock, as Ray's calls do, so that no thread or signal handler could end it."""
    code = (
        "import ctypes\n"
        "from pear.engines.process_deadline import process_deadline\n"
        "with process_deadline(60, 'not this'):\n"
        "    pass\n"
        "with process_deadline(0.5, 'it took too long'):\n"
        "    ctypes.PyDLL(None).sleep(600)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "it took too long\n")


def test_a_watched_call_that_ends_in_time_leaves_nothing() -> None:
    before = set(SweepProcess.below(os.getpid()))
    with process_deadline(60, "not this"):
        assert len(set(SweepProcess.below(os.getpid())) - before) == 1
    assert not set(SweepProcess.below(os.getpid())) - before


class BrokenRay:
    """A Ray that does not start."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def init(self, where: str, **given: Any) -> None:
        self.called.append(where)
        raise TimeoutError("no answer.")

    def shutdown(self) -> None:
        self.called.append("shutdown")


def test_a_ray_that_does_not_start_is_tried_again_and_given_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", *ray_engine._VARIABLES):
        monkeypatch.setenv(name, "")  # so that what is set here is taken back
        monkeypatch.delenv(name)
    here, there = BrokenRay(), BrokenRay()
    with pytest.raises(
        EngineError, match=r"cannot start Ray on this machine, in 3 attempts: no answer\. .* engine local"
    ):
        ray_engine._connect_ray(here, None, 2)
    assert here.called == ["local", "shutdown"] * 3
    with pytest.raises(EngineError, match=r"cannot connect to Ray at ray://far:1: no answer\."):
        ray_engine._connect_ray(there, "far:1", 2)
    assert there.called == ["ray://far:1", "shutdown"]


# --- Ray --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of one machine with two cores, to which a test may add others."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    ray.init(made.address, log_to_driver=False, logging_level="ERROR")
    ray.cloudpickle.register_pickle_by_value(task_results)  # tests' helpers cannot be imported by Ray's processes
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def engine(cluster: Any) -> Iterator[Engine]:
    with start("ray") as opened:
        yield opened


def test_rows_are_those_of_local_processes_to_the_digit(engine: Engine, tmp_path: Path) -> None:
    trained = RunSpec("lp-degree", "knapsack", "pear", 0, {**ITEMS, "smoothing": 0.1, "injection": 0.1})
    measured = RunSpec("capacity-shift", "knapsack", "pear", 0, {**trained.settings, "variant": "capacity-shift"})
    failing = RunSpec("lp-degree", "shortest_path", "mse", 0, {**PATHS, "grid": [0, 0]})
    runs = [
        failing,
        trained,
        measured,
        *(RunSpec("lp-degree", "shortest_path", "mse", seed, PATHS) for seed in range(3)),
    ]
    events: list[Event] = []
    with open_folder(tmp_path / "ray") as database:
        run_all(runs, database, listen=events.append, engine=engine)
    with open_folder(tmp_path / "local") as database:
        run_all(runs, database)
    found = sweep_outcome(tmp_path / "ray")
    assert found == sweep_outcome(tmp_path / "local")
    assert len(found) == len(runs)
    ended = [event.run.key for event in events if event.record is not None]
    assert ended.index(measured.key) > ended.index(trained.key)
    assert sorted(ended) == sorted(run.key for run in runs)
    started = [event.run.key for event in events if event.record is None and event.progress is None]
    assert set(started) == set(ended)
    assert engine.slots == 2
    assert engine.free == 2


def summary(tuned: TuneResult) -> Any:
    rows = [(row.candidate, row.epochs, row.regret, row.note) for row in tuned.table()]
    checks = [(check.epoch, check.loss, check.metric) for check in tuned.history.checks]
    return tuned.best, rows, checks, [weights.tolist() for weights in tuned.model.parameters()]


@pytest.mark.usefixtures("cluster")
def test_a_race_ends_as_it_does_here_to_the_digit() -> None:
    task = pear.tasks.shortest_path((3, 3))
    X, C = task.samples(120, degree=6, seed=1)
    candidates = [
        {"method": "mse"},
        {"method": "spo+", "mse_weight": 0.0},
        {"method": "pear", "smoothing": "auto*3", "injection": 0.1, "guidance": 1.0},
    ]
    told: list[Any] = []
    here, there = (
        pear.tune(
            *(task.problem, X, C),
            candidates=candidates, config=FitConfig(max_epochs=6, check_every=1), engine=engine, progress=told.append,
        )
        for engine in ("local", "ray")
    )  # fmt: skip
    assert summary(there) == summary(here)
    assert told[-1].stages == 2
    predicted = there.model(X)
    there.loss(predicted, C).backward()  # and what comes back can be used


def test_a_task_says_how_it_goes_has_one_core_and_its_errors_come_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def task(tell: Any, number: int) -> tuple[int, int, str | None]:
        tell("half way")
        time.sleep(0.5)
        return number, torch.get_num_threads(), os.environ.get("PEAR_DATA")

    def wrong(tell: Any) -> None:
        raise pear.SolveError("no solution", [3], [2])

    monkeypatch.setenv("PEAR_DATA", "/somewhere")
    heard, until = list[TaskUpdate](), time.monotonic() + 20
    while len(heard) < 3 and time.monotonic() < until:  # nothing but the end is heard before the mailbox is there
        heard.clear()
        ticket = engine.submit(task, 7)
        while ticket in engine.tasks:
            engine.wait(heard.append)
    assert heard == [TaskStart(ticket), TaskMessage(ticket, "half way"), TaskResult(ticket, (7, 1, "/somewhere"))]
    with pytest.raises(pear.SolveError, match="no solution") as raised:
        results(engine, (wrong,))
    assert (raised.value.samples, raised.value.statuses) == ([3], [2])


def test_a_task_whose_process_dies_is_done_again_and_given_up_after_two(engine: Engine, tmp_path: Path) -> None:
    once, always = results_of_deaths(engine, tmp_path)
    assert once == "done after 1"
    assert always.startswith("its process died 2 times, the last time with WorkerCrashedError (The worker died")
    assert not engine.tasks


def processes(begin: str) -> list[int]:
    """Return the ids of this process's descendants whose command line starts with ``begin``."""
    return [one.pid for one in SweepProcess.below(os.getpid()) if one.command_line().startswith(begin)]


def test_workers_of_ray_are_its_processes_that_do_a_task(engine: Engine, tmp_path: Path) -> None:
    def task(tell: Any, file: str) -> int:
        Path(file).write_text(str(os.getpid()), "utf-8")
        while Path(file).exists():
            time.sleep(0.05)
        return os.getpid()

    file, found = tmp_path / "busy", list[TaskUpdate]()
    ticket = engine.submit(task, str(file))
    while not (file.exists() and file.read_text("utf-8")):
        engine.wait(found.append)
    busy = [one.pid for one in SweepProcess.below(os.getpid()) if one.is_worker()]
    file.unlink()
    while ticket in engine.tasks:
        engine.wait(found.append)
    assert found[-1] == TaskResult(ticket, busy[0])
    assert len(busy) == 1
    assert len(processes("ray::")) > 1  # its agents and the mailbox, at least


def test_a_mailbox_that_is_killed_is_there_again(engine: Engine) -> None:
    def task(tell: Any) -> str:
        tell("half way")
        time.sleep(0.5)
        return "done"

    def heard() -> list[TaskUpdate]:
        found = list[TaskUpdate]()
        ticket = engine.submit(task)
        while ticket in engine.tasks:
            engine.wait(found.append)
        assert found[-1] == TaskResult(ticket, "done")
        return found

    until = time.monotonic() + 60
    while len(heard()) < 3 and time.monotonic() < until:  # nothing but the end is heard before the mailbox is there
        pass
    old = processes("ray::Mailbox")
    assert old
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    heard()  # which loses no task, and may lose what it says
    while len(heard()) < 3 and time.monotonic() < until:
        pass
    assert len(heard()) == 3
    assert not set(processes("ray::Mailbox")) & set(old)


class Second:
    """A second machine of the cluster; a task keeps the first machine busy while the second exists."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        import ray

        self.cluster, self.gone, self.node = cluster, folder / "gone", cluster.add_node(num_cpus=1)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        busy, gone = folder / "busy", self.gone

        @ray.remote(num_cpus=2, scheduling_strategy=strategy(ray.get_runtime_context().get_node_id(), soft=False))
        def keep_the_first_busy() -> None:
            busy.touch()
            while not gone.exists():
                time.sleep(0.05)

        self.first = keep_the_first_busy.remote()
        while not busy.exists():
            time.sleep(0.05)

    def lose(self) -> None:
        """Kill all processes of the machine and remove it from the cluster; do nothing if that was done before."""
        if self.gone.exists():
            return
        raylet = self.node.all_processes["raylet"][0].process.pid
        for pid in (
            raylet,
            *(one.pid for one in SweepProcess.below(raylet)),
        ):  # with its workers, which would end what they do otherwise
            os.kill(pid, signal.SIGKILL)
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.gone.touch()


def test_a_task_on_a_machine_that_is_lost_is_done_again(cluster: Any, tmp_path: Path) -> None:
    begun, second, found = tmp_path / "begun", Second(cluster, tmp_path), []

    def task(tell: Any, file: str) -> str:
        if not Path(file).exists():
            Path(file).touch()
            time.sleep(600)
        return "done elsewhere"

    with start("ray") as engine:
        ticket = engine.submit(task, str(begun))
        while not found:
            engine.wait(lambda update: found.append(update.value) if isinstance(update, TaskResult) else None)
            if begun.exists():
                second.lose()
        assert found == ["done elsewhere"]
        assert engine.failures[ticket] == 1


@pytest.mark.long
def test_a_sweep_whose_machine_is_lost_has_every_row(cluster: Any, tmp_path: Path) -> None:
    long = {**PATHS, "grid": [5, 5], "samples": 600, "max_epochs": 60, "smoothing": 0.1, "injection": 0.1}
    runs = [RunSpec("lp-degree", "shortest_path", "pear", seed, long) for seed in range(3)]  # a second or more each
    second = Second(cluster, tmp_path)

    def lose_the_second(event: Event) -> None:
        if event.progress or event.record:
            second.lose()

    with start("ray") as engine, open_folder(tmp_path / "ray") as database:
        assert engine.slots == 3
        run_all(runs, database, listen=lose_the_second, engine=engine)
        assert set(database.statuses().values()) == {"done"}
    assert second.gone.exists()
    with open_folder(tmp_path / "local") as database:
        run_all(runs, database)
    assert sweep_outcome(tmp_path / "ray") == sweep_outcome(tmp_path / "local")


@pytest.mark.long
def test_ray_starts_although_its_first_worker_dies() -> None:
    """Ray starts although a worker has died; by default it would wait for this worker without a limit."""
    pytest.importorskip("ray")
    code = (
        "from pear.engines import TaskResult, start\n"
        "with start('ray', 2) as engine:\n"
        "    engine.submit(lambda tell: 7)\n"
        "    while engine.tasks:\n"
        "        engine.wait(lambda update: isinstance(update, TaskResult) and print(update.value))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        killed, until = None, time.monotonic() + 200
        while process.poll() is None and time.monotonic() < until:
            if killed is None:
                killed = next((one.pid for one in SweepProcess.below(process.pid) if _starts_as_worker(one.pid)), None)
                if killed is not None:
                    os.kill(killed, signal.SIGKILL)
            time.sleep(0.02)
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == "7\n"
    assert killed is not None


def _starts_as_worker(pid: int) -> bool:
    """Return whether the process is a worker of Ray that has no name yet.

    The arguments of Ray's raylet contain the same words.
    """
    program, _, rest = SweepProcess(pid).command_line().partition(" ")
    return "default_worker.py" in rest and not program.endswith("raylet")


def test_a_second_cluster_is_refused(cluster: Any) -> None:
    with pytest.raises(EngineError, match=r"connected to a Ray cluster already, and ray://other:1 was asked for"):
        start("ray://other:1")


def test_the_former_name_of_a_failure_says_the_present_one() -> None:
    with pytest.raises(ImportError, match=r"pear\.engines\.TaskLoss is now pear\.engines\.TaskFailure"):
        from pear.engines import TaskLoss  # noqa: F401

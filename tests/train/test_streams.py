"""Training from Parquet files: the same results as from tensors, constant memory, and errors."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.train import FitConfig, History, fit, in_order, shuffled
from pear.train.samples.stream_samples import StreamSamples
from pear_lab.benchmarks import streams_benchmark, workers_benchmark
from pear_lab.benchmarks.benchmark import Callbacks

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TASK = pear.tasks.shortest_path((3, 3))
X, C = TASK.samples(300, degree=4, seed=0)
VALIDATION = TASK.samples(40, degree=4, seed=1)
CONFIG = FitConfig(max_epochs=4, check_every=1, start="standardised")
NAMES = [f"x{j}" for j in range(5)]


def lists(values: Tensor, fixed: bool) -> Any:
    flat = pa.array(values.numpy().ravel())
    if fixed:
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]), flat)


def table_of(features: Tensor = X, costs: Tensor = C, fixed: bool = True) -> Any:
    columns = {name: features[:, j].numpy() for j, name in enumerate(NAMES)}
    row = np.arange(len(costs), dtype=np.int64)
    return pa.table({"row": row, **columns, "x": lists(features, fixed), "cost": lists(costs, fixed)})


def write(folder: Path, table: Any = None, parts: int = 3, group: int = 37) -> Path:
    """Write a folder of Parquet files with row groups of ``group`` rows, in another order than that of their names."""
    table = table_of() if table is None else table
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // parts)
    for part in reversed(range(parts)):
        pq.write_table(table.slice(part * size, size), folder / f"part-{part}.parquet", row_group_size=group)
    (folder / "_metadata.parquet").write_text("no data")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("samples"))


def trained(train: Any, loss: Any = None, **options: Any) -> tuple[list[Tensor], History]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, TASK.problem.n))
    options = {"config": CONFIG} | options
    history = fit(model, loss or pear.PEARLoss(TASK.problem), train, VALIDATION, **options)
    return [parameter.detach() for parameter in model.parameters()], history


def same(one: tuple[list[Tensor], History], other: tuple[list[Tensor], History]) -> bool:
    checks = [[(check.epoch, check.loss, check.metric) for check in run[1].checks] for run in (one, other)]
    return checks[0] == checks[1] and all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))


# --- as from memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["standardised", "mse"])
def test_in_order_the_weights_are_those_of_tensors_to_the_bit(folder: Path, start: Any) -> None:
    config = FitConfig(max_epochs=3, check_every=1, start=start)
    stream = pear.ParquetSamples(folder, features=NAMES, costs="cost")
    in_memory = trained((X, C), order=in_order, config=config)
    streamed = trained(stream, order=in_order, config=config)
    assert same(streamed, in_memory)
    assert "no warm starts are kept" in streamed[1].note


def test_lists_and_plain_columns_and_their_dtypes(tmp_path: Path) -> None:
    folder = write(tmp_path, table_of(fixed=False))
    by_list, by_name = (pear.ParquetSamples(folder, features, "cost").read() for features in ("x", NAMES))
    mixed = pear.ParquetSamples(folder, ["row", "x"], ["cost", "row"]).read()
    assert torch.equal(by_list[0], X)
    assert torch.equal(by_name[0], X)
    assert torch.equal(by_list[1], C)
    assert torch.equal(mixed[0], torch.cat([torch.arange(300)[:, None], X.double()], 1))
    assert mixed[1].shape == (300, 13)


def test_several_inputs_keep_their_integers(folder: Path) -> None:
    samples = pear.ParquetSamples(folder, {"a": NAMES[:2], "hour": "row"}, "cost")
    features, _ = samples.read()
    assert features["a"].shape == (300, 2)
    assert features["hour"].dtype == torch.int64
    assert features["hour"].tolist() == list(range(300))

    class ByHour(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hours, self.last = nn.Embedding(300, 2), nn.Linear(4, TASK.problem.n)

        def forward(self, a: Tensor, hour: Tensor) -> Tensor:
            return self.last(torch.cat([a, self.hours(hour)], 1))

    validation = ({"a": X[:20, :2], "hour": torch.arange(20)}, C[:20])
    assert fit(ByHour(), pear.PEARLoss(TASK.problem), samples, validation, config=CONFIG).epochs == 4


def test_validation_may_come_from_files(folder: Path) -> None:
    files = pear.ParquetSamples(folder, "x", "cost")
    model = nn.Linear(5, TASK.problem.n)
    history = fit(model, pear.PEARLoss(TASK.problem), (X, C), files, config=FitConfig(max_epochs=1))
    assert history.best is not None
    with pytest.raises(pear.ProblemError, match="pass validation="):
        fit(model, pear.PEARLoss(TASK.problem), files)


# --- the order ------------------------------------------------------------------------------------------------------


def epoch_rows(folder: Path, seed: int, size: int = 32, order: Any = shuffled, buffer: int = 64) -> list[list[int]]:
    """Return the row numbers in the batches of one epoch."""
    samples = StreamSamples.read(pear.ParquetSamples(folder, {"row": "row"}, "cost", buffer), nn.Linear(1, 1))
    batches = samples.epoch(size, order, torch.Generator().manual_seed(seed))
    found = []
    for batch in batches:
        assert isinstance(batch.features, dict)
        found.append(batch.features["row"].tolist())
        assert torch.equal(batch.costs, C[found[-1]])
    return found


@pytest.mark.parametrize("size", [1, 32, 100, 1000])
def test_an_epoch_sees_every_sample_once(folder: Path, size: int) -> None:
    batches = epoch_rows(folder, 0, size)
    assert sorted(chain(*batches)) == list(range(300))
    assert {len(batch) for batch in batches[:-1]} <= {size}


def test_shuffling_follows_the_seed(folder: Path) -> None:
    first = epoch_rows(folder, 0)
    assert first == epoch_rows(folder, 0)
    assert first != epoch_rows(folder, 1)
    assert list(chain(*epoch_rows(folder, 0, order=in_order))) == list(range(300))
    # row groups come in another order, and a block of 64 holds samples of two of them at least
    assert max(first[0] + first[1]) - min(first[0] + first[1]) > 64
    assert trained_twice_alike(folder)


def trained_twice_alike(folder: Path) -> bool:
    stream = pear.ParquetSamples(folder, NAMES, "cost", buffer=64)
    return same(trained(stream), trained(stream)) and not same(trained(stream), trained((X, C)))


def test_a_resumed_run_ends_as_an_undisturbed_one(folder: Path, tmp_path: Path) -> None:
    stream = pear.ParquetSamples(folder, NAMES, "cost", buffer=64)
    undisturbed = trained(stream)
    trained(stream, checkpoint=tmp_path / "run.pear", progress=lambda now: now.epoch == 2)
    assert same(trained(stream, checkpoint=tmp_path / "run.pear"), undisturbed)


def test_an_order_of_ones_own_is_that_of_row_groups_and_of_each_block(folder: Path) -> None:
    rows = list(chain(*epoch_rows(folder, 0, order=lambda count, generator: torch.arange(count).flip(0), buffer=32)))
    assert sorted(rows) == list(range(300))
    assert rows[:2] == [242, 241]  # the 26 rows of the last group, then 6 of the one before, turned round


# --- constant memory ------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_samples(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = write(tmp_path, pa.concat_tables([table_of()] * 40), group=500)
    before = pa.total_allocated_bytes()
    stream = pear.ParquetSamples(many, NAMES, "cost", buffer=100)
    samples = StreamSamples.read(stream, nn.Linear(5, TASK.problem.n))
    assert len(samples) == 12_000
    assert len(samples.look()) == 100
    batches = samples.epoch(25, shuffled, torch.Generator().manual_seed(0))
    held = 0
    for batch in batches:
        assert len(batch.costs) == 25
        held = max(held, pa.total_allocated_bytes() - before)
    assert held < 1_000_000  # of 3 MB in all
    loss = pear.PEARLoss(TASK.problem)
    with caplog.at_level(logging.INFO, "pear"):
        trained(stream, loss, config=FitConfig(max_epochs=1, batch_size=1000, start="standardised"))
    assert len(loss.decider.starts) == 0
    assert "12,000 samples in 24 row groups of 3 files) is streamed" in caplog.text
    assert "go by 100, spread evenly," in caplog.text


def test_the_sample_is_spread_over_the_files(folder: Path) -> None:
    costs, rows = pear.ParquetSamples(folder, {"row": "row"}, "cost", buffer=27).sample()
    assert len(costs) == 27
    assert len({int(row) // 37 for row in rows}) > 5


# --- what is refused ------------------------------------------------------------------------------------------------


def with_cell(row: int, value: Any, column: str = "x1") -> Any:
    table = table_of()
    cells = table.column(column).to_pylist()
    cells[row] = value
    return table.set_column(
        table.schema.get_field_index(column), column, pa.array(cells, table.schema.field(column).type)
    )


def test_a_missing_value_is_named_before_the_first_step(tmp_path: Path) -> None:
    stream = pear.ParquetSamples(write(tmp_path, with_cell(150, None)), NAMES, "cost")
    with pytest.raises(pear.DataError, match=r"column 'x1' of row group 1 of .*part-1\.parquet.*row 13 is missing"):
        trained(stream)
    far = pear.ParquetSamples(tmp_path, NAMES, "cost", buffer=8)  # outside of the sample: the files say it
    with pytest.raises(pear.DataError, match=r"'x1' of row group 1 of .*part-1\.parquet has 1 missing value"):
        trained(far)


@pytest.mark.parametrize(("column", "value"), [("x1", float("nan")), ("cost", [1.0] * 11 + [float("inf")])])
def test_what_is_not_finite_is_refused_or_masked(tmp_path: Path, column: str, value: Any) -> None:
    write(tmp_path, with_cell(150, value, column))
    far = pear.ParquetSamples(tmp_path, NAMES, "cost", buffer=8)
    with pytest.raises(pear.DataError, match=rf"'{column}' of row group 1 of .*part-1\.parquet"):
        trained(far)
    keep = torch.arange(300) != 150
    mask = pear.PEARLoss(TASK.problem, on_failure="mask")
    masked = trained(pear.ParquetSamples(tmp_path, NAMES, "cost"), mask, order=in_order)
    assert same(masked, trained((X[keep], C[keep]), order=in_order))


def test_a_missing_list_is_masked(tmp_path: Path) -> None:
    write(tmp_path, with_cell(150, None, "cost"))
    loss = pear.PEARLoss(TASK.problem, on_failure="mask")
    keep = torch.arange(300) != 150
    masked = trained(pear.ParquetSamples(tmp_path, NAMES, "cost"), loss, order=in_order)
    assert same(masked, trained((X[keep], C[keep]), order=in_order))


def test_columns_are_checked_when_it_is_made(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(pear.DataError, match=r"part-0\.parquet must have one column 'z'; got 'row', 'x0'"):
        pear.ParquetSamples(folder, "z", "cost")
    with pytest.raises(pear.ProblemError, match="features must be the name of a column"):
        pear.ParquetSamples(folder, [], "cost")
    pq.write_table(pa.table({"x": ["a"], "cost": [[1.0]]}), tmp_path / "text.parquet")
    with pytest.raises(pear.DataError, match=r"'x' of .*text\.parquet holds string, and a model takes numbers"):
        pear.ParquetSamples(tmp_path, "x", "cost")
    pq.write_table(pa.table({"x": [1.0], "cost": [[1]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1], "cost": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(pear.DataError, match=r"'x' of .*b\.parquet holds int64, and that of .*a\.parquet double"):
        pear.ParquetSamples([tmp_path / "a.parquet", tmp_path / "b.parquet"], "x", "cost")


def test_lists_of_another_length_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "cost": [[1.0, 2.0], [1.0, 2.0], [1.0]]}), tmp_path / "a.parquet")
    with pytest.raises(pear.DataError, match=r"'cost' of row group 0 of .*the list of row 2 has 1 numbers"):
        pear.ParquetSamples(tmp_path, "x", "cost").read()


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(pear.DataError, match="no file and no folder"):
        pear.ParquetSamples(tmp_path / "absent", "x", "cost")
    with pytest.raises(pear.DataError, match=r"no files \*\.parquet"):
        pear.ParquetSamples(tmp_path, "x", "cost")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(pear.DataError, match=r"cut\.parquet cannot be read as a Parquet file"):
        pear.ParquetSamples(tmp_path, "x", "cost")


def test_a_file_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(), path, compression="snappy")
    whole = bytearray(path.read_bytes())
    whole[40:400] = b"\xff" * 360
    path.write_bytes(whole)
    with pytest.raises(pear.DataError, match=r"row group 0 of .*a\.parquet"):
        pear.ParquetSamples(tmp_path, "row", "cost").read()


def test_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(pear.MissingExtraError, match=r"pip install 'pear-dfl\[arrow\]'"):
        pear.ParquetSamples(folder, "x", "cost")


def test_a_problem_with_fields_per_sample_is_refused(folder: Path) -> None:
    problem = pear.Problem(lb=0.0, ub=torch.ones(300, TASK.problem.n), Q=torch.eye(TASK.problem.n))
    with pytest.raises(pear.ProblemError, match="ParquetSamples does not say which sample is which"):
        trained(pear.ParquetSamples(folder, NAMES, "cost"), pear.PEARLoss(problem), metric=lambda *_: 0.0)


# --- the benchmarks -------------------------------------------------------------------------------------------------


def test_the_benchmark_measures_files_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process takes seconds.
    monkeypatch.setattr(streams_benchmark, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    rows: list[Any] = []
    small = streams_benchmark.StreamSettings(
        samples=1000, in_memory=100, batch_size=10, buffer=100, grid=2, folder=str(tmp_path / "files")
    )
    streams_benchmark.StreamsBenchmark(small, Callbacks(rows.append)).run()
    memory = ["memory, no warm starts", "memory, warm starts"]
    assert [row.who for row in rows] == ["Parquet files", "files, only read", *memory]
    assert rows[0].samples == 940  # from 5 % of the run to its last step
    assert rows[1].samples == 1000
    assert rows[3].samples == 290  # after the first of four epochs
    assert rows[0].trained[-1] == 990
    assert list((tmp_path / "files").iterdir()) == []
    (table,) = streams_benchmark.StreamsBenchmark.tables(rows)
    assert table.rows[0][:2] == ("Parquet files", "1,000")
    assert table.rows[0][4] == "1.00"


def test_the_benchmark_refuses_a_disk_without_room(tmp_path: Path) -> None:
    with pytest.raises(pear.DataError, match=r"samples take about 1\.8e\+05 GB.*pass fewer --samples"):
        streams_benchmark.StreamsBenchmark(
            streams_benchmark.StreamSettings(samples=10**12, folder=str(tmp_path)), Callbacks(lambda row: None)
        ).run()


def worker_row(**changes: Any) -> workers_benchmark.WorkerRow:
    row = workers_benchmark.WorkerRow(
        structure="path-5",
        n=40,
        parameters=5000,
        step_bytes=20_000,
        batch_size=100,
        alone=10_000.0,
        busy=8_000.0,
        local=2,
        together=16_000.0,
        latency=1e-3,
        bandwidth=1e7,
        workers=(1, 2, 8),
        samples=(1e6, 1e10),
        price=None,
    )
    return replace(row, **changes)


def test_what_is_to_be_expected_of_workers() -> None:
    row = worker_row()
    assert row.rate(1) == 10_000.0
    # 12.5 ms a step beside another; two sums of 2 messages of 1 ms each, and 20 kB at 10 MB/s
    assert row.rate(2) == pytest.approx(2 * 100 / (12.5e-3 + 4e-3 + 2e-3))
    measured, reckoned = workers_benchmark.WorkersBenchmark.tables([row])
    assert measured.rows == [("path-5", "40", "20", "10,000", "8,000", "2", "16,000", "10,811", "-32 %")]
    assert reckoned.rows[0] == ("path-5", "1", "10,000", "1.67 min", "11.6 d", "278")
    assert len(reckoned.rows) == 3
    assert workers_benchmark.WorkersBenchmark.tables([worker_row(price=2.0)])[1].rows[0][-1] == "556"
    assert [line.joined for line in workers_benchmark.WorkersBenchmark.series([row])] == [True, False]


def test_a_worker_trains() -> None:
    settings = workers_benchmark.WorkerSettings(structures=("path-5",), batch_size=4, steps=2)
    with pytest.raises(pear.ProblemError, match="samples that share their problem"):
        workers_benchmark.WorkerSettings(structures=("box",))
    training = workers_benchmark.WorkersBenchmarkTraining(settings, workers_benchmark.choose_structures(["path-5"])[0])
    assert training.parameters == 41 * 64 + 65 * 40
    assert training.rate(1) > 0

"""Benchmark: training on a unit commitment with predicted demand and prices, in the way of ``pear train``.

The benchmark writes a model file, a table of days, and the command that would train on them. It then trains two
forecasters as ``pear train`` would, one on the squared error and one on the regret of decisions. Both are tested on
the last fifth of the days.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd
import torch

from pear.cli.csv_table import split_at_commas
from pear.cli.model_columns import parse_cost_columns, read_wide_model_columns
from pear.compile.thread_pools import one_thread
from pear.losses.regret_outcome import regret_outcome_of_forecast
from pear.train.estimator.regressor import DecisionRegressor
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.commitment_model import FEATURES, CommitmentModel, draw_commitment_days
from pear_lab.benchmarks.series_plot import Series

_TEST_SHARE = 0.2
_LOSSES = {"MSE": "mse", "PEAR": "pear-guided"}


@dataclass(frozen=True)
class CommitmentSettings(BenchSettings):
    """Train on a unit commitment of 600 variables whose demand and prices are predicted."""

    plants: int = setting(8, "The number of plants.", least=1, quick=2)
    hours: int = setting(24, "The number of hours of a schedule.", least=2, quick=3)
    days: int = setting(360, "The number of days in the table; the last fifth judges.", least=20, quick=24)
    max_epochs: int = setting(64, "The largest number of epochs.", least=1, quick=8)
    time_cap: float = setting(600.0, "Seconds for each of the two trainings.", positive=True)
    seed: int = setting(0, "Seed of plants, days and trainings.")
    folder: str = setting("pear-output/bench/commitment-files", "Where model file and table are written.")
    threads: int | None = setting(None, "The number of threads that solve.", shown="one a core")


@dataclass(frozen=True)
class CommitmentRow:
    """The time and the regret of one training.

    Attributes:
        loss: the name of the loss, "MSE" or "PEAR".
        seconds: the wall time of the training.
        processor: the processor seconds of this process during the training.
        epochs: the number of trained epochs, those on the squared error included.
        stopped: why the training ended.
        regret: the normalised regret on the test days.
        lost: the mean regret of a test day, in the unit of the costs.
        seconds_to_judge: the part of ``seconds`` that went into judging weights on held-out days.
    """

    loss: str
    seconds: float
    processor: float
    epochs: int
    stopped: str
    regret: float
    lost: float
    seconds_to_judge: float


class CommitmentBenchmark(Benchmark[CommitmentSettings, CommitmentRow]):
    """The benchmark of training on a unit commitment, once on the squared error and once with PEAR."""

    options = CommitmentSettings
    labels = Labels("Unit commitment", "training", "seconds")
    columns: ClassVar = {
        "trained with": lambda row: row.loss,
        "regret": lambda row: f"{100 * row.regret:.2f} %",
        "lost a day": lambda row: f"{row.lost:,.0f}",
        "epochs": lambda row: str(row.epochs),
        "seconds": lambda row: f"{row.seconds:.0f}",
        "processor s": lambda row: f"{row.processor:.0f}",
        "of it judging": lambda row: f"{row.seconds_to_judge:.0f}",
        "stopped by": lambda row: row.stopped,
    }

    def run(self) -> None:
        """Write the model file and the table of days, and train on them with each loss."""
        settings, callbacks, folder = self.settings, self.callbacks, Path(self.settings.folder)
        folder.mkdir(parents=True, exist_ok=True)
        drawn = CommitmentModel(settings.plants, settings.hours, settings.seed)
        table = pd.DataFrame(draw_commitment_days(drawn, settings.days, settings.seed)).round(4)
        drawn.write(folder / "plants.lp")
        table.to_csv(folder / "days.csv", index=False)
        command = f"pear train plants.lp days.csv --costs {drawn.costs} --max-epochs {settings.max_epochs}"
        (folder / "command.txt").write_text(f"{command} --time-cap {settings.time_cap:g}\n", "utf-8")
        named, priced = parse_cost_columns(split_at_commas(drawn.costs))
        model, paid = read_wide_model_columns(folder / "plants.lp", named, table, priced, [], None)
        first = len(table) - round(_TEST_SHARE * len(table))
        train, test = table.iloc[:first], table.iloc[first:]
        callbacks.on_note(
            f"{model.problem}; {first} days train, {len(test)} judge; the command is in {folder}/command.txt"
        )
        features, true = list(FEATURES), torch.tensor(test[paid].to_numpy())
        for name, loss in _LOSSES.items():
            callbacks.say(f"training with {name}")
            began, spent = time.perf_counter(), time.process_time()
            with one_thread():  # as in pear train
                estimator = DecisionRegressor(
                    model,
                    loss=loss,
                    max_epochs=settings.max_epochs,
                    time_cap=settings.time_cap,
                    random_state=settings.seed,
                ).fit(train[features], train[paid])
            seconds, processor = time.perf_counter() - began, time.process_time() - spent
            predicted = torch.tensor(estimator.predict(test[features]).to_numpy())
            found, history = regret_outcome_of_forecast(model, predicted, true), estimator.history_
            result = found.normalized, float(found.regret.mean()), history.check_seconds
            self.add_row(CommitmentRow(name, seconds, processor, estimator.n_iter_, history.stopped, *result))
            callbacks.on_note(f"{name}: {history.choice}")

    @classmethod
    def series(cls, rows: list[CommitmentRow]) -> list[Series]:
        """Make one series: a point for each training, with its seconds."""
        return [Series("seconds", [float(k + 1) for k in range(len(rows))], [row.seconds for row in rows])]


BENCHMARK = CommitmentBenchmark

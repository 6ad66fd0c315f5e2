"""The rolling battery of arXiv 2405.14719: forecasts trained on their error, on one plan, and through rollouts.

    PEAR_DATA=… python lab/studies/rolling_battery_study.py [--seeds 5] [--methods …] [--epochs 12] [--out FOLDER]

The command prints the objective of the long test rollout per 100 hours; lower is better. Every training is written to a
file, from which a stopped run continues; ``--table`` prints the existing results. ``perfect`` knows all prices.
``two-stage`` trains the network on the squared error of log-prices. Three methods start from its weights. ``one-step``
trains on the regret of single plans from a half-full battery, and ``rollout`` through rollouts. ``guided rollout`` adds
the squared error of log-prices, times ``--guidance``, to the cost of rollouts, and has no dropout. ``quantile 0.4`` and
the like shift the two-stage forecast to a quantile of its errors on the training hours. ``yesterday`` repeats the last
24 prices.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import pear
from pear_lab.data.pjm_data import load_pjm_hours
from pear_lab.tasks.rolling_battery import HOURS, PUBLISHED, RollingBattery, RollingBatteryNetwork, rolling_battery

WITHOUT_SEED = ("perfect", "yesterday")
TRAINED = ("two-stage", "one-step", "rollout", "guided rollout")
METHODS = (*WITHOUT_SEED, "quantile 0.4", "quantile 0.6", *TRAINED)
HELD_OUT = 0.1  # share of the training hours, the last ones, on which the epoch is chosen


def two_stage(task: RollingBattery, seed: int, epochs: int) -> RollingBatteryNetwork:
    """Return a network trained on the squared error of log-prices, with Adam at 1e-3 and batches of 64."""
    torch.manual_seed(seed)
    hours = task.training_hours()
    features, prices = task.features.float(), task.prices.log().float()
    targets = prices[hours[:, None] + torch.arange(HOURS)]
    network = RollingBatteryNetwork(targets.mean(0), targets.std(0))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for epoch in range(epochs):
        total = 0.0
        for some in torch.randperm(len(hours)).split(64):
            error = nn.functional.mse_loss(network.log_price(features[hours[some]]), targets[some])
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            total += float(error.detach()) * len(some)
        say(f"two-stage, seed {seed}: epoch {epoch + 1} of {epochs}, error {total / len(hours):.5f}")
    return network.eval()


def worth(state: dict[str, Tensor], true: dict[str, Tensor]) -> Tensor:
    """Return minus the value (B,) of the energy left after B rollouts, at the mean price of the next 24 hours."""
    return -true["price"][:, 1:25].mean(1) * state["state"]


class GuidedLoss(pear.RollingLoss):
    """The cost of rollouts, plus ``factor`` times the squared error of log-prices.

    Args:
        task: the battery.
        factor: the weight of the squared error.
    """

    def __init__(self, task: RollingBattery, factor: float) -> None:
        super().__init__(task.rolling, terminal=worth)
        self.factor = factor

    def forward(self, predicted: Tensor, true: Tensor, keys: Any = None, weight: Any = None) -> Tensor:
        """Return the loss of B rollouts of S hours, with predicted and true prices (B, S, 48) of 48 hours each."""
        cost = super().forward(predicted, true, keys, weight)
        return cost + self.factor * nn.functional.mse_loss(predicted.log(), true.log())


def through_rollouts(
    task: RollingBattery, network: RollingBatteryNetwork, method: str, seed: int, given: argparse.Namespace
) -> str:
    """Train a network in place, through rollouts from hours drawn at random; return a summary of the training."""
    loss = pear.RollingLoss(task.rolling, terminal=worth)
    if method == "guided rollout":
        loss = GuidedLoss(task, given.guidance)
        for layer in network.layers:
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
    hours = task.training_hours()[: -given.rollout_steps]
    cut = int((1 - HELD_OUT) * len(hours))
    drawn = torch.randperm(cut - given.rollout_steps, generator=torch.Generator().manual_seed(seed))[: given.rollouts]
    apart = hours[cut :: max(1, 10 * (len(hours) - cut) // given.rollouts)]
    train, held_out = (task.rollouts(starts, given.rollout_steps) for starts in (hours[drawn], apart))
    exact = pear.RollingLoss(task.rolling, smoothing=0.0, terminal=worth)
    return fit(network, (loss, exact), (train, held_out), seed, given, f"{method}, seed {seed}", batch=16)


def on_single_plans(task: RollingBattery, network: RollingBatteryNetwork, seed: int, given: argparse.Namespace) -> str:
    """Train a network in place on the regret of 48-hour plans from a half-full battery; return a summary."""
    hours = task.training_hours()
    cut = int((1 - HELD_OUT) * len(hours))
    drawn = torch.randperm(cut, generator=torch.Generator().manual_seed(seed))[: given.rollouts * given.rollout_steps]
    parts = [(task.features[some], task.windows(some)) for some in (hours[drawn], hours[cut::7])]
    loss, exact = pear.PEARLoss(task.rolling.model), pear.PEARLoss(task.rolling.model, 0.0, 0.0, 0.0)
    return fit(network, (loss, exact), (parts[0], parts[1]), seed, given, f"one-step, seed {seed}", batch=64)


def fit(
    network: RollingBatteryNetwork,
    losses: tuple[Any, Any],
    parts: tuple[Any, Any],
    seed: int,
    given: argparse.Namespace,
    what: str,
    batch: int,
) -> str:
    """Train a network in place with Adam, and return a summary of the training.

    The network keeps the weights of the best epoch on the held-out samples, or those of the start if no epoch is
    better.

    Args:
        network: the network.
        losses: the loss of the training, and the loss without smoothing by which epochs are compared.
        parts: the samples for training, and the held-out samples.
        seed: the seed of the order of the samples.
        given: the command line.
        what: the name of the training.
        batch: the number of samples in a batch.
    """
    config = pear.FitConfig(
        learning_rate=given.rate, batch_size=batch, max_epochs=given.epochs, check_every=1, min_improvement=1e-4,
        seed=seed, start="given", time_cap=given.minutes * 60,
    )  # fmt: skip
    train, held_out = (tuple(part.float() if part.is_floating_point() else part for part in one) for one in parts)

    def judge(predicted: Tensor, true: Tensor) -> float:
        with torch.no_grad():
            return float(losses[1](predicted, true))

    with torch.no_grad():
        before, weights = judge(network(held_out[0]), held_out[1]), copy.deepcopy(network.state_dict())
    history = pear.fit(
        network, losses[0], train, held_out, judge, config,
        optimizer=torch.optim.Adam(network.parameters(), given.rate),
        progress=lambda check: say(f"{what}: {check}"), checkpoint=given.out / f"{what}.checkpoint",
    )  # fmt: skip
    network.eval()
    assert history.best is not None
    if history.best.metric >= before:
        network.load_state_dict(weights)
    return f"{history.epochs} epochs, held-out {before:.3f} at the start, {history.best.metric:.3f} at best"


def forecast(task: RollingBattery, method: str, seed: int, given: argparse.Namespace) -> tuple[Tensor, float, str]:
    """Return the forecasts (S, 48) at S test hours, the seconds of training, and a summary of the training."""
    hours = task.test_hours(given.steps)
    if method == "perfect":
        return task.windows(hours), 0.0, ""
    if method == "yesterday":
        return task.prices[hours[:, None] - 24 + torch.arange(HOURS) % 24], 0.0, ""
    network, seconds, note = trained(task, method if method in TRAINED else "two-stage", seed, given)
    with torch.no_grad():
        found = network.log_price(task.features[hours].float()).double()
        if method.startswith("quantile"):
            past = task.training_hours()[::7]
            errors = task.windows(past).log() - network.log_price(task.features[past].float())
            found = found + errors.quantile(float(method.split()[1]), dim=0)
    return found.exp(), seconds, note


def trained(
    task: RollingBattery, method: str, seed: int, given: argparse.Namespace
) -> tuple[RollingBatteryNetwork, float, str]:
    """Return the network of a method and a seed, the processor seconds of its training, and a summary of the training.

    If there is a file of this network, it is read, and nothing is trained.
    """
    file, network = given.out / f"{method}-{seed}.pt", RollingBatteryNetwork(torch.zeros(HOURS), torch.ones(HOURS))
    if not file.exists():
        began, note = time.process_time(), ""
        if method == "two-stage":
            network = two_stage(task, seed, given.start_epochs)
        else:
            network = trained(task, "two-stage", seed, given)[0]
            torch.manual_seed(100 + seed)
            note = (
                on_single_plans(task, network, seed, given)
                if method == "one-step"
                else through_rollouts(task, network, method, seed, given)
            )
        torch.save({"weights": network.state_dict(), "seconds": time.process_time() - began, "note": note}, file)
    saved = torch.load(file, weights_only=True)
    network.load_state_dict(saved["weights"])
    return network.eval(), saved["seconds"], saved["note"]


def say(line: str) -> None:
    """Print a line of progress with the time."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the mean objective of each method, with its deviation over the seeds."""
    perfect = next((row["objective"] for row in rows if row["method"] == "perfect"), float("nan"))
    print("| | objective of 100 hours | share of perfect | seeds | published | share of perfect |")
    print("|---|---:|---:|---:|---:|---:|")
    for method in METHODS:
        values = np.array([row["objective"] for row in rows if row["method"] == method])
        if len(values):
            spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
            told = PUBLISHED.get(method)
            there = f"{told:.2f} | {100 * told / PUBLISHED['perfect']:.1f} %" if told else " | "
            share = 100 * values.mean() / perfect
            print(f"| {method} | {values.mean():.2f}{spread} | {share:.1f} % | {len(values)} | {there} |")


def main() -> None:
    """Do the missing runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epochs", type=int, default=3, help="epochs of the trainings on decisions")
    parser.add_argument("--start-epochs", type=int, default=10, help="epochs of the squared error")
    parser.add_argument("--rollouts", type=int, default=320, help="rollouts in an epoch, from hours drawn at random")
    parser.add_argument("--rollout-steps", type=int, default=24, help="steps of a rollout in training")
    parser.add_argument("--rate", type=float, default=1e-4, help="learning rate of the trainings on decisions")
    parser.add_argument("--guidance", type=float, default=50.0, help="factor of the squared error of log-prices")
    parser.add_argument("--minutes", type=float, default=1e6, help="most minutes of a training on decisions")
    parser.add_argument("--steps", type=int, help="steps of the test rollout; all where left out")
    parser.add_argument("--out", type=Path, default=Path("build/rolling-battery"))
    parser.add_argument("--table", action="store_true", help="print what is there, and run nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    runs = [(method, seed) for method in given.methods for seed in range(1 if method in WITHOUT_SEED else given.seeds)]
    files = {(method, seed): given.out / f"{method}-{seed}.json" for method, seed in runs}
    missing = [] if given.table else [key for key, file in files.items() if not file.exists()]
    if missing:
        task = rolling_battery(load_pjm_hours())
        parts = [forecast(task, *key, given) for key in missing]
        say(f"the long test rollout of {len(missing)} forecasts")
        values = task.evaluate(torch.stack([part[0] for part in parts])).tolist()
        for (method, seed), value, (_, seconds, note) in zip(missing, values, parts, strict=True):
            row = {"method": method, "seed": seed, "objective": value, "seconds": seconds, "note": note}
            files[method, seed].write_text(json.dumps(row), "utf-8")
    print_table([json.loads(file.read_text("utf-8")) for file in files.values() if file.exists()])


if __name__ == "__main__":
    main()

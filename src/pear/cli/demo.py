"""``pear demo``: a forecaster trained on its error and on its regret, and a figure of both trainings."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import pear
from pear.cli.console import out, print_plain
from pear.cli.gain_sentence import gain_sentence
from pear.cli.output_files import writable_output_folder, write_output_json
from pear.optional_packages import require_packages
from pear.pages.figure_style import LIGHT, save_figure, style_plain_log_scale, styled_figure, write_figure_headline
from pear.wording import format_two_decimal_percent

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pear.tasks import ShortestPath, Split
    from pear.train import History


TIME_CAP = 45.0
"""Time limit of one training in seconds, so that the demo ends within about a minute on any machine."""


def demo_command(
    seed: Annotated[int, typer.Option(help="Seed of the data, the first weights and the batches.")] = 0,
    degree: Annotated[int, typer.Option(help="How far the costs are from linear; 1 is linear.")] = 8,
    noise: Annotated[float, typer.Option(help="Half-width of the random factor on every cost.")] = 0.5,
    grid: Annotated[int, typer.Option(help="The number of nodes on a side of the grid.")] = 5,
    to: Annotated[Path, typer.Option("--out", help="Folder for the picture and the numbers.")] = Path(
        "pear-output/demo"
    ),
    samples: Annotated[
        int, typer.Option(help="The number of samples: half train, a quarter validates, a quarter tests.")
    ] = 2000,
    max_epochs: Annotated[
        int, typer.Option(help="The largest number of epochs; training stops early if more do not help.")
    ] = 300,
) -> None:
    """Train a forecaster of shortest paths on its error (MSE) and on its regret (PEAR), and compare the decisions."""
    import torch
    from torch import nn

    from pear.compile.thread_pools import one_thread
    from pear.losses import MSELoss

    require_packages("the demo", "matplotlib")
    task = pear.tasks.shortest_path((grid, grid))
    split = task.split(task.samples(samples, degree=degree, noise=noise, seed=seed))
    folder = writable_output_folder(to)
    with torch.random.fork_rng(devices=[]):  # the first weights depend only on the seed
        torch.manual_seed(seed)
        untrained = nn.Linear(split.train.features.shape[1], task.problem.n)
    losses = {"MSE": MSELoss(task.problem), "PEAR": pear.PEARLoss(task.problem)}
    print_plain(_describe_demo(task, split, degree))
    with one_thread():
        _compile_before_demo(task, untrained, split)
        before = _measure_demo_regret(task, untrained, split)
        config = pear.FitConfig(max_epochs=max_epochs, time_cap=TIME_CAP, seed=seed)
        histories, regrets = {}, {}
        for name, loss in losses.items():
            model = copy.deepcopy(untrained)
            histories[name] = _train_for_demo(name, model, loss, split, config)
            regrets[name] = _measure_demo_regret(task, model, split)
    settings = {"seed": seed, "degree": degree, "noise": noise, "grid": grid, "samples": samples}
    trained = {name: {"test_regret": regrets[name], **history.as_dict()} for name, history in histories.items()}
    start = {"version": pear.__version__, "settings": settings, "untrained": {"test_regret": before}}
    write_output_json(folder / "demo.json", {**start, **trained})
    title = gain_sentence(regrets["MSE"], regrets["PEAR"]).partition(":")[0]
    done = f"Shortest paths on a {grid}×{grid} grid: costs of degree {degree}, noise {noise:g}, seed {seed}"
    draw_demo(folder / "demo.png", title, done, before, regrets, histories)
    _print_demo_regrets(before, regrets, histories)
    print_plain(f"Picture: {folder / 'demo.png'}\nNumbers: {folder / 'demo.json'}")


def _describe_demo(task: ShortestPath, split: Split, degree: int) -> str:
    """Return sentences on the task of the demo, the degree of its costs and the numbers of its samples."""
    features = split.train.features.shape[1]
    train, validation, test = (len(part.features) for part in split)
    return (
        f"A linear model forecasts the costs of {task.problem.n} roads, of degree {degree} in {features} features.\n"
        f"The cheapest path under the forecast is taken, and paid for at the true costs.\n"
        f"{train:,} samples train, {validation:,} choose between trainings, {test:,} test the decisions.\n"
    )


def _measure_demo_regret(task: ShortestPath, model: nn.Module, split: Split) -> float:
    """Return the normalised regret of a model's decisions on the test samples."""
    import torch

    with torch.no_grad():
        return task.normalized_regret(model(split.test.features), split.test.costs)


def _compile_before_demo(task: ShortestPath, untrained: nn.Module, split: Split) -> None:
    """Train a copy of the model for one epoch on two samples, so that compilation does not count as training time."""
    two = split.train.features[:2], split.train.costs[:2]
    config = pear.FitConfig(max_epochs=1, start="given")
    pear.fit(copy.deepcopy(untrained), pear.PEARLoss(task.problem), two, two, lambda predicted, true: 0.0, config)


def _train_for_demo(
    name: str, model: nn.Module, loss: Callable[..., Tensor], split: Split, config: pear.FitConfig
) -> History:
    """Train a model, and return the history of the training.

    A progress bar with the label ``name`` is shown. Ctrl-C exits without a result.
    """
    with Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description:5}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=out,
    ) as bar:
        line = bar.add_task(name, total=config.max_epochs, state="starting")

        def show(now: pear.train.Progress) -> None:
            state = f"epoch {now.epoch:3}, validation regret {format_two_decimal_percent(now.metric)}"
            bar.update(line, completed=now.epoch, state=state)

        history = pear.fit(model, loss, split.train, split.validation, config=config, progress=show)
        if history.interrupted:
            out.print("Stopped; nothing is saved.")
            raise typer.Exit(130)
        if not history.epochs:
            bar.update(line, state="solved in closed form, without epochs")
        bar.update(
            line, total=history.epochs, completed=history.epochs
        )  # show a full bar if the training stopped early
    return history


def _print_demo_regrets(before: float, regrets: dict[str, float], histories: dict[str, History]) -> None:
    """Print test regrets, epochs and seconds of all trainings, and a sentence on what PEAR gains.

    Args:
        before: the test regret before training.
        regrets: the test regrets after training, by name of the loss.
        histories: the training histories, by name of the loss.
    """
    table = Table()
    for heading in ("trained with", "test regret", "epochs", "seconds"):
        table.add_column(heading, justify="left" if heading == "trained with" else "right")
    table.add_row("nothing yet", format_two_decimal_percent(before), "0", "")
    for name, history in histories.items():
        table.add_row(name, format_two_decimal_percent(regrets[name]), str(history.epochs), f"{history.seconds:.1f}")
    out.print(table)
    capped = [name for name, history in histories.items() if history.stopped == "time_cap"]
    if capped:
        out.print(f"Stopped by the limit of {TIME_CAP:.0f} seconds, before it was done: {', '.join(capped)}.")
    print_plain(f"MSE: {histories['MSE'].start}.\nPEAR: {histories['PEAR'].choice}.")
    print_plain(gain_sentence(regrets["MSE"], regrets["PEAR"]), "bold")


_LEAST_SHOWN = 1e-5  # smaller regrets are drawn as this one, because the scale is logarithmic
_TICK_RATIO = 1.5  # the least ratio of the last two ticks, so that their numbers do not overlap
_POINTS_PER_INCH = 72
_NAME_DISTANCE = 16  # points between the middles of two names
_NAME: dict[str, Any] = {"fontsize": 12, "fontweight": "bold", "va": "center"}


def draw_demo(
    path: Path,
    title: str,
    subtitle: str,
    untrained: float,
    test_regret: dict[str, float],
    histories: dict[str, History],
) -> Path:
    """Save a figure with bars of the test regret and curves of the validation regret, and return its path.

    Args:
        path: the PNG file to write.
        title: the heading of the figure.
        subtitle: the line below the heading, which describes the experiment.
        untrained: the test regret before training.
        test_regret: the test regrets after training, by name of the loss.
        histories: the training histories, by name of the loss.
    """
    with styled_figure((10, 4.8), widths=(1, 1.6)) as (figure, (left, right)):
        write_figure_headline(figure, title, subtitle)
        _draw_demo_bars(left, untrained, test_regret)
        _draw_demo_curves(right, histories)
        return save_figure(figure, path)


def _draw_demo_bars(axes: Any, untrained: float, regret: dict[str, float]) -> None:
    """Draw a bar of the test regret for each loss; ``untrained`` is the regret before training."""
    axes.set_title("Test regret, % of the best possible cost")
    heights = [100 * value for value in regret.values()]
    bars = axes.bar(range(len(regret)), heights, width=0.6, color=[LIGHT[name.lower()] for name in regret])
    axes.bar_label(
        bars,
        [format_two_decimal_percent(value) for value in regret.values()],
        padding=4,
        fontsize=13,
        fontweight="bold",
    )
    axes.set_xlim(-0.6, len(regret) - 0.4)
    axes.set_ylim(0, 1.15 * max(heights) or 1.0)
    axes.set_xticks(range(len(regret)), [f"trained with {name}" for name in regret])
    axes.set_xlabel(f"before training: {format_two_decimal_percent(untrained)}", labelpad=7)


def _draw_demo_curves(axes: Any, histories: dict[str, History]) -> None:
    """Draw the validation regret of PEAR's trainings over their epochs, and that of MSE as a horizontal line."""
    axes.set_title("Validation regret, % (log scale)")
    rows, mse = histories["PEAR"].race, histories["MSE"].best
    whole = [row for row in rows if row.contender != "start" and row.share == 1]
    epochs = sorted({row.epochs for row in whole} or {1})
    first, last = epochs[0], epochs[-1]
    ends: list[tuple[float, str, str]] = []
    if mse is not None:
        level = 100 * max(mse.metric, _LEAST_SHOWN)
        axes.plot([first, last], [level, level], linewidth=2.2, color=LIGHT["mse"])
        ends.append((level, "MSE", LIGHT["mse"]))
    for name, line in (("correction", "-"), ("fresh model", "--")):
        own = [(row.epochs, 100 * max(row.metric, _LEAST_SHOWN)) for row in whole if row.contender == name]
        if own:
            axes.plot(*zip(*own, strict=True), line, linewidth=2.2, marker="o", markersize=4, color=LIGHT["pear"])
            ends.append((own[-1][1], name, LIGHT["pear"]))
    best = histories["PEAR"].best
    if best is not None:
        place = best.epoch, 100 * max(best.metric, _LEAST_SHOWN)
        axes.plot(*place, "o", markersize=11, fillstyle="none", color=LIGHT["pear"])
    style_plain_log_scale(axes, "y")
    axes.set_xscale("log")
    axes.set_xlim(first / 1.4, last * (last / first) ** 0.4 * 1.4)  # with room for the names
    ticks = [one for one in epochs if one == last or one * _TICK_RATIO <= last]
    axes.set_xticks(ticks, [str(one) for one in ticks])
    axes.minorticks_off()
    axes.set_xlabel("epochs of PEAR (circled: what is kept)", labelpad=7)
    _name_demo_curves(axes, last, ends)


def _name_demo_curves(axes: Any, last: float, ends: list[tuple[float, str, str]]) -> None:
    """Write the names of curves at their right ends, or above them where two names would overlap.

    Args:
        axes: the axes, with all curves and their scales.
        last: the last epoch.
        ends: the last value of each curve, its name and its colour.
    """
    axes.figure.draw_without_rendering()  # places the axes
    top = -math.inf
    for value, name, color in sorted(ends):
        height = axes.transData.transform((last, value))[1] * _POINTS_PER_INCH / axes.figure.dpi
        top = max(height, top + _NAME_DISTANCE)
        place: dict[str, Any] = {"xytext": (8, top - height), "textcoords": "offset points"}
        axes.annotate(name, (last, value), color=color, **place, **_NAME)

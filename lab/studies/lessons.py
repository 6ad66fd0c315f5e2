"""The measurements behind ``docs/when-it-works.md``: one lesson at a time, or several.

    python lab/studies/lessons.py vertices units
    PEAR_DATA=… python lab/studies/lessons.py gradients building

The command prints the table of each lesson, writes it between the lesson's marks on the page, and draws
``docs/images/lessons-NAME.svg``. With ``--out FOLDER`` the pictures are drawn there, and the page is unchanged. A
lesson takes up to three minutes on one core; ``samples`` takes six. Losses have their present defaults if a lesson
names no setting. Seeds begin at 100, so that no table of results has them.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import pear
from lesson_parts import (
    ALONE,
    COLORS,
    GIVEN,
    GUIDED,
    MSE,
    PEAR,
    Trial,
    assignment_samples,
    band,
    cosine,
    flat_share,
    fresh,
    instances,
    knapsack_samples,
    least_squares,
    mean_slope,
    path_samples,
    spread,
    table,
    trial,
)
from pear.decisions import choose_smoothing
from pear.pages.figure_style import LIGHT, OURS, save_figure, style_plain_log_scale, styled_figure
from pear.tasks import Samples, ShortestPath
from pear.train.fit_config import Start
from pear_lab.data import load_building, load_energy
from pear_lab.tasks import SharedLinear, Subset, building, building_split, energy_split

ROOT = Path(__file__).resolve().parents[2]
PAGE, IMAGES = ROOT / "docs" / "when-it-works.md", ROOT / "docs" / "images"
SEEDS = range(100, 105)
PUBLISHED: dict[str, Any] = {"smoothing": 0.1, "injection": 0.1, "guidance": 0.0}
WIDE = (9.4, 3.4)


def gradients(figure: Path) -> str:
    """Measure how many gradients are zero during training on energy prices, with and without guidance."""
    data, capacities, seeds = load_energy(), (120.0, 180.0), range(100, 108)
    losses = {MSE: {}, PEAR: PUBLISHED, HELPED: {**PUBLISHED, "guidance": 10.0}}
    runs: dict[tuple[str, float], list[EnergyRun]] = {}
    for size in capacities:
        split = energy_split(data, size)
        for name, options in losses.items():
            loss = (lambda: pear.PEARLoss(split.train.task.problem, **options)) if options else nn.MSELoss  # noqa: B023
            runs[name, size] = [energy_run(split, data.weights, loss, seed) for seed in seeds]
    bound = {size: STUCK * float(np.median([run.regret for run in runs[MSE, size]])) for size in capacities}
    rows = {}
    for (name, size), found in runs.items():
        regret, flat = [run.regret for run in found], np.array([run.flat for run in found])
        cells = [f"{share:.0f}" for share in flat[:, [0, 1, -1]].mean(0)] if name != MSE else ["", "", ""]
        stuck = f"{sum(lost > bound[size] for lost in regret)} of {len(found)}"
        rows[f"capacity {size:g}, {name}"] = [*cells, f"{np.median(regret):.2f}", f"{max(regret):.2f}", stuck]
    draw_gradients(figure, {name: runs[name, capacities[-1]] for name in (PEAR, HELPED)}, bound[capacities[-1]])
    when = [f"zero gradients, %: epoch {epoch}" for epoch in (WATCHED[0], WATCHED[1], WATCHED[-1])]
    return table("", rows, (*when, "test regret, %: median", "worst", "stuck starts"))


HELPED = "the same with guidance"
WATCHED = (1, 5, 10, 15, 20, 30, 40, 50, 60)
STUCK = 1.5
"""A start is stuck if its regret exceeds this many times the median regret of MSE."""


class EnergyRun(NamedTuple):
    """The result of one training on energy prices.

    ``regret`` is the test regret in percent. For each epoch of ``WATCHED``, ``flat`` has the percentage of zero
    gradients, and ``deviation`` the standard deviation of the forecasts divided by that of the costs. After a training
    on the squared error, ``flat`` has only zeros, and ``deviation`` is empty.
    """

    regret: float
    flat: list[float]
    deviation: list[float]


def energy_run(split: Any, weights: Tensor, make: Callable[[], nn.Module], seed: int) -> EnergyRun:
    """Train on energy prices with the loss that ``make`` returns, and return the result.

    Args:
        split: the samples for training, for validation and for the test.
        weights: the weights of the knapsack's items.
        make: a function that returns a new loss.
        seed: the seed of the first weights and of the batches.
    """
    one, (x, c) = Trial(split.train, split.validation, split.test), split.train.samples
    model, loss = fresh(lambda: SharedLinear(x.shape[-1], weights), seed), make()
    flat, deviation = [], []

    def look(now: pear.train.Progress) -> None:
        if now.epoch in WATCHED and isinstance(loss, pear.PEARLoss):
            with torch.no_grad():
                predicted = model(x)
            flat.append(flat_share(loss.problem, predicted[::4], c[::4], PUBLISHED["smoothing"]))
            deviation.append(float(predicted.std() / c.std()))

    config = pear.FitConfig(check_every=5, patience=len(WATCHED) + 5, max_epochs=WATCHED[-1], seed=seed, start="given")
    return EnergyRun(one.fit(model, loss, config, progress=look), flat or [0.0] * len(WATCHED), deviation)


def draw_gradients(figure: Path, runs: Mapping[str, Sequence[EnergyRun]], bound: float) -> None:
    """Draw zero gradients and deviations over the epochs as lines, and final regrets as dots.

    Each seed has a line and a dot. A run whose test regret is above ``bound`` has the colour of a stuck start.
    """
    with styled_figure(WIDE, widths=(1.0, 1.0, 0.8)) as (drawing, (left, middle, right)):
        for place, (name, found) in enumerate(runs.items()):
            color = COLORS[(PEAR, GUIDED)[place]]
            for start, run in enumerate(found):
                look = {"color": LIGHT["worse"] if run.regret > bound else color, "lw": 1.4}
                left.plot(WATCHED, run.flat, **look)
                middle.plot(WATCHED, run.deviation, **look)
                right.plot(place + 0.05 * start, run.regret, "o", **look)
            left.plot([], [], color=color, label=name)
        left.plot([], [], color=LIGHT["worse"], label="a stuck start")
        left.set(title="Zero gradients, %", xlabel="epoch", ylim=(0, None))
        middle.set(title="Deviation of the forecasts", xlabel="epoch", ylim=(0, None))
        right.set(title="Test regret, %", ylim=(0, None), xticks=(0.2, 1.2), xlim=(-0.3, 1.7))
        right.set_xticklabels(["published", "with guidance"])
        drawing.legend(loc="outside lower center", ncols=3)
        save_figure(drawing, figure)


def vertices(figure: Path) -> str:
    """Measure how many gradients are zero, and what the smoothing costs in regret, by the strength of the smoothing."""
    multiples = (0.003, 0.01, 0.03, 0.1, 0.3, choose_smoothing.STRENGTH, 1.0, 3.0, 10.0)
    flat: dict[str, list[list[float]]] = {}
    price: dict[str, list[list[float]]] = {}
    for name, make in PROBLEMS.items():
        flat[name], price[name] = [], []
        for seed in SEEDS:
            problem, (x, c) = make(seed)
            loss = pear.PEARLoss(problem, smoothing="auto")
            unit = loss.calibrate(c) / choose_smoothing.STRENGTH
            assert loss.units is None
            relaxed, true, predicted = problem.relaxed(), c[:200].double(), least_squares(x, c)[:200]
            lams = [multiple * unit for multiple in multiples]
            flat[name].append([flat_share(problem, predicted, true, lam) for lam in lams])
            best = pear.solve(relaxed, true).x
            decided = [pear.solve(relaxed, true, smoothing=lam).x for lam in lams]
            lost = [float((true * (z - best)).sum().abs() / (true * best).sum().abs()) for z in decided]
            price[name].append([100 * share for share in lost])
    colors = (*OURS[:2], LIGHT["spo"], LIGHT["mse"], LIGHT["pfyl"])
    with styled_figure(WIDE, widths=(1.0, 1.0)) as (drawing, (left, right)):
        for name, color in zip(PROBLEMS, colors, strict=False):
            band(left, multiples, flat[name], color, name)
            band(right, multiples, price[name], color, "")
        for axes in (left, right):
            axes.axvline(choose_smoothing.STRENGTH, color=LIGHT["muted"], lw=1, ls=":")
            axes.set_xlabel('ρ (dotted: smoothing="auto")')
            style_plain_log_scale(axes, "x")
        left.set(title="Wrong decisions with a zero gradient, %", ylim=(0, 102))
        right.set(title="Regret of the smoothed decision at ĉ = c, %", ylim=(0, 20))
        drawing.legend(loc="outside lower center", ncols=len(PROBLEMS))
        save_figure(drawing, figure)
    shown = [multiples.index(value) for value in (0.01, 0.1, choose_smoothing.STRENGTH, 1.0, 3.0)]
    rows = {}
    for name in PROBLEMS:
        share, lost = np.mean(flat[name], 0), np.mean(price[name], 0)
        rows[name] = [f"{share[i]:.0f} ({lost[i]:.2f})" for i in shown]
    return table("zero gradients, % (price, %)", rows, [f"ρ = {multiples[i]:g}" for i in shown])


PROBLEMS: dict[str, Callable[[int], tuple[pear.Problem, Samples]]] = {
    "paths, degree 2": lambda seed: path_samples(2, seed),
    "paths, degree 8": lambda seed: path_samples(8, seed),
    "knapsack, degree 8": lambda seed: knapsack_samples(8, seed),
    "assignment": assignment_samples,
}


def active_sets(figure: Path) -> str:
    """Measure how often the active sets at forecast and truth differ, and the cosines that ``directions`` returns."""
    epochs, degrees, task = (1, 5, 20, 60), (4, 8), pear.tasks.shortest_path((5, 5))
    share: dict[int, list[list[float]]] = {degree: [] for degree in degrees}
    points: dict[tuple[int, str], list[list[float]]] = {}
    for degree in degrees:
        for seed in SEEDS:
            one = trial(task, task.samples(2000, degree=degree, noise=0.0, seed=seed))
            model, loss = fresh(lambda: nn.Linear(5, task.problem.n), seed), pear.PEARLoss(task.problem)
            features, true = (part[:200] for part in one.train.samples)
            seen: list[tuple[float, dict[str, float]]] = []

            def look(now: pear.train.Progress) -> None:
                if now.part == "loss" and now.epoch in epochs:
                    with torch.no_grad():
                        predicted = model(features).double()  # noqa: B023
                    seen.append(directions(task, predicted, true.double(), loss.chosen_smoothing or 0.0, seed))  # noqa: B023

            one.fit(model, loss, pear.FitConfig(max_epochs=epochs[-1], patience=100, seed=seed), progress=look)
            share[degree].append([wrong for wrong, _ in seen])
            for name in seen[0][1]:
                points.setdefault((degree, name), []).append([found[name] for _, found in seen])
    colors = dict(zip((GRADIENT, GUIDANCE, FORECAST), (LIGHT["pear"], LIGHT["spo"], LIGHT["mse"]), strict=True))
    with styled_figure(WIDE, widths=(1.0, 1.0, 1.0)) as (drawing, (left, *rest)):
        for degree, color in zip(degrees, OURS[1::2], strict=True):
            band(left, epochs, share[degree], color, "")
            last, below = np.mean(share[degree], 0)[-1], degree == degrees[0]
            shift = {"xytext": (0, -16 if below else 8), "textcoords": "offset points", "ha": "right"}
            left.annotate(f"degree {degree}", (epochs[-1], last), **shift)
        left.set(title="Samples with a wrong active set, %", ylim=(0, 105))
        for degree, axes in zip(degrees, rest, strict=True):
            for name, color in colors.items():
                band(axes, epochs, points[degree, name], color, name if degree == degrees[0] else "")
            axes.axhline(0, color=LIGHT["muted"], lw=1)
            axes.set(title=f"Cosine with the slope, degree {degree}", ylim=(-0.25, 1))
        for axes in (left, *rest):
            axes.set_xlabel("epoch")
            style_plain_log_scale(axes, "x")
            axes.set_xticks(epochs, [str(epoch) for epoch in epochs])
        drawing.legend(loc="outside lower center", ncols=3)
        save_figure(drawing, figure)
    rows = {}
    for degree in degrees:
        wrong = zip(*share[degree], strict=True)
        rows[f"degree {degree}: wrong active set, %"] = [spread(values, ".0f") for values in wrong]
        for name in (GRADIENT, RIGHT, GUIDANCE, FORECAST):
            runs = zip(*points[degree, name], strict=True)
            rows[f"degree {degree}: cosine of {name}"] = [spread(values) for values in runs]
    return table("", rows, [f"epoch {epoch}" for epoch in epochs])


GRADIENT, RIGHT = "the gradient of PEAR", "the gradient where the set is right"
GUIDANCE, FORECAST = "the pull of guidance, z° − z*", "the forecast's error, ĉ − c"


def directions(
    task: ShortestPath, predicted: Tensor, true: Tensor, lam: float, seed: int
) -> tuple[float, dict[str, float]]:
    """Return the percentage of wrong active sets, and the cosines of directions with the slope of the regret, by name.

    The cosine named ``RIGHT`` is over the samples with the right active set, the others over those with a wrong one.
    """
    chosen, best = (pear.solve(task.problem, cost, smoothing=lam) for cost in (predicted, true))
    wrong, slopes = ~chosen.active.same(best.active), mean_slope(task, predicted, true, seed)
    gradient = pear.regret_gradient(task.problem, predicted, true, smoothing=lam)
    found = {GRADIENT: gradient, GUIDANCE: best.x - chosen.x, FORECAST: predicted - true}
    cosines = {name: cosine(way[wrong], slopes[:, wrong]) for name, way in found.items()}
    return 100 * float(wrong.double().mean()), {**cosines, RIGHT: cosine(gradient[~wrong], slopes[:, ~wrong])}


def units(figure: Path) -> str:
    """Measure the test regret of the same training with costs in several units."""
    scales, task = (1e-4, 1e-2, 1.0, 1e2, 1e4), pear.tasks.shortest_path((5, 5))
    losses: dict[str, Callable[[], nn.Module]] = {
        MSE: nn.MSELoss,
        "PEAR, our defaults, λ = 0.1": lambda: pear.PEARLoss(task.problem, smoothing=0.1),
        'PEAR, our defaults, smoothing="auto"': lambda: pear.PEARLoss(task.problem, smoothing="auto"),
    }
    regret: dict[str, list[list[float]]] = {name: [] for name in losses}
    for name, make in losses.items():
        for seed in SEEDS:
            x, c = task.samples(1000, degree=6, noise=0.0, seed=seed)
            trials = [trial(task, Samples(x, scale * c)) for scale in scales]
            models = [fresh(lambda: nn.Linear(5, task.problem.n), seed) for _ in scales]
            config = pear.FitConfig(max_epochs=200, seed=seed)
            regret[name].append([one.fit(model, make(), config) for one, model in zip(trials, models, strict=True)])
    with styled_figure((6.2, 3.6)) as (drawing, axes):
        for (name, runs), color in zip(regret.items(), (COLORS[MSE], COLORS[PEAR], COLORS[GUIDED]), strict=True):
            band(axes, scales, runs, color, name)
        axes.set(title="Test regret, %", xlabel="costs multiplied by", ylim=(0, None), xscale="log")
        axes.set_xticks(scales, [f"{scale:g}" for scale in scales])
        axes.legend()
        save_figure(drawing, figure)
    rows = {name: [spread(values) for values in zip(*runs, strict=True)] for name, runs in regret.items()}
    return table("test regret, %", rows, [f"costs × {scale:g}" for scale in scales])


def trained(one: Trial, seed: int, loss: nn.Module, start: Start) -> float:
    """Train a fresh model as in the experiment on building, and return its test regret."""
    config = pear.FitConfig(batch_size=8, max_epochs=2000, seed=seed, start=start)
    return one.fit(fresh(lambda: SharedLinear(one.train.samples.features.shape[-1]), seed), loss, config)


def three(one: Trial, seed: int) -> dict[str, float]:
    """Return test regrets by name: of the squared error, of PEAR alone, and of PEAR started from the squared error."""
    problem = one.train.task.problem
    starts: dict[str, Start] = {ALONE: "standardised", GUIDED: "mse"}
    ours = {name: trained(one, seed, pear.PEARLoss(problem), start) for name, start in starts.items()}
    return {MSE: trained(one, seed, nn.MSELoss(), "mse"), **ours}


def samples(figure: Path) -> str:
    """Measure the test regret by the number of training instances, on synthetic instances of building investment."""
    counts, degrees = (7, 22, 66, 200), (1, 6)
    regret: dict[tuple[int, str], list[list[float]]] = {}
    for degree in degrees:
        for seed in SEEDS:
            runs = []
            for one in (instances(count, degree, seed) for count in counts):
                loss = pear.PEARLoss(one.train.task.problem)
                runs.append({**three(one, seed), GIVEN: trained(one, seed, loss, "given")})
            for name in runs[0]:
                regret.setdefault((degree, name), []).append([run[name] for run in runs])
    with styled_figure(WIDE, widths=(1.0, 1.0)) as (drawing, both):
        for degree, axes in zip(degrees, both, strict=True):
            for name in (MSE, ALONE, GUIDED, GIVEN):
                band(axes, counts, regret[degree, name], COLORS[name], name if degree == degrees[0] else "")
            axes.set(title=f"Test regret, %, values of degree {degree}", xlabel="training instances")
            style_plain_log_scale(axes, "x")
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.set_ylim(0, None)
        drawing.legend(loc="outside lower center", ncols=2)
        save_figure(drawing, figure)
    rows = {
        f"degree {degree}, {name}": [spread(v) for v in zip(*runs, strict=True)]
        for (degree, name), runs in regret.items()
    }
    return table("test regret, %", rows, [f"{count} instances" for count in counts])


def real_building(figure: Path) -> str:
    """Measure the test regret on real instances of building investment, after training on some of them and on all."""
    data, counts, seeds = load_building(), (7, 14, 21), range(100, 103)
    regret: dict[str, list[list[float]]] = {}
    for seed in seeds:
        for fold in range(5):
            split = building_split(data, seed, fold)
            runs = [three(Trial(first(split.train, count), split.validation, split.test), seed) for count in counts]
            for name in runs[0]:
                regret.setdefault(name, []).append([run[name] for run in runs])
    with styled_figure((6.2, 3.6)) as (drawing, axes):
        for name, found in regret.items():
            band(axes, counts, found, COLORS[name], name)
        axes.set(title="Test regret, %", xlabel="training instances", xticks=counts, ylim=(0, None))
        axes.legend()
        save_figure(drawing, figure)
    rows = {}
    for name, found in regret.items():
        better = sum(ours[-1] < theirs[-1] for ours, theirs in zip(found, regret[MSE], strict=True))
        wins = "" if name == MSE else f"{better} of {len(found)}"
        rows[name] = [*(spread(values) for values in zip(*found, strict=True)), wins]
    columns = [*(f"{count} instances" for count in counts), f"better than MSE, {counts[-1]} instances"]
    return table("test regret, %", rows, columns)


def first(subset: Subset[Any], count: int) -> Subset[Any]:
    """Return the first ``count`` instances of a subset."""
    features, costs = (part[:count] for part in subset.samples)
    return Subset(building(subset.task.weights[:count]), Samples(features, costs), subset.ids[:count])


LESSONS: dict[str, Callable[[Path], str]] = {
    "gradients": gradients,
    "vertices": vertices,
    "active-sets": active_sets,
    "units": units,
    "samples": samples,
    "building": real_building,
}


def marks(name: str) -> tuple[str, str]:
    """Return the two comments that stand before and after a lesson's table on the page."""
    return f"<!-- lessons.py {name}: begin -->", f"<!-- lessons.py {name}: end -->"


def updated(page: str, name: str, text: str) -> str:
    """Return the page with a new text between the marks of a lesson."""
    begin, end = marks(name)
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"


def main() -> None:
    """Run the lessons that the command line names, print their tables, and write pictures and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", default=list(LESSONS), metavar="NAME", help=f"of {', '.join(LESSONS)}")
    parser.add_argument("--out", type=Path, help="draw into this folder and leave the page as it is")
    args = parser.parse_args()
    if unknown := set(args.lessons) - set(LESSONS):
        parser.error(f"unknown lessons {', '.join(sorted(unknown))}; there are {', '.join(LESSONS)}")
    for name in args.lessons:
        text = LESSONS[name]((args.out or IMAGES) / f"lessons-{name}.svg")
        today = datetime.date.today()
        text += f"\n\n`python lab/studies/lessons.py {name}`, {today.day} {today:%B %Y}."
        print(f"{name}\n\n{text}\n", flush=True)
        if args.out is None:
            PAGE.write_text(updated(PAGE.read_text("utf-8"), name, text), encoding="utf-8")


if __name__ == "__main__":
    main()

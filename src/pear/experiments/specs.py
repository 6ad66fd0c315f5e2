"""The paper's LP experiments as specifications, and what they ask to be run."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from pear.data.prices import Gaps
from pear.experiments.errors import ExperimentError
from pear.losses.methods import METHODS
from pear.tasks.market.losses import METHODS as MARKET_METHODS

TASKS = ("shortest_path", "knapsack")
DATA_TASKS = ("building", "energy")
"""Tasks on real data, which a user has to have; see ``pear.experiments.data_tasks``."""
DEGREES = (2, 4, 6, 8)
PAPER_METHODS = ("mse", "spo+", "pfyl", "dbb", "lava", "pear")
CAPACITIES = (0.3, 0.5, 0.7, 0.9)

_FULL: dict[str, dict[str, Any]] = {
    "shortest_path": {"grid": [5, 5], "samples": 2000},
    "knapsack": {"items": 100, "dimensions": 5, "capacity_ratio": 0.5, "samples": 2000},
}
_QUICK: dict[str, dict[str, Any]] = {
    "shortest_path": {"grid": [5, 5], "samples": 400, "quick": True},
    "knapsack": {"items": 20, "dimensions": 2, "capacity_ratio": 0.5, "samples": 400, "quick": True},
}
_DATA: dict[str, dict[str, Any]] = {
    "building": {
        "instance_size": 10, "budget": 0.4, "version": "inequality", "features": "all",
        "batch_size": 8, "check_every": 10, "patience": 10, "time_cap": 20.0, "max_epochs": 2000,
    },
    "energy": {
        "shares": [0.7, 0.1, 0.2],
        "batch_size": 32, "check_every": 5, "patience": 5, "time_cap": 20.0, "max_epochs": 300,
    },
}  # fmt: skip
"""Time cap and epochs are of one candidate of ``TUNED``."""

TUNED: dict[str, dict[str, list[float]]] = {
    "spo+": {"mse_weight": [0.01, 0.1, 1.0, 10.0, 100.0]},
    "spo+relaxed": {"mse_weight": [0.01, 0.1, 1.0, 10.0, 100.0]},
    "pfyl": {"sigma": [0.001, 0.01, 0.1, 1.0, 10.0]},
    "dbb": {"interpolation": [1.0, 10.0, 100.0, 1000.0, 10000.0]},
    "lava": {"threshold": [-0.0001, -0.001, -0.01, -0.1, -1.0]},
    "pear": {"smoothing": [0.01, 0.1, 1.0, 10.0, 100.0]},
}
"""On real data the right size of these is not known: each method tries five and keeps what validates best."""

TIME_CAP, QUICK_TIME_CAP = 600.0, 10.0
MAX_EPOCHS, QUICK_MAX_EPOCHS = 10_000, 60
SEEDS, QUICK_SEEDS = (0, 1, 2, 3, 4), (0, 1)


@dataclass(frozen=True)
class Run:
    """One row to be: a training, or something measured on the weights of one.

    Attributes:
        experiment: the one that asks for it; not part of the key, so that experiments share trainings.
        task: of ``TASKS``.
        method: name in ``pear.losses.methods``.
        seed: of data, first weights and batches.
        settings: all else that fixes the outcome; has ``variant`` where something is measured instead of trained.
    """

    experiment: str
    task: str
    method: str
    seed: int
    settings: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """Names the row: the same for the same training, whatever asked for it."""
        text = json.dumps([self.task, self.method, self.seed, self.settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def variant(self) -> str | None:
        """What is measured; None for a training."""
        return self.settings.get("variant")

    def training(self) -> Run:
        """The training whose weights are measured; of a training, itself."""
        return replace(self, settings={k: v for k, v in self.settings.items() if k != "variant"})

    def __str__(self) -> str:
        if self.task == "portfolio":
            what = f"{self.variant}: " if self.variant else ""
            return f"{what}{dashed(self.task)}, {self.method}, {self.settings['data']}, seed {self.seed}"
        names = {"degree": "degree", "capacity": "capacity", "version": "budget by", "fold": "fold"}
        condition = [f"{word} {self.settings[name]}" for name, word in names.items() if name in self.settings]
        if self.settings.get("noise"):
            condition.append(f"noise {self.settings['noise']:g}")
        for name, symbol in (("smoothing", "λ"), ("injection", "β")):
            if self.settings.get(name, 0.1) != 0.1:
                condition.append(f"{symbol} {self.settings[name]:g}")
        what = f"{self.variant}: " if self.variant else ""
        return f"{what}{dashed(self.task)}, {self.method}, {', '.join(condition)}, seed {self.seed}"


@dataclass(frozen=True)
class Selection:
    """The part of the experiments that is wanted; None means all there is.

    Attributes:
        tasks, methods, degrees, seeds: what to keep.
        time_cap: seconds a training may take.
        quick: a reduced grid on smaller problems, to see that everything works. Its settings differ from the paper's,
            so that its rows are never taken for the real ones.
        data: prices for the portfolio experiments, see ``pear.data.load_prices``; gaps: what to do with missing ones.
    """

    tasks: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    degrees: Sequence[int] | None = None
    seeds: Sequence[int] | None = None
    time_cap: float | None = None
    quick: bool = False
    data: str | None = None
    gaps: Gaps = "error"

    def __post_init__(self) -> None:
        methods = dict.fromkeys((*(m.name for m in METHODS), *MARKET_METHODS))
        known = {"task": (*TASKS, *DATA_TASKS, "portfolio"), "method": tuple(methods), "degree": DEGREES}
        for what, there in known.items():
            for name in getattr(self, f"{what}s") or ():
                check_known(what, name, there)
        if self.time_cap is not None and not self.time_cap > 0:
            raise ExperimentError(f"the time cap must be a positive number of seconds; got {self.time_cap!r}")
        if any(seed < 0 for seed in self.seeds or ()):
            raise ExperimentError(f"seeds must be whole numbers of at least 0; got {list(self.seeds or ())}")

    def settings(self, task: str) -> dict[str, Any]:
        """What all trainings of a task share."""
        if task in DATA_TASKS:
            quick = {"time_cap": QUICK_TIME_CAP, "max_epochs": QUICK_MAX_EPOCHS, "quick": True} if self.quick else {}
            limit = {"time_cap": float(self.time_cap)} if self.time_cap else {}
            return {**_DATA[task], **quick, **limit}
        cap = self.time_cap or (QUICK_TIME_CAP if self.quick else TIME_CAP)
        epochs = QUICK_MAX_EPOCHS if self.quick else MAX_EPOCHS
        return {**(_QUICK if self.quick else _FULL)[task], "time_cap": float(cap), "max_epochs": epochs}


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables.

    Attributes:
        name: as in ``pear reproduce NAME``.
        title: one line on what it shows.
        tasks, methods, degrees: crossed with each other and with the seeds; without degrees, whatever degrees are
            selected.
        quick_degrees: those of them on the reduced grid.
        options: option of the data or of PEAR, with the values it takes.
        quick_options: the same on the reduced grid.
        variant: what is measured on the trained weights; None where the trainings are the result.
    """

    name: str
    title: str
    tasks: tuple[str, ...] = TASKS
    methods: tuple[str, ...] = PAPER_METHODS
    degrees: tuple[int, ...] = DEGREES
    quick_degrees: tuple[int, ...] = (8,)
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    quick_options: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    variant: str | None = None

    @property
    def needs_data(self) -> bool:
        """Whether it runs on files that a user has to have; "all" leaves it out."""
        return any(task in DATA_TASKS for task in self.tasks)

    def trainings(self, selection: Selection) -> list[Run]:
        """The trainings that it rests on."""
        degrees = self.quick_degrees if selection.quick and selection.degrees is None else self.degrees
        options = self.quick_options if selection.quick else self.options
        seeds = selection.seeds if selection.seeds is not None else (QUICK_SEEDS if selection.quick else SEEDS)
        grid = product(
            [task for task in self.tasks if selection.tasks is None or task in selection.tasks],
            self._methods(selection),
            [degree for degree in degrees if selection.degrees is None or degree in selection.degrees]
            if self.degrees
            else [None],
            [dict(zip(options, values, strict=True)) for values in product(*options.values())],
            seeds,
        )
        return [
            Run(self.name, task, method, seed, _settings(selection, task, method, degree, chosen))
            for task, method, degree, chosen, seed in grid
        ]

    def runs(self, selection: Selection) -> list[Run]:
        """Everything that it asks for, trainings first."""
        trainings = self.trainings(selection)
        if self.variant is None:
            return trainings
        return trainings + [replace(run, settings={**run.settings, "variant": self.variant}) for run in trainings]

    def _methods(self, selection: Selection) -> Sequence[str]:
        if selection.methods is None:
            return self.methods
        # A comparison of methods takes any of them; one that is about PEAR takes no other.
        allowed = self.methods if self.methods == ("pear",) else [method.name for method in METHODS]
        return [method for method in selection.methods if method in allowed]


def _settings(
    selection: Selection, task: str, method: str, degree: int | None, chosen: dict[str, Any]
) -> dict[str, Any]:
    if degree is None:
        tuned = {"tuned": TUNED[method]} if method in TUNED else {}
        return {**selection.settings(task), **chosen, **tuned}
    own = {"smoothing": 0.1, "injection": 0.1} if method == "pear" else {}
    return {**selection.settings(task), "degree": degree, "noise": 0.0, **own, **chosen}


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment("lp-degree", "six methods as the costs depart from linear", quick_degrees=(2, 8)),
        Experiment(
            "lp-noise",
            "six methods under noise, degree 8",
            degrees=(8,),
            options={"noise": (0.1, 0.3, 0.5)},
            quick_options={"noise": (0.5,)},
        ),
        Experiment(
            "direction-shift",
            "trained downward, tested upward through the same grid",
            tasks=("shortest_path",),
            variant="direction-shift",
        ),
        Experiment(
            "capacity-shift",
            "trained at half the total weight, tested at other capacities",
            tasks=("knapsack",),
            variant="capacity-shift",
        ),
        Experiment(
            "ablation-lambda",
            "PEAR with less and more smoothing λ",
            methods=("pear",),
            options={"smoothing": (0.01, 0.05, 0.1, 0.5, 1.0)},
            quick_options={"smoothing": (0.01, 0.1, 1.0)},
        ),
        Experiment(
            "ablation-beta",
            "PEAR with less and more normal injection β",
            methods=("pear",),
            options={"injection": (0.0, 0.05, 0.1, 0.2, 0.5)},
            quick_options={"injection": (0.0, 0.1, 0.5)},
        ),
        Experiment(
            "stability",
            "how often small errors change PEAR's active constraints, degree 8",
            methods=("pear",),
            degrees=(8,),
            variant="stability",
        ),
        Experiment("accuracy", "squared error of the forecasts that each method trains", variant="accuracy"),
        Experiment(
            "building",
            "six methods on real properties, a budget of its own for every instance (needs data)",
            tasks=("building",),
            degrees=(),
            options={"fold": (0, 1, 2, 3, 4)},
            quick_options={"fold": (0,)},
        ),
        Experiment(
            "building-equality",
            "the same with the budget spent exactly and properties built in part (needs data)",
            tasks=("building",),
            degrees=(),
            options={"version": ("equality",), "fold": (0, 1, 2, 3, 4)},
            quick_options={"version": ("equality",), "fold": (0,)},
        ),
        Experiment(
            "energy",
            "six methods on real prices, a knapsack of 48 half-hours (needs data)",
            tasks=("energy",),
            degrees=(),
            options={"capacity": (60.0, 120.0, 180.0)},
            quick_options={"capacity": (120.0,)},
        ),
    )
}


def expand(names: Sequence[str], selection: Selection) -> list[Run]:
    """The runs of the named experiments, each once: trainings in the order they are asked for, then measurements.

    Args:
        names: of ``EXPERIMENTS``, or "all" for those that need no data files; the portfolio's go by their own names.
        selection: the part that is wanted.

    Raises:
        ExperimentError: an unknown name, or nothing is left.

    Example:
        >>> runs = expand(["ablation-beta"], Selection(tasks=["knapsack"], degrees=[8], seeds=[0]))
        >>> len(runs), str(runs[0])
        (5, 'knapsack, pear, degree 8, β 0, seed 0')
    """
    from pear.experiments import market  # its specifications build on those here

    there: dict[str, Experiment | market.MarketExperiment] = {**EXPERIMENTS, **market.EXPERIMENTS}
    for name in names:
        check_known("experiment", name, (*there, "all"))
    named = [name for name, one in EXPERIMENTS.items() if "all" in names and not one.needs_data]
    chosen = {name: there[name] for name in (*named, *names) if name != "all"}
    unique: dict[str, Run] = {}
    for experiment in chosen.values():
        for run in experiment.runs(selection):
            unique.setdefault(run.key, run)
    if not unique:
        raise ExperimentError(
            f"nothing to run: no combination of the tasks, methods, degrees and seeds asked for is part of "
            f"{', '.join(chosen) or 'no experiment'}; `pear reproduce --list` shows what is"
        )
    return sorted(unique.values(), key=lambda run: run.variant is not None)


def check_known(what: str, name: object, there: Iterable[object]) -> None:
    """Refuse a name that is not there, listing those that are."""
    known = list(there)
    if name in known:
        return
    shown = [dashed(str(one)) for one in known]
    close = difflib.get_close_matches(dashed(str(name)), shown, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ExperimentError(f"there is no {what} {dashed(str(name))!r}; there is {', '.join(shown)}{hint}")


def dashed(name: str) -> str:
    """A task's name as the command line spells it."""
    return name.replace("_", "-")

"""The catalogue of experiments: what each experiment runs, and which table shows its results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pear.losses import methods
from pear_lab.experiments.table_spec import TableSpec
from pear_lab.tasks import market
from pear_lab.tasks.market.windows import AHEAD, WINDOW

OURS, REFERENCE = "pear-guided", "pear"
"""Names of PEAR with the defaults of this package, and of PEAR with the settings of the paper."""
METHODS: Mapping[str, str] = {method.name: method.title for method in methods.METHODS} | {
    REFERENCE: "PEAR as published"
}
"""Titles of the methods for linear objectives, in the order of tables."""
PEER_METHODS: Mapping[str, str] = {"qpth": "qpth", "cvxpylayers": "CvxpyLayers"}
"""Titles of layers of other libraries (``pear_lab.peers``) that replace ours. They run only if selected by name."""
PORTFOLIO_METHODS: Mapping[str, str] = {**market.METHODS, **PEER_METHODS}
"""Titles of the methods for portfolios, in the order of tables."""

DEGREES = (2, 4, 6, 8)
CAPACITIES = (0.3, 0.5, 0.7, 0.9)
LOWER_BOUNDS = (-0.1, -0.3, -0.5, -1.0)
FOLDS = (0, 1, 2, 3, 4)
SEEDS, QUICK_SEEDS = (0, 1, 2, 3, 4), (0, 1)
TIME_CAP, QUICK_TIME_CAP = 600.0, 10.0
MAX_EPOCHS, QUICK_MAX_EPOCHS = 10_000, 60


@dataclass(frozen=True)
class TaskEntry:
    """A task of the experiments: its methods, settings and budget.

    Attributes:
        title: title in tables.
        methods: titles of the methods that can be trained on the task, by name.
        problem: settings of the problem and of the protocol: the paper's if ``published`` is True, otherwise ours.
        budget: time cap and epochs of one training.
        quick: settings of the reduced grid (``--quick``), which replace those of the same name in ``problem`` and
            ``budget``. Results of the reduced grid cannot be compared with the paper's.
        published: whether problem and budget are the paper's.
        needs_data: whether the task needs files or prices; if so, ``pear reproduce all`` leaves its experiments out.
        shared_test: whether all seeds are tested on the same instances.
        block: number of neighbouring, similar instances that a bootstrap draws together.
    """

    title: str
    methods: Mapping[str, str]
    problem: Mapping[str, Any]
    budget: Mapping[str, Any]
    quick: Mapping[str, Any]
    published: bool = False
    needs_data: bool = True
    shared_test: bool = False
    block: int = 1


_PAPER = {"time_cap": TIME_CAP, "max_epochs": MAX_EPOCHS}
_SHORT = {"time_cap": QUICK_TIME_CAP, "max_epochs": QUICK_MAX_EPOCHS, "quick": True}

TASKS: Mapping[str, TaskEntry] = {
    "shortest_path": TaskEntry(
        "Shortest path",
        METHODS,
        {"grid": [5, 5], "samples": 2000},
        _PAPER,
        {"samples": 400, **_SHORT},
        published=True,
        needs_data=False,
    ),
    "knapsack": TaskEntry(
        "Knapsack",
        METHODS,
        {"items": 100, "dimensions": 5, "capacity_ratio": 0.5, "samples": 2000},
        _PAPER,
        {"items": 20, "dimensions": 2, "samples": 400, **_SHORT},
        published=True,
        needs_data=False,
    ),
    "building": TaskEntry(
        "Building investment",
        METHODS,
        {
            "instance_size": 10, "budget": 0.4, "version": "inequality", "features": "all",
            "batch_size": 8, "check_every": 10, "patience": 10,
        },
        {"time_cap": 20.0, "max_epochs": 2000},
        _SHORT,
    ),
    "energy": TaskEntry(
        "Energy",
        METHODS,
        {"shares": [0.7, 0.1, 0.2], "batch_size": 32, "check_every": 5, "patience": 5},
        {"time_cap": 20.0, "max_epochs": 300},
        _SHORT,
        shared_test=True,
        block=7,
    ),
    "portfolio": TaskEntry(
        "Portfolios",
        PORTFOLIO_METHODS,
        {"window": WINDOW, "ahead": AHEAD, "risk_aversion": 2.0, "lower": 0.0, "stride": 1},
        {"time_cap": TIME_CAP, "max_epochs": 100},
        {"stride": 4, "max_epochs": 15, "last_days": 1600, "quick": True, "time_cap": 3 * QUICK_TIME_CAP},
        shared_test=True,
    ),
}  # fmt: skip
"""Tasks by name. If a method tries several candidates (``TUNED``), the budget is that of each candidate."""

TUNED: Mapping[str, dict[str, list[float]]] = {
    "spo+": {"mse_weight": [0.01, 0.1, 1.0, 10.0, 100.0]},
    "spo+relaxed": {"mse_weight": [0.01, 0.1, 1.0, 10.0, 100.0]},
    "pfyl": {"sigma": [0.001, 0.01, 0.1, 1.0, 10.0]},
    "dbb": {"interpolation": [1.0, 10.0, 100.0, 1000.0, 10000.0]},
    "lava": {"threshold": [-0.0001, -0.001, -0.01, -0.1, -1.0]},
    "pear": {"smoothing": [0.01, 0.1, 1.0, 10.0, 100.0]},
}
"""The five candidates for a setting of each method on tables of real data. The one that validates best is kept."""

LP_TASKS = ("shortest_path", "knapsack")
PAPER_METHODS = ("mse", "spo+", "pfyl", "dbb", "lava", "pear")
PAPER_PORTFOLIO_METHODS = ("mse", "layer", "pear-mean", "pear-exact")
_REGRET_AND_TIME = ("normalized_regret_pct", "train_seconds")
_EVERY_DEGREE: Mapping[str, tuple[Any, ...]] = {"degree": DEGREES}
_HIGHEST_DEGREE: Mapping[str, tuple[Any, ...]] = {"degree": (8,)}


@dataclass(frozen=True)
class Experiment:
    """A set of runs that fill one table.

    Attributes:
        name: as in ``pear reproduce NAME``.
        title: one line on what the experiment shows.
        table: the table that the runs fill.
        tasks: names of the tasks.
        methods: names of the methods. Every task runs with every method, every combination of options and every seed.
        options: settings of the data or of PEAR, with the values they take.
        quick_options: options that replace those of the same name on the reduced grid (``--quick``).
        variant: what is measured on the trained weights; None if the trainings themselves are the result.
    """

    name: str
    title: str
    table: TableSpec
    tasks: tuple[str, ...] = LP_TASKS
    methods: tuple[str, ...] = PAPER_METHODS
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: _EVERY_DEGREE)
    quick_options: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: _HIGHEST_DEGREE)
    variant: str | None = None

    @property
    def needs_data(self) -> bool:
        """Whether one of the tasks needs files or prices. ``pear reproduce all`` leaves such experiments out."""
        return any(TASKS[task].needs_data for task in self.tasks)

    @property
    def count(self) -> int:
        """The number of trainings of the full grid."""
        return len(self.tasks) * len(self.methods) * math.prod(map(len, self.options.values())) * len(SEEDS)


# fmt: off
_LP = (
    Experiment(
        "lp-degree", "six methods as the costs depart from linear",
        TableSpec(
            "lp_degree", "LP benchmarks by degree",
            "Test regret and training time as the costs grow less linear; no noise. Times are of different machines.",
            _REGRET_AND_TIME, ddof=1,
        ),
        quick_options={"degree": (2, 8)},
    ),
    Experiment(
        "lp-noise", "six methods under noise, degree 8",
        # The printed deviations are those of the population: MSE on paths at noise 0.5 gives 2.95 with ddof 0, as
        # printed, and 3.30 with ddof 1.
        TableSpec(
            "lp_noise", "LP benchmarks under noise",
            "Test regret at degree 8 where every cost carries a random factor of this half-width.",
            columns="noise",
        ),
        options={**_HIGHEST_DEGREE, "noise": (0.1, 0.3, 0.5)}, quick_options={"noise": (0.5,)},
    ),
    Experiment(
        "direction-shift", "trained downward, tested upward through the same grid",
        # As in the noise table: MSE at degree 8 gives 1.47 with ddof 0, as printed, and 1.64 with ddof 1.
        TableSpec(
            "direction_shift", "Direction shift",
            "Trained on paths from the top left to the bottom right, tested from the bottom left to the top right.",
            variants=("direction-shift",), shift="cross",
        ),
        tasks=("shortest_path",), variant="direction-shift",
    ),
    Experiment(
        "capacity-shift", "trained at half the total weight, tested at other capacities",
        TableSpec(
            "capacity_shift", "Capacity shift",
            "Trained with a capacity of half the total weight, tested with others.",
            blocks=("task", "degree"), columns="capacity", variants=("capacity-shift",), shift="{capacity:g}",
        ),
        tasks=("knapsack",), variant="capacity-shift",
    ),
    Experiment(
        "ablation-beta", "PEAR with less and more normal injection β",
        TableSpec(
            "ablation_beta", "Ablation: normal injection β",
            "PEAR with smoothing λ = 0.1; the best two β of a degree are marked.",
            rows="beta", heading="Injection",
        ),
        methods=("pear",),
        options={**_EVERY_DEGREE, "injection": (0.0, 0.05, 0.1, 0.2, 0.5)},
        quick_options={**_HIGHEST_DEGREE, "injection": (0.0, 0.1, 0.5)},
    ),
    Experiment(
        "ablation-lambda", "PEAR with less and more smoothing λ",
        TableSpec(
            "ablation_lambda", "Ablation: smoothing λ",
            "PEAR with injection β = 0.1; the best two λ of a degree are marked.",
            rows="lambda", heading="Smoothing",
        ),
        methods=("pear",),
        options={**_EVERY_DEGREE, "smoothing": (0.01, 0.05, 0.1, 0.5, 1.0)},
        quick_options={**_HIGHEST_DEGREE, "smoothing": (0.01, 0.1, 1.0)},
    ),
    Experiment(
        "stability", "how often small errors change PEAR's active constraints, degree 8",
        TableSpec(
            "stability", "Stability of the active set",
            "Share of inequalities whose activity changes when PEAR's predicted costs are perturbed a little, at "
            "degree 8. The paper names neither the degree nor the size of its perturbations, and prints no deviation; "
            "ours are 1 % of the mean predicted cost.",
            ("active_set_change_rate_pct",), blocks=(), rows="task", columns="method", heading="Task", ranked=False,
            settings={"degree": 8}, variants=("stability",),
        ),
        methods=("pear",), options=_HIGHEST_DEGREE, variant="stability",
    ),
    Experiment(
        "accuracy", "squared error of the forecasts that each method trains",
        TableSpec(
            "accuracy", "Prediction accuracy", "Mean squared error of the predicted costs on the test samples.",
            ("mse",), variants=("accuracy", None),  # every training measures it, too
        ),
        variant="accuracy",
    ),
)

_TABULAR = (
    Experiment(
        "building", "six methods on real properties, a budget of its own for every instance (needs data)",
        TableSpec(
            "building_investment", "Building investment",
            "Real properties in instances of 10, a budget of 0.4 of each instance's construction cost. Ours is "
            "cross-validated: each seed deals out the properties anew, and over five folds every instance is tested "
            "once by a model that has not seen it; each method but MSE chooses one setting of five on validation "
            "instances. The paper does not say how it splits, so that the two are only loosely comparable; its "
            "deviations, if of single splits, must be larger.",
            columns="budget", ddof=1, as_published=False, settings={"version": "inequality"},
        ),
        tasks=("building",), options={"fold": FOLDS}, quick_options={"fold": (0,)},
    ),
    Experiment(
        "building-equality", "the same with the budget spent exactly and properties built in part (needs data)",
        TableSpec(
            "building_equality", "Building investment, budget spent exactly",
            "As above, with properties built in part so that the budget is met: a linear program. Not in the paper.",
            columns="budget", ddof=1, as_published=False, settings={"version": "equality"},
            cells=({"batch": 10.0, "budget": 0.4},),
        ),
        tasks=("building",), options={"version": ("equality",), "fold": FOLDS}, quick_options={"fold": (0,)},
    ),
    Experiment(
        "energy", "six methods on real prices, a knapsack of 48 half-hours (needs data)",
        TableSpec(
            "energy", "Energy",
            "A knapsack of 48 half-hours on Irish prices: the first 70 % of the days train, 10 % validate, the last "
            "20 % test. Seeds differ in first weights and batches alone. Each method but MSE chooses one setting of "
            "five on the validation days; its time is that of all five. Not in the paper.",
            _REGRET_AND_TIME, columns="limit", ddof=1, as_published=False,
            cells=({"limit": 60.0}, {"limit": 120.0}, {"limit": 180.0}), decimals={"normalized_regret_pct": 3},
        ),
        tasks=("energy",), options={"capacity": (60.0, 120.0, 180.0)}, quick_options={"capacity": (120.0,)},
    ),
)

_PORTFOLIO = (
    Experiment(
        "mvo", "mean–variance portfolios on prices (--data), tested by regret and by a backtest",
        TableSpec(
            "mvo", "Regret and backtest",
            "Mean ± sample standard deviation (ddof 1) over the seeds. Times are of different machines.",
            (
                "normalized_regret_pct", "train_seconds", "cumulative_return_pct", "annual_return_pct",
                "volatility_pct", "sharpe", "max_drawdown_pct", "turnover", "normalized_mse",
            ),
            ddof=1,
        ),
        tasks=("portfolio",), methods=PAPER_PORTFOLIO_METHODS, options={}, quick_options={},
    ),
    Experiment(
        "lower-bound-shift", "portfolios trained long only, tested with short positions",
        TableSpec(
            "lower_bound_shift", "Lower-bound shift",
            "Regret in % of the models trained long only, where short positions are allowed down to the bound.",
            columns="lower_bound", ddof=1, variants=("lower-bound-shift",), shift="{lower_bound:g}",
            decimals={"normalized_regret_pct": 1},
        ),
        tasks=("portfolio",), methods=PAPER_PORTFOLIO_METHODS, options={}, quick_options={},
        variant="lower-bound-shift",
    ),
)
# fmt: on

EXPERIMENTS: Mapping[str, Experiment] = {one.name: one for one in (*_LP, *_TABULAR, *_PORTFOLIO)}
"""Experiments by name, in the order of the report."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of a few methods on many seeds. Trainings are set up as in the experiments that it names.

    Attributes:
        name: as in ``pear reproduce NAME``.
        title: one line on what the comparison shows.
        experiments: names of the experiments with the tasks and options that are compared.
        methods: names of the methods, by task.
        others: names of slower methods, by task. They run only if selected, and are compared on the seeds that ran.
        start: how all trainings except those of MSE start (``FitConfig.start``), so that no method has an advantage;
            None if every training starts as in its experiment.
        seeds: default seeds; they differ from those of the published tables.
    """

    name: str
    title: str
    experiments: tuple[str, ...]
    methods: Mapping[str, tuple[str, ...]]
    others: Mapping[str, tuple[str, ...]]
    start: str | None = None
    seeds: tuple[int, ...] = tuple(range(30, 50))

    def settings(self, method: str) -> dict[str, Any]:
        """Return the settings of a method that this comparison adds to those of the experiments."""
        return {} if self.start is None or method == "mse" else {"start": self.start}

    @property
    def count(self) -> int:
        """The number of trainings of the full grid, without the slower methods."""
        parts = [EXPERIMENTS[name] for name in self.experiments]
        cells = sum(
            len(self.methods[task]) * math.prod(map(len, part.options.values()))
            for part in parts
            for task in part.tasks
        )
        return cells * len(self.seeds)


_COMPARED = ("mse", "spo+", REFERENCE, OURS)
_SLOWER = ("pfyl", "dbb", "lava")

COMPARISONS: Mapping[str, Comparison] = {
    one.name: one
    for one in (
        Comparison(
            "comparison",
            "MSE, SPO+, PEAR as published and PEAR, our defaults, paired over 20 seeds",
            ("lp-degree", "lp-noise"),
            {"shortest_path": _COMPARED, "knapsack": ("mse", "spo+relaxed", REFERENCE, OURS)},
            {"shortest_path": _SLOWER, "knapsack": ("spo+", *_SLOWER)},
        ),
        Comparison(
            "comparison-real",
            "MSE, SPO+, PEAR as published and PEAR, our defaults, on real prices and properties (needs data)",
            ("energy", "building"),
            {"energy": _COMPARED, "building": _COMPARED},
            {"energy": _SLOWER, "building": _SLOWER},
            start="mse",
        ),
    )
}
"""Comparisons by name; ``pear reproduce all`` leaves them out."""

"""``expand``: from the names of experiments to the specifications of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from pear_lab.experiments.catalogue import COMPARISONS, EXPERIMENTS, QUICK_SEEDS, SEEDS, TASKS, Experiment
from pear_lab.experiments.experiment_errors import ExperimentError
from pear_lab.experiments.protocols import PROTOCOLS
from pear_lab.experiments.run_spec import RunSpec, Selection, check_known

_MODES = {"pear": ("pear-mean", "pear-exact")}
"""Short names of portfolio methods that stand for several methods."""


def expand(names: Sequence[str], selection: Selection) -> list[RunSpec]:
    """Return the runs of the named experiments, each once: the trainings, then the measurements on their weights.

    Args:
        names: names from ``EXPERIMENTS`` and ``COMPARISONS``. "all" stands for the experiments that need no data, and
            for no comparison.
        selection: the part of these experiments to run.

    Raises:
        ExperimentError: a name is unknown, or the selection leaves no run.

    Example:
        >>> runs = expand(["ablation-beta"], Selection(tasks=["knapsack"], degrees=[8], seeds=[0]))
        >>> len(runs), str(runs[0])
        (5, 'knapsack, pear, degree 8, β 0, seed 0')
    """
    for name in names:
        check_known("experiment", name, (*EXPERIMENTS, *COMPARISONS, "all"))
    named = [name for name, one in EXPERIMENTS.items() if "all" in names and not one.needs_data]
    chosen = list(dict.fromkeys(name for name in (*named, *names) if name != "all"))
    unique: dict[str, RunSpec] = {}
    for name in chosen:
        for run in (
            _comparison_runs(name, selection) if name in COMPARISONS else _experiment_runs(EXPERIMENTS[name], selection)
        ):
            unique.setdefault(run.key, run)
    if not unique:
        raise ExperimentError(
            f"nothing to run: no combination of the tasks, methods, degrees and seeds asked for is part of "
            f"{', '.join(chosen) or 'no experiment'}; `pear reproduce --list` shows what is"
        )
    return sorted(unique.values(), key=lambda run: run.variant is not None)


def _comparison_runs(name: str, selection: Selection) -> list[RunSpec]:
    """Return the trainings of a comparison. Its slower methods run only if they are selected.

    The runs are ordered by seed, so that a comparison that is stopped early has fewer seeds but all methods and cells.
    """
    comparison = COMPARISONS[name]
    seeds = selection.seeds if selection.seeds is not None else (QUICK_SEEDS if selection.quick else comparison.seeds)
    runs: list[RunSpec] = []
    for part, (task, methods) in product(comparison.experiments, comparison.methods.items()):
        if selection.tasks is None or task in selection.tasks:
            known = (*methods, *comparison.others[task])
            wanted = methods if selection.methods is None else [one for one in known if one in selection.methods]
            runs += _experiment_runs(EXPERIMENTS[part], replace(selection, tasks=[task], methods=wanted, seeds=seeds))
    own = (replace(run, experiment=name, settings=run.settings | comparison.settings(run.method)) for run in runs)
    return sorted(own, key=lambda run: seeds.index(run.seed))


def _experiment_runs(experiment: Experiment, selection: Selection) -> list[RunSpec]:
    """Return the selected runs of an experiment: all trainings, then the measurements (if any) on their weights."""
    seeds = selection.seeds if selection.seeds is not None else (QUICK_SEEDS if selection.quick else SEEDS)
    trainings = []
    for task in experiment.tasks:
        methods = _experiment_methods(experiment, task, selection.methods)
        if not methods or (selection.tasks is not None and task not in selection.tasks):
            continue
        protocol = PROTOCOLS[task]
        shared = protocol.settings(selection, task)
        for method, chosen, seed in product(methods, _option_grid(experiment, selection), seeds):
            settings = {**shared, **protocol.method_settings(method), **chosen}
            trainings.append(RunSpec(experiment.name, task, method, seed, settings))
    if experiment.variant is None:
        return trainings
    return trainings + [replace(run, settings={**run.settings, "variant": experiment.variant}) for run in trainings]


def _option_grid(experiment: Experiment, selection: Selection) -> list[dict[str, Any]]:
    """Return every combination of the options' values.

    If the selection names degrees, they are taken from the full grid, even if the other options are those of ``quick``.
    """
    options = {**experiment.options, **(experiment.quick_options if selection.quick else {})}
    if selection.degrees is not None and "degree" in options:
        options["degree"] = tuple(degree for degree in experiment.options["degree"] if degree in selection.degrees)
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


def _experiment_methods(experiment: Experiment, task: str, wanted: Sequence[str] | None) -> Sequence[str]:
    """Return the methods that an experiment runs on a task.

    They are its own methods or, if methods are selected (``wanted``), those of them that the task has. An experiment on
    PEAR alone runs no other method, even if it is selected.
    """
    if wanted is None:
        return experiment.methods
    allowed = experiment.methods if experiment.methods == ("pear",) else TASKS[task].methods
    asked = [mode for name in wanted for mode in ((name,) if name in allowed else _MODES.get(name, ()))]
    return [name for name in dict.fromkeys(asked) if name in allowed]

"""PEAR: train forecasters on the regret of the decisions they lead to.

A forecaster predicts the costs of an optimisation problem. The decision is optimal for the predicted cost, and is paid
for at the true cost. ``PEARLoss`` is the regret: how much more this decision costs than the best one. The gradient of
the loss is the prediction error projected onto the tangent space of the active constraints. This projection is exact
for every LP and convex QP, and takes one small linear solve per sample.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pear.version import __version__ as __version__

if TYPE_CHECKING:
    from pear import boosting, losses, scenarios, tasks, testing
    from pear.decisions import solve
    from pear.decisions.lazy_rows import lazy_oracle
    from pear.decisions.solution import Solution
    from pear.diagnosis.advice import advise
    from pear.diagnosis.diagnose import diagnose
    from pear.errors import (
        DataError,
        FailedSamplesWarning,
        MissingExtraError,
        NotUniqueError,
        OutputError,
        PearError,
        PluginError,
        ProblemError,
        SolveError,
        UnknownSolverError,
    )
    from pear.evaluation.time_splits import TimeSplits
    from pear.evaluation.walk_forward import walk_forward
    from pear.evaluation.walk_forward_result import WalkForward
    from pear.intervals.bounded_decisions import BoundedDecisions
    from pear.intervals.cost_intervals import CostIntervals
    from pear.intervals.interval_record import IntervalRecord
    from pear.intervals.safe_policy import SafeDecisions, SafePolicy
    from pear.losses import DecisionLayer, PEARLoss, normalized_regret, regret, regret_gradient
    from pear.optimality.status import Status
    from pear.plugins import register
    from pear.problem import ConstraintMap, CostMap, KnownMap, Model, Oracle, Penalty, Problem, Projection, Smooth
    from pear.problem.importers import (
        from_cvxpy,
        from_file,
        from_gurobipy,
        from_highs,
        from_mps,
        from_pyepo,
        from_pyomo,
        from_scipy,
    )
    from pear.problem.presolve_and_recovery import Recovery, presolve
    from pear.rolling import Rolling, RollingLoss, Rollout
    from pear.scenarios import CVaR, Expectation, ScenarioLoss, Stochastic, WorstCase
    from pear.train import FitConfig, fit, tune
    from pear.train.estimator.regressor import DecisionRegressor
    from pear.train.estimator.regret_scorer import regret_scorer
    from pear.train.samples import ParquetSamples

__all__ = [
    "BoundedDecisions",
    "CVaR",
    "ConstraintMap",
    "CostIntervals",
    "CostMap",
    "DataError",
    "DecisionLayer",
    "DecisionRegressor",
    "Expectation",
    "FailedSamplesWarning",
    "FitConfig",
    "IntervalRecord",
    "KnownMap",
    "MissingExtraError",
    "Model",
    "NotUniqueError",
    "Oracle",
    "OutputError",
    "PEARLoss",
    "ParquetSamples",
    "PearError",
    "Penalty",
    "PluginError",
    "Problem",
    "ProblemError",
    "Projection",
    "Recovery",
    "Rolling",
    "RollingLoss",
    "Rollout",
    "SafeDecisions",
    "SafePolicy",
    "ScenarioLoss",
    "Smooth",
    "Solution",
    "SolveError",
    "Status",
    "Stochastic",
    "TimeSplits",
    "UnknownSolverError",
    "WalkForward",
    "WorstCase",
    "advise",
    "boosting",
    "diagnose",
    "fit",
    "from_cvxpy",
    "from_file",
    "from_gurobipy",
    "from_highs",
    "from_mps",
    "from_pyepo",
    "from_pyomo",
    "from_scipy",
    "lazy_oracle",
    "losses",
    "normalized_regret",
    "presolve",
    "register",
    "regret",
    "regret_gradient",
    "regret_scorer",
    "scenarios",
    "solve",
    "tasks",
    "testing",
    "tune",
    "walk_forward",
]

_MODULES = ("boosting", "losses", "scenarios", "tasks", "testing")
_NAMES = {
    "pear.decisions": ("solve",),
    "pear.decisions.lazy_rows": ("lazy_oracle",),
    "pear.decisions.solution": ("Solution",),
    "pear.diagnosis.advice": ("advise",),
    "pear.diagnosis.diagnose": ("diagnose",),
    "pear.errors": tuple(name for name in __all__ if name.endswith(("Error", "Warning"))),
    "pear.evaluation.time_splits": ("TimeSplits",),
    "pear.evaluation.walk_forward": ("walk_forward",),
    "pear.evaluation.walk_forward_result": ("WalkForward",),
    "pear.intervals.bounded_decisions": ("BoundedDecisions",),
    "pear.intervals.cost_intervals": ("CostIntervals",),
    "pear.intervals.interval_record": ("IntervalRecord",),
    "pear.intervals.safe_policy": ("SafeDecisions", "SafePolicy"),
    "pear.losses": ("DecisionLayer", "PEARLoss", "normalized_regret", "regret", "regret_gradient"),
    "pear.optimality.duals_and_active_sets": ("Status",),
    "pear.plugins": ("register",),
    "pear.problem": (
        *("ConstraintMap", "CostMap", "KnownMap", "Model", "Oracle", "Penalty", "Problem", "Projection"),
        "Smooth",
    ),
    "pear.problem.importers": tuple(name for name in __all__ if name.startswith("from_")),
    "pear.problem.presolve_and_recovery": ("Recovery", "presolve"),
    "pear.rolling": ("Rolling", "RollingLoss", "Rollout"),
    "pear.scenarios": ("CVaR", "Expectation", "ScenarioLoss", "Stochastic", "WorstCase"),
    "pear.train": ("FitConfig", "fit", "tune"),
    "pear.train.estimator.regressor": ("DecisionRegressor",),
    "pear.train.estimator.regret_scorer": ("regret_scorer",),
    "pear.train.samples": ("ParquetSamples",),
}
"""The public names of each module. A module is imported on the first use of one of its names."""

_HOME = {name: module for module, names in _NAMES.items() for name in names}

_MOVED = {
    "bench": "pear_lab.benchmarks",
    "experiments": "pear_lab.experiments",
    "peers": "pear_lab.peers",
    "report": "pear_lab.report",
}
"""Modules of version 0.1 that are now part of the package pear-lab."""


def __getattr__(name: str) -> Any:
    """Return the public object or module ``name``; for "from_NAME", the function of the importer plug-in NAME.

    Everything is imported on first use, so that ``import pear`` is fast.
    """
    if name in _MODULES:
        return import_module(f"pear.{name}")
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
    if name in _MOVED:
        raise ImportError(f"pear.{name} is now {_MOVED[name]}, in a package of its own; run pip install pear-lab")
    if name.startswith("from_"):
        row = import_module("pear.plugins").find_plugin("importer", name.removeprefix("from_"))
        if row is not None:
            return row.read
    raise AttributeError(f"module 'pear' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names, whether they are imported yet or not."""
    return sorted(__all__)
